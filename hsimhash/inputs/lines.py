"""Bytes of an input → blocks of whole lines, each with its place, so that a later run can continue behind it."""

from __future__ import annotations

import codecs
import gzip
import select
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from typing import BinaryIO, cast

import zstandard

from hsimhash.errors import HsimhashError
from hsimhash.files import naming

RECORD_LIMIT_BYTES = 16 << 20
BLOCK_BYTES = 256 << 10  # about so much is read at once; more only where a single record is larger
IDLE_S = 0.5  # how long a stream may be silent before its reader looks around
PREVIEW_BYTES = 200
STDIN = "-"
PACKED = (".gz", ".zst")
# zstd can pack 128 KiB into 4 bytes: so much of a file becomes 32 MiB at most
_ZST_STEP_BYTES = 1 << 10


class DamagedInputError(HsimhashError):
    """A packed input is cut off or corrupt; what came before was read."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two lines of an input."""

    offset: int = 0  # bytes before it, unpacked; for a folder: files
    line: int = 0  # lines before it
    read_bytes: int = 0  # bytes read from the file so far, packed as they are; about, for progress; 0 for a stream


@dataclass(frozen=True, slots=True)
class Block:
    """Whole lines, each with its newline, without the input's byte order mark; none where a stream is silent."""

    data: bytes  # the lines; of one over the limit only a part, which is over the limit too
    first: int  # the number of the first, from 1
    end: Place  # the place behind them

    def lines(self) -> list[bytes]:
        """Return the lines without their newlines."""
        return self.data.split(b"\n")[:-1]


class InputFile:
    """The unpacked bytes of a file, a pipe or stdin (`-`); `packing` is `.gz`, `.zst` or nothing. A context manager.

    `file` is what is behind the name, where that is no path.
    """

    def __init__(self, name: str, packing: str = "", *, is_stream: bool = False, file: BinaryIO | None = None) -> None:
        self._name = name
        self._is_stream = is_stream
        self._file = file or open_input(name)
        self._unpacked = _unpacked(self._file, packing)
        self._is_packed = bool(packing)
        self._ahead = b""

    def tell(self) -> int:
        """Return how many bytes of the file were read, packed as they are; 0 for a stream."""
        return 0 if self._is_stream else self._file.tell()

    def read(self, size: int = BLOCK_BYTES) -> bytes | None:
        """Return about `size` bytes, none at the end; None while a stream is silent."""
        if self._is_stream and not select.select([self._file], [], [], IDLE_S)[0]:
            return None
        block, self._ahead = self._ahead or self._read(size), b""
        return block

    def skip(self, offset: int) -> None:
        """Pass over the first `offset` bytes of a file."""
        if not self._is_packed:
            self._file.seek(offset)
            return
        while offset > 0:
            block = self._read(BLOCK_BYTES)
            if not block:
                raise DamagedInputError(f"{self._name} has become shorter since it was read before")
            self._ahead = block[offset:]
            offset -= len(block)

    def _read(self, size: int) -> bytes:
        try:
            with naming(self._name):
                return self._unpacked(size)
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            raise DamagedInputError(f"damaged or cut off about byte {self._file.tell():,}: {error.args[0]}") from error

    def __enter__(self) -> InputFile:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()


def open_input(name: str) -> BinaryIO:
    """Open a file, a pipe or stdin (`-`), unbuffered."""
    return cast(BinaryIO, FileIO(0 if name == STDIN else name, closefd=name != STDIN))


def _unpacked(file: BinaryIO, packing: str) -> Callable[[int], bytes]:
    if packing == ".gz":
        return gzip.GzipFile(fileobj=file, mode="rb").read1
    return _ZstdFrames(file).read if packing == ".zst" else file.read


class _ZstdFrames:
    """One or more zstd frames; zstandard's `stream_reader` would take a file that is cut off for a whole one."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = b""

    def read(self, size: int) -> bytes:
        parts: list[bytes] = []
        while size > 0:
            self._packed = self._packed or self._file.read(_ZST_STEP_BYTES)
            if not self._packed:
                if self._frame is not None and not any(parts):
                    raise EOFError("the last frame has no end")
                break
            self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                parts.append(self._frame.decompress(self._packed))
            except zstandard.ZstdError:
                if not any(parts):
                    raise
                break  # first what is sound; the next call meets the damage again
            size -= len(parts[-1])
            self._packed = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        return b"".join(parts)


def blocks_of(
    read: Callable[[], bytes | None],
    start: Place | None = None,
    tell: Callable[[], int] = lambda: 0,
    *,
    limit_bytes: int = RECORD_LIMIT_BYTES,
) -> Iterator[Block]:
    """Yield the lines that `read` gives from `start` on; a last line without newline gets one.

    Of a line over the limit no more is held than is read at once beyond it.

    Args:
        read: returns some bytes, none at the end; None while nothing comes.
        start: the place of the first byte that it returns.
        tell: returns how many bytes of a file were read.
        limit_bytes: of a line.
    """
    start = start or Place()
    offset, line = start.offset, start.line
    held: list[bytes] = []  # the beginning of a line whose end is not read yet
    held_bytes = 0
    while True:
        piece = read()
        if piece is None:
            yield Block(b"", line + 1, Place(offset, line))
            continue
        head, newline, tail = piece.rpartition(b"\n")
        if newline or (held_bytes and not piece):
            data = b"".join([*held, head, b"\n"])
            offset += held_bytes + len(head) + len(newline)
            first, line = line + 1, line + data.count(b"\n")
            yield Block(data.removeprefix(codecs.BOM_UTF8) if first == 1 else data, first, Place(offset, line, tell()))
            held, held_bytes = [], 0
        if not piece:
            return
        if held_bytes <= limit_bytes:
            held.append(tail)
        held_bytes += len(tail)


def text_in(record: bytes, encoding: str = "utf-8") -> str:
    """Return a record as text; `ValueError` says why it is none."""
    if len(record) > RECORD_LIMIT_BYTES:
        raise ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")
    try:
        return record.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error


def preview(record: bytes) -> str:
    """Return a record's beginning as printable text."""
    text = record[:PREVIEW_BYTES].decode("utf-8", "backslashreplace").rstrip("\r\n")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
