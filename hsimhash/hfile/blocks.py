"""The frame of an HFile: blocks with checksums, entries of indexes, numbers of variable length, the trailer."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from struct import Struct
from typing import BinaryIO, NamedTuple

from hsimhash.errors import CorruptionError

HEADER = Struct(">8siiqBii")  # magic, body and checksums, body, previous block of the kind, checksum, chunk, on disk
CHECKED_BYTES = 16_384  # under one checksum
CHECKSUM_BYTES = 4
NO_CHECKSUM, CRC32, CRC32C = range(3)

PLAIN_DATA, ENCODED_DATA = b"DATABLK*", b"DATABLKE"
LEAF_INDEX, INNER_INDEX, ROOT_INDEX = b"IDXLEAF2", b"IDXINTE2", b"IDXROOT2"
FILE_INFO = b"FILEINF2"
BLOOM_CHUNK, BLOOM_META = b"BLMFBLK2", b"BLMFMET2"
TRAILER = b'TRABLK"$'
TRAILER_BYTES = 4_096
VERSION = b"\x03\x00\x00\x03"  # minor 3, major 3

_ENTRY = Struct(">qi")  # of an index, before the key: offset, bytes on disk
LEAF_ENTRY_BYTES = _ENTRY.size + 4  # of an entry of a leaf beside its key


class FileBlock(NamedTuple):
    """A block that was read; `offset` and `size` are those of the whole block in the file."""

    magic: bytes
    body: bytes
    offset: int
    size: int


class Entry(NamedTuple):
    """What an index says of a block: where it is, and its first key."""

    offset: int
    size: int
    key: bytes


def framed(magic: bytes, body: bytes, previous: int) -> bytes:
    """Return a block: header, body and checksums; `previous` is the offset of the one of its kind before it, or -1."""
    size = HEADER.size + len(body)
    sums = CHECKSUM_BYTES * -(-size // CHECKED_BYTES)
    data = HEADER.pack(magic, len(body) + sums, len(body), previous, CRC32, CHECKED_BYTES, size) + body
    return data + b"".join(zlib.crc32(chunk).to_bytes(CHECKSUM_BYTES, "big") for chunk in _chunks(data, CHECKED_BYTES))


def block_at(file: BinaryIO, offset: int, end: int, name: str) -> FileBlock:
    """Return the block of a file at an offset, its checksums compared; no block reaches behind `end`.

    Raises:
        CorruptionError: there is no whole block, or its bytes are not those that were written.
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
    if checksum == NO_CHECKSUM:  # HBase leaves zeros then
        if any(block[on_disk:]):
            raise damage_at(*place, "its block is said to have no checksums, but has some")
        return
    summed = _checksum_of(checksum, place)
    for number, part in enumerate(_chunks(memoryview(block)[:on_disk], chunk)):
        start = on_disk + CHECKSUM_BYTES * number
        if summed(part) != int.from_bytes(block[start : start + CHECKSUM_BYTES], "big"):
            raise damage_at(*place, f"checksum {number + 1} of its block is wrong")


def _checksum_of(kind: int, place: tuple[str, int]) -> Callable[[memoryview], int]:
    if kind == CRC32:
        return zlib.crc32
    if kind != CRC32C:
        raise damage_at(*place, f"its block has checksums of the unknown type {kind}")
    try:
        import google_crc32c  # here: for files that HBase wrote only
    except ImportError as error:
        raise ImportError("HBase's own files have CRC32C checksums; pip install 'hsimhash[hfile]'") from error
    return lambda part: int(google_crc32c.value(bytes(part)))


