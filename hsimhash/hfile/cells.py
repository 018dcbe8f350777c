"""Cells, and the bodies of data blocks that hold them: plain, or with the encoding FAST_DIFF.

FAST_DIFF leaves out of a cell what it shares with the one before: the beginning of its key, lengths, type, value, the
first bytes of its timestamp. The flag's low three bits say how many of those eight bytes are left out; the others say
what is the same. All cells of a file have one family.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Literal, NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Uint8s
from hsimhash.hfile.blocks import ENCODED_DATA, PLAIN_DATA, read_varint, read_writable_int, varint

Encoding = Literal["NONE", "FAST_DIFF"]
MAGIC = {"NONE": PLAIN_DATA, "FAST_DIFF": ENCODED_DATA}
PUT = 4
DELETE, DELETE_FAMILY_VERSION, DELETE_COLUMN, DELETE_FAMILY = 8, 10, 12, 14
MOST_ROW_BYTES = 0x7FFF
MOST_CONSTANT_BYTES = 125  # of a row whose shared bytes, with the two of its length, are a varint of one byte
MOST_BLOCK_BYTES = 1 << 28  # of a block without its encoding; HBase's are little larger than a cell, or 64 KiB

FAST_DIFF_ID = 4
SAME_KEY_LENGTH, SAME_VALUE_LENGTH, SAME_TYPE, SAME_VALUE = (1 << bit for bit in range(3, 7))
_SAME = SAME_KEY_LENGTH | SAME_VALUE_LENGTH | SAME_TYPE | SAME_VALUE
SHARED_TIMESTAMP_BYTES = 7  # of 8, at most
LENGTHS = Struct(">ii")  # of a key, of a value
ENCODED_HEAD = Struct(">HI")  # the encoding, bytes without it
_STAMP_BYTES, _TYPE_BYTES = 8, 1
OTHER_KEY_BYTES = 2 + 1 + _STAMP_BYTES + _TYPE_BYTES  # beside row, family and qualifier


class KeyValue(NamedTuple):
    """A cell of a file's family; `kind` is HBase's number, 4 of a put; `sequence` that of its write, 0: unknown."""

    row: bytes
    qualifier: bytes
    timestamp: int
    value: bytes
    kind: int = PUT
    sequence: int = 0

    def key(self, family: bytes) -> bytes:
        """Return the key by which HBase orders it: row, family, qualifier, timestamp, kind."""
        return b"".join(
            (
                len(self.row).to_bytes(2, "big"),
                self.row,
                bytes([len(family)]),
                family,
                self.qualifier,
                self.timestamp.to_bytes(8, "big", signed=True),
                bytes([self.kind]),
            )
        )

    @staticmethod
    def of_key(key: bytes, value: bytes, sequence: int = 0) -> tuple[KeyValue, bytes]:
        """Return the cell of a key, and its family; `ValueError` if the lengths in it do not fit."""
        row_end = 2 + int.from_bytes(key[:2], "big")
        family_end = row_end + 1 + key[row_end] if row_end < len(key) else len(key)
        end = len(key) - _STAMP_BYTES - _TYPE_BYTES
        if not 2 <= row_end < family_end <= end:
            raise ValueError("a key's lengths do not fit")
        timestamp = int.from_bytes(key[end:-1], "big", signed=True)
        cell = KeyValue(key[2:row_end], key[family_end:end], timestamp, value, key[-1], sequence)
        return cell, key[row_end + 1 : family_end]


def constant_bodies(
    rows: Uint8s, family: bytes, timestamp: int, encoding: Encoding, block_bytes: int
) -> Iterator[tuple[int, bytes, int]]:
    """Yield blocks of rows with one cell each, without qualifier and value.

    Args:
        rows: shape (n, width), uint8, ascending; width up to `MOST_CONSTANT_BYTES`.
        family: of the cells.
        timestamp: of the cells.
        encoding: of the blocks.
        block_bytes: of a block without its encoding, at most; the last one has fewer.

    Yields:
        The place of the block's first row, its body, its bytes without the encoding.
    """
    width = rows.shape[1]
    key = KeyValue(bytes(width), b"", timestamp, b"").key(family)
    cell_bytes = LENGTHS.size + len(key)
    each = max(1, block_bytes // cell_bytes)
    for start in range(0, len(rows), each):
        part = rows[start : start + each]
        make = _plain_constants if encoding == "NONE" else _diff_constants
        yield start, make(part, key), len(part) * cell_bytes


def _plain_constants(rows: Uint8s, key: bytes) -> bytes:
    head = np.frombuffer(LENGTHS.pack(len(key), 0) + key, np.uint8)
    cells = np.tile(head, (len(rows), 1))
    start = LENGTHS.size + 2
    cells[:, start : start + rows.shape[1]] = rows
    return cells.tobytes()


def _diff_constants(rows: Uint8s, key: bytes) -> bytes:
    count, width = rows.shape
    first = key[:2] + rows[0].tobytes() + key[2 + width :]
    head = ENCODED_HEAD.pack(FAST_DIFF_ID, count * (LENGTHS.size + len(key)))
    shared = 2 + (rows[1:] != rows[:-1]).argmax(axis=1).astype(np.uint8)[:, None]  # rows are distinct
    cells = np.empty((count - 1, width + 3), np.uint8)
    cells[:, :1], cells[:, 1:2], cells[:, 2:-1] = _SAME | SHARED_TIMESTAMP_BYTES, shared, rows[1:]
    cells[:, -1] = key[-2]
    is_kept = np.ones(cells.shape, np.bool_)
    is_kept[:, 2:-1] = np.arange(2, 2 + width, dtype=np.uint8) >= shared
    return head + first_diff(first, b"") + cells[is_kept].tobytes()


def first_diff(key: bytes, value: bytes) -> bytes:
    """Return the first cell of a block, which shares nothing."""
    return b"\0" + varint(len(key)) + varint(len(value)) + b"\0" + key + value


def cell_body(cells: Sequence[KeyValue], family: bytes, encoding: Encoding) -> bytes:
    """Return the body of a block of cells in order."""
    if encoding == "NONE":
        keys = [cell.key(family) for cell in cells]
        pairs = zip(keys, cells, strict=True)
        return b"".join(LENGTHS.pack(len(key), len(cell.value)) + key + cell.value for key, cell in pairs)
    size = sum(plain_bytes(cell, family) for cell in cells)
    parts = [ENCODED_HEAD.pack(FAST_DIFF_ID, size), first_diff(cells[0].key(family), cells[0].value)]
    parts += (_diff(cell, before, family) for before, cell in pairwise(cells))
    return b"".join(parts)


def plain_bytes(cell: KeyValue, family: bytes) -> int:
    """Return how many bytes a cell has without an encoding."""
    return LENGTHS.size + _key_bytes(cell, family) + len(cell.value)


def _key_bytes(cell: KeyValue, family: bytes) -> int:
    return len(cell.row) + len(family) + len(cell.qualifier) + OTHER_KEY_BYTES


def _diff(cell: KeyValue, before: KeyValue, family: bytes) -> bytes:
    """Return a cell as FAST_DIFF writes it behind another one."""
    row, qualifier, timestamp, value, kind, _ = cell
    flag, parts = 0, list[bytes]()
    key_bytes = _key_bytes(cell, family)
    if key_bytes == _key_bytes(before, family):
        flag |= SAME_KEY_LENGTH
    else:
        parts.append(varint(key_bytes))
    if len(value) == len(before.value):
        flag |= SAME_VALUE_LENGTH
    else:
        parts.append(varint(len(value)))
    if row == before.row:
        shared = shared_bytes(qualifier, before.qualifier)
        parts += (varint(2 + len(row) + 1 + len(family) + shared), qualifier[shared:])
    else:
        whole, other = len(row).to_bytes(2, "big") + row, len(before.row).to_bytes(2, "big") + before.row
        shared = shared_bytes(whole, other)
        parts += (varint(shared), whole[shared:], qualifier)
    stamp, earlier = (one.to_bytes(_STAMP_BYTES, "big", signed=True) for one in (timestamp, before.timestamp))
    shared = min(shared_bytes(stamp, earlier), SHARED_TIMESTAMP_BYTES)
    flag |= shared
    parts.append(stamp[shared:])
    if kind == before.kind:
        flag |= SAME_TYPE
    else:
        parts.append(bytes([kind]))
    if value == before.value:
        flag |= SAME_VALUE
    else:
        parts.append(value)
    return b"".join((bytes([flag]), *parts))


def shared_bytes(one: bytes, other: bytes) -> int:
    """Return how many bytes both begin with."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    differing = int.from_bytes(one[:most], "big") ^ int.from_bytes(other[:most], "big")
    return most - (differing.bit_length() + 7) // 8


