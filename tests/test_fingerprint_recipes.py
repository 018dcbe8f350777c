"""The grammar of profiles, the recipes of other libraries, documents with fields, and supplied features."""

from __future__ import annotations

import json
import pickle
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint import EXACT, TOO_SHORT, VOTED, Profile, distance
from hsimhash.fingerprint.murmur3 import murmur64
from hsimhash.fingerprint.named_hashes import HASHES
from hsimhash.fingerprint.pieces import clickhouse_words
from tests.support.oracles import plain_vote

VECTORS = json.loads((Path(__file__).parents[1] / "schema" / "vectors-peers.json").read_text(encoding="utf-8"))
PAGE = " ".join(
    f"the harbour {number} and its {number * number} boats, 渡口{chr(0x4E00 + number)}船;" for number in range(40)
)
OPTIONS = (
    "words-1:n=3,hash=fnv-1a-64,tie=one",
    "words-1:weights=log",
    "words-1:weights=binary,cap=off",
    "words-1:tokens=stop-words,n=4",
    "words-1:top=20",
    "chars-1:normalize=lower,hash=times33",
    "chars-1:tokens=bytes,hash=jenkins-one-at-a-time,least=3",
    "chars-1:tokens=regex,n=1,min_features=1,pattern=[a-z]{2,}",
    "zh-1:weights=log-idf,top=30",
    "zh-1:hash=jenkins-lookup3",
    "auto-2:fields=title^3+body",
    "auto-1:tie=one,key=4",
)


def need_xxhash(name: str) -> None:
    if Profile.named(name).hash == "xxh3-64":
        pytest.importorskip("xxhash")


@pytest.mark.parametrize("name", VECTORS["fingerprints"])
def test_a_peers_profile_gives_the_peers_fingerprints(name: str) -> None:
    need_xxhash(name)
    profile = Profile.named(name)
    found, expected = profile.fingerprints(VECTORS["texts"]), VECTORS["fingerprints"][name]
    voted = [f"{value:016x}" if kind == VOTED else None for value, kind in zip(found.values, found.kinds, strict=True)]
    assert voted == expected
    profile.verify()


def test_known_answers_of_1e0ng() -> None:
    profile = Profile.named("1e0ng-1")
    assert profile.fingerprint("a") == 3585878926028121697
    assert profile.fingerprint("How are you? I AM fine. Thanks. And you?") == 13831624873712969754
    assert profile.fingerprint("你好　世界！　　呼噜。") == profile.fingerprint("你好，世界　呼噜")
    assert profile.fingerprint_features({"aaa": 2, "bbb": 1}) == 7483809945577191432
    assert profile.fingerprint_features(dict.fromkeys(("aaa", "bbb"), 1)) == 57087923692560392
    assert profile.fingerprint_features({str(number): 1 for number in range(500)}) == 7984652473404407437
    assert profile.fingerprint_features({str(number): 50 * number for number in range(500)}) == 3372825719632739723


def test_known_answers_of_keywords_with_lookup3() -> None:
    words = {"蓝翔": 11.7392, "CEO": 11.7392, "升职": 10.8562, "加薪": 10.6426, "手扶拖拉机": 10.0089}
    assert Profile.named("features-1:hash=jenkins-lookup3").fingerprint_features(words) == 17831459094038722629


def test_known_distances_of_mfonda() -> None:
    first, second, third = map(
        Profile.named("mfonda-1").fingerprint, ("this is a test phrase", "this is a test phrass", "foo bar")
    )
    assert (distance(first, second), distance(first, third)) == (2, 29)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_name_with_options_is_a_profile_like_any_other(name: str) -> None:
    profile = Profile.named(name)
    assert profile.name == name
    again = Profile.from_json(json.loads(json.dumps(profile.to_json())))
    assert again == profile == pickle.loads(pickle.dumps(profile))
    again.verify()
    texts = [PAGE, "", "the", PAGE[:300], "！"]
    assert [profile.fingerprints([text]).values[0] for text in texts] == profile.fingerprints(texts).values.tolist()


