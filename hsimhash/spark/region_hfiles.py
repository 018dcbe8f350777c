"""Write documents as HFiles for a table's regions: rows are cut into parts, and each task sorts and writes one part.

A part has the rows of one kind in one region whose segments are in a range. The number of parts is planned from a
sample. Between tasks, rows are sent as blocks of bytes. Every attempt of a task writes the same bytes to a part's file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from hsimhash.fingerprint import Signatures
from hsimhash.fingerprint.bits import Uint8s, Uint64s, sorted_distinct
from hsimhash.rowkey import (
    ROWKEY_BYTES,
    SEGMENT_BYTES,
    distinct_rows,
    encode,
    fingerprints_of,
    key_rowkeys,
    listing_rowkeys,
    prefix_numbers_of,
    register_numbers,
    register_rowkeys,
    rowkeys_of,
)
from hsimhash.spark.columns import SIGNATURE, gathered, partition_keys, unsigned
from hsimhash.spark.near_pairs import PAIR_LIMITS, sample_of
from hsimhash.store import Record
from hsimhash.store.hbase.files.region_writer import (
    DOCUMENT_BYTES,
    REGISTERS,
    ROW_BYTES,
    ROWS,
    SIGNED_VALUE,
    Cuts,
    FileForm,
    Portion,
    RegionRows,
    Segments,
    StagedFile,
    register_ranges,
    register_values,
)
from hsimhash.store.hbase.files.stage import open_stage
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY
from hsimhash.store.runs import ranges_of, sorted_where_equal

_DRAWERS, _LISTINGS, _REGISTERS = range(3)  # kinds of rows
_PLACES = ((ROWS, DRAWER_FAMILY), (ROWS, DOCUMENT_FAMILY), (REGISTERS, DOCUMENT_FAMILY))
_LENGTH = np.dtype("<u2")  # length of an id
_BLOCKS = "part int, key int, rows binary, lengths binary, ids binary, values binary"


class RegionPart(NamedTuple):
    """Rows of one kind in one region whose segments are in a half-open range; `name` is their file, without a suffix.

    A segment may belong to two regions. The part then also receives rows from the other region, which it drops.
    """

    kind: int
    region: RegionRows
    segments: Segments
    name: str


@dataclass(frozen=True)
class FilePlan:
    """The values that every task needs: the parts, ordered by kind and segment, and how and where to write files."""

    parts: tuple[RegionPart, ...]
    record: Record
    form: FileForm
    stage: str

    @cached_property
    def keys(self) -> list[int]:
        """The key of each part, which moves the part to its own partition."""
        return partition_keys(len(self.parts))

    @cached_property
    def ranges(self) -> list[tuple[int, Uint64s]]:
        """For each kind, the number of its first part, and the half-open segment ranges of its parts, (parts, 2)."""
        found = []
        for kind in range(len(_PLACES)):
            own = [(number, part.segments) for number, part in enumerate(self.parts) if part.kind == kind]
            found.append((own[0][0] if own else 0, np.array([one for _, one in own], np.uint64).reshape(-1, 2)))
        return found


def region_parts(regions: Sequence[RegionRows], cuts: Cuts, folder: str) -> tuple[RegionPart, ...]:
    """Return the parts of all regions; `folder` is their folder in the stage, either empty or ending with a slash."""
    found = list[RegionPart]()
    for kind, ranges in enumerate((cuts.drawers, cuts.listings, cuts.registers)):
        place, family = _PLACES[kind]
        for region in regions:
            name = f"{folder}{place}/{family.decode()}/region-{region.number:05d}"
            within = enumerate(region.within(ranges))
            found += [RegionPart(kind, region, segments, f"{name}-{number:05d}") for number, segments in within]
    return tuple(found)


def cuts_of(documents: DataFrame, record: Record, part_bytes: int) -> Cuts:
    """Return where to cut rows, planned from a sample; `documents` has the columns `fingerprint` and `key`."""
    sample, count = sample_of(documents.select("fingerprint"), PAIR_LIMITS.sample)
    segments = [record.layout.segments(sample).astype(np.uint64).ravel()]
    if record.has_signatures:
        parts = record.keying.parts(sample_of(documents.select("key"), PAIR_LIMITS.sample)[0])
        segments.append(parts[parts != 0] >> np.uint64(32))
    rows_each = len(record.layout.drawers) + record.most_key_rows
    rows, at_once = count * rows_each, part_bytes // DOCUMENT_BYTES
    return Cuts(
        ranges_of(np.concatenate(segments), -(-rows // (part_bytes // ROW_BYTES))),
        ranges_of(sample >> np.uint64(32), -(-count // at_once)),
        register_ranges(count, at_once),
    )


def write_files(documents: DataFrame, plan: FilePlan, part_bytes: int) -> list[StagedFile]:
    """Write the files of all parts that have rows; return them sorted by name.

    Args:
        documents: Columns `id`, the signature, `first_seen` and `changes`; every read must return the same rows.
        plan: Parts, and how and where to write them.
        part_bytes: Approximate memory for the rows that a task cuts at once.
    """
    if not plan.parts:
        return []
    rows_each = len(plan.record.layout.drawers) + plan.record.keying.most_parts
    count, at_once = len(plan.keys), max(1, part_bytes // ROW_BYTES // rows_each)
    rows = documents.select("id", *SIGNATURE, "first_seen", "changes")
    blocks = rows.mapInArrow(partial(_blocks, plan, at_once), _BLOCKS).repartition(count, F.col("key"))
    files = blocks.mapInArrow(partial(_written, plan), "file string").collect()
    return sorted(StagedFile(*json.loads(row.file)) for row in files)


def _blocks(plan: FilePlan, rows: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a block of rows for each part that contains any of the rows."""
    for table in gathered(batches, rows):
        ids = [one.encode() for one in table.column("id").to_pylist()]
        for kind, cells in enumerate(_cells(plan.record, table, ids)):
            parts = list(_cut(plan, kind, cells))
            numbers = [part for part, _ in parts]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array(numbers, pa.int32()),
                    pa.array([plan.keys[part] for part in numbers], pa.int32()),
                    *_packed([portion for _, portion in parts]),
                ],
                ["part", "key", "rows", "lengths", "ids", "values"],
            )


