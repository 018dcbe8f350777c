"""Compute signatures of long texts window by window, in bounded memory. They equal the signatures of the whole texts.

A window ends where later text cannot change its last word. Rows of units (shingles) may cross windows: the last units
of an open stretch are kept for the next window. Chinese text is cut after a character that no word in the segmenter's
dictionary contains, because the segmenter processes a whole run of characters at once.

Some recipes need the whole text: see `is_cut_in_windows`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice

import mmh3
import numpy as np

from hsimhash.fingerprint import pieces, segment, tokens
from hsimhash.fingerprint.batch import TextBatch, refuse_surrogates
from hsimhash.fingerprint.bits import Floats, Int64s, Uint32s, Uint64s, sorted_distinct
from hsimhash.fingerprint.document_fields import split_fields
from hsimhash.fingerprint.feature_counts import CountedFeatures, Tally, merged_tallies
from hsimhash.fingerprint.feature_weights import BY_IDF, WHOLE, english, english_parts, own_weights, weigh
from hsimhash.fingerprint.murmur3 import HASH_BYTES, HASH_NAME
from hsimhash.fingerprint.named_hashes import HASHES
from hsimhash.fingerprint.normalize import (
    CHINESE_ONLY_NAME,
    HAN,
    SEPARATOR,
    UNSPACED,
    are_japanese,
    are_kana,
    classify,
    normalized_windows,
    simplify,
    to_codes,
    to_text,
)
from hsimhash.fingerprint.rarity import key_weights, pair_hashes, rarity_table, vote_weights
from hsimhash.fingerprint.recipe import BY_RARITY, OWN, Recipe
from hsimhash.fingerprint.signature import EXACT, TOO_SHORT, VOTED, Signatures
from hsimhash.fingerprint.sketch import heaviest_features, least_values, shingle_hashes, sketches_of
from hsimhash.fingerprint.tokens import Spans, Units, stop_word_hashes
from hsimhash.fingerprint.vote import (
    SCALE,
    decided,
    fold_weights,
    heaviest_allowed,
    heaviest_counted,
    vote_in_order,
    vote_sums,
)

LONG_CHARACTERS = 1 << 18  # longer texts are processed in windows
WINDOW_CHARACTERS = 1 << 16  # fits in the L2 cache
# Limit on the characters in a run that the segmenter processes at once; it needs about 160 bytes per character. Runs
# in prose have a few dozen characters.
MOST_RUN = 1 << 20
# Maximum factor by which normalisation may increase the number of characters. U+FDFA becomes 18 characters, so 16 MiB
# of it would become 100 million.
_MOST_GROWTH = 2

_MOST_CUT = 1 << 20  # maximum number of characters whose words are listed at once
_CODE_BITS = 21
_MOST_PACKED = 64 // _CODE_BITS  # characters that fit in a 64-bit number
_MOST_LETTERS = 5  # trafilatura does not distinguish words of this length from longer words

_END = np.array([SEPARATOR], np.uint32)
_RUN_BREAK = "\n"
_BLANK = re.compile(r"\s")
_OUTSIDE_RUN = re.compile("[^\u4e00-\u9fd5]")
# Matches a character that ends a run in the segmenter. The segmenter treats rare Han characters as spaces, but in this
# text they are still Han characters.
_OUTSIDE_BLOCK = re.compile("[^a-zA-Z0-9+#&._%\\-\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def is_long(recipe: Recipe, texts: Sequence[str]) -> bool:
    """Whether `texts` is a single long text, which is processed window by window."""
    return len(texts) == 1 and len(texts[0]) > LONG_CHARACTERS and is_cut_in_windows(recipe)


def is_cut_in_windows(recipe: Recipe) -> bool:
    """Whether a recipe can make signatures window by window.

    These recipes need the whole text:

    - cppjieba, which adds up whole runs
    - given features
    - a pattern of your own, which may match anything
    - rows of trafilatura's words, because short words are used only if there are few longer words
    - text-dedup's n-grams, if their number matters
    - a 32-bit hash with jieba's words, because two words may have the same hash
    """
    if recipe.tokens == "regex":
        return not recipe.has_own_pattern
    exceptions = {
        "jieba": not recipe.is_plain and HASHES[recipe.hash].bits < 64,
        "script": HASHES[recipe.hash].bits < 64,
        _TRAFILATURA: recipe.n > 1,
        _GRAMS: recipe.least > 1 or recipe.weights != "binary",
        "cppjieba": True,
        "features": True,
    }
    return not exceptions.get(recipe.tokens, False)


def long_signature(recipe: Recipe, text: str, *, has_sketches: bool, window: int = WINDOW_CHARACTERS) -> Signatures:
    """Return the signature of one text, like `signature_batch`; see `is_cut_in_windows`.

    Args:
        recipe: Recipe that defines the signature.
        text: Text of any length.
        has_sketches: Whether to compute the sketch and the key, if the recipe makes them.
        window: Approximate number of characters per window; affects only time and memory.

    Raises:
        ValueError: the text would need too much memory, because normalisation more than doubles its number of
            characters, or because it has a run of over `MOST_RUN` characters that the segmenter cannot split.
    """
    whole = _LongText(recipe, text, window)
    if recipe.is_plain:
        return _heaviest_words(whole)
    sketch = _Sketch(recipe.sketch) if recipe.sketch and has_sketches else None
    if recipe.fields is None:
        found, heavy = [_found(whole, sketch)], [1]
    else:
        parts, weights = split_fields([text], recipe.field_weights)
        found = [_found(_LongText(recipe, part, window), None) for part in parts]
        heavy = weights.astype(np.int64).tolist()
    features = _voting(recipe, found, heavy, _weighers(recipe, found))
    keyed = _voting(recipe, found, heavy, _key_weighers(recipe)) if recipe.weights == BY_RARITY else features
    if sketch and not sketch.is_done:
        for batch in whole.word_windows():
            sketch.take(batch)
    return _signed(whole, features, sketch, keyed if has_sketches else None)


def long_shingles(recipe: Recipe, text: str, n: int, *, window: int = WINDOW_CHARACTERS) -> Uint64s:
    """Return the shingles of one text, like `sketch_shingles`; see `long_signature`."""
    shingles, found = _HashedShingles(n), np.empty(0, np.uint64)
    held, count = list[Uint64s](), 0
    for batch in _LongText(recipe, text, window).word_windows():
        held.append(sorted_distinct(shingles.take(batch)))
        count += len(held[-1])
        if count > len(found) + WINDOW_CHARACTERS:
            found, held, count = sorted_distinct(np.concatenate([found, *held])), [], 0
    return sorted_distinct(np.concatenate([found, *held]))


class _LongText:
    """A text that can be read in windows any number of times."""

    def __init__(self, recipe: Recipe, text: str, window: int) -> None:
        self.recipe, self._window = recipe, window
        plain = segment.plain_text(text) if recipe.tokens == "jieba" else text
        self._text = plain if recipe.is_normal else pieces.NORMALIZERS[recipe.normalize](plain)

    def _chunks(self) -> Iterator[str]:
        return (self._text[at : at + self._window] for at in range(0, len(self._text), self._window))

    def codes(self) -> Iterator[Uint32s]:
        """Yield the normalised code points."""
        chunks = self._chunks()
        if self.recipe.is_normal:
            is_folded = self.recipe.han is not None and not self._is_japanese
            yield from map(simplify, self._normal(chunks)) if is_folded else self._normal(chunks)
            return
        for codes in map(to_codes, chunks):
            refuse_surrogates(codes, self.recipe.name)
            is_filtered = self.recipe.normalize == pieces.WORD_CHARACTERS
            yield pieces.word_characters(codes, np.empty(0, np.int64))[0] if is_filtered else codes

    def _normal(self, chunks: Iterable[str]) -> Iterator[Uint32s]:
        size, most = 0, max(_MOST_GROWTH * len(self._text), WINDOW_CHARACTERS)
        for codes in normalized_windows(chunks, self.recipe.normalize):
            size += len(codes)
            if size > most:
                raise ValueError(
                    f"text grows from {len(self._text):,} to over {most:,} characters when it is normalised: "
                    f"expected at most {_MOST_GROWTH} times as many"
                )
            yield codes

    @cached_property
    def _is_japanese(self) -> bool:
        """Whether its Han characters are treated as kana."""
        if self.recipe.han != CHINESE_ONLY_NAME or self._text.isascii():
            return False
        kana = han = 0
        for codes in self._normal(self._chunks()):
            classes = classify(codes)
            kana += int(np.count_nonzero(are_kana(codes, classes)))
            han += int(np.count_nonzero(classes == HAN))
        return bool(are_japanese(np.array(kana), np.array(han)))

    def _batch(self, codes: Sequence[Uint32s]) -> TextBatch:
        whole = np.concatenate([*codes, _END])
        batch = TextBatch(self.recipe, whole, np.array([len(whole) - 1]))
        if self._is_japanese:
            batch.classes = np.where(batch.classes == HAN, np.uint8(UNSPACED), batch.classes)
        return batch

    def word_windows(self) -> Iterator[TextBatch]:
        """Yield windows that do not split words, each as a batch of one text; the last window ends with a break."""
        held: list[Uint32s] = []
        for codes in self.codes():
            end = tokens.last_word_end(codes, classify(codes))
            held.append(codes[:end])
            if end:
                batch = self._batch(held)
                held.clear()
                yield batch
            held.append(codes[end:])
        batch = self._batch([*held, _END])
        held.clear()
        yield batch

    def texts(self, outside: re.Pattern[str], most: int | None = None) -> Iterator[str]:
        """Yield parts of the normalised text that end after a character that `outside` matches; see `_Held`."""
        held = _Held(outside, most)
        for codes in self.codes():
            yield from held.take(to_text(codes))
        yield from held.rest()


class _Held:
    """Buffers text: yields it up to the last character that `outside` matches, and keeps the remaining text."""

    def __init__(self, outside: re.Pattern[str], most: int | None = None) -> None:
        self._outside, self._most = outside, most
        self._to_last = re.compile(f"(?s:.*){outside.pattern}")
        self._parts: list[str] = []
        self._size = 0

    def take(self, text: str) -> Iterator[str]:
        """Add text; yield the text up to the last character that `outside` matches."""
        first, last = self._outside.search(text), self._to_last.match(text)
        self._refuse_long(self._size + (first.start() if first else len(text)))
        end = last.end() if last else 0
        self._parts.append(text[:end])
        if end:
            yield from self.rest()
        self._parts.append(text[end:])
        self._size += len(text) - end

    def rest(self) -> Iterator[str]:
        """Yield the remaining text."""
        whole = "".join(self._parts)
        self._parts, self._size = [], 0
        if whole:
            yield whole

    def _refuse_long(self, size: int) -> None:
        if self._most is not None and size > self._most:
            raise ValueError(
                f"text has a run of over {self._most:,} characters that the Chinese segmenter cannot split: "
                "expected punctuation or spaces between them"
            )


class _Rows:
    """Finds the rows of n adjacent units that a window completes.

    The last n units of a stretch that is still open are kept for the next window. Keeping n rather than n - 1 units
    shows whether a stretch is short: if fewer than n units are kept, the stretch does not have any others, and it
    becomes a row by itself when it ends.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self.kept = 0

    def take(self, stretch: Int64s, breaks: int) -> tuple[Int64s, Int64s]:
        """Return where rows start and stop in the sequence of the kept units and the units of a window.

        Args:
            stretch: Number of breaks in the window before each of its units; shape (m,).
            breaks: Number of breaks in the window.
        """
        stretch = np.concatenate((np.zeros(self.kept, np.int64), stretch))
        start, stop = tokens.stretch_rows(stretch, self._n)
        is_new = np.where(stop - start == self._n, stop > self.kept, stretch[start] < breaks)
        self.kept = min(self._n, int(np.count_nonzero(stretch == breaks)))
        return start[is_new], stop[is_new]


