"""Texts → weighted features → fingerprints, sketches and keys, a batch at a time, as a recipe says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from hsimhash.fingerprint import segment, tokens
from hsimhash.fingerprint.bits import Floats, Int64s, Uint8s, Uint32s, Uint64s
from hsimhash.fingerprint.english import WHOLE, english, english_parts, own_weights
from hsimhash.fingerprint.hashes import murmur64, murmur64_spans
from hsimhash.fingerprint.normalize import HAN, SEPARATOR, SPACED, UNSPACED, classify, normalize, simplify, to_text
from hsimhash.fingerprint.recipe import OWN, Recipe
from hsimhash.fingerprint.signature import EXACT, TOO_SHORT, VOTED, Signatures
from hsimhash.fingerprint.sketch import character_hashes, keys, shingle_hashes, sketches
from hsimhash.fingerprint.vote import (
    SCALE,
    capped,
    fold_hashes,
    fold_numbers,
    fold_weights,
    heaviest,
    vote,
    vote_in_order,
)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Fingerprints of texts, in the order given: `values` uint64 and `kinds` uint8, shape (n,) each.

    A kind is `VOTED`; `EXACT`: too few features, so the hash of the normalised text; or `TOO_SHORT`: nothing to
    fingerprint, the value is 0 and must not be indexed.
    """

    values: Uint64s
    kinds: Uint8s


@dataclass(frozen=True, slots=True)
class Features:
    """Features of a batch of documents, no two of a document alike; shape (m,) each.

    `texts` makes the features' strings, in the same order: they are needed only to be looked at.
    """

    doc: Int64s
    hashes: Uint64s
    weights: Floats
    texts: Callable[[], list[str]]

    def capped(self, cap: int | None, documents: int) -> Features:
        """Return them with the weights that they vote with."""
        return replace(self, weights=capped(self.doc, self.weights, cap, documents))

    @staticmethod
    def joined(parts: Sequence[Features]) -> Features:
        """Return features one after the other."""
        return Features(
            np.concatenate([part.doc for part in parts]),
            np.concatenate([part.hashes for part in parts]),
            np.concatenate([part.weights for part in parts]),
            lambda: [text for part in parts for text in part.texts()],
        )


class _Batch:
    """Normalised texts; what several parts of a signature need of them is found once."""

    def __init__(self, recipe: Recipe, texts: Sequence[str]) -> None:
        self.recipe, self.count = recipe, len(texts)
        self.codes = normalize(texts)
        self.classes = classify(self.codes)
        self.has_han = bool((self.classes == HAN).any())
        if self.has_han and recipe.han is not None:
            self.codes = simplify(self.codes)  # Han stays Han

    @cached_property
    def bare(self) -> tuple[Uint32s, Uint8s]:
        """Code points and classes without the apostrophes inside words."""
        return tokens.drop_apostrophes(self.codes, self.classes)

    @cached_property
    def words(self) -> tokens.Units:
        """Words of scripts with spaces."""
        return tokens.word_units(*self.bare, every_script=False)

    @cached_property
    def word_spans(self) -> tokens.Spans:
        """Their UTF-8."""
        return self.words.spans()

    @cached_property
    def word_hashes(self) -> Uint64s:
        """Their hashes."""
        return murmur64_spans(self.word_spans.buffer, self.word_spans.starts, self.word_spans.ends, self.recipe.seed)


def signature_batch(recipe: Recipe, texts: Sequence[str], *, has_sketches: bool) -> Signatures:
    """Return the texts' signatures; sketches and keys if the recipe makes them and they are wanted."""
    none = np.zeros(len(texts), np.uint64)
    if recipe.is_plain:
        found = _heaviest_words(recipe, texts)
        values = vote_in_order(found.doc, found.hashes, found.weights, len(texts))
        is_empty = np.bincount(found.doc, minlength=len(texts)) == 0
        return Signatures(values, none, none, np.where(is_empty, TOO_SHORT, VOTED).astype(np.uint8))
    batch = _Batch(recipe, texts)
    found = _features(batch)
    voting = found.capped(recipe.cap, batch.count)
    values = vote(voting.doc, voting.hashes, voting.weights, batch.count)
    sketch = _sketches(batch, recipe.sketch) if recipe.sketch and has_sketches else none
    key = keys(found.doc, found.hashes, found.weights, recipe.key, batch.count) if recipe.key and has_sketches else none
    kinds = np.full(batch.count, VOTED, np.uint8)
    few = np.bincount(found.doc, minlength=batch.count) < recipe.min_features
    if few.any():
        values[few], kinds[few] = _exact(np.flatnonzero(few), batch)
        key[few] = 0
    return Signatures(values, sketch, key, kinds)


def find_features(recipe: Recipe, text: str) -> Features:
    """Return one text's features with the weights that they vote with."""
    if recipe.is_plain:
        return _heaviest_words(recipe, [text])
    return _features(_Batch(recipe, [text])).capped(recipe.cap, 1)


def document_words(recipe: Recipe, texts: Sequence[str]) -> Counter[str]:
    """Return the words that weigh by an idf table, and in how many of the texts each is."""
    if recipe.is_plain:
        return Counter(_heaviest_words(replace(recipe, name="all", top=None), texts).texts())
    batch = _Batch(recipe, texts)
    if recipe.tokens == "jieba":
        return Counter(_chinese(recipe, to_text(batch.codes)).texts())
    counts = Counter(_chinese(recipe, tokens.han_runs(batch.codes, batch.classes)).texts() if batch.has_han else ())
    first, _ = fold_hashes(batch.words.doc, batch.word_hashes, "stable")
    _, place, count = np.unique(batch.word_hashes[first], return_index=True, return_counts=True)
    counts.update(dict(zip(map(batch.word_spans.text, first[place].tolist()), count.tolist(), strict=True)))
    return counts


