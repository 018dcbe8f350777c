"""Write and scan compressed tables of fingerprints in many tasks; `schema/tables.md` has the format.

A drawer's table is a folder of files. Each file has all the rows of its segments. A match reads every file once, each
in its own task, with only the queries of its segments.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hsimhash.compressed.files import DOCUMENTS, MANIFEST, PERMUTED, Manifest, drawer_name, keep_profile, kept_profile
from hsimhash.compressed.match import near_rows, row_groups, scanned_distance
from hsimhash.compressed.write import drawer_writer
from hsimhash.errors import CorruptionError, HsimhashError
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.layout import Layout
from hsimhash.pairs.distinct import is_first
from hsimhash.pairs.neighbours import searches
from hsimhash.spark.columns import (
    absolute_place,
    bits_of,
    distance_of,
    first_seen_in,
    id_and_signature,
    materialized,
    signed,
)
from hsimhash.spark.near_pairs import (
    PAIR_LIMITS,
    PairLimits,
    PartPlan,
    PartTable,
    parts_in,
    sample_of,
    spread_to_parts,
)
from hsimhash.store.hbase.files.stage import Stage, open_stage

LAYOUT = "10"


def compress(
    documents: DataFrame,
    folder: str,
    *,
    id: str = "id",
    layout: Layout | str = LAYOUT,
    profile: Profile | str = DEFAULT_PROFILE,
    limits: PairLimits = PAIR_LIMITS,
) -> Manifest:
    """Write documents as compressed tables, for `match` and for 'hsimhash tables match'.

    Example:
        compress(fingerprints(pages, text="body"), "hdfs:///pages.tables", id="url")

    Args:
        documents: ids and `fingerprint`; perhaps `first_seen`, ms since 1970, by default now. Those without an id or a
            fingerprint are left out.
        folder: new or empty; a path that all executors see, or a URL that fsspec knows.
        id: the column of ids, strings or whole numbers, each once; the tables keep them as strings.
        layout: its drawers are the tables.
        profile: the one that made the fingerprints, as for `fingerprints`. The tables keep its lists.
        limits: how many rows a file has.

    Raises:
        ValueError: a column is missing or of another type, or there is no such profile.
        HsimhashError: the folder is not empty.
    """
    rows = _documents_of(documents, id)
    layout = Layout.parse(layout) if isinstance(layout, str) else layout
    made = Profile.named(profile) if isinstance(profile, str) else profile
    check_new_tables(folder)
    folder = absolute_place(folder)
    stage = open_stage(folder)
    version = keep_profile(made, partial(_write_file, stage))
    values = materialized(rows.select("fingerprint").distinct())
    sample, count = sample_of(values, limits.sample)
    plan = PartPlan.of(searches(layout.drawers, layout.max_distance), sample, count, replace(limits, depth=0))
    _write_drawers(values, plan, folder, limits, count * len(layout.drawers))
    rows.write.option("compression", "zstd").parquet(f"{stage.url}/{DOCUMENTS}")
    cuts = [[f"{cut:016x}" for cut in table.cuts.tolist()] for table in plan.tables]
    manifest = Manifest(layout.name, made.name, rows.count(), count, cuts, version)
    _write_file(stage, MANIFEST, json.dumps(asdict(manifest)).encode())
    return manifest


def check_new_tables(folder: str) -> None:
    """Raise `HsimhashError` if the folder for new tables is not empty."""
    if not open_stage(absolute_place(folder)).is_empty():
        raise HsimhashError(f"{folder} is not empty; choose another folder")


def _documents_of(documents: DataFrame, id: str) -> DataFrame:
    """Return the rows of the table of documents."""
    doc_id, (fingerprint, *_) = id_and_signature(documents, id)
    first_seen = F.coalesce(first_seen_in(documents), F.unix_millis(F.current_timestamp())).alias("first_seen")
    rows = documents.select(doc_id.cast("string").alias("id"), fingerprint, first_seen)
    return rows.where("fingerprint is not null and id is not null")


def _write_drawers(values: DataFrame, plan: PartPlan, folder: str, limits: PairLimits, rows: int) -> None:
    """Write the files of all parts, which have so many rows together."""
    parts = spread_to_parts(values, plan, limits)
    written = parts.mapInArrow(partial(_written, plan, folder), "part int, rows bigint").collect()
    if sum(row.rows for row in written) != rows:
        raise HsimhashError(f"{folder} has not all rows; this is a bug, the tables are not to be used")
    stage = open_stage(folder)
    for part in set(range(int(plan.starts[-1]))) - {row.part for row in written}:  # what had no rows has a file too
        _write_part(plan, stage, part, np.empty(0, np.uint64))


def _write_file(stage: Stage, name: str, content: bytes) -> None:
    with stage.writing(name) as stream:
        stream.write(content)


def _write_part(plan: PartPlan, stage: Stage, part: int, values: Uint64s) -> None:
    table, number = plan.place_of(part)
    name = _name(table.search.drawer.number, number)
    with stage.writing(name) as stream, drawer_writer(stream) as write:
        write(values)


def _name(drawer: int, part: int) -> str:
    return f"{drawer_name(drawer)}/part-{part:06d}.parquet"


def _written(plan: PartPlan, folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the file of each part."""
    stage = open_stage(folder)
    for part, values in parts_in(batches):
        distinct = values[is_first(values)]
        _write_part(plan, stage, part, distinct)
        yield pa.RecordBatch.from_pydict({"part": pa.array([part], pa.int32()), "rows": [len(distinct)]})


