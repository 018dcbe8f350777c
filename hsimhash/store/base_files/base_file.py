"""Look up rows in a base: near fingerprints, buckets, and parts of a drawer."""

from __future__ import annotations

import mmap
import os
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s, spans
from hsimhash.layout import FINGERPRINT_BITS, SEGMENT_BITS, Drawer, Layout
from hsimhash.native_package import native_package
from hsimhash.rowkey import (
    FINGERPRINT_BYTES,
    KEY_FLAG,
    PREFIX_BYTES,
    ROWKEY_BYTES,
    SEGMENT_BYTES,
    fingerprint_bytes,
    prefix_numbers,
    rowkeys_of,
)
from hsimhash.store.base_files.base_format import (
    BLOCK_BYTES,
    FENCE_ROWS,
    FINGERPRINT,
    HEADER_BYTES,
    KEYED,
    NUMBER,
    BaseHeader,
    BaseName,
    DamagedBaseError,
    read_header,
)
from hsimhash.store.base_files.checked_blocks import CheckedBlocks

_BLOCK_ROWS = BLOCK_BYTES // FINGERPRINT.itemsize
_BLOCK_SHIFT = _BLOCK_ROWS.bit_length() - 1
_ROW_SHIFT = FINGERPRINT.itemsize.bit_length() - 1
_WIDE_ROWS = 128  # a cell with more rows is wide: only the requested bucket is read from it
_MET_AT_ONCE = 1 << 20  # maximum number of rows compared at a time; limits memory use
FLAG_BITS = 8
_FLAGS, _ONE = np.uint64(0xFF), np.uint64(1)
_KEY_FLAGS = bytes([KEY_FLAG])
_FEW_BUCKETS = 8
# NumPy compares with an array of no dimensions in half of the time that a number takes.
_DISTANCES = [np.array(distance, np.uint8) for distance in range(FINGERPRINT_BITS + 1)]
_BEYOND = [bytes(range(distance + 1, FINGERPRINT_BITS + 1)) for distance in range(FINGERPRINT_BITS + 1)]


# How to find a fingerprint's cell in a drawer. The items are: the position of the drawer's first cell, the position of
# its first row, the shifts and masks of the first two moves from a fingerprint's bits to its cell, the other moves, the
# number of rows above which a cell is wide, and the drawer.
_Step = tuple[int, int, int, int, int, int, list[tuple[int, int]], int, Drawer]


