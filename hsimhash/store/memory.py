"""The index in this process's memory: for tests, small jobs, and as the plainest reading of the store contract."""

from __future__ import annotations

import heapq
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import IndexExistsError, IndexNotFoundError, StoreClosedError
from hsimhash.rowkey import FINGERPRINT_BYTES, ROWKEY_BYTES
from hsimhash.store.base import CheckReport, Document, Mark, Progress, Reader, Record, Store, last_occurrences

_PAGE_DOCUMENTS = 10_000


class _Contents:
    def __init__(self, record: Record) -> None:
        self.record = record
        self.lock = threading.RLock()
        self.buckets: defaultdict[bytes, set[int]] = defaultdict(set)
        self.documents: defaultdict[int, set[bytes]] = defaultdict(set)
        self.register: dict[bytes, Document] = {}
        self.marks: dict[str, int] = {}
        self.users = 0


_named: dict[str, _Contents] = {}
_named_lock = threading.Lock()


def _before_fork() -> None:
    _named_lock.acquire()
    for contents in _named.values():
        contents.lock.acquire()


def _after_fork_in_parent() -> None:
    for contents in _named.values():
        contents.lock.release()
    _named_lock.release()


def _after_fork_in_child() -> None:
    global _named_lock
    _named_lock = threading.Lock()
    for contents in _named.values():
        contents.lock = threading.RLock()


# A child has a copy of its own; without this it could be a half-written one, under a lock that nobody releases.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)


class MemoryStore(Store):
    """Buckets, documents and registers in dicts, under one lock; gone when the last store of its URL is closed."""

    def __init__(self, url: str, contents: _Contents) -> None:
        self.url = url
        self.record = contents.record
        self._contents: _Contents | None = contents
        contents.users += 1

    @classmethod
    def create(cls, url: str, record: Record) -> MemoryStore:
        """Make an empty index; `IndexExistsError` where this process has one of that URL open."""
        with _named_lock:
            if url in _named:
                raise IndexExistsError(f"there is an index at {url} already; open it, or choose another name")
            _named[url] = _Contents(record)
            return cls(url, _named[url])

    @classmethod
    def open(cls, url: str) -> MemoryStore:
        """Open the index that this process has open under the same URL."""
        with _named_lock:
            if url not in _named:
                raise IndexNotFoundError(f"no index at {url} in this process; make one with HSimIndex.create")
            return cls(url, _named[url])

    @contextmanager
    def view(self, *, timeout_s: float | None = None) -> Iterator[Reader]:  # noqa: ARG002 (nothing here takes long)
        with self._open():
            yield self

    @contextmanager
    def writing(self, *, stop: Callable[[], bool] | None = None) -> Iterator[None]:  # noqa: ARG002
        with self._open():
            yield

    def scan(self, prefixes: Sequence[bytes]) -> NDArray[np.uint8]:
        with self._open() as contents:
            rows = b"".join(
                prefix + fingerprint.to_bytes(FINGERPRINT_BYTES, "big")
                for prefix in prefixes
                for fingerprint in contents.buckets.get(prefix, ())
            )
        return np.frombuffer(rows, np.uint8).reshape(-1, ROWKEY_BYTES)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        with self._open() as contents:
            return [
                [contents.register[doc_id] for doc_id in _first(contents.documents.get(fingerprint, ()), limit)]
                for fingerprint in fingerprints
            ]

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        with self._open() as contents:
            return [contents.register.get(doc_id) for doc_id in doc_ids]

    def insert(
        self,
        doc_ids: Sequence[bytes],
        fingerprints: NDArray[np.uint64],
        first_seen: NDArray[np.int64],
        *,
        mark: Mark | None = None,
    ) -> int:
        added = 0
        with self._open() as contents:
            for position in last_occurrences(doc_ids):
                doc_id, fingerprint = doc_ids[position], int(fingerprints[position])
                old = contents.register.get(doc_id)
                if old is not None and old.fingerprint == fingerprint:
                    continue
                if old is not None:
                    self._unlist(contents, doc_id, old.fingerprint)
                for prefix in self.record.layout.prefixes(fingerprint):
                    contents.buckets[prefix].add(fingerprint)
                contents.documents[fingerprint].add(doc_id)
                contents.register[doc_id] = Document(doc_id.decode(), fingerprint, int(first_seen[position]))
                added += 1
            if mark is not None:
                contents.marks[mark.token] = mark.count
        return added

    def marked(self, token: str) -> int:
        with self._open() as contents:
            return contents.marks.get(token, 0)

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        with self._open() as contents:
            known = [
                doc_id
                for doc_id in dict.fromkeys(doc_ids)
                if doc_id in contents.register and (before is None or contents.register[doc_id].first_seen < before)
            ]
            for doc_id in known:
                self._unlist(contents, doc_id, contents.register.pop(doc_id).fingerprint)
        return len(known)

    def _unlist(self, contents: _Contents, doc_id: bytes, fingerprint: int) -> None:
        contents.documents[fingerprint].discard(doc_id)
        if not contents.documents[fingerprint]:
            del contents.documents[fingerprint]
            for prefix in self.record.layout.prefixes(fingerprint):
                contents.buckets[prefix].discard(fingerprint)

    def count(self) -> int:
        with self._open() as contents:
            return len(contents.register)

    def walk(self) -> Iterator[list[Document]]:
        with self._open() as contents:
            everything = sorted(
                contents.register.values(), key=lambda document: (document.fingerprint, document.doc_id)
            )
        for start in range(0, len(everything), _PAGE_DOCUMENTS):
            yield everything[start : start + _PAGE_DOCUMENTS]

    def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:  # noqa: ARG002
        return CheckReport(self.count(), self._drawer_rows(), problems=0, leftovers=0, repaired=0)

    def describe(self) -> dict[str, object]:
        return {"drawer_rows": self._drawer_rows()}

    def _drawer_rows(self) -> int:
        with self._open() as contents:
            return len(contents.documents) * len(self.record.layout.drawers)

    def close(self) -> None:
        with _named_lock:
            contents, self._contents = self._contents, None
            if contents is not None:
                contents.users -= 1
                if contents.users == 0:
                    _named.pop(self.url, None)

    @contextmanager
    def _open(self) -> Iterator[_Contents]:
        contents = self._contents
        if contents is None:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        with contents.lock:
            yield contents


def _first(doc_ids: Collection[bytes], limit: int | None) -> list[bytes]:
    """Return the first ids in order; the whole of a hot fingerprint's is not sorted for a few."""
    return sorted(doc_ids) if limit is None else heapq.nsmallest(limit, doc_ids)
