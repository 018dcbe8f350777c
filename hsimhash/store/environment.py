"""One LMDB environment per process and folder: opening, sharing, forking, the writer's lock, replacement by `compact`.

| file in the index's folder | what |
|---|---|
| `data.mdb` | link to the data file in force; `compact` replaces it in one step |
| `data-….mdb`, `data-….mdb-lock` | LMDB's data and lock files |
| `writer.lock` | held by the process that writes (flock); holds its pid |
| `writer.queue` | held by the process that is next, so that one that writes without pause starves nobody |
| `jobs/` | job folders of `hsimhash ingest` |

LMDB's own writer lock has neither time-out nor holder, hence `writer.lock`. LMDB must not be opened twice in a process,
nor used across a fork: environments are shared by path, and opened anew in a child. Calls look whether the
files that are open are still the index's own (two `stat`), so that a long-lived reader follows a `compact`.
"""

from __future__ import annotations

import errno
import json
import logging
import mmap
import os
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from hsimhash.errors import (
    CorruptionError,
    HsimhashError,
    IndexNotFoundError,
    LayoutMismatchError,
    ProfileMismatchError,
    StoreClosedError,
    StoreUnavailableError,
)
from hsimhash.store.base import check_format
from hsimhash.store.locks import WRITER_LOCK, Gate, WriterLock

DATA_LINK = "data.mdb"
MAP_BYTES = 1 << 40  # address space, not disk: the file grows as it is written
MAX_READERS = 1024  # simultaneous readers, over all processes
FOLLOW_S = 0.001  # a read looks again for replaced files after this time; a write always looks
READER_CHECK_WRITES = 64  # write transactions between two looks for readers that were killed
RECORD_PARTS = ("format", "layout", "profile")
EMPTY_INDEX_BYTES = 1 << 16

# LMDB's data format 1, on 64-bit machines: offsets within a meta page, and within the entry of a named database.
_ROOTS_IN_META = 80, 128
_TXNID_IN_META = 144
_ROOT_IN_DB = 40
_NO_PAGE = (1 << 64) - 1

_log = logging.getLogger("hsimhash.store")

_CORRUPT = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.BadValsizeError,
    lmdb.BadTxnError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
)


def as_our_error(path: Path, error: lmdb.Error | OSError) -> HsimhashError:
    """Return what to raise for an error of LMDB or of the file system at the index `path`."""
    if isinstance(error, _CORRUPT):
        return CorruptionError(f"index {path} is damaged ({error}); restore a backup, or export what is readable")
    if isinstance(error, lmdb.DiskError) or getattr(error, "errno", None) == errno.ENOSPC or _is_full(path):
        return StoreUnavailableError(
            f"no space left on the disk of index {path}; nothing of this write was stored: free some space and go on"
        )
    if isinstance(error, lmdb.ReadonlyError):
        return StoreUnavailableError(f"index {path} cannot be written: its folder is read-only")
    if isinstance(error, OSError):
        return StoreUnavailableError(f"index {path}: {error.strerror or error} ({error.filename or path})")
    return StoreUnavailableError(f"index {path}: {error}")


def _is_full(path: Path) -> bool:
    """Whether the disk has less than a page left: LMDB tells of a write cut short as an input/output error."""
    try:
        return shutil.disk_usage(path).free < mmap.PAGESIZE
    except OSError:
        return False


def _check_format(stored: bytes, path: Path) -> None:
    try:
        found = json.loads(stored)
    except ValueError as error:
        raise CorruptionError(f"index {path} has no readable record ({error})") from error
    check_format(found, f"index {path}")


@contextmanager
def lmdb_errors(path: Path) -> Iterator[None]:
    """Raise errors of LMDB and of the file system as hsimhash's own, naming the index at `path`."""
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise as_our_error(path, error) from error


