"""A pool of connections to one or more gateways, used by the tasks in `pipeline.py`.

A gateway dedicates a thread to each connection. After a time-out, this thread stays busy for as long as HBase retries
the call, which may take 20 minutes. The pool sets such a connection aside until its reply arrives or the connection is
closed. Connections that are set aside still count toward a limit, so that a pool never occupies more than twice
`connections` threads on the gateways.

A signal handler may raise an exception between any two steps, so nothing here increments and decrements counters.
Instead, connections in use and waiting callers are objects, which are counted for as long as they exist (`Living`).
Each wait is a single call into C.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from weakref import WeakSet

from hsimhash import metrics
from hsimhash.errors import StoreClosedError
from hsimhash.store.hbase.gateway.address import Address, Endpoint
from hsimhash.store.hbase.gateway.balancing import Choice, Living
from hsimhash.store.hbase.gateway.connection import Connection, tls_context
from hsimhash.store.hbase.gateway.failures import TransientError, reason

CONNECT_S = 1.0  # time-out for connecting while another gateway works

_LEAST_CONNECT_S = 0.1
# Polling intervals of waiting callers: normally, and while connections are set aside.
_LOOK_S, _LOOK_ASIDE_S = 1.0, 0.05

_log = logging.getLogger("hsimhash.store")
_pools: WeakSet[Pool] = WeakSet()


class _Waiter:
    """A caller waiting for a connection; it is counted for as long as this object exists."""


class Pool:
    """A pool with at most `address.options.connections` connections in use at a time; thread-safe and fork-safe.

    Args:
        address: Address with the gateways.
        check: Raises an error if a gateway is not the expected one. Called with the first connection to each gateway,
            and with the first connection after a failure. With TLS, called with every new connection.
    """

    def __init__(self, address: Address, check: Callable[[Connection], None]) -> None:
        self.address = address
        self._check = check
        self._context = tls_context(address)
        self._is_closed = False
        self._start_afresh()
        _pools.add(self)

    def _start_afresh(self) -> None:
        self._lock = threading.Lock()
        self._freed: SimpleQueue[None] = SimpleQueue()  # wakes a waiting caller
        self._waiting: Living[_Waiter] = Living()
        self._choice = Choice(self.address.gateways)
        self._idle: list[Connection] = []
        self._checked: set[Endpoint] = set()

    def reach(self) -> dict[Endpoint, Exception]:
        """Try each gateway once until one responds; return the error from each, or an empty dict if one responded."""
        errors: dict[Endpoint, Exception] = {}
        for _ in self.address.gateways:
            with self._lock:
                connection = self._new(self._choice.next())
            try:
                self._open(connection, self.address.options.timeout_s)
            except Exception as error:  # a service that is not a gateway may return anything
                errors[connection.endpoint] = error
            else:
                self.give_back(connection)
                return {}
        return errors

    def take(self, timeout_s: float, *, wait: bool) -> Connection | None:
        """Return a connection that is ready for a call; None if all are in use and `wait` is False.

        Raises:
            TransientError: No connection could be opened, or none became free within the time-out.
        """
        end_s = time.monotonic() + timeout_s
        while True:
            found = self._await(end_s) if wait else self._spare()
            if found is None and wait:
                raise TransientError(self._busy(timeout_s))
            if found is None or (found.is_connected and found.is_fit):
                return found
            if found.is_connected:
                self.drop(found)
                continue
            left_s = max(end_s - time.monotonic(), _LEAST_CONNECT_S)
            try:
                self._open(found, left_s)
            except Exception as error:
                raise TransientError(f"gateway {found.endpoint}: {reason(error, left_s)}") from error
            return found

    def _await(self, end_s: float) -> Connection | None:
        """Wait for a connection until `end_s` and return it; return None if none became free in time."""
        waiter = _Waiter()
        try:
            with self._lock:
                self._waiting.add(waiter)
            while True:
                with self._lock:
                    found = self._pop()
                    look_s = _LOOK_ASIDE_S if self._choice.overdue else _LOOK_S
                left_s = end_s - time.monotonic()
                if found is not None or left_s <= 0:
                    return found
                with suppress(Empty):
                    self._freed.get(timeout=min(left_s, look_s))
        finally:
            with self._lock:
                self._waiting.discard(waiter)

    def _spare(self) -> Connection | None:
        """Return an unused connection; None if all are in use, or if other callers are waiting for one."""
        with self._lock:
            return None if self.is_wanted else self._pop()

    def _busy(self, timeout_s: float) -> str:
        with self._lock:
            used, kept = len(self._choice.connections), len(self._choice.overdue)
        why = f"in use: {used}, waiting for overdue replies: {kept}"
        gateways = self.address.gateways
        who = f"gateway{'s' if len(gateways) > 1 else ''} {', '.join(map(str, gateways))}"
        return f"{who}: no connection became available within {timeout_s:.3g} s ({why})"

    @property
    def is_wanted(self) -> bool:
        """Whether a caller is waiting for a connection; if so, a caller that holds several returns one."""
        return len(self._waiting) > 0

    def _pop(self) -> Connection | None:
        """Return an idle connection, preferably to a working gateway, or a new one; None if all are in use."""
        if self._is_closed:
            raise StoreClosedError(f"{self.address} was closed")
        self._settle()
        self._try_beside()
        for place in reversed(range(len(self._idle))):
            if self._choice.works(self._idle[place].endpoint):
                return self._idle.pop(place)
        has_room = self._has_room()
        if self._idle and not (has_room and self._choice.has_other(self._idle[-1].endpoint)):
            return self._idle.pop()
        return self._new(self._choice.next()) if has_room else None

    def _settle(self) -> None:
        """Close overdue connections whose gateway has finished the call, and those that have been idle too long."""
        for connection in self._choice.overdue:
            if not connection.is_quiet:
                self._let_go(connection)
        while self._idle and self._idle[0].is_stale:
            self._let_go(self._idle.pop(0))

    def _has_room(self) -> bool:
        held, most = len(self._choice.connections), self.address.options.connections
        return held < most and held + len(self._choice.overdue) < 2 * most

    def _new(self, endpoint: Endpoint) -> Connection:
        """Return a new connection, counted but not yet open."""
        made = Connection(endpoint, self.address, self._context, timeout_s=self.address.options.timeout_s)
        self._choice.opens(made)
        return made

    def _open(self, connection: Connection, timeout_s: float) -> None:
        """Connect, with a shorter time-out if another gateway works; drop the connection if connecting fails."""
        if self._choice.has_other(connection.endpoint):
            timeout_s = min(timeout_s, CONNECT_S)
        end_s = time.monotonic() + timeout_s
        try:
            connection.connect(timeout_s)
            # With TLS, always check, because session tickets arrive before the first reply and look like one.
            if connection.endpoint not in self._checked or self._context is not None:
                connection.timeout_s = max(end_s - time.monotonic(), _LEAST_CONNECT_S)
                self._check(connection)
                with self._lock:
                    self._checked.add(connection.endpoint)
                    self._choice.answered(connection.endpoint)
        except BaseException as error:
            self.drop(connection)
            if isinstance(error, Exception):
                metrics.current.unreached.labels(connection.endpoint).inc()
                self.failed(connection.endpoint)
            raise

    def _try_beside(self) -> None:
        """Try a failed gateway whose rest is over, in a separate thread so that no call waits for it."""
        endpoint = self._choice.to_try() if self._has_room() else None
        if endpoint is None:
            return
        connection = self._new(endpoint)
        trial = threading.Thread(target=self._try, args=(connection,), name="hsimhash-gateway", daemon=True)
        try:
            trial.start()
        except RuntimeError as error:  # no thread is available, or Python is exiting; calls continue without a trial
            self._choice.closes(connection)
            self._choice.tried(endpoint)
            _log.info("cannot try gateway %s again: %s", endpoint, error)

    def _try(self, connection: Connection) -> None:
        try:
            self._open(connection, self.address.options.timeout_s)
        except Exception as error:  # whatever the error, the gateway keeps resting
            _log.info("gateway %s still does not work: %s", connection.endpoint, error)
        else:
            self.give_back(connection)
        finally:
            with self._lock:
                self._choice.tried(connection.endpoint)

    def heard(self, connection: Connection) -> None:
        """Record that a connection's gateway responded."""
        if not self._choice.works(connection.endpoint):
            with self._lock:
                self._choice.answered(connection.endpoint)

    def failed(self, endpoint: Endpoint) -> None:
        """Let a gateway rest, and check it before it is used again."""
        with self._lock:
            self._checked.discard(endpoint)
            self._choice.failed(endpoint)

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for the next call, or close it if another gateway has too few connections."""
        with self._lock:
            if self._is_closed or self._choice.is_crowded(connection.endpoint):
                self._let_go(connection)
            else:
                self._idle.append(connection)
                self._wake()

    def drop(self, connection: Connection) -> None:
        """Close a connection, even with calls in progress."""
        with self._lock:
            self._let_go(connection)

    def _let_go(self, connection: Connection) -> None:
        self._choice.closes(connection)
        connection.close()
        self._wake()

    def _wake(self) -> None:
        if self.is_wanted:
            self._freed.put(None)

    def abandon(self, connection: Connection) -> None:
        """Set aside a connection whose outstanding replies are no longer needed."""
        if not connection.is_awaited:
            self.give_back(connection)
            return
        with self._lock:
            if self._is_closed:
                self._let_go(connection)
            else:
                self._choice.puts_aside(connection)
                connection.say_no_more()
                self._wake()

    def close(self) -> None:
        """Close idle connections now, and connections in use when they are returned."""
        with self._lock:
            self._is_closed = True
            while self._idle:
                self._let_go(self._idle.pop())
            for connection in self._choice.overdue:
                self._let_go(connection)

    def forget(self) -> None:
        """Close the inherited copies of the parent process's connections, and start with an empty pool."""
        for connection in [*self._choice.connections, *self._choice.overdue]:
            connection.close()
        self._start_afresh()


def _connections() -> Counter[str]:
    """Return how many connections this process has to each gateway, including those set aside."""
    return Counter(
        str(connection.endpoint)
        for pool in list(_pools)
        for connection in [*pool._choice.connections, *pool._choice.overdue]
        if connection.is_connected
    )


metrics.connections.append(_connections)


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.forget()


os.register_at_fork(after_in_child=_after_fork_in_child)
