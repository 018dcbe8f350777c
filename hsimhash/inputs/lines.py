"""Bytes of an input → chunks of whole lines, each with its place, so that a later run can go on behind it.

A line of more than `RECORD_LIMIT_BYTES` is never held: what comes after its beginning is passed over.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import select
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

import zstandard

from hsimhash.errors import HsimhashError
from hsimhash.files import naming

RECORD_LIMIT_BYTES = 16 << 20
IDLE_S = 0.5  # how long a stream may be silent before its reader looks around
PREVIEW_BYTES = 200
STDIN = "-"
# zstd can pack 128 KiB into 4 bytes: so much of a file becomes 32 MiB at most
_ZST_STEP_BYTES = 1 << 10


class DamagedInputError(HsimhashError):
    """A packed input is cut off or corrupt; what came before was read."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place between two lines of an input.

    Args:
        offset: bytes before it, unpacked; for a folder: files.
        line: lines before it.
        read_bytes: bytes read from the file so far, packed as they are; about, for progress.
        digest: of the bytes before it, for a stream.
    """

    offset: int = 0
    line: int = 0
    read_bytes: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines, each with its newline; or what is wrong with the one line before `end`; or none, in a silent stream.

    Args:
        data: the lines; of one that is too long the beginning.
        end: the place behind them.
        problem: what is wrong with the line.
        is_damaged: a packed input cannot be read any further.
    """

    data: bytes
    end: Place
    problem: str = ""
    is_damaged: bool = False


class LineSource(AbstractContextManager["LineSource"], ABC):
    """The bytes of an input, unpacked."""

    is_stream = False

    @abstractmethod
    def read(self) -> bytes | None:
        """Return some bytes, none at the end; None while a stream is silent."""

    @property
    @abstractmethod
    def read_bytes(self) -> int:
        """How many bytes of the file were read, packed as they are."""

    def skip(self, offset: int) -> None:
        """Pass over `offset` bytes of a file that has them."""
        raise NotImplementedError


class _File(LineSource):
    """A file as it is."""

    def __init__(self, name: str, block_bytes: int) -> None:
        self._name = name
        self._file = Path(name).open("rb")  # noqa: SIM115 (`__exit__` closes it)
        self._block_bytes = block_bytes

    @property
    def read_bytes(self) -> int:
        return self._file.tell()

    def read(self) -> bytes:
        with naming(self._name):
            return self._file.read(self._block_bytes)

    def skip(self, offset: int) -> None:
        self._file.seek(offset)

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()


class _PackedFile(_File):
    """A file that is unpacked while it is read."""

    def __init__(self, name: str, block_bytes: int) -> None:
        super().__init__(name, block_bytes)
        self._ahead = b""

    def read(self) -> bytes:
        block, self._ahead = self._ahead or self._unpack(), b""
        return block

    def skip(self, offset: int) -> None:
        while offset > 0:
            block = self._unpack()
            if not block:
                raise DamagedInputError(f"{self._name} has become shorter since it was read before")
            self._ahead = block[offset:]
            offset -= len(block)

    def _unpack(self) -> bytes:
        try:
            with naming(self._name):
                return self._next_block()
        except (EOFError, gzip.BadGzipFile, zlib.error, zstandard.ZstdError) as error:
            raise DamagedInputError(f"damaged or cut off about byte {self._file.tell():,}: {error.args[0]}") from error

    @abstractmethod
    def _next_block(self) -> bytes: ...


class _GzipFile(_PackedFile):
    def __init__(self, name: str, block_bytes: int) -> None:
        super().__init__(name, block_bytes)
        self._unpacked = gzip.GzipFile(fileobj=self._file, mode="rb")

    def _next_block(self) -> bytes:
        return self._unpacked.read1(self._block_bytes)

    def __exit__(self, *exc_info: object) -> None:
        self._unpacked.close()
        super().__exit__(*exc_info)


class _ZstdFile(_PackedFile):
    """One or more zstd frames; zstandard's `stream_reader` would take a file that is cut off for a whole one."""

    def __init__(self, name: str, block_bytes: int) -> None:
        super().__init__(name, block_bytes)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = b""

    def _next_block(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while size < self._block_bytes:
            self._packed = self._packed or self._file.read(_ZST_STEP_BYTES)
            if not self._packed:
                if self._frame is not None and not size:
                    raise EOFError("the last frame has no end")
                break
            self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                parts.append(self._frame.decompress(self._packed))
            except zstandard.ZstdError:
                if not size:
                    raise
                break  # first what is sound; the next call meets the damage again
            size += len(parts[-1])
            self._packed = self._frame.unused_data
            if self._frame.eof:
                self._frame = None
        return b"".join(parts)


class _Stream(LineSource):
    """Stdin or a pipe: what is there, when it is there."""

    is_stream = True

    def __init__(self, name: str, block_bytes: int) -> None:
        self._name = name
        self._is_own = name != STDIN
        self._fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC) if self._is_own else 0
        self._block_bytes = block_bytes
        self._read_bytes = 0

    @property
    def read_bytes(self) -> int:
        return self._read_bytes

    def read(self) -> bytes | None:
        if not select.select([self._fd], [], [], IDLE_S)[0]:
            return None
        with naming(self._name):
            block = os.read(self._fd, self._block_bytes)
        self._read_bytes += len(block)
        return block

    def __exit__(self, *exc_info: object) -> None:
        if self._is_own:
            os.close(self._fd)


