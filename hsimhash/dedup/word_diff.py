"""Show where two texts or two ids differ: by words, or by characters for Han and kana.

Texts are compared in full, with the fewest changed tokens. Texts that are both very long and very different are not
compared, because that would take minutes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rapidfuzz.distance import Opcodes

WORK = 4_000_000_000  # maximum product of tokens and edits for a comparison, which takes about three seconds
EDITS = 64  # initial guess of the number of edits if the product might exceed WORK
TOKEN_CHARS = 40  # maximum length of a token; longer runs without blanks are split
CONTEXT_CHARS = 80  # characters of an equal stretch to show on either side of a change
CHANGE_CHARS = 300  # characters to show at either end of a long changed stretch
PASSAGE_CHARS = 500  # a passage longer than this ends before the next change
SHOWN_CHARS = 1_500  # characters of a text after which no more passages are shown
OPENING_CHARS = 300  # characters to show of two texts with the same words

LEAST_COMMON = 0.4  # minimum share of common characters in two ids for which differences are marked
EQUAL_CHARS = 60  # characters to show of a part that both ids share
CHANGED_CHARS = 120  # characters to show of a part that differs
_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_MARKS = "\u0300-\u036f\u3099\u309a\ufe00-\ufe0f\U000e0100-\U000e01ef"  # belong to the character before them
_SIGNS = "!-/:-@\\[-^`{-~\u00a1-\u00bf\u2010-\u2027\u2030-\u205e\u3001-\u303f\uff00-\uff0f\uff1a-\uff20"
# White space belongs to the token after it or, at the end of the text, to the token before it.
_TOKEN = re.compile(
    rf"\s*(?:[^\s{_CJK}{_SIGNS}]{{1,{TOKEN_CHARS}}}|[{_CJK}{_SIGNS}][{_MARKS}]{{0,{TOKEN_CHARS}}})(?:\s+\Z)?|\s+\Z"
)


_PART = re.compile(r"[^\W_]+|[\W_]")


class Stretch(NamedTuple):
    """A run of tokens that are equal in both texts (ignoring white space) or that differ."""

    is_equal: bool
    left: Sequence[str]
    right: Sequence[str]


class Part(NamedTuple):
    """A stretch as it is shown: the text on each side."""

    is_equal: bool
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class Passages:
    """The differing passages of two texts, with context; `hidden` is the number of changes that did not fit."""

    shown: tuple[tuple[Part, ...], ...]
    hidden: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two texts, as the report shows it."""

    equal_share: float  # share of equal tokens in both texts, 0 to 1; 1 only if all are equal
    passages: Passages  # where the texts differ
    opening: str  # beginning of the texts if they do not differ, else empty


def compare(left: str, right: str, *, work: int = WORK) -> Comparison | None:
    """Compare two texts; the result has a bounded size. Returns None if they are too long and too different."""
    found = stretches(left, right, work=work)
    if found is None:
        return None
    equal = sum(len(one.left) + len(one.right) for one in found if one.is_equal)
    total = sum(len(one.left) + len(one.right) for one in found)
    if equal == total:
        return Comparison(1.0, Passages((), 0), opening(left))
    return Comparison(equal / total, passages(found), "")


def tokens(text: str) -> list[str]:
    """Split a text into words, characters and signs; joining them yields the text again."""
    return _TOKEN.findall(text)


def stretches(left: str, right: str, *, work: int = WORK) -> list[Stretch] | None:
    """Split both texts into alternating equal and changed stretches; return None as `compare` does.

    Differences in white space and case are ignored. A single equal token between two changes becomes part of the
    change.
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
    """Maps tokens to numbers, with the same number for tokens that differ only in white space or case."""

    def __missing__(self, token: str) -> int:
        word = token.strip().casefold()
        self[token] = number = len(self) if word == token else self[word]
        return number


def _edits(a: Sequence[str], b: Sequence[str], work: int) -> Opcodes | None:
    from rapidfuzz.distance import Levenshtein  # imported here, as in `id_parts`: a job without pairs does not need it

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
    """Reduce stretches to the changes with their context, up to SHOWN_CHARS of a text; line breaks are kept."""
    shown, chars = [], 0
    for group in _groups(found):  # stop early, because long texts may have 100,000 changes
        if chars >= SHOWN_CHARS:
            break
        shown.append(group)
        chars += _chars(group)
    changes = sum(not part.is_equal for group in shown for part in group)
    return Passages(tuple(shown), sum(not one.is_equal for one in found) - changes)


def _groups(found: Sequence[Stretch]) -> Iterator[tuple[Part, ...]]:
    """Yield the passages; a long equal stretch ends one passage and begins the next."""
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
    """Yield the parts to show, and None where a passage ends."""
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
    if len(tokens) > 2 * CHANGE_CHARS + 1:  # each token has at least one character, so the middle is never shown
        tokens = [*tokens[: CHANGE_CHARS + 1], *tokens[-CHANGE_CHARS:]]
    changed = _plain("".join(tokens))
    if len(changed) <= 2 * CHANGE_CHARS:
        return changed
    return f"{changed[:CHANGE_CHARS]} … {changed[-CHANGE_CHARS:]}"


def _plain(text: str) -> str:
    """Normalize white space: keep line breaks, with at most one empty line in a row; other runs become one space."""
    return re.sub(r"\s+", lambda blanks: "\n" * min(2, blanks[0].count("\n")) or " ", text)


def opening(text: str) -> str:
    """Return the beginning of a text."""
    shown = _plain(text[:OPENING_CHARS]).strip()
    return shown + (" …" if len(text) > OPENING_CHARS else "")


def _context(tokens: Sequence[str], step: int) -> str:
    """Return as many of the first tokens (`step` 1) or the last tokens (`step` -1) as fit into CONTEXT_CHARS."""
    near = [_plain(token) for token in tokens[::step][:CONTEXT_CHARS]]
    count = bisect_right(list(accumulate(map(len, near))), CONTEXT_CHARS)
    return "".join(near[:count][::step])


class IdPart(NamedTuple):
    """A part of an id."""

    text: str
    is_changed: bool


def id_parts(doc_id: str, other: str) -> list[IdPart]:
    """Split `doc_id` into the parts that `other` shares and the parts that it does not.

    Joining the parts yields the id. An id that equals `other`, or has little in common with it, is one unchanged part.
    """
    if doc_id == other:
        return [IdPart(doc_id, False)]
    from rapidfuzz.distance import Levenshtein

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
