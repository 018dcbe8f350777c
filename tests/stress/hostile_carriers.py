"""Carriers for `hostile_shapes.py`: the ways a record reaches hsimhash, each with records of arbitrary content."""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import brotli
import zstandard

from hsimhash.inputs import InputOptions
from tests.stress.hostile_texts import ANSWERS, CSV_ROWS, HTML, JSON_VALUES, TEXTS, Shape
from tests.support import archives

PLAIN = "The harbour ferry will not run on Sunday because divers have to look at the moorings, the harbour office said."
PAGE = "<!doctype html><html><head><title>Title</title></head><body>"
NAMES = ("a", "hostile", "z")
_SENTENCE = PLAIN.encode()

Content = Literal["page", "fragment", "text", "value", "row", "answer"]
SHAPES: Mapping[Content, Mapping[str, Shape]] = {
    "page": HTML | TEXTS,
    "fragment": HTML | TEXTS,
    "text": TEXTS | HTML,
    "value": JSON_VALUES,
    "row": CSV_ROWS,
    "answer": ANSWERS,
}
_BEFORE: Mapping[Content, bytes] = {"page": PAGE.encode(), "fragment": b"<p>Some words.</p>"}


@dataclass(frozen=True, slots=True)
class Carrier:
    """A kind of file whose records are made from contents.

    Args:
        content: the kind of content in its records.
        file: its name; with `{}`, each record is a separate file in a folder.
        record: makes a record from a name and a content.
        joined: makes a file from records.
        options: the options to read it with.
        may_lose_last: whether damage in one record may cost the next one, if it is reported.
        skips_blank: whether a record of blanks is skipped.
    """

    content: Content
    file: str
    record: Callable[[str, bytes], bytes] = lambda name, content: content
    joined: Callable[[Sequence[bytes]], bytes] = b"".join
    options: InputOptions = field(default_factory=InputOptions)
    may_lose_last: bool = False
    skips_blank: bool = False

    def write(self, folder: Path, hostile: Shape | None, size: int) -> Path:
        """Write a file, or a folder of files, with a hostile record of at most `size` bytes between two ordinary ones.

        Without a shape, the record in the middle is also ordinary.
        """
        contents = [self._ordinary(), self._fitted(hostile, size) if hostile else self._ordinary(), self._ordinary()]
        records = [self.record(name, content) for name, content in zip(NAMES, contents, strict=True)]
        if "{}" not in self.file:
            path = folder / self.file
            path.write_bytes(self.joined(records))
            return path
        for name, record in zip(NAMES, records, strict=True):
            (folder / self.file.replace("{}", name)).write_bytes(self.joined([record]))
        return folder

    def _ordinary(self) -> bytes:
        match self.content:
            case "page":
                return f"{PAGE}<p>{PLAIN}</p></body></html>".encode()
            case "fragment":
                return f"<p>{PLAIN}</p>".encode()
            case "value":
                return b"1"
            case "row":
                return b""
            case "answer":
                page = f"{PAGE}<p>{PLAIN}</p>"
                return f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{page}".encode()
        return _SENTENCE

    def _fitted(self, shape: Shape, size: int) -> bytes:
        """Return as much of a shape as fits into its record, which escapes and quotation marks lengthen."""
        before, room = _BEFORE.get(self.content, b""), size - 1_000
        while True:
            content = before + shape(room - len(before))
            length = max(len(content), len(self.record(NAMES[1], content)))
            if length <= size or room < 100:
                return content
            room = room * (size - 1_000) // length - 10


