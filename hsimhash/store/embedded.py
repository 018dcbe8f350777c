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

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import IndexExistsError, StoreClosedError
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
)
from hsimhash.store.damage import DamagedRowError, damaged, lmdb_errors

if TYPE_CHECKING:
    import lmdb

    from hsimhash.store.environment import Environment

DIGEST_BYTES = 16
KEY_BYTES = 511  # LMDB's longest key
CUT_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - DIGEST_BYTES
WHOLE_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - 1  # so that only cut keys have 511 bytes, and none equals a whole one
_NUMBER_BYTES = 8
_HEAD_BYTES = FINGERPRINT_BYTES + CUT_ID_BYTES
_PAGE_DOCUMENTS = 10_000


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


class EmbeddedStore(Store):
    """The index in folder `path`; see the module's text and `Store`.

    Args:
        url: `lmdb://…`, for messages.
        path: the index's folder.
        lock_timeout_s: how long a write waits for another writer, in seconds.
    """

    def __init__(self, url: str, path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.url = url
        self._closing = threading.Lock()
        self.lock_timeout_s = lock_timeout_s
        self._environment: Environment | None = lmdb_environment.acquire(path)
        self.path = self._environment.path  # absolute: the process may change its folder
        try:
            self.record = self._read_record()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, url: str, path: Path, record: Record, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> EmbeddedStore:
        """Make an empty index; `IndexExistsError` where there is one."""
        try:
            files.create_files(path, record.to_parts())
        except FileExistsError as error:
            raise IndexExistsError(f"there is an index at {path} already; open it, or choose another place") from error
        return cls(url, path, lock_timeout_s=lock_timeout_s)

    @property
    def environment(self) -> Environment:
        """The process's environment for this index; `StoreClosedError` after `close`."""
        if self._environment is None:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        return self._environment

    def _read_record(self) -> Record:
        try:
            return Record.from_parts(self.environment.record_parts)
        except ValueError as error:
            raise damaged(self.path, f"it has no readable record ({error})") from error

    def view(self, *, timeout_s: float | None = None) -> AbstractContextManager[Reader]:  # noqa: ARG002
        _ = self.environment  # a closed index says so
        return nullcontext(self)

    def writing(self) -> AbstractContextManager[None]:
        return self.environment.locked(self.lock_timeout_s)

    def scan(self, prefixes: Sequence[bytes]) -> NDArray[np.uint8]:
        environment = self.environment
        with environment.read() as transaction:
            cursor = transaction.cursor(environment.databases["drawers"])
            rows = cursor.getmulti(prefixes, dupdata=True, dupfixed_bytes=FINGERPRINT_BYTES, keyfixed=True)
        return np.frombuffer(rows, np.uint8).reshape(-1, ROWKEY_BYTES)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        environment = self.environment
        with environment.read() as transaction:
            listing = transaction.cursor(environment.databases["documents"])
            register = environment.databases["register"]
            return [_documents_of(transaction, listing, register, fingerprint, limit) for fingerprint in fingerprints]

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        environment = self.environment
        with environment.read() as transaction:
            register = environment.databases["register"]
            return [_confirmed(transaction, register, doc_id) for doc_id in doc_ids]

    def insert(
        self,
        doc_ids: Sequence[bytes],
        fingerprints: NDArray[np.uint64],
        first_seen: NDArray[np.int64],
        *,
        mark: Mark | None = None,
    ) -> int:
        environment, last = self.environment, last_occurrences(doc_ids)
        if not last and mark is None:
            return 0
        with environment.write(self.lock_timeout_s) as transaction:
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
                transaction.put(mark.key, mark.value, db=environment.databases["record"])
        return len(new)

    def marked(self, token: str) -> int:
        environment = self.environment
        with environment.read() as transaction:
            return int(transaction.get(mark_key(token), b"0", db=environment.databases["record"]))

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        removed = 0
        with self.environment.write(self.lock_timeout_s) as transaction:
            rows = Rows(self, transaction)
            for doc_id in doc_ids:
                register = rows.get_register(doc_id)
                if register is not None and (before is None or register[1] < before):
                    rows.unlist(doc_id, register[0])
                    rows.delete_register(doc_id)
                    removed += 1
        return removed

    def count(self) -> int:
        with self.environment.read() as transaction:
            return int(transaction.stat(self.environment.databases["register"])["entries"])

    def walk(self) -> Iterator[list[Document]]:
        self.environment.verify_pages("documents")
        after = b""
        while True:
            with self.environment.read() as transaction:
                rows = page(transaction, self.environment.databases["documents"], after, _PAGE_DOCUMENTS)
                register = self.environment.databases["register"]
                found = [_confirmed(transaction, register, listed_id(key, value)) for key, value in rows]
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
        environment = self.environment
        with environment.read() as transaction:
            stats = {
                name: transaction.stat(environment.databases[name]) for name in ("drawers", "documents", "register")
            }
        bytes_of = {
            f"{name}_bytes": stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
            for name, stat in stats.items()
        }
        file_bytes = environment.file_bytes()
        return {
            "path": str(self.path),
            "drawer_rows": stats["drawers"]["entries"],
            **bytes_of,
            "file_bytes": file_bytes,
            "free_bytes": max(0, file_bytes - sum(bytes_of.values())),
        }

    def compact(self) -> tuple[int, int]:
        environment = self.environment
        with environment.locked(self.lock_timeout_s):
            data = files.new_data_file(self.path)
            before = environment.file_bytes()
            try:
                environment.copy(data)
            except BaseException:
                files.delete_files(data)
                raise
            # From here on the copy may be in force, whatever interrupts; if it is not, the next compaction deletes it.
            with lmdb_errors(self.path):
                files.replace_data(self.path, data)
            after = environment.file_bytes()
        return before, after

    def backup(self, target: Path) -> None:
        with lmdb_errors(target):
            target.mkdir(parents=True, exist_ok=True)
            if any(target.iterdir()):
                raise IndexExistsError(f"{target} is not empty; give a new folder for the backup")
            data = files.new_data_file(target)
            try:
                self.environment.copy(data)
                (target / files.DATA_LINK).symlink_to(data.name)
                files.sync_folder(target)
            except BaseException:
                shutil.rmtree(target)
                raise

    def close(self) -> None:
        with self._closing:
            environment, self._environment = self._environment, None
        if environment is not None:
            lmdb_environment.release(environment)


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

    def delete_register(self, doc_id: bytes) -> None:
        """Forget a document."""
        self.transaction.delete(digest(doc_id), db=self.register)

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


def _confirmed(transaction: lmdb.Transaction, register: object, doc_id: bytes) -> Document | None:
    value = transaction.get(digest(doc_id), db=register)
    return Document(decode_id(doc_id), *unpack_register(value)) if value is not None else None


def _documents_of(
    transaction: lmdb.Transaction, listing: lmdb.Cursor, register: object, fingerprint: int, limit: int | None
) -> list[Document]:
    """Return the confirmed documents listed under a fingerprint, as far as the limit-th that its register has there."""
    packed, found, wanted, head = pack(fingerprint), [], limit, b""
    is_there = listing.set_range(packed)
    while is_there:
        key, value = listing.item()
        if not key.startswith(packed):
            break
        # Ids that the key cuts are in order only up to the cut, so those with one beginning are all read.
        if wanted == 0 and key[:_HEAD_BYTES] != head:
            break
        document = _confirmed(transaction, register, listed_id(key, value))
        if document is not None:
            found.append(document)
            if wanted and document.fingerprint == fingerprint:
                wanted, head = wanted - 1, key[:_HEAD_BYTES]
        is_there = listing.next()
    found.sort()
    return found if limit is None else _up_to(found, fingerprint, limit)


def _up_to(documents: list[Document], fingerprint: int, limit: int) -> list[Document]:
    """Return documents as far as the limit-th whose register has the fingerprint."""
    places = [place for place, document in enumerate(documents) if document.fingerprint == fingerprint]
    return documents[: places[limit - 1] + 1] if len(places) > limit else documents
