"""Turn batches of texts into weighted features, and features into signatures, as defined by a recipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from hsimhash.fingerprint import pieces, segment, tokens
from hsimhash.fingerprint.batch import LETTERS, TextBatch, refuse_surrogates
from hsimhash.fingerprint.bits import Bools, Floats, Int64s, Uint8s, Uint64s, sorted_distinct
from hsimhash.fingerprint.cppjieba import extractor
from hsimhash.fingerprint.custom_features import parsed_features, weighted_hashes
from hsimhash.fingerprint.document_fields import split_fields
from hsimhash.fingerprint.feature_weights import BY_IDF, WHOLE, english, english_parts, own_weights, weigh
from hsimhash.fingerprint.murmur3 import HASH_NAME, murmur64_spans
from hsimhash.fingerprint.named_hashes import HASHES
from hsimhash.fingerprint.native import native_features, native_shingles, native_signatures
from hsimhash.fingerprint.normalize import (
    SEPARATOR,
    to_codes,
    to_text,
)
from hsimhash.fingerprint.rarity import OFTEN, key_weights, pair_hashes, rarity_table, vote_weights
from hsimhash.fingerprint.rarity import SCALE as RAREST
from hsimhash.fingerprint.recipe import BY_RARITY, OWN, Recipe
from hsimhash.fingerprint.signature import EXACT, TOO_SHORT, VOTED, Signatures
from hsimhash.fingerprint.sketch import MOST_SHINGLE, heaviest_features, shingle_hashes, sketches
from hsimhash.fingerprint.vote import (
    SCALE,
    capped,
    fold_hashes,
    fold_numbers,
    fold_weights,
    heaviest,
    vote,
    vote_alike,
    vote_in_order,
)


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Fingerprints of texts, in order: `values` uint64 and `kinds` uint8, shape (n,) each.

    A kind is one of:

    - `VOTED`: the features voted.
    - `EXACT`: there were too few features, so the value is the hash of the normalised text.
    - `TOO_SHORT`: there was nothing to fingerprint, so the value is 0 and must not be indexed.
    """

    values: Uint64s
    kinds: Uint8s


@dataclass(frozen=True, slots=True)
class Features:
    """The distinct features of each document in a batch; arrays of shape (m,).

    `texts` returns the features' strings in the same order. They are built on demand, only for display.
    """

    doc: Int64s
    hashes: Uint64s
    weights: Floats
    texts: Callable[[], list[str]]
    key_weights: Floats | None = None  # weights for choosing the key; None: `weights` is used

    def of(self, places: Int64s) -> Features:
        """Return the features at the given indices."""
        return Features(
            self.doc[places],
            self.hashes[places],
            self.weights[places],
            lambda: list(map(self.texts().__getitem__, places)),
            None if self.key_weights is None else self.key_weights[places],
        )

    @property
    def voting(self) -> Features:
        """The features that vote; all other features only contribute to the key."""
        return self if self.key_weights is None else self.of(np.flatnonzero(self.weights))

    def capped(self, cap: int | None, documents: int) -> Features:
        """Return the features with their weights capped for the vote."""
        return replace(self, weights=capped(self.doc, self.weights, cap, documents))

    @staticmethod
    def joined(parts: Sequence[Features]) -> Features:
        """Concatenate features."""
        return Features(
            np.concatenate([part.doc for part in parts]),
            np.concatenate([part.hashes for part in parts]),
            np.concatenate([part.weights for part in parts]),
            lambda: [text for part in parts for text in part.texts()],
            _joined([part.key_weights for part in parts]),
        )


def _joined(parts: Sequence[Floats | None]) -> Floats | None:
    given = [part for part in parts if part is not None]
    return np.concatenate(given) if given else None


