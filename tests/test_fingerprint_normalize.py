"""Normalisation: the tables agree with its definition on any text."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint import normalize as module
from hsimhash.fingerprint.normalize import (
    BLANK,
    HAN,
    IGNORED,
    JOINING_LIMIT,
    NONE,
    SEPARATOR,
    SPACED,
    UNSPACED,
    classify,
    normalize,
    to_codes,
    to_text,
)
from tests.support.effort import tries

# Texts that make the code paths meet: all characters, and all that interact.
ODD = "\u0301\u0316\u0345\u1161\u11a8\u1100가각\u00ad\u200b\ufeff\ufe0f…㌀ﷺß\u0130ΐςΣ"
ODD += "\u00a0\u3000\t\0\ud800\u0378ｶﾞA¨ \u09be\u0e33"
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters(codec=None), st.sampled_from("aB 中文，。")), max_size=40)


def is_joining(char: str) -> bool:
    return bool(module._tables().normal[ord(char)] == module._JOINING)


def defined(text: str) -> str:
    """Normalise as the definition says, one character at a time."""
    classes = classify(to_codes(text)).tolist()
    kept = [" " if kind == BLANK else char for char, kind in zip(text, classes, strict=True) if kind != IGNORED]
    row, limited = 0, ""
    for char in kept:
        row = row + 1 if is_joining(char) else 0
        limited += char if row <= JOINING_LIMIT else ""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", limited).casefold())
    return re.sub(" +", " ", folded).strip(" ")


def normalized(texts: list[str]) -> list[str]:
    return to_text(normalize(texts)).split("\0")[:-1]


@settings(max_examples=tries(500, 100))
@given(st.lists(TEXTS, max_size=6))
@example(["a\u0301", "", " \u0301 ", "\u1100\u1161\u11a8", "x\u0345\u0301", "\ufdfa…\ufdfa", "  "])
@example(["e" + "\u0301\u0316" * 40])
@example(["\u0301a", "\u0301", "\u200b\u0301b e\u0301", "e\u0301a\u0301…\u0301", "e\u0301"])
def test_the_tables_give_what_the_definition_says(texts: list[str]) -> None:
    assert normalized(texts) == [defined(text) for text in texts]


def test_every_code_point_that_is_not_one_of_many_alike_normalises_as_defined() -> None:
    bulk = (range(0x3400, 0xA000), range(0xAC00, 0xD7A4), range(0xE000, 0xF900), range(0x17000, 0x1B000))
    codes = set(range(0x20000)).difference(*bulk) | set(range(0x2F800, 0x2FA20)) | set(range(0xE0000, 0xE0200))
    every = [chr(code) for code in sorted(codes)]
    pairs = ["a" + char + "e" for char in every]
    found = normalized(pairs)
    wrong = [text for text, got in zip(pairs, found, strict=True) if got != defined(text)]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ｈｅｌｌｏ，　Ｗｏｒｌｄ！", "hello, world!"),
        ("STRASSE straße", "strasse strasse"),
        ("a\u00adb\u200bc\ufeff", "abc"),
        ("tab\tand\r\nnew \x00 line\x85", "tab and new line"),
        ("lone \ud83d surrogate \udc00", "lone surrogate"),
        ("\u0378\U000e0fff not assigned in 14.0", "not assigned in 14.0"),
        ("ｶﾞ ﾊﾟ", "ガ パ"),
        ("①℃ﬁ", "1°cfi"),
    ],
)
def test_known_answers(text: str, expected: str) -> None:
    assert normalized([text]) == [expected]


def test_code_points_newer_than_the_tables_are_blank() -> None:
    assert classify(to_codes("\U0001faea\U00010ec2\U00031350")).tolist() == [BLANK] * 3  # from Unicode 15 and 16


def test_classes_follow_the_script() -> None:
    text = "中㐀々あカーไกꙮk٣한ﬁ\u0301!。_👍"
    expected = [HAN, *[UNSPACED] * 7, *[SPACED] * 6, *[NONE] * 4]
    assert classify(to_codes(text)).tolist() == expected


def test_sixteen_megabytes_of_accents_take_linear_time() -> None:
    codes = normalize(["a" + "\u0301\u0316" * (1 << 20)])
    assert codes.size == JOINING_LIMIT + 1
    assert codes[-1] == SEPARATOR
    assert codes.dtype == np.uint32
