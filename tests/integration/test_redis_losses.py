"""Connections that end and servers that refuse: each call on Redis with each fault of the table in operations/redis.md.

All calls run at the same time, each on its own index, so that one restart or failover tests them all.
"""

from __future__ import annotations

import itertools
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any

import pytest
import redis

from hsimhash.errors import StoreUnavailableError
from hsimhash.index import HSimIndex
from tests.support.hbase_server import free_ports
from tests.support.interrupted_calls import CALLS, READS, WRITES, Call, all_begun, made
from tests.support.local_server import LocalServer, serving
from tests.support.processes import wait_until
from tests.support.redis_server import DURABLE, QUICK, RedisServer, redis_running
from tests.support.tcp_proxy import refusing_port

pytestmark = [pytest.mark.together, pytest.mark.every_case]
_KIND_BYTES = 80  # the start of a command: its name, its script, and the index
_prefixes = itertools.count()


def told(server: RedisServer, *command: str | int) -> Any:
    """Return what a server replies to a command."""
    with closing(redis.Redis(port=server.port)) as client:
        return client.execute_command(*command)


def refusals(server: RedisServer, kind: str) -> int:
    """Return how often a server has replied with an error of this kind."""
    with closing(redis.Redis(port=server.port)) as client:
        return int(client.info("errorstats").get(f"errorstat_{kind}", {}).get("count", 0))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A server that no test stops."""
    with redis_running(tmp_path_factory.mktemp("losses")) as server:
        yield server


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[RedisServer]:
    """The test's own server, which keeps every acknowledged write."""
    with redis_running(tmp_path / "server", DURABLE) as server:
        yield server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """The test's own server."""
    with redis_running(tmp_path / "server") as server:
        yield server


@contextmanager
def filled(url: Callable[[str, str], str], calls: Iterable[str], options: str = "") -> Iterator[dict[str, HSimIndex]]:
    """Yield an index for each call, with one document and an idle connection."""
    with ExitStack() as opened:
        indexes = {}
        for name in calls:
            made_url = url(f"losses-{next(_prefixes)}", options)
            indexes[name] = opened.enter_context(HSimIndex.create(made_url, layout="4", profile="zh-1"))
            indexes[name].add(5, "a")
        yield indexes


def own_url(server: RedisServer) -> Callable[[str, str], str]:
    return lambda prefix, options: server.url(prefix, options=options)


def test_calls_go_on_after_idle_connections_were_killed(shared: RedisServer, tmp_path: Path) -> None:
    with filled(own_url(shared), CALLS) as indexes:
        assert told(shared, "CLIENT", "KILL", "TYPE", "normal") >= len(indexes)
        with all_begun(CALLS, indexes, tmp_path):
            pass


def test_calls_go_on_after_the_server_ended_idle_connections(server: RedisServer, tmp_path: Path) -> None:
    with filled(own_url(server), CALLS) as indexes:
        told(server, "CONFIG", "SET", "timeout", 1)
        wait_until(lambda: str(told(server, "CLIENT", "LIST", "TYPE", "normal")).count("addr=") <= 2)
        told(server, "CONFIG", "SET", "timeout", 0)
        with all_begun(CALLS, indexes, tmp_path):
            pass


def test_calls_wait_for_servers_that_restart(durable: RedisServer, tmp_path: Path) -> None:
    with filled(own_url(durable), CALLS) as indexes:
        durable.stop()
        with all_begun(CALLS, indexes, tmp_path):
            durable.start()


@pytest.mark.parametrize("is_done", [False, True])
def test_calls_whose_connection_ends_in_the_middle_are_made_again(
    shared: RedisServer, tmp_path: Path, is_done: bool
) -> None:
    proxy = LosingProxy(shared.port, is_done=is_done)
    with filled(own_url(shared), CALLS) as there, serving(proxy), ExitStack() as stack:
        indexes = {
            name: stack.enter_context(HSimIndex.open(index.url.replace(f":{shared.port}", f":{proxy.port}")))
            for name, index in there.items()
        }
        proxy.is_losing = True
        with all_begun(CALLS, indexes, tmp_path):
            pass
        assert proxy.losses > len(CALLS)


