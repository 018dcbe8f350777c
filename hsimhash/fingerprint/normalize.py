"""Normalisation `nfkc-casefold-1`, and the class of each code point, as arrays.

1. Code points that Unicode 14.0 has not assigned, lone surrogates, controls and white space become spaces;
   default-ignorable ones (soft hyphen, zero-width, variation selectors, byte order mark) are dropped.
2. Of a row of code points that may join what stands before them, those beyond the 32nd are dropped: sorting them takes
   quadratic time (a text of 16 MiB of accents: half a day), and no language needs them.
3. NFKC, full case folding, NFKC again.
4. Runs of spaces become one; none at the ends.

The first step freezes the result: what is assigned in 14.0 normalises and folds the same in later versions, as Unicode
promises. Nearly every code point normalises by itself, so a table does it for a whole batch at once; only documents
with one that may join what stands before it (combining marks, Hangul jamo) take the way through `unicodedata`.
"""

from __future__ import annotations

import encodings.utf_32_le  # noqa: F401  # otherwise the first text imports it
import functools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint32s

NORMALIZE_NAME = "nfkc-casefold-1"
SIMPLIFIED_NAME = "simplified-1"
SEPARATOR = 0  # follows every document in an array of code points, and stands nowhere else
SPACE = 0x20
JOINING_LIMIT = 32
_A_SPACE, _LETTER, _END = (np.array([code], np.uint32) for code in (SPACE, ord("x"), SEPARATOR))

# The classes of code points in unicode.npz.
NONE, HAN, SPACED, UNSPACED, BLANK, IGNORED = range(6)

_CODE_POINTS = 0x110000
_DROPPED, _JOINING, _MANY = _CODE_POINTS, _CODE_POINTS + 1, _CODE_POINTS + 2  # in the table, beside code points


@dataclass(frozen=True, slots=True)
class _Tables:
    """unicode.npz, spread out for look-up by code point."""

    classes: Uint8s
    normal: Uint32s  # the code point it becomes, or _DROPPED, _JOINING, or _MANY + its number
    many_start: Int64s
    many_codes: Uint32s


@functools.cache
def _tables() -> _Tables:
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
    """Convert traditional Han characters to simplified ones, by OpenCC's table of characters."""
    return _simplified()[codes]


def normalize(texts: Sequence[str]) -> Uint32s:
    """Return the normalised documents' code points, concatenated, each followed by `SEPARATOR`."""
    raw = to_codes("".join([text + "\0" for text in texts]))
    return _normalized(raw, np.cumsum([len(text) + 1 for text in texts], dtype=np.int64) - 1)


def normalized_windows(chunks: Iterable[str]) -> Iterator[Uint32s]:
    """Yield the normalised code points of a text in chunks; joined, they equal those of the whole text.

    A window ends before a code point that neither joins what stands before it nor is dropped, because normalisation
    never looks across such a place.
    """
    has_begun = is_blank = False
    for part in _parts(chunks):
        begins, ends = int(part[0] == SPACE), int(part[-1] == SPACE)
        inner = part[begins : len(part) - ends]
        is_blank |= bool(begins)
        if len(inner):
            yield np.concatenate((_A_SPACE, inner)) if is_blank and has_begun else inner
            has_begun, is_blank = True, bool(ends)


def _parts(chunks: Iterable[str]) -> Iterator[Uint32s]:
    """Yield the parts of a text, normalised one by one, each with a space where it begins or ends with blanks."""
    rest, before = to_codes(""), to_codes("")
    for chunk in chain(chunks, [None]):
        raw = rest if chunk is None else np.concatenate((rest, to_codes(chunk)))
        normal = _tables().normal[raw]
        apart = np.flatnonzero((normal != _JOINING) & (normal != _DROPPED))
        cut = len(raw) if chunk is None else int(apart[-1]) if len(apart) else 0
        rest = _with_few_joining(raw[cut:])
        if cut:
            part = np.concatenate((before, raw[:cut], _LETTER, _END))  # between letters the spaces at its ends stay
            part = _normalized(part, np.array([len(part) - 1]))[len(before) : -2]
            before = _LETTER
            if len(part):
                yield part


def _normalized(raw: Uint32s, ends: Int64s) -> Uint32s:
    """Return the normalised code points of documents, each of which ends at one of `ends`."""
    tables = _tables()
    codes = tables.normal[raw]
    codes[ends] = SEPARATOR
    if (codes >= _CODE_POINTS).any():
        if (codes == _JOINING).any():
            codes = _compose_joining(codes, raw)
        codes = _expand_many(codes[codes != _DROPPED])
    return _squeeze(codes)


def to_codes(text: str) -> Uint32s:
    """Return a string's code points."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32, copy=False)


def to_text(codes: Uint32s) -> str:
    """Return code points without surrogates as a string."""
    return codes.astype("<u4", copy=False).tobytes().decode("utf-32-le")


def _compose_joining(codes: Uint32s, raw: Uint32s) -> Uint32s:
    """Return `codes` with joining code points composed with what stands before them.

    Only the stretch from the last code point apart to the next one takes part, and all stretches go through
    `unicodedata` as one string, each after a separator: no call for each document, whatever its length.
    """
    apart = np.flatnonzero((codes != _JOINING) & (codes != _DROPPED))
    behind = np.searchsorted(apart, np.flatnonzero(codes == _JOINING))
    behind = behind[np.append(True, behind[1:] != behind[:-1])]
    starts = np.where(behind, apart[behind - 1], 0)
    starts += codes[starts] == SEPARATOR
    ends = apart[behind]
    between = starts[1:] != ends[:-1]  # stretches side by side are one
    starts, ends = starts[np.append(True, between)], ends[np.append(between, True)]
    lengths = ends - starts
    before = np.cumsum(lengths) - lengths
    at = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    stretches = np.where(classify(raw[at]) == BLANK, np.uint32(SPACE), raw[at])
    text = to_text(_with_few_joining(np.insert(stretches, before, SEPARATOR)))
    composed = to_codes(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()))
    edges = np.flatnonzero(composed == SEPARATOR)
    becomes = np.diff(edges, append=len(composed)) - 1
    return np.insert(np.delete(codes, at), np.repeat(starts - before, becomes), np.delete(composed, edges))


def _with_few_joining(codes: Uint32s) -> Uint32s:
    """Return code points without ignored ones, and without those beyond `JOINING_LIMIT` that join the same one."""
    codes = codes[classify(codes) != IGNORED]
    number = np.arange(len(codes))
    before_run = np.maximum.accumulate(np.where(_tables().normal[codes] == _JOINING, -1, number))
    few: Uint32s = codes[number - before_run <= JOINING_LIMIT]
    return few


def _expand_many(codes: Uint32s) -> Uint32s:
    """Return `codes` with each code point that normalises to several replaced by them."""
    at = np.flatnonzero(codes >= _MANY)
    if not len(at):
        return codes
    tables = _tables()
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


def _squeeze(codes: Uint32s) -> Uint32s:
    """Return `codes` with one space for each run of spaces, and none beside a separator."""
    blank = codes == SPACE
    codes = codes[~(blank & np.concatenate(([False], blank[:-1])))]
    blank = codes == SPACE
    edge = codes == SEPARATOR
    beside = np.concatenate(([True], edge[:-1])) | np.concatenate((edge[1:], [False]))
    squeezed: Uint32s = codes[~(blank & beside)]
    return squeezed
