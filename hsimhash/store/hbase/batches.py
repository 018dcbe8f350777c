"""Cutting work into calls of bounded size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hsimhash.store.hbase.gateway import Put

CALL_CELLS = 20_000  # that a reply may have
CALL_ROWS = 1_000  # that a call may name
PAGE_ROWS = 10_000  # of a scan's reply, where only the rows are asked for
PUT_ROWS = 2_000  # that a call may write; a region server warns above 5,000
PUT_BYTES = 1 << 20  # a gateway on framed transport takes requests of 2 MB

_LEAST_ROWS = 100  # fewer are not worth a call of their own
_CELL_BYTES = 64  # around a cell's own bytes, in either interface


def slices(count: int, size: int) -> list[slice]:
    """Return the slices that cut `count` things into runs of at most `size`."""
    return [slice(start, start + size) for start in range(0, count, size)]


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
