"""`HFile` reads an HFile, ours or HBase's, from its first cell to its last, and verifies the checksums."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, TypeVar

from hsimhash.errors import CorruptionError
from hsimhash.hfile.blocks import (
    CHECKSUM_BYTES,
    CRC32,
    ENCODED_DATA,
    ENTRY,
    FILE_INFO,
    HEADER,
    HFILE_VERSION,
    LEAF_INDEX,
    PLAIN_DATA,
    ROOT_INDEX,
    TRAILER,
    TRAILER_BYTES,
    Entry,
    chunks,
)
from hsimhash.hfile.cells import (
    ENCODED_HEAD,
    FAST_DIFF_ID,
    LENGTHS,
    SAME_KEY_LENGTH,
    SAME_TYPE,
    SAME_VALUE,
    SAME_VALUE_LENGTH,
    KeyValue,
)

INNER_INDEX = b"IDXINTE2"
NO_CHECKSUM, CRC32C = 0, 2
MOST_LEVELS = 8  # levels of the index; HBase needs three for a terabyte
MOST_BLOCK_BYTES = 1 << 28  # decoded; HBase's blocks are slightly larger than a cell or 64 KiB
STAMP_BYTES, TYPE_BYTES = 8, 1

T = TypeVar("T")
_NO_COMPRESSION = 2
_WITH_MVCC = (1).to_bytes(4, "big")
_UNREADABLE = (ValueError, IndexError, struct.error)


class FileBlock(NamedTuple):
    """A block that was read; `offset` and `size` describe the whole block in the file."""

    magic: bytes
    body: bytes
    offset: int
    size: int


def block_at(file: BinaryIO, offset: int, end: int, name: str) -> FileBlock:
    """Return the block of a file at an offset after verifying its checksums; a block must not reach beyond `end`.

    Raises:
        CorruptionError: the block is not complete, or its bytes are not those that were written.
    """
    if not 0 <= offset <= end - HEADER.size:
        raise damage_at(name, offset, f"no block is there, they end at {end:,}")
    file.seek(offset)
    header = file.read(HEADER.size)
    magic, with_sums, body_bytes, _, checksum, chunk, on_disk = HEADER.unpack(header)
    size = HEADER.size + with_sums
    if not (0 <= body_bytes <= with_sums and offset + size <= end and on_disk == HEADER.size + body_bytes):
        raise damage_at(name, offset, f"the lengths in the header of block {magic!r} do not fit")
    data = header + file.read(with_sums)
    _verify(data, on_disk, checksum, chunk, (name, offset))
    return FileBlock(magic, data[HEADER.size : on_disk], offset, size)


def _verify(block: bytes, on_disk: int, checksum: int, chunk: int, place: tuple[str, int]) -> None:
    if chunk < 1 or len(block) - on_disk != CHECKSUM_BYTES * -(-on_disk // chunk):
        raise damage_at(*place, "the number of checksums does not fit the block")
    if checksum == NO_CHECKSUM:  # HBase then leaves zeros
        if any(block[on_disk:]):
            raise damage_at(*place, "its block is said to have no checksums, but has some")
        return
    summed = _checksum_of(checksum, place)
    for number, part in enumerate(chunks(memoryview(block)[:on_disk], chunk)):
        start = on_disk + CHECKSUM_BYTES * number
        if summed(part) != int.from_bytes(block[start : start + CHECKSUM_BYTES], "big"):
            raise damage_at(*place, f"checksum {number + 1} of its block is wrong")


def _checksum_of(kind: int, place: tuple[str, int]) -> Callable[[memoryview], int]:
    if kind == CRC32:
        return zlib.crc32
    if kind != CRC32C:
        raise damage_at(*place, f"its block has checksums of the unknown type {kind}")
    try:
        import google_crc32c  # here: only files that HBase wrote need it
    except ImportError as error:
        raise ImportError("HBase's own files have CRC32C checksums; pip install google-crc32c") from error
    return lambda part: int(google_crc32c.value(bytes(part)))


def damage_at(name: str, offset: int, what: str) -> CorruptionError:
    """Return the error to raise for damage at an offset of a file."""
    return CorruptionError(f"{name}: at byte {offset:,}: {what}; take another copy of the file, or make it again")


def foreign_at(name: str, offset: int, what: str) -> CorruptionError:
    """Return the error to raise for what we cannot read, or for damage that looks like it."""
    return CorruptionError(
        f"{name}: at byte {offset:,}: {what}: only HFiles of version 3 without compression and tags, with data "
        f"encoding NONE or FAST_DIFF, are read; alter the table and major_compact it, or take another copy of the file"
    )


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and where it ends; `IndexError` if data end, `ValueError` above 64 bits."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def read_writable_int(data: bytes, at: int) -> tuple[int, int]:
    """Return what `writable_int` wrote at a position, and where it ends."""
    first = data[at]
    if first < 0x80:
        return first, at + 1
    end = at + 1 + 0x90 - first
    if not 0x88 <= first < 0x90 or end > len(data):
        raise ValueError("no length")
    return int.from_bytes(data[at + 1 : end], "big"), end


def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message; `ValueError` or `IndexError` if it is not one."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if key & 7 == 0:
            yield key >> 3, value
        elif key & 7 == 2 and at + value <= len(data):
            yield key >> 3, data[at : at + value]
            at += value
        else:
            raise ValueError("no field of a message")


def read_root_entries(body: bytes, count: int) -> list[Entry]:
    """Return the first `count` entries of a root index."""
    found, at = [], 0
    for _ in range(count):
        offset, size = ENTRY.unpack_from(body, at)
        length, at = read_writable_int(body, at + ENTRY.size)
        if at + length > len(body):
            raise ValueError("a key is cut")
        found.append(Entry(offset, size, body[at : at + length]))
        at += length
    return found


def read_leaf_entries(body: bytes) -> list[Entry]:
    """Return the entries of a leaf index."""
    count = int.from_bytes(body[:4], "big")
    first = 4 * (count + 2)
    if first > len(body):
        raise ValueError("more entries than bytes")
    starts = [first + int.from_bytes(body[at : at + 4], "big") for at in range(4, first, 4)]
    parts = [body[start:stop] for start, stop in pairwise(starts)]
    if starts[0] != first or starts[-1] != len(body) or min(map(len, parts), default=ENTRY.size) < ENTRY.size:
        raise ValueError("its entries do not come one after the other")
    numbers = map(ENTRY.unpack_from, parts)
    return [Entry(offset, size, part[ENTRY.size :]) for (offset, size), part in zip(numbers, parts, strict=True)]


def read_info(body: bytes) -> dict[bytes, bytes]:
    """Return the file info; `ValueError` or `IndexError` if it is not one."""
    if body[:4] != b"PBUF":
        raise ValueError("no file info of HBase 0.98 or later")
    length, at = read_varint(body, 4)
    info = {}
    for _, pair in message_fields(body[at : at + length]):
        if not isinstance(pair, bytes):
            raise ValueError("no pair")
        parts = dict(message_fields(pair))
        info[_as_bytes(parts.get(1, b""))] = _as_bytes(parts.get(2, b""))
    return info


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where bytes are expected")
    return value


def read_trailer(file: BinaryIO, size: int, name: str) -> dict[int, int | bytes]:
    """Return the fields of the trailer of a file of `size` bytes."""
    start = max(0, size - TRAILER_BYTES)
    file.seek(start)
    tail = file.read()
    if len(tail) < TRAILER_BYTES or tail[: len(TRAILER)] != TRAILER:
        raise damage_at(name, start, "no trailer of an HFile, the file may be cut")
    if tail[-1] != HFILE_VERSION[-1]:
        raise foreign_at(name, size - 1, f"version {tail[-1]}")
    try:
        length, at = read_varint(tail, len(TRAILER))
        return dict(message_fields(tail[at : at + length]))
    except (ValueError, IndexError) as error:
        raise damage_at(name, start, f"the trailer cannot be read ({error})") from error


def cell_of_key(key: bytes, value: bytes) -> tuple[KeyValue, bytes]:
    """Return the cell of a key, and its family; `ValueError` if the lengths in the key do not fit."""
    row_end = 2 + int.from_bytes(key[:2], "big")
    family_end = row_end + 1 + key[row_end] if row_end < len(key) else len(key)
    end = len(key) - STAMP_BYTES - TYPE_BYTES
    if not 2 <= row_end < family_end <= end:
        raise ValueError("a key's lengths do not fit")
    timestamp = int.from_bytes(key[end:-1], "big", signed=True)
    cell = KeyValue(key[2:row_end], key[family_end:end], timestamp, value, key[-1])
    return cell, key[row_end + 1 : family_end]


def cells_of(magic: bytes, body: bytes, *, has_tags: bool, has_mvcc: bool) -> Iterator[tuple[KeyValue, bytes]]:
    """Yield the cells of a data block, each with its family.

    Args:
        magic: the block's magic.
        body: the block's body.
        has_tags: whether a cell ends with the length of its tags, which must be 0.
        has_mvcc: whether the number of its write follows them.

    Raises:
        ValueError, IndexError, struct.error: the cells cannot be read.
    """
    if magic == PLAIN_DATA:
        yield from _plain_cells(body, has_tags=has_tags, has_mvcc=has_mvcc)
        return
    encoding, size = ENCODED_HEAD.unpack_from(body)
    if encoding != FAST_DIFF_ID:
        raise ForeignError(f"data encoding {encoding}")
    if size > MOST_BLOCK_BYTES:
        raise ValueError(f"it says that its cells have {size:,} bytes")
    at, before, found = ENCODED_HEAD.size, None, 0
    while at < len(body):
        before, at = _read_diff(body, at, before)
        if has_tags:
            tags, at = read_varint(body, at)
            _refuse_tags(tags)
        if has_mvcc:
            start = at
            _, at = read_writable_int(body, at)
            found += at - start
        found += LENGTHS.size + len(before.key) + len(before.value) + 2 * has_tags
        if found > size:
            break
        yield cell_of_key(before.key, before.value)
    if found != size:
        raise ValueError("its cells are not as long as it says")


def _plain_cells(body: bytes, *, has_tags: bool, has_mvcc: bool) -> Iterator[tuple[KeyValue, bytes]]:
    at = 0
    while at < len(body):
        key_bytes, value_bytes = LENGTHS.unpack_from(body, at)
        start = at + LENGTHS.size
        at = start + key_bytes + value_bytes
        if key_bytes < 0 or value_bytes < 0 or at > len(body):
            raise ValueError("a cell is cut")
        key, value = body[start : start + key_bytes], body[start + key_bytes : at]
        if has_tags:
            _refuse_tags(int.from_bytes(body[at : at + 2], "big"))
            at += 2
        if has_mvcc:
            _, at = read_writable_int(body, at)
        yield cell_of_key(key, value)
    if at != len(body):
        raise ValueError("its last cell is cut")


def _refuse_tags(length: int) -> None:
    if length:
        raise ForeignError("a cell with tags")


class ForeignError(ValueError):
    """A block seems sound, but is of a kind that we do not read."""


class _Read(NamedTuple):
    """A cell that was read, for the next one to refer to."""

    key: bytes
    value: bytes


def _read_diff(body: bytes, at: int, before: _Read | None) -> tuple[_Read, int]:
    """Return the cell of FAST_DIFF at a position, and where it ends."""
    flag, at = body[at], at + 1
    key_bytes, value_bytes = (0, 0) if before is None else (len(before.key), len(before.value))
    if not flag & SAME_KEY_LENGTH:
        key_bytes, at = read_varint(body, at)
    if not flag & SAME_VALUE_LENGTH:
        value_bytes, at = read_varint(body, at)
    shared, at = read_varint(body, at)

    def taken(count: int) -> bytes:
        nonlocal at
        if not 0 <= count <= len(body) - at:
            raise ValueError("a cell is cut")
        at += count
        return body[at - count : at]

    if before is None:
        key = taken(key_bytes)
        return _Read(key, taken(value_bytes)), at
    row_end = 2 + int.from_bytes(before.key[:2], "big")
    family_end = row_end + 1 + before.key[row_end]
    tail = key_bytes - STAMP_BYTES - TYPE_BYTES
    if shared < row_end:  # another row: the family, the same for all cells, follows it
        head = before.key[:shared]
        head += taken(2 - len(head)) if len(head) < 2 else b""
        head += taken(2 + int.from_bytes(head[:2], "big") - len(head)) + before.key[row_end:family_end]
    elif family_end <= shared <= len(before.key) - STAMP_BYTES - TYPE_BYTES:
        head = before.key[:shared]
    else:
        raise ValueError("a cell shares more than the one before has")
    key = head + taken(tail - len(head))
    kept = flag & 7
    stamp = before.key[-STAMP_BYTES - TYPE_BYTES :][:kept]
    key += stamp + taken(STAMP_BYTES - kept)
    key += before.key[-1:] if flag & SAME_TYPE else taken(1)
    return _Read(key, before.value if flag & SAME_VALUE else taken(value_bytes)), at


class HFile(AbstractContextManager["HFile"]):
    """An HFile of version 3, without compression and tags, with the data encoding NONE or FAST_DIFF.

    Args:
        path: its path; only for messages if `stream` is given.
        stream: its bytes; closed with the HFile.

    Attributes:
        name: its path.
        size: its size in bytes.
        count: the number of cells, according to the trailer.
        info: the file info, with names and values as HBase wrote them.

    Raises:
        CorruptionError: it is damaged, or of another kind; when it is opened or read.
        ImportError: HBase wrote it, and the library for its checksums is missing: `pip install google-crc32c`.
    """

    def __init__(self, path: Path | str, stream: BinaryIO | None = None) -> None:
        self.name = str(path)
        self._file = Path(path).open("rb") if stream is None else stream  # noqa: SIM115  (closed with this)
        try:
            self.size = self._file.seek(0, os.SEEK_END)
            self._read_beginning(self.size)
        except BaseException:
            self.close()
            raise

    def _read_beginning(self, size: int) -> None:
        fields = read_trailer(self._file, size, self.name)
        self._end = end = size - TRAILER_BYTES
        numbers = [value for number in (1, 2, 5, 7, 8, 10, 12) if isinstance(value := fields.get(number), int)]
        if len(numbers) < 7:
            raise damage_at(self.name, end, "the trailer lacks numbers")
        info_at, root_at, roots, self.count, levels, last_data, compression = numbers
        if compression != _NO_COMPRESSION:
            raise foreign_at(self.name, end, f"compression {compression}")
        if not 1 <= levels <= MOST_LEVELS:
            raise damage_at(self.name, end, f"an index of {levels} levels")
        info, root = self._block(info_at, FILE_INFO), self._block(root_at, ROOT_INDEX)
        self.info = self._made(info, lambda: read_info(info.body))
        self._entries = self._made(root, lambda: read_root_entries(root.body, roots))
        for _ in range(levels - 1):
            self._verify_order()
            self._entries = [entry for one in self._entries for entry in self._leaf(one)]
        self._verify_order()
        if self._entries and self._entries[-1].offset != last_data:
            raise damage_at(self.name, end, "the index does not end with the last data block")

    def _verify_order(self) -> None:
        """Raise `CorruptionError` unless the blocks are in order, so that a file cannot name too many."""
        for entry, following in pairwise(self._entries):
            if following.offset < entry.offset + entry.size:
                raise damage_at(self.name, following.offset, "the index is out of order")

    def _leaf(self, entry: Entry) -> list[Entry]:
        block = self._block(entry.offset, LEAF_INDEX, INNER_INDEX, size=entry.size)
        return self._made(block, lambda: read_leaf_entries(block.body))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def cells(self) -> Iterator[KeyValue]:
        """Yield all cells in order; only after the last one is it certain that none is missing."""
        found, family, last, last_cell = 0, b"", None, None
        for entry in self._entries:
            for cell, its_family in self._cells_at(entry):
                found += 1
                here = (cell.row, cell.qualifier, -cell.timestamp)
                if found > 1 and family != its_family:
                    raise damage_at(self.name, entry.offset, f"a cell of family {its_family!r} among {family!r}")
                if last is not None and here < last:
                    raise damage_at(self.name, entry.offset, f"cell {cell.row.hex()} is out of order")
                family, last, last_cell = its_family, here, cell
                yield cell
        last_key = b"" if last_cell is None else last_cell.key(family)
        if found != self.count or last_key != self.info.get(b"hfile.LASTKEY", b""):
            raise damage_at(self.name, self._end, f"{found:,} cells instead of {self.count:,}, or another last one")

    def verify(self) -> None:
        """Read all blocks, including those of the index and the Bloom filter, and all cells.

        Raises:
            CorruptionError: something is damaged, or a data block is not in the index.
        """
        offset, data = 0, list[int]()
        while offset < self._end:
            block = block_at(self._file, offset, self._end, self.name)
            if block.magic in (PLAIN_DATA, ENCODED_DATA):
                data.append(offset)
            offset += block.size
        if data != [entry.offset for entry in self._entries]:
            raise damage_at(self.name, self._end, "the index names other data blocks than there are")
        for _ in self.cells():
            pass

    def _cells_at(self, entry: Entry) -> list[tuple[KeyValue, bytes]]:
        """Return the cells of a data block, each with its family."""
        block = self._block(entry.offset, PLAIN_DATA, ENCODED_DATA, size=entry.size)
        has_mvcc = self.info.get(b"KEY_VALUE_VERSION") == _WITH_MVCC
        has_tags = b"hfile.MAX_TAGS_LEN" in self.info

        def make() -> list[tuple[KeyValue, bytes]]:
            cells = list(cells_of(block.magic, block.body, has_tags=has_tags, has_mvcc=has_mvcc))
            first, _ = cell_of_key(entry.key, b"")
            if not cells or cells[0][0].row < first.row:  # HBase shortens keys to what distinguishes two blocks
                raise ValueError("its cells lie before what the index says of it")
            return cells

        return self._made(block, make)

    def _block(self, offset: int, *magics: bytes, size: int | None = None) -> FileBlock:
        block = block_at(self._file, offset, self._end, self.name)
        if block.magic not in magics:
            raise damage_at(self.name, offset, f"a block {block.magic!r} instead of {b' or '.join(magics)!r}")
        if size not in (None, block.size):
            raise damage_at(self.name, offset, f"a block of {block.size:,} bytes instead of {size:,}")
        return block

    def _made(self, block: FileBlock, make: Callable[[], T]) -> T:
        """Return what `make` returns for a block; `CorruptionError` if that fails."""
        try:
            return make()
        except ForeignError as error:
            raise foreign_at(self.name, block.offset, str(error)) from error
        except _UNREADABLE as error:
            raise damage_at(self.name, block.offset, f"block {block.magic!r} cannot be read: {error}") from error
