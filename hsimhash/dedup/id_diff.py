"""Mark the parts in which two ids differ: `docs/3.10/intro` and `docs/3.11/intro`."""

from __future__ import annotations

import re
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

LEAST_COMMON = 0.4  # of two ids' characters; below it the ids have little in common, and nothing is marked
EQUAL_CHARS = 60  # shown of a part that both ids share
CHANGED_CHARS = 120  # shown of a part that differs

_PART = re.compile(r"[^\W_]+|[\W_]")


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