class LosingProxy(LocalServer):
    """Ends the connection at the first try of each write and each kind of read, before or after Redis executes it."""

    def __init__(self, port: int, *, is_done: bool) -> None:
        super().__init__()
        self.target, self._is_done = port, is_done
        self._met: set[bytes] = set()
        self.is_losing = False

    @property
    def losses(self) -> int:
        return len(self._met)

    def talk(self, connection: socket.socket) -> None:
        request = b""
        with suppress(OSError), connection, socket.create_connection(("127.0.0.1", self.target)) as server:
            while True:
                for one in select([connection, server], [], [])[0]:
                    data = one.recv(1 << 16)
                    is_reply = one is server
                    request = request if is_reply else data
                    is_next = self.is_losing and is_reply == self._is_done and not data.startswith(b"-")
                    if not data or (is_next and self._is_first(request)):
                        return
                    (connection if is_reply else server).sendall(data)

    def _is_first(self, request: bytes) -> bool:
        command = re.sub(rb"\d{13,}", b"", request)  # without the times, which differ when a call is tried again
        if b":record" not in command:
            command = command[:_KIND_BYTES]
        is_first = command not in self._met
        self._met.add(command)
        return is_first


def test_calls_wait_while_a_server_loads_its_data(server: RedisServer, tmp_path: Path) -> None:
    with filled(own_url(server), CALLS) as indexes:
        told(server, "SAVE")
        server.kill()
        server.options = (*QUICK, "--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024")
        with all_begun(CALLS, indexes, tmp_path):
            server.start()
    assert refusals(server, "LOADING") > len(CALLS)


