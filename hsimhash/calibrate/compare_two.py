"""Compare two documents: their distance, whether a query by one finds the other, and which features move which bits.

A bit of a fingerprint is 1 if the features that vote for it outweigh those that vote against it. A feature whose weight
differs between two texts raises or lowers the sum of each bit. This change is its *push*. The pushes of all features
add up to the change in the sum, so they explain exactly what flipped a bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from hsimhash.cover import Cover, Probe
from hsimhash.dedup.word_diff import Comparison, compare
from hsimhash.fingerprint import EXACT, Profile, Signature
from hsimhash.fingerprint.bits import Floats, Uint64s
from hsimhash.fingerprint.features import key_features
from hsimhash.fingerprint.signature import most_differing, similarity
from hsimhash.layout import FINGERPRINT_BITS, Layout
from hsimhash.matching import Rule
from hsimhash.store import Document

FEATURES_SHOWN = 20  # maximum number of features to list
FEATURES_OF_BIT = 3  # maximum number of features to list per bit


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two documents: a text, or a document in an index, whose text is not available."""

    name: str  # name for the output
    signature: Signature
    text: str | None = None


@dataclass(frozen=True, slots=True)
class BlockDifference:
    """A block of the layout: its highest and lowest bit, and the differing bits in it. Bit 0 is the lowest."""

    highest: int
    lowest: int
    differing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ProbeMeeting:
    """A probe of a query by one document; it finds the other if at most `radius` of the probed bits differ."""

    probe: Probe
    differing: int  # number of differing bits among the probed ones

    @property
    def meets(self) -> bool:
        """Whether the probe reads the other document."""
        return self.differing <= self.probe.radius


@dataclass(frozen=True, slots=True)
class FeaturePush:
    """A feature with different weights in the two texts, and its effect on the differing bits."""

    text: str
    weights: tuple[float, float]  # weight in the vote of each text; 0 if the text does not have the feature
    bits: tuple[int, ...]  # the differing bits that it pushed in the direction of their flip
    push: float  # pushes towards the flips minus pushes against them, over all differing bits


@dataclass(frozen=True, slots=True)
class FlippedBit:
    """A differing bit: the sums of the votes in both texts, and the features that pushed it most."""

    bit: int  # counted from the lowest bit, 0
    sums: tuple[float, float]
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TwoDocuments:
    """The result of comparing two documents."""

    sides: tuple[Side, Side]
    distance: int
    similarity: float | None  # estimated from the sketches; None if one is missing
    shares_key: bool
    found_by: str | None  # "distance" or "key" if a query by one finds the other, otherwise None
    reason: str  # why the query does not find it; empty if it does
    blocks: tuple[BlockDifference, ...]
    probes: tuple[ProbeMeeting, ...]  # probes of a query for the requested distance
    features: tuple[FeaturePush, ...] = ()  # those with the greatest push; empty if a text or its vote is missing
    flips: tuple[FlippedBit, ...] = ()
    features_missing: str = ""  # why there are no features; empty if there are any
    key_features: tuple[list[str], list[str]] | None = None  # see `_key_features`
    words: Comparison | None = None  # None if a text is not available, or both together are too long

    def to_json(self) -> dict[str, object]:
        """Return JSON values, without the texts except for differing words."""
        a, b = self.sides
        return {
            "a": {"name": a.name, **a.signature.to_json()},
            "b": {"name": b.name, **b.signature.to_json()},
            "distance": self.distance,
            "similarity": self.similarity,
            "shares_key": self.shares_key,
            "found_by": self.found_by,
            "reason": self.reason,
            "blocks": [asdict(one) for one in self.blocks],
            "probes": [{**asdict(one.probe), "differing": one.differing, "meets": one.meets} for one in self.probes],
            "features": [asdict(one) for one in self.features],
            "flips": [asdict(one) for one in self.flips],
            "features_missing": self.features_missing,
            "key_features": self.key_features,
            "words": self.words and _words(self.words),
        }


def explain_two(a: Side, b: Side, profile: Profile, cover: Cover, *, max_sketch: int | None) -> TwoDocuments:
    """Compare two documents, and determine whether a query by one finds the other.

    Args:
        a: First document.
        b: Second document.
        profile: Profile that made their signatures.
        cover: Cover that a query reads.
        max_sketch: Maximum number of differing bits in the sketches; None: no limit.
    """
    differing = a.signature.fingerprint ^ b.signature.fingerprint
    keying = profile.key_kind
    found_by, reason = _verdict(a.signature, b.signature, Rule(cover.distance, max_sketch, None, keying))
    both = a.text is not None and b.text is not None
    missing = (
        ""
        if both
        else "fingerprints and indexes do not contain texts; to see features and words, pass both as files or texts"
    )
    if both and EXACT in profile.fingerprints([str(a.text), str(b.text)]).kinds:
        missing = (
            f"a text with fewer than {profile.min_features} features does not have a vote: its fingerprint is a hash "
            "of the whole text"
        )
    features, flips = ((), ()) if missing else _pushes(profile, (a, b), differing)
    return TwoDocuments(
        (a, b),
        differing.bit_count(),
        similarity(a.signature.sketch, b.signature.sketch),
        keying.is_shared(a.signature.key, b.signature.key),
        found_by,
        reason,
        _blocks(cover.layout, differing),
        tuple(ProbeMeeting(probe, _differing_in(cover.layout, probe, differing)) for probe in cover.probes),
        features,
        flips,
        missing,
        _key_features(profile, a, b),
        compare(str(a.text), str(b.text)) if both else None,
    )


