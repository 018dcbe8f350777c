"""Cluster crowds without listing their pairs.

n documents made from one template have about n² / 2 near pairs, but only pairs with a kept document matter. A *crowd*
is a set of documents that may be near each other. Its pairs are computed on demand: a kept document is compared with
the members of its crowds that have not joined a preferred document. So the time grows with n and with the number of
kept documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Bools, Int64s, are_in, spans
from hsimhash.fingerprint.signature import Signatures, are_alike
from hsimhash.pairs.pair_blocks import FINGERPRINT_LIMIT, Pairs, pair_words

CELLS = 1 << 17  # maximum number of comparisons in one batch of members against members
SAMPLE = 64  # members sampled to estimate a crowd's pairs
# Limits on members, and on pairs per member; the pairs of a larger crowd are not listed.
MOST_LISTED, LISTED_EACH = 4096, 8


@dataclass(frozen=True, slots=True)
class NearRule:
    """Defines which signatures are near; see `find_pairs`."""

    max_distance: int
    max_sketch: int | None
    is_plain: bool  # whether the signatures are bare fingerprints


_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """Members in ascending order, with their signatures."""

    members: Int64s
    signatures: Signatures
    rule: NearRule
    refused: Int64s = field(default_factory=lambda: _NONE)  # pairs that are not near: ascending `pair_words`

    def __len__(self) -> int:
        return len(self.members)

    def at(self, chosen: Bools | Int64s | slice) -> Crowd:
        """Return the chosen members as a crowd."""
        return Crowd(self.members[chosen], self.signatures[chosen], self.rule, self.refused)

    def renumbered(self, number: NDArray[np.integer[Any]]) -> Crowd:
        """Return the crowd with its members renumbered and sorted."""
        members = number[self.members].astype(np.int64)
        order = np.argsort(members)
        return Crowd(members[order], self.signatures[order], self.rule)

    def near(self, others: Crowd) -> Bools:
        """Return which members (rows) are near which of the `others` (columns)."""
        mine, its, rule = self.signatures, others.signatures, self.rule
        differing = np.bitwise_count(mine.fingerprints[:, None] ^ its.fingerprints)
        is_near: Bools = differing <= rule.max_distance
        if rule.is_plain:
            return is_near
        alike = are_alike(mine.sketches[:, None], its.sketches, rule.max_sketch, differing)
        rows, columns = np.nonzero(alike & ~is_near)
        if len(rows):  # usually few pairs are left; comparing their keys takes longer than everything above
            is_near[rows, columns] = mine.keying.shared(mine.keys[rows], its.keys[columns])
            if len(self.refused):
                words = pair_words(self.members[rows], others.members[columns])
                is_near[rows, columns] &= ~are_in(words, self.refused)
        return is_near & alike

    def possible(self, one: Crowd) -> Crowd:
        """Return the members that the sketch of `one` does not rule out; all members if it rules out too few."""
        sketch, sketches, most = one.signatures.sketches[0], self.signatures.sketches, self.rule.max_sketch
        if self.rule.is_plain or most is None or sketch == 0:
            return self
        is_possible = (np.bitwise_count(sketches ^ sketch) <= most) | (sketches == 0)
        return self.at(is_possible) if 8 * np.count_nonzero(is_possible) < len(self) else self

    def listed(self) -> tuple[Int64s, Int64s] | None:
        """Return the lower and higher member of each near pair; None if there are too many pairs or members."""
        most = LISTED_EACH * len(self)
        if len(self) > MOST_LISTED or self.estimate() > most:
            return None
        step, count = max(1, CELLS // len(self)), 0
        low, high = list[Int64s](), list[Int64s]()
        for start in range(0, len(self), step):
            block, others = self.at(slice(start, start + step)), self.at(slice(start + 1, None))
            rows, columns = np.nonzero(np.triu(block.near(others)))
            low.append(block.members[rows])
            high.append(others.members[columns])
            count += len(rows)
            if count > most:  # the estimate was too low
                return None
        return np.concatenate(low), np.concatenate(high)

    def estimate(self) -> int:
        """Estimate the number of near pairs, from a sample of the members."""
        some = self.at(np.linspace(0, len(self) - 1, min(len(self), SAMPLE)).astype(np.int64))
        return round((int(np.count_nonzero(some.near(self))) / len(some) - 1) * len(self) / 2)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CrowdedPairs(Pairs):
    """Near pairs, possibly without the pairs within crowds; members of crowds are the first of equal inputs."""

    crowds: Sequence[Crowd] = ()

    def estimate(self) -> int:
        """Estimate the number of near pairs of distinct inputs, including those within crowds."""
        return len(self.left) + sum(crowd.estimate() for crowd in self.crowds)


def without_subsets(crowds: Iterable[Int64s], count: int) -> tuple[list[Int64s], Int64s]:
    """Return the crowds, largest first, without most of the crowds that are subsets of another crowd.

    Args:
        crowds: Members of each crowd, numbers below `count`.
        count: Number of documents.

    Returns:
        The crowds, and the index of a crowd that contains each document, or -1.
    """
    kept: list[Int64s] = []
    largest = np.full(count, -1, np.int64)
    for members in sorted(crowds, key=len, reverse=True):
        here = largest[members]
        if here[0] < 0 or (here != here[0]).any():
            largest[members] = len(kept)
            kept.append(members)
    return kept, largest


def outside(words: Int64s, crowd: Int64s) -> Int64s:
    """Return the pairs, as `pair_words`, that are not within one crowd; `crowd` comes from `without_subsets`."""
    left = crowd[words >> 32 & (FINGERPRINT_LIMIT - 1)]
    found: Int64s = words[(left < 0) | (left != crowd[words & (FINGERPRINT_LIMIT - 1)])]
    return found


def links(crowd: Crowd) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield near pairs that connect the members of each of a crowd's components: one pair fewer than members."""
    left = crowd
    while len(left) > 1:
        new, left = left.at(slice(1)), left.at(slice(1, None))
        some, others = list[Int64s](), list[Int64s]()
        while len(new) and len(left):
            step = max(1, CELLS // len(left))
            block, waiting = new.at(slice(step)), new.at(slice(step, None))
            near = block.near(left)
            nearest = np.where(near.any(axis=0), near.argmax(axis=0), -1)
            found = left.at(nearest >= 0)
            some.append(block.members[nearest[nearest >= 0]])
            others.append(found.members)
            new, left = _both(waiting, found), left.at(nearest < 0)
        if any(map(len, others)):
            yield np.concatenate(some), np.concatenate(others)


def _both(some: Crowd, others: Crowd) -> Crowd:
    if not len(others):
        return some
    signatures = Signatures.joined([some.signatures, others.signatures])
    return Crowd(np.concatenate([some.members, others.members]), signatures, some.rule, some.refused)


class CrowdQueues:
    """The undecided members of crowds, which are decided in order in each crowd.

    Args:
        crowds: Crowds of numbered vertices; lower numbers are kept first.
        count: Number of vertices.
    """

    def __init__(self, crowds: Sequence[Crowd], count: int) -> None:
        self._crowds = list(crowds)
        self._count = count
        none = np.empty(0, np.int64)
        members = np.concatenate([none, *(crowd.members for crowd in crowds)])
        owners = np.repeat(np.arange(len(crowds)), np.array([len(crowd) for crowd in crowds], np.int64))
        self._owners = owners[np.argsort(members, kind="stable")]
        self._sizes = np.bincount(members, minlength=count)
        self._ends = np.cumsum(self._sizes)
        self._heads = [int(crowd.members[0]) for crowd in crowds]

    def waits_for(self) -> Int64s:
        """Return the number of crowds in which each vertex is not the first member."""
        waits = self._sizes.copy()
        np.subtract.at(waits, np.array(self._heads, np.int64), 1)
        return waits

    def _crowds_of(self, vertices: Int64s) -> Int64s:
        sizes = self._sizes[vertices]
        found: Int64s = self._owners[spans(self._ends[vertices] - sizes, sizes)]
        return found

    def neighbours(self, fresh: Int64s) -> tuple[Int64s, Int64s]:
        """Return the higher vertex and the fresh vertex of each near pair; fresh vertices are first in their crowds."""
        near, sources = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for vertex in fresh[self._sizes[fresh] > 0].tolist():
            for number in self._crowds_of(np.array([vertex])).tolist():
                crowd = self._crowds[number]
                place = int(np.searchsorted(crowd.members, vertex))
                one = crowd.at(slice(place, place + 1))
                others = crowd.at(slice(place + 1, None)).possible(one)
                found = others.members[one.near(others)[0]]
                near.append(found)
                sources.append(np.full(len(found), vertex))
        return np.concatenate(near), np.concatenate(sources)

    def advance(self, decided: Int64s, kept: Int64s) -> Int64s:
        """Return the vertices that have become the first undecided members of crowds, once per crowd.

        Args:
            decided: Vertices decided since the last call.
            kept: Lowest kept neighbour known for each vertex, or itself; `count` if it is undecided.
        """
        released = []
        for number in sorted(set(self._crowds_of(decided).tolist())):
            head, crowd = self._heads[number], self._crowds[number]
            if kept[head] == self._count:
                continue
            now = kept[crowd.members]
            is_open = now > head  # members that a lower vertex has taken do not need further comparisons
            if 8 * np.count_nonzero(is_open) < 7 * len(crowd):
                crowd, now = crowd.at(is_open), now[is_open]
            undecided = now == self._count
            if undecided.any():
                self._heads[number] = int(crowd.members[np.argmax(undecided)])
                released.append(self._heads[number])
            else:
                crowd = crowd.at(slice(0))
            self._crowds[number] = crowd
        return np.array(released, np.int64)