class Environment:
    """The LMDB environment of one folder, shared by all stores of this process that are open on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = WriterLock(path / WRITER_LOCK)
        self.gate = Gate()
        self.env: lmdb.Environment | None = None
        self.databases: dict[str, object] = {}
        self.is_read_only = False
        self.users = 0
        self.record_parts: dict[str, bytes] = {}
        self._files = (0, 0, 0)
        self.data_name = ""
        self._has_lock = True
        self._followed_at = 0.0
        self._writes = 0
        self._data_link = str(path / DATA_LINK)
        self._lock_file = ""

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
        if self.is_read_only:
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

    def file_bytes(self) -> int:
        """Return the size of the data file."""
        with lmdb_errors(self.path):
            return os.stat(self._data_link).st_size  # noqa: PTH116 (as everywhere in this class)

    def copy(self, target: Path) -> None:
        """Write a compact copy of the data, as of now, to the new file `target`; others may read and write."""
        with lmdb_errors(self.path), self._in_force() as env:
            try:
                env.copy(str(target), compact=True)
                sync_file(target)
            except (lmdb.Error, OSError) as error:
                raise as_our_error(target.parent if _is_full(target.parent) else self.path, error) from error

    def open(self) -> None:
        """Open the files that the index has now.

        Raises:
            LayoutMismatchError, ProfileMismatchError: it is not the index that this environment was opened on first.
            FormatVersionError: a release that this one does not know wrote it.
        """
        with lmdb_errors(self.path):
            self.env = self._open_in_force()
            try:
                if not self.is_read_only:
                    self.env.reader_check()
                self._open_databases(self.env)
            except BaseException:
                self._close_environment()
                raise

    def _open_databases(self, env: lmdb.Environment) -> None:
        try:
            record = env.open_db(b"record", create=False)
            with env.begin(db=record) as transaction:
                parts = {name: transaction.get(name.encode()) or b"" for name in RECORD_PARTS}
            _check_format(parts["format"], self.path)
            self._adopt_record(parts)
            self.databases = {
                "record": record,
                "drawers": env.open_db(b"drawers", dupsort=True, dupfixed=True, create=False),
                "documents": env.open_db(b"documents", create=False),
                "register": env.open_db(b"register", create=False),
            }
        except lmdb.NotFoundError as error:
            raise CorruptionError(f"{self.path} holds an LMDB file that is no index of hsimhash ({error})") from error

    def _adopt_record(self, parts: dict[str, bytes]) -> None:
        if self.record_parts and parts != self.record_parts:
            kind = LayoutMismatchError if parts["layout"] != self.record_parts["layout"] else ProfileMismatchError
            raise kind(f"another index was made at {self.path} since this one was opened; open it again")
        self.record_parts = parts

    def _open_in_force(self) -> lmdb.Environment:
        """Open the data file that the link names; again if a compaction replaces it meanwhile."""
        while True:
            before = self._linked()
            if before is None:
                refuse_lost_link(self.path)
                raise IndexNotFoundError(
                    f"no index at {self.path}; make one with 'hsimhash create-table --store lmdb://{self.path}'"
                )
            data, identity, size = before
            if size == 0:
                raise CorruptionError(f"index {self.path} is damaged: {data.name} is empty; restore a backup")
            self._lock_file = f"{data}-lock"
            self.is_read_only = not (os.access(data, os.W_OK) and os.access(self.path, os.W_OK))
            # Without a lock file a reader sees pages that a writer uses again, so only where nobody can write.
            self._has_lock = not os.statvfs(self.path).f_flag & os.ST_RDONLY
            try:
                env = _open_lmdb(data, is_read_only=self.is_read_only, has_lock=self._has_lock)
                lock = os.stat(self._lock_file).st_ino if self._has_lock else 0  # noqa: PTH116
            except (lmdb.Error, OSError):
                if self._linked() == before:
                    raise
                continue
            after = self._linked()
            if after is not None and after[:2] == (data, identity):
                self._files, self.data_name = (*identity, lock), data.name
                try:
                    has_end = not is_cut_off(data, env)
                except FileNotFoundError:  # replaced this very moment
                    env.close()
                    continue
                if not has_end:
                    env.close()
                    raise CorruptionError(f"index {self.path} is damaged: {data.name} is cut off; restore a backup")
                return env
            env.close()
            delete_files(data)  # LMDB may have made the old one again, empty

    def _linked(self) -> tuple[Path, tuple[int, int], int] | None:
        """Return the data file that the link names, its device and inode, and its bytes; None for no such file."""
        while True:
            data = Path(os.path.realpath(self._data_link))
            try:
                found = data.stat()
            except FileNotFoundError:
                if os.path.realpath(self._data_link) == str(data):
                    return None
                continue  # replaced meanwhile
            return data, (found.st_dev, found.st_ino), found.st_size

    def _current_files(self) -> tuple[int, int, int]:
        """Return the data file's device and inode, and the lock file's inode, as they are now; 0 for no lock file."""
        # On every call: os.stat takes half the time of Path.stat.
        data = os.stat(self._data_link)  # noqa: PTH116
        return data.st_dev, data.st_ino, os.stat(self._lock_file).st_ino if self._has_lock else 0  # noqa: PTH116

    def _follow(self) -> None:
        """Open anew if the files were replaced, or if this is a forked child."""
        now = time.monotonic()
        if self.env is not None and now - self._followed_at < FOLLOW_S:
            return
        try:
            if self.env is not None and self._current_files() == self._files:
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


def _open_lmdb(data: Path, *, is_read_only: bool, has_lock: bool = True) -> lmdb.Environment:
    return lmdb.open(
        str(data),
        subdir=False,
        map_size=MAP_BYTES,
        max_dbs=4,
        max_readers=MAX_READERS,
        readonly=is_read_only,
        lock=has_lock,
        create=not is_read_only,
        readahead=False,  # reads are random: reading ahead would only fill the cache with other buckets
        meminit=False,  # pages are written whole
        metasync=True,
        sync=True,
    )


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
        if isinstance(error, (lmdb.Error, OSError)):
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


def new_data_file(path: Path) -> Path:
    """Return a name for a data file in folder `path` that no process uses."""
    return path / f"data-{os.getpid()}-{time.time_ns():x}.mdb"


def create_files(path: Path, fill: dict[bytes, bytes]) -> None:
    """Make an empty index in folder `path`, its record filled; other processes see all of it or nothing.

    Raises:
        FileExistsError: an index is there.
    """
    link = path / DATA_LINK
    if link.exists():
        raise FileExistsError(path)
    refuse_lost_link(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        data = new_data_file(path)
        _create_data(data, fill)
    except (lmdb.Error, OSError) as error:
        raise StoreUnavailableError(f"cannot make an index in {path}: {error}") from error
    try:
        link.symlink_to(data.name)
    except FileExistsError:
        delete_files(data)
        raise
    except OSError as error:
        raise StoreUnavailableError(f"cannot make an index in {path}: {error}") from error
    sync_folder(path)


def refuse_lost_link(path: Path) -> None:
    """Raise `CorruptionError` where a folder has an index's data, or a link to some, but the link leads nowhere."""
    link = path / DATA_LINK
    # What a killed creation leaves is smaller than any index with documents.
    found = [data.name for data in path.glob("data-*.mdb") if data.stat().st_size > EMPTY_INDEX_BYTES]
    if found:
        raise CorruptionError(
            f"index {path} is damaged: {DATA_LINK}, the link to its data file, is missing; found {', '.join(found)}: "
            f"'ln -s {found[0]} {link}' puts it back"
        )
    if link.is_symlink():
        raise CorruptionError(
            f"index {path} is damaged: {DATA_LINK} names {link.readlink()}, which is missing; restore a backup, or "
            f"remove the folder to begin anew"
        )


