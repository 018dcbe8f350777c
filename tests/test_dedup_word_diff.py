from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.dedup import word_diff
from hsimhash.dedup.word_diff import Comparison, Part, Passages, compare, passages, stretches, tokens

WORDS = st.lists(
    st.sampled_from(["a", "b", "word", "字", "、", ".", " ", "\n", "\u3000", "e\u0301", "が"]), max_size=60
)
TEXTS = st.one_of(st.text(max_size=80), WORDS.map("".join))
LONG = " ".join(f"word{number}" for number in range(400))
SENTENCE = " ".join(f"said{number}" for number in range(40))


def test_words_are_tokens_and_so_is_each_han_character_and_each_kana() -> None:
    assert tokens("Read  the 新聞です, now! ") == ["Read", "  the", " 新", "聞", "で", "す", ",", " now", "! "]


def test_a_combining_mark_stays_with_its_character() -> None:
    assert tokens("e\u0301te か\u3099") == ["e\u0301te", " か\u3099"]


def test_a_run_without_blanks_is_cut() -> None:
    assert [len(token) for token in tokens("x" * 100)] == [40, 40, 20]


@given(TEXTS, TEXTS)
def test_joined_stretches_give_back_both_texts(left: str, right: str) -> None:
    found = stretches(left, right)
    assert "".join(token for stretch in found for token in stretch.left) == left
    assert "".join(token for stretch in found for token in stretch.right) == right


@given(TEXTS, TEXTS)
def test_equal_stretches_differ_in_white_space_only_and_take_turns_with_changes(left: str, right: str) -> None:
    found = stretches(left, right)
    for stretch in found:
        words, others = ([token.strip() for token in side] for side in (stretch.left, stretch.right))
        assert stretch.left or stretch.right
        assert not stretch.is_equal or words == others
    assert all(one.is_equal != other.is_equal for one, other in pairwise(found))


def test_equal_texts_have_no_passage_when_they_are_long() -> None:
    assert passages(stretches(LONG, LONG)) == Passages((), 0)
    assert passages(stretches("", "")) == Passages((), 0)


def test_a_passage_is_a_change_and_a_little_of_what_is_around_it() -> None:
    cut = passages(stretches(LONG, LONG.replace("word200 ", "changed ")))
    ((before, change, after),) = cut.shown
    assert before.is_equal
    assert before.left == before.right
    assert before.left.startswith("… word19")
    assert before.left.endswith(" word199")
    assert len(before.left) <= word_diff.CONTEXT_CHARS + 2
    assert change == Part(False, " word200", " changed")
    assert after.left.startswith(" word201 ")
    assert after.left.endswith("word210 …")


def test_changes_far_apart_are_passages_of_their_own_and_near_ones_share_one() -> None:
    near = LONG.replace("word100 ", "x ").replace("word104 ", "y ")
    assert len(passages(stretches(LONG, near)).shown) == 1
    assert len(passages(stretches(LONG, near.replace("word300 ", "z "))).shown) == 2


def test_nothing_is_left_out_before_the_beginning_or_after_the_end() -> None:
    ((first, *_), (*_, last)) = passages(stretches(f"x {LONG} x", f"y {LONG} y")).shown
    assert first == Part(False, "x", "y")
    assert last == Part(False, " x", " y")


@pytest.mark.parametrize("step", [2, 5, 40])
def test_what_is_shown_is_bounded_and_the_other_changes_are_counted(step: int) -> None:
    words = [f"word{number}" for number in range(4000)]
    changed = ["changed" if number % step == 0 else word for number, word in enumerate(words)]
    found = stretches(" ".join(words), " ".join(changed))
    cut = passages(found)
    part = max(2 * word_diff.CHANGE_CHARS + 3, 2 * word_diff.CONTEXT_CHARS)
    for side in (1, 2):
        chars = sum(len(part[side]) for passage in cut.shown for part in passage)
        assert 0 < chars <= word_diff.SHOWN_CHARS + word_diff.PASSAGE_CHARS + 3 * part
    shown = sum(not part.is_equal for passage in cut.shown for part in passage)
    assert shown + cut.hidden == sum(not stretch.is_equal for stretch in found)


