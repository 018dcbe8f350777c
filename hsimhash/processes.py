"""Worker processes that end with their parent, which handles signals to the process group: `Workers`, `completed`.

Workers are spawned, not forked, so they do not inherit locks that other threads hold. `KillableWorkers` limits each
call, for code that may never return, use up all memory, or crash. Its children are forked from a process with a single
thread.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import pickle
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from multiprocessing import parent_process, spawn
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, ParamSpec, TypeVar

from hsimhash.errors import HsimhashError, Remedy, StopAskedError

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
_LOOK_S = 1.0  # seconds between checks for whether to stop
_OF_THE_GROUP = (signal.SIGINT, signal.SIGTERM)  # from Ctrl-C, `timeout` or a service manager; handled by the parent


class Workers(AbstractContextManager["Workers"]):
    """Up to `count` processes, started when needed. The `with` block raises `HsimhashError` if one of them has died."""

    def __init__(self, count: int) -> None:
        self._pool = ProcessPoolExecutor(count, _Spawned(), initializer=_start)

    def submit(self, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> Future[T]:
        """Call a function in a worker."""
        # This may start workers, which inherit the signal mask. Otherwise a signal to the process group could kill a
        # worker while it starts.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_GROUP)
        try:
            return self._pool.submit(function, *given, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, exc_type: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise HsimhashError(
                "a worker process died, perhaps because memory ran out; use fewer " + Remedy("workers", "--workers")
            ) from error


def completed(futures: Iterable[Future[T]], stop: Callable[[], bool] = lambda: False) -> Iterator[Future[T]]:
    """Yield futures as they complete; raise `StopAskedError` as soon as `stop` returns true."""
    left = set(futures)
    while left:
        if stop():
            raise StopAskedError("stopped while workers were running")
        done, left = wait(left, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        yield from done


class _Worker(SpawnProcess):
    def terminate(self) -> None:
        """Kill the process. When a worker dies, the pool calls this for the other workers, which ignore SIGTERM."""
        self.kill()


class _Spawned(SpawnContext):
    Process = _Worker


def _start() -> None:
    for number in _OF_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_GROUP)
    end_with_parent()


def end_with_parent() -> None:
    """End this process when its parent is killed. Nothing else would end it, because it holds its own pipes open."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


# Calls with limits.

