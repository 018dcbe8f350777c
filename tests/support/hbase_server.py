"""A real HBase for the tests, started by the same script as in the container.

It ends with its last user: every user holds a shared lock on a file, and a separate process that waits for the
exclusive lock stops the server, even if the tests were killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import select
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TextIO

import pytest

ENTRYPOINT = Path(__file__).parents[2] / "docker" / "hbase" / "entrypoint"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss512k -XX:-UsePerfData"
PATIENT = {"HBASE_JVM": QUICK_JVM, "HBASE_START_LIMIT_S": "600"}  # on a busy machine
ENVIRONMENT = "environment.json"  # in the server's folder
PORTS = ("THRIFT1", "THRIFT2", "ZOOKEEPER", "MASTER", "REGIONSERVER")


class HBaseUnavailableError(Exception):
    """This machine cannot run HBase; the message says why."""


@dataclass(frozen=True, slots=True)
class Gateways:
    """The address of an HBase."""

    host: str
    thrift1_port: int
    thrift2_port: int

    @classmethod
    def parse(cls, text: str) -> Gateways:
        """Parse `host:thrift1port:thrift2port`."""
        host, thrift1_port, thrift2_port = text.rsplit(":", 2)
        return cls(host, int(thrift1_port), int(thrift2_port))


@dataclass(frozen=True, slots=True)
class Gateway:
    """An additional gateway of a server: its name for `kill_gateway` and `start_gateway`, and its port."""

    name: str
    port: int


class HBaseServer:
    """ZooKeeper, master and region server in one JVM, and two gateways, on their own ports, in one folder."""

    def __init__(self, folder: Path, gateways: Gateways, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.gateways = gateways
        self.host, self.thrift1_port, self.thrift2_port = gateways.host, gateways.thrift1_port, gateways.thrift2_port
        self._environment = {**PATIENT, **environment, "HBASE_DATA": str(folder)}

    @classmethod
    def planned(cls, folder: Path, settings: Mapping[str, str] | None = None, *, jvm: str = QUICK_JVM) -> HBaseServer:
        """Return a server that is not running yet, on free ports; `settings` add to `hbase-site.xml`."""
        ports = {f"HBASE_{name}_PORT": str(port) for name, port in zip(PORTS, free_ports(len(PORTS)), strict=True)}
        return cls._of(folder, {**ports, "HBASE_SETTINGS": _joined(settings), "HBASE_JVM": jvm})

    @classmethod
    def running(cls, folder: Path) -> HBaseServer | None:
        """Return the server that runs in a folder, if there is one and it answers."""
        try:
            server = cls._of(folder, json.loads((folder / ENVIRONMENT).read_text()))
        except FileNotFoundError:
            return None
        return server if server.is_healthy() else None

    @classmethod
    def _of(cls, folder: Path, environment: Mapping[str, str]) -> HBaseServer:
        ports = (int(environment[f"HBASE_{name}_PORT"]) for name in PORTS[:2])
        return cls(folder, Gateways("127.0.0.1", *ports), environment)

    def is_healthy(self) -> bool:
        """Return whether both gateways and the master answer."""
        return self._command("healthy", is_checked=False).returncode == 0

    def environment(self) -> dict[str, str]:
        """Return the environment for the entry script."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("HBASE_") or name == "HBASE_LIB"
        }
        return {**kept, **self._environment}

    def prepare(self) -> None:
        """Archive the classes of the jars that `make hbase-jars` fetches, unless the archive exists already.

        Raises:
            HBaseUnavailableError: Java or the jars are missing.
        """
        done = self._command("check", is_checked=False)
        if done.returncode != 0:
            raise HBaseUnavailableError(done.stderr.strip().splitlines()[-1].removeprefix("hbase: "))
        self._command("archive")

    def start(self) -> None:
        """Start the server; return when it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / ENVIRONMENT).write_text(json.dumps(self._environment))
        self._command("start")

    def stop(self) -> None:
        """Stop the server and all its gateways; the data stay."""
        self._command("stop")

    def kill(self) -> None:
        """End all processes at once, as a power failure would."""
        for file in sorted((self.folder / "run").glob("*.pid")):
            _kill(int(file.read_text()))
        self.stop()

    def kill_gateway(self, name: str) -> None:
        """End a gateway at once: `thrift1`, `thrift2`, or one that `gateway` started; return when it is gone."""
        _kill(self.pid(name))

    def pid(self, name: str) -> int:
        """Return the pid of a gateway."""
        return int((self.folder / "run" / f"{name}.pid").read_text())

    def start_gateway(self, name: str, *options: str, settings: Mapping[str, str] | None = None) -> None:
        """Start a gateway that was killed; return when it listens. `options` are the gateway's own, such as `-ro`."""
        idl, _, port = name.partition("-")
        own = {"thrift1": self.thrift1_port, "thrift2": self.thrift2_port}
        environment = {} if settings is None else {"HBASE_SETTINGS": _joined(settings)}
        self._command("gateway", name, idl, port or str(own[idl]), *options, environment=environment)

    @contextmanager
    def gateway(self, idl: str, *options: str, settings: Mapping[str, str] | None = None) -> Iterator[Gateway]:
        """Run an additional gateway, `thrift1` or `thrift2`, which a test may kill without disturbing other tests."""
        port = free_ports(1)[0]
        gateway = Gateway(f"{idl}-{port}", port)
        self.start_gateway(gateway.name, *options, settings=settings)
        try:
            yield gateway
        finally:
            self.kill_gateway(gateway.name)

    def shell(self, lines: str) -> int:
        """Run lines in HBase's shell; return its exit code."""
        command = [ENTRYPOINT, "shell", "-n"]
        return subprocess.run(command, env=self.environment(), input=lines, text=True, check=False).returncode

    def program(self) -> str:
        """Return the program that runs HBase's own programs, for --hbase-command."""
        own = {name: value for name, value in self.environment().items() if name.startswith("HBASE_")}
        return shlex.join(["env", *(f"{name}={value}" for name, value in own.items()), str(ENTRYPOINT), "java"])

    def java(self, *words: object) -> str:
        """Run one of HBase's programs; return its output."""
        conf = {"HBASE_CONF": str(self.folder / "conf" / "master")}
        return self._command("java", *map(str, words), environment=conf).stdout

    def stop_when_free(self, lock: Path) -> None:
        """Leave a process behind that stops the server once no process holds a lock on the file."""
        with (self.folder.parent / f"{self.folder.name}.guard.log").open("ab") as log:
            command = ["setsid", "--fork", "flock", lock, ENTRYPOINT, "stop"]
            subprocess.run(
                command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True
            )

    def _command(
        self, *words: str, environment: Mapping[str, str] | None = None, is_checked: bool = True
    ) -> subprocess.CompletedProcess[str]:
        variables = self.environment() | dict(environment or {})
        done = subprocess.run([ENTRYPOINT, *words], env=variables, capture_output=True, text=True, check=False)
        if is_checked and done.returncode != 0:
            raise RuntimeError(f"'{ENTRYPOINT.name} {' '.join(words)}' failed:\n{done.stderr}")
        return done


