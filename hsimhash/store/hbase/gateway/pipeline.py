"""Run tasks on many connections in parallel without threads: send requests on all of them, then read replies.

A *task* is a generator function. It yields calls, receives the reply to each, and returns a result. It makes its calls
on one connection, one after another. A task that fails with a transient error restarts on another connection, so it
must keep what it has read so far outside its generator.
"""

from __future__ import annotations

import http.client
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from thriftpy2.thrift import TApplicationException
from thriftpy2.transport import TTransportException

from hsimhash import metrics
from hsimhash.errors import HsimhashError, StoreTimeoutError, StoreUnavailableError, diagnose
from hsimhash.store.base import DEADLINE_S
from hsimhash.store.hbase.gateway.base import UNANSWERED
from hsimhash.store.hbase.gateway.connection import Call, Connection, first_heard, is_reply
from hsimhash.store.hbase.gateway.failures import TransientError, reason, store_error
from hsimhash.store.hbase.gateway.pool import Pool
from hsimhash.store.retries import RetryWarnings, pauses

Steps = Generator[Call, Any, Any]
Task = Callable[[], Steps]

UNKNOWN = None  # the result of a task that may be sent only once and whose reply was lost

_LEAST_TIMEOUT_S = 0.1
_MISSING = object()


def one_call(call: Call) -> Task:
    """Return a task that makes one call and returns its reply."""

    def steps() -> Steps:
        return (yield call)

    return steps


def while_timely(task: Task, is_timely: Callable[[], bool]) -> Task:
    """Return a task that runs `task`, but returns `UNKNOWN` if `is_timely` is false when it starts or restarts."""

    def steps() -> Steps:
        return (yield from task()) if is_timely() else UNKNOWN

    return steps


class Patience(threading.local):
    """The time limits of this thread's calls.

    `silent_s` is the time spent waiting since the last reply, if several calls share one deadline. It excludes the time
    between calls. `end_s` is the time at which all calls must end.
    """

    silent_s: float | None = None
    end_s: float = math.inf


class Caller:
    """Runs tasks on a pool's connections, each call within its deadline.

    Args:
        pool: Pool of connections.
        deadline_s: How long a call without a reply is retried, unless the address has a deadline.
    """

    def __init__(self, pool: Pool, *, deadline_s: float = DEADLINE_S) -> None:
        self.pool = pool
        self.deadline_s = pool.address.options.deadline_s or deadline_s
        self.patience = Patience()
        self.warnings = RetryWarnings()

    @contextmanager
    def one_deadline(self) -> Iterator[None]:
        """Apply one deadline to this thread's tasks in the block; it starts now and restarts with each reply."""
        outer_s = self.patience.silent_s
        try:
            self.patience.silent_s = 0.0
            yield
        finally:
            self.patience.silent_s = outer_s

    @contextmanager
    def ending(self, timeout_s: float | None) -> Iterator[None]:
        """Raise `StoreTimeoutError` if this thread's tasks in the block exceed a time limit; None means no limit."""
        outer_s = self.patience.end_s
        try:
            if timeout_s is not None:
                self.patience.end_s = min(outer_s, time.monotonic() + timeout_s)
            yield
        finally:
            self.patience.end_s = outer_s

    def run(self, tasks: Sequence[Task], *, width: int, depth: int = 1, once: bool = False) -> list[Any]:
        """Run tasks and return their results; see `_PipelineRun`.

        Raises:
            StoreUnavailableError: No reply arrived before the deadline; see `one_deadline`.
            StoreTimeoutError: The time limit was exceeded; see `ending`.
        """
        run = _PipelineRun(self, tasks, width=width, depth=depth, once=once)
        try:
            for pause_s in pauses():
                try:
                    run.go()
                    break
                except TransientError as error:
                    if run.is_over(pause_s):
                        raise run.error(error) from error
                    self.warnings.note(error, failing_s=run.silent_s, left_s=run.left_s)
                time.sleep(pause_s)
        finally:
            if self.patience.silent_s is not None:
                self.patience.silent_s = run.silent_s
        return run.results

    def half(self) -> AbstractContextManager[None]:
        """Limit this thread's tasks in the block to half of the remaining time; see `ending`."""
        return self.ending(max(0.0, (self.patience.end_s - time.monotonic()) / 2))

    def run_in_part(self, tasks: Sequence[Task], *, width: int) -> list[Any]:
        """Run tasks; return the results that arrive within half of the remaining time, `UNANSWERED` for the others.

        The other half is left for calls that need these results.
        """
        with self.half():
            run = _PipelineRun(self, tasks, width=width, in_part=True)
            for pause_s in pauses():
                try:
                    run.go()
                except StoreTimeoutError:
                    break
                except TransientError:
                    if run.is_over(pause_s):
                        break
                    time.sleep(pause_s)
                else:
                    break
        return [UNANSWERED if result is _MISSING else result for result in run.results]