def _key_features(profile: Profile, a: Side, b: Side) -> tuple[list[str], list[str]] | None:
    """Return what the two keys are made from, heaviest first; None unless both texts are available and have keys."""
    if a.text is None or b.text is None or not (a.signature.key and b.signature.key):
        return None
    return key_features(profile, a.text), key_features(profile, b.text)


def _verdict(a: Signature, b: Signature, rule: Rule) -> tuple[str | None, str]:
    """Return how a query by one document finds the other ("distance" or "key"), or the reason why it does not."""

    def found(most_sketch: int | None) -> str | None:
        document = Document("b", b.fingerprint, 0, b.sketch, b.key)
        match = rule._replace(max_sketch=most_sketch).match(a, document)
        return match.found_by if match else None

    if by := found(rule.max_sketch):
        return by, ""
    bits = (a.fingerprint ^ b.fingerprint).bit_count()
    if (by := found(None)) and rule.max_sketch is not None:
        differing, most = (a.sketch ^ b.sketch).bit_count(), most_differing(rule.max_sketch, bits)
        near = "their fingerprints are near" if by == "distance" else f"they are {bits} bits apart and share a key"
        return None, f"{near}, but their sketches differ in {differing} bits, more than {most}"
    keys = ", and they do not share a key" if a.key and b.key else ""
    return None, f"their fingerprints are {bits} bits apart, more than {rule.max_distance}{keys}"


def _blocks(layout: Layout, differing: int) -> tuple[BlockDifference, ...]:
    found, above = [], FINGERPRINT_BITS
    for width in layout.outer.blocks:
        lowest = above - width
        bits = tuple(bit for bit in range(above - 1, lowest - 1, -1) if differing >> bit & 1)
        found.append(BlockDifference(above - 1, lowest, bits))
        above = lowest
    return tuple(found)


def _differing_in(layout: Layout, probe: Probe, differing: int) -> int:
    """Return the number of differing bits among a probe's bits."""
    places = layout.drawers[probe.drawer - 1].positions[: probe.bits]
    return sum(differing >> (FINGERPRINT_BITS - 1 - place) & 1 for place in places)


def _pushes(
    profile: Profile, sides: tuple[Side, Side], differing: int
) -> tuple[tuple[FeaturePush, ...], tuple[FlippedBit, ...]]:
    """Return the features with the greatest push, and the differing bits with the features that pushed them."""
    names, hashes, weights = _weighed(profile, [str(side.text) for side in sides])
    fingerprint = sides[1].signature.fingerprint
    bits = [bit for bit in range(FINGERPRINT_BITS) if differing >> bit & 1]
    signs = (hashes[:, None] >> np.array(bits, np.uint64) & np.uint64(1)).astype(np.float64) * 2 - 1
    sums = signs.T @ weights  # shape (bits, 2)
    # Do not use the sign of a sum: in a tie, the rounding of floats depends on the order of the terms.
    way = np.array([1.0 if fingerprint >> bit & 1 else -1.0 for bit in bits])
    pushes = signs * (weights[:, 1] - weights[:, 0])[:, None] * way
    total = pushes.sum(axis=1)
    order = np.argsort(-total, kind="stable")[:FEATURES_SHOWN]
    features = tuple(
        FeaturePush(
            names[at],
            (float(weights[at, 0]), float(weights[at, 1])),
            tuple(bits[place] for place in np.flatnonzero(pushes[at] > 0)),
            float(total[at]),
        )
        for at in order.tolist()
        if total[at] > 0
    )
    return features, tuple(_flip(names, bit, sums[at], pushes[:, at]) for at, bit in enumerate(bits))


def _flip(names: list[str], bit: int, sums: Floats, pushes: Floats) -> FlippedBit:
    heaviest = np.argsort(-pushes, kind="stable")[:FEATURES_OF_BIT].tolist()
    return FlippedBit(bit, (float(sums[0]), float(sums[1])), tuple(names[at] for at in heaviest if pushes[at] > 0))


def _weighed(profile: Profile, texts: Sequence[str]) -> tuple[list[str], Uint64s, Floats]:
    """Return all features of two texts: each feature's text, its hash, and its weight in each text, shape (m, 2)."""
    names: dict[int, str] = {}
    weights: dict[int, list[float]] = {}
    for side, text in enumerate(texts):
        for feature in profile.features(text):
            names.setdefault(feature.hash, feature.text)
            weights.setdefault(feature.hash, [0.0, 0.0])[side] += feature.weight
    return list(names.values()), np.array(list(names), np.uint64), np.array(list(weights.values())).reshape(-1, 2)


def _words(words: Comparison) -> dict[str, object]:
    return {
        "equal_share": words.equal_share,
        "passages": [[part._asdict() for part in passage] for passage in words.passages.shown],
        "hidden": words.passages.hidden,
    }