_ENDED = "the worker processes were stopped"
_MOST_STARTS = 3  # maximum number of attempts to start a child that is killed before it is ready
_NO_MEMORY = 70  # exit code of a child that ran out of memory and cannot report it
_MEMORY_IN_USE = Path("/proc/self/statm")  # in pages; the sixth number is the process's data segment
_IDLE_S = 30.0  # a prepared process ends after this time without calls
_MOST_PREPARED = 4  # maximum number of idle prepared processes
_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 64 << 20  # free memory at the end of the heap that a child keeps
_MOST_MMAP_THRESHOLD = 32 << 20  # the greatest value that glibc accepts
_PREPARED = """\
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from hsimhash.processes import fork_children
fork_children(int(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """Limits for one call.

    Args:
        cpu_s: CPU time in seconds.
        memory_bytes: Memory, in addition to what the process used before its first call. Only Linux enforces this.
    """

    cpu_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class NoResult:
    """Stands in for a missing result. `why` completes a sentence such as "no text was found"."""

    why: str
    # Whether a fresh process may return a different result, because earlier items used up memory or the process was
    # killed.
    may_change: bool = False


class _Setup(NamedTuple):
    """The setup of a worker process. Calls with the same setup may share a process."""

    work: bytes  # the function and its `prepare`, pickled
    path: tuple[str, ...]  # `sys.path`


class KillableWorkers(AbstractContextManager["KillableWorkers[S, T]"], Generic[S, T]):
    """Child processes that apply a function to items. Each call has limits.

    A child dies if its call exceeds the limits, or if it crashes or is killed. That item gets a `NoResult`, and a new
    child continues with the next item. If the child had already processed other items, the item is tried once more in a
    fresh child, because earlier items may have filled the memory. Each child sets limits on itself, and the kernel
    enforces them, even in C code: it kills a child with SIGPROF when its CPU time is used up, and refuses it more
    memory.

    A child starts only when there is work and no other child is free. It is outside the process group, so Ctrl-C does
    not reach it. It exits at the end of the block, or when the parent is killed and the connection breaks. It imports
    the function's module, but not the program's main module.

    Importing and preparing may take longer than the work. So one process does both, and forks a child whenever one is
    needed. This process stays alive for a while after the block, so that other blocks with the same function can use
    it. It ends with the program.

    Args:
        function: Function to apply to each item. The function, items and results are pickled.
        count: Number of children.
        limits: Limits of each call.
        prepare: Function to call before the first item, without limits. If it raises an exception, so does every
            future.
    """

    def __init__(
        self, function: Callable[[S], T], count: int, limits: CallLimits, prepare: Callable[[], object] | None = None
    ) -> None:
        self._setup = _Setup(pickle.dumps((function, prepare)), tuple(sys.path))
        self._limits = limits
        self._threads = ThreadPoolExecutor(count)  # one for each working child
        self._lock = threading.Lock()
        self._children: set[_Child] = set()
        self._free: list[_Child] = []
        self._is_closed = False

    def submit(self, items: Sequence[S]) -> Future[list[T | NoResult]]:
        """Apply the function to items, in order, in one child.

        The future raises `ValueError` with the message of `prepare`, or `HsimhashError` if no child can start.
        """
        return self._threads.submit(self._results, list(items))

    def close(self) -> None:
        """Kill the children."""
        with self._lock:
            self._is_closed = True
            children = list(self._children)
        _stop_preparing(self._setup)
        for child in children:
            child.end()
        self._threads.shutdown(cancel_futures=True)
        for child in self._children:
            child.close()
        self._children.clear()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _results(self, items: list[S]) -> list[T | NoResult]:
        found: list[T | NoResult] = []
        while len(found) < len(items):
            child = self._child()
            is_fresh = child.is_fresh
            try:
                for result in child.results(items[len(found) :]):
                    if isinstance(result, NoResult) and result.may_change and not is_fresh:
                        break
                    found.append(result)
                    is_fresh = False
                else:
                    self._give_back(child)
                    continue
            except (EOFError, OSError):
                why = child.death(self._limits)
                if is_fresh or not why.may_change:
                    found.append(why)
            self._end(child)
        return found

    def _child(self) -> _Child:
        """Return a child that is ready. If a child is killed while it starts, try again a few times."""
        for tries_left in reversed(range(_MOST_STARTS)):
            with self._lock:
                if self._is_closed:
                    raise HsimhashError(_ENDED)
                while self._free:
                    if (child := self._free.pop()).is_alive():
                        return child
                    self._children.discard(child)
                    child.end()
                    child.close()
                origin = _prepared(self._setup)
            try:
                child = origin.child(self._limits)
                break
            except HsimhashError:
                if not tries_left:
                    raise
        with self._lock:
            self._children.add(child)
            if not self._is_closed:
                return child
        self._end(child)
        raise HsimhashError(_ENDED)

    def _give_back(self, child: _Child) -> None:
        with self._lock:
            self._free.append(child)

    def _end(self, child: _Child) -> None:
        child.end()
        with self._lock:
            self._children.discard(child)
        child.close()


class _Child:
    """A child process, and the connection to it."""

    def __init__(self, origin: _Prepared, pid: int, connection: Connection) -> None:
        self.is_fresh = True
        self._origin, self._pid, self._connection = origin, pid, connection
        self._code: int | None = None
        self._lock = threading.Lock()

    def results(self, items: Sequence[object]) -> Iterator[Any]:
        """Yield a result for each item; raise `EOFError` or `OSError` if the child dies."""
        self._connection.send(items)
        for _ in items:
            yield self._connection.recv()
            self.is_fresh = False

    def death(self, limits: CallLimits) -> NoResult:
        """Return why the child died."""
        code = self.end()
        if code == -signal.SIGPROF:
            return NoResult(f"within {limits.cpu_s:g} s of CPU time")
        if code == _NO_MEMORY:
            return _beyond_memory(limits)
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        return NoResult(f"because its process {how}", may_change=True)

    def is_alive(self) -> bool:
        return not self._connection.poll()  # it sends only replies, so readable means that it has exited

    def end(self) -> int:
        """Kill the child unless it is dead; return its exit code."""
        with self._lock:
            if self._code is None:
                self._code = self._origin.end(self._pid)
            return self._code

    def close(self) -> None:
        """Close the connection; no thread may be reading from it any more."""
        self._connection.close()


class _Prepared:
    """A process that has done the imports and preparation for calls, and forks the children that run the calls."""

    def __init__(self, setup: _Setup) -> None:
        self.children = 0
        self.is_ready = False
        self._setup = setup
        self._lock = threading.Lock()
        own, other = socket.socketpair()
        with other:
            executable = os.fsdecode(spawn.get_executable() or sys.executable)
            self._process = subprocess.Popen(
                [executable, "-P", "-c", _PREPARED, str(other.fileno()), json.dumps(setup.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                process_group=0,
            )
        self._connection = Connection(own.detach())

    def child(self, limits: CallLimits) -> _Child:
        """Fork a child. Raise `ValueError` if `prepare` fails, or `HsimhashError` if the process has exited."""
        own, other = socket.socketpair()
        with self._lock, other:
            try:
                if not self.is_ready:
                    self._connection.send_bytes(self._setup.work)
                    if refusal := self._connection.recv():
                        raise ValueError(refusal)
                    self.is_ready = True
                self._connection.send(limits)
                send_handle(self._connection, other.fileno(), None)
                pid = self._connection.recv()
            except (EOFError, OSError, ValueError) as error:
                own.close()
                code = self.close()
                if isinstance(error, ValueError):
                    raise
                raise HsimhashError(
                    f"a worker process exited with code {code} while it started: "
                    "perhaps the limit on memory ('ulimit -v') or on processes ('ulimit -u') is too low"
                ) from error
            self.children += 1
            return _Child(self, pid, Connection(own.detach()))

    def end(self, pid: int) -> int:
        """Kill a child unless it is dead; return its exit code."""
        with self._lock:
            self.children -= 1
            try:
                self._connection.send(pid)
                return int(self._connection.recv())
            except (EOFError, OSError):
                return -signal.SIGKILL  # children die with this process

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process and its children."""
        self._process.kill()

    def close(self) -> int:
        """End the process; return its exit code."""
        self.kill()
        self.leave()
        return self._process.wait()

    def leave(self) -> None:
        """Close the connection without ending the process, which in a forked child still belongs to the parent."""
        self._connection.close()


