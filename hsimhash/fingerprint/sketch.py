"""Sketches, which confirm that texts are near. See `keys` for finding near texts that fingerprints do not find.

*Sketch*: 64 one-bit min-hashes of a text's shingles of three words or characters. Two texts whose shingles have a
Jaccard similarity of J agree on a bit with probability (1 + J) / 2, so about 32 · (1 - J) of the 64 bits differ. One
permutation serves all 64 bits: the highest 6 bits of a shingle's hash select the bit of the sketch, and the remaining
bits are the value to minimise. A bit without a shingle borrows from another bit. The order of borrowing is different
for each bit, but the same for every text.

Sources: Li, König, "b-Bit Minwise Hashing", WWW 2010; Li, Owen, Zhang, "One Permutation Hashing", NIPS 2012;
Shrivastava, "Optimal Densification for Fast and Accurate Minwise Hashing", ICML 2017.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hsimhash.fingerprint.bits import Bools, Floats, Int64s, Uint32s, Uint64s
from hsimhash.fingerprint.murmur3 import mix

SKETCH_BITS = 64
MOST_SHINGLE = 3  # maximum number of words, or of characters of scripts without spaces

_BIN_BITS = 6
_VALUE_BITS = 64 - _BIN_BITS
_SAMPLED = 8  # one in this many features is sampled to estimate which weights are heavy
_HEAVY = 4  # number of heavy features to select, as a multiple of the number needed
_NONE = np.uint64((1 << 64) - 1)  # greater than any value
# Odd constants, one for each position in a shingle.
_PLACES = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


def sketches(doc: Int64s, shingles: Uint64s, documents: int) -> Uint64s:
    """Return each document's sketch; 0 for documents without a shingle.

    Args:
        doc: Document of each shingle, 0 to `documents` - 1, in any order; shape (m,).
        shingles: Hash of each shingle; repetitions do not matter; shape (m,).
        documents: Number of documents.
    """
    return sketches_of(least_values(doc, shingles, documents))


def least_values(doc: Int64s, shingles: Uint64s, documents: int) -> Uint64s:
    """Return the smallest shingle for each bit, shape (documents, 64); `sketches_of` turns them into sketches.

    The result for a text that is processed in parts is the minimum over its parts.
    """
    every: Uint64s = np.full(documents * SKETCH_BITS, _NONE)
    place = (doc << _BIN_BITS) | (shingles >> np.uint64(_VALUE_BITS)).astype(np.int64)
    np.minimum.at(every, place, shingles & np.uint64((1 << _VALUE_BITS) - 1))
    return every.reshape(documents, SKETCH_BITS)


def sketches_of(least: Uint64s) -> Uint64s:
    """Return the sketches of documents, given the smallest shingle for each bit."""
    has_any = (least != _NONE).any(axis=1)
    least = _densified(least)
    bits = mix(least) >> np.arange(SKETCH_BITS, dtype=np.uint64) & np.uint64(1)
    words = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little").view("<u8").ravel().astype(np.uint64)
    return present(words, has_any)


def present(values: Uint64s, is_there: Bools) -> Uint64s:
    """Return 0 for missing values, and 1 for present values of 0."""
    return np.where(is_there, np.maximum(values, np.uint64(1)), np.uint64(0))


def _densified(least: Uint64s) -> Uint64s:
    """Fill each bit without a value from the first bit in its order that has one; shape (documents, 64)."""
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
    """Return the order in which each bit borrows from all bits: first from itself, then from the others by hash."""
    numbers = np.arange(SKETCH_BITS, dtype=np.uint64)
    rank = mix(numbers[:, None] << np.uint64(_BIN_BITS) | numbers)
    rank[np.arange(SKETCH_BITS), np.arange(SKETCH_BITS)] = 0
    return np.argsort(rank, axis=1)


def character_hashes(codes: Uint32s) -> Uint64s:
    """Return the hash of each character as a shingle unit."""
    return mix(codes.astype(np.uint64) * np.uint64(_PLACES[0]))


def shingle_hashes(units: Uint64s, starts: Int64s, stops: Int64s) -> Uint64s:
    """Return the hashes of shingles, each of which consists of up to three units [start, stop), in order."""
    sizes, padded = stops - starts, np.append(units, np.zeros(len(_PLACES) - 1, np.uint64))
    hashes: Uint64s = sizes.astype(np.uint64)
    for place, constant in enumerate(_PLACES):
        factors = (sizes > place) * np.uint64(constant)  # 0 beyond the end of a shingle
        hashes = (hashes << np.uint64(23) | hashes >> np.uint64(41)) ^ padded[starts + place] * factors
    return mix(hashes)


def heaviest_features(doc: Int64s, hashes: Uint64s, weights: Floats, count: int, documents: int) -> Int64s:
    """Return the indices of each document's `count` heaviest features; ties go to the lower hash."""
    among = _heavy(doc, weights, count, documents)
    among = among[np.lexsort((hashes[among], -weights[among], doc[among]))]
    owner = doc[among]
    return among[np.arange(len(among)) - np.searchsorted(owner, owner) < count]


def _heavy(doc: Int64s, weights: Floats, count: int, documents: int) -> Int64s:
    """Return the indices of features that may be among the `count` heaviest: a few times `count` for most documents.

    If at least `count` features of a document reach the threshold, features below it cannot be among the heaviest.
    """
    sample = weights[::_SAMPLED]
    if not len(sample):
        return np.arange(0)
    lighter = max(0, len(sample) - max(1, _HEAVY * count * documents // _SAMPLED))
    is_heavy = weights >= np.partition(sample, lighter)[lighter]
    has_enough = np.bincount(doc[is_heavy], minlength=documents) >= count
    return np.flatnonzero(is_heavy | ~has_enough[doc])
