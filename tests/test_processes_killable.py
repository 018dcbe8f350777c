"""Calls with limits: a call that takes too much, crashes or raises has no result; all others do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import CancelledError, Future
from pathlib import Path

import pytest

from hsimhash.errors import HsimhashError
from hsimhash.processes import CallLimits, KillableWorkers, NoResult

LIMITS = CallLimits(cpu_s=0.5, memory_bytes=64 << 20)


def act(what: str) -> str:
    """Do what a foreign parser might do."""
    match what.partition(" "):
        case "spin", _, _:
            while True:
                pass
        case "match", _, _:  # in C code, where Python's signal handlers do not run
            import re

            re.match("(a*)*b", "a" * 60)
        case "allocate", _, size:
            return str(len(bytes(int(size) << 20)))
        case "keep", _, size:
            globals().setdefault("kept", []).append(b"x" * (int(size) << 20))
        case "raise", _, _:
            raise LookupError("nothing there")
        case "die", _, number:
            os.kill(os.getpid(), int(number))
        case "exit", _, code:
            os._exit(int(code))
        case "pid", _, _:
            return str(os.getpid())
        case "parent", _, _:
            return str(os.getppid())
    return what


def refuse() -> None:
    raise ValueError("lorem needs ipsum; pip install ipsum")


def results(*items: str, count: int = 1) -> list[str | NoResult]:
    with KillableWorkers(act, count, LIMITS) as workers:
        return workers.submit(items).result()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("spin", "within 0.5 s of CPU time"),
        ("match", "within 0.5 s of CPU time"),
        ("allocate 100", "within 64 MiB of memory"),
        ("raise", "because of LookupError: nothing there"),
        ("die 11", "because its process was killed by signal 11"),
        ("die 9", "because its process was killed by signal 9"),
        ("die 15", "because its process was killed by signal 15"),
        ("exit 3", "because its process exited with code 3"),
        ("exit 0", "because its process exited with code 0"),
    ],
)
def test_a_bad_call_has_no_result_and_those_around_it_do(bad: str, why: str) -> None:
    first, found, *rest = results("one", bad, "two", "allocate 10", "three")
    assert (first, rest) == ("one", ["two", str(10 << 20), "three"])
    assert isinstance(found, NoResult)
    assert found.why == why


def test_memory_that_earlier_calls_kept_does_not_count_against_a_later_one() -> None:
    assert results("keep 40", "allocate 50", "keep 40", "allocate 50") == [
        "keep 40",
        str(50 << 20),
        "keep 40",
        str(50 << 20),
    ]


def test_results_come_in_order_from_several_children_at_once() -> None:
    with KillableWorkers(act, 2, LIMITS) as workers:
        futures: list[Future[list[str | NoResult]]] = [
            workers.submit([str(number), "raise", "pid"]) for number in range(20)
        ]
        found = [future.result() for future in futures]
    assert [one[0] for one in found] == [str(number) for number in range(20)]
    assert 1 <= len({one[2] for one in found}) <= 2


def test_no_child_starts_before_there_is_work_and_little_work_takes_one() -> None:
    with KillableWorkers(act, 8, LIMITS) as workers:
        found = {str(workers.submit(["pid"]).result()) for _ in range(5)}
    assert len(found) == 1


def test_what_a_child_cannot_do_without_is_the_callers_error() -> None:
    with (
        KillableWorkers(act, 1, LIMITS, prepare=refuse) as workers,
        pytest.raises(ValueError, match="lorem needs ipsum; pip install ipsum"),
    ):
        workers.submit(["one"]).result()


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def wait_for_end(pid: int) -> None:
    ends = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < ends, "the child still runs"
        os.sched_yield()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_children_end_with_their_parent(number: int) -> None:
    code = (
        "from hsimhash.processes import *; from tests.test_processes_killable import act\n"
        "with KillableWorkers(act, 1, CallLimits(3, 1 << 28)) as workers:\n"
        "    print(workers.submit(['pid']).result()[0], flush=True)\n"
        "    workers.submit(['spin']).result()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.send_signal(number)
        parent.wait()
    wait_for_end(pid)


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_children_end_when_the_block_does_even_in_the_middle_of_a_call() -> None:
    with KillableWorkers(act, 1, CallLimits(600, 1 << 28)) as workers:
        pid = int(str(workers.submit(["pid"]).result()[0]))
        workers.submit(["spin"])
    assert not is_running(pid)


def wait_for_ever() -> None:
    signal.pause()


def test_closing_waits_for_no_process_that_still_prepares() -> None:
    with KillableWorkers(act, 1, LIMITS, prepare=wait_for_ever) as workers:
        begun = workers.submit(["one"])
    with pytest.raises((HsimhashError, CancelledError)):
        begun.result()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_what_has_prepared_serves_later_blocks_and_ends_with_the_program() -> None:
    code = (
        "import os; from hsimhash.processes import *; from tests.test_processes_killable import act\n"
        "for _ in range(2):\n"
        "    with KillableWorkers(act, 1, CallLimits(3, 1 << 28)) as workers:\n"
        "        print(workers.submit(['parent']).result()[0], flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert first == second
    assert not is_running(first)


@pytest.mark.skipif(sys.platform != "linux", reason="its children end with it on Linux alone")
def test_work_goes_on_though_the_process_that_has_prepared_is_killed() -> None:
    with KillableWorkers(act, 2, LIMITS) as workers:
        for _ in range(3):
            parent = int(str(workers.submit(["parent"]).result()[0]))
            os.kill(parent, signal.SIGKILL)
            assert workers.submit(["one", "two"]).result() == ["one", "two"]
