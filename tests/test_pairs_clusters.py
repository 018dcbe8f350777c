"""Clusters compared with those of plain algorithms that compare all pairs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsimhash.pairs import PairBlock, find_pairs, iter_pairs
from hsimhash.pairs.clusters import FEW_MEMBERS, Clusters, components, diameters, linked, star
from tests.support.effort import tries
from tests.support.oracles import crowds, plain_components, plain_stars

Documents = tuple[NDArray[np.uint64], NDArray[np.int64], int]


@st.composite
def documents(draw: st.DrawFn) -> Documents:
    """Draw fingerprints, some of them near or equal to others, a rank, and k."""
    values = np.array(draw(crowds(40)), np.uint64)
    rank = np.array(draw(st.permutations(range(len(values)))), np.int64)
    return values, rank, draw(st.integers(0, 3))


def kept_by(
    plain: Callable[[list[int], list[int], int], list[int]], values: NDArray[np.uint64], rank: NDArray[np.int64], k: int
) -> list[int]:
    return plain(values.tolist(), np.argsort(rank).tolist(), k)


def assert_is(clusters: Clusters, values: NDArray[np.uint64], kept: list[int]) -> None:
    assert clusters.kept.tolist() == kept
    assert clusters.distance.tolist() == np.bitwise_count(values ^ values[clusters.kept]).tolist()
    assert clusters.kept.dtype == np.int64
    assert clusters.distance.dtype == np.uint8


@pytest.mark.parametrize(("method", "plain"), [(star, plain_stars), (components, plain_components)])
@given(documents())
def test_clusters_are_those_of_the_plain_way(
    method: Callable[..., Clusters], plain: Callable[..., list[int]], given: Documents
) -> None:
    values, rank, k = given
    clusters = method(values, find_pairs(values, max_distance=k), rank)
    assert_is(clusters, values, kept_by(plain, values, rank, k))
    assert clusters.split == 0


@given(documents())
def test_linked_blocks_are_the_components(given: Documents) -> None:
    values, _, k = given
    pairs = find_pairs(values, max_distance=k)
    expected = components(values, pairs, np.arange(len(values))).kept
    assert linked(iter_pairs(values, max_distance=k), len(values))[pairs.groups].tolist() == expected.tolist()


def test_linking_holds_a_part_of_the_pairs_only() -> None:
    count, blocks, pairs = 1_000, 100, 200_000
    left = np.arange(pairs) % (count - 1)
    block = PairBlock(left, left + 1, np.ones(pairs, np.uint8))
    tracemalloc.start()
    try:
        cluster = linked((PairBlock(*map(np.copy, block)) for _ in range(blocks)), count)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert not cluster.any()
    assert peak < blocks * pairs * 17 / 2  # bytes; a pair takes 17


@given(documents(), st.integers(1, 12))
def test_components_that_are_too_large_are_cut_into_stars(given: Documents, limit: int) -> None:
    values, rank, k = given
    whole, stars = kept_by(plain_components, values, rank, k), kept_by(plain_stars, values, rank, k)
    clusters = components(values, find_pairs(values, max_distance=k), rank, max_cluster_size=limit)
    large = {one for one in whole if whole.count(one) > limit}
    assert_is(clusters, values, [stars[at] if one in large else one for at, one in enumerate(whole)])
    assert clusters.split == sum(len(set(values[np.array(whole) == one].tolist())) > 1 for one in large)


@settings(max_examples=tries(20, 8))
@given(st.integers(0, 2**32), st.sampled_from([0b111111111, 0xFFFF, 2**64 - 1]))
def test_many_rounds_give_the_plain_stars(seed: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**64, 150, dtype=np.uint64) & np.uint64(bits)
    rank = rng.permutation(150)
    assert_is(star(values, find_pairs(values), rank), values, kept_by(plain_stars, values, rank, 3))


@pytest.mark.parametrize("rank", [np.arange(60), np.arange(60)[::-1]], ids=["upwards", "downwards"])
def test_a_chain_is_one_component_and_many_stars(rank: NDArray[np.int64]) -> None:
    values = np.array([(1 << length) - 1 for length in range(60)], np.uint64)
    pairs = find_pairs(values, max_distance=1)
    whole = components(values, pairs, rank)
    assert len(set(whole.kept.tolist())) == 1
    assert diameters(values, whole).bits.tolist() == [59]
    assert_is(star(values, pairs, rank), values, kept_by(plain_stars, values, rank, 1))


def test_equal_fingerprints_alone_are_a_cluster_that_is_never_split() -> None:
    values, rank = np.array([7] * 5 + [2**64 - 1], np.uint64), np.array([5, 4, 1, 3, 2, 0])
    pairs = find_pairs(values)
    for clusters in (star(values, pairs, rank), components(values, pairs, rank, max_cluster_size=1)):
        assert_is(clusters, values, [2, 2, 2, 2, 2, 5])
        assert clusters.split == 0
        assert [column.tolist() for column in diameters(values, clusters)] == [[2], [0]]


@given(documents())
def test_a_diameter_is_the_greatest_distance_of_two_members(given: Documents) -> None:
    values, rank, k = given
    clusters = components(values, find_pairs(values, max_distance=k), rank)
    found = diameters(values, clusters)
    assert dict(zip(found.kept.tolist(), found.bits.tolist(), strict=True)) == by_all_pairs(values, clusters)
    assert found.kept.tolist() == sorted(found.kept.tolist())


@pytest.mark.parametrize("bits", [0xFFFF, 2**64 - 1, 1])
def test_a_large_clusters_diameter_is_exact(bits: int) -> None:
    rng = np.random.default_rng(5)
    values = rng.integers(0, 2**64, 40 * FEW_MEMBERS, dtype=np.uint64) & np.uint64(bits)
    kept = rng.integers(0, 3, len(values))  # any partition will do
    kept[: 2 * FEW_MEMBERS] = [3] * FEW_MEMBERS + [4] * FEW_MEMBERS
    clusters = Clusters(kept, np.zeros(len(values), np.uint8))
    found = diameters(values, clusters)
    assert dict(zip(found.kept.tolist(), found.bits.tolist(), strict=True)) == by_all_pairs(values, clusters)


def by_all_pairs(values: NDArray[np.uint64], clusters: Clusters) -> dict[int, int]:
    members = {one: values[clusters.kept == one] for one in set(clusters.kept.tolist())}
    return {one: int(np.bitwise_count(own[:, None] ^ own).max()) for one, own in members.items() if len(own) > 1}


@pytest.mark.parametrize("rank", [[0, 1], [0, 1, 1], [1, 2, 3], [-1, 0, 1], [0, 1, 2, 3]])
def test_a_rank_that_is_no_permutation_is_refused(rank: list[int]) -> None:
    values = np.arange(3, dtype=np.uint64)
    with pytest.raises(ValueError, match="rank must contain each number from 0 to 2 once"):
        star(values, find_pairs(values), np.array(rank))


def test_fingerprints_must_be_those_of_the_pairs() -> None:
    values = np.arange(3, dtype=np.uint64)
    with pytest.raises(ValueError, match="expected the 3 fingerprints in which the pairs were found, got 2"):
        star(values[:2], find_pairs(values), np.arange(3))


@pytest.mark.parametrize("size", [0, -1])
def test_a_largest_cluster_of_none_is_refused(size: int) -> None:
    values = np.arange(1, dtype=np.uint64)
    with pytest.raises(ValueError, match="max_cluster_size must be at least 1"):
        components(values, find_pairs(values), np.arange(1), max_cluster_size=size)
