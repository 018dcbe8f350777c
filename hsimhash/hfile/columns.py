"""Encode blocks of cells that have qualifiers, a common timestamp, and values of equal size, using arrays.

`column_bodies` produces the same bytes as `cells.cell_body` with FAST_DIFF, in a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s, spans
from hsimhash.hfile.cells import (
    ENCODED_HEAD,
    FAST_DIFF_ID,
    LENGTHS,
    OTHER_KEY_BYTES,
    SAME_KEY_LENGTH,
    SAME_TYPE,
    SAME_VALUE,
    SAME_VALUE_LENGTH,
    SHARED_TIMESTAMP_BYTES,
    KeyValue,
    first_diff,
    shared_bytes,
)


class CellColumns(NamedTuple):
    """Sorted cells with one timestamp (ms since 1970): n qualifiers, and uint8 rows (n, width) and values (n, size)."""

    rows: Uint8s
    qualifiers: Sequence[bytes]
    timestamp: int
    values: Uint8s

    def cell(self, place: int) -> KeyValue:
        """Return the cell at an index."""
        row, value = self.rows[place].tobytes(), self.values[place].tobytes()
        return KeyValue(row, self.qualifiers[place], self.timestamp, value)

    def same_rows(self) -> Bools:
        """Return whether each cell is in the same row as the previous cell, shape (n,)."""
        return np.append(False, (self.rows[1:] == self.rows[:-1]).all(axis=1))


class Body(NamedTuple):
    """A block: the half-open range of its cells, its body, and its size in bytes before encoding."""

    start: int
    stop: int
    body: bytes
    size: int


def column_bodies(cells: CellColumns, family: bytes, block_bytes: int) -> Iterator[Body]:
    """Yield blocks of cells. Before encoding, every block except for the last has `block_bytes`, or slightly more."""
    width, size = cells.rows.shape[1], cells.values.shape[1]
    lengths = np.fromiter(map(len, cells.qualifiers), np.int64, len(cells.qualifiers))
    key_bytes = lengths + width + len(family) + OTHER_KEY_BYTES
    plain = np.cumsum(LENGTHS.size + key_bytes + size)
    diffs, ends = _diffs(cells, lengths, key_bytes, len(family))
    for start, stop in pairwise(_cuts(plain, block_bytes)):
        its = int(plain[stop - 1] - (plain[start - 1] if start else 0))
        first = cells.cell(start)
        head = ENCODED_HEAD.pack(FAST_DIFF_ID, its) + first_diff(first.key(family), first.value)
        yield Body(start, stop, head + diffs[ends[start] : ends[stop - 1]].tobytes(), its)


def _cuts(plain: Int64s, block_bytes: int) -> list[int]:
    """Return where blocks begin and the last one ends, given the cumulative bytes of the cells before encoding."""
    found = [0]
    while found[-1] < len(plain):
        before = int(plain[found[-1] - 1]) if found[-1] else 0
        found.append(min(int(np.searchsorted(plain, before + block_bytes)) + 1, len(plain)))
    return found


def _diffs(cells: CellColumns, lengths: Int64s, key_bytes: Int64s, family_bytes: int) -> tuple[Uint8s, Int64s]:
    """Return all cells, each encoded relative to the previous cell, and the offset at which each cell ends."""
    rows, values = cells.rows, cells.values
    count, width = rows.shape
    is_same_row = cells.same_rows()
    differs = np.append(False, (rows[1:] != rows[:-1]).any(axis=1))
    shared_row = np.append(0, (rows[1:] != rows[:-1]).argmax(axis=1))  # bytes
    shared_row[is_same_row] = width
    shared_id = np.zeros(count, np.int64)
    for place in np.flatnonzero(is_same_row).tolist():
        shared_id[place] = shared_bytes(cells.qualifiers[place], cells.qualifiers[place - 1])
    common = np.where(differs, 2 + shared_row, 2 + width + 1 + family_bytes + shared_id)
    is_new_length = np.append(True, key_bytes[1:] != key_bytes[:-1])
    is_new_value = np.append(True, (values[1:] != values[:-1]).any(axis=1))
    flags = np.full(count, SAME_VALUE_LENGTH | SAME_TYPE | SHARED_TIMESTAMP_BYTES, np.uint8)
    flags[~is_new_length] |= SAME_KEY_LENGTH
    flags[~is_new_value] |= SAME_VALUE

    # The sizes of each cell's parts, which may be empty.
    key_length = np.where(is_new_length, _varint_bytes(key_bytes), 0)
    row_tail, id_tail = width - shared_row, lengths - shared_id
    value_bytes = np.where(is_new_value, values.shape[1], 0)
    sizes = 1 + key_length + _varint_bytes(common) + row_tail + id_tail + 1 + value_bytes
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    at = ends - sizes
    out[at] = flags
    at = at + 1
    _put_varints(out, at[is_new_length], key_bytes[is_new_length])
    at = at + key_length
    _put_varints(out, at, common)
    at = at + _varint_bytes(common)
    places = np.arange(count)
    out[spans(at, row_tail)] = rows.ravel()[spans(places * width + shared_row, row_tail)]
    at = at + row_tail
    ids = np.frombuffer(b"".join(cells.qualifiers), np.uint8)
    out[spans(at, id_tail)] = ids[spans(np.cumsum(lengths) - id_tail, id_tail)]
    at = at + id_tail
    out[at] = cells.timestamp & 0xFF
    if values.shape[1]:
        out[at[is_new_value, None] + 1 + np.arange(values.shape[1])] = values[is_new_value]
    return out, ends


def _varint_bytes(numbers: Int64s) -> Int64s:
    """Return the sizes of numbers below 2**21 as varints."""
    return 1 + (numbers > 0x7F).astype(np.int64) + (numbers > 0x3FFF)


def _put_varints(out: Uint8s, at: Int64s, numbers: Int64s) -> None:
    sizes = _varint_bytes(numbers)
    for byte in range(3):
        is_there = sizes > byte
        more = np.where(sizes[is_there] > byte + 1, 0x80, 0)
        out[at[is_there] + byte] = (numbers[is_there] >> 7 * byte & 0x7F | more).astype(np.uint8)
