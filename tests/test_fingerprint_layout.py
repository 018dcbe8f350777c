"""`nfkc-casefold-2` and `simplified-2`: how a text is laid out or spelled does not change its features."""

from __future__ import annotations

import json
import re
import textwrap
import unicodedata
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hsimhash.fingerprint
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.document_fields import join_fields
from hsimhash.fingerprint.features import find_features
from hsimhash.fingerprint.normalize import (
    BLANK,
    HAN,
    IGNORED,
    JOINING_LIMIT,
    LAYOUT_FREE_NAME,
    SPACED,
    UNSPACED,
    classify,
    normalize,
    to_codes,
    to_text,
)
from tests.support.effort import tries

PROFILE = Profile.named("auto-2:normalize=nfkc-casefold-2,han=simplified-2")
DEFAULT = Profile.named("auto-3")
BY_WORDS = Profile.named("words-1:normalize=nfkc-casefold-2")

# The same news in many languages, grouped by whether their scripts use spaces.
_NEWS = json.loads(Path(__file__).with_name("data").joinpath("ferry.json").read_text(encoding="utf-8"))
UNSPACED_TEXTS, SPACED_TEXTS = _NEWS["unspaced"], _NEWS["spaced"]
HYPHENATED = ("en", "de", "fr", "es", "ru")
LINE_ENDS = ("-\n", "-\r\n", "\u2010\u2028", "\u00ad\n   ", "- \u0085\t", "-\u200b\r", "\u00ad\u2029")


def features(text: str, profile: Profile = PROFILE) -> dict[str, float]:
    found = find_features(profile, text)
    return dict(zip(found.texts(), found.weights.tolist(), strict=True))


def assert_alike(text: str, other: str) -> None:
    assert text != other
    for profile in (DEFAULT, BY_WORDS):
        assert features(text, profile) == features(other, profile)
        assert list(profile.signatures([text])) == list(profile.signatures([other]))


def hyphenated(text: str, width: int, end: str) -> str:
    """Break lines inside words, with at least two letters before and after each break."""
    lines, rest = "", text
    while len(rest) > width:
        cuts = [one.end() for one in re.finditer(r"\w\w(?=\w\w)", rest[:width])]
        lines, rest = lines + rest[: cuts[-1]] + end, rest[cuts[-1] :]
    return lines + rest


@pytest.mark.parametrize("width", [40, 60, 72])
@pytest.mark.parametrize("name", UNSPACED_TEXTS)
def test_a_text_without_spaces_may_be_wrapped_anywhere(name: str, width: int) -> None:
    text = UNSPACED_TEXTS[name]
    lines = [text[at : at + width] for at in range(0, len(text), width)]
    for end in ("\n", "\r\n", " \n\u3000\u3000", "\u200b\n"):
        assert_alike(text, end.join(lines))


@pytest.mark.parametrize("space", [" ", "\u3000", "\u00a0", "\u200b", " \u200b ", "\n"])
@pytest.mark.parametrize("name", UNSPACED_TEXTS)
def test_a_text_without_spaces_may_have_them_between_all_characters(name: str, space: str) -> None:
    text = unicodedata.normalize("NFC", UNSPACED_TEXTS[name])
    assert_alike(text, space.join(text))
    assert_alike(text, space.join(unicodedata.normalize("NFD", text)))


@pytest.mark.parametrize("width", [40, 60, 72])
@pytest.mark.parametrize("name", SPACED_TEXTS)
def test_a_text_with_spaces_may_be_wrapped_at_them(name: str, width: int) -> None:
    text = SPACED_TEXTS[name]
    assert_alike(text, "\n".join(textwrap.wrap(text, width, break_on_hyphens=False)))
    assert_alike(text, "\r\n    ".join(textwrap.wrap(text, width, break_on_hyphens=False)))


@pytest.mark.parametrize("end", LINE_ENDS, ids=ascii)
@pytest.mark.parametrize("name", HYPHENATED)
def test_words_hyphenated_at_line_ends_are_whole(name: str, end: str) -> None:
    text = SPACED_TEXTS[name]
    for width in (40, 60, 72):
        assert_alike(text, hyphenated(text, width, end))
        assert_alike(text, hyphenated(unicodedata.normalize("NFD", text), width, end))


def test_a_compound_broken_at_its_own_hyphen_differs_in_one_word() -> None:
    text = SPACED_TEXTS["en"].replace("website", "well-known website")
    whole, broken = (
        {one.text for one in DEFAULT.features(given)} for given in (text, text.replace("well-", "well-\n"))
    )
    assert whole ^ broken == {"well", "known", "wellknown"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("pre- and post-war", "pre- and post-war"),
        ("inter-\nNational", "inter- national"),
        ("1990-\n95", "1990- 95"),
        ("a -\nb", "a - b"),
        ("a--\nb", "a-- b"),
        ("so\u00adrry", "sorry"),
        ("中-\n文 a-\n中", "中-文 a-中"),
        ("e\u0301-\nte\u0301", "ete"),
        ("中 ， 文 abc 。 「 中", "中,文 abc 。 「中"),
        ("か\n\u3099き か゛", "がきか"),
    ],
)
def test_known_layouts(text: str, expected: str) -> None:
    assert normalized([text]) == [expected]


