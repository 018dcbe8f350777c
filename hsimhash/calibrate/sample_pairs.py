"""Compare all pairs of texts in a sample with a profile, and keep the pairs that any rule considers near.

Comparing is cheap: a tile of distances fits in the processor's cache, and 200 million pairs take seconds. Near pairs
are listed so that they can be judged by their texts. If there are too many, a share chosen by a hash represents all of
them. Near pairs that are labelled as not near are counted, every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hsimhash.calibrate.options import DISTANCES
from hsimhash.fingerprint.bits import Bools, Floats, Int64s, Uint8s
from hsimhash.fingerprint.murmur3 import mix
from hsimhash.fingerprint.signature import MAX_SKETCH, TOO_SHORT, Signatures, are_alike
from hsimhash.layout import FINGERPRINT_BITS
from hsimhash.pairs.pair_blocks import pair_words

NEVER = np.uint8(255)  # the reach of a pair that no distance finds
_TILE = 1 << 18  # pairs compared at once


@dataclass(frozen=True, slots=True)
class Way:
    """The parts of a profile's signatures that a query uses."""

    has_key: bool = False  # whether documents that share a key are found as well
    has_sketch: bool = False  # whether documents whose sketches differ too much are excluded

    def __str__(self) -> str:
        return f"distance{' or key' if self.has_key else ''}{', sketches agree' if self.has_sketch else ''}"


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """The differences between the signatures of pairs of texts. All arrays have the same length."""

    distance: Uint8s  # differing bits of the fingerprints; NEVER if a text does not have one
    is_alike: Bools  # whether the sketches agree
    has_key: Bools  # whether they share a key

    @classmethod
    def between(cls, some: Signatures, others: Signatures) -> Differences:
        """Compare texts with those at the same positions in `others`."""
        has_none = (some.kinds == TOO_SHORT) | (others.kinds == TOO_SHORT)
        distances = np.bitwise_count(some.fingerprints ^ others.fingerprints)
        return cls(
            np.where(has_none, NEVER, distances),
            are_alike(some.sketches, others.sketches, MAX_SKETCH, distances),
            some.keying.shared(some.keys, others.keys) & ~has_none,
        )

    def where(self, is_taken: Bools) -> Differences:
        """Return the differences of some of the pairs."""
        return Differences(self.distance[is_taken], self.is_alike[is_taken], self.has_key[is_taken])

    def by_distance(self, way: Way) -> Uint8s:
        """Return the smallest query distance that finds each pair by its fingerprints; NEVER if none does."""
        return np.where(self.is_alike, self.distance, NEVER) if way.has_sketch else self.distance

    def by_key(self, way: Way) -> Bools:
        """Return which pairs are found by their keys, at any distance."""
        found = self.has_key & way.has_key
        return found & self.is_alike if way.has_sketch else found

    def reach(self, way: Way) -> Uint8s:
        """Return the smallest query distance that finds each pair, by fingerprints or keys."""
        return np.where(self.by_key(way), np.uint8(0), self.by_distance(way))


@dataclass(frozen=True, slots=True, eq=False)
class PairCounts:
    """Numbers of pairs by their differences."""

    differences: Differences  # shape (n,)
    counts: Floats  # number of pairs with each of these differences, shape (n,)

    @classmethod
    def weighed(cls, differences: Differences, weight: int) -> PairCounts:
        """Return counts in which each pair represents `weight` pairs."""
        return cls(differences, np.full(len(differences.distance), float(weight)))

    def found(self, way: Way) -> tuple[Floats, float]:
        """Return how many pairs fingerprints find at each distance from 0 to 64 bits, and how many others keys find."""
        is_by_key, by_distance = self.differences.by_key(way), self.differences.by_distance(way)
        return counted(by_distance, np.where(is_by_key, 0, self.counts)), float(self.counts[is_by_key].sum())


@dataclass(frozen=True, slots=True, eq=False)
class SamplePairs:
    """The pairs of texts in a sample, compared with a profile."""

    distances: Int64s  # number of pairs at each distance, shape (65,)
    left: Int64s  # positions of the pairs that are near, share a key, or have sketches that agree
    right: Int64s  # positions, each greater than `left`
    weight: int  # number of such pairs that each listed one represents
    unlike: PairCounts  # all such pairs that are labelled as not near, whether they are listed or not

    @property
    def total(self) -> int:
        """The number of pairs of texts with fingerprints."""
        return int(self.distances.sum())


