"""One LMDB environment per process and folder: sharing it, forking, transactions under the writer's lock.

LMDB's own writer lock has neither time-out nor holder, hence `writer.lock`. LMDB must not be opened twice in a process,
nor used across a fork: environments are shared by path, and opened anew in a child. Calls look whether the
files that are open are still the index's own (two `stat`), so that a long-lived reader follows a `compact`.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from hsimhash.errors import (
    LayoutMismatchError,
    ProfileMismatchError,
    StoreClosedError,
    StoreUnavailableError,
)
from hsimhash.store.base import RECORD_PARTS, check_format
from hsimhash.store.damage import DamagedRowError, as_our_error, damaged, is_full, lmdb_errors
from hsimhash.store.files import DATA_LINK, DATABASES, ROWS_AT_ONCE, OpenFiles, copy_rows, open_databases, open_in_force
from hsimhash.store.locks import WRITER_LOCK, Gate, WriterLock

FOLLOW_S = 0.001  # a read looks again for replaced files after this time; a write always looks
READER_CHECK_WRITES = 64  # write transactions between two looks for readers that were killed

_log = logging.getLogger("hsimhash.store")


def _check_format(stored: bytes, path: Path) -> None:
    try:
        found = json.loads(stored)
    except ValueError as error:
        raise damaged(path, f"it has no readable record ({error})") from error
    check_format(found, f"index {path}")


class Environment:
    """The LMDB environment of one folder, shared by all stores of this process that are open on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = WriterLock(path / WRITER_LOCK)
        self.gate = Gate()
        self.env: lmdb.Environment | None = None
        self.databases: dict[str, object] = {}
        self.users = 0
        self.record_parts: dict[bytes, bytes] = {}
        self._files: OpenFiles | None = None
        self._followed_at = 0.0
        self._writes = 0

    def read(self) -> ReadTransaction:
        """Give a read transaction; it must not outlive the caller's own call."""
        return ReadTransaction(self)

    @contextmanager
    def write(self, timeout_s: float) -> Iterator[lmdb.Transaction]:
        """Give a write transaction under the writer's lock; durable when the block ends, undone when it raises."""
        with (
            self.locked(timeout_s),
            lmdb_errors(self.path),
            self._in_force() as env,
            env.begin(write=True) as transaction,
        ):
            yield transaction
            self.lock.verify()
            self._writes += 1
            if self._writes % READER_CHECK_WRITES == 0:
                env.reader_check()  # the mark of a killed reader would keep every page since from being used again

    @contextmanager
    def locked(self, timeout_s: float) -> Iterator[None]:
        """Hold the writer's lock, for one or more write transactions."""
        if self._files is not None and self._files.is_read_only:
            raise StoreUnavailableError(f"index {self.path} cannot be written: its folder is read-only")
        with lmdb_errors(self.path), self.lock.held(timeout_s):
            self._followed_at = 0.0
            yield

    @contextmanager
    def _in_force(self) -> Iterator[lmdb.Environment]:
        env = self.enter()
        try:
            yield env
        finally:
            self.gate.leave()

    def enter(self) -> lmdb.Environment:
        """Begin a call and return the environment in force; end it by `gate.leave`."""
        self._follow()
        self.gate.enter()
        if self.env is None:
            self.gate.leave()
            raise StoreClosedError(f"index {self.path} was closed; open it again")
        return self.env

    def last_transaction(self) -> tuple[str, int]:
        """Return the name of the data file in force, and the number of its last committed transaction."""
        with lmdb_errors(self.path), self._in_force() as env:
            return self.data_name, int(env.info()["last_txnid"])

    @property
    def data_name(self) -> str:
        """The name of the data file in force; of none before the first is open."""
        return self._files.name if self._files is not None else ""

    def file_bytes(self) -> int:
        """Return the size of the data file."""
        with lmdb_errors(self.path):
            return (self.path / DATA_LINK).stat().st_size

    def verify_pages(self, *names: str) -> None:
        """Read all rows of databases once; `CorruptionError` where one of their pages is not what it must be.

        Backwards: LMDB tells of such a page then. On its way forwards it ends the process (SIGABRT), so this comes
        before every walk over a whole database.
        """
        for name in names:
            with self.read() as transaction:
                rows = transaction.cursor(self.databases[name]).iterprev(values=False)
                while deque(itertools.islice(rows, ROWS_AT_ONCE), maxlen=1):
                    pass

    def copy(self, target: Path) -> None:
        """Write a compact copy of the data, as of now, to the new file `target`; others may read and write."""
        self.verify_pages(*DATABASES)
        with lmdb_errors(self.path), self._in_force() as env:
            try:
                copy_rows(env, self.databases, target)
            except (lmdb.Error, OSError) as error:
                raise as_our_error(target.parent if is_full(target.parent) else self.path, error) from error

    def open(self) -> None:
        """Open the files that the index has now.

        Raises:
            LayoutMismatchError, ProfileMismatchError: it is not the index that this environment was opened on first.
            FormatVersionError: a release that this one does not know wrote it.
        """
        with lmdb_errors(self.path):
            self._files = open_in_force(self.path)
            self.env = self._files.env
            try:
                if not self._files.is_read_only:
                    self.env.reader_check()
                self._open_databases(self.env)
            except BaseException:
                self._close_environment()
                raise

    def _open_databases(self, env: lmdb.Environment) -> None:
        try:
            with env.begin(db=env.open_db(b"record", create=False)) as transaction:
                parts = {name: transaction.get(name) or b"" for name in RECORD_PARTS}
            _check_format(parts[b"format"], self.path)
            self._adopt_record(parts)
            self.databases = open_databases(env, create=False)
        except lmdb.NotFoundError as error:
            raise damaged(self.path, f"its file is none of hsimhash ({error})") from error

    def _adopt_record(self, parts: dict[bytes, bytes]) -> None:
        if self.record_parts and parts != self.record_parts:
            kind = LayoutMismatchError if parts[b"layout"] != self.record_parts[b"layout"] else ProfileMismatchError
            raise kind(f"another index was made at {self.path} since this one was opened; open it again")
        self.record_parts = parts

    def _follow(self) -> None:
        """Open anew if the files were replaced, or if this is a forked child."""
        now = time.monotonic()
        if self.env is not None and now - self._followed_at < FOLLOW_S:
            return
        try:
            if self.env is not None and self._files is not None and self._files.are_in_force():
                self._followed_at = now
                return
        except OSError:  # the link or the lock file is gone: opening tells, or makes a new lock file
            pass
        if self.users == 0:
            return
        _log.info("index %s: its files were replaced, or this is a forked process; opening anew", self.path)
        self.gate.shut()
        try:
            self._close_environment()
            self.open()
        finally:
            self.gate.reopen()

    def close(self) -> None:
        """Close the environment once no call uses it."""
        self.gate.shut()
        try:
            self._close_environment()
        finally:
            self.gate.reopen()

    def _close_environment(self) -> None:
        self._followed_at = 0.0
        if self.env is not None:
            self.env.close()
        self.env, self.databases = None, {}

    def after_fork(self) -> None:
        """In a forked child: drop what belongs to the parent; the next call opens anew."""
        self.lock.forget()
        self.gate = Gate()
        self._close_environment()