_NO_SPANS = Spans(b"", *[np.empty(0, np.int64)] * 3)


class _Shingles:
    """The rows of n adjacent units as bytes."""

    def __init__(self, n: int) -> None:
        self._rows = _Rows(n)
        self._kept = _NO_SPANS

    @property
    def is_open(self) -> bool:
        """Whether a stretch may continue in the next window."""
        return self._rows.kept > 0

    def take(
        self, units: Spans, stretch: Int64s, breaks: int, chosen: Callable[[Spans], Int64s] | None = None
    ) -> Spans:
        """Return the rows that a window completes; see `_Rows.take`.

        Args:
            units: Units of the window, contiguous in their buffer.
            stretch: As in `_Rows.take`.
            breaks: As in `_Rows.take`.
            chosen: Returns the number of chosen units before each unit; rows without a chosen unit are dropped.
        """
        units = _joined(self._kept, units) if self.is_open else units
        first, stop = self._rows.take(stretch, breaks)
        self._kept = _last(units, self._rows.kept)
        rows = units.rows(first, stop)
        if chosen is None:
            return rows
        before = chosen(units)
        return rows.of(before[stop] > before[first])


def _joined(units: Spans, others: Spans) -> Spans:
    """Concatenate two sequences of units into one buffer."""
    size = len(units.buffer)
    return Spans(
        units.buffer + others.buffer,
        np.concatenate((units.starts, others.starts + size)),
        np.concatenate((units.ends, others.ends + size)),
        np.concatenate((units.doc, others.doc)),
    )


