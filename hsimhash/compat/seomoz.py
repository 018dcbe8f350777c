"""The functions of simhash-py 0.4 (and simhash-pybind), with the same results: `from hsimhash.compat import seomoz`.

Where simhash-py crashes the interpreter, these functions raise `ValueError`, as simhash-pybind does.
"""

from __future__ import annotations

import hashlib
import operator
from collections import deque
from collections.abc import Iterable, Iterator
from typing import SupportsIndex, SupportsInt, TypeVar

import numpy as np

from hsimhash.fingerprint import distance
from hsimhash.fingerprint.bits import LIMIT, Uint64s, sorted_distinct
from hsimhash.fingerprint.vote import vote
from hsimhash.pairs import find_pairs

__all__ = ["compute", "find_all", "num_differing_bits", "shingle", "unsigned_hash"]

MOST_BLOCKS = 64

T = TypeVar("T")


def unsigned_hash(obj: bytes) -> int:
    """Return the first 8 bytes of the MD5 digest, big-endian.

    Raises:
        TypeError: `obj` is not `bytes`; encode a `str` first.
    """
    if not isinstance(obj, bytes):
        raise TypeError(f"unsigned_hash needs bytes, got {type(obj).__name__}; encode a text first")
    return int.from_bytes(hashlib.md5(obj, usedforsecurity=False).digest()[:8], "big")


def compute(hashes: Iterable[SupportsInt]) -> int:
    """Return the simhash of unsigned 64-bit hashes: a bit is 1 if more than half of them set it; 0 without hashes.

    Fractions are truncated.

    Raises:
        OverflowError: A hash is negative or not below 2**64.
    """
    values = _array(hashes)
    return int(vote(np.zeros(len(values), np.int64), values, np.ones(len(values)), 1)[0])


def find_all(
    hashes: Iterable[SupportsInt], number_of_blocks: SupportsIndex, different_bits: SupportsIndex
) -> list[tuple[int, int]]:
    """Return all pairs of different hashes within `different_bits` of each other, as sorted (lower, higher) tuples.

    Args:
        hashes: Unsigned 64-bit numbers; duplicates are ignored.
        number_of_blocks: More than `different_bits`, at most 64; it does not affect the result.
        different_bits: Maximum distance in bits; 0 does not find any pairs.

    Raises:
        ValueError: `number_of_blocks` is out of range.
        OverflowError: A number is negative or too large.
    """
    blocks, bits = _count(number_of_blocks), _count(different_bits)
    values = sorted_distinct(_array(hashes))
    if blocks <= bits:
        raise ValueError(f"Number of blocks ({blocks}) must be greater than different_bits ({bits})")
    if blocks > MOST_BLOCKS:
        raise ValueError(f"Number of blocks must not exceed {MOST_BLOCKS}")
    pairs = find_pairs(values, max_distance=bits)
    return list(zip(values[pairs.left].tolist(), values[pairs.right].tolist(), strict=True))


def num_differing_bits(a: SupportsInt, b: SupportsInt) -> int:
    """Return the number of bits in which two unsigned 64-bit numbers differ.

    Raises:
        OverflowError: A number is out of range.
    """
    return distance(_hash(a), _hash(b))


def shingle(tokens: Iterable[T], window: int = 4) -> Iterator[list[T]]:
    """Yield each run of `window` tokens as a list; nothing if there are fewer tokens.

    Raises:
        ValueError: `window` is not positive; raised when the first item is requested.
    """
    if window <= 0:
        raise ValueError("Window size must be positive")
    held: deque[T] = deque(maxlen=window)
    for token in tokens:
        held.append(token)
        if len(held) == window:
            yield list(held)


def _array(hashes: Iterable[SupportsInt]) -> Uint64s:
    if isinstance(hashes, np.ndarray) and hashes.dtype == np.uint64:
        return hashes
    return np.array([_hash(value) for value in hashes], np.uint64)


def _hash(value: SupportsInt) -> int:
    if not hasattr(value, "__int__"):
        raise TypeError(f"expected an integer, got {type(value).__name__}: {value!r:.80}")
    number = int(value)
    if 0 <= number < LIMIT:
        return number
    raise OverflowError(f"a hash must be at least 0 and below 2**64, got {value!r:.80}")


def _count(value: SupportsIndex) -> int:
    number = operator.index(value)
    if number < 0:
        raise OverflowError(f"the number of blocks or bits must be at least 0, got {number}")
    return number