# Reading.


def cells_of(magic: bytes, body: bytes, *, has_tags: bool, has_mvcc: bool) -> Iterator[tuple[KeyValue, bytes]]:
    """Yield the cells of a data block, each with its family.

    Args:
        magic: of the block.
        body: of the block.
        has_tags: whether a cell ends with the length of its tags, which must be 0.
        has_mvcc: whether it ends, behind them, with the number of its write.

    Raises:
        ValueError, IndexError, struct.error: they cannot be read.
    """
    if magic == PLAIN_DATA:
        yield from _plain_cells(body, has_tags=has_tags, has_mvcc=has_mvcc)
        return
    encoding, size = ENCODED_HEAD.unpack_from(body)
    if encoding != FAST_DIFF_ID:
        raise ForeignError(f"data encoding {encoding}")
    if size > MOST_BLOCK_BYTES:
        raise ValueError(f"it says that its cells have {size:,} bytes")
    at, before, found = ENCODED_HEAD.size, None, 0
    while at < len(body):
        before, at = _read_diff(body, at, before)
        if has_tags:
            tags, at = read_varint(body, at)
            _refuse_tags(tags)
        sequence = 0
        if has_mvcc:
            start = at
            sequence, at = read_writable_int(body, at)
            found += at - start
        found += LENGTHS.size + len(before.key) + len(before.value) + 2 * has_tags
        if found > size:
            break
        yield KeyValue.of_key(before.key, before.value, sequence)
    if found != size:
        raise ValueError("its cells are not as long as it says")


