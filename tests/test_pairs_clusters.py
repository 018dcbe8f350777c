"""Clusters against a plain greedy loop, a plain union-find and all pairs compared."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash.pairs import PairBlock, find_pairs, iter_pairs
from hsimhash.pairs.clusters import FEW_MEMBERS, Clusters, components, diameters, linked, star

FLIPS = st.lists(st.integers(0, 63), max_size=4)


@st.composite
def documents(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Fingerprints with near and equal ones among them, a rank, and k."""
    centres = draw(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=3))
    drawn = draw(st.lists(st.tuples(st.sampled_from(centres), FLIPS), max_size=40))
    fingerprints = [centre ^ sum({1 << bit for bit in flips}) for centre, flips in drawn]
    rank = draw(st.permutations(range(len(fingerprints))))
    return fingerprints, rank, draw(st.integers(0, 3))


def are_near(a: int, b: int, k: int) -> bool:
    return (a ^ b).bit_count() <= k


def greedy(fingerprints: list[int], rank: list[int], k: int) -> list[int]:
    kept: dict[int, int] = {}
    for document in sorted(range(len(rank)), key=rank.__getitem__):
        if document not in kept:
            for other in range(len(rank)):
                if other not in kept and are_near(fingerprints[document], fingerprints[other], k):
                    kept[other] = document
    return [kept[document] for document in range(len(rank))]


def joined(fingerprints: list[int], rank: list[int], k: int) -> list[int]:
    label = list(range(len(rank)))
    for a in range(len(rank)):
        for b in range(a):
            if are_near(fingerprints[a], fingerprints[b], k):
                old, new = label[a], label[b]
                label = [new if one == old else one for one in label]
    return [min((other for other in range(len(rank)) if label[other] == one), key=rank.__getitem__) for one in label]


def arrays(fingerprints: list[int], rank: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(fingerprints, np.uint64), np.array(rank, np.int64)


def assert_is(clusters: Clusters, fingerprints: list[int], kept: list[int]) -> None:
    assert clusters.kept.tolist() == kept
    distances = [(fingerprints[at] ^ fingerprints[one]).bit_count() for at, one in enumerate(kept)]
    assert clusters.distance.tolist() == distances
    assert clusters.kept.dtype == np.int64
    assert clusters.distance.dtype == np.uint8


@given(documents())
def test_star_is_the_plain_greedy_loop(given: tuple[list[int], list[int], int]) -> None:
    fingerprints, rank, k = given
    values, ranks = arrays(fingerprints, rank)
    clusters = star(values, find_pairs(values, max_distance=k), ranks)
    assert_is(clusters, fingerprints, greedy(fingerprints, rank, k))
    assert clusters.distance.max(initial=0) <= k
    assert clusters.split == 0


@given(documents())
def test_components_are_a_union_find(given: tuple[list[int], list[int], int]) -> None:
    fingerprints, rank, k = given
    values, ranks = arrays(fingerprints, rank)
    clusters = components(values, find_pairs(values, max_distance=k), ranks)
    assert_is(clusters, fingerprints, joined(fingerprints, rank, k))
    assert clusters.split == 0


@given(documents())
def test_linked_blocks_are_the_components(given: tuple[list[int], list[int], int]) -> None:
    values, k = np.array(given[0], np.uint64), given[2]
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
    assert peak < blocks * pairs * 17 / 2  # bytes of a pair


@given(documents(), st.integers(1, 12))
def test_components_that_are_too_large_are_cut_into_stars(given: tuple[list[int], list[int], int], limit: int) -> None:
    fingerprints, rank, k = given
    values, ranks = arrays(fingerprints, rank)
    whole, stars = joined(fingerprints, rank, k), greedy(fingerprints, rank, k)
    clusters = components(values, find_pairs(values, max_distance=k), ranks, max_cluster_size=limit)
    large = {one for one in whole if whole.count(one) > limit}
    assert_is(clusters, fingerprints, [stars[at] if one in large else one for at, one in enumerate(whole)])
    several = {one for one in large if len({fingerprints[at] for at, other in enumerate(whole) if other == one}) > 1}
    assert clusters.split == len(several)


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.sampled_from([0b111111111, 0xFFFF, 2**64 - 1]))
def test_many_rounds_give_the_plain_greedy_loop(seed: int, bits: int) -> None:
    rng = np.random.default_rng(seed)
    fingerprints = (rng.integers(0, 2**64, 150, dtype=np.uint64) & np.uint64(bits)).tolist()
    rank = rng.permutation(150).tolist()
    values, ranks = arrays(fingerprints, rank)
    assert_is(star(values, find_pairs(values), ranks), fingerprints, greedy(fingerprints, rank, 3))


