"""Find each pair of near fingerprints or signatures once, and the groups of equal ones.

Equal fingerprints are merged first. Then each drawer in a layout is sorted and neighbours are compared. The layout
guarantees that no pair within its distance is missed. The drawers are searched in threads, and each thread has its own
memory. Data beyond the memory budget is sorted in parts, in files.

Source: Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling", WWW 2007, section 5.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from hsimhash.errors import Remedy
from hsimhash.fingerprint.bits import AnyFingerprints, Int64s, Uint64s, as_fingerprints, whole_number
from hsimhash.fingerprint.signature import MAX_SKETCH, AnySignatures, Signatures, as_signatures, check_max_sketch
from hsimhash.layout import Layout
from hsimhash.pairs import distinct
from hsimhash.pairs.crowds import Crowd, CrowdedPairs, NearRule, outside, without_subsets
from hsimhash.pairs.distinct import Column, Distinct, SpilledRuns, quantiles, spill_folder
from hsimhash.pairs.neighbours import CrowdedBucket, Meetings, Search, drawers_ns, searches
from hsimhash.pairs.pair_blocks import FINGERPRINT_LIMIT, PAIRS_AT_ONCE, PairBlock, Pairs, pair_words, sorted_block
from hsimhash.pairs.signatures import crowded_signatures, equal_signatures, near_signatures
from hsimhash.plan import layouts_for

MEMORY_BYTES = 1 << 30
KEPT_BYTES = 12  # per distinct value, including its index
DRAWER_BYTES = 8  # per value in a drawer that is searched in memory
PART_BYTES = 28  # per value in a part that is read from files, joined and sorted (measured)
WORTH_THREADS = 20_000  # minimum number of values for threads; searching fewer takes less time than starting a thread
LEAST_PART = 1 << 16  # minimum number of values in a part; smaller parts would only be slower
LOOKAHEAD = 4  # items that a thread produces at once; the same number may wait for the reader

Item = TypeVar("Item")
TellProgress = Callable[[int, int], object]  # called with the amount done and the total

# Cached because this takes longer than finding the pairs of a few thousand fingerprints.
_layouts = functools.cache(layouts_for)


def find_pairs(
    signatures: AnySignatures,
    *,
    max_distance: int = 3,
    max_sketch: int | None = MAX_SKETCH,
    layout: Layout | str | None = None,
    memory_bytes: int = MEMORY_BYTES,
    tell: TellProgress = lambda *_: None,
) -> Pairs:
    """Find all pairs of distinct fingerprints within `max_distance` bits, and all groups of equal fingerprints.

    Two signatures that share a key are also a pair, regardless of their distance. Two signatures whose sketches differ
    too much are not a pair. Equal inputs are in `groups`, not in `left` and `right`: see `Pairs`. For texts, use
    `duplicates`.

    Args:
        signatures: n signatures or fingerprints, fewer than 2**32. Fingerprints are an array of shape (n,), uint64
            (possibly memory-mapped), or a sequence of ints.
        max_distance: Maximum distance in bits, 0 to the layout's k.
        max_sketch: Maximum number of differing bits of two sketches, out of 64, if both exist. If only a key is shared,
            each bit of distance beyond 16 lowers this limit by one. None: no limit.
        layout: Layout, or a string for `Layout.parse`; the default is the fastest one. It does not affect the result.
        memory_bytes: Limit on working memory; data beyond it is spilled to the folder for temporary files. The limit
            does not cover the result, or a single bucket that exceeds it. Each signature takes 30 more bytes, and up to
            180 if another signature has a near fingerprint or shares its key. The limit does not affect the result.
        tell: Called with (done, total) whenever pairs are found. Counts drawers, or parts of them if they are spilled.

    Raises:
        ValueError: a fingerprint, a distance, the layout or the budget is out of range.
        OSError: the folder for temporary files is full or not writable.
    """
    check_max_sketch(max_sketch)
    fingerprints, more = _parted(signatures)
    task = _Task.of(fingerprints, max_distance, layout, memory_bytes)
    groups = np.arange(len(task.values))
    with closing(task.meetings(groups, tell)) as found:
        pairs = Pairs(*sorted_block((pair_words(*pair) for pair in found), task.values), groups)
    return near_signatures(pairs, more, task.max_distance, max_sketch) if more else pairs


def find_crowded(
    signatures: AnySignatures,
    *,
    max_distance: int = 3,
    max_sketch: int | None = MAX_SKETCH,
    memory_bytes: int = MEMORY_BYTES,
    tell: TellProgress = lambda *_: None,
) -> CrowdedPairs:
    """Return the input for `star` and `components`, with crowds instead of their pairs; see `find_pairs`.

    The clusters are the same as with all pairs.
    """
    check_max_sketch(max_sketch)
    fingerprints, more = _parted(signatures)
    task = _Task.of(fingerprints, max_distance, None, memory_bytes)
    groups, crowds = np.arange(len(task.values)), list[Int64s]()
    with closing(task.meetings(groups, tell, crowds)) as found:
        words = [pair_words(*pair) for pair in found]
    kept, crowd = without_subsets(map(np.sort, crowds), len(groups))
    pairs = Pairs(*sorted_block((outside(one, crowd) for one in words), task.values), groups)
    rule = NearRule(task.max_distance, max_sketch, is_plain=more is None)
    if more:
        return crowded_signatures(pairs, kept, more, rule)
    named = [Crowd(members, Signatures.of(task.values[members]), rule) for members in kept]
    return CrowdedPairs(pairs.left, pairs.right, pairs.distance, groups, crowds=named)


def _parted(given: AnySignatures) -> tuple[AnyFingerprints, Signatures | None]:
    """Return the fingerprints, and the signatures unless they are bare fingerprints."""
    if isinstance(given, np.ndarray):
        return given, None
    signatures = as_signatures(given)
    return signatures.fingerprints, None if signatures.is_plain else signatures


def iter_pairs(
    fingerprints: AnyFingerprints,
    *,
    max_distance: int = 3,
    layout: Layout | str | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> Generator[PairBlock]:
    """Yield the pairs that `find_pairs` returns, in blocks of bounded size, as they are found.

    The order depends only on the fingerprints and the layout. Arguments and errors are as for `find_pairs`. Closing
    the generator stops the search.
    """
    return _blocks(_Task.of(fingerprints, max_distance, layout, memory_bytes))


def _blocks(task: _Task) -> Generator[PairBlock]:
    with closing(task.meetings()) as found:
        for first, second in found:
            for start in range(0, len(first), PAIRS_AT_ONCE):
                pair = first[start : start + PAIRS_AT_ONCE], second[start : start + PAIRS_AT_ONCE]
                distance = np.bitwise_count(task.values[pair[0]] ^ task.values[pair[1]])
                yield PairBlock(np.minimum(*pair), np.maximum(*pair), distance)


def group_equal(signatures: AnySignatures, *, memory_bytes: int = MEMORY_BYTES) -> Int64s:
    """Return the position of the first equal fingerprint or signature for each input; see `find_pairs`."""
    fingerprints, more = _parted(signatures)
    groups = find_pairs(fingerprints, max_distance=0, memory_bytes=memory_bytes).groups
    return equal_signatures(groups, more) if more else groups


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """The validated arguments; the search runs in memory, or in files if the memory budget is too small."""

    values: Uint64s
    max_distance: int
    layout: Layout | None
    memory_bytes: int

    @classmethod
    def of(
        cls, fingerprints: AnyFingerprints, max_distance: int, layout: Layout | str | None, memory_bytes: int
    ) -> _Task:
        max_distance = whole_number(max_distance, "max_distance")
        if isinstance(layout, str):
            layout = Layout.parse(layout)
        if not isinstance(layout, Layout | None):
            raise TypeError(f"layout must be a Layout or its name, got {type(layout).__name__}: {layout!r}")
        if layout is None:
            _layouts(max_distance)  # raises if no layout covers the distance
        elif not 0 <= max_distance <= layout.max_distance:
            raise ValueError(
                f"max_distance must be 0 to {layout.max_distance} with layout {layout.name}, got {max_distance}; "
                f"omit the layout, or see "
                + Remedy(f"hsimhash.plan.layouts_for({max_distance})", f"'hsimhash plan --distance {max_distance}'")
            )
        if memory_bytes <= 0:
            raise ValueError(f"memory_bytes must be above 0, got {memory_bytes}")
        values = np.asarray(as_fingerprints(fingerprints))
        if len(values) >= FINGERPRINT_LIMIT:
            raise ValueError(f"too many fingerprints: expected fewer than {FINGERPRINT_LIMIT:,}, got {len(values):,}")
        return cls(values, max_distance, layout, memory_bytes)

    def meetings(
        self,
        groups: Int64s | None = None,
        tell: TellProgress = lambda *_: None,
        crowds: list[Int64s] | None = None,
    ) -> Generator[Meetings]:
        """Yield the pairs of distinct fingerprints as first positions, in any order; fill `groups`.

        If `crowds` is given, append the positions of each crowd to it, and omit pairs within crowds.
        """
        with ExitStack() as stack:
            folder = None
            if len(self.values) * distinct.ROW_BYTES > self.memory_bytes:
                folder = stack.enter_context(spill_folder())
            known = self._distinct(folder, groups)
            if self.max_distance == 0 or len(known.values) < 2:
                return
            found = self._found(known.values, folder, tell, has_crowds=crowds is not None)
            stack.enter_context(closing(found))  # ends its threads before their files are deleted
            for one in found:
                if isinstance(one, Meetings):
                    if len(one.first):
                        yield Meetings(*(known.first[side].astype(np.int64) for side in one))
                elif crowds is not None:
                    crowds.append(known.first[one.members].astype(np.int64))

    def _distinct(self, folder: Path | None, groups: Int64s | None) -> Distinct:
        if folder is None:
            return distinct.distinct(self.values, groups)
        found = distinct.distinct_in_files(self.values, folder, self.memory_bytes, groups)
        return Distinct(*map(np.array, found)) if self._threads_with_room(len(found.values)) else found

    def _threads_with_room(self, values: int) -> int:
        """Return how many threads can each sort that many values within the budget."""
        return max(0, self.memory_bytes - values * KEPT_BYTES) // (values * DRAWER_BYTES)

    def _found(
        self, values: Uint64s, folder: Path | None, tell: TellProgress, *, has_crowds: bool
    ) -> Generator[Meetings | CrowdedBucket]:
        """Yield the pairs of all drawers, in order."""
        layout = self.layout or fastest_layout(len(values), self.max_distance)
        shares = searches(layout.drawers, self.max_distance, has_crowds=has_crowds)
        threads = min(os.cpu_count() or 1, len(shares)) if len(values) > WORTH_THREADS else 1
        room = self._threads_with_room(len(values))
        # Number of parts done in each drawer, set only by the thread that searches the drawer.
        done, parts = [0] * len(shares), 1
        if room or folder is None:
            threads = min(threads, max(1, room))
            sources = (_whole(share, values, done) for share in shares)
        else:
            rows = max(LEAST_PART, self.memory_bytes // (PART_BYTES * threads))
            parts = -(-len(values) // rows)
            sources = (_in_parts(share, values, rows, folder, done) for share in shares)
        with closing(in_order(sources, threads)) as found:
            for pairs in found:
                yield pairs
                tell(sum(done), parts * len(shares))
        tell(parts * len(shares), parts * len(shares))


def fastest_layout(count: int, max_distance: int, row_ns: float = 0.0) -> Layout:
    """Return the layout that finds the pairs among that many fingerprints fastest.

    Args:
        count: Number of distinct fingerprints, assumed to be spread evenly.
        max_distance: In bits.
        row_ns: Additional cost of a value in a drawer, in nanoseconds.
    """
    return min(
        _layouts(max_distance),
        key=lambda one: sum(drawers_ns(count, [drawer.segment_bits]) + row_ns * count for drawer in one.drawers),
    )


def _whole(share: Search, values: Uint64s, done: list[int]) -> Generator[Meetings | CrowdedBucket]:
    """Yield what `Search.meetings` yields for all values, as a single part in `done`."""
    yield from share.meetings(values)
    done[share.drawer.number - 1] = 1


def _in_parts(
    share: Search, values: Uint64s, rows: int, folder: Path, done: list[int]
) -> Generator[Meetings | CrowdedBucket]:
    """Yield what `Search.meetings` yields for values in a file, in parts of about `rows` values and whole buckets."""
    step = max(1, len(values) // distinct.SAMPLE)
    sample = share.ordered(values[::step]) & ~(share.bucket_size - np.uint64(1))
    column = Column(folder / f"drawer-{share.drawer.number}.run", np.uint64)
    runs = SpilledRuns([column], quantiles(sample, -(-len(values) // rows)))
    for start in range(0, len(values), rows):
        runs.add(share.ordered(values[start : start + rows]))
        yield Meetings.joined([])  # lets `close` stop before all parts are done
    for number, (ordered,) in enumerate(runs.parts(), start=1):
        ordered.sort()
        yield from share.located(ordered, values)
        done[share.drawer.number - 1] = number


def in_order(sources: Iterable[Iterator[Item]], threads: int) -> Generator[Item]:
    """Yield the items of all sources in order; up to `threads` sources run ahead, each by LOOKAHEAD items.

    No thread outlives this generator. With one thread, everything runs in the reader's own thread.
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
