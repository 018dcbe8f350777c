"""Share calls: threads and tasks that use the same index at the same time share one call to its store.

A caller that finds no call in progress makes its own call immediately. Callers that arrive during a call wait. When the
call ends, those with the same kind of question share the next call. Each caller gets its own answer or error.

Callers that shared a call usually return at the same time, so the next call waits briefly for them. Otherwise they
would split into two halves, and one half would wait while the other half's call is in progress. The last of them to
arrive makes the call. A slow call does not hold up other callers: after LOOK_S, the next call starts in parallel.

The callers of a call wake each other in chains of a few. If all of them were woken together, they would compete for the
interpreter, and 16 threads would take twice the time: 0.8 ms instead of 0.4. In a single chain, the last caller would
wait too long whenever another thread is busy.

A signal handler may raise an exception between any two steps. A turn is therefore a lock that is only taken in a `with`
statement, so a turn is never lost. Waking a caller only makes it look again: the first caller that looks takes the
turn. A caller that is not woken looks again after LOOK_S.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from queue import Empty, SimpleQueue
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakSet

from hsimhash.errors import ClaimBusyError, HsimhashError, StoreClosedError, StoreTimeoutError

Question = TypeVar("Question")
Answer = TypeVar("Answer")

LOOK_S = 0.1  # seconds after which a caller that is not woken looks again; calls that take longer are slow
MOST_CALLS = 8  # maximum number of calls in progress; all but the latest of them are slow
_GATHER_SHARE = 0.5  # share of a call's time for which the next call waits for the same callers
_GATHER_MOST_S = 0.01  # upper limit of that wait
_CHAIN = 4  # number of callers in a chain; each wakes the next


class SharedCall(NamedTuple, Generic[Question, Answer]):
    """A question with checked arguments.

    `ask` makes the call. It takes questions, their common `given` value, and the number of seconds that
    the call may take, or None for no limit. It returns one answer for each question.
    """

    ask: Callable[[Sequence[Question], Any, float | None], Sequence[Answer]]
    question: Question
    given: Hashable = None
    timeout_s: float | None = None

    def alone(self) -> Answer:
        """Ask the question in a call of its own, and return the answer."""
        return self.ask([self.question], self.given, self.timeout_s)[0]


@dataclass(eq=False, slots=True)
class Asked(Generic[Question, Answer]):
    """A question that is waiting or being asked. Once it `is_over`, its result is either `answer` or `error`.

    Args:
        call: The question, and how to ask it.
        wake: Called when there is a reason to look again: the question may be over, or `Callers.serve` may ask it now.
            Once the question is over, its caller calls `pass_on`.
    """

    call: SharedCall[Question, Answer]
    wake: Callable[[], None]
    end_s: float | None = None
    is_over: bool = False
    answer: Answer | None = None
    error: Exception | None = None
    is_withdrawn: bool = False
    following: Asked[Any, Any] | None = None  # the next caller of the same call, which this one wakes

    def left_s(self) -> float | None:
        """Return the time left in seconds, or None without a limit."""
        return None if self.end_s is None else self.end_s - time.monotonic()

    def alike(self) -> Hashable:
        """Return the key that questions must share to go into one call."""
        return self.call.ask, self.call.given, self.call.timeout_s

    def pass_on(self) -> None:
        """Wake the next caller."""
        if self.following is not None:
            self.following.wake()

    def settle(self, answer: Answer | None, error: Exception | None = None) -> None:
        """Record the result."""
        self.answer, self.error, self.is_over = answer, error, True


class _Turn:
    """A slot for a call in progress. The thread that makes the call holds `lock`; the call began at `began_s`."""

    __slots__ = ("began_s", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.began_s = 0.0


class _Crowd(NamedTuple):
    """The callers of the last shared call. They tend to return, so the next call waits for them until `until_s`."""

    alike: Hashable = None
    size: int = 0
    until_s: float = 0.0

    @property
    def is_expected(self) -> bool:
        return time.monotonic() < self.until_s

    def lacks(self, waiting: Mapping[Hashable, Sequence[object]]) -> bool:
        """Whether the longest-waiting question should wait for more of the expected callers."""
        first = next(iter(waiting), None)
        return first is not None and first == self.alike and len(waiting[first]) < self.size and self.is_expected


class Callers:
    """The callers of one kind of call; thread-safe and fork-safe."""

    def __init__(self) -> None:
        self._start_afresh()
        _all.add(self)

    def _start_afresh(self) -> None:
        self._turns = [_Turn() for _ in range(MOST_CALLS)]
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, list[Asked[Any, Any]]] = {}  # grouped by `alike`, the longest-waiting group first
        self._crowd = _Crowd()
        self._timed: Asked[Any, Any] | None = None  # the caller that looks again when the crowd is no longer expected

    @property
    def has_turn(self) -> bool:
        """Whether a waiting question can be asked now."""
        return not self._is_gathering() and self._free_turn() is not None

    def ask(self, call: SharedCall[Question, Answer]) -> Answer:
        """Ask a question in a call that other callers may share, and return the answer.

        Raises:
            StoreTimeoutError: The time limit passed before the answer arrived.
        """
        turn = None if self._waiting or self._crowd.is_expected else self._free_turn()
        if turn is None:
            return self._wait(call)
        try:
            with turn.lock:
                turn.began_s = time.monotonic()
                return call.alone()
        finally:
            if self._waiting:
                self._wake_next()

    def _wait(self, call: SharedCall[Question, Answer]) -> Answer:
        woken: SimpleQueue[None] = SimpleQueue()
        asked = Asked(call, partial(woken.put, None))
        self.gather(asked)
        try:
            look_s = self.look_s(asked)  # computed before each look, because a crowd may stop being expected
            while not self._is_over(asked):
                left_s = asked.left_s()
                with suppress(Empty):
                    woken.get(timeout=look_s if left_s is None else max(0.0, min(left_s, look_s)))
                look_s = self.look_s(asked)
        finally:
            self.withdraw(asked)
            asked.pass_on()
        if asked.error is not None:
            raise asked.error
        return asked.answer  # type: ignore[return-value]  # set, because there is no error

    def _is_over(self, asked: Asked[Any, Any]) -> bool:
        if not asked.is_over:
            self.serve()
        left_s = asked.left_s()
        if not asked.is_over and left_s is not None and left_s <= 0:
            raise StoreTimeoutError(
                f"timed out after {asked.call.timeout_s:g} s while other calls were in progress; set a longer timeout"
            )
        return asked.is_over

    def gather(self, asked: Asked[Any, Any]) -> None:
        """Add a question to those that are waiting for a turn."""
        if asked.call.timeout_s is not None:
            asked.end_s = time.monotonic() + asked.call.timeout_s
        with self._lock:
            self._waiting.setdefault(asked.alike(), []).append(asked)

    def withdraw(self, asked: Asked[Any, Any]) -> None:
        """Stop waiting for a question. If it is being asked, its answer is discarded."""
        if asked.is_over:
            return
        asked.is_withdrawn = True
        with self._lock:
            alike = self._waiting.get(asked.alike(), [])
            if asked in alike:
                alike.remove(asked)
            if not alike:
                self._waiting.pop(asked.alike(), None)
            was_timed = self._timed is asked
        if was_timed:
            self._wake_next()

    def look_s(self, asked: Asked[Any, Any]) -> float:
        """Return the number of seconds after which a caller should look again."""
        with self._lock:
            if not self._crowd.lacks(self._waiting):
                return LOOK_S
            if self._timed is None or self._timed.is_over or self._timed.is_withdrawn:
                self._timed = asked
            return max(0.0, self._crowd.until_s - time.monotonic()) if self._timed is asked else LOOK_S

    def serve(self) -> None:
        """Ask the longest-waiting question and all similar ones, if a turn is free and no callers are expected."""
        turn = None if self._is_gathering() else self._free_turn()
        if turn is None:
            return
        batch: list[Asked[Any, Any]] = []
        try:
            with turn.lock:
                turn.began_s = time.monotonic()
                with self._lock:
                    alike = next(iter(self._waiting), None)
                    batch = self._waiting.get(alike, batch)
                    self._waiting.pop(alike, None)  # separate, so that a signal before it leaves all of them waiting
                if batch:
                    _answer(batch)
                if len(batch) > 1:
                    self._expect(batch, time.monotonic() - turn.began_s)
        finally:
            left = [asked for asked in batch if not asked.is_over]  # a signal handler's exception ended the call
            if left:
                with self._lock:
                    waiting = self._waiting.setdefault(left[0].alike(), [])
                    waiting += [asked for asked in left if asked not in waiting]
            _wake_in_chains([asked for asked in batch if asked.is_over and not asked.is_withdrawn])
            self._wake_next()

    def _is_gathering(self) -> bool:
        with self._lock:
            return self._crowd.lacks(self._waiting)

    def _expect(self, batch: Sequence[Asked[Any, Any]], took_s: float) -> None:
        """Expect the callers of a call that lasted `took_s` seconds to come back soon."""
        alike, until_s = batch[0].alike(), time.monotonic() + min(_GATHER_SHARE * took_s, _GATHER_MOST_S)
        with self._lock:
            self._crowd = _Crowd(alike, len(batch) + len(self._waiting.get(alike, ())), until_s)
            self._timed = None

    def _free_turn(self) -> _Turn | None:
        for turn in self._turns:
            if not turn.lock.locked():
                return turn
            if time.monotonic() - turn.began_s < LOOK_S:
                return None
        return None

    def _wake_next(self) -> None:
        with self._lock:
            alike = next(iter(self._waiting.values()), [None])
        if alike[-1] is not None:  # the last caller may have the most time left for the call
            alike[-1].wake()


def _wake_in_chains(answered: Sequence[Asked[Any, Any]]) -> None:
    """Wake the first caller of each chain; each caller wakes the next."""
    chains = [answered[start : start + _CHAIN] for start in range(0, len(answered), _CHAIN)]
    for asked, following in chain.from_iterable(map(pairwise, chains)):
        asked.following = following
    for first, *_ in chains:
        first.wake()


def _answer(batch: Sequence[Asked[Any, Any]]) -> None:
    """Ask similar questions in one call and settle them. If one of them makes the call fail, ask each separately."""
    call = batch[0].call
    try:
        answers = call.ask([asked.call.question for asked in batch], call.given, batch[-1].left_s())
    except Exception as error:
        if len(batch) > 1 and not _is_for_all(error):
            for asked in batch:
                _answer([asked])
            return
        for asked in batch:
            own = copy.copy(error)  # a copy, because several threads raise it
            own.__cause__ = error
            asked.settle(None, own)
    else:
        for asked, answer in zip(batch, answers, strict=True):
            asked.settle(answer)


def _is_for_all(error: Exception) -> bool:
    """Whether the error applies to all questions in a call because the store failed, rather than to one of them."""
    if isinstance(error, ClaimBusyError):
        return False
    return isinstance(error, StoreClosedError) or (isinstance(error, HsimhashError) and error.is_retryable)


_all: WeakSet[Callers] = WeakSet()


def _after_fork_in_child() -> None:
    for callers in list(_all):
        callers._start_afresh()  # the other threads, and the locks they hold, belong to the parent


os.register_at_fork(after_in_child=_after_fork_in_child)