@pytest.mark.parametrize("name", [*OPTIONS, "1e0ng-1", "seomoz-1", "clickhouse-ngram-1", "trafilatura-1", "java-ik-1"])
def test_what_a_profile_lists_is_what_votes(name: str) -> None:
    profile = Profile.named(name)
    features = profile.features(PAGE)
    assert len(features) >= profile.min_features
    pairs = [(feature.hash, feature.weight) for feature in features]
    if profile.tie == "zero":
        assert profile.fingerprint(PAGE) == plain_vote(pairs)
    else:
        assert (
            profile.fingerprint(PAGE) ^ plain_vote((hashed ^ 2**64 - 1, weight) for hashed, weight in pairs)
            == 2**64 - 1
        )


@pytest.mark.parametrize(
    "name", ["words-1", "chars-1", "chars-1:tie=one", "chars-1:cap=2,n=1", "chars-1:min_features=40"]
)
@settings(max_examples=40)
@given(st.lists(st.text("abc 船", max_size=60), max_size=6))
def test_counting_without_putting_together_changes_nothing(name: str, texts: list[str]) -> None:
    profile = Profile.named(name)
    listed = replace(profile, name="mine-1", key=1)  # keys need the combined features
    assert profile.fingerprints(texts).values.tolist() == listed.fingerprints(texts).values.tolist()
    assert profile.fingerprints(texts).kinds.tolist() == listed.fingerprints(texts).kinds.tolist()


