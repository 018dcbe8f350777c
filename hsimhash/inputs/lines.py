"""Read an input in blocks of whole lines; each block has a position from which a later run can continue."""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import os
import re
import select
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO, Protocol, cast

import zstandard

from hsimhash.errors import HsimhashError
from hsimhash.files import naming

RECORD_LIMIT_BYTES = 16 << 20
BLOCK_BYTES = 1 << 20  # approximate bytes read at once; more only if a single record is larger
IDLE_S = 0.5  # how long a read from a silent stream blocks
PREVIEW_BYTES = 200
_SNIFFED_BYTES = 64 << 10  # first bytes of a file that are searched for a zero byte, which marks it as binary
STDIN = "-"
# zstd packs at most 128 KiB into 4 bytes, and the other formats less, so a step unpacks to at most 32 MiB.
_STEP_BYTES = 1 << 10
_XZ_MEMORY_BYTES = 128 << 20  # `xz -9` takes 65 MiB; a header may request 4 GiB
_LONE_CARRIAGE_RETURN = re.compile(rb"\r[^\n]")


class Unpacker(Protocol):
    """Unpacks one member: a gzip member, a zstd frame, or a bzip2 or xz stream."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def unused_data(self) -> bytes:
        """The data after the member."""

    def decompress(self, data: bytes, /) -> bytes:
        """Unpack `data`."""


UNPACKERS: Mapping[str, Callable[[], Unpacker]] = {
    ".gz": lambda: zlib.decompressobj(31),
    ".zst": lambda: zstandard.ZstdDecompressor().decompressobj(),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY_BYTES),
}
UNPACKING_ERRORS = (zlib.error, zstandard.ZstdError, lzma.LZMAError, OSError)  # bzip2 raises OSError


class DamagedInputError(HsimhashError):
    """A packed input is truncated or corrupt; everything before the damage was read."""


@dataclass(frozen=True, slots=True)
class Place:
    """A position between two lines of an input."""

    offset: int = 0  # unpacked bytes before it; for a folder, files before it
    line: int = 0  # lines before it
    read_bytes: int = 0  # approximate packed bytes read from the file so far, for progress; 0 for a stream


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines with their newlines, without the input's byte order mark; empty while a stream is silent."""

    data: bytes  # the lines; a line that exceeds the limit is truncated, but still exceeds the limit
    first: int  # number of the first line, from 1
    end: Place  # position after the lines
    damage: str = ""  # why nothing after the lines can be read
    wanted: Sequence[int] | None = None  # numbers of the lines to parse; None: all

    def lines(self) -> list[bytes]:
        """Return the lines without their newlines."""
        return self.data.split(b"\n")[:-1]

    def numbered(self) -> Iterator[tuple[int, bytes]]:
        """Yield (number, line) for each wanted line."""
        lines = self.lines()
        if self.wanted is None:
            return enumerate(lines, self.first)
        return ((number, lines[number - self.first]) for number in self.wanted)


