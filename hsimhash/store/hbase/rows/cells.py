"""The contents of cells: rows, qualifiers and values in the table's three column families.

| row | family:qualifier | value |
|---|---|---|
| drawer row; in format 2 and later, also a row of the key drawer (flag 253) | `f:` | empty |
| documents of a fingerprint (flag 0) | `d:<doc id>` | empty |
| register (flag 254) | `d:<doc id>` | fingerprint (8) · first seen, ms (8) · changes (4); if removed: changes (4) |
| register in format 2 and later | `d:<doc id>` | the same, then sketch (8) · key (8) unless removed |
| register during a claim | `d:<doc id>` | the same, then the claimed signature and time, a state (1); see `_HEADS` |
| log of orphans (flag 252) | `d:<doc id>` or `d:<doc id> 00 <key>` or `d:<doc id> 00` | empty; see `Orphan` |
| index record (flag 255) | `i:layout`, `i:profile`, `i:format`, `i:job:<token>` | JSON each |

*Changes* counts how often the register was written, modulo 2**32. It gives every state of a register a different value:
a compare-and-set whose reply was lost may take effect after the document was written again, and must not match the new
value. For an empty value or a 16-byte value, changes is 0. All numbers are big-endian and unsigned.

Example: fingerprint 0123456789abcdef first seen at 1,000 ms, written once:
`0123456789abcdef 00000000000003e8 00000001`; removed: `00000002`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from struct import Struct
from typing import NamedTuple

import numpy as np

from hsimhash.errors import REPAIR, CorruptionError
from hsimhash.fingerprint.bits import Bools, Uint64s
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signature
from hsimhash.rowkey import (
    DOCUMENTS_FLAG,
    FINGERPRINT_BYTES,
    ORPHANS_FLAG,
    PREFIX_BYTES,
    RECORD_FLAG,
    RECORD_ROWKEY,
    REGISTER_FLAG,
    ROWKEY_BYTES,
    SEGMENT_BYTES,
    documents_rowkey,
    orphans_rowkey,
    register_rowkey,
)
from hsimhash.store.base import RECORD_PARTS, Document, Record
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Cell, Put

# Cells next to the record:
COLLECTED = b"collected"  # timestamp: the server's time of the last collection
WORKED_OFF = b"orphans"  # value: the hour since 1970 before which the log of orphans has been processed
NOW = b"now"  # timestamp: the latest server time that an exclusive writer has drawn
TABLE_START, TABLE_STOP = b"", b"\xff" * (ROWKEY_BYTES + 1)
SEGMENTS = 1 << 8 * SEGMENT_BYTES  # number of possible segments
HOUR_S, HOUR_MS = 3_600, 3_600_000

_CHANGES_BYTES = 4
_KEY_BYTES = 8
_LOGGED_KEY_BYTES = {Keying.WHOLE: SEGMENT_BYTES, Keying.IN_PARTS: _KEY_BYTES}  # on disk, in the log of orphans
_FILED = Struct(">QQI")  # fingerprint, first seen, changes
_SIGNED = Struct(">QQIQQ")  # the same, then sketch, key
_REMOVED_SIZES = 0, _CHANGES_BYTES
_FILED_SIZES = _FILED.size - _CHANGES_BYTES, _FILED.size, _SIGNED.size
_CLAIMED = Struct(">QQQQ")  # fingerprint, first seen; in format 2 and later also sketch, key
# Claims for a document that does not exist, and for one that does. On disk: never reuse.
_NEW, _KNOWN = b"\x01", b"\x02"
# Length of the part before the claim (the document's current state), by the register's size and claim state.
_HEADS = {
    (_CHANGES_BYTES + 16 + 1, _NEW): _CHANGES_BYTES,
    (_CHANGES_BYTES + 32 + 1, _NEW): _CHANGES_BYTES,
    (_FILED.size + 16 + 1, _KNOWN): _FILED.size,
    (_SIGNED.size + 32 + 1, _KNOWN): _SIGNED.size,
}


class Register(NamedTuple):
    """The contents of a register; without a signature, the document was removed or never existed.

    `claimed` and `claimed_at` (ms since 1970) are tentative: only claims read them (`claims.py`).
    """

    signature: Signature | None = None
    first_seen: int = 0
    changes: int = 0
    claimed: Signature | None = None
    claimed_at: int = 0

    def to_bytes(self, *, has_signatures: bool) -> bytes:
        """Return the cell's value; with `has_signatures`, in the form of format 2 and later."""
        if self.claimed is not None:
            fingerprint, *sketch_key = self.claimed
            claim = _CLAIMED.pack(fingerprint, self.claimed_at, *sketch_key)[: 32 if has_signatures else 16]
            head = self._replace(claimed=None).to_bytes(has_signatures=has_signatures)
            return head + claim + (_NEW if self.signature is None else _KNOWN)
        changes = self.changes % (1 << 8 * _CHANGES_BYTES)
        if self.signature is None:
            return changes.to_bytes(_CHANGES_BYTES, "big")
        fingerprint, *sketch_key = self.signature
        if has_signatures:
            return _SIGNED.pack(fingerprint, self.first_seen, changes, *sketch_key)
        return _FILED.pack(fingerprint, self.first_seen, changes)

    @classmethod
    def from_bytes(cls, value: bytes) -> Register:
        """Parse the value of a cell in either format; raise `CorruptionError` for invalid bytes."""
        if len(value) in _REMOVED_SIZES:
            return cls(changes=int.from_bytes(value, "big"))
        if head := _HEADS.get((len(value), value[-1:])):
            fingerprint, seen, sketch, key = _CLAIMED.unpack(value[head:-1].ljust(_CLAIMED.size, b"\x00"))
            return cls.from_bytes(value[:head])._replace(claimed=Signature(fingerprint, sketch, key), claimed_at=seen)
        if len(value) not in _FILED_SIZES:
            raise CorruptionError(
                f"a register has {len(value)} bytes instead of 0, 4, 16, 20, 21, 36, 37 or 69: {value[:40].hex()}; "
                + REPAIR
            )
        fingerprint, first_seen, changes, sketch, key = _SIGNED.unpack(value.ljust(_SIGNED.size, b"\x00"))
        return cls(Signature(fingerprint, sketch, key), first_seen, changes)

    def filed(self, signature: Signature, first_seen: int) -> Register:
        """Return the next register when the document is added, changed, or rewritten."""
        return Register(signature, self.first_seen if signature == self.signature else first_seen, self.changes + 1)

    def removed(self) -> Register:
        """Return the next register when the document is removed."""
        return Register(changes=self.changes + 1)

    def claiming(self, signature: Signature, first_seen: int) -> Register:
        """Return the next register when the document claims to be new."""
        return Register(self.signature, self.first_seen, self.changes + 1, signature, first_seen)

    def confirmed(self) -> Register:
        """Return the next register when its claim is confirmed."""
        return Register(self.claimed, self.claimed_at, self.changes + 1)

    def lost(self) -> Register:
        """Return the next register when its claim is lost: it has the contents from before the claim."""
        return Register(self.signature, self.first_seen, self.changes + 1)

    def is_filed(self, before: int | None = None) -> bool:
        """Whether the document exists; with `before` (ms since 1970), also whether it was first seen earlier."""
        return self.signature is not None and (before is None or self.first_seen < before)

    def document(self, doc_id: bytes) -> Document | None:
        """Return the document with that id, or None if it was removed."""
        return Document.of(_text(doc_id), self.signature, self.first_seen) if self.signature is not None else None

    def claim(self, doc_id: bytes) -> Document | None:
        """Return the claimed document with that id, or None if there is no claim."""
        return Document.of(_text(doc_id), self.claimed, self.claimed_at) if self.claimed is not None else None


