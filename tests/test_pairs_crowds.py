"""Clusters of crowds, whose pairs are not listed, compared with brute force."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signatures, are_alike
from hsimhash.pairs import crowds
from hsimhash.pairs.clusters import KeyCheck, components, star
from hsimhash.pairs.crowds import CrowdedPairs, without_subsets
from hsimhash.pairs.search import find_crowded, find_pairs
from tests.support.effort import tries
from tests.support.oracles import share_a_key

Numbers = NDArray[np.uint64]


def flipped(rng: np.random.Generator, values: Numbers, most: int) -> Numbers:
    """Return the values, each with up to `most` of its bits flipped."""
    values = values.copy()
    for _ in range(most):
        values ^= np.uint64(1) << rng.integers(0, 64, len(values), np.uint64) * rng.integers(
            0, 2, len(values), np.uint64
        )
    return values


def crowded(seed: int, count: int, *, signed: bool, keying: Keying = Keying.WHOLE) -> Signatures:
    """Return crowds of different widths among single documents; some are equal, or share a key or a fingerprint."""
    rng = np.random.default_rng(seed)
    bases = rng.integers(0, 2**64, 5, np.uint64)
    chosen = rng.integers(0, len(bases), count)
    fingerprints = flipped(rng, bases[chosen], 4)
    is_alone = rng.random(count) < 0.2
    fingerprints[is_alone] = rng.integers(0, 2**64, int(is_alone.sum()), np.uint64)
    fingerprints[rng.random(count) < 0.1] = bases[0]
    if not signed:
        return Signatures.of(fingerprints)
    sketches = flipped(rng, rng.integers(1, 2**64, 2, np.uint64)[rng.integers(0, 2, count)], 14)
    sketches[rng.random(count) < 0.02] = 0
    keys = np.where(rng.random(count) < 0.5, chosen + 1, 0).astype(np.uint64) << np.uint64(32)
    keys[is_alone] = 9 << 32
    if keying is not Keying.WHOLE:
        tags = chosen[:, None] * 9 + np.argsort(rng.random((count, 9)))[:, :5]  # 5 of 9
        packed = (tags << np.arange(48, -1, -12)).sum(axis=1).astype(np.uint64) | np.uint64(5 << 60)
        keys = np.where(rng.random(count) < 0.8, packed, np.uint64(0))
        return Signatures.of(fingerprints, sketches, keys, keying=keying)
    return Signatures.of(fingerprints, sketches, keys)


def all_near(signatures: Signatures, k: int, most: int | None) -> NDArray[np.bool_]:
    values, sketches, keys = signatures.fingerprints, signatures.sketches, signatures.keys
    distances = np.bitwise_count(values[:, None] ^ values)
    is_near = distances <= k
    alike = are_alike(sketches[:, None], sketches, most, distances)
    share = (keys[:, None] == keys) & (keys != 0)
    if signatures.keying is not Keying.WHOLE:
        distinct, number = np.unique(keys, return_inverse=True)
        listed = distinct.tolist()
        of_distinct = [[share_a_key(one, other, signatures.keying) for other in listed] for one in listed]
        share = np.array(of_distinct)[number[:, None], number]
    found = (is_near | share) & alike
    same = (values[:, None] == values) & (sketches[:, None] == sketches) & (keys[:, None] == keys)
    result: NDArray[np.bool_] = found | same
    return result


def plain_stars(near: NDArray[np.bool_], order: list[int]) -> list[int]:
    kept = np.full(len(near), -1)
    for one in order:
        if kept[one] < 0:
            kept[near[one] & (kept < 0)] = one
    return kept.tolist()


def plain_components(near: NDArray[np.bool_], order: list[int]) -> list[int]:
    kept = np.full(len(near), -1)
    for one in order:
        new = np.zeros(len(near), np.bool_)
        new[one] = kept[one] < 0
        while new.any():
            kept[new] = one
            new = near[new].any(axis=0) & (kept < 0)
    return kept.tolist()


@settings(max_examples=tries(40, 4), deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([None, *Keying]),
    st.integers(0, 6),
    st.sampled_from([None, 8, 16]),
    st.sampled_from([0, crowds.MOST_LISTED]),
)
def test_clusters_of_crowds_are_those_of_all_pairs(
    seed: int, keying: Keying | None, k: int, most: int | None, most_listed: int
) -> None:
    signatures = crowded(seed, 1_500, signed=keying is not None, keying=keying or Keying.WHOLE)
    rank = np.random.default_rng(seed).permutation(len(signatures))
    order, values = np.argsort(rank).tolist(), signatures.fingerprints
    near = all_near(signatures, k, most)
    found = find_crowded(signatures, max_distance=k, max_sketch=most)
    stars, whole = plain_stars(near, order), plain_components(near, order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowds, "MOST_LISTED", most_listed)  # pairs of larger crowds are not listed
        assert star(values, found, rank).kept.tolist() == stars
        assert components(values, found, rank).kept.tolist() == whole
        cut = components(values, found, rank, max_cluster_size=100)
    is_large = np.bincount(whole)[whole] > 100
    equal_only = {
        one for one in set(whole) if len({signatures.at(place) for place in np.flatnonzero(np.equal(whole, one))}) == 1
    }
    is_large &= ~np.isin(whole, list(equal_only))
    assert cut.kept.tolist() == np.where(is_large, stars, whole).tolist()


def refused(signatures: Signatures, rank: NDArray[np.int64], fails: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the pairs of signatures where a document of one fails with the other's kept one, which ranks higher."""
    _, vertex = np.unique(
        np.stack([signatures.fingerprints, signatures.sketches, signatures.keys]), axis=1, return_inverse=True
    )
    vertex, order = vertex.ravel(), np.argsort(rank)  # numpy 2.0 returns two dimensions
    best = order[np.unique(vertex[order], return_index=True)[1]]
    found = np.zeros((len(best), len(best)), np.bool_)
    np.logical_or.at(found, (vertex[:, None], np.arange(len(best))), fails[:, best])
    found &= rank[best][:, None] > rank[best]
    return (found | found.T)[vertex[:, None], vertex]


