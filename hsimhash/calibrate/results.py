"""The results of a calibration, as values and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from hsimhash.calibrate.sample import Sample
from hsimhash.calibrate.sample_pairs import Way
from hsimhash.calibrate.scores import Curve, DistanceScore, Recommendation
from hsimhash.dedup.report import Distance
from hsimhash.errors import plural
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Floats
from hsimhash.fingerprint.profile_grammar import with_option
from hsimhash.fingerprint.rarity import FIT_AUTO, FIT_OFF, Learnt
from hsimhash.plan import Cost
from hsimhash.store import default_backend

MILLION = 1_000_000  # collection size for which false pairs are given in JSON
FEW_LABELS = 200  # labelled near pairs below which the best distance is a matter of chance
TABLE = "own.rarity"  # file name for a fitted table in the commands to paste


def is_chance(near_pairs: int, *, is_labelled: bool) -> bool:
    """Whether there are so few labelled near pairs that the best distance is a matter of chance."""
    return is_labelled and near_pairs < FEW_LABELS


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """The number of pairs at each distance from 0 to 64 bits, as measured with one profile."""

    profile: str
    near: Floats  # near pairs, shape (65,)
    unrelated: Floats  # unrelated pairs in the sample


class ComparedProfile(NamedTuple):
    """A profile that is compared with others."""

    label: str  # name in the results
    profile: Profile  # including its rarity table
    written: str  # as the user wrote it; the name of a profile with lists cannot recreate it
    fit: str | None = None  # `FIT_AUTO`: fitted to the sample; `FIT_OFF`: the same profile, not fitted; None: neither


class Flags(NamedTuple):
    """The command-line flags that select a recommendation."""

    profile: str  # the profile's name
    create: str  # for `create-table`
    query: str  # for `query` and similar commands; usually empty
    dedup: str  # for `dedup`, in addition to those for `query`; usually empty
    fit: str  # for `fit`, which writes the table that `create` names; usually empty

    def for_dedup(self, distance: int) -> str:
        """Return all flags for `dedup` with this distance."""
        return " ".join(filter(None, (f"--profile {self.profile} --distance {distance}", self.query, self.dedup)))


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """The result of a calibration."""

    sample: Sample
    label_rejects: tuple[str, ...]  # invalid lines of the labels
    missing_ids: tuple[str, ...]  # labelled ids that the inputs do not have, ascending
    documents: int  # size of the planned collection
    own_documents: int  # the number that was asked for, or that of the inputs
    wanted: int  # number of near pairs, planted or labelled
    is_labelled: bool
    is_one_sided: bool  # whether the labels name near pairs only
    has_negatives: bool  # whether pairs of the sample are labelled as not near; documents of two clusters do not count
    undecided: float  # number of pairs that the recommendation finds, but neither labels nor texts judge; an estimate
    curves: tuple[Curve, ...]
    spreads: tuple[Spread, ...]
    choice: Recommendation
    plans: Mapping[str, Cost]  # by store, for the recommendation
    # by kind of edit: number found by the recommendation, and number planted; empty with labels
    found_by_edit: Mapping[str, tuple[int, int]]
    shown: tuple[Distance, ...]  # pairs in the sample around the recommended distance
    keyed: Distance  # pairs beyond that distance that share a key
    compared: tuple[ComparedProfile, ...]

    def is_estimate(self, score: DistanceScore) -> bool:
        """Whether precision and F1 are estimates: the sample does not have a false pair within the distance."""
        return not self.is_labelled and not score.false_pairs.seen

    def with_mark(self, share: float, score: DistanceScore) -> str:
        """Return a score's F1 or precision, marked if it is an estimate."""
        return f"{'≈ ' if self.is_estimate(score) else ''}{share:.3f}"

    @property
    def caveats(self) -> list[str]:
        """What the labels, or their absence, leave uncertain; may be empty."""
        if not self.is_labelled:
            return ["Without labels, similar documents that you would keep apart are not counted as false pairs."]
        caveats = list[str]()
        if is_chance(self.wanted, is_labelled=self.is_labelled):
            caveats.append(
                f"The labels contain {self.wanted:,} near pairs, too few for a reliable choice, so the defaults "
                f"are kept. Label at least {FEW_LABELS} near pairs."
            )
        elif self.is_one_sided:
            caveats.append(
                "The labels do not contain pairs that are not near, so the defaults are kept: similar documents that "
                "you would keep apart are not counted as false pairs. Add such pairs, with 0 in the third column."
            )
        elif self.has_negatives and not self.choice.curve.scores[-1].false_pairs.labelled:
            caveats.append(
                "No distance finds any pair labelled as not near, so these labels do not show which distance is too "
                "large. Also label similar pairs that you would keep apart."
            )
        if self.undecided:
            is_estimate = self.choice.score.false_pairs.weight > 1
            caveats.append(
                f"The recommended settings also find {'about ' if is_estimate else ''}"
                f"{plural(round(self.undecided), 'pair')} of similar texts that no label covers. These pairs are not "
                "counted as false pairs."
            )
        if self.missing_ids:
            caveats.append(
                f"The inputs do not contain {len(self.missing_ids):,} of the labelled ids, such as "
                f"{json.dumps(self.missing_ids[0], ensure_ascii=False)}; their labels are ignored."
            )
        return caveats

    @property
    def is_doubtful(self) -> bool:
        """Whether the labels are too few or too one-sided to leave the defaults."""
        return self.is_labelled and (is_chance(self.wanted, is_labelled=True) or self.is_one_sided)

    @property
    def reason(self) -> str:
        """Why the recommendation is not the defaults; empty if it is, or if the defaults were not compared."""
        if self.choice.default is None or self.choice.is_default:
            return ""
        curve, score = self.choice.default
        defaults = (
            f"The defaults, {curve.profile} within {plural(score.distance, 'bit')}, have an F1 of "
            f"{self.with_mark(score.f1, score)}."
        )
        if self.choice.score.distance == score.distance:
            return defaults
        return (
            f"{defaults} Of the settings that are clearly better and close to the best F1, this is the nearest to the "
            "default distance."
        )

    @property
    def learnt(self) -> dict[str, Learnt]:
        """What the table of each fitted profile was learnt from, by the profile's label."""
        return {one.label: one.profile.learnt for one in self.compared if one.fit == FIT_AUTO and one.profile.learnt}

    @property
    def flags(self) -> Flags:
        """The flags that select the recommendation, for an embedded index."""
        curve, way = self.choice.curve, self.choice.curve.way
        written, fit = next((one.written, one.fit) for one in self.compared if one.label == curve.profile)
        base, _, changes = written.partition(":")
        makes_more = any(one.profile == curve.profile and one.way != Way() for one in self.curves)
        if way == Way() and makes_more and "sketch=" not in changes and "key=" not in changes:  # fingerprints alone
            profile = f"{base}:sketch=off{changes and ','}{changes}"
        else:
            profile = written
        layout = self.plans[default_backend().name].layout.name
        kept = with_option(profile, f"rarity={TABLE}") if fit == FIT_AUTO else profile
        return Flags(
            profile,
            f"--profile {kept} --layout {layout} --distance {self.choice.score.distance}",
            "--max-sketch off" if way.has_key and not way.has_sketch else "",
            f"--fit {FIT_OFF}" if fit == FIT_OFF else "",
            f"--profile {profile} --output {TABLE}" if fit == FIT_AUTO else "",
        )

    def to_json(self) -> dict[str, object]:
        """Return everything except the texts."""
        curve, score, best_f1, _ = self.choice
        flags = self.flags
        return {
            "read": self.sample.read,
            "rejected": self.sample.rejected + len(self.label_rejects),
            "sample": len(self.sample.doc_ids),
            "documents": self.documents,
            "near_pairs": self.wanted,
            "labelled": self.is_labelled,
            "missing_ids": len(self.missing_ids),
            **({"word_weights": {label: one._asdict() for label, one in self.learnt.items()}} if self.learnt else {}),
            "recommended": {
                "profile": curve.profile,
                "way": str(curve.way),
                **_score(score),
                "best_f1": best_f1,
                "is_default": self.choice.is_default,
                "undecided": self.undecided,
                "fit": flags.fit,
                "create_table": flags.create,
                "query": flags.query,
                "plans": {
                    name: {"layout": cost.layout.name, "rows": cost.rows, "bytes": cost.bytes, "us": cost.time_us}
                    for name, cost in self.plans.items()
                },
            },
            "found_by_edit": {
                kind: {"found": found, "planted": planted} for kind, (found, planted) in self.found_by_edit.items()
            },
            "curves": [
                {
                    "profile": one.profile,
                    "way": str(one.way),
                    "scores": [
                        {**_score(score), "us": cost.time_us} for score, cost in zip(one.scores, one.costs, strict=True)
                    ],
                }
                for one in self.curves
            ],
            "histograms": [
                {"profile": one.profile, "near": one.near.tolist(), "unrelated": one.unrelated.tolist()}
                for one in self.spreads
            ],
        }


def _score(score: DistanceScore) -> dict[str, object]:
    expected, most = score.false_pairs.among(MILLION)
    return {
        "distance": score.distance,
        "precision": score.precision,
        "recall": score.recall,
        "f1": score.f1,
        "found": score.found,
        "wanted": score.wanted,
        "wrong": score.wrong,
        "unrelated_seen": score.false_pairs.seen,
        "unrelated_pairs": score.false_pairs.of,
        "false_per_million": expected,
        "false_per_million_at_most": most,
    }