@dataclass(eq=False, slots=True)
class _Lane:
    """A connection and the numbers of the tasks in progress on it, in the order of their replies."""

    connection: Connection
    begun: deque[int] = field(default_factory=deque)


class _PipelineRun:
    """A run of tasks; call `go` until it no longer raises `TransientError`.

    Args:
        caller: Source of the connections and the time limits.
        tasks: Tasks to run; `results` receives their results.
        width: Maximum number of connections.
        depth: Maximum number of tasks in progress on a connection, if there are more tasks than connections.
        once: Never restart a task whose call was sent; without a reply its result is `UNKNOWN`.
        in_part: Read replies as they arrive, so that a silent connection does not delay the others. Requires a depth
            of 1.
    """

    def __init__(
        self,
        caller: Caller,
        tasks: Sequence[Task],
        *,
        width: int,
        depth: int = 1,
        once: bool = False,
        in_part: bool = False,
    ) -> None:
        self.results: list[Any] = [_MISSING] * len(tasks)
        self._caller = caller
        self._pool = pool = caller.pool
        self._tasks = tasks
        self._running: dict[int, Steps] = {}  # by task number
        self._width = width
        self._depth = min(depth, max(1, -(-len(tasks) // width))) if not pool.address.is_http else 1
        self._once = once
        self._in_part = in_part
        self._timeout_most_s = pool.address.options.timeout_s
        self._allowed_end_s = caller.patience.end_s
        self._heard_s = time.monotonic() - (caller.patience.silent_s or 0.0)
        self._has_met_internal_error = False

    @property
    def silent_s(self) -> float:
        """The time since the last reply, in seconds."""
        return time.monotonic() - self._heard_s

    @property
    def _end_s(self) -> float:
        return min(self._heard_s + self._caller.deadline_s, self._allowed_end_s)

    @property
    def left_s(self) -> float:
        """The time until tasks are no longer retried, in seconds; the deadline starts at the last reply."""
        return self._end_s - time.monotonic()

    def is_over(self, pause_s: float) -> bool:
        """Whether time would run out during a pause before the next try."""
        return pause_s >= self.left_s

    def error(self, last: TransientError) -> StoreUnavailableError:
        """Return the error to raise when time has run out."""
        if self._allowed_end_s < self._heard_s + self._caller.deadline_s:
            return StoreTimeoutError(f"the time limit was exceeded; last error: {last}")
        return StoreUnavailableError(
            f"no reply from HBase within the deadline of {self._caller.deadline_s:g} s: {last}; "
            f"{diagnose(str(self._pool.address))}"
        )

    def go(self) -> None:
        """Run every task that does not have a result yet; raise `TransientError` if any still lack one."""
        self._waiting = deque(number for number, result in enumerate(self.results) if result is _MISSING)
        self._lanes: deque[_Lane] = deque()
        self._failures: list[TransientError] = []
        try:
            while self._lanes or (self._waiting and not self._failures):
                if not self._widen():
                    self._advance()
        finally:
            for lane in self._lanes:  # only after a permanent error, a time limit or Ctrl-C
                self._pool.abandon(lane.connection)
        if self._failures:
            raise self._failures[0]

    def _timeout_s(self) -> float:
        left_s = self.left_s
        if left_s <= 0 and self._end_s == self._allowed_end_s:
            raise StoreTimeoutError("the time limit was exceeded")
        return min(self._timeout_most_s, max(left_s, _LEAST_TIMEOUT_S))

    def _widen(self) -> bool:
        """Add a lane if one is needed and available; return whether the caller must check its loop condition again."""
        if not self._waiting or len(self._lanes) >= self._width or self._failures:
            return False
        try:
            connection = self._pool.take(self._timeout_s(), wait=not self._lanes)
        except TransientError as error:
            self._failures.append(error)
            return not self._lanes
        if connection is None:
            return False
        lane = _Lane(connection)
        self._lanes.append(lane)
        self._fill(lane)
        return True

    def _fill(self, lane: _Lane) -> None:
        """Start as many tasks on a lane as it can take; return its connection to the pool if no task is left for it."""
        while self._waiting and len(lane.begun) < self._depth and not (len(self._lanes) > 1 and self._pool.is_wanted):
            number = self._waiting.popleft()
            self._running[number] = self._tasks[number]()
            lane.begun.append(number)
            if not self._step(lane, number, None):
                return
        if not lane.begun:
            self._lanes.remove(lane)
            self._pool.give_back(lane.connection)

    def _step(self, lane: _Lane, number: int, reply: object) -> bool:
        """Send a task's next call, or store its result; return whether the lane still works."""
        try:
            call = self._running[number].send(reply)
        except StopIteration as stop:
            self.results[number] = stop.value
            lane.begun.remove(number)
            return True
        try:
            lane.connection.send(call, self._timeout_s())
        except (OSError, TTransportException, http.client.HTTPException) as error:
            self._break(lane, error)
            return False
        return True

    def _advance(self) -> None:
        """Read a reply on the first lane, and send its task's next call."""
        if self._in_part:
            self._turn_to_heard()
        lane = self._lanes[0]
        number = lane.begun[0]
        self._timeout_s()  # raises once the allowed time is over, however fast replies arrive
        try:
            reply = lane.connection.receive(end_s=self._allowed_end_s)
        except Exception as error:  # decoding a broken stream can raise anything
            if is_reply(error):
                self._hear(lane)
                self._refused(lane, error)
            else:
                self._break(lane, error)
            return
        self._hear(lane)
        self._lanes.rotate(-1)
        lane.begun.rotate(-1)  # the task's next call is sent after those of the lane's other tasks
        if self._step(lane, number, reply):
            self._fill(lane)

    def _turn_to_heard(self) -> None:
        """Move a lane with a reply to the front; if no reply arrives in time, move the lane that is due first."""
        by_connection = {lane.connection: lane for lane in self._lanes}
        due = min(by_connection, key=lambda connection: connection.due_s)
        wait_s = min(due.due_s, self._allowed_end_s) - time.monotonic()
        heard = by_connection[first_heard([*by_connection], wait_s) or due]
        self._lanes.remove(heard)
        self._lanes.appendleft(heard)

    def _hear(self, lane: _Lane) -> None:
        self._heard_s = time.monotonic()
        metrics.current.replies.labels(lane.connection.endpoint).inc()
        self._pool.heard(lane.connection)

    def _refused(self, lane: _Lane, error: Exception) -> None:
        """Handle an error that a gateway returned."""
        number = lane.begun.popleft()
        connection = lane.connection
        meaning = store_error(error, connection.last_method, self._pool.address, connection.endpoint)
        if isinstance(error, TApplicationException) and error.type == TApplicationException.INTERNAL_ERROR:
            if not self._has_met_internal_error and not self._once:  # the gateway may be shutting down
                meaning = TransientError(str(meaning))
            self._has_met_internal_error = True
        self._fail(lane.connection, [number], meaning, error)
        self._fill(lane)

    def _break(self, lane: _Lane, error: Exception) -> None:
        """Discard a connection from which nothing more can be read."""
        self._lanes.remove(lane)
        connection = lane.connection
        if isinstance(error, TimeoutError):
            self._pool.abandon(connection)
        else:
            self._pool.drop(connection)
        if time.monotonic() < self._allowed_end_s:  # a caller's short time limit is not the gateway's fault
            self._pool.failed(connection.endpoint)
        text = f"gateway {connection.endpoint}: {reason(error, connection.timeout_s)}"
        if isinstance(error, TimeoutError):
            metrics.current.timeouts.labels(connection.endpoint).inc()
        self._fail(connection, lane.begun, TransientError(text), error)

    def _fail(self, connection: Connection, numbers: Collection[int], meaning: HsimhashError, error: Exception) -> None:
        if not isinstance(meaning, TransientError):
            raise meaning from error
        metrics.current.retries.labels(connection.endpoint).inc(len(numbers))
        if self._once:
            for number in numbers:
                self.results[number] = UNKNOWN
        else:
            self._failures.append(meaning)
