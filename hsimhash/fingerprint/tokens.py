"""Find the words, characters and shingles in a whole batch of normalised texts at once.

A *word* is a run of letters, digits and marks of scripts with spaces. Apostrophes inside a word are dropped: `don't`
and `don’t` become `dont`. A *stretch* is a sequence of words with only spaces between them, or a run of characters of
scripts without spaces. A *shingle* is the UTF-8 of n adjacent words in a stretch, joined by single spaces, or of n
adjacent characters. A stretch of fewer than n words or characters is one shingle.

Punctuation ends a stretch. On revised Chinese articles, shingles that cross punctuation lower F1 by 5 points, because
they join addresses and mark-up to the words next to them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s, Uint32s, Uint64s, are_in, counts_before, sorted_distinct
from hsimhash.fingerprint.murmur3 import murmur64, murmur64_spans
from hsimhash.fingerprint.normalize import HAN, SEPARATOR, SPACE, SPACED, UNSPACED, to_text

_RUN_BREAK = ord("\n")  # between runs of Han characters; any character at which the segmenter ends a word would do
_SLICE = 1 << 20  # code points encoded at once
_APOSTROPHES = (0x27, 0x2019)
# Words that are common in sentences but rare in menus and advertising, for `stop-words` tokens. Never change this list:
# profiles depend on it. Chinese stop words are single characters because, without a segmenter, each character is a
# word.
_STOP_WORDS = (
    "a an and are as at be been but by can for from had has have he her his i if in into is it its not of on or our "
    "she so that the their them then there they this to was we were what when which who will with would you your "
    "的 了 是 在 和 有 也 就 都 而 与 及 但 被 把 从 对 为 其 之 于 所 以 着 过 吗 呢 吧 "
    "我 你 他 她 它 们 这 那 不 没 很 还 與 從 對 為 於 著 過 嗎 們 這 沒 還"
)


@dataclass(frozen=True, slots=True)
class Spans:
    """Half-open spans [start, end) of UTF-8, and the document of each span; arrays of shape (m,)."""

    buffer: bytes
    starts: Int64s
    ends: Int64s
    doc: Int64s

    def of(self, kept: Bools) -> Spans:
        """Return the spans selected by the mask."""
        return Spans(self.buffer, self.starts[kept], self.ends[kept], self.doc[kept])

    def rows(self, first: Int64s, stop: Int64s) -> Spans:
        """Merge each range [first, stop) of spans into one span, from the first span's start to the last span's end."""
        return Spans(self.buffer, self.starts[first], self.ends[stop - 1], self.doc[first])

    def are_among(self, hashes: Uint64s) -> Bools:
        """Return which spans are among the words that have the given hashes; see `sorted_hashes`."""
        return are_in(murmur64_spans(self.buffer, self.starts, self.ends), hashes)

    def text(self, index: int) -> str:
        """Return one span as text; bytes of an incomplete character become escapes."""
        return self.buffer[self.starts[index] : self.ends[index]].decode(errors="backslashreplace")


@dataclass(frozen=True, slots=True)
class Units:
    """Words or characters: unit i is `chars[first[i] : first[i + 1]]` in document `doc[i]` and stretch `stretch[i]`."""

    chars: Uint32s
    first: Int64s  # one more entry than there are units
    doc: Int64s
    stretch: Int64s

    def of(self, kept: Bools) -> Units:
        """Return the units selected by the mask."""
        sizes = np.diff(self.first)
        return Units(
            self.chars[np.repeat(kept, sizes)],
            np.append(0, np.cumsum(sizes[kept])),
            self.doc[kept],
            self.stretch[kept],
        )

    def spans(self) -> Spans:
        """Return each unit's UTF-8."""
        return self.encoded(gap=False)

    def encoded(self, *, gap: bool) -> Spans:
        """Return each unit's UTF-8 in one buffer, with a space after each unit if `gap`."""
        return Spans(*_encode(self.chars, self.first, gap=gap), self.doc)

    def rows(self, n: int) -> tuple[Int64s, Int64s]:
        """Return the start and stop of each run of n adjacent units; a stretch of fewer than n units is one run."""
        return stretch_rows(self.stretch, n)