class Base:
    """A mapped base; thread-safe. Reads raise `DamagedBaseError` if the rows that they would return are damaged.

    Args:
        path: Path of the file.
        name: Its description in the record.
        layout: The index's layout.

    Raises:
        DamagedBaseError: The record names another file, or the header or the directory is damaged.
        FileNotFoundError: The file does not exist.
    """

    def __init__(self, path: Path, name: BaseName, layout: Layout) -> None:
        self.path, self.name, self.drawers = path, name, layout.drawers
        with path.open("rb") as file:
            header, checksum = read_header(file, BaseHeader.unpack)
            self.header = header
            if checksum != name.header or header.layout != layout.text_form:
                raise DamagedBaseError(f"{path.name} is not the file that the index's record names")
            self.file_bytes = os.fstat(file.fileno()).st_size
            if self.file_bytes != header.file_bytes:
                raise DamagedBaseError(f"{path.name} has {self.file_bytes:,} bytes instead of {header.file_bytes:,}")
            self._map = mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        mapped.madvise(mmap.MADV_RANDOM)
        self.rows, self.key_rows = header.rows, header.key_rows
        at = HEADER_BYTES + header.rows_bytes
        self._keyed = np.frombuffer(mapped, KEYED, header.key_rows, at - header.key_rows * KEYED.itemsize)
        if zlib.crc32(memoryview(mapped)[at:]) != header.tail:
            raise DamagedBaseError(f"the directory of {path.name} is damaged")
        tail = np.frombuffer(mapped, NUMBER, offset=at)
        self._directory, self._fences, checksums = np.split(tail, [header.cells, header.cells + header.fences])
        self._row_bytes = memoryview(mapped)[HEADER_BYTES:at]
        self.blocks = CheckedBlocks(path.name, self._row_bytes, checksums)
        self._are_whole = self.blocks.are_whole  # covers a block and the next one, because a cell may extend into it
        self._is_read = np.frombuffer(self._are_whole, np.uint8)
        self._spare = SEGMENT_BITS - header.cell_bits
        numbers_in_file = memoryview(mapped)[at:].cast("I")
        self._cell_starts = numbers_in_file[: header.cells]
        self._fence_segments = numbers_in_file[header.cells : header.cells + header.fences]
        # A cell that is a bucket is wide only if it may extend beyond two blocks.
        is_bucket = [drawer.segment_bits == header.cell_bits for drawer in self.drawers]
        self._wide_rows = np.where(is_bucket, _BLOCK_ROWS, _WIDE_ROWS)
        # The position of each drawer's first cell and first row, by drawer number.
        numbers = np.maximum(np.arange(len(self.drawers) + 1) - 1, 0)
        self._first_cells = (numbers * ((1 << header.cell_bits) + 1)).astype(np.uint64)
        self._first_rows, self._cell_shift = numbers * header.rows, np.uint64(FLAG_BITS + self._spare)
        self._steps = [self._steps_of(drawer) for drawer in self.drawers]
        self._map_rows()

    def _map_rows(self) -> None:
        """Map the drawers' rows."""
        self._values = np.frombuffer(self._map, FINGERPRINT, len(self.drawers) * self.rows, HEADER_BYTES)
        # The same rows as a memoryview, because slicing it is faster. The first rows are the first drawer's, ascending.
        self._row_view = self._row_bytes[: self._values.nbytes].cast("Q")
        self._native = self._native_drawers()

    def _native_drawers(self) -> Any:
        """Return the hsimhash-native object that looks up fingerprints, or None if the package is not installed."""
        package = native_package()
        if package is None:
            return None
        steps = [
            (cells, rows, [(shift, mask), *(one for one in ((shift_2, mask_2), *more) if one[1])], wide)
            for cells, rows, shift, mask, shift_2, mask_2, more, wide, _ in self._steps
        ]
        keyed = self._fences, self._keyed.view(np.uint8), FENCE_ROWS, _WIDE_ROWS
        shifts = _BLOCK_SHIFT, int(self._cell_shift)
        return package.Drawers(steps, self._values, self._directory, keyed, self._is_read, *shifts)

    def _steps_of(self, drawer: Drawer) -> _Step:
        """Return the steps that find a fingerprint's cell; for just one, Python integers are faster than numpy."""
        place, moves = drawer.number - 1, []
        for right, mask, left in drawer.moves:
            lost = max(0, self._spare - left)  # bits below those of the cell
            target = max(left - self._spare, 0)
            moves.append((SEGMENT_BITS + right + lost - target, mask >> lost << target))
        own = [move for move in moves if move[1]]
        first, second = [*own, (0, 0), (0, 0)][:2]
        cells, wide_rows = place * ((1 << self.header.cell_bits) + 1), int(self._wide_rows[place])
        return cells, place * self.rows, *first, *second, own[2:], wide_rows, drawer

    @property
    def row_count(self) -> int:
        """The number of rows in all drawers and the key drawer."""
        return len(self.drawers) * self.rows + self.key_rows

    @property
    def fingerprints(self) -> Uint64s:
        """The fingerprints in ascending order, as in the first drawer, whose segments are leading bits.

        They are not verified.
        """
        return self._values[: self.rows]

    @property
    def content(self) -> memoryview:
        """The bytes of the file, even if another base has replaced it."""
        return memoryview(self._map)

    def unmap(self) -> None:
        """Release the memory into which the file was read; otherwise the system counts it as used by this process."""
        self._map.madvise(mmap.MADV_DONTNEED)

    # One fingerprint.

    def near(self, fingerprint: int, distance: int, most: int | None = None) -> list[int] | None:
        """Return the fingerprints within `distance` bits of `fingerprint` that share a bucket with it.

        It may also include other fingerprints within that distance. Returns None if a bucket has more than `most` rows.
        """
        if self._native is not None:
            answer = self._native.near(fingerprint, distance)
            if answer is not None and answer[1]:
                answer = self._answered(partial(self._native.near, fingerprint, distance))
            if answer is not None:
                near: list[int] = answer[0]
                return near
        starts, are_whole, rows, parts = self._cell_starts, self._are_whole, self._row_view, list[memoryview]()
        wide = fingerprint << SEGMENT_BITS
        for at, first, shift, mask, shift_2, mask_2, more, wide_rows, drawer in self._steps:
            at += (wide >> shift & mask) + (wide >> shift_2 & mask_2)
            for shift, mask in more:
                at += wide >> shift & mask
            start, stop = first + starts[at], first + starts[at + 1]
            if start == stop:
                continue
            if stop - start > wide_rows or not are_whole[start >> _BLOCK_SHIFT]:
                start, stop = self._bucket(drawer, start, stop, drawer.segment(fingerprint))
                if most is not None and stop - start > most:
                    return None
            parts.append(rows[start:stop])
        values = np.frombuffer(b"".join(parts), FINGERPRINT)
        distances = np.bitwise_count(values ^ np.array(fingerprint, FINGERPRINT))  # numpy converts scalars slowly
        if not distances.tobytes().translate(None, _BEYOND[distance]):  # usual case; numpy's any takes twice as long
            return []
        found: list[int] = values[distances <= _DISTANCES[distance]].tolist()
        return found

    def _bucket(self, drawer: Drawer, start: int, stop: int, segment: int) -> tuple[int, int]:
        """Verify a cell's rows and return their range; for a wide cell, return only the range with the segment."""
        self._verify_rows(start, stop)
        if stop - start <= _WIDE_ROWS or drawer.segment_bits == self.header.cell_bits:
            return start, stop
        return self._first(drawer, start, stop, segment), self._first(
            drawer, start, stop, segment + (1 << SEGMENT_BITS - drawer.segment_bits)
        )

    def _first(self, drawer: Drawer, start: int, stop: int, segment: int) -> int:
        """Return the position of the first row with a segment >= `segment` in sorted, verified rows [start, stop)."""
        return bisect_left(self._values, segment, start, stop, key=lambda value: drawer.segment(int(value)))

    # Many fingerprints.

    def near_among(
        self, numbers: Uint64s, fingerprint: int, distance: int, most: int | None = None
    ) -> list[int] | None:
        """Run `near` on the buckets with the given prefixes, which are 40-bit numbers."""
        if self._native is not None:
            pairs = self.near_many(np.array([fingerprint], np.uint64), distance, numbers[None], most)
            return None if pairs is None else [value for _, values in pairs for value in values.tolist()]
        starts, lengths = self._extents(numbers)
        if most is not None and (lengths > most).any():
            return None
        values = self._taken(starts, lengths)
        found: list[int] = values[np.bitwise_count(values ^ np.uint64(fingerprint)) <= distance].tolist()
        return found

    def near_many(
        self, fingerprints: Uint64s, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[tuple[Int64s, Uint64s]] | None:
        """Run `near` for many fingerprints; return positions in `fingerprints` with the near fingerprints in the base.

        Args:
            fingerprints: Fingerprints, shape (n,).
            distance: Distance in bits.
            numbers: Buckets to read for each fingerprint, as 40-bit numbers, shape (n, reads); None: its own buckets.
            most: As for `near`.
        """
        if self._native is not None:
            read = None if numbers is None else np.ascontiguousarray(numbers).ravel()
            answer = self._answered(partial(self._native.near_many, fingerprints, distance, read))
            if answer is not None:
                return [answer[:2]]
        places = np.arange(len(fingerprints))
        if numbers is None:
            reads = [(numbers_in(drawer, fingerprints), places) for drawer in self.drawers]
        else:
            reads = [(numbers.ravel(), np.repeat(places, numbers.shape[1]))]
        pairs = list[tuple[Int64s, Uint64s]]()
        for several, asking in reads:
            starts, lengths = self._extents(several)
            if most is not None and (lengths > most).any():
                return None
            pairs += self._near(starts, lengths, asking, fingerprints, distance)
        return pairs

    def _answered(self, ask: Callable[[], Any]) -> Any:
        """Repeat a call to hsimhash-native until all blocks it reads are verified; return None if a cell is wide."""
        while (answer := ask()) is not None and answer[-1]:
            self.blocks.verify(np.array(answer[-1]))
        return answer

    def _near(
        self, starts: Int64s, lengths: Int64s, asking: Int64s, fingerprints: Uint64s, distance: int
    ) -> Iterator[tuple[Int64s, Uint64s]]:
        """Yield the pairs that `near_many` finds in ranges of rows, in parts, to limit memory use."""
        met = np.cumsum(lengths)
        cuts = np.searchsorted(met, np.arange(_MET_AT_ONCE, int(met[-1]) if len(met) else 0, _MET_AT_ONCE))
        for part in np.split(np.arange(len(met)), cuts) if len(cuts) else [slice(None)]:
            values = self._taken(starts[part], lengths[part])
            places = np.repeat(asking[part], lengths[part])
            near = np.flatnonzero(np.bitwise_count(values ^ fingerprints[places]) <= distance)
            if len(near):
                yield places[near], values[near]

    def _extents(self, numbers: Uint64s) -> tuple[Int64s, Int64s]:
        """Return the starts and lengths of the cells for drawers' prefixes, or of the bucket for a wide cell.

        All rows are verified. The prefixes are 40-bit numbers.
        """
        starts, lengths = self._cells(numbers)
        blocks = starts >> _BLOCK_SHIFT
        if not self._is_read[blocks].all():
            self.blocks.verify(blocks[lengths > 0])
        if lengths.max(initial=0) > _WIDE_ROWS:
            self._narrow(numbers, starts, lengths)
        return starts, lengths

    def _cells(self, numbers: Uint64s) -> tuple[Int64s, Int64s]:
        """Return the starts and lengths of the cells for drawers' prefixes."""
        flags = numbers & _FLAGS
        cells, first = (numbers >> self._cell_shift) + self._first_cells[flags], self._first_rows[flags]
        starts = self._directory[cells] + first
        return starts, self._directory[cells + _ONE] + first - starts

    def _taken(self, starts: Int64s, lengths: Int64s) -> Uint64s:
        """Return the verified rows in several ranges of positions, which are numbered across all drawers."""
        return self._values[spans(starts, lengths)]

    def _cut(self, lengths: Int64s, most: int) -> Int64s:
        """Return how many rows of each extent to read to get up to `most` rows of its bucket.

        A wide extent contains only rows of the bucket.
        """
        return np.where(lengths > _WIDE_ROWS, np.minimum(lengths, max(most, _WIDE_ROWS)), lengths)

    def _narrow(self, numbers: Uint64s, starts: Int64s, lengths: Int64s) -> None:
        """Replace the starts and lengths of wide cells with those of the buckets."""
        places = (numbers & _FLAGS).astype(np.int64) - 1
        for at in np.flatnonzero(lengths > self._wide_rows[places]).tolist():
            start, segment = int(starts[at]), int(numbers[at]) >> FLAG_BITS
            starts[at], stop = self._bucket(self.drawers[places[at]], start, start + int(lengths[at]), segment)
            lengths[at] = stop - starts[at]

    # Rows of buckets.

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        """Return the rowkeys of buckets; see `View.scan`."""
        joined = b"".join(prefixes)
        if len(prefixes) <= _FEW_BUCKETS and joined[SEGMENT_BYTES::PREFIX_BYTES] == _KEY_FLAGS * len(prefixes):
            rows = self._native_key_rows(prefixes) if self._native is not None and most is None else None
            if rows is None:
                rows = [row for prefix in prefixes for row in self._few_key_rows(prefix, most)]
            return np.frombuffer(b"".join(rows), np.uint8).reshape(-1, ROWKEY_BYTES)
        packed = np.frombuffer(joined, np.uint8).reshape(-1, PREFIX_BYTES)
        flags = packed[:, SEGMENT_BYTES]
        is_drawer = (flags >= 1) & (flags <= len(self.drawers))
        if is_drawer.all():
            return self._drawer_rows(packed, most)
        is_key = flags == KEY_FLAG
        return np.concatenate(
            [self._drawer_rows(packed[is_drawer], most), self._key_rows(segments_of(packed[is_key]), most)]
        )

    def _drawer_rows(self, packed: Uint8s, most: int | None) -> Uint8s:
        """Return the rows of drawers' buckets, for prefixes of shape (n, 5), all in one pass."""
        places = packed[:, SEGMENT_BYTES].astype(np.int64) - 1
        starts, lengths = self._extents(prefix_numbers(packed))
        if most is not None:
            lengths = self._cut(lengths, most)
        asked, values = np.repeat(np.arange(len(packed)), lengths), self._taken(starts, lengths)
        of_bucket, mask = self._buckets
        bits = np.bitwise_or.reduce([of_bucket[place][places, packed[:, place]] for place in range(SEGMENT_BYTES)])
        is_asked = (values ^ bits[asked]) & mask[places][asked] == 0
        asked, values = asked[is_asked], values[is_asked]
        if most is not None:
            kept = first_of_each(asked, most)
            asked, values = asked[kept], values[kept]
        rows = np.empty((len(values), ROWKEY_BYTES), np.uint8)
        rows[:, :PREFIX_BYTES] = packed[asked]
        rows[:, PREFIX_BYTES:] = fingerprint_bytes(values)
        return rows

    @cached_property
    def _buckets(self) -> tuple[Uint64s, Uint64s]:
        """The fingerprint bits for each byte of a segment, by place, drawer and value; and each drawer's mask."""
        values = np.arange(256, dtype=np.uint64)
        shifts = [np.uint64(FINGERPRINT_BITS - 8 * place - 8) for place in range(SEGMENT_BYTES)]
        tables = np.array([[drawer.restore(values << shift) for drawer in self.drawers] for shift in shifts])
        masks = [
            drawer.restore(
                np.array([(1 << drawer.segment_bits) - 1 << FINGERPRINT_BITS - drawer.segment_bits], np.uint64)
            )
            for drawer in self.drawers
        ]
        return tables, np.concatenate(masks)

    def _native_key_rows(self, prefixes: Sequence[bytes]) -> list[bytes] | None:
        """Return the rows of buckets in the key drawer, or None if a bucket has many rows."""
        segments = [int.from_bytes(prefix[:SEGMENT_BYTES], "big") for prefix in prefixes]
        answer = self._answered(partial(self._native.under_keys, segments))
        if answer is None:
            return None
        return [prefixes[place] + value.to_bytes(FINGERPRINT_BYTES, "big") for place, value in answer[0]]

    def _few_key_rows(self, prefix: bytes, most: int | None) -> list[bytes]:
        """Return the rows of a bucket in the key drawer; for a few buckets, this is three times as fast as numpy."""
        segment, fences = int.from_bytes(prefix[:SEGMENT_BYTES], "big"), self._fence_segments
        place = bisect_left(fences, segment)
        start, stop = max(place - 1, 0) * FENCE_ROWS, min(place * FENCE_ROWS, self.key_rows)
        if place < len(fences) and fences[place] == segment:
            stop = min(bisect_right(fences, segment, place) * FENCE_ROWS, self.key_rows)
        if stop - start > _WIDE_ROWS:
            return [row.tobytes() for row in self._key_rows(np.array([segment], np.uint32), most)]
        packed, part, found = segment.to_bytes(SEGMENT_BYTES, "little"), self.key_part(start, stop).tobytes(), []
        at = part.find(packed)
        while at >= 0:
            if at % KEYED.itemsize == 0:  # otherwise these bytes match by chance
                found.append(prefix + part[at + KEYED.itemsize - 1 : at + SEGMENT_BYTES - 1 : -1])
            at = part.find(packed, at + 1)
        return found if most is None else found[:most]

    def _key_rows(self, segments: NDArray[np.uint32], most: int | None) -> Uint8s:
        first = np.searchsorted(self._fences, segments).astype(np.int64)
        starts = np.maximum(first - 1, 0) * FENCE_ROWS
        stops = np.minimum(np.searchsorted(self._fences, segments, "right") * FENCE_ROWS, self.key_rows)
        if most is not None:
            stops = np.minimum(stops, starts + FENCE_ROWS + most)
        lengths = stops - starts
        at = self.header.drawers * self.header.drawer_bytes
        self.blocks.verify_spans(at + starts * KEYED.itemsize, lengths * KEYED.itemsize)
        rows, asked = self._keyed[spans(starts, lengths)], np.repeat(segments, lengths)
        is_asked = rows["segment"] == asked
        found = _rows(asked[is_asked], KEY_FLAG, rows["fingerprint"][is_asked])
        return found if most is None else found[first_of_each(asked[is_asked], most)]

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        """Return the rowkeys of drawers in ranges of prefixes; see `View.sweep`."""
        edges = [(int.from_bytes(start, "big"), int.from_bytes(stop, "big")) for start, stop in ranges]
        found = [np.empty((0, ROWKEY_BYTES), np.uint8)]
        for drawer in self.drawers:
            # A prefix is a segment followed by the drawer's number, so find the first segment whose prefix is not below
            # the edge.
            at = [[self.place(drawer, edge - drawer.number + 255 >> FLAG_BITS) for edge in one] for one in edges]
            values = np.concatenate([np.empty(0, np.uint64), *(self.part(drawer, *ends) for ends in at)])
            found.append(_rows(drawer.segments(values), drawer.number, values))
        return np.concatenate(found)

    def place(self, drawer: Drawer, segment: int) -> int:
        """Return the position of a drawer's first row with a segment >= `segment`, which may be 2**32."""
        first, at = self._steps[drawer.number - 1][1], self._steps[drawer.number - 1][0]
        if segment >> SEGMENT_BITS:
            return self.rows
        cell = segment >> self._spare
        start, stop = self._cell_starts[at + cell], self._cell_starts[at + cell + 1]
        if segment == cell << self._spare:
            return start
        self._verify_rows(first + start, first + stop)
        return self._first(drawer, first + start, first + stop, segment) - first

    def part(self, drawer: Drawer, start: int, stop: int) -> Uint64s:
        """Return a drawer's rows [start, stop), verified."""
        first = (drawer.number - 1) * self.rows
        self._verify_rows(first + start, first + stop)
        return self._values[first + start : first + stop]

    def place_of(self, fingerprint: int) -> int:
        """Return a fingerprint's position in the first drawer, which is sorted by fingerprint; -1 if it is missing."""
        cell = fingerprint >> FINGERPRINT_BITS - self.header.cell_bits
        start, stop = self._cell_starts[cell], self._cell_starts[cell + 1]
        self._verify_rows(start, stop)
        place = bisect_left(self._row_view, fingerprint, start, stop)
        return place if place < stop and self._row_view[place] == fingerprint else -1

    def first_place(self, fingerprint: int) -> int:
        """Return the position of the first fingerprint >= `fingerprint`, which may be 2**64."""
        if fingerprint >> FINGERPRINT_BITS:
            return self.rows
        cell = fingerprint >> FINGERPRINT_BITS - self.header.cell_bits
        ordered = self.part(self.drawers[0], start := self._cell_starts[cell], self._cell_starts[cell + 1])
        return start + int(np.searchsorted(ordered, np.uint64(fingerprint)))

    def places_of(self, fingerprints: Uint64s) -> Int64s:
        """Run `place_of` for many fingerprints."""
        starts, lengths = self._cells(numbers_in(self.drawers[0], fingerprints))
        self._verify_stretches(starts, lengths)
        stops = starts + lengths
        low, high = starts.copy(), stops.copy()
        while (is_open := low < high).any():  # binary searches for all fingerprints at once
            middle = low + high >> 1
            is_less = self._values[np.where(is_open, middle, 0)] < fingerprints
            low, high = np.where(is_open & is_less, middle + 1, low), np.where(is_open & ~is_less, middle, high)
        is_there = low < stops
        is_there[is_there] = self._values[low[is_there]] == fingerprints[is_there]
        return np.where(is_there, low, -1)

    def sample(self, drawer: Drawer, places: Int64s) -> Uint64s:
        """Return a drawer's rows at some positions, without verifying them."""
        return self._values[places + (drawer.number - 1) * self.rows]

    def key_sample(self, step: int) -> NDArray[np.uint32]:
        """Return the segment of every `step`-th row of the key drawer, without verifying it."""
        return self._keyed["segment"][::step]

    def key_part(self, start: int, stop: int) -> NDArray[np.void]:
        """Return rows [start, stop) of the key drawer, verified."""
        at = self.header.drawers * self.header.drawer_bytes
        if start < stop:
            begin, end = (at + edge * KEYED.itemsize for edge in (start, stop))
            self.blocks.verify_bytes(begin, end)
        return self._keyed[start:stop]

    def key_place(self, segment: int) -> int:
        """Return the position of the key drawer's first row with a segment >= `segment`."""
        if segment >> SEGMENT_BITS:
            return self.key_rows
        start = max(int(np.searchsorted(self._fences, np.uint32(segment))) - 1, 0) * FENCE_ROWS
        part = self.key_part(start, min(start + FENCE_ROWS, self.key_rows))
        return start + int(np.searchsorted(part["segment"], np.uint32(segment)))

    def _verify_rows(self, start: int, stop: int) -> None:
        self.blocks.verify_bytes(start << _ROW_SHIFT, stop << _ROW_SHIFT)

    def _verify_stretches(self, starts: Int64s, lengths: Int64s) -> None:
        self.blocks.verify_spans(starts << _ROW_SHIFT, lengths << _ROW_SHIFT)


def _rows(segments: NDArray[np.uint32], flag: int, fingerprints: Uint64s) -> Uint8s:
    return rowkeys_of(segments.astype(np.uint64) << np.uint64(FLAG_BITS) | np.uint64(flag), fingerprints)


def numbers_in(drawer: Drawer, fingerprints: Uint64s) -> Uint64s:
    """Return the prefixes of fingerprints in a drawer, as 40-bit numbers."""
    return drawer.segments(fingerprints).astype(np.uint64) << np.uint64(FLAG_BITS) | np.uint64(drawer.number)


def segments_of(packed: Uint8s) -> NDArray[np.uint32]:
    """Return the segments of prefixes of shape (n, 5)."""
    return packed[:, :SEGMENT_BYTES].copy().view(">u4").ravel().astype(np.uint32)


def first_of_each(grouped: NDArray[np.integer[Any]], most: int) -> Int64s:
    """Return the positions of the first `most` items in each run of equal numbers."""
    begins = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1]))[: len(grouped)]
    return spans(begins, np.minimum(np.diff(begins, append=len(grouped)), most))
