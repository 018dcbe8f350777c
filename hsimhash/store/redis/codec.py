"""The keys of an index on Redis and their values; `schema/redis.md` documents them too.

| key, after the index's prefix and a colon | type | contents |
|---|---|---|
| `record` | hash | the record's parts; `documents`, the number of documents; `job:<token>` |
| `d` prefix (5) | string | a bucket: its fingerprints, 8 bytes each, in any order |
| `l` first 2 bytes of a fingerprint | sorted set, all scores 0 | fingerprint (8) and id of each listed document |
| `r` first 4 hex digits of the id's SHA-1 | hash | id: fingerprint (8), first seen (8), … (below) |
| `orphans` | sorted set, scored by server time in ms | fingerprint (8) and key (8) that a document left, and its id |
| `identity` | string | copy of the record's `identity`, which queries read with buckets; older indexes have neither |
| `writers` | sorted set, scored by server time in µs | name of a process (8), with its last acknowledged write |

All numbers are big-endian. Since format 2, a register also has a sketch (8) and a key (8), and an orphan has a key. In
an index with a TTL, a register ends with the server time in ms at which it expires (8). A bucket is a string, because a
Redis set takes twice the memory and read time.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from itertools import chain
from struct import Struct

import numpy as np

from hsimhash.errors import CorruptionError
from hsimhash.fingerprint.bits import Uint8s, Uint64s
from hsimhash.fingerprint.signature import Signature
from hsimhash.layout import Layout
from hsimhash.rowkey import FINGERPRINT_BYTES, PREFIX_BYTES, ROWKEY_BYTES
from hsimhash.store.base import Document, Record

SHARDS = 1 << 16  # on disk: the number of shards of listings, and of registers
_SHARD_BYTES = 2
# How registers of each size are packed: fingerprint and first seen; since format 2, sketch and key; with a TTL, the
# expiry time.
_PACKINGS = {one.size: one for one in map(Struct, (">QQ", ">QQ8x", ">QQQQ", ">QQQQ8x"))}
_FEW_ROWS = 40


class Keys:
    """The keys of an index, given its prefix."""

    def __init__(self, prefix: str) -> None:
        self.head = head = f"{prefix}:".encode()
        self.record, self.orphans, self.dropping = (head + name for name in (b"record", b"orphans", b"dropping"))
        self.identity, self.writers = head + b"identity", head + b"writers"
        self.buckets, self.listings, self.registers = head + b"d", head + b"l", head + b"r"
        # SCAN's patterns for the keys of rows, and their types. A prefix does not contain special characters.
        buckets, listings, registers = self.buckets + b"?" * PREFIX_BYTES, self.listings + b"??", self.registers
        self.rows = {buckets: b"string", listings: b"zset", registers + b"[0-9a-f]" * 4: b"hash"}

    def bucket(self, prefix: bytes) -> bytes:
        """Return the key of the bucket under a prefix."""
        return self.buckets + prefix

    def listing(self, packed_fingerprint: bytes) -> bytes:
        """Return the key of a fingerprint's listing."""
        return self.listings + packed_fingerprint[:_SHARD_BYTES]

    def register(self, doc_id: bytes) -> bytes:
        """Return the key of the hash that holds a document's register."""
        return self.registers + sha1(doc_id, usedforsecurity=False).hexdigest()[: 2 * _SHARD_BYTES].encode()

    def filed(self, record: Record, signature: Signature) -> list[bytes]:
        """Return the keys of a signature's listing and buckets.

        If the index stores keys, the list ends with the buckets of the signature's key, padded to the maximum number
        with the record's key.
        """
        packed = pack_fingerprint(signature.fingerprint)
        found = [self.listing(packed), *map(self.bucket, record.layout.prefixes(signature.fingerprint))]
        if record.has_signatures:
            of_key = [self.bucket(prefix) for prefix in record.key_prefixes(signature.key)]
            found += [*of_key, *[self.record] * (record.keying.most_parts - len(of_key))]
        return found


def pack_fingerprint(fingerprint: int) -> bytes:
    """Return 8 big-endian bytes."""
    return fingerprint.to_bytes(FINGERPRINT_BYTES, "big")


def document_in(doc_id: bytes, register: bytes | None) -> Document | None:
    """Return the document in a register; raise `CorruptionError` if the bytes are not a register."""
    if register is None:
        return None
    packing = _PACKINGS.get(len(register))
    if packing is None:
        raise CorruptionError(f"the register of {doc_id!r} has {len(register)} bytes instead of 16 or 32")
    try:
        return Document(doc_id.decode(), *packing.unpack(register))
    except UnicodeDecodeError as error:
        raise CorruptionError(f"a stored document id is not UTF-8: {doc_id[:80]!r}") from error


def orphan_of(orphan: bytes, *, has_signatures: bool) -> tuple[bytes, Signature]:
    """Return the id and signature in an entry of the log of orphans, without the sketch, which no row depends on."""
    head = 2 * FINGERPRINT_BYTES if has_signatures else FINGERPRINT_BYTES
    key = int.from_bytes(orphan[FINGERPRINT_BYTES:head], "big")
    return orphan[head:], Signature(int.from_bytes(orphan[:FINGERPRINT_BYTES], "big"), 0, key)


def rowkeys_in(prefixes: Sequence[bytes], buckets: Sequence[bytes | None]) -> Uint8s:
    """Return the rowkeys of buckets, one bucket per prefix: shape (m, 13), uint8."""
    found = [(prefix, bucket) for prefix, bucket in zip(prefixes, buckets, strict=True) if bucket]
    for prefix, bucket in found:
        if len(bucket) % FINGERPRINT_BYTES:
            raise CorruptionError(
                f"bucket {prefix.hex()} has {len(bucket)} bytes, not a multiple of {FINGERPRINT_BYTES}"
            )
    if sum(len(bucket) for _, bucket in found) <= _FEW_ROWS * FINGERPRINT_BYTES:
        rows = b"".join(
            prefix + bucket[at : at + FINGERPRINT_BYTES]
            for prefix, bucket in found
            for at in range(0, len(bucket), FINGERPRINT_BYTES)
        )
        return np.frombuffer(rows, np.uint8).reshape(-1, ROWKEY_BYTES)
    sizes = [len(bucket) // FINGERPRINT_BYTES for _, bucket in found]
    rowkeys = np.empty((sum(sizes), ROWKEY_BYTES), np.uint8)
    heads = np.frombuffer(b"".join(prefix for prefix, _ in found), np.uint8).reshape(-1, PREFIX_BYTES)
    rowkeys[:, :PREFIX_BYTES] = np.repeat(heads, sizes, axis=0)
    packed = b"".join(bucket for _, bucket in found)
    rowkeys[:, PREFIX_BYTES:] = np.frombuffer(packed, np.uint8).reshape(-1, FINGERPRINT_BYTES)
    return rowkeys


def prefixes_within(layout: Layout, start: bytes, stop: bytes, most: int) -> list[bytes] | None:
    """Return all possible drawer prefixes in [start, stop), or None if there are more than `most`."""
    low, high = int.from_bytes(start, "big"), int.from_bytes(stop, "big")
    spans = []
    for drawer in layout.drawers:
        step = 1 << 40 - drawer.segment_bits
        spans.append(range(-(-(low - drawer.number) // step) * step + drawer.number, high, step))
    if sum(map(len, spans)) > most:
        return None
    return [number.to_bytes(PREFIX_BYTES, "big") for number in chain.from_iterable(spans)]


def numbers_of(packed: bytes) -> Uint64s:
    """Return packed fingerprints as numbers: shape (n,), uint64."""
    return np.frombuffer(packed, ">u8").astype(np.uint64)
