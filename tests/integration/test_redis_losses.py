"""Connections that end and servers that refuse: each call on Redis with each fault of the table in OPERATIONS.md.

All calls run at the same time, each on an index of its own, so that one restart or failover serves them all.
"""

from __future__ import annotations

import itertools
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from select import select

import pytest
import redis

from hsimhash.errors import StoreUnavailableError
from hsimhash.index import HSimIndex
from tests.support.hbase_server import free_ports
from tests.support.interrupted_calls import CALLS, READS, WRITES, Call, all_begun, made
from tests.support.local_server import LocalServer, serving
from tests.support.processes import wait_until
from tests.support.redis_cluster import RedisCluster, redis_cluster_running, said
from tests.support.redis_server import DURABLE, QUICK, RedisServer, redis_running
from tests.support.tcp_proxy import refusing_port

pytestmark = [pytest.mark.together, pytest.mark.every_case]
IN_CLUSTER = ("query", "get", "export", "check", "add", "remove", "ingest", "relayout")  # it has no claims
_KIND_BYTES = 80  # of a command: its name, its script, and the index
_prefixes = itertools.count()


class Servers:
    """A server, or the masters of a cluster; `calls` are those that it has."""

    def __init__(self, own: RedisServer | RedisCluster) -> None:
        self.own = own
        self.each = own.masters if isinstance(own, RedisCluster) else [own]
        self.calls = {name: CALLS[name] for name in IN_CLUSTER} if isinstance(own, RedisCluster) else CALLS

    def run(self, *command: str | int) -> list[object]:
        """Return what each server replies to a command."""
        replies = []
        for server in self.each:
            with closing(redis.Redis(port=server.port)) as client:
                replies.append(client.execute_command(*command))
        return replies

    def refusals(self, kind: str) -> int:
        """Return how often servers replied with such an error."""
        count = 0
        for server in self.each:
            with closing(redis.Redis(port=server.port)) as client:
                count += client.info("errorstats").get(f"errorstat_{kind}", {}).get("count", 0)
        return count

    def stop(self) -> None:
        for server in self.each:
            server.stop()

    def start(self) -> None:
        for server in self.each:
            server.start()
        if isinstance(self.own, RedisCluster):
            wait_until(self.own.is_well)


RUNNING = {"redis": redis_running, "redis-cluster": redis_cluster_running}


@pytest.fixture(scope="module", params=RUNNING)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Servers that no test ends."""
    with RUNNING[request.param](tmp_path_factory.mktemp("losses")) as own:
        yield Servers(own)


@pytest.fixture(params=RUNNING)
def own_servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    """Servers of the test's own, which keep what they acknowledged."""
    with RUNNING[request.param](tmp_path / "servers", DURABLE) as own:
        yield Servers(own)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Servers]:
    """One server of the test's own."""
    with redis_running(tmp_path / "server") as own:
        yield Servers(own)


@contextmanager
def filled(url: Callable[[str, str], str], calls: Iterable[str], options: str = "") -> Iterator[dict[str, HSimIndex]]:
    """Give an index for each call, with one document and an idle connection."""
    with ExitStack() as opened:
        indexes = {}
        for name in calls:
            made_url = url(f"losses-{next(_prefixes)}", options)
            indexes[name] = opened.enter_context(HSimIndex.create(made_url, layout="4", profile="zh-1"))
            indexes[name].add(5, "a")
        yield indexes


def own_url(servers: Servers) -> Callable[[str, str], str]:
    return lambda prefix, options: servers.own.url(prefix, options=options)


def test_calls_go_on_after_idle_connections_were_killed(servers: Servers, tmp_path: Path) -> None:
    with filled(own_url(servers), servers.calls) as indexes:
        assert sum(map(int, servers.run("CLIENT", "KILL", "TYPE", "normal"))) >= len(indexes)
        with all_begun(servers.calls, indexes, tmp_path):
            pass


def test_calls_go_on_after_the_server_ended_idle_connections(server: Servers, tmp_path: Path) -> None:
    with filled(own_url(server), CALLS) as indexes:
        server.run("CONFIG", "SET", "timeout", 1)
        wait_until(
            lambda: all(str(told).count("addr=") <= 2 for told in server.run("CLIENT", "LIST", "TYPE", "normal"))
        )
        server.run("CONFIG", "SET", "timeout", 0)
        with all_begun(CALLS, indexes, tmp_path):
            pass


