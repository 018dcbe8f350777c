"""The embedded store's rows: bytes and values, and rows of a transaction.

| database | key | value |
|---|---|---|
| `drawers` (DUPSORT, DUPFIXED) | prefix (5) | fingerprint (8); key and value together are the rowkey |
| `documents` | fingerprint (8), id; or a cut id | first seen (8); behind it the id, where the key cuts it |
| `register` | BLAKE2b digest of the id (16) | fingerprint (8), first seen (8) |
| `record` | `layout`, `profile`, `format`; `load:<token>` while a bulk load merges; `job:<token>` | JSON |

An id of over 502 bytes is cut in the key: its first 487 bytes and its digest (16).
All numbers big-endian; first seen in ms since 1970. Every write is one transaction, durable when the call returns.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from hsimhash.layout import Layout
from hsimhash.rowkey import FINGERPRINT_BYTES, PREFIX_BYTES, ROWKEY_BYTES, encode

if TYPE_CHECKING:
    import lmdb

Row = tuple[bytes, bytes]

DATABASES: dict[str, dict[str, bool]] = {
    "record": {},
    "drawers": {"dupsort": True, "dupfixed": True},
    "documents": {},
    "register": {},
}
DIGEST_BYTES = 16
KEY_BYTES = 511  # LMDB's longest key
CUT_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - DIGEST_BYTES
WHOLE_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - 1  # so that only cut keys have 511 bytes, and none equals a whole one
HEAD_BYTES = FINGERPRINT_BYTES + CUT_ID_BYTES
_NUMBER_BYTES = 8


class DamagedRowError(Exception):
    """Stored bytes are not what they must be; leaves the store as a `CorruptionError` that names the index."""


def digest(doc_id: bytes) -> bytes:
    """Return the register's key: URLs come from strangers, so a hash that nobody can make collide."""
    return blake2b(doc_id, digest_size=DIGEST_BYTES).digest()


def document_key(packed_fingerprint: bytes, doc_id: bytes) -> bytes:
    """Return the key under which a document is listed."""
    return packed_fingerprint + key_part(doc_id)


def key_part(doc_id: bytes) -> bytes:
    """Return what the key of a listing has of the id; the order of listings is the order of these."""
    return doc_id if len(doc_id) <= WHOLE_ID_BYTES else doc_id[:CUT_ID_BYTES] + digest(doc_id)


def document_value(packed_first_seen: bytes, doc_id: bytes) -> bytes:
    """Return what is stored beside `document_key`."""
    return packed_first_seen if len(doc_id) <= WHOLE_ID_BYTES else packed_first_seen + doc_id


def listed_id(key: bytes, value: bytes) -> bytes:
    """Return the document id of a row of `documents`."""
    return value[_NUMBER_BYTES:] or key[FINGERPRINT_BYTES:]


def decode_id(doc_id: bytes) -> str:
    """Return a stored document id as text."""
    try:
        return doc_id.decode()
    except UnicodeDecodeError as error:
        raise DamagedRowError(f"a stored document id is not UTF-8: {doc_id[:80]!r}") from error


def pack(number: int) -> bytes:
    """Return 8 big-endian bytes."""
    return number.to_bytes(_NUMBER_BYTES, "big")


def unpack_register(value: bytes) -> tuple[int, int]:
    """Return fingerprint and first seen of a register."""
    if len(value) != 2 * _NUMBER_BYTES:
        raise DamagedRowError(f"a register has {len(value)} bytes instead of 16: {value[:40].hex()}")
    return int.from_bytes(value[:_NUMBER_BYTES], "big"), int.from_bytes(value[_NUMBER_BYTES:], "big")


def verify_order(consumed_and_added: tuple[int, int]) -> None:
    """Raise `DamagedRowError` where `putmulti` left a row out: LMDB does so, silently, with rows out of order."""
    consumed, added = consumed_and_added
    if consumed != added:
        raise DamagedRowError(f"{consumed - added} of {consumed} rows are out of order, so none of them was stored")


def page(
    transaction: lmdb.Transaction, databases: Mapping[str, object], name: str, after: Row | None, most: int
) -> list[Row]:
    """Return up to `most` rows of a database behind the row `after`, which may be gone, or lie within a bucket."""
    cursor = transaction.cursor(databases[name])
    if after is None:
        is_there = cursor.first()
    elif "dupsort" in DATABASES[name] and cursor.set_range_dup(*after):
        is_there = cursor.item() != after or cursor.next()
    else:
        is_there = cursor.set_range(after[0] + b"\x00")
    return [row for row, _ in zip(cursor.iternext(), range(most), strict=False)] if is_there else []


class Rows:
    """Reads and writes of one write transaction."""

    def __init__(self, layout: Layout, databases: Mapping[str, object], transaction: lmdb.Transaction) -> None:
        self.layout = layout
        self.transaction = transaction
        self.drawers, self.listing = databases["drawers"], databases["documents"]
        self.register = databases["register"]

    def get_register(self, doc_id: bytes) -> tuple[int, int] | None:
        """Return fingerprint and first seen of a document."""
        value = self.transaction.get(digest(doc_id), db=self.register)
        return unpack_register(value) if value is not None else None

    # Each writes every database in the order of its keys.

    def put(self, documents: Collection[tuple[bytes, int, int]]) -> None:
        """Write drawer rows, listings and registers of (id, fingerprint, first seen)."""
        fingerprints = np.array(list({fingerprint for _, fingerprint, _ in documents}), np.uint64)
        keys = encode(self.layout, fingerprints).reshape(-1, ROWKEY_BYTES).view(f"V{ROWKEY_BYTES}").ravel().tolist()
        drawers = [(key[:PREFIX_BYTES], key[PREFIX_BYTES:]) for key in sorted(keys)]
        listing = [(document_key(pack(value), one), document_value(pack(seen), one)) for one, value, seen in documents]
        registers = [(digest(doc_id), pack(fingerprint) + pack(seen)) for doc_id, fingerprint, seen in documents]
        self.transaction.cursor(self.drawers).putmulti(drawers, dupdata=False)
        self.transaction.cursor(self.listing).putmulti(sorted(listing))
        self.transaction.cursor(self.register).putmulti(sorted(registers))

    def unlist(self, documents: Sequence[tuple[bytes, int]]) -> None:
        """Take (id, fingerprint) off the listings, and what lists nothing any more out of the drawers."""
        for key in sorted(document_key(pack(fingerprint), doc_id) for doc_id, fingerprint in documents):
            self.transaction.delete(key, db=self.listing)
        left = [value for value in {fingerprint for _, fingerprint in documents} if not self.is_listed(pack(value))]
        for prefix, packed in sorted((prefix, pack(value)) for value in left for prefix in self.layout.prefixes(value)):
            self.transaction.delete(prefix, packed, db=self.drawers)

    def is_listed(self, packed_fingerprint: bytes) -> bool:
        """Whether any document is listed under a fingerprint."""
        cursor = self.transaction.cursor(self.listing)
        return bool(cursor.set_range(packed_fingerprint) and cursor.key().startswith(packed_fingerprint))
