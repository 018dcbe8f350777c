"""What a feature counts: whole numbers, so that every sum is exact and no order matters.

A word found `tf` times weighs `rint(tf * idf * 4096)`, a shingle its count times the profile's unit. The cap then keeps
any one feature from deciding a document: no weight is above `total // 16`, the total taken before (but never below 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SCALE = 4096


def fold_numbers(
    doc: NDArray[np.int64], number: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return document, number and count of each distinct pair of both, in this order."""
    key = np.sort((doc << 32) | number)
    first = np.flatnonzero(_changes(key))
    return key[first] >> 32, key[first] & 0xFFFFFFFF, np.diff(first, append=len(key))


def fold_hashes(doc: NDArray[np.int64], hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the index of one feature of each distinct pair of document and hash, and how many share it."""
    order = np.argsort(hashes)
    order = order[np.argsort(doc[order].astype(np.uint16), kind="stable")]
    first = np.flatnonzero(_changes(hashes[order]) | _changes(doc[order]))
    return order[first], np.diff(first, append=len(order))


def tfidf(count: NDArray[np.int64], idf: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the whole-number weights of words found `count` times."""
    return np.rint(count * idf * SCALE)


def heaviest(
    doc: NDArray[np.int64],
    number: NDArray[np.int64],
    idf: NDArray[np.float64],
    top: int | None,
    documents: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return document, number and weight of each document's heaviest words as jieba's `extract_tags` ranks them.

    A word weighs `tf * (idf / total)`, in floats; equal ones stand in the order of their first occurrence.
    """
    key = (doc << 32) | number
    order = np.argsort(key, kind="stable")
    begin = np.flatnonzero(_changes(key[order]))
    first, count = order[begin], np.diff(begin, append=len(key))
    by_occurrence = np.argsort(first)
    first, count = first[by_occurrence], count[by_occurrence]
    total = np.bincount(doc, minlength=documents)
    weight = count * (idf[first] / total[doc[first]])
    ranked = np.argsort(-weight, kind="stable")
    ranked = ranked[np.argsort(doc[first[ranked]], kind="stable")]
    owner = doc[first[ranked]]
    rank = np.arange(len(owner)) - np.searchsorted(owner, owner, "left")
    kept = ranked if top is None else ranked[rank < top]
    return doc[first[kept]], number[first[kept]], weight[kept]


def capped(
    doc: NDArray[np.int64], weights: NDArray[np.float64], cap: int | None, documents: int
) -> NDArray[np.float64]:
    """Return the weights, none above 1/`cap` of its document's total."""
    if cap is None:
        return weights
    total = np.bincount(doc, weights, documents)
    return np.minimum(weights, np.maximum(np.floor(total / cap), 1)[doc])


def _changes(values: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return whether each value differs from the one before it; the first does."""
    changes = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes
