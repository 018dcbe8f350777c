"""Reject requests that a page on another site sends through a visitor's browser.

A browser sends the host name of the requested URL as `Host`, and the site of the requesting page as `Origin`. A site
can make its own name resolve to this machine (DNS rebinding). Its pages then have the same origin as this server, and
only the name reveals them. A server without a token therefore accepts only names that it was configured with, and names
that cannot be redirected.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from ipaddress import ip_address

_NAME = re.compile(r"(\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
_PORTS = {"http": ":80", "https": ":443"}  # default ports, which an address may omit


def why_refused(headers: Mapping[str, str], hosts: Collection[str] | None, origins: Collection[str] = ()) -> str:
    """Return why a request is rejected, or an empty string.

    Args:
        headers: Headers of the request.
        hosts: Host names of this server, in addition to `localhost` and IP addresses; None accepts any name.
        origins: Other origins whose pages can send requests.
    """
    host, origin = headers.get("host", "").lower(), headers.get("origin")
    if hosts is not None and not _is_known(host, hosts):
        return (
            f"unknown host name {host!r:.80}: without a token, this server accepts only localhost, IP addresses and "
            "names passed with 'hsimhash serve --host NAME'"
        )
    if origin is None or headers.get("sec-fetch-site") == "same-origin" or origin.lower() in origins:
        return ""
    scheme, _, site = origin.lower().partition("://")
    port = _PORTS.get(scheme, "")
    if site and site.removesuffix(port) == host.removesuffix(port):
        return ""
    return (
        f"this request was sent by a page on another site, {origin!r:.80}: this server accepts requests only from its "
        "own pages, and from origins passed with 'hsimhash serve --allow-origin', which needs a token"
    )


def _is_known(host: str, hosts: Collection[str]) -> bool:
    match = _NAME.fullmatch(host)
    if match is None:
        return False
    name = match[1].strip("[]").rstrip(".")
    if not host or name in hosts or name == "localhost" or name.endswith(".localhost"):  # HTTP/1.0 omits `Host`
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
