"""Small web archives, assembled by hand so that they can be damaged at will."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import zstandard

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


def record(kind: str, url: str, content_type: str, block: bytes, *, excess: int = 0) -> bytes:
    """Return a WARC record; its Content-Length is off by `excess`."""
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2026-01-02T03:04:05Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{url}>\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(block) + excess}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def response(
    url: str, body: bytes, content_type: str = "text/html; charset=utf-8", status: str = "200 OK", *, excess: int = 0
) -> bytes:
    """Return the record of a page that a server sent."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return record("response", url, "application/http; msgtype=response", head.encode() + body, excess=excess)


def conversion(url: str, text: str) -> bytes:
    """Return the record of a text in a WET file."""
    return record("conversion", url, "text/plain", text.encode())
