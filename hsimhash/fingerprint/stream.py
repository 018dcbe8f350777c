"""What is made of a stream of texts by worker processes: in order, with a bounded number of texts under way.

Threads would not do: the segmenter frees the interpreter lock only while it cuts (two threads: 0.84 of one; two
processes: 1.87).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TypeVar

from hsimhash.fingerprint.profile import Profile, split_batch
from hsimhash.fingerprint.signature import Signatures
from hsimhash.processes import Workers

T = TypeVar("T")


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
    for found in worked(profile, batches, workers, Profile.signatures):
        yield Signatures.joined(found)


def worked(
    profile: Profile, batches: Iterable[Sequence[str]], workers: int, work: Callable[[Profile, Sequence[str]], T]
) -> Iterator[list[T]]:
    """Yield what `work` makes of the parts of each batch, in order; see `signature_stream`."""
    if workers < 1:
        raise ValueError(f"workers is a number from 1 on, not {workers}")
    if workers == 1:
        yield from ([work(profile, batch)] for batch in batches)
        return
    with Workers(workers, _prepare, profile) as pool:
        yield from _in_order(pool, batches, 2 * workers + 2, work)


def _in_order(
    pool: Workers, batches: Iterable[Sequence[str]], most_tasks: int, work: Callable[[Profile, Sequence[str]], T]
) -> Iterator[list[T]]:
    waiting: deque[list[Future[T]]] = deque()  # each batch's tasks
    for batch in batches:
        waiting.append([pool.submit(_work, work, task) for task in list(split_batch(batch)) or [batch]])
        while len(waiting) > 1 and sum(map(len, waiting)) >= most_tasks:
            yield [task.result() for task in waiting.popleft()]
    while waiting:
        yield [task.result() for task in waiting.popleft()]


_profile: Profile  # a worker's own, set once when it starts


def _prepare(profile: Profile) -> None:
    global _profile
    _profile = profile


def _work(work: Callable[[Profile, Sequence[str]], T], texts: Sequence[str]) -> T:
    return work(_profile, texts)
