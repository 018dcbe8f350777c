"""Worker processes that end with their parent, and leave the signals of the group to it: `Workers`, `completed`.

They are spawned, not forked, so that no lock of another thread is copied.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import ParamSpec, TypeVar

from hsimhash.errors import HsimhashError, Remedy, StopAskedError

P = ParamSpec("P")
T = TypeVar("T")
_LOOK_S = 1.0  # between two looks whether to end
_OF_THE_GROUP = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, `timeout`, a service's stop: the parent decides what follows


class Workers(AbstractContextManager["Workers"]):
    """So many processes, started as they are needed; the block ends with `HsimhashError` where one has died.

    Args:
        count: how many.
        prepare: called in each before its first work, with `given`.
        given: see `prepare`.
    """

    def __init__(self, count: int, prepare: Callable[P, None] | None = None, *given: P.args, **_: P.kwargs) -> None:
        self._pool = ProcessPoolExecutor(count, _Spawned(), initializer=_start, initargs=(prepare, given))

    def submit(self, function: Callable[P, T], *given: P.args, **named: P.kwargs) -> Future[T]:
        """Let a worker call a function."""
        # This starts workers, which take the mask over: one that still starts would die of a signal to the group.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_GROUP)
        try:
            return self._pool.submit(function, *given, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def __exit__(self, exc_type: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        if isinstance(error, BrokenProcessPool):
            raise HsimhashError(
                "a worker died, perhaps because it ran out of memory; use fewer " + Remedy("workers", "--workers")
            ) from error


def completed(futures: Iterable[Future[T]], stop: Callable[[], bool] = lambda: False) -> Iterator[Future[T]]:
    """Yield futures as they are done; `StopAskedError` as soon as `stop` says so."""
    left = set(futures)
    while left:
        if stop():
            raise StopAskedError("asked to end while workers were at work")
        done, left = wait(left, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
        yield from done


class _Worker(SpawnProcess):
    def terminate(self) -> None:
        """Kill: the pool ends workers so when one has died, and they ignore SIGTERM."""
        self.kill()


class _Spawned(SpawnContext):
    Process = _Worker


def _start(prepare: Callable[..., None] | None, given: tuple[object, ...]) -> None:
    for number in _OF_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_GROUP)
    end_with_parent()
    if prepare is not None:
        prepare(*given)


def end_with_parent() -> None:
    """End this process once its parent was killed: nothing else would, it holds its own pipes open."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
