"""Connections and deadlines, against a port that takes connections and never answers."""

import socket
import time
from collections.abc import Iterator

import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.connection import Call
from hsimhash.store.hbase.idl import THRIFT2
from hsimhash.store.hbase.pool import UNKNOWN, Pool, one_call

TIMEOUT_S, DEADLINE_S = 1.8, 2.0
ASK = one_call(Call(THRIFT2.THBaseService, "getThriftServerType", ()))


@pytest.fixture
def pool() -> Iterator[Pool]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"hbase://127.0.0.1:{port}/pages?timeout={TIMEOUT_S}s&deadline={DEADLINE_S}s"
        pool = Pool(Address.parse(url), lambda connection: None)
        yield pool
        pool.close()


def test_one_deadline_counts_over_several_runs(pool: Pool) -> None:
    began = time.monotonic()
    with pool.one_deadline():
        assert pool.run([ASK], width=1, once=True) == [UNKNOWN]
        with pytest.raises(StoreUnavailableError, match=r"deadline of 2 s.*127\.0\.0\.1.*no reply within"):
            pool.run([ASK], width=1)
    assert time.monotonic() - began < TIMEOUT_S + DEADLINE_S  # what two deadlines would take


def test_after_the_block_a_run_has_a_deadline_of_its_own(pool: Pool) -> None:
    with pool.one_deadline():
        assert pool.run([ASK], width=1, once=True) == [UNKNOWN]
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        pool.run([ASK], width=1)
    assert time.monotonic() - began >= TIMEOUT_S
