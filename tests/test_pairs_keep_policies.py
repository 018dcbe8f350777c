"""Keep policies: how they are parsed, which document ranks first, and how a field's values count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.fingerprint.bits import Floats, Int64s
from hsimhash.pairs.keep_policies import (
    POLICY_FORMS,
    VALUE_PARTS,
    Policy,
    needed_fields,
    needs_lengths,
    needs_places,
    rank,
)


def policies(*texts: str) -> list[Policy]:
    return [Policy.parse(text) for text in texts]


def columns_of(policy: Policy, values: Sequence[object]) -> list[Floats]:
    return list(np.array([policy.parts_of(value) for value in values], np.float64).reshape(-1, VALUE_PARTS).T)


def ranked(
    doc_ids: list[str],
    *texts: str,
    lengths: list[int] | None = None,
    fields: Mapping[str, Sequence[object]] | None = None,
) -> Int64s:
    asked = policies(*texts)
    values = {policy: columns_of(policy, (fields or {})[policy.field]) for policy in asked if policy.field}
    places = np.argsort(np.array(sorted(range(len(doc_ids)), key=doc_ids.__getitem__), np.int64))
    return rank(asked, doc_ids, lengths=lengths, values=values, places=places)


def order(doc_ids: list[str], *texts: str, **columns: object) -> list[str]:
    """Return the documents' ids in order of their rank."""
    ranks = ranked(doc_ids, *texts, **columns)
    assert ranks.dtype == np.int64
    return [doc_ids[at] for at in np.argsort(ranks)]


@pytest.mark.parametrize("text", ["first", "last", "longest", "shortest-id", "https", "newest:date", "highest:a:b c"])
def test_a_policy_prints_as_it_was_written(text: str) -> None:
    assert str(Policy.parse(text)) == text


@pytest.mark.parametrize("text", ["", "First", "newes:date", "longest:", "first:x", "oldest:date", "keep"])
def test_an_unknown_policy_names_those_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="unknown keep policy") as caught:
        Policy.parse(text)
    assert all(form in str(caught.value) for form in POLICY_FORMS)


@pytest.mark.parametrize("text", ["newest", "newest:", "highest"])
def test_a_policy_without_its_field_shows_how_to_name_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"requires a field; write (newest|highest):FIELD"):
        Policy.parse(text)


def test_what_the_policies_ask_for() -> None:
    asked = policies("https", "newest:date", "highest:score", "newest:date", "longest")
    assert needed_fields(asked) == ("date", "score")
    assert needs_lengths(asked)
    assert not needs_lengths(asked[:-1])
    assert needs_places(asked)
    assert not needs_places([*asked, Policy("last")])


def test_each_policy_orders_as_it_says() -> None:
    assert order(["b", "a", "c"], "first") == ["b", "a", "c"]
    assert order(["b", "a", "c"], "last") == ["c", "a", "b"]
    assert order(["b", "a", "c"], "longest", lengths=[1, 5, 5]) == ["a", "c", "b"]
    assert order(["bbb", "cc", "aa"], "shortest-id") == ["aa", "cc", "bbb"]
    assert order(["http://a", "HTTPS://b", "a", "https://a"], "https") == ["HTTPS://b", "https://a", "a", "http://a"]
    assert order(["a", "b", "c"], "highest:n", fields={"n": [1, 3.5, "2"]}) == ["b", "c", "a"]


def test_ties_are_broken_by_the_next_policy_then_by_id_then_by_position() -> None:
    ids = ["http://bb", "https://b", "https://a", "http://a"]
    assert order(ids, "https", "last") == ["https://a", "https://b", "http://a", "http://bb"]
    assert order(ids, "shortest-id", "https") == ["http://a", "https://a", "https://b", "http://bb"]
    assert order(ids) == ["http://a", "http://bb", "https://a", "https://b"]
    assert ranked(["x", "x", "a"]).tolist() == [1, 2, 0]


def test_ids_are_in_order_of_their_characters() -> None:
    assert order(["\U0001f600", "\uff5e", "é", "z", "Z"]) == ["Z", "z", "é", "\uff5e", "\U0001f600"]


@pytest.mark.parametrize("value", [None, "yesterday", True, float("nan"), [], {}, "", "nan", "1_000", "١٢"])
def test_a_value_that_does_not_count_ranks_last(value: object) -> None:
    for policy in ("newest:x", "highest:x"):
        assert order(["a", "b"], policy, fields={"x": [value, -(10**30)]}) == ["b", "a"]
        assert Policy.parse(policy).value_of(value) is None


def test_newest_reads_times_and_numbers() -> None:
    times = ["2024-05-01", "2024-05-01T00:00:01+02:00", 1714521600001, "2024-04-30T23:59:59.9Z", "1714521600002"]
    assert order(list("abcde"), "newest:t", fields={"t": times}) == ["e", "c", "a", "d", "b"]
    assert Policy.parse("highest:t").value_of("2024-05-01") is None


NUMBERS = st.one_of(st.floats(allow_nan=False), st.integers(-(10**64) + 1, 10**64 - 1), st.integers(-3, 3))
SCORES = st.sampled_from([None, 0, 1, -(10**30), 10**30, 10**30 + 1])


@given(NUMBERS, NUMBERS, st.integers(-2, 2))
def test_the_parts_of_numbers_are_in_the_order_of_the_numbers(one: float, other: float, step: int) -> None:
    policy, near = Policy("highest", "n"), other + step
    for left, right in ((one, other), (other, near), (int(max(-1e60, min(1e60, other))), other)):
        parts = policy.parts_of(left), policy.parts_of(right)
        assert ((left > right) - (left < right)) == ((parts[0] > parts[1]) - (parts[0] < parts[1]))


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 2), SCORES), max_size=30))
def test_a_rank_is_the_plain_sort_by_all_policies(given: list[tuple[str, int, int | None]]) -> None:
    ids, lengths, scores = [list(column) for column in zip(*given, strict=True)] or [[], [], []]
    ranks = ranked(ids, "longest", "highest:s", "shortest-id", lengths=lengths, fields={"s": scores})
    assert sorted(ranks.tolist()) == list(range(len(ids)))

    def plain(at: int) -> tuple[object, ...]:
        score = scores[at]
        return -lengths[at], score is None, -(score or 0), len(ids[at]), ids[at], at

    assert np.argsort(ranks).tolist() == sorted(range(len(ids)), key=plain)


def test_columns_that_are_missing_or_too_short_are_named() -> None:
    with pytest.raises(
        ValueError, match="missing columns that the keep policies require: newest:date, lengths, places"
    ):
        rank(policies("newest:date", "longest"), ["a"])
    with pytest.raises(ValueError, match="newest:date: expected one value for each of 2 documents, got 1"):
        rank(policies("newest:date", "first"), ["a", "b"], values={Policy("newest", "date"): [np.zeros(1)]})
