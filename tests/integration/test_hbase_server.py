"""The server that the integration tests and the container share: it answers, fails, ends and comes back."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hsimhash.index import HSimIndex
from tests.support.command_line import ids_in, run
from tests.support.hbase_server import ENTRYPOINT, HBaseServer, or_skip, serving
from tests.support.hbase_tables import table_url
from tests.support.processes import wait_until

TESTS = Path(__file__).parents[1]


def processes(folder: Path) -> set[int]:
    """The processes that belong to the server in a folder."""
    found = set()
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            if f"-Dhsimhash.hbase={folder}\0".encode() in line.read_bytes():
                found.add(int(line.parent.name))
    return found


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
            store = table_url(server, "kept")
            assert run("create-table", "--store", store, "--regions", "1").exit_code == 0
            with HSimIndex.open(store) as index:
                index.add(7, "seven")
            server.kill()
            assert not processes(folder)
            server.start()
            assert ids_in(store) == ["seven"]
            server.kill_gateway("thrift2")
            server.start()  # starts what is missing even though the master is running
            assert ids_in(store) == ["seven"]
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
        assert b"are already running" in second.stderr
        container.send_signal(signal.SIGTERM)
        assert container.wait() == 0
        assert not processes(folder)
        assert not server.is_healthy()
    finally:
        server.stop()
        container.wait()
    assert "Master has completed initialization" in (tmp_path / "log").read_text()  # a container's log includes HBase's


def test_the_lines_for_hbase_shell_make_the_table_there(own_hbase: HBaseServer) -> None:
    store = table_url(own_hbase, "by_shell:pages")
    lines = run("create-table", "--store", store, "--regions", "3", "--print-commands").stdout
    assert own_hbase.shell(f"{lines}describe 'by_shell:missing'\n") == 1  # only the last line fails
    made = run("create-table", "--store", store, "--regions", "5")
    assert made.exit_code == 0
    assert "keeps its 3 regions" in made.stderr
    assert "ok    settings" in run("doctor", "--store", store).stdout
    assert own_hbase.shell(run("compact", "--store", store).stdout) == 0


def test_every_java_process_ends_where_memory_runs_out(own_hbase: HBaseServer) -> None:
    found = processes(own_hbase.folder)
    assert found
    for process in found:
        assert b"\0-XX:+ExitOnOutOfMemoryError\0" in Path(f"/proc/{process}/cmdline").read_bytes()


def test_a_taken_port_is_named(tmp_path: Path, own_hbase: HBaseServer) -> None:
    server = HBaseServer.planned(tmp_path / "hbase")
    taken = f"port {server.thrift2_port} is taken"
    with socket.create_server(("127.0.0.1", server.thrift2_port)), pytest.raises(RuntimeError, match=taken):
        server.start()
    assert not processes(server.folder)


def test_a_failed_start_shows_the_log_and_leaves_nothing(tmp_path: Path, own_hbase: HBaseServer) -> None:
    server = HBaseServer.planned(tmp_path / "hbase", jvm="-XX:+NoSuchOption")
    with pytest.raises(RuntimeError, match="NoSuchOption"):
        server.start()
    assert not processes(server.folder)


@pytest.mark.parametrize(("missing", "reason"), [("java", "Java is not installed"), ("mvn", "jars are not in .*/lib")])
def test_a_missing_java_or_jar_is_named_and_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, reason: str
) -> None:
    for tool in {"basename", "bash", "cat", "cmp", "dirname", "flock", "java", "mkdir", "readlink", "sed"} - {missing}:
        place = shutil.which(tool)
        if place is None:
            pytest.skip(f"no {tool} here")
        (tmp_path / tool).symlink_to(place)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HBASE_LIB", str(tmp_path / "lib"))
    monkeypatch.setenv("REQUIRE_HBASE", "0")
    with pytest.raises(pytest.skip.Exception, match=reason), or_skip(), serving(tmp_path / "hbase"):
        pass
    monkeypatch.setenv("REQUIRE_HBASE", "1")
    with pytest.raises(pytest.fail.Exception, match=reason), or_skip(), serving(tmp_path / "hbase"):
        pass
    assert not (tmp_path / "lib").exists()
