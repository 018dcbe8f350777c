"""Connections to a database: one per active thread, kept for reuse, reopened after a fork or a failure.

A call is retried until its deadline if the server cannot be reached or is starting, or if two transactions conflicted.
If the reply to a commit is lost, the write may have succeeded. It is sent again, and then changes nothing, because
every write describes the final state of its rows. However, the returned count is that of the last attempt.

Nothing depends on the defaults of a server, a database, a role or `options=`. The table lists the assumptions, and what
ensures them. `SET` means that each connection makes this setting when it opens:

| assumption | needed by | ensured by |
|---|---|---|
| a statement in a write sees all earlier commits | the proof in `write.py` | `READ COMMITTED` in `BEGIN` |
| the statements of a view see one state | `view.py` | `REPEATABLE READ` in `BEGIN` |
| a single statement does not fail because of other transactions | queries | `SET default_transaction_isolation` |
| only hsimhash ends calls and idle connections | deadlines, the write lock | `SET` of the `_timeout`s |
| functions, types and operators are PostgreSQL's own | all statements | `SET search_path` |
| a backslash in a literal is a backslash | `create-table` | `SET standard_conforming_strings` |
| queries use indexes, in one process | speed | `SET` of the planner's settings |
| a commit is on the server's disk | acknowledged writes | `SET synchronous_commit` |
| a connection keeps its server process | all settings, prepared statements, locks | `_refuse_shared_process` |

`DateStyle`, `bytea_output` and similar settings do not matter, because values are sent in binary. hsimhash does not
override `default_transaction_read_only`, because some hosting providers set it when a disk is full.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import psycopg
from psycopg.abc import Buffer, PQGen
from psycopg.adapt import Dumper
from psycopg.pq import Format, TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.numeric import Int8BinaryDumper

from hsimhash.errors import (
    HsimhashError,
    LostRightError,
    StopAskedError,
    StoreBusyError,
    StoreClosedError,
    StoreUnavailableError,
)
from hsimhash.store.base import gone
from hsimhash.store.postgresql.address import DatabaseAddress
from hsimhash.store.postgresql.codec import lock_number, made_sql
from hsimhash.store.postgresql.connecting import connected
from hsimhash.store.postgresql.existing_tables import refuse_no_tables
from hsimhash.store.postgresql.failures import (
    LostLinkError,
    MetAnotherError,
    SilentServerError,
    is_late,
    is_lost,
    is_passing,
    store_error,
    transaction_pooler,
    words_of,
)
from hsimhash.store.retries import RetryWarnings, pauses

T = TypeVar("T")

OLDEST_SERVER = 140_000  # the first version with bit_count
_IDLE_CONNECTIONS = 8  # maximum number of idle connections kept
_LOCK_SLICE_MS = 500  # how long to wait for the write lock between two calls of `stop`
# The time allowed for cancelling a call that has reached its time limit: a tenth of that limit, within these bounds.
# A responsive server answers within milliseconds.
_LEAST_CANCEL_S, _MOST_CANCEL_S, _CANCEL_SHARE = 0.2, 1.0, 0.1
_LOOKS, _LOOK_S, _ASKS = 3, 1.0, 30  # limits of the search for a server process that connections share behind a pooler
_OWN_LIMITS = ("statement", "lock", "idle_session", "idle_in_transaction_session")  # each followed by `_timeout`
_TRANSACTION_TIMEOUT = 170_000  # the first server version with transaction_timeout
# Queries always use the database indexes, whatever the planner assumes about the tables. They use one process, because
# before the first ANALYZE the planner would start two more processes for each query, which takes 4 ms instead of 0.1.
# Commits are durable. Creating a text of a million letters makes glibc's free() keep up to 2 MB (see the dynamic
# M_TRIM_THRESHOLD in mallopt(3)). Otherwise a server process may return each query's memory to the kernel and request
# it again for the next query, which takes 30 of 130 µs.
_SETTINGS = (
    "SET search_path = pg_catalog, pg_temp; SET standard_conforming_strings = on; "
    "SET default_transaction_isolation = 'read committed'; "
    "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_indexscan = on; SET enable_indexonlyscan = on; "
    "SET enable_nestloop = on; SET max_parallel_workers_per_gather = 0; "
    "SET plan_cache_mode = force_generic_plan; SET jit = off; SET client_min_messages = warning; "
    "SELECT length(repeat(repeat('x', 1000), 1000)); "
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)


def _settings(version: int) -> str:
    """Return the statements that set up a connection. The timeouts come first, so that they apply to all others."""
    limits = (*_OWN_LIMITS, "transaction") if version >= _TRANSACTION_TIMEOUT else _OWN_LIMITS
    return "; ".join([*(f"SET {name}_timeout = 0" for name in limits), _SETTINGS])


class _ArrayDumper(Dumper):
    """An array of int64 as PostgreSQL's binary bigint[]."""

    format = Format.BINARY
    oid = 1016

    def dump(self, obj: np.ndarray[Any, np.dtype[np.int64]]) -> Buffer:
        items = np.empty(len(obj), [("bytes", ">i4"), ("value", ">i8")])
        items["bytes"], items["value"] = 8, obj
        return np.array([1, 0, 20, len(obj), 1], ">i4").tobytes() + items.tobytes()


