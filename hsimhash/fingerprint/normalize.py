"""The `nfkc-casefold-1` and `nfkc-casefold-2` normalisations, and the class of each code point, as arrays.

1. Code points that are unassigned in Unicode 14.0, lone surrogates, control characters and white space become spaces.
   Default-ignorable code points (soft hyphen, zero-width characters, variation selectors, byte order mark) are dropped.
2. In a run of code points that may join the preceding one, everything after the 32nd is dropped. Sorting longer runs
   would take quadratic time (half a day for 16 MiB of accents), and no language needs them.
3. NFKC, full case folding, NFKC again.
4. Runs of spaces become one; spaces at the ends are removed.

`nfkc-casefold-2` also joins words that are hyphenated at a line end (before step 1), unifies variant spellings
(variants.npz, after step 3) and drops spaces between characters of scripts without spaces (after step 4).
schema/fingerprint.md defines both normalisations.

Step 1 makes the result independent of the Unicode version: Unicode guarantees that code points assigned in 14.0
normalise and fold the same way in all later versions. Nearly every code point can be normalised by itself, so one table
look-up handles a whole batch. Only code points that may join the preceding one (combining marks, Hangul jamo) go
through `unicodedata`, together with the code points around them.
"""

from __future__ import annotations

import encodings.utf_32_le  # noqa: F401  # imported here, so that the first text does not import it
import functools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s, Uint32s

NORMALIZE_NAME = "nfkc-casefold-1"
LAYOUT_FREE_NAME = "nfkc-casefold-2"
NORMALIZE_NAMES = (NORMALIZE_NAME, LAYOUT_FREE_NAME)
SIMPLIFIED_NAME = "simplified-1"
CHINESE_ONLY_NAME = "simplified-2"
SEPARATOR = 0  # follows every document in an array of code points, and occurs nowhere else
SPACE = 0x20
JOINING_LIMIT = 32
MOST_OPEN = 1 << 20  # limit on adjacent code points that are not firm; see `normalized_windows`
_SOFT_HYPHEN = 0xAD
_END = np.array([SEPARATOR], np.uint32)
_FIRST_UNSPACED = 0xE01  # a Thai letter
_KANA = range(0x3041, 0x3100)
_LEAST_KANA = 10  # a text is Japanese if at least 1/_LEAST_KANA of its kana and Han characters are kana
_NASAL, _VIRAMA, _ANUSVARA = 0x928, 0x94D, 0x902  # Devanagari
_NIKHAHITS, _TONES = ((0xE4D, 0xE48), (0xECD, 0xEC8)), 4  # Thai and Lao nikhahit, each with the first tone mark
_MARKED, _JAMO = range(0x1800), range(0x1100, 0x1200)  # nearly all marks of scripts in use today; Hangul letters
_IOTA = 0x3B9  # a Greek mark folds to this letter
_COMPOSED = range(0x3100)  # no code point above this range is composed of `_MARKED`

# The classes of code points in unicode.npz.
NONE, HAN, SPACED, UNSPACED, BLANK, IGNORED = range(6)

_CODE_POINTS = 0x110000
_DROPPED, _JOINING, _MANY = _CODE_POINTS, _CODE_POINTS + 1, _CODE_POINTS + 2  # table entries that are not code points


@dataclass(frozen=True, slots=True)
class _Tables:
    """The content of unicode.npz, and of variants.npz for `nfkc-casefold-2`, expanded for look-up by code point."""

    classes: Uint8s
    normal: Uint32s  # the code point that it becomes, or _DROPPED, or _JOINING, or _MANY + its index in `many_start`
    many_start: Int64s
    many_codes: Uint32s
    is_layout_free: bool = False
    # What a character may do next to a hyphen at the end of a line: 1 for a letter, which may come before or after it;
    # 2 for a capital letter or a mark, which may only come before it.
    hyphened: Uint8s = field(default_factory=lambda: np.zeros(_CODE_POINTS, np.uint8))
    variants: Uint32s = field(default_factory=lambda: np.empty(0, np.uint32))  # like `normal`, for NFKC output


@functools.cache
def _tables(name: str = NORMALIZE_NAME) -> _Tables:
    return _first_tables() if name == NORMALIZE_NAME else _with_variants(_first_tables())


