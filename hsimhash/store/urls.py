"""Shared parts of server URLs: hosts with ports, options in the query, times, masking of secrets.

Store URLs must not contain passwords, because they are printed and logged. If a URL contains one anyway, messages do
not show it: `masked` hides it even if it makes the URL invalid, for example with a raw `/`, `?`, `#` or `@`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl, unquote

from hsimhash.durations import seconds_in
from hsimhash.errors import most_like

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([^\[\]:/?#\s]+))(?::(\d+))?")
_LEAST_S, _MOST_S = 0.001, 86_400
DEADLINE, EXCLUSIVE, LOCK_TIMEOUT = "deadline", "exclusive", "lock_timeout"  # options of some stores

# `masked` shows the values of only these options. `key`, `auth` and similar names are left out because they are secrets
# in the URLs of other programs.
_HARMLESS = frozenset(
    "application_name ca cert connect_timeout connections db dbname deadline exclusive host "  # noqa: SIM905
    "hostaddr info_port lock_timeout passfile password_file path port prefix protocol qop service "
    "sslmode sslrootcert table target_session_attrs timeout transport user".split()
)
# Our own schemes are shown even if a slash is missing, as in `postgresql:/db1/crawl`. Any other text before `:/` may be
# a user before a password.
_OWN_SCHEME = r"(?:hbase(?:\+\w+)?|lmdb|memory|postgresql|redis(?:\+sentinel|s)?|tables|unix)"
_HEAD = re.compile(rf"(?:[^=]*?[\s('\"])??(?:(?:jdbc:)?[A-Za-z][\w+.-]*://|{_OWN_SCHEME}:/)")
_AFTER_AUTHORITY = re.compile(r"[/?#].*", re.DOTALL)
_USER = re.compile(r"(?:.*@)?(?:[^/?#]*%40)?", re.DOTALL)  # up to the last @ anywhere in the URL
_SEPARATOR = re.compile(r"([?#&;\s]+)")
_OPTION = re.compile(r"[?#&;\s][^=]*=")
_HIDDEN_PARTS = re.compile(r"…(?:[?#&;\s]+…)+")
_IPV6 = re.compile(r"\[.*?\]")
_NOT_A_PORT = re.compile(r":(?!\d*(?:,|$))")
_SECRET_NAME = re.compile(r"pass(?!file|word_file)|pwd|secret|token|credential", re.IGNORECASE)
_PATH_STARTS = ("/", "./", "../", "~")
Parsed = TypeVar("Parsed")


def url_of(place: str | os.PathLike[str]) -> str:
    """Return the URL of a store, given its URL or the path of an embedded index's folder.

    A path is a `Path`, or a string that begins with `/`, `./`, `../` or `~`. Any other string is returned unchanged.
    """
    if isinstance(place, os.PathLike):
        return f"lmdb://{os.fsdecode(place)}"
    if not isinstance(place, str):
        raise TypeError(f"an index must be a URL or a path, got {type(place).__name__}: {masked(repr(place)):.80}")
    is_path = place.startswith(_PATH_STARTS) or place in (".", "..")
    return f"lmdb://{place}" if is_path else place


def unknown_option(name: str, known: Iterable[str]) -> ValueError:
    """Return the error for an option that store URLs do not support."""
    return ValueError(f"unknown option {name}; did you mean {most_like(name, known)}?")


def folder_in(url: str, path: str) -> Path:
    """Return the folder at the path in a URL; raise `ValueError` for the home folder of an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"unknown home folder in {masked(url)}; write the full path") from error


def masked(text: str) -> str:
    """Return a URL, or text that was meant as one, with `…` in place of everything that may be secret.

    Everything between the scheme and the last `@` is hidden, and so is every option that is not known to be harmless. A
    message that ends with a URL is masked in the same way.
    """
    head, rest = _cut_head(text)
    after_user = _USER.sub("", rest, count=1)
    user = rest[: len(rest) - len(after_user)]
    place, *parts = _SEPARATOR.split(after_user)
    if not (head or user or "=" in text):
        return text
    is_place = "=" not in (place if head else text) and not _OPTION.search(user)  # the @ may belong to an option
    kept = [place if is_place or _is_harmless(place) else "…"]
    for separator, part in zip(parts[::2], parts[1::2], strict=True):
        kept += [separator, part if not part or _is_harmless(part) else "…"]
    return f"{head}{'…@' if user else ''}{_HIDDEN_PARTS.sub('…', ''.join(kept))}"


def user_in(url: str) -> tuple[str, bool]:
    """Return the user and password before a URL's host, and whether it is clear where they end.

    That is unclear if another `@` follows, or if a raw `/`, `?` or `#` seems to split the password.
    """
    rest = _cut_head(url)[1]
    authority = _AFTER_AUTHORITY.sub("", rest)
    user, at, _ = authority.rpartition("@")
    if at:
        return user, "@" not in rest[len(authority) :]
    read = unquote(_IPV6.sub("", authority))
    is_cut = ("@" in rest or "@" in read) and _NOT_A_PORT.search(read)
    return (rest.rpartition("@")[0] or authority, False) if is_cut else ("", True)


