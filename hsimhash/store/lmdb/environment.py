"""The LMDB environment of an index: opened once per process, shared by the stores, and abandoned in a forked child.

An LMDB file must not be opened twice in a process, or used across a fork. So all of a process's stores in the same
folder share one environment. A forked child abandons its parent's environment without closing it, because closing it
would release the parent's reader marks. The child opens its own environment at the next call.

An environment is opened for reading, and reopened for writing before the process writes for the first time,
because lmdb opens a writable environment's databases in a write transaction. A process that only reads would have to
wait for another process's write, without a time limit and without handling signals.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
import time
import weakref
from pathlib import Path
from typing import NamedTuple

import lmdb
from lmdb import _envid

from hsimhash.errors import (
    WAIT_LONGER,
    CorruptionError,
    IndexNotFoundError,
    Remedy,
    StoreBusyError,
    StoreClosedError,
    StoreUnavailableError,
    create_one,
)
from hsimhash.files import copy_owner
from hsimhash.locks import LOCK_POLL_S, HeldLock, lock_data, users_of
from hsimhash.store.base import DISTANCE_PART, RECORD_PARTS, Record
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.base_files.base_format import BaseName, DamagedBaseError
from hsimhash.store.lmdb.codec import BASE_PART, FORMAT_PART, marked_format, unmarked_format
from hsimhash.store.lmdb.files import (
    DATA,
    damaged,
    lmdb_errors,
    lmdb_lock,
    open_databases,
    open_lmdb,
    refuse_lost_link,
)

_log = logging.getLogger("hsimhash.store")


class Based(NamedTuple):
    """The base in one state of an index, if there is one."""

    named: bytes | None  # the description of the base in the record
    base: Base | None = None
    damage: DamagedBaseError | None = None  # why the base cannot be read

    @property
    def is_missing(self) -> bool:
        """Whether the base's file does not exist."""
        return isinstance(self.damage, MissingBaseError)

    def readable_base(self) -> Base | None:
        """Return the base, if there is one; raise `DamagedBaseError` if it cannot be read."""
        if self.damage is not None:
            raise self.damage
        return self.base


class SeenState(NamedTuple):
    """A state of an index."""

    number: int  # of its last transaction
    based: Based
    has_top: bool  # whether LMDB has drawer rows
    # Whether there are no leftover listings. Every commit that leaves a register also leaves its listing, with the same
    # first seen, so if there are as many listings as registers, there are no others.
    is_exact: bool


class MissingBaseError(DamagedBaseError):
    """A base's file does not exist."""


