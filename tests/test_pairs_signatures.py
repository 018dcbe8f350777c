"""Pairs of signatures compared with brute force, by the rule as it is documented."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint import Signature, Signatures
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import as_signatures, similarities, similarity
from hsimhash.pairs import Clusters, components, find_pairs, group_equal, star
from tests.support.effort import tries
from tests.support.oracles import are_near, crowds, packed_key, plain_components, plain_stars, signed


@pytest.mark.parametrize("keying", Keying)
@settings(max_examples=tries(300, 60))
@given(st.data(), st.integers(0, 3), st.sampled_from([None, 0, 1, 4, 64]))
def test_pairs_equal_brute_force(keying: Keying, data: st.DataObject, k: int, most: int | None) -> None:
    signatures = data.draw(signed(crowds(25, bits=6), keying))
    count = len(signatures)
    firsts = [signatures.index(one) for one in signatures]
    every = [(left, right) for right in range(count) for left in range(right)]
    near = {(left, right) for left, right in every if are_near(signatures[left], signatures[right], k, most, keying)}
    given = replace(as_signatures(signatures), keying=keying)
    found = find_pairs(given, max_distance=k, max_sketch=most)
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == sorted(
        (left, right) for left, right in near if firsts[left] == left and firsts[right] == right
    )
    ends = zip(found.left.tolist(), found.right.tolist(), strict=True)
    assert found.distance.tolist() == [
        (signatures[left].fingerprint ^ signatures[right].fingerprint).bit_count() for left, right in ends
    ]
    assert found.groups.tolist() == group_equal(signatures).tolist() == firsts
    expanded = [
        pair for block in found.expand() for pair in zip(block.left.tolist(), block.right.tolist(), strict=True)
    ]
    assert (len(expanded), set(expanded)) == (len(near), near)
    candidates = find_pairs(given, max_distance=k, max_sketch=None)
    assert len(found.left) + found.unconfirmed == len(candidates.left)


@pytest.mark.parametrize(("method", "plain"), [(star, plain_stars), (components, plain_components)])
@given(signed(crowds(25, bits=6)), st.integers(0, 3), st.sampled_from([None, 0, 4]), st.data())
def test_clusters_are_those_of_the_plain_way(
    method: Callable[..., Clusters],
    plain: Callable[..., list[int]],
    signatures: list[Signature],
    k: int,
    most: int | None,
    data: st.DataObject,
) -> None:
    order = data.draw(st.permutations(range(len(signatures))))
    given = as_signatures(signatures)
    clusters = method(given.fingerprints, find_pairs(given, max_distance=k, max_sketch=most), np.argsort(order))
    assert clusters.kept.tolist() == plain(signatures, order, k, most)


@given(crowds(30, bits=6), st.integers(0, 3))
def test_without_sketches_and_keys_they_are_fingerprints(values: list[int], k: int) -> None:
    plain, found = (find_pairs(given, max_distance=k) for given in (values, Signatures.of(values)))
    for name in ("left", "right", "distance", "groups"):
        assert np.array_equal(getattr(found, name), getattr(plain, name))


@pytest.mark.parametrize("shared", ["key", "part", "fingerprint"])
def test_a_key_or_a_fingerprint_of_thousands_is_looked_at_in_bounded_memory(shared: str) -> None:
    rng = np.random.default_rng(1)
    count = 8_000
    some, sketches = rng.integers(1, 2**64, (2, count), np.uint64)
    some[:100], sketches[:100] = some[100:200] ^ np.uint64(0xFFF), sketches[100:200] ^ np.uint64(0xFF)
    same = np.full(count, 7, np.uint64)
    keying, kinds = Keying.WHOLE, np.zeros(count, np.uint8)
    if shared == "part":
        tags = ([1, 2, 3, number % 4_000, number // 4_000] for number in range(count))
        same = np.array(list(map(packed_key, tags)), np.uint64)
        keying = Keying.IN_PARTS
    parts = (same, sketches, some) if shared == "fingerprint" else (some, sketches, same)
    signatures = Signatures(*parts, kinds, keying)
    tracemalloc.start()
    try:
        found = find_pairs(signatures, max_sketch=10)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert list(zip(found.left.tolist(), found.right.tolist(), strict=True)) == [(n, n + 100) for n in range(100)]
    assert found.unconfirmed == count * (count - 1) // 2 - 100
    assert peak < 8 * found.unconfirmed


@pytest.mark.parametrize(
    ("most", "error", "reason"),
    [
        (65, ValueError, "max_sketch must be 0 to 64, or None to ignore sketches, got 65"),
        (-1, ValueError, "must be 0 to 64"),
        (1.0, TypeError, "got float"),
    ],
)
def test_a_wrong_sketch_distance_is_refused(most: int, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        find_pairs([1], max_sketch=most)


@given(st.lists(st.tuples(*[st.sampled_from([0, 1, 0xFF, 2**32 - 1, 2**64 - 1])] * 2)))
def test_similarities_are_those_of_one_pair_each(sketches: list[tuple[int, int]]) -> None:
    some, others = np.array(sketches, np.uint64).reshape(-1, 2).T
    found = [None if np.isnan(value) else value for value in similarities(some, others).tolist()]
    assert found == [similarity(*pair) for pair in sketches]