def _chunks(data: bytes | memoryview, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    return (view[start : start + size] for start in range(0, len(view), size))


def damage_at(name: str, offset: int, what: str) -> CorruptionError:
    """Return the error to raise where a file is damaged at an offset."""
    return CorruptionError(f"{name}: at byte {offset:,}: {what}; take another copy of the file, or make it again")


def foreign_at(name: str, offset: int, what: str) -> CorruptionError:
    """Return the error to raise for what we do not read, or for damage that looks like it."""
    return CorruptionError(
        f"{name}: at byte {offset:,}: {what}: only HFiles of version 3 without compression and tags, with data "
        f"encoding NONE or FAST_DIFF, are read; alter the table and major_compact it, or take another copy of the file"
    )


# Numbers of variable length, and protobuf.


def varint(number: int) -> bytes:
    """Return a number, seven bits to a byte, the lowest first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and where it ends; `IndexError` where data end, `ValueError` above 64 bits."""
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


def writable_int(number: int) -> bytes:
    """Return a number from 0 on as Hadoop writes one of variable length: itself, or its bytes behind their count."""
    if number < 0x80:
        return bytes([number])
    found = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([0x90 - len(found)]) + found


def read_writable_int(data: bytes, at: int) -> tuple[int, int]:
    """Return what `writable_int` wrote at a position, and where it ends."""
    first = data[at]
    if first < 0x80:
        return first, at + 1
    end = at + 1 + 0x90 - first
    if not 0x88 <= first < 0x90 or end > len(data):
        raise ValueError("no length")
    return int.from_bytes(data[at + 1 : end], "big"), end


def message_field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protobuf message: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a protobuf message; `ValueError` or `IndexError` if it is none."""
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


# Indexes.


def root_entries(entries: Iterable[Entry]) -> bytes:
    """Return the body of a root index, and the end of a Bloom filter's meta block."""
    return b"".join(_ENTRY.pack(one.offset, one.size) + writable_int(len(one.key)) + one.key for one in entries)


def read_root_entries(body: bytes, count: int) -> list[Entry]:
    """Return the first entries of a root index."""
    found, at = [], 0
    for _ in range(count):
        offset, size = _ENTRY.unpack_from(body, at)
        length, at = read_writable_int(body, at + _ENTRY.size)
        if at + length > len(body):
            raise ValueError("a key is cut")
        found.append(Entry(offset, size, body[at : at + length]))
        at += length
    return found


def leaf_entries(entries: list[Entry]) -> bytes:
    """Return the body of a leaf: the number of entries, where each begins and the last one ends, entries."""
    parts = [_ENTRY.pack(one.offset, one.size) + one.key for one in entries]
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part))
    return b"".join([*(number.to_bytes(4, "big") for number in (len(parts), *starts)), *parts])


def read_leaf_entries(body: bytes) -> list[Entry]:
    """Return the entries of a leaf index."""
    count = int.from_bytes(body[:4], "big")
    first = 4 * (count + 2)
    if first > len(body):
        raise ValueError("more entries than bytes")
    starts = [first + int.from_bytes(body[at : at + 4], "big") for at in range(4, first, 4)]
    parts = [body[start:stop] for start, stop in pairwise(starts)]
    if starts[0] != first or starts[-1] != len(body) or min(map(len, parts), default=_ENTRY.size) < _ENTRY.size:
        raise ValueError("its entries do not lie one behind the other")
    numbers = map(_ENTRY.unpack_from, parts)
    return [Entry(offset, size, part[_ENTRY.size :]) for (offset, size), part in zip(numbers, parts, strict=True)]


# File info and trailer.


def info_body(info: Mapping[bytes, bytes]) -> bytes:
    """Return the body of the file info."""
    pairs = b"".join(message_field(1, message_field(1, key) + message_field(2, info[key])) for key in sorted(info))
    return b"PBUF" + varint(len(pairs)) + pairs


def read_info(body: bytes) -> dict[bytes, bytes]:
    """Return the file info; `ValueError` or `IndexError` for none."""
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


def trailer(values: Mapping[int, int | bytes]) -> bytes:
    """Return the trailer of these fields."""
    message = b"".join(message_field(number, values[number]) for number in sorted(values))
    return (TRAILER + varint(len(message)) + message).ljust(TRAILER_BYTES - len(VERSION), b"\0") + VERSION


def read_trailer(file: BinaryIO, size: int, name: str) -> dict[int, int | bytes]:
    """Return the fields of the trailer of a file of so many bytes."""
    start = max(0, size - TRAILER_BYTES)
    file.seek(start)
    tail = file.read()
    if len(tail) < TRAILER_BYTES or tail[: len(TRAILER)] != TRAILER:
        raise damage_at(name, start, "no trailer of an HFile, the file may be cut")
    if tail[-1] != VERSION[-1]:
        raise foreign_at(name, size - 1, f"version {tail[-1]}")
    try:
        length, at = read_varint(tail, len(TRAILER))
        return dict(message_fields(tail[at : at + length]))
    except (ValueError, IndexError) as error:
        raise damage_at(name, start, f"the trailer cannot be read ({error})") from error
