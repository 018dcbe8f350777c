"""The keywords of cppjieba: the fingerprints of yanyiwu/simhash, with lists that the user provides."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.fingerprint import TOO_SHORT, Profile
from hsimhash.fingerprint.cppjieba import partially_sorted

KNOWN = json.loads((Path(__file__).parents[1] / "schema" / "vectors-peers.json").read_text(encoding="utf-8"))[
    "cppjieba"
]
FILES = {"idf": "idf.utf8", "words": "jieba.dict.utf8", "stops": "stop_words.utf8"}


@pytest.fixture
def lists(tmp_path: Path) -> str:
    """Write a small part of cppjieba's own lists to files; return how a profile names them."""
    for option, name in FILES.items():
        entries = KNOWN[option]
        if isinstance(entries, str):
            words = entries.split(" ")
            entries = [f"{word} {value}" for word, value in zip(words[::2], words[1::2], strict=True)]
        (tmp_path / name).write_text("".join(f"{line}\n" for line in entries), "utf-8")
    return ",".join(f"{option}={tmp_path / name}" for option, name in FILES.items())


@pytest.mark.parametrize("top", KNOWN["fingerprints"])
def test_the_fingerprints_are_those_of_the_library(lists: str, top: str) -> None:
    profile = Profile.named(f"cppjieba-1:{lists}{top}")
    found = profile.fingerprints(KNOWN["texts"])
    shown = [
        None if kind == TOO_SHORT else f"{value:016x}" for value, kind in zip(found.values, found.kinds, strict=True)
    ]
    assert shown == KNOWN["fingerprints"][top]
    again = Profile.from_json(json.loads(json.dumps(profile.to_json())))
    assert again == profile == pickle.loads(pickle.dumps(profile))
    again.verify()


def test_keywords_are_the_heaviest_words_and_punctuation_goes_through_the_model(lists: str) -> None:
    features = Profile.named(f"cppjieba-1:{lists},top=3").features(KNOWN["texts"][3])
    assert [feature.text for feature in features] == ["harbour", "3.14", "18.2"]


@pytest.mark.parametrize("left_out", FILES)
def test_without_its_lists_it_is_refused_naming_them(lists: str, left_out: str) -> None:
    some = ",".join(one for one in lists.split(",") if not one.startswith(left_out))
    for name in ("cppjieba-1", "cppjieba-1:top=5", f"cppjieba-1:{some}"):
        with pytest.raises(
            ValueError,
            match=r"use cppjieba-1.*:idf=idf.utf8,words=jieba.dict.utf8,stops=stop_words.utf8; find them in",
        ):
            Profile.named(name)


@given(st.lists(st.integers(0, 6), max_size=40), st.integers(1, 50))
def test_what_is_partially_sorted_are_the_greatest_in_descending_order(numbers: list[int], top: int) -> None:
    weights = list(map(float, numbers))
    places = partially_sorted(weights, top)
    assert [weights[at] for at in places] == sorted(weights, reverse=True)[:top]
    assert len(set(places)) == len(places)
