"""A fingerprint as a number."""

from __future__ import annotations

from functools import partial

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


def test_numpys_whole_numbers_are_taken() -> None:
    assert format_fingerprint(np.uint64(255)) == format_fingerprint(np.int16(255)) == f"{255:016x}"


@pytest.mark.parametrize(
    ("fp", "error", "reason"),
    [
        *((fp, TypeError, f"an int, not {type(fp).__name__}") for fp in (0.9, "255", None, True, np.float64(3))),
        *((fp, ValueError, "below") for fp in (-1, 2**64)),
    ],
)
def test_what_is_no_fingerprint_is_refused(fp: object, error: type[Exception], reason: str) -> None:
    for call in (format_fingerprint, partial(distance, 0), lambda fp: distances(fp, np.zeros(1, np.uint64))):
        with pytest.raises(error, match=reason):
            call(fp)
