"""The embedded store: LMDB and a base, without a server. It allows many reader processes, but one writer at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from hsimhash.errors import IndexExistsError, StoreBusyError
from hsimhash.files import make_folder, put_in_place
from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.locks import WRITER_LOCK, lock_data, users_of
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import FINGERPRINT_BYTES, last_occurrences
from hsimhash.store.base import INSERT_DOCUMENTS, LOCK_TIMEOUT_S, Document, Mark, Record, Store, even_parts
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.lmdb import compaction, files
from hsimhash.store.lmdb.audit import audit
from hsimhash.store.lmdb.codec import Registered, Row, digest, listed_id, pack, page, register_fields
from hsimhash.store.lmdb.environment import close_alone
from hsimhash.store.lmdb.files import BASE_LIMITS, BaseLimits
from hsimhash.store.lmdb.merge import SortedRuns, merge_documents
from hsimhash.store.lmdb.session import LmdbView, Session
from hsimhash.store.reports import SAMPLED_DOCUMENTS, CheckReport, CrowdedFingerprint, crowded
from hsimhash.store.runs import BulkLoad

MERGED_DOCUMENTS = 1_000_000  # maximum number of documents per bulk load of `add_many`; limits memory and lock times
_PAGE_DOCUMENTS = 10_000


class LmdbStore(Store):
    """The index in folder `path`; see the module docstring and `Store`.

    Args:
        url: `lmdb://…`, for messages.
        path: The index's folder.
        lock_timeout_s: How long, in seconds, a write waits for another writer, and opening waits for a compaction.
        limits: When the index gets a base.
    """

    def __init__(
        self, url: str, path: Path, *, lock_timeout_s: float = LOCK_TIMEOUT_S, limits: BaseLimits = BASE_LIMITS
    ) -> None:
        self.session = Session(url, path, lock_timeout_s, limits)
        self.url = url
        self.record = self.session.record

    @classmethod
    def create(
        cls,
        url: str,
        path: Path,
        record: Record,
        *,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        limits: BaseLimits = BASE_LIMITS,
    ) -> LmdbStore:
        """Create an empty index; raise `IndexExistsError` if it exists."""
        files.create_files(path, record.list_parts() | record.to_parts(), lock_timeout_s=lock_timeout_s)
        return cls(url, path, lock_timeout_s=lock_timeout_s, limits=limits)

    def view(self, *, timeout_s: float | None = None) -> LmdbView:
        return LmdbView(self.session, timeout_s)

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        return self.session.writing(stop=stop)

    # `with` holds a write's locks directly, because a signal might interrupt a generator before it resumes.

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        signatures, last = self.record.stored(signatures), last_occurrences(doc_ids)
        if not last and mark is None:
            self.session.environment  # noqa: B018 (raises if the index is closed)
            return 0
        with (
            files.lmdb_errors(self.session.path),
            self.session.writing(),
            (environment := self.session.environment).turn,
            environment.begin_write() as transaction,
        ):
            rows = self.session.rows(transaction)
            old, new = [], []
            for position in last:
                doc_id, signature = doc_ids[position], signatures.at(position)
                register = rows.get_register(doc_id)
                if register is None or register.signature != signature:
                    new.append((doc_id, Registered(signature, int(first_seen[position]))))
                    old += [(doc_id, register.signature)] if register is not None else []
            rows.unlist(old)
            rows.put(new)
            if mark is not None:
                transaction.put(mark.key, mark.value, db=self.session.environment.databases["record"])
            self.session.verify_lock()
        return len(new)

    def insert_in_parts(self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s) -> int:
        if len(doc_ids) <= INSERT_DOCUMENTS:
            return self.insert(doc_ids, signatures, first_seen)
        return sum(
            merge_documents(self.session, list(doc_ids[part]), signatures[part], first_seen[part])
            for part in even_parts(len(doc_ids), MERGED_DOCUMENTS)
        )

    def marked(self, token: str) -> int:
        with LmdbView(self.session) as view:
            return int(view.transaction.get(Mark(token).key, b"0", db=view.databases["record"]))

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        with (
            files.lmdb_errors(self.session.path),
            self.session.writing(),
            (environment := self.session.environment).turn,
            environment.begin_write() as transaction,
        ):
            rows = self.session.rows(transaction)
            found = {doc_id: rows.get_register(doc_id) for doc_id in doc_ids}
            old = [
                (doc_id, register.signature)
                for doc_id, register in found.items()
                if register is not None and (before is None or register.first_seen < before)
            ]
            rows.unlist(old)
            for key in sorted(digest(doc_id) for doc_id, _ in old):
                transaction.delete(key, db=rows.register)
            self.session.verify_lock()
        return len(old)

    def walk(self) -> Iterator[list[Document]]:
        return self.registered(0, 1)

    def registered(self, shard: int, shards: int) -> Iterator[list[Document]]:
        with LmdbView(self.session) as view:
            files.verify_pages(view.transaction, view.databases["documents"])
        first, stop = ((number << 64) // shards for number in (shard, shard + 1))
        after: Row = pack(first), b""  # ids are never empty
        while True:
            with LmdbView(self.session) as view:
                rows = page(view.transaction, view.databases, "documents", after, _PAGE_DOCUMENTS)
                found = [view.confirmed(listed_id(key, value)) for key, value in rows]
            is_last = not rows or int.from_bytes(rows[-1][0][:FINGERPRINT_BYTES], "big") >= stop
            # Skip a document that has just moved: it is also listed under the fingerprint in its register.
            yield [
                document
                for document, (key, _) in zip(found, rows, strict=True)
                if document is not None
                and pack(document.fingerprint) == key[:FINGERPRINT_BYTES]
                and document.fingerprint < stop
            ]
            if is_last:
                return
            after = rows[-1]

    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        return audit(self.session, repair=repair, observer=observer)

    def bulk(self, folder: Path, step_documents: int | None = None) -> BulkLoad:
        return SortedRuns(self.session, folder, step_documents)

    def describe(self) -> dict[str, str | int]:
        """Return the index's path, its number of drawer rows, and the sizes of databases, files and free pages."""
        stats, base = self._stats(), self._base()
        in_base = {} if base is None else {"top_rows": stats["drawers"]["entries"], "base_bytes": base.file_bytes}
        return {
            "path": str(self.session.path),
            "drawer_rows": stats["drawers"]["entries"] + (base.row_count if base is not None else 0),
            **{f"{name}_bytes": _used_bytes(stat) for name, stat in stats.items()},
            **in_base,
            "file_bytes": self.session.file_bytes() + (base.file_bytes if base is not None else 0),
            "free_bytes": self._free_bytes(stats),
        }

    def top_share(self) -> float:
        """Return the share of the drawer rows that are newer than the base; 0 without a base."""
        stats, base = self._stats(), self._base()
        since = stats["drawers"]["entries"]
        return since / (since + base.row_count) if base is not None and since else 0.0

    def free_bytes(self) -> int:
        """Return the size of the data file's free pages in bytes."""
        return self._free_bytes(self._stats())

    def _free_bytes(self, stats: Mapping[str, Mapping[str, int]]) -> int:
        return max(0, self.session.file_bytes() - sum(map(_used_bytes, stats.values())))

    def _stats(self) -> dict[str, dict[str, int]]:
        with LmdbView(self.session) as view:
            return {name: view.transaction.stat(view.databases[name]) for name in ("drawers", "documents", "register")}

    def _base(self) -> Base | None:
        with LmdbView(self.session) as view:
            return view.base

    def total_bytes(self) -> int:
        """Return the size of the data file, and of the base if there is one."""
        return self.session.file_bytes() + sum(path.stat().st_size for path in files.bases(self.session.path))

    def crowds(self, *, sampled: int = SAMPLED_DOCUMENTS) -> tuple[CrowdedFingerprint, ...]:
        """See `Store.crowds`. Registers are sorted by a digest of their id, so the first ones are a random sample."""
        with LmdbView(self.session) as view:
            rows = page(view.transaction, view.databases, "register", None, sampled)
            return crowded([register_fields(value)[0] for _, value in rows], view.listed)

    def compact(self) -> tuple[int, int]:
        """See `Compacts.compact`. Other threads' calls through this store wait until it ends."""
        path = self.session.path
        data = path / files.DATA
        with files.lmdb_errors(path), self.session.writing():
            close_alone(self.session.environment)
            lock = lock_data(data, is_shared=False)
            if lock is None:
                pids = ", ".join(map(str, users_of(data))) or "unknown, perhaps in another container"
                raise StoreBusyError(
                    f"index {path} is in use by other processes ({pids}), but 'hsimhash compact' needs exclusive "
                    f"access; nothing was changed; stop these processes and try again"
                )
            with lock:
                return compaction.rewrite(path, self.record, self.session.limits)

    def backup(self, target: Path) -> None:
        if target.resolve().is_relative_to(self.session.path):
            raise ValueError(
                f"{target} is inside the index {self.session.path} and would be lost with it; choose another folder"
            )
        with files.lmdb_errors(target):
            made = make_folder(target)
            if any(target.iterdir()):
                raise IndexExistsError(f"{target} is not empty; choose a new folder for the backup")
            data = target / f"{files.DATA}.part"  # so that a killed backup does not leave an index
            copies = list[Path]()
            try:
                with LmdbView(self.session) as view:
                    if view.base is not None:
                        copies.append(compaction.copied_base(view.base, target))
                    compaction.copy_rows(view.transaction, view.databases, data)
                (target / WRITER_LOCK).touch()
                put_in_place(data, target / files.DATA)
            except BaseException:
                with suppress(OSError):  # the folder has other files
                    for copy in copies:
                        copy.unlink(missing_ok=True)
                    for folder in made:
                        folder.rmdir()
                raise

    def close(self) -> None:
        self.session.close()


def _used_bytes(stat: Mapping[str, int]) -> int:
    return stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"])