def open_source(name: str, packing: str, block_bytes: int, *, is_stream: bool = False) -> LineSource:
    """Open an input, to be read in blocks of about `block_bytes`; `packing` is `.gz`, `.zst` or nothing."""
    if is_stream:
        return _Stream(name, block_bytes)
    kinds: dict[str, type[_File]] = {"": _File, ".gz": _GzipFile, ".zst": _ZstdFile}
    return kinds[packing](name, block_bytes)


def chunks_of(source: LineSource, stop: Callable[[], bool], start: Place | None = None) -> Iterator[Chunk]:
    """Yield the lines of a source just opened, from `start` on; ends early when `stop` says so.

    A last line without newline gets one.

    Raises:
        HsimhashError: a stream does not begin as the one did whose place `start` is. One that is empty may: it ends.
    """
    return _Chunks(source, start or Place(), stop).read()


class _Chunks:
    def __init__(self, source: LineSource, start: Place, stop: Callable[[], bool]) -> None:
        self._source = source
        self._start = start
        self._stop = stop
        self._offset, self._line, self._digest = start.offset, start.line, start.digest
        self._hash = hashlib.blake2b(digest_size=16)  # of a stream up to here, what is held included
        self._held: list[bytes] = []  # the beginning of a line whose end is not read yet
        self._held_bytes = 0

    def read(self) -> Iterator[Chunk]:
        try:
            first = self._skip()
            if first:
                yield from self._take(first)
            while not self._stop():
                block = self._source.read()
                if block is None:
                    yield self._chunk(b"")
                elif block:
                    yield from self._take(block)
                else:
                    yield from self._last_line()
                    return
        except DamagedInputError as error:
            self._line += 1
            yield replace(self._chunk(b"", str(error)), is_damaged=True)

    def _skip(self) -> bytes:
        """Go to the start; return what was read beyond it."""
        if not self._source.is_stream:
            self._source.skip(self._start.offset)
            return b""
        passed = 0
        while passed < self._start.offset and not self._stop():
            block = self._source.read()
            if block is not None:
                here = block[: self._start.offset - passed]
                passed += len(here)
                self._hash.update(here)
                if passed == self._start.offset and self._hash.hexdigest() == self._start.digest:
                    return block[len(here) :]
                if not block or passed == self._start.offset:
                    self._check_is_empty(passed)
                    break
        return b""

    def _check_is_empty(self, passed: int) -> None:
        if passed:
            raise HsimhashError(
                f"the stream does not begin with the {self._start.offset:,} bytes that this job has read already; send "
                f"the same again, or an empty one to finish with what was read, or start over with --fresh"
            )

    def _take(self, block: bytes) -> Iterator[Chunk]:
        """Give the lines that a block ends, and hold what is behind them."""
        # A packed file's block may be larger than a record: in pieces no line within one is too long.
        for start in range(0, len(block), RECORD_LIMIT_BYTES):
            yield from self._take_piece(block[start : start + RECORD_LIMIT_BYTES])

    def _take_piece(self, block: bytes) -> Iterator[Chunk]:
        first = block.find(b"\n") + 1
        if first and self._held_bytes + first - 1 > RECORD_LIMIT_BYTES:
            yield self._too_long(block[:first])
            block = block[first:]
        cut = block.rfind(b"\n") + 1
        if cut:
            lines = block if cut == len(block) else block[:cut]
            data = b"".join([*self._held, lines]) if self._held else lines
            self._pass(lines, data.count(b"\n"))
            yield self._chunk(data)
        if cut < len(block):
            self._hold(block[cut:])

    def _hold(self, part: bytes) -> None:
        self._held_bytes += len(part)
        self._hash_part(part)
        self._held.append(part)
        if self._held_bytes > RECORD_LIMIT_BYTES:
            self._held = [b"".join(self._held)[:PREVIEW_BYTES]]

    def _too_long(self, rest: bytes) -> Chunk:
        beginning = b"".join([*self._held, rest])[:PREVIEW_BYTES]
        self._pass(rest, 1)
        return self._chunk(beginning, f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")

    def _last_line(self) -> Iterator[Chunk]:
        if self._held_bytes > RECORD_LIMIT_BYTES:
            yield self._too_long(b"")
        elif self._held:
            data = b"".join(self._held) + b"\n"
            self._pass(b"", 1)
            yield self._chunk(data)

    def _pass(self, part: bytes, lines: int) -> None:
        """Go behind what is held and `part`."""
        self._hash_part(part)
        self._offset += self._held_bytes + len(part)
        self._line += lines
        self._held, self._held_bytes = [], 0
        if self._source.is_stream:
            self._digest = self._hash.hexdigest()

    def _hash_part(self, part: bytes) -> None:
        if self._source.is_stream:
            self._hash.update(part)

    def _chunk(self, data: bytes, problem: str = "") -> Chunk:
        return Chunk(data, Place(self._offset, self._line, self._source.read_bytes, self._digest), problem)
