"""How errors returned by gateways are reported."""

from __future__ import annotations

import pytest
from thriftpy2.thrift import TApplicationException

from hsimhash.errors import IndexNotFoundError
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.connection import THRIFT2
from hsimhash.store.hbase.gateway.failures import RefusedError, TransientError, store_error

PAGES = Address.parse("hbase://gw1:9090/pages")
NO_MASTER = """Failed after attempts=16, exceptions:
2026-11-22T00:00:01.000Z, RpcRetryingCaller{globalStartTime=1, pause=100}, \
org.apache.hadoop.hbase.MasterNotRunningException: java.io.IOException: org.apache.zookeeper.NoNodeException
2026-11-22T00:00:09.000Z, RpcRetryingCaller{globalStartTime=1, pause=100}, \
org.apache.hadoop.hbase.MasterNotRunningException: java.net.ConnectException: Call to gw1:16000 failed
\tat org.apache.hadoop.hbase.client.ConnectionException.from(ConnectionException.java:10)
"""


def told(message: str, method: str = "getMultiple", *, can_retry: bool = True) -> Exception:
    return store_error(THRIFT2.TIOError(message=message, canRetry=can_retry), method, PAGES, "gw1:9090")


def test_the_last_cause_follows_the_first_line() -> None:
    error = told(NO_MASTER, "getTableDescriptor")
    assert isinstance(error, TransientError)
    assert str(error) == (
        "the servers temporarily refuse the call: getTableDescriptor on default:pages: Failed after attempts=16, "
        "exceptions: … org.apache.hadoop.hbase.MasterNotRunningException: java.net.ConnectException: Call to gw1:16000 "
        "failed"
    )


@pytest.mark.parametrize(
    "message", ["org.apache.hadoop.hbase.RegionTooBusyException: over limit\n\tat a.B.c(D.java)", "x"]
)
def test_a_cause_in_the_first_line_is_not_repeated(message: str) -> None:
    assert str(told(message)).endswith(f"default:pages: {message.splitlines()[0]}")


@pytest.mark.parametrize("message", ["Failed 5 actions: pages: 5 times, servers with issues: null", "pages"])
def test_where_only_the_table_is_named_it_is_missing_or_disabled(message: str) -> None:
    error = told(message)
    assert isinstance(error, IndexNotFoundError)
    assert "table default:pages is missing or disabled" in str(error)
    assert "create" not in str(error)
    assert str(error).endswith("run 'hsimhash doctor --store hbase://gw1:9090/default:pages' to see which")


def test_a_table_that_is_disabled_under_a_call_is_waited_for_and_named() -> None:
    error = told("pages is disabled.", "getScannerResults", can_retry=False)
    assert isinstance(error, TransientError)
    assert "enable 'default:pages'" in str(error)
    assert isinstance(told("page is disabled.", can_retry=False), RefusedError)


def test_regions_that_cannot_be_listed_while_one_is_on_its_way_are_listed_again() -> None:
    error = TApplicationException(TApplicationException.INTERNAL_ERROR, "Internal error processing")
    assert isinstance(store_error(error, "getAllRegionLocations", PAGES, "gw1:9091"), TransientError)
    assert isinstance(store_error(error, "getMultiple", PAGES, "gw1:9091"), RefusedError)