class Environment:
    """The LMDB environment of the index in a folder, with a shared lock that `compact` respects.

    Args:
        path: The index's folder.
        lock: Lock on its data file.
        is_writable: Whether transactions can write. If so, the caller must hold the writer's lock.

    Raises:
        FormatVersionError: This release does not support the format of the index.
    """

    def __init__(self, path: Path, lock: HeldLock, *, is_writable: bool = False) -> None:
        self.path = path
        self.lock = lock
        self.is_writable = is_writable
        self.is_over = False  # closed, or abandoned in a forked child
        self.gate = threading.Lock()  # new views wait while a thread holds it
        # Views in use, by id. An interrupted view leaves a dead reference.
        self.views: dict[int, weakref.ref[object]] = {}
        self.turn = threading.RLock()  # held by writers, because closing LMDB while another thread writes would hang
        self.users: weakref.WeakSet[object] = weakref.WeakSet()
        data = Path(os.path.realpath(path / DATA))
        if data.stat().st_size == 0:
            raise damaged(path, f"{data.name} is empty")
        self.may_write = os.access(data, os.W_OK)
        # LMDB does not need a lock file on a read-only mount. Other processes may write through another mount.
        self.has_lock_file = not os.statvfs(path).f_flag & os.ST_RDONLY
        self._lmdb_lock = lmdb_lock(data)
        if self.has_lock_file:
            _check_lock_file(path, self._lmdb_lock)
        self.env = open_lmdb(data, is_read_only=not is_writable, has_lock=self.has_lock_file)
        try:
            if self.has_lock_file:
                copy_owner(data, self._lmdb_lock)
                self._lmdb_lock_inode = _inode(self._lmdb_lock)
            self._check_length(data)
            self.record = self._read_record()
            self._open_databases()
        except BaseException:
            self.env.close()
            raise

    def _check_length(self, data: Path) -> None:
        """Extend a file to its recorded length, because reading a page beyond its end would crash the process (SIGBUS).

        The new pages of a truncated file contain zeros, which LMDB does not accept as pages. An intact file may also
        lack its last pages, because pages that a transaction allocated and released are never written.
        """
        wanted = (self.env.info()["last_pgno"] + 1) * self.env.stat()["psize"]
        size = data.stat().st_size  # read after `wanted`, because a file in use never shrinks
        if size >= wanted:
            return
        if not self.may_write:
            raise CorruptionError(
                f"index {self.path} has {size:,} bytes instead of {wanted:,}: it was truncated, or its last pages were "
                f"never written; to complete it, "
                + Remedy("call index.check()", "run 'hsimhash check'")
                + " as a user with write access"
            )
        with data.open("r+b") as file:
            os.posix_fallocate(file.fileno(), size, wanted - size)

    def _read_record(self) -> Record:
        """Return the record. Call this before opening the databases, which may be different in other releases."""
        try:
            with self.env.begin(db=self.env.open_db(b"record", create=False)) as transaction:
                parts = {name: transaction.get(name) or b"" for name in (DISTANCE_PART, *RECORD_PARTS)}
                parts[FORMAT_PART] = unmarked_format(parts[FORMAT_PART])
                record = Record.from_parts(parts, f"index {self.path}")
                return record.learn_lists(transaction.get, f"index {self.path}")
        except lmdb.NotFoundError as error:
            raise damaged(self.path, f"its data file is not an hsimhash index ({error})") from error
        except ValueError as error:
            raise damaged(self.path, f"its record cannot be read ({error})") from error

    def _open_databases(self) -> None:
        self.databases = open_databases(self.env, create=False)
        self._record, self._learning = self.databases["record"], threading.Lock()
        with self.env.begin() as transaction:
            for database in self.databases.values():
                transaction.cursor(database).first()  # fails for most truncated files
                transaction.cursor(database).last()
            self._based = self._learned(transaction.get(BASE_PART, db=self._record))
        self._state: SeenState | None = None  # the state that was read last

    def based(self, transaction: lmdb.Transaction) -> Based:
        """Return the base of the state that a transaction reads."""
        named, based = transaction.get(BASE_PART, db=self._record), self._based
        if named != based.named:
            with self._learning:
                self._based = based = self._learned(named)
        return based

    def state(self, transaction: lmdb.Transaction) -> SeenState:
        """Return the state that a read transaction sees; it is usually cached."""
        state, number = self._state, transaction.id()
        if state is None or state.number != number:
            has_top = bool(transaction.cursor(self.databases["drawers"]).first())
            listings, registers = (
                transaction.stat(self.databases[name])["entries"] for name in ("documents", "register")
            )
            self._state = state = SeenState(number, self.based(transaction), has_top, listings == registers)
        return state

    def _learned(self, named: bytes | None) -> Based:
        if named is None:
            return Based(None)
        try:
            name = BaseName.from_json(named)
            path = self.path / name.file
            if path.exists() and not path.is_file():  # opening a pipe would wait forever
                raise DamagedBaseError(f"{name.file} is not a regular file")
            return Based(named, Base(path, name, self.record.layout))
        except FileNotFoundError:
            return Based(named, damage=MissingBaseError(f"{name.file} is missing"))
        except DamagedBaseError as error:
            return Based(named, damage=error)

    def base_file(self) -> str:
        """Return the file name of the current base, or an empty string."""
        with self.env.begin() as transaction:
            named = self.based(transaction).named
        return BaseName.from_json(named).file if named is not None else ""

    def name_base(self, transaction: lmdb.Transaction, name: BaseName) -> None:
        """In one transaction, make a base current and delete all drawer rows in LMDB, which the base contains."""
        if transaction.get(BASE_PART, db=self._record) is None:
            form = transaction.get(FORMAT_PART, db=self._record)
            transaction.put(FORMAT_PART, marked_format(form), db=self._record)
        transaction.put(BASE_PART, name.to_json(), db=self._record)
        transaction.drop(self.databases["drawers"], delete=False)

    def begin_write(self) -> WriteTransaction:
        """Begin a write transaction in a writable environment. The caller must hold the writer's lock and `turn`.

        Raises:
            StoreClosedError: Another thread closed the environment.
            IndexNotFoundError: The index was deleted or replaced since it was opened.
        """
        if self.is_over:
            raise StoreClosedError(f"index {self.path} was closed or compacted by another thread during this call")
        self.verify_place()
        self.env.reader_check()  # otherwise a killed reader's mark would prevent LMDB from reusing any later pages
        return WriteTransaction(self)

    def is_in_place(self) -> bool:
        """Whether the open files still belong to the index; false once the environment is closed."""
        if self.is_over or not self.lock.is_in_place():
            return False
        return not self.has_lock_file or _inode(self._lmdb_lock) == self._lmdb_lock_inode

    def verify_place(self) -> None:
        """Raise `IndexNotFoundError` if the index was deleted or replaced since it was opened."""
        if not self.is_in_place():
            raise IndexNotFoundError(
                f"the index that was opened at {self.path} is no longer there: its data file, or LMDB's lock file, was "
                f"deleted or replaced; this write was not stored; open the index again"
            )

    def is_read_here(self) -> bool:
        """Whether a thread of this process is reading."""
        return any(view() is not None for view in list(self.views.values()))

    def close(self) -> None:
        """Wait for writes in progress, then close the environment; reads in progress fail."""
        with self.turn:
            self.is_over = True
            self.env.close()
            self.lock.close()

    def leave_behind(self) -> None:
        """Abandon the parent's environment in a forked child: never use it again, not even when the process ends."""
        self.is_over = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.env))


