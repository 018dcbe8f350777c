"""Encode cells into data blocks, plain or with FAST_DIFF.

FAST_DIFF leaves out what a cell shares with the previous one: the beginning of its key, lengths, type, value, and the
first bytes of its timestamp. The low three bits of the flag state how many of the timestamp's eight bytes are left out;
the other bits mark which other parts are the same. All cells in a file have the same family.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Literal, NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Uint8s
from hsimhash.hfile.blocks import ENCODED_DATA, PLAIN_DATA, varint

Encoding = Literal["NONE", "FAST_DIFF"]
MAGIC = {"NONE": PLAIN_DATA, "FAST_DIFF": ENCODED_DATA}
PUT = 4
MOST_ROW_BYTES = 0x7FFF
MOST_CONSTANT_BYTES = 125  # maximum row length; the number of shared bytes (+ 2 for the length) fits a 1-byte varint

FAST_DIFF_ID = 4
SAME_KEY_LENGTH, SAME_VALUE_LENGTH, SAME_TYPE, SAME_VALUE = (1 << bit for bit in range(3, 7))
_SAME = SAME_KEY_LENGTH | SAME_VALUE_LENGTH | SAME_TYPE | SAME_VALUE
SHARED_TIMESTAMP_BYTES = 7  # maximum number of a timestamp's 8 bytes that are left out
LENGTHS = Struct(">ii")  # lengths of the key and of the value
ENCODED_HEAD = Struct(">HI")  # number of the encoding, bytes before encoding
_STAMP_BYTES, _TYPE_BYTES = 8, 1
OTHER_KEY_BYTES = 2 + 1 + _STAMP_BYTES + _TYPE_BYTES  # bytes of a key in addition to row, family and qualifier


class KeyValue(NamedTuple):
    """A cell in a file's family; `kind` is HBase's number for the cell type, 4 for a put."""

    row: bytes
    qualifier: bytes
    timestamp: int
    value: bytes
    kind: int = PUT

    def key(self, family: bytes) -> bytes:
        """Return HBase's key of the cell: row, family, qualifier, timestamp, kind."""
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


def constant_bodies(
    rows: Uint8s, family: bytes, timestamp: int, encoding: Encoding, block_bytes: int
) -> Iterator[tuple[int, bytes, int]]:
    """Yield blocks of rows that have one cell each, with an empty qualifier and value.

    Args:
        rows: Rows, shape (n, width), uint8, strictly ascending, with a width of up to `MOST_CONSTANT_BYTES`.
        family: Column family of the cells.
        timestamp: Timestamp of the cells, in ms since 1970.
        encoding: Encoding of the blocks.
        block_bytes: Maximum size of a block before encoding. A block has at least one cell, even if it is larger.

    Yields:
        The index of the block's first row, its body, and its size in bytes before encoding.
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
    """Encode the first cell of a block with FAST_DIFF; it does not share anything with another cell."""
    return b"\0" + varint(len(key)) + varint(len(value)) + b"\0" + key + value


def cell_body(cells: Sequence[KeyValue], family: bytes, encoding: Encoding) -> bytes:
    """Return the body of a block of sorted cells."""
    if encoding == "NONE":
        keys = [cell.key(family) for cell in cells]
        pairs = zip(keys, cells, strict=True)
        return b"".join(LENGTHS.pack(len(key), len(cell.value)) + key + cell.value for key, cell in pairs)
    size = sum(plain_bytes(cell, family) for cell in cells)
    parts = [ENCODED_HEAD.pack(FAST_DIFF_ID, size), first_diff(cells[0].key(family), cells[0].value)]
    parts += (_diff(cell, before, family) for before, cell in pairwise(cells))
    return b"".join(parts)


def plain_bytes(cell: KeyValue, family: bytes) -> int:
    """Return the size of a cell in bytes before encoding."""
    return LENGTHS.size + _key_bytes(cell, family) + len(cell.value)


def _key_bytes(cell: KeyValue, family: bytes) -> int:
    return len(cell.row) + len(family) + len(cell.qualifier) + OTHER_KEY_BYTES


def _diff(cell: KeyValue, before: KeyValue, family: bytes) -> bytes:
    """Encode a cell with FAST_DIFF, relative to the previous cell."""
    row, qualifier, timestamp, value, kind = cell
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
    """Return the length of the common prefix in bytes."""
    most = min(len(one), len(other))
    if one[:most] == other[:most]:
        return most
    differing = int.from_bytes(one[:most], "big") ^ int.from_bytes(other[:most], "big")
    return most - (differing.bit_length() + 7) // 8