@dataclass(frozen=True, slots=True)
class Places:
    """Where words or characters are: unit i is `codes[starts[i]:][: sizes[i]]`, in `doc[i]` and `stretch[i]`."""

    starts: Int64s
    sizes: Int64s
    doc: Int64s
    stretch: Int64s  # number of code points before the unit that end a stretch

    def words(self, classes: Uint8s) -> Places:
        """Return the words in scripts with spaces; all other units end a stretch."""
        kept = np.flatnonzero(classes[self.starts] == SPACED)
        if len(kept) == len(self.starts):
            return self
        others_before = kept - np.arange(len(kept))
        return Places(self.starts[kept], self.sizes[kept], self.doc[kept], self.stretch[kept] + others_before)

    def units(self, codes: Uint32s, member: Bools) -> Units:
        """Return the units, given which code points belong to them."""
        first = np.concatenate(([0], np.cumsum(self.sizes)))
        count = int(first[-1])
        # One word may have 16 million characters: this is a view of them rather than a copy.
        chars = codes[:count] if member[:count].all() else codes[member]
        return Units(chars, first, self.doc, self.stretch)


def stretch_rows(stretch: Int64s, n: int) -> tuple[Int64s, Int64s]:
    """Return the start and stop of each run of n adjacent units in the same stretch; see `Units.rows`."""
    count = len(stretch)
    opens = np.append(True, stretch[1:] != stretch[:-1])[:count]
    is_whole = np.zeros(count, np.bool_)
    is_whole[: max(count - n + 1, 0)] = stretch[n - 1 :] == stretch[: max(count - n + 1, 0)]
    start, first = np.flatnonzero(is_whole | opens), np.flatnonzero(opens)
    stop = start + n
    stop[~is_whole[start]] = np.append(first[1:], count)[: len(first)][~is_whole[first]]
    return start, stop


def drop_apostrophes(codes: Uint32s, classes: Uint8s) -> tuple[Uint32s, Uint8s]:
    """Return code points and classes without the apostrophes inside words."""
    inside = (codes == _APOSTROPHES[0]) | (codes == _APOSTROPHES[1])
    inside[:1] = inside[-1:] = False
    if inside.any():
        spaced = classes == SPACED
        inside[1:-1] &= spaced[:-2] & spaced[2:]
    return (codes[~inside], classes[~inside]) if inside.any() else (codes, classes)


def word_units(codes: Uint32s, classes: Uint8s) -> Units:
    """Return the words. Each character of a script without spaces counts as a word, so that Chinese pages have some.

    Args:
        codes: Code points of the normalised documents, without apostrophes inside words.
        classes: Classes of the code points.
    """
    return find_words(codes, classes).units(codes, are_members(classes))


def find_words(codes: Uint32s, classes: Uint8s) -> Places:
    """Return the places of the words that `word_units` returns."""
    spaced, member = classes == SPACED, are_members(classes)
    return _places(codes, member, member & ~(spaced & _after(spaced)), member | (codes == SPACE))


def are_members(classes: Uint8s) -> Bools:
    """Return which code points belong to words, including those of scripts without spaces."""
    members: Bools = (classes == SPACED) | (classes == HAN) | (classes == UNSPACED)
    return members


def word_breaks(codes: Uint32s, classes: Uint8s, *, every_script: bool) -> int:
    """Return how many code points end a stretch of words."""
    members = are_members(classes) if every_script else classes == SPACED
    return len(codes) - int(np.count_nonzero(members | (codes == SPACE)))


def last_word_end(codes: Uint32s, classes: Uint8s) -> int:
    """Return where a text can be cut without splitting a word: after the last code point outside any word, or 0."""
    apostrophe = (codes == _APOSTROPHES[0]) | (codes == _APOSTROPHES[1])
    outside = (classes != SPACED) & ~apostrophe
    outside[1:] |= apostrophe[1:] & apostrophe[:-1]  # a word continues across one apostrophe, never across two
    at = np.flatnonzero(outside)
    return int(at[-1]) + 1 if len(at) else 0


