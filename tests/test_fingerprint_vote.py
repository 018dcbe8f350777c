"""The vote, against its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.fingerprint.vote import vote, vote_in_order

HASHES = st.integers(0, 2**64 - 1)


def loop(features: list[tuple[int, float]]) -> int:
    """Vote as the definition says."""
    sums = [0.0] * 64
    for hashed, weight in features:
        for bit in range(64):
            sums[bit] += weight if hashed >> bit & 1 else -weight
    return sum(1 << bit for bit in range(64) if sums[bit] > 0)


def arrays(documents: list[list[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    flat = [(doc, *feature) for doc, features in enumerate(documents) for feature in features]
    doc, hashes, weights = zip(*flat, strict=True) if flat else ((), (), ())
    return np.array(doc, np.int64), np.array(hashes, np.uint64), np.array(weights, np.float64), len(documents)


@given(st.lists(st.lists(st.tuples(HASHES, st.integers(1, 2**40)), max_size=20), max_size=6), st.randoms())
def test_vote_equals_the_loop_in_any_order(documents: list[list[tuple[int, float]]], random: object) -> None:
    expected = [loop(features) for features in documents]
    doc, hashes, weights, count = arrays(documents)
    order = np.array(random.sample(range(len(doc)), len(doc)), np.int64)  # type: ignore[attr-defined]
    assert vote(doc[order], hashes[order], weights[order], count).tolist() == expected


@given(st.lists(st.lists(st.tuples(HASHES, st.floats(1e-3, 1e3)), max_size=20), max_size=6))
def test_vote_in_order_equals_the_loop_over_floats(documents: list[list[tuple[int, float]]]) -> None:
    assert vote_in_order(*arrays(documents)).tolist() == [loop(features) for features in documents]


@pytest.mark.parametrize(
    ("hashes", "expected"),
    [
        ([0xABCD, 0xBCDE, 0xCDEF], 0xADCF),
        ([0xABCD, 0xABCD ^ (2**64 - 1)], 0),
        ([], 0),
        ([2**64 - 1], 2**64 - 1),
    ],
)
def test_known_answers(hashes: list[int], expected: int) -> None:
    for function in (vote, vote_in_order):
        assert function(*arrays([[(hashed, 1) for hashed in hashes]])).tolist() == [expected]


def test_sums_near_the_limit_are_exact() -> None:
    huge = 2**51
    features = [(1, huge), (1, huge + 1), (2, huge), (2, huge)]
    assert vote(*arrays([features])).tolist() == [1]
