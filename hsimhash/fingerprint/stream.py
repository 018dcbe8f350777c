"""Fingerprints of a stream of texts, by worker processes: in order, with a bounded number of texts under way.

Threads would not do: the segmenter frees the interpreter lock only while it cuts (two threads: 0.84 of one; two
processes: 1.87). Workers are spawned, not forked, so that no lock of another thread is copied.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint.profile import Fingerprints, Profile, split_batch

if TYPE_CHECKING:
    from concurrent.futures import Future, ProcessPoolExecutor


def fingerprint_stream(profile: Profile, batches: Iterable[Sequence[str]], workers: int) -> Iterator[Fingerprints]:
    """Yield the fingerprints of each batch, in order.

    Batches of over 256 texts are shared among the workers; those of under 100 cost more to send than they should.

    Args:
        profile: what fingerprints them.
        batches: read only a little ahead of what was yielded: 2 tasks a worker and 2 more.
        workers: how many processes; 1 works in this one.

    Raises:
        HsimhashError: a worker died.
    """
    if workers < 1:
        raise ValueError(f"workers is a number from 1 on, not {workers}")
    if workers == 1:
        yield from map(profile.fingerprints, batches)
        return
    # A fifth of the package's import time, and most users need no processes.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=_start_worker, initargs=(profile,)
    )
    try:
        yield from _in_order(pool, batches, 2 * workers + 2)
    except BrokenProcessPool as error:
        raise HsimhashError("a fingerprint worker died, perhaps for want of memory; fewer workers need less") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, batches: Iterable[Sequence[str]], limit: int) -> Iterator[Fingerprints]:
    waiting: deque[tuple[Future[Fingerprints], bool]] = deque()
    parts: list[Fingerprints] = []
    for task, is_last in _tasks(batches):
        with _interrupts_held_back():  # this starts workers, which take the mask over
            future = pool.submit(_work, task)
        waiting.append((future, is_last))
        if len(waiting) >= limit:
            yield from _take(waiting, parts)
    while waiting:
        yield from _take(waiting, parts)


def _tasks(batches: Iterable[Sequence[str]]) -> Iterator[tuple[Sequence[str], bool]]:
    """Yield tasks of a size that suits a worker, and whether each is its batch's last."""
    for batch in batches:
        tasks = list(split_batch(batch)) or [batch]
        for number, task in enumerate(tasks, 1):
            yield task, number == len(tasks)


def _take(waiting: deque[tuple[Future[Fingerprints], bool]], parts: list[Fingerprints]) -> Iterator[Fingerprints]:
    """Wait for the oldest task; yield its batch if that is whole now."""
    future, is_last = waiting.popleft()
    parts.append(future.result())
    if is_last:
        yield Fingerprints(
            np.concatenate([part.values for part in parts]), np.concatenate([part.kinds for part in parts])
        )
        parts.clear()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let Ctrl-C wait: it reaches the whole group, and a worker that still starts would die of it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_profile: Profile  # a worker's own, set once when it starts


def _start_worker(profile: Profile) -> None:
    global _profile
    _profile = profile
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    """End this worker when its parent was killed: nothing else would, it holds its own queue open."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _work(texts: Sequence[str]) -> Fingerprints:
    return _profile.fingerprints(texts)
