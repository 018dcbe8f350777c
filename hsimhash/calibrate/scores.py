"""Score distances: precision, recall and F1, false pairs in a whole collection, and a recommendation."""

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

SEEN = 10.0  # minimum number of pairs within a distance to extrapolate to smaller distances
TAIL_BITS = 2  # distance over which the slope of the tail is measured
ONE_SIDED_95 = 1.645  # standard deviations
WITHIN = 0.01  # difference between values of F1 that is not worth leaving the default for


@dataclass(frozen=True, slots=True)
class FalsePairs:
    """Unrelated pairs that a distance finds."""

    seen: float  # pairs in the sample; an estimate if only a share of the near pairs was judged
    of: int  # pairs of unrelated documents in the sample
    expected: float  # expected number: those drawn, or if there are none, the extrapolated tail of the histogram
    weight: int = 1  # number of pairs that each judged one represents
    labelled: float = 0.0  # number of seen pairs that a label names; somebody chose them, so they are not typical

    @property
    def drawn(self) -> float:
        """The number of seen pairs that no label names; only these show how many false pairs a collection has."""
        return self.seen - self.labelled

    def among(self, documents: int) -> tuple[float, float]:
        """Return the number of false pairs in a collection of that size, and its one-sided 95 % upper bound.

        Both are 0 if the sample does not have unrelated pairs to estimate from.
        """
        times = documents * (documents - 1) / 2 / self.of if self.of else 0.0
        return self.expected * times, self.weight * upper_end(self.drawn / self.weight) * times

    def in_words(self, documents: int) -> str:
        """Describe the approximate number of false pairs in a collection, for people.

        If the sample does not have any, the text gives only an upper bound.
        """
        if not self.of:
            return "unknown"
        expected, most = self.among(documents)
        return f"about {_rounded_up(expected)}" if self.drawn else f"fewer than {_rounded_up(most)}"

    def sentence(self, documents: int) -> str:
        """Say how many false pairs to expect in a collection, or why that is unknown."""
        is_unsure = self.among(documents)[1] > documents
        if not self.seen and is_unsure:
            return (
                f"It does not find any of the {self.of:,} pairs of unrelated documents in the sample, which is too "
                f"small to estimate the number of false pairs in {documents:,} documents."
            )
        if not self.of or (not self.drawn and is_unsure):
            return "The sample is too small to estimate the number of false pairs; compare more documents."
        left_out = ", without labelled pairs" if self.labelled else ""
        return f"Expect {self.in_words(documents)} false pairs in {documents:,} documents{left_out}."


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
    # near pairs found in a labelled sample or, without labels, in a collection with one near copy of each document
    found: float
    wanted: float  # near pairs in total
    wrong: float  # pairs found that are not near
    false_pairs: FalsePairs
    collection_f1: float  # in the planned collection, with one near copy of each document

    @property
    def lower_f1(self) -> float:
        """The F1, or that in the planned collection if it is lower.

        With labels, both matter: a large collection has more false pairs than the sample, and pairs that somebody
        labelled as not near count in the sample only.
        """
        return min(self.f1, self.collection_f1)

    @property
    def most_f1(self) -> float:
        """The F1 if the collection had no false pairs beyond those in the sample."""
        return self.f1 if self.false_pairs.seen else 2 * self.recall / (1 + self.recall)

    @property
    def least_f1(self) -> float:
        """The F1 with as many false pairs as are consistent with the sample."""
        if not self.false_pairs.of:  # the number is unbounded
            return 0.0
        if self.false_pairs.seen or not self.wrong:
            return self.f1
        _, most = self.false_pairs.among(round(self.wanted))
        return 2 * self.found / (self.found + most + self.wanted)

    @classmethod
    def of(
        cls, distance: int, share: float, wanted: int, wrong: float, false_pairs: FalsePairs, documents: int
    ) -> DistanceScore:
        """Return the scores of a distance on the sample and on a whole collection."""
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
    scores: tuple[DistanceScore, ...]  # one for each of DISTANCES
    costs: tuple[Cost, ...]  # cost of a query for each distance, in an embedded index

    @property
    def best(self) -> DistanceScore:
        """The score with the greatest F1; among equals, the one with the smallest distance."""
        return max(self.scores, key=lambda one: (one.f1, -one.distance))


class Recommendation(NamedTuple):
    """The recommended profile and distance."""

    curve: Curve
    score: DistanceScore
    best_f1: float  # over all scores
    default: tuple[Curve, DistanceScore] | None = None  # what hsimhash does without options, if that was tried

    @property
    def is_default(self) -> bool:
        """Whether this is what hsimhash does without options."""
        return self.default == (self.curve, self.score)


def choose(curves: Sequence[Curve], default_profile: str, *, is_doubtful: bool = False) -> Recommendation:
    """Return the default, unless another score is clearly better: its F1 is greater by more than WITHIN.

    Of the scores that are clearly better, take those within WITHIN of the best F1, and of these, the one with the
    distance nearest to the default. In the planned collection, its F1 must not be lower than that of the default. The
    cost of queries does not matter: it depends on the store, and `dedup` does not query any.

    The default gets the benefit of the doubt: if the sample does not show how many false pairs there are, the default
    is assumed to have none, and the other choice as many as possible.

    Args:
        curves: At least one curve.
        default_profile: Label of the profile that is used without options. If it was not tried, the default is the best
            profile with the default distance.
        is_doubtful: Whether the labels are too few or too one-sided to find the best score. The default is then
            returned.
    """
    is_tried = any(curve.profile == default_profile for curve in curves)
    best = max(curves, key=lambda one: max(score.lower_f1 for score in one.scores))
    profile = default_profile if is_tried else best.profile
    curve = next(curve for curve in reversed(curves) if curve.profile == profile)
    default = curve, curve.scores[DEFAULT_DISTANCE]
    better = [
        (curve, score)
        for curve in curves
        for score in curve.scores
        if score.least_f1 > default[1].most_f1 + WITHIN and score.lower_f1 > default[1].lower_f1
    ]
    taken = _nearest(better, curves) if better and not is_doubtful else default
    return Recommendation(*taken, max(one.best.f1 for one in curves), default if is_tried else None)


def _nearest(scores: Sequence[tuple[Curve, DistanceScore]], curves: Sequence[Curve]) -> tuple[Curve, DistanceScore]:
    """Return the score nearest to the default, of those whose lower F1 is within WITHIN of the best.

    The nearest distance comes first. At the same distance, a profile's last way comes first, because queries use it by
    default; then the better F1.
    """
    best = max(score.lower_f1 for _, score in scores)
    usual = {curve.profile: curve for curve in curves}
    return min(
        (one for one in scores if one[1].lower_f1 >= best - WITHIN),
        key=lambda one: (abs(one[1].distance - DEFAULT_DISTANCE), one[0] is not usual[one[0].profile], -one[1].f1),
    )


def expected(seen: Floats) -> Floats:
    """Return the expected number of unrelated pairs within each distance from 0 to 64 bits, given the numbers seen.

    Where no pairs were seen, the numbers are extrapolated from the first distance with at least SEEN pairs: below it,
    they are assumed to fall as steeply as over the TAIL_BITS above it. In fact, they fall more and more steeply, so the
    result tends to be too high. It never decreases with the distance.
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
