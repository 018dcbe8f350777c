"""The store on Redis: everything in the memory of one server; any number of processes read and write.

Every write is a script, so one step (`scripts.py`); a large one is several. A query is one read of buckets and, where
something is near, one of documents: other writes may come between the two, and it misses nothing (`scripts.py` says
why), as long as it takes less than a document stays listed where it was. What it was told is durable is the server's
matter: see `appendonly` and `appendfsync`, and `hsimhash doctor`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np

from hsimhash.cover import REDIS_PRICES
from hsimhash.errors import StoreTimeoutError
from hsimhash.fingerprint.bits import Int64s, Uint8s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.rowkey import FINGERPRINT_BYTES, ROWKEY_BYTES, encode, last_occurrences, prefix_numbers_of
from hsimhash.store.base import IDENTITY_PART, Claims, Document, Mark, Reader, Record, Store, up_to
from hsimhash.store.facts import CheckReport, CollectReport, Progress
from hsimhash.store.redis.audit import audit_redis, report_of
from hsimhash.store.redis.bulk import RedisLoad
from hsimhash.store.redis.codec import (
    SHARDS,
    Keys,
    document_in,
    numbers_of,
    pack_fingerprint,
    prefixes_within,
    rowkeys_in,
)
from hsimhash.store.redis.rows import REDIS_LIMITS, RedisLimits, RedisRows
from hsimhash.store.redis.scripts import DOCUMENTS, FINGERPRINTS, LISTED, LOOKUP
from hsimhash.store.redis.server import server_facts
from hsimhash.store.redis.session import RedisSession
from hsimhash.store.runs import BULK_LIMITS, BulkLimits, BulkLoad


class RedisStore(Store):
    """The index of a session; see the module's text and `Store`.

    Args:
        session: to the server; closed with the store.
        record: of the index.
        limits: see there.
        ttl_s: after which documents are over, unless they were added again; 0: never.
    """

    prices = REDIS_PRICES
    is_atomic = False  # a large insert is several scripts
    shares_queries = True

    def __init__(
        self, session: RedisSession, record: Record, *, limits: RedisLimits = REDIS_LIMITS, ttl_s: int = 0
    ) -> None:
        self.url = session.url
        self.record = record
        self.session = session
        self.limits = limits
        self.keys = Keys(session.prefix)
        self.rows = RedisRows(session, self.keys, record, limits, ttl_s)

    def view(self, *, timeout_s: float | None = None) -> AbstractContextManager[Reader]:
        return nullcontext(RedisView(self.rows, timeout_s))

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        return nullcontext()

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        signatures, last = self.record.stored(signatures), last_occurrences(doc_ids)
        if len(last) < len(doc_ids):
            doc_ids = [doc_ids[place] for place in last]
            signatures, first_seen = signatures[last], first_seen[last]
        added = self.rows.add(doc_ids, signatures, first_seen, mark)
        self.rows.tidy()
        return added

    def claim(self, claims: Claims) -> None:
        raise self._lacks(
            "claims; claim in an index on LMDB, PostgreSQL or HBase, or let one process alone query and add"
        )

    def marked(self, token: str) -> int:
        return int(self.session.call("HGET", self.keys.record, Mark(token).key) or 0)

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        removed = self.rows.remove(list(dict.fromkeys(doc_ids)), before)
        self.rows.tidy()
        return removed

    def walk(self) -> Iterator[list[Document]]:
        return self.registered(0, 1)

    def registered(self, shard: int, shards: int) -> Iterator[list[Document]]:
        low, high = ((number << 64) // shards for number in (shard, shard + 1))
        with self.view() as reader:
            for page in self.listed(low):
                found = reader.lookup([row[FINGERPRINT_BYTES:] for row in page])
                yield [
                    one
                    for one, row in zip(found, page, strict=True)
                    if one is not None
                    and row.startswith(pack_fingerprint(one.fingerprint))
                    and low <= one.fingerprint < high
                ]
                if int.from_bytes(page[-1][:FINGERPRINT_BYTES], "big") >= high:
                    return

    def listed(self, first: int = 0) -> Iterator[list[bytes]]:
        """Yield fingerprint (8) and id of all that is listed from a fingerprint on, in order and in pages."""
        shard, start = first >> 48, b"[" + pack_fingerprint(first)
        while shard < SHARDS:
            stop = min(shard + self.limits.shards, SHARDS)
            given: list[bytes | int] = [self.keys.listings, shard, stop, self.limits.documents, start]
            shard, rows = self.session.read(LISTED, (), given)
            if rows:
                yield rows
            start = b"(" + rows[-1] if shard < stop else b"-"

    def check(
        self, *, repair: bool = False, progress: Progress | None = None, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        return report_of([audit_redis(self.rows, self.listed, repair=repair, progress=progress)])

    def collect(self, *, progress: Progress | None = None) -> CollectReport:
        self.rows.forget()
        total = left = int(self.session.call("ZCARD", self.keys.orphans))
        deleted = 0
        for entries, rows in self.rows.collected():
            left, deleted = max(left - entries, 0), deleted + rows
            if progress is not None:
                progress(total - left, total)
        return CollectReport(total, deleted, int(self.session.call("ZCARD", self.keys.orphans)))

    def describe(self) -> dict[str, str | int]:
        return {"ttl_s": self.rows.ttl_ms // 1_000, **server_facts(self.session)}

    def bulk(self, folder: Path, limits: BulkLimits = BULK_LIMITS) -> BulkLoad:
        return RedisLoad(self, folder, limits)

    def close(self) -> None:
        self.session.close()


class RedisView(Reader):
    """The reads of one query; `timeout_s`: how long they may take together."""

    def __init__(self, rows: RedisRows, timeout_s: float | None) -> None:
        self._session, self._keys, self._record, self._limits = rows.session, rows.keys, rows.record, rows.limits
        self._is_timed = int(rows.ttl_ms > 0)
        self._until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._scanned_s: float | None = None  # when the reads began whose documents are asked for now
        self._is_confirming = False

    def _begin(self) -> None:
        if self._is_confirming or self._scanned_s is None:
            self._scanned_s, self._is_confirming = time.monotonic(), False

    def scan(self, prefixes: Sequence[bytes]) -> Uint8s:
        self._begin()
        parts = []
        for start in range(0, len(prefixes), self._limits.buckets):
            part = prefixes[start : start + self._limits.buckets]
            keys = [self._keys.buckets + prefix for prefix in part]
            held, *buckets = self._session.call("MGET", self._keys.identity, *keys, until_s=self._until_s)
            self._session.check_same(held)
            parts.append(rowkeys_in(part, buckets))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty((0, ROWKEY_BYTES), np.uint8)

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        """See `Reader.sweep`: short ranges are read bucket by bucket, long ones from what all listings name.

        Redis has no order of keys, and one would take as many bytes again as the buckets themselves.
        """
        self._begin()
        left, most = list[bytes](), self._limits.ranged_buckets
        for start, stop in ranges:
            prefixes = prefixes_within(self._record.layout, start, stop, most - len(left))
            if prefixes is None:
                return self._swept(ranges)
            left += prefixes
        return self.scan(left)

    def _swept(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        self._session.check_same(self._session.call("GET", self._keys.identity, until_s=self._until_s))
        ends = np.array([[int.from_bytes(end, "big") for end in one] for one in sorted(ranges)], np.uint64)
        parts, shard, most = [], 0, self._limits.documents
        while shard < SHARDS:
            stop = min(shard + self._limits.shards, SHARDS)
            given: list[bytes | int] = [self._keys.listings, shard, stop, most]
            shard, packed = self._session.read(FINGERPRINTS, (), given, self._until_s)
            rows = encode(self._record.layout, numbers_of(packed)).reshape(-1, ROWKEY_BYTES)
            numbers = prefix_numbers_of(rows)
            place = np.searchsorted(ends[:, 0], numbers, side="right").astype(np.int64) - 1
            parts.append(rows[(place >= 0) & (numbers < ends[place, 1])])
        return np.concatenate(parts)

    def estimate(self) -> int:
        command = ("HMGET", self._keys.record, IDENTITY_PART, b"documents")
        held, documents = self._session.call(*command, until_s=self._until_s)
        self._session.check_same(held)
        return int(documents or 0)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        self._is_confirming = True
        most = min(limit or self._limits.documents, self._limits.first_documents, self._limits.documents)
        found: list[list[Document]] = [[] for _ in fingerprints]
        left = [(place, pack_fingerprint(value), b"") for place, value in enumerate(fingerprints)]
        longer = list[tuple[int, bytes, bytes]]()  # of which not all was read
        while left:
            count = self._limits.documents // most
            asked, left = left[:count], left[count:]
            keys = [self._keys.listing(packed) for _, packed, _ in asked]
            given = [one for _, packed, after in asked for one in (packed, after, most)]
            replies = self._session.read(DOCUMENTS, keys, [self._is_timed, self._keys.registers, *given], self._until_s)
            for (place, packed, _), rows in zip(asked, replies, strict=True):
                pairs = zip(rows[::2], rows[1::2], strict=True)
                found[place] += [one for doc_id, value in pairs if (one := document_in(doc_id, value)) is not None]
                if len(rows) < 2 * most:
                    continue
                if limit is None or sum(one.fingerprint == fingerprints[place] for one in found[place]) < limit:
                    longer.append((place, packed, rows[-2]))
            if not left:
                left, longer, most = longer, [], min(4 * most, self._limits.documents)
        self._check_age()
        if limit is None:
            return found
        return [up_to(one, value, limit) for one, value in zip(found, fingerprints, strict=True)]

    def _check_age(self) -> None:
        """Raise `StoreTimeoutError` where what the buckets named may no longer be listed: it moved, long ago."""
        if self._scanned_s is not None and time.monotonic() - self._scanned_s > 0.9 * self._limits.left_s > 0:
            raise StoreTimeoutError(
                f"{self._session.url}: the query took over {0.9 * self._limits.left_s:.0f} s, in which documents that "
                f"moved may be missed; ask fewer at once, or within fewer bits"
            )

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        found = list[Document | None]()
        for start in range(0, len(doc_ids), self._limits.documents):
            part = doc_ids[start : start + self._limits.documents]
            keys = list(map(self._keys.register, part))
            values = self._session.read(LOOKUP, keys, [self._is_timed, *part], self._until_s)
            found += map(document_in, part, values)
        return found
