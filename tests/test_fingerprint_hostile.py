"""No pattern or loop over foreign text takes more than linear time: the tests would otherwise run forever."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping

import pytest

import hsimhash.fingerprint
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.custom_features import MOST_FEATURES
from hsimhash.fingerprint.long_texts import LONG_CHARACTERS
from hsimhash.fingerprint.recipe import BUILT_IN_NAMES, Recipe
from tests.support.effort import thorough

LENGTH = 1 << 17  # minutes in quadratic time, forever in exponential time
MATCHED_WHOLE = ("bits.", "grammar.", "recipe.", "wordlists.", "segment._COMPOUND")  # others match anywhere in a text
UNITS = (
    *(
        "a",
        "1",
        "_",
        "'",
        "-",
        "+",
        ".",
        ":",
        "/",
        "\\",
        " ",
        "\t",
        "\n",
        "\0",
        "网",
        "ก",
        "é",
        "\u0301",
        "\u200b",
        "%",
    ),
    *("a.", "1.", "a:", "a://", "a'", "0x", "+ ", "a ", "a\t", "1 a ", "^1", "a^", "网a", "\r\n", "a.1%", "://", "a-"),
)


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    for found in pkgutil.iter_modules(hsimhash.fingerprint.__path__):
        module = importlib.import_module(f"hsimhash.fingerprint.{found.name}")
        for name, value in vars(module).items():
            for one in _patterns_in(value):
                yield f"{found.name}.{name}", one
    for recipe in map(Recipe.named, BUILT_IN_NAMES):
        if recipe.pattern:
            yield recipe.name, re.compile(recipe.pattern)


def _patterns_in(value: object) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _patterns_in(one)


def spans(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(text)]


def test_the_patterns_are_found() -> None:
    names = {name for name, _ in patterns()}
    assert {"segment._COMPOUND", "cppjieba._PARTS", "bits._FORMS", "wordlists._LINES", "mfonda-1"} <= names


@thorough
@pytest.mark.parametrize(("name", "pattern"), list(patterns()))
def test_a_pattern_finds_in_a_long_text_what_it_finds_in_a_short_one(name: str, pattern: re.Pattern[str]) -> None:
    for unit in UNITS:
        for end in ("!", "\u2028", "é!", ""):
            short, long = (unit * (size // len(unit)) + end for size in (1 << 12, LENGTH))
            assert (pattern.fullmatch(short) is None) == (pattern.fullmatch(long) is None)
            if name == "segment._COMPOUND_PARTS" or not name.startswith(MATCHED_WHOLE):
                assert (len(spans(pattern, short)) > 1) == (len(spans(pattern, long)) > 1)


@pytest.mark.parametrize("name", [name for name in BUILT_IN_NAMES if name not in ("cppjieba-1", "features-1")])
@pytest.mark.parametrize("unit", UNITS[::8])
def test_a_long_text_of_one_kind_gets_what_it_gets_again(name: str, unit: str) -> None:
    profile = Profile.named(name)
    short, long = (unit * (size // len(unit)) for size in (1 << 10, LONG_CHARACTERS + (1 << 10)))
    found = profile.signatures([short, long, short])
    assert found.at(0) == found.at(2)
    assert found.kinds[0] == found.kinds[2]
    assert found.at(1) == profile.signatures([long]).at(0)


@pytest.mark.parametrize(
    "features",
    [
        "[" * LENGTH,
        f"[{'9' * LENGTH}]",
        f'{{"a": 1{"0" * 4000}}}',
        f'{{"a": -1{"0" * 4000}}}',
        f"[{'1,' * MOST_FEATURES}1]",
    ],
    ids=["nested", "a long number", "a heavy feature", "a negative weight", "too many features"],
)
def test_hostile_features_are_refused(features: str) -> None:
    with pytest.raises(ValueError, match=r"features|weight|digits"):
        Profile.named("features-1").signatures([features])