def test_options_stand_in_any_order_and_those_that_change_nothing_are_left_out() -> None:
    profile = Profile.named("words-1:tie=one,n=3,hash=fnv-1a-64,cap=16")
    assert profile.name == "words-1:n=3,hash=fnv-1a-64,tie=one"
    assert Profile.named("words-1:n=2") == Profile.named("words-1")
    assert Profile.named("auto-2:sketch=off,key=off").name == "auto-2:sketch=off"
    assert Profile.named("auto-2:sketch=off,key=3").key == 3
    assert Profile.named("zh-1:fields=title^3+body^1").name == "zh-1:fields=title^3+body"
    assert Profile.named("chars-1:tokens=regex,pattern=a,n=b{2,}").pattern == "a,n=b{2,}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("word-1", "unknown profile 'word-1'; did you mean words-1[?]"),
        (
            "words-1:minfeatures=3",
            "unknown option 'minfeatures'; did you mean min_features[?] available: normalize, tokens",
        ),
        ("words-1:hash=fnv1a", "hash 'fnv1a' is unknown; did you mean fnv-1a-64[?] available: "),
        ("words-1:tie=1", "tie 1 is unknown; did you mean"),
        ("words-1:tokens=char", "tokens 'char' is unknown; did you mean chars[?] available: "),
        ("words-1:weights=counts", "are incompatible; did you mean count[?] available: "),
        ("words-1:normalize=lower", "normalize must be 'nfkc-casefold-1' or 'nfkc-casefold-2' for tokens 'words'"),
        ("words-1:n=65", "n must be a whole number from 1 to 64, got 65"),
        ("words-1:n=two", "n must be a whole number from 1 to 64, got 'two'"),
        ("words-1:n=off", "n must be a whole number from 1 to 64, got None"),
        ("words-1:n=3,n=4", "n is given twice"),
        ("words-1:n", "invalid option 'n': expected name=value"),
        ("words-1:", "invalid option ''"),
        ("words-1:hash=md5-last,seed=3", "hash md5-last does not use a seed"),
        ("words-1:pattern=a", "tokens 'regex' requires a pattern, and vice versa"),
        ("chars-1:tokens=regex", "tokens 'regex' requires a pattern, and vice versa"),
        ("chars-1:tokens=regex,pattern=(", "invalid pattern '[(]': missing"),
        ("chars-1:tokens=regex,pattern=(a)b", "capturing groups are not supported"),
        ("chars-1:normalize=none,sketch=3", "a sketch requires normalize=nfkc-casefold-1 or nfkc-casefold-2"),
        ("auto-2:hash=md5-last", "english requires hash=murmur3"),
        ("zh-1:fields=title^3+title", "field title is given twice"),
        ("zh-1:fields=title^0", "invalid field 'title\\^0'"),
        ("zh-1:fields=title^1000", "weights from 1 to 999"),
        ("jieba-topn-1:fields=title", "tfidf-float does not support fields"),
        ("features-1:fields=a+b", "tokens 'features' requires"),
        ("features-1:tokens=words", "are incompatible; did you mean"),
    ],
)
def test_a_wrong_name_is_refused_with_the_nearest_right_one(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Profile.named(name)


def test_new_fields_are_in_a_version_of_their_own() -> None:
    assert Profile.named("words-1:hash=fnv-1a-64").to_json()["version"] == 1
    assert Profile.named("auto-1:sketch=3").to_json()["version"] == 2
    plain = Profile.named("seomoz-1").to_json()
    assert (plain["version"], plain["least"], plain["pattern"]) == (4, 4, None)


def test_a_hash_of_32_bits_is_warned_of() -> None:
    assert "crc32c has 32 bits, so the upper 32" in Profile.named("clickhouse-1").warning
    assert Profile.named("1e0ng-1").warning == ""


def test_a_lone_surrogate_is_refused_where_nothing_is_normalised() -> None:
    with pytest.raises(ValueError, match=r"lone surrogate U\+D83D: profile seomoz-1 does not replace lone surrogates"):
        Profile.named("seomoz-1").fingerprints(["harbour", "boats\ud83d"])


def test_weights_by_name() -> None:
    text = "the boat and the boat and the boat and the gull"
    weights = {}
    for name in ("count", "binary", "log"):
        features = Profile.named(f"words-1:n=1,weights={name},cap=off,word_unit=4096").features(text)
        weights[name] = {feature.text: feature.weight for feature in features}
    counts = Counter(text.split())
    assert weights["count"] == {word: 4096 * count for word, count in counts.items()}
    assert weights["binary"] == dict.fromkeys(counts, 4096)
    assert weights["log"] == {"the": 9774, "boat": 8596, "and": 8596, "gull": 4096}


def test_only_the_heaviest_vote_and_of_equal_ones_the_lower_hash() -> None:
    text = " ".join(f"w{number}" for number in range(30)) + " top top"
    features = Profile.named("words-1:n=1,top=5").features(text)
    others = sorted(murmur64(f"w{number}") for number in range(30))[:4]
    assert {feature.hash for feature in features} == {murmur64("top"), *others}


def test_stop_words_leave_out_a_menu() -> None:
    profile = Profile.named("words-1:tokens=stop-words,n=3,min_features=1")
    sentence = "He rowed over to the island before the tide was in"
    menu = "Home News Sport Weather Shop Jobs Travel"
    assert profile.fingerprint(sentence) == profile.fingerprint(f"{sentence}. {menu}")
    assert profile.fingerprints([menu]).kinds.tolist() == [EXACT]
    assert "的 老 人" in [feature.text for feature in profile.features("撑船的老人")]


def test_bytes_are_listed_even_where_they_cut_a_character() -> None:
    assert {feature.text for feature in Profile.named("clickhouse-ngram-1:n=2").features("é!")} == {"é", r"\xa9!"}


def test_fields_weigh_as_the_profile_says() -> None:
    profile = Profile.named("words-1:n=1,cap=off,fields=title^3+body")
    document = profile.document({"title": "harbour tide", "body": "the tide and the boats"})
    weights = {feature.text: feature.weight for feature in profile.features(document)}
    unit = profile.word_unit
    assert weights == {"harbour": 3 * unit, "tide": 4 * unit, "the": 2 * unit, "and": unit, "boats": unit}


@pytest.mark.parametrize("base", ["auto-2", "zh-1", "chars-1", "1e0ng-1"])
def test_a_document_of_one_field_of_weight_1_has_the_fingerprint_of_its_text(base: str) -> None:
    profile, plain = Profile.named(f"{base}:fields=title^5+body"), Profile.named(base)
    document = profile.document({"body": PAGE})
    assert profile.fingerprint(document) == plain.fingerprint(PAGE)
    assert profile.fingerprint(PAGE) == plain.fingerprint(PAGE)
    titled = profile.document({"title": "夜莺音乐节时间表 Nightingale festival timetable", "body": PAGE})
    assert profile.fingerprint(titled) != plain.fingerprint(PAGE)


def test_a_documents_sketch_and_exact_hash_are_of_all_its_fields() -> None:
    profile, plain = Profile.named("auto-2:fields=title^5+body"), Profile.named("auto-2")
    assert (
        profile.signature(profile.document({"title": "Tides", "body": PAGE})).sketch
        == plain.signature(f"Tides {PAGE}").sketch
    )
    few = profile.document({"title": "Tides", "body": "of July"})
    assert profile.fingerprint(few) == plain.fingerprint("Tides of July")
    assert profile.fingerprints([profile.document({}), few]).kinds.tolist() == [TOO_SHORT, EXACT]


def test_a_field_that_the_profile_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="does not have a field 'headline'; available: title, body"):
        Profile.named("auto-2:fields=title^5+body").document({"headline": "x"})
    with pytest.raises(ValueError, match="available: none"):
        Profile.named("auto-2").document({"body": "x"})


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), st.floats(0.001, 1e6), min_size=1))
def test_features_as_json_have_the_fingerprint_of_the_same_features(features: dict[str, float]) -> None:
    profile = Profile.named("features-1")
    expected = profile.fingerprint_features(features)
    assert profile.fingerprint(json.dumps(features)) == expected
    assert profile.fingerprint(json.dumps([[name, weight] for name, weight in features.items()])) == expected


