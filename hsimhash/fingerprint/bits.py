"""A fingerprint as a number: how it prints, how it is read, how far it is from another."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

FINGERPRINT_BITS = 64
FINGERPRINT_DIGITS = FINGERPRINT_BITS // 4
LIMIT = 1 << FINGERPRINT_BITS

_HEX = re.compile(rf"0[xX][0-9a-fA-F]{{1,{FINGERPRINT_DIGITS}}}|[0-9a-fA-F]{{{FINGERPRINT_DIGITS}}}")
_DECIMAL = re.compile(r"[0-9]{1,20}")


def format_fingerprint(fp: int) -> str:
    """Return the fingerprint as 16 lower-case hexadecimal digits."""
    return f"{_checked(fp):0{FINGERPRINT_DIGITS}x}"


def parse_fingerprint(text: str) -> int:
    """Return the fingerprint that `text` writes.

    Exactly 16 hexadecimal digits are always read as hexadecimal, all-digit ones included; `0x` and up to 16 digits
    too; any other row of digits is decimal.

    Raises:
        ValueError: it is none of these, or not below 2**64.
    """
    word = text.strip()
    if _HEX.fullmatch(word):
        return int(word, 16)
    if _DECIMAL.fullmatch(word) and int(word) < LIMIT:
        return int(word)
    raise ValueError(
        f"not a fingerprint: {text[:80]!r}; accepted are 16 hexadecimal digits, 0x and up to 16 of them, "
        "or a decimal number below 2**64 that has not exactly 16 digits"
    )


def distance(a: int, b: int) -> int:
    """Return the Hamming distance between two fingerprints, in bits."""
    return (_checked(a) ^ _checked(b)).bit_count()


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
    bits: NDArray[np.uint8] = np.bitwise_count(fingerprints ^ np.uint64(_checked(query)))
    return bits


def _checked(fp: int) -> int:
    if not isinstance(fp, (int, np.integer)) or isinstance(fp, bool):
        raise TypeError(f"a fingerprint is an int, not {type(fp).__name__}: {fp!r:.80}")
    number = int(fp)
    if 0 <= number < LIMIT:
        return number
    raise ValueError(f"a fingerprint is at least 0 and below 2**64, not {fp}")
