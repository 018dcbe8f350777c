"""The HFiles of a bulk load: what worker processes write of each region, from the sorted runs.

Before that each run is *prepared*: its kept documents' drawer rows sorted by drawer (`write_permuted`), and their
registers in the order of the table's rows: `table_registers`, `TABLE_REGISTER` each.

| folder of the stage | family | rows | loaded |
|---|---|---|---|
| `rows` | `f` | drawer rows, and those of the key drawer | first |
| `rows` | `d` | listings | first |
| `registers` | `d` | registers | once the first are loaded |
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Uint8s
from hsimhash.hfile import BloomFilter, FileSettings, HFileWriter
from hsimhash.rowkey import (
    DOCUMENTS_FLAG,
    PREFIX_BYTES,
    REGISTER_FLAG,
    SEGMENT_BYTES,
    register_numbers,
    rowkeys_of,
)
from hsimhash.store.base import Record
from hsimhash.store.hbase.cells import SEGMENTS
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, DRAWER_FAMILY, Family, Table
from hsimhash.store.hbase.stage import Stage, open_stage
from hsimhash.store.runs import (
    FileLimits,
    Run,
    document_order,
    drawer_rows,
    listing_ranges,
    segment_ranges,
    write_array,
    write_permuted,
)

ROWS, REGISTERS = "rows", "registers"  # folders of the stage, in the order in which they are loaded
TABLE_REGISTER = np.dtype(
    [
        ("segment", ">u4"),
        ("rest", ">u8"),  # of the row, behind the flag
        ("fingerprint", ">u8"),
        ("first_seen", ">i8"),
        ("changes", ">u4"),
        ("sketch", ">u8"),
        ("key", ">u8"),
        ("place", "u4"),  # in the run
    ]
)
KNOWN = np.dtype([("first_seen", "i8"), ("changes", "u4")])  # of a document that the table has, as it will be

_VALUE_AT = TABLE_REGISTER.fields["fingerprint"][1]  # type: ignore[index]
_SKETCH_AT, _PLACE_AT = (TABLE_REGISTER.fields[name][1] for name in ("sketch", "place"))  # type: ignore[index]

Segments = tuple[int, int]  # half-open


class StagedFile(NamedTuple):
    """An HFile of the stage, by its name there: what it has; row and qualifier of its first and last cell, as hex."""

    name: str
    cells: int
    size: int
    crc32: int
    first: tuple[str, str]
    last: tuple[str, str]

    @property
    def family(self) -> bytes:
        """The family of its cells."""
        return self.name.split("/")[1].encode()

    def ends(self) -> list[tuple[bytes, bytes]]:
        """Return row and qualifier of the first and the last cell."""
        return [(bytes.fromhex(row), bytes.fromhex(qualifier)) for row, qualifier in (self.first, self.last)]


@dataclass(frozen=True, slots=True)
class Cuts:
    """The table's segments, cut into ranges of about equal content, of each kind of rows."""

    drawers: Sequence[Segments]
    listings: Sequence[Segments]
    registers: Sequence[Segments]


@dataclass(frozen=True, slots=True)
class FilesJob:
    """What every worker knows: the runs, where files go, how they are made, the timestamp of all cells (ms)."""

    runs: tuple[Path, ...]
    record: Record
    stage: str
    stamp: int
    settings: dict[bytes, FileSettings]  # by family
    limits: FileLimits


def file_settings(table: Table | None) -> dict[bytes, FileSettings]:
    """Return how files of each family are made: as the table is, where that is known."""
    found = {
        DRAWER_FAMILY: FileSettings(bloom=BloomFilter(PREFIX_BYTES)),
        DOCUMENT_FAMILY: FileSettings(bloom=BloomFilter()),
    }
    for family in table.families if table is not None and table.is_complete else ():
        if (name := family.name.encode()) in found:
            found[name] = _settings_of(family)
    return found


