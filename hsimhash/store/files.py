"""The files of an embedded index: their names, making them, replacing them, and what shows that they are damaged.

| file in the index's folder | what |
|---|---|
| `data.mdb` | link to the data file in force; `compact` replaces it in one step |
| `data-….mdb`, `data-….mdb-lock` | LMDB's data and lock files |
| `writer.lock` | held by the process that writes (flock); holds its pid |
| `writer.queue` | held by the process that is next, so that one that writes without pause starves nobody |
| `jobs/` | job folders of `hsimhash ingest` |
"""

from __future__ import annotations

import itertools
import os
import shutil
import stat
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import lmdb

from hsimhash.errors import CorruptionError, IndexNotFoundError, StoreUnavailableError
from hsimhash.store.damage import DamagedRowError, damaged
from hsimhash.store.locks import WRITER_LOCK, WRITER_QUEUE, WriterLock

DATA_LINK = "data.mdb"
JOBS = "jobs"
MAP_BYTES = 1 << 40  # address space, not disk: the file grows as it is written
MAX_READERS = 1024  # simultaneous readers, over all processes
EMPTY_INDEX_BYTES = 1 << 16
ROWS_AT_ONCE = 50_000  # of a copy, in one transaction; bounds memory, and how long other threads wait
DATABASES: dict[str, dict[str, bool]] = {
    "record": {},
    "drawers": {"dupsort": True, "dupfixed": True},
    "documents": {},
    "register": {},
}

# LMDB's data format 1, on 64-bit machines: offsets within a meta page, and within the entry of a named database.
_ROOTS_IN_META = 80, 128
_TXNID_IN_META = 144
_ROOT_IN_DB = 40
_NO_PAGE = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Linked:
    """The data file that an index's link names; `identity` is its device and inode."""

    path: Path
    identity: tuple[int, int]
    size: int


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """LMDB's environment on a data file, and what tells whether its files are still the index's own.

    Args:
        env: the environment.
        name: the data file's name.
        link: the link that named it.
        lock: LMDB's lock file; empty where it has none.
        identity: the data file's device and inode, the lock file's inode.
        is_read_only: nobody can write here.
    """

    env: lmdb.Environment
    name: str
    link: str
    lock: str
    identity: tuple[int, int, int]
    is_read_only: bool

    def are_in_force(self) -> bool:
        """Whether the index still has these files; `OSError` where one of them is gone."""
        # On every call: os.stat takes half the time of Path.stat.
        data = os.stat(self.link)  # noqa: PTH116
        return self.identity == (data.st_dev, data.st_ino, _inode(self.lock))


def _inode(lock: str) -> int:
    return os.stat(lock).st_ino if lock else 0  # noqa: PTH116


def linked_data(folder: Path) -> Linked | None:
    """Return the data file that the link names; None for no such file."""
    link = folder / DATA_LINK
    while True:
        data = Path(os.path.realpath(link))
        try:
            found = data.lstat()
            if stat.S_ISLNK(found.st_mode):  # the link itself, made again meanwhile: LMDB must not be given its name
                continue
        except FileNotFoundError:
            if os.path.realpath(link) == str(data):
                return None
            continue  # replaced meanwhile
        return Linked(data, (found.st_dev, found.st_ino), found.st_size)


def open_in_force(folder: Path) -> OpenFiles:
    """Open the data file that the link names; again if a compaction replaces it meanwhile."""
    while True:
        linked = linked_data(folder)
        if linked is None:
            refuse_lost_link(folder)
            raise IndexNotFoundError(
                f"no index at {folder}; make one with 'hsimhash create-table --store lmdb://{folder}'"
            )
        if linked.size == 0:
            raise damaged(folder, f"{linked.path.name} is empty")
        opened = _open_linked(folder, linked)
        if opened is not None:
            return opened


def _open_linked(folder: Path, linked: Linked) -> OpenFiles | None:
    """Open a data file; None where it is no longer the one that the link names."""
    data = linked.path
    is_read_only = not (os.access(data, os.W_OK) and os.access(folder, os.W_OK))
    # Without a lock file a reader sees pages that a writer uses again, so only where nobody can write.
    has_lock = not os.statvfs(folder).f_flag & os.ST_RDONLY
    lock = f"{data}-lock" if has_lock else ""
    try:
        env = open_lmdb(data, is_read_only=is_read_only, has_lock=has_lock)
        lock_inode = _inode(lock)
    except (lmdb.Error, OSError):
        if linked_data(folder) == linked:
            raise
        return None
    try:
        is_in_force = _is_in_force(folder, linked, env)
    except BaseException:
        env.close()
        raise
    if not is_in_force:
        env.close()
        return None
    identity = (*linked.identity, lock_inode)
    return OpenFiles(env, data.name, str(folder / DATA_LINK), lock, identity, is_read_only)


