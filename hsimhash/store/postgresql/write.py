"""Writes: documents come, change and go in one transaction each, whose rows are locked in order.

*A document's fingerprint is in `pages_fingerprints`.* So a writer that adds a document locks the row of its fingerprint
against deletion (FOR KEY SHARE) unless the row is its own; who deletes rows of fingerprints locks them first (FOR
UPDATE), which waits for those, and then looks for documents, those of the ones that it waited for too.

Documents are locked in order of id, then fingerprints in their order, so that writers do not wait for each other in a
circle. What was read and is otherwise when it is locked lets the transaction begin again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.signature import Signature
from hsimhash.store.base import Document, Mark
from hsimhash.store.postgresql.codec import COLUMNS, Tables, document_of, signed_word
from hsimhash.store.postgresql.failures import MetAnotherError
from hsimhash.store.postgresql.session import Link

Wanting = Mapping[bytes, tuple[Signature, int]]  # the signature and first seen of each document


class _Row(NamedTuple):
    doc_id: str
    signature: Signature
    first_seen: int

    def columns(self) -> tuple[str, int, int, int, int]:
        fingerprint, sketch, key = map(signed_word, self.signature)
        return self.doc_id, fingerprint, self.first_seen, sketch, key


class TableWrites:
    """The writes of one transaction."""

    def __init__(self, link: Link, tables: Tables) -> None:
        self._link = link
        self._tables = tables

    def put_documents(self, wanted: Wanting) -> int:
        """Add documents, and change those that have another signature; return how many of both."""
        rows = [_Row(doc_id.decode(), *wanted[doc_id]) for doc_id in sorted(wanted)]
        stored = self._stored([row.doc_id for row in rows])
        new = [row for row in rows if row.doc_id not in stored]
        changed = [row for row in rows if row.doc_id in stored and stored[row.doc_id].signature != row.signature]
        left = self._change(changed) if changed else np.empty(0, np.int64)
        if new and self._insert(new) < len(new):
            raise MetAnotherError("another transaction has added a document")
        if added := [*new, *changed]:
            self._keep_fingerprints(_distinct_words([row.signature.fingerprint for row in added]), left)
        if len(left):
            self._drop_fingerprints(left)
        return len(added)

    def remove_documents(self, doc_ids: Sequence[bytes], before: int | None) -> int:
        """Remove documents, with `before` only those first seen earlier; return how many there were."""
        documents, ids = self._tables.documents, [doc_id.decode() for doc_id in doc_ids]
        old = "" if before is None else f" AND first_seen < {before:d}"
        found = self._link.rows(
            f"DELETE FROM {documents} WHERE doc_id IN (SELECT doc_id FROM {documents} "
            f"WHERE doc_id = ANY($1::text[]){old} ORDER BY doc_id FOR UPDATE) RETURNING fingerprint",
            ids,
        )
        if found:
            left = np.unique(np.array(found, np.int64))
            self._lock_fingerprints(left, "UPDATE")
            self._drop_fingerprints(left)
        return len(found)

    def set_part(self, name: str, value: str) -> None:
        """Put a part of the record, or a mark."""
        self._link.do(
            f"INSERT INTO {self._tables.named('_record')} VALUES ($1, $2) "
            "ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
            name,
            value,
        )

    def set_marked(self, mark: Mark) -> None:
        """Put a mark."""
        self.set_part(mark.key.decode(), mark.value.decode())

    def _stored(self, ids: Sequence[str], *, is_locked: bool = False) -> dict[str, Document]:
        lock = " ORDER BY doc_id FOR UPDATE" if is_locked else ""
        found = self._link.rows(
            f"SELECT {COLUMNS} FROM {self._tables.documents} WHERE doc_id = ANY($1::text[]){lock}",
            list(ids),
        )
        return {row[0]: document_of(row) for row in found}

    def _change(self, rows: Sequence[_Row]) -> Int64s:
        """Give documents that are there other signatures; return the fingerprints that they leave."""
        old = self._stored([row.doc_id for row in rows], is_locked=True)
        done = self._link.do(
            f"UPDATE {self._tables.documents} AS stored SET (fingerprint, first_seen, sketch, key) = "
            f"(given.fingerprint, given.first_seen, given.sketch, given.key) FROM {_GIVEN} "
            "WHERE stored.doc_id = given.doc_id",
            *_arrays(rows),
        )
        if done < len(rows):
            raise MetAnotherError("another transaction has removed a document")
        return _distinct_words([document.fingerprint for document in old.values()])

    def _insert(self, rows: Sequence[_Row]) -> int:
        return self._link.do(
            f"INSERT INTO {self._tables.documents} ({COLUMNS}) "
            f"SELECT * FROM {_GIVEN} ORDER BY doc_id ON CONFLICT DO NOTHING",
            *_arrays(rows),
        )

    def _keep_fingerprints(self, values: Int64s, left: Int64s) -> None:
        """File fingerprints, and lock those that are there, with the ones that documents leave."""
        found = self._link.rows(
            f"INSERT INTO {self._tables.fingerprints} SELECT * FROM unnest($1::bigint[]) AS value "
            "ORDER BY value ON CONFLICT DO NOTHING RETURNING fingerprint",
            values,
        )
        own = np.array(found, np.int64).ravel()
        others = np.setdiff1d(values, own)
        if len(left):
            locked = self._lock_fingerprints(np.union1d(others, left), "UPDATE")
        else:
            locked = self._lock_fingerprints(others, "KEY SHARE") if len(others) else others
        if not np.isin(others, locked).all():
            raise MetAnotherError("another transaction has deleted a fingerprint")

    def _lock_fingerprints(self, values: Int64s, strength: str) -> Int64s:
        """Lock rows of fingerprints; return those that are there."""
        found = self._link.rows(
            f"SELECT fingerprint FROM {self._tables.fingerprints} WHERE fingerprint = ANY($1) "
            f"ORDER BY fingerprint FOR {strength}",
            values,
        )
        return np.array(found, np.int64).ravel()

    def _drop_fingerprints(self, values: Int64s) -> None:
        """Delete those fingerprints that no document has any more; they are locked."""
        self._link.do(
            f"DELETE FROM {self._tables.fingerprints} AS filed WHERE fingerprint = ANY($1) AND NOT EXISTS "
            f"(SELECT FROM {self._tables.documents} AS listed WHERE listed.fingerprint = filed.fingerprint)",
            values,
        )


_GIVEN = f"unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS given ({COLUMNS})"


def _arrays(rows: Sequence[_Row]) -> list[object]:
    ids, *numbers = zip(*(row.columns() for row in rows), strict=True)
    return [list(ids), *(np.array(column, np.int64) for column in numbers)]


def _distinct_words(values: Sequence[int]) -> Int64s:
    return np.unique(np.array(values, np.uint64).view(np.int64))
