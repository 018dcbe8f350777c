"""Extend pairs of fingerprints to pairs of signatures: keys find more pairs, and sketches confirm all of them.

Two signatures are near if two conditions hold. First, their fingerprints are within the distance, or they share a key.
Second, their sketches differ in few enough bits (`are_alike`), or one of them does not have a sketch. Equal signatures
are merged beforehand, like equal fingerprints.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s, Uint64s, are_in, sorted_distinct, spans
from hsimhash.fingerprint.signature import Signatures, are_alike
from hsimhash.pairs.clusters import linked
from hsimhash.pairs.crowds import Crowd, CrowdedPairs, NearRule, outside, without_subsets
from hsimhash.pairs.pair_blocks import FINGERPRINT_LIMIT, PairBlock, Pairs, pair_words, sorted_block

AT_ONCE = 1 << 20  # signatures processed together
# If more signatures than this share a fingerprint or a part of a key, they form a crowd. So do the signatures of two
# near fingerprints if they make more pairs than this.
CROWD = 128


def near_signatures(pairs: Pairs, signatures: Signatures, max_distance: int, max_sketch: int | None) -> Pairs:
    """Return the near pairs of distinct signatures, and the groups of equal ones.

    Candidates are processed in blocks of bounded size. m distinct signatures that share a fingerprint or a part of a
    key make m² / 2 candidates.

    Args:
        pairs: Pairs of the fingerprints within `max_distance` bits.
        signatures: Shape (n,).
        max_distance: In bits.
        max_sketch: As for `find_pairs`.
    """
    ours = np.flatnonzero(_are_involved(pairs, signatures))  # omitting the others, usually most of them, saves memory
    left, right, groups = (np.searchsorted(ours, one) for one in (pairs.left, pairs.right, pairs.groups[ours]))
    found = _near_among(Pairs(left, right, pairs.distance, groups), signatures[ours], max_distance, max_sketch)
    groups = np.arange(len(signatures))
    groups[ours] = ours[found.groups]
    return replace(found, left=ours[found.left], right=ours[found.right], groups=groups)


def _are_involved(pairs: Pairs, signatures: Signatures) -> Bools:
    """Return which signatures are in a pair, or share their fingerprint or a part of their key with another one."""
    found = np.zeros(len(signatures), np.bool_)
    found[pairs.left] = found[pairs.right] = True
    for start in range(0, len(found), AT_ONCE):
        groups = pairs.groups[start : start + AT_ONCE]
        repeats = groups != np.arange(start, start + len(groups))
        found[start : start + AT_ONCE] |= repeats
        found[groups[repeats]] = True
    parts = signatures.key_parts
    ordered = np.sort(parts, axis=None)
    shared = sorted_distinct(ordered[1:][(ordered[1:] == ordered[:-1]) & (ordered[1:] != 0)])
    for start in range(0, len(found), AT_ONCE):
        own = parts[start : start + AT_ONCE]
        found[start : start + AT_ONCE] |= are_in(own.ravel(), shared).reshape(own.shape).any(axis=1)
    return found


def _near_among(pairs: Pairs, signatures: Signatures, max_distance: int, max_sketch: int | None) -> Pairs:
    groups = equal_signatures(pairs.groups, signatures)
    # Number the distinct signatures: a fingerprint's first document is also the first of its signature.
    first = np.flatnonzero(groups == np.arange(len(groups)))
    number = np.empty(len(groups), np.int64)
    number[first] = np.arange(len(first))
    ours = signatures[first]
    near = replace(pairs, left=number[pairs.left], right=number[pairs.right], groups=number[pairs.groups[first]])
    words, unconfirmed = [], 0
    for left, right, distance in _candidates(near, ours, max_distance, _SharedParts.of(ours)):
        alike = are_alike(ours.sketches[left], ours.sketches[right], max_sketch, distance)
        words.append(pair_words(first[left[alike]], first[right[alike]]))
        unconfirmed += len(left) - len(words[-1])
    return Pairs(*sorted_block(words, signatures.fingerprints), groups, unconfirmed)


def crowded_signatures(pairs: Pairs, crowds: Sequence[Int64s], signatures: Signatures, rule: NearRule) -> CrowdedPairs:
    """Return near pairs of distinct signatures, the groups of equal ones, and crowds that contain all other near pairs.

    Args:
        pairs: Pairs of the fingerprints within the distance; pairs within crowds may be missing.
        crowds: First positions of the fingerprints in each crowd.
        signatures: Shape (n,).
        rule: Rule that decides which signatures are near.
    """
    is_ours = _are_involved(pairs, signatures)
    for members in crowds:
        is_ours[members] = True
    is_ours[is_ours[pairs.groups]] = True  # include all signatures with the same fingerprints
    ours = np.flatnonzero(is_ours)
    left, right, groups = (np.searchsorted(ours, one) for one in (pairs.left, pairs.right, pairs.groups[ours]))
    among, same = signatures[ours], np.arange(len(signatures))
    found = equal_signatures(groups, among)
    same[ours] = ours[found]
    first = np.flatnonzero(found == np.arange(len(found)))
    number = np.empty(len(found), np.int64)
    number[first] = np.arange(len(first))
    near = replace(pairs, left=number[left], right=number[right], groups=number[groups[first]])
    distinct = _Distinct(among[first], near, rule)
    words, vertex_crowds = distinct.split([number[np.searchsorted(ours, members)] for members in crowds])
    kept, crowd = without_subsets(vertex_crowds, len(first))
    places = ours[first]
    outer = (outside(one, crowd) for one in words)
    named = [
        pair_words(places[one >> 32 & (FINGERPRINT_LIMIT - 1)], places[one & (FINGERPRINT_LIMIT - 1)]) for one in outer
    ]
    return CrowdedPairs(
        *sorted_block(named, signatures.fingerprints),
        same,
        crowds=[Crowd(places[members], distinct.signatures[members], rule) for members in kept],
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Distinct:
    """Distinct signatures. `near` has the near pairs of their fingerprints, as positions of their first signatures."""

    signatures: Signatures
    near: Pairs
    rule: NearRule

    def split(self, crowds: Sequence[Int64s]) -> tuple[list[Int64s], list[Int64s]]:
        """Return near pairs as `pair_words`, and crowds that contain all other near pairs.

        The given `crowds` consist of fingerprints.
        """
        near, shared = self.near, _SharedParts.of(self.signatures)
        count = len(near.groups)
        sizes = np.bincount(near.groups, minlength=count)
        order, starts = np.argsort(near.groups, kind="stable"), np.cumsum(sizes) - sizes
        is_large = sizes[near.left] * sizes[near.right] > CROWD
        root = linked([PairBlock(near.left[is_large], near.right[is_large], near.distance[is_large])], count)
        is_joined = np.zeros(count, np.bool_)
        is_joined[near.left[is_large]] = is_joined[near.right[is_large]] = True
        is_joined |= sizes > CROWD
        found = [
            *(np.sort(order[spans(starts[members], sizes[members])]) for members in crowds),
            *_groups_of(np.where(is_joined[near.groups], root[near.groups], -1)),
            *(shared.owner[members] for members in _groups_of(np.where(shared.sizes > CROWD, shared.first, -1))),
        ]
        alone, is_few = np.arange(count), ~is_large
        few = Pairs(
            near.left[is_few],
            near.right[is_few],
            near.distance[is_few],
            np.where(sizes[near.groups] > CROWD, alone, near.groups),  # all pairs in larger groups are in crowds
        )
        pairs = []
        for left, right, distance in _candidates(few, self.signatures, self.rule.max_distance, shared.without_crowds()):
            sketches = self.signatures.sketches
            alike = are_alike(sketches[left], sketches[right], self.rule.max_sketch, distance)
            pairs.append(pair_words(left[alike], right[alike]))
        return pairs, found


def _groups_of(labels: Int64s) -> list[Int64s]:
    """Return the indices of each label, in order; skips the label -1."""
    order = np.argsort(labels, kind="stable")
    order = order[np.searchsorted(labels[order], 0) :]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1) if len(order) else []


def _candidates(
    near: Pairs, signatures: Signatures, max_distance: int, shared: _SharedParts
) -> Iterator[tuple[Int64s, Int64s, Uint8s]]:
    """Yield pairs within the distance, then pairs beyond it that share a key, each once, in blocks with distances."""
    yield from near.expand()
    for left, right in shared.pairs():
        distance = np.bitwise_count(signatures.fingerprints[left] ^ signatures.fingerprints[right])
        is_new = distance > max_distance
        yield left[is_new], right[is_new], distance[is_new]


@dataclass(frozen=True, slots=True, eq=False)
class _SharedParts:
    """The parts of signatures' keys: `owner` has each part's signature, in order; `first` has the first equal part."""

    parts: Uint64s  # parts of each signature
    owner: Int64s
    values: Uint64s
    first: Int64s

    @staticmethod
    def of(signatures: Signatures) -> _SharedParts:
        """Return the parts of signatures."""
        parts = signatures.key_parts
        owner, column = np.nonzero(parts)
        values = parts[owner, column]
        return _SharedParts(parts, owner, values, _first_equal(values))

    @property
    def sizes(self) -> Int64s:
        """The number of signatures that have each part."""
        return np.bincount(self.first, minlength=len(self.first))[self.first]

    def without_crowds(self) -> _SharedParts:
        """Return the parts, with the parts that form crowds ungrouped."""
        return replace(self, first=np.where(self.sizes > CROWD, np.arange(len(self.first)), self.first))

    def pairs(self) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield each pair of signatures with a common part once, in blocks."""
        none = np.empty(0, np.int64)
        for some, others, _ in Pairs(none, none, none.astype(np.uint8), self.first).expand():
            left, right = self.owner[some], self.owner[others]
            if self.parts.shape[1] > 1:  # they may share several parts; only the lowest one yields the pair
                is_least = ~self._share_lower(left, right, self.values[some])
                left, right = left[is_least], right[is_least]
            yield left, right

    def _share_lower(self, left: Int64s, right: Int64s, values: Uint64s) -> Bools:
        """Return which pairs of signatures share a part lower than the given one."""
        found, others = np.zeros(len(left), np.bool_), [its[right] for its in self.parts.T]
        for mine in self.parts.T:
            part = mine[left]
            is_lower = (part < values) & (part != 0)
            for other in others:
                found |= is_lower & (part == other)
        return found


def equal_signatures(groups: Int64s, signatures: Signatures) -> Int64s:
    """Return the position of the first equal signature for each signature.

    `groups` has the position of the first equal fingerprint for each.
    """
    found = np.arange(len(groups))
    among = np.flatnonzero(np.bincount(groups, minlength=len(groups))[groups] > 1)
    found[among] = among[_first_equal(groups[among], signatures.sketches[among], signatures.keys[among])]
    return found


def _first_equal(*columns: NDArray[np.generic]) -> Int64s:
    """Return the position of the first equal row for each row of the columns."""
    order = np.lexsort(columns)  # stable: equal rows keep their order
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = np.any([column[order[1:]] != column[order[:-1]] for column in columns], axis=0)
    first = np.empty(len(order), np.int64)
    first[order] = order[np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))]
    return first