def _last(units: Spans, count: int) -> Spans:
    """Return the last `count` units of a buffer."""
    if not count:
        return _NO_SPANS
    at = int(units.starts[-count])
    return Spans(units.buffer[at:], units.starts[-count:] - at, units.ends[-count:] - at, units.doc[-count:])


class _HashedShingles:
    """The hashes of a sketch's shingles of n words or characters."""

    def __init__(self, n: int) -> None:
        self._rows = _Rows(n)
        self._hashes = np.empty(0, np.uint64)

    def take(self, batch: TextBatch) -> Uint64s:
        """Return the shingles that a window completes."""
        self._hashes = np.concatenate((self._hashes, batch.sketch_hashes()))
        rows = self._rows.take(batch.places.stretch, _breaks(batch, every_script=True))
        shingles = shingle_hashes(self._hashes, *rows)
        self._hashes = self._hashes[len(self._hashes) - self._rows.kept :]
        return shingles


class _Sketch:
    """The smallest shingle for each bit of a sketch."""

    def __init__(self, n: int) -> None:
        self._shingles = _HashedShingles(n)
        self.least = least_values(np.empty(0, np.int64), np.empty(0, np.uint64), 1)
        self.is_done = False

    def take(self, batch: TextBatch) -> None:
        """Add a window's words and characters."""
        self.is_done = True
        shingles = self._shingles.take(batch)
        self.least = np.minimum(self.least, least_values(np.zeros(len(shingles), np.int64), shingles, 1))


