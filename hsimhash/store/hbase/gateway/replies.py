"""Parse replies to scans over the second Thrift interface (bytes of the binary protocol) into arrays.

| bytes | meaning |
|---|---|
| `80 01 00 02` · length (4) · `getScannerResults` · number (4) | the message |
| `0f 00 00 0c` · count (4) | the list of rows, which ends with `00` |
| `0b 00 01` · length (4) · row · `0f 00 02 0c` · count (4) | a row, and the list of its cells |
| `02 00 03 00 02 00 04 00 00` | end of a row: neither stale nor partial |
| `0b 00 01` · length (4) · family · `0b 00 02` · length (4) · qualifier · `0b 00 03` · length (4) · value | a cell |
| `0a 00 04` · timestamp (8) · `03 00 06 04 00` | end of a cell: it was put |

Anything else, such as a row of a different length or a reply from a different HBase release, is left to the Thrift
library. Measured on the client, a cell takes 3.5 µs as a library object and 1.5 µs here. A drawer row, whose length is
fixed, takes 1.1 µs and 0.6 µs, respectively.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Int64s, Uint8s
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY, CellArrays

_HEAD = np.dtype([("message", "V33"), ("count", ">u4")])
_ROW = np.dtype([("mark", "S7"), ("row", f"V{ROWKEY_BYTES}"), ("list", "S4"), ("count", ">u4")])
_SIZE = np.dtype(">u4")
_VALUE = np.dtype([("mark", "S3"), ("size", ">u4")])
_STAMP = np.dtype([("mark", "S3"), ("stamp", ">i8"), ("end", "S5")])
_ROW_END = np.dtype("S9")

_ROW_MARKS = b"\x0b\0\1" + ROWKEY_BYTES.to_bytes(4, "big"), b"\x0f\0\2\x0c"
_VALUE_MARK, _STAMP_MARK, _CELL_END = b"\x0b\0\3", b"\x0a\0\4", b"\3\0\6\4\0"
_ROW_END_MARK = b"\2\0\3\0\2\0\4\0\0"


def _cell_mark(family: bytes) -> bytes:
    return b"\x0b\0\1" + len(family).to_bytes(4, "big") + family + b"\x0b\0\2"


_MIDDLE = _ROW_MARKS[1] + b"\0\0\0\1" + _cell_mark(DRAWER_FAMILY) + bytes(4) + _VALUE_MARK + bytes(4) + _STAMP_MARK
_END = _CELL_END + _ROW_END_MARK
_DRAWER_ROW = np.dtype(
    [
        ("mark", "S7"),
        ("row", f"V{ROWKEY_BYTES}"),
        ("middle", f"S{len(_MIDDLE)}"),
        ("stamp", ">i8"),
        ("end", f"S{len(_END)}"),
    ]
)


def drawer_rows_in(reply: bytes) -> Uint8s | None:
    """Return a reply's rowkeys, shape (m, 13), uint8, or None if it contains anything but drawer rows."""
    size = len(reply) - _HEAD.itemsize - 1
    if size < 0 or size != _count(reply) * _DRAWER_ROW.itemsize:
        return None
    found = np.frombuffer(reply, _DRAWER_ROW, size // _DRAWER_ROW.itemsize, _HEAD.itemsize)
    is_usual = (found["mark"] == _ROW_MARKS[0]) & (found["middle"] == _MIDDLE) & (found["end"] == _END)
    return _rowkeys(found["row"]) if is_usual.all() else None


def columns_in(reply: bytes, family: bytes) -> CellArrays | None:
    """Return a reply's cells, or None if it contains anything but cells of this family in rows of 13 bytes.

    The reply is split at the marks that begin cells. An id or a value might also contain such a mark, but then the
    lengths do not match: each cell must end where the next cell or the next row begins.
    """
    try:
        return _columns(reply, _cell_mark(family))
    except IndexError:  # a length points beyond the reply
        return None


def _columns(reply: bytes, mark: bytes) -> CellArrays | None:
    pieces = reply.split(mark)
    names = np.cumsum([len(piece) + len(mark) for piece in pieces])[:-1]  # offsets of the qualifiers' lengths
    name_sizes = _at(reply, _SIZE, names).astype(np.int64)
    values = names + _SIZE.itemsize + name_sizes
    found = _at(reply, _VALUE, values)
    stamps = values + _VALUE.itemsize + found["size"]
    stamped = _at(reply, _STAMP, stamps)
    ends = stamps + _STAMP.itemsize
    # A row begins after the head, and wherever a cell does not begin at the end of the previous cell.
    begins = np.flatnonzero(np.append(True, ends[:-1] != names[1:] - len(mark))[: len(names)])
    rows = names[begins] - len(mark) - _ROW.itemsize
    head = _at(reply, _ROW, rows)
    counts = np.diff(begins, append=len(names))
    row_ends = ends[begins + counts - 1]
    is_usual = (
        len(reply) > _HEAD.itemsize
        and _count(reply) == len(rows)
        and np.array_equal(np.append(_HEAD.itemsize, row_ends + _ROW_END.itemsize), np.append(rows, len(reply) - 1))
        and np.array_equal(head["count"], counts)
        and bool((found["mark"] == _VALUE_MARK).all())
        and bool(((stamped["mark"] == _STAMP_MARK) & (stamped["end"] == _CELL_END)).all())
        and bool(((head["mark"] == _ROW_MARKS[0]) & (head["list"] == _ROW_MARKS[1])).all())
        and bool((_at(reply, _ROW_END, row_ends) == _ROW_END_MARK).all())
    )
    if not is_usual:
        return None
    return CellArrays(
        np.repeat(_rowkeys(head["row"]), counts, axis=0),
        _pieces(reply, names + _SIZE.itemsize, values),
        _pieces(reply, values + _VALUE.itemsize, stamps),
        stamped["stamp"].astype(np.int64),
    )


def _count(reply: bytes) -> int:
    return int(np.frombuffer(reply, _HEAD, 1)["count"][0])


def _at(reply: bytes, dtype: Any, places: Int64s) -> NDArray[Any]:
    """Return the values at byte offsets; raise `IndexError` if one is out of range."""
    every = np.ndarray(max(len(reply) - dtype.itemsize + 1, 0), dtype, reply, strides=(1,))
    found: NDArray[Any] = every[places]
    return found


def _pieces(reply: bytes, starts: Int64s, stops: Int64s) -> list[bytes]:
    return [reply[start:stop] for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]


def _rowkeys(rows: NDArray[np.void]) -> Uint8s:
    return np.ascontiguousarray(rows).view(np.uint8).reshape(-1, ROWKEY_BYTES)