def signature_batch(recipe: Recipe, texts: Sequence[str], *, has_sketches: bool) -> Signatures:
    """Return the texts' signatures, with sketches and keys if the recipe makes them and `has_sketches` is set."""
    none = np.zeros(len(texts), np.uint64)
    if (signed := native_signatures(recipe, texts)) is not None:
        return signed if has_sketches else replace(signed, sketches=none, keys=none)
    if recipe.is_plain:
        found = _heaviest_words(recipe, texts)
        values = vote_in_order(found.doc, found.hashes, found.weights, len(texts), recipe.tie)
        kinds = np.where(np.bincount(found.doc, minlength=len(texts)) == 0, TOO_SHORT, VOTED).astype(np.uint8)
        return Signatures(np.where(kinds == TOO_SHORT, none, values), none, none, kinds)
    batch = TextBatch.of(recipe, texts)
    values, counts, key = _counted(batch) if recipe.is_counted else _voted(batch, texts, has_keys=has_sketches)
    sketch = _sketches(batch, recipe.sketch) if recipe.sketch and has_sketches else none
    kinds = np.full(batch.count, VOTED, np.uint8)
    few = counts < recipe.min_features
    if few.any():
        values[few], kinds[few] = _exact(np.flatnonzero(few), batch, counts)
        key[few] = 0
    return Signatures(values, sketch, key, kinds, recipe.key_kind)


def _voted(batch: TextBatch, texts: Sequence[str], *, has_keys: bool) -> tuple[Uint64s, Int64s, Uint64s]:
    """Return the documents' fingerprints, feature counts and keys; keys are 0 unless `has_keys` and `recipe.key`."""
    recipe, found = batch.recipe, _found(batch, texts)
    voting = found.voting.capped(recipe.cap, batch.count)
    values = vote(voting.doc, voting.hashes, voting.weights, batch.count, recipe.tie)
    counts = np.bincount(voting.doc, minlength=batch.count)
    if recipe.key and has_keys:
        return values, counts, _keys(recipe, found, batch.count)
    return values, counts, np.zeros(batch.count, np.uint64)


def _keys(recipe: Recipe, found: Features, documents: int) -> Uint64s:
    weights = found.weights if found.key_weights is None else found.key_weights
    return recipe.key_kind.make(found.doc, found.hashes, weights, recipe.key or 1, documents)


def _counted(batch: TextBatch) -> tuple[Uint64s, Int64s, Uint64s]:
    """Return the same as `_voted` in a third of the time, if each occurrence of a feature has the same vote.

    Features need to be told apart only in documents where one feature may exceed the cap, or that may have too few
    features. The lowest byte of each hash is enough to find these documents: a feature occurs at most as often as its
    byte, and there are at least as many distinct features as distinct bytes.
    """
    recipe, spans = batch.recipe, _SPANS[batch.recipe.tokens](batch)
    doc, hashes = spans.doc, batch.hashes(spans)
    values, none = vote_alike(doc, hashes, batch.count, recipe.tie), np.zeros(batch.count, np.uint64)
    if recipe.cap is None and recipe.min_features == 1:
        return values, np.bincount(doc, minlength=batch.count), none
    rows = (doc << 8) | (hashes & np.uint64(0xFF)).astype(np.int64)
    often = np.bincount(rows, minlength=batch.count << 8).reshape(batch.count, 256)
    counts = np.count_nonzero(often, axis=1)
    limit = often.sum(axis=1) * recipe.word_unit // recipe.cap if recipe.cap else np.inf
    is_open = (often.max(axis=1, initial=0) * recipe.word_unit > limit) | (counts < recipe.min_features)
    own = np.flatnonzero(is_open)
    if len(own):
        found = _shingles(batch, spans.of(is_open[doc]), recipe.word_unit)
        found = replace(found, doc=np.searchsorted(own, found.doc))  # renumbered: the vote takes time per document
        voting = found.capped(recipe.cap, len(own))
        values[own] = vote(voting.doc, voting.hashes, voting.weights, len(own), recipe.tie)
        counts[own] = np.bincount(found.doc, minlength=len(own))
    return values, counts, none


def find_features(recipe: Recipe, text: str) -> Features:
    """Return one text's features with their weights in the vote."""
    if recipe.is_plain:
        return _heaviest_words(recipe, [text])
    return _found(TextBatch.of(recipe, [text]), [text]).voting.capped(recipe.cap, 1)


def key_features(recipe: Recipe, text: str) -> list[str]:
    """Return the features that a text's key is made from, heaviest first; the recipe must make keys."""
    found = _found(TextBatch.of(recipe, [text]), [text])
    weights = found.weights if found.key_weights is None else found.key_weights
    return found.of(heaviest_features(found.doc, found.hashes, weights, recipe.key or 1, 1)).texts()


