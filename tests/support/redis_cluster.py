"""A Redis Cluster for the tests: masters of its own on free ports, each perhaps with a replica, ended by their ids."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import redis

from tests.support.hbase_server import free_ports
from tests.support.processes import wait_until
from tests.support.redis_server import QUICK, RedisServer, redis_running

SLOTS = 1 << 14


class RedisCluster:
    """Its servers, masters first; a replica follows the master of its number."""

    def __init__(self, servers: Sequence[RedisServer], bus_ports: Sequence[int], masters: int) -> None:
        self.servers, self.bus_ports, self.masters = servers, bus_ports, servers[:masters]
        self._turns = itertools.cycle(self.masters)

    def url(self, prefix: str = "pages", *, options: str = "") -> str:
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in self.servers)
        return f"redis+cluster://{hosts}/0?prefix={prefix}{options}"

    def is_well(self) -> bool:
        """Whether all servers that run know each other, and a master for every slot."""
        return all("cluster_state:ok" in text for text in self._told("INFO"))

    def kill(self) -> None:
        """Kill a master, another one each time, as a machine that fails does."""
        self.killed = next(self._turns)
        self.killed.kill()

    def start(self) -> None:
        """Start again the master that was killed, and wait for the cluster to be well."""
        self.killed.start()
        wait_until(self.is_well)

    def join(self) -> None:
        """Make a cluster of the servers."""
        count, first = len(self.masters), self.servers[0]
        for number, server in enumerate(self.masters):
            low, high = (SLOTS * edge // count for edge in (number, number + 1))
            said(server, "ADDSLOTSRANGE", low, high - 1)
        for server, bus_port in zip(self.servers[1:], self.bus_ports[1:], strict=True):
            said(first, "MEET", "127.0.0.1", server.port, bus_port)
        wait_until(lambda: all(text.count("connected") >= len(self.servers) for text in self._told("NODES")))
        for master, replica in zip(self.masters, self.servers[count:], strict=False):
            said(replica, "REPLICATE", said(master, "MYID").decode())
        wait_until(self.is_well)

    def _told(self, what: str) -> list[str]:
        return [said(server, what).decode() for server in self.servers if server.process is not None]


def said(server: RedisServer, *command: str | int) -> Any:
    """Return the reply to a command of the cluster."""
    with closing(redis.Redis(port=server.port)) as client:
        connection = client.connection_pool.get_connection()  # the client's own calls read what is said
        connection.send_command("CLUSTER", *command)
        return connection.read_response()


@contextmanager
def redis_cluster_running(
    folder: Path, options: Sequence[str] = QUICK, *, masters: int = 3, replicas: int = 0
) -> Iterator[RedisCluster]:
    """Give a cluster that runs during the block."""
    with ExitStack() as stack:
        servers, bus_ports = [], free_ports(masters + replicas)
        for number, bus_port in enumerate(bus_ports):
            own = ("--cluster-enabled", "yes", "--cluster-port", bus_port, "--cluster-node-timeout", 2_000)
            servers.append(stack.enter_context(redis_running(folder / str(number), (*options, *own))))
        cluster = RedisCluster(servers, bus_ports, masters)
        cluster.join()
        yield cluster
