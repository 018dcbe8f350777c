"""Create and replace the files of an embedded index; convert LMDB and file system errors to hsimhash errors.

| file in the index's folder | contents |
|---|---|
| `data.mdb` | LMDB's data file; a process that has the index open holds a shared flock, `compact` an exclusive one |
| `data.mdb-lock` | LMDB's lock file |
| `writer.lock` | locked by the process that is writing; contains its process id |
| `base-….rows` | the base, if there is one; the next merge or `compact` deletes bases that the record does not name |
| `base.tmp/` | sorted rows while a base is being built |
| `data.….mdb` | an unfinished data file; after a kill, the next `create` or `compact` deletes it |
| `jobs/` | job folders of `hsimhash ingest`, and `jobs/add_many` during a large `add_many` |

A creation or drop that was killed leaves a folder with a `writer.lock` but no `data.mdb`; both can be repeated. In an
index that release 0.1.0 created, `data.mdb` is a link to a `data-….mdb` file until the index is compacted.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import resource
import secrets
import shutil
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import lmdb

from hsimhash.errors import (
    LIMITS,
    CorruptionError,
    HsimhashError,
    IndexExistsError,
    IndexNotFoundError,
    Remedy,
    StoreUnavailableError,
)
from hsimhash.files import make_folder, put_in_place, sync_folder
from hsimhash.locks import WRITER_LOCK, HeldLock, wait_for_lock
from hsimhash.store.base_files.base_format import DamagedBaseError
from hsimhash.store.lmdb.codec import DATABASES, DamagedRowError

DATA = "data.mdb"
JOBS = "jobs"
FILED = "base.tmp"
MAP_BYTES = 1 << 40  # address space, not disk: the file grows as it is written
MAX_READERS = 1024  # maximum number of simultaneous readers across all processes
EMPTY_INDEX_BYTES = 1 << 16
ROWS_AT_ONCE = 50_000  # rows copied in one transaction; limits memory use
FULL_BYTES = 1 << 20  # a disk with less free space is treated as full, because ext4 reserves up to a few dozen blocks
_MADE = re.compile(r"data[-.]\d+-[0-9a-f]+\.mdb(-lock)?")  # releases up to 0.1.0 used a dash
_BASE = re.compile(r"base-[0-9a-f]+\.rows")
_OF_0_1_0 = "writer.queue"
_FOLDER_TRIES = 10  # maximum number of attempts to create and lock an index's folder while others drop the index
_CORRUPT = (
    DamagedRowError,
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
    lmdb.BadValsizeError,
    lmdb.BadDbiError,
    lmdb.BadTxnError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
    lmdb.PanicError,
)
_RESTORE = "restore a backup, or delete the index with 'hsimhash drop-table' and ingest again"
FOREIGN_ERRORS = (lmdb.Error, OSError, DamagedRowError, DamagedBaseError)  # errors that `store_error` converts


@dataclass(frozen=True, slots=True)
class BaseLimits:
    """When an index gets a base.

    Args:
        documents: Minimum number of documents in an index with a base.
        share: A merge builds a new base if the number of rows added since the last base was built exceeds that base's
            number of rows divided by `share`.
    """

    documents: int = 100_000
    share: int = 8


BASE_LIMITS = BaseLimits()


def damaged(path: Path, found: object) -> CorruptionError:
    """Return the error for a damaged index at `path`."""
    return CorruptionError(f"index {path} is damaged: {found}; {_RESTORE}")


def store_error(path: Path, error: BaseException) -> HsimhashError:
    """Return the error to raise for one of `FOREIGN_ERRORS` in the index at `path`."""
    if isinstance(error, DamagedBaseError):
        return CorruptionError(
            f"index {path} is damaged: {error}; to rebuild its base from the registers, "
            + Remedy("call index.check(repair=True)", "run 'hsimhash check --repair'")
        )
    if isinstance(error, _CORRUPT):
        return damaged(path, error)
    if is_full(path, error):
        return no_space(path)
    if isinstance(error, lmdb.Error) and os.strerror(errno.EIO) in str(error):
        if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
            return StoreUnavailableError(
                f"index {path} cannot be written: a file would exceed the limit on file size, so this write was not "
                f"stored; {LIMITS[errno.EFBIG]}"
            )
        return damaged(
            path, f"{error}, although the disk is not full: a page number is out of range, or the disk is failing"
        )
    said = str(error)
    if isinstance(error, lmdb.MapFullError):
        said = (
            "it is full: an embedded index holds at most 1 TiB, about 3 billion documents; this write was not stored; "
            "create another index, or use HBase"
        )
    elif isinstance(error, lmdb.MemoryError):
        said = "cannot reserve 1 TiB of address space, which does not use memory; allow it with 'ulimit -v unlimited'"
    elif os.strerror(errno.EAGAIN) in said:
        said = (
            f"a process with the same id ({os.getpid()}) in another container has it open; run the containers "
            f"with shared process ids (docker run --pid=host, or --pid=container:…)"
        )
    elif isinstance(error, NotADirectoryError) and path.is_file():
        return _is_file(path)
    elif isinstance(error, OSError):
        said = f"{error.strerror or error} ({error.filename or path}){_remedy_of(error)}"
    return StoreUnavailableError(f"index {path}: {said}")


def _remedy_of(error: OSError) -> str:
    return f"; {LIMITS[error.errno]}" if error.errno in LIMITS else ""


def _is_file(path: Path) -> StoreUnavailableError:
    return StoreUnavailableError(f"{path} is a file, not the folder of an index; choose another path")


def no_space(path: Path) -> StoreUnavailableError:
    """Return the error for the index at `path` if its disk is full."""
    return StoreUnavailableError(
        f"no space left on the disk of index {path}; this write was not stored; free some space and try again"
    )


def read_only(path: Path) -> StoreUnavailableError:
    """Return the error for the index at `path` if its file system is read-only."""
    return StoreUnavailableError(f"index {path} cannot be written: its file system is read-only; mount it writable")


def is_full(path: Path, error: BaseException) -> bool:
    """Whether an error means that the disk is full. LMDB reports an input/output error after a short write."""
    if isinstance(error, lmdb.DiskError) or getattr(error, "errno", None) == errno.ENOSPC:
        return True
    if not isinstance(error, (lmdb.Error, OSError)) or os.strerror(errno.EIO) not in str(error):
        return False
    try:
        return shutil.disk_usage(path).free < FULL_BYTES
    except OSError:
        return False


@contextmanager
def lmdb_errors(path: Path) -> Iterator[None]:
    """Convert LMDB and file system errors to hsimhash errors that name the index at `path`."""
    try:
        yield
    except FOREIGN_ERRORS as error:
        raise store_error(path, error) from error


def open_lmdb(
    data: Path, *, is_read_only: bool = False, has_lock: bool = True, is_durable: bool = True
) -> lmdb.Environment:
    """Open LMDB's environment on a data file. Commits are durable; without `is_durable`, only after a sync."""
    return lmdb.open(
        str(data),
        subdir=False,
        map_size=MAP_BYTES,
        max_dbs=len(DATABASES),
        max_readers=MAX_READERS,
        readonly=is_read_only,
        lock=has_lock,
        create=not is_read_only,
        meminit=True,  # otherwise freed process memory, which may contain passwords, would be written to unused bytes
        readahead=False,  # reads are random, so reading ahead would only fill the cache with other buckets
        metasync=is_durable,
        sync=is_durable,
    )