def _text(doc_id: bytes) -> str:
    try:
        return doc_id.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(f"a stored document id is not UTF-8: {doc_id[:80]!r}; " + REPAIR) from error


def register_columns(values: Sequence[bytes]) -> tuple[Bools, Bools, Uint64s, Uint64s]:
    """Return which values have signatures, which are removals, and the signatures' fingerprints and keys.

    Claims in progress are ignored.
    """
    values = [value[: _HEADS.get((len(value), value[-1:]))] for value in values]
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    is_filed, is_removed = np.isin(sizes, _FILED_SIZES), np.isin(sizes, _REMOVED_SIZES)
    filed = b"".join([value.ljust(_SIGNED.size, b"\x00") for value in compress(values, is_filed.tolist())])
    found = np.frombuffer(filed, np.dtype([("fingerprint", ">u8"), ("between", "V20"), ("key", ">u8")]))
    return is_filed, is_removed, found["fingerprint"].astype(np.uint64), found["key"].astype(np.uint64)


def parsed(register: Cell) -> Register | None:
    """Parse a register; return None if it is unreadable."""
    try:
        return Register.from_bytes(register.value)
    except CorruptionError:
        return None


def signature_in(register: Cell | None) -> Signature | None:
    """Return the signature in a register, or None if it is missing or unreadable."""
    said = parsed(register) if register is not None else None
    return said.signature if said is not None else None


def register_key(doc_id: bytes) -> tuple[bytes, bytes]:
    """Return the row and the qualifier of a document's register."""
    return register_rowkey(doc_id), doc_id


def listing_key(fingerprint: int, doc_id: bytes) -> tuple[bytes, bytes]:
    """Return the row and the qualifier of a document's listing under a fingerprint."""
    return documents_rowkey(fingerprint), doc_id


