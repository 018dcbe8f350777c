"""A batch of normalised texts, with the intermediate results that several parts of a signature share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from hsimhash.fingerprint import pieces, tokens
from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint32s, Uint64s
from hsimhash.fingerprint.named_hashes import HASHES
from hsimhash.fingerprint.normalize import (
    CHINESE_ONLY_NAME,
    HAN,
    SEPARATOR,
    SPACED,
    UNSPACED,
    are_japanese,
    are_kana,
    classify,
    normalize,
    simplify,
    to_codes,
    to_text,
)
from hsimhash.fingerprint.recipe import Recipe
from hsimhash.fingerprint.sketch import character_hashes

LETTERS = (HAN, SPACED, UNSPACED)  # the classes of letters, marks and digits


class TextBatch:
    """Normalised texts as code points, with `SEPARATOR` after each text.

    Args:
        recipe: Recipe by which the texts were normalised.
        codes: Code points of all texts.
        ends: Positions of the separators; shape (texts,).
        fields: Number of fields per document. Each field is a text, and the fields of a document are adjacent.
    """

    def __init__(self, recipe: Recipe, codes: Uint32s, ends: Int64s, fields: int = 1) -> None:
        self.recipe, self.codes, self.ends, self.fields = recipe, codes, ends, fields
        self.count = len(ends)

    @staticmethod
    def of(recipe: Recipe, texts: Sequence[str], fields: int = 1) -> TextBatch:
        """Normalise texts as defined by the recipe; raise `ValueError` for a text that the recipe does not support."""
        if recipe.is_normal:
            codes = normalize(texts, recipe.normalize)
            batch = TextBatch(recipe, codes, np.flatnonzero(codes == SEPARATOR), fields)
            if recipe.han is not None and (batch.classes == HAN).any():
                batch.read_han()
            return batch
        plain = list(map(pieces.NORMALIZERS[recipe.normalize], texts))
        codes = to_codes("".join([text + "\0" for text in plain]))
        ends = np.cumsum(list(map(len, plain)), dtype=np.int64) + np.arange(len(plain))
        refuse_surrogates(codes, recipe.name)
        if recipe.normalize == pieces.WORD_CHARACTERS:
            return TextBatch(recipe, *pieces.word_characters(codes, ends), fields)
        batch = TextBatch(recipe, codes, ends, fields)
        batch.texts = plain
        return batch

    def read_han(self) -> None:
        """Convert Han characters to simplified forms; with `simplified-2`, treat them as kana in Japanese texts."""
        simplified = simplify(self.codes)  # the classes of code points do not change
        if self.recipe.han == CHINESE_ONLY_NAME:
            sizes = np.diff(self.ends, prepend=-1)
            starts = self.ends + 1 - sizes
            kana, han = are_kana(self.codes, self.classes), self.classes == HAN
            counts = (np.add.reduceat(mask, starts, dtype=np.int64) for mask in (kana, han))
            is_japanese = np.repeat(are_japanese(*counts), sizes)
            simplified = np.where(is_japanese, self.codes, simplified)
            self.classes = np.where(is_japanese & han, np.uint8(UNSPACED), self.classes)
        self.codes = simplified

    @cached_property
    def texts(self) -> list[str]:
        """The texts."""
        return to_text(self.codes).split("\0")[:-1]

    @cached_property
    def classes(self) -> Uint8s:
        """The class of each code point."""
        return classify(self.codes)

    @cached_property
    def has_han(self) -> bool:
        """Whether there are any Han characters."""
        return bool((self.classes == HAN).any())

    @cached_property
    def has_unspaced(self) -> bool:
        """Whether there are any characters of other scripts without spaces."""
        return bool((self.classes == UNSPACED).any())

    @cached_property
    def bare(self) -> tuple[Uint32s, Uint8s]:
        """Code points and classes without the apostrophes inside words."""
        return tokens.drop_apostrophes(self.codes, self.classes)

    @cached_property
    def places(self) -> tokens.Places:
        """The places of all words and of the characters of scripts without spaces."""
        return tokens.find_words(*self.bare)

    @cached_property
    def units(self) -> tokens.Units:
        """All words and the characters of scripts without spaces."""
        codes, classes = self.bare
        return self.places.units(codes, tokens.are_members(classes))

    @cached_property
    def words(self) -> tokens.Units:
        """The words in scripts with spaces."""
        codes, classes = self.bare
        return self.places.words(classes).units(codes, classes == SPACED)

    @cached_property
    def word_spans(self) -> tokens.Spans:
        """The words' UTF-8."""
        return self.words.spans()

    @cached_property
    def word_hashes(self) -> Uint64s:
        """The words' hashes."""
        return self.hashes(self.word_spans)

    def hashes(self, spans: tokens.Spans) -> Uint64s:
        """Return the hash of each span."""
        return HASHES[self.recipe.hash].many(spans.buffer, spans.starts, spans.ends, self.recipe.seed)

    @cached_property
    def has_letters(self) -> bool:
        """Whether there are any letters, marks or digits."""
        return bool(np.isin(self.classes, LETTERS).any())

    def sketch_hashes(self) -> Uint64s:
        """Return the hashes of all words and characters in `places`, which sketches combine into shingles."""
        if len(self.words.doc) == len(self.places.doc):
            return self.word_hashes
        (codes, classes), starts = self.bare, self.places.starts
        hashes = character_hashes(codes[starts])
        hashes[classes[starts] == SPACED] = self.word_hashes
        return hashes


def refuse_surrogates(codes: Uint32s, name: str) -> None:
    """Raise `ValueError` for a lone surrogate, which the profile called `name` does not replace."""
    wrong = codes[codes >> 11 == 0x1B]
    if len(wrong):
        raise ValueError(
            f"lone surrogate U+{wrong[0]:04X}: profile {name} does not replace lone surrogates; replace them first"
        )