# What makes a server refuse calls for a while, and what ends that.
REFUSALS: dict[str, tuple[Mapping[str, Call], tuple[str, ...], tuple[str, ...]]] = {
    "NOREPLICAS": (
        WRITES,
        ("CONFIG", "SET", "min-replicas-to-write", "1"),
        ("CONFIG", "SET", "min-replicas-to-write", "0"),
    ),
    "READONLY": (WRITES, ("REPLICAOF", "127.0.0.1", "PORT"), ("REPLICAOF", "NO", "ONE")),
    "MASTERDOWN": (CALLS, ("REPLICAOF", "127.0.0.1", "PORT"), ("REPLICAOF", "NO", "ONE")),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_calls_wait_while_a_server_refuses_them(server: RedisServer, tmp_path: Path, kind: str) -> None:
    calls, begin, end = REFUSALS[kind]
    told(server, "CONFIG", "SET", "replica-serve-stale-data", "no" if kind == "MASTERDOWN" else "yes")
    with refusing_port() as port, filled(own_url(server), CALLS) as indexes:
        told(server, *(word.replace("PORT", str(port)) for word in begin))
        if kind != "MASTERDOWN":
            with all_begun(READS, indexes, tmp_path):  # reads are answered meanwhile
                pass
        with all_begun(calls, indexes, tmp_path):
            wait_until(lambda: refusals(server, kind) >= 2 * len(calls), limit_s=60)
            told(server, *end)


def test_calls_wait_while_a_script_of_others_keeps_the_server_busy(server: RedisServer, tmp_path: Path) -> None:
    with filled(own_url(server), CALLS) as indexes, ThreadPoolExecutor(1) as other:
        told(server, "CONFIG", "SET", "busy-reply-threshold", 50)
        endless = other.submit(told, server, "EVAL", "while true do end", 0)
        wait_until(lambda: is_busy(server))
        with all_begun(CALLS, indexes, tmp_path):
            pings = [is_busy(server) for _ in range(100)]
            told(server, "SCRIPT", "KILL")
        assert "killed" in str(endless.exception())
    assert refusals(server, "BUSY") > len(pings) + 1


def is_busy(server: RedisServer) -> bool:
    try:
        told(server, "PING")
    except redis.exceptions.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


def test_a_full_server_fails_writes_at_once_and_answers_reads(server: RedisServer, tmp_path: Path) -> None:
    with filled(own_url(server), CALLS) as indexes:
        told(server, "CONFIG", "SET", "maxmemory", 1)
        with all_begun({**READS, "remove": WRITES["remove"]}, indexes, tmp_path):
            pass
        growing = {name: call for name, call in WRITES.items() if name != "remove"}
        for name, call in growing.items():
            with pytest.raises(StoreUnavailableError, match="memory is full"):
                call(indexes[name], made(tmp_path / name))
        told(server, "CONFIG", "SET", "maxmemory", 0)
        with all_begun(growing, indexes, tmp_path):
            pass


MANY = [str(number) for number in range(20_000)]


@pytest.mark.parametrize("name", ["check", "add", "remove"])
def test_a_call_whose_script_an_administrator_ends_fails_or_is_done(server: RedisServer, name: str) -> None:
    def kill() -> None:
        while not is_over.is_set():
            with suppress(redis.exceptions.ResponseError):  # either no script is running or it has begun to write
                told(server, "SCRIPT", "KILL")

    told(server, "CONFIG", "SET", "busy-reply-threshold", 1)
    is_over = threading.Event()
    with filled(own_url(server), [name]) as indexes, ThreadPoolExecutor(1) as other:
        index = indexes[name]
        index.add_many([5] * 20_000, MANY)
        killing = other.submit(kill)
        try:
            if name == "check":
                with pytest.raises(StoreUnavailableError, match="an administrator killed the script"):
                    [index.check() for _ in range(1_000)]
            elif name == "add":
                assert index.add_many([6] * 20_000, MANY) <= 20_000
            else:
                assert index.remove(MANY) <= 20_000
        finally:
            is_over.set()
        killing.result()
        assert index.check().is_sound
        assert index.count() == (1 if name == "remove" else 20_001)


def test_calls_follow_sentinels_to_the_server_that_takes_over(tmp_path: Path) -> None:
    with redis_running(tmp_path / "one") as one, replica_of(one, tmp_path) as two, sentinel_of(one, tmp_path) as port:
        url = f"redis+sentinel://127.0.0.1:{port}/pages/0?timeout=1s&prefix="
        with filled(lambda prefix, options: f"{url}{prefix}{options}", CALLS) as indexes:
            wait_until(lambda: offset(two) == offset(one))
            one.kill()
            with all_begun(CALLS, indexes, tmp_path):
                pass


def test_writes_follow_an_address_that_leads_to_the_new_master(tmp_path: Path) -> None:
    with (
        redis_running(tmp_path / "one") as one,
        replica_of(one, tmp_path) as two,
        serving(LosingProxy(one.port, is_done=False)) as address,
        refusing_port() as port,
        filled(lambda prefix, options: one.url(prefix).replace(f":{one.port}", f":{address.port}"), WRITES) as indexes,
    ):
        wait_until(lambda: offset(two) == offset(one))
        told(one, "REPLICAOF", "127.0.0.1", port)
        told(two, "REPLICAOF", "NO", "ONE")
        address.target = two.port
        with all_begun(WRITES, indexes, tmp_path):
            pass
        assert refusals(one, "READONLY") == len(WRITES)  # each on its old connection


@contextmanager
def replica_of(server: RedisServer, folder: Path) -> Iterator[RedisServer]:
    with redis_running(folder / "replica", (*QUICK, "--replicaof", "127.0.0.1", server.port)) as replica:
        with closing(redis.Redis(port=replica.port)) as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up")
        yield replica


@contextmanager
def sentinel_of(master: RedisServer, folder: Path) -> Iterator[int]:
    """Run a sentinel for a master and its replica; yield its port."""
    (port,) = free_ports(1)
    conf = folder / "sentinel.conf"
    watched = f"sentinel monitor pages 127.0.0.1 {master.port} 1\nsentinel down-after-milliseconds pages 500\n"
    conf.write_text(f"port {port}\ndir {folder}\n{watched}sentinel failover-timeout pages 2000\n")
    with subprocess.Popen(["redis-server", conf, "--sentinel"], stdout=subprocess.DEVNULL) as sentinel:
        try:
            with closing(redis.Redis(port=port)) as client:
                wait_until(lambda: replicas_known(client) == 1)
            yield port
        finally:
            sentinel.kill()


def replicas_known(sentinel: redis.Redis) -> int:
    with suppress(redis.exceptions.ConnectionError):
        return len(sentinel.sentinel_slaves("pages"))
    return 0


def offset(server: RedisServer) -> int:
    """Return up to which replication offset the writes have reached a server."""
    with closing(redis.Redis(port=server.port)) as client:
        return int(client.info("replication")["master_repl_offset"])


def test_servers_that_stay_away_end_each_call_at_its_deadline(durable: RedisServer, tmp_path: Path) -> None:
    with filled(own_url(durable), CALLS, "&deadline=1s") as indexes:
        durable.stop()
        for name, call in CALLS.items():
            with pytest.raises(StoreUnavailableError, match="is redis-server running"):
                call(indexes[name], made(tmp_path / name))
        durable.start()
        with all_begun(CALLS, indexes, tmp_path):
            pass
