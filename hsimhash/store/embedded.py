"""The embedded store: one LMDB file, no server; many reader processes, one writer at a time.

| database | key | value |
|---|---|---|
| `drawers` (DUPSORT, DUPFIXED) | prefix (5) | fingerprint (8); key and value together are the rowkey |
| `documents` | fingerprint (8), id; or a cut id | first seen (8); behind it the id, where the key cuts it |
| `register` | BLAKE2b digest of the id (16) | fingerprint (8), first seen (8) |
| `record` | `layout`, `profile`, `format`; `load:<token>` while a bulk load merges; `job:<token>` | JSON |

An id of over 502 bytes is cut in the key: its first 487 bytes and its digest (16).
All numbers big-endian; first seen in ms since 1970. Every write is one transaction, durable when the call returns.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import blake2b
from pathlib import Path

import lmdb
import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import (
    IndexExistsError,
    LayoutMismatchError,
    StoreBusyError,
    StoreClosedError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from hsimhash.rowkey import FINGERPRINT_BYTES, PREFIX_BYTES, ROWKEY_BYTES, encode
from hsimhash.store import environment as lmdb_environment
from hsimhash.store import files
from hsimhash.store.base import (
    LOCK_TIMEOUT_S,
    BulkLoad,
    CheckReport,
    Document,
    Mark,
    Progress,
    Reader,
    Record,
    Store,
    last_occurrences,
    mark_key,
    up_to,
)
from hsimhash.store.damage import DamagedRowError, as_our_error, damaged, lmdb_errors, read_only
from hsimhash.store.environment import Environment
from hsimhash.store.locks import WRITER_LOCK, held_here, lock_data, users_of, wait_for_lock

DIGEST_BYTES = 16
KEY_BYTES = 511  # LMDB's longest key
CUT_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - DIGEST_BYTES
WHOLE_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - 1  # so that only cut keys have 511 bytes, and none equals a whole one
_NUMBER_BYTES = 8
_HEAD_BYTES = FINGERPRINT_BYTES + CUT_ID_BYTES
_PAGE_DOCUMENTS = 10_000
_SCANS_AT_ONCE = 10_000  # buckets read, and
_LISTED_AT_ONCE = 256  # listings read, between two looks at the clock


def digest(doc_id: bytes) -> bytes:
    """Return the register's key: URLs come from strangers, so a hash that nobody can make collide."""
    return blake2b(doc_id, digest_size=DIGEST_BYTES).digest()


def document_key(packed_fingerprint: bytes, doc_id: bytes) -> bytes:
    """Return the key under which a document is listed."""
    return packed_fingerprint + key_part(doc_id)


def key_part(doc_id: bytes) -> bytes:
    """Return what the key of a listing has of the id; the order of listings is the order of these."""
    return doc_id if len(doc_id) <= WHOLE_ID_BYTES else doc_id[:CUT_ID_BYTES] + digest(doc_id)


def document_value(packed_first_seen: bytes, doc_id: bytes) -> bytes:
    """Return what is stored beside `document_key`."""
    return packed_first_seen if len(doc_id) <= WHOLE_ID_BYTES else packed_first_seen + doc_id


def listed_id(key: bytes, value: bytes) -> bytes:
    """Return the document id of a row of `documents`."""
    return value[_NUMBER_BYTES:] or key[FINGERPRINT_BYTES:]


def decode_id(doc_id: bytes) -> str:
    """Return a stored document id as text."""
    try:
        return doc_id.decode()
    except UnicodeDecodeError as error:
        raise DamagedRowError(f"a stored document id is not UTF-8: {doc_id[:80]!r}") from error


def pack(number: int) -> bytes:
    """Return 8 big-endian bytes."""
    return number.to_bytes(_NUMBER_BYTES, "big")


def unpack_register(value: bytes) -> tuple[int, int]:
    """Return fingerprint and first seen of a register."""
    if len(value) != 2 * _NUMBER_BYTES:
        raise DamagedRowError(f"a register has {len(value)} bytes instead of 16: {value[:40].hex()}")
    return int.from_bytes(value[:_NUMBER_BYTES], "big"), int.from_bytes(value[_NUMBER_BYTES:], "big")