@functools.cache
def _first_tables() -> _Tables:
    with np.load(Path(__file__).with_name("unicode.npz")) as stored:
        runs = np.diff(stored["class_starts"], append=_CODE_POINTS)
        classes = np.repeat(stored["class_values"], runs)
        normal = np.arange(_CODE_POINTS, dtype=np.uint32)
        normal[classes == BLANK] = SPACE
        normal[classes == IGNORED] = _DROPPED
        normal[stored["single_from"]] = stored["single_to"]
        normal[stored["many_from"]] = np.arange(len(stored["many_from"]), dtype=np.uint32) + _MANY
        normal[stored["joining"]] = _JOINING
        return _Tables(classes, normal, stored["many_start"].astype(np.int64), stored["many_codes"])


def _with_variants(tables: _Tables) -> _Tables:
    normal, many = tables.normal.copy(), len(tables.many_start) - 1
    with np.load(Path(__file__).with_name("variants.npz")) as stored:
        normal[[nikhahit for nikhahit, _ in _NIKHAHITS]] = _JOINING
        normal[stored["dropped"]] = _DROPPED
        normal[stored["blank"]] = SPACE
        normal[stored["single_from"]] = stored["single_to"]
        normal[stored["many_from"]] = np.arange(len(stored["many_from"]), dtype=np.uint32) + _MANY + many
        variants = np.where(normal == _JOINING, np.arange(_CODE_POINTS, dtype=np.uint32), normal)
        variants[stored["dropped_marks"]] = _DROPPED
        variants[SEPARATOR] = SEPARATOR
        starts = stored["many_start"].astype(np.int64) + tables.many_start[-1]
        return _Tables(
            tables.classes,
            normal,
            np.concatenate((tables.many_start[:-1], starts)),
            np.concatenate((tables.many_codes, stored["many_codes"])),
            is_layout_free=True,
            hyphened=np.repeat(stored["hyphen_values"], np.diff(stored["hyphen_starts"], append=_CODE_POINTS)),
            variants=variants,
        )


def native_tables(
    name: str, *, is_simplified: bool
) -> tuple[Uint8s, Uint32s, Int64s, Uint32s, Uint8s, bool, Uint32s | None, list[tuple[int, int]]]:
    """Return the tables for normalisation, simplified characters and marks, in the order that `native` expects."""
    tables = _tables(name)
    normal = tables.normal, tables.many_start, tables.many_codes
    simplified = _simplified() if is_simplified else None
    return tables.classes, *normal, tables.hyphened, tables.is_layout_free, simplified, _marks(tables)


def _marks(tables: _Tables) -> list[tuple[int, int]]:
    """Return the combining class of each code point in `_MARKED`, and flags for how it combines with marks.

    The flags are 1 for a letter that NFKC leaves unchanged, 2 for a mark that NFKC leaves unchanged, 4 for a mark that
    is dropped afterwards, and 8 and 16 for the first and the second of two code points that compose. 0 means that none
    of these applies, or that the flags cannot describe the code point.
    """
    found = {letter: split for code in _COMPOSED if (split := unicodedata.decomposition(letter := chr(code)))}
    pairs = [split.split() for letter, split in found.items() if unicodedata.is_normalized("NFC", letter)]
    composed = [pair for pair in pairs if len(pair) == 2 and "<" not in pair[0]]
    first, second = ({int(pair[place], 16) for pair in composed} for place in (0, 1))
    others = {_IOTA, *(nikhahit for nikhahit, _ in _NIKHAHITS)}
    normal = tables.normal[: _MARKED.stop].tolist()
    variants = tables.variants[: _MARKED.stop].tolist() if tables.is_layout_free else _MARKED

    def what(code: int) -> int:
        kept, is_mark, letter = variants[code], normal[code] == _JOINING, chr(code)
        is_composed = unicodedata.normalize("NFKD", letter) != letter
        if code in others or (is_composed and is_mark) or unicodedata.normalize("NFKC", letter.casefold()) != letter:
            return 0
        is_kept = (kept if is_mark else normal[code]) == code
        is_dropped = is_mark and kept == _DROPPED
        if not (is_kept or is_dropped):
            return 0
        return (2 if is_mark else 1) | 4 * is_dropped | 8 * (is_composed or code in first) | 16 * (code in second)

    return [(unicodedata.combining(chr(code)), what(code) if code not in _JAMO else 0) for code in _MARKED]


def classify(codes: Uint32s) -> Uint8s:
    """Return the class of each code point."""
    return _tables().classes[codes]


