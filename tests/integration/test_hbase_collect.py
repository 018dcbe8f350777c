"""`collect` on a real HBase, through both of its gateways."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest

from hsimhash.fingerprint.signature import Signature
from hsimhash.index import HSimIndex
from hsimhash.rowkey import ORPHANS_FLAG
from hsimhash.store import CollectReport
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY
from hsimhash.store.hbase.rows.cells import TABLE_START, TABLE_STOP, row_flag
from hsimhash.store.hbase.rows.protocol import Times
from hsimhash.store.hbase.store import HBaseStore
from tests.support.command_line import run

DRAWERS = 10
CROWD = 1_200


@pytest.fixture(params=[0, 1], ids=["thrift2", "thrift1"])
def store(request: pytest.FixtureRequest, stores: tuple[str, str]) -> str:
    """A new index of format 2, through one of the gateways."""
    HSimIndex.create(stores[0], layout="10", profile="auto-2").close()
    return stores[request.param]


def ageless(index: HSimIndex, *, forgotten_s: float = 0) -> HBaseStore:
    """Return the store, set to collect leftovers of any age."""
    assert isinstance(index.store, HBaseStore)
    index.store.times = Times(settled_s=0, forgotten_s=forgotten_s)
    return index.store


def log_rows(store: HBaseStore) -> int:
    rows = store.gateway.rows(TABLE_START, TABLE_STOP, DOCUMENT_FAMILY, limit=100_000)
    return sum(row_flag(cells[0].row) == ORPHANS_FLAG for cells in rows)


def signatures(rng: np.random.Generator, count: int) -> Sequence[Signature]:
    numbers = rng.integers(1, 2**64, (count, 3), np.uint64).tolist()
    return [Signature(*one) for one in numbers]


def test_moves_and_removals_leave_nothing_and_others_lose_nothing(store: str) -> None:
    rng = np.random.default_rng(1)
    ids = [f"https://example.org/{number}/'文档'" for number in range(500)]
    first, second = signatures(rng, 500), list(signatures(rng, 500))
    second[:100] = [one._replace(key=other.key) for one, other in zip(first[:100], second[:100], strict=True)]
    with HSimIndex.open(store) as index:
        index.add_many(first, ids)
        index.add_many(second[:300], ids[:300])
        index.remove(ids[400:])
        collector = ageless(index)
        report = collector.collect()
        # only keys changed; fingerprints changed; removals, including their registers
        assert report == CollectReport(400, 100 + 200 * (2 + DRAWERS) + 100 * (3 + DRAWERS), 0)
        assert log_rows(collector) == 0
        checked = index.check()
        assert (checked.documents, checked.problems, checked.leftovers) == (400, 0, 0)
        left = {one.doc_id: one.signature for one in index.documents()}
        assert left == dict(zip(ids, [*second[:300], *first[300:400]], strict=False))
        assert collector.collect() == CollectReport(0, 0, 0)


def test_a_crowded_fingerprint_is_worked_off(store: str) -> None:
    crowd, ids = Signature(5, 6, 7 << 32), [f"{number:05}" for number in range(CROWD)]
    with HSimIndex.open(store) as index:
        index.add_many([crowd] * CROWD, ids)
        index.remove(ids[1:])
        collector = ageless(index, forgotten_s=3_600)
        assert collector.collect() == CollectReport(CROWD - 1, CROWD - 1, 0)
        assert [match.doc_id for match in index.query(crowd)] == ["00000"]
        index.remove(ids[0])
        assert collector.collect() == CollectReport(1, 1 + DRAWERS + 1, 0)
        assert index.check().leftovers == 0
        assert log_rows(collector) == 1  # the removed registers, which must still be forgotten


def test_the_command_reads_the_log_and_repair_works_it_off(store: str) -> None:
    with HSimIndex.open(store) as index:
        index.add_many([1, 2, 3], ["a", "b", "c"])
        index.add(11, "a")
        index.remove(["b"])
        result = run("collect", "--store", store, "--json")
        assert (result.exit_code, json.loads(result.stdout)) == (0, {"entries": 0, "deleted": 0, "left": 0})
        assert run("collect", "--store", store).stdout.split() == ["entries", "0", "deleted", "0", "left", "0"]
        assert log_rows(ageless(index)) == 2
        assert index.check().is_sound
        assert index.check(repair=True).repaired == 2 * (1 + DRAWERS)
        assert log_rows(ageless(index)) == 0
    missing = run("collect", "--store", f"{store}-missing")
    assert missing.exit_code == 5
