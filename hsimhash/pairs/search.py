"""Every pair of near fingerprints, each once, and the groups of equal ones.

Equal fingerprints are made one first. Then each drawer of a layout is sorted and neighbours are compared; by the
layout's promise no pair within its distance is missed. The drawers are searched in threads, each in memory of its own;
what the budget has no room for is sorted in parts, from files.

Source: Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling", WWW 2007, section 5.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

from hsimhash.fingerprint.bits import Fingerprints, Int64s, Uint8s, Uint64s, as_fingerprints
from hsimhash.layout import Layout
from hsimhash.pairs import distinct
from hsimhash.pairs.distinct import Column, Distinct, SpilledRuns, quantiles, spill_folder
from hsimhash.pairs.neighbours import Meetings, Search, drawers_ns, searches
from hsimhash.plan import layouts_for

MEMORY_BYTES = 1 << 30
PAIRS_AT_ONCE = 1 << 20  # in a block
LIMIT = 1 << 32  # fingerprints
KEPT_BYTES = 12  # a distinct value and its index
DRAWER_BYTES = 8  # a value in a drawer that is searched in memory
PART_BYTES = 28  # measured: a value in a part that is read from files, joined and sorted
WORTH_THREADS = 20_000  # values; fewer are searched before a thread has started
LEAST_PART = 1 << 16  # values: smaller parts would only be slower
LOOKAHEAD = 4  # items that a thread makes at once; as many may wait for the reader

Item = TypeVar("Item")

_layouts = functools.cache(layouts_for)  # it takes longer than the pairs of some thousand fingerprints


class PairBlock(NamedTuple):
    """Pairs of fingerprints, by their positions; arrays of the same length."""

    left: Int64s  # position in the input, int64
    right: Int64s  # likewise, greater than `left`
    distance: Uint8s  # in bits, uint8


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """All pairs of distinct fingerprints, by their first occurrences, in order of (left, right); and the equal ones."""

    left: Int64s  # position in the input of a fingerprint's first occurrence, int64
    right: Int64s  # likewise, greater than `left`
    distance: Uint8s  # in bits, uint8, at least 1
    groups: Int64s  # for each of the input's fingerprints the position of the first one that equals it, int64

    def expand(self) -> Iterator[PairBlock]:
        """Yield every pair of positions, those of equal fingerprints (distance 0) first, in blocks of bounded size."""
        # The occurrences of each group stand together in `members`, in order.
        count = len(self.groups)
        members = np.argsort(self.groups, kind="stable")
        starts = np.flatnonzero(np.diff(self.groups[members], prepend=-1))
        sizes = np.diff(starts, append=count)
        start_of, size_of = np.zeros(count, np.int64), np.zeros(count, np.int64)
        start_of[members[starts]], size_of[members[starts]] = starts, sizes

        # Equal ones: each occurrence with those behind it in its group.
        for place, rank in _ragged(np.repeat(starts + sizes, sizes) - np.arange(count) - 1):
            yield PairBlock(members[place], members[place + 1 + rank], np.zeros(len(place), np.uint8))

        # Each pair of groups: all of the one with all of the other.
        for pair, rank in _ragged(size_of[self.left] * size_of[self.right]):
            left, right = self.left[pair], self.right[pair]
            one, other = np.divmod(rank, size_of[right])
            ends = members[start_of[left] + one], members[start_of[right] + other]
            yield PairBlock(np.minimum(*ends), np.maximum(*ends), self.distance[pair])


def _ragged(counts: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the numbers (row, 0), (row, 1), … (row, counts[row] - 1) of all rows, PAIRS_AT_ONCE at most at a time."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, PAIRS_AT_ONCE):
        numbers = np.arange(start, min(start + PAIRS_AT_ONCE, total))
        rows = np.searchsorted(ends, numbers, "right")
        yield rows, numbers - (ends[rows] - counts[rows])


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
    task = _Task.of(fingerprints, max_distance, layout, memory_bytes)
    groups = np.arange(len(task.values))
    with closing(task.meetings(groups)) as found:
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
        distance[part] = np.bitwise_count(task.values[left[part]] ^ task.values[right[part]])
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
    return _blocks(_Task.of(fingerprints, max_distance, layout, memory_bytes))


def _blocks(task: _Task) -> Generator[PairBlock]:
    with closing(task.meetings()) as found:
        for first, second in found:
            for start in range(0, len(first), PAIRS_AT_ONCE):
                pair = first[start : start + PAIRS_AT_ONCE], second[start : start + PAIRS_AT_ONCE]
                distance = np.bitwise_count(task.values[pair[0]] ^ task.values[pair[1]])
                yield PairBlock(np.minimum(*pair), np.maximum(*pair), distance)


def group_equal(fingerprints: Fingerprints, *, memory_bytes: int = MEMORY_BYTES) -> Int64s:
    """Return for each fingerprint the position of the first one that equals it; see `find_pairs`."""
    return find_pairs(fingerprints, max_distance=0, memory_bytes=memory_bytes).groups


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What was asked, checked; it is worked on in memory, or in files where the budget has no room."""

    values: Uint64s
    max_distance: int
    layout: Layout | None
    memory_bytes: int

    @classmethod
    def of(cls, fingerprints: Fingerprints, max_distance: int, layout: Layout | str | None, memory_bytes: int) -> _Task:
        if isinstance(max_distance, bool) or not isinstance(max_distance, (int, np.integer)):
            raise TypeError(f"max_distance is an int, not {type(max_distance).__name__}: {max_distance!r}")
        if isinstance(layout, str):
            layout = Layout.parse(layout)
        if not isinstance(layout, Layout | None):
            raise TypeError(f"layout is a Layout or its name, not {type(layout).__name__}: {layout!r}")
        if layout is None:
            _layouts(int(max_distance))  # raises where no layout finds it
        elif not 0 <= max_distance <= layout.max_distance:
            raise ValueError(
                f"max_distance {max_distance} is outside 0 to {layout.max_distance}, what layout {layout.name} finds "
                f"without a miss; omit the layout, or see 'hsimhash plan --distance {max_distance}'"
            )
        if memory_bytes <= 0:
            raise ValueError(f"memory_bytes must be above 0, not {memory_bytes}")
        values = np.asarray(as_fingerprints(fingerprints))
        if len(values) >= LIMIT:
            raise ValueError(f"{len(values):,} fingerprints are too many; fewer than {LIMIT:,} can be searched at once")
        return cls(values, int(max_distance), layout, memory_bytes)

    def meetings(self, groups: Int64s | None = None) -> Generator[Meetings]:
        """Yield the pairs of distinct fingerprints, by their first positions in any order; fill `groups`."""
        with ExitStack() as stack:
            folder = None
            if len(self.values) * distinct.ROW_BYTES > self.memory_bytes:
                folder = stack.enter_context(spill_folder())
            known = self._distinct(folder, groups)
            if self.max_distance == 0 or len(known.values) < 2:
                return
            found = self._found(known.values, folder)
            stack.enter_context(closing(found))  # its threads end before their files are deleted
            for first, second in found:
                if len(first):
                    yield Meetings(known.first[first].astype(np.int64), known.first[second].astype(np.int64))

    def _distinct(self, folder: Path | None, groups: Int64s | None) -> Distinct:
        if folder is None:
            return distinct.distinct(self.values, groups)
        found = distinct.distinct_in_files(self.values, folder, self.memory_bytes, groups)
        return Distinct(*map(np.array, found)) if self._threads_with_room(len(found.values)) else found

    def _threads_with_room(self, values: int) -> int:
        """Return how many threads can each sort so many values within the budget."""
        return max(0, self.memory_bytes - values * KEPT_BYTES) // (values * DRAWER_BYTES)

    def _found(self, values: Uint64s, folder: Path | None) -> Generator[Meetings]:
        """Yield the pairs of all drawers, in order."""
        layout = self.layout or min(
            _layouts(self.max_distance),
            key=lambda one: drawers_ns(len(values), (drawer.segment_bits for drawer in one.drawers)),
        )
        shares = searches(layout.drawers, self.max_distance)
        threads = min(os.cpu_count() or 1, len(shares)) if len(values) > WORTH_THREADS else 1
        room = self._threads_with_room(len(values))
        if room or folder is None:
            return in_order((share.meetings(values) for share in shares), min(threads, max(1, room)))
        part = max(LEAST_PART, self.memory_bytes // (PART_BYTES * threads))
        return in_order((_in_parts(share, values, part, folder) for share in shares), threads)


def _in_parts(share: Search, values: Uint64s, part: int, folder: Path) -> Generator[Meetings]:
    """Yield what `Search.meetings` does, of values in a file, in parts that cut no bucket."""
    step = max(1, len(values) // distinct.SAMPLE)
    sample = share.ordered(values[::step]) & ~(share.bucket_size - np.uint64(1))
    column = Column(folder / f"drawer-{share.drawer.number}.run", np.uint64)
    runs = SpilledRuns([column], quantiles(sample, -(-len(values) // part)))
    for start in range(0, len(values), part):
        runs.add(share.ordered(values[start : start + part]))
        yield Meetings.joined([])  # so that `close` need not wait for all parts
    for (ordered,) in runs.parts():
        ordered.sort()
        yield from share.located(ordered, values)


def in_order(sources: Iterable[Iterator[Item]], threads: int) -> Generator[Item]:
    """Yield the items of all sources, in order, while up to `threads` of them work, each LOOKAHEAD items at once.

    No thread outlives this generator. One at a time works in the reader's own thread.
    """
    if threads == 1:
        for source in sources:
            yield from source
        return
    with ThreadPoolExecutor(threads) as pool:

        def ahead(source: Iterator[Item]) -> tuple[Iterator[Item], Future[Sequence[Item]]]:
            return source, pool.submit(lambda: list(islice(source, LOOKAHEAD)))

        remaining = iter(sources)
        working = deque(map(ahead, islice(remaining, threads)))
        while working:
            source, made = working.popleft()
            while items := made.result():
                _, made = ahead(source)
                yield from items
            working.extend(map(ahead, islice(remaining, 1)))
