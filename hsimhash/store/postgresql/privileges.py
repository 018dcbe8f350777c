"""What the database user may do with an index's tables.

| calls | privileges |
|---|---|
| queries | SELECT |
| writes | also INSERT, UPDATE and DELETE; UPDATE is needed to lock rows |
| create and drop database indexes | the user is or inherits from the owner, and has CREATE on the schema |
"""

from __future__ import annotations

from typing import NamedTuple

from hsimhash.store.postgresql.codec import SUFFIXES, Tables
from hsimhash.store.postgresql.session import Link

_WRITES = "INSERT", "UPDATE", "DELETE"


class Privileges(NamedTuple):
    """The privileges of a connection's user.

    Args:
        user: Name of the user.
        unreadable: Tables without the SELECT privilege.
        unwritable: Tables without a privilege that writes need.
        lacking: The missing privileges for writes, in SQL's words.
        owns: Whether the user owns all tables, or inherits from their owners.
        creates: Whether the user can create tables and database indexes in the schema.
    """

    user: str
    unreadable: list[str]
    unwritable: list[str]
    lacking: list[str]
    owns: bool
    creates: bool

    @property
    def can_rebuild(self) -> bool:
        """Whether the user can drop and recreate the database indexes."""
        return self.owns and self.creates


def privileges(link: Link, tables: Tables) -> Privileges:
    """Return what a connection's user may do with an index's tables."""
    names = [tables.named(suffix) for suffix in SUFFIXES]
    ((user, owns, creates),) = link.rows(
        "SELECT current_user::text, bool_and(pg_has_role(relowner, 'USAGE')), "
        "has_schema_privilege($2::text, 'CREATE') FROM pg_class WHERE oid = ANY($1::text[]::regclass[]::oid[])",
        names,
        tables.address.schema,
    )
    lacking = link.rows(
        "SELECT name, privilege FROM unnest($1::text[]) AS name, unnest($2::text[]) AS privilege "
        "WHERE NOT has_table_privilege(name, privilege)",
        names,
        ["SELECT", *_WRITES],
    )
    readless = {name for name, privilege in lacking if privilege == "SELECT"}
    writeless = {name for name, privilege in lacking if privilege in _WRITES}
    return Privileges(
        user,
        [name.replace('"', "") for name in names if name in readless],
        [name.replace('"', "") for name in names if name in writeless],
        [privilege for privilege in _WRITES if any(privilege == one for _, one in lacking)],
        owns,
        creates,
    )
