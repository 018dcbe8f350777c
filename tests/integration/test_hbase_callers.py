"""Threads and tasks that query one index on a real HBase at the same time."""

from __future__ import annotations

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hsimhash import HSimIndex
from hsimhash.aio import AsyncHSimIndex
from hsimhash.store import Record
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import create_at
from tests.support.fingerprint_sets import half_near, page_ids, random_fingerprints
from tests.support.first_calls import imported_by_first_calls
from tests.test_call_sharing import LAYOUT, PROFILE, THREADS


@pytest.mark.parametrize("place", [0, 1], ids=["thrift2", "thrift1"])
def test_they_add_and_find_as_one_would_do_it(stores: tuple[str, str], place: int) -> None:
    create_at(stores[0], Record(LAYOUT, PROFILE.to_json()), TableSettings()).close()
    rng = np.random.default_rng(7)
    fingerprints = random_fingerprints(rng, 300)
    asked = list(zip(half_near(rng, fingerprints, 200, 3).tolist(), itertools.cycle([None, 1, 2]), strict=False))
    stored, ids = fingerprints.tolist(), page_ids(0, len(fingerprints))

    async def ask_as_tasks() -> list[object]:
        async with await AsyncHSimIndex.open(stores[place]) as tasks:
            return await asyncio.gather(*(tasks.query(query, max_distance=distance) for query, distance in asked))

    with HSimIndex.open(stores[place]) as index, ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(index.add, stored, ids))
        expected = [index.query(query, max_distance=distance) for query, distance in asked]
        found = list(threads.map(lambda one: index.query(one[0], max_distance=one[1]), asked))

        assert [one and one.fingerprint for one in index.get_many(ids)] == stored
    assert found == expected == asyncio.run(ask_as_tasks())
    assert sum(map(bool, expected)) > 50


@pytest.mark.parametrize("place", [0, 1], ids=["thrift2", "thrift1"])
def test_the_first_calls_of_a_forked_process_import_no_module(stores: tuple[str, str], place: int) -> None:
    HSimIndex.create(stores[0]).close()
    assert imported_by_first_calls(stores[place]) == {}


@pytest.mark.parametrize("place", [0, 1], ids=["thrift2", "thrift1"])
def test_partial_queries_are_exact_where_all_servers_answer(stores: tuple[str, str], place: int) -> None:
    splits = tuple(bytes([start]) for start in range(32, 256, 32))
    create_at(stores[0], Record(LAYOUT, PROFILE.to_json()), TableSettings(splits=splits)).close()
    rng = np.random.default_rng(8)
    fingerprints = random_fingerprints(rng, 300)
    asked = half_near(rng, fingerprints, 40, 3).tolist()
    with HSimIndex.open(stores[place]) as index:
        index.add_many(fingerprints, page_ids(0, len(fingerprints)))
        for distance in (3, 5):
            exact = [index.query(query, max_distance=distance) for query in asked]
            assert sum(map(bool, exact)) > 10
            for found in (
                [index.query(query, max_distance=distance, timeout=60, partial=True) for query in asked],
                index.query_many(asked, max_distance=distance, timeout=60, partial=True),
            ):
                assert found == exact
                assert not any(one.missing for one in found)