def _cells(record: Record, table: pa.Table, ids: list[bytes]) -> Iterator[Portion]:
    """Yield the drawer rows, the listings and the registers of documents, each as unordered cells."""
    signatures = record.stored(Signatures.of(*(unsigned(table.column(name)) for name in SIGNATURE)))
    rows = encode(record.layout, sorted_distinct(signatures.fingerprints)).reshape(-1, ROWKEY_BYTES)
    yield Portion(np.concatenate([rows, key_rowkeys(signatures)]))
    yield Portion(listing_rowkeys(signatures.fingerprints), ids)
    registers = np.zeros(len(ids), SIGNED_VALUE)
    for name in registers.dtype.names or ():
        registers[name] = table.column(name).to_numpy().view(np.uint64)
    values = register_values(registers, has_signatures=record.has_signatures)
    yield Portion(register_rowkeys(*register_numbers(ids)), ids, values)


def _cut(plan: FilePlan, kind: int, cells: Portion) -> Iterator[tuple[int, Portion]]:
    """Yield (number, unordered cells) for each part that contains any of the cells."""
    segments = np.ascontiguousarray(cells.rows[:, :SEGMENT_BYTES]).view(">u4").ravel().astype(np.uint64)
    order = np.argsort(segments, kind="stable")
    first, ranges = plan.ranges[kind]
    for number, (start, stop) in enumerate(np.searchsorted(segments[order], ranges).tolist()):
        if start < stop:
            places = order[start:stop]
            ids = None if cells.qualifiers is None else [cells.qualifiers[place] for place in places.tolist()]
            yield (
                first + number,
                Portion(cells.rows[places], ids, None if cells.values is None else cells.values[places]),
            )


def _packed(portions: Sequence[Portion]) -> list[pa.Array]:
    """Return portions as columns of blocks: rows, lengths of ids, ids, values; null where a portion lacks them."""
    ids = [portion.qualifiers for portion in portions]
    columns = (
        [portion.rows.tobytes() for portion in portions],
        [None if own is None else np.array(list(map(len, own)), _LENGTH).tobytes() for own in ids],
        [None if own is None else b"".join(own) for own in ids],
        [None if portion.values is None else portion.values.tobytes() for portion in portions],
    )
    return [pa.array(column, pa.binary()) for column in columns]


def _written(plan: FilePlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the file of each part; yield its `StagedFile` as JSON."""
    held: dict[int, list[Portion]] = {}
    for batch in batches:
        blocks = zip(*(batch.column(name) for name in ("rows", "lengths", "ids", "values")), strict=True)
        for part, block in zip(batch.column("part").to_pylist(), blocks, strict=True):
            held.setdefault(part, []).append(_unpacked(*block))
    stage = open_stage(plan.stage)
    for number in sorted(held):
        part = plan.parts[number]
        cells = _ordered(part, held.pop(number))
        portions = iter([cells] if len(cells.rows) else [])
        files = list(plan.form.write(stage, part.name, part.region, portions, attempt=uuid.uuid4().hex))
        yield pa.RecordBatch.from_pydict({"file": pa.array([json.dumps(file) for file in files], pa.string())})


def _unpacked(rows: pa.Scalar, lengths: pa.Scalar, ids: pa.Scalar, values: pa.Scalar) -> Portion:
    own = _matrix(rows, ROWKEY_BYTES)
    if not lengths.is_valid:
        return Portion(own)
    ends = np.cumsum(np.frombuffer(lengths.as_buffer(), _LENGTH), dtype=np.int64).tolist()
    text = ids.as_py()
    qualifiers = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    return Portion(own, qualifiers, _matrix(values, -1, len(own)) if values.is_valid else None)


def _matrix(block: pa.Scalar, width: int, rows: int = -1) -> Uint8s:
    return np.frombuffer(block.as_buffer(), np.uint8).reshape(rows, width)


def _ordered(part: RegionPart, blocks: Sequence[Portion]) -> Portion:
    """Return the cells of a part in order, without cells of other regions."""
    rows = np.concatenate([block.rows for block in blocks])
    prefixes, fingerprints = prefix_numbers_of(rows), fingerprints_of(rows)
    if part.kind == _DRAWERS:
        rows = rowkeys_of(*distinct_rows(prefixes, fingerprints))
        return Portion(rows[part.region.clip(rows)])
    ids = [one for block in blocks for one in block.qualifiers or ()]
    order = np.lexsort((fingerprints, prefixes))
    is_same = (rows[order][1:] == rows[order][:-1]).all(axis=1)
    order = sorted_where_equal(order, is_same, ids.__getitem__)
    order = order[part.region.clip(rows[order])]
    values = None
    if part.kind == _REGISTERS:
        values = np.concatenate([block.values for block in blocks if block.values is not None])[order]
    return Portion(rows[order], [ids[place] for place in order.tolist()], values)
