"""Cut texts into pieces regardless of script: characters, bytes, matches of a pattern, or pieces as in other libraries.

A text is one stretch. Its *units* are characters, bytes or words. Every n adjacent units form a piece; if there are
fewer than n units, all of them form one piece. A text with fewer units than the profile's `least` does not have pieces.

Character classes (`re`, `isalnum`) are those of the running Python, as in the libraries themselves. For characters that
were added after Unicode 14.0, they may differ between Python versions.
"""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import TypeVar

import numpy as np

from hsimhash.fingerprint.bits import Bools, Int64s, Uint32s
from hsimhash.fingerprint.normalize import to_codes
from hsimhash.fingerprint.tokens import Spans, Units, shingles, stretch_rows

Pieces = TypeVar("Pieces", Units, Spans)

_WORD = re.compile(r"[\w\u4e00-\u9fcc]+")  # for 1e0ng
_CLICKHOUSE_LEAST = 4  # bytes; shorter words are skipped
SAMPLED = 32  # trafilatura uses words of one to four letters only if there are fewer longer words than this
BETWEEN_SPACES = "[^ ]+"
WORDS_AND_LINKS = "[0-9A-Za-z_']+(?:://[0-9A-Za-z_./]+)?"  # for mfonda
# Maps the pattern of a built-in recipe to a pattern for the characters that no match contains. All of these patterns
# take linear time.
OUTSIDE_MATCHES = {
    BETWEEN_SPACES: re.compile(" "),
    r"\w+": re.compile(r"\W"),
    WORDS_AND_LINKS: re.compile("[^0-9A-Za-z_'./:]"),
}
GRAM_LEAST = 5  # characters; text-dedup 0.4 ignores shorter texts

# Normalisations besides `nfkc-casefold-*`, applied before a text is cut. After the last one, everything except for
# `word_characters` is dropped.
WORD_CHARACTERS = "lower-word-characters"
NORMALIZERS: dict[str, Callable[[str], str]] = {"none": str, "lower": str.lower, WORD_CHARACTERS: str.lower}


def word_characters(codes: Uint32s, ends: Int64s) -> tuple[Uint32s, Int64s]:
    """Keep only letters, digits and underscores in documents; return the code points and where each document ends."""
    kept = _word_table()[codes]
    kept[ends] = True
    return codes[kept], np.cumsum(kept)[ends] - 1


@cache
def _word_table() -> Bools:
    table = np.zeros(sys.maxunicode + 1, np.bool_)
    for match in _WORD.finditer("".join(map(chr, range(len(table))))):
        table[match.start() : match.end()] = True
    return table


def characters(codes: Uint32s, ends: Int64s, n: int, least: int) -> Spans:
    """Return each run of n adjacent characters in documents.

    Args:
        codes: Code points of all documents, with one separator after each document.
        ends: Position after each document; shape (documents,).
        n: Characters per piece.
        least: Minimum number of characters; a shorter document does not have pieces.
    """
    sizes = np.diff(ends, prepend=-1) - 1
    chars, doc = np.delete(codes, ends), _owners(sizes)
    units = Units(chars, np.arange(len(chars) + 1), doc, doc)
    return shingles(_of_enough(units, sizes, least), n, gap=False)


def matches(texts: Sequence[str], cut: Callable[[str], list[str]], n: int, least: int) -> Spans:
    """Return each run of n adjacent words in texts, joined by spaces; `cut` returns the words in a text."""
    found = list(map(cut, texts))
    sizes = np.array(list(map(len, found)), np.int64)
    units = listed_units(list(chain.from_iterable(found)), _owners(sizes))
    return shingles(_of_enough(units, sizes, least), n, gap=True)


def listed_units(words: list[str], doc: Int64s) -> Units:
    """Return words as the units of their documents."""
    return Units(to_codes("".join(words)), np.cumsum([0, *map(len, words)]), doc, doc)


def words_by(pattern: str) -> Callable[[str], list[str]]:
    """Return a function that finds a pattern's matches in a text.

    For `BETWEEN_SPACES`, it splits the text instead, which takes a quarter of the time.
    """
    if pattern == BETWEEN_SPACES:
        return lambda text: list(filter(None, text.split(" ")))
    return re.compile(pattern).findall


