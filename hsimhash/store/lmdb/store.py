"""The embedded store: one LMDB file, no server; many reader processes, one writer at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import IndexExistsError, StoreBusyError
from hsimhash.files import make_folder, put_in_place
from hsimhash.locks import WRITER_LOCK, lock_data, users_of
from hsimhash.rowkey import FINGERPRINT_BYTES
from hsimhash.store.base import (
    LOCK_TIMEOUT_S,
    BulkLoad,
    CheckReport,
    Document,
    Mark,
    Progress,
    Record,
    Store,
    last_occurrences,
    mark_key,
)
from hsimhash.store.lmdb import data_file
from hsimhash.store.lmdb import environment as environments
from hsimhash.store.lmdb.audit import audit
from hsimhash.store.lmdb.codec import listed_id, pack
from hsimhash.store.lmdb.damage import lmdb_errors
from hsimhash.store.lmdb.merge import SortedRuns
from hsimhash.store.lmdb.rows import page
from hsimhash.store.lmdb.session import LmdbView, Session

_PAGE_DOCUMENTS = 10_000


class LmdbStore(Store):
    """The index in folder `path`; see the module's text and `Store`.

    Args:
        url: `lmdb://…`, for messages.
        path: the index's folder.
        lock_timeout_s: how long a write waits for another writer, and opening for a compaction, in seconds.
    """

    def __init__(self, url: str, path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        self.session = Session(url, path, lock_timeout_s)
        self.url = url
        self.record = self.session.record

    @classmethod
    def create(cls, url: str, path: Path, record: Record, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> LmdbStore:
        """Make an empty index; `IndexExistsError` where there is one."""
        try:
            data_file.create_files(path, record.to_parts(), lock_timeout_s=lock_timeout_s)
        except FileExistsError as error:
            raise IndexExistsError(f"there is an index at {path} already; open it, or choose another place") from error
        return cls(url, path, lock_timeout_s=lock_timeout_s)

    def view(self, *, timeout_s: float | None = None) -> LmdbView:
        return self.session.view(timeout_s=timeout_s)

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        return self.session.writing(stop=stop)

    def scan(self, prefixes: Sequence[bytes]) -> NDArray[np.uint8]:
        with self.session.view() as view:
            return view.scan(prefixes)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        with self.session.view() as view:
            return view.documents(fingerprints, limit)

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        with self.session.view() as view:
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
            self.session.environment  # noqa: B018 (a closed index says so)
            return 0
        with (
            lmdb_errors(self.session.path),
            self.session.writing(),
            self.session.environment.begin_write() as transaction,
        ):
            rows = self.session.rows(transaction)
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
                transaction.put(mark.key, mark.value, db=self.session.environment.databases["record"])
            self.session.verify_lock()
        return len(new)

    def marked(self, token: str) -> int:
        with self.session.view() as view:
            return int(view.transaction.get(mark_key(token), b"0", db=view.databases["record"]))

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        with (
            lmdb_errors(self.session.path),
            self.session.writing(),
            self.session.environment.begin_write() as transaction,
        ):
            rows = self.session.rows(transaction)
            found = {doc_id: rows.get_register(doc_id) for doc_id in doc_ids}
            old = [
                (doc_id, register[0])
                for doc_id, register in found.items()
                if register is not None and (before is None or register[1] < before)
            ]
            rows.delete(old)
            self.session.verify_lock()
        return len(old)

    def count(self) -> int:
        with self.session.view() as view:
            return int(view.transaction.stat(view.databases["register"])["entries"])

    def walk(self) -> Iterator[list[Document]]:
        with self.session.view() as view:
            data_file.verify_pages(view.transaction, view.databases["documents"])
        after = b""
        while True:
            with self.session.view() as view:
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
        return audit(self.session, repair=repair, progress=progress)

    def bulk(self, folder: Path) -> BulkLoad:
        return SortedRuns(self.session, folder)

    def describe(self) -> dict[str, object]:
        with self.session.view() as view:
            stats = {name: view.transaction.stat(view.databases[name]) for name in ("drawers", "documents", "register")}
        bytes_of = {
            f"{name}_bytes": stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
            for name, stat in stats.items()
        }
        file_bytes = self.session.file_bytes()
        return {
            "path": str(self.session.path),
            "drawer_rows": stats["drawers"]["entries"],
            **bytes_of,
            "file_bytes": file_bytes,
            "free_bytes": max(0, file_bytes - sum(bytes_of.values())),
        }

    def compact(self) -> tuple[int, int]:
        """See `Store.compact`; calls of other threads through this store wait for it."""
        with lmdb_errors(self.session.path), self.session.writing():
            environments.close_alone(self.session.environment)
            with self._data_alone():
                return self._rewrite()

    def _data_alone(self) -> AbstractContextManager[object]:
        data = self.session.path / data_file.DATA
        lock = lock_data(data, is_shared=False)
        if lock is None:
            pids = ", ".join(map(str, users_of(data))) or "unknown, perhaps in another container"
            raise StoreBusyError(
                f"index {self.session.path} is in use by other processes ({pids}), and 'compact' needs it alone; "
                f"nothing was changed: end them, and try again"
            )
        return lock

    def _rewrite(self) -> tuple[int, int]:
        data, new = self.session.path / data_file.DATA, data_file.new_data_file(self.session.path)
        before = data.stat().st_size
        env = data_file.open_lmdb(data.resolve(), is_read_only=True, has_lock=False)
        try:
            databases = data_file.open_databases(env, create=False)
            with env.begin() as transaction:
                data_file.copy_rows(transaction, databases, new)
        finally:
            env.close()
        data_file.replace_data(self.session.path, new)
        return before, data.stat().st_size

    def backup(self, target: Path) -> None:
        if target.resolve().is_relative_to(self.session.path):
            raise ValueError(
                f"{target} lies within the index {self.session.path}, and would be lost with it; choose another folder"
            )
        with lmdb_errors(target):
            made = make_folder(target)
            if any(target.iterdir()):
                raise IndexExistsError(f"{target} is not empty; give a new folder for the backup")
            data = target / f"{data_file.DATA}.part"  # a killed backup is no index
            try:
                with self.session.view() as view:
                    data_file.copy_rows(view.transaction, view.databases, data)
                (target / WRITER_LOCK).touch()
                put_in_place(data, target / data_file.DATA)
            except BaseException:
                with suppress(OSError):  # somebody has put files in
                    for folder in made:
                        folder.rmdir()
                raise

    def close(self) -> None:
        self.session.close()
