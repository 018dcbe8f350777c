"""A call that keeps failing says so: nobody watches a silent command for the ten minutes of a job's deadline."""

import socket
from collections.abc import Callable

import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.store import retries
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.connection import THRIFT2, Call
from hsimhash.store.hbase.gateway.pipeline import Caller, one_call
from hsimhash.store.hbase.gateway.pool import Pool
from hsimhash.store.registry import open_store


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def call_postgresql(port: int) -> None:
    open_store(f"postgresql://127.0.0.1:{port}/db?table=pages&deadline=1s")


def call_redis(port: int) -> None:
    open_store(f"redis://127.0.0.1:{port}/0?prefix=pages&deadline=1s")


def call_hbase(port: int) -> None:
    caller = Caller(Pool(Address.parse(f"hbase://127.0.0.1:{port}/pages?deadline=1s"), lambda _: None))
    caller.run([one_call(Call(THRIFT2.THBaseService, "getThriftServerType", ()))], width=1)


@pytest.mark.parametrize("call", [call_postgresql, call_redis, call_hbase])
@pytest.mark.parametrize("warn_after_s", [0.2, 5.0])
def test_retries_are_announced_once_and_only_if_they_last(
    call: Callable[[int], None], warn_after_s: float, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "_WARN_AFTER_S", warn_after_s)
    monkeypatch.setattr(retries, "_LONGEST_PAUSE_S", 0.05)
    port = closed_port()
    with pytest.raises(StoreUnavailableError):
        call(port)
    warned = [record.getMessage() for record in caplog.records if "retrying for another" in record.getMessage()]
    assert len(warned) == (warn_after_s < 1.0)
    assert all("deadline=" in one and str(port) in one and "refused" in one for one in warned), warned
