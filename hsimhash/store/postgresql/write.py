"""Write documents, each batch in one transaction that locks its rows in order.

Invariant: *every document's fingerprint is in `pages_fingerprints`.* So a writer that adds a document locks its
fingerprint's row against deletion (FOR KEY SHARE), unless it inserted that row itself. A writer that deletes
fingerprint rows locks them first (FOR UPDATE), so it waits for the writers that add documents. Then it looks for
documents, including those that these writers have added. Its next statement must see their commits, so each
transaction is READ COMMITTED, regardless of the database's default (`session.py` lists all assumptions).

Documents are locked in order of id, and then fingerprints in ascending order, so writers cannot deadlock. If a row
changes between reading and locking it, the transaction starts over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from hsimhash.fingerprint.bits import Int64s, sorted_distinct
from hsimhash.fingerprint.signature import Signature
from hsimhash.store.base import Mark
from hsimhash.store.postgresql.codec import COLUMNS, Tables, document_of, signed_words
from hsimhash.store.postgresql.failures import MetAnotherError
from hsimhash.store.postgresql.session import Link, TextArray

Wanting = Mapping[bytes, tuple[Signature, int]]  # each document's signature and first seen


class TableWrites:
    """The writes of one transaction."""

    def __init__(self, link: Link, tables: Tables) -> None:
        self._link = link
        self._tables = tables
        self._columns = [*COLUMNS.split(", "), *tables.key_columns]

    def put_documents(self, wanted: Wanting, *, are_new: bool = False) -> int:
        """Add documents, and change those with a different signature; return how many were added or changed.

        With `are_new`, the documents are known to be new, so existing ones are not looked up.
        """
        stored = {} if are_new else self._stored(sorted(wanted))
        new = sorted(doc_id for doc_id in wanted if doc_id not in stored)
        changed = [doc_id for doc_id, signature in stored.items() if signature != wanted[doc_id][0]]
        left = self._change(sorted(changed), wanted) if changed else np.empty(0, np.int64)
        if new and self._insert(new, wanted) < len(new):
            raise MetAnotherError("another transaction has added a document")
        if added := [*new, *changed]:
            self._keep_fingerprints(_distinct_words([wanted[doc_id][0].fingerprint for doc_id in added]), left)
        if len(left):
            self._drop_fingerprints(left)
        return len(added)

    def remove_documents(self, doc_ids: Sequence[bytes], before: int | None) -> int:
        """Remove documents, or with `before` only those first seen earlier; return how many existed."""
        documents = self._tables.documents
        old = "" if before is None else f" AND first_seen < {before:d}"
        found = self._link.rows(
            f"DELETE FROM {documents} WHERE doc_id IN (SELECT doc_id FROM {documents} "
            f"WHERE doc_id = ANY($1){old} ORDER BY doc_id FOR UPDATE) RETURNING fingerprint",
            TextArray(doc_ids),
        )
        if found:
            left = sorted_distinct(np.array(found, np.int64))
            self._lock_fingerprints(left, "UPDATE")
            self._drop_fingerprints(left)
        return len(found)

    def set_part(self, name: str, value: str) -> None:
        """Write a part of the record, or a mark."""
        self._link.do(
            f"INSERT INTO {self._tables.named('_record')} VALUES ($1, $2) "
            "ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value",
            name,
            value,
        )

    def set_marked(self, mark: Mark) -> None:
        """Write a mark."""
        self.set_part(mark.key.decode(), mark.value.decode())

    def _stored(self, doc_ids: Sequence[bytes], *, is_locked: bool = False) -> dict[bytes, Signature]:
        """Return the stored signatures of these documents; documents that are not stored are left out."""
        lock = " ORDER BY doc_id FOR UPDATE" if is_locked else ""
        found = self._link.rows(
            f"SELECT {COLUMNS} FROM {self._tables.documents} WHERE doc_id = ANY($1){lock}", TextArray(doc_ids)
        )
        return {row[0].encode(): document_of(row).signature for row in found}

    def _change(self, doc_ids: Sequence[bytes], wanted: Wanting) -> Int64s:
        """Change the signatures of stored documents; return the fingerprints that they leave."""
        old = self._stored(doc_ids, is_locked=True)
        columns = self._columns[1:]
        done = self._link.do(
            f"UPDATE {self._tables.documents} AS stored SET ({', '.join(columns)}) = "
            f"({', '.join(f'given.{column}' for column in columns)}) FROM {self._given} "
            "WHERE stored.doc_id = given.doc_id",
            *self._arrays(doc_ids, wanted),
        )
        if done < len(doc_ids):
            raise MetAnotherError("another transaction has removed a document")
        return _distinct_words([signature.fingerprint for signature in old.values()])

    def _insert(self, doc_ids: Sequence[bytes], wanted: Wanting) -> int:
        return self._link.do(
            f"INSERT INTO {self._tables.documents} ({', '.join(self._columns)}) "
            f"SELECT * FROM {self._given} ORDER BY doc_id ON CONFLICT DO NOTHING",
            *self._arrays(doc_ids, wanted),
        )

    @property
    def _given(self) -> str:
        """The SQL source with the columns `_columns`, and a row for each document in the parameters from `_arrays`."""
        words = ", ".join(f"${number}::bigint[]" for number in range(2, len(self._columns) + 1))
        return f"unnest($1::text[], {words}) AS given ({', '.join(self._columns)})"

    def _arrays(self, doc_ids: Sequence[bytes], wanted: Wanting) -> list[object]:
        """Return documents as the parameters of `_given`."""
        given = [wanted[doc_id] for doc_id in doc_ids]
        # fromiter, because np.array takes ten times as long for a list of tuples
        words = np.fromiter(chain.from_iterable(signature for signature, _ in given), np.uint64, 3 * len(given))
        fingerprints, sketches, keys = words.reshape(-1, 3).T
        first_seen = np.fromiter((seen for _, seen in given), np.int64, len(given))
        columns = [signed_words(fingerprints), first_seen, signed_words(sketches), signed_words(keys)]
        return [TextArray(doc_ids), *columns, *self._tables.key_segments(keys).T]

    def _keep_fingerprints(self, values: Int64s, left: Int64s) -> None:
        """File fingerprints; lock those that already exist, and those that documents leave."""
        ((packed,),) = self._link.rows(
            f"WITH own AS (INSERT INTO {self._tables.fingerprints} SELECT * FROM unnest($1::bigint[]) AS value "
            "ORDER BY value ON CONFLICT DO NOTHING RETURNING fingerprint) "
            "SELECT string_agg(int8send(fingerprint), '') FROM own",
            values,
        )
        others = np.setdiff1d(values, np.frombuffer(packed or b"", ">i8").astype(np.int64), assume_unique=True)
        if len(left):
            locked = self._lock_fingerprints(sorted_distinct(np.append(others, left)), "UPDATE")
        else:
            locked = self._lock_fingerprints(others, "KEY SHARE") if len(others) else others
        if not np.isin(others, locked).all():
            raise MetAnotherError("another transaction has deleted a fingerprint")

    def _lock_fingerprints(self, values: Int64s, strength: str) -> Int64s:
        """Lock the rows of fingerprints; return the fingerprints that exist."""
        found = self._link.rows(
            f"SELECT fingerprint FROM {self._tables.fingerprints} WHERE fingerprint = ANY($1) "
            f"ORDER BY fingerprint FOR {strength}",
            values,
        )
        return np.array(found, np.int64).ravel()

    def _drop_fingerprints(self, values: Int64s) -> None:
        """Delete the given locked fingerprints that no longer have a document."""
        self._link.do(
            f"DELETE FROM {self._tables.fingerprints} AS filed WHERE fingerprint = ANY($1) AND NOT EXISTS "
            f"(SELECT FROM {self._tables.documents} AS listed WHERE listed.fingerprint = filed.fingerprint)",
            values,
        )


def _distinct_words(values: Sequence[int]) -> Int64s:
    return sorted_distinct(signed_words(np.fromiter(values, np.uint64, len(values))))
