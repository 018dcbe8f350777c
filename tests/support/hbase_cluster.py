"""A real HBase of several processes over HDFS, whose region servers and master can be killed one by one.

NameNode, DataNodes, ZooKeeper, master, region servers and Thrift2 gateways, each in its own JVM, with the jars that
`docker/hbase/entrypoint jars` fetches.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hsimhash.errors import HsimhashError
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.opening import open_gateway
from tests.support.hbase_server import ENTRYPOINT, QUICK_JVM, HBaseServer, free_ports
from tests.support.processes import wait_until

SESSION_MS = 6_000  # until ZooKeeper reports a killed region server to the master; HBase's default is 90 s
START_LIMIT_S = 240.0
END_LIMIT_S = 30.0
_ROLES = {
    "namenode": ("org.apache.hadoop.hdfs.server.namenode.NameNode", "192m"),
    "datanode": ("org.apache.hadoop.hdfs.server.datanode.DataNode", "192m"),
    "zookeeper": ("org.apache.hadoop.hbase.zookeeper.HQuorumPeer", "128m"),
    "master": ("org.apache.hadoop.hbase.master.HMaster", "512m"),
    "regionserver": ("org.apache.hadoop.hbase.regionserver.HRegionServer", "512m"),
    "thrift2": ("org.apache.hadoop.hbase.thrift2.ThriftServer", "256m"),
}
_PORTS = ("namenode", "namenode_http", "zookeeper", "master")
_DATANODE_PORTS = ("", "_ipc", "_http")
_SKEWED = Path(__file__).with_name("SkewedRegionServer.java")


class HBaseCluster:
    """The processes of one cluster, in their own folder; see `cluster`."""

    host = "127.0.0.1"

    def __init__(self, folder: Path, region_servers: int, datanodes: int, gateways: int) -> None:
        self.folder = folder
        self.region_servers = [f"regionserver{number}" for number in range(region_servers)]
        self.datanodes = [f"datanode{number}" for number in range(datanodes)]
        self.gateways = [f"thrift2-{number}" for number in range(gateways)]
        datanode_ports = (f"{name}{kind}" for name in self.datanodes for kind in _DATANODE_PORTS)
        names = (*_PORTS, *datanode_ports, *self.region_servers, *self.gateways)
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        self.thrift2_ports = [self._ports[name] for name in self.gateways]
        self.thrift2_port = self.thrift2_ports[0]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all processes; return when the master is ready."""
        self._configure()
        self._run("namenode", "-format", "-force", "-nonInteractive").wait(START_LIMIT_S)
        self._launch("namenode")
        self._launch("zookeeper")
        for name in self.datanodes:
            self.start_datanode(name)
        for name in ("namenode", *self.datanodes, "zookeeper"):
            self._await(name, self._listens)
        self._launch("master", "start")
        for name in self.region_servers:
            self.start_region_server(name)
        for name in self.gateways:
            self._launch(name, "start", "--bind", self.host, "--port", str(self._ports[name]), "--infoport", "-1")
            self._await(name, self._listens)
        self._await(self.gateways[0], self._is_ready)

    def start_datanode(self, name: str) -> None:
        """Start a DataNode with the blocks that it already has."""
        places = zip(("address", "ipc.address", "http.address"), _DATANODE_PORTS, strict=True)
        ports = {f"dfs.datanode.{key}": f"{self.host}:{self._ports[f'{name}{kind}']}" for key, kind in places}
        self._launch(name, *_given({**ports, "dfs.datanode.data.dir": f"file://{self.folder}/{name}"}))

    def start_region_server(
        self, name: str, settings: Mapping[str, object] | None = None, *, skew_s: float | None = None
    ) -> None:
        """Start a region server; it takes regions once it has registered with the master.

        `settings` apply only to it; its clock is `skew_s` ahead, or behind if negative.
        """
        given = _given({"hbase.regionserver.port": self._ports[name], **(settings or {})})
        if skew_s is None:
            self._launch(name, *given, "start")
        else:
            self._launch(name, str(round(1_000 * skew_s)), *given, "start", main=str(_SKEWED))

    def shell(self, lines: str) -> None:
        """Run lines in HBase's shell; raise an error if one of them fails."""
        command, environment = [ENTRYPOINT, "shell", "-n"], self._environment("256m")
        done = subprocess.run(command, env=environment, input=lines, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"hbase shell, given {lines!r}: {done.stdout[-1_000:]}{done.stderr[-1_000:]}")

    def kill(self, name: str) -> None:
        """End a process at once, as a power failure would."""
        self._processes[name].kill()
        self._processes[name].wait(END_LIMIT_S)

    def pid(self, name: str) -> int:
        """Return the pid of a process."""
        return self._processes[name].pid

    def log(self, name: str) -> str:
        """Return everything that a process has logged, over all its starts."""
        return (self.folder / "log" / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        """End all processes; the data cannot be used afterwards."""
        for process in reversed(self._processes.values()):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(END_LIMIT_S)

    def _configure(self) -> None:
        conf, port = self.folder / "conf", self._ports
        for name in ("log", "zookeeper", "tmp", "run"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "run" / "environment").touch()  # the script's `shell` needs this file, the pid and the folder
        for name in ("hdfs", "datanode"):  # their web servers need these folders, which are not in the jars
            (conf / "webapps" / name).mkdir(parents=True, exist_ok=True)
        (conf / "master").symlink_to(conf)
        root = f"hdfs://{self.host}:{port['namenode']}"
        _write(conf / "core-site.xml", {"fs.defaultFS": root, "hadoop.tmp.dir": self.folder / "tmp"})
        _write(
            conf / "hdfs-site.xml",
            {
                "dfs.replication": min(len(self.datanodes), 2),
                "dfs.namenode.name.dir": f"file://{self.folder}/namenode",
                "dfs.namenode.http-address": f"{self.host}:{port['namenode_http']}",
                "dfs.namenode.safemode.extension": 0,
                "dfs.permissions.enabled": "false",
                "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            },
        )
        _write(
            conf / "hbase-site.xml",
            {
                "hbase.cluster.distributed": "true",
                "hbase.rootdir": f"{root}/hbase",
                "fs.defaultFS": root,
                "dfs.replication": min(len(self.datanodes), 2),
                "hbase.tmp.dir": self.folder / "tmp",
                "hbase.zookeeper.quorum": self.host,
                "hbase.zookeeper.property.clientPort": port["zookeeper"],
                "hbase.zookeeper.property.dataDir": self.folder / "zookeeper",
                "hbase.zookeeper.property.tickTime": 2_000,
                "hbase.zookeeper.property.minSessionTimeout": 1_000,
                "zookeeper.session.timeout": SESSION_MS,
                "hbase.master.hostname": "localhost",
                "hbase.unsafe.regionserver.hostname": "localhost",
                "hbase.master.ipc.address": self.host,
                "hbase.regionserver.ipc.address": self.host,
                "hbase.master.port": port["master"],
                "hbase.master.info.port": -1,
                "hbase.master.maxclockskew": 86_400_000,  # HBase does not check clocks that go wrong later either
                "hbase.regionserver.info.port": -1,
                "hbase.thrift.info.port": -1,
                "hbase.master.wait.on.regionservers.mintostart": len(self.region_servers),
                "hbase.master.wait.on.regionservers.interval": 100,
                "hbase.regionserver.msginterval": 500,
            },
        )

    def _environment(self, heap: str) -> dict[str, str]:
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("HBASE_") or key == "HBASE_LIB"},
            "HBASE_DATA": str(self.folder),
            "HBASE_CONF": str(self.folder / "conf"),
            "HBASE_JVM": f"-Xmx{heap} {QUICK_JVM}",
        }

    def _run(self, name: str, *arguments: str, main: str = "") -> subprocess.Popen[bytes]:
        usual, heap = next(found for role, found in _ROLES.items() if name.startswith(role))
        with (self.folder / "log" / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [ENTRYPOINT, "java", main or usual, *arguments],
                env=self._environment(heap),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _launch(self, name: str, *arguments: str, main: str = "") -> None:
        self._processes[name] = self._run(name, *arguments, main=main)
        (self.folder / "run" / f"{name}.pid").write_text(str(self.pid(name)))

    def _await(self, name: str, is_there: Callable[[str], bool]) -> None:
        try:
            wait_until(lambda: is_there(name), self._processes[name], limit_s=START_LIMIT_S)
        except AssertionError as error:
            raise RuntimeError(f"{name} did not start: {self.log(name)[-1_000:]}") from error

    def _listens(self, name: str) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self._ports[name])) == 0

    def _is_ready(self, _: str) -> bool:
        """Whether the master answers through the gateway."""
        try:
            with open_gateway(Address.parse(f"hbase://{self.host}:{self.thrift2_port}/none?timeout=20s")) as gateway:
                return bool(gateway.namespaces())
        except HsimhashError:
            return False


def _given(settings: Mapping[str, object]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-D", f"{name}={value}")]


def _write(path: Path, settings: Mapping[str, object]) -> None:
    rows = "".join(
        f"  <property><name>{name}</name><value>{value}</value></property>\n" for name, value in settings.items()
    )
    path.write_text(f"<configuration>\n{rows}</configuration>\n")


@contextmanager
def cluster(folder: Path, *, region_servers: int = 2, datanodes: int = 1, gateways: int = 1) -> Iterator[HBaseCluster]:
    """Run a cluster in a new folder; its processes end with the block."""
    folder.mkdir(parents=True)
    HBaseServer.planned(folder).prepare()
    made = HBaseCluster(folder.resolve(), region_servers, datanodes, gateways)
    try:
        made.start()
        yield made
    finally:
        made.stop()
