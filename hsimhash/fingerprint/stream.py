"""Signatures of a stream of texts, by worker processes: in order, with a bounded number of texts under way.

Threads would not do: the segmenter frees the interpreter lock only while it cuts (two threads: 0.84 of one; two
processes: 1.87).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future

from hsimhash.fingerprint.profile import Profile, split_batch
from hsimhash.fingerprint.signature import Signatures
from hsimhash.processes import Workers


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
    with Workers(workers, _prepare, profile) as pool:
        yield from _in_order(pool, batches, 2 * workers + 2)


def _in_order(pool: Workers, batches: Iterable[Sequence[str]], most_tasks: int) -> Iterator[Signatures]:
    waiting: deque[list[Future[Signatures]]] = deque()  # each batch's tasks
    for batch in batches:
        waiting.append([pool.submit(_work, task) for task in list(split_batch(batch)) or [batch]])
        while len(waiting) > 1 and sum(map(len, waiting)) >= most_tasks:
            yield Signatures.joined(task.result() for task in waiting.popleft())
    while waiting:
        yield Signatures.joined(task.result() for task in waiting.popleft())


_profile: Profile  # a worker's own, set once when it starts


def _prepare(profile: Profile) -> None:
    global _profile
    _profile = profile


def _work(texts: Sequence[str]) -> Signatures:
    return _profile.signatures(texts)
