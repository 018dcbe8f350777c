"""Covers: which buckets a query must read to miss nothing, for any distance.

A *probe* reads every bucket in one drawer whose segment differs from the query's segment in at most `radius` of the
first `bits` bits. A *cover* is a set of probes with this property: whichever k bits of a fingerprint are flipped, at
least one probe compares at most `radius` of the flipped bits. For the layout's own k, one bucket in each drawer is a
cover.

Bits that are compared by the same probes are equivalent: they form a *cell*. The effect of k flips on the probes
depends only on how many of the flips fall into each cell: their *spread*. Both the search for a cover and its proof
examine all spreads. Fewer than k flips need no check of their own, because they are a subset of some k flips.

Sources: Norouzi, Punjani, Fleet, "Fast search in Hamming space with multi-index hashing", CVPR 2012; Qin et al., "GPH:
similarity search in Hamming space", ICDE 2018, which gives each part its own threshold.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import combinations

import numpy as np
from numpy.random import default_rng  # imported here so that the first query does not have to import it
from numpy.typing import NDArray

from hsimhash.errors import Remedy
from hsimhash.fingerprint.bits import Floats, Int64s, Uint64s, spans, whole_number
from hsimhash.layout import FINGERPRINT_BITS, SEGMENT_BITS, Drawer, Layout

_MAX_DISTANCE = Remedy("max_distance", "--distance")
MOST_DISTANCE = 16  # maximum for a query, unless its layout's own k is greater
DEFAULT_DISTANCE = 6  # bits; default for embedded indexes and for jobs without an index
PREFIX_BITS = 40

_MOST_CELLS = 1 << 22  # maximum size of the matrix of spreads and drawers; beyond it, only disjoint drawers are used
_WORK = 1 << 24  # number of matrix entries to examine while improving the cheapest cover found
_ROUNDS = 8, 200  # minimum and maximum number of attempts to improve it
_SWEPT_DRAWERS = 2  # maximum number of drawers for reading ranges; with more, too many rows share a shorter prefix

FlipCounts = NDArray[np.int8]  # counts of flips: shape (spreads, probes)


@dataclass(frozen=True, slots=True)
class Prices:
    """The prices of a store's operations and rows, in µs and bytes.

    Args:
        read_us: Time to read one bucket, in a query that reads few buckets.
        candidate_us: Time to compare one candidate.
        row_us: Time to write one drawer row.
        row_bytes: Size of a drawer row.
        bucket_bytes: Size of a bucket, in addition to its rows.
        document_bytes: Size of a document's listing, register and other data for an id of 35 bytes, without drawer
            rows.
        neighbour_us: Time to read one bucket, in a query that reads many buckets.
        swept_us: Time to read and compare one row in a range of buckets.
        compare_us: Time to compare one more query in a batch with a row that was already read.
        is_ordered: Whether the store can read a range of buckets. Otherwise it finds their rows by reading all rows.
        part_us: Additional time to read a bucket in the key drawer.
    """

    read_us: float
    candidate_us: float
    row_us: float
    row_bytes: float
    bucket_bytes: float
    document_bytes: float
    neighbour_us: float
    swept_us: float
    compare_us: float = 0.025
    is_ordered: bool = True
    part_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Probe:
    """A drawer's number, how many leading bits of its segment to compare, and how many of them may differ."""

    drawer: int
    bits: int
    radius: int

    @property
    def bucket_count(self) -> int:
        """The number of buckets, or ranges of buckets, that the probe reads."""
        return _neighbours(self.bits, self.radius)


ALL_ROWS = (Probe(1, 0, 0),)  # its range holds the rows of all drawers, whichever drawer it names


@dataclass(frozen=True, slots=True)
class ProbeSet:
    """Probes that are read together: either all as buckets, or all as ranges of buckets.

    A *number* identifies what to read: a 40-bit prefix, shifted right by `shift`. If `shift` is 0, it is a bucket.
    """

    shift: int
    drawers: tuple[Drawer, ...]
    places: Int64s  # for each number, the position of its drawer in `drawers`
    flips: Uint64s  # for each number, the bits that differ from the query's own

    def own_numbers(self, fingerprints: Uint64s) -> Uint64s:
        """Return the numbers under which fingerprints of shape (n,) are filed: shape (n, drawers), uint64."""
        own = [drawer.segments(fingerprints).astype(np.uint64) << 8 | drawer.number for drawer in self.drawers]
        numbers: Uint64s = np.stack(own, axis=-1) >> np.uint64(self.shift)
        return numbers

    def numbers(self, fingerprints: Uint64s) -> Uint64s:
        """Return the numbers that queries of shape (n,) read: shape (n, reads), uint64."""
        return self.own_numbers(fingerprints)[:, self.places] ^ self.flips

    def numbers_of(self, fingerprint: int) -> Uint64s:
        """Return the numbers that one query reads. Faster than `numbers` for a single query."""
        own = [(drawer.segment(fingerprint) << 8 | drawer.number) >> self.shift for drawer in self.drawers]
        return np.array(own, np.uint64)[self.places] ^ self.flips