class TextArray:
    """UTF-8 texts for a parameter of type text[]."""

    def __init__(self, items: Sequence[bytes]) -> None:
        self.items = items


class _TextsDumper(Dumper):
    """Texts as PostgreSQL's binary text[]; psycopg's own dumper inspects each character."""

    format = Format.BINARY
    oid = 1009

    def dump(self, obj: TextArray) -> Buffer:
        head = np.array([1, 0, 25, len(obj.items), 1], ">i4").tobytes()
        return head + b"".join([len(one).to_bytes(4, "big") + one for one in obj.items])


class Link(psycopg.Connection[TupleRow]):
    """A connection that belongs to one process, and whose calls end at the time `until`.

    `taken_s` is the time at which its caller took it.
    """

    until: float = math.inf
    taken_s: float = 0.0
    pid: int = 0

    @property
    def cancel_s(self) -> float:
        """How long to wait for the cancellation of a call, in seconds."""
        return min(_MOST_CANCEL_S, max(_LEAST_CANCEL_S, _CANCEL_SHARE * (self.until - self.taken_s)))

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        if timeout is None and self.until != math.inf:
            timeout = max(0.001, self.until - time.monotonic())
        return super().wait(gen, interval, timeout)

    def server_process(self) -> int:
        """Return the pid of the server process that responds; behind a pooler, it differs from `info.backend_pid`."""
        ((number,),) = self.execute("SELECT pg_catalog.pg_backend_pid()", prepare=False).fetchall()
        return int(number)

    def rows(self, statement: str, *values: object) -> list[Any]:
        """Return the rows of a prepared statement with parameters $1, $2 and so on."""
        cursor = psycopg.RawCursor(self)
        cursor.execute(statement, values, prepare=True, binary=True)
        return cursor.fetchall()

    @cached_property
    def asker(self) -> psycopg.RawCursor[TupleRow]:
        """A cursor for single queries. It caches the types of a repeated statement, which saves a sixth of the time."""
        return psycopg.RawCursor(self)

    def do(self, statement: str, *values: object) -> int:
        """Execute a statement; return how many rows it changed."""
        cursor = psycopg.RawCursor(self)
        cursor.execute(statement, values, prepare=bool(values))
        return cursor.rowcount


class _Own(threading.local):
    writer: Link | None = None
    pid: int = 0


