"""The server of the integration tests and of the container, which are one: it answers, breaks, ends, comes back."""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import happybase
import pytest
import thriftpy2
from thriftpy2.rpc import make_client
from thriftpy2.transport import TFramedTransportFactory

from tests.support.command_line import run
from tests.support.hbase_server import ENTRYPOINT, Gateways, HBaseServer, or_skip, serving
from tests.support.processes import wait_until

TESTS = Path(__file__).parents[1]
PATIENCE_S = 120
ROWS = {b"a": {b"f:": b"1"}, b"b": {b"f:": b"2"}}
IDL = thriftpy2.load_fp(
    io.StringIO(
        """
        exception TIOError { 1: optional string message }
        struct TColumnValue { 1: required binary family, 2: required binary qualifier, 3: required binary value }
        struct TPut { 1: required binary row, 2: required list<TColumnValue> columnValues }
        service Gateway {
            i32 getThriftServerType()
            void put(1: required binary table, 2: required TPut tput) throws (1: TIOError io)
        }
        """
    ),
    "gateway_thrift",
)


def connect(port: int, **options: object) -> object:
    return make_client(IDL.Gateway, "127.0.0.1", port, timeout=1000 * PATIENCE_S, **options)


def kind(port: int, **options: object) -> int:
    """Which Thrift interface a gateway says it has: 1 or 2."""
    client = connect(port, **options)
    try:
        return client.getThriftServerType()
    finally:
        client.close()


def rows_of(gateways: Gateways, table: str) -> dict[bytes, dict[bytes, bytes]]:
    connection = happybase.Connection(gateways.host, gateways.thrift1_port, timeout=1000 * PATIENCE_S)
    try:
        return dict(connection.table(table).scan())
    finally:
        connection.close()


def shell(server: HBaseServer, lines: str) -> int:
    """Give lines to HBase's shell; return its exit code."""
    command = [ENTRYPOINT, "shell", "-n"]
    return subprocess.run(command, env=server.environment(), input=lines, text=True, check=False).returncode


def write(gateways: Gateways, table: str) -> None:
    connection = happybase.Connection(gateways.host, gateways.thrift1_port, timeout=1000 * PATIENCE_S)
    try:
        connection.create_table(table, {"f": {}})
        for row, cells in ROWS.items():
            connection.table(table).put(row, cells)
    finally:
        connection.close()


def processes(folder: Path) -> set[int]:
    """The processes that belong to the server in a folder."""
    found = set()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"-Dhsimhash.hbase={folder}\0".encode() in line.read_bytes():
                found.add(int(line.parent.name))
        except OSError:
            continue
    return found


def test_both_gateways_say_which_they_are(hbase: Gateways) -> None:
    assert (kind(hbase.thrift1_port), kind(hbase.thrift2_port)) == (1, 2)


def test_a_killed_gateway_refuses_connections_until_it_is_started_again(own_hbase: HBaseServer) -> None:
    with own_hbase.gateway("thrift2") as gateway:
        own_hbase.kill_gateway(gateway.name)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", gateway.port))
        own_hbase.start_gateway(gateway.name)
        assert kind(gateway.port) == 2


def test_a_gateway_takes_options_and_settings(own_hbase: HBaseServer) -> None:
    settings = {"hbase.thrift.server.socket.read.timeout": "200"}
    with own_hbase.gateway("thrift2", "-ro", "-f", settings=settings) as gateway:
        client = connect(gateway.port, trans_factory=TFramedTransportFactory())
        with pytest.raises(IDL.TIOError, match=r"(?i)read-only"):
            client.put(b"any", IDL.TPut(row=b"r", columnValues=[IDL.TColumnValue(b"f", b"", b"")]))
        client.close()
        with socket.create_connection(("127.0.0.1", gateway.port), PATIENCE_S) as idle:
            assert idle.recv(1) == b""  # the gateway cuts it, far before the usual minute