class _WordPairs:
    """Counts pairs of adjacent words, by the hashes of the words."""

    def __init__(self) -> None:
        self._rows, self._hashes, self.tally = _Rows(2), np.empty(0, np.uint64), Tally()

    def take(self, batch: TextBatch) -> None:
        """Add a window's words."""
        self._hashes = np.concatenate((self._hashes, batch.word_hashes))
        rows = self._rows.take(batch.words.stretch, _breaks(batch, every_script=False))
        self.tally.add(pair_hashes(self._hashes, *rows)[1])
        self._hashes = self._hashes[len(self._hashes) - self._rows.kept :]


def _breaks(batch: TextBatch, *, every_script: bool) -> int:
    """Return the number of breaks in a window, not counting the separator at its end."""
    return tokens.word_breaks(*batch.bare, every_script=every_script) - 1


class _Chinese:
    """Counts the words that the segmenter finds."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self.tally = recipe, Tally()
        self._held, self._was_han = _Held(_OUTSIDE_RUN, MOST_RUN), False

    def take_runs(self, batch: TextBatch) -> None:
        """Add a window's runs of Han characters."""
        codes, classes = batch.codes[:-1], batch.classes[:-1]
        if not len(codes) or not (batch.has_han or self._was_han):
            return
        text = tokens.han_runs(codes, classes).replace(chr(SEPARATOR), _RUN_BREAK)
        starts_anew = self._was_han and classes[0] != HAN
        self._was_han = bool(classes[-1] == HAN)
        for runs in self._held.take(_RUN_BREAK + text if starts_anew else text):
            self.take(runs)

    def take(self, text: str) -> None:
        """Add a part of a text that ends where the segmenter always cuts."""
        recipe = self._recipe
        if recipe.weights == BY_RARITY:
            words = segment.han_words(text, recipe.lists)
            self.tally.add(HASHES[recipe.hash].many(words.buffer, words.starts, words.ends, recipe.seed))
            return
        known = segment.vocabulary(recipe.lists, recipe.seed, recipe.hash)
        _, numbers = segment.number_words(text + segment.SEPARATOR, known)
        number, count = np.unique(numbers, return_counts=True)
        self.tally.add_counted(known.hashes[number], count, known.idf[number])