def open_databases(env: lmdb.Environment, *, create: bool) -> dict[str, object]:
    """Return the databases of an index by name."""
    return {name: env.open_db(name.encode(), create=create, **kind) for name, kind in DATABASES.items()}


def lmdb_lock(data: Path) -> Path:
    """Return the path of LMDB's lock file for a data file."""
    return data.with_name(f"{data.name}-lock")


def create_files(folder: Path, fill: Mapping[bytes, bytes], *, lock_timeout_s: float) -> None:
    """Create an empty index with its record in a folder; other processes see the whole index or nothing."""
    _refuse_index(folder)
    try:
        with _lock_folder(folder, lock_timeout_s):
            _refuse_index(folder)
            for left in made_files(folder):
                left.unlink()
            data = new_data_file(folder)
            with deleted_on_error(data), closing(open_lmdb(data, has_lock=False)) as env:
                record = open_databases(env, create=True)["record"]
                with env.begin(write=True, db=record) as transaction:
                    transaction.cursor().putmulti(list(fill.items()))
            lmdb_lock(folder / DATA).unlink(missing_ok=True)  # it remains if the data file was deleted by hand
            put_in_place(data, folder / DATA)
    except lmdb.Error as error:
        raise store_error(folder, error) from error
    except OSError as error:
        if folder.is_file():
            raise _is_file(folder) from error
        raise StoreUnavailableError(
            f"cannot create an index in {folder}: {error.strerror or error}{_remedy_of(error)}"
        ) from error


def _lock_folder(folder: Path, timeout_s: float) -> HeldLock:
    for _ in range(_FOLDER_TRIES - 1):
        with suppress(FileNotFoundError, FileExistsError):  # a drop has just deleted the folder
            make_folder(folder)
            return wait_for_lock(folder / WRITER_LOCK, timeout_s)
    make_folder(folder)
    return wait_for_lock(folder / WRITER_LOCK, timeout_s)


def _refuse_index(folder: Path) -> None:
    if (folder / DATA).exists():
        raise IndexExistsError(f"an index already exists at {folder}; open it, or choose another folder")
    refuse_lost_link(folder)


def refuse_lost_link(folder: Path) -> None:
    """Raise `CorruptionError` if an index of release 0.1.0 lost its link, or the link's target is missing."""
    link = folder / DATA
    if link.is_symlink():
        raise CorruptionError(
            f"index {folder} is damaged: {DATA} links to {link.readlink()}, which is missing; {_RESTORE}"
        )
    # If release 0.1.0 was killed while creating an index, it left a file smaller than any index with documents.
    found = [data.name for data in folder.glob("data-*.mdb") if data.stat().st_size > EMPTY_INDEX_BYTES]
    if found:
        raise CorruptionError(
            f"index {folder} is damaged: its {DATA} is missing, but {', '.join(found)} exists; to repair the index, "
            f"run 'ln -s {found[0]} {link}'; to delete it, run 'hsimhash drop-table'"
        )


