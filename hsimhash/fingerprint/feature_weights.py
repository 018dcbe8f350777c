"""Weight features by how often they occur, and space-separated words by the user's table or the English table.

The weight of an English word is its tf · idf; in total, the words weigh as much as the pairs that `auto-1` counts.
Other languages have other frequent words, and the English table would assign them too much weight. So the table is used
only to the extent that a text is English. This is measured by the share of words that are frequent in every English
text (`the`, `of`, `and`, …). A text is not English if the share is below a tenth, and English if it is a fifth or more.
In between, words and pairs share the weight, so that no edit of a page changes all of its features at once. The share
is a third in English prose, and at most 7 % in other languages with Latin script.
"""

from __future__ import annotations

import encodings.cp437  # noqa: F401  # imported here, so that the first text does not import it to read a zip archive
import math
import zipfile  # noqa: F401
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from hsimhash.fingerprint.bits import Bools, Floats, Int64s, Uint64s, starts_of
from hsimhash.fingerprint.murmur3 import murmur64_spans
from hsimhash.fingerprint.segment import load_idf, stop_words
from hsimhash.fingerprint.vote import SCALE

ENGLISH_NAME = "english-1"
WHOLE = 64  # value for a text that is entirely English

# Values of `weights` for which the weight of a word is a multiple of its idf. The weight of a shingle, or of a word
# with any other value of `weights`, is a multiple of a unit.
BY_IDF = ("tfidf", "tfidf+count", "log-idf")
_LEADING = np.uint64(48)  # shift that leaves the 16 leading bits
MOST_COMMON = 6 * SCALE  # maximum weight of a common word; the 24 common words occur in about a quarter of all passages


@dataclass(frozen=True, slots=True)
class WordWeights:
    """A table of ascending word hashes, with weights in units of 1/4096, and which words are common in every text."""

    hashes: Uint64s  # the last entry is the greatest 64-bit number
    weights: Floats
    is_common: Bools
    median: float
    first: Int64s  # position of the first hash for each value of the leading bits

    def find(self, hashes: Uint64s) -> tuple[Floats, Bools]:
        """Return the weight of one occurrence of each word (for unknown words, the median), and which are common."""
        place = self.first[(hashes >> _LEADING).astype(np.int64)]
        left = np.flatnonzero(self.hashes[place] < hashes)
        while len(left):  # usually a few steps for a few words; a binary search takes ten times as long
            place[left] += 1
            left = left[self.hashes[place[left]] < hashes[left]]
        is_known = self.hashes[place] == hashes
        return np.where(is_known, self.weights[place], self.median), is_known & self.is_common[place]


def english_parts(words: Int64s, common: Int64s | Floats) -> Int64s:
    """Return how English each document is, 0 to `WHOLE`, from its counts of words and of common words."""
    return np.clip(common.astype(np.int64) * 10 * WHOLE // np.maximum(words, 1) - WHOLE, 0, WHOLE)


@cache
def english(seed: int) -> WordWeights:
    """Return the table for a hash seed."""
    with np.load(Path(__file__).with_name("english.npz")) as stored:
        words, weights = stored["words"], stored["weights"].astype(np.float64)
    return _by_hash(words.tobytes(), weights, seed, median=float(np.sort(weights)[len(weights) // 2]))


@cache
def own_weights(idf_sha256: str, stops: str | None, seed: int) -> WordWeights:
    """Return the table for a profile's own idf; stop words have the weight 0."""
    idf, median = load_idf(idf_sha256)
    weighed = {**idf, **dict.fromkeys(stop_words(stops) if stops else (), 0.0)}
    weights = np.rint(np.array(list(weighed.values())) * SCALE)
    return _by_hash("".join(f"{word}\n" for word in weighed).encode(), weights, seed, median=round(median * SCALE))


def _by_hash(lines: bytes, weights: Floats, seed: int, *, median: float) -> WordWeights:
    ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n"))
    hashes = murmur64_spans(lines, np.append(0, ends[:-1] + 1), ends, seed)
    order = np.argsort(hashes)
    hashes, weights = hashes[order], weights[order]
    leading = (hashes >> _LEADING).astype(np.int64)
    first = starts_of(leading, 1 << 64 - int(_LEADING))
    ended = np.append(hashes, np.uint64((1 << 64) - 1)), np.append(weights, median)
    return WordWeights(*ended, ended[1] <= MOST_COMMON, median, first)


def weigh(name: str, count: Int64s, each: Floats | float) -> Floats:
    """Return whole-number weights of features.

    Args:
        name: Name of the weights, as in `Recipe.weights`.
        count: Occurrences of each feature in its document; shape (m,).
        each: Weight of one occurrence.
    """
    weights: Floats = np.rint(_TIMES[name](count) * each)
    return weights


def _logarithmic(count: Int64s) -> Floats:
    """Return 1 + ln(count), computed once per distinct count by the same function on every machine."""
    different, place = np.unique(count, return_inverse=True)
    times: Floats = np.array([1 + math.log(one) for one in different.tolist()], np.float64)[place]
    return times


_TIMES: dict[str, Callable[[Int64s], Floats]] = {
    "tfidf": lambda count: count.astype(np.float64),
    "count": lambda count: count.astype(np.float64),
    "tfidf+count": lambda count: count.astype(np.float64),
    "binary": lambda count: np.ones(len(count)),
    "log": _logarithmic,
    "log-idf": _logarithmic,
}
