import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.dedup.word_diff import CHANGED_CHARS, EQUAL_CHARS, IdPart, id_parts, shortened


def marked(doc_id: str, other: str) -> str:
    return "".join(f"[{part.text}]" if part.is_changed else part.text for part in id_parts(doc_id, other))


@pytest.mark.parametrize(
    ("doc_id", "other", "expected"),
    [
        ("docs/3.10/abc.html", "docs/3.9/abc.html", "docs/3.[10]/abc.html"),
        ("https://e.org/en/a?page=2", "https://e.org/fr/a?page=3", "https://e.org/[en]/a?page=[2]"),
        ("tram", "tram/edit", "tram"),
        ("tram/edit", "tram", "tram[/edit]"),
        ("page_12", "page_13", "page_[12]"),
        ("新闻/1", "新闻/2", "新闻/[1]"),
        ("same", "same", "same"),
        ("4f2a-91", "b7c0-33", "4f2a-91"),
        ("", "x", ""),
    ],
)
def test_an_id_is_marked_where_another_one_differs(doc_id: str, other: str, expected: str) -> None:
    assert marked(doc_id, other) == expected


@given(st.text(max_size=60), st.text(max_size=60))
def test_joined_parts_are_the_id(doc_id: str, other: str) -> None:
    assert "".join(part.text for part in id_parts(doc_id, other)) == doc_id


@pytest.mark.parametrize(("is_changed", "most"), [(True, CHANGED_CHARS), (False, EQUAL_CHARS)])
def test_a_long_part_keeps_its_beginning_and_its_end(is_changed: bool, most: int) -> None:
    assert shortened(IdPart("x" * most, is_changed)).text == "x" * most
    text = shortened(IdPart("a" * most + "b" * most, is_changed)).text
    assert text == "a" * (most // 2) + " … " + "b" * (most // 2)