@functools.cache
def _simplified() -> Uint32s:
    codes = np.arange(_CODE_POINTS, dtype=np.uint32)
    with np.load(Path(__file__).with_name("simplified.npz")) as stored:
        codes[stored["traditional"]] = stored["simplified"]
    return codes


def simplify(codes: Uint32s) -> Uint32s:
    """Convert traditional Han characters to simplified ones, using OpenCC's character table."""
    return _simplified()[codes]


def are_japanese(kana: Int64s, han: Int64s) -> Bools:
    """Return which texts are Japanese, given their numbers of kana and Han characters."""
    is_japanese: Bools = (kana > 0) & (kana * _LEAST_KANA >= kana + han)
    return is_japanese


def are_kana(codes: Uint32s, classes: Uint8s) -> Bools:
    """Return which code points are kana."""
    kana: Bools = (classes == UNSPACED) & (codes >= _KANA.start) & (codes < _KANA.stop)
    return kana


def normalize(texts: Sequence[str], name: str = NORMALIZE_NAME) -> Uint32s:
    """Return the code points of the normalised documents in one array, with a `SEPARATOR` after each document."""
    raw = to_codes("".join([text + "\0" for text in texts]))
    return _normalized(raw, np.cumsum([len(text) + 1 for text in texts], dtype=np.int64) - 1, _tables(name))


def normalized_windows(chunks: Iterable[str], name: str = NORMALIZE_NAME) -> Iterator[Uint32s]:
    """Yield the normalised code points of a text, given in chunks, window by window.

    Concatenated, the windows equal the normalised code points of the whole text. A window ends before a *firm* code
    point, because normalisation never looks past one. The window is normalised together with that code point, which
    determines what happens to the spaces and the hyphen before it. The next window begins with that code point.

    Raises:
        ValueError: a run of code points that are not firm is longer than `MOST_OPEN`, not counting code points that do
            not affect the result. This only happens with `nfkc-casefold-2`.
    """
    tables, held = _tables(name), list[Uint32s]()
    for raw in map(to_codes, chunks):
        firm = np.flatnonzero(_are_firm(raw, tables))
        if not len(firm):
            held.append(_shortened(raw, tables))
            if sum(map(len, held)) > MOST_OPEN:
                raise ValueError(
                    f"text has over {MOST_OPEN:,} spaces and combining marks in a row: expected letters between them"
                )
            continue
        cut = int(firm[-1])
        window = _normalized_alone([*held, raw[: cut + 1]], tables)
        window = window[: len(window) - len(_normalized_alone([raw[cut : cut + 1]], tables))]
        held = [raw[cut:]]
        if len(window):
            yield window
    rest = _normalized_alone(held, tables)
    if len(rest):
        yield rest


def _normalized_alone(parts: Sequence[Uint32s], tables: _Tables) -> Uint32s:
    raw = np.concatenate([*parts, _END])
    return _normalized(raw, np.array([len(raw) - 1]), tables)[:-1]


def _are_firm(raw: Uint32s, tables: _Tables) -> Bools:
    """Return which code points do not join, are not dropped, and are not spaces or hyphens that may end a line."""
    normal = tables.normal[raw]
    firm: Bools = (normal != _JOINING) & (normal != _DROPPED) & (normal != SPACE)
    if tables.is_layout_free:
        hyphen = np.flatnonzero(_are_hyphens(raw))
        before = hyphen - (hyphen > 0)
        firm[hyphen] &= (hyphen > 0) & (tables.hyphened[raw[before]] == 0)
    else:  # this normalisation keeps a space between words, so a mark after a space does not join anything
        firm[1:] |= (normal[1:] == _JOINING) & (normal[:-1] == SPACE)
    return firm


def _shortened(raw: Uint32s, tables: _Tables) -> Uint32s:
    """In a long run without firm code points, drop those that do not affect the result."""
    normal, precedes = tables.normal[raw], tables.hyphened[raw] > 0
    if not len(raw):
        return raw
    if (normal == SPACE).all():
        return raw[int(_break_lines(raw).argmax()) :][:1]
    goes = normal == _DROPPED
    if tables.is_layout_free:  # the first code point of a run may be next to a hyphen, or be a hyphen
        goes[1:] &= goes[:-1] & (precedes[1:] == precedes[:-1])
        goes[0] = False
    return _with_few_joining(raw[~goes], tables)