class WriteTransaction:
    """A write transaction: committed at the end of a `with` block, or rolled back if the block raises.

    lmdb rolls back only when no other thread is inside a call to the environment. Threads that keep reading could delay
    the rollback for minutes, and no process could write during that time. So new views wait for the rollback.
    """

    __slots__ = ("_gate", "_transaction")

    def __init__(self, environment: Environment) -> None:
        self._gate = environment.gate
        self._transaction = environment.env.begin(write=True)

    def __enter__(self) -> lmdb.Transaction:
        return self._transaction

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self._transaction.commit()
        else:
            with self._gate:
                self._transaction.abort()


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _check_lock_file(path: Path, lock: Path) -> None:
    there = lock if lock.exists() else lock.parent
    if not os.access(there, os.W_OK):
        raise StoreUnavailableError(
            f"index {path} cannot be opened: this user cannot write to {there}, where LMDB registers readers; grant "
            f"write access, or read a backup"
        )


_environments: weakref.WeakSet[Environment] = weakref.WeakSet()
_registry_lock = threading.Lock()


def acquire(path: Path, user: object, timeout_s: float) -> Environment:
    """Return this process's environment for the index in a folder; pass it to `release` afterwards.

    Raises:
        IndexNotFoundError: The folder does not have an index.
        StoreBusyError: A compaction took longer than `timeout_s` seconds.
    """
    folder = Path(os.path.realpath(path))
    deadline = time.monotonic() + timeout_s
    while True:
        with _registry_lock, lmdb_errors(path):
            shared = (one for one in _environments if one.path == folder and one.is_in_place())
            environment = next(shared, None) or _open(folder)
            if environment is not None:
                _environments.add(environment)
                environment.users.add(user)
                return environment
        if time.monotonic() >= deadline:
            who = ", ".join(map(str, users_of(path / DATA))) or "unknown"
            raise StoreBusyError(
                f"process {who} is still compacting index {path} after {timeout_s:g} s; wait until it is done, or "
                + WAIT_LONGER
            )
        time.sleep(LOCK_POLL_S)