def _settings_of(family: Family) -> FileSettings:
    options = family.attributes | family.configuration
    blooms = {
        "ROW": BloomFilter(),
        "ROWPREFIX_FIXED_LENGTH": BloomFilter(int(options.get("RowPrefixBloomFilter.prefix_length", PREFIX_BYTES))),
    }
    return FileSettings(
        "NONE" if options.get("DATA_BLOCK_ENCODING") == "NONE" else "FAST_DIFF",
        blooms.get(options.get("BLOOMFILTER", "")),
        int(options.get("BLOCKSIZE", FileSettings().block_bytes)),
    )


def needed_bytes(documents: int, id_bytes: int, drawers: int) -> tuple[int, int]:
    """Return how many bytes the runs and the files of so many documents have, about: with keys, and each id once."""
    return documents * (8 * drawers + 150 + id_bytes), documents * (17 * (drawers + 1) + 120 + 2 * id_bytes)


# Preparing runs.


def sort_rows(folder: Path, record: Record) -> None:
    """Sort the drawer rows of what a run keeps."""
    write_permuted(Run(folder), record.layout.drawers)


def sort_registers(folder: Path) -> None:
    """Sort the registers of what a run keeps as the table does."""
    run = Run(folder)
    kept = np.flatnonzero(run.read("keep", np.bool_, 0, run.size))
    by_place = run.registers_by_place()
    found = np.zeros(len(kept), TABLE_REGISTER)
    found["place"] = kept
    for name in set(run.register.names or ()) & set(TABLE_REGISTER.names or ()):
        found[name] = by_place[name][kept]
    found["changes"] = 1
    if (folder / "known").exists():
        known = run.read("known", KNOWN, 0, run.size)[kept]
        is_known = known["changes"] > 0
        for name in ("first_seen", "changes"):
            found[name][is_known] = known[name][is_known]
    found["segment"], found["rest"] = register_numbers(run.ids_at(kept))
    order = np.lexsort((found["rest"].astype(np.uint64), found["segment"].astype(np.uint32)))
    write_array(folder / "table_registers", found[order])


