"""Every pair of near fingerprints, each once, and the groups of equal ones.

Equal fingerprints are made one first. Then each drawer of a layout is sorted and neighbours are compared; by the
layout's promise no pair within its distance is missed. The drawers are searched in threads, each in memory of its own;
what the budget has no room for is sorted in parts, from files.

Source: Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling", WWW 2007, section 5.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Fingerprints, as_fingerprints
from hsimhash.layout import Layout
from hsimhash.pairs import distinct
from hsimhash.pairs.ahead import in_order
from hsimhash.pairs.cost import drawers_ns
from hsimhash.pairs.distinct import Distinct
from hsimhash.pairs.expand import expanded
from hsimhash.pairs.neighbours import Meetings, Search, searches
from hsimhash.pairs.spill import Column, SpilledRuns, quantiles, spill_folder
from hsimhash.plan import layouts_for

MEMORY_BYTES = 1 << 30
PAIRS_AT_ONCE = 1 << 20  # in a block
LIMIT = 1 << 32  # fingerprints
KEPT_BYTES = 12  # a distinct value and its index
DRAWER_BYTES = 8  # a value in a drawer that is searched in memory
PART_BYTES = 28  # measured: a value in a part that is read from files, joined and sorted
WORTH_THREADS = 20_000  # values; fewer are searched before a thread has started
LEAST_PART = 1 << 16  # values: smaller parts would only be slower


class PairBlock(NamedTuple):
    """Pairs of fingerprints, by their positions; arrays of the same length.

    Args:
        left: position in the input, int64.
        right: likewise, greater than `left`.
        distance: in bits, uint8.
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    distance: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """All pairs of distinct fingerprints, each by its first occurrence, in order of (left, right), and the equal ones.

    Args:
        left: position in the input of a fingerprint's first occurrence, int64.
        right: likewise, greater than `left`.
        distance: in bits, uint8, at least 1.
        groups: for each of the input's fingerprints the position of the first one that equals it, int64.
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    distance: NDArray[np.uint8]
    groups: NDArray[np.int64]

    def expand(self) -> Iterator[PairBlock]:
        """Yield every pair of positions, those of equal fingerprints (distance 0) first, in blocks of bounded size."""
        for left, right, distance in expanded(self.left, self.right, self.distance, self.groups, PAIRS_AT_ONCE):
            yield PairBlock(left, right, distance)


def find_pairs(
    fingerprints: Fingerprints,
    *,
    max_distance: int = 3,
    layout: Layout | str | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> Pairs:
    """Return every pair of distinct fingerprints within `max_distance` bits, and the groups of equal ones.

    Args:
        fingerprints: shape (n,), uint64 (a memory-mapped file too), or a sequence of ints; fewer than 2**32.
        max_distance: 0 to the layout's k, in bits.
        layout: one, or what `Layout.parse` reads; by default the fastest one. The answer does not depend on it.
        memory_bytes: bounds the working memory, not the answer's, nor that of a single bucket that is larger; what
            does not fit is spilled to the folder for temporary files. The answer does not depend on it.

    Raises:
        ValueError: a fingerprint, the distance, the layout or the budget is out of range.
        OSError: the folder for temporary files is full or cannot be written.
    """
    task = _task(fingerprints, max_distance, layout, memory_bytes)
    groups = np.arange(len(task.values))
    with closing(_meetings(task, groups)) as found:
        # One word a pair: sorting them sorts by (left, right).
        words = [np.minimum(*pairs) << 32 | np.maximum(*pairs) for pairs in found]
    joined = np.concatenate([np.empty(0, np.int64), *words]).view(np.uint64)
    del words
    joined.sort()
    left = (joined >> np.uint64(32)).view(np.int64)
    joined &= np.uint64(LIMIT - 1)
    right = joined.view(np.int64)
    distance = np.empty(len(left), np.uint8)
    for start in range(0, len(left), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        distance[part] = _distances(task.values, left[part], right[part])
    return Pairs(left, right, distance, groups)


def iter_pairs(
    fingerprints: Fingerprints,
    *,
    max_distance: int = 3,
    layout: Layout | str | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> Generator[PairBlock]:
    """Yield the pairs that `find_pairs` returns, in blocks of bounded size, as they are found.

    The order depends on the fingerprints and the layout alone; arguments and errors are those of `find_pairs`. What
    `close` leaves unread is not searched.
    """
    return _blocks(_task(fingerprints, max_distance, layout, memory_bytes))


def _blocks(task: _Task) -> Generator[PairBlock]:
    with closing(_meetings(task, None)) as found:
        for first, second in found:
            for start in range(0, len(first), PAIRS_AT_ONCE):
                pair = first[start : start + PAIRS_AT_ONCE], second[start : start + PAIRS_AT_ONCE]
                yield PairBlock(np.minimum(*pair), np.maximum(*pair), _distances(task.values, *pair))


def group_equal(fingerprints: Fingerprints, *, memory_bytes: int = MEMORY_BYTES) -> NDArray[np.int64]:
    """Return for each fingerprint the position of the first one that equals it; see `find_pairs`."""
    task = _task(fingerprints, 0, None, memory_bytes)
    groups = np.arange(len(task.values))
    with ExitStack() as stack:
        _Work(task, stack).distinct(groups)
    return groups


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    values: NDArray[np.uint64]
    max_distance: int
    layout: Layout | None
    memory_bytes: int


def _task(fingerprints: Fingerprints, max_distance: int, layout: Layout | str | None, memory_bytes: int) -> _Task:
    """Return what was asked, checked."""
    if isinstance(max_distance, bool) or not isinstance(max_distance, (int, np.integer)):
        raise TypeError(f"max_distance is an int, not {type(max_distance).__name__}: {max_distance!r}")
    if isinstance(layout, str):
        layout = Layout.parse(layout)
    if not isinstance(layout, Layout | None):
        raise TypeError(f"layout is a Layout or its name, not {type(layout).__name__}: {layout!r}")
    if layout is None:
        _layouts(int(max_distance))
    elif not 0 <= max_distance <= layout.max_distance:
        raise ValueError(
            f"max_distance {max_distance} is outside 0 to {layout.max_distance}, what layout {layout.name} finds "
            f"without a miss; leave the layout out, or see 'hsimhash plan --distance {max_distance}'"
        )
    if memory_bytes <= 0:
        raise ValueError(f"memory_bytes must be above 0, not {memory_bytes}")
    return _Task(_as_array(fingerprints), int(max_distance), layout, memory_bytes)


def _as_array(fingerprints: Fingerprints) -> NDArray[np.uint64]:
    values = np.asarray(as_fingerprints(fingerprints))
    if len(values) >= LIMIT:
        raise ValueError(f"{len(values):,} fingerprints are too many; fewer than {LIMIT:,} can be searched at once")
    return values


def _distances(values: NDArray[np.uint64], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.uint8]:
    distances: NDArray[np.uint8] = np.bitwise_count(values[left] ^ values[right])
    return distances


def _fastest(max_distance: int, values: int) -> Layout:
    def expected_ns(layout: Layout) -> float:
        return drawers_ns(values, (drawer.segment_bits for drawer in layout.drawers))

    return min(_layouts(max_distance), key=expected_ns)


@functools.cache
def _layouts(max_distance: int) -> list[Layout]:
    return layouts_for(max_distance)  # it takes longer than the pairs of some thousand fingerprints


def _meetings(task: _Task, groups: NDArray[np.int64] | None) -> Generator[Meetings]:
    """Yield the pairs of distinct fingerprints, by their first positions in any order; fill `groups`."""
    with ExitStack() as stack:
        work = _Work(task, stack)
        known = work.distinct(groups)
        if task.max_distance == 0 or len(known.values) < 2:
            return
        layout = task.layout or _fastest(task.max_distance, len(known.values))
        found = work.found(searches(layout.drawers, task.max_distance), known.values)
        stack.enter_context(closing(found))  # its threads end before their files are deleted
        for first, second in found:
            if len(first):
                yield Meetings(known.first[first].astype(np.int64), known.first[second].astype(np.int64))


class _Work:
    """Where the search keeps what it works on: in memory, or in files where the budget has no room."""

    def __init__(self, task: _Task, stack: ExitStack) -> None:
        self._fingerprints = task.values
        self._memory_bytes = task.memory_bytes
        self._stack = stack

    def distinct(self, groups: NDArray[np.int64] | None) -> Distinct:
        """Return the distinct fingerprints; fill `groups`."""
        if len(self._fingerprints) * distinct.ROW_BYTES <= self._memory_bytes:
            return distinct.distinct(self._fingerprints, groups)
        self._folder = self._stack.enter_context(spill_folder())
        found = distinct.distinct_in_files(self._fingerprints, self._folder, self._memory_bytes, groups)
        return Distinct(*map(np.array, found)) if self._fits(len(found.values), 1) else found

    def _fits(self, values: int, threads: int) -> bool:
        return values * (KEPT_BYTES + DRAWER_BYTES * threads) <= self._memory_bytes

    def found(self, shares: Sequence[Search], values: NDArray[np.uint64]) -> Generator[Meetings]:
        """Yield the pairs of all drawers, in order."""
        threads = min(os.cpu_count() or 1, len(shares)) if len(values) > WORTH_THREADS else 1
        if self._fits(len(values), 1):
            while not self._fits(len(values), threads):
                threads -= 1
            return in_order((share.meetings(values) for share in shares), threads)
        part = max(LEAST_PART, self._memory_bytes // (PART_BYTES * threads))
        return in_order((self._in_parts(share, values, part) for share in shares), threads)

    def _in_parts(self, share: Search, values: NDArray[np.uint64], part: int) -> Generator[Meetings]:
        """Yield what `Search.meetings` does, of values in a file, in parts that cut no bucket."""
        step = max(1, len(values) // distinct.SAMPLE)
        sample = share.ordered(values[::step]) & ~(share.bucket_size - np.uint64(1))
        name = f"drawer-{share.drawer.number}.run"
        runs = SpilledRuns([Column(self._folder / name, np.uint64)], quantiles(sample, -(-len(values) // part)))
        for start in range(0, len(values), part):
            runs.add(share.ordered(values[start : start + part]))
            yield Meetings.joined([])
        for (ordered,) in runs.parts():
            ordered.sort()
            yield from share.located(ordered, values)
