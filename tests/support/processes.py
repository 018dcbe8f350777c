"""Child processes of the tests: a forked one ends with its work, and what it met reaches its parent."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LIMIT_S = 120  # for a child's work, on a busy machine
FAILED = 70
RESOURCE_TRACKER = b"multiprocessing.resource_tracker"  # serves all tests of a process


def fork(work: Callable[[], object], told: int = 2, *, limit_s: float = LIMIT_S) -> int:
    """Fork a child that does `work` and nothing else, whatever that raises; return its pid.

    Its exit code is 0, that of a `SystemExit`, or FAILED after any other error. The traceback of that goes to the
    descriptor `told`, as does the place that a child has reached that takes longer than `limit_s` and is ended for it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads: what is tested
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
        os._exit(code)  # a child that left this function would run the rest of the tests on its parent's pipes


@contextmanager
def forked(work: Callable[[], object], *, limit_s: float = LIMIT_S) -> Iterator[None]:
    """Do `work` in a forked child beside the block; its error is one of the test, with the child's traceback."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as told:
        try:
            child = fork(work, writing, limit_s=limit_s)
        finally:
            os.close(writing)
        try:
            yield
            said = told.read().decode(errors="replace")  # until the child has ended
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            _, status = os.waitpid(child, 0)
    assert not said, f"in the forked child:\n{said}"
    assert status == 0, f"the forked child ended with {os.waitstatus_to_exitcode(status)}"


def children() -> set[int]:
    """Return the pids of this process's children."""
    lists = (task / "children" for task in Path("/proc/self/task").iterdir())
    found = {int(pid) for text in map(_text, lists) for pid in text.split()}
    return {pid for pid in found if RESOURCE_TRACKER not in _text(Path(f"/proc/{pid}/cmdline"))}


def _text(path: Path) -> bytes:
    with suppress(OSError):  # the thread or process has ended
        return path.read_bytes()
    return b""