class DatabaseSession:
    """An index's connections; thread-safe and fork-safe.

    Args:
        url: URL of the index, for messages.
        address: Address of the database.
        deadline_s: How long a call is retried, in seconds, unless the address sets it.
    """

    def __init__(self, url: str, address: DatabaseAddress, deadline_s: float) -> None:
        self.url = url
        self.address = address
        self.deadline_s = deadline_s if address.deadline_s is None else address.deadline_s
        self.lock_timeout_s = address.lock_timeout_s
        self.made: str | None = None  # result of `made_sql` for the index that was opened; None until it is read
        self.user = ""  # the database user; empty until the first connection is open
        self._is_closed = self._has_own_process = False
        self._idle: list[Link] = []
        self._parents: list[Link] = []  # kept after a fork, because closing them would close the parent's connections
        self._pid = os.getpid()
        self._own = _Own()
        self._lock = lock_number(address)
        self._warnings = RetryWarnings()

    # Connections.

    def take(self, until: float) -> Link:
        """Return a connection for calls that end at the time `until`."""
        if self._pid != os.getpid():
            self._parents, self._idle, self._pid = self._idle, [], os.getpid()
        self._refuse_closed()
        taken_s = time.monotonic()
        try:
            link = self._idle.pop()
        except IndexError:
            link = self._connected(until)
        link.until, link.taken_s = until, taken_s
        return link

    def give(self, link: Link) -> None:
        """Return a connection to the pool; close it if it is lost or inside a transaction."""
        is_idle = not is_lost(link) and link.info.transaction_status == TransactionStatus.IDLE
        if is_idle and len(self._idle) < _IDLE_CONNECTIONS and not self._is_closed:
            self._idle.append(link)
        else:
            link.close()

    def _connected(self, until: float) -> Link:
        link = self._reached(until)
        try:
            self._set_up(link)
        except BaseException as error:
            link.close()
            if isinstance(error, psycopg.OperationalError):  # for example from a pooler that has lost the server
                raise (SilentServerError if is_late(error) else LostLinkError)(*error.args) from error
            raise
        return link

    def _reached(self, until: float) -> Link:
        timeout_s = self.address.timeout_s
        link = Link(
            connected(
                self.address.conninfo,
                timeout_s,
                until,
                tcp_user_timeout=round(1_000 * timeout_s),
                application_name="hsimhash",
                client_encoding="UTF8",
            )
        )
        link.until, link.pid = until, os.getpid()
        link.autocommit = True
        self.user = link.info.user
        return link

    def _set_up(self, link: Link) -> None:
        version = link.info.server_version
        if version < OLDEST_SERVER:
            raise StoreUnavailableError(
                f"{self.address.name} is PostgreSQL {version // 10_000}; hsimhash needs 14 or newer"
            )
        if not self._has_own_process:
            self._refuse_shared_process(link)
        link.adapters.register_dumper(np.ndarray, _ArrayDumper)
        link.adapters.register_dumper(TextArray, _TextsDumper)
        link.adapters.register_dumper(int, Int8BinaryDumper)  # all numbers as bigint: one plan per statement
        link.execute(_settings(version), prepare=False)

    def _refuse_shared_process(self, link: Link) -> None:
        """Raise an error if a pooler shares a server process between connections; call this before changing settings.

        A pooler reports a process id of its own. In transaction mode, it assigns an idle connection's server
        process to the next transaction, which may belong to another connection. The next transaction on the first
        connection may then use another process.
        """
        process = link.server_process()
        if process != link.info.backend_pid:
            for _ in range(_LOOKS):
                if self._is_passed_on(link, process):
                    raise transaction_pooler(self.address)
        self._has_own_process = True

    def _is_passed_on(self, link: Link, process: int) -> bool:
        """Whether another connection uses this one's server process, or this connection now uses another process."""
        with suppress(psycopg.Error), self._reached(time.monotonic() + _LOOK_S) as other:
            for _ in range(_ASKS):  # the busier the pool is, the more attempts are needed
                if other.server_process() == process or link.server_process() != process:
                    return True
            with other.transaction():
                return other.server_process() == process or link.server_process() != process
        return False  # no other connection was available in time; a pool in session mode may be exhausted

    # Calls.

    def call(self, work: Callable[[Link], T], *, is_long: bool = False) -> T:
        """Call `work` with a connection and return its result; retry until the deadline.

        A long call is not interrupted once it has begun.
        """

        def attempt(until: float) -> T:
            self._refuse_closed()
            held = self.held()
            if held is None:
                return self.once(work, math.inf if is_long else until)
            held.until = math.inf if is_long else until
            try:
                return work(held)
            except BaseException as error:
                self.end_failed(held)
                if not (isinstance(error, psycopg.Error) and is_lost(held)):
                    raise
                raise LostRightError(
                    f"{self.url}: the connection that held the write lock was lost ({words_of(error)}); "
                    f"unacknowledged writes may be lost; try again: a job resumes where it stopped"
                ) from error

        return self.tried(attempt, is_long=is_long)

    def once(self, work: Callable[[Link], T], until: float) -> T:
        """Call `work` with a connection whose calls end at `until`, and return its result.

        Raises:
            LostLinkError: The connection was lost.
        """
        link = self.take(until)
        try:
            return work(link)
        except BaseException as error:
            self._end_call(link, error)
            raise
        finally:
            self.give(link)

    def begun(self, first: Callable[[Link], object], until: float) -> Link:
        """Return a connection on which `first` has taken a lock or a snapshot; errors are handled as in `once`."""
        link = self.take(until)
        try:
            first(link)
        except BaseException as error:
            self._end_call(link, error)
            self.give(link)
            raise
        return link

    def _end_call(self, link: Link, error: BaseException) -> None:
        has_answered = self.end_failed(link)
        if isinstance(error, psycopg.Error) and is_lost(link):
            raise (LostLinkError if has_answered else SilentServerError)(*error.args) from error

    def tried(self, attempt: Callable[[float], T], most: float = math.inf, *, is_long: bool = False) -> T:
        """Call `attempt` with the time at which it must end, and return its result; retry after temporary failures.

        For a long call, the deadline starts at its first failure.
        """
        began_s, waits = time.monotonic(), pauses()
        until = min(most, began_s + self.deadline_s)
        while True:
            try:
                return attempt(until)
            except (psycopg.Error, MetAnotherError) as error:
                if is_long:
                    began_s, is_long = time.monotonic(), False
                    until = min(most, began_s + self.deadline_s)
                pause_s = next(waits)
                if not is_passing(error) or time.monotonic() + pause_s >= until:
                    if isinstance(error, psycopg.errors.UndefinedTable):  # report which tables are missing
                        with suppress(psycopg.Error):
                            self.once(lambda link: refuse_no_tables(link.rows, self.address), until)
                    raise self.error(error) from error
                now_s = time.monotonic()
                self._warnings.note(self.error(error), failing_s=now_s - began_s, left_s=until - now_s)
            time.sleep(pause_s)

    def error(self, error: Exception) -> HsimhashError:
        """Convert an error from this session's calls; see `store_error`."""
        return store_error(error, self.address, self.user)

    def end_failed(self, link: Link) -> bool:
        """Clean up a failed call: roll back, or close the connection if it is lost or may still receive a reply.

        Returns:
            False if the server did not answer a request to cancel the call; otherwise True.
        """
        if link.info.transaction_status == TransactionStatus.ACTIVE:
            try:
                link.cancel_safe(timeout=link.cancel_s)
            except psycopg.errors.CancellationTimeout:
                return False
            except psycopg.Error:
                pass
            finally:
                link.close()
        elif is_lost(link):  # most likely, the idle connections are lost too
            idle, self._idle = self._idle, []
            for one in idle:
                one.close()
        elif link.info.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                link.execute("ROLLBACK", prepare=False)
        return True

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"{self.url} was closed; open it again")

    def transaction(self, work: Callable[[Link], T], *, is_long: bool = False) -> T:
        """Run `work` in a write transaction and return its result; durable on return."""

        def begun(link: Link) -> T:
            wait_ms = max(1, round(1_000 * self.lock_timeout_s))
            link.until = max(link.until, time.monotonic() + self.lock_timeout_s + self.deadline_s)
            lock = "" if link is self.held() else f", pg_advisory_xact_lock_shared({self._lock})"
            begin = f"BEGIN ISOLATION LEVEL READ COMMITTED; SELECT set_config('lock_timeout', '{wait_ms}', true){lock}"
            link.execute(begin, prepare=False)
            if self.made is not None:  # prepared: planning takes longer than a round trip; this read locks the table
                self.check_same(link.rows(made_sql(self.address)))
            done = work(link)
            link.execute("COMMIT", prepare=False)
            return done

        return self.call(begun, is_long=is_long)

    def check_same(self, found: Sequence[tuple[object, ...]]) -> None:
        """Raise `IndexNotFoundError` if the result of `made_sql` differs from that of the index that was opened."""
        if self.made is not None and found != [(self.made,)]:
            raise gone(self.url, is_replaced=True)

    # The write lock.

    def held(self) -> Link | None:
        """Return the connection on which this thread holds the write lock, if it does."""
        return self._own.writer if self._own.pid == os.getpid() else None

    @contextmanager
    def writing(self, stop: Callable[[], bool] | None = None) -> Iterator[None]:
        """Hold the write lock during the block; see `Store.writing`."""
        if self.held() is not None:
            yield
            return
        lock = partial(self._lock_alone, stop=stop)  # does not hold the lock if it fails, so it can be retried
        link = self.tried(partial(self.begun, lock), is_long=True)
        try:
            self._own.writer, self._own.pid = link, os.getpid()
            yield
        finally:
            self._own.writer = None
            if link.pid == os.getpid():
                with suppress(psycopg.Error):
                    if not is_lost(link):
                        link.until = time.monotonic() + self.deadline_s
                        link.execute("SELECT pg_advisory_unlock_all(); SET lock_timeout = 0", prepare=False)
                self.give(link)

    def _lock_alone(self, link: Link, stop: Callable[[], bool] | None) -> None:
        """Wait for the write lock; callers that request it in the meantime are queued after this one."""
        deadline = time.monotonic() + self.lock_timeout_s
        while True:
            wait_ms = max(1, min(_LOCK_SLICE_MS, round(1_000 * (deadline - time.monotonic()))))
            try:
                link.until = deadline + self.deadline_s
                link.execute(f"SET lock_timeout = {wait_ms}", prepare=False)
                link.execute(f"SELECT pg_advisory_lock({self._lock})", prepare=False)
            except psycopg.errors.LockNotAvailable as error:
                if stop is not None and stop():
                    raise StopAskedError("stopped while another process was writing") from error
                if time.monotonic() >= deadline:
                    raise StoreBusyError(
                        f"{self.url}: another process has been writing for over {self.lock_timeout_s:g} s; try again, "
                        f"or set a longer lock_timeout= in the URL"
                    ) from error
            else:
                return

    def close(self) -> None:
        """Close the idle connections; connections in use are closed when they are returned."""
        self._is_closed = True
        if self._pid == os.getpid():
            idle, self._idle = self._idle, []
            for link in idle:
                link.close()
