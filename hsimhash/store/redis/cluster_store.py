"""The store on a Redis Cluster: its parts are stores of their own; see `cluster.py`.

A write goes to the parts that have its documents, and what it adds is there part by part: a mark comes last, in all. A
query asks all parts at once. A fingerprint has its rows in each part that has a document of it; it is returned once.
"""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from hsimhash.cover import REDIS_PRICES
from hsimhash.fingerprint.bits import Int64s, Uint8s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.base import Claims, Document, Mark, Reader, Store, up_to
from hsimhash.store.facts import CheckReport, CollectReport, Progress
from hsimhash.store.redis.audit import RedisAudit, audit_redis, report_of
from hsimhash.store.redis.bulk import RedisLoad
from hsimhash.store.redis.cluster import PARTS, part_of
from hsimhash.store.redis.server import cluster_facts
from hsimhash.store.redis.store import RedisStore
from hsimhash.store.redis.view import RedisView
from hsimhash.store.runs import BULK_LIMITS, BulkLimits, BulkLoad

T = TypeVar("T")
U = TypeVar("U")


class ClusterStore(Store):
    """The index whose parts are in these stores, in order; they are closed with it."""

    prices = replace(REDIS_PRICES, read_us=PARTS * REDIS_PRICES.read_us, neighbour_us=PARTS * REDIS_PRICES.neighbour_us)
    is_atomic = False
    shares_queries = True

    def __init__(self, parts: Sequence[RedisStore]) -> None:
        self.parts = parts
        self.url, self.record = parts[0].url, parts[0].record
        self._threads = _Threads()

    def view(self, *, timeout_s: float | None = None) -> AbstractContextManager[Reader]:
        return nullcontext(ClusterView([RedisView(part.rows, timeout_s) for part in self.parts], self._threads))

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        def put(number: int) -> int:
            at = places[number]
            return self.parts[number].insert([doc_ids[place] for place in at], signatures[at], first_seen[at])

        places = {number: np.array(at) for number, at in _by_part(doc_ids).items()}
        changed = sum(self._threads.map(put, list(places)))
        if mark is not None:  # in every part, as one alone may go back to an older state
            self._threads.map(lambda part: part.insert([], signatures[:0], first_seen[:0], mark=mark), self.parts)
        self._confirm()
        return changed

    def _confirm(self) -> None:
        """Raise where the index is another: of an older one only the first part can say so."""
        if not self.parts[0].session.identity:
            self.parts[0].insert([], Signatures.of([]), np.empty(0, np.int64))

    def claim(self, claims: Claims) -> None:
        raise self._lacks("claims; claim in an index on one Redis, LMDB, PostgreSQL or HBase")

    def marked(self, token: str) -> int:
        return min(self._threads.map(lambda part: part.marked(token), self.parts))

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        def drop(number: int) -> int:
            return self.parts[number].remove([doc_ids[place] for place in places[number]], before=before)

        places = _by_part(doc_ids)
        removed = sum(self._threads.map(drop, list(places)))
        self._confirm()
        return removed

    def count(self, *, before: int | None = None, workers: int = 1, progress: Progress | None = None) -> int:
        return sum(self._threads.map(lambda part: part.count(before=before), self.parts))

    def walk(self) -> Iterator[list[Document]]:
        return self.registered(0, 1)

    def registered(self, shard: int, shards: int) -> Iterator[list[Document]]:
        each = [chain.from_iterable(part.registered(shard, shards)) for part in self.parts]
        merged = heapq.merge(*each, key=lambda one: (one.fingerprint, one.doc_id.encode()))
        while page := list(islice(merged, self.parts[0].limits.documents)):
            yield page

    def check(
        self, *, repair: bool = False, progress: Progress | None = None, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        def look(part: RedisStore) -> RedisAudit:
            check = audit_redis(part.rows, part.listed, repair=repair)
            with told:
                done.append(part)
                if progress is not None:
                    progress(len(done), PARTS)
            return check

        done, told = list[RedisStore](), threading.Lock()
        return report_of(self._threads.map(look, self.parts))

    def collect(self, *, progress: Progress | None = None) -> CollectReport:
        done = []
        for part in self.parts:
            done.append(part.collect())
            if progress is not None:
                progress(len(done), PARTS)
        return CollectReport(*map(sum, zip(*done, strict=True)))

    def describe(self) -> dict[str, str | int]:
        return {"ttl_s": self.parts[0].rows.ttl_ms // 1_000, **cluster_facts([part.session for part in self.parts])}

    def bulk(self, folder: Path, limits: BulkLimits = BULK_LIMITS) -> BulkLoad:
        return RedisLoad(self, folder, limits)

    def close(self) -> None:
        for part in self.parts:
            part.close()
        self._threads.close()


class ClusterView(Reader):
    """The reads of one query, of all parts at once."""

    def __init__(self, readers: Sequence[Reader], threads: _Threads) -> None:
        self._readers, self._threads = readers, threads

    def scan(self, prefixes: Sequence[bytes]) -> Uint8s:
        return _distinct(self._threads.map(lambda reader: reader.scan(prefixes), self._readers))

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        return _distinct(self._threads.map(lambda reader: reader.sweep(ranges), self._readers))

    def estimate(self) -> int:
        return sum(self._threads.map(lambda reader: reader.estimate(), self._readers))

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        found = self._threads.map(lambda reader: reader.documents(fingerprints, limit), self._readers)
        listed = [
            sorted(chain.from_iterable(of_parts), key=lambda document: document.doc_id.encode())
            for of_parts in zip(*found, strict=True)
        ]
        if limit is None:
            return listed
        return [up_to(one, value, limit) for one, value in zip(listed, fingerprints, strict=True)]

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        def read(number: int) -> list[Document | None]:
            return self._readers[number].lookup([doc_ids[place] for place in places[number]])

        places = _by_part(doc_ids)
        found: list[Document | None] = [None] * len(doc_ids)
        for at, documents in zip(places.values(), self._threads.map(read, list(places)), strict=True):
            for place, document in zip(at, documents, strict=True):
                found[place] = document
        return found


class _Threads:
    """Threads that talk to one part each; a forked child has its own."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None
        self._pid = 0

    def map(self, work: Callable[[U], T], items: Sequence[U]) -> list[T]:
        """Return what is done with each item, in order; one alone is done here."""
        if len(items) == 1:
            return [work(items[0])]
        executor = self._executor
        if executor is None or self._pid != os.getpid():
            executor = self._executor = ThreadPoolExecutor(2 * PARTS, "hsimhash-redis")
            self._pid = os.getpid()
        return list(executor.map(work, items))

    def close(self) -> None:
        executor, self._executor = self._executor, None
        if executor is not None and self._pid == os.getpid():
            executor.shutdown(wait=False)


def _by_part(doc_ids: Sequence[bytes]) -> dict[int, list[int]]:
    """Return the places of the ids in each part that has any."""
    places: dict[int, list[int]] = {}
    for place, doc_id in enumerate(doc_ids):
        places.setdefault(part_of(doc_id), []).append(place)
    return places


def _distinct(found: Iterable[Uint8s]) -> Uint8s:
    """Return each of the rowkeys once: shape (m, 13), uint8."""
    rows = np.concatenate(list(found))
    words = np.unique(rows.view(f"V{ROWKEY_BYTES}").ravel()) if len(rows) else rows
    return words.view(np.uint8).reshape(-1, ROWKEY_BYTES)