@pytest.mark.parametrize(
    "spellings",
    [
        "مُحَمَّد محـمد محمد",
        "أحمد احمد آحمد إحمد ٱحمد",
        "مدرسة مدرسه مدرسۀ",
        "على علي علی",
        "كتاب کتاب ﻛﺘﺎﺏ",
        "رحمٰن رحمن",
        "١٢٣ ۱۲۳ 123 १२३ １２３ ๑๒๓",
        "שָׁלוֹם שלום שׁלום",
        'צה״ל צה"ל צה”ל',
        "יידיש ײדיש",
        "всё все всё́",
        "Йод йод и\u0306од",
        "Ελλάδα ΕΛΛΑΔΑ Ἑλλάδα",
        "café cafe cafe\u0301 CAFÉ",
        "Łódź lodz",
        "smørrebrød smorrebrod",
        "æon aeon",
        "İstanbul ISTANBUL istanbul ıstanbul",
        "hoà hòa hoa\u0300",
        "don't don’t don‘t don＇t donʼt",
        "ज़रूरत जरूरत ज़रूरत",
        "हिन्दी हिंदी हिँदी",
        "അവൻ അവന്\u200d",
        "সৎ সত্\u200d",
        "ឣា អា",
        "น้ำ น้ํา นํ้า",
        "ນ້ຳ ນ້ໍາ ນໍ້າ",
        "ガーデン ｶﾞｰﾃﾞﾝ",
    ],
)
def test_spellings_of_one_word_are_one(spellings: str) -> None:
    first, *others = spellings.split()
    for other in others:
        assert features(first * 4) == features(other * 4), ascii(other)


@pytest.mark.parametrize("words", ["мой мои", "کے کی", "ドーム とうむ", "ก้า กา", "kilo kilö1"])
def test_other_words_stay_apart(words: str) -> None:
    first, second = words.split()
    assert normalized([first]) != normalized([second])


def test_only_kana_make_han_characters_japanese() -> None:
    japanese, chinese = UNSPACED_TEXTS["ja"], UNSPACED_TEXTS["zh-Hant"]
    assert features(japanese).keys() >= {"が港に", "港に近", "月曜日", "二日間"}
    assert features(japanese.replace("発表", "發表")) != features(japanese.replace("発表", "发表"))
    assert features(chinese) == features(UNSPACED_TEXTS["zh-Hant"].translate(simplified()))
    few = chinese + "の" * 7
    assert len(few) > 80
    assert "渡轮" in features(few)
    assert "渡轮" not in features(chinese + "の" * 20)


def test_each_field_and_text_of_a_batch_has_its_own_script() -> None:
    japanese, chinese = UNSPACED_TEXTS["ja"], UNSPACED_TEXTS["zh"]
    profile = Profile.named("auto-2:normalize=nfkc-casefold-2,han=simplified-2,fields=title+body")
    found = features(join_fields([japanese, chinese]), profile)
    assert found.keys() == features(japanese).keys() | features(chinese).keys()
    texts = [japanese, "", chinese, japanese, "english only", chinese]
    assert list(PROFILE.signatures(texts)) == [one for text in texts for one in PROFILE.signatures([text])]


@cache
def simplified() -> dict[int, int]:
    with np.load(Path(hsimhash.fingerprint.__file__).with_name("simplified.npz")) as stored:
        return dict(zip(stored["traditional"].tolist(), stored["simplified"].tolist(), strict=True))


def normalized(texts: list[str]) -> list[str]:
    return to_text(normalize(texts, LAYOUT_FREE_NAME)).split("\0")[:-1]


ODD = "aeBZéиёй12 ,.'’“-\u2010\u00ad\n\r\u2028\t\u3000\u200b\ufeff\u0301\u0306\u0308\u0316´゛ⅣßİŉøæǼ"
ODD += "中網㐀か\u3099カｶﾞー〜ก\u0e33\u0e38\u0e48\u0e49\u0e4dกຳ\u0ec9\u0ecdဥ\u102eកល្។"
ODD += "اأآ\u0653\u0654\u064e\u0651\u06e8ـىیک\u06c0ﷺﳲﹰשׁשּׁ״נ\u0591न\u094d\u093c\u0929\u0901दक़ൻৎᄀ\u1161\u11a8각👍\ud800\0"
TEXTS = st.one_of(
    st.text(st.sampled_from(ODD), max_size=40),
    st.lists(st.sampled_from((*SPACED_TEXTS.values(), *UNSPACED_TEXTS.values(), *LINE_ENDS, " ")), max_size=4).map(
        "".join
    ),
)


