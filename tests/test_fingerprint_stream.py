"""A stream of batches, signed by worker processes."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hsimhash.errors import HsimhashError, ProfileMismatchError
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.stream import signature_stream

AUTO = Profile.named("auto-1")
TEXTS = [f"我们在图书馆研究第{i}个近似重复网页 and the quick brown fox {i} jumps" * 2 for i in range(700)]


def batches() -> list[list[str]]:
    return [TEXTS[:3], [], TEXTS[3:600], [""], TEXTS[600:]]


@pytest.mark.parametrize(("profile", "workers"), [("auto-1", 1), ("auto-1", 2), ("auto-2", 2)])
def test_each_batch_comes_back_whole_and_in_order(profile: str, workers: int) -> None:
    found = list(signature_stream(Profile.named(profile), batches(), workers))
    for result, batch in zip(found, batches(), strict=True):
        expected = Profile.named(profile).signatures(batch)
        assert list(result) == list(expected)
        assert np.array_equal(result.kinds, expected.kinds)


def test_only_a_bounded_number_of_batches_is_read_ahead() -> None:
    read = 0

    def counted() -> Iterator[list[str]]:
        nonlocal read
        for _ in range(40):
            read += 1
            yield ["text of a page"]

    for done, _ in enumerate(signature_stream(AUTO, counted(), 2), 1):
        assert read - done <= 2 * 2 + 2


def test_one_worker_is_this_process() -> None:
    stream = signature_stream(AUTO, batches(), 1)
    next(stream)
    assert multiprocessing.active_children() == []


def test_no_worker_is_refused() -> None:
    with pytest.raises(ValueError, match="from 1 on, not 0"):
        next(signature_stream(AUTO, [], 0))


def test_a_stream_left_early_leaves_no_worker() -> None:
    stream = signature_stream(AUTO, iter([["a page"]] * 50), 2)
    next(stream)
    stream.close()
    assert multiprocessing.active_children() == []


def test_an_error_in_a_worker_reaches_the_caller() -> None:
    other = replace(Profile.named("zh-1"), name="mine-1", idf_sha256="0" * 64)
    with pytest.raises(ProfileMismatchError, match=r"idf table with SHA-256 0{16}… is not here"):
        list(signature_stream(other, [["我们在图书馆"]], 2))


PROGRAM = """
import multiprocessing, sys
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.stream import signature_stream

def batches():
    yield from [["a page"]] * 6
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    sys.stdin.read()  # hold the stream open
    yield ["a page"]

if __name__ == "__main__":
    found = list(signature_stream(Profile.named("auto-1"), batches(), 2))
    print(len(found), flush=True)
"""


def start(tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a program with two workers that waits on its stdin; return it and their pids."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    program = subprocess.Popen([sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    return program, [int(pid) for pid in program.stdout.readline().split()]


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program, pids = start(tmp_path)
    with program:
        files = [os.pidfd_open(pid) for pid in pids]
        assert len(files) == 2
        program.kill()
        for file in files:
            assert select.select([file], [], [], 120)[0]  # a pid's file is readable once it has ended
            os.close(file)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_workers_outlive_a_signal_to_the_group(sent: signal.Signals, tmp_path: Path) -> None:
    program, pids = start(tmp_path)
    for pid in pids:
        os.kill(pid, sent)
    out, _ = program.communicate("")
    assert out.strip() == "7"


def test_a_killed_worker_is_an_error_and_ends_those_that_ignore_the_end_signal() -> None:
    stream = signature_stream(AUTO, itertools.repeat(["a page"]), 3)
    next(stream)
    pids = [int(child.pid or 0) for child in multiprocessing.active_children()]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    os.kill(pids[0], signal.SIGKILL)
    with pytest.raises(HsimhashError, match="a worker died"):
        deque(stream, maxlen=0)
    assert multiprocessing.active_children() == []