@dataclass(frozen=True)
class Cover:
    """The probes of a query for `distance` bits with a layout. Use `cover` to find one.

    Raises:
        ValueError: A probe does not fit the layout, or the probes miss a way to flip `distance` bits.
    """

    layout: Layout
    distance: int
    probes: tuple[Probe, ...]

    def __post_init__(self) -> None:
        for probe in self.probes:
            if not 1 <= probe.drawer <= len(self.layout.drawers):
                raise ValueError(f"layout {self.layout.name} does not have a drawer {probe.drawer}")
            if not 0 <= probe.radius <= probe.bits <= self._drawer(probe).segment_bits:
                raise ValueError(
                    f"invalid {probe}: radius must be between 0 and bits, and bits at most the length of the segment"
                )
        if not self.is_own:
            self._prove()

    @cached_property
    def is_own(self) -> bool:
        """Whether the cover is one bucket in each drawer, which is complete by the pigeonhole principle."""
        return self.distance <= self.layout.max_distance and self.probes == own_probes(self.layout)

    @cached_property
    def is_swept(self) -> bool:
        """Whether a query reads ranges of buckets, so that its time grows with the number of documents."""
        return any(probe_set.shift for probe_set in self.probe_sets)

    @property
    def bucket_count(self) -> int:
        """The number of buckets, or ranges of buckets, that a query reads."""
        return sum(probe.bucket_count for probe in self.probes)

    def candidates(self, documents: int) -> float:
        """Return how many rows a query reads on average in an index of `documents` uniform fingerprints."""
        return sum(probe.bucket_count * _rows(probe, self.layout, documents) for probe in self.probes)

    def time_us(self, documents: int, prices: Prices, queries: int = 1) -> float:
        """Return the estimated time of one query in a batch of `queries`, in µs."""
        if self.is_own:
            return self.bucket_count * prices.read_us + self.candidates(documents) * prices.candidate_us
        if self.probes == ALL_ROWS:  # read once for all queries
            rows = _rows(ALL_ROWS[0], self.layout, documents)
            return (prices.neighbour_us + rows * (prices.swept_us + (queries - 1) * prices.compare_us)) / queries
        return sum(_price_us(probe, self.layout, documents, prices) for probe in self.probes)

    @cached_property
    def probe_sets(self) -> tuple[ProbeSet, ...]:
        """The probe sets of a query: first one for all probes that read buckets, then one for each other probe."""
        whole = [probe for probe in self.probes if _is_whole(probe, self.layout)]
        ranges = [[probe] for probe in self.probes if not _is_whole(probe, self.layout)]
        return tuple(map(self.probe_set, [whole, *ranges] if whole else ranges))

    def probe_set(self, probes: Sequence[Probe]) -> ProbeSet:
        """Combine probes into a set: either any number of probes that read buckets, or one that reads ranges."""
        shift = 0 if _is_whole(probes[0], self.layout) else PREFIX_BITS - probes[0].bits
        flips = [_flips(probe.bits, probe.radius) << PREFIX_BITS - probe.bits - shift for probe in probes]
        places = np.repeat(np.arange(len(probes)), list(map(len, flips)))
        return ProbeSet(shift, tuple(map(self._drawer, probes)), places, np.concatenate(flips))

    def _drawer(self, probe: Probe) -> Drawer:
        return self.layout.drawers[probe.drawer - 1]

    def _prove(self) -> None:
        """Raise `ValueError` if the probes miss some spread of flips."""
        flipped = _flipped([self._drawer(probe).positions[: probe.bits] for probe in self.probes], self.distance)
        missed = flipped[(flipped > np.array([probe.radius for probe in self.probes])).all(axis=1)]
        if len(missed):
            raise ValueError(
                f"incomplete cover: it misses {self.distance} flips, of which its probes compare {missed[0].tolist()}"
            )


def most_distance(layout: Layout) -> int:
    """Return the maximum distance for a query with a layout."""
    return max(MOST_DISTANCE, layout.max_distance)