def _text_in(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _json(name: str, content: bytes, *, is_ascii: bool = False, indent: int | None = None) -> bytes:
    record = {"id": name, "text": _text_in(content)}
    try:
        return json.dumps(record, ensure_ascii=is_ascii, indent=indent).encode() + b"\n"
    except UnicodeEncodeError:  # surrogates can only be escaped
        return json.dumps(record, indent=indent).encode() + b"\n"


def _json_array(records: Sequence[bytes]) -> bytes:
    return b"[" + b",".join(records) + b"]"


def _with_value(name: str, content: bytes) -> bytes:
    return b'{"id": "%b", "text": "%b", "more": %b}\n' % (name.encode(), _SENTENCE, content)


def _instead(record: Callable[[str, bytes], bytes]) -> Callable[[str, bytes], bytes]:
    """Return a function that uses the hostile content itself as the record."""
    return lambda name, content: content + b"\n" if name == NAMES[1] and content != b"1" else record(name, b"1")


def _csv(name: str, content: bytes) -> bytes:
    return name.encode() + b',"' + content.replace(b'"', b'""') + b'"\n'


def _unquoted_csv(name: str, content: bytes) -> bytes:
    return name.encode() + b"," + content.translate(None, b'",\r\n') + b"\n"


def _csv_row(name: str, content: bytes) -> bytes:
    return (
        content + b"\n"
        if name == NAMES[1] and content
        else name.encode() + b"," + PLAIN.replace(",", "").encode() + b"\n"
    )


def _table(rows: Sequence[bytes]) -> bytes:
    return b"id,text\n" + b"".join(rows)


def _tsv(name: str, content: bytes) -> bytes:
    return name.encode() + b"\t" + content.translate(None, b"\n") + b"\n"


def _line(name: str, content: bytes) -> bytes:
    return content.translate(None, b"\n") + b"\n"


def _utf16(name: str, content: bytes) -> bytes:
    return ("\ufeff" + content.decode("utf-8", "replace")).encode("utf-16-le")


def _url(name: str) -> str:
    return f"http://example.org/{name}"


def _page_record(name: str, content: bytes) -> bytes:
    return archives.response(_url(name), content)


def _coded(
    coding: str, pack: Callable[[bytes], bytes], name: str, content: bytes, header: str = "Content-Encoding"
) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{header}: {coding}\r\n\r\n".encode()
    return archives.record("response", _url(name), "application/http", head + pack(content))


def _chunked(content: bytes) -> bytes:
    chunks = (content[at : at + 4_096] for at in range(0, len(content), 4_096))
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def _archived(kind: str, content_type: str) -> Callable[[str, bytes], bytes]:
    return lambda name, content: archives.record(kind, _url(name), content_type, content)


def _with_archive_header(name: str, content: bytes) -> bytes:
    whole = archives.response(_url(name), f"{PAGE}<p>{PLAIN}</p>".encode())
    content = content.partition(b"\r\n\r\n")[0]
    return whole if name != NAMES[1] else whole.replace(b"\r\n\r\n", b"\r\nX: " + content + b"\r\n\r\n", 1)


def _members(records: Sequence[bytes]) -> bytes:
    return b"".join(gzip.compress(record, mtime=0) for record in records)


def _packed(pack: Callable[[bytes], bytes]) -> Callable[[Sequence[bytes]], bytes]:
    return lambda records: pack(b"".join(records))


_WRAPPED: Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {  # the type, and a value of it
    "string": (lambda arrow: arrow.string(), _text_in),
    "large string": (lambda arrow: arrow.large_string(), _text_in),
    "binary": (lambda arrow: arrow.binary(), bytes),
    "struct": (lambda arrow: arrow.struct({"text": arrow.string()}), lambda content: {"text": _text_in(content)}),
    "map": (lambda arrow: arrow.map_(arrow.string(), arrow.string()), lambda content: [("text", _text_in(content))]),
}


def _parquet(contents: Sequence[bytes], wrapped: str = "string", **how: Any) -> bytes:
    import pyarrow
    from pyarrow import parquet

    of_type, value = _WRAPPED[wrapped]
    if wrapped != "binary":
        contents = [one.decode("utf-8", "replace").encode() for one in contents]
    texts = pyarrow.array([value(one) for one in contents], of_type(pyarrow))
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({"id": list(NAMES), "text": texts}), out, **how)
    return out.getvalue()


def _in_parquet(content: Content, wrapped: str = "string", field_name: str = "text", **how: Any) -> Carrier:
    return Carrier(
        content,
        "in.parquet",
        joined=partial(_parquet, wrapped=wrapped, **how),
        options=InputOptions(text_field=field_name),
    )


_HTML_ASKED, _TEXT_ASKED, _ALL_ASKED = (InputOptions(extract=extract) for extract in ("html", "text", "none"))
_ZSTD = zstandard.ZstdCompressor().compress

