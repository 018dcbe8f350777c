"""The vote: each feature adds its weight to the bits that its hash sets and takes it from the others.

A bit of the fingerprint is 1 if its sum is above 0; an even vote is 0.

Source: Charikar, STOC 2002; weighted as in Manku, Jain, Das Sarma, WWW 2007, section 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BITS, _BYTES = 64, 8
EXACT_LIMIT = 1 << 53  # a document's weights must sum to less: so far float64 counts integers exactly

# What one byte value votes for each of its bits, lowest first: 256 x 8, +1 or -1.
_SIGNS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float64) * 2 - 1


def vote(
    doc: NDArray[np.int64], hashes: NDArray[np.uint64], weights: NDArray[np.float64], documents: int
) -> NDArray[np.uint64]:
    """Return each document's fingerprint from whole-number weights: exact, whatever the order of the features.

    Weighted histograms of the hashes' 8 bytes first, then one 256 x 8 table of signs: five times faster than a sum
    over unpacked bits.

    Args:
        doc: shape (m,), the document of each feature, 0 to `documents` - 1, in any order.
        hashes: shape (m,).
        weights: shape (m,), whole numbers; those of a document sum to less than `EXACT_LIMIT`.
        documents: how many; those without features get 0.
    """
    row = doc << 8
    octets = _octets(hashes)
    sums = np.empty((documents, _BITS))
    for byte in range(_BYTES):
        histogram = np.bincount(row + octets[:, byte], weights, documents << 8).reshape(documents, 256)
        sums[:, byte * 8 : byte * 8 + 8] = histogram @ _SIGNS
    return _pack(sums)


def vote_in_order(
    doc: NDArray[np.int64], hashes: NDArray[np.uint64], weights: NDArray[np.float64], documents: int
) -> NDArray[np.uint64]:
    """Return each document's fingerprint from float weights, added one by one in the order of the features.

    `bincount` adds in the order of its input, so the sums, and so the bits, are those of a plain loop on any machine.
    """
    signs = _SIGNS[_octets(hashes)].reshape(-1, _BITS)
    sums = np.empty((documents, _BITS))
    for bit in range(_BITS):
        sums[:, bit] = np.bincount(doc, weights * signs[:, bit], documents)
    return _pack(sums)


def _octets(hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(hashes, "<u8").view(np.uint8).reshape(-1, _BYTES)


def _pack(sums: NDArray[np.float64]) -> NDArray[np.uint64]:
    return np.packbits(sums > 0, axis=1, bitorder="little").view("<u8").ravel().astype(np.uint64)
