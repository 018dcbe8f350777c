"""Look up rows in a packed base, where each row is assembled from two parts; see `base_format.py`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from hsimhash.fingerprint.bits import Int64s, Uint64s, sorted_distinct, spans
from hsimhash.layout import FINGERPRINT_BITS, Drawer, Layout
from hsimhash.store.base_files.base_file import FLAG_BITS, Base, numbers_in
from hsimhash.store.base_files.base_format import (
    FINGERPRINT,
    HEADER_BYTES,
    NUMBER,
    BaseHeader,
    BaseName,
    read_header,
)

_BYTE_BITS = 8


class PackedBase(Base):
    """A mapped packed base; see `Base`. It takes 5 to 6 bytes per row instead of 8, but queries are slower."""

    def _map_rows(self) -> None:
        header = self.header
        self._low_bits = np.uint64(header.row_bytes * _BYTE_BITS)
        self._top_bits = FINGERPRINT_BITS - header.row_bytes * _BYTE_BITS  # bits per row in the vectors
        self._bytes = np.frombuffer(self._row_bytes, np.uint8)
        self._native = None
        self._drawer_bytes = header.drawer_bytes
        self._directory_size = (1 << self.header.cell_bits) + 1
        self._cell_values = 1 << self._top_bits - self.header.cell_bits  # number of values of leading bits in a cell

    @cached_property
    def _lows(self) -> list[Uint64s]:
        """Each drawer's rows as overlapping 8-byte numbers, in which only the lowest bytes belong to the row."""
        size = self.header.row_bytes
        return [
            np.ndarray(self.rows, FINGERPRINT, self._map, HEADER_BYTES + number * self.header.drawer_bytes, (size,))
            for number in range(len(self.drawers))
        ]

    def near(self, fingerprint: int, distance: int, most: int | None = None) -> list[int] | None:
        spare = FINGERPRINT_BITS - self.header.cell_bits
        permuted = [drawer.permute_one(fingerprint) for drawer in self.drawers]
        cells = [(number, one >> spare) for number, one in enumerate(permuted)]
        return self._near_in(cells, permuted, distance, most)

    def near_among(
        self, numbers: Uint64s, fingerprint: int, distance: int, most: int | None = None
    ) -> list[int] | None:
        shift, permuted = int(self._cell_shift), [drawer.permute_one(fingerprint) for drawer in self.drawers]
        cells = [((one & (1 << FLAG_BITS) - 1) - 1, one >> shift) for one in numbers.tolist()]
        return self._near_in(cells, permuted, distance, most)

    def _near_in(
        self, cells: Sequence[tuple[int, int]], permuted: Sequence[int], distance: int, most: int | None
    ) -> list[int] | None:
        """Return the fingerprints in some cells that are within `distance` bits of a fingerprint; see `near`.

        Args:
            cells: Pairs of a drawer's number, from 0, and a cell's number in that drawer.
            permuted: The fingerprint as each drawer permutes it.
            distance: Distance in bits.
            most: Maximum number of rows in a cell.
        """
        starts = self._cell_starts
        met = list[tuple[int, int, int, int]]()
        for number, cell in cells:
            at = number * self._directory_size + cell
            start, stop = starts[at], starts[at + 1]
            if start < stop:
                met.append((number, cell, start, stop))
        if most is not None and any(stop - start > most for _, _, start, stop in met):
            return None
        if not met:
            return []
        values, numbers = self._decoded(met)
        near = np.flatnonzero(np.bitwise_count(values ^ np.array(permuted, np.uint64)[numbers]) <= distance)
        found = zip(numbers[near].tolist(), values[near].tolist(), strict=True)
        return [self.drawers[number].restore_one(value) for number, value in found]

    def _decoded(self, cells: Sequence[tuple[int, int, int, int]]) -> tuple[Uint64s, Int64s]:
        """Return the permuted values in some cells, and each value's drawer number.

        Args:
            cells: For each cell, its drawer's number (from 0), its own number, its first row, and the end of its rows.
        """
        content, size, span, drawer_bytes = (
            self._row_bytes,
            self.header.row_bytes,
            self._cell_values,
            self._drawer_bytes,
        )
        lows, vectors, origins, bits_before = list[memoryview](), list[bytes](), list[int](), 0
        verify, vector_at = self.blocks.verify_bytes, self.rows * size
        for number, cell, start, stop in cells:
            first = number * drawer_bytes
            begin, end = first + start * size, first + stop * size
            verify(begin, end)
            lows.append(content[begin:end])
            low_bit, high_bit = cell * span + start, (cell + 1) * span + stop
            begin, end = first + vector_at + (low_bit >> 3), first + vector_at + (high_bit + 7 >> 3)
            verify(begin, end)
            # Keep only this cell's bits; one bit is set for each of its rows.
            count = high_bit - low_bit
            its = int.from_bytes(content[begin:end], "little") >> (low_bit & 7) & (1 << count) - 1
            vectors.append(its.to_bytes(count + 7 >> 3, "little"))
            origins.append(cell * span - bits_before)
            bits_before += 8 * len(vectors[-1])
        lengths = np.array([stop - start for _, _, start, stop in cells])
        rows = np.zeros((int(lengths.sum()), FINGERPRINT.itemsize), np.uint8)
        rows[:, :size] = np.frombuffer(b"".join(lows), np.uint8).reshape(-1, size)
        places = np.flatnonzero(np.unpackbits(np.frombuffer(b"".join(vectors), np.uint8), bitorder="little"))
        tops = places + np.repeat(origins + np.cumsum(lengths) - lengths, lengths) - np.arange(len(rows))
        values: Uint64s = rows.view(FINGERPRINT).ravel() | tops.astype(np.uint64) << self._low_bits
        return values, np.repeat(np.array([number for number, _, _, _ in cells]), lengths)

    def _extents(self, numbers: Uint64s) -> tuple[Int64s, Int64s]:
        return self._cells(numbers)  # a wide cell is read completely, and `_taken` verifies it

    def _cut(self, lengths: Int64s, most: int) -> Int64s:
        return lengths

    def _first(self, drawer: Drawer, start: int, stop: int, segment: int) -> int:
        segments = drawer.segments(self._taken(np.array([start]), np.array([stop - start])))
        return start + int(np.searchsorted(segments, segment))

    def _verify_rows(self, start: int, stop: int) -> None:
        """Do nothing: `_taken` verifies what it reads."""

    def part(self, drawer: Drawer, start: int, stop: int) -> Uint64s:
        return self._taken(np.array([start + (drawer.number - 1) * self.rows]), np.array([stop - start]))

    def place_of(self, fingerprint: int) -> int:
        cell = fingerprint >> FINGERPRINT_BITS - self.header.cell_bits
        start, stop = self._cell_starts[cell], self._cell_starts[cell + 1]
        if start == stop:
            return -1
        values, _ = self._decoded([(0, cell, start, stop)])  # the first drawer's values are the fingerprints
        place = int(np.searchsorted(values, np.uint64(fingerprint)))
        return start + place if place < len(values) and values[place] == fingerprint else -1

    def places_of(self, fingerprints: Uint64s) -> Int64s:
        starts, lengths = self._cells(numbers_in(self.drawers[0], fingerprints))
        values, asked = self._taken(starts, lengths), np.repeat(np.arange(len(fingerprints)), lengths)
        met = np.flatnonzero(values == fingerprints[asked])
        places = np.full(len(fingerprints), -1)
        places[asked[met]] = spans(starts, lengths)[met]
        return places

    def _taken(self, starts: Int64s, lengths: Int64s) -> Uint64s:
        numbers = starts // max(self.rows, 1)
        found = np.empty(int(lengths.sum()), np.uint64)
        ends = np.cumsum(lengths)
        for number in sorted_distinct(numbers[lengths > 0]).tolist():
            its = np.flatnonzero((numbers == number) & (lengths > 0))
            values = self._taken_of(number, starts[its] - number * self.rows, lengths[its])
            found[spans(ends[its] - lengths[its], lengths[its])] = self.drawers[number].restore(values)
        return found

    def _taken_of(self, number: int, starts: Int64s, lengths: Int64s) -> Uint64s:
        """Return a drawer's permuted values in non-empty ranges of its rows."""
        size, at = self.header.row_bytes, number * self.header.drawer_bytes
        self.blocks.verify_spans(at + starts * size, lengths * size)
        lows = self._lows[number][spans(starts, lengths)] & ((np.uint64(1) << self._low_bits) - np.uint64(1))
        tops = self._tops(number, starts, lengths)
        values: Uint64s = tops << self._low_bits | lows
        return values

    def _tops(self, number: int, starts: Int64s, lengths: Int64s) -> Uint64s:
        """Return the leading bits of the rows in ranges, read from their cells' part of the vector."""
        cells, cell_bits = 1 << self.header.cell_bits, self.header.cell_bits
        directory = self._directory[number * (cells + 1) : (number + 1) * (cells + 1)]
        edges = np.concatenate([starts, starts + lengths - 1]).astype(NUMBER)  # the directory's dtype avoids a copy
        first, last = np.split(np.searchsorted(directory, edges, "right") - 1, 2)
        shift = self._top_bits - cell_bits
        zeros, skipped = first << shift, starts - directory[first]
        begin = zeros + directory[first]  # a bit offset in the vector, like `end`
        end = (last + 1 << shift) + directory[last + 1].astype(np.int64)
        at = number * self.header.drawer_bytes + self.rows * self.header.row_bytes
        begin_byte, byte_count = begin >> 3, (end + 7 >> 3) - (begin >> 3)
        self.blocks.verify_spans(at + begin_byte, byte_count)
        read = self._bytes[at + spans(begin_byte, byte_count)]
        bits_set = np.flatnonzero(np.unpackbits(read, bitorder="little"))
        # A range's set bits come after those of earlier ranges, of earlier cells in the first byte that was read, and
        # of earlier rows in its cell.
        byte_places = np.cumsum(byte_count) - byte_count
        earlier = np.append(0, np.cumsum(np.bitwise_count(read), dtype=np.int64))[byte_places]
        lead = np.bitwise_count(read[byte_places] & (1 << (begin & 7)) - 1).astype(np.int64)
        places = bits_set[spans(earlier + lead + skipped, lengths)]
        before = spans(skipped, lengths)  # earlier rows since the start of the first cell; each is also a set bit
        origin = np.repeat(byte_places * _BYTE_BITS + (begin & 7) - zeros, lengths)
        tops: Uint64s = (places - origin - before).astype(np.uint64)
        return tops


def opened_base(path: Path, name: BaseName, layout: Layout) -> Base:
    """Open a base of either kind; see `Base`."""
    with path.open("rb") as file:
        header, _ = read_header(file, BaseHeader.unpack)
    return (PackedBase if header.is_packed else Base)(path, name, layout)