def _plain_cells(body: bytes, *, has_tags: bool, has_mvcc: bool) -> Iterator[tuple[KeyValue, bytes]]:
    at = 0
    while at < len(body):
        key_bytes, value_bytes = LENGTHS.unpack_from(body, at)
        start = at + LENGTHS.size
        at = start + key_bytes + value_bytes
        if key_bytes < 0 or value_bytes < 0 or at > len(body):
            raise ValueError("a cell is cut")
        key, value, sequence = body[start : start + key_bytes], body[start + key_bytes : at], 0
        if has_tags:
            _refuse_tags(int.from_bytes(body[at : at + 2], "big"))
            at += 2
        if has_mvcc:
            sequence, at = read_writable_int(body, at)
        yield KeyValue.of_key(key, value, sequence)
    if at != len(body):
        raise ValueError("its last cell is cut")


def _refuse_tags(length: int) -> None:
    if length:
        raise ForeignError("a cell with tags")


class ForeignError(ValueError):
    """A block is sound, as far as can be seen, but of a kind that is not read."""


class _Read(NamedTuple):
    """A cell that was read, as the next one refers to it."""

    key: bytes
    value: bytes


def _read_diff(body: bytes, at: int, before: _Read | None) -> tuple[_Read, int]:
    """Return the cell of FAST_DIFF at a position, and where it ends."""
    flag, at = body[at], at + 1
    key_bytes, value_bytes = (0, 0) if before is None else (len(before.key), len(before.value))
    if not flag & SAME_KEY_LENGTH:
        key_bytes, at = read_varint(body, at)
    if not flag & SAME_VALUE_LENGTH:
        value_bytes, at = read_varint(body, at)
    shared, at = read_varint(body, at)

    def taken(count: int) -> bytes:
        nonlocal at
        if not 0 <= count <= len(body) - at:
            raise ValueError("a cell is cut")
        at += count
        return body[at - count : at]

    if before is None:
        key = taken(key_bytes)
        return _Read(key, taken(value_bytes)), at
    row_end = 2 + int.from_bytes(before.key[:2], "big")
    family_end = row_end + 1 + before.key[row_end]
    tail = key_bytes - _STAMP_BYTES - _TYPE_BYTES
    if shared < row_end:  # another row: the family, which all cells have, stands behind it
        head = before.key[:shared]
        head += taken(2 - len(head)) if len(head) < 2 else b""
        head += taken(2 + int.from_bytes(head[:2], "big") - len(head)) + before.key[row_end:family_end]
    elif family_end <= shared <= len(before.key) - _STAMP_BYTES - _TYPE_BYTES:
        head = before.key[:shared]
    else:
        raise ValueError("a cell shares more than the one before has")
    key = head + taken(tail - len(head))
    kept = flag & 7
    stamp = before.key[-_STAMP_BYTES - _TYPE_BYTES :][:kept]
    key += stamp + taken(_STAMP_BYTES - kept)
    key += before.key[-1:] if flag & SAME_TYPE else taken(1)
    return _Read(key, before.value if flag & SAME_VALUE else taken(value_bytes)), at