def test_calls_wait_for_servers_that_restart(own_servers: Servers, tmp_path: Path) -> None:
    with filled(own_url(own_servers), own_servers.calls) as indexes:
        own_servers.stop()
        with all_begun(own_servers.calls, indexes, tmp_path):
            own_servers.start()


@pytest.mark.parametrize("is_done", [False, True])
def test_calls_whose_connection_ends_in_the_middle_are_made_again(
    servers: Servers, tmp_path: Path, is_done: bool
) -> None:
    with filled(own_url(servers), servers.calls) as there, ExitStack() as stack:
        proxies = [stack.enter_context(serving(LosingProxy(one.port, is_done=is_done))) for one in servers.each]
        stack.enter_context(announced(servers, proxies))
        indexes = {
            name: stack.enter_context(HSimIndex.open(proxied_url(index.url, servers, proxies)))
            for name, index in there.items()
        }
        for proxy in proxies:
            proxy.is_losing = True
        with all_begun(servers.calls, indexes, tmp_path):
            pass
        assert all(proxy.losses > len(servers.calls) for proxy in proxies)


class LosingProxy(LocalServer):
    """Ends the connection at the first try of each write and of each kind of read: before Redis has it, or after."""

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
        command = re.sub(rb"\d{13,}", b"", request)  # without the times that another try has changed
        if b":record" not in command:
            command = command[:_KIND_BYTES]
        is_first = command not in self._met
        self._met.add(command)
        return is_first


def proxied_url(url: str, servers: Servers, proxies: Sequence[LocalServer]) -> str:
    """Return the URL with the ports of the proxies."""
    for server, proxy in zip(servers.each, proxies, strict=True):
        url = url.replace(f":{server.port}", f":{proxy.port}")
    return url


@contextmanager
def announced(servers: Servers, proxies: Sequence[LocalServer]) -> Iterator[None]:
    """Let the masters of a cluster name proxies when they send clients to each other."""
    if not isinstance(servers.own, RedisCluster):
        yield
        return
    try:
        announce(servers, [proxy.port for proxy in proxies])
        yield
    finally:
        announce(servers, [0] * len(proxies))


def announce(servers: Servers, ports: Sequence[int]) -> None:
    for server, port in zip(servers.each, ports, strict=True):
        with closing(redis.Redis(port=server.port)) as client:
            client.config_set("cluster-announce-port", port)
    shown = {port or server.port for server, port in zip(servers.each, ports, strict=True)}
    wait_until(lambda: all(f":{port}@" in said(one, "NODES").decode() for one in servers.each for port in shown))


def test_calls_wait_while_a_server_loads_its_data(server: Servers, tmp_path: Path) -> None:
    assert isinstance(server.own, RedisServer)
    with filled(own_url(server), CALLS) as indexes:
        server.run("SAVE")
        server.own.kill()
        server.own.options = (*QUICK, "--key-load-delay", "5000", "--loading-process-events-interval-bytes", "1024")
        with all_begun(CALLS, indexes, tmp_path):
            server.start()
    assert server.refusals("LOADING") > len(CALLS)


# What lets a server refuse calls for a while, and what ends that.
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
def test_calls_wait_while_a_server_refuses_them(server: Servers, tmp_path: Path, kind: str) -> None:
    calls, begin, end = REFUSALS[kind]
    server.run("CONFIG", "SET", "replica-serve-stale-data", "no" if kind == "MASTERDOWN" else "yes")
    with refusing_port() as port, filled(own_url(server), CALLS) as indexes:
        server.run(*(word.replace("PORT", str(port)) for word in begin))
        if kind != "MASTERDOWN":
            with all_begun(READS, indexes, tmp_path):  # they are answered meanwhile
                pass
        with all_begun(calls, indexes, tmp_path):
            wait_until(lambda: server.refusals(kind) >= 2 * len(calls), limit_s=60)
            server.run(*end)


