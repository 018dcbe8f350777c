"""Texts held in memory across several batches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.dedup import held_texts
from hsimhash.dedup.held_texts import HeldTexts
from hsimhash.inputs.lines import Place
from hsimhash.inputs.reader import Batch, Position
from hsimhash.inputs.records import Documents


def batch(place: int, lines: list[int]) -> Batch:
    documents = Documents(
        lines=lines, doc_ids=[f"{line}" for line in lines], texts=[f"{place}/{line}" for line in lines]
    )
    return Batch(place, documents, Position(place, Place()))


@given(st.lists(st.lists(st.lists(st.integers(1, 9), min_size=1), max_size=4), max_size=3), st.randoms())
def test_each_text_is_found_by_input_and_line(steps: list[list[list[int]]], rng: object) -> None:
    """Lines ascend within an input, with gaps where records were rejected."""
    held, known = HeldTexts(), dict[int, list[int]]()
    for place, batches in enumerate(steps):
        line = 0
        for gaps in batches:
            lines = [line := line + gap for gap in gaps]
            held.take(batch(place, lines))
            known.setdefault(place, []).extend(lines)
    for place, lines in known.items():
        found = held.at(place, lines[:: 1 + place])
        assert found is not None
        assert found == [(line, f"{place}/{line}") for line in lines[:: 1 + place]]
    assert held.at(len(steps), [1]) is None


def test_once_there_are_too_many_none_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_texts, "HELD_BYTES", 400)
    held = HeldTexts()
    held.take(batch(0, [1, 2]))
    assert held.at(0, [1]) is not None
    held.take(batch(1, [1, 2, 3, 4]))
    held.take(batch(0, [3]))
    assert [held.at(place, [1]) for place in (0, 1)] == [None, None]
