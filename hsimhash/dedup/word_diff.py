"""Where two texts differ, in words (Han and kana: in characters), cut to the passages that do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import accumulate
from typing import NamedTuple

SHINGLE_LENGTHS = (1, 4, 16)  # tokens compared at a time: the first that keeps the work small
EQUAL_PAIRS = 50_000  # of shingles, one of either text: more would take seconds
TOKEN_CHARS = 40  # a longer run without blanks is cut
CONTEXT_CHARS = 80  # shown of an equal stretch, on either side of a change
CHANGE_CHARS = 300  # shown of a changed stretch, on either side of what is left out
PASSAGE_CHARS = 500  # after which a passage with many changes is ended by the next change
SHOWN_CHARS = 1_500  # of a text, after which no passage begins

_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARKS = "\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"  # belong to the character before them
_SIGNS = "!-/:-@\\[-^`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u303f\uff00-\uff0f\uff1a-\uff20"
# White space goes with what follows it, at the end of the text with what it follows.
_TOKEN = re.compile(
    rf"\s*(?:[^\s{_CJK}{_SIGNS}]{{1,{TOKEN_CHARS}}}|[{_CJK}{_SIGNS}][{_MARKS}]{{0,{TOKEN_CHARS}}})(?:\s+\Z)?|\s+\Z"
)


class Stretch(NamedTuple):
    """A run of tokens that both texts share (but for white space), or that differ."""

    is_equal: bool
    left: Sequence[str]
    right: Sequence[str]


class Part(NamedTuple):
    """A stretch as it is shown: the text of either side."""

    is_equal: bool
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Passages:
    """The differing passages of two texts, each with what is around it; `hidden` changes did not fit."""

    shown: tuple[tuple[Part, ...], ...]
    hidden: int


def tokens(text: str) -> list[str]:
    """Return the words, characters and signs of a text, which joined are the text."""
    return _TOKEN.findall(text)


def stretches(left: str, right: str) -> list[Stretch]:
    """Return both texts as stretches, equal and changed ones by turns; joined they are the texts.

    A lone token that both share between two changes belongs to the change around it.
    """
    a, b = tokens(left), tokens(right)
    found: list[Stretch] = []
    i = j = 0
    for start, other, size in _matches([token.strip() for token in a], [token.strip() for token in b]):
        if start > i or other > j:
            found.append(Stretch(False, a[i:start], b[j:other]))
        i, j = start + size, other + size
        if size:
            found.append(Stretch(True, a[start:i], b[other:j]))
    return found


def _matches(a: list[str], b: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (start in a, start in b, size) of the equal stretches, in order; the last one ends both."""
    begin = _common(a, b)
    end = _common(a[begin:][::-1], b[begin:][::-1])
    if begin:
        yield 0, 0, begin
    for start, other, size in _blocks(a[begin : len(a) - end], b[begin : len(b) - end]):
        if size > 1:
            yield begin + start, begin + other, size
    yield len(a) - end, len(b) - end, end


def _blocks(a: list[str], b: list[str]) -> Iterator[tuple[int, int, int]]:
    """Yield (start in a, start in b, size) of what both have between their ends, in order, without overlap."""
    for length in SHINGLE_LENGTHS:
        shingles, others = _shingles(a, length), _shingles(b, length)
        if is_cheap := _equal_pairs(shingles, others) <= EQUAL_PAIRS:
            break
    i = j = 0
    for start, other, size in SequenceMatcher(None, shingles, others, autojunk=not is_cheap).get_matching_blocks():
        covered = max(i - start, j - other, 0)  # by the shingles of the block before
        i, j = start + size + length - 1, other + size + length - 1
        if size:
            yield start + covered, other + covered, size + length - 1 - covered


def _shingles(side: list[str], length: int) -> list[tuple[str, ...]]:
    return list(zip(*(side[start:] for start in range(length)), strict=False))


def _equal_pairs(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    counts, others = Counter(a), Counter(b)
    return sum(count * others[token] for token, count in counts.items())


def _common(a: list[str], b: list[str]) -> int:
    """Return how many tokens both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def passages(found: Sequence[Stretch]) -> Passages:
    """Cut stretches to the changes and what is around them, up to SHOWN_CHARS of a text; white space is one blank."""
    groups = list(_groups(found))
    chars = accumulate((_chars(group) for group in groups), initial=0)
    shown = [group for group, before in zip(groups, chars, strict=False) if before < SHOWN_CHARS]
    return Passages(tuple(shown), sum(not part.is_equal for group in groups[len(shown) :] for part in group))


def _groups(found: Sequence[Stretch]) -> Iterator[tuple[Part, ...]]:
    """Yield the passages: a long equal stretch ends one and begins the next."""
    group: list[Part] = []
    for part in _parts(found):
        if group and (part is None or (not part.is_equal and _chars(group) > PASSAGE_CHARS)):
            yield tuple(group)
            group = []
        if part:
            group.append(part)
    if group:
        yield tuple(group)


def _parts(found: Sequence[Stretch]) -> Iterator[Part | None]:
    """Yield what is shown of the stretches, and None where a passage ends."""
    for number, (is_equal, *sides) in enumerate(found):
        left, right = (re.sub(r"\s+", " ", "".join(side)) for side in sides)
        if not is_equal:
            yield Part(False, _shorten(left), _shorten(right))
        elif max(len(left), len(right)) <= 2 * CONTEXT_CHARS:
            yield Part(True, left, right)
        else:
            if number:
                yield Part(True, *(_head(side) for side in sides))
            yield None
            if number + 1 < len(found):
                yield Part(True, *(_tail(side) for side in sides))


def _chars(group: Sequence[Part]) -> int:
    return max(sum(len(part.left) for part in group), sum(len(part.right) for part in group))


def _shorten(changed: str) -> str:
    if len(changed) <= 2 * CHANGE_CHARS:
        return changed
    return f"{changed[:CHANGE_CHARS]} … {changed[-CHANGE_CHARS:]}"


def _head(tokens: Sequence[str]) -> str:
    return "".join(_context(tokens)) + " …"


def _tail(tokens: Sequence[str]) -> str:
    return "… " + "".join(reversed(list(_context(reversed(tokens))))).lstrip()


def _context(tokens: Iterable[str]) -> Iterator[str]:
    """Yield the first tokens, white space as one blank, as many as CONTEXT_CHARS hold."""
    chars = 0
    for token in tokens:
        token = re.sub(r"\s+", " ", token)
        chars += len(token)
        if chars > CONTEXT_CHARS:
            return
        yield token
