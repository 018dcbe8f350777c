"""Connections to one or more gateways, and calls on many of them at once.

A *task* is a generator function: it yields calls, is sent each one's reply, and returns a result. Its calls go over
one connection, one after the other; many tasks go over many connections at once, without threads: requests are sent on
all, then replies are read. A task that fails for the moment is begun again on another connection, so what it has read
so far it must keep outside of its generator.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential
from thriftpy2.transport import TTransportException

from hsimhash.errors import HsimhashError, StoreClosedError, StoreUnavailableError
from hsimhash.store.hbase.address import Address, Endpoint
from hsimhash.store.hbase.connection import Call, Connection, is_reply, tls_context
from hsimhash.store.hbase.diagnosis import reason
from hsimhash.store.hbase.failures import TransientError, failure

Steps = Generator[Call, Any, Any]
Task = Callable[[], Steps]
Check = Callable[[Connection], None]  # raises where a gateway is not what it should be

UNKNOWN = None  # the result of a task that was sent once and whose reply did not come

_AVOIDED_S = 2.0  # how long a gateway that failed is not asked where there is another one
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_LEAST_TIMEOUT_S = 0.1
_MISSING = object()

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _left(end_s: float) -> float:
    return max(end_s - time.monotonic(), _LEAST_TIMEOUT_S)


def one_call(call: Call) -> Task:
    """Return the task that makes one call and returns its reply."""
    return partial(_one_call, call)


def _one_call(call: Call) -> Steps:
    return (yield call)


def while_timely(task: Task, is_timely: Callable[[], bool]) -> Task:
    """Return the task, whose result is `UNKNOWN` where `is_timely` says no when it begins, or begins again."""
    return partial(_while_timely, task, is_timely)


def _while_timely(task: Task, is_timely: Callable[[], bool]) -> Steps:
    return (yield from task()) if is_timely() else UNKNOWN


class Pool:
    """At most `address.options.connections` connections; thread-safe and fork-safe."""

    def __init__(self, address: Address, check: Check) -> None:
        self.address = address
        self._check = check
        self._context = tls_context(address)
        self._turns = count()
        self._is_closed = False
        self._thread = threading.local()
        self._start_afresh()
        _pools.add(self)

    def _start_afresh(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._opening = 0
        self._waiters = 0
        self._avoided_until_s: dict[Endpoint, float] = {}
        self._checked: set[Endpoint] = set()

    @contextmanager
    def one_deadline(self) -> Iterator[None]:
        """Let the deadlines of what this thread runs within count from the last reply to any of it, or from now."""
        self._thread.heard_s = time.monotonic()
        try:
            yield
        finally:
            del self._thread.heard_s

    def last_heard(self) -> float:
        """Return from when a deadline counts that begins now."""
        return float(getattr(self._thread, "heard_s", time.monotonic()))

    def hear(self) -> float:
        """Note that a reply came; return from when the deadline counts now."""
        now = time.monotonic()
        if hasattr(self._thread, "heard_s"):
            self._thread.heard_s = now
        return now

    def run(self, tasks: Sequence[Task], *, width: int, once: bool = False) -> list[Any]:
        """Return the tasks' results, at most `width` of them under way at once.

        With `once`, a task whose call was sent is never begun again; without a reply its result is `UNKNOWN`.

        Raises:
            StoreUnavailableError: for the whole deadline no call was answered; see `one_deadline`.
        """
        run = _Run(self, tasks, width, once)
        retrying = Retrying(
            retry=retry_if_exception_type(TransientError),
            stop=run.is_over,
            wait=wait_random_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S),
            reraise=True,
        )
        try:
            retrying(run.go)
        except TransientError as error:
            raise StoreUnavailableError(
                f"no answer from HBase within the deadline of {self.address.options.deadline_s:g} s: {error}; "
                f"'hsimhash doctor' tells more"
            ) from error
        return run.results

    def take(self, timeout_s: float, *, wait: bool) -> Connection | None:
        """Return a connection that is fit for a call; None where all are in use and `wait` is not asked for.

        Raises:
            TransientError: no connection could be made, or none became free within the time-out.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            with self._changed:
                if not self._await(_left(end_s) if wait else 0.0):
                    if not wait:
                        return None
                    raise TransientError(f"all {len(self._all)} connections were in use for {timeout_s:.3g} s")
                found = self._pop()
            if found is None:
                return self._open(_left(end_s))
            if found.is_fit:
                return found
            self.drop(found)

    @property
    def is_wanted(self) -> bool:
        """Whether someone waits for a connection: who has several gives one back."""
        return self._waiters > 0

    def _await(self, timeout_s: float) -> bool:
        if not timeout_s:
            return self._can_take() and not self.is_wanted
        self._waiters += 1
        try:
            return self._changed.wait_for(self._can_take, timeout_s)
        finally:
            self._waiters -= 1

    def _can_take(self) -> bool:
        return self._is_closed or bool(self._idle) or self._has_room()

    def _has_room(self) -> bool:
        return len(self._all) + self._opening < self.address.options.connections

    def _pop(self) -> Connection | None:
        self._check_open()
        if self._idle:
            return self._idle.pop()
        self._opening += 1
        return None

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self.address} was closed")

    def _open(self, timeout_s: float) -> Connection:
        made = None
        endpoint = self._next_gateway()
        try:
            made = self._connect(endpoint, timeout_s)
        except Exception as error:
            self.avoid(endpoint)
            raise TransientError(f"gateway {endpoint}: {reason(error, timeout_s)}") from error
        finally:
            self._opened(made)
        return made

    def _connect(self, endpoint: Endpoint, timeout_s: float) -> Connection:
        end_s = time.monotonic() + timeout_s
        made = Connection(endpoint, self.address, self._context, timeout_s=timeout_s)
        if endpoint not in self._checked:
            made.timeout_s = _left(end_s)
            try:
                self._check(made)
            except BaseException:
                made.close()
                raise
            self._checked.add(endpoint)
        return made

    def _opened(self, made: Connection | None) -> None:
        with self._changed:
            self._opening -= 1
            if made:
                self._all.add(made)
            self._changed.notify()

    def _next_gateway(self) -> Endpoint:
        gateways = self.address.gateways
        turn = next(self._turns) % len(gateways)
        now = time.monotonic()
        in_turn = [*gateways[turn:], *gateways[:turn]]
        return min(in_turn, key=lambda gateway: max(self._avoided_until_s.get(gateway, 0.0), now))

    def avoid(self, endpoint: Endpoint) -> None:
        """Ask other gateways first for a moment, and ask this one what it is before it is used again."""
        self._avoided_until_s[endpoint] = time.monotonic() + _AVOIDED_S
        self._checked.discard(endpoint)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next call."""
        with self._changed:
            if not self._is_closed and connection in self._all:
                self._idle.append(connection)
                self._changed.notify()
                return
        self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close a connection, whatever is under way on it."""
        with self._changed:
            self._all.discard(connection)
            self._changed.notify()
        connection.close()

    def close(self) -> None:
        """Close idle connections now, and those in use when they are given back."""
        with self._changed:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        for connection in idle:
            self.drop(connection)

    def forget(self) -> None:
        """Let go of the connections, which are the parent process's."""
        for connection in self._all:
            connection.close()
        self._start_afresh()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)