class LmdbView(Reader):
    """One state of an index, in a read transaction; see `Store.view`. A class: a generator would cost a query more."""

    __slots__ = ("_deadline", "_environment", "_store", "_timeout_s", "databases", "transaction")

    def __init__(self, store: EmbeddedStore, timeout_s: float | None) -> None:
        self._store = store
        self._timeout_s = timeout_s
        self._deadline = None if timeout_s is None else time.monotonic() + timeout_s

    def __enter__(self) -> LmdbView:
        self._environment = environment = self._store.environment
        try:
            self.transaction = environment.env.begin()
        except lmdb.Error as error:
            raise self._store.as_our_error(error, environment) from error
        self.databases = environment.databases
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        environment = self._environment
        if not environment.is_over:  # in a forked child it is the parent's
            was_written = not environment.has_lock_file and self._was_overtaken()
            self.transaction.abort()
            if was_written:
                raise StoreUnavailableError(
                    f"index {environment.path} was written while it was read from a read-only mount, where nobody can "
                    f"mark what is being read; try again, mount it writable, or read a backup"
                ) from error
        if isinstance(error, (lmdb.Error, OSError, DamagedRowError)):
            raise self._store.as_our_error(error, environment) from error

    def _was_overtaken(self) -> bool:
        """Whether others have committed since the transaction began."""
        return int(self.transaction.id()) != int(self._environment.env.info()["last_txnid"])

    def scan(self, prefixes: Sequence[bytes]) -> NDArray[np.uint8]:
        cursor = self.transaction.cursor(self.databases["drawers"])
        rows = _rows(cursor, prefixes) if self._deadline is None else b"".join(self._timely_rows(cursor, prefixes))
        return np.frombuffer(rows, np.uint8).reshape(-1, ROWKEY_BYTES)

    def _timely_rows(self, cursor: lmdb.Cursor, prefixes: Sequence[bytes]) -> Iterator[bytes]:
        for start in range(0, len(prefixes), _SCANS_AT_ONCE):
            self._check_time(f"{start:,} of {len(prefixes):,} buckets")
            yield _rows(cursor, prefixes[start : start + _SCANS_AT_ONCE])

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        listing = self.transaction.cursor(self.databases["documents"])
        return [self._documents_of(listing, fingerprint, limit) for fingerprint in fingerprints]

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        return [self.confirmed(doc_id) for doc_id in doc_ids]

    def confirmed(self, doc_id: bytes) -> Document | None:
        """Return what the register says of a document."""
        value = self.transaction.get(digest(doc_id), db=self.databases["register"])
        return Document(decode_id(doc_id), *unpack_register(value)) if value is not None else None

    def _documents_of(self, listing: lmdb.Cursor, fingerprint: int, limit: int | None) -> list[Document]:
        """Return the confirmed documents of a fingerprint, as far as the limit-th that its register has there."""
        packed, found, wanted, head = pack(fingerprint), [], limit, b""
        is_there = listing.set_range(packed)
        for number in itertools.count():
            if self._deadline is not None and number % _LISTED_AT_ONCE == 0:
                self._check_time(f"{number:,} documents of fingerprint {fingerprint:016x}")
            if not is_there:
                break
            key, value = listing.item()
            # Ids that the key cuts are in order only up to the cut, so those with one beginning are all read.
            if not key.startswith(packed) or (wanted == 0 and key[:_HEAD_BYTES] != head):
                break
            document = self.confirmed(listed_id(key, value))
            if document is not None:
                found.append(document)
                if wanted and document.fingerprint == fingerprint:
                    wanted, head = wanted - 1, key[:_HEAD_BYTES]
            is_there = listing.next()
        found.sort()
        return found if limit is None else up_to(found, fingerprint, limit)

    def _check_time(self, reached: str) -> None:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise StoreTimeoutError(
                f"index {self._environment.path}: the {self._timeout_s:g} s allowed are over; the query had read "
                f"{reached}"
            )


def _rows(cursor: lmdb.Cursor, prefixes: Sequence[bytes]) -> bytes:
    """Return the rowkeys of buckets, one after the other."""
    rows: bytes = cursor.getmulti(prefixes, dupdata=True, dupfixed_bytes=FINGERPRINT_BYTES, keyfixed=True)
    return rows


