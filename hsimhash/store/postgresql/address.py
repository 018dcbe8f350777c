"""Where an index on PostgreSQL is: `postgresql://user@host:5432/db?table=pages&timeout=5s&sslmode=verify-full`.

`table`, `timeout` and `deadline` are ours; all other options, and the hosts, are libpq's. No URL holds a password:
libpq takes it from ~/.pgpass, from the file of `passfile=` or from PGPASSWORD.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlencode

from hsimhash.store.urls import options_in, time_option

POSTGRESQL_SCHEME = "postgresql"
DEFAULT_SCHEMA = "public"
_URL = re.compile(r"postgresql://(?:([^@/?#]*)@)?([^@/?#]*)/([^/?#]*)(?:\?([^#]*))?")
_TABLE = re.compile(r"(?:([a-z_][a-z0-9_]{0,62})\.)?([a-z_][a-z0-9_]{0,44})")
_SECRETS = {"password", "sslpassword"}
_TIMES = {"timeout": 5.0, "deadline": None}


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """What libpq connects to, without our own options, and which tables the index has; it holds no secret.

    Args:
        conninfo: a URL for libpq.
        name: hosts and database, for messages.
        schema: of the tables.
        table: the name of the documents' table, with which the others begin.
        timeout_s: to connect.
        deadline_s: for a call with all its retries; None: as the caller says.
    """

    conninfo: str
    name: str
    schema: str
    table: str
    timeout_s: float
    deadline_s: float | None

    @classmethod
    def parse(cls, url: str) -> DatabaseAddress:
        """Return the parts of a URL; `ValueError` names what is wrong with it, never a password."""
        try:
            return cls._parsed(url)
        except ValueError as error:
            shown = re.sub(r"//[^/?]*@", "//…@", re.sub(r"(password=)[^&]*", r"\1…", url))
            raise ValueError(f"store {shown!r}: {error}") from None

    @classmethod
    def _parsed(cls, url: str) -> DatabaseAddress:
        found = _URL.fullmatch(url)
        if not found:
            raise ValueError("write postgresql://user@host:5432/database?table=pages")
        user, hosts, database, query = found.groups(default="")
        options = options_in(query)
        named = dict(options)
        if len(named) < len(options):
            raise ValueError("an option is given twice")
        if ":" in user or named.keys() & _SECRETS:
            raise ValueError("a URL holds no password; write it into ~/.pgpass, or into the file of passfile=")
        schema, table = _table_of(named.pop("table", ""))
        timeout_s, deadline_s = (
            time_option(name, named.pop(name)) if name in named else usual for name, usual in _TIMES.items()
        )
        rest = urlencode(named, quote_via=quote)
        who = f"{user}@" if user else ""
        conninfo = f"{POSTGRESQL_SCHEME}://{who}{hosts}/{database}{'?' if rest else ''}{rest}"
        hosts = hosts or named.get("host", "") or "localhost"
        if named.get("port"):
            hosts = f"{hosts}:{named['port']}"
        name = f"{hosts}/{unquote(database) or named.get('dbname', '')}"
        return cls(conninfo, name, schema, table, timeout_s or 5.0, deadline_s)

    @property
    def full_table(self) -> str:
        """The table with its schema."""
        return f"{self.schema}.{self.table}"

    def __str__(self) -> str:
        """Return the name of the index, whoever talks to it and how."""
        return f"{POSTGRESQL_SCHEME}://{self.name}?table={self.full_table}"


def _table_of(text: str) -> tuple[str, str]:
    found = _TABLE.fullmatch(text)
    if not found:
        wrong = f"table={text} is none" if text else "no table is named"
        raise ValueError(
            f"{wrong}; write ?table=pages or ?table=schema.pages: lower-case letters, digits and _, at most 45"
        )
    return found[1] or DEFAULT_SCHEMA, found[2]
