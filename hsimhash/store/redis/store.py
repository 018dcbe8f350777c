"""The store on Redis: all data is in one server's memory, and any number of processes read and write.

A write is one script, and so one step (`scripts.py`); a large write takes several scripts. A query reads buckets and
then, if anything is near, documents. Other processes may write between the two reads, but the query misses nothing as
long as it takes less time than a document stays listed under its old fingerprint; `scripts.py` explains why. Durability
depends on the server: see `appendonly`, `appendfsync` and `hsimhash doctor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import FINGERPRINT_BYTES, last_occurrences
from hsimhash.store.base import Claims, Document, Mark, Record, Store, View
from hsimhash.store.redis.audit import audit
from hsimhash.store.redis.claims import decide_claims
from hsimhash.store.redis.codec import SHARDS, numbers_of, pack_fingerprint
from hsimhash.store.redis.rows import REDIS_LIMITS, RedisLimits, RedisRows
from hsimhash.store.redis.scripts import LISTED, REGISTERED
from hsimhash.store.redis.server import server_facts
from hsimhash.store.redis.session import RedisSession
from hsimhash.store.redis.view import RedisView
from hsimhash.store.reports import (
    MOST_LISTED,
    SAMPLED_DOCUMENTS,
    CheckReport,
    CollectReport,
    CrowdedFingerprint,
    crowded,
)


class RedisStore(Store):
    """The index of a session; see the module docstring and `Store`.

    Args:
        session: Session with the server; closed with the store.
        record: Record of the index.
        limits: Limits of single calls; see `RedisLimits`.
        ttl_s: How many seconds after its last insert a document expires; 0: never.
    """

    is_atomic = False  # because a large insert is several scripts

    def __init__(
        self, session: RedisSession, record: Record, *, limits: RedisLimits = REDIS_LIMITS, ttl_s: int = 0
    ) -> None:
        self.url = session.url
        self.record = record
        self.session = session
        self.limits = limits
        self.keys = session.keys
        self.rows = RedisRows(session, self.keys, record, limits, ttl_s)

    def view(self, *, timeout_s: float | None = None) -> AbstractContextManager[View]:
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
        decide_claims(self.rows, claims)
        self.rows.tidy()

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
        with self.view() as view:
            for page in self.listed(low):
                found = view.lookup([row[FINGERPRINT_BYTES:] for row in page])
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
        """Yield pages with the fingerprint (8) and id of all listed documents, in order, starting at `first`."""
        shard, start = first >> 48, b"[" + pack_fingerprint(first)
        while shard < SHARDS:
            stop = min(shard + self.limits.shards, SHARDS)
            given: list[bytes | int] = [self.keys.listings, shard, stop, self.limits.documents, start]
            shard, rows = self.session.read(LISTED, (), given)
            if rows:
                yield rows
            start = b"(" + rows[-1] if shard < stop else b"-"

    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        return audit(self.rows, self.listed, repair=repair, observer=observer)

    def collect(self, *, observer: Observer = UNWATCHED) -> CollectReport:
        self.rows.forget()
        total = left = int(self.session.call("ZCARD", self.keys.orphans))
        deleted = 0
        for entries, rows in self.rows.collected():
            left, deleted = max(left - entries, 0), deleted + rows
            observer.report("collect", total - left, total)
        return CollectReport(total, deleted, int(self.session.call("ZCARD", self.keys.orphans)))

    def describe(self) -> dict[str, str | int]:
        return {"ttl_s": self.rows.ttl_ms // 1_000, **server_facts(self.session)}

    def crowds(self, *, sampled: int = SAMPLED_DOCUMENTS) -> tuple[CrowdedFingerprint, ...]:
        """See `Store.crowds`. Shards depend on a digest of the id, so the first shards are a random sample."""
        shard, found = 0, list[int]()
        while shard < SHARDS and len(found) < sampled:
            stop = min(shard + self.limits.shards, SHARDS)
            most = min(self.limits.documents, sampled - len(found))
            given: list[bytes | int] = [self.keys.listings, shard, stop, most, self.keys.registers]
            shard, packed = self.session.read(REGISTERED, (), given)
            found += numbers_of(packed).tolist()
        return crowded(found, lambda value: len(self.documents([value], MOST_LISTED)[0]))

    def close(self) -> None:
        self.session.close()