class TextFeatures(NamedTuple):
    """The hashes of all features in a text that a rarity table weights, in any order; the text's key and sketch."""

    hashes: Uint64s
    key: int
    sketch: int


def feature_hashes(recipe: Recipe, texts: Sequence[str]) -> list[TextFeatures]:
    """Return the features of each text, for fitting a rarity table."""
    if (native := native_features(recipe, texts)) is not None:
        return [TextFeatures(*one) for one in native]
    batch = TextBatch.of(recipe, texts)
    found = _found(batch, texts, has_all_pairs=True)
    key = _keys(recipe, found, batch.count)
    order = np.argsort(found.doc, kind="stable")
    ends = np.cumsum(np.bincount(found.doc, minlength=batch.count))
    sketch = _sketches(batch, recipe.sketch or MOST_SHINGLE)
    listed = np.split(found.hashes[order], ends[:-1])
    return list(map(TextFeatures, listed, key.tolist(), sketch.tolist()))


def normalized_words(recipe: Recipe, words: Sequence[str]) -> list[str]:
    """Normalise words in the same way as the recipe normalises texts."""
    return to_text(TextBatch.of(recipe, words).bare[0]).split(chr(SEPARATOR))[:-1]


def _sketches(batch: TextBatch, n: int) -> Uint64s:
    """Return the sketches, made from shingles of n words, or of n characters in scripts without spaces."""
    return sketches(*_hashed_shingles(batch, n), batch.count)


def _hashed_shingles(batch: TextBatch, n: int) -> tuple[Int64s, Uint64s]:
    """Return the document and the hash of each shingle, in document order."""
    start, stop = tokens.stretch_rows(batch.places.stretch, n)
    return batch.places.doc[start], shingle_hashes(batch.sketch_hashes(), start, stop)


def sketch_shingles(recipe: Recipe, texts: Sequence[str], n: int) -> list[Uint64s]:
    """Return the hashes of each text's distinct shingles of n units, ascending, as used in its sketch."""
    if (found := native_shingles(recipe, texts)) is not None:
        return found
    doc, hashes = _hashed_shingles(TextBatch.of(recipe, texts), n)
    return list(map(sorted_distinct, np.split(hashes, np.searchsorted(doc, np.arange(1, len(texts))))))


def _exact(docs: Int64s, batch: TextBatch, counts: Int64s) -> tuple[Uint64s, Uint8s]:
    """Return the hash and the kind of each text in `docs`; 0 and TOO_SHORT if there is nothing to fingerprint.

    If the recipe normalises texts, there is nothing to fingerprint in a text without letters, marks and digits.
    Otherwise, there is nothing to fingerprint in a text without features.
    """
    values, kinds = np.zeros(len(docs), np.uint64), np.full(len(docs), TOO_SHORT, np.uint8)
    starts, ends = np.concatenate([[0], batch.ends + 1])[docs], batch.ends[docs]
    if batch.recipe.is_normal:
        letters = np.concatenate([[0], np.cumsum(np.isin(batch.classes, LETTERS))])
        has_any = letters[ends] > letters[starts]
    else:
        has_any = counts[docs] > 0
    for place in np.flatnonzero(has_any).tolist():
        own = to_text(batch.codes[starts[place] : ends[place]]).encode()
        values[place], kinds[place] = HASHES[batch.recipe.hash].one(own, batch.recipe.seed), EXACT
    return values, kinds


def _found(batch: TextBatch, texts: Sequence[str], *, has_all_pairs: bool = False) -> Features:
    """Return the features of documents; unless `has_all_pairs`, omit pairs of words that cannot be in a key."""
    recipe = batch.recipe
    if recipe.tokens == "features":
        found = _given(recipe, texts)
    else:
        found = _features(batch, has_all_pairs) if recipe.fields is None else _of_fields(recipe, texts)
    if recipe.top is None:
        return found
    return found.of(heaviest_features(found.doc, found.hashes, found.weights, recipe.top, batch.count))


