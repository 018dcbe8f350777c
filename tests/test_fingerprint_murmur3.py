"""Hashes of features, compared with mmh3."""

from __future__ import annotations

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.fingerprint.murmur3 import murmur64, murmur64_spans

SEEDS = st.sampled_from([0, 1, 2**32 - 1])


@given(st.text(max_size=60), SEEDS)
def test_hash_is_the_unsigned_low_half_of_mmh3(text: str, seed: int) -> None:
    assert murmur64(text, seed) == mmh3.hash64(text, seed, signed=False)[0]


@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=30), SEEDS)
def test_spans_hash_as_their_bytes_do(buffer: bytes, cuts: list[tuple[int, int]], seed: int) -> None:
    spans = [tuple(sorted((min(a, len(buffer)), min(b, len(buffer))))) for a, b in cuts]
    starts, ends = (np.array([span[side] for span in spans], np.int64) for side in (0, 1))
    expected = [murmur64(buffer[a:b], seed) for a, b in spans]
    assert murmur64_spans(buffer, starts, ends, seed).tolist() == expected


@pytest.mark.parametrize("length", [0, 1, 8, 15, 16, 17, 511, 512, 513, 100_000])
def test_a_span_of_any_length_hashes_as_its_bytes_do(length: int) -> None:
    buffer = bytes(range(256)) * (length // 256 + 2)
    found = murmur64_spans(buffer, np.array([3, 0]), np.array([3 + length, 5]))
    assert found.tolist() == [murmur64(buffer[3 : 3 + length]), murmur64(buffer[:5])]
