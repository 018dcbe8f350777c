"""The same answers on Spark as on one machine: `python -m tests.stress.spark_exactness [--data DIR]`.

Pairs, clusters and lists of `hsimhash.spark.dedup_files` against those of `hsimhash.dedup`: on all labelled texts, by
stars and by components; on random fingerprints of which some lie near others; and on fingerprints of which 30 % are
one of ten. Tables are compared row by row.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from hsimhash import Profile
from hsimhash.dedup import DedupOptions, dedup
from hsimhash.dedup.report import Totals
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.spark import RecordOptions, SparkDedupOptions, dedup_files
from tests.support.fingerprint_sets import Numbers, near_and_equal, page_ids
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.spark_session import local_spark

SEED = 59
RANDOM, NEAR_SHARE = 1_000_000, 0.2
CROWD, CROWD_SHARE = 300_000, 0.3
MOST = 4  # bits between near ones
METHODS = ("star", "components")


def written(path: Path, values: Numbers) -> Path:
    """Write fingerprints as JSON lines, ids in no order."""
    ids = page_ids(0, len(values))
    order = np.random.default_rng(SEED).permutation(len(values)).tolist()
    lines = (f'{{"id": "{ids[place]}", "fingerprint": "{int(values[place]):016x}"}}\n' for place in order)
    path.write_text("".join(lines))
    return path


def rows(path: Path) -> list[str]:
    """Return the rows of a table, sorted, with its columns in order of their names."""
    table = pq.read_table(path)
    columns = [table.column(name).to_pylist() for name in sorted(table.column_names)]
    return sorted(map(repr, zip(*columns, strict=True)))


def compared(spark: SparkSession, given: Path, folder: Path, method: str, field: str | None) -> Iterator[Outcome]:
    """Run both ways on a file; yield whether they agree."""
    profile = Profile.named("auto-2" if field is None else "auto-1")
    reading = InputOptions("jsonl", fingerprint_field=field, has_signatures=profile.makes_signatures)
    one, many = folder / f"{given.name}.{method}.one", folder / f"{given.name}.{method}.many"
    asked = DedupOptions(clusters=method, reading=reading, table_format="parquet")  # type: ignore[arg-type]
    began = time.perf_counter()
    known = dedup(find_inputs([str(given)], reading), one, asked, against=profile).totals
    alone_s = time.perf_counter() - began
    records = RecordOptions(profile, "json", fingerprint_field=field)
    began = time.perf_counter()
    dedup_files(spark, [str(given)], str(many), records, SparkDedupOptions(clusters=method))
    print(f"{given.name}, {method}: {alone_s:.1f} s on one machine, {time.perf_counter() - began:.1f} s on Spark")
    yield from same_results(one, many, known, f"{given.name}, {method}")


def same_results(one: Path, many: Path, known: Totals, what: str) -> Iterator[Outcome]:
    """Yield whether the tables, lists and counts of one machine and of Spark agree."""
    for name in ("pairs", "clusters"):
        left, right = rows(one / f"{name}.parquet"), rows(many / name)
        yield Outcome(left == right, f"{what}: {len(left):,} rows of {name}")
    for name in ("keep", "drop"):
        listed = sorted((one / f"{name}.txt").read_text(encoding="utf-8").splitlines())
        yield Outcome(listed == sorted(pq.read_table(many / name)["id"].to_pylist()), f"{len(listed):,} ids in {name}")
    (found,) = pq.read_table(many / "stats").to_pylist()
    counts = {name: count for name, count in asdict(known).items() if name != "unconfirmed" and count is not None}
    yield Outcome(counts == found, f"counts {json.dumps(counts)}")


def cases(folder: Path, data: Path | None) -> Iterator[tuple[Path, str | None, Sequence[str]]]:
    """Yield files, the field of their fingerprints, and the methods."""
    if data is not None:
        for path in sorted(data.glob("*/*docs.jsonl.gz")):
            yield path, None, METHODS
    rng = np.random.default_rng(SEED)
    yield (
        written(folder / "crowd.jsonl", near_and_equal(rng, CROWD, near=NEAR_SHARE, equal=CROWD_SHARE, most=MOST)),
        "fingerprint",
        METHODS,
    )
    yield (
        written(folder / "random.jsonl", near_and_equal(rng, RANDOM, near=NEAR_SHARE, equal=0, most=MOST)),
        "fingerprint",
        METHODS[:1],
    )


def outcomes(folder: Path, data: Path | None) -> Iterator[Outcome]:
    with local_spark(2, 8, **{"spark.driver.memory": "6g"}) as spark:
        for number, (path, field, methods) in enumerate(cases(folder, data)):
            for method in methods:
                yield from compared(spark, path, folder / str(number), method, field)


def main() -> int:
    given = options(__doc__ or "", has_data=True)
    print_conditions("Spark and one machine", packages=("pyspark",), seed=SEED)
    with scratch_folder(given.scratch) as folder:
        return print_outcomes(outcomes(folder, given.data))


if __name__ == "__main__":
    sys.exit(main())
