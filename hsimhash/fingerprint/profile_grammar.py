"""Parse and write profiles as one word: a known profile's name, and the options that differ from that profile.

    words-1:n=3,hash=fnv-1a-64,tie=one
    auto-2:sketch=off
    chars-1:normalize=lower,cap=off,pattern=…
    auto-2:idf=pages.idf,words=terms.txt,stops=stops.txt

Options may be in any order. The name that a profile gets lists only the options that differ from the known profile, in
the order of the fields. `off` means no value. A pattern must come last, because it may contain any character. Word
lists are given as file names, which cannot contain commas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from hsimhash.errors import most_like

LISTS = ("idf", "words", "stops", "rarity")
MOST_OWN_NAME = 64  # maximum length of a user's own profile name, in characters
NO_VALUE = "off"
_PATTERN = "pattern"
_NUMBER = re.compile("-?[0-9]{1,9}")
_FIELD = re.compile(r"([A-Za-z0-9_.-]+)(?:\^([1-9][0-9]{0,2}))?")

Value = int | str | None


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the known word most similar to `word`, followed by all known words, for a message."""
    listed = list(known)
    begun = [name for name in listed if word and name.startswith(word)]
    return f"did you mean {most_like(word, begun or listed)}? available: {', '.join(listed)}"


def read_options(written: str) -> dict[str, Value]:
    """Parse `n=3,tie=one`; raise `ValueError` for an invalid or repeated option."""
    given: dict[str, Value] = {}
    options, pattern = _split(written)
    for one in options:
        option, equals, value = one.partition("=")
        if not (option and equals and value):
            raise ValueError(f"invalid option {one!r:.80}: expected name=value, separated by commas")
        if option in given:
            raise ValueError(f"{option} is given twice; remove one")
        given[option] = None if value == NO_VALUE else int(value) if _NUMBER.fullmatch(value) else value
    if pattern is not None:
        given[_PATTERN] = pattern
    return given


def _split(written: str) -> tuple[list[str], str | None]:
    """Return the options before the pattern, and the pattern."""
    rest, has_pattern, pattern = f",{written}".partition(f",{_PATTERN}=")
    return rest.split(",")[1:], pattern if has_pattern else None


def split_lists(name: str) -> tuple[str, dict[str, Path]]:
    """Split a profile's name into the name without lists, and the list files by option."""
    base, _, written = name.partition(":")
    written_options, pattern = _split(written)
    options = [one.partition("=") for one in written_options]
    lists = {option: Path(path) for option, _, path in options if option in LISTS and path}
    kept = ["".join(one) for one in options if one[0] not in lists]
    left = ",".join(kept + ([] if pattern is None else [f"{_PATTERN}={pattern}"]))
    return (f"{base}:{left}" if left else base) if lists else name, lists


def name_with_lists(name: str, hashes: Mapping[str, str]) -> str:
    """Name a profile with lists after the SHA-256 of each: `auto-2-idf-64953954`."""
    told = "".join(f"-{option}-{sha256[:8]}" for option, sha256 in hashes.items())
    return re.sub("[^a-z0-9._-]+", "-", name.lower())[: MOST_OWN_NAME - len(told)] + told


def with_option(name: str, option: str) -> str:
    """Add an option to a profile's name as the user wrote it: `auto-3:cap=8` and `rarity=FILE`."""
    return f"{name}{',' if ':' in name else ':'}{option}"


def write_options(values: Mapping[str, Value]) -> str:
    """Return options as written after a known name and a colon; empty if there are no options."""
    return ",".join(f"{option}={NO_VALUE if value is None else value}" for option, value in values.items())


def field_weights(written: str) -> dict[str, int]:
    """Parse the weights of fields by name, in order: `title^3+body` gives 3 and 1.

    Raises:
        ValueError: a name or a weight is invalid, or a name is repeated.
    """
    weights: dict[str, int] = {}
    for one in written.split("+"):
        match = _FIELD.fullmatch(one)
        if match is None:
            raise ValueError(
                f"invalid field {one!r:.80}: expected fields such as title^3+body, with names made of letters, digits, "
                "'_', '.' and '-', and weights from 1 to 999"
            )
        if match[1] in weights:
            raise ValueError(f"field {match[1]} is given twice; remove one")
        weights[match[1]] = int(match[2] or 1)
    return weights


def write_fields(weights: Mapping[str, int]) -> str:
    """Write fields and weights as in a profile: `title^3+body`."""
    return "+".join(name if weight == 1 else f"{name}^{weight}" for name, weight in weights.items())
