"""The reads of a query: buckets, listings with their registers, and registers."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hsimhash.errors import StoreTimeoutError
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.rowkey import FINGERPRINT_BYTES, ROWKEY_BYTES, encode, prefix_numbers_of
from hsimhash.store.base import IDENTITY_PART, Document, View, up_to
from hsimhash.store.redis.codec import SHARDS, document_in, numbers_of, pack_fingerprint, prefixes_within, rowkeys_in
from hsimhash.store.redis.rows import RedisRows
from hsimhash.store.redis.scripts import BEGINNINGS, DOCUMENTS, FINGERPRINTS, LOOKUP


class RedisView(View):
    """The reads of one query; `timeout_s` is the total time that they may take."""

    def __init__(self, rows: RedisRows, timeout_s: float | None) -> None:
        self._session, self._keys, self._record, self._limits = rows.session, rows.keys, rows.record, rows.limits
        self._is_timed = int(rows.ttl_ms > 0)
        self._until_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        self._scanned_s: float | None = None  # start of the reads that precede the requests for documents
        self._is_confirming = False

    def _begin(self) -> None:
        if self._is_confirming or self._scanned_s is None:
            self._scanned_s, self._is_confirming = time.monotonic(), False

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        self._begin()
        parts = []
        for start in range(0, len(prefixes), self._limits.buckets):
            part = prefixes[start : start + self._limits.buckets]
            parts.append(rowkeys_in(part, self._buckets([self._keys.buckets + prefix for prefix in part], most)))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty((0, ROWKEY_BYTES), np.uint8)

    def _buckets(self, keys: Sequence[bytes], most: int | None) -> list[bytes | None]:
        replies: list[bytes | None]
        if most is None:
            replies = self._session.call("MGET", self._keys.identity, *keys, until_s=self._until_s)
        else:
            given = [most * FINGERPRINT_BYTES]
            replies = self._session.read(BEGINNINGS, [self._keys.identity, *keys], given, self._until_s)
        self._session.check_same(replies[0])
        return replies[1:]

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        """See `View.sweep`. Short ranges are read bucket by bucket, long ranges from the fingerprints in all listings.

        Redis does not keep its keys in order, and an ordered copy would take as much memory as the buckets.
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
        longer = list[tuple[int, bytes, bytes]]()  # listings that were not read completely
        while left:
            count = self._limits.documents // most
            asked, left = left[:count], left[count:]
            for (place, packed, _), rows in zip(asked, self._listed(asked, most), strict=True):
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

    def _listed(self, asked: Sequence[tuple[int, bytes, bytes]], most: int) -> list[Any]:
        keys = [self._keys.listing(packed) for _, packed, _ in asked]
        given = [one for _, packed, after in asked for one in (packed, after, most)]
        replies: list[Any] = self._session.read(
            DOCUMENTS, keys, [self._is_timed, self._keys.registers, *given], self._until_s
        )
        return replies

    def _check_age(self) -> None:
        """Raise `StoreTimeoutError` if documents may have moved so long ago that their old listings were removed."""
        if self._scanned_s is not None and time.monotonic() - self._scanned_s > 0.9 * self._limits.left_s > 0:
            raise StoreTimeoutError(
                f"{self._session.url}: the query took over {0.9 * self._limits.left_s:.0f} s, so it may miss documents "
                f"that moved in the meantime; query fewer documents at once, or use a smaller distance"
            )

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        found = list[Document | None]()
        for start in range(0, len(doc_ids), self._limits.documents):
            part = doc_ids[start : start + self._limits.documents]
            found += map(document_in, part, self._registers(part))
        return found

    def _registers(self, doc_ids: Sequence[bytes]) -> list[bytes | None]:
        keys = list(map(self._keys.register, doc_ids))
        values: list[bytes | None] = self._session.read(LOOKUP, keys, [self._is_timed, *doc_ids], self._until_s)
        return values
