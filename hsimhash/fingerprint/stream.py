"""Signatures of a stream of texts, by worker processes: in order, with a bounded number of texts under way.

Threads would not do: the segmenter frees the interpreter lock only while it cuts (two threads: 0.84 of one; two
processes: 1.87). Workers are spawned, not forked, so that no lock of another thread is copied; they ignore the signals
of the group, and end with their parent.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint.profile import Profile, split_batch
from hsimhash.fingerprint.signature import Signatures

_OF_THE_GROUP = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C, `timeout`, a service's stop: the parent decides what follows


def signature_stream(profile: Profile, batches: Iterable[Sequence[str]], workers: int) -> Iterator[Signatures]:
    """Yield the signatures of each batch, in order.

    Batches of over 256 texts are shared among the workers; those of under 100 cost more to send than they should.

    Args:
        profile: what makes them.
        batches: read only a little ahead of what was yielded: one batch, or so many that there are 2 tasks a worker.
        workers: how many processes; 1 works in this one.

    Raises:
        HsimhashError: a worker died.
    """
    if workers < 1:
        raise ValueError(f"workers is a number from 1 on, not {workers}")
    if workers == 1:
        yield from map(profile.signatures, batches)
        return
    pool = ProcessPoolExecutor(workers, _Workers(), initializer=_start_worker, initargs=(profile,))
    try:
        yield from _in_order(pool, batches, 2 * workers + 2)
    except BrokenProcessPool as error:
        raise HsimhashError("a fingerprint worker died, perhaps for want of memory; fewer workers need less") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(pool: ProcessPoolExecutor, batches: Iterable[Sequence[str]], most_tasks: int) -> Iterator[Signatures]:
    waiting: deque[list[Future[Signatures]]] = deque()  # each batch's tasks
    for batch in batches:
        waiting.append([_submit(pool, task) for task in list(split_batch(batch)) or [batch]])
        while len(waiting) > 1 and sum(map(len, waiting)) >= most_tasks:
            yield Signatures.joined(task.result() for task in waiting.popleft())
    while waiting:
        yield Signatures.joined(task.result() for task in waiting.popleft())


def _submit(pool: ProcessPoolExecutor, texts: Sequence[str]) -> Future[Signatures]:
    """Let a worker sign texts."""
    # This starts workers, which take the mask over: one that still starts would die of a signal to the group.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_GROUP)
    try:
        return pool.submit(_work, texts)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Worker(SpawnProcess):
    def terminate(self) -> None:
        """Kill: the pool ends workers so when one has died, and they ignore SIGTERM."""
        self.kill()


class _Workers(SpawnContext):
    Process = _Worker


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


def _work(texts: Sequence[str]) -> Signatures:
    return _profile.signatures(texts)
