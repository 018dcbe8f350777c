"""A fingerprint as a number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.fingerprint import distance, distances, format_fingerprint

FINGERPRINTS = st.integers(0, 2**64 - 1)


@given(FINGERPRINTS, st.lists(FINGERPRINTS, max_size=20))
def test_distances_count_the_bits_that_differ(query: int, others: list[int]) -> None:
    expected = [bin(query ^ other).count("1") for other in others]
    assert distances(query, np.array(others, np.uint64)).tolist() == expected
    assert [distance(query, other) for other in others] == expected


@pytest.mark.parametrize("fp", [0.9, "255", None, True, np.float64(3)])
def test_what_is_no_whole_number_is_refused_by_type(fp: object) -> None:
    with pytest.raises(TypeError, match=f"a fingerprint is an int, not {type(fp).__name__}"):
        format_fingerprint(fp)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a fingerprint is an int"):
        distance(0, fp)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a fingerprint is an int"):
        distances(fp, np.zeros(1, np.uint64))  # type: ignore[arg-type]


def test_numpys_whole_numbers_are_taken() -> None:
    assert format_fingerprint(np.uint64(255)) == format_fingerprint(np.int16(255)) == f"{255:016x}"


@pytest.mark.parametrize("fp", [-1, 2**64])
def test_a_number_outside_64_bits_is_refused(fp: int) -> None:
    with pytest.raises(ValueError, match="below"):
        format_fingerprint(fp)
    with pytest.raises(ValueError, match="below"):
        distance(fp, 0)
    with pytest.raises(ValueError, match="below"):
        distances(fp, np.zeros(1, np.uint64))
