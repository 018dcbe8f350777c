"""The URL of an index on Redis: `redis://app@cache:6379/0?prefix=pages&password_file=/run/secrets/redis`.

| scheme | server |
|---|---|
| `redis`, `rediss` | one server, without or with TLS; port 6379 by default |
| `unix` | one server on this machine: `unix:///run/redis.sock?db=0` |
| `redis+sentinel` | the master that sentinels report: `redis+sentinel://s1,s2:26379/mymaster/0` |

URLs are printed and logged, so they must not contain a password. The password is the first line of a file, or it is
passed separately. All keys of an index start with its prefix and a colon.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any
from urllib.parse import quote, unquote, urlencode

from hsimhash.store.urls import (
    check_tls_options,
    host_text,
    hosts_in,
    option_texts,
    options_in,
    parsed_url,
    time_option,
    unknown_option,
)

REDIS_SCHEMES = {"redis": 6379, "rediss": 6379, "unix": 0, "redis+sentinel": 26379}

_URL = re.compile(r"([\w+]+)://(?:([^@/?#]*)@)?([^/?#]*)(/[^?#]*)?(?:\?([^#]*))?", re.DOTALL)
_PREFIX = re.compile(r"[\w.-]{1,64}", re.ASCII)
_REMEDY = (
    "URLs are logged, so they must not contain a password; use user@host, and set HSIMHASH_REDIS_PASSWORD, or pass a "
    "file with the password: password_file=FILE"
)
_DATABASE = re.compile(r"\d{1,5}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """The servers or a socket's path, the database, and connection options. `str()` returns the URL.

    A URL's query can set every field that has a default.
    """

    scheme: str
    hosts: tuple[tuple[str, int], ...]  # empty for `unix`
    path: str  # only for `unix`
    service: str  # only for `redis+sentinel`
    database: int
    user: str
    prefix: str = "hsimhash"
    timeout_s: float = 5.0  # to connect, and for each reply
    deadline_s: float | None = None  # for a call with all its retries; None: `Opening.deadline_s`
    password_file: str = ""
    ca: str = ""  # file of trusted certificates; empty: the system's
    cert: str = ""
    key: str = ""

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """Parse a URL; if it is invalid, raise a `ValueError` that does not show a password."""
        return parsed_url(url, cls._parsed, _REMEDY)

    @classmethod
    def _parsed(cls, url: str) -> RedisAddress:
        found = _URL.fullmatch(url)
        if not found or found[1] not in REDIS_SCHEMES:
            raise ValueError(f"not a Redis URL: the scheme must be one of {', '.join(REDIS_SCHEMES)}")
        scheme, user, hosts, path, query = found.groups(default="")
        options = _options(query)
        named = options.pop("db", "")
        socket, service, database = "", "", unquote(path).removeprefix("/").removesuffix("/")
        if scheme == "unix":
            socket, database = unquote(path), named
            if hosts or not socket:
                raise ValueError("expected unix:///path/of/the/socket?db=0&prefix=pages")
        elif named:
            raise ValueError(f"the database must be in the path, {scheme}://host/{named}; remove db=")
        if scheme == "redis+sentinel":
            service, _, database = database.partition("/")
            if not service or "@" in service:
                raise ValueError("expected the name of a master, as in redis+sentinel://s1,s2:26379/mymaster/0")
        if database and not _DATABASE.fullmatch(database):
            raise ValueError(f"invalid database number {database!r}: expected {scheme}://host:6379/0?prefix=pages")
        servers = () if scheme == "unix" else hosts_in(hosts, REDIS_SCHEMES[scheme])
        if len(servers) > 1 and not service:
            raise ValueError(f"{scheme}:// supports only one server; for several sentinels, use redis+sentinel://")
        address = cls(scheme, servers, socket, service, int(database or 0), unquote(user), **options)
        check_tls_options(address, "rediss://", has_tls=scheme.startswith("rediss"))
        return address

    @property
    def index_url(self) -> str:
        """The URL without user and connection options."""
        return str(replace(self._without_options(), user="", prefix=self.prefix))

    @property
    def place(self) -> str:
        """The server, for messages."""
        if self.scheme == "unix":
            return self.path
        named = ",".join(host_text(*one) for one in self.hosts)
        return f"{self.service} of {named}" if self.service else named

    def _without_options(self) -> RedisAddress:
        return RedisAddress(self.scheme, self.hosts, self.path, self.service, self.database, self.user)

    def __str__(self) -> str:
        set_options = option_texts(self, self._without_options(), _FIELDS)
        path = f"/{self.service}/{self.database}" if self.service else f"/{self.database}"
        if self.scheme == "unix":
            path, set_options = quote(self.path), {"db": str(self.database), **set_options}
        hosts = self.place.rpartition(" ")[2] if self.hosts else ""
        user = f"{quote(self.user)}@" if self.user else ""
        query = urlencode(set_options, safe="/:")
        return f"{self.scheme}://{user}{hosts}{path}{'?' if query else ''}{query}"


_FIELDS = {one.name.removesuffix("_s"): one.name for one in fields(RedisAddress) if one.default is not MISSING}


def _options(query: str) -> dict[str, Any]:
    """Return the fields that a query sets, and the database that `db=` names."""
    values: dict[str, Any] = {}
    for name, value in options_in(query):
        if name == "username":
            raise ValueError("username= is not supported; write user@host")
        if name not in (*_FIELDS, "db"):
            raise unknown_option(name, _FIELDS)
        if _FIELDS.get(name, name) in values:
            raise ValueError(f"option {name} is given twice")
        values[_FIELDS.get(name, name)] = _value(name, value)
    return values


def _value(name: str, value: str) -> object:
    if name in ("timeout", "deadline"):
        return time_option(name, value)
    if name == "prefix" and not _PREFIX.fullmatch(value):
        raise ValueError(f"prefix must be 1 to 64 letters, digits, _, . or -, got {value}")
    if not value:
        raise ValueError(f"option {name} is empty; set a value, or remove the option")
    return value
