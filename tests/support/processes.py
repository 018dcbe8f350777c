"""Child processes of the tests: a forked child ends with its work, and its errors reach the parent."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

LIMIT_S = 240  # for a child's work, on a busy machine
FAILED = 70
ANSWER_S = 180.0  # time limit for a process of `beside` to begin, and again to end
# Helper processes that serve all tests of a process: each is started once.
_SHARED = b"multiprocessing.resource_tracker", b"hsimhash.processes import fork_children"


def fork(work: Callable[[], object], told: int = 2, *, limit_s: float = LIMIT_S) -> int:
    """Fork a child that does `work` and nothing else, whatever that raises; return its pid.

    The child's exit code is 0, that of a `SystemExit`, or FAILED after any other error, whose traceback goes to the
    descriptor `told`. A child that takes longer than `limit_s` is ended; its current traceback goes there too.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about a fork with threads, which is what is tested
        child = os.fork()
    if child:
        return child
    code = FAILED
    try:
        faulthandler.dump_traceback_later(limit_s, exit=True, file=told)
        work()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        os.write(told, traceback.format_exc().encode())
    finally:
        os._exit(code)  # a child that left this function would run the remaining tests on its parent's pipes


@contextmanager
def forked(work: Callable[[], object], *, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Do `work` in a forked child during the block; the test fails with the child's traceback if it raises."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as told:
        try:
            child = fork(work, writing, limit_s=limit_s)
        finally:
            os.close(writing)
        try:
            yield
            said = told.read().decode(errors="replace")  # returns when the child has ended
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(child, 0)
    assert not said, f"in the forked child:\n{said}"
    assert status == 0, f"the forked child ended with {os.waitstatus_to_exitcode(status)}"


@contextmanager
def beside(
    work: Callable[..., object], given: Sequence[tuple[object, ...]], *, method: str = "spawn"
) -> Iterator[list[Any]]:
    """Run `work(*one, is_over, begun)` for each of `given` in processes during the block.

    Each calls `begun` once, and returns its answer after the event `is_over`, which is set at the end of the block. The
    list has the answers from then on, in any order. An exception in a process is raised here.
    """
    context: Any = multiprocessing.get_context(method)
    is_over, told = context.Event(), context.Queue()
    processes = [context.Process(target=_answer, args=(work, one, is_over, told), daemon=True) for one in given]
    answers: list[Any] = []
    for one in processes:
        one.start()
    try:
        for _ in processes:
            _heard(told)
        yield answers
        is_over.set()
        answers += [_heard(told) for _ in processes]
        for one in processes:
            one.join(ANSWER_S)
    finally:
        for one in processes:
            one.kill()


def spin(is_over: Any, begun: Callable[[], None]) -> None:
    """Keep a core busy, for `beside`; also end when the parent ends, for whatever reason."""
    parent = os.getppid()
    begun()
    while not is_over.is_set() and os.getppid() == parent:
        sum(range(10_000))


def _answer(work: Callable[..., object], given: tuple[object, ...], is_over: Any, told: Any) -> None:
    try:
        told.put(work(*given, is_over, lambda: told.put(None)))
    except BaseException as error:
        told.put(error)  # instead of the answer
        raise


def _heard(told: Any) -> Any:
    answer = told.get(timeout=ANSWER_S)
    if isinstance(answer, BaseException):
        raise answer
    return answer


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Suspend a process during the block: it keeps its connections but does not answer."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def wait_until(
    is_so: Callable[[], bool], process: subprocess.Popen[bytes] | None = None, *, limit_s: float = LIMIT_S
) -> None:
    """Wait until a condition holds; `process`, if given, must not end before that."""
    deadline = time.monotonic() + limit_s
    while not is_so():
        if process is not None and process.poll() is not None:
            assert is_so(), f"it ended before that, with exit code {process.returncode}"
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def read_bytes(pid: int, path: Path) -> int:
    """Return how far a process has read a file; 0 if it does not have it open."""
    with suppress(OSError):  # the process has ended, or has closed the file
        for one in Path(f"/proc/{pid}/fd").iterdir():
            if one.readlink() == path:
                return int(_text(Path(f"/proc/{pid}/fdinfo/{one.name}")).split()[1])
    return 0


def children() -> set[int]:
    """Return the pids of this process's children; a helper that serves all tests is replaced by its own children."""
    found = children_of("self")
    shared = {one for one in found if any(name in _text(Path(f"/proc/{one}/cmdline")) for name in _SHARED)}
    return (found - shared).union(*map(children_of, shared))


def children_of(pid: int | str) -> set[int]:
    """Return the pids of a process's children; empty if it has ended."""
    with suppress(OSError):
        lists = [_text(task / "children") for task in Path(f"/proc/{pid}/task").iterdir()]
        return {int(child) for text in lists for child in text.split()}
    return set()


def _text(path: Path) -> bytes:
    with suppress(OSError):  # the thread or process has ended
        return path.read_bytes()
    return b""
