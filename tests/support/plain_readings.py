"""The plainest reading of each format, written without hsimhash's readers so that it can be compared with theirs.

Each function returns None if a file is damaged or its format leaves the reading open.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import zstandard

_JSON_SPACE = " \t\r\n"
_LENGTH = re.compile(rb"[0-9]{1,9}")


def unpacked(data: bytes, packing: str) -> bytes | None:
    """Return the content of a packed file; `packing` is `.gz`, `.zst` or empty."""
    try:
        if packing == ".gz":
            return gzip.decompress(data)
        if packing == ".zst":
            return _unpacked_frames(data)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError):
        return None
    return data


def _unpacked_frames(data: bytes) -> bytes:
    parts = []
    while data := data.lstrip(b"\0"):
        frame = zstandard.ZstdDecompressor().decompressobj()
        parts.append(frame.decompress(data))
        if not frame.eof:
            raise EOFError
        data = frame.unused_data
    return b"".join(parts)


def json_value(text: str, *, strict: bool = False) -> object:
    """Return the value of a JSON text; `strict` refuses Python's NaN and Infinity.

    Raises:
        ValueError: it is not JSON, or it is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refused if strict else None)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refused(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def json_values(data: bytes) -> list[object] | None:
    """Return the elements of a JSON array, or the objects that follow each other in a file."""
    try:
        text = data.decode("utf-8-sig")
        if text.lstrip(_JSON_SPACE).startswith("["):
            return list(json_value(text))  # type: ignore[call-overload]
    except ValueError:
        return None
    decoder, values, at = json.JSONDecoder(), list[object](), 0
    while at := _skip(text, at, _JSON_SPACE + "," if values else _JSON_SPACE):
        at -= 1
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict):
            return None
        values.append(value)
    return values


def _skip(text: str, at: int, skipped: str) -> int:
    """Return the position after the next character that is not skipped; 0 if there is none."""
    while at < len(text):
        if text[at] not in skipped:
            return at + 1
        at += 1
    return 0


def csv_rows(data: bytes, delimiter: str = ",") -> list[list[str]] | None:
    """Return the rows of a CSV file that are not empty, including the header."""
    try:
        text = data.decode("utf-8-sig")
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except (csv.Error, UnicodeDecodeError):
        return None
    return [row for row in rows if row]


def first_line_columns(data: bytes, delimiter: str = ",") -> list[str]:
    """Return the names in the first line of a table."""
    text = data[: 1 << 16].decode("utf-8", "replace")
    try:
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except csv.Error:
        return []


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """A record of a web archive, with lower-case header names."""

    kind: str
    headers: Mapping[str, str]
    block: bytes

    @property
    def is_document(self) -> bool:
        """Whether hsimhash reads a document from it: a text of a WET file, or a text or page with status 200."""
        headers, types = self.headers, {"text/plain"}
        if self.kind == "response":
            head, _, _ = self.block.partition(b"\r\n\r\n")
            status, _, lines = head.partition(b"\r\n")
            if not re.match(rb"HTTP/1\.[01] 200\b", status):
                return False
            if not re.match(r"application/http\s*(;|$)", headers.get("content-type", "")):
                return False
            headers, types = _headers(lines), {"text/plain", "text/html", "application/xhtml+xml"}
        elif self.kind != "conversion":
            return False
        return headers.get("content-type", "").partition(";")[0].strip(" \t").lower() in types

    @property
    def content(self) -> bytes:
        """What follows the HTTP headers; for a text, the whole block."""
        return self.block.partition(b"\r\n\r\n")[2] if self.kind == "response" else self.block


def archive_records(data: bytes) -> Iterator[ArchiveRecord]:
    """Yield the records of a web archive up to the first one that is not framed exactly as ISO 28500 says."""
    while data.startswith(b"WARC/1."):
        head, end, rest = data.partition(b"\r\n\r\n")
        headers = _headers(head.partition(b"\r\n")[2])
        length = headers.get("content-length", "")
        if not end or head.lower().count(b"content-length") != 1 or not _LENGTH.fullmatch(length.encode()):
            return
        block, gap, data = rest[: int(length)], rest[int(length) : int(length) + 4], rest[int(length) + 4 :]
        if gap != b"\r\n\r\n":
            return
        yield ArchiveRecord(headers.get("warc-type", ""), headers, block)


def _headers(lines: bytes) -> dict[str, str]:
    """Return headers by name; empty if one is repeated, folded or malformed, which leaves the reading open."""
    if re.search(rb"\r(?!\n)|(?<!\r)\n|^[ \t]", lines, re.MULTILINE):
        return {}
    pairs = [line.partition(b":") for line in lines.split(b"\r\n")]
    names = [name.strip().lower().decode("latin-1") for name, _, _ in pairs]
    values = (value.strip().decode("latin-1") for _, _, value in pairs)
    return dict(zip(names, values, strict=True)) if len(set(names)) == len(names) else {}