_processes: dict[_Setup, _Prepared] = {}  # processes that have prepared or are preparing, the most recently used last
_processes_lock = threading.Lock()
_of_parent: list[_Prepared] = []  # in a forked child: processes of the parent; deleting one would wait for it


def _prepared(setup: _Setup) -> _Prepared:
    """Return the process for calls with this setup; start one if needed."""
    with _processes_lock:
        for key, one in list(_processes.items()):
            if not one.is_alive() or (key != setup and not one.children and len(_processes) >= _MOST_PREPARED):
                _processes.pop(key).close()
        found = _processes.pop(setup, None) or _Prepared(setup)
        _processes[setup] = found
        return found


def _stop_preparing(setup: _Setup) -> None:
    """Kill a process that is still preparing, so that no thread waits for it. Other pools start a new one if needed."""
    with _processes_lock:
        if (one := _processes.get(setup)) and not one.is_ready:
            one.kill()


@atexit.register
def end_prepared() -> None:
    """End the processes that are waiting for more calls, so that the resources they used count towards this process."""
    with _processes_lock:
        while _processes:
            _processes.popitem()[1].close()


def _after_fork_in_child() -> None:
    for one in _processes.values():
        one.leave()
    _of_parent.extend(_processes.values())
    _processes.clear()
    _processes_lock.release()


os.register_at_fork(
    before=_processes_lock.acquire, after_in_parent=_processes_lock.release, after_in_child=_after_fork_in_child
)


def _beyond_memory(limits: CallLimits) -> NoResult:
    return NoResult(f"within {limits.memory_bytes >> 20} MiB of memory", may_change=True)


def fork_children(descriptor: int) -> None:
    """Prepare for calls, then fork children that serve them until the parent ends. A `_Prepared` runs this."""
    connection = Connection(descriptor)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    children = 0
    with suppress(EOFError, OSError):  # the parent ended
        try:
            function, prepare = pickle.loads(connection.recv_bytes())  # noqa: S301 (from our own parent)
            if prepare is not None:
                prepare()
        except Exception as error:
            connection.send(str(error))
            return
        connection.send("")
        while children or connection.poll(_IDLE_S):
            asked = connection.recv()
            if isinstance(asked, CallLimits):
                calls = recv_handle(connection)
                if not (pid := os.fork()):
                    connection.close()
                    _serve_calls(calls, function, asked)
                os.close(calls)
                connection.send(pid)
                children += 1
            else:
                with suppress(ProcessLookupError):
                    os.kill(asked, signal.SIGKILL)
                connection.send(os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]))
                children -= 1


def _serve_calls(descriptor: int, function: Callable[[Any], Any], limits: CallLimits) -> NoReturn:
    """Serve the calls that arrive over a socket until it closes, in a forked child."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _keep_freed_memory()
    connection = Connection(descriptor)
    _limit_memory(limits.memory_bytes)
    with suppress(EOFError, OSError):  # the parent ended
        try:
            while True:
                for item in connection.recv():
                    connection.send(_result(function, item, limits))
        except MemoryError:
            os._exit(_NO_MEMORY)
    os._exit(0)


def _keep_freed_memory() -> None:
    """Keep memory for the next call; returning it to the system after each one takes 7% of the time of signing."""
    with suppress(AttributeError):  # not glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _MOST_MMAP_THRESHOLD)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _result(function: Callable[[Any], Any], item: object, limits: CallLimits) -> object:
    signal.setitimer(signal.ITIMER_PROF, limits.cpu_s)
    try:
        return function(item)
    except MemoryError:
        return _beyond_memory(limits)
    except Exception as error:
        return NoResult(f"because of {type(error).__name__}: {error}"[:200])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _limit_memory(more_bytes: int) -> None:
    if _MEMORY_IN_USE.exists():
        in_use = int(_MEMORY_IN_USE.read_text().split()[5]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = in_use + more_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
