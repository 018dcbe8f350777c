"""Show where two texts or two ids differ, by words, or by characters for Han and kana.

Texts are compared whole, with the fewest changed tokens. Texts that are both very long and very different are not
compared, because this would take minutes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein, Opcodes

WORK = 4_000_000_000  # tokens times edits of two texts that are compared: about three seconds
EDITS = 64  # looked for first in texts that are so long
TOKEN_CHARS = 40  # a longer run without blanks is cut
CONTEXT_CHARS = 80  # shown of an equal stretch, on either side of a change
CHANGE_CHARS = 300  # shown of a changed stretch, on either side of what is left out
PASSAGE_CHARS = 500  # after which a passage with many changes is ended by the next change
SHOWN_CHARS = 1_500  # of a text, after which no passage begins
OPENING_CHARS = 300  # shown of two texts that have the same words

LEAST_COMMON = 0.4  # of two ids' characters; below it the ids have little in common, and nothing is marked
EQUAL_CHARS = 60  # shown of a part that both ids share
CHANGED_CHARS = 120  # shown of a part that differs
_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARKS = "\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"  # belong to the character before them
_SIGNS = "!-/:-@\\[-^`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u303f\uff00-\uff0f\uff1a-\uff20"
# White space goes with what follows it, at the end of the text with what it follows.
_TOKEN = re.compile(
    rf"\s*(?:[^\s{_CJK}{_SIGNS}]{{1,{TOKEN_CHARS}}}|[{_CJK}{_SIGNS}][{_MARKS}]{{0,{TOKEN_CHARS}}})(?:\s+\Z)?|\s+\Z"
)


_PART = re.compile(r"[^\W_]+|[\W_]")


class Stretch(NamedTuple):
    """A run of tokens that are equal in both texts, white space aside, or that differ."""

    is_equal: bool
    left: Sequence[str]
    right: Sequence[str]


class Part(NamedTuple):
    """A stretch as shown: the text of each side."""

    is_equal: bool
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Passages:
    """The differing passages of two texts with their surroundings; `hidden` changes did not fit."""

    shown: tuple[tuple[Part, ...], ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two texts, as the report shows it."""

    equal_share: float  # of the tokens of both, 0 to 1; 1 only where all are equal
    passages: Passages  # where they differ
    opening: str  # how the texts begin where nothing differs, else empty


def compare(left: str, right: str, *, work: int = WORK) -> Comparison | None:
    """Compare two texts; the result is bounded, however long they are. None if they are too long and too different."""
    found = stretches(left, right, work=work)
    if found is None:
        return None
    equal = sum(len(one.left) + len(one.right) for one in found if one.is_equal)
    total = sum(len(one.left) + len(one.right) for one in found)
    if equal == total:
        return Comparison(1.0, Passages((), 0), opening(left))
    return Comparison(equal / total, passages(found), "")


def tokens(text: str) -> list[str]:
    """Split a text into words, characters and signs; joined, they are the text."""
    return _TOKEN.findall(text)


def stretches(left: str, right: str, *, work: int = WORK) -> list[Stretch] | None:
    """Return both texts as alternating equal and changed stretches; joined, they are the texts. None as in `compare`.

    White space is no change, and a lone token that both share between two changes belongs to the change around it.
    """
    a, b = tokens(left), tokens(right)
    edits = _edits(a, b, work)
    if edits is None:
        return None
    found: list[Stretch] = []
    i = j = 0
    for kind, start, stop, other, other_stop in (*edits, ("equal", len(a), len(a), len(b), len(b))):
        is_end = start == other == 0 or (stop == len(a) and other_stop == len(b))
        if kind != "equal" or (stop - start == 1 and not is_end):
            continue
        if start > i or other > j:
            found.append(Stretch(False, a[i:start], b[j:other]))
        if start < stop:
            found.append(Stretch(True, a[start:stop], b[other:other_stop]))
        i, j = stop, other_stop
    return found


class _Numbers(dict[str, int]):
    """A number for each token, the same for those that differ in white space alone."""

    def __missing__(self, token: str) -> int:
        word = token.strip()
        self[token] = number = len(self) if word == token else self[word]
        return number


def _edits(a: Sequence[str], b: Sequence[str], work: int) -> Opcodes | None:
    numbers = _Numbers()
    sides = [numbers[token] for token in a], [numbers[token] for token in b]
    edits = max(len(a), len(b))
    if len(a) * len(b) > work:
        most = work // edits
        edits = Levenshtein.distance(*sides, score_cutoff=most, score_hint=EDITS)
        if edits > most:
            return None
    return Levenshtein.opcodes(*sides, score_hint=edits)


def passages(found: Sequence[Stretch]) -> Passages:
    """Cut stretches to the changes and their surroundings, up to SHOWN_CHARS of a text; keeps line breaks."""
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
                yield Part(True, *(_context(side, 1) + " …" for side in sides))
            yield None
            if number + 1 < len(found):
                yield Part(True, *("… " + _context(side, -1).lstrip() for side in sides))


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


def _plain(text: str) -> str:
    """Return text with its line breaks, at most one empty line together, and otherwise one blank for white space."""
    return re.sub(r"\s+", lambda blanks: "\n" * min(2, blanks[0].count("\n")) or " ", text)


def opening(text: str) -> str:
    """Return the beginning of a text."""
    shown = _plain(text[:OPENING_CHARS]).strip()
    return shown + (" …" if len(text) > OPENING_CHARS else "")


def _context(tokens: Sequence[str], step: int) -> str:
    """Return the first tokens (`step` 1) or the last ones (-1), as many as CONTEXT_CHARS hold."""
    near = [_plain(token) for token in tokens[::step][:CONTEXT_CHARS]]
    count = bisect_right(list(accumulate(map(len, near))), CONTEXT_CHARS)
    return "".join(near[:count][::step])


class IdPart(NamedTuple):
    """A piece of an id."""

    text: str
    is_changed: bool


def id_parts(doc_id: str, other: str) -> list[IdPart]:
    """Split `doc_id` into the parts that `other` shares and those that it does not.

    Joined, the pieces are the id. Ids that are equal or have little in common come back as one unchanged piece.
    """
    mine, others = _PART.findall(doc_id), _PART.findall(other)
    parts: list[IdPart] = []
    common = 0
    for one in Levenshtein.opcodes(mine, others):
        kind, text = one.tag, "".join(mine[one.src_start : one.src_end])
        if kind == "equal":
            common += len(text)
        if text:
            parts.append(IdPart(text, kind != "equal"))
    is_telling = 2 * common >= LEAST_COMMON * (len(doc_id) + len(other))
    return parts if is_telling and len(parts) > 1 else [IdPart(doc_id, False)]


def shortened(part: IdPart) -> IdPart:
    """Return a part, shortened in the middle if it is long."""
    half = (CHANGED_CHARS if part.is_changed else EQUAL_CHARS) // 2
    text = part.text if len(part.text) <= 2 * half else f"{part.text[:half]} … {part.text[-half:]}"
    return IdPart(text, part.is_changed)