def char_shingles(codes: Uint32s, classes: Uint8s, n: int) -> Spans:
    """Return the character n-grams in scripts without spaces, except for Han characters that the segmenter handles."""
    return shingles(char_units(codes, classes), n, gap=False)


def char_units(codes: Uint32s, classes: Uint8s) -> Units:
    """Return the characters that `char_shingles` combines into shingles."""
    unspaced = classes == UNSPACED
    return _places(codes, unspaced, unspaced, unspaced).units(codes, unspaced)


def han_runs(codes: Uint32s, classes: Uint8s) -> str:
    """Return the documents' runs of Han characters, one per line, with `SEPARATOR` after each document."""
    han = classes == HAN
    ends = codes == SEPARATOR
    kept = han | ends | _after(han)
    return to_text(np.where(han | ends, codes, _RUN_BREAK)[kept])


def _after(mask: Bools) -> Bools:
    """Shift the mask by one: return its value for the preceding code point."""
    return np.concatenate(([False], mask[:-1]))


def _places(codes: Uint32s, member: Bools, begins: Bools, joins: Bools) -> Places:
    """Return the places of units that start where `begins` is set; code points outside `joins` end the stretch."""
    starts = np.flatnonzero(begins)
    # Few masks at a time, because one word may have 16 million characters.
    goes_on = member > begins
    is_last = np.append(member[:-1] > goes_on[1:], member[-1:])
    return Places(
        starts,
        np.flatnonzero(is_last) + 1 - starts,
        counts_before(starts, np.flatnonzero(codes == SEPARATOR)),
        counts_before(starts, np.flatnonzero(~joins)),
    )


def shingles(units: Units, n: int, *, gap: bool) -> Spans:
    """Return the shingles of n adjacent units, with a space between units if `gap`."""
    return units.encoded(gap=gap).rows(*units.rows(n))


def _encode(chars: Uint32s, first: Int64s, *, gap: bool) -> tuple[bytes, Int64s, Int64s]:
    """Return the units' UTF-8, separated by spaces if `gap`, and where each unit starts and ends in it."""
    is_ascii = bool((chars <= 0x7F).all())
    buffer, offset = (chars.astype(np.uint8).data, first) if is_ascii else _utf8(chars, first)
    if gap:
        offset = offset + np.arange(len(offset))
        buffer = _spread(buffer, offset)
    return bytes(buffer), offset[:-1], offset[1:] - gap


def _spread(buffer: bytes | memoryview, offset: Int64s) -> bytes | memoryview:
    """Return UTF-8 with a space inserted after each unit, at the positions given by `offset`."""
    if len(offset) == 2:  # the code below would need three copies of a word of 16 million characters
        return bytes(buffer) + b" "
    is_text = np.ones(len(buffer) + len(offset) - 1, np.bool_)
    is_text[offset[1:] - 1] = False
    spread = np.full(len(is_text), SPACE, np.uint8)
    spread[is_text] = np.frombuffer(buffer, np.uint8)
    return spread.data


def _utf8(codes: Uint32s, first: Int64s) -> tuple[bytes, Int64s]:
    """Return the UTF-8 of code points, and the units' offsets in bytes, given their offsets in code points."""
    encoded, size, offset = list[bytes](), 0, np.zeros(len(first), np.int64)
    for at in range(0, len(codes), _SLICE):
        part = codes[at : at + _SLICE]
        widths = np.ones(len(part), np.uint8)
        for most in (0x7F, 0x7FF, 0xFFFF):
            widths += part > most
        ends = np.cumsum(widths, dtype=np.int64)
        here = slice(*np.searchsorted(first, (at + 1, at + len(part) + 1)))
        offset[here] = size + ends[first[here] - at - 1]
        size += int(ends[-1])
        encoded.append(to_text(part).encode())
    return b"".join(encoded), offset


@cache
def stop_word_hashes() -> Uint64s:
    """Return the hashes of the stop words, ascending."""
    return sorted_hashes(_STOP_WORDS.split())


def sorted_hashes(words: Iterable[str]) -> Uint64s:
    """Return the hashes of words, ascending."""
    return sorted_distinct(np.array(list(map(murmur64, words)), np.uint64))