USER = """
import sys
from pathlib import Path
from tests.support.hbase_server import serving
with serving(Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_killed_server_kept_its_rows_and_ends_with_its_killed_user(tmp_path: Path, own_hbase: HBaseServer) -> None:
    folder = tmp_path / "hbase"
    command = [sys.executable, "-c", USER, folder]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(TESTS)}
    ) as user:
        try:
            assert user.stdout is not None
            assert user.stdout.readline() == b"ready\n"
            server = HBaseServer.running(folder)
            assert server is not None
            write(server.gateways, "kept")
            server.kill()
            assert not processes(folder)
            server.start()
            assert rows_of(server.gateways, "kept") == ROWS
        finally:
            user.kill()
    wait_until(lambda: not processes(folder))


def test_in_the_foreground_it_is_healthy_and_ends_at_sigterm(tmp_path: Path, own_hbase: HBaseServer) -> None:
    folder = tmp_path / "hbase"
    server = HBaseServer.planned(folder)
    with (tmp_path / "log").open("w") as log:
        container = subprocess.Popen([ENTRYPOINT, "run"], env=server.environment(), stdout=log, stderr=log)
    try:
        wait_until(server.is_healthy)
        second = subprocess.run([ENTRYPOINT, "run"], env=server.environment(), capture_output=True, check=False)
        assert second.returncode == 1
        assert b"run already" in second.stderr
        container.send_signal(signal.SIGTERM)
        assert container.wait() == 0
        assert not processes(folder)
        assert not server.is_healthy()
    finally:
        server.stop()
        container.wait()
    assert "Master has completed initialization" in (tmp_path / "log").read_text()  # a container's log is HBase's


def test_the_lines_for_hbase_shell_make_the_table_there(own_hbase: HBaseServer) -> None:
    store = f"hbase://{own_hbase.host}:{own_hbase.thrift2_port}/by_shell:pages"
    lines = run("create-table", "--store", store, "--regions", "3", "--print-shell").stdout
    assert shell(own_hbase, lines) == 0
    assert run("create-table", "--store", store).exit_code == 0
    compact = run("compact", "--store", store).stdout
    assert shell(own_hbase, compact) == 0
    assert "ok    settings" in run("doctor", "--store", store).stdout
    assert shell(own_hbase, "describe 'by_shell:missing'\n") == 1


def test_every_java_process_is_told_to_end_where_memory_runs_out(own_hbase: HBaseServer) -> None:
    for process in processes(own_hbase.folder):
        assert b"\0-XX:+ExitOnOutOfMemoryError\0" in Path(f"/proc/{process}/cmdline").read_bytes()


def test_a_taken_port_is_named(tmp_path: Path, own_hbase: HBaseServer) -> None:
    server = HBaseServer.planned(tmp_path / "hbase")
    taken = f"port {server.thrift2_port} is taken"
    with socket.create_server(("127.0.0.1", server.thrift2_port)), pytest.raises(RuntimeError, match=taken):
        server.start()
    assert not processes(server.folder)


def test_a_failed_start_shows_the_log_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_hbase: HBaseServer
) -> None:
    monkeypatch.setattr("tests.support.hbase_server.QUICK_JVM", "-XX:+NoSuchOption")
    server = HBaseServer.planned(tmp_path / "hbase")
    with pytest.raises(RuntimeError, match="NoSuchOption"):
        server.start()
    assert not processes(server.folder)


@pytest.mark.parametrize("missing", ["java", "mvn"])
def test_a_machine_without_java_or_maven_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    for tool in {"basename", "bash", "cat", "cmp", "dirname", "flock", "java", "mkdir", "readlink", "sed"} - {missing}:
        place = shutil.which(tool)
        if place is None:
            pytest.skip(f"no {tool} here")
        (tmp_path / tool).symlink_to(place)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HBASE_LIB", str(tmp_path / "lib"))
    monkeypatch.setenv("REQUIRE_HBASE", "0")
    name = {"java": "Java", "mvn": "Maven"}[missing]
    with pytest.raises(pytest.skip.Exception, match=f"no {name}"), or_skip(), serving(tmp_path / "hbase"):
        pass
    monkeypatch.setenv("REQUIRE_HBASE", "1")
    with pytest.raises(pytest.fail.Exception, match=f"no {name}"), or_skip(), serving(tmp_path / "hbase"):
        pass