def new_data_file(folder: Path) -> Path:
    """Return the path for a new data file."""
    return folder / f"data.{os.getpid()}-{time.time_ns():x}.mdb"  # not `data-….mdb`, which release 0.1.0 used


@contextmanager
def deleted_on_error(data: Path) -> Iterator[None]:
    """Delete a data file that could not be finished; raise an error that says so if the disk was full."""
    try:
        yield
    except BaseException as error:
        was_full = is_full(data.parent, error)
        data.unlink(missing_ok=True)
        if was_full:
            raise no_space(data.parent) from error
        raise


def verify_pages(transaction: lmdb.Transaction, *databases: object) -> None:
    """Read all rows of databases once; raise an error if a page is damaged.

    Call this before every walk over a whole database. When LMDB reads backwards, as here, it reports a damaged page;
    when it reads forwards, it aborts the process (SIGABRT).
    """
    for database in databases:
        rows = transaction.cursor(database).iterprev(values=False)
        while deque(itertools.islice(rows, ROWS_AT_ONCE), maxlen=1):
            pass


def bases(folder: Path) -> list[Path]:
    """Return the bases in a folder, including unfinished ones."""
    return [path for path in folder.iterdir() if _BASE.fullmatch(path.name) and path.is_file()]


def new_base(folder: Path) -> Path:
    """Return the path for a new base."""
    return folder / f"base-{secrets.token_hex(8)}.rows"


def remove_bases(folder: Path, but: str) -> None:
    """Delete all bases except `but`; the caller must hold the writer's lock.

    Processes that have mapped a base can still read it.
    """
    for path in bases(folder):
        if path.name != but:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder / FILED, ignore_errors=True)


def made_files(folder: Path) -> list[Path]:
    """Return the temporary files of creations and compactions, and the data files of release 0.1.0."""
    return [path for path in folder.iterdir() if _MADE.fullmatch(path.name)]


def refuse_no_index(folder: Path) -> None:
    """Raise `IndexNotFoundError` if a folder does not have an index, not even a damaged or incomplete one."""
    if folder.is_file():
        raise IndexNotFoundError(f"no index at {folder}: it is a file, not the folder of an index")
    if not (_has_writer_lock(folder) or _is_readable(folder / DATA)):
        raise _not_found(folder)


def _not_found(folder: Path) -> IndexNotFoundError:
    return IndexNotFoundError(f"no index at {folder}: the folder has neither {WRITER_LOCK} nor the {DATA} of an index")


def _has_writer_lock(folder: Path) -> bool:
    """Whether a folder has an index's lock file, which contains at most a pid."""
    try:
        return re.fullmatch(rb"\d*", (folder / WRITER_LOCK).read_bytes()) is not None
    except OSError:
        return False


def _is_readable(data: Path) -> bool:
    """Whether an existing file has the databases of an index, or is empty."""
    try:
        if data.stat().st_size == 0:
            return True
        with closing(open_lmdb(data, is_read_only=True, has_lock=False)) as env:
            open_databases(env, create=False)
    except (lmdb.Error, OSError):
        return False
    return True


def drop_at(folder: Path, *, lock_timeout_s: float) -> None:
    """Delete an index, even a damaged one, and its folder unless the folder has other files.

    Raises:
        IndexNotFoundError: The folder does not have an index.
        StoreBusyError: Another process held the writer's lock for too long; nothing was deleted.
        StoreUnavailableError: The folder cannot be written to.
    """
    refuse_no_index(folder)
    data = folder / DATA
    with lmdb_errors(folder):
        try:
            lock = wait_for_lock(folder / WRITER_LOCK, lock_timeout_s)
        except FileNotFoundError:  # another process has just dropped the index
            raise _not_found(folder) from None
        with lock:
            data.unlink(missing_ok=True)  # first, because without this file the index does not exist
            sync_folder(folder)
            for left in (JOBS, FILED):
                shutil.rmtree(folder / left, ignore_errors=True)
            for file in (
                lmdb_lock(data),
                *made_files(folder),
                *bases(folder),
                folder / _OF_0_1_0,
                folder / WRITER_LOCK,
            ):
                file.unlink(missing_ok=True)  # a drop can be repeated as long as the last file exists
    with suppress(OSError):  # the folder has other files
        folder.rmdir()


def is_own(folder: Path, path: Path) -> bool:
    """Whether a path leads to a file of the index in a folder: its data file, a base or a lock file."""
    data = (folder / DATA).resolve()
    own = (data, lmdb_lock(data), (folder / WRITER_LOCK).resolve())
    return path.resolve() in own or (path.resolve().parent == folder.resolve() and bool(_BASE.fullmatch(path.name)))