def check_distance(distance: int, layout: Layout) -> int:
    """Return a distance as an `int`; raise `ValueError` or `TypeError` if queries with this layout cannot use it."""
    distance = whole_number(distance, "max_distance")
    most = most_distance(layout)
    if not 0 <= distance <= most:
        raise ValueError(_MAX_DISTANCE + f" must be 0 to {most} with layout {layout.name}, got {distance}")
    return distance


def check_dedup_distance(distance: int) -> None:
    """Raise `ValueError` or `TypeError` if documents cannot be deduplicated within this distance."""
    if not 0 <= whole_number(distance, "max_distance") <= MOST_DISTANCE:
        raise ValueError(
            _MAX_DISTANCE
            + f" must be 0 to {MOST_DISTANCE} bits, got {distance}: at greater distances, most pairs are unrelated"
        )


@lru_cache(1 << 10)
def cover(layout: Layout, distance: int, documents: int, prices: Prices, queries: int = 1) -> Cover:
    """Return the cheapest cover that the search finds.

    Args:
        layout: Layout of the index.
        distance: Distance of the queries: 0 to 16 bits, or up to the layout's k if that is greater.
        documents: Approximate number of documents in the index.
        prices: Prices of the store.
        queries: Number of queries in a batch.

    Raises:
        ValueError: The distance is out of range.
    """
    check_distance(distance, layout)
    if distance == layout.max_distance:
        return Cover(layout, distance, own_probes(layout))
    drawers = layout.drawers
    if _spread_count(_cells([drawer.positions for drawer in drawers]), distance) * len(drawers) > _MOST_CELLS:
        drawers = _disjoint(drawers)
    cuts = range(SEGMENT_BITS) if len(layout.drawers) <= _SWEPT_DRAWERS else range(1)
    covers = [Cover(layout, distance, ALL_ROWS)]
    for cut in cuts:
        probes = [Probe(drawer.number, drawer.segment_bits - cut, 0) for drawer in drawers if drawer.segment_bits > cut]
        if probes:
            covers.append(Cover(layout, distance, _Search(probes, layout, distance, documents, prices).best()))
    return min(covers, key=lambda one: one.time_us(documents, prices, queries))


def own_probes(layout: Layout) -> tuple[Probe, ...]:
    """Return the probes that read one bucket in each drawer."""
    return tuple(Probe(drawer.number, drawer.segment_bits, 0) for drawer in layout.drawers)


def _is_whole(probe: Probe, layout: Layout) -> bool:
    """Whether a probe reads buckets rather than ranges of buckets."""
    return probe.bits == layout.drawers[probe.drawer - 1].segment_bits


def _rows(probe: Probe, layout: Layout, documents: int) -> float:
    """Return how many rows each read of a probe returns on average."""
    return documents * (1 if _is_whole(probe, layout) else len(layout.drawers)) / 2.0**probe.bits


def _price_us(probe: Probe, layout: Layout, documents: int, prices: Prices) -> float:
    is_whole = _is_whole(probe, layout)
    if not (is_whole or prices.is_ordered):
        probe = ALL_ROWS[0]
    row_us = prices.candidate_us if is_whole else prices.swept_us
    return probe.bucket_count * (prices.neighbour_us + _rows(probe, layout, documents) * row_us)


def _neighbours(bits: int, radius: int) -> int:
    """Return how many `bits`-bit numbers differ from a given one in at most `radius` bits."""
    return sum(math.comb(bits, flipped) for flipped in range(radius + 1))


@cache
def _flips(bits: int, radius: int) -> Uint64s:
    """Return the `bits`-bit numbers with at most `radius` bits set, those with the fewest set bits first."""
    ones = [1 << bit for bit in reversed(range(bits))]
    numbers = (sum(chosen) for count in range(radius + 1) for chosen in combinations(ones, count))
    return np.fromiter(numbers, np.uint64, _neighbours(bits, radius))


def _cells(positions: Sequence[Sequence[int]]) -> dict[tuple[int, ...], int]:
    """Return the number of bits in each cell. The keys are the indexes of the sets that contain the bits of a cell."""
    held: list[list[int]] = [[] for _ in range(FINGERPRINT_BITS)]
    for place, own in enumerate(positions):
        for position in own:
            held[position].append(place)
    return Counter(map(tuple, held))


def _spread_count(cells: Mapping[tuple[int, ...], int], flips: int) -> int:
    """Return the number of ways in which `flips` flips can spread over the cells."""
    ways = [1] + [0] * flips
    for size in cells.values():
        ways = [sum(ways[total - min(size, total) : total + 1]) for total in range(flips + 1)]
    return ways[flips]


