"""Rows of the embedded store: values and their bytes, and the rows of a transaction.

| database | key | value |
|---|---|---|
| `drawers` (DUPSORT, DUPFIXED) | prefix (5) | fingerprint (8). With a base, only rows newer than it |
| `documents` | fingerprint (8), id or truncated id | first seen (8), then the whole id if the key truncates it |
| `register` | BLAKE2b digest of the id (16) | fingerprint (8), first seen (8); since format 2, sketch (8), key (8) |
| `record` | `layout`, `profile`, `format`; `load:<token>` while a bulk load merges; `job:<token>`; `base` | JSON |

A prefix and a fingerprint form a rowkey. A key truncates an id longer than 502 bytes to its first 487 bytes, followed
by its digest (16). All numbers are big-endian; first seen is in ms since 1970. Every write is one transaction, durable
on return.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.signature import Signature
from hsimhash.rowkey import FINGERPRINT_BYTES, PREFIX_BYTES, ROWKEY_BYTES
from hsimhash.store.base import Record

if TYPE_CHECKING:
    import lmdb

    from hsimhash.store.base_files.base_file import Base

Row = tuple[bytes, bytes]

DATABASES: dict[str, dict[str, bool]] = {
    "record": {},
    "drawers": {"dupsort": True, "dupfixed": True},
    "documents": {},
    "register": {},
}
PACKED_ROWKEY = np.dtype((np.uint8, ROWKEY_BYTES))
PACKED_NUMBER = np.dtype(">u8")
FORMAT_PART = b"format"
BASE_PART = b"base"  # on disk, in the record: the current base
_BASED = "base"  # on disk, in the record's format, so that older releases reject such an index
DIGEST_BYTES = 16
KEY_BYTES = 511  # maximum length of a key in LMDB
CUT_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - DIGEST_BYTES
WHOLE_ID_BYTES = KEY_BYTES - FINGERPRINT_BYTES - 1  # so only truncated keys have 511 bytes, and none equals a whole key
HEAD_BYTES = FINGERPRINT_BYTES + CUT_ID_BYTES
_NUMBER_BYTES = 8
_PLAIN = Struct(">QQ")  # fingerprint, first seen
_SIGNED = Struct(">QQQQ")  # fingerprint, first seen, sketch, key


def marked_format(form: bytes) -> bytes:
    """Return the record's format as it is stored once the index has a base."""
    return json.dumps({**json.loads(form), _BASED: 1}).encode()


def unmarked_format(form: bytes) -> bytes:
    """Return the record's format as it would be without a base."""
    fields = json.loads(form or b"null")
    if isinstance(fields, dict) and fields.get(_BASED) == 1:
        return json.dumps({name: value for name, value in fields.items() if name != _BASED}).encode()
    return form


class DamagedRowError(Exception):
    """Stored bytes are invalid. Callers replace this error with a `CorruptionError` that names the index."""


def rows_in(joined: bytes | bytearray, row: np.dtype[Any]) -> NDArray[Any]:
    """Return an array of stored rows that have been joined; raise `DamagedRowError` if one of them is incomplete."""
    if len(joined) % row.itemsize:
        raise DamagedRowError(f"rows have {len(joined):,} bytes in all, which is not a multiple of {row.itemsize}")
    return np.frombuffer(joined, row)


def digest(doc_id: bytes) -> bytes:
    """Return the key of a document's register. Ids may be untrusted, so the hash must resist collisions."""
    return blake2b(doc_id, digest_size=DIGEST_BYTES).digest()


def document_key(packed_fingerprint: bytes, doc_id: bytes) -> bytes:
    """Return the key of a document's listing."""
    return packed_fingerprint + key_part(doc_id)


def key_part(doc_id: bytes) -> bytes:
    """Return the part of a listing's key that stands for the id; listings are sorted by it."""
    return doc_id if len(doc_id) <= WHOLE_ID_BYTES else doc_id[:CUT_ID_BYTES] + digest(doc_id)


def document_value(packed_first_seen: bytes, doc_id: bytes) -> bytes:
    """Return the value for `document_key`."""
    return packed_first_seen if len(doc_id) <= WHOLE_ID_BYTES else packed_first_seen + doc_id


def listed_id(key: bytes, value: bytes) -> bytes:
    """Return the document id in a row of `documents`."""
    return value[_NUMBER_BYTES:] or key[FINGERPRINT_BYTES:]


def listed_first_seen(value: bytes) -> int:
    """Return the time in a row of `documents`."""
    if len(value) < _NUMBER_BYTES:
        raise DamagedRowError(f"a listing has {len(value)} bytes instead of 8 or more: {value.hex()}")
    return int.from_bytes(value[:_NUMBER_BYTES], "big")


def listing_table(fingerprints: Uint64s, values: Sequence[bytes]) -> Uint64s:
    """Return what `register_table` returns for documents without sketch and key, given their listings."""
    table = np.zeros((len(values), 4), np.uint64)
    table[:, 0], seen = fingerprints, b"".join([value[:_NUMBER_BYTES] for value in values])
    if len(seen) < _NUMBER_BYTES * len(values):
        list(map(listed_first_seen, values))  # raises
    table[:, 1] = np.frombuffer(seen, ">u8")
    return table


def decode_id(doc_id: bytes) -> str:
    """Return a stored document id as text."""
    try:
        return doc_id.decode()
    except UnicodeDecodeError as error:
        raise DamagedRowError(f"a stored document id is not UTF-8: {doc_id[:80]!r}") from error


