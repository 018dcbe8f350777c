"""Connections to one or more gateways: taken for the tasks of `lanes.py`, and given back.

A gateway keeps a thread for each connection, and that of a call whose reply did not come in time stays busy for as
long as HBase tries, which may be 20 minutes. Such a connection is kept aside until its reply, or its end, comes: it
counts, so that time-outs never hold more than twice `connections` threads of the gateways.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tenacity import Retrying, retry_if_exception_type, wait_random_exponential

from hsimhash.errors import StoreClosedError
from hsimhash.store.base import DEADLINE_S
from hsimhash.store.hbase.address import Address, Endpoint
from hsimhash.store.hbase.choice import Choice
from hsimhash.store.hbase.connection import Connection, tls_context
from hsimhash.store.hbase.diagnosis import reason
from hsimhash.store.hbase.failures import TransientError
from hsimhash.store.hbase.lanes import Patience, Run, Task

CONNECT_S = 1.0  # to connect, where another gateway works

Check = Callable[[Connection], None]  # raises where a gateway is not what it should be

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 2.0
_LEAST_CONNECT_S = 0.1
_LOOK_S = 0.05  # between two looks at the connections that are kept aside, where one is waited for

_log = logging.getLogger("hsimhash.store")
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """At most `address.options.connections` connections in use; thread-safe and fork-safe.

    Args:
        address: of the gateways.
        check: is given every first connection to a gateway, and the first after it failed.
        deadline_s: how long a call is tried without an answer, unless the address says.
    """

    def __init__(self, address: Address, check: Check, *, deadline_s: float = DEADLINE_S) -> None:
        self.address = address
        self.deadline_s = address.options.deadline_s or deadline_s
        self.patience = Patience()
        self._check = check
        self._context = tls_context(address)
        self._is_closed = False
        self._start_afresh()
        _pools.add(self)

    def _start_afresh(self) -> None:
        # Entered by itself, in C: a signal while a condition is entered, in Python, would leave it locked for good.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._choice = Choice(self.address.gateways)
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()  # idle and in use
        self._overdue: set[Connection] = set()
        self._opening = 0
        self._waiters = 0
        self._checked: set[Endpoint] = set()

    # How long what a thread asks may take.

    @contextmanager
    def one_deadline(self) -> Iterator[None]:
        """Let the deadlines of what this thread runs within count from the last reply to any of it, or from now."""
        outer_s, self.patience.silent_s = self.patience.silent_s, 0.0
        try:
            yield
        finally:
            self.patience.silent_s = outer_s

    @contextmanager
    def ending(self, timeout_s: float | None) -> Iterator[None]:
        """Let all that this thread runs within end after so long, with `StoreTimeoutError`; None: no such end."""
        outer_s = self.patience.end_s
        if timeout_s is not None:
            self.patience.end_s = min(outer_s, time.monotonic() + timeout_s)
        try:
            yield
        finally:
            self.patience.end_s = outer_s

    def run(self, tasks: Sequence[Task], *, width: int, depth: int = 1, once: bool = False) -> list[Any]:
        """Return the tasks' results; see `Run`.

        Raises:
            StoreUnavailableError: for the whole deadline no call was answered; see `one_deadline`.
            StoreTimeoutError: see `ending`.
        """
        run = Run(self, tasks, width=width, depth=depth, once=once)
        retrying = Retrying(
            retry=retry_if_exception_type(TransientError),
            stop=run.is_over,
            wait=wait_random_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S),
            reraise=True,
        )
        try:
            retrying(run.go)
        except TransientError as error:
            raise run.error(error) from error
        finally:
            if self.patience.silent_s is not None:
                self.patience.silent_s = run.silent_s
        return run.results

    # Connections.

    def reach(self) -> dict[Endpoint, Exception]:
        """Connect to one of the gateways, each tried once; return nothing, or what was wrong with each."""
        errors: dict[Endpoint, Exception] = {}
        for _ in self.address.gateways:
            with self._lock:
                endpoint = self._choice.next()
                self._opening += 1
            try:
                connection = self._open(endpoint, self.address.options.timeout_s)
            except Exception as error:  # a service that is no gateway can answer anything
                errors[endpoint] = error
            else:
                self.give_back(connection)
                return {}
        return errors

    def take(self, timeout_s: float, *, wait: bool) -> Connection | None:
        """Return a connection that is fit for a call; None where all are in use and `wait` is not asked for.

        Raises:
            TransientError: no connection could be made, or none became free within the time-out.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            with self._lock:
                if not self._await(end_s if wait else None):
                    if not wait:
                        return None
                    raise TransientError(self._busy(timeout_s))
                self._try_beside()
                found = self._pop()
                endpoint = self._choice.next()
            if found is None:
                left_s = max(end_s - time.monotonic(), _LEAST_CONNECT_S)
                try:
                    return self._open(endpoint, left_s)
                except Exception as error:
                    raise TransientError(f"gateway {endpoint}: {reason(error, left_s)}") from error
            if found.is_fit:
                return found
            self.drop(found)

    def _busy(self, timeout_s: float) -> str:
        overdue = f", and {len(self._overdue)} wait for replies that are overdue" if self._overdue else ""
        return f"all {len(self._all)} connections were in use for {timeout_s:.3g} s{overdue}"

    @property
    def is_wanted(self) -> bool:
        """Whether someone waits for a connection: who has several gives one back."""
        return self._waiters > 0

    def _await(self, end_s: float | None) -> bool:
        """Wait until a connection can be taken; return whether one can. Without an end, do not wait."""
        self._settle()
        if end_s is None:
            return self._can_take() and not self.is_wanted
        self._waiters += 1
        try:
            while not self._can_take():
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, _LOOK_S) if self._overdue else left_s)
                self._settle()
            return True
        finally:
            self._waiters -= 1

    def _settle(self) -> None:
        """Let go of overdue connections whose gateway has done with the call, and of those that idled too long."""
        for connection in [one for one in self._overdue if not one.is_quiet]:
            self._overdue.remove(connection)
            self._choice.owes(connection.endpoint, -1)
            connection.close()
        while self._idle and self._idle[0].is_stale:
            self._let_go(self._idle.pop(0))

    def _can_take(self) -> bool:
        return self._is_closed or bool(self._idle) or self._has_room()

    def _has_room(self) -> bool:
        held, most = len(self._all) + self._opening, self.address.options.connections
        return held < most and held + len(self._overdue) < 2 * most

    def _pop(self) -> Connection | None:
        """Return an idle connection; None, having counted one that is being opened, where that is better."""
        self._check_open()
        for place in reversed(range(len(self._idle))):
            if self._choice.works(self._idle[place].endpoint):
                return self._idle.pop(place)
        if self._idle and not (self._has_room() and self._choice.has_other(self._idle[-1].endpoint)):
            return self._idle.pop()
        self._opening += 1
        return None

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self.address} was closed")

    def _open(self, endpoint: Endpoint, timeout_s: float) -> Connection:
        """Return a new connection, which was counted as being opened."""
        made = None
        try:
            made = self._connect(endpoint, min(timeout_s, CONNECT_S) if self._choice.has_other(endpoint) else timeout_s)
        except Exception:
            self.failed(endpoint)
            raise
        finally:
            with self._lock:
                self._opening -= 1
                if made:
                    self._all.add(made)
                    self._choice.opened(endpoint)
                self._changed.notify()
        return made

    def _connect(self, endpoint: Endpoint, timeout_s: float) -> Connection:
        end_s = time.monotonic() + timeout_s
        made = Connection(endpoint, self.address, self._context, timeout_s=timeout_s)
        if endpoint not in self._checked:
            made.timeout_s = max(end_s - time.monotonic(), _LEAST_CONNECT_S)
            try:
                self._check(made)
            except BaseException:
                made.close()
                raise
            with self._lock:
                self._checked.add(endpoint)
                self._choice.answered(endpoint)
        return made

    def _try_beside(self) -> None:
        """Try a gateway that failed and has rested, in a thread of its own: no call waits for it."""
        endpoint = self._choice.to_try() if self._has_room() else None
        if endpoint is None:
            return
        trial = threading.Thread(target=self._try, args=(endpoint,), name="hsimhash-gateway", daemon=True)
        self._opening += 1
        try:
            trial.start()
        except RuntimeError as error:  # no more threads, or the interpreter ends: the calls go on without
            self._opening -= 1
            self._choice.tried(endpoint)
            _log.info("gateway %s cannot be tried: %s", endpoint, error)

    def _try(self, endpoint: Endpoint) -> None:
        try:
            connection = self._open(endpoint, self.address.options.timeout_s)
        except Exception as error:  # whatever it is, the gateway goes on resting
            _log.info("gateway %s does not work yet: %s", endpoint, error)
        else:
            self.give_back(connection)
        finally:
            with self._lock:
                self._choice.tried(endpoint)

    def heard(self, connection: Connection) -> None:
        """Note that the connection's gateway answered."""
        if not self._choice.works(connection.endpoint):
            with self._lock:
                self._choice.answered(connection.endpoint)

    def failed(self, endpoint: Endpoint) -> None:
        """Leave a gateway alone for a while, and ask what it is before it is used again."""
        with self._lock:
            self._checked.discard(endpoint)
            self._choice.failed(endpoint)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next call, unless another gateway has too few."""
        with self._lock:
            if not self._is_closed and connection in self._all and not self._choice.is_crowded(connection.endpoint):
                self._idle.append(connection)
                self._changed.notify()
                return
        self.drop(connection)

    def drop(self, connection: Connection) -> None:
        """Close a connection, whatever is under way on it."""
        with self._lock:
            self._let_go(connection)
            self._changed.notify()

    def _let_go(self, connection: Connection) -> None:
        self._forget(connection)
        connection.close()

    def _forget(self, connection: Connection) -> None:
        if connection in self._all:
            self._all.remove(connection)
            self._choice.closed(connection.endpoint)

    def abandon(self, connection: Connection) -> None:
        """Keep a connection aside on which calls are under way that nobody waits for any more."""
        if not connection.is_awaited:
            self.give_back(connection)
            return
        with self._lock:
            self._forget(connection)
            if self._is_closed:
                connection.close()
            else:
                self._overdue.add(connection)
                self._choice.owes(connection.endpoint, 1)
            self._changed.notify()

    def close(self) -> None:
        """Close idle connections now, and those in use when they are given back."""
        with self._lock:
            self._is_closed = True
            for connection in [*self._idle, *self._overdue]:
                self._let_go(connection)
            self._idle, self._overdue = [], set()
            self._changed.notify_all()

    def forget(self) -> None:
        """Let go of the connections, which are the parent process's."""
        for connection in [*self._all, *self._overdue]:
            connection.close()
        self._start_afresh()


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
