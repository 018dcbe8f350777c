"""Write the HFiles of a bulk load from sorted rows and values, with the table's settings.

| folder in the stage | family | rows | loaded |
|---|---|---|---|
| `rows` | `f` | drawer rows, and those of the key drawer | first |
| `rows` | `d` | listings | first |
| `registers` | `d` | registers | after all files in `rows` |
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Uint8s
from hsimhash.hfile import BloomFilter, FileSettings, HFileWriter
from hsimhash.rowkey import PREFIX_BYTES, SEGMENT_BYTES
from hsimhash.store.hbase.files.stage import Stage
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, Family, Table
from hsimhash.store.hbase.rows.cells import SEGMENTS, segment_of

ROWS, REGISTERS = "rows", "registers"  # the stage's folders, in the order in which they are loaded
FILED_VALUE = np.dtype([("fingerprint", ">u8"), ("first_seen", ">i8"), ("changes", ">u4")])  # a register's value
SIGNED_VALUE = np.dtype([*FILED_VALUE.descr, ("sketch", ">u8"), ("key", ">u8")])  # in format 2 and later

Segments = tuple[int, int]  # half-open range


ROW_BYTES, DOCUMENT_BYTES = 100, 800  # approximate memory per drawer row, and per listing or register, in a part


@dataclass(frozen=True, slots=True)
class Cuts:
    """Ranges of segments with contents of about equal size, for each kind of row."""

    drawers: Sequence[Segments]
    listings: Sequence[Segments]
    registers: Sequence[Segments]


def register_ranges(documents: int, at_once: int) -> list[Segments]:
    """Return half-open ranges of segments with the registers of about `at_once` documents each."""
    count = -(-documents // at_once)
    return [(number * SEGMENTS // count, (number + 1) * SEGMENTS // count) for number in range(count)]


def register_values(registers: NDArray[Any], *, has_signatures: bool) -> Uint8s:
    """Return the values of registers from an array with the fields of `SIGNED_VALUE`: shape (n, width)."""
    value = SIGNED_VALUE if has_signatures else FILED_VALUE
    return registers[list(value.names or ())].astype(value).view(np.uint8).reshape(-1, value.itemsize)


class StagedFile(NamedTuple):
    """An HFile in the stage; `first` and `last` are the row and qualifier of its first and last cell, as hex digits."""

    name: str
    cells: int
    size: int
    crc32: int
    first: tuple[str, str]
    last: tuple[str, str]

    @property
    def family(self) -> bytes:
        """The family of its cells."""
        return self.name.split("/")[-2].encode()

    def ends(self) -> list[tuple[bytes, bytes]]:
        """Return the row and the qualifier of the first and the last cell."""
        return [(bytes.fromhex(row), bytes.fromhex(qualifier)) for row, qualifier in (self.first, self.last)]


@dataclass(frozen=True, slots=True)
class RegionRows:
    """A region's number, counted from 0, and its half-open range of rows; an empty `stop` means the table's end."""

    number: int
    start: bytes
    stop: bytes

    def within(self, ranges: Sequence[Segments]) -> list[Segments]:
        """Return the ranges, clipped to the segments that have rows in the region."""
        first = segment_of(self.start)
        end = SEGMENTS if not self.stop else segment_of(self.stop) + (len(self.stop) > SEGMENT_BYTES)
        clipped = [(max(low, first), min(high, end)) for low, high in ranges]
        return [(low, high) for low, high in clipped if low < high]

    def clip(self, rows: Uint8s) -> slice:
        """Return the slice of sorted rows that lies in the region."""
        places = range(len(rows))
        first = bisect_left(places, self.start, key=lambda place: rows[place].tobytes())
        last = len(rows) if not self.stop else bisect_left(places, self.stop, key=lambda place: rows[place].tobytes())
        return slice(first, last)


class Portion(NamedTuple):
    """Sorted rows, shape (n, 13), one cell each; optionally with qualifiers, and values of shape (n, width)."""

    rows: Uint8s
    qualifiers: Sequence[bytes] | None = None
    values: Uint8s | None = None

    def key(self, place: int) -> tuple[str, str]:
        """Return the row and the qualifier of a cell, as hexadecimal digits."""
        return self.rows[place].tobytes().hex(), self.qualifiers[place].hex() if self.qualifiers else ""

    def append_to(self, file: HFileWriter, stamp: int) -> None:
        """Append the rows to a file."""
        if self.qualifiers is None:
            file.append_rows(self.rows, stamp)
        else:
            file.append_columns(self.rows, self.qualifiers, stamp, self.values)


@dataclass(frozen=True, slots=True)
class FileForm:
    """The form of files: settings by family, the timestamp of all cells (ms since 1970), the approximate file size."""

    settings: dict[bytes, FileSettings]
    stamp: int
    file_bytes: int

    def write(
        self, stage: Stage, name: str, region: RegionRows, portions: Iterator[Portion], *, attempt: str = ""
    ) -> Iterator[StagedFile]:
        """Write non-empty portions, in order, to files `<name>-0`, `<name>-1`, …; yield each complete file.

        Args:
            stage: Stage for the files.
            name: Common name of the files, whose second-to-last part is the family's folder.
            region: Region of the rows.
            portions: Contents; if there are none, no file is written.
            attempt: Distinguishes concurrent attempts to write the same file.
        """
        family = name.split("/")[-2].encode()
        portion, part = next(portions, None), 0
        while portion is not None:
            own = f"{name}-{part}"
            with stage.writing(own, attempt) as stream:
                summed = _Summed(stream)
                file = HFileWriter(
                    summed,  # type: ignore[arg-type]
                    family,
                    self.settings[family],
                    within=(region.start, region.stop),
                    created_ms=self.stamp,
                )
                first = portion.key(0)
                while portion is not None and (summed.size < self.file_bytes or not summed.size):
                    portion.append_to(file, self.stamp)
                    last, portion = portion.key(-1), next(portions, None)
                done = file.finish()
            yield StagedFile(own, done.cells, done.size, summed.crc32, first, last)
            part += 1


class _Summed:
    """A stream that counts the bytes written to it and computes their checksum."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.size, self.crc32 = stream, 0, 0

    def write(self, data: bytes) -> int:
        self.crc32 = zlib.crc32(data, self.crc32)
        self.size += len(data)
        return self._stream.write(data)


def file_settings(table: Table | None) -> dict[bytes, FileSettings]:
    """Return the settings for the files of each family: the table's settings, if known, or the defaults."""
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