class InputFile:
    """The unpacked bytes of a file, a pipe or stdin (`-`), as UTF-8 with line feeds. A context manager.

    UTF-16 becomes UTF-8, and carriage returns become line feeds if the file does not have line feeds; the first block
    decides both. Offsets count the bytes that `read` returns.

    Args:
        name: Path, or a name for messages if `file` is given.
        packing: A key of `UNPACKERS`, or an empty string.
        is_stream: Whether it is stdin or a pipe.
        file: Open file to read if `name` is not a path.
    """

    def __init__(self, name: str, packing: str = "", *, is_stream: bool = False, file: BinaryIO | None = None) -> None:
        self._name = name
        self._is_stream = is_stream
        self._file = file or open_input(name)
        self._unpacked = _unpacked(self._file, packing)
        self._is_packed = bool(packing)
        self._decoder: codecs.IncrementalDecoder | None = None  # for a file in UTF-16
        self._has_carriage_returns = False  # whether carriage returns end lines
        self._head: bytes | None = None  # the first block
        self._ahead, self._at = b"", 0  # a block read ahead, and how many of its bytes have been returned

    def tell(self) -> int:
        """Return the number of packed bytes read from the file; 0 for a stream."""
        return 0 if self._is_stream else self._file.tell()

    def head(self) -> bytes | None:
        """Return the first block, which `read` returns again; None while a stream is silent."""
        if self._head is None and self._is_ready():
            self._head, self._at = self._first(), 0
            self._ahead = self._head
        return self._head

    def read(self, size: int = BLOCK_BYTES) -> bytes | None:
        """Return about `size` bytes, or empty bytes at the end; None while a stream is silent."""
        if self._head is None and self.head() is None:
            return None
        if self._at < len(self._ahead):
            self._at += size
            return self._ahead[self._at - size : self._at]
        self._ahead, self._at = b"", 0
        return self._converted(size) if self._is_ready() else None

    def skip(self, offset: int) -> None:
        """Skip the first `offset` bytes of a file."""
        self.head()
        if not self._is_packed and self._decoder is None:
            self._file.seek(offset)
            self._ahead, self._at = b"", 0
            return
        while offset > len(self._ahead):
            offset -= len(self._ahead)
            self._ahead = self._converted(BLOCK_BYTES)
            if not self._ahead:
                raise DamagedInputError(f"{self._name} is shorter than when it was last read")
        self._at = offset

    def _is_ready(self) -> bool:
        return not self._is_stream or bool(select.select([self._file], [], [], IDLE_S)[0])

    def _first(self) -> bytes:
        block = self._read(BLOCK_BYTES)
        if encoding := utf16_of(block):
            self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
            block = self._decoded(self._decoder, block)
        self._has_carriage_returns = b"\n" not in block and _LONE_CARRIAGE_RETURN.search(block) is not None
        return self._with_line_feeds(block)

    def _converted(self, size: int) -> bytes:
        block = self._read(size)
        return self._with_line_feeds(self._decoded(self._decoder, block) if self._decoder else block)

    def _decoded(self, decoder: codecs.IncrementalDecoder, block: bytes) -> bytes:
        while True:
            try:
                text = decoder.decode(block, not block)
            except UnicodeDecodeError as error:
                where = "" if self._is_stream else f" at byte {self._file.tell():,}"
                raise DamagedInputError(f"truncated in the middle of a character{where}") from error
            if text or not block:
                return text.removeprefix("\ufeff").encode("utf-8", "surrogatepass")
            block = self._read(BLOCK_BYTES)

    def _with_line_feeds(self, block: bytes) -> bytes:
        return block.replace(b"\r", b"\n") if self._has_carriage_returns else block

    def _read(self, size: int) -> bytes:
        with naming(self._name), _naming_damage(self._file):
            return self._unpacked(size)

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()


@contextmanager
def _naming_damage(file: BinaryIO) -> Iterator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedInputError(f"damaged or truncated near byte {file.tell():,}: {error.args[0]}") from error


def unpacked_whole(file: BinaryIO, packing: str) -> bytes:
    """Unpack a whole file, but stop just beyond the size limit of a record, so that a larger file is rejected."""
    read, parts, size = _unpacked(file, packing), [], 0
    while size <= RECORD_LIMIT_BYTES:
        with _naming_damage(file):
            parts.append(read(BLOCK_BYTES))
        size += len(parts[-1])
        if not parts[-1]:
            break
    return b"".join(parts)


def utf16_of(head: bytes) -> str:
    """Detect UTF-16 in a file's first bytes; return its encoding, or an empty string.

    Without a byte order mark, the zero bytes of two ASCII characters identify it, because no other text begins with
    such bytes.
    """
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return ""
    is_little = head.startswith(codecs.BOM_UTF16_LE) or (head[1:4:2] == b"\0\0" and b"\0" not in head[0:3:2])
    is_big = head.startswith(codecs.BOM_UTF16_BE) or (head[0:3:2] == b"\0\0" and b"\0" not in head[1:4:2])
    return "utf-16-le" if is_little else "utf-16-be" if is_big and len(head) > 1 else ""


def open_input(name: str) -> BinaryIO:
    """Open a file, a pipe or stdin (`-`), unbuffered."""
    return cast(BinaryIO, FileIO(0 if name == STDIN else name, closefd=name != STDIN))


def _unpacked(file: BinaryIO, packing: str) -> Callable[[int], bytes]:
    if packing == ".gz":
        return gzip.GzipFile(fileobj=file, mode="rb").read1
    return _PackedMembers(file, UNPACKERS[packing]).read if packing else file.read


