"""`check` for an index on PostgreSQL.

| finding | meaning | repair |
|---|---|---|
| a document whose fingerprint is not in `pages_fingerprints` | problem: queries miss it | the fingerprint is filed |
| a missing index | problem: queries are slow but correct; without a primary key, writes fail | the index is created |
| a document whose segments do not match its key | problem: queries by key miss it | the segments are corrected |
| a fingerprint without a document | leftover | deleted |

PostgreSQL guarantees that an index has every row of its table; `bt_index_check` in the amcheck extension verifies this.
"""

from __future__ import annotations

import numpy as np

from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store.postgresql.codec import Tables
from hsimhash.store.postgresql.session import DatabaseSession, Link
from hsimhash.store.reports import CheckReport

_KEYS = {"": "doc_id", "_fingerprints": "fingerprint", "_record": "name"}  # the primary key of each table, by suffix
_PAGE_DOCUMENTS = 20_000  # documents whose segments are compared at a time; limits memory use
_SCANS = "SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on"


def audit(
    session: DatabaseSession, tables: Tables, *, repair: bool = False, observer: Observer = UNWATCHED
) -> CheckReport:
    """Compare documents and fingerprints, and look for missing indexes; see the module docstring."""
    report = CheckReport()
    documents, fingerprints = tables.documents, tables.fingerprints
    steps = [
        f"SELECT count(*) FROM {documents}",
        f"SELECT count(*) FROM {fingerprints}",
        f"SELECT count(*) FROM ({tables.key_rows}) AS keyed",
    ]
    counts = []
    for number, statement in enumerate(steps):
        counts.append(scanned(session, statement)[0][0])
        observer.report("check", number + 1, len(steps) + 2)
    report.documents, rows, keyed = counts
    report.drawer_rows = rows * len(tables.record.layout.drawers) + keyed
    _check_indexes(session, tables, report, is_repair=repair)
    _check_filed(session, tables, report, is_repair=repair)
    _check_segments(session, tables, report, is_repair=repair)
    observer.report("check", len(steps) + 1, len(steps) + 2)
    _check_listed(session, tables, report, is_repair=repair)
    observer.report("check", len(steps) + 2, len(steps) + 2)
    return report


def scanned(session: DatabaseSession, statement: str) -> list[tuple[int, ...]]:
    """Return the rows of a statement that reads whole tables."""

    def read(link: Link) -> list[tuple[int, ...]]:
        link.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; {_SCANS}", prepare=False)
        rows = link.rows(statement)
        link.execute("COMMIT", prepare=False)
        return rows

    return session.call(read, is_long=True)


def missing_indexes(session: DatabaseSession, tables: Tables) -> dict[str, str]:
    """Return the statements that create missing or unfinished indexes, by name."""
    there = session.call(
        lambda link: link.rows(
            "SELECT relname::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
            "WHERE indrelid IN ($1::text::regclass, $2::text::regclass, $3::text::regclass) AND indisvalid",
            *map(tables.named, _KEYS),
        )
    )
    wanted = tables.indexes()
    for suffix, column in _KEYS.items():
        name = f"{tables.address.table}{suffix}_pkey"
        wanted[name] = f'CREATE UNIQUE INDEX "{name}" ON {tables.named(suffix)} ({column})'
    return {name: made for name, made in wanted.items() if (name,) not in there}


def make_indexes(session: DatabaseSession, tables: Tables) -> None:
    """Create the missing indexes."""
    for name, made in missing_indexes(session, tables).items():

        def make(link: Link, name: str = name, made: str = made) -> None:
            link.do(f'DROP INDEX IF EXISTS "{tables.address.schema}"."{name}"')
            link.do(made)

        session.transaction(make, is_long=True)


def _check_indexes(session: DatabaseSession, tables: Tables, report: CheckReport, *, is_repair: bool) -> None:
    missing = missing_indexes(session, tables)
    for name in missing:
        harm = "writes fail without it" if name.endswith("_pkey") else "queries read the whole table without it"
        report.problem(f"index {name} is missing: {harm}")
    if is_repair:
        make_indexes(session, tables)
        report.repaired += len(missing)


def _check_filed(session: DatabaseSession, tables: Tables, report: CheckReport, *, is_repair: bool) -> None:
    unfiled = (
        f"FROM {tables.documents} AS listed WHERE NOT EXISTS "
        f"(SELECT FROM {tables.fingerprints} AS filed WHERE filed.fingerprint = listed.fingerprint)"
    )
    for doc_id, fingerprint in scanned(session, f"SELECT doc_id, fingerprint {unfiled} ORDER BY doc_id"):
        report.problem(f"{doc_id!r} has fingerprint {fingerprint & (1 << 64) - 1:016x}, which is not in any drawer")
        report.repaired += is_repair
    if is_repair and report.problems:
        file = f"INSERT INTO {tables.fingerprints} SELECT DISTINCT fingerprint {unfiled} ON CONFLICT DO NOTHING"
        session.transaction(lambda link: link.do(file), is_long=True)


def _check_segments(session: DatabaseSession, tables: Tables, report: CheckReport, *, is_repair: bool) -> None:
    """Recompute the segments of all keys, page by page."""
    columns, after = ", ".join(tables.key_columns), ""
    while columns:
        page = f"SELECT doc_id, key, {columns} FROM {tables.documents} WHERE doc_id > $1 ORDER BY doc_id LIMIT $2"
        found = session.call(lambda link: link.rows(page, after, _PAGE_DOCUMENTS), is_long=True)  # noqa: B023
        if not found:
            return
        keys = np.array([row[1] for row in found], np.int64)
        right = tables.key_segments(keys.view(np.uint64))
        is_wrong = (np.array([row[2:] for row in found], np.int64) != right).any(axis=1)
        for place in np.flatnonzero(is_wrong).tolist():
            doc_id, key, *_ = found[place]
            report.problem(f"{doc_id!r} has segments that do not match its key {key & (1 << 64) - 1:016x}")
            report.repaired += is_repair
            values = ", ".join(map(str, right[place].tolist()))
            file = f"UPDATE {tables.documents} SET ({columns}) = ({values}) WHERE doc_id = $1 AND key = $2"
            if is_repair:
                session.transaction(lambda link: link.do(file, doc_id, key))  # noqa: B023
        after = found[-1][0]


def _check_listed(session: DatabaseSession, tables: Tables, report: CheckReport, *, is_repair: bool) -> None:
    unlisted = f"NOT EXISTS (SELECT FROM {tables.documents} AS listed WHERE listed.fingerprint = filed.fingerprint)"
    found = scanned(session, f"SELECT fingerprint FROM {tables.fingerprints} AS filed WHERE {unlisted}")
    for (fingerprint,) in found:
        report.leftover(f"fingerprint {fingerprint & (1 << 64) - 1:016x} does not belong to a document")
    if not (found and is_repair):
        return

    def delete(link: Link) -> int:  # locks rows first, so that concurrent writers either finish first or start over
        link.do(f"SELECT FROM {tables.fingerprints} AS filed WHERE {unlisted} ORDER BY fingerprint FOR UPDATE")
        return link.do(f"DELETE FROM {tables.fingerprints} AS filed WHERE {unlisted}")

    report.repaired += session.transaction(delete, is_long=True)
