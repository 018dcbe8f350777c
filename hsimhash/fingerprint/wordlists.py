"""The user's lists for a profile: an idf table, words for the segmenter, stop words.

A profile identifies a list by the SHA-256 of its content, so it can never refer to a different list. This module keeps
the lists that the process has loaded, by hash. An index stores its profile's lists next to its record.

The content is UTF-8, with one line per word, sorted by word. A line of an idf table is `word idf`. A line for the
segmenter is `word` or `word frequency`, as in jieba's user dictionaries. A line of a list of stop words is `word`.
Words are normalised like the profile's texts. Lists for cppjieba are an exception: they are neither normalised nor
sorted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hsimhash.errors import ProfileMismatchError

MOST_LIST_BYTES = 64 << 20
IDF, WORDS, STOPS, RARITY_TABLE = "idf table", "list of words", "list of stop words", "rarity table"
_LINES = {
    IDF: (re.compile(r"(\S+)\s+([0-9]{1,9}(?:\.[0-9]{1,17})?)"), "a word and its idf, such as: word 7.25"),
    WORDS: (
        re.compile(r"(\S+)(?:\s+([0-9]{1,9}))?(?:\s+[a-z]+)?"),
        "a word, optionally followed by its frequency and its tag",
    ),
    STOPS: (re.compile(r"(\S+)()"), "one word"),
}

Normalize = Callable[[Sequence[str]], list[str]]

_contents: dict[str, bytes] = {}


class WordLists(NamedTuple):
    """The SHA-256 of each list that a profile uses, or None if it does not use that kind of list."""

    idf: str
    words: str | None = None
    stops: str | None = None
    rarity: str | None = None


def keep_list(content: bytes) -> str:
    """Keep a list's content in this process; return its SHA-256."""
    sha256 = hashlib.sha256(content).hexdigest()
    _contents[sha256] = content
    return sha256


def kept_lists(names: Iterable[str]) -> dict[str, bytes]:
    """Return the contents of the lists that this process has loaded."""
    return {name: _contents[name] for name in names if name in _contents}


def list_entries(kind: str, sha256: str) -> list[list[str]]:
    """Return the fields of each line of a list; see `kept_list`."""
    return [line.split(" ") for line in kept_list(kind, sha256).decode().splitlines()]


def kept_list(kind: str, sha256: str) -> bytes:
    """Return a list's content; raise `ProfileMismatchError` if this process has not loaded it."""
    content = _contents.get(sha256)
    if content is None:
        raise ProfileMismatchError(
            f"the profile's {kind} with SHA-256 {sha256[:16]}… is not available; open an index that uses it, or "
            f"recreate the profile from the list's file"
        )
    return content


def read_list(kind: str, path: Path, normalize: Normalize, *, is_exact: bool = False) -> bytes:
    """Return the contents of a list in a file. If several words normalise to the same word, the lowest idf is used.

    Args:
        kind: `IDF`, `WORDS` or `STOPS`.
        path: UTF-8 file with one line per word; empty lines are skipped.
        normalize: Normalises words in the same way as the profile.
        is_exact: Whether to keep the order of words, and to skip stop words with a blank in or around them, which never
            match a word.

    Raises:
        ValueError: the file is too large, is not UTF-8, has no words, or has an invalid line (the message names it).
    """
    if path.stat().st_size > MOST_LIST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size:,} bytes: a list has at most {MOST_LIST_BYTES:,}")
    pattern, wanted = _LINES[kind]
    try:
        lines = {number: line for number, line in enumerate(path.read_text("utf-8-sig").split("\n"), 1) if line.strip()}
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8: {error}") from error
    if is_exact and kind == STOPS:
        lines = {number: line for number, line in lines.items() if len(line.split()) == 1 and line == line.strip()}
    found = {number: pattern.fullmatch(line.strip()) for number, line in lines.items()}
    words = normalize([one[1] if one else "" for one in found.values()])
    values = dict[str, str]()
    for (number, one), word in zip(found.items(), words, strict=True):
        if one is None or not word or " " in word:
            raise ValueError(f"{path}, line {number}: {lines[number].strip()!r:.80} is not {wanted}")
        value = one[2] or ""
        values[word] = min(value, values[word], key=float) if kind == IDF and word in values else value
    if not values:
        raise ValueError(f"{path} does not contain any words: each line of the {kind} must be {wanted}")
    return list_content(values if is_exact else dict(sorted(values.items())))


def list_content(values: Mapping[str, str]) -> bytes:
    """Return the contents of a list with a value (or "") for each word."""
    return "".join(f"{word} {value}".rstrip() + "\n" for word, value in values.items()).encode()