def reopened_writable(environment: Environment, user: object, timeout_s: float) -> Environment:
    """Close an environment as soon as no thread of this process is reading, and return a writable one in its place.

    The caller must hold the writer's lock. Other threads that want to read wait until the new environment is open.

    Raises:
        IndexNotFoundError: The index was deleted or replaced since it was opened.
        StoreBusyError: A thread of this process kept reading for `timeout_s` seconds.
    """
    deadline = time.monotonic() + timeout_s
    with _registry_lock, lmdb_errors(environment.path):
        if environment.is_over:
            return environment
        environment.verify_place()
        with environment.gate:  # taken before looking for views: a view first adds itself, then checks the gate
            while environment.is_read_here():
                if time.monotonic() >= deadline:
                    raise StoreBusyError(
                        f"index {environment.path} cannot be written: another thread of this process ({os.getpid()}) "
                        f"has been reading it for {timeout_s:g} s; write again when it has finished, or " + WAIT_LONGER
                    )
                time.sleep(LOCK_POLL_S)
            environment.close()
        new = _open(environment.path, is_writable=True)
        if new is None:
            return environment
        _environments.add(new)
        new.users.add(user)
        return new


def _open(path: Path, *, is_writable: bool = False) -> Environment | None:
    """Open the index in a folder; return None while the index is being compacted."""
    try:
        lock = lock_data(path / DATA, is_shared=True)
    except FileNotFoundError as error:
        refuse_lost_link(path)
        raise _not_there(path) from error
    if lock is None:
        return None
    try:
        return Environment(path, lock, is_writable=is_writable)
    except BaseException as error:
        is_dropped = not lock.is_in_place()
        lock.close()
        if is_dropped and isinstance(error, Exception):
            raise _not_there(path) from error
        raise


def _not_there(path: Path) -> IndexNotFoundError:
    return IndexNotFoundError(f"no index at {path}; " + create_one(f"lmdb://{path}"))


def release(environment: Environment, user: object) -> None:
    """Release an environment; the last user closes it."""
    with _registry_lock:
        environment.users.discard(user)
        if not environment.users and not environment.is_over:
            environment.close()


def close_alone(environment: Environment) -> None:
    """Close an environment that nothing else in this process uses; otherwise raise `StoreBusyError`."""
    with _registry_lock:
        if len(environment.users) > 1:
            raise StoreBusyError(
                f"index {environment.path} is open {len(environment.users)} times in this process ({os.getpid()}); "
                f"close the other stores first"
            )
        environment.close()


def _keys_of_this_process(path: object, subdir: object) -> tuple[object, ...]:
    """Return lmdb's keys for open environments plus the process id, because a child inherits its parent's keys."""
    return tuple((key, os.getpid()) for key in _env_keys(path, subdir))


_env_keys = _envid.env_keys


def _after_fork_in_child() -> None:
    _envid.env_keys = _keys_of_this_process  # also covers environments that another thread was creating or compacting
    try:
        for environment in list(_environments):
            if not environment.is_over:
                environment.leave_behind()
    finally:
        _registry_lock.release()


# No environment is half open during a fork. Both functions are in C, so a signal cannot leave the lock held.
os.register_at_fork(
    before=_registry_lock.acquire, after_in_parent=_registry_lock.release, after_in_child=_after_fork_in_child
)