@dataclass(slots=True)
class _Found:
    """The features of one text: single words, pairs, rows of words or pieces, rows of characters, jieba's words."""

    words: Tally = field(default_factory=Tally)
    pairs: Tally = field(default_factory=Tally)
    rows: Tally = field(default_factory=Tally)
    chars: Tally = field(default_factory=Tally)
    chinese: Tally = field(default_factory=Tally)


def _found(text: _LongText, sketch: _Sketch | None) -> _Found:
    """Return the features of a text; also fill the sketch if its units are computed anyway."""
    recipe = text.recipe
    if recipe.tokens in _ROWS:
        return _ROWS[recipe.tokens](text, sketch)
    if recipe.tokens == "jieba":
        chinese = _Chinese(recipe)
        for part in text.texts(_OUTSIDE_BLOCK, MOST_RUN):
            chinese.take(part)
        return _Found(chinese=chinese.tally)
    return _trafilatura_words(text) if recipe.tokens == _TRAFILATURA else _pieces(text)


def _by_script(text: _LongText, sketch: _Sketch | None) -> _Found:
    recipe, found = text.recipe, _Found()
    rows, chars, chinese, pairs = _Shingles(recipe.n), _Shingles(recipe.char_n), _Chinese(recipe), _WordPairs()
    is_rare = recipe.weights == BY_RARITY
    for batch in text.word_windows():
        batch.word_spans = batch.words.encoded(gap=True)  # shared by words, rows and the sketch
        if sketch:
            sketch.take(batch)
        if recipe.english is not None or is_rare:
            found.words.add(batch.word_hashes)
        if is_rare:
            pairs.take(batch)
        elif recipe.english != OWN:
            shingles = rows.take(batch.word_spans, batch.words.stretch, _breaks(batch, every_script=False))
            found.rows.add(batch.hashes(shingles))
        if batch.has_unspaced or chars.is_open:
            units = tokens.char_units(*batch.bare)
            breaks = len(batch.bare[1]) - 1 - int(np.count_nonzero(batch.bare[1] == UNSPACED))
            found.chars.add(batch.hashes(chars.take(units.spans(), units.stretch, breaks)))
        chinese.take_runs(batch)
    found.chinese, found.pairs = chinese.tally, pairs.tally
    return found


def _by_words(text: _LongText, sketch: _Sketch | None) -> _Found:
    found, rows = _Found(), _Shingles(text.recipe.n)
    chosen = _stop_words_before if text.recipe.tokens == "stop-words" else None
    for batch in text.word_windows():
        if sketch:
            sketch.take(batch)
        units = batch.units
        breaks = _breaks(batch, every_script=True)
        found.rows.add(batch.hashes(rows.take(units.encoded(gap=True), units.stretch, breaks, chosen)))
    return found


def _stop_words_before(units: Spans) -> Int64s:
    return np.concatenate(([0], np.cumsum(units.are_among(stop_word_hashes()))))


_ROWS: dict[str, Callable[[_LongText, _Sketch | None], _Found]] = {
    "script": _by_script,
    "words": _by_words,
    "stop-words": _by_words,
}


def _pieces(text: _LongText) -> _Found:
    """Return the rows of units in a text that is a single stretch."""
    recipe, found, units = text.recipe, _Found(), 0
    rows, many = _Shingles(1 if recipe.tokens == _GRAMS else recipe.n), HASHES[recipe.hash].many
    for spans, breaks in chain(((one, 0) for one in _UNITS[recipe.tokens](text)), [(_NO_SPANS, 1)]):
        units += len(spans.doc)
        made = rows.take(spans, np.zeros(len(spans.doc), np.int64), breaks)
        found.rows.add(many(made.buffer, made.starts, made.ends, recipe.seed))
    return found if units >= recipe.least else _Found()


def _characters(text: _LongText) -> Iterator[Spans]:
    for codes in text.codes():
        none = np.zeros(len(codes), np.int64)
        yield Units(codes, np.arange(len(codes) + 1), none, none).spans()


def _octets(text: _LongText) -> Iterator[Spans]:
    for codes in text.codes():
        encoded = to_text(codes).encode()
        ends = np.arange(1, len(encoded) + 1)
        yield Spans(encoded, ends - 1, ends, np.zeros(len(encoded), np.int64))