def _flipped(positions: Sequence[Sequence[int]], flips: int) -> FlipCounts:
    """Return how many flips fall into each set of positions, for every spread of `flips` flips."""
    cells = _cells(positions)
    member = np.zeros((len(cells), len(positions)), np.int8)
    for cell, places in enumerate(cells):
        member[cell, list(places)] = 1
    sizes = list(cells.values())
    spreads = np.zeros((1, 0), np.int8)  # over the cells so far
    for cell, size in enumerate(sizes):
        left = flips - spreads.sum(axis=1, dtype=np.int64)
        least, most = np.maximum(left - sum(sizes[cell + 1 :]), 0), np.minimum(left, size)
        ways = most - least + 1
        row = np.repeat(np.arange(len(spreads)), ways)
        here = spans(least, ways)
        spreads = np.column_stack([spreads[row], here.astype(np.int8)])
    return spreads @ member


def _disjoint(drawers: Sequence[Drawer]) -> tuple[Drawer, ...]:
    """Return a set of drawers whose segments do not overlap."""
    chosen, taken = [], set[int]()
    for drawer in drawers:
        if taken.isdisjoint(drawer.positions):
            chosen.append(drawer)
            taken.update(drawer.positions)
    return tuple(chosen)


class _Search:
    """The search for the cheapest radii of given probes. A radius of -1 means that the probe is not used."""

    def __init__(self, probes: Sequence[Probe], layout: Layout, distance: int, documents: int, prices: Prices) -> None:
        self.probes = probes
        self.flipped = _flipped([layout.drawers[one.drawer - 1].positions[: one.bits] for one in probes], distance)
        # The price of each probe, by its radius + 1.
        self.price = np.array(
            [
                [0.0]
                + [_price_us(replace(one, radius=radius), layout, documents, prices) for radius in range(distance + 1)]
                for one in probes
            ]
        )

    def best(self) -> tuple[Probe, ...]:
        """Return the probes of the cheapest cover found."""
        count, randoms = len(self.probes), default_rng(0)
        best = self._lowered(self._completed(np.full(count, -1), np.ones(count)))
        for _ in range(min(max(_WORK // self.flipped.size, _ROUNDS[0]), _ROUNDS[1])):
            changed = best.copy()
            changed[randoms.permutation(np.flatnonzero(best >= 0))[: randoms.integers(1, 4)]] = -1
            changed = self._lowered(self._completed(changed, randoms.uniform(0.5, 2, count)))
            if self._prices(changed).sum() < self._prices(best).sum():
                best = changed
        return tuple(
            replace(probe, radius=radius)
            for probe, radius in zip(self.probes, best.tolist(), strict=True)
            if radius >= 0
        )

    def _prices(self, radii: Int64s) -> Floats:
        return self.price[np.arange(len(radii)), radii + 1]

    def _completed(self, radii: Int64s, weights: Floats) -> Int64s:
        """Raise the radii until no spread is missed; return them. Each step covers the most spreads for its price."""
        missed = self.flipped[(self.flipped > radii).all(axis=1)]
        found = self._counted(missed)
        while len(missed):
            dearer = (self.price[:, 1:] - self._prices(radii)[:, None]) * weights[:, None]
            gain = np.divide(np.cumsum(found, axis=1), dearer, out=np.zeros_like(dearer), where=dearer > 0)
            place, radius = divmod(int(gain.argmax()), gain.shape[1])
            radii[place] = radius
            is_seen = missed[:, place] <= radius
            seen, missed = missed[is_seen], missed[~is_seen]
            found = found - self._counted(seen) if len(seen) < len(missed) else self._counted(missed)
        return radii

    def _counted(self, spreads: FlipCounts) -> Int64s:
        """For each probe and each possible number of flips in its bits, return the number of spreads."""
        width = self.price.shape[1] - 1
        numbers = spreads + np.arange(len(self.probes), dtype=np.int32) * width
        counts: Int64s = np.bincount(numbers.ravel(), minlength=len(self.probes) * width).reshape(-1, width)
        return counts

    def _lowered(self, radii: Int64s) -> Int64s:
        """Lower the radii until none can be lowered further, and return them. The most expensive probe comes first."""
        seen = self.flipped <= radii
        seers = seen.sum(axis=1)
        for place in np.argsort(-self._prices(radii)):
            alone = self.flipped[(seers == 1) & seen[:, place], place]
            radii[place] = alone.max(initial=-1)
            seers += (self.flipped[:, place] <= radii[place]) - seen[:, place].astype(np.int64)
        return radii