def _normalized(raw: Uint32s, ends: Int64s, tables: _Tables) -> Uint32s:
    """Return the normalised code points of documents that end at the positions `ends`."""
    codes = tables.normal[raw]
    if tables.is_layout_free:
        broken = _word_breaks(raw, codes, ends, tables)
        if len(broken):
            raw, codes = np.delete(raw, broken), np.delete(codes, broken)
            ends = ends - np.searchsorted(broken, ends)
    codes[ends] = SEPARATOR
    if (codes >= _CODE_POINTS).any():
        if (codes == _JOINING).any():
            codes = _compose_joining(codes, raw, tables)
        codes = _expand_many(codes[codes != _DROPPED], tables)
    return _squeeze(codes, tables)


def _word_breaks(raw: Uint32s, normal: Uint32s, ends: Int64s, tables: _Tables) -> Int64s:
    """Return the positions of hyphens and line breaks inside words, including the white space around them."""
    hyphens = normal == ord("-")
    if (normal == _DROPPED).any():
        hyphens |= raw == _SOFT_HYPHEN
    at = np.flatnonzero(hyphens)
    at = at[_are_open(normal[at + 1]) & (tables.hyphened[raw[at - 1]] > 0) & (at > 0)]
    second = np.minimum(at + 2, len(raw) - 1)
    at = at[_are_hyphens(raw[at]) & (_break_lines(raw[at + 1]) | _are_open(normal[second]))]
    if not len(at):
        return at
    is_open = _are_open(normal)
    is_open[ends] = False
    solid, breaks = np.flatnonzero(~is_open), np.flatnonzero(_break_lines(raw))
    after = solid[np.searchsorted(solid, at, side="right")]
    is_broken = np.searchsorted(breaks, after) > np.searchsorted(breaks, at)
    is_broken &= tables.hyphened[raw[after]] == 1
    is_broken[1:] &= after[1:] != after[:-1]  # the first of several hyphens before a letter covers all of them
    edges = np.zeros(len(raw), np.int8)
    edges[at[is_broken]] = 1
    edges[after[is_broken]] = -1
    return np.flatnonzero(np.cumsum(edges, dtype=np.int8))


def _are_hyphens(raw: Uint32s) -> Bools:
    """Return which code points are hyphens that may end a line inside a word."""
    hyphens: Bools = (raw == ord("-")) | (raw == _SOFT_HYPHEN) | (raw == 0x2010)
    return hyphens


def _break_lines(raw: Uint32s) -> Bools:
    """Return which code points are line breaks: U+000A to U+000D, U+0085, U+2028 and U+2029."""
    breaks: Bools = (raw - np.uint32(0xA) < 4) | (raw == 0x85) | (raw - np.uint32(0x2028) < 2)
    return breaks


def _are_open(normal: Uint32s) -> Bools:
    """Return which code points become a space or are dropped."""
    is_open: Bools = (normal == SPACE) | (normal == _DROPPED)
    return is_open


