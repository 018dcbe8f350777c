"""Process a stream of texts in workers, in order, with a bounded number of texts in memory.

A bad text does not end the stream. A text is rejected with a reason if computing its signature raises an error, takes
too much time or memory, or kills the worker. To find such a text, a failed batch is processed again text by text.

Workers are threads if hsimhash-native computes the signatures, and processes otherwise. The segmenter releases the GIL
only while it cuts text, so two threads run at 0.84 times the speed of one, while two processes run at 1.87 times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint.long_texts import is_cut_in_windows
from hsimhash.fingerprint.native import signs_natively
from hsimhash.fingerprint.profile import Profile
from hsimhash.fingerprint.signature import TOO_SHORT, Signatures
from hsimhash.processes import CallLimits, KillableWorkers, NoResult

# Limits of one task, which has up to 256 texts, or one text of any length. Built-in profiles take under 4 s and 300 MiB
# for a text of 16 MiB, and a worker's memo of words takes up to 250 MiB.
TEXT_LIMITS = CallLimits(cpu_s=30.0, memory_bytes=1 << 30)

_MOST_REASON = 200  # maximum length of a reason, in characters

T = TypeVar("T")
_Texts = Sequence[str]


@dataclass(frozen=True, slots=True)
class RefusedText:
    """Replaces the result of a rejected text, and contains the reason."""

    reason: str


class SignedBatch(NamedTuple):
    """The signatures of a batch. Rejected texts have the kind `TOO_SHORT` and a reason, by index."""

    signatures: Signatures
    refused: dict[int, str]


def signature_stream(profile: Profile, batches: Iterable[_Texts], workers: int) -> Iterator[SignedBatch]:
    """Yield the signatures of each batch, in order.

    Batches of more than 256 texts are split among the workers. Batches of fewer than 100 texts are inefficient, because
    every batch is costly to send.

    Args:
        profile: Profile that makes the signatures.
        batches: Read only slightly ahead of the results: one batch, or enough batches for 2 tasks per worker.
        workers: Number of workers. With 1, this thread processes the texts, unless the profile does not bound the time
            or memory that a text takes.

    Raises:
        HsimhashError: this process cannot use the profile.
    """
    for parts in worked(profile, batches, workers, Profile.signatures, in_threads=signs_natively(profile)):
        yield _signed(profile, parts)


def signed_texts(profile: Profile, texts: Sequence[str]) -> SignedBatch:
    """Return the signatures of texts, computed in this process without limits; see `signature_stream`."""
    attempt = _Attempt(profile, Profile.signatures)
    return _signed(profile, _parts(texts, attempt.here(texts), partial(map, attempt.here)))


def _signed(profile: Profile, parts: Sequence[Signatures | RefusedText]) -> SignedBatch:
    none = np.zeros(1, np.uint64)
    no_signature = Signatures(none, none, none, np.array([TOO_SHORT], np.uint8), profile.key_kind)
    made = [no_signature if isinstance(part, RefusedText) else part for part in parts]
    places = np.cumsum([0, *map(len, made)]).tolist()
    refused = {at: part.reason for at, part in zip(places, parts, strict=False) if isinstance(part, RefusedText)}
    return SignedBatch(Signatures.joined(made), refused)


def worked(
    profile: Profile,
    batches: Iterable[_Texts],
    workers: int,
    work: Callable[[Profile, _Texts], T],
    *,
    in_threads: bool = False,
) -> Iterator[list[T | RefusedText]]:
    """Run `work` on the parts of each batch, and yield the results in order; see `signature_stream`.

    Each rejected text is a separate part. Threads do not limit the time or memory that a text takes.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    attempt = _Attempt(profile, work)
    if workers == 1 and is_cut_in_windows(profile):
        for batch in batches:
            yield _parts(batch, attempt.here(batch), partial(map, attempt.here))
        return
    if in_threads:
        with ThreadPoolExecutor(workers, "signer") as threads:
            yield from _in_order(
                lambda tasks: threads.submit(attempt.all_here, tasks), profile, batches, 2 * workers + 2
            )
        return
    with KillableWorkers(attempt, workers, TEXT_LIMITS, attempt.prepare) as pool:
        yield from _in_order(pool.submit, profile, batches, 2 * workers + 2)


class _Attempt(Generic[T]):
    """Runs work on texts and returns errors as values, so that they can be sent from another process."""

    def __init__(self, profile: Profile, work: Callable[[Profile, _Texts], T]) -> None:
        self._profile, self._work = profile, work

    def __call__(self, texts: _Texts) -> T | RefusedText | HsimhashError:
        """Run the work on texts; return its result, or the reason why there is no result."""
        try:
            return self._work(self._profile, texts)
        except HsimhashError as error:  # caused by the profile, not by a text
            return error
        except ValueError as error:
            return RefusedText(str(error))
        except BaseException as error:
            is_panic = type(error).__module__ == "pyo3_runtime"  # from the segmenter; not a subclass of `Exception`
            if isinstance(error, MemoryError) or not (is_panic or isinstance(error, Exception)):
                raise
            return RefusedText(f"no fingerprint computed because of {type(error).__name__}: {error}"[:_MOST_REASON])

    def here(self, texts: _Texts) -> T | RefusedText | HsimhashError:
        """Run the work in this process, and return its result; a text that needs too much memory is rejected."""
        try:
            return self(texts)
        except MemoryError:
            return RefusedText("no fingerprint computed within the available memory")

    def all_here(self, tasks: Sequence[_Texts]) -> list[T | _Failure]:
        """Run several tasks in this process, and return their results."""
        return list(map(self.here, tasks))

    def prepare(self) -> None:
        """Load what the profile needs before any text, so that it does not count towards a text's limits.

        Errors are raised only when the first text is processed.
        """
        with suppress(Exception):
            self._profile.verify()


_Failure = RefusedText | HsimhashError | NoResult
_Submit = Callable[[list[_Texts]], Future[list[T | _Failure]]]


def _in_order(
    submit: _Submit[T], profile: Profile, batches: Iterable[_Texts], most_tasks: int
) -> Iterator[list[T | RefusedText]]:
    waiting: deque[list[tuple[_Texts, Future[list[T | _Failure]]]]] = deque()  # the tasks of each batch

    def finished() -> list[T | RefusedText]:
        made = [
            _parts(texts, work.result()[0], lambda alone: submit(alone).result()) for texts, work in waiting.popleft()
        ]
        return [part for parts in made for part in parts]

    for batch in batches:
        waiting.append([(task, submit([task])) for task in list(profile.batches(batch)) or [batch]])
        while len(waiting) > 1 and sum(map(len, waiting)) >= most_tasks:
            yield finished()
    while waiting:
        yield finished()


def _parts(
    texts: _Texts, found: T | _Failure, attempt: Callable[[list[_Texts]], Iterable[T | _Failure]]
) -> list[T | RefusedText]:
    """Return the result for texts; if it is a failure, attempt each text alone."""
    if isinstance(found, NoResult) or (isinstance(found, RefusedText) and len(texts) > 1):
        return [_checked(result) for result in attempt([[text] for text in texts])]
    return [_checked(found)]


def _checked(result: T | _Failure) -> T | RefusedText:
    """Return a result or a `RefusedText`; raise errors that a text did not cause."""
    if isinstance(result, HsimhashError):
        raise result
    return RefusedText(f"no fingerprint computed {result.why}") if isinstance(result, NoResult) else result
