"""Where two texts differ, in words (Han and kana: in characters), cut to the passages that do.

Texts of any length are compared whole. What both have once, in one order, are anchors (as in patience diff); what lies
between two anchors is compared token by token, so the time grows with the texts and not with their square.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EQUAL_PAIRS = 50_000  # of tokens, one of either side: more would take seconds
WORK = 2_000_000  # of such pairs for two texts; what comes after that counts as changed
ANCHOR_TOKENS = (16, 4)  # of an anchor: between anchors of the first length those of the second one are looked for
EDITS = 256  # tokens that differ in what repeats itself and so has no anchors
TOKEN_CHARS = 40  # a longer run without blanks is cut
CONTEXT_CHARS = 80  # shown of an equal stretch, on either side of a change
CHANGE_CHARS = 300  # shown of a changed stretch, on either side of what is left out
PASSAGE_CHARS = 500  # after which a passage with many changes is ended by the next change
SHOWN_CHARS = 1_500  # of a text, after which no passage begins
OPENING_CHARS = 300  # shown of two texts that have the same words

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


@dataclass(frozen=True, slots=True)
class Comparison:
    """What the report shows of two texts.

    Args:
        equal_share: of the tokens of both, 0 to 1; 1 only where all are equal.
        passages: where they differ.
        opening: how the texts begin where nothing differs, else empty.
    """

    equal_share: float
    passages: Passages
    opening: str


def compare(left: str, right: str) -> Comparison:
    """Compare two texts; what is returned is bounded, however long they are."""
    found = stretches(left, right)
    equal = sum(len(one.left) + len(one.right) for one in found if one.is_equal)
    total = sum(len(one.left) + len(one.right) for one in found)
    if equal == total:
        return Comparison(1.0, Passages((), 0), _opening(left))
    return Comparison(equal / total, passages(found), "")


def tokens(text: str) -> list[str]:
    """Return the words, characters and signs of a text, which joined are the text."""
    return _TOKEN.findall(text)


def stretches(left: str, right: str) -> list[Stretch]:
    """Return both texts as stretches, equal and changed ones by turns; joined they are the texts.

    White space is no change, and a lone token that both share between two changes belongs to the change around it.
    """
    a, b = tokens(left), tokens(right)
    found: list[Stretch] = []
    i = j = 0
    for start, other, size in _lasting(_Matcher(a, b).runs(), len(a), len(b)):
        if start > i or other > j:
            found.append(Stretch(False, a[i:start], b[j:other]))
        i, j = start + size, other + size
        if size:
            found.append(Stretch(True, a[start:i], b[other:j]))
    return found


class _Stretch(NamedTuple):
    """Equal tokens: `size` of one side from `start` on, and of the other from `other` on."""

    start: int
    other: int
    size: int


def _lasting(runs: Iterable[_Stretch], length: int, other_length: int) -> Iterator[_Stretch]:
    """Yield runs, adjoining ones as one, without lone tokens but at both ends; and an empty one that ends both."""
    last = _Stretch(0, 0, 0)
    for run in (*runs, _Stretch(length, other_length, 0)):
        if run.start == last.start + last.size and run.other == last.other + last.size:
            last = last._replace(size=last.size + run.size)
            continue
        if last.size > 1 or last.start == last.other == 0:
            yield last
        last = run
    yield last


Numbers = NDArray[np.int64]


class _Numbers(dict[str, int]):
    """A number for each token, the same for those that differ in white space alone."""

    def __missing__(self, token: str) -> int:
        word = token.strip()
        self[token] = number = len(self) if word == token else self[word]
        return number


class _Matcher:
    """What two lists of tokens have in common, white space aside."""

    def __init__(self, a: Sequence[str], b: Sequence[str]) -> None:
        numbers = _Numbers()
        self._a, self._b = (np.fromiter(map(numbers.__getitem__, side), np.int64, len(side)) for side in (a, b))
        self._work_left = WORK

    def runs(self) -> Iterator[_Stretch]:
        """Yield the equal runs, in order, without overlap."""
        return self._between(slice(0, len(self._a)), slice(0, len(self._b)), ANCHOR_TOKENS)

    def _between(self, here: slice, there: slice, anchor_tokens: Sequence[int]) -> Iterator[_Stretch]:
        """Yield the equal runs of two ranges."""
        a, b = self._a[here], self._b[there]
        begin = _common(a, b)
        end = _common(a[begin:][::-1], b[begin:][::-1])
        here, there = slice(here.start + begin, here.stop - end), slice(there.start + begin, there.stop - end)
        yield _Stretch(here.start - begin, there.start - begin, begin)
        if here.start < here.stop and there.start < there.stop:
            yield from self._inner(here, there, anchor_tokens)
        yield _Stretch(here.stop, there.stop, end)

    def _inner(self, here: slice, there: slice, anchor_tokens: Sequence[int]) -> Iterator[_Stretch]:
        a, b = self._a[here], self._b[there]
        work = _equal_pairs(a, b)
        if not work:
            return
        if work <= min(EQUAL_PAIRS, self._work_left):
            self._work_left -= work
            blocks = SequenceMatcher(None, a.tolist(), b.tolist(), autojunk=False).get_matching_blocks()
            yield from (_Stretch(here.start + start, there.start + other, size) for start, other, size in blocks)
        elif anchor_tokens:
            i, j = here.start, there.start
            for start, other, size in _anchors(a, b, anchor_tokens[0]):
                start, other = start + here.start, other + there.start
                covered = max(i - start, 0)  # by the run before
                yield from self._between(slice(i, start + covered), slice(j, other + covered), anchor_tokens[1:])
                yield _Stretch(start + covered, other + covered, size - covered)
                i, j = start + size, other + size
            yield from self._between(slice(i, here.stop), slice(j, there.stop), anchor_tokens[1:])
        elif self._work_left > 0:
            self._work_left -= EQUAL_PAIRS
            yield from (_Stretch(here.start + x, there.start + y, size) for x, y, size in _few_edits(a, b))


def _common(a: Numbers, b: Numbers) -> int:
    """Return how many tokens both begin with."""
    at, step, length = 0, 64, min(len(a), len(b))
    while at < length:
        stop = min(at + step, length)
        differ = np.flatnonzero(a[at:stop] != b[at:stop])
        if len(differ):
            return at + int(differ[0])
        at, step = stop, 2 * step
    return length


def _equal_pairs(a: Numbers, b: Numbers) -> int:
    counts, others = Counter(a.tolist()), Counter(b.tolist())
    return sum(times * others[token] for token, times in counts.items())


def _anchors(a: Numbers, b: Numbers, length: int) -> list[_Stretch]:
    """Return runs made of shingles that either side has once: of those in the same order the most tokens."""
    if min(len(a), len(b)) < length:
        return []
    once, others = _once(a, length), _once(b, length)
    _, at, other_at = np.intersect1d(once[0], others[0], assume_unique=True, return_indices=True)
    start, other = once[1][at], others[1][other_at]
    order = np.argsort(start)
    start, other = start[order], other[order]
    for place in range(length):  # two shingles may share a hash
        is_equal = a[start + place] == b[other + place]
        start, other = start[is_equal], other[is_equal]
    is_new = np.ones(len(start), np.bool_)
    is_new[1:] = (np.diff(start) != 1) | (np.diff(other) != 1)
    first = np.flatnonzero(is_new)
    sizes = np.diff(first, append=len(start)) + length - 1
    found = zip(start[first].tolist(), other[first].tolist(), sizes.tolist(), strict=True)
    return _ascending([_Stretch(*run) for run in found])


def _once(side: Numbers, length: int) -> tuple[NDArray[np.uint64], Numbers]:
    """Return the hashes of the shingles that a side has once, and where these begin."""
    mixed = side.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    hashes = np.zeros(len(side) - length + 1, np.uint64)
    for place in range(length):
        hashes = hashes * np.uint64(0xBF58476D1CE4E5B9) + mixed[place : place + len(hashes)]
    values, first, times = np.unique(hashes, return_index=True, return_counts=True)
    return values[times == 1], first[times == 1]


def _ascending(runs: Sequence[_Stretch]) -> list[_Stretch]:
    """Return those runs, ascending on both sides, that have the most tokens; `runs` ascend on one."""
    ends, weights, numbers = [-1], [0], [-1]  # the best chains: the later they end, the more they have
    before = []
    for number, run in enumerate(runs):
        chain = bisect_left(ends, run.other) - 1
        before.append(numbers[chain])
        end, weight = run.other + run.size - 1, weights[chain] + run.size
        at = bisect_right(ends, end)
        if weights[at - 1] >= weight:
            continue
        stop = next((place for place in range(at, len(ends)) if weights[place] > weight), len(ends))
        ends[at:stop], weights[at:stop], numbers[at:stop] = [end], [weight], [number]
    found, number = [], numbers[-1]
    while number >= 0:
        found.append(runs[number])
        number = before[number]
    return found[::-1]


def _few_edits(a: Numbers, b: Numbers) -> list[_Stretch]:
    """Return the equal runs of sides that differ in at most EDITS tokens; none for others.

    Source: Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1986.
    """
    reached = {1: 0}  # on each diagonal (a's place - b's), the farthest place in a
    history = []
    for edits in range(EDITS + 1):
        history.append(reached.copy())
        for diagonal in range(-edits, edits + 1, 2):
            x, _ = _step(reached, diagonal, edits)
            x += _common(a[x:], b[x - diagonal :])
            reached[diagonal] = x
            if x >= len(a) and x - diagonal >= len(b):
                return _traced(history, diagonal, x)
    return []


def _step(reached: Mapping[int, int], diagonal: int, edits: int) -> tuple[int, int]:
    """Return where one more edit, a token of b inserted or one of a deleted, comes to, and from which diagonal."""
    if diagonal == -edits or (diagonal != edits and reached[diagonal - 1] < reached[diagonal + 1]):
        return reached[diagonal + 1], diagonal + 1
    return reached[diagonal - 1] + 1, diagonal - 1


def _traced(history: Sequence[Mapping[int, int]], diagonal: int, x: int) -> list[_Stretch]:
    """Return the equal runs on the way that ends at `x`."""
    found = []
    for edits in range(len(history) - 1, -1, -1):
        start, before = _step(history[edits], diagonal, edits)
        found.append(_Stretch(start, start - diagonal, x - start))
        diagonal, x = before, history[edits][before]
    return found[::-1]


def passages(found: Sequence[Stretch]) -> Passages:
    """Cut stretches to the changes and what is around them, up to SHOWN_CHARS of a text, line breaks kept."""
    shown, chars = [], 0
    for group in _groups(found):  # no further than is shown: long texts have 100,000 changes
        if chars >= SHOWN_CHARS:
            break
        shown.append(group)
        chars += _chars(group)
    changes = sum(not part.is_equal for group in shown for part in group)
    return Passages(tuple(shown), sum(not one.is_equal for one in found) - changes)


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
        if not is_equal:
            yield Part(False, *map(_shorten, sides))
        elif all(map(_is_short, sides)):
            yield Part(True, *(_plain("".join(side)) for side in sides))
        else:
            if number:
                yield Part(True, *(_head(side) for side in sides))
            yield None
            if number + 1 < len(found):
                yield Part(True, *(_tail(side) for side in sides))


def _is_short(side: Sequence[str]) -> bool:
    return len(side) <= 2 * CONTEXT_CHARS and len(_plain("".join(side))) <= 2 * CONTEXT_CHARS


def _chars(group: Sequence[Part]) -> int:
    return max(sum(len(part.left) for part in group), sum(len(part.right) for part in group))


def _shorten(tokens: Sequence[str]) -> str:
    if len(tokens) > 2 * CHANGE_CHARS + 1:  # each is shown as a character or more: what is between is left out anyway
        tokens = [*tokens[: CHANGE_CHARS + 1], *tokens[-CHANGE_CHARS:]]
    changed = _plain("".join(tokens))
    if len(changed) <= 2 * CHANGE_CHARS:
        return changed
    return f"{changed[:CHANGE_CHARS]} … {changed[-CHANGE_CHARS:]}"


def _head(tokens: Sequence[str]) -> str:
    return "".join(_context(tokens)) + " …"


def _tail(tokens: Sequence[str]) -> str:
    return "… " + "".join(reversed(list(_context(reversed(tokens))))).lstrip()


def _plain(text: str) -> str:
    """Return text with its line breaks, at most one empty line together, and otherwise one blank for white space."""
    return re.sub(r"\s+", lambda blanks: "\n" * min(2, blanks[0].count("\n")) or " ", text)


def _opening(text: str) -> str:
    shown = _plain(text[:OPENING_CHARS]).strip()
    return shown + (" …" if len(text) > OPENING_CHARS else "")


def _context(tokens: Iterable[str]) -> Iterator[str]:
    """Yield the first tokens, as many as CONTEXT_CHARS hold."""
    chars = 0
    for token in tokens:
        token = _plain(token)
        chars += len(token)
        if chars > CONTEXT_CHARS:
            return
        yield token
