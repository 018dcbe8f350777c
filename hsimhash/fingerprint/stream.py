"""Fingerprints of a stream of texts, by worker processes: in order, with a bounded number of texts under way.

Threads would not do: the segmenter frees the interpreter lock only while it cuts (two threads: 0.84 of one; two
processes: 1.87). Workers are spawned, not forked, so that no lock of another thread is copied.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint.profile import Fingerprints, Profile, split_batch

if TYPE_CHECKING:
    from concurrent.futures import Future


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
    from concurrent.futures.process import BrokenProcessPool

    from hsimhash.fingerprint.workers import open_pool, submit

    pool = open_pool(profile, workers)
    try:
        yield from _in_order(partial(submit, pool), batches, 2 * workers + 2)
    except BrokenProcessPool as error:
        raise HsimhashError("a fingerprint worker died, perhaps for want of memory; fewer workers need less") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _in_order(
    submit: Callable[[Sequence[str]], Future[Fingerprints]], batches: Iterable[Sequence[str]], limit: int
) -> Iterator[Fingerprints]:
    waiting: deque[tuple[Future[Fingerprints], bool]] = deque()
    parts: list[Fingerprints] = []
    for task, is_last in _tasks(batches):
        waiting.append((submit(task), is_last))
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
