"""Sketches, keys and the table of English words, each compared with a plain reading of its definition."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.errors import TextTooShortError
from hsimhash.fingerprint import EXACT, Profile, Signature, Signatures, distance, feature_weights
from hsimhash.fingerprint.feature_weights import WHOLE, english, english_parts
from hsimhash.fingerprint.murmur3 import mix, murmur64
from hsimhash.fingerprint.normalize import HAN, SPACED, classify, normalize, simplify, to_codes, to_text
from hsimhash.fingerprint.sketch import shingle_hashes, sketches
from hsimhash.fingerprint.tokens import drop_apostrophes, word_units

AUTO_2 = Profile.named("auto-2")
CHINESE = (Path(__file__).parent / "data" / "segmentation.txt").read_text(encoding="utf-8")
WORDS = [f"word{number}" for number in range(4_000)]
MASK = (1 << 64) - 1
TEXTS = st.lists(st.text(st.sampled_from("ab9é 中国漢，。かなก’'-\n한"), max_size=30), max_size=5)


def page(number: int, words: int) -> list[str]:
    return random.Random(number).choices(WORDS, k=words)


def mixed(value: int) -> int:
    return int(mix(np.array([value & MASK], np.uint64))[0])


@cache
def lenders(bit: int) -> list[int]:
    """Return the bits whose least shingle `bit` may take, in order; it takes that of the first one that has any."""
    return [bit, *sorted(set(range(64)) - {bit}, key=lambda other: mixed(bit << 6 | other))]


def plain_sketch(shingles: set[int]) -> int:
    """Return the sketch by its definition: each bit comes from its least shingle or from the first it may borrow."""
    least = [
        min((shingle & (1 << 58) - 1 for shingle in shingles if shingle >> 58 == bit), default=None)
        for bit in range(64)
    ]
    sketch = 0
    for bit in range(64):
        value = next((least[other] for other in lenders(bit) if least[other] is not None), None)
        if value is not None:
            sketch |= (mixed(value) >> bit & 1) << bit
    return max(sketch, 1) if shingles else 0


def plain_shingle(units: Sequence[int]) -> int:
    value = len(units)
    constants = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    for unit, constant in zip([*units, 0, 0][:3], constants, strict=True):
        value = ((value << 23 | value >> 41) ^ unit * constant) & MASK
    return mixed(value)


@given(st.lists(st.sets(st.integers(0, MASK), max_size=200), max_size=4), st.randoms())
def test_sketches_are_those_of_the_definition(documents: list[set[int]], chance: random.Random) -> None:
    pairs = [(doc, shingle) for doc, shingles in enumerate(documents) for shingle in [*shingles, *list(shingles)[:3]]]
    chance.shuffle(pairs)
    doc, shingles = np.array([one for one, _ in pairs], np.int64), np.array([one for _, one in pairs], np.uint64)
    assert sketches(doc, shingles, len(documents)).tolist() == list(map(plain_sketch, documents))


@given(st.lists(st.lists(st.integers(0, MASK), min_size=1, max_size=3), max_size=5))
def test_shingles_hash_their_units_in_order(rows: list[list[int]]) -> None:
    stops = np.cumsum([len(row) for row in rows], dtype=np.int64)
    units = np.array([unit for row in rows for unit in row], np.uint64)
    starts = stops - np.array([len(row) for row in rows], np.int64)
    assert shingle_hashes(units, starts, stops).tolist() == list(map(plain_shingle, rows))


@given(TEXTS)
def test_a_text_is_sketched_by_its_rows_of_three_words_or_characters(texts: list[str]) -> None:
    found = AUTO_2.signatures(texts).sketches.tolist()
    codes = simplify(normalize(texts))
    codes, classes = drop_apostrophes(codes, classify(codes))
    units = word_units(codes, classes)
    shingles: list[set[int]] = [set() for _ in texts]
    stretches: dict[int, list[int]] = {}
    for place, stretch in enumerate(units.stretch.tolist()):
        word = to_text(units.chars[units.first[place] : units.first[place + 1]])
        is_word = classify(to_codes(word[0]))[0] == SPACED
        unit = murmur64(word) if is_word else mixed(ord(word) * 0x9E3779B97F4A7C15)
        stretches.setdefault(stretch, []).append(unit)
    owner = dict(zip(units.stretch.tolist(), units.doc.tolist(), strict=True))
    for stretch, row in stretches.items():
        shingles[owner[stretch]] |= {plain_shingle(row[at : at + 3]) for at in range(max(1, len(row) - 2))}
    assert found == list(map(plain_sketch, shingles))


@pytest.mark.parametrize("changed", [0, 5, 20, 60, 200])
def test_sketches_tell_how_similar_two_texts_are(changed: int) -> None:
    differences, jaccards = [], []
    for number in range(60):
        first = page(number, 400)
        second = [*first[: 400 - changed], *page(number + 1_000, changed)]
        sets = [{tuple(words[at : at + 3]) for at in range(398)} for words in (first, second)]
        jaccards.append(len(sets[0] & sets[1]) / len(sets[0] | sets[1]))
        one, other = AUTO_2.signatures([" ".join(first), " ".join(second)]).sketches.tolist()
        differences.append(distance(one, other))
    expected = 32 * (1 - np.mean(jaccards))
    assert abs(np.mean(differences) - expected) < 1.5


def test_a_frame_around_a_page_leaves_its_key() -> None:
    body = " ".join(f"{word} {word}" for word in page(1, 120))
    framed = f"home news contact. {body}. all rights reserved, terms of use"
    one, other = AUTO_2.signatures([body, framed])
    assert one.key == other.key != 0
    assert one.fingerprint != other.fingerprint


@given(st.lists(TEXTS.map("".join), max_size=4), st.randoms())
def test_batch_and_order_change_no_signature(texts: list[str], chance: random.Random) -> None:
    alone = {text: list(AUTO_2.signatures([text])) for text in texts}
    shuffled = chance.sample(texts, len(texts))
    assert list(AUTO_2.signatures(shuffled)) == [alone[text][0] for text in shuffled]


@given(TEXTS)
def test_fingerprints_are_the_same_without_sketches(texts: list[str]) -> None:
    found, made = AUTO_2.signatures(texts), AUTO_2.fingerprints(texts)
    off = Profile.named("auto-2:sketch=off").signatures(texts)
    assert found.fingerprints.tolist() == made.values.tolist() == off.fingerprints.tolist()
    assert found.kinds.tolist() == made.kinds.tolist() == off.kinds.tolist()
    assert not off.sketches.any()
    assert not off.keys.any()


@pytest.mark.parametrize("name", ["auto-1", "zh-1", "words-1", "jieba-topn-1"])
def test_a_profile_without_sketches_gives_none(name: str) -> None:
    profile = Profile.named(name)
    assert profile.signature(CHINESE) == Signature(profile.fingerprint(CHINESE))


def test_a_profile_of_ones_own_may_have_a_sketch_and_a_key() -> None:
    mine = replace(Profile.named("zh-1"), name="mine-1", sketch=2, key=3)
    again = Profile.from_json(mine.to_json())
    assert again == mine
    assert again.signature(CHINESE) == mine.signature(CHINESE)
    assert mine.signature(CHINESE).sketch != replace(mine, sketch=3).signature(CHINESE).sketch
    assert mine.signature(CHINESE).key != replace(mine, key=4).signature(CHINESE).key


def test_a_text_of_few_features_has_a_sketch_but_no_key() -> None:
    found = AUTO_2.signatures(["ok, 好", "", "…"])
    assert found.kinds[0] == EXACT
    assert found.sketches[0] != 0
    assert found.sketches[1:].tolist() == [0, 0]
    assert found.keys.tolist() == [0, 0, 0]


def test_a_text_of_nothing_has_no_signature() -> None:
    with pytest.raises(TextTooShortError, match="auto-2 finds nothing to fingerprint in"):
        AUTO_2.signature("…")
    with pytest.raises(TypeError, match="texts must be a list or another iterable, got a single str"):
        AUTO_2.signatures("text")
    assert list(Signatures.joined([])) == []


def test_traditional_characters_count_as_simplified_ones() -> None:
    simplified, traditional = "我们在图书馆里阅读历史书籍" * 3, "我們在圖書館裡閱讀歷史書籍" * 3
    assert AUTO_2.signature(simplified) == AUTO_2.signature(traditional)
    assert Profile.named("auto-1").fingerprint(simplified) != Profile.named("auto-1").fingerprint(traditional)


def test_no_simplified_character_becomes_another() -> None:
    codes = np.arange(0x110000, dtype=np.uint32)
    changed = np.flatnonzero(simplify(codes) != codes)
    assert len(changed) == 2_853
    assert (simplify(simplify(codes)) == simplify(codes)).all()
    assert ((simplify(codes)[changed] >= 0x4E00) & (simplify(codes)[changed] <= 0x9FD5)).all()


@pytest.mark.parametrize(
    ("name", "arrays", "sha256"),
    [
        ("english", ("words", "weights"), "70fbc746013ffa34f6a9d7029fe071b9da9c91430c8a01e83c13ae2ade38c817"),
        (
            "simplified",
            ("traditional", "simplified"),
            "f210e2fe8fffab660a32ebc96bdd367350a2efcffc045d0aa6711b1035599ad8",
        ),
    ],
)
def test_the_tables_are_frozen(name: str, arrays: tuple[str, str], sha256: str) -> None:
    with np.load(Path(feature_weights.__file__).with_name(f"{name}.npz")) as stored:
        content = b"".join(stored[one].astype(stored[one].dtype.newbyteorder("<")).tobytes() for one in arrays)
    assert hashlib.sha256(content).hexdigest() == sha256


def test_simplified_characters_are_of_the_same_class_as_traditional_ones() -> None:
    codes = np.arange(0x110000, dtype=np.uint32)
    changed = codes[simplify(codes) != codes]
    assert set(classify(changed).tolist()) == set(classify(simplify(changed)).tolist()) == {HAN}


def test_rare_words_of_english_weigh_more_and_unknown_ones_the_median() -> None:
    table = english(0)
    weights, is_common = table.find(
        np.array([murmur64(word) for word in ("the", "people", "whale", "xqzzy")], np.uint64)
    )
    the, people, whale, unknown = weights.tolist()
    assert the < people < whale
    assert unknown == table.median
    assert is_common.tolist() == [True, False, False, False]
    assert table.is_common.sum() == 24
    assert (np.diff(table.hashes.astype(object)) > 0).all()


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_text_is_english_from_a_tenth_to_a_fifth_of_common_words(words: int, common: int) -> None:
    common = min(words, common)
    part = int(english_parts(np.array([words]), np.array([float(common)]))[0])
    assert part == min(max(math.floor(WHOLE * (10 * common / words - 1) + 1e-9) if words else 0, 0), WHOLE)


@pytest.mark.parametrize(
    "text",
    [
        "быстрая коричневая лиса прыгает через ленивую собаку и бежит дальше по лесу где живёт старый медведь и рыба",
        "le renard brun saute par dessus le chien paresseux et court dans la forêt où vit un vieil ours qui dort",
        "我们在图书馆里阅读历史书籍，研究人员识别重复网页，搜索引擎需要快速识别它们，用 apt-get 安装 package",
    ],
)
def test_a_text_that_is_not_english_counts_pairs_as_before(text: str) -> None:
    assert AUTO_2.fingerprint(text) == Profile.named("auto-1").fingerprint(text)


def test_a_text_that_is_half_english_counts_both() -> None:
    foreign = " ".join(f"mot{number}" for number in range(17))
    features = {one.text: one.weight for one in AUTO_2.features(f"{foreign}, the and of")}  # 3 of 20 words: 15 %
    assert {"mot1", "mot1 mot2", "the", "the and"} <= features.keys()
    assert features["mot1 mot2"] == 59_392 // 2
    assert features["mot1"] == round(english(0).median / 2)


def test_texts_of_every_share_of_english_together_get_what_each_gets_alone() -> None:
    texts = [f"{'the ' * common}{' '.join(page(common, 60))}, one" for common in range(24)]  # no, some and all English
    assert list(AUTO_2.signatures(texts)) == list(map(AUTO_2.signature, texts))


def test_an_english_page_has_words_alone() -> None:
    text = (
        "the whale is in the sea and it was not to be seen for all of the days that he had been on a ship in it with us"
    )
    assert not [one.text for one in AUTO_2.features(text) if " " in one.text]
