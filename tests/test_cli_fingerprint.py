"""`hsimhash fingerprint`."""

import json
from pathlib import Path

import pytest

from hsimhash.fingerprint import DEFAULT_PROFILE, Profile, format_fingerprint
from tests.support.command_line import lines_of, on_terminal, run
from tests.support.effort import thorough

TEXTS = [
    "The near-duplicates of a page differ in a few words; its fingerprint then differs in a few bits, seldom in more.",
    "近似重复的网页只差几个词，它们的指纹也只差几位；两个指纹的汉明距离越小，内容就越相似，反过来也大致成立。",
]


def expected(text: str, profile: str = DEFAULT_PROFILE) -> str:
    return format_fingerprint(Profile.named(profile).fingerprint(text))


def test_each_text_has_a_line_of_16_hex_digits() -> None:
    result = run("fingerprint", *TEXTS)
    assert result.exit_code == 0
    assert result.stdout.split() == [expected(text) for text in TEXTS]


def test_files_and_stdin_give_what_their_texts_give(tmp_path: Path) -> None:
    for number, text in enumerate(TEXTS):
        (tmp_path / str(number)).write_text(text, encoding="utf-8")
    result = run("fingerprint", "--file", str(tmp_path / "0"), "--file", str(tmp_path / "1"))
    assert result.stdout.split() == [expected(text) for text in TEXTS]
    assert run("fingerprint", "--file", "-", given=TEXTS[1]).stdout.split() == [expected(TEXTS[1])]


def test_profile_decides() -> None:
    assert run("fingerprint", TEXTS[0], "--profile", "words-1").stdout.strip() == expected(TEXTS[0], "words-1")
    assert run("fingerprint", TEXTS[0], "--profile", "words-0").exit_code == 2


def test_json_has_a_line_for_each_text() -> None:
    assert lines_of(run("fingerprint", *TEXTS, "--json").stdout) == [{"fingerprint": expected(text)} for text in TEXTS]


def test_a_signature_has_sketch_and_key_where_the_profile_makes_them() -> None:
    made = [Profile.named(DEFAULT_PROFILE).signature(text).to_json() for text in TEXTS]
    assert all(one.keys() == {"fingerprint", "sketch", "key"} for one in made)
    asked = ("fingerprint", "--signature", *TEXTS, "--profile")
    assert run(*asked, DEFAULT_PROFILE).stdout == "".join("\t".join(one.values()) + "\n" for one in made)
    assert lines_of(run(*asked, DEFAULT_PROFILE, "--json").stdout) == made
    assert [
        answer.items() >= one.items()
        for answer, one in zip(lines_of(run(*asked, DEFAULT_PROFILE, "--features").stdout), made, strict=True)
    ] == [True, True]
    assert run(*asked, "auto-1").stdout == "".join(f"{expected(text, 'auto-1')}\t-\t-\n" for text in TEXTS)
    assert lines_of(run(*asked, "auto-1", "--json").stdout) == [
        {"fingerprint": expected(text, "auto-1")} for text in TEXTS
    ]
    assert run("fingerprint", *TEXTS).stdout.split() == [one["fingerprint"] for one in made]


def test_text_too_short_is_an_error_and_the_others_are_printed() -> None:
    result = run("fingerprint", "")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "too short" in result.stderr
    mixed = run("fingerprint", "…", TEXTS[0])
    assert (mixed.exit_code, mixed.stdout.split()) == (1, [expected(TEXTS[0])])
    assert lines_of(run("fingerprint", "", "--json").stdout) == [{"fingerprint": None}]


def test_lines_are_answered_with_null_for_a_text_too_short() -> None:
    given = [{"id": "x", "text": TEXTS[0]}, {"id": "y", "text": " "}, {"text": TEXTS[1]}]
    result = run("fingerprint", "-", given="\n".join(map(json.dumps, given)))
    assert result.exit_code == 0
    assert lines_of(result.stdout) == [
        {"line": 1, "id": "x", "fingerprint": expected(TEXTS[0])},
        {"line": 2, "id": "y", "fingerprint": None},
        {"line": 3, "fingerprint": expected(TEXTS[1])},
    ]


def test_bad_lines_are_rejected_and_the_rest_goes_on() -> None:
    result = run("fingerprint", "-", given='{"text": 1}\n{"text": "a good one"}\n')
    assert result.exit_code == 7
    assert [answer["line"] for answer in lines_of(result.stdout)] == [2]
    assert "stdin:1: rejected" in result.stderr


def test_features_tell_weights_shares_and_what_is_capped() -> None:
    text = "again " * 40 + TEXTS[0]
    answer = lines_of(run("fingerprint", text, "--features", "--profile", "auto-2").stdout)[0]
    assert answer["fingerprint"] == expected(text, "auto-2")
    features = answer["features"]
    weights = [feature["weight"] for feature in features]
    assert weights == sorted(weights, reverse=True)
    assert sum(feature["share"] for feature in features) == pytest.approx(1, abs=0.01)
    assert [feature["text"] for feature in features if feature["at_cap"]] == ["again again", "again"]
    light_text = " ".join(f"word{number}" for number in range(60))
    (light,) = lines_of(run("fingerprint", light_text, "--features", "--profile", "auto-2").stdout)
    assert not any(feature["at_cap"] for feature in light["features"])


@thorough
def test_features_are_a_table_on_a_terminal() -> None:
    code, shown = on_terminal("fingerprint", TEXTS[0], "--features")
    assert code == 0
    assert expected(TEXTS[0]) in shown
    assert "share" in shown
    code, shown = on_terminal("fingerprint", "two words", "--features", "--profile", "auto-2")
    assert "no vote" in shown


def test_features_too_few_to_vote_are_marked() -> None:
    few, enough = lines_of(run("fingerprint", "two words", TEXTS[0], "--features", "--profile", "auto-2").stdout)
    assert (few["is_vote"], enough["is_vote"]) == (False, True)
    assert few["features"]