def octets(texts: Sequence[str], n: int, least: int) -> Spans:
    """Return each run of n adjacent bytes in the texts' UTF-8."""
    encoded = [text.encode() for text in texts]
    sizes = np.array(list(map(len, encoded)), np.int64)
    return _windows(b"".join(encoded), np.arange(1, sizes.sum() + 1), sizes, n, least)


def clickhouse_words(texts: Sequence[str], n: int, least: int) -> Spans:
    """Return each run of n adjacent words as hashed by ClickHouse's `wordShingleSimHash`, without separators.

    A word is a run of at least 4 bytes: ASCII letters and digits, and bytes beyond ASCII.
    """
    words, sizes = clickhouse_units(texts)
    return _windows(words.buffer, words.ends, sizes, n, least)


def clickhouse_units(texts: Sequence[str]) -> tuple[Spans, Int64s]:
    """Cut texts into words like ClickHouse, without separators; also return the number of words per text."""
    encoded = [text.encode() for text in texts]
    units = np.frombuffer(b" ".join([b"", *encoded, b""]), np.uint8)
    edges = np.flatnonzero(np.diff(_clickhouse_letters()[units]))
    starts, stops = edges[::2] + 1, edges[1::2] + 1
    is_long = stops - starts >= _CLICKHOUSE_LEAST
    starts, stops = starts[is_long], stops[is_long]
    sizes = np.diff(np.searchsorted(starts, np.cumsum([1, *(len(text) + 1 for text in encoded)])))
    inside = np.zeros(len(units), np.int8)
    inside[starts], inside[stops] = 1, -1
    words = units[np.cumsum(inside, dtype=np.int8).view(np.bool_)].tobytes()
    ends = np.cumsum(stops - starts)
    return Spans(words, ends - (stops - starts), ends, _owners(sizes)), sizes


@cache
def _clickhouse_letters() -> Bools:
    codes = np.arange(256)
    return np.isin(codes, list(b"0123456789" + string.ascii_letters.encode())) | (codes >= 0x80)


def trafilatura_words(text: str) -> list[str]:
    """Return words as selected by trafilatura: only letters and digits, without punctuation around them.

    Short words are left out as long as at least 32 longer words remain.
    """
    words = alphanumeric_words(text) or alphanumeric_words(text, has_punctuation=True)
    for letters in (4, 3, 2, 1):
        longer = [word for word in words if len(word) > letters]
        if len(longer) >= SAMPLED:
            return longer
    return words


def alphanumeric_words(text: str, *, has_punctuation: bool = False) -> list[str]:
    """Return words of only letters and digits, stripped of surrounding punctuation or split at any punctuation."""
    if has_punctuation:
        return list(filter(str.isalnum, text.translate(_punctuation()).split()))
    return list(filter(str.isalnum, [word.strip(string.punctuation) for word in text.split()]))


@cache
def _punctuation() -> dict[int, str]:
    return {code: " " for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)).startswith("P")}


@cache
def blank_or_punctuation() -> re.Pattern[str]:
    """Return a pattern for a single word separator where punctuation also separates words."""
    return re.compile(f"[\\s{re.escape(''.join(map(chr, _punctuation())))}]")


def lower_grams(text: str, n: int) -> list[str]:
    """Return the distinct character n-grams like text-dedup 0.4: cut first, then converted to lower case."""
    return different_grams(text, n) if len(text) >= GRAM_LEAST else []


def different_grams(text: str, n: int) -> list[str]:
    """Return the distinct n-grams of a text in lower case; a text of fewer than n characters is one n-gram."""
    return list(dict.fromkeys([text[at : at + n].lower() for at in range(max(len(text) - n, 0) + 1)]))


def _owners(sizes: Int64s) -> Int64s:
    """Return the document of each unit."""
    return np.repeat(np.arange(len(sizes)), sizes)


def _of_enough(pieces: Pieces, sizes: Int64s, least: int) -> Pieces:
    """Return the pieces of documents that have at least `least` units."""
    enough = sizes >= least
    return pieces if enough.all() else pieces.of(enough[pieces.doc])


def _windows(buffer: bytes, stops: Int64s, sizes: Int64s, n: int, least: int) -> Spans:
    """Return each run of n adjacent units in a gapless buffer, given their `stops` and the `sizes` of documents."""
    starts, doc = np.concatenate((np.zeros(1, np.int64), stops[:-1]))[: len(stops)], _owners(sizes)
    return _of_enough(Spans(buffer, starts, stops, doc).rows(*stretch_rows(doc, n)), sizes, least)
