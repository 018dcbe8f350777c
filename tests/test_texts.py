"""The methods of an index that take texts, and what they refuse."""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hsimhash
from hsimhash import HSimIndex, Profile, Signature, TextTooShortError
from hsimhash.aio import AsyncHSimIndex
from hsimhash.pairs import find_pairs

_numbers = itertools.count()

FIRST = "The quick brown fox jumps over the lazy dog while the other animals of the forest watch from afar. " * 3
NEAR = FIRST.replace("quick", "swift", 1)
OTHER = "Quarterly revenue rose to four hundred million, driven by demand for industrial pumps in Asia. " * 3
SHORT = "..."
TEXTS = {"first": FIRST, "short": SHORT, "near": NEAR, "other": OTHER}


@pytest.fixture
def index() -> Iterator[HSimIndex]:
    with HSimIndex.create(f"memory://texts-{next(_numbers)}") as made:
        yield made


def test_a_text_method_does_what_the_signature_method_does(index: HSimIndex) -> None:
    index.add_text(FIRST, "first", first_seen=5)
    signature = index.profile.signature(NEAR)
    fingerprint, sketch, key = index.profile.signature(FIRST)
    assert index.get("first") == hsimhash.Document("first", fingerprint, 5, sketch, key)
    assert [match.doc_id for match in index.query_text(NEAR)] == ["first"]
    assert index.query_text(NEAR, max_distance=16, limit=1) == index.query(signature, max_distance=16, limit=1)
    assert index.query_text(NEAR, exclude="first") == []
    assert index.claim_text(NEAR, "near").match == index.query_text(NEAR)[0]
    assert index.claim_text(OTHER, "other", first_seen=7).is_new
    assert {document.doc_id for document in index.documents()} == {"first", "other"}


def test_a_batch_of_texts_says_which_are_too_short(index: HSimIndex) -> None:
    added = index.add_texts(iter(TEXTS.values()), list(TEXTS), first_seen=[1, 2, 3, 4])
    assert added == (3, ["short"])
    assert index.get("short") is None
    assert [document and document.first_seen for document in index.get_many(["first", "near", "other"])] == [1, 3, 4]
    found = index.query_texts(TEXTS.values(), exclude=list(TEXTS))
    assert [matches and [match.doc_id for match in matches] for matches in found] == [["near"], None, ["first"], []]
    assert index.query_texts([SHORT, SHORT]) == [None, None]
    assert index.query_texts([]) == []
    assert index.add_texts([], []) == (0, [])


def test_a_batch_of_claims_says_which_are_too_short(index: HSimIndex) -> None:
    claims = index.claim_texts(TEXTS.values(), list(TEXTS))
    assert [claim and claim.is_new for claim in claims] == [True, None, False, True]
    assert index.count() == 2


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([FIRST, NEAR, OTHER, SHORT, "", "近似重复的网页在互联网上非常普遍" * 4]), max_size=8))
def test_batches_answer_as_one_text_at_a_time_does(texts: list[str]) -> None:
    ids = [f"page-{number}" for number in range(len(texts))]
    with (
        HSimIndex.create(f"memory://texts-{next(_numbers)}") as batch,
        HSimIndex.create(f"memory://texts-{next(_numbers)}") as single,
    ):
        claims = batch.claim_texts(texts, ids, first_seen=1)
        matches = batch.query_texts(texts, exclude=ids)
        for text, doc_id, claim in zip(texts, ids, claims, strict=True):
            assert claim == one_or_none(lambda text=text, doc_id=doc_id: single.claim_text(text, doc_id, first_seen=1))
        for text, doc_id, found in zip(texts, ids, matches, strict=True):
            assert found == one_or_none(lambda text=text, doc_id=doc_id: single.query_text(text, exclude=doc_id))
        assert list(batch.documents()) == list(single.documents())


def one_or_none(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except TextTooShortError:
        return None


def test_a_text_too_short_is_refused_alone_and_nothing_is_written(index: HSimIndex) -> None:
    calls: list[Callable[[], object]] = [
        lambda: index.add_text(SHORT, "a"),
        lambda: index.query_text(SHORT),
        lambda: index.claim_text(SHORT, "a"),
    ]
    for call in calls:
        with pytest.raises(TextTooShortError, match=r"text too short: profile auto-3 finds nothing .* in '\.\.\.'"):
            call()
    assert index.count() == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda index, text: index.add(text, "a"),
        lambda index, text: index.query(text),
        lambda index, text: index.claim(text, "a"),
        lambda index, text: index.explain(text),
        lambda index, text: index.add_many([text], ["a"]),
        lambda index, text: index.add_many(np.array([text]), ["a"]),
        lambda index, text: index.add_many(np.array([text], object), ["a"]),
        lambda index, text: index.add_many([Signature(1), text], ["a", "b"]),
        lambda index, text: index.query_many([1, text]),
        lambda index, text: index.query_many(text),
        lambda index, text: index.query_many(pd.Series([text])),
        lambda index, text: index.claim_many([text], ["a"]),
        lambda index, text: find_pairs([text]),
        lambda index, text: asyncio.run(AsyncHSimIndex(index).add(text, "a")),
        lambda index, text: asyncio.run(AsyncHSimIndex(index).query(text)),
        lambda index, text: asyncio.run(AsyncHSimIndex(index).claim(text, "a")),
    ],
)
def test_a_text_where_a_signature_is_due_names_the_methods_for_texts(
    index: HSimIndex, call: Callable[[HSimIndex, str], object]
) -> None:
    with pytest.raises(TypeError, match=r"got str: .*; pass a text to add_text, query_text or claim_text"):
        call(index, FIRST)
    assert index.count() == 0


