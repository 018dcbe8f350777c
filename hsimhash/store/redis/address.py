"""Where an index on Redis is: `redis://app@cache:6379/0?prefix=pages&password_file=/run/secrets/redis`.

| scheme | what answers there |
|---|---|
| `redis`, `rediss` | one server, without and with TLS; port 6379 unless named |
| `unix` | one server on this machine: `unix:///run/redis.sock?db=0` |
| `redis+sentinel` | the master that sentinels name: `redis+sentinel://s1,s2:26379/mymaster/0` |

A URL is printed and logged, so it holds no password: that is the first line of a file. All keys of an index begin with
its prefix and a colon.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

from hsimhash.times import seconds_in

REDIS_SCHEMES = {"redis": 6379, "rediss": 6379, "unix": 0, "redis+sentinel": 26379}

_URL = re.compile(r"([\w+]+)://(?:([^@/?#]*)@)?([^/?#]*)(/[^?#]*)?(?:\?([^#]*))?", re.DOTALL)
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:/?#\s]+))(?::(\d+))?")
_PREFIX = re.compile(r"[\w.-]{1,64}", re.ASCII)
_DATABASE = re.compile(r"\d{1,5}", re.ASCII)
_MOST_S = 86_400


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """What the query of an address can set."""

    prefix: str = "hsimhash"
    timeout_s: float = 5.0  # to connect, and for each reply
    deadline_s: float | None = None  # for a call with all its retries; None: as the store is opened
    password_file: str = ""
    ca: str = ""  # file of certificates to trust; the system's where empty
    cert: str = ""
    key: str = ""


_FIELDS = {field.name.removesuffix("_s"): field.name for field in fields(RedisOptions)}


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Servers, or the path of a socket; a database; and how to talk to them. `str()` gives the URL."""

    scheme: str
    hosts: tuple[tuple[str, int], ...]  # of `unix` none
    path: str  # of `unix`
    service: str  # of `redis+sentinel`
    database: int
    user: str
    options: RedisOptions = RedisOptions()

    @classmethod
    def parse(cls, url: str) -> RedisAddress:
        """Return the parts of a URL; `ValueError` names what is wrong with it, and no password."""
        try:
            return cls._parsed(url)
        except ValueError as error:
            raise ValueError(f"store {re.sub('//[^/]*@', '//…@', url)!r}: {error}") from None

    @classmethod
    def _parsed(cls, url: str) -> RedisAddress:
        found = _URL.fullmatch(url)
        if not found or found[1] not in REDIS_SCHEMES:
            raise ValueError(f"not on Redis, whose schemes are {', '.join(REDIS_SCHEMES)}")
        scheme, user, hosts, path, query = found.groups(default="")
        if ":" in user:
            raise ValueError("a URL is logged, so it holds no password; write it to a file, and password_file=FILE")
        options, named = _options(query)
        _check_tls(scheme, options)
        socket, service, database = "", "", unquote(path).removeprefix("/").removesuffix("/")
        if scheme == "unix":
            socket, database = unquote(path), named
            if hosts or not socket:
                raise ValueError("write unix:///path/of/the/socket?db=0&prefix=pages")
        elif named:
            raise ValueError(f"the database stands in the path, {scheme}://host/{named}; leave db= out")
        if scheme == "redis+sentinel":
            service, _, database = database.partition("/")
            if not service:
                raise ValueError("name the master that the sentinels watch: redis+sentinel://s1,s2:26379/mymaster/0")
        if database and not _DATABASE.fullmatch(database):
            raise ValueError(f"{database!r} is not the number of a database; write {scheme}://host:6379/0?prefix=pages")
        servers = () if scheme == "unix" else _servers(hosts, REDIS_SCHEMES[scheme])
        if len(servers) > 1 and scheme != "redis+sentinel":
            raise ValueError(f"{scheme}:// takes one server; several are for redis+sentinel://")
        return cls(scheme, servers, socket, service, int(database or 0), unquote(user), options)

    @property
    def place(self) -> str:
        """What answers there, for messages."""
        if self.scheme == "unix":
            return self.path
        named = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        return f"{self.service} of {named}" if self.service else named

    def __str__(self) -> str:
        set_options = {
            name: f"{value:g}s" if isinstance(value, float) else str(value)
            for name, field in _FIELDS.items()
            if (value := getattr(self.options, field)) != getattr(RedisOptions(), field)
        }
        path = f"/{self.service}/{self.database}" if self.service else f"/{self.database}"
        if self.scheme == "unix":
            path, set_options = quote(self.path), {"db": str(self.database), **set_options}
        hosts = self.place.rpartition(" ")[2] if self.hosts else ""
        user = f"{quote(self.user)}@" if self.user else ""
        query = urlencode(set_options, safe="/:")
        return f"{self.scheme}://{user}{hosts}{path}{'?' if query else ''}{query}"


def _servers(hosts: str, default_port: int) -> tuple[tuple[str, int], ...]:
    found = [(text, _HOST.fullmatch(text)) for text in hosts.split(",")]
    for text, match in found:
        if match is None or not 0 < int(match[3] or default_port) < 1 << 16:
            raise ValueError(f"{text!r} is not a host; write host, host:port or [IPv6]:port")
    named = [(match[1] or match[2], match[3]) for _, match in found if match]
    port = named[-1][1] or default_port
    return tuple(dict.fromkeys((host, int(own or port)) for host, own in named))


def _options(query: str) -> tuple[RedisOptions, str]:
    """Return the options, and the database that `db=` names."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise ValueError(f"its options are name=value, joined by &; {error}") from None
    values: dict[str, Any] = {}
    for name, value in pairs:
        if name in ("password", "username"):
            raise ValueError("a URL is logged, so it holds no password; use user@host and password_file=FILE")
        if name not in (*_FIELDS, "db"):
            nearest = difflib.get_close_matches(name, _FIELDS, n=1, cutoff=0)[0]
            raise ValueError(f"unknown option {name}; the nearest known one is {nearest}")
        if _FIELDS.get(name, name) in values:
            raise ValueError(f"option {name} is given twice")
        values[_FIELDS.get(name, name)] = _value(name, value)
    named = values.pop("db", "")
    return RedisOptions(**values), named


def _value(name: str, value: str) -> object:
    if name in ("timeout", "deadline"):
        seconds = seconds_in(value)
        if seconds is None or not 0.001 <= seconds <= _MOST_S:
            raise ValueError(f"{name}={value} is not a time from 1ms to 1 day; write {name}=5s or {name}=500ms")
        return seconds
    if name == "prefix" and not _PREFIX.fullmatch(value):
        raise ValueError(f"prefix={value} must be 1 to 64 letters, digits, _, . or -")
    if not value:
        raise ValueError(f"option {name} is empty; leave it out, or give it a value")
    return value


def _check_tls(scheme: str, options: RedisOptions) -> None:
    if scheme != "rediss" and (options.ca or options.cert or options.key):
        raise ValueError("ca=, cert= and key= go with rediss://")
    if options.key and not options.cert:
        raise ValueError("key= needs cert= beside it")
