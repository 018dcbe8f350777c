"""The URL of an index on PostgreSQL: `postgresql://user@host:5432/db?table=pages&timeout=5s&sslmode=verify-full`.

hsimhash itself uses the options `table`, `timeout`, `deadline` and `lock_timeout`. All other options, and the hosts,
are passed to libpq. URLs must not contain a password: libpq reads it from ~/.pgpass, from the file that `passfile=`
names, or from PGPASSWORD. Unknown options are rejected, because they may be secrets and URLs are printed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlencode

from hsimhash.store.base import LOCK_TIMEOUT_S
from hsimhash.store.urls import DEADLINE, LOCK_TIMEOUT, options_in, parsed_url, time_option, unknown_option

POSTGRESQL_SCHEME = "postgresql"
DEFAULT_SCHEMA = "public"
_URL = re.compile(r"postgresql://(?:([^@/?#]*)@)?([^@/?#]*)/([^@/?#]*)(?:\?([^#]*))?")
_TABLE = re.compile(r"(?:([a-z_][a-z0-9_]{0,62})\.)?([a-z_][a-z0-9_]{0,44})")
_TIMES = ("timeout", DEADLINE, LOCK_TIMEOUT)
_REMEDY = "a URL must not contain a password; put it in ~/.pgpass, or in a file that you pass with passfile="
# The options of libpq 18, except for secrets.
_OPTIONS = frozenset(
    "application_name channel_binding client_encoding connect_timeout dbname fallback_application_name gssdelegation "  # noqa: SIM905
    "gssencmode gsslib host hostaddr keepalives keepalives_count keepalives_idle keepalives_interval krbsrvname "
    "load_balance_hosts max_protocol_version min_protocol_version oauth_client_id oauth_issuer oauth_scope options "
    "passfile port replication require_auth requirepeer requiressl service servicefile ssl ssl_max_protocol_version "
    "ssl_min_protocol_version sslcert sslcertmode sslcompression sslcrl sslcrldir sslkey sslkeylogfile sslmode "
    "sslnegotiation sslrootcert sslsni target_session_attrs tcp_user_timeout user".split()
)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address for libpq, without hsimhash's own options, and the index's tables. It does not contain secrets.

    Args:
        conninfo: URL for libpq.
        name: Hosts and database, for messages.
        schema: Schema of the tables.
        table: Name of the table of documents; the names of the other tables start with it.
        timeout_s: Time to connect, in seconds.
        deadline_s: Time for a call with all its retries, in seconds; None: the caller's choice.
        lock_timeout_s: How long a write waits for another write, in seconds.
    """

    conninfo: str
    name: str
    schema: str
    table: str
    timeout_s: float
    deadline_s: float | None
    lock_timeout_s: float

    @classmethod
    def parse(cls, url: str) -> DatabaseAddress:
        """Parse a URL; if it is invalid, raise a `ValueError` that does not show a password."""
        return parsed_url(url, cls._parsed, _REMEDY)

    @classmethod
    def _parsed(cls, url: str) -> DatabaseAddress:
        found = _URL.fullmatch(url)
        if not found:
            raise ValueError("expected postgresql://user@host:5432/database?table=pages")
        user, hosts, database, query = found.groups(default="")
        options = options_in(query)
        named = dict(options)
        if len(named) < len(options):
            raise ValueError("an option is given twice")
        known = [*_OPTIONS, "table", *_TIMES]
        for name in [name for name in named if name not in known]:
            raise unknown_option(name, known)
        schema, table = _table_of(named.pop("table", ""))
        times = {name: time_option(name, named.pop(name)) for name in _TIMES if name in named}
        rest = urlencode(named, quote_via=quote)
        who = f"{user}@" if user else ""
        conninfo = f"{POSTGRESQL_SCHEME}://{who}{hosts}/{database}{'?' if rest else ''}{rest}"
        hosts = hosts or named.get("host", "") or "localhost"
        if named.get("port"):
            hosts = f"{hosts}:{named['port']}"
        name = f"{hosts}/{unquote(database) or named.get('dbname', '')}"
        return cls(
            conninfo,
            name,
            schema,
            table,
            timeout_s=times.get("timeout", 5.0),
            deadline_s=times.get(DEADLINE),
            lock_timeout_s=times.get(LOCK_TIMEOUT, LOCK_TIMEOUT_S),
        )

    @property
    def full_table(self) -> str:
        """The table with its schema."""
        return f"{self.schema}.{self.table}"

    @property
    def index_url(self) -> str:
        """The URL with user and options, but without time limits."""
        return f"{self.conninfo}{'&' if '?' in self.conninfo else '?'}table={self.full_table}"

    def __str__(self) -> str:
        """Return the URL that identifies the index, without user and options."""
        return f"{POSTGRESQL_SCHEME}://{self.name}?table={self.full_table}"


def _table_of(text: str) -> tuple[str, str]:
    found = _TABLE.fullmatch(text)
    if not found:
        wrong = f"invalid table={text}" if text else "no table in the URL"
        raise ValueError(
            f"{wrong}: expected ?table=pages or ?table=schema.pages, with at most 45 lower-case letters, digits and _"
        )
    return found[1] or DEFAULT_SCHEMA, found[2]
