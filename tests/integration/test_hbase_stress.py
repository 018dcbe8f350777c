"""The short forms of `make stress-hbase`, and tests that these would detect what they look for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hsimhash.fingerprint import Signature
from hsimhash.store.conformance.random_calls import packed_key
from tests.stress import hbase_check, hbase_exactness, hbase_faults, hbase_live, stores_identity
from tests.stress.exactness import check_layout, check_signatures
from tests.stress.hbase_verdict import History, Query, Verdict, Write, judge
from tests.support.effort import tries
from tests.support.hbase_server import Gateways, HBaseServer
from tests.support.programs import faults

ONE, SEVEN, FAR = Signature(1, 0, packed_key([1, 2, 3, 4])), Signature(7), Signature(0xFF, 0, packed_key([4, 5, 6]))
MOVED = [Write("a", ONE, 10, 20), Write("a", None, 30, 40), Write("a", FAR, 50, 60)]

pytestmark = pytest.mark.stress


@pytest.mark.parametrize("layout", hbase_exactness.LAYOUTS[:: tries(1, 2)])
def test_no_match_is_missed_and_none_invented(hbase: Gateways, layout: str) -> None:
    filled = partial(hbase_exactness.both_gateways, hbase, thrift1_share=0.125)
    distances = (1, 3, 5)
    outcomes = list(check_layout(layout, filled, stored=2_000, queries=150, distances=distances))
    assert len(outcomes) == 4 * len(distances)
    assert faults(outcomes) == []


def test_no_match_by_signature_is_missed_and_none_invented(hbase: Gateways) -> None:
    filled = partial(hbase_exactness.both_gateways, hbase, thrift1_share=0.25)
    outcomes = list(check_signatures("10", filled, stored=2_000, queries=400, distances=(0, 3)))
    assert len(outcomes) == 4 * 4
    assert faults(outcomes) == []


def test_regions_get_like_numbers_of_the_fingerprints_of_real_texts(
    hbase: Gateways, labelled_data: Path, tmp_path: Path
) -> None:
    assert faults(hbase_exactness.check_real_regions(hbase, labelled_data, tmp_path, count=8_000)) == []


@pytest.mark.timeout(900)  # many processes on few cores
def test_queries_beside_writers_and_the_collector_are_right(own_hbase: HBaseServer) -> None:
    assert faults(hbase_live.run(own_hbase, "thrift2", seconds=12, proportion=900)) == []


def test_check_finds_every_planted_fault_and_none_beside_writers(own_hbase: HBaseServer, tmp_path: Path) -> None:
    found = hbase_check.faults_found(own_hbase, tmp_path, documents=1_500, faults=10, kills=1)
    assert faults(list(found)) == []
    assert faults([hbase_check.beside_writers(own_hbase, tmp_path, documents=1_000, checks=1)]) == []


def test_no_write_is_acknowledged_into_an_index_that_has_gone(hbase: Gateways) -> None:
    place = stores_identity.HBaseTable(hbase, np.random.default_rng(2))
    assert faults(stores_identity.shaken(place, rounds=3, writers=2)) == []


@pytest.mark.timeout(900)
def test_a_crowd_survives_kills_of_its_gateway(own_hbase: HBaseServer) -> None:
    assert faults(hbase_faults.kill_gateway(own_hbase, "thrift2", 2, slack_s=10)) == []


@pytest.mark.parametrize("idl", ["thrift2", "thrift1"])
def test_no_answer_belongs_to_another_call(own_hbase: HBaseServer, idl: str) -> None:
    port = own_hbase.thrift2_port if idl == "thrift2" else own_hbase.thrift1_port
    assert faults([hbase_faults.answer_late(own_hbase, port, 200)]) == []


@pytest.mark.parametrize("idl", ["thrift2", "thrift1"])
def test_idle_connections_cost_no_error(own_hbase: HBaseServer, idl: str) -> None:
    settings = {"hbase.thrift.server.socket.read.timeout": "300"}
    assert faults([hbase_faults.stay_idle(own_hbase, idl, 0.5, settings)]) == []


def test_a_document_may_be_what_one_of_the_last_writes_said() -> None:
    history = History(MOVED)
    assert history.states(1, 5) == {None}
    assert history.states(5, 15) is None
    assert history.states(21, 29) == {ONE}
    assert history.states(21, 70) is None
    assert history.states(41, 49) == {None}
    assert History([Write("a", SEVEN, 55, 80), *MOVED]).states(90, 99) == {FAR, SEVEN}
    assert History([Write("a", SEVEN, 5, 55), *MOVED]).states(90, 99) == {FAR, SEVEN}
    assert History([Write("a", SEVEN, 5, 45), *MOVED]).states(90, 99) == {FAR}


def verdict(began: int, ended: int, found: dict[str, int], key: int = 0) -> Verdict:
    return judge(MOVED, [Query(Signature(3, 0, key), began, ended, found)], 3)


def test_a_missed_and_a_false_answer_are_seen() -> None:
    assert verdict(21, 29, {"a": 1}).is_right
    assert verdict(21, 29, {}).wrong
    assert verdict(41, 49, {"a": 1}).wrong
    assert verdict(41, 49, {"unknown": 3}).wrong
    assert verdict(61, 70, {}).wrong == []
    assert verdict(61, 70, {}, FAR.key).wrong
    assert verdict(61, 70, {"a": 0xFF}, FAR.key).is_right
    assert verdict(61, 70, {"a": 0xFF}, packed_key([7, 5, 6, 4])).is_right
    assert verdict(61, 70, {"a": 0xFF}, packed_key([7, 5, 6, 3])).wrong
    assert verdict(61, 70, {"a": 0xFF}, ONE.key).wrong
    assert verdict(21, 35, {"a": 1}).wrong == verdict(21, 35, {}).wrong == []
    assert verdict(21, 35, {"a": 2}).wrong