@pytest.mark.parametrize("wrong", [None, float("nan"), b"bytes", ["a"], 5, pd.NA])
def test_what_is_no_text_is_named_with_its_place(index: HSimIndex, wrong: Any) -> None:
    profile = index.profile
    alone: list[Callable[[], object]] = [
        lambda: profile.signature(wrong),
        lambda: profile.fingerprint(wrong),
        lambda: profile.features(wrong),
        lambda: index.add_text(wrong, "a"),
        lambda: index.query_text(wrong),
        lambda: index.claim_text(wrong, "a"),
    ]
    for call in alone:
        with pytest.raises(TypeError, match=r"^text must be a str, got "):
            call()
    several: list[Callable[[], object]] = [
        lambda: profile.signatures([FIRST, wrong]),
        lambda: profile.fingerprints(one for one in (FIRST, wrong)),
        lambda: index.add_texts(pd.Series([FIRST, wrong]), ["a", "b"]),
        lambda: index.query_texts(np.array([FIRST, None], object) if wrong is None else [FIRST, wrong]),
        lambda: index.claim_texts([FIRST, wrong], ["a", "b"]),
    ]
    for call in several:
        with pytest.raises(TypeError, match=r"^texts\[1\] must be a str, got "):
            call()
    assert index.count() == 0


def test_missing_values_come_with_the_remedy() -> None:
    for missing in (None, float("nan"), pd.NA):
        with pytest.raises(TypeError, match=r"drop missing texts first, or replace them with ''$"):
            Profile.named("auto-2").signatures([missing])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (FIRST, "texts must be a list or another iterable, got a single str: 'The quick"),
        (b"bytes", "got a single bytes: b'bytes'"),
        (5, "texts must be a list or another iterable, got int 5"),
        (None, "got NoneType None"),
        ({FIRST}, "texts must have a fixed order, got a set; pass a list"),
        ({"a": FIRST}, "got a dict; pass a list"),
        (pd.DataFrame({"text": [FIRST]}), r"got a DataFrame of shape \(1, 1\); pass one column"),
        (np.array([[FIRST]]), r"got a ndarray of shape \(1, 1\)"),
        (np.array(FIRST), r"of shape \(\)"),
    ],
)
def test_what_is_no_sequence_of_texts_is_refused(index: HSimIndex, wrong: Any, reason: str) -> None:
    for call in (index.profile.signatures, index.query_texts, lambda texts: index.add_texts(texts, ["a"])):
        with pytest.raises(TypeError, match=reason):
            call(wrong)


def test_every_kind_of_column_is_taken() -> None:
    texts = [FIRST, NEAR]
    columns = [
        tuple(texts),
        iter(texts),
        dict(enumerate(texts)).values(),
        np.array(texts),
        np.array(texts, object),
        pd.Series(texts, index=[7, 7]),
        pd.Series(texts, dtype="string"),
        pa.array(texts),
        pa.chunked_array([texts[:1], texts[1:]]),
    ]
    profile = Profile.named("auto-2")
    for column in columns:
        assert list(profile.signatures(column)) == list(map(profile.signature, texts))


@pytest.mark.parametrize(
    ("call", "error", "reason"),
    [
        (
            lambda index: index.add_texts([FIRST], ["a", "b"]),
            ValueError,
            "doc_ids must have one value for each of the 1",
        ),
        (lambda index: index.add_texts([FIRST], "a"), TypeError, "doc_ids must be a list .* got a single str: 'a'"),
        (lambda index: index.add_texts([FIRST], [5]), TypeError, r"doc_ids\[0\] must be a str, got int 5"),
        (lambda index: index.add_texts([FIRST, SHORT], ["a", "b"], first_seen=[1]), ValueError, "first_seen must have"),
        (lambda index: index.add_texts([FIRST], ["a"], first_seen="1"), TypeError, "first_seen must be a list"),
        (lambda index: index.claim_texts([FIRST, SHORT], ["a"]), ValueError, "doc_ids must have one .* got 1"),
        (lambda index: index.claim_texts([FIRST], ["a\n"]), ValueError, "control characters"),
        (lambda index: index.query_texts([FIRST], exclude=["a", "b"]), ValueError, "exclude must have one value"),
        (lambda index: index.query_texts([FIRST], exclude="a"), TypeError, "exclude must be a list"),
        (lambda index: index.query_texts([FIRST], limit=0), ValueError, "at least 1"),
        (lambda index: index.claim_text(FIRST, "a", max_distance=99), ValueError, "must be 0 to 16"),
    ],
)
def test_a_bad_argument_beside_texts_is_refused_before_anything_is_written(
    index: HSimIndex, call: Callable[[HSimIndex], object], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        call(index)
    assert index.count() == 0


def test_the_asyncio_forms_answer_alike(tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}/index"
    HSimIndex.create(url).close()

    async def main() -> None:
        async with await AsyncHSimIndex.open(url) as index:
            await index.add_text(FIRST, "first", first_seen=1)
            matches, claim = await asyncio.gather(index.query_text(NEAR, limit=1), index.claim_text(NEAR, "near"))
            assert [match.doc_id for match in matches] == ["first"]
            assert claim.match == matches[0]
            assert await index.query_text(NEAR, exclude="first") == []
            assert await index.add_texts([SHORT, OTHER], ["short", "other"]) == (1, ["short"])
            assert await index.query_texts([SHORT, NEAR]) == [None, matches]
            assert [claim and claim.is_new for claim in await index.claim_texts([OTHER, SHORT], ["other", "x"])] == [
                True,
                None,
            ]
            with pytest.raises(TextTooShortError):
                await index.query_text(SHORT)
            with pytest.raises(TypeError, match="text must be a str, got None"):
                await index.add_text(None, "a")  # type: ignore[arg-type]
            assert inspect.iscoroutinefunction(index.add_texts)

    asyncio.run(main())