@settings(max_examples=tries(3000, 300))
@given(st.lists(TEXTS, max_size=4))
@example(["क-\u094d\nन्", "\u0e4d\u0e48\u0e49", "か ゙ ゙", "a\u200b-\u200b\n\u00adb", "-\n", "", "\nก", "ก\u0e38\n"])
@example(["\u0ecd\u0ecd\u0ec9"])
@example(["a\u00ad\u06e8\u00ad\nb", "c"])
def test_normalising_twice_changes_nothing_and_no_text_changes_another(texts: list[str]) -> None:
    found = normalized(texts)
    assert normalized(found) == found
    assert [normalized([text])[0] for text in texts] == found


@settings(max_examples=tries(3000, 300))
@given(st.lists(TEXTS, max_size=4))
@example(["a\u00ad\u06e8\u00ad\nb", "a-\u06e8\u06e8-\n\u06e8b-\nc"])
@example(["ß-\r\u0640", "ab-\n\u0640cd"])
def test_the_tables_give_what_the_page_says(texts: list[str]) -> None:
    assert normalized(texts) == list(map(defined, texts))


@cache
def stored() -> dict[str, np.ndarray]:
    with np.load(Path(hsimhash.fingerprint.__file__).with_name("variants.npz")) as tables:
        return {name: tables[name] for name in tables.files}


@cache
def variants() -> dict[int, str | None]:
    """Return what each character becomes after NFKC, including those that are dropped before it."""
    tables = stored()
    found: dict[int, str | None] = dict.fromkeys((*tables["dropped"].tolist(), *tables["dropped_marks"].tolist()))
    found |= zip(tables["single_from"].tolist(), map(chr, tables["single_to"].tolist()), strict=True)
    many = "".join(map(chr, tables["many_codes"].tolist()))
    starts = tables["many_start"].tolist()
    return found | {
        code: many[a:b] for code, a, b in zip(tables["many_from"].tolist(), starts, starts[1:], strict=False)
    }


def beside_hyphens(char: str) -> int:
    tables = stored()
    return int(tables["hyphen_values"][np.searchsorted(tables["hyphen_starts"], ord(char), side="right") - 1])


def is_joining(char: str) -> bool:
    first = (unicodedata.normalize("NFKC", char), unicodedata.normalize("NFKC", char).casefold())
    return any(unicodedata.combining(one[0]) or one[0] in "\u102e\u1161\u11a8\u0e4d\u0ecd" for one in first)


def defined(text: str) -> str:
    """Normalise as schema/fingerprint.md specifies, one character at a time."""
    dropped, blank = set(stored()["dropped"].tolist()), set(stored()["blank"].tolist())
    kinds = {char: int(classify(to_codes(char))[0]) for char in text}
    ignored = "".join(char for char in kinds if kinds[char] == IGNORED or ord(char) in dropped) or "\u00ad"
    blanks = "".join(char for char in kinds if kinds[char] == BLANK or ord(char) in blank) or " "
    gap = f"[{re.escape(blanks)}{re.escape(ignored)}]*"
    letters = "|".join(re.escape(char) for char in kinds if beside_hyphens(char)) or "$^"
    small = "|".join(re.escape(char) for char in kinds if beside_hyphens(char) == 1) or "$^"
    # "+": the gap is the whole run, even though a character dropped in it may be a letter (tatweel).
    pattern = f"(?<={letters})[-\u2010\u00ad]{gap}[\\n-\\r\\x85\u2028\u2029]{gap}+(?={small})"
    text = "".join(" " if char in blanks else char for char in re.sub(pattern, "", text) if char not in ignored)
    row, limited = 0, ""
    for char in text:
        row = row + 1 if is_joining(char) else 0
        limited += char if row <= JOINING_LIMIT else ""
    while (found := close_up(re.sub(" +", " ", spelled(limited)).strip(" "))) != limited:
        limited = found
    return limited


def spelled(text: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    folded = "".join(variants().get(ord(char), char) or "" for char in folded).replace("न्", "ं")
    while (swapped := re.sub("ํ([่-๋])", "\\1ํ", re.sub("ໍ([່-໋])", "\\1ໍ", folded))) != folded:
        folded = swapped
    return unicodedata.normalize("NFC", folded)


def close_up(text: str) -> str:
    kinds = [int(kind) for kind in classify(to_codes(text))]

    def is_kept(at: int) -> bool:
        sides = {kinds[at - 1], kinds[at + 1]} if text[at] == " " else {SPACED}
        return SPACED in sides or not sides & {HAN, UNSPACED}

    return "".join(char for at, char in enumerate(text) if is_kept(at))