def _is_in_force(folder: Path, linked: Linked, env: lmdb.Environment) -> bool:
    """Whether a data file that was just opened is still the one that the link names; it must be whole."""
    after = linked_data(folder)
    if after is None or (after.path, after.identity) != (linked.path, linked.identity):
        _delete_if_made_again(linked)
        return False
    try:
        if is_cut_off(linked.path, env):
            raise damaged(folder, f"{linked.path.name} is cut off")
    except FileNotFoundError:  # replaced this very moment
        return False
    return True


def _delete_if_made_again(linked: Linked) -> None:
    """Delete what LMDB made, empty, where a compaction had deleted the data file before it was opened."""
    with suppress(FileNotFoundError):
        found = linked.path.stat()
        if (found.st_dev, found.st_ino) != linked.identity and found.st_size <= EMPTY_INDEX_BYTES:
            delete_files(linked.path)


def open_lmdb(
    data: Path, *, is_read_only: bool = False, has_lock: bool = True, is_durable: bool = True
) -> lmdb.Environment:
    """Open LMDB's environment on a data file; every commit is durable, or none is before the file is synced."""
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
        metasync=is_durable,
        sync=is_durable,
    )


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
    env = open_lmdb(data)
    try:
        record = open_databases(env, create=True)["record"]
        with env.begin(write=True, db=record) as transaction:
            for key, value in fill.items():
                transaction.put(key, value)
    finally:
        env.close()


def open_databases(env: lmdb.Environment, *, create: bool) -> dict[str, object]:
    """Return the databases of an index by name."""
    return {name: env.open_db(name.encode(), create=create, **kind) for name, kind in DATABASES.items()}


def copy_rows(env: lmdb.Environment, databases: Mapping[str, object], target: Path) -> None:
    """Write all rows, as of now, in their order to the new data file `target`, whose pages get full.

    Not by LMDB's own compacting copy: that of lmdb 3.0.0 (LMDB 0.9.36) ends the process by SIGSEGV where a bucket is so
    large that its rows have pages of their own.
    """
    copy = open_lmdb(target, has_lock=False, is_durable=False)
    try:
        copies = open_databases(copy, create=True)
        with env.begin() as transaction:
            for name, database in databases.items():
                _append_rows(transaction.cursor(database), copy, copies[name])
    finally:
        copy.close()
    sync_file(target)


def _append_rows(cursor: lmdb.Cursor, copy: lmdb.Environment, database: object) -> None:
    rows = cursor.iternext()
    while batch := list(itertools.islice(rows, ROWS_AT_ONCE)):
        with copy.begin(write=True) as transaction:
            consumed, added = transaction.cursor(database).putmulti(batch, append=True)
        if consumed != added:
            raise DamagedRowError(f"{consumed - added} of {consumed} rows are out of order")


def replace_data(folder: Path, data: Path) -> None:
    """Make `data` the data file in force; readers and writers of every process follow at their next call.

    Every other data and lock file goes: the old ones, and what a killed compaction left. Under the writer's lock.
    """
    if data.parent != folder:
        raise ValueError(f"{data} is not in the index's folder {folder}")
    link = folder / f"{DATA_LINK}.new"
    link.unlink(missing_ok=True)
    link.symlink_to(data.name)
    link.replace(folder / DATA_LINK)
    sync_folder(folder)
    for other in folder.glob("data-*.mdb*"):
        if not other.name.startswith(data.name):
            other.unlink(missing_ok=True)


def delete_files(data: Path) -> None:
    """Delete a data file and its lock file; who has them open keeps reading them."""
    data.unlink(missing_ok=True)
    Path(f"{data}-lock").unlink(missing_ok=True)


def refuse_no_index(folder: Path) -> None:
    """Raise `IndexNotFoundError` unless a folder has the link to a data file of its own, be that there or lost."""
    link = folder / DATA_LINK
    if not (link.is_symlink() and fnmatch(str(link.readlink()), "data-*.mdb")):
        raise IndexNotFoundError(
            f"no index at {folder}: there is no {DATA_LINK} that names a data file, as 'hsimhash create-table' makes it"
        )


def drop_index(folder: Path, *, lock_timeout_s: float) -> None:
    """Delete an index, damaged or not, and its folder unless that has other files.

    Raises:
        IndexNotFoundError: the folder has no link to a data file of its own.
        StoreBusyError: another process wrote for all that time; nothing was deleted.
    """
    refuse_no_index(folder)
    link = folder / DATA_LINK
    with WriterLock(folder / WRITER_LOCK).held(lock_timeout_s):
        link.unlink()  # first: there is no half of an index at any time
        sync_folder(folder)
        shutil.rmtree(folder / JOBS, ignore_errors=True)
        for file in (*folder.glob("data-*.mdb*"), folder / WRITER_QUEUE, folder / WRITER_LOCK):
            file.unlink(missing_ok=True)
    with suppress(OSError):  # there are other files
        folder.rmdir()


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
