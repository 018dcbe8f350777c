"""The format of a base: an immutable memory-mapped file with all drawers. Embedded indexes and tables use it.

| from | contents |
|---|---|
| 0 | `HEADER_BYTES`: the magic bytes, the length and the CRC-32 of the JSON that follows, then zeros |
| `HEADER_BYTES` | each drawer's fingerprints (8 bytes each), sorted by permuted value; the same in all drawers |
| then | the rows of the key drawer (`KEYED`, 12 bytes each), sorted by segment, then fingerprint |
| then | the directory: for each drawer the start of each *cell*, and the end of the last cell (4 bytes each) |
| then | the segment of every `FENCE_ROWS`-th row of the key drawer, starting with the first (4 bytes each) |
| then | the CRC-32 of each block of `BLOCK_BYTES` from `HEADER_BYTES` up to the directory (4 bytes each) |

A cell contains the fingerprints whose permuted values start with the same bits, so a look-up reads one entry in the
directory and a few adjacent rows. The header contains the CRC-32 of everything after the rows, which is verified when
the file is opened. A block's CRC-32 is verified when the block is first read. Numbers are little-endian, because they
are used directly in the mapped file.

In a *packed* base, each drawer stores only the last `row_bytes` bytes of its permuted values, in order. They are
followed by the leading bits of all values as an Elias-Fano vector: bit i + v, counted from the lowest bit of the first
byte, is set for value number i if its leading bits are the number v. The directory determines where the part of the
vector for a cell begins.

Source of the vector: Elias, "Efficient storage and retrieval by content and address of static files", J. ACM 21, 1974.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

HEADER_BYTES = BLOCK_BYTES = 4096
FINGERPRINT = np.dtype("<u8")
NUMBER = np.dtype("<u4")
KEYED = np.dtype([("segment", "<u4"), ("fingerprint", "<u8")])
FENCE_ROWS = 32
MAGIC = b"hsimbase"
VERSION = 1
FileHeader = TypeVar("FileHeader")


class DamagedBaseError(Exception):
    """A base is missing or damaged. Callers replace this error with a `CorruptionError` that names the index."""


def packed_header(magic: bytes, version: int, fields: Mapping[str, object]) -> bytes:
    """Return the bytes of a header: the magic bytes, the length and the CRC-32 of the JSON, and the JSON itself."""
    text = json.dumps({"version": version, **fields}).encode()
    checked = len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little")
    return (magic + checked + text).ljust(HEADER_BYTES, b"\x00")


def header_fields(packed: bytes, magic: bytes, version: int) -> dict[str, Any]:
    """Return the fields of a header; raise `DamagedBaseError` if the bytes are not a valid header."""
    start = len(magic) + 8
    text = packed[start : start + int.from_bytes(packed[start - 8 : start - 4], "little")]
    if packed[: len(magic)] != magic or zlib.crc32(text) != int.from_bytes(packed[start - 4 : start], "little"):
        raise DamagedBaseError("its header is damaged")
    fields: dict[str, Any] = json.loads(text)
    if fields.pop("version") != version:
        raise DamagedBaseError("it was written by a different release of hsimhash; upgrade hsimhash")
    return fields


def read_header(file: BinaryIO, unpack: Callable[[bytes], FileHeader]) -> tuple[FileHeader, int]:
    """Read the header of a file that was just opened, and return it with its CRC-32.

    Raises:
        DamagedBaseError: The bytes are not a valid header; the message names the file.
    """
    packed = file.read(HEADER_BYTES)
    try:
        return unpack(packed), zlib.crc32(packed)
    except DamagedBaseError as error:
        raise DamagedBaseError(f"{Path(file.name).name}: {error}") from error


def vector_bytes(rows: int, row_bytes: int) -> int:
    """Return the size in bytes of a drawer's vector of leading bits in a packed base."""
    return (rows + (1 << 64 - 8 * row_bytes)) // 8 + 1


@dataclass(frozen=True, slots=True)
class BaseName:
    """The record's description of the current base: its file, its row counts, and its header's CRC-32."""

    file: str
    rows: int  # per drawer
    key_rows: int
    header: int

    def to_json(self) -> bytes:
        """Return the description as stored in the record."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> BaseName:
        """Return the description that `to_json` wrote; raise `ValueError` for anything else."""
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"its base description is invalid: {text[:100]!r}") from error


@dataclass(frozen=True, slots=True)
class BaseHeader:
    """The contents of a base and their sizes."""

    layout: str
    drawers: int
    rows: int  # per drawer
    key_rows: int
    cell_bits: int
    tail: int  # the CRC-32 of everything after the rows
    row_bytes: int = FINGERPRINT.itemsize  # size of a row in a drawer

    @property
    def is_packed(self) -> bool:
        """Whether the leading bits of rows are stored in vectors."""
        return self.row_bytes < FINGERPRINT.itemsize

    @property
    def drawer_bytes(self) -> int:
        """The size of a drawer in bytes."""
        return self.rows * self.row_bytes + self.is_packed * vector_bytes(self.rows, self.row_bytes)

    @property
    def rows_bytes(self) -> int:
        """The size of all rows in bytes."""
        return self.drawers * self.drawer_bytes + self.key_rows * KEYED.itemsize

    @property
    def blocks(self) -> int:
        """The number of blocks that the rows take up."""
        return -(-self.rows_bytes // BLOCK_BYTES)

    @property
    def cells(self) -> int:
        """The number of entries in the directory."""
        return self.drawers * ((1 << self.cell_bits) + 1)

    @property
    def fences(self) -> int:
        """The number of key drawer rows whose segments are also stored after the directory."""
        return -(-self.key_rows // FENCE_ROWS)

    @property
    def file_bytes(self) -> int:
        """The size of the file in bytes."""
        return HEADER_BYTES + self.rows_bytes + (self.cells + self.fences + self.blocks) * NUMBER.itemsize

    def packed(self) -> bytes:
        """Return the header's bytes."""
        return packed_header(MAGIC, VERSION, asdict(self))

    @classmethod
    def unpack(cls, packed: bytes) -> BaseHeader:
        """Return the header in these bytes; raise `DamagedBaseError` if they are not a valid header."""
        return cls(**header_fields(packed, MAGIC, VERSION))
