"""Read web archives: pages and plain texts with status 200 from WARC files, and all texts from WET files.

Pages and plain texts in `resource` records are also read if their address starts with a scheme such as `https:`; a
crawler's notes about pages have a `urn:` instead. Each record states its length. If the length is wrong, the reader
searches for the next record; after a damaged packed member, it searches for the next member. ISO 28500 defines the
format, and `http_responses.py` parses server responses.

A position's offset is in unpacked bytes; its line number counts records of every kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import zstandard

from hsimhash.extras import needed
from hsimhash.files import naming
from hsimhash.inputs.field_values import doc_id_of, first_seen_of
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.http_responses import (
    HttpResponse,
    charset_of,
    headers_in,
    media_type_of,
    response_in,
    unpacked_body,
)
from hsimhash.inputs.lines import (
    BLOCK_BYTES,
    RECORD_LIMIT_BYTES,
    UNPACKERS,
    UNPACKING_ERRORS,
    DamagedInputError,
    Place,
    Unpacker,
    packing_of,
)
from hsimhash.inputs.markup import PAGE_BEGINNING_BYTES, is_page
from hsimhash.inputs.pages import page_of
from hsimhash.inputs.records import Columns, Documents, Reject, numbered_id, reason_of

ID_FIELDS = {"id": "url", "url": "url", "record-id": "record-id"}
_OK = 200
_PAGE_TYPES = ("text/html", "application/xhtml+xml")
_TEXT_TYPE = "text/plain"
_HTTP_TYPE = "application/http"
_HTTP = b"HTTP/"
_HEADER_BYTES = 64 << 10  # maximum size of a record's header
_STEP_BYTES = 1 << 10  # zstd packs at most 128 KiB into 4 bytes, so a step unpacks to at most 32 MiB
_DAMAGE_BYTES = 1  # how far damage advances the offset, so that the positions before and after it differ
_NO_RECORD = "not a WARC record"
_HEADER_END = b"\r\n\r\n"
_VERSION = b"WARC/"
_LENGTH = re.compile(rb"^content-length:[ \t]*([0-9]{1,18})[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_MAGIC = {".gz": b"\x1f\x8b\x08", ".zst": zstandard.FRAME_HEADER, ".bz2": b"BZh", ".xz": b"\xfd7zXZ\0"}
_DICTIONARY = b"\x5d\x2a\x4d\x18"  # starts the frame that holds the dictionary for all other frames of a .warc.zst
_OTHERS = {  # first bytes of a file that is not WARC -> what the file is, and what to do
    b"filedesc:": "an ARC archive, not WARC; convert it: warcio recompress OLD.arc.gz NEW.warc.gz",
    b"\x1f\x8b\x08": "compressed with gzip; give it a name that ends in .gz",
    zstandard.FRAME_HEADER: "compressed with zstd; give it a name that ends in .zst",
    b"\x04\x22\x4d\x18": "compressed with LZ4, which is not supported; decompress it, or convert it to .warc.gz",
}
_ADDRESSES = ("http:", "https:", "ftp:", "file:")


class _Members:
    """Unpacks a file that consists of packed members, usually one per record; continues after a damaged member.

    `read` always returns the same pieces for the same file, so that positions after damage are reproducible.
    """

    def __init__(self, file: BinaryIO, packing: str) -> None:
        self._file = file
        self._packing = packing
        self._ahead = b""  # bytes read from the file but not yet unpacked
        self._member = bytearray()  # packed bytes of the current member so far
        self._unpacker: Unpacker | None = None
        self._unzstd = zstandard.ZstdDecompressor()
        if packing == ".zst":
            self._learn_dictionary()

    def read(self) -> bytes:
        """Return the next bytes, or empty bytes at the end; raise `DamagedInputError` once per damaged stretch."""
        while packed := self._ahead[:_STEP_BYTES] or self._file.read(_STEP_BYTES):
            self._ahead = self._ahead[_STEP_BYTES:]
            self._unpacker = self._unpacker or self._new()
            self._member += packed
            try:
                data = self._unpacker.decompress(packed)
            except UNPACKING_ERRORS as error:
                raise self._damaged(str(error)) from error
            if self._unpacker.eof:
                self._ahead = self._unpacker.unused_data + self._ahead
                self._unpacker, self._member = None, bytearray()
            elif len(self._member) > RECORD_LIMIT_BYTES:  # after damage, only the end is searched
                del self._member[:-_STEP_BYTES]
            if data:
                return data
        if self._unpacker is not None:
            raise self._damaged("the last member is incomplete")
        return b""

    def _new(self) -> Unpacker:
        return self._unzstd.decompressobj() if self._packing == ".zst" else UNPACKERS[self._packing]()

    def _learn_dictionary(self) -> None:
        """Read the dictionary that a file may begin with (https://iipc.github.io/warc-specifications)."""
        head = self._file.read(8)
        size = int.from_bytes(head[4:], "little")
        if not head.startswith(_DICTIONARY) or size > RECORD_LIMIT_BYTES:
            self._ahead = head
            return
        content = self._file.read(size)
        if content.startswith(zstandard.FRAME_HEADER):
            unpacker = zstandard.ZstdDecompressor(max_window_size=RECORD_LIMIT_BYTES)
            content = unpacker.decompress(content, max_output_size=RECORD_LIMIT_BYTES)
        self._unzstd = zstandard.ZstdDecompressor(dict_data=zstandard.ZstdCompressionDict(content))

    def _damaged(self, reason: str) -> DamagedInputError:
        """Move to the next member, in the bytes already read or after them, and return the error to raise."""
        where, magic = self._file.tell(), _MAGIC[self._packing]
        rest = bytes(self._member[1:]) + self._ahead
        while (found := rest.find(magic)) < 0 and (more := self._file.read(BLOCK_BYTES)):
            rest = rest[-len(magic) :] + more
        self._ahead = rest[found:] if found >= 0 else b""
        self._unpacker, self._member = None, bytearray()
        return DamagedInputError(f"damaged or truncated near byte {where:,}: {reason}")


@dataclass(frozen=True, slots=True)
class _Frame:
    """A record's bytes, or the damage found instead."""

    begin: int
    end: Place  # position after the record
    data: bytes = b""
    is_whole: bool = True  # False: the record exceeds the size limit, and `data` is only its beginning
    damage: str = ""


class _Frames:
    """The records of an archive, starting at any position."""

    def __init__(self, file: BinaryIO, packing: str, name: str) -> None:
        self._file = file
        self._packing = packing
        self._members = _Members(file, packing) if packing else None
        self._name = name
        self._held = bytearray()  # unpacked bytes that have not been returned yet
        self._begin = 0  # offset of the held bytes
        self._line = 0

    def _read(self) -> bytes:
        with naming(self._name):
            return self._members.read() if self._members else self._file.read(BLOCK_BYTES)

    def _fill(self, size: int) -> bool:
        """Read until `size` bytes are held or the file ends; return whether that many bytes are held."""
        while len(self._held) < size and (more := self._read()):
            self._held += more
        return len(self._held) >= size

    def _drop(self, size: int) -> None:
        self._begin += size
        del self._held[:size]

    def skip(self, place: Place) -> None:
        """Skip everything before a position."""
        self._line = place.line
        if not self._packing:
            self._file.seek(place.offset)
            self._begin = place.offset
        while self._begin < place.offset:
            try:
                is_there = self._fill(1)
            except DamagedInputError:  # already reported
                self._begin += _DAMAGE_BYTES
                continue
            if not is_there:
                raise DamagedInputError(f"{self._name} is shorter than when it was last read")
            self._drop(min(len(self._held), place.offset - self._begin))

    def __iter__(self) -> Iterator[_Frame]:
        """Yield a frame for each record, and one for each stretch that cannot be read."""
        while True:
            try:
                frame = self._next()
            except DamagedInputError as error:
                begin = self._begin
                self._pass_damage()
                frame = self._lost(begin, str(error))
            if frame is None:
                return
            yield frame

    def _pass_damage(self) -> None:
        """Move to the next record, so that a run that resumes there does not report the damaged one again."""
        while True:
            self._drop(len(self._held))
            self._begin += _DAMAGE_BYTES
            with suppress(DamagedInputError):
                self._fill(len(_VERSION))
                if not self._held.startswith(_VERSION):
                    self._seek_record()
                return

    def _next(self) -> _Frame | None:
        while self._fill(1) and self._held[0] in b"\r\n":
            self._drop(1)
        if not self._held:
            return None
        while (end := self._held.find(_HEADER_END)) < 0 and len(self._held) < _HEADER_BYTES:
            if not self._fill(len(self._held) + 1):
                break
        length = _LENGTH.search(self._held, 0, end + 2) if end > 0 and self._held.startswith(_VERSION) else None
        if length is None:
            other = next((what for magic, what in _OTHERS.items() if self._held.startswith(magic)), "")
            return self._resync(f"{_NO_RECORD}: it is {other}" if other and not self._begin else _NO_RECORD)
        size = end + len(_HEADER_END) + int(length[1])
        return self._whole(size) if size <= RECORD_LIMIT_BYTES else self._large(size)

    def _whole(self, size: int) -> _Frame:
        self._fill(size + len(_HEADER_END))
        if len(self._held) < size:
            return self._resync("the record is truncated, or its Content-Length is wrong")
        end = bytes(self._held[size : size + len(_HEADER_END)])
        if not _HEADER_END.startswith(end):  # the last record may lack it
            return self._resync("the record's Content-Length is wrong")
        data, begin = bytes(self._held[:size]), self._begin
        self._drop(size + len(end))
        return _Frame(begin, self._counted(), data)

    def _large(self, size: int) -> _Frame:
        """Skip a record that exceeds the size limit, but keep its first bytes, which show its type."""
        self._fill(_HEADER_BYTES)
        data, begin, left = bytes(self._held[:_HEADER_BYTES]), self._begin, size
        while left and self._fill(1):
            passed = min(left, len(self._held))
            self._drop(passed)
            left -= passed
        self._fill(len(_HEADER_END))
        end = bytes(self._held[: len(_HEADER_END)])
        if left or not _HEADER_END.startswith(end):
            self._rewind(begin)
            return self._resync("the record is truncated, or its Content-Length is wrong")
        self._drop(len(end))
        return _Frame(begin, self._counted(), data, is_whole=False)

    def _rewind(self, begin: int) -> None:
        self._file.seek(0)
        self._members = _Members(self._file, self._packing) if self._packing else None
        self._held, self._begin = bytearray(), 0
        self.skip(Place(begin, self._line))

    def _resync(self, damage: str) -> _Frame:
        begin = self._begin
        self._seek_record()
        return self._lost(begin, damage)

    def _seek_record(self) -> None:
        """Move to where the next record seems to begin."""
        mark = b"\n" + _VERSION
        while (found := self._held.find(mark)) < 0:
            self._drop(max(0, len(self._held) - len(mark)))
            if not self._fill(len(self._held) + 1):
                found = len(self._held) - 1
                break
        self._drop(found + 1)

    def _lost(self, begin: int, damage: str) -> _Frame:
        return _Frame(begin, self._counted(), damage=f"{damage} (record at byte {begin:,})")

    def _counted(self) -> Place:
        self._line += 1
        return Place(self._begin, self._line, self._file.tell())


def read_archive(
    one: Input, options: InputOptions, fields: Sequence[str], start: Place, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[Documents, Place]]:
    """Yield batches of a web archive's documents, starting at `start`, each with the position after it.

    A document's fields are `url` (also its `id`), `record-id` and `date`. Options that name text fields are ignored.

    Raises:
        ValueError: The package needed to read web archives is missing.
    """
    needed("fastwarc.warc", "warc", f"input {one.name}")
    with one.source() as file:
        frames = _Frames(file, packing_of(one.name), one.name)
        frames.skip(start)
        found, begun, end = Columns(fields), start.offset, start
        for frame in frames:
            end = frame.end
            try:
                if frame.damage:
                    raise ValueError(frame.damage)
                _take(one, frame, options, found)
            except Exception as error:  # a bad record must not stop the next one from being read
                where = "" if frame.damage else f" (record at byte {frame.begin:,})"
                found.rejects.append(Reject.of(end.line, f"{reason_of(error)}{where}", frame.data))
            if end.offset - begun >= block_bytes:
                yield found.documents(), end
                found, begun = Columns(fields), end.offset
        yield found.documents(), end


@dataclass(frozen=True, slots=True)
class _Payload:
    """The content of a record; `unpack` returns its bytes."""

    content_type: str
    unpack: Callable[[], bytes]


def _take(one: Input, frame: _Frame, options: InputOptions, found: Columns) -> None:
    """Add a record's document, if it has one; raise `ValueError` if the document cannot be read."""
    head, _, block = frame.data.partition(_HEADER_END)
    headers = headers_in(head.partition(b"\n")[2])
    payload = _payload_of(headers, block)
    if payload is None:
        return
    if not frame.is_whole:
        raise ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")
    fields = _fields_of_record(headers)
    seen = options.first_seen_field and fields.get(options.first_seen_field)
    first_seen = None if seen is None else first_seen_of(seen, str(options.first_seen_field))
    name, line = options.named_id_field, frame.end.line
    written_id = fields[ID_FIELDS[name]]
    is_numbered = written_id is None and options.id_field is None
    doc_id = numbered_id(one, line) if is_numbered else doc_id_of(written_id, name)
    text = page_of(payload.unpack(), charset_of(payload.content_type))
    is_html = options.extract == "html" or media_type_of(payload.content_type) in _PAGE_TYPES
    found.take(line, doc_id, text, first_seen, fields, is_page=is_html and options.extract != "text")
    found.numbered += is_numbered


def _payload_of(headers: Mapping[str, str], block: bytes) -> _Payload | None:
    """Return the content of a record that holds a document; None for any other record."""
    kind, content_type = headers.get("warc-type", "").lower(), headers.get("content-type", "")
    types: tuple[str, ...] = (_TEXT_TYPE, *_PAGE_TYPES)
    payload = _Payload(content_type, lambda: block)
    if kind == "response":
        if media_type_of(content_type) != _HTTP_TYPE and (content_type or not block.startswith(_HTTP)):
            return None
        response = response_in(block)
        if response.status != _OK:
            return None
        payload = _Payload(
            response.headers.get("content-type") or _type_by_content(response), partial(unpacked_body, response)
        )
    elif kind == "conversion":
        types = (_TEXT_TYPE,)
    elif kind != "resource" or not _url_in(headers).startswith(_ADDRESSES):
        return None
    return payload if media_type_of(payload.content_type) in types else None


def _type_by_content(response: HttpResponse) -> str:
    """Return `text/html` for a page sent without a media type, because browsers show it anyway; else empty."""
    with suppress(ValueError):
        beginning = unpacked_body(response)[:PAGE_BEGINNING_BYTES]
        return _PAGE_TYPES[0] if is_page(beginning.decode("latin-1")) else ""
    return ""


def _url_in(headers: Mapping[str, str]) -> str:
    return headers.get("warc-target-uri", "").strip("<>")


def _fields_of_record(headers: Mapping[str, str]) -> Mapping[str, object]:
    return {
        "url": _url_in(headers) or None,
        "record-id": headers.get("warc-record-id", "").strip("<>") or None,
        "date": headers.get("warc-date"),
    }
