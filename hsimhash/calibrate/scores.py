"""From pairs to numbers: precision, recall and F1 of each distance, false pairs of a collection, and what to take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hsimhash.calibrate.sample_pairs import Way
from hsimhash.fingerprint.bits import Floats
from hsimhash.plan import Cost

SEEN = 10.0  # pairs from which on the tail of a histogram tells how it continues below
TAIL_BITS = 2  # over which its slope is taken
ONE_SIDED_95 = 1.645  # standard deviations
WITHIN = 0.01  # of the best F1: so much is given away for cheaper queries


@dataclass(frozen=True, slots=True)
class FalsePairs:
    """Unrelated pairs that a distance finds."""

    seen: float  # in the sample; where only a share of the near pairs was judged, an estimate
    of: int  # pairs of unrelated documents in the sample
    expected: float  # of so many pairs: those seen, or where there are none, as the tail of the histogram continues
    weight: int = 1  # how many pairs each one that was looked at stands for

    def among(self, documents: int) -> tuple[float, float]:
        """Return how many there are in a collection of so many documents; and how many at most, one-sided at 95 %.

        0 where the sample has no unrelated pair that could tell.
        """
        times = documents * (documents - 1) / 2 / self.of if self.of else 0.0
        return self.expected * times, self.weight * upper_end(self.seen / self.weight) * times

    def in_words(self, documents: int) -> str:
        """Return for people how many there are in a collection: about how many, or fewer than how many.

        Where the sample has no such pair, it only says what the number is below.
        """
        if not self.of:
            return "unknown"
        expected, most = self.among(documents)
        return f"about {_rounded(expected)}" if self.seen else f"fewer than {_rounded(most)}"


def _rounded(number: float) -> str:
    """Return a number with two digits that mean something."""
    if number < 0.01:
        return "0.01"
    return f"{float(f'{number:.2g}'):,.0f}" if number >= 10 else f"{number:.2g}"


@dataclass(frozen=True, slots=True)
class DistanceScore:
    """How well a distance does."""

    distance: int
    precision: float
    recall: float
    f1: float
    found: float  # near pairs found; of a sample as labelled, else of a collection with one near copy of each document
    wanted: float  # near pairs that are to be found
    wrong: float  # pairs found that are not near
    false_pairs: FalsePairs
    collection_f1: float  # in the collection that is planned, with one near copy of each document

    @classmethod
    def of(
        cls, distance: int, share: float, wanted: int, wrong: float, false_pairs: FalsePairs, documents: int
    ) -> DistanceScore:
        """Score a share of the wanted pairs, found beside wrong ones; and the same in a collection of documents."""
        found = share * wanted
        precision = found / (found + wrong) if found + wrong else 1.0
        f1, collected = 2 * found / (found + wrong + wanted), share * documents
        in_collection = 2 * collected / (collected + false_pairs.among(documents)[0] + documents)
        return cls(distance, precision, share, f1, found, wanted, wrong, false_pairs, in_collection)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """A profile used in one way: its scores by distance."""

    profile: str
    way: Way
    scores: tuple[DistanceScore, ...]  # of each of DISTANCES
    costs: tuple[Cost, ...]  # of a query of each, in an embedded index

    @property
    def best(self) -> DistanceScore:
        """The score with the greatest F1; of equal ones the one of the least distance."""
        return max(self.scores, key=lambda one: (one.f1, -one.distance))


class Recommendation(NamedTuple):
    """What to take."""

    curve: Curve
    score: DistanceScore
    best_f1: float  # of all scores


def choose(curves: Sequence[Curve]) -> Recommendation:
    """Return of all scores within WITHIN of the best F1 the one whose queries cost least; of equal ones the better.

    With labels false pairs are few in the sample and many in the collection: of those scores only the ones count that
    are within WITHIN of their best F1 there too.
    """
    best = max(curve.best.f1 for curve in curves)
    among = [(curve, score) for curve in curves for score in curve.scores if score.f1 >= best - WITHIN]
    best_collected = max(score.collection_f1 for _, score in among)
    among = [one for one in among if one[1].collection_f1 >= best_collected - WITHIN]
    curve, score = min(among, key=lambda one: (one[0].costs[one[1].distance].time_us, -one[1].f1))
    return Recommendation(curve, score, best)


def expected(seen: Floats) -> Floats:
    """Return how many unrelated pairs each distance is expected to find, where so many were seen; 0 to 64 bits.

    Where none was seen, the tail above tells: below the first distance with SEEN pairs it is taken to fall on as
    steeply as over TAIL_BITS there. Distances of unrelated texts fall steeper and steeper, so that this says rather
    too many than too few; no more than a greater distance finds.
    """
    found = np.where(seen > 0, seen, upper_end(0))
    enough = np.flatnonzero(seen >= SEEN)
    if len(enough) and enough[0] + TAIL_BITS < len(seen):
        first = int(enough[0])
        slope = math.log(seen[first + TAIL_BITS] / seen[first]) / TAIL_BITS
        tail = seen[first] * np.exp(-slope * (first - np.arange(len(seen))))
        found = np.where(seen > 0, seen, np.minimum(tail, upper_end(0)))
    return np.minimum.accumulate(found[::-1])[::-1]


def upper_end(seen: float) -> float:
    """Return the upper end of the one-sided 95 % interval of a count: 3 where none was seen.

    Source: Byar's approximation, in Breslow and Day, "Statistical Methods in Cancer Research" II, 1987, page 69.
    """
    more = seen + 1
    return float(more * (1 - 1 / (9 * more) + ONE_SIDED_95 / (3 * math.sqrt(more))) ** 3)