class ReadTransaction:
    """A read transaction as a context manager: a class, for a generator would take a third of a query's time."""

    __slots__ = ("_environment", "_transaction")

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def __enter__(self) -> lmdb.Transaction:
        env = self._environment.enter()
        try:
            self._transaction = env.begin()
        except BaseException as error:
            self._environment.gate.leave()
            if isinstance(error, lmdb.Error):
                raise as_our_error(self._environment.path, error) from error
            raise
        return self._transaction

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._transaction.abort()
        self._environment.gate.leave()
        if isinstance(error, (lmdb.Error, OSError, DamagedRowError)):
            raise as_our_error(self._environment.path, error) from error


_environments: weakref.WeakValueDictionary[str, Environment] = weakref.WeakValueDictionary()
_registry_lock = threading.Lock()


def acquire(path: Path) -> Environment:
    """Return this process's environment for the index in folder `path`, opened; `release` it in the end."""
    key = os.path.realpath(path)
    with _registry_lock:
        environment = _environments.get(key)
        if environment is None:
            environment = Environment(Path(key))
        if environment.users == 0:
            environment.record_parts = {}  # of an index that may have been replaced since
            environment.open()
        environment.users += 1
        _environments[key] = environment
    return environment


def release(environment: Environment) -> None:
    """Give up one use of an environment; the last closes it."""
    with _registry_lock:
        environment.users -= 1
        if environment.users == 0:
            environment.close()


def _before_fork() -> None:
    _registry_lock.acquire()
    for environment in list(_environments.values()):
        environment.gate.shut()


def _after_fork_in_parent() -> None:
    for environment in list(_environments.values()):
        environment.gate.reopen()
    _registry_lock.release()


def _after_fork_in_child() -> None:
    global _registry_lock
    _registry_lock = threading.Lock()
    for environment in list(_environments.values()):
        environment.after_fork()


# A child that closed the parent's environment while a transaction of the parent runs would clear the parent's reader
# slot, so a fork waits for the calls in progress.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
