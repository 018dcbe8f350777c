"""The embedded store's rows: bytes and values.

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

from hashlib import blake2b

from hsimhash.rowkey import FINGERPRINT_BYTES
from hsimhash.store.lmdb.damage import DamagedRowError

DIGEST_BYTES = 16
KEY_BYTES = 511  # LMDB's longest key
CUT_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - DIGEST_BYTES
WHOLE_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - 1  # so that only cut keys have 511 bytes, and none equals a whole one
_NUMBER_BYTES = 8
HEAD_BYTES = FINGERPRINT_BYTES + CUT_ID_BYTES


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