def _matches(text: _LongText) -> Iterator[Spans]:
    pattern = text.recipe.pattern or ""
    cut = pieces.words_by(pattern)
    for part in text.texts(pieces.OUTSIDE_MATCHES[pattern]):
        if len(part) <= _MOST_CUT:
            yield _listed(cut(part))
            continue
        words = (match[0] for match in re.finditer(pattern, part))  # listing all of them would take too much memory
        while some := list(islice(words, WINDOW_CHARACTERS)):
            yield _listed(some)


def _listed(words: list[str]) -> Spans:
    return pieces.listed_units(words, np.zeros(len(words), np.int64)).encoded(gap=True)


def _clickhouse_words(text: _LongText) -> Iterator[Spans]:
    for part in text.texts(re.compile("[^0-9A-Za-z\u0080-\U0010ffff]")):
        yield pieces.clickhouse_units([part])[0]


def _lower_grams(text: _LongText) -> Iterator[Spans]:
    n, held, has_any = text.recipe.n, "", False
    for codes in text.codes():
        held += to_text(codes)
        if len(held) >= (n if has_any else max(n, pieces.GRAM_LEAST)):
            yield _grams(held, n)
            held, has_any = held[len(held) - n + 1 :], True
    if not has_any:
        yield _listed(pieces.lower_grams(held, n))


def _grams(text: str, n: int) -> Spans:
    """Return the distinct n-grams of a text in lower case."""
    lowered = text.lower()
    if n > _MOST_PACKED or len(lowered) > len(text) or "\u03a3" in text:  # lower-casing each n-gram may differ
        return _listed(pieces.different_grams(text, n))
    codes, count = to_codes(lowered).astype(np.uint64), len(text) - n + 1
    shifts = np.arange(n - 1, -1, -1, dtype=np.uint64) * np.uint64(_CODE_BITS)
    packed = sorted_distinct(sum(codes[at : at + count] << shift for at, shift in enumerate(shifts)))
    chars = (packed[:, None] >> shifts & np.uint64((1 << _CODE_BITS) - 1)).astype(np.uint32).ravel()
    none = np.zeros(len(packed), np.int64)
    return Units(chars, np.arange(0, len(chars) + 1, n), none, none).spans()


def _trafilatura_words(text: _LongText) -> _Found:
    """Return the words of five letters or more; if there are too few of these, also shorter words."""
    for has_punctuation, outside in ((False, _BLANK), (True, pieces.blank_or_punctuation())):
        by_letters, counts = [Tally() for _ in range(_MOST_LETTERS + 1)], np.zeros(_MOST_LETTERS + 1, np.int64)
        for part in text.texts(outside):
            words = pieces.alphanumeric_words(part, has_punctuation=has_punctuation)
            letters = np.minimum(np.array(list(map(len, words)), np.int64), _MOST_LETTERS)
            spans = _listed(words)
            hashes = HASHES[text.recipe.hash].many(spans.buffer, spans.starts, spans.ends, text.recipe.seed)
            for length, tally in enumerate(by_letters):
                tally.add(hashes[letters == length])
            counts += np.bincount(letters, minlength=len(counts))
        if counts.any():
            break
    least = next((one for one in range(_MOST_LETTERS, 1, -1) if counts[one:].sum() >= pieces.SAMPLED), 0)
    found = _Found()
    if counts[least:].sum() >= text.recipe.least:
        found.rows.windows = [window for tally in by_letters[least:] for window in tally.windows]
    return found


_GRAMS, _TRAFILATURA = "text-dedup-grams", "trafilatura-words"
_UNITS: dict[str, Callable[[_LongText], Iterator[Spans]]] = {
    "chars": _characters,
    "bytes": _octets,
    "regex": _matches,
    "clickhouse-words": _clickhouse_words,
    _GRAMS: _lower_grams,
}

_Weigher = Callable[[CountedFeatures, Tally], Floats]  # takes some features of a tally; returns their weights


@dataclass(slots=True)
class _Voting:
    """Distinct features and their weights before the cap, in parts."""

    parts: list[tuple[Uint64s, Floats]]

    def heaviest(self, count: int) -> tuple[Uint64s, Floats]:
        """Return the heaviest features; see `heaviest_features`."""
        none = np.empty(0, np.uint64), np.empty(0)
        chosen = [none, *(_heaviest(*part, count) for part in self.parts)]
        hashes, weights = (np.concatenate(column) for column in zip(*chosen, strict=True))
        return _heaviest(hashes, weights, count)


