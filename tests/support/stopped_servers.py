"""An ingest whose server stops answering in the middle ends on SIGTERM, and can be resumed afterwards."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from hsimhash.index import HSimIndex
from tests.support.command_line import own_process, run_apart, send
from tests.support.processes import stopped, wait_until

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
        time.sleep(0.5)  # the batch has been sent
        process.send_signal(signal.SIGTERM)
        _, talk = process.communicate(timeout=END_S)
    assert (process.returncode, talk.splitlines()[-1]) == (130, b"hsimhash: interrupted")
    assert run_apart(*arguments, given=b"".join(lines)).returncode == 0
    with HSimIndex.open(url) as index:
        assert index.count() == 4_000
