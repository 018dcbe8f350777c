"""Words and characters of normalised text, found for a whole batch at once, and the shingles they make.

A *word* is a run of letters, digits and marks of scripts with spaces; an apostrophe inside is left out (`don't` and
`don’t` are `dont`). A *stretch* is a row of words with nothing but spaces between them, or a run of characters of
scripts without spaces. A *shingle* is the UTF-8 of n adjacent words of a stretch, one space between them, or of n
adjacent characters; a stretch of fewer than n is one shingle. Punctuation ends a stretch: measured on revised Chinese
articles, shingles across it cost 5 points of F1, because addresses and mark-up then join the words beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s, Uint32s
from hsimhash.fingerprint.normalize import HAN, SEPARATOR, SPACE, SPACED, UNSPACED, to_text

_RUN_BREAK = ord("\n")  # between runs of Han: any character that the segmenter cuts at
_APOSTROPHES = (0x27, 0x2019)


@dataclass(frozen=True, slots=True)
class Spans:
    """Half-open spans [start, end) of UTF-8, each with its document; shape (m,) each."""

    buffer: bytes
    starts: Int64s
    ends: Int64s
    doc: Int64s

    def of(self, kept: Bools) -> Spans:
        """Return those of the spans that are kept."""
        return Spans(self.buffer, self.starts[kept], self.ends[kept], self.doc[kept])

    def text(self, index: int) -> str:
        """Return one span as text; the bytes of a part of a character as their numbers."""
        return self.buffer[self.starts[index] : self.ends[index]].decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class Units:
    """Words or characters: the members of each are `chars[first[i] : first[i + 1]]`; its document and stretch."""

    chars: Uint32s
    first: Int64s  # one more than there are units
    doc: Int64s
    stretch: Int64s

    def of(self, kept: Bools) -> Units:
        """Return those of the units that are kept."""
        sizes = np.diff(self.first)
        return Units(
            self.chars[np.repeat(kept, sizes)],
            np.append(0, np.cumsum(sizes[kept])),
            self.doc[kept],
            self.stretch[kept],
        )

    def spans(self) -> Spans:
        """Return each unit's UTF-8."""
        buffer, starts, ends = _encode(self.chars, self.first, gap=False)
        return Spans(buffer, starts, ends, self.doc)

    def rows(self, n: int) -> tuple[Int64s, Int64s]:
        """Return where rows of n adjacent units start and stop; a stretch of fewer than n is one row."""
        count = len(self.doc)
        opens = np.append(True, self.stretch[1:] != self.stretch[:-1])[:count]
        is_whole = np.zeros(count, np.bool_)
        is_whole[: max(count - n + 1, 0)] = self.stretch[n - 1 :] == self.stretch[: max(count - n + 1, 0)]
        start, first = np.flatnonzero(is_whole | opens), np.flatnonzero(opens)
        stop = start + n
        stop[~is_whole[start]] = np.append(first[1:], count)[: len(first)][~is_whole[first]]
        return start, stop


def drop_apostrophes(codes: Uint32s, classes: Uint8s) -> tuple[Uint32s, Uint8s]:
    """Return code points and classes without the apostrophes inside words."""
    at = np.flatnonzero((codes == _APOSTROPHES[0]) | (codes == _APOSTROPHES[1]))
    at = at[(at > 0) & (at < len(codes) - 1)]
    inside = at[(classes[at - 1] == SPACED) & (classes[at + 1] == SPACED)]
    return (np.delete(codes, inside), np.delete(classes, inside)) if len(inside) else (codes, classes)


def word_shingles(codes: Uint32s, classes: Uint8s, n: int, *, every_script: bool) -> Spans:
    """Return the shingles of n words.

    Args:
        codes: the normalised documents, without apostrophes inside words.
        classes: of the code points.
        n: words to a shingle.
        every_script: each character of a script without spaces is a word too, so that a page of Chinese gives pairs of
            characters instead of nothing; else such a character ends a stretch.
    """
    return shingles(word_units(codes, classes, every_script=every_script), n, gap=True)


def word_units(codes: Uint32s, classes: Uint8s, *, every_script: bool) -> Units:
    """Return the words, of which `word_shingles` makes shingles."""
    spaced = classes == SPACED
    member = spaced | (classes == HAN) | (classes == UNSPACED) if every_script else spaced
    begins = member & ~(spaced & _after(spaced))
    return _units(codes, member, begins, member | (codes == SPACE))


def char_shingles(codes: Uint32s, classes: Uint8s, n: int) -> Spans:
    """Return the n-grams of the runs of characters of scripts without spaces, but Han that the segmenter knows."""
    unspaced = classes == UNSPACED
    return shingles(_units(codes, unspaced, unspaced, unspaced), n, gap=False)


def han_runs(codes: Uint32s, classes: Uint8s) -> str:
    """Return the documents' runs of Han, a line each, every document followed by `SEPARATOR`."""
    han = classes == HAN
    ends = codes == SEPARATOR
    kept = han | ends | _after(han)
    return to_text(np.where(han | ends, codes, _RUN_BREAK)[kept])


def _after(mask: Bools) -> Bools:
    """Return what the mask says of the code point before each."""
    return np.concatenate(([False], mask[:-1]))


def _units(codes: Uint32s, member: Bools, begins: Bools, joins: Bools) -> Units:
    """Return the units that start where `begins` says; a code point that does not join ends the stretch."""
    at, ends = np.flatnonzero(begins), np.flatnonzero(codes == SEPARATOR)
    chars, index = codes[member], np.flatnonzero(begins[member])
    sizes = np.diff(np.searchsorted(at, ends), prepend=0)
    doc = np.repeat(np.arange(len(ends)), sizes)
    return Units(chars, np.append(index, len(chars)), doc, np.searchsorted(np.flatnonzero(~joins), at))


def shingles(units: Units, n: int, *, gap: bool) -> Spans:
    """Return the shingles of n adjacent units, with a space between units if `gap`."""
    buffer, starts, ends = _encode(units.chars, units.first, gap=gap)
    first, stop = units.rows(n)
    return Spans(buffer, starts[first], ends[stop - 1], units.doc[first])


def _encode(chars: Uint32s, first: Int64s, *, gap: bool) -> tuple[bytes, Int64s, Int64s]:
    """Return the units' UTF-8, a space between them if `gap`, and where each starts and ends in it."""
    if gap:
        count = len(first) - 1
        spread = np.full(len(chars) + count, SPACE, np.uint32)
        spread[np.arange(len(chars)) + np.repeat(np.arange(count), np.diff(first))] = chars
        chars, first = spread, first + np.arange(count + 1)
    if (chars <= 0x7F).all():
        return chars.astype(np.uint8).tobytes(), first[:-1], first[1:] - gap
    width = 1 + (chars > 0x7F).astype(np.int64) + (chars > 0x7FF) + (chars > 0xFFFF)
    offset = np.concatenate(([0], np.cumsum(width)))
    return to_text(chars).encode(), offset[first[:-1]], offset[first[1:] - gap]
