"""Writes to an index on Redis: batches for the scripts, and the collection of what moves and removals leave behind."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from hsimhash.fingerprint.bits import Int64s, Uint8s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.rowkey import FINGERPRINT_BYTES, PREFIX_BYTES, fingerprint_bytes, key_numbers
from hsimhash.store.base import Mark, Record
from hsimhash.store.redis.codec import SHARDS, Keys, orphan_of
from hsimhash.store.redis.scripts import ADD, COLLECT, FORGET, FORGET_WRITERS, REMOVE
from hsimhash.store.redis.session import FORGOTTEN_S, RedisSession

Checked = tuple[bytes, bytes, bytes, bytes, int]  # a read that `ADD` repeats: its kind, key and arguments


@dataclass(frozen=True, slots=True)
class RedisLimits:
    """Limits of a single call, during which the server does nothing else, and how long leftovers of documents stay.

    Args:
        batch_keys: Maximum number of keys in a script that writes; that many take about 5 ms.
        buckets: Maximum number of buckets that a call reads.
        documents: Maximum number of documents that a call reads.
        first_documents: Number of documents to read at first for each fingerprint.
        shards: Maximum number of shards in a call that reads about `documents` entries of listings or registers.
        ranged_buckets: A range with more possible buckets than this is read from the listings, not bucket by bucket.
        left_s: How long a document stays listed under its old fingerprint, in seconds; queries must take less time.
        claims: Maximum number of claims decided at once; fewer if others change what was read.
        claim_s: How long a claim is retried, in seconds.
        tidy_s: Minimum time, in seconds, between two collections of leftovers triggered by a store's writes.
        tidy_orphans: Maximum number of orphans in such a collection.
        tidy_shards: Number of register shards that such a collection examines for expired documents, if there is a TTL.
    """

    batch_keys: int = 4_000
    buckets: int = 2_048
    documents: int = 2_000
    first_documents: int = 50
    shards: int = 4_096
    ranged_buckets: int = 8_192
    left_s: float = 600.0
    claims: int = 100
    claim_s: float = 30.0
    tidy_s: float = 1.0
    tidy_orphans: int = 5_000
    tidy_shards: int = 256


REDIS_LIMITS = RedisLimits()


class RedisRows:
    """Writes to the index of a session; see `Store`.

    A document expires `ttl_s` seconds after its last insert, or never if that is 0.
    """

    def __init__(self, session: RedisSession, keys: Keys, record: Record, limits: RedisLimits, ttl_s: int) -> None:
        self.session, self.keys, self.record, self.limits = session, keys, record, limits
        self.ttl_ms = 1_000 * ttl_s
        self._key_buckets = record.most_key_rows
        self._drawers = len(record.layout.drawers)
        self._tidied_s = time.monotonic()
        self._shard = random.randrange(SHARDS)  # noqa: S311 (the shard of registers to examine next)

    @property
    def batch_documents(self) -> int:
        """The number of documents that one script adds or collects."""
        return max(1, self.limits.batch_keys // (2 + self._drawers + max(1, self._key_buckets)))

    def add(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, mark: Mark | None = None
    ) -> int:
        """Add documents with distinct ids, and a mark with the last documents; return how many changed."""
        changed, count = 0, self.batch_documents
        for start in range(0, max(len(doc_ids), 1), count):
            part, is_last = slice(start, start + count), start + count >= len(doc_ids)
            changed += self._add(doc_ids[part], signatures[part], first_seen[part], mark if is_last else None)
        return changed

    def add_if_unchanged(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, seen: Mapping[Checked, bytes]
    ) -> bool:
        """Add a batch of documents if everything in `seen` still has the same SHA-1; return whether it was added."""
        return self._add(doc_ids, signatures, first_seen, seen=seen) >= 0

    def _add(
        self,
        doc_ids: Sequence[bytes],
        signatures: Signatures,
        first_seen: Int64s,
        mark: Mark | None = None,
        seen: Mapping[Checked, bytes] = MappingProxyType({}),
    ) -> int:
        keys, documents = self._batch(doc_ids, signatures, first_seen)
        field, value = (mark.key, mark.value) if mark is not None else (b"", b"")
        given: list[bytes | int] = [field, value, self._drawers, self._key_buckets, self.ttl_ms]
        given += (self.keys.registers, len(seen))
        for (kind, key, first, second, most), found in seen.items():
            keys.append(key)
            given += (kind, first, second, most, found)
        return int(self.session.write(ADD, [self.keys.writers, self.keys.orphans, *keys], [*given, *documents]))

    def _batch(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the keys and arguments of a batch, in the form that `ADD` takes."""
        fingerprints, count = signatures.fingerprints, len(doc_ids)
        if not count:
            return [], []
        columns = [fingerprints, first_seen.astype(np.uint64)]
        columns += [signatures.sketches, signatures.keys] if self.record.has_signatures else []
        values = _items(np.stack(columns, axis=-1).astype(">u8").view(np.uint8).reshape(count, -1))
        packed = fingerprints.astype(">u8").view(np.uint8).reshape(count, FINGERPRINT_BYTES)
        listings = _items(_headed(self.keys.listings, packed[:, :2]))
        buckets = _items(_headed(self.keys.buckets, self.record.layout.prefix_array(fingerprints).reshape(-1, 5)))
        of_keys = self._buckets_of_keys(signatures) if self.record.has_signatures else []
        keys: list[bytes] = []
        for place, doc_id in enumerate(doc_ids):
            keys += (self.keys.register(doc_id), listings[place])
            keys += buckets[place * self._drawers : (place + 1) * self._drawers]
            keys += of_keys[place * self._key_buckets : (place + 1) * self._key_buckets]
        return keys, [one for pair in zip(doc_ids, values, strict=True) for one in pair]

    def _buckets_of_keys(self, signatures: Signatures) -> list[bytes]:
        """Return the buckets for documents' keys, padded to the maximum number per document; see `Keys.filed`."""
        parts = signatures.key_parts.ravel()
        prefixes = fingerprint_bytes(key_numbers(parts))[:, FINGERPRINT_BYTES - PREFIX_BYTES :]
        named = zip(parts.tolist(), _items(_headed(self.keys.buckets, prefixes)), strict=True)
        return [bucket if part else self.keys.record for part, bucket in named]

    def remove(self, doc_ids: Sequence[bytes], before: int | None) -> int:
        """Remove documents, given distinct ids; return how many existed."""
        removed, count = 0, self.limits.documents
        for start in range(0, len(doc_ids), count):
            part = doc_ids[start : start + count]
            keys = [self.keys.writers, self.keys.orphans, *map(self.keys.register, part)]
            removed += int(self.session.write(REMOVE, keys, [b"" if before is None else before, self.ttl_ms, *part]))
        return removed

    def tidy(self) -> None:
        """Collect some leftovers, unless this was done recently."""
        if time.monotonic() - self._tidied_s < self.limits.tidy_s:
            return
        self._tidied_s = time.monotonic()
        self.session.write(FORGET_WRITERS, [self.keys.writers], [1_000 * FORGOTTEN_S])
        if self.ttl_ms:
            stop = min(self._shard + self.limits.tidy_shards, SHARDS)
            self._forget(self._shard, stop)
            self._shard = stop % SHARDS
        done = 0
        for entries, _ in self.collected():
            done += entries
            if done >= self.limits.tidy_orphans:
                return

    def forget(self) -> None:
        """Remove all expired documents; their leftovers are collected like those of other documents."""
        for start in range(0, SHARDS if self.ttl_ms else 0, self.limits.tidy_shards):
            self._forget(start, min(start + self.limits.tidy_shards, SHARDS))

    def _forget(self, shard: int, stop: int) -> None:
        self.session.write(FORGET, [self.keys.orphans], [shard, stop, self.keys.registers])

    def collected(self) -> Iterator[tuple[int, int]]:
        """Collect old leftovers in batches; yield how many entries were read and rows deleted in each batch."""
        while True:
            oldest = self.session.server_ms() - round(1_000 * self.limits.left_s)
            command = ("ZRANGEBYSCORE", self.keys.orphans, b"-inf", oldest, b"LIMIT", 0, self.batch_documents)
            orphans = self.session.call(*command)
            if not orphans:
                return
            yield len(orphans), self._collect(orphans)

    def _collect(self, orphans: Sequence[bytes]) -> int:
        keys, given = [self.keys.orphans], [round(1_000 * self.limits.left_s), self._drawers, self._key_buckets]
        named: list[bytes | int] = [*given]
        for orphan in orphans:
            doc_id, signature = orphan_of(orphan, has_signatures=self.record.has_signatures)
            keys += (self.keys.register(doc_id), *self.keys.filed(self.record, signature))
            named += (doc_id, orphan)
        return int(self.session.write(COLLECT, keys, named))


def _headed(head: bytes, tails: Uint8s) -> Uint8s:
    """Return tails of shape (n, bytes) with the same head before each."""
    heads = np.broadcast_to(np.frombuffer(head, np.uint8), (len(tails), len(head)))
    return np.concatenate([heads, tails], axis=1)


def _items(rows: Uint8s) -> list[bytes]:
    """Return rows of shape (n, bytes) as a list of bytes objects."""
    found: list[bytes] = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel().tolist() if len(rows) else []
    return found