CARRIERS: Mapping[str, Carrier] = {
    "page": Carrier("page", "{}.html"),
    "page, --extract none": Carrier("page", "{}.html", options=_ALL_ASKED),
    "page, gzip": Carrier("page", "{}.html.gz", joined=_packed(gzip.compress)),
    "page in JSON lines": Carrier("page", "in.jsonl", _json),
    "page in CSV": Carrier("page", "in.csv", _csv, _table),
    "page in Parquet": _in_parquet("page"),
    "page in WARC": Carrier("page", "in.warc", _page_record),
    "page in WARC, gzip": Carrier("page", "in.warc.gz", _page_record, _members),
    "page in WARC, zstd": Carrier("page", "in.warc.zst", _page_record, lambda records: b"".join(map(_ZSTD, records))),
    "page in WARC, --extract none": Carrier("page", "in.warc", _page_record, options=_ALL_ASKED),
    "page in WARC, chunked": Carrier("page", "in.warc", partial(_coded, "chunked", _chunked, header="Transfer-Encoding")),
    "page in WARC, gzip body": Carrier("page", "in.warc", partial(_coded, "gzip", gzip.compress)),
    "page in WARC, br body": Carrier("page", "in.warc", partial(_coded, "br", partial(brotli.compress, quality=1))),
    "page in WARC, deflate body": Carrier("page", "in.warc", partial(_coded, "deflate", zlib.compress)),
    "page in WARC, zstd body": Carrier("page", "in.warc", partial(_coded, "zstd", _ZSTD)),
    "fragment in JSON lines": Carrier("fragment", "in.jsonl", _json),
    "fragment, --extract html": Carrier("fragment", "in.jsonl", _json, options=_HTML_ASKED),
    "fragment in CSV": Carrier("fragment", "in.csv", _csv, _table),
    "fragment in Parquet": _in_parquet("fragment"),
    "text": Carrier("text", "{}.txt"),
    "text, --extract html": Carrier("text", "{}.txt", options=_HTML_ASKED),
    "text, gzip": Carrier("text", "{}.txt.gz", joined=_packed(gzip.compress)),
    "text, zstd": Carrier("text", "{}.txt.zst", joined=_packed(_ZSTD)),
    "text, UTF-16": Carrier("text", "{}.txt", _utf16),
    "JSON lines": Carrier("text", "in.jsonl", _json),
    "JSON lines, --extract text": Carrier("text", "in.jsonl", _json, options=_TEXT_ASKED),
    "JSON lines, escaped": Carrier("text", "in.jsonl", partial(_json, is_ascii=True)),
    "JSON lines, gzip": Carrier("text", "in.jsonl.gz", _json, _packed(gzip.compress)),
    "JSON lines, zstd": Carrier("text", "in.jsonl.zst", _json, _packed(_ZSTD)),
    "JSON array": Carrier("text", "in.json", _json, _json_array),
    "JSON on several lines": Carrier("text", "in.json", partial(_json, indent=1)),
    "CSV, quoted": Carrier("text", "in.csv", _csv, _table),
    "CSV, unquoted": Carrier("text", "in.csv", _unquoted_csv, _table),
    "TSV": Carrier("text", "in.tsv", _tsv),
    "lines": Carrier("text", "in.txt", _line, options=InputOptions(format="lines"), skips_blank=True),
    "WET": Carrier("text", "in.wet", _archived("conversion", "text/plain")),
    "text in WARC": Carrier("text", "in.warc", _archived("resource", "text/plain")),
    "Parquet, plain": _in_parquet("text", compression="none", use_dictionary=False),
    "Parquet, dictionary": _in_parquet("text", compression="none", use_dictionary=True),
    **{f"Parquet, {name}": _in_parquet("text", compression=name) for name in ("snappy", "zstd", "gzip", "brotli", "lz4")},
    "Parquet, data page 2": _in_parquet("text", data_page_version="2.0"),
    "Parquet, large string": _in_parquet("text", "large string"),
    "Parquet, binary": _in_parquet("text", "binary"),
    "Parquet, struct": _in_parquet("text", "struct", "text.text"),
    "Parquet, map": _in_parquet("text", "map", "text.text"),
    "JSON lines, another field": Carrier("value", "in.jsonl", _with_value),
    "JSON array, another field": Carrier("value", "in.json", _with_value, _json_array, may_lose_last=True),
    "JSON lines, a line": Carrier("value", "in.jsonl", _instead(_with_value), may_lose_last=True),
    "JSON array, an element": Carrier("value", "in.json", _instead(_with_value), _json_array, may_lose_last=True),
    "CSV, a row": Carrier("row", "in.csv", _csv_row, _table, may_lose_last=True),
    "CSV, a row of .gz": Carrier("row", "in.csv.gz", _csv_row, lambda rows: gzip.compress(_table(rows)), may_lose_last=True),
    "HTTP answer in WARC": Carrier("answer", "in.warc", _archived("response", "application/http")),
    "HTTP answer in WARC, gzip": Carrier("answer", "in.warc.gz", _archived("response", "application/http"), _members),
    "header of a WARC record": Carrier("answer", "in.warc", _with_archive_header),
}  # fmt: skip
