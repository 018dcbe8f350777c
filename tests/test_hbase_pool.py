"""Connections and deadlines: with a port that accepts connections but never answers, and with signals."""

import math
import random
import re
import signal
import socket
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from types import FrameType

import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import UNANSWERED
from hsimhash.store.hbase.gateway.connection import THRIFT2, Call, Connection
from hsimhash.store.hbase.gateway.pipeline import UNKNOWN, Caller, one_call
from hsimhash.store.hbase.gateway.pool import Pool
from hsimhash.store.hbase.gateway.silent_servers import LANES, SilentServers
from tests.support.effort import thorough
from tests.support.gateway_stand_in import stand_in
from tests.support.processes import forked

LIMIT_S = 3.0  # for one reply, and for a call with all its retries
LEAST_S = 0.1  # minimum wait for a reply, even after the deadline
CONNECTIONS, INTERRUPTIONS = 4, 200
ASK = one_call(Call(THRIFT2.THBaseService, "getThriftServerType", ()))


@pytest.fixture
def caller() -> Iterator[Caller]:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        url = f"hbase://127.0.0.1:{port}/pages?timeout={LIMIT_S}s&deadline={LIMIT_S}s"
        pool = Pool(Address.parse(url), lambda connection: None)
        yield Caller(pool)
        pool.close()


def waited_s(caller: Caller) -> float:
    """Return how long a call waits for its reply."""
    with pytest.raises(StoreUnavailableError) as refused:
        caller.run([ASK], width=1)
    told = re.search(r"deadline of 3 s.*127\.0\.0\.1.*no reply within ([\d.]+) s", str(refused.value))
    assert told, refused.value
    return float(told[1])


def test_one_deadline_counts_over_several_runs(caller: Caller) -> None:
    with caller.one_deadline():
        assert caller.run([ASK], width=1, once=True) == [UNKNOWN]
        assert waited_s(caller) == LEAST_S


def test_after_the_block_a_run_has_a_deadline_of_its_own(caller: Caller) -> None:
    with caller.one_deadline():
        assert caller.run([ASK], width=1, once=True) == [UNKNOWN]
    assert waited_s(caller) > LEAST_S


def test_calls_in_part_are_answered_beside_silent_ones_within_half_of_the_time() -> None:
    with stand_in() as gateway:
        gateway.hung = {"getScannerResults"}
        url = f"hbase://127.0.0.1:{gateway.port}/pages?connections={CONNECTIONS}"
        caller = Caller(Pool(Address.parse(url), lambda _: None))
        hung = one_call(Call(THRIFT2.THBaseService, "getScannerResults", (b"pages", THRIFT2.TScan(), 1)))
        began = time.monotonic()
        with caller.ending(LIMIT_S):
            results = caller.run_in_part([hung, hung, *[ASK] * 9, hung], width=CONNECTIONS)
            took_s = time.monotonic() - began
            caller.run([ASK], width=1)  # there is still time left
        assert results == [UNANSWERED, UNANSWERED, *[2] * 9, UNANSWERED]
        assert LIMIT_S / 2 <= took_s < LIMIT_S
        caller.pool.close()


def test_calls_in_part_of_a_gateway_that_is_away_end_by_then() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    caller = Caller(Pool(Address.parse(f"hbase://127.0.0.1:{port}/pages"), lambda _: None))
    began = time.monotonic()
    with caller.ending(0.4):
        assert caller.run_in_part([ASK, ASK], width=2) == [UNANSWERED, UNANSWERED]
    assert time.monotonic() - began < 0.4


def test_a_silent_server_is_asked_on_one_connection_after_a_rest_that_grows() -> None:
    now = 100.0
    servers = SilentServers(lambda: now)
    servers.unheard("a", 0.01)  # the caller had too little time left
    assert servers.lanes("a") == LANES
    for rest_s in (1, 2, 4, 8, 8):
        servers.unheard("a", 1)
        now += rest_s - 0.01
        assert servers.lanes("a") == 0
        now += 0.02
        assert [servers.lanes("a"), servers.lanes("a"), servers.lanes("b")] == [1, 0, LANES]
    servers.heard("a")
    assert servers.lanes("a") == LANES


class _InterruptedError(Exception):
    """What the signal handler raises."""


def _interrupt_calls(url: str) -> None:
    """Interrupt calls at random moments; the pool must then be as if they had ended, with no replies left over."""
    warnings.simplefilter("ignore", ResourceWarning)  # from sockets that were interrupted before they were assigned
    sys.unraisablehook = lambda _: None
    is_armed, interrupted = False, 0

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise _InterruptedError

    def call() -> None:
        rows = [b"%d" % next(numbers) for _ in range(2 * CONNECTIONS)]
        calls = [Call(THRIFT2.THBaseService, "get", (b"pages", THRIFT2.TGet(row=row))) for row in rows]
        assert [found.row for found in caller.run(list(map(one_call, calls)), width=CONNECTIONS)] == rows

    rng, pool, numbers = random.Random(5), Pool(Address.parse(url), lambda _: None), count()
    caller = Caller(pool)
    signal.signal(signal.SIGALRM, interrupt)
    while interrupted < INTERRUPTIONS:
        try:
            is_armed = True
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 4e-3))
            with caller.one_deadline(), caller.ending(60):
                call()
            is_armed = False
        except _InterruptedError:
            interrupted += 1
        call()
    assert (caller.patience.silent_s, caller.patience.end_s) == (None, math.inf)
    assert not pool.is_wanted
    taken = [pool.take(LIMIT_S, wait=True) for _ in range(CONNECTIONS)]
    assert all(taken)
    assert pool.take(0, wait=False) is None


@thorough
def test_a_signal_at_any_moment_costs_no_connection_and_no_patience() -> None:
    with (
        stand_in() as gateway,
        forked(lambda: _interrupt_calls(f"hbase://127.0.0.1:{gateway.port}/pages?connections={CONNECTIONS}")),
    ):
        pass


def test_the_addresses_of_a_host_share_the_time_to_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, stand_in() as gateway, ExitStack() as waiting:
        for _ in range(3):  # fills its queue, so that the next one gets no answer
            caller = waiting.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(full.getsockname())
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        found = [(*kind, full.getsockname()), (*kind, ("127.0.0.1", gateway.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        address = Address.parse("hbase://both:9090/pages")
        connection = Connection(address.gateways[0], address, None, timeout_s=LIMIT_S)
        assert connection.server_type() == THRIFT2.TThriftServerType.TWO
        connection.close()