def _heaviest(hashes: Uint64s, weights: Floats, count: int) -> tuple[Uint64s, Floats]:
    places = heaviest_features(np.zeros(len(hashes), np.int64), hashes, weights, count, 1)
    return hashes[places], weights[places]


def _voting(
    recipe: Recipe, found: Sequence[_Found], heavy: Sequence[int], weighers: Sequence[dict[str, _Weigher]]
) -> _Voting:
    """Return the features of a text's fields, each field weighted by `heavy`."""
    groups: list[list[tuple[Tally, _Weigher, int]]] = [
        [(getattr(one, name), weigher, weight) for name, weigher in group.items()]
        for group in weighers
        for one, weight in zip(found, heavy, strict=True)
    ]
    if recipe.fields is not None:  # a feature in several fields votes once, with the sum of its weights
        groups = [list(chain.from_iterable(groups))]
    features = _Voting([part for group in groups for part in _summed(group)])
    if recipe.top is not None:
        features.parts = [features.heaviest(recipe.top)]
    return features


def _weighers(recipe: Recipe, found: Sequence[_Found]) -> list[dict[str, _Weigher]]:
    """Return the weight function of each tally, in groups; tallies in one group may share features."""
    if recipe.weights == BY_RARITY:
        return [{"words": _rare(recipe, recipe.word_unit)}, *_rare_characters(recipe)]
    by_idf = recipe.weights in BY_IDF
    chinese: _Weigher = lambda some, _: weigh(recipe.weights, some.counts, some.idf * SCALE if by_idf else float(SCALE))  # noqa: E731
    chars: _Weigher = lambda some, _: weigh(recipe.weights, some.counts, recipe.char_unit)  # noqa: E731
    rows: _Weigher = lambda some, _: weigh(recipe.weights, some.counts, recipe.word_unit)  # noqa: E731
    others: list[dict[str, _Weigher]] = [{"chinese": chinese}, {"chars": chars}]
    if recipe.english is None:
        return [{"rows": rows}, *others]
    own = recipe.english == OWN
    table = own_weights(recipe.idf_sha256, recipe.stops, recipe.seed) if own else english(recipe.seed)
    part = WHOLE if own else _english_part(found, recipe.seed)
    single: dict[str, _Weigher] = {
        "words": lambda some, _: np.rint(some.counts * table.find(some.hashes)[0] * part / WHOLE)
    }
    pairs: dict[str, _Weigher] = {"rows": lambda some, tally: np.rint(rows(some, tally) * (WHOLE - part) / WHOLE)}
    return [(single if part else {}) | (pairs if part < WHOLE else {}), *others]


def _rare(recipe: Recipe, unit: int, *, in_key: bool = False) -> _Weigher:
    table = rarity_table(recipe.rarity)

    def weigh_rare(some: CountedFeatures, tally: Tally) -> Floats:
        rarities = table.find(some.hashes).astype(np.float64)
        if in_key:
            return key_weights(unit, rarities, some.counts)
        counts, features = tally.features_by_count
        alike = features[np.searchsorted(counts, some.counts)]
        return vote_weights(unit * rarities, some.counts, alike, int(features.sum()))

    return weigh_rare


def _rare_characters(recipe: Recipe, *, in_key: bool = False) -> list[dict[str, _Weigher]]:
    by_rarity = _rare(recipe, recipe.char_unit, in_key=in_key)
    return [{"chars": by_rarity}, {"chinese": by_rarity}]


def _key_weighers(recipe: Recipe) -> list[dict[str, _Weigher]]:
    """Return the weight function of each tally for the key, with weights by rarity."""
    by_word = _rare(recipe, recipe.word_unit, in_key=True)
    return [{"words": by_word}, {"pairs": by_word}, *_rare_characters(recipe, in_key=True)]


def _english_part(found: Sequence[_Found], seed: int) -> int:
    """Return how English a text is, 0 to `WHOLE`."""
    words = common = 0
    for counted in chain.from_iterable(one.words.merged() for one in found):
        words += int(counted.counts.sum())
        common += int(counted.counts[english(seed).find(counted.hashes)[1]].sum())
    return int(english_parts(np.array([words]), np.array([common]))[0])