def test_calls_wait_while_a_script_of_others_keeps_the_server_busy(server: Servers, tmp_path: Path) -> None:
    server.run("CONFIG", "SET", "busy-reply-threshold", 50)
    with filled(own_url(server), CALLS) as indexes, ThreadPoolExecutor(1) as other:
        endless = other.submit(server.run, "EVAL", "while true do end", 0)
        wait_until(lambda: is_busy(server))
        with all_begun(CALLS, indexes, tmp_path):
            pings = [is_busy(server) for _ in range(100)]
            server.run("SCRIPT", "KILL")
        assert "killed" in str(endless.exception())
    assert server.refusals("BUSY") > len(pings) + 1


def is_busy(server: Servers) -> bool:
    try:
        server.run("PING")
    except redis.exceptions.ResponseError as error:
        return str(error).startswith("BUSY")
    return False


def test_a_full_server_fails_writes_at_once_and_answers_reads(server: Servers, tmp_path: Path) -> None:
    with filled(own_url(server), CALLS) as indexes:
        server.run("CONFIG", "SET", "maxmemory", 1)
        with all_begun({**READS, "remove": WRITES["remove"]}, indexes, tmp_path):
            pass
        growing = {name: call for name, call in WRITES.items() if name != "remove"}
        for name, call in growing.items():
            with pytest.raises(StoreUnavailableError, match="memory is full"):
                call(indexes[name], made(tmp_path / name))
        server.run("CONFIG", "SET", "maxmemory", 0)
        with all_begun(growing, indexes, tmp_path):
            pass


def test_a_check_whose_script_is_killed_fails_and_may_be_made_again(server: Servers) -> None:
    def kill() -> None:
        while not is_over.is_set():
            with suppress(redis.exceptions.ResponseError):  # no script is running
                server.run("SCRIPT", "KILL")

    server.run("CONFIG", "SET", "busy-reply-threshold", 1)
    is_over = threading.Event()
    with filled(own_url(server), ["check"]) as indexes, ThreadPoolExecutor(1) as other:
        indexes["check"].add_many([5] * 20_000, [str(number) for number in range(20_000)])
        killing = other.submit(kill)
        try:
            with pytest.raises(StoreUnavailableError, match="an administrator ended the script"):
                [indexes["check"].check() for _ in range(1_000)]
        finally:
            is_over.set()
        killing.result()
        assert indexes["check"].check().is_sound


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
        filled(lambda prefix, options: proxied_url(one.url(prefix), Servers(one), [address]), WRITES) as indexes,
    ):
        wait_until(lambda: offset(two) == offset(one))
        Servers(one).run("REPLICAOF", "127.0.0.1", port)
        Servers(two).run("REPLICAOF", "NO", "ONE")
        address.target = two.port
        with all_begun(WRITES, indexes, tmp_path):
            pass
        assert Servers(one).refusals("READONLY") == len(WRITES)  # each on the connection from before


@contextmanager
def replica_of(server: RedisServer, folder: Path) -> Iterator[RedisServer]:
    with redis_running(folder / "replica", (*QUICK, "--replicaof", "127.0.0.1", server.port)) as replica:
        with closing(redis.Redis(port=replica.port)) as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up")
        yield replica


@contextmanager
def sentinel_of(master: RedisServer, folder: Path) -> Iterator[int]:
    """Run a sentinel that knows a master and its replica; give its port."""
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
    """Return how much of what was written has reached a server."""
    with closing(redis.Redis(port=server.port)) as client:
        return int(client.info("replication")["master_repl_offset"])


def test_calls_follow_to_a_replica_in_a_cluster(tmp_path: Path) -> None:
    with redis_cluster_running(tmp_path / "cluster", replicas=1) as cluster:
        servers, replica = Servers(cluster), cluster.servers[-1]
        with filled(own_url(servers), servers.calls) as indexes:
            wait_until(lambda: offset(replica) == offset(cluster.masters[0]))
            cluster.masters[0].kill()
            with all_begun(servers.calls, indexes, tmp_path):
                pass


def test_servers_that_stay_away_end_each_call_at_its_deadline(own_servers: Servers, tmp_path: Path) -> None:
    with filled(own_url(own_servers), own_servers.calls, "&deadline=300ms") as indexes:
        own_servers.stop()
        for name, call in own_servers.calls.items():
            with pytest.raises(StoreUnavailableError, match="is redis-server running"):
                call(indexes[name], made(tmp_path / name))
        own_servers.start()
        with all_begun(own_servers.calls, indexes, tmp_path):
            pass