def test_a_long_change_shows_its_beginning_and_its_end() -> None:
    ((part,),) = passages(stretches("x" * 5000, "begin " + "y" * 5000 + " end")).shown
    assert part.right.startswith("begin y")
    assert " … y" in part.right
    assert part.right.endswith("y end")
    assert len(part.right) == 2 * word_diff.CHANGE_CHARS + 3


def test_white_space_is_shown_as_one_blank_but_line_breaks_stay() -> None:
    ((_, change, _),) = passages(stretches("a b \n \n\n c\t d e", "a b x" + " " * 9000 + "y d e")).shown
    assert change == Part(False, "\n\nc", " x y")
    ((_, change, _),) = passages(stretches("a b\r\nc d e", "a b x d e")).shown
    assert change == Part(False, "\nc", " x")


def changes(left: str, right: str) -> list[tuple[str, str]]:
    found = [one for one in stretches(left, right) if not one.is_equal]
    return [("".join(one.left).strip(), "".join(one.right).strip()) for one in found]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ("one two three four five", "one two 3 four five", [("three", "3")]),
        ("票价十二元，今天开始", "票价十三元，今天开始", [("二", "三")]),
        ("one  two\n\nthree ", "one two three", []),
        ("a b the c d", "a x the y d", [("b the c", "x the y")]),
    ],
    ids=["a word", "Chinese by character", "white space is none", "a lone shared word belongs to the one around it"],
)
def test_changes_of_short_texts(left: str, right: str, expected: list[tuple[str, str]]) -> None:
    assert changes(left, right) == expected


def test_a_sentence_that_moved_or_is_missing_in_a_long_text_is_the_only_change() -> None:
    random = Random(4)
    words = [f"w{random.randrange(60)}" for _ in range(20_000)]
    early, late = ([*words[:at], SENTENCE, *words[at:]] for at in (1_000, 19_990))
    assert changes(" ".join(early), " ".join(late)) == [(SENTENCE, ""), ("", SENTENCE)]
    without = [*words[:5], "more", *words[5:]]
    assert changes(" ".join(late), " ".join(without)) == [("", "more"), (SENTENCE, "")]


@pytest.mark.parametrize("words", [3_000, 100_000])
def test_in_long_texts_only_what_differs_is_a_change(words: int) -> None:
    random = Random(words)
    left = [f"w{random.randrange(5_000)}" for _ in range(words)]
    right = left.copy()
    places = range(words // 20, words, words // 10)
    for place in places:
        right[place] = "changed"
    white_space = " " * 600
    assert changes(" ".join(left), white_space + "\n".join(right)) == [(left[place], "changed") for place in places]


def test_lines_that_repeat_themselves_have_only_their_own_changes() -> None:
    left, right = ["all is well."] * 20_000, ["all is well."] * 20_000
    left[5_000], right[15_000] = "a fault.", "another fault."
    found = [one for one in stretches("\n".join(left), "\n".join(right)) if not one.is_equal]
    assert sum(len(one.left) + len(one.right) for one in found) < 30


def test_texts_that_are_both_long_and_different_are_not_compared() -> None:
    assert compare(LONG, LONG.replace("word200 ", "changed "), work=800).equal_share == 399 / 400
    assert compare(LONG, LONG.replace("word", "other"), work=800) is None
    assert compare("a b", "c d", work=4).equal_share == 0


def test_the_share_of_equal_words_is_of_both_texts() -> None:
    assert compare("a b c d", "a b c d").equal_share == 1
    assert compare("a b c d", "a b c d e f").equal_share == 0.8
    assert compare("a b", "c d").equal_share == 0
    assert compare("", "").equal_share == 1


def test_texts_with_the_same_words_have_an_opening_and_no_passages() -> None:
    assert compare("One\n\n\ntwo", "One two") == Comparison(1.0, Passages((), 0), "One\n\ntwo")
    assert len(compare(LONG, LONG).opening) == word_diff.OPENING_CHARS + 2
