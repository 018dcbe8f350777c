"""Run a calibration: compare profiles and distances on the user's texts, and recommend the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from hsimhash.calibrate.edits import EDITS, Planted, language_of, plant
from hsimhash.calibrate.labels import OPEN, UNRELATED, Labels, Truth, read_labels
from hsimhash.calibrate.options import DISTANCES, PLANNED, CalibrateOptions
from hsimhash.calibrate.results import Calibration, ComparedProfile, Spread, is_chance
from hsimhash.calibrate.sample import Sample, draw_sample
from hsimhash.calibrate.sample_pairs import Differences, PairCounts, SamplePairs, Way, compare_all, counted
from hsimhash.calibrate.scores import Curve, DistanceScore, FalsePairs, Recommendation, choose, expected
from hsimhash.calibrate.shingles import jaccard_indices, least_shingles
from hsimhash.dedup.report import Distance, ShownPair
from hsimhash.dedup.word_diff import compare
from hsimhash.errors import HsimhashError, Remedy
from hsimhash.fingerprint import DEFAULT_PROFILE, Profile, Signatures
from hsimhash.fingerprint.bits import Floats, Int64s, Uint64s
from hsimhash.fingerprint.fit import fitted_to
from hsimhash.fingerprint.profile import BATCH_DOCUMENTS
from hsimhash.fingerprint.rarity import FIT_AUTO, FIT_OFF
from hsimhash.fingerprint.stream import signature_stream
from hsimhash.inputs.files import Input, usual_workers
from hsimhash.layout import FINGERPRINT_BITS, Layout
from hsimhash.plan import Cost, cost, layouts_of, recommend
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store import Backend, backends, default_backend

EDITED = 500  # number of documents to plant edits in
NEAR_PAIRS = 100_000  # maximum number of near pairs to judge per profile; if there are more, a share of them is judged
COMPARED_CHARACTERS = 10_000_000  # maximum total length of texts whose differences are shown
PAIRS_SHOWN = 3  # per distance
CHEAPER = 0.8  # share of the default layout's cost below which another layout is worthwhile
BITS_SHOWN = range(-3, 4)  # offsets from the recommended distance
_FITTING = {  # the default profile, and others that suit a script
    "zh": (DEFAULT_PROFILE, "auto-2", "auto-1", "zh-1"),
    "en": (DEFAULT_PROFILE, "auto-2", "auto-1", "words-1"),
}
_FITTING_SHARE = 0.05  # minimum share of texts in a script for its profiles to be compared


class _TriedTexts(NamedTuple):
    """The texts on which every profile is tried."""

    own: Sequence[str]  # texts of the sample
    edited: Planted
    truth: Truth
    has_labels: bool
    least: Uint64s  # shingles of the sample's texts, for judging pairs


@dataclass(frozen=True, slots=True, eq=False)
class _Tried:
    """A profile, tried on the texts."""

    compared: ComparedProfile
    near: Differences  # near pairs: originals with edited texts, or labelled pairs
    pairs: SamplePairs
    met: Differences  # differences of the pairs that `pairs` lists
    weight: int  # number of pairs without labels that each listed one represents
    unlike: PairCounts  # pairs that no label covers and that would be false if they were found
    undecided: PairCounts  # pairs that no label covers and that may be near or not
    near_labels: Floats  # labelled near pairs at each distance, shape (65,)
    are_chosen: bool  # whether somebody chose which pairs to label as not near, so that they are not typical


def calibrate(inputs: Sequence[Input], options: CalibrateOptions, observer: Observer = UNWATCHED) -> Calibration:
    """Compare profiles and distances on the texts of `inputs`, and recommend a combination.

    Without labels, edits are planted in texts of the sample. A near pair is then an original and an edited text, and
    precision applies to a collection of `options.documents` documents with one near copy of each. With labels, it
    applies to the pairs in the sample. Unlabelled pairs are false only if their texts share less than a fifth of their
    shingles; otherwise they are left out.

    A profile that weighs features by their rarity is tried with a table fitted to the sample, and with its own table.

    Raises:
        HsimhashError: There are fewer than two texts, no near pairs, or (without labels) no unrelated pairs.
        ValueError: An input, a label or the name of a profile is invalid.
    """
    named = [(Profile.named(one) if isinstance(one, str) else one, one) for one in dict.fromkeys(options.profiles)]
    labels = read_labels(options.labels) if options.labels else Labels()
    sample = draw_sample(inputs, options, labels.doc_ids.union(labels.header), observer)
    texts = _texts(sample, labels, options)
    named = named or [(Profile.named(name), name) for name in fitting_profiles(sample.texts)]
    workers = options.workers or usual_workers(inputs)
    compared = [one for profile, given in named for one in _compared(profile, given, sample, workers)]
    tried = []
    for number, one in enumerate(compared):
        observer.report("compare", number, len(compared))
        tried.append(_try(one, texts, workers))
    documents = options.documents or max(sample.read, 0 if options.labels else PLANNED)
    curves = [curve for one in tried for curve in _curves(one, documents, is_labelled=options.labels is not None)]
    if not options.labels and not any(curve.scores[0].false_pairs.of for curve in curves):
        raise HsimhashError(
            "no two documents in the sample are unrelated, so precision cannot be measured; pass more documents, or "
            + Remedy("labels", "labels (--pairs)")
        )
    choice = _choice(curves, tried, labels)
    taken = next(one for one in tried if one.compared.label == choice.curve.profile)
    shown, keyed = _shown(taken, choice, sample)
    return Calibration(
        sample,
        labels.rejects_among(sample.doc_ids),
        tuple(sorted(labels.doc_ids.difference(sample.doc_ids))),
        documents,
        options.documents or sample.read,
        len(taken.near.distance),
        options.labels is not None,
        labels.are_one_sided,
        len(texts.truth.unlike) > 0,
        _undecided(taken, choice),
        tuple(curves),
        tuple(map(_spread, tried)),
        choice,
        _plans(choice, documents),
        _found_by_edit(taken, choice, texts.edited),
        shown,
        keyed,
        tuple(compared),
    )


def _choice(curves: Sequence[Curve], tried: Sequence[_Tried], labels: Labels) -> Recommendation:
    compared, near_pairs = [one.compared for one in tried], len(tried[0].near.distance)
    usual = next((one.label for one in compared if one.written == DEFAULT_PROFILE), DEFAULT_PROFILE)
    is_doubtful = labels.are_one_sided or is_chance(near_pairs, is_labelled=bool(labels.doc_ids))
    return choose(curves, usual, is_doubtful=is_doubtful)


def _compared(profile: Profile, given: Profile | str, sample: Sample, workers: int) -> Iterator[ComparedProfile]:
    """Yield a profile fitted to the sample, then the unfitted profile; or only the latter if it cannot be fitted."""
    fitted = fitted_to(sample.texts, profile, workers=workers)
    written = given if isinstance(given, str) else given.name
    if fitted is profile:
        yield ComparedProfile(profile.name, profile, written)
    else:
        yield ComparedProfile(f"{profile.name} (fitted)", fitted, written, FIT_AUTO)
        yield ComparedProfile(f"{profile.name} (not fitted)", profile, written, FIT_OFF)


def fitting_profiles(texts: Sequence[str]) -> list[str]:
    """Return the names of built-in profiles that suit the scripts of the texts."""
    languages = [language_of(text) for text in texts]
    names = (_FITTING[one] for one in _FITTING if languages.count(one) >= _FITTING_SHARE * len(texts))
    return list(dict.fromkeys(name for of_script in names for name in of_script))


def _texts(sample: Sample, labels: Labels, options: CalibrateOptions) -> _TriedTexts:
    if len(sample.texts) < 2:
        raise HsimhashError(f"too few documents to compare: expected at least 2, got {len(sample.texts)}")
    truth = Truth.of(labels, sample.doc_ids)
    edited = Planted((), (), ()) if options.labels else plant(sample.texts, EDITED)
    if not len(edited.texts) + len(truth.near):
        if not options.labels:
            raise HsimhashError("all texts are empty, so no edit can change them")
        missing = min(labels.doc_ids - set(sample.doc_ids), default="")
        raise HsimhashError(
            f"none of the near pairs in {options.labels} are in the documents: "
            + (f"no document has the id {missing!r:.80}, but one has {sample.doc_ids[0]!r:.80}; " if missing else "")
            + "if the second column holds clusters, put the header id<TAB>cluster on the first line"
        )
    return _TriedTexts(sample.texts, edited, truth, options.labels is not None, least_shingles(sample.texts))


def _try(compared: ComparedProfile, texts: _TriedTexts, workers: int) -> _Tried:
    profile = compared.profile
    profile.verify()
    every = [*texts.own, *texts.edited.texts]
    rows = 4 * BATCH_DOCUMENTS
    batches = (every[at : at + rows] for at in range(0, len(every), rows))
    signed = Signatures.joined(batch.signatures for batch in signature_stream(profile, batches, workers))
    own, edited = signed[: len(texts.own)], signed[len(texts.own) :]
    original = np.array(texts.edited.original, np.int64)
    ends = (own[original], edited) if len(original) else (own[texts.truth.left], own[texts.truth.right])
    pairs = compare_all(own, NEAR_PAIRS, texts.truth.are_unlike if texts.has_labels else None)
    is_open = texts.truth.labelled(pairs.left, pairs.right) == OPEN
    is_unrelated = jaccard_indices(texts.least, pairs.left, pairs.right) < UNRELATED
    met, near = Differences.between(own[pairs.left], own[pairs.right]), Differences.between(*ends)
    weight = pairs.weight if is_open.any() else 1
    return _Tried(
        compared,
        near,
        pairs,
        met,
        weight,
        unlike=PairCounts.weighed(met.where(is_open & is_unrelated), weight),
        undecided=PairCounts.weighed(met.where(is_open & ~is_unrelated), weight),
        near_labels=counted(near.distance) * texts.has_labels,
        are_chosen=len(texts.truth.unlike) > 0,
    )


def _curves(tried: _Tried, documents: int, *, is_labelled: bool) -> Iterator[Curve]:
    """Yield the scores of a profile for each way to use it in a query."""
    wanted = len(tried.near.distance)
    number = wanted if is_labelled else documents
    for way, wrong in _false_pairs(tried):
        shares = np.cumsum(counted(tried.near.reach(way))) / wanted
        scores = (
            DistanceScore.of(bits, share, number, one.seen if is_labelled else one.among(number)[0], one, documents)
            for bits, share, one in zip(DISTANCES, shares.tolist(), wrong, strict=False)
        )
        costs = _costs(documents, key_rows=0 if way == Way() else tried.compared.profile.key_kind.most_parts)
        yield Curve(tried.compared.label, way, tuple(scores), costs)


def _false_pairs(tried: _Tried) -> Iterator[tuple[Way, list[FalsePairs]]]:
    """Yield each way with the unrelated pairs that each distance finds. Comparing sketches never finds more pairs."""
    pairs = tried.pairs.total - int(tried.near_labels.sum() + tried.undecided.counts.sum())
    most_expected = np.full(FINGERPRINT_BITS + 1, np.inf)
    profile = tried.compared.profile
    has_key, has_sketch = profile.key is not None, profile.sketch is not None
    for way in dict.fromkeys([Way(), Way(has_key), Way(has_key, has_sketch)]):
        (typical, by_key), (labelled, labelled_by_key) = tried.unlike.found(way), tried.pairs.unlike.found(way)
        seen = np.cumsum(typical + labelled) + by_key + labelled_by_key
        chosen = np.cumsum(labelled) + labelled_by_key if tried.are_chosen else np.zeros(len(labelled))
        if not tried.are_chosen:
            typical, by_key = typical + labelled, by_key + labelled_by_key
        if not way.has_sketch:  # all pairs beyond those listed are unrelated
            typical[DISTANCES[-1] + 1 :] = tried.pairs.distances[DISTANCES[-1] + 1 :]
        most_expected = np.minimum(expected(np.cumsum(typical)), most_expected)
        rows = zip(*(one[: DISTANCES.stop].tolist() for one in (seen, most_expected + by_key, chosen)), strict=True)
        yield way, [FalsePairs(found, pairs, likely, tried.weight, named) for found, likely, named in rows]


@cache
def _costs(documents: int, *, key_rows: int) -> tuple[Cost, ...]:
    """Return the cost of a query for each distance, in an embedded index created without options."""
    backend = default_backend()
    layout = Layout.named(backend.layout)
    return tuple(cost(layout, documents, distance, backend.prices, key_rows=key_rows) for distance in DISTANCES)


def _plans(choice: Recommendation, documents: int) -> dict[str, Cost]:
    """Return the cost of the recommendation on each store, with the default layout unless another is much cheaper."""
    key_rows, distance = choice.curve.costs[0].key_rows, choice.score.distance

    def best(backend: Backend) -> Cost:
        layouts = layouts_of(distance)
        costs = [cost(layout, documents, distance, backend.prices, key_rows=key_rows) for layout in layouts]
        cheapest = recommend(costs)[0]
        default = next((one for one in costs if one.layout.name == backend.layout), cheapest)
        is_cheaper = cheapest.rows * cheapest.time_us < CHEAPER * default.rows * default.time_us
        return cheapest if is_cheaper else default

    return {name: best(backend) for name, backend in backends().items()}


def _spread(tried: _Tried) -> Spread:
    undecided = counted(tried.undecided.differences.distance, tried.undecided.counts)
    unrelated = tried.pairs.distances - tried.near_labels - undecided
    return Spread(tried.compared.label, counted(tried.near.distance), np.maximum(unrelated, 0))


def _undecided(tried: _Tried, choice: Recommendation) -> float:
    """Return how many pairs the recommendation finds that neither labels nor texts judge."""
    by_distance, by_key = tried.undecided.found(choice.curve.way)
    return float(by_distance[: choice.score.distance + 1].sum()) + by_key


def _found_by_edit(tried: _Tried, choice: Recommendation, edited: Planted) -> dict[str, tuple[int, int]]:
    is_found = tried.near.reach(choice.curve.way) <= choice.score.distance
    kinds = np.array(edited.kinds)
    return {
        kind: (int(is_found[kinds == kind].sum()), int((kinds == kind).sum())) for kind in EDITS if kind in edited.kinds
    }


def _shown(tried: _Tried, choice: Recommendation, sample: Sample) -> tuple[tuple[Distance, ...], Distance]:
    """Return sample pairs at distances around the recommended one, and pairs beyond it that share a key."""
    met, way, most = tried.met, choice.curve.way, choice.score.distance
    by_distance, left_chars = met.by_distance(way), COMPARED_CHARACTERS
    ends = tried.pairs.left, tried.pairs.right

    def some(places: Int64s) -> tuple[ShownPair, ...]:
        nonlocal left_chars
        pairs = []
        for place in places[np.linspace(0, len(places) - 1, min(len(places), PAIRS_SHOWN)).astype(np.int64)].tolist():
            left, right = (int(one[place]) for one in ends)
            texts = sample.texts[left], sample.texts[right]
            left_chars -= sum(map(len, texts))
            comparison = compare(*texts) if left_chars >= 0 else None
            pairs.append(ShownPair(sample.doc_ids[left], sample.doc_ids[right], int(met.distance[place]), comparison))
        return tuple(pairs)

    def at(bits: int, places: Int64s, *, is_within: bool) -> Distance:
        return Distance(bits, len(places) * tried.pairs.weight, is_within, some(places))

    shown = [
        at(bits, np.flatnonzero(by_distance == bits), is_within=bits <= most)
        for bits in (most + step for step in BITS_SHOWN if most + step >= 0)
    ]
    by_key = np.flatnonzero(met.by_key(way) & (by_distance > most))
    return tuple(shown), at(most, by_key, is_within=True)