def _of_fields(recipe: Recipe, texts: Sequence[str]) -> Features:
    """Return the features of all fields in each document, with weights multiplied by the fields' weights."""
    parts, weights = split_fields(texts, recipe.field_weights)
    found = _features(TextBatch.of(recipe, parts, len(recipe.field_weights)), has_all_pairs=True)
    heavy = found.weights * weights[found.doc]
    doc = found.doc // len(recipe.field_weights)
    kept, total = fold_weights(doc, found.hashes, heavy)
    folded = replace(found.of(kept), doc=doc[kept], weights=total)
    if found.key_weights is None:
        return folded
    return replace(folded, key_weights=fold_weights(doc, found.hashes, found.key_weights * weights[found.doc])[1])


def _given(recipe: Recipe, texts: Sequence[str]) -> Features:
    """Return the features that texts list as JSON."""
    given = list(map(parsed_features, texts))
    found = [weighted_hashes(recipe, one) for one in given]

    def names() -> list[str]:
        named = {hashed: name for one in given for name, _ in one for hashed in weighted_hashes(recipe, [(name, 1)])}
        return [str(named[hashed]) for one in found for hashed in one]

    return Features(
        np.repeat(np.arange(len(texts)), list(map(len, found))),
        np.array([hashed for one in found for hashed in one], np.uint64),
        np.array([weight for one in found for weight in one.values()], np.float64),
        names,
    )


def _features(batch: TextBatch, has_all_pairs: bool) -> Features:
    recipe = batch.recipe
    if recipe.tokens == "jieba":
        return _chinese(recipe, to_text(batch.codes))
    if recipe.tokens == "script":
        return Features.joined(list(_features_by_script(batch, has_all_pairs)))
    return _shingles(batch, _SPANS[recipe.tokens](batch), recipe.word_unit)


def _stop_words(batch: TextBatch) -> tokens.Spans:
    """Return the shingles that contain a stop word: sentences have many of these, advertising and menus have few."""
    units = batch.units
    is_stop = units.spans().are_among(tokens.stop_word_hashes())
    before = np.concatenate(([0], np.cumsum(is_stop)))
    first, stop = units.rows(batch.recipe.n)
    return tokens.shingles(units, batch.recipe.n, gap=True).of(before[stop] > before[first])


# By value of `tokens`: a function that cuts a batch into spans. Values that are not listed do not use spans.
_SPANS: dict[str, Callable[[TextBatch], tokens.Spans]] = {
    "words": lambda batch: tokens.shingles(batch.units, batch.recipe.n, gap=True),
    "stop-words": _stop_words,
    "chars": lambda batch: pieces.characters(batch.codes, batch.ends, batch.recipe.n, batch.recipe.least),
    "bytes": lambda batch: pieces.octets(batch.texts, batch.recipe.n, batch.recipe.least),
    "regex": lambda batch: pieces.matches(
        batch.texts, pieces.words_by(batch.recipe.pattern or ""), batch.recipe.n, batch.recipe.least
    ),
    "clickhouse-words": lambda batch: pieces.clickhouse_words(batch.texts, batch.recipe.n, batch.recipe.least),
    "trafilatura-words": lambda batch: pieces.matches(
        batch.texts, pieces.trafilatura_words, batch.recipe.n, batch.recipe.least
    ),
    "text-dedup-grams": lambda batch: pieces.matches(
        batch.texts, lambda text: pieces.lower_grams(text, batch.recipe.n), 1, batch.recipe.least
    ),
}


def _features_by_script(batch: TextBatch, has_all_pairs: bool) -> Iterator[Features]:
    recipe = batch.recipe
    if batch.has_han:  # without Han characters, no dictionary is loaded
        runs = tokens.han_runs(batch.codes, batch.classes)
        if recipe.weights == BY_RARITY:
            yield _rare_han_words(batch, segment.han_words(runs, recipe.lists))
        else:
            yield _chinese(recipe, runs)
    if recipe.weights == BY_RARITY:
        yield from _rare_words(batch, has_all_pairs)
    elif recipe.english is None:
        yield _shingles(batch, tokens.shingles(batch.words, recipe.n, gap=True), recipe.word_unit)
    else:
        yield _words(batch)
    if batch.has_unspaced:
        yield _shingles(batch, tokens.char_shingles(*batch.bare, recipe.char_n), recipe.char_unit)


