"""The store on PostgreSQL: three tables, with indexes as drawers, for any number of readers and writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from hsimhash.errors import CorruptionError
from hsimhash.fingerprint.bits import Int64s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import last_occurrences
from hsimhash.store.base import DEADLINE_S, Document, Mark, Record, Store
from hsimhash.store.postgresql.address import DatabaseAddress
from hsimhash.store.postgresql.audit import audit, scanned
from hsimhash.store.postgresql.bulk import DatabaseLoad
from hsimhash.store.postgresql.codec import COLUMNS, Tables, document_of, signed_word, table_name
from hsimhash.store.postgresql.existing_tables import refuse_no_tables
from hsimhash.store.postgresql.session import DatabaseSession, Link
from hsimhash.store.postgresql.view import DatabaseView
from hsimhash.store.postgresql.write import TableWrites
from hsimhash.store.reports import MOST_LISTED, SAMPLED_DOCUMENTS, CheckReport, CrowdedFingerprint, crowded
from hsimhash.store.runs import BulkLoad

_PAGE_DOCUMENTS = 10_000
_COUNTED_BYTES = 1 << 26  # about 200,000 documents: in larger tables, key rows are counted in a sample
_SAMPLED_OF_BLOCK = 20  # of about 100: documents added together are similar, so five times as many blocks are read
_HALVES = ((0, 1 << 63), (1 << 63, 1 << 64))  # within each half of the fingerprints, bigints sort like fingerprints


class DatabaseStore(Store):
    """The index in a table and its companion tables; see the module docstring and `Store`."""

    def __init__(self, url: str, session: DatabaseSession, record: Record) -> None:
        self.url = url
        self.record = record
        self.session = session
        self.tables = Tables(session.address, record)

    @classmethod
    def open(cls, url: str, *, deadline_s: float = DEADLINE_S) -> DatabaseStore:
        """Open the index in the tables at `url`; raise `IndexNotFoundError` if it does not exist."""
        address = DatabaseAddress.parse(url)
        session = DatabaseSession(url, address, deadline_s)
        try:
            record, session.made = session.call(lambda link: stored_record(link, address))
            return cls(url, session, record)
        except BaseException:
            session.close()
            raise

    def view(self, *, timeout_s: float | None = None) -> DatabaseView:
        return DatabaseView(self.session, self.tables, timeout_s)

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        return self.session.writing(stop)

    def insert(
        self, doc_ids: Sequence[bytes], signatures: Signatures, first_seen: Int64s, *, mark: Mark | None = None
    ) -> int:
        signatures, last = self.record.stored(signatures), last_occurrences(doc_ids)
        wanted = {doc_ids[place]: (signatures.at(place), int(first_seen[place])) for place in last}

        def put(link: Link) -> int:
            writes = TableWrites(link, self.tables)
            added = writes.put_documents(wanted) if wanted else 0
            if mark is not None:
                writes.set_marked(mark)
            return added

        return self.session.transaction(put)

    def marked(self, token: str) -> int:
        return int(self._part(Mark(token).key.decode()) or 0)

    def _part(self, name: str) -> str | None:
        statement = f"SELECT value FROM {self.tables.named('_record')} WHERE name = $1"
        found = self.session.call(lambda link: link.rows(statement, name))
        return found[0][0] if found else None

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        return self.session.transaction(lambda link: TableWrites(link, self.tables).remove_documents(doc_ids, before))

    def count(self, *, before: int | None = None, workers: int = 1, observer: Observer = UNWATCHED) -> int:
        old = "" if before is None else f" WHERE first_seen < {before:d}"
        statement = f"SELECT count(*) FROM {self.tables.documents}{old}"
        return int(self.session.call(lambda link: link.rows(statement), is_long=True)[0][0])

    def walk(self) -> Iterator[list[Document]]:
        return self.registered(0, 1)

    def registered(self, shard: int, shards: int) -> Iterator[list[Document]]:
        first, stop = ((number << 64) // shards for number in (shard, shard + 1))
        for low, high in _HALVES:
            if max(first, low) < min(stop, high):
                yield from self._pages(max(first, low), min(stop, high) - 1)

    def _pages(self, first: int, last: int) -> Iterator[list[Document]]:
        """Yield the documents with fingerprints from `first` to `last`, which must be in the same half."""
        statement = (
            f"SELECT {COLUMNS} FROM {self.tables.documents} WHERE (fingerprint, doc_id) > ($1, $2) "
            f"AND fingerprint <= $3 ORDER BY fingerprint, doc_id LIMIT {_PAGE_DOCUMENTS}"
        )
        after = signed_word(first), ""
        while True:
            given = *after, signed_word(last)
            rows = self.session.call(lambda link, given=given: link.rows(statement, *given))  # type: ignore[misc]
            if rows:
                yield list(map(document_of, rows))
            if len(rows) < _PAGE_DOCUMENTS:
                return
            after = rows[-1][1], rows[-1][0]

    def check(
        self, *, repair: bool = False, observer: Observer = UNWATCHED, workers: int = 1, folder: Path | None = None
    ) -> CheckReport:
        return audit(self.session, self.tables, repair=repair, observer=observer)

    def bulk(self, folder: Path, step_documents: int | None = None) -> BulkLoad:
        return DatabaseLoad(self.session, self.tables, folder, step_documents)

    def describe(self) -> dict[str, str | int]:
        """Return the server, the table, and counts of rows and bytes.

        `drawer_rows` counts the same rows as `check`, but estimates the rows of keys in large tables.
        `fingerprints_bytes` includes the drawers.
        """

        def read(link: Link) -> dict[str, str | int]:
            tables = self.tables
            ((fingerprints,),) = link.rows(f"SELECT count(*) FROM {tables.fingerprints}")
            ((documents_bytes, fingerprints_bytes),) = link.rows(
                "SELECT pg_total_relation_size($1::text::regclass), pg_total_relation_size($2::text::regclass)",
                tables.documents,
                tables.fingerprints,
            )
            return {
                "server": f"PostgreSQL {link.info.server_version // 10_000}.{link.info.server_version % 10_000}",
                "table": self.session.address.full_table,
                "fingerprints": fingerprints,
                "drawer_rows": fingerprints * len(self.record.layout.drawers),
                "documents_bytes": documents_bytes,
                "fingerprints_bytes": fingerprints_bytes,
            }

        facts = self.session.call(read, is_long=True)
        facts["drawer_rows"] = int(facts["drawer_rows"]) + self._key_rows(int(facts["documents_bytes"]))
        return facts

    def _key_rows(self, documents_bytes: int) -> int:
        """Count the rows that other stores keep in the key drawer; in a large table, estimate them from a sample."""
        if not self.record.has_signatures:
            return 0
        parts = 1 << (documents_bytes // _COUNTED_BYTES).bit_length()
        sample = f"hashint8(fingerprint) & {parts - 1} = 0"
        ((rows,),) = scanned(self.session, f"SELECT count(*) FROM ({self.tables.key_rows}) AS keyed WHERE {sample}")
        return rows * parts

    def crowds(self, *, sampled: int = SAMPLED_DOCUMENTS) -> tuple[CrowdedFingerprint, ...]:
        """See `Store.crowds`. In a large table, random blocks are sampled."""
        documents = self.tables.documents

        def read(link: Link) -> tuple[CrowdedFingerprint, ...]:
            size = "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint"
            ((blocks,),) = link.rows(size, documents)
            percent = min(100.0, 100 * sampled / _SAMPLED_OF_BLOCK / max(blocks, 1))
            sample = f"SELECT fingerprint FROM {documents} TABLESAMPLE SYSTEM ($1::float8) REPEATABLE (0)"
            words = np.array(link.rows(sample, percent), np.int64).ravel()
            return crowded(words.view(np.uint64).tolist(), lambda value: listed(link, value))

        def listed(link: Link, value: int) -> int:
            first = f"SELECT FROM {documents} WHERE fingerprint = $1 LIMIT {MOST_LISTED}"
            return int(link.rows(f"SELECT count(*) FROM ({first}) AS listed", signed_word(value))[0][0])

        return self.session.call(read, is_long=True)

    def close(self) -> None:
        self.session.close()


def stored_record(link: Link, address: DatabaseAddress) -> tuple[Record, str]:
    """Return the record of an index and the result of `made_sql`; for errors, see `refuse_no_tables`."""
    refuse_no_tables(link.rows, address)
    found = link.rows(f"SELECT name, value FROM {table_name(address, '_record')} WHERE name NOT LIKE '%:%'")
    try:
        record = Record.from_parts({name.encode(): value.encode() for name, value in found}, str(address))
    except (KeyError, ValueError) as error:
        raise CorruptionError(
            f"the record of {address} is damaged: {error}; restore a backup, or delete the index with 'hsimhash "
            f"drop-table'"
        ) from error

    def read(name: bytes) -> bytes | None:
        value = link.rows(f"SELECT value FROM {table_name(address, '_record')} WHERE name = $1", name.decode())
        return value[0][0].encode() if value else None

    parts = dict(found)
    made = "".join(parts.get(name, "") for name in ("identity", "layout", "profile"))
    return record.learn_lists(read, str(address)), made