def compare_all(
    signatures: Signatures, most_listed: int, are_unlike: Callable[[Int64s, Int64s], Bools] | None = None
) -> SamplePairs:
    """Compare each text in a sample with every other text.

    Args:
        signatures: Signatures of the texts.
        most_listed: Maximum number of near pairs to list.
        are_unlike: Which pairs, given the positions of their texts, are labelled as not near. By default, none are.
    """
    place = np.flatnonzero(signatures.kinds != TOO_SHORT)
    ours = signatures[place]
    distances = np.zeros(256, np.int64)
    listing, unlike = _Listing(most_listed), _Counter()
    rows = max(1, _TILE // max(1, len(ours)))
    for start in range(0, len(ours), rows):
        part = slice(start, start + rows)
        distance = np.bitwise_count(ours.fingerprints[part, None] ^ ours.fingerprints[start:])
        # pairs already seen from the other side, and texts with themselves
        is_before = np.tri(*distance.shape, dtype=np.bool_)
        distance[is_before] = NEVER
        distances += np.bincount(distance.ravel(), minlength=256)
        near = (distance <= DISTANCES[-1]) | _confirmed(ours, part) & ~is_before
        left, right = (place[one + start] for one in np.nonzero(near))
        listing.add(pair_words(left, right))
        if are_unlike:
            chosen = are_unlike(left, right)
            unlike.add(Differences.between(signatures[left[chosen]], signatures[right[chosen]]))
    words = listing.words()
    left, right = words >> 32, words & 0xFFFFFFFF
    return SamplePairs(distances[: FINGERPRINT_BITS + 1], left, right, listing.weight, unlike.counts())


def _confirmed(ours: Signatures, part: slice) -> Bools:
    """Return which pairs of a tile share a key, or have sketches that agree."""
    if ours.is_plain:
        return np.zeros((1, 1), np.bool_)
    sketches = ours.sketches[part, None]
    differing = np.bitwise_count(sketches ^ ours.sketches[part.start :])
    alike = (differing <= MAX_SKETCH) & (sketches != 0) & (ours.sketches[part.start :] != 0)
    found: Bools = alike | ours.keying.shared(ours.keys[part, None], ours.keys[part.start :])
    return found


class _Listing:
    """Pairs as words. Whenever there are too many, about half of them, chosen by a hash, are dropped."""

    def __init__(self, most: int) -> None:
        self._most, self._shift = most, 0
        self._words: list[Int64s] = []
        self._count = 0

    @property
    def weight(self) -> int:
        return 1 << self._shift

    def add(self, words: Int64s) -> None:
        self._words.append(self._kept(words))
        self._count += len(self._words[-1])
        while self._count > self._most:
            self._shift += 1
            self._words = [self._kept(self.words())]
            self._count = len(self._words[0])

    def words(self) -> Int64s:
        return np.concatenate([np.empty(0, np.int64), *self._words])

    def _kept(self, words: Int64s) -> Int64s:
        kept: Int64s = words[mix(words.view(np.uint64)) & np.uint64(self.weight - 1) == 0]
        return kept


class _Counter:
    """Counts pairs by their differences. The memory does not depend on the number of pairs."""

    def __init__(self) -> None:
        # By distance, whether the sketches agree, and whether they share a key.
        self._counts = np.zeros(256 << 2, np.int64)

    def add(self, found: Differences) -> None:
        codes = found.distance.astype(np.int64) << 2 | found.is_alike.astype(np.int64) << 1 | found.has_key
        self._counts += np.bincount(codes, minlength=len(self._counts))

    def counts(self) -> PairCounts:
        codes = np.flatnonzero(self._counts)
        differences = Differences((codes >> 2).astype(np.uint8), codes & 2 != 0, codes & 1 != 0)
        return PairCounts(differences, self._counts[codes].astype(np.float64))


def counted(reaches: Uint8s, counts: Floats | None = None) -> Floats:
    """Count pairs by their reach from 0 to 64 bits; each reach occurs as often as `counts` says, or once."""
    return np.bincount(reaches, counts, minlength=256)[: FINGERPRINT_BITS + 1].astype(np.float64)