def _rare_han_words(batch: TextBatch, spans: tokens.Spans) -> Features:
    recipe, hashes = batch.recipe, batch.hashes(spans)
    # Words with the same hash are different features. This only happens with hashes of 32 bits.
    distinct = hashes if recipe.hash == HASH_NAME else murmur64_spans(spans.buffer, spans.starts, spans.ends)
    kept, count = fold_hashes(spans.doc, distinct)
    doc, hashes = spans.doc[kept], hashes[kept]
    return _rare(recipe, recipe.char_unit, doc, hashes, count, lambda: [spans.text(i) for i in kept])


def _rare_words(batch: TextBatch, has_all_pairs: bool) -> Iterator[Features]:
    """Yield words, which vote, and pairs of words, which are only used for the key.

    The key needs pairs because pages made from one template share many words.
    """
    recipe, doc, hashes, spans = batch.recipe, batch.words.doc, batch.word_hashes, batch.word_spans
    kept, count = fold_hashes(doc, hashes)
    words = _rare(recipe, recipe.word_unit, doc[kept], hashes[kept], count, lambda: [spans.text(i) for i in kept])
    yield words
    if not recipe.key:
        return
    start, stop = batch.words.rows(2)
    if not has_all_pairs and words.key_weights is not None:
        single = kept[count == 1]
        is_light = np.zeros(len(doc), np.bool_)  # for each word, whether pairs with it can be skipped
        is_light[single] = _has_heavier(recipe, words.doc, words.key_weights, batch.count)[doc[single]]
        is_some = ~(is_light[start] | is_light[stop - 1])
        start, stop = start[is_some], stop[is_some]
    start, pairs = pair_hashes(hashes, start, stop)
    once, often = fold_hashes(doc[start], pairs)
    at = start[once]
    of_key = key_weights(recipe.word_unit, _rarities(recipe, pairs[once]), often)
    yield Features(doc[at], pairs[once], np.zeros(len(at)), lambda: [_pair_text(spans, i) for i in at], of_key)


def _has_heavier(recipe: Recipe, doc: Int64s, weights: Floats, documents: int) -> Bools:
    """Return whether each document has enough words for its key that are heavier than any pair that occurs once."""
    most = key_weights(recipe.word_unit, np.array([RAREST]), np.array([1]))
    has_enough: Bools = np.bincount(doc[weights > most], minlength=documents) >= (recipe.key or 0)
    return has_enough


def _pair_text(spans: tokens.Spans, index: int) -> str:
    return f"{spans.text(index)} {spans.text(index + 1)}"


def _rare(
    recipe: Recipe, unit: int, doc: Int64s, hashes: Uint64s, count: Int64s, texts: Callable[[], list[str]]
) -> Features:
    """Return distinct features weighted by rarity; see `vote_weights` and `key_weights`."""
    rarities, often = _rarities(recipe, hashes), np.flatnonzero(count >= OFTEN)
    _, place, alike = np.unique(doc[often] << 32 | count[often], return_inverse=True, return_counts=True)
    weights, different = unit * rarities, np.bincount(doc)[doc[often]]
    weights[often] = vote_weights(weights[often], count[often], alike[place], different)
    return Features(doc, hashes, weights, texts, key_weights(unit, rarities, count))


def _rarities(recipe: Recipe, hashes: Uint64s) -> Floats:
    return rarity_table(recipe.rarity).find(hashes).astype(np.float64)


def _words(batch: TextBatch) -> Features:
    """Return single words and shingles.

    The more English a document is, the more its single words weigh, and the less its shingles weigh.
    """
    single, part = _single_words(batch)
    is_rest = part[batch.words.doc] < WHOLE
    if not is_rest.any():
        return single
    rest = batch.words.of(is_rest)
    rows = _shingles(batch, tokens.shingles(rest, batch.recipe.n, gap=True), batch.recipe.word_unit)
    both = Features.joined([single, replace(rows, weights=np.rint(rows.weights * (WHOLE - part[rows.doc]) / WHOLE))])
    # A word that is a stretch of its own is both a word and a shingle. Few documents mix both weightings.
    is_mixed = ((part > 0) & (part < WHOLE))[both.doc]
    alone, mixed = np.flatnonzero(~is_mixed), np.flatnonzero(is_mixed)
    folded, weight = fold_weights(both.doc[mixed], both.hashes[mixed], both.weights[mixed])
    kept = np.append(alone, mixed[folded])
    return replace(both.of(kept), weights=np.append(both.weights[alone], weight))


