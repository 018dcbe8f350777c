"""Filters that region servers apply: as text, which both gateways read, and as bytes, which Thrift2 alone takes.

The bytes are protobuf's: `Filter {1: class name, 2: body}`; the body of a MultiRowRangeFilter is a list of
`RowRange {1: start, 2: start is within, 3: stop, 4: stop is within}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

_MULTI_ROW_RANGE = b"org.apache.hadoop.hbase.filter.MultiRowRangeFilter"


def columns_after(qualifier: bytes) -> bytes:
    """Return the filter that passes the cells whose qualifier is greater than `qualifier`."""
    return b"ColumnRangeFilter ('" + qualifier.replace(b"'", b"''") + b"', false, '', false)"


def first_columns(limit: int) -> bytes:
    """Return the filter that passes the first `limit` cells of each row and seeks past the others."""
    return b"ColumnPaginationFilter (%d, 0)" % limit


def row_ranges(ranges: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the filter, as bytes, that hops over ascending, disjoint, half-open row ranges."""
    body = b"".join([_field(1, _row_range(start, stop)) for start, stop in ranges])
    return _field(1, _MULTI_ROW_RANGE) + _field(2, body)


def _row_range(start: bytes, stop: bytes) -> bytes:
    return b"%b%b\x10\x01%b%b\x20\x00" % (_head(1, len(start)), start, _head(3, len(stop)), stop)


def merged(ranges: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the ascending, disjoint half-open ranges that cover the same rows; empty ones are left out."""
    disjoint: list[tuple[bytes, bytes]] = []
    for start, stop in sorted(set(ranges)):
        if start >= stop:
            continue
        if disjoint and start <= disjoint[-1][1]:
            disjoint[-1] = disjoint[-1][0], max(stop, disjoint[-1][1])
        else:
            disjoint.append((start, stop))
    return disjoint


def _field(number: int, data: bytes) -> bytes:
    return _head(number, len(data)) + data


@lru_cache(1024)
def _head(number: int, size: int) -> bytes:
    head = bytearray([number << 3 | 2])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)
