"""Shingles, compared with a plain reading of their definition."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.batch import TextBatch
from hsimhash.fingerprint.normalize import HAN, SEPARATOR, SPACED, UNSPACED, classify, normalize, to_codes, to_text
from hsimhash.fingerprint.tokens import (
    Spans,
    char_shingles,
    drop_apostrophes,
    han_runs,
    last_word_end,
    shingles,
    word_units,
)

TEXTS = st.lists(st.text(st.sampled_from("ab9é 中国，。かなก’'-\n한"), max_size=30), max_size=5)


def kind(char: str) -> int:
    return int(classify(to_codes(char))[0])


def rows(text: str, *, every_script: bool) -> list[list[str]]:
    """Return the stretches of a normalised text, each as a list of words."""
    text = re.sub("(?<=[^ ，。中国かなก’'-])['’](?=[^ ，。中国かなก’'-])", "", text)
    stretches: list[list[str]] = [[]]
    previous = ""
    for char in text:
        if kind(char) == SPACED:
            if previous and kind(previous) == SPACED:
                stretches[-1][-1] += char
            else:
                stretches[-1].append(char)
        elif every_script and kind(char) in (HAN, UNSPACED):
            stretches[-1].append(char)
        elif char != " ":
            stretches.append([])
        previous = char
    return [stretch for stretch in stretches if stretch]


def shingled(stretch: list[str], n: int, joint: str) -> list[str]:
    return [joint.join(stretch[i : i + n]) for i in range(max(1, len(stretch) - n + 1))]


def listed(spans: Spans, documents: int) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in range(documents)]
    for index, doc in enumerate(spans.doc.tolist()):
        found[doc].append(spans.text(index))
    return found


@given(TEXTS, st.integers(1, 4), st.booleans())
def test_word_shingles_are_those_of_the_definition(texts: list[str], n: int, every_script: bool) -> None:
    codes = normalize(texts)
    plain = to_text(codes).split("\0")[:-1]
    expected = [[s for row in rows(text, every_script=every_script) for s in shingled(row, n, " ")] for text in plain]
    batch = TextBatch(Profile.named("words-1"), codes, np.flatnonzero(codes == SEPARATOR))
    spans = shingles(batch.units if every_script else batch.words, n, gap=True)
    assert listed(spans, len(texts)) == expected


@given(TEXTS, st.integers(1, 4))
def test_char_shingles_are_those_of_the_definition(texts: list[str], n: int) -> None:
    codes = normalize(texts)
    plain = to_text(codes).split("\0")[:-1]
    expected = [[s for run in re.findall("[かなก]+", text) for s in shingled(list(run), n, "")] for text in plain]
    assert listed(char_shingles(codes, classify(codes), n), len(texts)) == expected


@given(TEXTS)
def test_han_runs_keep_each_run_of_han_whole(texts: list[str]) -> None:
    codes = normalize(texts)
    found = han_runs(codes, classify(codes))
    runs = [[run for run in part.split("\n") if run] for part in found.split("\0")[:-1]]
    assert runs == [re.findall("[中国]+", text) for text in to_text(codes).split("\0")[:-1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I don't know, do you", ["i dont", "dont know", "do you"]),
        ("I don’t 'quote' it", ["i dont", "quote", "it"]),
        ("one", ["one"]),
        ("图书馆 open", ["图 书", "书 馆", "馆 open"]),
        ("", []),
    ],
)
def test_known_pairs(text: str, expected: list[str]) -> None:
    codes = normalize([text])
    assert listed(shingles(word_units(*drop_apostrophes(codes, classify(codes))), 2, gap=True), 1) == [expected]


def test_a_text_may_be_cut_behind_two_apostrophes_and_not_behind_one() -> None:
    for text, end in (("it's", 0), ("a b'", 2), ("a''b", 3), ("a\u2019'b'", 3), ("'" * 9, 9)):
        codes = to_codes(text)
        assert last_word_end(codes, classify(codes)) == end, text
