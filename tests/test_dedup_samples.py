"""Pairs just beyond the distance searched for, checked against a comparison of all pairs."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.dedup import DedupOptions
from hsimhash.dedup.summary import BEYOND_BITS, HELD, find_beyond, some_beyond, some_within
from hsimhash.fingerprint import Signature, Signatures
from hsimhash.fingerprint.signature import as_signatures
from hsimhash.pairs import find_pairs, group_equal
from tests.support.oracles import are_near, crowds, signed


@given(st.lists(st.integers(0, 2**12 - 1), max_size=40), st.integers(0, 64))
def test_of_few_fingerprints_all_pairs_are_counted(values: list[int], max_distance: int) -> None:
    found = find_beyond(Signatures.of(values), group_equal(values), DedupOptions(max_distance=max_distance))
    plain = Counter((a ^ b).bit_count() for a, b in combinations(set(values), 2))
    stop = min(max_distance + BEYOND_BITS, 64) + 1
    assert found.pairs == {bits: plain[bits] for bits in range(max_distance + 1, stop)}
    assert found.sampled == found.distinct == len(set(values))
    for bits, held in found.held.items():
        assert len(held) == plain[bits]
        assert all((values[a] ^ values[b]).bit_count() == bits and a < b for a, b in held)


@given(signed(crowds(20, bits=6)), st.integers(0, 4), st.sampled_from([None, 0, 2, 6]))
def test_of_signatures_those_are_counted_that_a_greater_distance_would_add(
    signatures: list[Signature], k: int, most: int | None
) -> None:
    found = find_beyond(as_signatures(signatures), group_equal(signatures), DedupOptions(k, most))
    for bits, count in found.pairs.items():
        added = {
            pair
            for pair in combinations(sorted(set(signatures), key=signatures.index), 2)
            if are_near(*pair, bits, most) and not are_near(*pair, bits - 1, most) and not are_near(*pair, k, most)
        }
        at_once = {pair for pair in added if (pair[0].fingerprint ^ pair[1].fingerprint).bit_count() == bits}
        assert count == len(added) == len(at_once)


@pytest.mark.parametrize("bits", [4, 5, 6])
def test_of_many_fingerprints_the_pairs_are_estimated(bits: int) -> None:
    rng = np.random.default_rng(bits)
    values = rng.integers(0, 2**64, 50_000, np.uint64)
    near = values[:8_000] ^ np.uint64((1 << bits) - 1)
    fingerprints = np.concatenate([values, near])
    found = find_beyond(Signatures.of(fingerprints), np.arange(len(fingerprints)), DedupOptions(max_distance=3))
    assert found.sampled < found.distinct == len(fingerprints)
    assert 7_000 < found.pairs[bits] < 9_000
    assert sum(found.pairs.values()) - found.pairs[bits] < 100


def test_what_is_held_is_bounded_where_all_are_near_all() -> None:
    fingerprints = np.arange(4_096, dtype=np.uint64)
    found = find_beyond(Signatures.of(fingerprints), np.arange(4_096), DedupOptions(max_distance=3))
    assert found.pairs[4] == 4_096 * 495 // 2
    assert max(map(len, found.held.values())) <= HELD
    assert len(some_beyond(found, 4, 3)) == 3


def test_pairs_of_a_distance_are_spread_over_all_of_them() -> None:
    fingerprints = np.concatenate([np.arange(0, 1 << 20, 1 << 10), np.arange(0, 1 << 20, 1 << 10) + 1, [0, 0]])
    pairs = find_pairs(fingerprints.astype(np.uint64), max_distance=1)
    assert some_within(pairs, 0, 3) == [(0, 2_048), (0, 2_049)]
    chosen = some_within(pairs, 1, 3)
    assert len(chosen) == 3
    assert max(left for left, _ in chosen) - min(left for left, _ in chosen) > 500
    assert some_within(pairs, 2, 3) == []
