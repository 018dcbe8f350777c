"""Batches for calls to a gateway: work of bounded size, ranges of rows, and filters that region servers apply.

Filters are text, which both interfaces accept, or bytes, which only Thrift2 accepts. The bytes are a protobuf message,
`Filter {1: class name, 2: body}`. The body of a MultiRowRangeFilter is a list of
`RowRange {1: start, 2: start is inclusive, 3: stop, 4: stop is inclusive}`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise, zip_longest
from operator import lt

from hsimhash.hfile.blocks import message_field
from hsimhash.store.hbase.gateway.base import Having, Put
from hsimhash.store.reports import Region

CALL_CELLS = 20_000  # maximum cells in a reply
CALL_ROWS = 1_000  # maximum rows in a call
PAGE_ROWS = 10_000  # maximum rows in a scan's reply with one empty cell per row
PUT_ROWS = 2_000  # maximum rows that a call writes; a region server warns above 5,000
PUT_BYTES = 1 << 20  # maximum bytes that a call writes; a gateway with framed transport accepts requests of 2 MB

_RANGES = 1_000  # maximum ranges in a filter; region servers search them at every hop
_LEAST_RANGES = 4  # minimum ranges per filter; with fewer, single scans are faster
_SCANS = 4  # parallel scans of one batch on a region server; measured: ten are a third slower
_LEAST_ROWS = 100  # minimum rows that are worth a separate call
_CELL_BYTES = 64  # overhead per cell, in either interface
_MULTI_ROW_RANGE = b"org.apache.hadoop.hbase.filter.MultiRowRangeFilter"


def slices(count: int, size: int) -> list[slice]:
    """Return slices that cut `count` items into runs of at most `size`."""
    return [slice(start, start + size) for start in range(0, count, size)]


Range = tuple[bytes, bytes]


def scan_groups(ranges: Sequence[Range], regions: Sequence[Region]) -> tuple[list[list[Range]], int]:
    """Group ascending, disjoint ranges, one filter per group; also return how many groups to scan in parallel.

    Each group lies within one region. The list is empty if scanning each range separately is better.
    """
    if not regions:  # the table does not exist, as a scan will report
        return [], 0
    cuts = [0, *(bisect_left(ranges, (region.start,)) for region in regions[1:]), len(ranges)]
    by_server: dict[str, list[list[Range]]] = {}
    for region, (first, last) in zip(regions, pairwise(cuts), strict=True):
        held = ranges[first:last]
        own = by_server.setdefault(region.server, [])
        own += [list(held[part]) for part in slices(len(held), _RANGES)]
    in_turn = chain.from_iterable(zip_longest(*by_server.values()))  # so that all servers are busy
    groups = [group for group in in_turn if group is not None]
    return groups if len(ranges) >= _LEAST_RANGES * len(groups) else [], _SCANS * len(by_server)


def cells_rows(limit: int) -> int:
    """Return how many rows a call may read if it requests up to `limit` cells from each."""
    return max(1, min(CALL_ROWS, CALL_CELLS // limit))


def share(count: int, most: int, workers: int) -> int:
    """Return the run size, at most `most`, for splitting `count` items so that all workers finish together."""
    turns = -(-count // (most * workers))
    return min(max(-(-count // max(turns * workers, 1)), _LEAST_ROWS), most)


def put_batches(puts: Sequence[Put], most: int = PUT_ROWS) -> Iterator[Sequence[Put]]:
    """Yield the puts in order, in runs that fit into a call by count and bytes."""
    start, held_bytes = 0, 0
    for position, put in enumerate(puts):
        put_bytes = _CELL_BYTES + len(put.row) + len(put.qualifier) + len(put.value)
        if position - start == most or (held_bytes + put_bytes > PUT_BYTES and position > start):
            yield puts[start:position]
            start, held_bytes = position, 0
        held_bytes += put_bytes
    if start < len(puts):
        yield puts[start:]


def columns_after(qualifier: bytes) -> bytes:
    """Return the filter for cells with qualifiers greater than `qualifier`."""
    return b"ColumnRangeFilter ('" + qualifier.replace(b"'", b"''") + b"', false, '', false)"


def first_columns(limit: int, having: Having | None = None) -> bytes:
    """Return the filter for the first `limit` cells of each row; it seeks past the other cells.

    With `having`, cells whose qualifier or value is empty are skipped.
    """
    first = b"ColumnPaginationFilter (%d, 0)" % limit
    return first if having is None else b"%sFilter (!=, 'binary:') AND %s" % (having.capitalize().encode(), first)


def row_ranges(ranges: Iterable[Range]) -> bytes:
    """Return the filter, as bytes, for ascending, disjoint, half-open row ranges."""
    return message_field(1, _MULTI_ROW_RANGE) + message_field(2, b"".join([_range(*bounds) for bounds in ranges]))


def _range(start: bytes, stop: bytes) -> bytes:
    size = len(start) + len(stop) + 8
    if size > 0x7F:
        return message_field(1, b"%b\x10\x01%b\x20\x00" % (message_field(1, start), message_field(3, stop)))
    # The usual case: each length takes one byte. Batches have tens of thousands of such ranges.
    return b"\x0a%c\x0a%c%b\x10\x01\x1a%c%b\x20\x00" % (size, len(start), start, len(stop), stop)


def merged(ranges: Sequence[Range]) -> list[Range]:
    """Merge half-open ranges into ascending, disjoint ones that cover the same rows; drop empty ones."""
    ends = list(chain.from_iterable(ranges))
    if all(map(lt, ends, ends[1:])):  # the usual case in a batch; does not need a Python loop
        return list(ranges)
    disjoint: list[Range] = []
    for start, stop in sorted(set(ranges)):
        if start >= stop:
            continue
        if disjoint and start <= disjoint[-1][1]:
            disjoint[-1] = disjoint[-1][0], max(stop, disjoint[-1][1])
        else:
            disjoint.append((start, stop))
    return disjoint
