"""Gateways that fail: each call on HBase with each fault listed in operations/hbase.md, all at the same time."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.index import HSimIndex
from tests.stress.hbase_crowd import url_of
from tests.support.effort import thorough
from tests.support.hbase_server import HBaseServer
from tests.support.hbase_tables import new_table
from tests.support.interrupted_calls import CALLS, all_begun, made
from tests.support.tcp_proxy import proxied

pytestmark = [pytest.mark.together, pytest.mark.every_case]
Filled = Callable[..., dict[str, HSimIndex]]
LOST = 7  # one in this many requests or replies is lost or late
TIMEOUT_S = 1.0


@pytest.fixture(scope="module")
def tables(own_hbase: HBaseServer) -> Iterator[dict[str, str]]:
    """An index for each call."""
    with ExitStack() as there:
        names = {call: there.enter_context(new_table(own_hbase)) for call in CALLS}
        for name in names.values():
            HSimIndex.create(url_of(name, own_hbase.thrift2_port), layout="4", profile="zh-1").close()
        yield names


@pytest.fixture
def filled(own_hbase: HBaseServer, tables: Mapping[str, str]) -> Iterator[Filled]:
    """A function that opens the indexes through given ports, each with one document and idle connections."""
    with ExitStack() as opened:

        def through(*ports: int, **options: str) -> dict[str, HSimIndex]:
            indexes = {}
            for call, name in tables.items():
                with HSimIndex.open(url_of(name, own_hbase.thrift2_port)) as index:
                    index.remove([one.doc_id for one in index.documents()])
                    index.add(5, "a")
                indexes[call] = opened.enter_context(HSimIndex.open(url_of(name, *ports, **options)))
                indexes[call].query(5)
            return indexes

        yield through


def test_calls_go_on_after_the_gateway_ended_idle_connections(
    own_hbase: HBaseServer, filled: Filled, tmp_path: Path
) -> None:
    with own_hbase.gateway("thrift2", settings={"hbase.thrift.server.socket.read.timeout": "300"}) as gateway:
        indexes = filled(gateway.port, deadline="120s")
        with socket.create_connection(("127.0.0.1", gateway.port)) as idle:
            assert idle.recv(1) == b""  # so the gateway has closed the others, too
        with all_begun(CALLS, indexes, tmp_path):
            pass


def test_calls_wait_for_a_gateway_that_restarts(own_hbase: HBaseServer, filled: Filled, tmp_path: Path) -> None:
    with own_hbase.gateway("thrift2") as gateway:
        indexes = filled(gateway.port, deadline="120s")
        own_hbase.kill_gateway(gateway.name)
        with all_begun(CALLS, indexes, tmp_path):
            own_hbase.start_gateway(gateway.name)


def test_calls_go_on_through_another_gateway(own_hbase: HBaseServer, filled: Filled, tmp_path: Path) -> None:
    with own_hbase.gateway("thrift2") as gateway:
        indexes = filled(gateway.port, own_hbase.thrift2_port, deadline="120s")
        own_hbase.kill_gateway(gateway.name)
        with all_begun(CALLS, indexes, tmp_path):
            own_hbase.start_gateway(gateway.name)  # the fixture stops it


@pytest.mark.parametrize("fault", ["request lost", "reply lost", pytest.param("reply late", marks=thorough)])
def test_calls_whose_connection_ends_in_the_middle_are_made_again(
    own_hbase: HBaseServer, filled: Filled, tmp_path: Path, fault: str
) -> None:
    requests, losses = itertools.count(1), itertools.count()

    def fail(_: object) -> float:
        if next(requests) % LOST:
            return 0.0
        next(losses)
        if fault == "reply late":
            return 2 * TIMEOUT_S
        raise ConnectionResetError

    delay, let_pass = (lambda _: 0.0, fail) if fault == "request lost" else (fail, lambda _: None)
    with proxied(own_hbase.thrift2_port, delay, let_pass) as proxy:
        indexes = filled(proxy.port, timeout=f"{TIMEOUT_S:g}s", deadline="120s")
        with all_begun(CALLS, indexes, tmp_path):
            pass
    assert next(losses) > len(CALLS)


def test_a_gateway_that_stays_away_ends_each_call_at_its_deadline(
    own_hbase: HBaseServer, filled: Filled, tmp_path: Path
) -> None:
    with own_hbase.gateway("thrift2") as gateway:
        indexes = filled(gateway.port, deadline="10s")
        own_hbase.kill_gateway(gateway.name)
        with ThreadPoolExecutor(len(CALLS)) as threads:
            tried = [threads.submit(call, indexes[name], made(tmp_path / name)) for name, call in CALLS.items()]
        assert [type(one.exception()) for one in tried] == [StoreUnavailableError] * len(CALLS)
        own_hbase.start_gateway(gateway.name)
        for patient in filled(gateway.port, deadline="120s").values():
            patient.count()  # a new gateway's first replies are slow; the deadline is not for them
        with all_begun(CALLS, indexes, tmp_path):
            pass