@settings(max_examples=tries(30, 4), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(Keying), st.integers(0, 6), st.sampled_from([0.02, 0.3]))
def test_clusters_do_without_the_pairs_that_a_check_refuses(seed: int, keying: Keying, k: int, share: float) -> None:
    signatures = crowded(seed, 1_000, signed=True, keying=keying)
    rng = np.random.default_rng(seed)
    rank, fails = rng.permutation(len(signatures)), rng.random((len(signatures), len(signatures))) < share
    order, values = np.argsort(rank).tolist(), signatures.fingerprints
    is_far = np.bitwise_count(values[:, None] ^ values) > k
    near = all_near(signatures, k, 16) & ~(is_far & refused(signatures, rank, fails))
    stars, whole = plain_stars(near, order), plain_components(near, order)
    check = KeyCheck(k, lambda dropped, kept: fails[dropped, kept], rounds=len(signatures))
    for found in (
        find_crowded(signatures, max_distance=k, max_sketch=16),
        find_pairs(signatures, max_distance=k, max_sketch=16),
    ):
        assert star(values, found, rank, check).kept.tolist() == stars
        assert components(values, found, rank, check=check).kept.tolist() == whole
        cut = components(values, found, rank, max_cluster_size=1, check=check)
        assert cut.kept.tolist() == stars


@pytest.mark.parametrize("keying", Keying)
def test_documents_that_fail_again_and_again_are_kept_without_a_refused_pair(keying: Keying) -> None:
    signatures = crowded(5, 1_000, signed=True, keying=keying)
    fails = np.random.default_rng(5).random((len(signatures), len(signatures))) < 0.7
    asked = []

    def refuses(dropped: NDArray[np.int64], kept: NDArray[np.int64]) -> NDArray[np.bool_]:
        asked.append(len(dropped))
        return fails[dropped, kept]

    rank, values = np.arange(len(signatures)), signatures.fingerprints
    found = find_crowded(signatures, max_distance=3, max_sketch=16)
    kept = star(values, found, rank, KeyCheck(3, refuses, rounds=2)).kept
    assert len(asked) <= 4
    dropped = np.flatnonzero(kept != rank)
    is_far = np.bitwise_count(values[dropped] ^ values[kept[dropped]]) > 3
    assert is_far.any()
    assert not fails[dropped, kept[dropped]][is_far].any()


@pytest.mark.parametrize("memory_bytes", [1 << 30, 1 << 17])
def test_a_crowd_is_one_whatever_the_memory(memory_bytes: int) -> None:
    signatures = crowded(3, 7_000, signed=False)
    rank = np.arange(len(signatures))
    found = find_crowded(signatures, max_distance=6, memory_bytes=memory_bytes)
    every = find_pairs(signatures.fingerprints, max_distance=6, memory_bytes=memory_bytes)
    assert found.crowds
    assert len(found.left) < len(every.left) / 10
    assert (
        star(signatures.fingerprints, found, rank).kept.tolist()
        == star(signatures.fingerprints, every, rank).kept.tolist()
    )


def test_few_documents_have_no_crowds() -> None:
    signatures = crowded(1, 200, signed=True)
    found = find_crowded(signatures)
    every = find_pairs(signatures)
    assert not found.crowds
    assert (found.left.tolist(), found.right.tolist()) == (every.left.tolist(), every.right.tolist())
    assert found.groups.tolist() == every.groups.tolist()


def test_a_crowd_within_another_is_left_out() -> None:
    crowds = [np.array([1, 2]), np.array([0, 1, 2, 3]), np.array([3, 4, 5])]
    assert [one.tolist() for one in without_subsets(crowds, 6)[0]] == [[0, 1, 2, 3], [3, 4, 5]]


def test_pairs_within_crowds_are_not_listed() -> None:
    """The number of listed pairs grows with the number of documents, not with the square of a crowd's size."""
    listed = []
    for count in (1_000, 2_000, 4_000):
        rng = np.random.default_rng(count)
        values = flipped(rng, np.full(count, 2**63, np.uint64), 5)
        found = find_crowded(Signatures.of(values, np.full(count, 7, np.uint64), np.full(count, 1 << 32, np.uint64)))
        assert isinstance(found, CrowdedPairs)
        listed.append(len(found.left) + sum(map(len, found.crowds)))
    assert all(more <= 3 * fewer for fewer, more in pairwise(listed))