@pytest.mark.parametrize("rank", [list(range(60)), list(range(60))[::-1]])
def test_a_chain_is_one_component_and_many_stars(rank: list[int]) -> None:
    fingerprints = [(1 << length) - 1 for length in range(60)]
    values, ranks = arrays(fingerprints, rank)
    pairs = find_pairs(values, max_distance=1)
    assert len(set(components(values, pairs, ranks).kept.tolist())) == 1
    assert_is(star(values, pairs, ranks), fingerprints, greedy(fingerprints, rank, 1))
    assert diameters(values, components(values, pairs, ranks)).bits.tolist() == [59]


def test_equal_fingerprints_alone_are_a_cluster_that_is_never_split() -> None:
    values, rank = arrays([7] * 5 + [2**64 - 1], [5, 4, 1, 3, 2, 0])
    pairs = find_pairs(values)
    for clusters in (star(values, pairs, rank), components(values, pairs, rank, max_cluster_size=1)):
        assert_is(clusters, values.tolist(), [2, 2, 2, 2, 2, 5])
        assert clusters.split == 0
        assert [column.tolist() for column in diameters(values, clusters)] == [[2], [0]]


def test_no_documents_have_no_clusters() -> None:
    values, rank = arrays([], [])
    for clusters in (star(values, find_pairs(values), rank), components(values, find_pairs(values), rank)):
        assert clusters.kept.tolist() == clusters.distance.tolist() == []
        assert diameters(values, clusters).bits.tolist() == []


@given(documents())
def test_a_diameter_is_the_greatest_distance_of_two_members(given: tuple[list[int], list[int], int]) -> None:
    fingerprints, rank, k = given
    values, ranks = arrays(fingerprints, rank)
    clusters = components(values, find_pairs(values, max_distance=k), ranks)
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


def by_all_pairs(values: np.ndarray, clusters: Clusters) -> dict[int, int]:
    members = {one: values[clusters.kept == one] for one in set(clusters.kept.tolist())}
    return {one: int(np.bitwise_count(own[:, None] ^ own).max()) for one, own in members.items() if len(own) > 1}


@pytest.mark.parametrize("rank", [[0, 1], [0, 1, 1], [1, 2, 3], [-1, 0, 1], [0, 1, 2, 3]])
def test_a_rank_that_is_no_permutation_is_refused(rank: list[int]) -> None:
    values, ranks = arrays([1, 2, 3], rank)
    with pytest.raises(ValueError, match="rank must hold each of 0 to 2 once"):
        star(values, find_pairs(values), ranks)


def test_fingerprints_must_be_those_of_the_pairs() -> None:
    values, rank = arrays([1, 2, 3], [0, 1, 2])
    with pytest.raises(ValueError, match="2 fingerprints, but the pairs are of 3"):
        star(values[:2], find_pairs(values), rank)


@pytest.mark.parametrize("size", [0, -1])
def test_a_largest_cluster_of_none_is_refused(size: int) -> None:
    values, rank = arrays([1], [0])
    with pytest.raises(ValueError, match="max_cluster_size must be at least 1"):
        components(values, find_pairs(values), rank, max_cluster_size=size)