def normalized_words(recipe: Recipe, words: Sequence[str]) -> list[str]:
    """Return words as they are in texts that the recipe normalised."""
    return to_text(_Batch(recipe, words).bare[0]).split(chr(SEPARATOR))[:-1]


def _sketches(batch: _Batch, n: int) -> Uint64s:
    """Return the sketches by shingles of n words and characters of scripts without spaces."""
    if batch.has_han or (batch.classes == UNSPACED).any():
        units = tokens.word_units(*batch.bare, every_script=True)
        first = units.first[:-1]
        hashes = character_hashes(units.chars[first])
        hashes[classify(units.chars[first]) == SPACED] = batch.word_hashes
    else:
        units, hashes = batch.words, batch.word_hashes
    start, stop = units.rows(n)
    return sketches(units.doc[start], shingle_hashes(hashes, start, stop), batch.count)


def _exact(docs: Int64s, batch: _Batch) -> tuple[Uint64s, Uint8s]:
    """Return the hash of the text of each of `docs`, and its kind; of those without a letter or digit 0, TOO_SHORT."""
    values, kinds = np.zeros(len(docs), np.uint64), np.full(len(docs), TOO_SHORT, np.uint8)
    ends = np.flatnonzero(batch.codes == SEPARATOR)
    starts = np.concatenate([[0], ends + 1])[docs]
    letters = np.concatenate([[0], np.cumsum(np.isin(batch.classes, (HAN, SPACED, UNSPACED)))])
    for place in np.flatnonzero(letters[ends[docs]] > letters[starts]).tolist():
        own = batch.codes[starts[place] : ends[docs[place]]]
        values[place], kinds[place] = murmur64(to_text(own), batch.recipe.seed), EXACT
    return values, kinds


def _features(batch: _Batch) -> Features:
    recipe = batch.recipe
    if recipe.tokens == "jieba":
        found = [_chinese(recipe, to_text(batch.codes))]
    elif recipe.tokens == "words":
        found = [_shingles(recipe, tokens.word_shingles(*batch.bare, recipe.n, every_script=True), recipe.word_unit)]
    else:
        found = list(_features_by_script(batch))
    return Features.joined(found)


def _features_by_script(batch: _Batch) -> Iterator[Features]:
    recipe = batch.recipe
    if batch.has_han:  # else no dictionary is loaded
        yield _chinese(recipe, tokens.han_runs(batch.codes, batch.classes))
    if recipe.english is None:
        yield _shingles(recipe, tokens.word_shingles(*batch.bare, recipe.n, every_script=False), recipe.word_unit)
    else:
        yield _words(batch)
    if (batch.classes == UNSPACED).any():
        yield _shingles(recipe, tokens.char_shingles(*batch.bare, recipe.char_n), recipe.char_unit)


def _words(batch: _Batch) -> Features:
    """Return words by the table and shingles of them, weighing as much as the document is English, or is not."""
    single, part = _single_words(batch)
    is_rest = part[batch.words.doc] < WHOLE
    if not is_rest.any():
        return single
    rest = batch.words.of(is_rest)
    rows = _shingles(batch.recipe, tokens.shingles(rest, batch.recipe.n, gap=True), batch.recipe.word_unit)
    both = Features.joined([single, replace(rows, weights=np.rint(rows.weights * (WHOLE - part[rows.doc]) / WHOLE))])
    # A stretch of one word is a word and a shingle; few documents have both.
    is_mixed = ((part > 0) & (part < WHOLE))[both.doc]
    alone, mixed = np.flatnonzero(~is_mixed), np.flatnonzero(is_mixed)
    folded, weight = fold_weights(both.doc[mixed], both.hashes[mixed], both.weights[mixed])
    kept = np.append(alone, mixed[folded])
    weights = np.append(both.weights[alone], weight)
    return Features(both.doc[kept], both.hashes[kept], weights, lambda: list(map(both.texts().__getitem__, kept)))


def _single_words(batch: _Batch) -> tuple[Features, Int64s]:
    """Return the words of documents that are English in part, or all by an own table, and how much each document is."""
    recipe, doc, hashes, spans = batch.recipe, batch.words.doc, batch.word_hashes, batch.word_spans
    first, count = fold_hashes(doc, hashes, "stable")
    if recipe.english == OWN:
        weight, _ = own_weights(recipe.idf_sha256, recipe.stops, recipe.seed).find(hashes[first])
        part = np.full(batch.count, WHOLE)
    else:
        weight, is_common = english(recipe.seed).find(hashes[first])
        words = np.bincount(doc, minlength=batch.count)
        part = english_parts(words, np.bincount(doc[first], count * is_common, batch.count))
    is_english = part[doc[first]] > 0
    kept = first[is_english]
    weight = np.rint((count * weight)[is_english] * part[doc[kept]] / WHOLE)
    return Features(doc[kept], hashes[kept], weight, lambda: [spans.text(i) for i in kept]), part


def _chinese(recipe: Recipe, joined: str) -> Features:
    known = segment.vocabulary(recipe.lists, recipe.seed)
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
    known = segment.vocabulary(recipe.lists, recipe.seed)
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
