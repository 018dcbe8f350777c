"""Connections and deadlines, against a port that takes connections and never answers."""

import re
import socket
from collections.abc import Iterator

import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.connection import Call
from hsimhash.store.hbase.idl import THRIFT2
from hsimhash.store.hbase.lanes import UNKNOWN, one_call
from hsimhash.store.hbase.pool import Pool

LIMIT_S = 3.0  # of a reply, and of a call with all its retries
LEAST_S = 0.1  # that a reply is waited for, also where the deadline has passed
ASK = one_call(Call(THRIFT2.THBaseService, "getThriftServerType", ()))


@pytest.fixture
def pool() -> Iterator[Pool]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"hbase://127.0.0.1:{port}/pages?timeout={LIMIT_S}s&deadline={LIMIT_S}s"
        pool = Pool(Address.parse(url), lambda connection: None)
        yield pool
        pool.close()


def waited_s(pool: Pool) -> float:
    """Return how long a call waits for its reply."""
    with pytest.raises(StoreUnavailableError) as refused:
        pool.run([ASK], width=1)
    told = re.search(r"deadline of 3 s.*127\.0\.0\.1.*no reply within ([\d.]+) s", str(refused.value))
    assert told, refused.value
    return float(told[1])


def test_one_deadline_counts_over_several_runs(pool: Pool) -> None:
    with pool.one_deadline():
        assert pool.run([ASK], width=1, once=True) == [UNKNOWN]
        assert waited_s(pool) == LEAST_S


def test_after_the_block_a_run_has_a_deadline_of_its_own(pool: Pool) -> None:
    with pool.one_deadline():
        assert pool.run([ASK], width=1, once=True) == [UNKNOWN]
    assert waited_s(pool) > LEAST_S