def pack(number: int) -> bytes:
    """Return 8 big-endian bytes."""
    return number.to_bytes(_NUMBER_BYTES, "big")


class Registered(NamedTuple):
    """The contents of a document's register."""

    signature: Signature
    first_seen: int


def pack_register(register: Registered, *, has_signatures: bool) -> bytes:
    """Return the stored value of a register, without sketch and key unless `has_signatures`."""
    fingerprint, sketch, key = register.signature
    if has_signatures:
        return _SIGNED.pack(fingerprint, register.first_seen, sketch, key)
    return _PLAIN.pack(fingerprint, register.first_seen)


def register_fields(value: bytes) -> tuple[int, ...]:
    """Return a register's fingerprint and first seen, then its sketch and key if it has them."""
    if len(value) == _PLAIN.size:
        return _PLAIN.unpack(value)
    if len(value) == _SIGNED.size:
        return _SIGNED.unpack(value)
    raise DamagedRowError(f"a register has {len(value)} bytes instead of 16 or 32: {value[:40].hex()}")


def register_table(values: Sequence[bytes]) -> Uint64s:
    """Return the fields of registers: shape (n, 4). A missing sketch or key is 0."""
    if damaged := set(map(len, values)) - {_PLAIN.size, _SIGNED.size}:
        register_fields(next(value for value in values if len(value) in damaged))  # raises
    padded = b"".join([value.ljust(_SIGNED.size, b"\x00") for value in values])
    return np.frombuffer(padded, ">u8").reshape(-1, 4).astype(np.uint64)


def unpack_register(value: bytes) -> Registered:
    """Parse a register, with or without sketch and key."""
    fingerprint, first_seen, *others = register_fields(value)
    return Registered(Signature(fingerprint, *others), first_seen)


def verify_order(consumed_and_added: tuple[int, int]) -> None:
    """Raise `DamagedRowError` if `putmulti` dropped a row, as LMDB silently does with unordered rows."""
    consumed, added = consumed_and_added
    if consumed != added:
        raise DamagedRowError(f"{consumed - added} of {consumed} rows are out of order and were not stored")


def page(
    transaction: lmdb.Transaction, databases: Mapping[str, object], name: str, after: Row | None, most: int
) -> list[Row]:
    """Return up to `most` rows of a database after the row `after`, which may be inside a bucket, or deleted by now."""
    cursor = transaction.cursor(databases[name])
    if after is None:
        is_there = cursor.first()
    elif "dupsort" in DATABASES[name] and cursor.set_range_dup(*after):
        is_there = cursor.item() != after or cursor.next()
    else:
        is_there = cursor.set_range(after[0] + b"\x00")
    return [row for row, _ in zip(cursor.iternext(), range(most), strict=False)] if is_there else []


class Rows:
    """Reads and writes in one write transaction."""

    def __init__(
        self, record: Record, databases: Mapping[str, object], transaction: lmdb.Transaction, base: Base | None = None
    ) -> None:
        self.record, self.databases, self.base = record, databases, base
        self.transaction = transaction
        self.drawers, self.listing = databases["drawers"], databases["documents"]
        self.register = databases["register"]

    def get_register(self, doc_id: bytes) -> Registered | None:
        """Return the contents of a document's register."""
        value = self.transaction.get(digest(doc_id), db=self.register)
        return unpack_register(value) if value is not None else None

    # Each method writes every database in the order of its keys.

    def put(self, documents: Collection[tuple[bytes, Registered]]) -> None:
        """Write the drawer rows, key drawer rows, listings and registers of documents."""
        filed = self.record.filed_rowkeys(register.signature for _, register in documents)
        keys = filed.view(f"V{ROWKEY_BYTES}").ravel().tolist()
        drawers = [(key[:PREFIX_BYTES], key[PREFIX_BYTES:]) for key in sorted(keys)]
        listing = [
            (document_key(pack(register.signature.fingerprint), one), document_value(pack(register.first_seen), one))
            for one, register in documents
        ]
        registers = [
            (digest(one), pack_register(register, has_signatures=self.record.has_signatures))
            for one, register in documents
        ]
        self.transaction.cursor(self.drawers).putmulti(drawers, dupdata=False)
        self.transaction.cursor(self.listing).putmulti(sorted(listing))
        self.transaction.cursor(self.register).putmulti(sorted(registers))

    def unlist(self, documents: Sequence[tuple[bytes, Signature]]) -> None:
        """Remove documents from the listings, and fingerprints without documents from the drawers.

        A row of the key drawer stays as long as any document is listed under its fingerprint. Checking whether
        another document has the same key would require reading all their registers; `check` does that.
        """
        for key in sorted(document_key(pack(signature.fingerprint), doc_id) for doc_id, signature in documents):
            self.transaction.delete(key, db=self.listing)
        left = {one for _, one in documents if not self.is_listed(pack(one.fingerprint))}
        rows = self.record.filed_rowkeys(left).view(f"V{ROWKEY_BYTES}").ravel().tolist()
        for row in sorted(rows):
            self.transaction.delete(row[:PREFIX_BYTES], row[PREFIX_BYTES:], db=self.drawers)

    def is_listed(self, packed_fingerprint: bytes) -> bool:
        """Whether any document is listed under a fingerprint."""
        cursor = self.transaction.cursor(self.listing)
        return bool(cursor.set_range(packed_fingerprint) and cursor.key().startswith(packed_fingerprint))