def cut_runs(runs: Sequence[Run], record: Record, limits: FileLimits) -> Cuts:
    """Return how prepared runs are cut."""
    count = -(-sum(run.size for run in runs) // limits.documents)
    return Cuts(
        segment_ranges(list(runs), record.layout.drawers, limits.rows),
        listing_ranges(runs, limits.documents),
        [(number * SEGMENTS // count, (number + 1) * SEGMENTS // count) for number in range(count)],
    )


# Writing regions.


def write_region(job: FilesJob, number: int, region: tuple[bytes, bytes], cuts: Cuts) -> list[StagedFile]:
    """Write the files of a region; return those that are not empty."""
    return _Region(job, number, region).write(cuts)


class _Region:
    def __init__(self, job: FilesJob, number: int, region: tuple[bytes, bytes]) -> None:
        self.job, self.number, self.region = job, number, region
        self.runs = [Run(folder) for folder in job.runs]
        self.stage: Stage = open_stage(job.stage)
        start, stop = region
        self.low = _segment(start)
        self.high = SEGMENTS if not stop else _segment(stop) + (len(stop) > SEGMENT_BYTES)

    def write(self, cuts: Cuts) -> list[StagedFile]:
        """Write all files; return them."""
        parts = (
            (ROWS, DRAWER_FAMILY, map(self._drawers, self._within(cuts.drawers))),
            (ROWS, DOCUMENT_FAMILY, map(self._listings, self._within(cuts.listings))),
            (REGISTERS, DOCUMENT_FAMILY, map(self._registers, self._within(cuts.registers))),
        )
        return [file for folder, family, portions in parts for file in self._files(folder, family, portions)]

    def _within(self, ranges: Sequence[Segments]) -> list[Segments]:
        """Return the parts of ranges that lie within the region."""
        clipped = [(max(low, self.low), min(high, self.high)) for low, high in ranges]
        return [(low, high) for low, high in clipped if low < high]

    def _files(self, folder: str, family: bytes, portions: Iterable[Portion]) -> Iterator[StagedFile]:
        waiting = (portion for portion in portions if len(portion.rows))
        portion, part = next(waiting, None), 0
        while portion is not None:
            name = f"{folder}/{family.decode()}/region-{self.number:05d}-{part}"
            with self.stage.writing(name) as stream:
                summed = _Summed(stream)
                file = HFileWriter(
                    summed,  # type: ignore[arg-type]
                    family,
                    self.job.settings[family],
                    within=self.region,
                    created_ms=self.job.stamp,
                )
                first = portion.key(0)
                while portion is not None and (summed.size < self.job.limits.file_bytes or not summed.size):
                    portion.append_to(file, self.job.stamp)
                    last, portion = portion.key(-1), next(waiting, None)
                done = file.finish()
            yield StagedFile(name, done.cells, done.size, summed.crc32, first, last)
            part += 1

    def _drawers(self, segments: Segments) -> Portion:
        rows = drawer_rows(self.runs, self.job.record.layout.drawers, *segments)
        return Portion(rows[self._clip(rows)])

    def _listings(self, segments: Segments) -> Portion:
        fingerprints, ids = [], list[bytes]()
        for run in self.runs:
            places = run.kept_within(*segments)
            fingerprints.append(run.map("fingerprints", np.uint64)[places])
            ids += run.ids_at(places)
        found = np.concatenate(fingerprints)
        order = document_order(found, ids, key=bytes)
        found = found[order]
        rows = rowkeys_of(found >> np.uint64(32) << np.uint64(8) | np.uint64(DOCUMENTS_FLAG), found)
        within = self._clip(rows)
        return Portion(rows[within], [ids[place] for place in order[within].tolist()])

    def _registers(self, segments: Segments) -> Portion:
        parts, ids = [], list[bytes]()
        for run in self.runs:
            path = run.folder / "table_registers"
            if not path.stat().st_size:
                continue
            column = np.memmap(path, TABLE_REGISTER, "r")["segment"]
            start, stop = (bisect_left(column, edge, key=int) for edge in segments)
            part = run.read("table_registers", TABLE_REGISTER, start, stop)
            parts.append(part)
            ids += run.ids_at(part["place"].astype(np.int64))
        found = np.concatenate([np.empty(0, TABLE_REGISTER), *parts], dtype=TABLE_REGISTER)
        segment, rest = found["segment"].astype(np.uint64), found["rest"].astype(np.uint64)
        order = np.lexsort((rest, segment))
        rows = rowkeys_of(segment << np.uint64(8) | np.uint64(REGISTER_FLAG), rest)[order]
        within = self._clip(rows)
        order = order[within]
        end = _PLACE_AT if self.job.record.has_signatures else _SKETCH_AT
        values = found[order].view(np.uint8).reshape(-1, TABLE_REGISTER.itemsize)[:, _VALUE_AT:end]
        return Portion(rows[within], [ids[place] for place in order.tolist()], values)

    def _clip(self, rows: Uint8s) -> slice:
        """Return which of ordered rows lie within the region."""
        start, stop = self.region
        first = bisect_left(range(len(rows)), start, key=lambda place: rows[place].tobytes())
        last = len(rows) if not stop else bisect_left(range(len(rows)), stop, key=lambda place: rows[place].tobytes())
        return slice(first, last)


class Portion(NamedTuple):
    """Rows in order, shape (n, 13); with qualifiers and values (n, width), or one cell a row that has neither."""

    rows: Uint8s
    qualifiers: Sequence[bytes] | None = None
    values: Uint8s | None = None

    def key(self, place: int) -> tuple[str, str]:
        """Return row and qualifier of a cell, as hexadecimal digits."""
        return self.rows[place].tobytes().hex(), self.qualifiers[place].hex() if self.qualifiers else ""

    def append_to(self, file: HFileWriter, stamp: int) -> None:
        """Append them to a file."""
        if self.qualifiers is None:
            file.append_rows(self.rows, stamp)
        else:
            file.append_columns(self.rows, self.qualifiers, stamp, self.values)


class _Summed:
    """A stream that counts and sums what goes through it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.size, self.crc32 = stream, 0, 0

    def write(self, data: bytes) -> int:
        self.crc32 = zlib.crc32(data, self.crc32)
        self.size += len(data)
        return self._stream.write(data)


def _segment(row: bytes) -> int:
    return int.from_bytes(row[:SEGMENT_BYTES].ljust(SEGMENT_BYTES, b"\0"), "big")
