"""simhash-py's functions: their known answers and errors, and the quirks that hsimhash keeps."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.compat import seomoz
from tests.support.oracles import plain_vote

HASHES = st.integers(0, 2**64 - 1)
LANES = [value << shift for shift in (0, 8, 16, 24) for value in (0xFF, 0xEF, 0xEE, 0xCE, 0x33)]


def test_it_installs_no_module_named_simhash() -> None:
    code = "import sys, hsimhash.compat.seomoz; assert 'simhash' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_known_distances() -> None:
    assert seomoz.num_differing_bits(0xDEADBEEF, 0xDEADBEAD) == 2
    assert seomoz.num_differing_bits(0, 2**64 - 1) == 64
    assert seomoz.num_differing_bits(16045690984833335023, 2401053088876216592) == 64


@pytest.mark.parametrize(
    ("hashes", "simhash"),
    [
        ([], 0),
        ([0xABCD, 0xBCDE, 0xCDEF], 0xADCF),
        ([16045690984833335023, 2401053088876216592], 0),
        ([0xDEADBEEF] * 100, 0xDEADBEEF),
        ([1.5], 1),
        ((3, 1, 3), 3),
        (iter([2**64 - 1]), 2**64 - 1),
        ({1, 3, 7}, 3),
        (np.array([1, 3, 3], np.uint64), 3),
        (np.array([1, 3, 3], np.int32), 3),
    ],
)
def test_compute_of_any_iterable(hashes: object, simhash: int) -> None:
    computed = seomoz.compute(hashes)
    assert (computed, type(computed)) == (simhash, int)


@given(st.lists(HASHES))
def test_compute_sets_a_bit_that_more_than_half_of_the_hashes_set(hashes: list[int]) -> None:
    assert seomoz.compute(hashes) == plain_vote((value, 1) for value in hashes)


@pytest.mark.parametrize("blocks", range(4, 10))
def test_find_all_gives_the_same_pairs_for_any_number_of_blocks(blocks: int) -> None:
    pairs = seomoz.find_all(LANES, blocks, 3)
    near = [pair for pair in itertools.combinations(sorted(LANES), 2) if seomoz.num_differing_bits(*pair) <= 3]
    assert pairs == near
    assert len(pairs) == 24
    assert all(type(number) is int for pair in pairs for number in pair)


def test_find_all_takes_any_iterable_and_counts_equal_ones_once() -> None:
    expected = [(1, 2), (1, 7), (2, 7)]
    for hashes in ([7, 2, 2, 1, 7], {1, 2, 7}, iter([2, 1, 7]), np.array([7, 1, 2], np.uint64), [7.9, 1, 2]):
        assert seomoz.find_all(hashes, 4, 3) == expected
    assert seomoz.find_all([], 4, 3) == seomoz.find_all([5, 5], 4, 3) == seomoz.find_all([1, 1, 2], 4, 0) == []
    assert seomoz.find_all([1, 2], 64, 63) == [(1, 2)]


@pytest.mark.parametrize(
    ("blocks", "bits", "reason"),
    [
        (3, 3, r"Number of blocks \(3\) must be greater than different_bits \(3\)"),
        (0, 0, r"Number of blocks \(0\) must be greater than different_bits \(0\)"),
        (65, 3, "Number of blocks must not exceed 64"),
    ],
)
@pytest.mark.parametrize("hashes", [[1, 2], []])
def test_blocks_that_cannot_be_are_an_error_where_simhash_py_dies(
    hashes: list[int], blocks: int, bits: int, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        seomoz.find_all(hashes, blocks, bits)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        *((bad, OverflowError) for bad in (-1, 2**64, float("inf"), 1e30)),
        *((bad, TypeError) for bad in ("1", b"1", None, [1])),
    ],
)
def test_what_is_no_64_bit_number_is_refused(bad: object, error: type[Exception]) -> None:
    for call in (
        lambda: seomoz.compute([1, bad]),
        lambda: seomoz.find_all([1, bad], 4, 3),
        lambda: seomoz.num_differing_bits(bad, 1),
    ):
        with pytest.raises(error):
            call()


@pytest.mark.parametrize(
    ("blocks", "bits", "error"),
    [(-1, 3, OverflowError), (4, -1, OverflowError), *((bad, 3, TypeError) for bad in ("1", b"1", None, [1]))],
)
def test_what_is_no_count_is_refused(blocks: object, bits: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        seomoz.find_all([1, 2], blocks, bits)


@given(st.binary())
def test_unsigned_hash_is_the_beginning_of_md5(data: bytes) -> None:
    assert seomoz.unsigned_hash(data) == int(hashlib.md5(data).hexdigest()[:16], 16)


@pytest.mark.parametrize("bad", ["text", None, 5])
def test_unsigned_hash_takes_bytes_alone(bad: object) -> None:
    with pytest.raises(TypeError, match="needs bytes"):
        seomoz.unsigned_hash(bad)


def test_shingle_is_a_moving_window_of_lists() -> None:
    assert list(seomoz.shingle("abcdef")) == [list("abcd"), list("bcde"), list("cdef")]
    assert list(seomoz.shingle(iter("abc"), window=2)) == [["a", "b"], ["b", "c"]]
    assert list(seomoz.shingle("abc", 1)) == [["a"], ["b"], ["c"]]
    assert list(seomoz.shingle("abc")) == []


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_that_is_not_positive_is_an_error_once_iterated(window: int) -> None:
    shingles = seomoz.shingle("abc", window)
    with pytest.raises(ValueError, match="Window size must be positive"):
        next(shingles)