def _single_words(batch: TextBatch) -> tuple[Features, Int64s]:
    """Return the single words of documents that use the word table, and how English each document is, 0 to `WHOLE`.

    With the user's own table, the value is `WHOLE` for every document.
    """
    recipe, doc, hashes, spans = batch.recipe, batch.words.doc, batch.word_hashes, batch.word_spans
    first, count = fold_hashes(doc, hashes)
    if recipe.english == OWN:
        weight, _ = own_weights(recipe.idf_sha256, recipe.stops, recipe.seed).find(hashes[first])
        part = np.full(batch.count, WHOLE)
    else:
        weight, is_common = english(recipe.seed).find(hashes[first])
        words = _of_documents(np.bincount(doc, minlength=batch.count), batch.fields)
        common = np.bincount(doc[first], count * is_common, batch.count).astype(np.int64)
        part = np.repeat(english_parts(words, _of_documents(common, batch.fields)), batch.fields)
    is_english = part[doc[first]] > 0
    kept = first[is_english]
    weight = np.rint((count * weight)[is_english] * part[doc[kept]] / WHOLE)
    return Features(doc[kept], hashes[kept], weight, lambda: [spans.text(i) for i in kept]), part


def _of_documents(counts: Int64s, fields: int) -> Int64s:
    """Sum the counts of fields into counts of documents."""
    summed: Int64s = counts.reshape(-1, fields).sum(axis=1)
    return summed


def _chinese(recipe: Recipe, joined: str) -> Features:
    known = segment.vocabulary(recipe.lists, recipe.seed, recipe.hash)
    doc, number, count = fold_numbers(*segment.number_words(joined, known))
    each = known.idf[number] * SCALE if recipe.weights in BY_IDF else float(SCALE)
    weight = weigh(recipe.weights, count, each)
    return Features(doc, known.hashes[number], weight, lambda: [known.words[i] for i in number])


def _shingles(batch: TextBatch, spans: tokens.Spans, unit: int) -> Features:
    hashes = batch.hashes(spans)
    kept, count = fold_hashes(spans.doc, hashes)
    if batch.recipe.weights == BY_RARITY:
        doc, hashes = spans.doc[kept], hashes[kept]
        return _rare(batch.recipe, unit, doc, hashes, count, lambda: [spans.text(i) for i in kept])
    weight = weigh(batch.recipe.weights, count, unit)
    return Features(spans.doc[kept], hashes[kept], weight, lambda: [spans.text(i) for i in kept])


def _heaviest_words(recipe: Recipe, texts: Sequence[str]) -> Features:
    """Return each text's words, in the order and with the weights of `jieba.analyse.extract_tags` or cppjieba."""
    if recipe.tokens == "cppjieba":
        return _keywords(recipe, texts)
    known = segment.vocabulary(recipe.lists, recipe.seed, recipe.hash)
    joined = "".join([segment.plain_text(text) + segment.SEPARATOR for text in texts])
    refuse_surrogates(to_codes(joined), recipe.name)
    doc, number = segment.number_words(joined, known)
    doc, number, weight = heaviest(doc, number, known.idf[number], recipe.top, len(texts))
    return Features(doc, known.hashes[number], weight, lambda: [known.words[i] for i in number])


def _keywords(recipe: Recipe, texts: Sequence[str]) -> Features:
    """Return each text's keywords, in the order and with the weights of cppjieba."""
    refuse_surrogates(to_codes("".join(texts)), recipe.name)
    known = extractor(recipe.lists)
    found = [known.keywords(text, recipe.top) for text in texts]
    words = [word for one in found for word, _ in one]
    encoded = [word.encode() for word in words]
    ends = np.cumsum(list(map(len, encoded)), dtype=np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), ends))[: len(ends)]
    return Features(
        np.repeat(np.arange(len(texts)), list(map(len, found))),
        HASHES[recipe.hash].many(b"".join(encoded), starts, ends, recipe.seed),
        np.array([weight for one in found for _, weight in one], np.float64),
        lambda: words,
    )
