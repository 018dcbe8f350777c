"""Parse HTTP responses as crawlers store them: content type, charset and unpacked body.

Crawlers differ. Some end lines with only a newline, and some unpack a body but keep its `Content-Encoding`. A body that
does not match its headers is used unchanged if it looks like HTML.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import zstandard

from hsimhash.extras import needed
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS = re.compile(rb"HTTP/[0-9.]+[ \t]+([0-9]{3})(?![0-9])")
_CHARSET = re.compile(r"charset\s*+=\s*+[\"']?+\s*+([^\"';,\s]++)", re.IGNORECASE)
_CHUNK = re.compile(rb"[ \t]*([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r?\n")
_LONGEST_LINE = 1 << 10
_HEAD_BYTES = 1 << 20  # browsers reject even a quarter of this
_MOST_CODINGS = 5  # maximum number of nested content codings; the same limit as in curl
_STEP_BYTES = 1 << 10  # zstd packs at most 128 KiB into 4 bytes, so a step unpacks to at most 32 MiB


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response; `body` may still be chunked and compressed."""

    status: int
    headers: Mapping[str, str]  # lower-case name -> value
    body: bytes


def response_in(block: bytes) -> HttpResponse:
    """Parse the response in a record; raise `ValueError` if there is none."""
    end = _HEAD_END.search(block)
    head, body = (block[: end.start()], block[end.end() :]) if end else (block, b"")
    status = _STATUS.match(head)
    if status is None:
        raise ValueError("its HTTP response does not have a status line")
    if len(head) > _HEAD_BYTES:
        raise ValueError(f"its HTTP headers are longer than {_HEAD_BYTES >> 20} MiB")
    return HttpResponse(int(status[1]), headers_in(head.partition(b"\n")[2]), body)


def headers_in(head: bytes) -> dict[str, str]:
    """Return the headers by lower-case name; if a name is repeated, the first value is kept."""
    found: dict[str, str] = {}
    name, lines = "", list[str]()  # one header, which may continue over several lines
    for line in head.decode("utf-8", "replace").split("\n"):
        if line[:1] in (" ", "\t") and name:
            lines.append(line.strip())
            continue
        found.setdefault(name, " ".join(lines))
        name, _, value = line.partition(":")
        name, lines = name.strip().lower(), [value.strip()]
    found.setdefault(name, " ".join(lines))
    return found


def media_type_of(content_type: str) -> str:
    """Return the media type in a `Content-Type`, in lower case."""
    return content_type.partition(";")[0].partition(",")[0].strip().lower()


def charset_of(content_type: str) -> str | None:
    """Return the charset label in a `Content-Type`, or None."""
    match = _CHARSET.search(content_type)
    return match[1] if match else None


def unpacked_body(response: HttpResponse) -> bytes:
    """Return the body of a response, unpacked according to its headers; stops just beyond the size limit of a record.

    Raises:
        ValueError: The body is damaged or truncated.
    """
    body = response.body
    if "chunked" in response.headers.get("transfer-encoding", "").lower():
        body = _unchunked(body)
    named = map(str.strip, response.headers.get("content-encoding", "").lower().split(","))
    codings = [coding for coding in named if coding in _UNPACKERS]
    if len(codings) > _MOST_CODINGS:
        raise ValueError(f"its Content-Encoding has {len(codings):,} codings: expected at most {_MOST_CODINGS}")
    for coding in reversed(codings):
        if body:
            body = _unpacked(body, coding, _UNPACKERS[coding])
    return body


def _unchunked(body: bytes) -> bytes:
    joined, rest, place = bytearray(), memoryview(body), 0
    while place < len(body):
        line = _CHUNK.match(body, place, place + _LONGEST_LINE)
        if line is None:
            if not joined:  # the crawler has already joined the chunks
                return body
            raise ValueError("its chunked body is damaged")
        size, place = int(line[1], 16), line.end()
        if size == 0:
            break
        if place + size > len(body):
            if not joined and _is_text(body):
                return body
            raise ValueError("its chunked body is truncated")
        joined += rest[place : place + size]
        place += size
        place += 2 if body.startswith(b"\r\n", place) else body.startswith(b"\n", place)
    return bytes(joined)


def _is_text(body: bytes) -> bool:
    return body.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"


def _unpacked(body: bytes, coding: str, unpack: Callable[[bytes], bytes]) -> bytes:
    try:
        return unpack(body)
    except (zlib.error, zstandard.ZstdError, EOFError, OSError) as error:
        if _is_text(body):  # the crawler has already unpacked it
            return body
        raise ValueError(f"its body cannot be decompressed ({coding}): {error}") from error


def _gunzipped(body: bytes) -> bytes:
    return _inflated(body, 31) if body.startswith(b"\x1f\x8b") else body


def _deflated(body: bytes) -> bytes:
    has_header = len(body) > 1 and body[0] & 15 == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflated(body, zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)


def _inflated(body: bytes, bits: int) -> bytes:
    unpacker = zlib.decompressobj(bits)
    data = unpacker.decompress(body, RECORD_LIMIT_BYTES + 1)
    if not unpacker.eof and len(data) <= RECORD_LIMIT_BYTES:
        raise EOFError("it is truncated")
    return data


def _from_zstd(body: bytes) -> bytes:
    unpacker, data = zstandard.ZstdDecompressor().decompressobj(), bytearray()
    for start in range(0, len(body), _STEP_BYTES):
        data += unpacker.decompress(body[start : start + _STEP_BYTES])
        if unpacker.eof or len(data) > RECORD_LIMIT_BYTES:
            return bytes(data)
    raise EOFError("it is truncated")


def _from_brotli(body: bytes) -> bytes:
    streams = needed("fastwarc.stream_io", "warc", "a body compressed with Brotli")
    data: bytes = streams.BrotliReader(io.BytesIO(body)).read(RECORD_LIMIT_BYTES + 1)
    return data


_UNPACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "deflate": _deflated,
    "br": _from_brotli,
    "zstd": _from_zstd,
}
