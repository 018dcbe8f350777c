"""Addresses of indexes on HBase: `hbase://gw1,gw2:9091/namespace:table?transport=framed&timeout=5s`.

| scheme | server |
|---|---|
| `hbase` | a Thrift gateway on a socket, with either interface (detected); default port 9091 |
| `hbase+thrift1` | a gateway with the first Thrift interface; default port 9090 |
| `hbase+https`, `hbase+http` | a gateway in HTTP mode, with and without TLS; default port 9091 |

A host without a port uses the port of the last host. IPv6 addresses need brackets. `auth=kerberos` works with every
scheme.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple
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

DEFAULT_PORTS = {"hbase": 9091, "hbase+thrift1": 9090, "hbase+https": 9091, "hbase+http": 9091}
DEFAULT_NAMESPACE = "default"

_HTTP = ("hbase+https", "hbase+http")
_URL = re.compile(r"([\w+.-]+)://([^/?#]*)(/[^?#]*)?(?:\?([^#]*))?(?:#.*)?", re.DOTALL)
_TABLE = re.compile(r"[\w][\w.-]*", re.ASCII)
_NAMESPACE = re.compile(r"\w+", re.ASCII)
_SERVICE = re.compile(r"[\w.-]+", re.ASCII)
_REMEDY = "an hbase:// URL must not have a user or a password; to log in, use auth=kerberos"


class Endpoint(NamedTuple):
    """A gateway's host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_text(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Options:
    """The options in an address's query string."""

    transport: str = "buffered"
    protocol: str = "binary"
    timeout_s: float = 5.0  # for connecting, and for each call
    deadline_s: float | None = None  # for a call with all its retries, restarted by each reply; None: see `Caller`
    exclusive: bool = False  # see `HBaseStore`
    connections: int = 8  # maximum in use, across all gateways
    path: str = "/"  # in HTTP mode
    ca: str = ""  # file with certificates to trust; empty: the system's certificates
    cert: str = ""
    key: str = ""
    auth: str = ""
    service: str = ""  # the first part of the gateways' Kerberos principal; empty: see `Address.service`
    qop: str = ""  # empty: the strongest one that the gateway offers
    info_port: int = 16_030  # info port of the region servers; see `info_port.py`


_FIELDS = {field.name.removesuffix("_s"): field.name for field in fields(Options)}
_CHOICES = {
    "transport": ("buffered", "framed"),
    "protocol": ("binary", "compact"),
    "auth": ("kerberos",),
    "exclusive": ("yes", "no"),
    "qop": ("auth", "auth-int", "auth-conf"),
}


@dataclass(frozen=True, slots=True)
class Address:
    """A table, its gateways and how to connect to them; `str()` gives the URL, which never contains a secret."""

    scheme: str
    gateways: tuple[Endpoint, ...]
    namespace: str
    table: str
    options: Options = Options()

    @classmethod
    def parse(cls, url: str) -> Address:
        """Parse a URL; raise a `ValueError` that describes the problem but never contains a secret."""
        return parsed_url(url, cls._parsed, _REMEDY)

    @classmethod
    def _parsed(cls, url: str) -> Address:
        found = _URL.fullmatch(url)
        if not found or found[1] not in DEFAULT_PORTS:
            raise ValueError(f"not an HBase URL: the scheme must be one of {', '.join(DEFAULT_PORTS)}")
        scheme, hosts, path, query = found.groups(default="")
        if "@" in hosts or "#" in url:
            raise ValueError("an address must not have a user or a fragment")
        namespace, table = _table(unquote(path).removeprefix("/"))
        options = _options(query)
        _check_options(scheme, options)
        gateways = tuple(Endpoint(host, port) for host, port in hosts_in(hosts, DEFAULT_PORTS[scheme]))
        return cls(scheme, gateways, namespace, table, options)

    @property
    def full_table(self) -> bytes:
        """The table's name in calls to HBase."""
        return f"{self.namespace}:{self.table}".encode()

    @property
    def index_url(self) -> str:
        """The URL without connection options."""
        return str(replace(self, options=Options(path=self.options.path)))

    @property
    def is_http(self) -> bool:
        """Whether calls are HTTP requests."""
        return self.scheme in _HTTP

    @property
    def service(self) -> str:
        """The service in the gateways' Kerberos principal."""
        return self.options.service or ("HTTP" if self.is_http else "hbase")

    def __str__(self) -> str:
        hosts = ",".join(map(str, self.gateways))
        query = urlencode(option_texts(self.options, Options(), _FIELDS), safe="/:")
        return f"{self.scheme}://{hosts}/{quote(self.namespace)}:{quote(self.table)}{'?' if query else ''}{query}"


def _check_options(scheme: str, options: Options) -> None:
    if scheme in _HTTP and (options.transport, options.protocol) != ("buffered", "binary"):
        raise ValueError("transport= and protocol= do not apply to HTTP; leave them out")
    check_tls_options(options, "hbase+https://", has_tls=scheme == "hbase+https")
    if not options.auth and (options.service or options.qop):
        raise ValueError("service= and qop= require auth=kerberos")
    if options.auth and options.transport == "framed":
        raise ValueError("auth=kerberos cannot be combined with transport=framed; leave one of them out")
    if options.qop and scheme in _HTTP:
        raise ValueError("qop= does not apply to HTTP; use hbase+https:// for encryption")
    if options.service and not _SERVICE.fullmatch(options.service):
        raise ValueError(
            f"service= must be the first part of a principal, such as hbase in hbase/gw1.example.org@EXAMPLE.ORG, "
            f"got {options.service}"
        )


def _table(name: str) -> tuple[str, str]:
    namespace, separator, table = name.rpartition(":")
    if not separator:
        namespace = DEFAULT_NAMESPACE
    if not _TABLE.fullmatch(table) or not _NAMESPACE.fullmatch(namespace):
        raise ValueError(
            f"invalid table name {name!r}: expected hbase://gateway/namespace:table with letters, digits and _ (and . "
            f"or - after a table's first character)"
        )
    return namespace, table


def _options(query: str) -> Options:
    values: dict[str, Any] = {}
    for name, value in options_in(query):
        if name not in _FIELDS:
            raise unknown_option(name, _FIELDS)
        if _FIELDS[name] in values:
            raise ValueError(f"option {name} is given twice")
        values[_FIELDS[name]] = _value(name, value)
    return Options(**values)


def _value(name: str, value: str) -> object:
    if name in _CHOICES and value not in _CHOICES[name]:
        raise ValueError(f"{name}= must be one of {', '.join(_CHOICES[name])}, got {value}")
    if name in ("timeout", "deadline"):
        return time_option(name, value)
    if name == "exclusive":
        return value == "yes"
    if name == "info_port":
        if not re.fullmatch(r"[1-9]\d{0,4}", value) or int(value) >= 1 << 16:
            raise ValueError(f"info_port= must be 1 to 65535, got {value}")
        return int(value)
    if name == "connections":
        if not re.fullmatch(r"[1-9]\d{0,2}", value):
            raise ValueError(f"connections= must be 1 to 999, got {value}")
        return int(value)
    if not value:
        raise ValueError(f"option {name} is empty; leave it out, or give it a value")
    return value
