"""Measure the share of shingles that two texts have in common, to judge unrelated pairs independently of profiles.

For each text, the KEPT smallest hashes of its shingles (three words or characters) are kept. If two texts together have
at most KEPT shingles, their Jaccard index is exact. Otherwise it is estimated from the KEPT smallest hashes of both, to
within about .03.

Source: Broder, "On the resemblance and containment of documents", SEQUENCES 1997.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hsimhash.fingerprint.bits import Floats, Int64s, Uint64s
from hsimhash.fingerprint.murmur3 import murmur64_spans
from hsimhash.fingerprint.normalize import classify, normalize, simplify
from hsimhash.fingerprint.profile import split_batch
from hsimhash.fingerprint.sketch import MOST_SHINGLE, shingle_hashes
from hsimhash.fingerprint.tokens import drop_apostrophes, word_units
from hsimhash.fingerprint.vote import fold_hashes

KEPT = 256
PAIRS_COMPARED = 1 << 14  # number of pairs compared at once
_NONE = np.uint64((1 << 64) - 1)


def least_shingles(texts: Sequence[str]) -> Uint64s:
    """Return the smallest shingle hashes of each text: shape (n, KEPT), ascending, padded with the greatest number."""
    return np.concatenate([np.empty((0, KEPT), np.uint64), *map(_least, split_batch(texts))])


def _least(texts: Sequence[str]) -> Uint64s:
    codes = normalize(texts)
    units = word_units(*drop_apostrophes(simplify(codes), classify(codes)))
    spans = units.spans()
    start, stop = units.rows(MOST_SHINGLE)
    hashes = shingle_hashes(murmur64_spans(spans.buffer, spans.starts, spans.ends, 0), start, stop)
    doc = units.doc[start]
    places, _ = fold_hashes(doc, hashes)
    doc, hashes = doc[places], hashes[places]
    rank = np.arange(len(doc)) - np.searchsorted(doc, doc)
    least = np.full((len(texts), KEPT), _NONE)
    least[doc[rank < KEPT], rank[rank < KEPT]] = hashes[rank < KEPT]
    return least


def jaccard_indices(least: Uint64s, left: Int64s, right: Int64s) -> Floats:
    """Return the Jaccard index of each pair of texts, 0 to 1; 0 if neither has a shingle.

    Args:
        least: Result of `least_shingles`.
        left: Rows of `least`, shape (n,).
        right: Rows of the other texts, shape (n,).
    """
    parts = [
        _indices(least[left[at : at + PAIRS_COMPARED]], least[right[at : at + PAIRS_COMPARED]])
        for at in range(0, len(left), PAIRS_COMPARED)
    ]
    return np.concatenate([np.empty(0), *parts])


def _indices(some: Uint64s, others: Uint64s) -> Floats:
    both = np.sort(np.concatenate([some, others], axis=1), axis=1, kind="stable")  # merges two sorted rows
    is_there = both != _NONE
    is_again = np.zeros(both.shape, np.bool_)
    is_again[:, 1:] = (both[:, 1:] == both[:, :-1]) & is_there[:, 1:]
    rank = np.cumsum(is_there & ~is_again, axis=1)  # rank among the distinct hashes, starting at 1
    shared = (is_again & (rank <= KEPT)).sum(axis=1)
    indices: Floats = shared / np.maximum(np.minimum(rank[:, -1], KEPT), 1)
    return indices