def may_be_url(text: str) -> bool:
    """Whether a text is a URL, or may have been meant as a URL with a password."""
    return "://" in text or bool(_cut_head(text)[0]) or holds_password(text)


def holds_password(url: str) -> bool:
    """Whether a URL has a password before its host, or an option whose name suggests a secret."""
    names = [unquote(part.partition("=")[0]) for part in _SEPARATOR.split(_cut_head(url)[1])[2::2]]
    return ":" in unquote(user_in(url)[0]) or any(map(_SECRET_NAME.search, names))


def parsed_url(url: str, parse: Callable[[str], Parsed], no_password: str) -> Parsed:
    """Parse a store's URL with `parse` and return the result; a `ValueError` does not show secrets.

    Args:
        url: URL as the user wrote it.
        parse: Parses the URL, or raises a `ValueError` whose text may repeat parts of the URL.
        no_password: Message for a URL with a password, which explains where to put the password instead.
    """
    reason = no_password
    if not holds_password(url):
        try:
            return parse(url)
        except ValueError as error:
            reason = f"{no_password}; write an @ in a name as %40" if _may_be_cut(url) else str(error)
    raise ValueError(f"store {masked(url)!r}: {reason}")  # raised here so that no traceback shows the first error


def _cut_head(text: str) -> tuple[str, str]:
    """Split a text into the scheme with `://` and the rest."""
    found = _HEAD.match(text)
    return (found[0], text[found.end() :]) if found else ("", text)


def _may_be_cut(url: str) -> bool:
    """Whether an `@` may end a password such as `6379/x`; an error message would quote parts of that password."""
    rest = _cut_head(url)[1]
    after = rest[len(_AFTER_AUTHORITY.sub("", rest)) :]
    return after != rest and any("@" in part and not _is_harmless(part) for part in _SEPARATOR.split(after))


def _is_harmless(part: str) -> bool:
    name, _, value = part.partition("=")
    return name in _HARMLESS and "=" not in value


def hosts_in(text: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Return distinct pairs of host and port; a host without a port gets the last host's port, or the default.

    Raises:
        ValueError: A host or port is invalid.
    """
    named = [_host_and_port(one) for one in text.split(",")]
    port = named[-1][1] or default_port
    return tuple(dict.fromkeys((host, own or port) for host, own in named))


def _host_and_port(text: str) -> tuple[str, int | None]:
    found = _HOST.fullmatch(text)
    if not found:
        raise ValueError(f"invalid host {text!r}: expected host, host:port or [IPv6]:port")
    port = int(found[3]) if found[3] else None
    if port is not None and not 0 < port < 1 << 16:
        raise ValueError(f"port must be 1 to 65535, got {port}")
    return found[1] or found[2], port


def host_text(host: str, port: int) -> str:
    """Return a host and its port in URL syntax."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def options_in(query: str) -> list[tuple[str, str]]:
    """Return the options in a query string in order; raise `ValueError` if it has other parts."""
    try:
        return parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise ValueError("options must be name=value, joined by &") from None


def option_texts(options: object, usual: object, fields: Mapping[str, str]) -> dict[str, str]:
    """Return the options that differ from `usual` as texts for a query string; `fields` maps names to attributes."""
    given = {name: (getattr(options, field), getattr(usual, field)) for name, field in fields.items()}
    return {
        name: f"{value:g}s" if isinstance(value, float) else "yes" if value is True else str(value)
        for name, (value, default) in given.items()
        if value != default
    }


def time_option(name: str, value: str) -> float:
    """Return the value of a time option in seconds; raise `ValueError` if it is invalid. A lock timeout may be 0."""
    seconds, (least, said) = seconds_in(value), (0, "0s") if name == LOCK_TIMEOUT else (_LEAST_S, "1ms")
    if seconds is None or not least <= seconds <= _MOST_S:
        raise ValueError(f"invalid {name}={value}: expected {said} to 1 day, such as {name}=5s or {name}=500ms")
    return seconds


def with_options(url: str, options: Mapping[str, str]) -> str:
    """Add options to a store's URL; options that the URL already has are kept."""
    named = "&".join(f"{name}={value}" for name, value in options.items() if not re.search(rf"[?&]{name}=", url))
    has_others = "?" in url and not url.startswith("lmdb:")  # in lmdb: URLs, a ? is part of the folder's name
    return f"{url}{'&' if has_others else '?'}{named}" if named else url


def check_tls_options(options: object, schemes: str, *, has_tls: bool) -> None:
    """Raise `ValueError` if the TLS files (`ca`, `cert`, `key`) do not match the URL or each other."""
    ca, cert, key = (getattr(options, name) for name in ("ca", "cert", "key"))
    if not has_tls and (ca or cert or key):
        raise ValueError(f"ca=, cert= and key= require {schemes}")
    if key and not cert:
        raise ValueError("key= requires cert=")