class EmbeddedStore(Store):
    """The index in folder `path`; see the module's text and `Store`.

    Args:
        url: `lmdb://…`, for messages.
        path: the index's folder.
        lock_timeout_s: how long a write waits for another writer, and opening for a compaction, in seconds.
    """

    def __init__(self, url: str, path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.url = url
        self.lock_timeout_s = lock_timeout_s
        self._is_closed = False
        self._environment = lmdb_environment.acquire(path, self, lock_timeout_s)
        self.path = self._environment.path  # absolute: the process may change its folder
        try:
            self.record = Record.from_parts(self._environment.record_parts)
        except ValueError as error:
            self.close()
            raise damaged(self.path, f"it has no readable record ({error})") from error

    @classmethod
    def create(cls, url: str, path: Path, record: Record, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> EmbeddedStore:
        """Make an empty index; `IndexExistsError` where there is one."""
        try:
            files.create_files(path, record.to_parts(), lock_timeout_s=lock_timeout_s)
        except FileExistsError as error:
            raise IndexExistsError(f"there is an index at {path} already; open it, or choose another place") from error
        return cls(url, path, lock_timeout_s=lock_timeout_s)

    @property
    def environment(self) -> Environment:
        """The process's environment for this index, opened again after a fork; `StoreClosedError` after `close`."""
        environment = self._environment
        return self._opened_again(environment) if environment.is_over or self._is_closed else environment

    def _opened_again(self, old: Environment) -> Environment:
        if self._is_closed:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        new = lmdb_environment.acquire(self.path, self, self.lock_timeout_s)
        if new.record_parts != old.record_parts:
            lmdb_environment.release(new, self)
            raise LayoutMismatchError(f"another index was made at {self.path} since this one was opened; open it again")
        self._environment = new
        return new

    def as_our_error(self, error: lmdb.Error | OSError | DamagedRowError, environment: Environment) -> Exception:
        """Return what to raise for an error of LMDB in this store."""
        if environment.is_over:
            return StoreClosedError(f"{self.url} was closed, or compacted, in another thread during this call")
        return as_our_error(self.path, error)

    def view(self, *, timeout_s: float | None = None) -> LmdbView:
        return LmdbView(self, timeout_s)

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        if self.environment.is_read_only and not self.environment.has_lock_file:
            raise read_only(self.path)
        if self.environment.is_read_only:
            raise StoreUnavailableError(
                f"index {self.path} cannot be written: this user cannot write {files.DATA}; give the right to write it"
            )
        path = self.path / WRITER_LOCK
        if held_here(path) is not None:
            return nullcontext()
        with lmdb_errors(self.path):
            return wait_for_lock(path, self.lock_timeout_s, stop)

    def verify_lock(self) -> None:
        """Raise `StoreBusyError` if the file of the writer's lock was deleted or replaced while this thread writes."""
        lock = held_here(self.path / WRITER_LOCK)
        if lock is None or not lock.is_in_place():
            raise StoreBusyError(
                f"{self.path / WRITER_LOCK} was deleted while this process was writing, so another may write too; what "
                f"was not yet acknowledged is not stored: try again, and leave that file alone"
            )

    @contextmanager
    def write(self) -> Iterator[lmdb.Transaction]:
        """Give a write transaction under the writer's lock; durable when the block ends, undone when it raises."""
        with lmdb_errors(self.path), self.writing(), self.environment.begin_write() as transaction:
            yield transaction
            self.verify_lock()

    def scan(self, prefixes: Sequence[bytes]) -> NDArray[np.uint8]:
        with self.view() as view:
            return view.scan(prefixes)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        with self.view() as view:
            return view.documents(fingerprints, limit)

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        with self.view() as view:
            return view.lookup(doc_ids)

    # The locks of a write are held by `with` itself, not by a generator's: a signal may come before that goes on.

    def insert(
        self,
        doc_ids: Sequence[bytes],
        fingerprints: NDArray[np.uint64],
        first_seen: NDArray[np.int64],
        *,
        mark: Mark | None = None,
    ) -> int:
        last = last_occurrences(doc_ids)
        if not last and mark is None:
            self.environment  # noqa: B018 (a closed index says so)
            return 0
        with lmdb_errors(self.path), self.writing(), self.environment.begin_write() as transaction:
            rows = Rows(self, transaction)
            new = []
            for position in last:
                doc_id, fingerprint = doc_ids[position], int(fingerprints[position])
                register = rows.get_register(doc_id)
                if register is not None and register[0] == fingerprint:
                    continue
                if register is not None:
                    rows.unlist(doc_id, register[0])
                new.append((doc_id, fingerprint, int(first_seen[position])))
            rows.put(new)
            if mark is not None:
                transaction.put(mark.key, mark.value, db=self.environment.databases["record"])
            self.verify_lock()
        return len(new)

    def marked(self, token: str) -> int:
        with self.view() as view:
            return int(view.transaction.get(mark_key(token), b"0", db=view.databases["record"]))

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        with lmdb_errors(self.path), self.writing(), self.environment.begin_write() as transaction:
            rows = Rows(self, transaction)
            found = {doc_id: rows.get_register(doc_id) for doc_id in doc_ids}
            old = [
                (doc_id, register[0])
                for doc_id, register in found.items()
                if register is not None and (before is None or register[1] < before)
            ]
            rows.delete(old)
            self.verify_lock()
        return len(old)

    def count(self) -> int:
        with self.view() as view:
            return int(view.transaction.stat(view.databases["register"])["entries"])

    def walk(self) -> Iterator[list[Document]]:
        with self.view() as view:
            files.verify_pages(view.transaction, view.databases["documents"])
        after = b""
        while True:
            with self.view() as view:
                rows = page(view.transaction, view.databases["documents"], after, _PAGE_DOCUMENTS)
                found = [view.confirmed(listed_id(key, value)) for key, value in rows]
            if not rows:
                return
            # A document that moved meanwhile is listed where its register says; here it would be told twice.
            yield [
                document
                for document, (key, _) in zip(found, rows, strict=True)
                if document is not None and pack(document.fingerprint) == key[:FINGERPRINT_BYTES]
            ]
            after = rows[-1][0]

    def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
        from hsimhash.store.audit import audit

        return audit(self, repair=repair, progress=progress)

    def bulk(self, folder: Path) -> BulkLoad:
        from hsimhash.store.bulk import SortedRuns

        return SortedRuns(self, folder)

    def describe(self) -> dict[str, object]:
        with self.view() as view:
            stats = {name: view.transaction.stat(view.databases[name]) for name in ("drawers", "documents", "register")}
        bytes_of = {
            f"{name}_bytes": stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
            for name, stat in stats.items()
        }
        file_bytes = self.file_bytes()
        return {
            "path": str(self.path),
            "drawer_rows": stats["drawers"]["entries"],
            **bytes_of,
            "file_bytes": file_bytes,
            "free_bytes": max(0, file_bytes - sum(bytes_of.values())),
        }

    def last_transaction(self) -> tuple[str, int]:
        """Return what tells the data file from another, and the number of its last committed transaction."""
        environment = self.environment
        with lmdb_errors(self.path):
            return self.data_file(), int(environment.env.info()["last_txnid"])

    def data_file(self) -> str:
        """Return what tells the data file from the one that a compaction puts in its place."""
        return str(os.fstat(self.environment.lock.fileno()).st_ino)

    def file_bytes(self) -> int:
        """Return the size of the data file."""
        return os.fstat(self.environment.lock.fileno()).st_size

    def compact(self) -> tuple[int, int]:
        """See `Store.compact`; calls of other threads through this store wait for it."""
        with lmdb_errors(self.path), self.writing():
            lmdb_environment.close_alone(self.environment)
            with self._data_alone():
                return self._rewrite()

    def _data_alone(self) -> AbstractContextManager[object]:
        data = self.path / files.DATA
        lock = lock_data(data, is_shared=False)
        if lock is None:
            pids = ", ".join(map(str, users_of(data))) or "unknown, perhaps in another container"
            raise StoreBusyError(
                f"index {self.path} is in use by other processes ({pids}), and 'compact' needs it alone; nothing was "
                f"changed: end them, and try again"
            )
        return lock

    def _rewrite(self) -> tuple[int, int]:
        data, new = self.path / files.DATA, files.new_data_file(self.path)
        before = data.stat().st_size
        env = files.open_lmdb(data.resolve(), is_read_only=True, has_lock=False)
        try:
            databases = files.open_databases(env, create=False)
            with env.begin() as transaction:
                files.copy_rows(transaction, databases, new)
        finally:
            env.close()
        files.replace_data(self.path, new)
        return before, data.stat().st_size

    def backup(self, target: Path) -> None:
        if target.resolve().is_relative_to(self.path):
            raise ValueError(
                f"{target} lies within the index {self.path}, and would be lost with it; choose another folder"
            )
        with lmdb_errors(target):
            made = files.make_folder(target)
            if any(target.iterdir()):
                raise IndexExistsError(f"{target} is not empty; give a new folder for the backup")
            data = target / f"{files.DATA}.part"  # a killed backup is no index
            try:
                with self.view() as view:
                    files.copy_rows(view.transaction, view.databases, data)
                data.rename(target / files.DATA)
                (target / WRITER_LOCK).touch()
                files.sync_folder(target)
            except BaseException:
                with suppress(OSError):  # somebody has put files in
                    for folder in made:
                        folder.rmdir()
                raise

    def close(self) -> None:
        self._is_closed = True
        lmdb_environment.release(self._environment, self)


class Rows:
    """Reads and writes of one write transaction."""

    def __init__(self, store: EmbeddedStore, transaction: lmdb.Transaction) -> None:
        databases = store.environment.databases
        self.layout = store.record.layout
        self.transaction = transaction
        self.drawers, self.listing = databases["drawers"], databases["documents"]
        self.register = databases["register"]

    def get_register(self, doc_id: bytes) -> tuple[int, int] | None:
        """Return fingerprint and first seen of a document."""
        value = self.transaction.get(digest(doc_id), db=self.register)
        return unpack_register(value) if value is not None else None

    def delete(self, documents: Sequence[tuple[bytes, int]]) -> None:
        """Forget (id, fingerprint), each database in the order of its keys."""
        for key in sorted(document_key(pack(fingerprint), doc_id) for doc_id, fingerprint in documents):
            self.transaction.delete(key, db=self.listing)
        left = [value for value in {fingerprint for _, fingerprint in documents} if not self.is_listed(pack(value))]
        for prefix, packed in sorted((prefix, pack(value)) for value in left for prefix in self.layout.prefixes(value)):
            self.transaction.delete(prefix, packed, db=self.drawers)
        for key in sorted(digest(doc_id) for doc_id, _ in documents):
            self.transaction.delete(key, db=self.register)

    def put(self, documents: Sequence[tuple[bytes, int, int]]) -> None:
        """Write rows, list and register of (id, fingerprint, first seen), each in key order."""
        self.put_drawer_rows(sorted({fingerprint for _, fingerprint, _ in documents}))
        listing = sorted(
            (document_key(pack(fingerprint), doc_id), document_value(pack(first_seen), doc_id))
            for doc_id, fingerprint, first_seen in documents
        )
        self.transaction.cursor(self.listing).putmulti(listing)
        registers = sorted((digest(doc_id), pack(fingerprint) + pack(seen)) for doc_id, fingerprint, seen in documents)
        self.transaction.cursor(self.register).putmulti(registers)

    def put_drawer_rows(self, fingerprints: Sequence[int]) -> int:
        """File fingerprints in every drawer; return how many rows are new."""
        rows = encode(self.layout, np.array(fingerprints, np.uint64)).reshape(-1).tobytes()
        keys = sorted(rows[start : start + ROWKEY_BYTES] for start in range(0, len(rows), ROWKEY_BYTES))
        items = ((key[:PREFIX_BYTES], key[PREFIX_BYTES:]) for key in keys)
        _, added = self.transaction.cursor(self.drawers).putmulti(items, dupdata=False)
        return int(added)

    def unlist(self, doc_id: bytes, fingerprint: int) -> None:
        """Take a document off its fingerprint's list, and the fingerprint out of the drawers if it was the last."""
        packed = pack(fingerprint)
        self.transaction.delete(document_key(packed, doc_id), db=self.listing)
        if not self.is_listed(packed):
            for prefix in self.layout.prefixes(fingerprint):
                self.transaction.delete(prefix, packed, db=self.drawers)

    def is_listed(self, packed_fingerprint: bytes) -> bool:
        """Whether any document is listed under a fingerprint."""
        cursor = self.transaction.cursor(self.listing)
        return bool(cursor.set_range(packed_fingerprint) and cursor.key().startswith(packed_fingerprint))


def page(transaction: lmdb.Transaction, database: object, after: bytes, most: int) -> list[tuple[bytes, bytes]]:
    """Return up to `most` rows whose keys come after `after`, for a database without duplicates."""
    cursor = transaction.cursor(database)
    if not cursor.set_range(after + b"\x00" if after else b"\x00"):
        return []
    return [row for row, _ in zip(cursor.iternext(), range(most), strict=False)]
