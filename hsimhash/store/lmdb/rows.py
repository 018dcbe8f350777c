"""The rows of one write transaction, and pages of a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import lmdb
import numpy as np

from hsimhash.layout import Layout
from hsimhash.rowkey import PREFIX_BYTES, ROWKEY_BYTES, encode
from hsimhash.store.lmdb.codec import digest, document_key, document_value, pack, unpack_register


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

    def delete(self, documents: Sequence[tuple[bytes, int]]) -> None:
        """Forget (id, fingerprint), each database in the order of its keys."""
        for key in sorted(document_key(pack(fingerprint), doc_id) for doc_id, fingerprint in documents):
            self.transaction.delete(key, db=self.listing)
        left = [value for value in {fingerprint for _, fingerprint in documents} if not self.is_listed(pack(value))]
        for prefix, packed in sorted((prefix, pack(value)) for value in left for prefix in self.layout.prefixes(value)):
            self.transaction.delete(prefix, packed, db=self.drawers)
        for key in sorted(digest(doc_id) for doc_id, _ in documents):
            self.transaction.delete(key, db=self.register)

    def put(self, documents: Sequence[tuple[bytes, int, int]]) -> None:
        """Write rows, list and register of (id, fingerprint, first seen), each in key order."""
        self.put_drawer_rows(sorted({fingerprint for _, fingerprint, _ in documents}))
        listing = sorted(
            (document_key(pack(fingerprint), doc_id), document_value(pack(first_seen), doc_id))
            for doc_id, fingerprint, first_seen in documents
        )
        self.transaction.cursor(self.listing).putmulti(listing)
        registers = sorted((digest(doc_id), pack(fingerprint) + pack(seen)) for doc_id, fingerprint, seen in documents)
        self.transaction.cursor(self.register).putmulti(registers)

    def put_drawer_rows(self, fingerprints: Sequence[int]) -> int:
        """File fingerprints in every drawer; return how many rows are new."""
        rows = encode(self.layout, np.array(fingerprints, np.uint64)).reshape(-1).tobytes()
        keys = sorted(rows[start : start + ROWKEY_BYTES] for start in range(0, len(rows), ROWKEY_BYTES))
        items = ((key[:PREFIX_BYTES], key[PREFIX_BYTES:]) for key in keys)
        _, added = self.transaction.cursor(self.drawers).putmulti(items, dupdata=False)
        return int(added)

    def unlist(self, doc_id: bytes, fingerprint: int) -> None:
        """Take a document off its fingerprint's list, and the fingerprint out of the drawers if it was the last."""
        packed = pack(fingerprint)
        self.transaction.delete(document_key(packed, doc_id), db=self.listing)
        if not self.is_listed(packed):
            for prefix in self.layout.prefixes(fingerprint):
                self.transaction.delete(prefix, packed, db=self.drawers)

    def is_listed(self, packed_fingerprint: bytes) -> bool:
        """Whether any document is listed under a fingerprint."""
        cursor = self.transaction.cursor(self.listing)
        return bool(cursor.set_range(packed_fingerprint) and cursor.key().startswith(packed_fingerprint))


def page(transaction: lmdb.Transaction, database: object, after: bytes, most: int) -> list[tuple[bytes, bytes]]:
    """Return up to `most` rows whose keys come after `after`, for a database without duplicates."""
    cursor = transaction.cursor(database)
    if not cursor.set_range(after + b"\x00" if after else b"\x00"):
        return []
    return [row for row, _ in zip(cursor.iternext(), range(most), strict=False)]
