"""Find the tables at an index's address: all of them, some of them, or unrelated tables with the same names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hsimhash.errors import CorruptionError, IndexNotFoundError, create_one
from hsimhash.store.base import DISTANCE_PART, IDENTITY_PART, RECORD_PARTS
from hsimhash.store.postgresql.address import DatabaseAddress
from hsimhash.store.postgresql.codec import table_name

_Ask = Callable[..., list[Any]]  # executes a statement on a connection: `Link.rows`

_SHAPES = {  # the columns of each table, by its suffix
    "": {"doc_id text", "fingerprint bigint", "first_seen bigint", "sketch bigint", "key bigint"},
    "_fingerprints": {"fingerprint bigint"},
    "_record": {"name text", "value text"},
}
_PARTS = ", ".join(f"'{part.decode()}'" for part in (*RECORD_PARTS, DISTANCE_PART, IDENTITY_PART))


class Remains(NamedTuple):
    """The tables at an index's address.

    Args:
        tables: Suffixes of the existing tables.
        of_others: A table that does not belong to an index, not even an incomplete one; or an empty string.
        lost: What is missing from an index there; or an empty string.
        has_record: Whether parts of a record exist.
    """

    tables: list[str]
    of_others: str
    lost: str
    has_record: bool

    def half(self, address: DatabaseAddress) -> str:
        """Return the error message for an incomplete index."""
        if self.has_record:
            return (
                f"part of the index at {address} is missing: {self.lost}; restore a backup, or delete the index with "
                f"'hsimhash drop-table' and ingest the documents again"
            )
        return f"incomplete index at {address}: {self.lost}; delete it with 'hsimhash drop-table'"


def remains_at(ask: _Ask, address: DatabaseAddress) -> Remains:
    """Look for an index's tables; they may have additional columns only if a record exists."""
    found = _columns(ask, address)
    is_recorded: bool | None = None  # None: the record is empty or missing
    if _SHAPES["_record"] <= found.get("_record", set()):
        is_part = f"bool_or(name IN ({_PARTS}) OR name LIKE '%:%')"
        ((is_recorded,),) = ask(f"SELECT {is_part} FROM {table_name(address, '_record')}")
    lost, of_others = [], ""
    for suffix, shape in _SHAPES.items():
        name, columns = f"{address.full_table}{suffix}", found.get(suffix)
        if columns is None:
            lost.append(f"table {name} is missing")
        elif is_recorded is False or not (shape <= columns if is_recorded else shape == columns):
            of_others = of_others or name
        elif suffix == "_record" and not is_recorded:
            lost.append(f"table {name} is empty")
    return Remains(list(found), of_others, ", ".join(lost), bool(is_recorded))


def refuse_no_tables(ask: _Ask, address: DatabaseAddress) -> None:
    """Raise an error unless all tables of an index exist.

    Raises:
        IndexNotFoundError: There is no index, or only an incomplete one without a record.
        CorruptionError: A record exists, but some tables are missing.
    """
    remains = remains_at(ask, address)
    if remains.of_others:
        raise IndexNotFoundError(
            f"no index at {address}: table {remains.of_others} does not belong to an index; choose another name with "
            f"table="
        )
    if not remains.tables:
        raise IndexNotFoundError(f"no index at {address}: there is no such table; " + create_one(address.index_url))
    if remains.lost:
        raise (CorruptionError if remains.has_record else IndexNotFoundError)(remains.half(address))


def _columns(ask: _Ask, address: DatabaseAddress) -> dict[str, set[str]]:
    """Return the name and type of each table's columns, by table suffix; views are treated as having no columns."""
    names = {f"{address.table}{suffix}": suffix for suffix in _SHAPES}
    rows = ask(
        "SELECT relname::text, attname || ' ' || format_type(atttypid, atttypmod) FROM pg_class "
        "JOIN pg_namespace ON pg_namespace.oid = relnamespace LEFT JOIN pg_attribute "
        "ON attrelid = pg_class.oid AND attnum > 0 AND NOT attisdropped AND relkind = 'r' "
        "WHERE nspname = $1::name AND relname IN ($2::name, $3::name, $4::name)",
        address.schema,
        *names,
    )
    found: dict[str, set[str]] = {}
    for name, column in rows:
        found.setdefault(names[name], set()).update([column] if column else [])
    return found
