"""Texts → weighted features → fingerprints, a batch at a time, as a recipe says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from hsimhash.fingerprint import segment, tokens
from hsimhash.fingerprint.bits import Floats, Int64s, Uint8s, Uint32s, Uint64s
from hsimhash.fingerprint.hashes import murmur64, murmur64_spans
from hsimhash.fingerprint.normalize import HAN, SEPARATOR, SPACED, UNSPACED, classify, normalize, to_text
from hsimhash.fingerprint.recipe import Recipe
from hsimhash.fingerprint.vote import SCALE, capped, fold_hashes, fold_numbers, heaviest, vote, vote_in_order

VOTED, EXACT, TOO_SHORT = range(3)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Fingerprints of texts, in the order given: `values` uint64 and `kinds` uint8, shape (n,) each.

    A kind is `VOTED`; `EXACT`: too few features, so the hash of the normalised text; or `TOO_SHORT`: nothing to
    fingerprint, the value is 0 and must not be indexed.
    """

    values: Uint64s
    kinds: Uint8s

    @staticmethod
    def joined(parts: Iterable[Fingerprints]) -> Fingerprints:
        """Return fingerprints one after the other."""
        parts = [Fingerprints(np.empty(0, np.uint64), np.empty(0, np.uint8)), *parts]
        return Fingerprints(
            np.concatenate([part.values for part in parts]), np.concatenate([part.kinds for part in parts])
        )


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a batch of documents, no two of a document alike; shape (m,) each.

    `texts` makes the features' strings, in the same order: they are needed only to be looked at.
    """

    doc: Int64s
    hashes: Uint64s
    weights: Floats
    texts: Callable[[], list[str]]


def fingerprint_batch(recipe: Recipe, texts: Sequence[str]) -> Fingerprints:
    """Return the texts' fingerprints."""
    if recipe.is_plain:
        found = _heaviest_words(recipe, texts)
        values = vote_in_order(found.doc, found.hashes, found.weights, len(texts))
        count = np.bincount(found.doc, minlength=len(texts))
        return Fingerprints(values, np.where(count == 0, TOO_SHORT, VOTED).astype(np.uint8))
    codes = normalize(texts)
    classes = classify(codes)
    found = _features(recipe, codes, classes, len(texts))
    values = vote(found.doc, found.hashes, found.weights, len(texts))
    kinds = np.full(len(texts), VOTED, np.uint8)
    few = np.bincount(found.doc, minlength=len(texts)) < recipe.min_features
    if few.any():
        values[few], kinds[few] = _exact(np.flatnonzero(few), codes, classes, recipe.seed)
    return Fingerprints(values, kinds)


def find_features(recipe: Recipe, text: str) -> Features:
    """Return one text's features with the weights that they vote with."""
    if recipe.is_plain:
        return _heaviest_words(recipe, [text])
    codes = normalize([text])
    return _features(recipe, codes, classify(codes), 1)


def _exact(docs: Int64s, codes: Uint32s, classes: Uint8s, seed: int) -> tuple[Uint64s, Uint8s]:
    """Return the hash of the text of each of `docs`, and its kind; of those without a letter or digit 0, TOO_SHORT."""
    values, kinds = np.zeros(len(docs), np.uint64), np.full(len(docs), TOO_SHORT, np.uint8)
    ends = np.flatnonzero(codes == SEPARATOR)
    starts = np.concatenate([[0], ends + 1])[docs]
    letters = np.concatenate([[0], np.cumsum(np.isin(classes, (HAN, SPACED, UNSPACED)))])
    for place in np.flatnonzero(letters[ends[docs]] > letters[starts]).tolist():
        own = codes[starts[place] : ends[docs[place]]]
        values[place], kinds[place] = murmur64(to_text(own), seed), EXACT
    return values, kinds


def _features(recipe: Recipe, codes: Uint32s, classes: Uint8s, documents: int) -> Features:
    if recipe.tokens == "jieba":
        found = [_words(recipe, to_text(codes))]
    else:
        found = _features_by_script(recipe, codes, classes)
    doc = np.concatenate([part.doc for part in found])
    weight = np.concatenate([part.weights for part in found])
    return Features(
        doc,
        np.concatenate([part.hashes for part in found]),
        capped(doc, weight, recipe.cap, documents),
        lambda: [text for part in found for text in part.texts()],
    )


def _features_by_script(recipe: Recipe, codes: Uint32s, classes: Uint8s) -> list[Features]:
    every_script = recipe.tokens == "words"
    is_han = not every_script and bool((classes == HAN).any())  # else no dictionary is loaded
    han = [_words(recipe, tokens.han_runs(codes, classes))] if is_han else []
    codes, classes = tokens.drop_apostrophes(codes, classes)
    words = tokens.word_shingles(codes, classes, recipe.n, every_script=every_script)
    found = [*han, _shingles(recipe, words, recipe.word_unit)]
    if not every_script and (classes == UNSPACED).any():
        found.append(_shingles(recipe, tokens.char_shingles(codes, classes, recipe.char_n), recipe.char_unit))
    return found


def _words(recipe: Recipe, joined: str) -> Features:
    known = segment.vocabulary(recipe.idf_sha256, recipe.seed)
    doc, number, count = fold_numbers(*segment.number_words(joined, known))
    weight = np.rint(count * known.idf[number] * SCALE)
    return Features(doc, known.hashes[number], weight, lambda: [known.words[i] for i in number])


def _shingles(recipe: Recipe, spans: tokens.Spans, unit: int) -> Features:
    hashes = murmur64_spans(spans.buffer, spans.starts, spans.ends, recipe.seed)
    kept, count = fold_hashes(spans.doc, hashes)
    weight = (count * unit).astype(np.float64)
    return Features(spans.doc[kept], hashes[kept], weight, lambda: [spans.text(i) for i in kept])


def _heaviest_words(recipe: Recipe, texts: Sequence[str]) -> Features:
    """Return each text's words, order and weights as `jieba.analyse.extract_tags(text, recipe.top, True)` does."""
    known = segment.vocabulary(recipe.idf_sha256, recipe.seed)
    joined = "".join([text.replace(segment.SEPARATOR, " ") + segment.SEPARATOR for text in texts])
    try:
        doc, number = segment.number_words(joined, known)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"a text holds the lone surrogate U+{ord(joined[error.start]):04X}, and {recipe.name} normalises nothing; "
            "replace it before"
        ) from error
    doc, number, weight = heaviest(doc, number, known.idf[number], recipe.top, len(texts))
    return Features(doc, known.hashes[number], weight, lambda: [known.words[i] for i in number])
