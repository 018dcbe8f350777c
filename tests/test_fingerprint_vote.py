"""The vote, compared with its definition."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint.vote import fold_hashes, fold_weights, vote, vote_alike, vote_in_order
from tests.support.oracles import plain_vote

HASHES = st.integers(0, 2**64 - 1)
TIE = [[(5, 1), (2**64 - 1 - 5, 1)], []]


def arrays(documents: list[list[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    flat = [(doc, *feature) for doc, features in enumerate(documents) for feature in features]
    doc, hashes, weights = zip(*flat, strict=True) if flat else ((), (), ())
    return np.array(doc, np.int64), np.array(hashes, np.uint64), np.array(weights, np.float64), len(documents)


@given(st.lists(st.lists(st.tuples(HASHES, st.integers(1, 2**40)), max_size=20), max_size=6), st.randoms())
@example(TIE, Random(1))
def test_vote_equals_the_plain_one_in_any_order(documents: list[list[tuple[int, float]]], random: Random) -> None:
    expected = [plain_vote(features) for features in documents]
    doc, hashes, weights, count = arrays(documents)
    order = np.array(random.sample(range(len(doc)), len(doc)), np.int64)
    assert vote(doc[order], hashes[order], weights[order], count).tolist() == expected


@given(st.lists(st.lists(st.tuples(HASHES, st.floats(1e-3, 1e3)), max_size=20), max_size=6))
@example(TIE)
def test_vote_in_order_of_floats_equals_the_plain_one(documents: list[list[tuple[int, float]]]) -> None:
    assert vote_in_order(*arrays(documents)).tolist() == [plain_vote(features) for features in documents]


def test_sums_near_the_limit_are_exact() -> None:
    huge = 2**51
    features = [(1, huge), (1, huge + 1), (2, huge), (2, huge)]
    assert vote(*arrays([features])).tolist() == [1]


@settings(max_examples=60)
@given(st.lists(st.integers(0, 700), max_size=6), st.sampled_from(["zero", "one"]), st.integers(0, 99))
def test_features_that_weigh_the_same_vote_as_with_weights(sizes: list[int], tie: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    doc = np.repeat(np.arange(len(sizes)), sizes)
    hashes = rng.choice(
        rng.integers(0, 2**64, 3, np.uint64), len(doc)
    )  # few, so that votes are even and sums are large
    expected = vote(doc, hashes, np.full(len(doc), 7.0), len(sizes), tie)
    assert vote_alike(doc, hashes, len(sizes), tie).tolist() == expected.tolist()


ALIKE = [[(6, 1.0), (7, 2.0), (6, 4.0)], [], [(7, 8.0), (2**63, 16.0)]]  # hashes that differ only in their last bits


@given(st.lists(st.lists(st.tuples(HASHES | st.integers(0, 3), st.integers(1, 9)), max_size=20), max_size=6))
@example(ALIKE)
def test_features_of_a_document_that_share_a_hash_are_one(documents: list[list[tuple[int, float]]]) -> None:
    doc, hashes, weights, _ = arrays(documents)
    pairs = list(zip(doc.tolist(), hashes.tolist(), strict=True))
    counts, sums = Counter(pairs), Counter[tuple[int, int]]()
    for pair, weight in zip(pairs, weights.tolist(), strict=True):
        sums[pair] += weight
    distinct = sorted(counts)
    first, shared = fold_hashes(doc, hashes)
    assert first.tolist() == [pairs.index(pair) for pair in distinct]
    assert shared.tolist() == [counts[pair] for pair in distinct]
    folded, total = fold_weights(doc, hashes, weights)
    assert folded.tolist() == first.tolist()
    assert total.tolist() == [sums[pair] for pair in distinct]