def to_codes(text: str) -> Uint32s:
    """Return a string's code points."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32, copy=False)


def to_text(codes: Uint32s) -> str:
    """Return code points as a string; they must not contain surrogates."""
    return codes.astype("<u4", copy=False).tobytes().decode("utf-32-le")


def _compose_joining(codes: Uint32s, raw: Uint32s, tables: _Tables) -> Uint32s:
    """Return `codes` with joining code points composed with the preceding ones.

    A stretch begins at the last code point that neither joins nor is dropped, and ends before the next such code point.
    All stretches are put into one string, each after a separator, so `unicodedata` is called once for all documents.
    """
    apart = np.flatnonzero((codes != _JOINING) & (codes != _DROPPED))
    behind = np.searchsorted(apart, np.flatnonzero(codes == _JOINING))
    behind = behind[np.append(True, behind[1:] != behind[:-1])]
    starts = np.where(behind, apart[behind - 1], 0)
    starts += codes[starts] == SEPARATOR
    ends = apart[behind]
    between = starts[1:] != ends[:-1]  # adjacent stretches are merged
    starts, ends = starts[np.append(True, between)], ends[np.append(between, True)]
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    at = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    kept = tables.normal[raw[at]] != _DROPPED
    stretches = np.where(tables.normal[raw[at]] == SPACE, np.uint32(SPACE), raw[at])
    inserted = np.insert(stretches, before, SEPARATOR)
    text = to_text(_with_few_joining(inserted[np.insert(kept, before, values=True)], tables))
    composed = to_codes(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))
    if tables.is_layout_free:
        composed = _without_variants(composed, tables)
    edges = np.flatnonzero(composed == SEPARATOR)
    becomes = np.diff(edges, append=len(composed)) - 1
    return np.insert(np.delete(codes, at), np.repeat(starts - before, becomes), np.delete(composed, edges))


def _with_few_joining(codes: Uint32s, tables: _Tables) -> Uint32s:
    """Keep at most `JOINING_LIMIT` code points that join the same preceding one."""
    number = np.arange(len(codes))
    before_run = np.maximum.accumulate(np.where(tables.normal[codes] == _JOINING, -1, number))
    few: Uint32s = codes[number - before_run <= JOINING_LIMIT]
    return few


def _without_variants(codes: Uint32s, tables: _Tables) -> Uint32s:
    """Unify variant spellings in stretches of NFKC text, each of which follows a separator."""
    given, codes = codes, tables.variants[codes]
    codes = _expand_many(codes[codes != _DROPPED], tables)
    nasal = np.flatnonzero((codes[:-1] == _NASAL) & (codes[1:] == _VIRAMA))
    codes[nasal] = _ANUSVARA
    codes = np.delete(codes, nasal + 1)
    for nikhahit, first_tone in _NIKHAHITS:
        while len(at := np.flatnonzero((codes[:-1] == nikhahit) & (codes[1:] - np.uint32(first_tone) < _TONES))):
            codes[at], codes[at + 1] = codes[at + 1], nikhahit
    if np.array_equal(codes, given):
        return given
    return to_codes(unicodedata.normalize("NFC", to_text(codes)))


def _expand_many(codes: Uint32s, tables: _Tables) -> Uint32s:
    """Replace each code point that normalises to several code points with its expansion."""
    at = np.flatnonzero(codes >= _MANY)
    if not len(at):
        return codes
    number = codes[at].astype(np.int64) - _MANY
    length = tables.many_start[number + 1] - tables.many_start[number]
    repeats = np.ones(len(codes), np.int64)
    repeats[at] = length
    expanded = np.repeat(codes, repeats)
    before = np.cumsum(length) - length
    step = np.arange(int(length.sum())) - np.repeat(before, length)
    start = at + before - np.arange(len(at))
    expanded[np.repeat(start, length) + step] = tables.many_codes[np.repeat(tables.many_start[number], length) + step]
    return expanded


def _squeeze(codes: Uint32s, tables: _Tables) -> Uint32s:
    """Collapse runs of spaces in `codes`; remove the runs next to a separator and those that `_are_closed` selects."""
    at = np.flatnonzero(codes == SPACE)
    if not len(at):
        return codes
    is_next = np.diff(at) == 1
    starts, lasts = at[np.append(True, ~is_next)], at[np.append(~is_next, True)]
    before, after = codes[starts - 1], codes[lasts + 1]
    goes = (before == SEPARATOR) | (after == SEPARATOR) | (starts == 0)
    closed = _are_closed(before, after, tables) & ~goes if tables.is_layout_free else np.zeros(len(starts), np.bool_)
    goes |= closed
    if not (goes.any() or is_next.any()):
        return codes
    kept = np.ones(len(codes), np.bool_)
    kept[at] = False
    kept[starts[~goes]] = True
    squeezed = codes[kept]
    begins = closed & (tables.normal[after] == _JOINING)  # a mark that followed the removed space
    if not begins.any():
        return squeezed
    joining = tables.normal[squeezed] == _JOINING
    row = np.cumsum(~joining)
    joining &= np.isin(row, row[np.cumsum(kept)[lasts[begins] + 1] - 1])
    return _compose_joining(np.where(joining, np.uint32(_JOINING), squeezed), squeezed, tables)


def _are_closed(before: Uint32s, after: Uint32s, tables: _Tables) -> Bools:
    """Return where a space is removed.

    At least one of its neighbours belongs to a script without spaces, and neither belongs to a script with spaces.
    """
    closed = np.zeros(len(before), np.bool_)
    if max(before.max(), after.max()) < _FIRST_UNSPACED:
        return closed
    left = tables.classes[before]
    at = np.flatnonzero(left != SPACED)
    left, right = left[at], tables.classes[after[at]]
    closed[at] = (right != SPACED) & ((left != NONE) | (right != NONE))
    return closed
