"""Long texts: signed window by window, they get the signature of the whole; texts that cost too much are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.feature_counts import Tally
from hsimhash.fingerprint.features import signature_batch
from hsimhash.fingerprint.long_texts import (
    LONG_CHARACTERS,
    MOST_RUN,
    is_cut_in_windows,
    long_shingles,
    long_signature,
)
from hsimhash.fingerprint.normalize import (
    LAYOUT_FREE_NAME,
    MOST_OPEN,
    NORMALIZE_NAMES,
    normalize,
    normalized_windows,
)
from hsimhash.fingerprint.recipe import BUILT_IN_NAMES, Recipe
from hsimhash.fingerprint.signature import EXACT
from hsimhash.fingerprint.sketch import sketches
from tests.support.effort import tries

# Each window may end inside a word, a run of Han, a combining sequence, a row of spaces or a shingle.
PIECES = (
    "我们在图书馆研究近似重复网页的识别。",
    "渡轮",
    "中",
    "網頁",
    "㐀𠀀々〇",
    "the quick brown fox jumps, and we don't. ",
    "the and of in to ",
    "a",
    "b ",
    " ",
    "\n",
    "'",
    "ſ'’",
    "ひらがなとカタカナ",
    "ภาษาไทย",
    "한국어 문장 ",
    "\u1100\u1161\u11a8",
    "e\u0301\u0327",
    "\u0301" * 40,
    "\u200b",
    "ﷺ",
    "Σς İ",
    "👍…① ",
    "２０１９年 ",
    "apt-get node.js c++ ",
    "https://a.b/c word_x://y.z/",
    "\x1f",
    "\0",
    " --a-b-- ",
    "-\n",
    "co\u00ad\r\n  operate\u2010 ",
    "ก ำ้\n\u0e38",
    "か\n\u3099",
    "हिन्दी \u093c",
    "مُحَمَّـد \u0654",
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
VARIANTS = (
    "auto-2:fields=title^3+body",
    "auto-2:top=5",
    "auto-2:normalize=nfkc-casefold-2,han=simplified-2",
    "auto-2:normalize=nfkc-casefold-2,han=simplified-2,fields=title^3+body",
    "words-1:normalize=nfkc-casefold-2,sketch=3",
    "auto-2:sketch=1,key=2,min_features=2",
    "auto-1:n=3,char_n=1",
    "words-1:n=1",
    "words-1:n=3,hash=fnv-1a-64",
    "words-1:weights=log,sketch=2",
    "words-1:tokens=stop-words,n=3",
    "words-1:hash=crc32c,fields=title+body^2",
    "zh-1:weights=log,sketch=3,key=3",
    "chars-1:tokens=bytes,n=4,sketch=3",
    "seomoz-1:least=40",
    "trafilatura-1:least=30",
    "jieba-topn-1:top=3",
    "jieba-topn-1:top=off",
    "text-dedup-1:normalize=nfkc-casefold-1,sketch=3,key=2",
)
WHOLE = {"cppjieba-1", "features-1"}  # windows of these would not be exact
NAMES = [*(name for name in BUILT_IN_NAMES if name not in WHOLE), *VARIANTS]


def test_all_other_recipes_are_cut_in_windows() -> None:
    assert {name for name in BUILT_IN_NAMES if not is_cut_in_windows(Recipe.named(name))} == WHOLE
    assert all(is_cut_in_windows(Profile.named(name)) for name in VARIANTS)
    for name in ("text-dedup-1:pattern=a.c", "trafilatura-1:n=2", "text-dedup-chars-1:least=9", "zh-1:hash=crc32c"):
        assert not is_cut_in_windows(Profile.named(name))


@pytest.mark.parametrize("name", NAMES)
@given(text=TEXTS, window=st.integers(1, 40))
@example(text="ab. -- ab " * 40, window=7)  # words of two letters are enough
@example(text="a b c " * 300, window=1)  # more windows than one range of the merge has
def test_a_text_cut_into_windows_has_the_signature_of_the_whole(name: str, text: str, window: int) -> None:
    profile = Profile.named(name)
    found = long_signature(profile, text, has_sketches=True, window=window)
    whole = signature_batch(profile, [text], has_sketches=True)
    assert list(found) == list(whole)
    assert found.kinds.tolist() == whole.kinds.tolist()
    if profile.sketch is not None:
        (shingles,) = profile.shingles([text])
        assert long_shingles(profile, text, profile.sketch, window=window).tolist() == shingles.tolist()
        assert sketches(np.zeros(len(shingles), np.int64), shingles, 1).tolist() == whole.sketches.tolist()
        assert shingles.tolist() == sorted(set(shingles.tolist()))


@pytest.mark.parametrize("name", NORMALIZE_NAMES)
@given(
    text=st.one_of(
        TEXTS,
        st.text(st.sampled_from("ab \t\u0301\u0327\u200b\u1100\u1161ﷺ\ud800\0")),
        st.text(
            st.sampled_from("aBж ,-\u00ad\u2010\n\r\u200b\u0301\u0306и中か\u3099ก\u0e38\u0e49\u0e4d\u00b4゛\u064b")
        ),
    ),
    size=st.integers(1, 9),
)
@settings(max_examples=tries(3000, 200))
def test_windows_normalise_as_the_whole(name: str, text: str, size: int) -> None:
    windows = normalized_windows((text[at : at + size] for at in range(0, len(text), size)), name)
    found = np.concatenate([np.empty(0, np.uint32), *windows])
    assert found.tolist() == normalize([text], name)[:-1].tolist()


@pytest.mark.parametrize(
    "unit", ["-", "a-", "- ", "\u00ad", " ", "\n", "\u0301", "か ", "か \u3099", "\u064b", "´", "\u200b"]
)
def test_a_long_text_of_one_kind_normalises_as_the_whole(unit: str) -> None:
    text = "a" + unit * ((1 << 20) // len(unit))
    windows = normalized_windows((text[at : at + 50_000] for at in range(0, len(text), 50_000)), LAYOUT_FREE_NAME)
    assert np.array_equal(np.concatenate(list(windows)), normalize([text], LAYOUT_FREE_NAME)[:-1])


@pytest.mark.parametrize("name", ["auto-2", "zh-1", "chars-1", "data-juicer-1"])
def test_a_long_text_among_others_gets_what_it_gets_alone(name: str) -> None:
    profile = Profile.named(name)
    long = "我们在图书馆研究网页。the quick brown fox 指纹 and " * (LONG_CHARACTERS // 30)
    texts = ["a short text of a few words", long, "另一个短的文本"]
    assert len(long) > LONG_CHARACTERS
    assert list(profile.signatures(texts)) == [
        *signature_batch(profile, texts[:1], has_sketches=True),
        *signature_batch(profile, [long], has_sketches=True),
        *signature_batch(profile, texts[2:], has_sketches=True),
    ]


def test_a_run_that_the_segmenter_must_cut_at_once_has_a_bound() -> None:
    run = "网页" * (MOST_RUN // 2)
    profile = replace(Profile.named("zh-1"), name="mine-1", min_features=1)
    assert list(profile.signatures([f"。{run}。{run}"])) == list(profile.signatures([run]))
    with pytest.raises(
        ValueError, match="run of over 1,048,576 characters that the Chinese segmenter cannot split: expected "
    ):
        profile.signatures([f"。{run}网。"])


def test_a_long_text_that_grows_much_when_it_is_normalised_is_refused() -> None:
    with pytest.raises(ValueError, match="grows from 300,000 to over 600,000 characters when it is normalised"):
        Profile.named("auto-2").signatures(["\ufdfa" * 300_000])


@pytest.mark.parametrize("unit", [" \u0301", "\u0e49\n"])
def test_a_long_row_of_spaces_and_marks_is_refused_where_marks_are_closed_up(unit: str) -> None:
    text = f"a{unit * MOST_OPEN}"
    with pytest.raises(ValueError, match="over 1,048,576 spaces and combining marks in a row"):
        Profile.named("auto-2:normalize=nfkc-casefold-2").signatures([text])
    assert Profile.named("auto-2").signatures([text]).kinds.tolist() == [EXACT]


@given(st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=9), st.integers(0, 63))
def test_a_tally_counts_what_windows_hold(windows: list[list[int]], shift: int) -> None:
    tally = Tally()
    for window in windows:
        tally.add(np.array(window, np.uint64) << np.uint64(min(shift, 61)))
    found = {
        hashed >> min(shift, 61): count
        for part in tally.merged()
        for hashed, count in zip(part.hashes.tolist(), part.counts.tolist(), strict=True)
    }
    every = [one for window in windows for one in window]
    assert found == {one: every.count(one) for one in every}