def is_cut_off(data: Path, env: lmdb.Environment) -> bool:
    """Whether a root page of the data file lies beyond its end, as after a copy that was broken off.

    Reading a page that is not there would end the process by SIGBUS. The last page that LMDB counts says nothing: pages
    that a transaction took and gave back are never written.
    """
    page_bytes, size = env.stat()["psize"], data.stat().st_size
    roots = [root for root in _roots_in_meta(data, page_bytes) if root != _NO_PAGE]
    if any((root + 1) * page_bytes > size for root in roots):
        return True
    with env.begin() as transaction:
        named = [transaction.get(name) for name in (b"drawers", b"documents", b"register", b"record")]
    roots = [int.from_bytes(one[_ROOT_IN_DB : _ROOT_IN_DB + 8], sys.byteorder) for one in named if one]
    return any(root != _NO_PAGE and (root + 1) * page_bytes > size for root in roots)


def _roots_in_meta(data: Path, page_bytes: int) -> list[int]:
    """Return the root pages of the free list and of the table of databases, from the newer of the two meta pages."""
    with data.open("rb") as file:
        metas = [os.pread(file.fileno(), _TXNID_IN_META + 8, number * page_bytes) for number in (0, 1)]
    newest = max(metas, key=lambda meta: int.from_bytes(meta[_TXNID_IN_META:], sys.byteorder))
    return [int.from_bytes(newest[at : at + 8], sys.byteorder) for at in _ROOTS_IN_META]


def _create_data(data: Path, fill: dict[bytes, bytes]) -> None:
    env = _open_lmdb(data, is_read_only=False)
    try:
        env.open_db(b"drawers", dupsort=True, dupfixed=True)
        env.open_db(b"documents")
        env.open_db(b"register")
        record = env.open_db(b"record")
        with env.begin(write=True, db=record) as transaction:
            for key, value in fill.items():
                transaction.put(key, value)
    finally:
        env.close()


def replace_data(environment: Environment, data: Path) -> None:
    """Make `data` the data file in force; readers and writers of every process follow at their next call.

    Every other data file of the folder goes: the old one, and what a killed compaction left. Under the writer's lock.
    """
    if data.parent != environment.path:
        raise ValueError(f"{data} is not in the index's folder {environment.path}")
    link = environment.path / f"{DATA_LINK}.new"
    link.unlink(missing_ok=True)
    link.symlink_to(data.name)
    link.replace(environment.path / DATA_LINK)
    sync_folder(environment.path)
    for other in environment.path.glob("data-*.mdb"):
        if other != data:
            delete_files(other)


def delete_files(data: Path) -> None:
    """Delete a data file and its lock file; who has them open keeps reading them."""
    data.unlink(missing_ok=True)
    Path(f"{data}-lock").unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


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
