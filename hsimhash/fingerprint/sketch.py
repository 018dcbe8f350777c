"""Sketches confirm that texts are near; see `keys` for what finds them besides fingerprints.

*Sketch*: 64 one-bit min-hashes of a text's shingles of three words or characters. Two texts whose shingles have the
Jaccard similarity J agree in a bit with probability (1 + J) / 2, so of 64 bits about 32 · (1 - J) differ.
One permutation does for all 64: a shingle's hash says which bit it belongs to (its 6 highest bits) and how small it is
(the others). A bit without a shingle borrows from another, in an order of its own that is the same for every text.

Sources: Li, König, "b-Bit Minwise Hashing", WWW 2010; Li, Owen, Zhang, "One Permutation Hashing", NIPS 2012;
Shrivastava, "Optimal Densification for Fast and Accurate Minwise Hashing", ICML 2017.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hsimhash.fingerprint.bits import Bools, Floats, Int64s, Uint32s, Uint64s
from hsimhash.fingerprint.murmur3 import mix

SKETCH_BITS = 64
MOST_SHINGLE = 3  # words, or characters of scripts without spaces

_BIN_BITS = 6
_VALUE_BITS = 64 - _BIN_BITS
_SAMPLED = 8  # one in so many features tells which weights are heavy
_HEAVY = 4  # as many times as are wanted of a document are heavy
_NONE = np.uint64((1 << 64) - 1)  # greater than any value
# Odd constants, one for each place of a shingle.
_PLACES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


def sketches(doc: Int64s, shingles: Uint64s, documents: int) -> Uint64s:
    """Return each document's sketch; 0 for those without a shingle.

    Args:
        doc: shape (m,), the document of each shingle, 0 to `documents` - 1, in any order.
        shingles: shape (m,), their hashes; repeated ones change nothing.
        documents: how many.
    """
    return sketches_of(least_values(doc, shingles, documents))


def least_values(doc: Int64s, shingles: Uint64s, documents: int) -> Uint64s:
    """Return the smallest shingle of each bit, shape (documents, 64); `sketches_of` turns them into sketches.

    Those of a text in parts are the minimum of its parts.
    """
    every: Uint64s = np.full(documents * SKETCH_BITS, _NONE)
    place = (doc << _BIN_BITS) | (shingles >> np.uint64(_VALUE_BITS)).astype(np.int64)
    np.minimum.at(every, place, shingles & np.uint64((1 << _VALUE_BITS) - 1))
    return every.reshape(documents, SKETCH_BITS)


def sketches_of(least: Uint64s) -> Uint64s:
    """Return the sketches of documents by the least shingle of each bit."""
    has_any = (least != _NONE).any(axis=1)
    least = _densified(least)
    bits = mix(least) >> np.arange(SKETCH_BITS, dtype=np.uint64) & np.uint64(1)
    words = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little").view("<u8").ravel().astype(np.uint64)
    return present(words, has_any)


def present(values: Uint64s, is_there: Bools) -> Uint64s:
    """Return 0 for what is not there, and 1 for what happens to be 0."""
    return np.where(is_there, np.maximum(values, np.uint64(1)), np.uint64(0))


def _densified(least: Uint64s) -> Uint64s:
    """Return values of shape (documents, 64) where each bit without one has that of the first in its order with one."""
    is_empty = least == _NONE
    doc, bit = np.nonzero(is_empty & ~is_empty.all(axis=1, keepdims=True))
    filled = least.copy()
    for lender in _lenders().T[1:]:
        if not len(doc):
            break
        lent = least[doc, lender[bit]]
        filled[doc, bit] = lent
        doc, bit = doc[lent == _NONE], bit[lent == _NONE]
    return filled


@cache
def _lenders() -> Int64s:
    """Return for each bit all bits in the order in which it borrows from them: itself, then the others as hashed."""
    numbers = np.arange(SKETCH_BITS, dtype=np.uint64)
    rank = mix(numbers[:, None] << np.uint64(_BIN_BITS) | numbers)
    rank[np.arange(SKETCH_BITS), np.arange(SKETCH_BITS)] = 0
    return np.argsort(rank, axis=1)


def character_hashes(codes: Uint32s) -> Uint64s:
    """Return the hash of each character as a unit of a shingle."""
    return mix(codes.astype(np.uint64) * np.uint64(_PLACES[0]))


def shingle_hashes(units: Uint64s, starts: Int64s, stops: Int64s) -> Uint64s:
    """Return the hashes of shingles: of units [start, stop), up to three, in their order."""
    hashes: Uint64s = (stops - starts).astype(np.uint64)
    for place, constant in enumerate(_PLACES):
        there = starts + place < stops
        part = units[np.where(there, starts + place, 0)] * np.uint64(constant)
        rotated: Uint64s = hashes << np.uint64(23) | hashes >> np.uint64(41)
        hashes = rotated ^ np.where(there, part, np.uint64(0))
    return mix(hashes)


def heaviest_features(doc: Int64s, hashes: Uint64s, weights: Floats, count: int, documents: int) -> Int64s:
    """Return the places of each document's heaviest features; of equal weights the lower hash counts."""
    among = _heavy(doc, weights, count, documents)
    among = among[np.lexsort((hashes[among], -weights[among], doc[among]))]
    owner = doc[among]
    return among[np.arange(len(among)) - np.searchsorted(owner, owner) < count]


def _heavy(doc: Int64s, weights: Floats, count: int, documents: int) -> Int64s:
    """Return the places of features that may be among the heaviest `count`: of most documents a few times as many.

    Where `count` features of a document weigh at least as much as any bound, the others are not among them.
    """
    sample = weights[::_SAMPLED]
    if not len(sample):
        return np.arange(0)
    lighter = max(0, len(sample) - max(1, _HEAVY * count * documents // _SAMPLED))
    is_heavy = weights >= np.partition(sample, lighter)[lighter]
    has_enough = np.bincount(doc[is_heavy], minlength=documents) >= count
    return np.flatnonzero(is_heavy | ~has_enough[doc])
