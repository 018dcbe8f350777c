"""Commands whose server stops answering in the middle end when they are asked to; an ingest continues afterwards."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from hsimhash.index import HSimIndex
from tests.support.command_line import own_process, run_apart, send
from tests.support.postgresql_server import PostgresqlServer
from tests.support.processes import stopped, wait_until
from tests.support.redis_server import RedisServer
from tests.support.serve_process import JSON, served

pytestmark = pytest.mark.together
END_S = 30.0  # far less than a job waits for a server


def ended_while_stopped(url: str, pids: Callable[[], Sequence[int]], folder: Path) -> None:
    lines = [f"doc {number}\t{number * 0x9E3779B97F4A7C15 % 2**64:016x}\n".encode() for number in range(4_000)]
    arguments = ["ingest", "-", "--format", "fingerprints", "--on-duplicate", "tag"]
    arguments += ["--job", str(folder / "job"), "--store", url]
    tags = folder / "job" / "tags.jsonl"
    process = own_process(*arguments)
    send(process, b"".join(lines[:2_000]))
    wait_until(lambda: tags.exists() and tags.stat().st_size > 0, process)
    with ExitStack() as stack:
        for pid in pids():
            stack.enter_context(stopped(pid))
        send(process, b"".join(lines[2_000:]))
        time.sleep(0.5)  # the batch is on its way
        process.send_signal(signal.SIGTERM)
        _, talk = process.communicate(timeout=END_S)
    assert (process.returncode, talk.splitlines()[-1]) == (130, b"hsimhash: interrupted")
    assert run_apart(*arguments, given=b"".join(lines)).returncode == 0
    with HSimIndex.open(url) as index:
        assert index.count() == 4_000


def test_redis(redis_server: RedisServer, tmp_path: Path) -> None:
    ended_while_stopped(redis_server.url("stopped"), lambda: [redis_server.process.pid], tmp_path)


def test_postgresql(postgresql: PostgresqlServer, tmp_path: Path) -> None:
    ended_while_stopped(postgresql.url("stopped"), lambda: [postgresql.process.pid, *postgresql.children()], tmp_path)


def test_serve_ends_though_a_call_waits(redis_server: RedisServer) -> None:
    url = redis_server.url("waiting")
    HSimIndex.create(url).close()
    with served(url) as serving, stopped(redis_server.process.pid):
        caller = serving.caller()
        caller.connection.request("POST", "/query", b'{"fingerprint": "0000000000000000"}', {"Content-Type": JSON})
        time.sleep(0.5)  # the call is on its way
        serving.process.send_signal(signal.SIGTERM)
        assert caller.connection.getresponse().status == 503
        assert serving.process.wait(END_S / 2) == 0