class _PackedMembers:
    """Reads one or more members; zstandard's own `stream_reader` would accept a truncated file as complete."""

    def __init__(self, file: BinaryIO, new: Callable[[], Unpacker]) -> None:
        self._file = file
        self._new = new
        self._member: Unpacker | None = None
        self._packed = b""

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            self._packed = self._packed or self._file.read(_STEP_BYTES)
            if self._member is None and self._packed:  # zero bytes may pad a file, as after the last gzip member
                self._packed = self._packed.lstrip(b"\0")
                if not self._packed:
                    continue
            if not self._packed:
                if self._member is not None and not any(parts):
                    raise EOFError("the last member is incomplete")
                break
            self._member = self._member or self._new()
            try:
                parts.append(self._member.decompress(self._packed))
            except UNPACKING_ERRORS as error:
                if not any(parts):
                    raise EOFError(str(error)) from error
                break  # return the intact data first; the next call raises the error
            size -= len(parts[-1])
            self._packed = self._member.unused_data
            if self._member.eof:
                self._member = None
        return b"".join(parts)


def blocks_of(
    read: Callable[[], bytes | None],
    start: Place | None = None,
    tell: Callable[[], int] = lambda: 0,
    *,
    limit_bytes: int = RECORD_LIMIT_BYTES,
) -> Iterator[Block]:
    """Yield blocks of the lines that `read` returns; a missing last newline is added.

    Memory for a line is bounded by the limit plus one read.

    Args:
        read: Returns some bytes, empty at the end, or None while a stream is silent.
        start: Position of the first byte that `read` returns.
        tell: Returns the number of bytes read from the file.
        limit_bytes: Size of a line beyond which the rest of the line is dropped.
    """
    start = start or Place()
    offset, line = start.offset, start.line
    held: list[bytes | memoryview] = []  # the beginning of a line whose end has not been read
    held_bytes = 0
    while True:
        piece = read()
        if piece is None:
            yield Block(b"", line + 1, Place(offset, line))
            continue
        end = piece.rfind(b"\n") + 1
        if end or (held_bytes and not piece):
            held.append(memoryview(piece)[:end] if end else b"\n")
            offset += held_bytes + end
            first, line = line + 1, line + (piece.count(b"\n") or 1)
            is_last, piece = not piece, piece[end:]  # the rest may be long; keep nothing else while the caller works
            yield Block(_drained(held, is_first=first == 1), first, Place(offset, line, tell()))
            held_bytes = 0
            if is_last:
                return
        elif not piece:
            return
        if held_bytes <= limit_bytes:
            held.append(piece)
        held_bytes += len(piece)


def _drained(parts: list[bytes | memoryview], *, is_first: bool) -> bytes:
    """Join all parts, drop the byte order mark of a file's first line, and empty the list."""
    data = b"".join(parts)
    parts.clear()
    return data.removeprefix(codecs.BOM_UTF8) if is_first else data


def text_in(record: bytes) -> str:
    """Return a record as text.

    Raises:
        ValueError: The record is too long or not UTF-8.
    """
    _refuse_long(record)
    return _decoded(record, "utf-8")


def _refuse_long(record: bytes) -> None:
    if len(record) > RECORD_LIMIT_BYTES:
        raise ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")


def _decoded(data: bytes, encoding: str, remedy: str = "") -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        name = "UTF-8" if encoding == "utf-8" else "UTF-16"
        raise ValueError(f"not {name}: {error.reason} at byte {error.start}{remedy}") from error


def packing_of(name: str) -> str:
    """Return `.gz`, `.zst`, `.bz2`, `.xz` or an empty string."""
    return next((packing for packing in UNPACKERS if name.lower().endswith(packing)), "")


def path_order(path: str) -> list[tuple[str, str, str]]:
    """Return a sort key for paths: by each name without its suffixes, so that `a.txt.gz` precedes `a (1).txt.gz`."""
    names = ((name, name[: len(name) - len(packing_of(name))]) for name in path.split("/"))
    return [(*os.path.splitext(unpacked), name) for name, unpacked in names]  # noqa: PTH122 (a Path takes longer)


def is_binary(head: bytes) -> bool:
    """Whether a file that begins with these bytes is binary, that is, has a zero byte and is not UTF-16."""
    return b"\0" in head[:_SNIFFED_BYTES] and not utf16_of(head)


def text_of_file(data: bytes) -> str:
    """Return the content of a text file in UTF-8 or UTF-16; raise `ValueError` if it is neither, or too long."""
    _refuse_long(data)
    if is_binary(data):
        raise ValueError("not text: convert it to text first")
    if encoding := utf16_of(data):
        text = _decoded(data, encoding)
    else:
        text = _decoded(data, "utf-8", "; convert the file first, for example with iconv")
    return text.removeprefix("\ufeff")


def preview(record: bytes) -> str:
    """Return a record's beginning as printable text."""
    text = record[:PREVIEW_BYTES].decode("utf-8", "backslashreplace").rstrip("\r\n")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
