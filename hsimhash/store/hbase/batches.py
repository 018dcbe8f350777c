"""Cutting work into calls of bounded size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, zip_longest

from hsimhash.store.hbase.gateway import Put, Region

CALL_CELLS = 20_000  # that a reply may have
CALL_ROWS = 1_000  # that a call may name
PAGE_ROWS = 10_000  # of a scan's reply, where only the rows are asked for
PUT_ROWS = 2_000  # that a call may write; a region server warns above 5,000
PUT_BYTES = 1 << 20  # a gateway on framed transport takes requests of 2 MB

_RANGES = 1_000  # in one filter, which region servers search at every hop
_LEAST_RANGES = 4  # for each filter, or single scans are faster
_SCANS = 4  # of one batch on a region server at once; measured: ten are a third slower than four
_LEAST_ROWS = 100  # fewer are not worth a call of their own
_CELL_BYTES = 64  # around a cell's own bytes, in either interface


def slices(count: int, size: int) -> list[slice]:
    """Return the slices that cut `count` things into runs of at most `size`."""
    return [slice(start, start + size) for start in range(0, count, size)]


Range = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class ScanBatch:
    """Ascending, disjoint ranges, each group of them within one region, and how many groups are scanned at once."""

    groups: tuple[list[Range], ...]
    width: int

    @classmethod
    def of(cls, ranges: Sequence[Range], regions: Sequence[Region]) -> ScanBatch | None:
        """Return the scans of many ranges; None where each range is better scanned by itself."""
        if not regions:  # there is no table, as a scan will say
            return None
        starts = [region.start for region in regions]
        by_server: dict[str, list[list[Range]]] = {}
        for place, group in groupby(ranges, lambda one: max(bisect_right(starts, one[0]) - 1, 0)):
            held = list(group)
            own = by_server.setdefault(regions[place].server, [])
            own += [held[part] for part in slices(len(held), _RANGES)]
        in_turn = chain.from_iterable(zip_longest(*by_server.values()))  # so that no server waits for another
        groups = tuple(group for group in in_turn if group is not None)
        return cls(groups, _SCANS * len(by_server)) if len(ranges) >= _LEAST_RANGES * len(groups) else None


def share(count: int, most: int, workers: int) -> int:
    """Return how many of `count` things a run has, at most `most`, so that all workers are busy until the end."""
    turns = -(-count // (most * workers))
    return min(max(-(-count // max(turns * workers, 1)), _LEAST_ROWS), most)


def put_batches(puts: Sequence[Put], most: int = PUT_ROWS) -> Iterator[Sequence[Put]]:
    """Yield the puts in order, in runs that fit a call by number and by bytes."""
    start, held_bytes = 0, 0
    for position, put in enumerate(puts):
        put_bytes = _CELL_BYTES + len(put.row) + len(put.qualifier) + len(put.value)
        if position - start == most or (held_bytes + put_bytes > PUT_BYTES and position > start):
            yield puts[start:position]
            start, held_bytes = position, 0
        held_bytes += put_bytes
    if start < len(puts):
        yield puts[start:]
