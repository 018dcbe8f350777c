"""The structure of an HFile: checksummed blocks, index entries, variable-length numbers, and the trailer."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import NamedTuple

# Magic, bytes of body and checksums, bytes of body, offset of the previous block of this kind, checksum type, bytes per
# checksum, bytes of header and body.
HEADER = Struct(">8siiqBii")
CHECKED_BYTES = 16_384  # bytes per checksum
CHECKSUM_BYTES = 4
CRC32 = 1

PLAIN_DATA, ENCODED_DATA = b"DATABLK*", b"DATABLKE"
LEAF_INDEX, ROOT_INDEX = b"IDXLEAF2", b"IDXROOT2"
FILE_INFO = b"FILEINF2"
BLOOM_CHUNK, BLOOM_META = b"BLMFBLK2", b"BLMFMET2"
TRAILER = b'TRABLK"$'
TRAILER_BYTES = 4_096
HFILE_VERSION = b"\x03\x00\x00\x03"  # minor 3, major 3

ENTRY = Struct(">qi")  # start of an index entry, before the key: offset, bytes on disk
LEAF_ENTRY_BYTES = ENTRY.size + 4  # bytes of a leaf's entry without its key


class Entry(NamedTuple):
    """The index entry of a block: its offset, its size in bytes, and its first key."""

    offset: int
    size: int
    key: bytes


def framed(magic: bytes, body: bytes, previous: int) -> bytes:
    """Return a block: header, body and checksums; `previous` is the offset of the last block of its kind, or -1."""
    size = HEADER.size + len(body)
    sums = CHECKSUM_BYTES * -(-size // CHECKED_BYTES)
    data = HEADER.pack(magic, len(body) + sums, len(body), previous, CRC32, CHECKED_BYTES, size) + body
    return data + b"".join(zlib.crc32(chunk).to_bytes(CHECKSUM_BYTES, "big") for chunk in chunks(data, CHECKED_BYTES))


def chunks(data: bytes | memoryview, size: int) -> Iterator[memoryview]:
    """Return data in parts of `size` bytes; the last one may be shorter."""
    view = memoryview(data)
    return (view[start : start + size] for start in range(0, len(view), size))


# Variable-length numbers, and protobuf.


def varint(number: int) -> bytes:
    """Encode a number with seven bits in each byte, lowest bits first."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def writable_int(number: int) -> bytes:
    """Encode a non-negative number as Hadoop's variable-length integer: one byte, or the byte count and the bytes."""
    if number < 0x80:
        return bytes([number])
    found = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([0x90 - len(found)]) + found


def message_field(number: int, value: int | bytes) -> bytes:
    """Return a field of a protobuf message: a number, or bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


# Indexes.


def root_entries(entries: Iterable[Entry]) -> bytes:
    """Return the body of a root index, which is also the end of a Bloom filter's meta block."""
    return b"".join(ENTRY.pack(one.offset, one.size) + writable_int(len(one.key)) + one.key for one in entries)


def leaf_entries(entries: list[Entry]) -> bytes:
    """Return the body of a leaf: the number of entries, the offsets of the entries and of the end, and the entries."""
    parts = [ENTRY.pack(one.offset, one.size) + one.key for one in entries]
    starts = [0]
    for part in parts:
        starts.append(starts[-1] + len(part))
    return b"".join([*(number.to_bytes(4, "big") for number in (len(parts), *starts)), *parts])


# File info and trailer.


def info_body(info: Mapping[bytes, bytes]) -> bytes:
    """Return the body of the file info."""
    pairs = b"".join(message_field(1, message_field(1, key) + message_field(2, info[key])) for key in sorted(info))
    return b"PBUF" + varint(len(pairs)) + pairs


def trailer(values: Mapping[int, int | bytes]) -> bytes:
    """Return the trailer with the given fields, by their protobuf numbers."""
    message = b"".join(message_field(number, values[number]) for number in sorted(values))
    return (TRAILER + varint(len(message)) + message).ljust(TRAILER_BYTES - len(HFILE_VERSION), b"\0") + HFILE_VERSION
