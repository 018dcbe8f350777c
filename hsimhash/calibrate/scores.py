"""Score distances: precision, recall and F1 of each, false pairs in a whole collection, and a recommendation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hsimhash.calibrate.sample_pairs import Way
from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.fingerprint.bits import Floats
from hsimhash.plan import Cost

SEEN = 10.0  # pairs from which on the tail of a histogram tells how it continues below
TAIL_BITS = 2  # over which its slope is taken
ONE_SIDED_95 = 1.645  # standard deviations
WITHIN = 0.01  # of the best F1: so much is given away for cheaper queries
CHEAPER = 0.8  # of what the default costs: from there on another choice is worth leaving it


@dataclass(frozen=True, slots=True)
class FalsePairs:
    """Unrelated pairs that a distance finds."""

    seen: float  # in the sample; where only a share of the near pairs was judged, an estimate
    of: int  # pairs of unrelated documents in the sample
    expected: float  # of so many pairs: those seen, or where there are none, as the tail of the histogram continues
    weight: int = 1  # how many pairs each one that was looked at stands for

    def among(self, documents: int) -> tuple[float, float]:
        """Return how many false pairs a collection of that size has, and the one-sided 95 % upper bound.

        0 where the sample has no unrelated pair that could tell.
        """
        times = documents * (documents - 1) / 2 / self.of if self.of else 0.0
        return self.expected * times, self.weight * upper_end(self.seen / self.weight) * times

    def in_words(self, documents: int) -> str:
        """Return text for people: about how many there are in a collection, or fewer than how many.

        Where the sample has no such pair, it only says what the number is below.
        """
        if not self.of:
            return "unknown"
        expected, most = self.among(documents)
        return f"about {_rounded_up(expected)}" if self.seen else f"fewer than {_rounded_up(most)}"


def _rounded_up(number: float) -> str:
    """Return the smallest number with two significant digits that is at least as large."""
    if number < 0.01:
        return "0.01"
    unit = 10.0 ** (math.floor(math.log10(number)) - 1)
    rounded = math.ceil(number / unit * (1 - 1e-9)) * unit
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:.2g}"


@dataclass(frozen=True, slots=True)
class DistanceScore:
    """The scores of one distance."""

    distance: int
    precision: float
    recall: float
    f1: float
    found: float  # near pairs found; of a sample as labelled, else of a collection with one near copy of each document
    wanted: float  # near pairs that are to be found
    wrong: float  # pairs found that are not near
    false_pairs: FalsePairs
    collection_f1: float  # in the collection that is planned, with one near copy of each document

    @property
    def most_f1(self) -> float:
        """The F1 if the collection had no false pairs beyond those in the sample."""
        return self.f1 if self.false_pairs.seen else 2 * self.recall / (1 + self.recall)

    @property
    def least_f1(self) -> float:
        """The F1 with as many false pairs as the sample does not rule out."""
        if not self.false_pairs.of:  # any number of them
            return 0.0
        if self.false_pairs.seen or not self.wrong:
            return self.f1
        _, most = self.false_pairs.among(round(self.wanted))
        return 2 * self.found / (self.found + most + self.wanted)

    @classmethod
    def of(
        cls, distance: int, share: float, wanted: int, wrong: float, false_pairs: FalsePairs, documents: int
    ) -> DistanceScore:
        """Return the scores of a distance on the sample, and the same for a whole collection."""
        found = share * wanted
        precision = found / (found + wrong) if found + wrong else 1.0
        f1, collected = 2 * found / (found + wrong + wanted), share * documents
        in_collection = 2 * collected / (collected + false_pairs.among(documents)[0] + documents)
        return cls(distance, precision, share, f1, found, wanted, wrong, false_pairs, in_collection)


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """The scores of a profile by distance, for one way to use it."""

    profile: str  # the label of a `ComparedProfile`
    way: Way
    scores: tuple[DistanceScore, ...]  # of each of DISTANCES
    costs: tuple[Cost, ...]  # of a query of each, in an embedded index

    @property
    def best(self) -> DistanceScore:
        """The score with the greatest F1; among equals, that of the smallest distance."""
        return max(self.scores, key=lambda one: (one.f1, -one.distance))


class Recommendation(NamedTuple):
    """The recommended profile and distance."""

    curve: Curve
    score: DistanceScore
    best_f1: float  # of all scores
    is_default: bool = False  # what is taken is what hsimhash does without options


def choose(curves: Sequence[Curve], default_profile: str) -> Recommendation:
    """Return the recommendation: the default, unless something else gains enough.

    The best score is, of all within WITHIN of the best F1, the one whose queries cost least. It gains enough if its F1
    is greater by more than WITHIN, or if it is as good and its queries cost less than CHEAPER of the default's. The
    default has the benefit of the doubt: if the sample cannot tell how many false pairs there are, the default is
    taken to have none, and the other as many as possible.

    Args:
        curves: at least one.
        default_profile: the label of the profile that is used without options; where it was not tried, any profile
            that was has the default distance.
    """
    best = _best(curves)
    curve = next((one for one in reversed(curves) if one.profile == default_profile), None)
    curve = curve or [one for one in curves if one.profile == best.curve.profile][-1]
    default = curve.scores[DEFAULT_DISTANCE]
    costs = (one.costs[score.distance].time_us for one, score in ((best.curve, best.score), (curve, default)))
    is_better = best.score.least_f1 > default.most_f1 + WITHIN
    is_cheaper = best.score.least_f1 >= default.most_f1 - WITHIN and next(costs) < CHEAPER * next(costs)
    return best if is_better or is_cheaper else Recommendation(curve, default, best.best_f1, is_default=True)


def _best(curves: Sequence[Curve]) -> Recommendation:
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
    """Return the expected number of unrelated pairs at each distance from 0 to 64 bits, given how many were seen.

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
    """Return the upper end of a count's one-sided 95 % interval: 3 for a count of 0.

    Source: Byar's approximation, in Breslow and Day, "Statistical Methods in Cancer Research" II, 1987, page 69.
    """
    more = seen + 1
    return float(more * (1 - 1 / (9 * more) + ONE_SIDED_95 / (3 * math.sqrt(more))) ** 3)
