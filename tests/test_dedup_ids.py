"""Ids in a file: numbered like those in a dict, whatever their digests; read and sorted like those in a list."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.dedup.ids import WINDOW_BYTES, DigestTable, SpilledIds, murmur_digests
from hsimhash.fingerprint.bits import Uint64s
from tests.support.effort import thorough

IDS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=4)
FEW_IDS = st.integers(0, 40).map(lambda number: f"é{number}")


def few_digests(doc_ids: Sequence[bytes]) -> Uint64s:
    return murmur_digests(doc_ids) % np.uint64(3)


def equal_digests(doc_ids: Sequence[bytes]) -> Uint64s:
    return np.zeros(len(doc_ids), np.uint64)


@pytest.mark.parametrize("digests_of", [murmur_digests, few_digests, equal_digests])
@given(batches=st.lists(st.lists(st.one_of(IDS, FEW_IDS), max_size=30), max_size=8))
def test_ids_are_numbered_as_by_a_dict_whatever_their_digests(
    digests_of: Callable[[Sequence[bytes]], Uint64s], batches: list[list[str]]
) -> None:
    numbers: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        ids = SpilledIds(Path(name), digests_of)
        for batch in batches:
            expected = []
            for doc_id in batch:
                expected.append(numbers.get(doc_id, -1))
                numbers.setdefault(doc_id, len(numbers))
            assert ids.find(batch).tolist() == [
                number if number < len(ids) else -1 for number in map(numbers.__getitem__, batch)
            ]
            assert ids.add(batch).tolist() == expected
            assert list(ids) == list(numbers)


@thorough
def test_many_digests_are_found_after_the_table_has_grown() -> None:
    rng = np.random.default_rng(1)
    digests = np.unique(rng.integers(0, 2**64, 30_000, np.uint64))
    digests[10_000:20_000] &= np.uint64(0xFFFF << 16)  # these share few slots
    digests = rng.permutation(np.unique(digests))
    table = DigestTable()
    for start in range(0, len(digests), 7_000):
        table.add(digests[start : start + 7_000])
        assert table.find(digests[: start + 7_000]).tolist() == list(range(min(start + 7_000, len(digests))))
    assert set(table.find(rng.integers(0, 2**64, 10_000, np.uint64)).tolist()) == {-1}


@given(doc_ids=st.lists(IDS, unique=True, max_size=40), data=st.data())
def test_ids_are_read_as_from_a_list(doc_ids: list[str], data: st.DataObject) -> None:
    beyond = ["b0", "b1"]
    numbers = data.draw(st.lists(st.integers(0, len(doc_ids) + 1), max_size=20))
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(doc_ids))] * 2)))
    with tempfile.TemporaryDirectory() as name:
        ids = SpilledIds(Path(name))
        ids.add(doc_ids)
        assert ids.at(np.array(numbers, np.int64), beyond) == [[*doc_ids, *beyond][number] for number in numbers]
        assert ids.within(start, stop) == doc_ids[start:stop]


def test_ids_of_all_lengths_are_read_from_many_windows(tmp_path: Path) -> None:
    doc_ids = [f"{number}:{'x' * (number * 7 % 2_040)}" for number in range(1_000)]
    ids = SpilledIds(tmp_path)
    ids.add(doc_ids)
    assert sum(map(len, doc_ids)) > 5 * WINDOW_BYTES
    numbers = np.random.default_rng(2).integers(0, len(doc_ids), 3_000)
    assert ids.at(numbers) == [doc_ids[number] for number in numbers.tolist()]


@given(doc_ids=st.lists(IDS, unique=True, max_size=40), ids_sorted=st.integers(1, 50), data=st.data())
def test_places_are_those_in_the_order_of_characters(doc_ids: list[str], ids_sorted: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.sampled_from(range(len(doc_ids))), unique=True) if doc_ids else st.just([]))
    with tempfile.TemporaryDirectory() as name:
        ids = SpilledIds(Path(name))
        ids.add(doc_ids)
        places = ids.places(np.array(numbers, np.int64), ids_sorted)
        assert len(places) == len(doc_ids)
        assert sorted(numbers, key=places.__getitem__) == sorted(numbers, key=doc_ids.__getitem__)
        assert list(Path(name).glob("sorted*")) == []
