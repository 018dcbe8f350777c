"""Profiles: names, JSON, fingerprints of any text, custom features."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash.errors import ProfileMismatchError, TextTooShortError
from hsimhash.fingerprint import EXACT, TOO_SHORT, VOTED, Profile, distance
from hsimhash.fingerprint.murmur3 import murmur64
from hsimhash.fingerprint.profile import BATCH_CHARACTERS, BATCH_DOCUMENTS, PROBE_TEXT, split_batch
from tests.support.effort import tries
from tests.support.oracles import plain_vote

CHINESE = (Path(__file__).parent / "data" / "segmentation.txt").read_text(encoding="utf-8")
NAMES = ("auto-1", "auto-2", "auto-2:sketch=off", "zh-1", "words-1", "jieba-topn-1", "jieba-topn-1:top=100")
NORMALIZING = NAMES[:5]
PIECES = (
    "我们在图书馆研究近似重复网页的识别。",
    "the quick brown fox jumps, and we don't. ",
    "ひらがなとカタカナ",
    "한국어 문장 ",
    "👍…① ",
    "２０１９年 ",
    "",
)
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@pytest.fixture(params=NAMES)
def profile(request: pytest.FixtureRequest) -> Profile:
    return Profile.named(request.param)


def test_a_profile_survives_json(profile: Profile) -> None:
    again = Profile.from_json(json.loads(json.dumps(profile.to_json())))
    assert again == profile
    assert hash(again) == hash(profile)
    again.verify()
    profile.verify()


def test_the_default_top_is_jiebas() -> None:
    assert Profile.named("jieba-topn-1:top=20") == Profile.named("jieba-topn-1")
    assert Profile.named("jieba-topn-1:top=7").top == 7


@pytest.mark.parametrize(
    ("name", "near"), [("", ""), ("auto", "auto-"), ("auto-4", "auto-"), ("word", "words-1"), ("jieba", "jieba-topn-1")]
)
def test_an_unknown_name_is_refused_with_the_known_ones(name: str, near: str) -> None:
    with pytest.raises(
        ValueError, match=f"did you mean {near}.*[?] available: auto-2, auto-3, auto-1, zh-1, words-1, chars-1, jieba"
    ):
        Profile.named(name)


@pytest.mark.parametrize("name", ["auto-2:sketch=on", "jieba-topn-1:top=0", "jieba-topn-1:top=x", "zh-1:top=5.5"])
def test_a_name_with_a_wrong_option_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"(sketch|top) must be a whole number (of at least 1|from 1 to 3), got"):
        Profile.named(name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 3}, "is reserved for the built-in profile"),
        ({"name": "jieba-topn-1:top=5"}, "is reserved for the built-in profile"),
        ({"name": "Mine"}, "name must begin with a-z or 0-9"),
        ({"name": "zh-1:top=5"}, "is reserved for the built-in profile"),
        ({"name": "zh-1:top"}, "invalid option 'top'"),
        ({"name": "mine:top=5"}, "name must begin with a-z or 0-9"),
        ({"name": "m", "n": 0}, "n must be a whole number from 1 to 64, got 0"),
        ({"name": "m", "n": True}, "n must be a whole number"),
        ({"name": "m", "cap": 0}, "cap must be a whole number of at least 1"),
        ({"name": "m", "seed": 2**32}, "seed must be a whole number"),
        ({"name": "m", "min_features": None}, "min_features must be a whole number"),
        ({"name": "m", "tokens": "letters"}, "tokens 'letters' is unknown; did you mean"),
        ({"name": "m", "weights": "tfidf"}, "tokens 'words' and weights 'tfidf' are incompatible"),
        ({"name": "m", "normalize": "none"}, "normalize must be"),
        ({"name": "m", "sketch": 4}, "sketch must be a whole number from 1 to 3, got 4"),
        ({"name": "m", "key": 0}, "key must be a whole number from 1 to 64"),
        (
            {"name": "m", "han": "simplified-1"},
            "han must be None, or 'simplified-1' or 'simplified-2' with tokens 'script', got 'simplified-1'",
        ),
        ({"name": "m", "hash": "md5"}, "hash 'md5' is unknown; did you mean md5-last"),
        ({"name": "m", "tokens": "jieba", "weights": "tfidf-float", "normalize": "none"}, "cap=None"),
    ],
)
def test_a_profile_that_cannot_be_is_refused_with_the_reason(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(Profile.named("words-1"), **changes)


def test_other_json_is_refused() -> None:
    good = Profile.named("auto-1").to_json()
    less = {key: value for key, value in good.items() if key != "cap"}
    new = Profile.named("auto-2").to_json()
    others = (good | {"version": 2}, new | {"version": 1}, new | {"version": 3}, new | {"key": "6"})
    for bad in (*others, good | {"extra": 1}, less, [], None, "auto-1", good | {"probe": "?"}):
        with pytest.raises(ValueError, match=r"profile|fingerprint"):
            Profile.from_json(bad)


def test_a_changed_probe_is_a_mismatch() -> None:
    altered = Profile.from_json(Profile.named("words-1").to_json() | {"probe": "0" * 16})
    with pytest.raises(
        ProfileMismatchError, match="words-1 returns 2ce20a1b2323d446 for its probe text, expected 0000"
    ):
        altered.verify()


def test_a_profile_of_ones_own_has_its_own_probe() -> None:
    mine = replace(Profile.from_json(Profile.named("words-1").to_json()), name="mine-1", n=3)
    mine.verify()
    again = Profile.from_json(mine.to_json())
    again.verify()
    assert again.probe == mine.fingerprint(PROBE_TEXT) != Profile.named("words-1").fingerprint(PROBE_TEXT)


def test_another_idf_table_is_a_mismatch_at_first_use() -> None:
    other = replace(Profile.named("zh-1"), name="mine-1", idf_sha256="0" * 64)
    with pytest.raises(ProfileMismatchError, match=r"idf table with SHA-256 0{16}… is not available"):
        other.fingerprint("我们在图书馆")


@settings(max_examples=tries(30, 10))
@given(st.lists(TEXTS, max_size=8), st.randoms())
@pytest.mark.parametrize("name", NAMES)
def test_batch_and_order_change_nothing(name: str, texts: list[str], random: Any) -> None:
    profile = Profile.named(name)
    shuffled = random.sample(texts, len(texts))
    alone = {text: profile.fingerprints([text]) for text in texts}
    for batch in (texts, shuffled, tuple(texts)):
        found = profile.fingerprints(batch)
        assert found.values.tolist() == [int(alone[text].values[0]) for text in batch]
        assert found.kinds.tolist() == [int(alone[text].kinds[0]) for text in batch]


@settings(max_examples=tries(30, 10))
@given(st.lists(st.text(st.characters(codec=None), max_size=200), max_size=4))
@pytest.mark.parametrize("name", NORMALIZING)
def test_any_text_has_a_fingerprint_or_is_too_short(name: str, texts: list[str]) -> None:
    found = Profile.named(name).fingerprints(texts)
    assert found.values.dtype == np.uint64
    assert found.kinds.dtype == np.uint8
    assert all(value == 0 for value, kind in zip(found.values, found.kinds, strict=True) if kind == TOO_SHORT)


def test_more_texts_than_one_batch_keep_their_order(profile: Profile) -> None:
    texts = [f"{PIECES[0]}{PIECES[1]}{chr(0x4E00 + i)}{i} 中国人民" for i in range(2 * BATCH_DOCUMENTS + 1)]
    picked = [0, 255, 256, 512]
    assert profile.fingerprints(texts).values[picked].tolist() == [profile.fingerprint(texts[i]) for i in picked]


@given(
    st.lists(st.sampled_from(["", "x" * 1000, "y" * (BATCH_CHARACTERS // 2), "z" * (BATCH_CHARACTERS + 1)]), max_size=9)
)
def test_batches_are_bounded_and_whole(texts: list[str]) -> None:
    batches = list(split_batch(texts))
    assert [text for batch in batches for text in batch] == texts
    assert all(len(batch) == 1 or sum(map(len, batch)) <= BATCH_CHARACTERS for batch in batches)
    assert all(len(a) + len(b) > 1 for a, b in pairwise(batches))


@pytest.mark.parametrize("name", NORMALIZING)
@pytest.mark.parametrize("text", ["", " \n\t", "，。！", "…", "👍🏽", "\u0378\u0379", "\ud800", "\u200b\ufeff"])
def test_a_text_without_a_letter_is_too_short(name: str, text: str) -> None:
    assert Profile.named(name).fingerprints([text]).kinds.tolist() == [TOO_SHORT]
    with pytest.raises(TextTooShortError, match="finds nothing to fingerprint in"):
        Profile.named(name).fingerprint(text)


@pytest.mark.parametrize("name", NORMALIZING)
@pytest.mark.parametrize("text", ["好", "ok", "7", "ก", "Ｏｋ ！"])
def test_a_text_of_few_features_matches_only_its_equals(name: str, text: str) -> None:
    found = Profile.named(name).fingerprints([text, f"  {text.upper()}\n", text + text])
    assert found.kinds.tolist() == [EXACT] * 3
    assert found.values[0] == found.values[1] != found.values[2]


def test_few_features_end_at_the_least_number() -> None:
    profile = Profile.named("words-1")
    words = " ".join(f"w{i}" for i in range(17))
    assert profile.fingerprints([words, words[: words.rindex(" ")]]).kinds.tolist() == [VOTED, EXACT]
    assert profile.fingerprint("Ｗ0 w1") == murmur64("w0 w1")


def test_the_plain_profile_fingerprints_nothing_without_a_tag() -> None:
    found = Profile.named("jieba-topn-1").fingerprints(["好", "", "the", "中国"])
    assert found.kinds.tolist() == [TOO_SHORT] * 3 + [VOTED]


def test_the_plain_profile_refuses_a_lone_surrogate() -> None:
    with pytest.raises(ValueError, match=r"lone surrogate U\+D83D"):
        Profile.named("jieba-topn-1").fingerprints(["中国", "人民\ud83d"])


def test_a_page_of_scripts_with_spaces_is_the_same_to_auto_and_words() -> None:
    text = PIECES[1] * 2 + "Быстрая коричневая лиса прыгает через собаку, 한국어 문장도 있다. مرحبا بالعالم كله هنا"
    assert Profile.named("auto-1").fingerprint(text) == Profile.named("words-1").fingerprint(text)


@pytest.mark.parametrize("guest", [" Hello World Wide Web ", " example.org ", "这是一句中文的引文"])
@pytest.mark.parametrize("page", [CHINESE, " ".join(f"word{i * i} and thing{i}" for i in range(200))])
def test_a_few_words_of_any_script_do_not_flip_a_page(page: str, guest: str) -> None:
    profile = Profile.named("auto-1")
    assert distance(profile.fingerprint(page), profile.fingerprint(page + guest)) <= 4


def test_features_are_what_votes(profile: Profile) -> None:
    text = PROBE_TEXT * 3 + "指纹 fingerprint " * 50
    features = profile.features(text)
    assert [feature.weight for feature in features] == sorted((f.weight for f in features), reverse=True)
    assert len({feature.hash for feature in features}) == len(features)
    assert all(feature.hash == murmur64(feature.text) for feature in features)
    assert profile.fingerprint(text) == plain_vote((feature.hash, feature.weight) for feature in features)


def test_no_feature_weighs_more_than_the_cap_allows() -> None:
    profile = Profile.named("zh-1")
    text = PROBE_TEXT + "指纹" * 500
    uncapped = replace(profile, name="mine-1", cap=None).features(text)
    total = sum(feature.weight for feature in uncapped)
    assert uncapped[0].weight > total // 2
    assert profile.features(text)[0].weight == total // 16


def test_own_features_of_known_answer() -> None:
    profile = Profile.named("auto-1")
    assert profile.fingerprint_features(dict.fromkeys((0xABCD, 0xBCDE, 0xCDEF), 1)) == 0xADCF
    assert profile.fingerprint_features([(5, 1.0), (2**64 - 1 - 5, 1)]) == 0
    assert profile.fingerprint_features([("a", 3)]) == murmur64("a") == profile.fingerprint_features({murmur64("a"): 1})


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), st.floats(0.001, 1e6), min_size=1), st.randoms()
)
def test_own_features_count_in_any_order_and_repeats_add_up(features: dict[str, float], random: Any) -> None:
    profile = Profile.named("auto-1")
    listed = [(name, weight) for name, weight in features.items() for _ in range(2)]
    random.shuffle(listed)
    doubled = {name: 2 * round(weight * 4096) / 4096 for name, weight in features.items()}
    assert profile.fingerprint_features(listed) == profile.fingerprint_features(doubled)


def test_own_features_use_the_profiles_seed_and_cap() -> None:
    seeded = replace(Profile.named("auto-1"), name="mine-1", seed=7)
    assert seeded.fingerprint_features({"a": 1}) == murmur64("a", 7)
    a, b, c = map(murmur64, "abc")
    free = replace(seeded, name="mine-2", seed=0, cap=None)
    assert free.fingerprint_features({"a": 5, "b": 2, "c": 2}) == a
    assert Profile.named("auto-1").fingerprint_features({"a": 5, "b": 2, "c": 2}) == a & b | b & c | c & a


def test_the_plain_profile_votes_own_features_as_jiebas_tags() -> None:
    profile = Profile.named("jieba-topn-1")
    tags = [(feature.text, feature.weight) for feature in profile.features(PROBE_TEXT)]
    assert profile.fingerprint_features(tags) == profile.fingerprint(PROBE_TEXT)


def test_an_own_feature_that_weighs_nothing_has_no_vote(profile: Profile) -> None:
    assert profile.fingerprint_features({"a": 2, "b": 0, "c": 0.0}) == profile.fingerprint_features({"a": 2})
    with pytest.raises(TextTooShortError):
        profile.fingerprint_features({"a": 0})


@pytest.mark.parametrize("weight", [-1, float("nan"), float("inf"), 1e-9])
def test_an_own_feature_without_a_fair_weight_is_refused(profile: Profile, weight: float) -> None:
    with pytest.raises(ValueError, match="of feature 'a'"):
        profile.fingerprint_features([("a", weight)])


def test_other_own_features_are_refused() -> None:
    profile = Profile.named("auto-1")
    with pytest.raises(TextTooShortError, match="nothing to fingerprint"):
        profile.fingerprint_features({})
    for number in (-1, 2**64):
        with pytest.raises(ValueError, match="from 0 to 2"):
            profile.fingerprint_features([(number, 1)])
    with pytest.raises(ValueError, match="divide"):
        profile.fingerprint_features([(1, 2.0**45)])
    with pytest.raises(TypeError):
        profile.fingerprint_features([(1.5, 1)])  # type: ignore[list-item]


def test_one_text_is_not_a_sequence_of_texts() -> None:
    with pytest.raises(TypeError, match="texts must be a list"):
        Profile.named("auto-1").fingerprints("text")
    assert Profile.named("auto-1").fingerprints([]).values.shape == (0,)


def test_a_profile_that_weighs_by_rarity_reads_no_idf() -> None:
    program = (
        "from hsimhash.fingerprint import Profile, long_texts, segment\n"
        "for text in ('我们在图书馆', '我们在图书馆里看书，' * (long_texts.LONG_CHARACTERS // 9)):\n"
        "    Profile.named('auto-3').signature(text)\n"
        "Profile.named('auto-3').verify()\n"
        "assert segment.load_idf.cache_info().currsize == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.usefixtures("signed_by_numpy")
def test_nothing_heavy_is_loaded_before_it_is_needed() -> None:
    program = (
        "import sys; from hsimhash.fingerprint import Profile, segment\n"
        "Profile.named('auto-1').fingerprints(['the quick brown fox ' * 9, 'かなและไทย' * 9])\n"
        "loaded = lambda: {name for name in sys.modules if 'jieba' in name and 'hsimhash' not in name}\n"
        "assert not loaded()\n"
        "Profile.named('auto-1').fingerprint('我们在图书馆')\n"
        "assert loaded() == {'rjieba.rjieba'}  # the package would read the dictionary once more\n"
        "import rjieba; assert rjieba.Jieba is segment.rjieba_class() and rjieba.cut('中国人民') == ['中国', '人民']\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
