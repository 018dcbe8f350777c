"""Processes that fingerprint texts: spawned, deaf to signals of the group, gone with their parent."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess

from hsimhash.fingerprint.profile import Fingerprints, Profile

_OF_THE_GROUP = (
    signal.SIGINT,
    signal.SIGTERM,
)  # Ctrl-C, `timeout`, a service's stop: the parent decides what they mean


class _Worker(SpawnProcess):
    def terminate(self) -> None:
        """Kill: the pool ends workers so when one has died, and they ignore SIGTERM."""
        self.kill()


class _Workers(SpawnContext):
    Process = _Worker


def open_pool(profile: Profile, workers: int) -> ProcessPoolExecutor:
    """Return a pool of so many workers; `submit` gives them work."""
    return ProcessPoolExecutor(workers, _Workers(), initializer=_start_worker, initargs=(profile,))


def submit(pool: ProcessPoolExecutor, texts: Sequence[str]) -> Future[Fingerprints]:
    """Let a worker fingerprint texts."""
    with _signals_held_back():  # this starts workers, which take the mask over
        return pool.submit(_work, texts)


@contextmanager
def _signals_held_back() -> Iterator[None]:
    """Let signals to the whole group wait: a worker that still starts would die of them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_GROUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_profile: Profile  # a worker's own, set once when it starts


def _start_worker(profile: Profile) -> None:
    global _profile
    _profile = profile
    for number in _OF_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_GROUP)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End this worker when its parent was killed: nothing else would, it holds its own queue open."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(texts: Sequence[str]) -> Fingerprints:
    return _profile.fingerprints(texts)