def _summed(group: Sequence[tuple[Tally, _Weigher, int]]) -> Iterator[tuple[Uint64s, Floats]]:
    """Yield the features of tallies, range by range, with weights summed over the tallies."""
    for counted in merged_tallies([tally for tally, _, _ in group]):
        weighed = [heavy * weigher(one, tally) for one, (tally, weigher, heavy) in zip(counted, group, strict=True)]
        hashes, weights = np.concatenate([one.hashes for one in counted]), np.concatenate(weighed)
        if len(group) > 1:
            first, weights = fold_weights(np.zeros(len(hashes), np.int64), hashes, weights)
            hashes = hashes[first]
        yield hashes, weights


def _signed(text: _LongText, features: _Voting, sketch: _Sketch | None, keyed: _Voting | None) -> Signatures:
    """Return the signature of a text; `keyed` are the features for its key, or None to omit the key."""
    recipe = text.recipe
    none = np.zeros(1, np.uint64)
    count = sum(len(hashes) for hashes, _ in features.parts)
    sketched = sketches_of(sketch.least) if sketch else none
    if count < recipe.min_features:
        value, kind = _exact(text, has_any=count > 0)
        return Signatures(np.array([value], np.uint64), sketched, none, np.array([kind], np.uint8), recipe.key_kind)
    limit = np.inf
    if recipe.cap is not None:
        limit = heaviest_allowed(np.array([sum(float(weights.sum()) for _, weights in features.parts)]), recipe.cap)[0]
    sums = np.zeros((1, 64))
    for hashes, weights in features.parts:
        sums += vote_sums(np.zeros(len(hashes), np.int64), hashes, np.minimum(weights, limit), 1)
    key = none
    if recipe.key and keyed is not None:
        hashes, weights = keyed.heaviest(recipe.key)
        key = recipe.key_kind.make(np.zeros(len(hashes), np.int64), hashes, weights, recipe.key, 1)
    return Signatures(decided(sums, recipe.tie), sketched, key, np.array([VOTED], np.uint8), recipe.key_kind)


def _heaviest_words(text: _LongText) -> Signatures:
    """Return the signature of a text from its heaviest words, weighted and ordered as in jieba's `extract_tags`."""
    recipe, known = text.recipe, segment.vocabulary(text.recipe.lists, text.recipe.seed, text.recipe.hash)
    counts, first, total = np.zeros(0, np.int64), np.zeros(0, np.int64), 0
    for part in text.texts(_OUTSIDE_BLOCK, MOST_RUN):
        _, numbers = segment.number_words(part + segment.SEPARATOR, known)
        number, place, count = np.unique(numbers, return_index=True, return_counts=True)
        more = max(len(known.words) - len(counts), 0)
        counts, first = np.append(counts, np.zeros(more, np.int64)), np.append(first, np.zeros(more, np.int64))
        first[number] = np.where(counts[number] > 0, first[number], total + place)
        counts[number] += count
        total += len(numbers)
    number = np.flatnonzero(counts)
    number = number[np.argsort(first[number])]
    none = np.zeros(len(number), np.int64)
    kept, weights = heaviest_counted(none, counts[number], known.idf[number], np.array([total]), recipe.top)
    value = vote_in_order(none[kept], known.hashes[number[kept]], weights, 1, recipe.tie)
    kind, no_value = (VOTED, TOO_SHORT)[not len(number)], np.zeros(1, np.uint64)
    return Signatures(value if len(number) else no_value, no_value, no_value, np.array([kind], np.uint8))


def _exact(text: _LongText, *, has_any: bool) -> tuple[int, int]:
    """Return the hash of a text and its kind; 0 and `TOO_SHORT` if there is nothing to fingerprint."""
    recipe, none = text.recipe, np.empty(0, np.int64)
    if recipe.is_normal:
        has_any = any(TextBatch(recipe, codes, none).has_letters for codes in text.codes())
    if not has_any:
        return 0, TOO_SHORT
    encoded = (to_text(codes).encode() for codes in text.codes())
    if recipe.hash != HASH_NAME:
        return HASHES[recipe.hash].one(b"".join(encoded), recipe.seed), EXACT
    hasher = mmh3.mmh3_x64_128(seed=recipe.seed)
    for part in encoded:
        hasher.update(part)
    return int.from_bytes(hasher.digest()[:HASH_BYTES], "little"), EXACT