class _Lane:
    """A connection and the task under way on it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.position = -1
        self.steps: Steps


class _Run:
    """Tasks under way on many connections; `go` is called until it no longer raises `TransientError`."""

    def __init__(self, pool: Pool, tasks: Sequence[Task], width: int, once: bool) -> None:
        self.results: list[Any] = [_MISSING] * len(tasks)
        self._pool = pool
        self._tasks = tasks
        self._width = width
        self._once = once
        self._options = pool.address.options
        self._end_s = pool.last_heard() + self._options.deadline_s

    def is_over(self, state: RetryCallState) -> bool:
        """Whether the deadline would pass before the next try; it counts from the last reply."""
        return time.monotonic() + state.upcoming_sleep >= self._end_s

    def go(self) -> None:
        """Begin every task that has no result; raises `TransientError` where some still have none."""
        self._waiting = deque(number for number, result in enumerate(self.results) if result is _MISSING)
        self._lanes: deque[_Lane] = deque()
        self._failures: list[TransientError] = []
        try:
            while self._lanes or (self._waiting and not self._failures):
                if not self._widen():
                    self._advance()
        finally:
            for lane in self._lanes:  # left only by what is no failure to retry: a permanent error, Ctrl-C
                self._pool.drop(lane.connection)
        if self._failures:
            raise self._failures[0]

    def _timeout_s(self) -> float:
        return min(self._options.timeout_s, _left(self._end_s))

    def _widen(self) -> bool:
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
        self._begin(lane)
        return True

    def _begin(self, lane: _Lane) -> None:
        if not self._waiting or (len(self._lanes) > 1 and self._pool.is_wanted):
            self._lanes.remove(lane)
            self._pool.give_back(lane.connection)
            return
        lane.position = self._waiting.popleft()
        lane.steps = self._tasks[lane.position]()
        self._step(lane, None)

    def _step(self, lane: _Lane, reply: object) -> None:
        try:
            call = lane.steps.send(reply)
        except StopIteration as stop:
            self.results[lane.position] = stop.value
            self._begin(lane)
            return
        try:
            lane.connection.send(call, self._timeout_s())
        except (OSError, TTransportException, http.client.HTTPException) as error:
            self._fail(lane, error)

    def _advance(self) -> None:
        lane = self._lanes[0]
        try:
            reply = lane.connection.receive()
        except Exception as error:  # a broken stream can raise anything while it is decoded
            self._fail(lane, error)
            return
        self._end_s = self._pool.hear() + self._options.deadline_s
        self._lanes.rotate(-1)
        self._step(lane, reply)

    def _fail(self, lane: _Lane, error: Exception) -> None:
        self._lanes.remove(lane)
        meaning = self._meaning(lane.connection, error)
        if not isinstance(meaning, TransientError):
            raise meaning from error
        if self._once:
            self.results[lane.position] = UNKNOWN
        else:
            self._failures.append(meaning)

    def _meaning(self, connection: Connection, error: Exception) -> HsimhashError:
        if is_reply(error):
            self._pool.give_back(connection)
            table = self._pool.address.full_table.decode()
            return failure(error, connection.last_method, table, connection.endpoint)
        self._pool.drop(connection)
        self._pool.avoid(connection.endpoint)
        return TransientError(f"gateway {connection.endpoint}: {reason(error, connection.timeout_s)}")
