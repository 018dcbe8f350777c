"""Pairs as arrays: all at once, and in blocks of bounded size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s

PAIRS_AT_ONCE = 1 << 20  # pairs per block
FINGERPRINT_LIMIT = 1 << 32  # there must be fewer fingerprints than this, because a position takes half a 64-bit word


class PairBlock(NamedTuple):
    """Pairs of fingerprints by position; arrays of the same length."""

    left: Int64s  # positions in the input, int64
    right: Int64s  # positions, greater than `left`
    distance: Uint8s  # in bits, uint8


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Pairs:
    """All near pairs, with equal fingerprints counted once, as returned by `find_pairs`.

    Equal fingerprints are not listed as pairs, because n equal fingerprints would make n² / 2 pairs. `groups` shows
    which inputs are equal. For example, for two equal inputs, `left` and `right` are empty, and `groups` is [0 0].
    `brief` and `expand` also list equal inputs as pairs. Signatures are equal if all three of their parts are equal.
    """

    left: Int64s  # positions of fingerprints' first occurrences in the input; pairs are in order of (left, right)
    right: Int64s  # positions, greater than `left`
    distance: Uint8s  # differing bits: at least 1 for fingerprints, 0 to 64 for signatures
    groups: Int64s  # shape (n,): for each input, the position of the first equal input, which may be its own position
    unconfirmed: int = 0  # pairs of distinct signatures that would be near if their sketches did not differ too much

    @property
    def repeats(self) -> Int64s:
        """The positions of inputs that equal an earlier input; `groups[repeats]` has the first position of each."""
        return np.flatnonzero(self.groups != np.arange(len(self.groups)))

    def __repr__(self) -> str:
        return (
            f"<Pairs of {len(self.groups):,} inputs: {len(self.left):,} near pairs of distinct inputs, "
            f"{len(self.repeats):,} equal to an earlier input; left={self.left} right={self.right} "
            f"distance={self.distance} groups={self.groups}>"
        )

    def brief(self) -> PairBlock:
        """Return the near pairs, plus each repeat with its first occurrence (distance 0), in order."""
        repeats = self.repeats
        left, right = np.append(self.left, self.groups[repeats]), np.append(self.right, repeats)
        distance = np.append(self.distance, np.zeros(len(repeats), np.uint8))
        order = np.lexsort((right, left))
        return PairBlock(left[order], right[order], distance[order])

    def expand(self) -> Iterator[PairBlock]:
        """Yield every pair of positions in blocks of bounded size, pairs of equal inputs (distance 0) first."""
        # The occurrences of each group are adjacent in `members`, in order.
        count = len(self.groups)
        members = np.argsort(self.groups, kind="stable")
        starts = np.flatnonzero(np.diff(self.groups[members], prepend=-1))
        sizes = np.diff(starts, append=count)
        start_of, size_of = np.zeros(count, np.int64), np.zeros(count, np.int64)
        start_of[members[starts]], size_of[members[starts]] = starts, sizes

        # Equal inputs: each occurrence with the later occurrences in its group.
        for place, rank in _ragged(np.repeat(starts + sizes, sizes) - np.arange(count) - 1):
            yield PairBlock(members[place], members[place + 1 + rank], np.zeros(len(place), np.uint8))

        # Each pair of groups: every member of one with every member of the other.
        for pair, rank in _ragged(size_of[self.left] * size_of[self.right]):
            left, right = self.left[pair], self.right[pair]
            one, other = np.divmod(rank, size_of[right])
            ends = members[start_of[left] + one], members[start_of[right] + other]
            yield PairBlock(np.minimum(*ends), np.maximum(*ends), self.distance[pair])


def _ragged(counts: Int64s) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield the numbers (row, 0), (row, 1), … (row, counts[row] - 1) of all rows, at most PAIRS_AT_ONCE at a time."""
    stops = np.cumsum(counts)
    total = int(stops[-1]) if len(stops) else 0
    for start in range(0, total, PAIRS_AT_ONCE):
        stop = min(start + PAIRS_AT_ONCE, total)
        first, last = np.searchsorted(stops, (start, stop - 1), "right")
        rows = np.arange(first, last + 1)
        starts = stops[rows] - counts[rows]
        here = np.minimum(stops[rows], stop) - np.maximum(starts, start)  # numbers of each row in this block
        yield np.repeat(rows, here), np.arange(start, stop) - np.repeat(starts, here)


def pair_words(some: Int64s, others: Int64s) -> Int64s:
    """Return each pair of positions as one word; words sort by (left, right)."""
    return np.minimum(some, others) << 32 | np.maximum(some, others)


def sorted_block(words: Iterable[Int64s], fingerprints: Uint64s) -> PairBlock:
    """Return pairs given as `pair_words` as one block, sorted by (left, right)."""
    joined = np.concatenate([np.empty(0, np.int64), *words]).view(np.uint64)
    joined.sort()
    left = (joined >> np.uint64(32)).view(np.int64)
    joined &= np.uint64(FINGERPRINT_LIMIT - 1)
    right = joined.view(np.int64)
    distance = np.empty(len(left), np.uint8)
    for start in range(0, len(left), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        distance[part] = np.bitwise_count(fingerprints[left[part]] ^ fingerprints[right[part]])
    return PairBlock(left, right, distance)
