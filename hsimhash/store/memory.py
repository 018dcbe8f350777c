"""A store in a process's memory, for tests and small jobs; the simplest implementation of the contract."""

from __future__ import annotations

import heapq
import os
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np

from hsimhash.errors import IndexExistsError, IndexNotFoundError, StoreClosedError
from hsimhash.fingerprint.bits import Int64s, Uint8s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import FINGERPRINT_BYTES, ROWKEY_BYTES, last_occurrences
from hsimhash.store.backend import Backend, Opening
from hsimhash.store.base import Document, Mark, Record, Store, View
from hsimhash.store.checkup import Check
from hsimhash.store.lmdb.backend import BACKEND as EMBEDDED
from hsimhash.store.reports import CheckReport

_PAGE_DOCUMENTS = 10_000


class _Contents(View):
    """The contents that all stores with the same URL share."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.lists = record.list_parts()
        self.buckets: defaultdict[bytes, set[int]] = defaultdict(set)
        self.listings: defaultdict[int, set[bytes]] = defaultdict(set)
        self.register: dict[bytes, Document] = {}
        self.marks: dict[str, int] = {}
        self.users = 0

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        rows = b"".join(
            prefix + fingerprint.to_bytes(FINGERPRINT_BYTES, "big")
            for prefix in prefixes
            for fingerprint in islice(self.buckets.get(prefix, ()), most)
        )
        return np.frombuffer(rows, np.uint8).reshape(-1, ROWKEY_BYTES)

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        starts, stops = zip(*sorted(ranges), strict=True) if ranges else ((), ())

        def is_within(prefix: bytes) -> bool:
            place = bisect_right(starts, prefix) - 1
            return place >= 0 and prefix < stops[place] and not self.record.is_key_row(prefix)

        return self.scan(list(filter(is_within, self.buckets)))

    def estimate(self) -> int:
        return len(self.register)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        found = []
        for fingerprint in fingerprints:
            listed = self.listings.get(fingerprint, ())
            # Do not sort all documents of a crowded fingerprint just to return a few.
            first = sorted(listed) if limit is None else heapq.nsmallest(limit, listed)
            found.append([self.register[doc_id] for doc_id in first])
        return found

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        return [self.register.get(doc_id) for doc_id in doc_ids]

    def file(self, doc_id: bytes, document: Document) -> None:
        """Add a document to its buckets and listings."""
        self.register[doc_id] = document
        self.listings[document.fingerprint].add(doc_id)
        for prefix in self._prefixes(document):
            self.buckets[prefix].add(document.fingerprint)

    def unfile(self, doc_id: bytes) -> None:
        """Remove a document; remove its fingerprint from each bucket where no other document needs it."""
        document = self.register.pop(doc_id)
        others = self.listings[document.fingerprint]
        others.discard(doc_id)
        if not others:
            del self.listings[document.fingerprint]
        elif not document.key:
            return
        kept = {prefix for other in others for prefix in self._prefixes(self.register[other])}
        for prefix in self._prefixes(document):
            if prefix not in kept:
                self.buckets[prefix].discard(document.fingerprint)

    def _prefixes(self, document: Document) -> list[bytes]:
        return [*self.record.layout.prefixes(document.fingerprint), *self.record.key_prefixes(document.key)]


_named: dict[str, _Contents] = {}
_lock = threading.RLock()  # for all indexes in memory; held during a fork, so that the child's copy is consistent
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class MemoryStore(Store):
    """Buckets, documents and registers in dicts, under one lock; deleted when the last store at a URL is closed."""

    def __init__(self, url: str, contents: _Contents) -> None:
        self.url = url
        self.record = contents.record
        self._contents: _Contents | None = contents
        contents.users += 1

    @classmethod
    def create(cls, url: str, record: Record) -> MemoryStore:
        """Create an empty index; raise `IndexExistsError` if this process has one open at that URL."""
        with _lock:
            if url in _named:
                raise IndexExistsError(f"an index already exists at {url}; open it, or choose another name")
            _named[url] = _Contents(record)
            return cls(url, _named[url])

    @classmethod
    def open(cls, url: str) -> MemoryStore:
        """Open an index that is already open at that URL in this process."""
        with _lock:
            if url not in _named:
                raise IndexNotFoundError(f"no index at {url} in this process; create one with HSimIndex.create")
            contents = _named[url]
            contents.record.learn_lists(contents.lists.get, url)
            return cls(url, contents)

    @contextmanager
    def _open(self) -> Iterator[_Contents]:
        with _lock:
            if self._contents is None:
                raise StoreClosedError(f"{self.url} was closed; open it again")
            yield self._contents

    @contextmanager
    def view(self, *, timeout_s: float | None = None) -> Iterator[View]:  # no timeout: reads in memory are fast
        with self._open() as contents:
            yield contents

    @contextmanager
    def writing(self, *, stop: Callable[[], bool] | None = None) -> Iterator[None]:
        with self._open():
            yield

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        added, signatures = 0, self.record.stored(signatures)
        with self._open() as contents:
            for position in last_occurrences(doc_ids):
                doc_id, signature = doc_ids[position], signatures.at(position)
                old = contents.register.get(doc_id)
                if old is not None and old.signature == signature:
                    continue
                if old is not None:
                    contents.unfile(doc_id)
                contents.file(doc_id, Document.of(doc_id.decode(), signature, int(first_seen[position])))
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
                contents.unfile(doc_id)
        return len(known)

    def walk(self) -> Iterator[list[Document]]:
        with self._open() as contents:
            everything = sorted(
                contents.register.values(), key=lambda document: (document.fingerprint, document.doc_id)
            )
        for start in range(0, len(everything), _PAGE_DOCUMENTS):
            yield everything[start : start + _PAGE_DOCUMENTS]

    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        return CheckReport(self.count(), self._drawer_rows())

    def describe(self) -> dict[str, str | int]:
        return {"drawer_rows": self._drawer_rows()}

    def _drawer_rows(self) -> int:
        with self._open() as contents:
            return sum(map(len, contents.buckets.values()))

    def close(self) -> None:
        with _lock:
            contents, self._contents = self._contents, None
            if contents is not None:
                contents.users -= 1
                if contents.users == 0:
                    _named.pop(self.url, None)


class _MemoryBackend(Backend):
    name = "memory"
    title = "memory"
    schemes = ("memory",)
    example = "memory://name"
    prices = EMBEDDED.prices  # close enough: neither store waits for a server
    is_embedded = True
    is_lasting = False

    def parse(self, url: str) -> str:
        return url

    def name_of(self, url: str) -> str:
        return url

    def jobs_of(self, url: str) -> Path:
        raise ValueError(f"{url} does not have a default job folder; specify one")

    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> MemoryStore:
        return MemoryStore.create(url, record)

    def open(self, url: str, opening: Opening) -> MemoryStore:
        return MemoryStore.open(url)

    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        raise ValueError(f"cannot drop {url}: it exists only in the process that created it")

    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        raise ValueError(f"cannot check {url}: it exists only in the process that created it")


BACKEND = _MemoryBackend()