def listing_put(fingerprint: int, doc_id: bytes) -> Put:
    """Return the put that lists a document under a fingerprint."""
    row, qualifier = listing_key(fingerprint, doc_id)
    return Put(row, DOCUMENT_FAMILY, qualifier, b"")


class Orphan(NamedTuple):
    """An entry in the log of orphans: in a certain hour, counted since 1970, a document left a fingerprint.

    `signature` has the fingerprint, and a key with the same rows in the key drawer as the document's key. In the
    qualifier, the id is followed by a zero byte, which no id contains, and the key. Format 2 stores only the first 4
    bytes of the key. Without a key, nothing follows the id. If only a zero byte follows it, only the document's
    register remains to be deleted (`is_register`).
    """

    hour: int
    doc_id: bytes
    signature: Signature
    is_register: bool = False

    @classmethod
    def of(cls, cell: Cell) -> Orphan | None:
        """Parse a cell of the log; return None if it is invalid."""
        doc_id, zero, key = cell.qualifier.partition(b"\x00")
        if row_flag(cell.row) != ORPHANS_FLAG or not (
            doc_id and is_text(doc_id) and len(key) in (0, *_LOGGED_KEY_BYTES.values())
        ):
            return None
        # The missing bytes of a shortened key do not matter, but a key must not be 0.
        number = int.from_bytes(key.ljust(_KEY_BYTES, b"\x01"), "big") if key else 0
        signature = Signature(int.from_bytes(cell.row[PREFIX_BYTES:], "big"), 0, number)
        return cls(int.from_bytes(cell.row[:SEGMENT_BYTES], "big"), doc_id, signature, bool(zero and not key))

    def put(self, keying: Keying) -> Put:
        """Return the put that logs this entry in an index with this keying."""
        behind = b""
        if self.is_register:
            behind = b"\x00"
        elif self.signature.key:
            behind = b"\x00" + self.signature.key.to_bytes(_KEY_BYTES, "big")[: _LOGGED_KEY_BYTES[keying]]
        row = orphans_rowkey(self.hour, self.signature.fingerprint)
        return Put(row, DOCUMENT_FAMILY, self.doc_id + behind, b"")


def rows_of_key(record: Record, signature: Signature) -> list[bytes]:
    """Return a signature's rowkeys in the key drawer; empty if it does not have a key."""
    packed = signature.fingerprint.to_bytes(FINGERPRINT_BYTES, "big")
    return [prefix + packed for prefix in record.key_prefixes(signature.key)]


def segment_key(segment: int) -> bytes:
    """Return the key at which a segment's rows begin; for the number after the last segment, the table's end."""
    return segment.to_bytes(SEGMENT_BYTES, "big") if segment < SEGMENTS else TABLE_STOP


def segment_of(row: bytes) -> int:
    """Return the segment of a row; a shorter key is padded with zeros."""
    return int.from_bytes(row[:SEGMENT_BYTES].ljust(SEGMENT_BYTES, b"\0"), "big")


def row_flag(row: bytes) -> int:
    """Return a row's flag; for a row that is not 13 bytes long, return the record's flag, which no other row has."""
    return row[SEGMENT_BYTES] if len(row) == ROWKEY_BYTES else RECORD_FLAG


def is_listing(row: bytes) -> bool:
    """Whether a row in family `d` is a listing in the right segment."""
    return row_flag(row) == DOCUMENTS_FLAG and row[:SEGMENT_BYTES] == row[SEGMENT_BYTES + 1 : 2 * SEGMENT_BYTES + 1]


def is_register(row: bytes, doc_id: bytes) -> bool:
    """Whether a cell in family `d` is the register of the id in its qualifier."""
    return row_flag(row) == REGISTER_FLAG and register_rowkey(doc_id) == row


def is_text(doc_id: bytes) -> bool:
    """Whether an id is UTF-8."""
    try:
        doc_id.decode()
    except UnicodeDecodeError:
        return False
    return True


def record_from(values: Mapping[bytes, bytes], index: str) -> Record:
    """Parse a record from its cells' values; raise a `CorruptionError` that names the index if they are invalid."""
    missing = [name.decode() for name in RECORD_PARTS if name not in values]
    if missing:
        raise CorruptionError(
            f"the record of {index} lacks {', '.join(missing)}: its creation was interrupted; run the same 'hsimhash "
            f"create-table' command again"
        )
    try:
        return Record.from_parts(values, index)
    except ValueError as error:
        raise CorruptionError(
            f"the record of {index} in row {RECORD_ROWKEY.hex()} cannot be read ({error}); restore a snapshot, or "
            f"drop the index with 'hsimhash drop-table'"
        ) from error
