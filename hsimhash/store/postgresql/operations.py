"""Create, describe and drop an index on PostgreSQL, by its URL."""

from __future__ import annotations

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError
from hsimhash.store.base import DEADLINE_S, IDENTITY_PART, Record
from hsimhash.store.postgresql import checkup
from hsimhash.store.postgresql.address import DatabaseAddress
from hsimhash.store.postgresql.codec import Tables, lock_number, table_name
from hsimhash.store.postgresql.existing_tables import remains_at
from hsimhash.store.postgresql.session import DatabaseSession, Link
from hsimhash.store.postgresql.store import DatabaseStore, stored_record

open_at = DatabaseStore.open
checks = checkup.checks


def table_sql(url: str, record: Record) -> list[str]:
    """Return the statements that create an empty index with its record, without their semicolons."""
    tables = Tables(DatabaseAddress.parse(url), record)
    parts = record.list_parts() | record.to_parts()
    values = ", ".join(f"('{name.decode()}', {_literal(value.decode())})" for name, value in parts.items())
    values += f", ('{IDENTITY_PART.decode()}', pg_catalog.gen_random_uuid()::text)"
    return [*tables.definitions(), f"INSERT INTO {tables.named('_record')} VALUES {values}"]


def _literal(text: str) -> str:
    """Return a string as an SQL literal, valid for any setting of standard_conforming_strings."""
    quoted = text.replace("'", "''")
    return f"'{quoted}'" if "\\" not in text else " E'" + quoted.replace("\\", "\\\\") + "'"


def create_at(url: str, record: Record) -> DatabaseStore:
    """Create an empty index in one transaction, and open it; raise `IndexExistsError` if one of its tables exists."""
    address = DatabaseAddress.parse(url)
    session = DatabaseSession(url, address, DEADLINE_S)

    def make(link: Link) -> str:
        link.execute(f"SELECT pg_advisory_xact_lock({lock_number(address) ^ 1})", prepare=False)
        _refuse_other_encodings(link, address)
        remains = remains_at(link.rows, address)
        if remains.of_others:
            raise IndexExistsError(
                f"table {remains.of_others} exists but does not belong to an index; choose another name with table="
            )
        if remains.tables:
            there = f"an index already exists at {address}; open it, or choose another name with table="
            raise IndexExistsError(remains.half(address) if remains.lost else there)
        for statement in table_sql(url, record):
            link.execute(statement.encode(), prepare=False)
        return stored_record(link, address)[1]

    try:
        session.made = session.transaction(make)
        return DatabaseStore(url, session, record)
    except BaseException:
        session.close()
        raise


def _refuse_other_encodings(link: Link, address: DatabaseAddress) -> None:
    encoding = link.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise HsimhashError(
            f"the database {address.name} has encoding {encoding}, which cannot store all document ids; create a "
            f"database with 'createdb -E UTF8 -T template0'"
        )


def refuse_no_index(url: str) -> None:
    """Raise an error if `url` has no tables, or a table that does not belong to an index, not even a damaged one."""
    session = DatabaseSession(url, DatabaseAddress.parse(url), DEADLINE_S)
    try:
        session.call(lambda link: _remaining_tables(link, session.address))
    finally:
        session.close()


def drop_at(url: str) -> None:
    """Delete the tables of an index, even an incomplete one, in one transaction."""
    session = DatabaseSession(url, DatabaseAddress.parse(url), DEADLINE_S)
    address = session.address

    def drop(link: Link) -> None:
        names = ", ".join(table_name(address, suffix) for suffix in _remaining_tables(link, address))
        link.execute(f"DROP TABLE {names}".encode(), prepare=False)

    try:
        with session.writing():
            session.transaction(drop, is_long=True)
    finally:
        session.close()


def _remaining_tables(link: Link, address: DatabaseAddress) -> list[str]:
    """Return the suffixes of an index's tables; raise an error if there are none, or one that belongs elsewhere."""
    remains = remains_at(link.rows, address)
    if remains.of_others:
        raise HsimhashError(f"table {remains.of_others} does not belong to an index and was kept; drop it with psql")
    if not remains.tables:
        raise IndexNotFoundError(f"no index at {address}: there is no such table")
    return remains.tables
