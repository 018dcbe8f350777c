"""Find the near pairs in one drawer: sort by segment, then compare neighbours.

The values are permuted so that the segment's bits come first, and then sorted. Each value is compared with the next
value, then with the value after that, and so on, as long as any two share a bucket. Each step handles all values at
once. A bucket of more than `DENSE_BUCKET` values is searched in finer drawers, which are made from the bits that vary
in the bucket. If that does not pay off, all of its values are compared with each other. For callers that do not need
all pairs, the bucket becomes a *crowd* instead if many of its values are near each other.

A pair that shares a bucket in several drawers is found only in the first of them, because each search skips pairs that
share a bucket in an earlier drawer. The order of pairs depends only on the values: pairs are ordered by bucket, and by
value in buckets that are not dense.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Bools, Int64s, Uint64s
from hsimhash.layout import FINGERPRINT_BITS, MAX_DRAWERS, SEGMENT_BITS, Cut, Drawer

CHUNK = 1 << 15  # values processed at once; they fit in the processor's cache
SECTION = 1 << 18  # values whose pairs are sorted together
MOST_PAIRS = 1 << 19  # a section with more pairs than this is halved, which bounds memory
CELLS = 1 << 16  # cells of an all-against-all comparison processed at once
TILES = 256  # maximum number of blocks of `CELLS` per yield
LEAST_FINER = 4096  # minimum size of a bucket that is searched in finer drawers; smaller ones are compared fast enough
WORTH_FINER = 8  # how many times cheaper a finer cut must be; finding its near pairs has a cost as well
FINER_BLOCKS = 8  # maximum number of blocks of a finer cut beyond the distance
CROWD_SAMPLE = 32  # values in a dense bucket that are compared with all its values to decide whether it is a crowd
CROWD_NEAR = 32  # mean number of near values per sampled value at which a bucket becomes a crowd

# Costs for choosing layouts and finer cuts; results never depend on them. Measured with numpy 2.4 on AVX-512, random
# fingerprints, one thread.
DRAWER_NS = 100_000.0  # fixed cost of a drawer's calls
SORT_NS = 27.0  # permuting and sorting one value
LAG_NS = 1.1  # comparing a value with one at a fixed offset, contiguous in memory
GATHER_NS = 6.0  # the same comparison if only some positions are still compared
CELL_NS = 0.9  # one cell of an all-against-all comparison
DENSE_BUCKET = 256  # values; larger buckets are not compared offset by offset


class Meetings(NamedTuple):
    """Pairs of near values, by position: `first[i]` with `second[i]`."""

    first: Int64s
    second: Int64s

    @classmethod
    def joined(cls, parts: Sequence[Meetings]) -> Meetings:
        """Concatenate the pairs of all parts."""
        none = np.empty(0, np.int64)
        return cls(*(np.concatenate([none, *(part[side] for part in parts)]) for side in (0, 1)))

    def at(self, chosen: Bools) -> Meetings:
        """Return the chosen pairs."""
        return Meetings(self.first[chosen], self.second[chosen])

    def shifted(self, by: int) -> Meetings:
        """Return the pairs with an offset added to the positions."""
        return Meetings(self.first + by, self.second + by)


class CrowdedBucket(NamedTuple):
    """The ordered positions of many values, most of which are near many others."""

    members: Int64s

    def shifted(self, by: int) -> CrowdedBucket:
        """Return the crowd with an offset added to the positions."""
        return CrowdedBucket(self.members + by)


@dataclass(frozen=True, slots=True)
class Search:
    """The search of one drawer."""

    drawer: Drawer  # values that have the same segment are compared
    max_distance: int
    earlier: tuple[int, ...]  # segment masks of the drawers searched before, permuted like this drawer
    has_crowds: bool = False  # whether to yield crowds instead of their pairs

    @property
    def bucket_size(self) -> np.uint64:
        """The number of permuted words per segment; the exclusive-or of two words in one bucket is below it."""
        return np.uint64(1 << FINGERPRINT_BITS - self.drawer.segment_bits)

    def ordered(self, values: Uint64s) -> Uint64s:
        """Return the values permuted and sorted."""
        permuted = np.empty(len(values), np.uint64)
        for start in range(0, len(values), CHUNK):
            permuted[start : start + CHUNK] = self.drawer.permute(values[start : start + CHUNK])
        permuted.sort()
        return permuted

    def meetings(self, values: Uint64s) -> Generator[Meetings | CrowdedBucket]:
        """Yield pairs that no earlier drawer finds, as positions in `values`, which must be sorted and distinct."""
        return self.located(self.ordered(values), values)

    def located(self, ordered: Uint64s, values: Uint64s) -> Generator[Meetings | CrowdedBucket]:
        """Yield what `meetings` yields for the buckets in `ordered`, which holds some or all buckets of `values`."""
        for found in self._near(ordered):
            if isinstance(found, CrowdedBucket):
                yield CrowdedBucket(np.sort(np.searchsorted(values, self.drawer.restore(ordered[found.members]))))
                continue
            new = self._new(found, ordered)
            yield self._positions(new, ordered, values) if len(new.first) else new

    def near_values(self, ordered: Uint64s) -> Generator[tuple[Uint64s, Uint64s] | Uint64s]:
        """Yield what `located` yields, as fingerprints: pairs, and the members of crowds. Does not need all values."""
        for pairs in self._near(ordered):
            if isinstance(pairs, CrowdedBucket):
                yield self.drawer.restore(ordered[pairs.members])
            else:
                new = self._new(pairs, ordered)
                yield self.drawer.restore(ordered[new.first]), self.drawer.restore(ordered[new.second])

    def _new(self, pairs: Meetings, ordered: Uint64s) -> Meetings:
        """Return the pairs that do not share a bucket in an earlier drawer."""
        if not len(pairs.first) or not self.earlier:
            return pairs
        is_new = self.are_new(ordered[pairs.first] ^ ordered[pairs.second])
        return pairs if is_new.all() else pairs.at(is_new)

    def are_new(self, differing: Uint64s) -> Bools:
        """Return which pairs do not share a bucket in an earlier drawer, from their permuted differing bits."""
        is_new = np.ones(len(differing), np.bool_)
        for mask in self.earlier:
            is_new &= differing & np.uint64(mask) != 0
        return is_new

    def _positions(self, pairs: Meetings, ordered: Uint64s, values: Uint64s) -> Meetings:
        """Return the pairs as positions in `values`; each value is looked up once."""
        start = int(min(side.min() for side in pairs))
        stop = int(max(side.max() for side in pairs)) + 1
        is_met = np.zeros(stop - start, bool)
        for side in pairs:
            is_met[side - start] = True
        met = np.flatnonzero(is_met)
        places = np.empty(stop - start, np.int64)
        places[met] = np.searchsorted(values, self.drawer.restore(ordered[met + start]))
        return Meetings(*(places[side - start] for side in pairs))

    def _near(self, ordered: Uint64s) -> Generator[Meetings | CrowdedBucket]:
        """Yield the near pairs of each bucket, as positions in `ordered`."""
        done = 0
        for start, stop in self._dense_buckets(ordered):
            yield from self._compared(ordered, done, start)
            for found in self._dense(ordered[start:stop]):
                yield found.shifted(start)
            done = stop
        yield from self._compared(ordered, done, len(ordered))

    def _dense_buckets(self, ordered: Uint64s) -> list[tuple[int, int]]:
        """Return the ranges of buckets with more than `DENSE_BUCKET` values."""
        found = []
        for start in range(0, len(ordered) - DENSE_BUCKET, CHUNK):
            here = ordered[start : min(start + CHUNK, len(ordered) - DENSE_BUCKET)]
            there = ordered[start + DENSE_BUCKET : start + DENSE_BUCKET + len(here)]
            at = np.flatnonzero((here ^ there) < self.bucket_size) + start
            is_start = (at == 0) | (ordered[at] ^ ordered[at - 1] >= self.bucket_size)
            found.append(at[is_start])
        starts = np.concatenate([np.empty(0, np.int64), *found])
        stops = np.searchsorted(ordered, ordered[starts] | (self.bucket_size - np.uint64(1)), "right")
        return list(zip(starts.tolist(), stops.tolist(), strict=True))

    def _compared(self, ordered: Uint64s, start: int, stop: int) -> Generator[Meetings]:
        """Yield the near pairs in [start, stop), which must not split a bucket, in order of their positions."""
        sections = [(first, min(first + SECTION, stop)) for first in range(start, stop, SECTION)][::-1]
        while sections:
            section, end = sections.pop()
            found, count = [], 0
            for pairs in self._near_in(ordered[:stop], section, end):
                found.append(pairs)
                count += len(pairs.first)
                if count > MOST_PAIRS:
                    middle = (section + end) // 2
                    sections += [(middle, end), (section, middle)]
                    break
            else:
                pairs = Meetings.joined(found)
                words = np.sort(pairs.first - section << 32 | pairs.second - section)
                yield Meetings((words >> 32) + section, (words & 0xFFFFFFFF) + section)

    def _near_in(self, ordered: Uint64s, start: int, stop: int) -> Generator[Meetings]:
        """Yield the near pairs of the positions [start, stop) with later positions."""
        left: list[Meetings] = []
        for first in range(start, stop, CHUNK):
            yield from self._side_by_side(ordered, first, min(first + CHUNK, stop), left)
        yield from self._one_by_one(ordered, Meetings.joined(left))

    def _side_by_side(self, ordered: Uint64s, start: int, stop: int, left: list[Meetings]) -> Generator[Meetings]:
        """Compare [start, stop) with later values lag by lag while many share buckets; add other pairs to `left`."""
        lag = 0
        while True:
            lag += 1
            stop = min(stop, len(ordered) - lag)
            differing = ordered[start + lag : max(start, stop) + lag] ^ ordered[start : max(start, stop)]
            is_met = differing < self.bucket_size
            if np.count_nonzero(is_met) * 4 <= len(is_met):
                first = np.flatnonzero(is_met) + start
                left.append(Meetings(first, first + lag))
                return
            is_near = np.bitwise_count(differing) <= self.max_distance
            if is_near.any():
                first = np.flatnonzero(is_near & is_met) + start
                yield Meetings(first, first + lag)

    def _one_by_one(self, ordered: Uint64s, left: Meetings) -> Generator[Meetings]:
        """Compare each remaining position with the later ones that share its bucket."""
        first, second = left
        while len(first):
            differing = ordered[first] ^ ordered[second]
            is_met = differing < self.bucket_size
            is_near = is_met & (np.bitwise_count(differing) <= self.max_distance)
            if is_near.any():
                yield Meetings(first[is_near], second[is_near])
            is_met &= second < len(ordered) - 1
            first, second = first[is_met], second[is_met] + 1

    def _dense(self, members: Uint64s) -> Generator[Meetings | CrowdedBucket]:
        """Yield the near pairs in one dense bucket, possibly without some of those that an earlier drawer finds."""
        varying = int(np.bitwise_or.reduce(members ^ members[0]))
        if any(not varying & mask for mask in self.earlier):
            return  # an earlier drawer finds all pairs in this bucket
        finer = finer_searches(varying, len(members), self.max_distance, has_crowds=self.has_crowds)
        if finer and sum(search.meeting_pairs(members) for search in finer) <= len(members) ** 2 / 4:
            for search in finer:
                yield from search.meetings(members)
        elif self.has_crowds and _is_crowd(members, self.max_distance):
            yield CrowdedBucket(np.arange(len(members)))
        else:
            yield from all_near(members, self.max_distance)

    def meeting_pairs(self, values: Uint64s) -> int:
        """Return the number of pairs of values that share a bucket."""
        segments = self.ordered(values) & ~(self.bucket_size - np.uint64(1))
        edges = np.flatnonzero(segments[1:] != segments[:-1]) + 1
        sizes = np.diff(edges, prepend=0, append=len(values))
        return int(np.sum(sizes * (sizes - 1) // 2))


def _is_crowd(members: Uint64s, max_distance: int) -> bool:
    """Whether sampled values are near so many other values that a list of all pairs would be long."""
    near = 0
    for value in members[:: -(-len(members) // CROWD_SAMPLE)]:
        near += int(np.count_nonzero(np.bitwise_count(members ^ value) <= max_distance)) - 1
    return near >= CROWD_NEAR * CROWD_SAMPLE


def searches(drawers: Sequence[Drawer], max_distance: int, *, has_crowds: bool = False) -> list[Search]:
    """Return the searches of all drawers, which together find each pair once."""
    masks = np.array(
        [sum(1 << FINGERPRINT_BITS - 1 - bit for bit in drawer.positions) for drawer in drawers], np.uint64
    )
    return [
        Search(drawer, max_distance, tuple(drawer.permute(masks[:number]).tolist()), has_crowds)
        for number, drawer in enumerate(drawers)
    ]


def finer_searches(varying: int, values: int, max_distance: int, *, has_crowds: bool = False) -> list[Search]:
    """Return the cheapest searches by the varying bits, or none if comparing all pairs is cheaper."""
    bits = [bit for bit in range(FINGERPRINT_BITS) if varying >> FINGERPRINT_BITS - 1 - bit & 1]
    cheapest: list[tuple[int, ...]] = []
    least = all_pairs_ns(values) / WORTH_FINER
    if values < LEAST_FINER:
        return []
    for blocks in range(max_distance + 1, min(max_distance + FINER_BLOCKS, len(bits)) + 1):
        width, wider = divmod(len(bits), blocks)
        cut = Cut((width + 1,) * wider + (width,) * (blocks - wider), blocks - max_distance)
        if cut.choices > MAX_DRAWERS:
            break
        chosen = [choice[:SEGMENT_BITS] for choice in cut.chosen(bits)]
        expected = drawers_ns(values, map(len, chosen))
        if expected < least:
            cheapest, least = chosen, expected
    drawers = [Drawer(number, positions) for number, positions in enumerate(cheapest, start=1)]
    return searches(drawers, max_distance, has_crowds=has_crowds)


def all_near(values: Uint64s, max_distance: int) -> Generator[Meetings]:
    """Compare all pairs of values; yield the near ones, in order of their positions."""
    found: list[Meetings] = []
    start = tiles = held = 0
    while start < len(values):
        others = values[start:]
        rows = max(1, CELLS // len(others))
        near = np.flatnonzero(np.bitwise_count(values[start : start + rows, None] ^ others) <= max_distance)
        row_starts = np.arange(rows + 1) * len(others)
        row = np.repeat(np.arange(rows), np.diff(np.searchsorted(near, row_starts)))
        pairs = Meetings(row, near - row_starts[row])
        found.append(pairs.at(pairs.first < pairs.second).shifted(start))
        start += rows
        tiles += 1
        held += len(near)
        if tiles == TILES or held >= SECTION:
            yield Meetings.joined(found)
            found, tiles, held = [], 0, 0
    yield Meetings.joined(found)


def drawers_ns(values: int, segment_bits: Iterable[int]) -> float:
    """Return the estimated cost of drawers with these segments for that many evenly spread values, in ns."""
    return sum(DRAWER_NS + values * (SORT_NS + _compare_ns(values / 2.0**bits)) for bits in segment_bits)


def all_pairs_ns(values: int) -> float:
    """Return the estimated cost of comparing all pairs, in ns."""
    return CELL_NS * values * values / 2


def _compare_ns(bucket: float) -> float:
    """Return the cost of one value's comparisons in buckets of that mean size, in ns."""
    if bucket > DENSE_BUCKET:
        return CELL_NS * bucket / 2
    return LAG_NS * (1 + bucket) + GATHER_NS * min(bucket, math.sqrt(bucket))
