"""What URLs of servers have in common: hosts with ports, options in the query, times among these, what is not shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from hsimhash.times import seconds_in

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:/?#\s]+))(?::(\d+))?")
_LEAST_S, _MOST_S = 0.001, 86_400


def hosts_in(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports, each pair once; a host without a port takes that of the last one, or the default.

    Raises:
        ValueError: one is no host, or its port no port.
    """
    named = [_host_and_port(one) for one in text.split(",")]
    port = named[-1][1] or default_port
    return tuple(dict.fromkeys((host, own or port) for host, own in named))


def _host_and_port(text: str) -> tuple[str, int | None]:
    found = _HOST.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a host; write host, host:port or [IPv6]:port")
    port = int(found[3]) if found[3] else None
    if port is not None and not 0 < port < 1 << 16:
        raise ValueError(f"port {port} is outside [1, 65535]")
    return found[1] or found[2], port


def host_text(host: str, port: int) -> str:
    """Return a host and its port as a URL has them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def options_in(query: str) -> list[tuple[str, str]]:
    """Return the options of a query, in order; `ValueError` where it has other parts."""
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise ValueError(f"its options are name=value, joined by &; {error}") from error


def option_texts(options: object, usual: object, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the options, by name, that are not as usual, as a query has them; `fields` are their attributes."""
    given = {name: (getattr(options, field), getattr(usual, field)) for name, field in fields.items()}
    return {
        name: f"{value:g}s" if isinstance(value, float) else str(value)
        for name, (value, default) in given.items()
        if value != default
    }


def time_option(name: str, value: str) -> float:
    """Return the seconds of an option that is a time; `ValueError` for any other text."""
    seconds = seconds_in(value)
    if seconds is None or not _LEAST_S <= seconds <= _MOST_S:
        raise ValueError(f"{name}={value} is not a time from 1ms to 1 day; write {name}=5s or {name}=500ms")
    return seconds


def check_tls_options(options: object, schemes: str, *, has_tls: bool) -> None:
    """Raise `ValueError` where the files of TLS (`ca`, `cert`, `key`) do not go with a URL, or with each other."""
    ca, cert, key = (getattr(options, name) for name in ("ca", "cert", "key"))
    if not has_tls and (ca or cert or key):
        raise ValueError(f"ca=, cert= and key= go with {schemes}")
    if key and not cert:
        raise ValueError("key= needs cert= beside it")