def match(
    queries: DataFrame,
    against: str,
    *,
    id: str = "id",
    max_distance: int | None = None,
    limits: PairLimits = PAIR_LIMITS,
) -> DataFrame:
    """Return the stored documents near each query, by scanning compressed tables. The call runs Spark jobs.

    Only fingerprints are compared: the tables have no sketches and keys.

    Example:
        match(fingerprints(today, text="body"), against="hdfs:///pages.tables", id="url")

    Args:
        queries: ids and `fingerprint`; those without a fingerprint match nothing.
        against: the folder that `compress`, or 'hsimhash tables write', wrote.
        id: the column of the queries' ids, strings or whole numbers.
        max_distance: in bits, at most the layout's own, which is the default.
        limits: how much a task holds, beside the file that it reads: of tables that 'hsimhash tables write' wrote
            a whole drawer's.

    Returns:
        `query`, an id of `queries`; `id`, `fingerprint` and `first_seen` of a stored document; `distance`.

    Raises:
        TypeError: `queries` is not a DataFrame of Spark, or `against` is no folder.
        ValueError: a column is missing or of another type, or the distance is beyond the layout's.
        IndexNotFoundError: there are no tables, or they are not whole.
    """
    query, (asked_bits, *_) = id_and_signature(queries, id)
    if not isinstance(against, str):
        raise TypeError(
            f"against= takes a folder of tables, got {type(against).__name__}; write the documents to one by compress()"
        )
    against = absolute_place(against)
    stage = open_stage(against)
    asked = queries.select(query.alias("query"), asked_bits.alias("asked"))
    values = asked.select("asked").where("asked is not null")
    near = _near_fingerprints(values, against, _manifest_of(stage, against), max_distance, limits)
    rows = queries.sparkSession.read.parquet(f"{stage.url}/{DOCUMENTS}")
    stored = rows.select("id", bits_of(rows, "fingerprint").alias("fingerprint"), "first_seen")
    found = near.join(stored, "fingerprint").join(asked, "asked")
    bits = distance_of(F.col("asked"), F.col("fingerprint")).cast("int").alias("distance")
    return found.select("query", "id", bits, "fingerprint", "first_seen")


def profile_of(tables: str) -> Profile:
    """Return the profile of compressed tables, and load its lists into this process.

    Raises:
        IndexNotFoundError: there are none.
        CorruptionError: the profile or one of its lists is damaged.
    """
    stage = open_stage(absolute_place(tables))
    return kept_profile(_manifest_of(stage, tables), tables, stage.read)


def _manifest_of(stage: Stage, place: str) -> Manifest:
    return Manifest.parse(stage.read(MANIFEST), place)


def _near_fingerprints(
    values: DataFrame, folder: str, manifest: Manifest, max_distance: int | None, limits: PairLimits
) -> DataFrame:
    """Compute the stored fingerprints near each of the values: `asked`, `fingerprint`."""
    layout = Layout.parse(manifest.layout)
    distance = scanned_distance(layout, max_distance)
    plan = _plan_of(manifest, layout)
    task = partial(_near, plan, folder, distance, manifest.parts is not None)
    spread = spread_to_parts(values, plan, limits)
    return materialized(spread.mapInArrow(task, "asked bigint, fingerprint bigint"))


def _plan_of(manifest: Manifest, layout: Layout) -> PartPlan:
    cuts = manifest.parts or [[] for _ in layout.drawers]
    none = np.empty(0, np.uint64)
    return PartPlan(
        tuple(
            PartTable(search, (), none, np.array([int(cut, 16) for cut in own], np.uint64))
            for search, own in zip(searches(layout.drawers, layout.max_distance), cuts, strict=True)
        )
    )


def _near(
    plan: PartPlan, folder: str, max_distance: int, has_parts: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the near pairs of queries and stored fingerprints of each part, those that no earlier drawer finds."""
    stage = open_stage(folder)
    for part, ordered in parts_in(batches):
        queries = ordered[is_first(ordered)]
        table, number = plan.place_of(part)
        drawer = table.search.drawer
        name = _name(drawer.number, number) if has_parts else drawer_name(drawer.number)
        for stored in _rows(stage, name):
            for places, rows in near_rows(queries, stored, drawer, max_distance):
                is_new = table.search.are_new(queries[places] ^ rows)
                pair = drawer.restore(queries[places][is_new]), drawer.restore(rows[is_new])
                yield pa.RecordBatch.from_arrays([signed(one) for one in pair], ["asked", "fingerprint"])


def _rows(stage: Stage, name: str) -> Iterator[Uint64s]:
    """Yield the rows of a file, in order."""
    data = stage.read(name)
    if data is None:
        raise CorruptionError(f"{stage.url}/{name} is missing; write the tables again")
    for group in row_groups(f"{stage.url}/{name}", io.BytesIO(data), [PERMUTED]):
        yield group.column(0).to_numpy()
