"""A fingerprint as a number: what is one, how it prints, how far it is from another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FINGERPRINT_BITS = 64
FINGERPRINT_DIGITS = FINGERPRINT_BITS // 4
LIMIT = 1 << FINGERPRINT_BITS
Fingerprints = Sequence[int] | NDArray[np.uint64]  # shape (n,), unsigned 64-bit


def format_fingerprint(fp: int) -> str:
    """Return the fingerprint as 16 lower-case hexadecimal digits."""
    return f"{as_fingerprint(fp):0{FINGERPRINT_DIGITS}x}"


def distance(a: int, b: int) -> int:
    """Return the Hamming distance between two fingerprints, in bits."""
    return (as_fingerprint(a) ^ as_fingerprint(b)).bit_count()


def distances(query: int, fingerprints: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return the Hamming distance from `query` to each fingerprint.

    Args:
        query: unsigned 64-bit fingerprint.
        fingerprints: shape (n,), uint64, native byte order; not copied.

    Returns:
        Shape (n,), uint8, in bits, 0 to 64, in the order given.

    Raises:
        ValueError: `query` is outside [0, 2**64).
    """
    bits: NDArray[np.uint8] = np.bitwise_count(fingerprints ^ np.uint64(as_fingerprint(query)))
    return bits


def as_fingerprint(value: int) -> int:
    """Return a fingerprint as an int; `ValueError` or `TypeError` where it is none."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"a fingerprint is an int, not {type(value).__name__}: {value!r:.80}")
    number = int(value)
    if 0 <= number < LIMIT:
        return number
    raise ValueError(f"fingerprint {value} is outside [0, 2**64); give an unsigned number below 2**64")


def as_fingerprints(fingerprints: Fingerprints) -> NDArray[np.uint64]:
    """Return fingerprints as an array of shape (n,), uint64; `ValueError` or `TypeError` names what is none."""
    if isinstance(fingerprints, np.ndarray) and fingerprints.dtype == np.uint64 and fingerprints.ndim == 1:
        return fingerprints
    numbers: list[int] = fingerprints.tolist() if isinstance(fingerprints, np.ndarray) else list(fingerprints)
    if numbers and set(map(type, numbers)) == {int} and 0 <= min(numbers) <= max(numbers) < LIMIT:
        return np.array(numbers, np.uint64)  # the usual ones, without a loop
    return np.array(list(map(as_fingerprint, numbers)), np.uint64)