def test_features_as_json_may_be_names_and_hashes() -> None:
    profile = Profile.named("features-1")
    assert profile.fingerprint('["cat", "dog", "cat"]') == profile.fingerprint_features({"cat": 2, "dog": 1})
    assert profile.fingerprint("[[12345, 2.5]]") == 12345
    assert profile.fingerprints(["{}", "[]", '{"a": 0}', '["a"]']).kinds.tolist() == [TOO_SHORT] * 3 + [VOTED]
    assert [one.text for one in profile.features('{"cat": 1, "dog": 2, "7": 0}')] == ["dog", "cat"]


@pytest.mark.parametrize(
    "text", ["cat", "7", '"cat"', "[true]", "[[1, 2, 3]]", '{"a": "b"}', '{"a": -1}', "[-1]", "[null]"]
)
def test_other_json_is_no_features(text: str) -> None:
    with pytest.raises(ValueError, match="feature"):
        Profile.named("features-1").fingerprint(text)


@given(st.lists(st.text("ab1é中-_ \n\0", max_size=40), max_size=5), st.integers(1, 3), st.integers(1, 3))
def test_clickhouses_words_are_runs_of_bytes_of_letters_and_digits(texts: list[str], n: int, least: int) -> None:
    expected = []
    for doc, text in enumerate(texts):
        words = re.findall(rb"[0-9A-Za-z\x80-\xff]{4,}", text.encode())
        rows = [words[at : at + n] for at in range(max(len(words) - n + 1, 1))]
        expected += [(doc, b"".join(row)) for row in rows if len(words) >= least]
    spans = clickhouse_words(texts, n, least)
    places = zip(spans.doc.tolist(), spans.starts.tolist(), spans.ends.tolist(), strict=True)
    assert [(doc, spans.buffer[start:end]) for doc, start, end in places] == expected


@pytest.mark.parametrize("name", ["fnv-1-64", "md5-last", "crc32c"])
def test_too_few_features_take_the_profiles_own_hash(name: str) -> None:
    profile = Profile.named(f"words-1:hash={name}")
    assert profile.fingerprints(["Two boats"]).kinds.tolist() == [EXACT]
    assert profile.fingerprint("Two boats") == HASHES[name].one(b"two boats", 0)
