"""Weigh a feature by how often it occurs, in each way that a profile can name."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from hsimhash.fingerprint.bits import Floats, Int64s

# Words by these weigh times their inverse document frequency; shingles, and words by the others, times a unit.
BY_IDF = ("tfidf", "tfidf+count", "log-idf")


def weigh(name: str, count: Int64s, each: Floats | float) -> Floats:
    """Return whole-number weights of features.

    Args:
        name: of the weights.
        count: shape (m,), how often each was found in its document.
        each: what one occurrence weighs.
    """
    weights: Floats = np.rint(_TIMES[name](count) * each)
    return weights


def _logarithmic(count: Int64s) -> Floats:
    """Return 1 + ln(count): of each different count once, by the same function on every machine."""
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