@contextmanager
def serving(folder: Path, *, jvm: str = QUICK_JVM, settings: Mapping[str, str] | None = None) -> Iterator[HBaseServer]:
    """Run a server in a folder, or join the one that runs there; the last user stops it."""
    folder.mkdir(parents=True, exist_ok=True)
    users, starting = (folder.parent / f"{folder.name}.{name}" for name in ("users", "starting"))
    with users.open("w") as use:
        fcntl.flock(use, fcntl.LOCK_SH)  # waits while the previous server is being stopped
        with starting.open("w") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            server = HBaseServer.running(folder)
            if server is None:
                server = HBaseServer.planned(folder, settings, jvm=jvm)
                server.prepare()
                server.stop_when_free(users)
                server.start()
        try:
            yield server
        finally:
            if _is_last(use):
                server.stop()


@contextmanager
def or_skip() -> Iterator[None]:
    """Skip the test if this machine cannot run HBase, or fail it under REQUIRE_HBASE=1."""
    try:
        yield
    except HBaseUnavailableError as error:
        do_without(f"cannot run HBase: {error}", "REQUIRE_HBASE")


def do_without(reason: str, required_by: str = "REQUIRE_SERVERS") -> NoReturn:
    """Skip the test, or fail it if a variable says that this machine must have what is missing."""
    if os.environ.get(required_by) == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _is_last(use: TextIO) -> bool:
    """Return whether no other process holds the lock; release it if one does."""
    try:
        fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def connections(port: int, *, has_left: bool = False) -> int:
    """Return how many connections a local gateway has open; `has_left` includes those whose client has left.

    The gateway has a thread for each connection of either kind.
    """
    states = {"01", "08"} if has_left else {"01"}  # ESTABLISHED, CLOSE_WAIT
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    return sum(row[1].endswith(f":{port:04X}") and row[3] in states for row in rows)


def free_ports(count: int) -> list[int]:
    """Return free ports below the ephemeral range, whose ports other programs may take before the server binds."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    # Not from the module's generator: Hypothesis seeds it, so two test processes would choose the same ports.
    chosen = random.SystemRandom().sample(range(10_000, first_given), 2_000)
    free = (port for port in chosen if _is_free(port))
    return [next(free) for _ in range(count)]


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _joined(settings: Mapping[str, str] | None) -> str:
    return " ".join(f"{name}={value}" for name, value in (settings or {}).items())


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(process, signal.SIGKILL)
            select.select([process], [], [])  # readable once it has ended
        finally:
            os.close(process)
