"""Read sizes from the footer of a Parquet file and from its page headers.

pyarrow does not expose page headers, and it crashes the process when it reads the footer entry of an encrypted column.
So both are parsed here. They are encoded in Thrift's compact protocol, and parquet.thrift in
https://github.com/apache/parquet-format defines them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

_FOOTER_END = 8  # bytes after the footer: its length and PAR1
_FIRST_BYTES = 4 << 10  # bytes first read for a page header, which rarely has more than 100
_MOST_BYTES = 64 << 20  # maximum size of a page header, including statistics
_DEPTH = 16
_ROW_GROUPS, _COLUMNS = 4, 1  # field numbers of the row groups in the footer, and of the columns in a row group
_COLUMN, _CRYPTO = 3, 8  # field numbers in a column chunk
_COLUMN_FIELDS = (5, 6, 7, 9, 11)  # field numbers of the values in `Chunk`
_DICTIONARY_PAGE = 2  # a page type
_DELTA_BYTE_ARRAY = 7  # an encoding in which each value may share a prefix with the previous value
_VALUES, _ENCODING = 1, 2  # field numbers in the header for a page type
_HEADERS = {5: _ENCODING, 7: _ENCODING, 8: 4}  # field with the header for a page type -> its field for the encoding


class Chunk(NamedTuple):
    """The footer's entry for a column in a row group; sizes are in bytes."""

    values: int
    unpacked: int
    packed: int
    data_at: int  # offset of its first page with values
    dictionary_at: int  # offset of its dictionary page; 0 if there is none
    is_encrypted: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """The header of a page; sizes are in bytes."""

    unpacked: int
    packed: int
    values: int
    is_shared: bool  # whether its bytes may be part of several values: a dictionary, or delta-encoded values

    @property
    def longest(self) -> int:
        """The size of the longest possible value, or the average size if values do not share bytes."""
        return self.unpacked if self.is_shared else self.unpacked // max(self.values, 1)


def chunks_in(source: BinaryIO, columns: Collection[int]) -> list[dict[int, Chunk]]:
    """Return the footer's entries for some columns, keyed by column number, for each row group.

    Raises:
        ValueError: The footer is invalid.
    """
    end = source.seek(0, 2)
    source.seek(end - _FOOTER_END)
    size = int.from_bytes(source.read(4), "little")
    source.seek(end - _FOOTER_END - size)
    found: list[dict[int, Chunk]] = []

    def take(group: object) -> None:
        chunks = group.get(_COLUMNS) if isinstance(group, dict) else None
        chunks = chunks if isinstance(chunks, list) else []
        found.append({at: _chunk(chunks[at]) for at in columns if at < len(chunks)})

    try:
        _Thrift(_read(source, size)).struct({_ROW_GROUPS: take})
    except IndexError:
        raise ValueError("the footer is truncated") from None
    return found


def _chunk(fields: object) -> Chunk:
    column = fields.get(_COLUMN) if isinstance(fields, dict) else None
    is_encrypted = isinstance(fields, dict) and _CRYPTO in fields
    if not isinstance(column, dict):
        return Chunk(0, 0, 0, 0, 0, is_encrypted)
    values, unpacked, packed, data_at, dictionary_at = (
        number if isinstance(number := column.get(at), int) else 0 for at in _COLUMN_FIELDS
    )
    return Chunk(values, unpacked, packed, data_at, dictionary_at, is_encrypted)


def pages_of(source: BinaryIO, chunk: Chunk) -> Iterator[Page]:
    """Yield the page headers of a column in a row group; stops at the first one that cannot be read.

    Raises:
        ValueError: A page extends beyond the file. Arrow would allocate all the memory that the page header states.
    """
    size = source.seek(0, 2)
    offset = chunk.dictionary_at if 0 < chunk.dictionary_at < chunk.data_at else chunk.data_at
    end = offset + chunk.packed
    while 0 <= offset < end:
        header = _header_at(source, offset)
        if header is None:
            return
        page, length = header
        offset += length + page.packed
        if offset > size:
            raise ValueError(f"a page extends {offset - size:,} bytes beyond the end of the file")
        yield page


def _header_at(source: BinaryIO, offset: int) -> tuple[Page, int] | None:
    """Return the page header at an offset and its length; None if it cannot be read."""
    size = _FIRST_BYTES
    while size <= _MOST_BYTES:
        source.seek(offset)
        data = _read(source, size)
        try:
            return _page(data)
        except IndexError:  # the header is longer
            if len(data) < size:
                return None
        except ValueError:
            return None
        size *= 16
    return None


def _page(data: bytes) -> tuple[Page, int]:
    reader = _Thrift(data)
    fields = reader.struct()
    kind, unpacked, packed = (fields.get(number) for number in (1, 2, 3))
    if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
        raise ValueError("not a page header")
    for number, encoding in _HEADERS.items():
        if isinstance(header := fields.get(number), dict):
            values = header.get(_VALUES)
            is_shared = kind == _DICTIONARY_PAGE or header.get(encoding) == _DELTA_BYTE_ARRAY
            return Page(unpacked, packed, values if isinstance(values, int) else 0, is_shared), reader.at
    return Page(unpacked, packed, 0, is_shared=False), reader.at


def _read(source: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, or fewer only at the end; a single read of an unbuffered file may return fewer anywhere."""
    parts: list[bytes] = []
    while size > 0 and (part := source.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class _Thrift:
    """Parses Thrift's compact protocol; raises `IndexError` if the data is truncated, `ValueError` if invalid."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, each: dict[int, Callable[[object], None]] | None = None, depth: int = 0) -> dict[int, object]:
        """Return the fields of a struct by number: numbers, lists and structs; None for values of other types.

        If `each` has a function for a list field, the elements are passed to it one by one instead.
        """
        if depth > _DEPTH:
            raise ValueError("nested too deeply")
        fields: dict[int, object] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            take = each.get(number) if each else None
            fields[number] = self._value(head & 15, depth, take)
        return fields

    def _value(self, kind: int, depth: int, take: Callable[[object], None] | None = None) -> object:
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 12:
            return self.struct(depth=depth + 1)
        if kind in (9, 10):
            return self._list(depth, take)
        if kind == 3:
            return self._byte()
        if kind in (7, 8):  # a floating-point number, or bytes
            size = 8 if kind == 7 else self._number()
            self.at += size
            if self.at > len(self._data):
                raise IndexError
            return None
        if kind in (1, 2):  # a boolean, whose value is in the kind
            return None
        raise ValueError(f"unknown value type {kind}")

    def _list(self, depth: int, take: Callable[[object], None] | None) -> list[object]:
        head = self._byte()
        count, kind = head >> 4, head & 15
        if count == 15:
            count = self._number()
        values: list[object] = []
        for _ in range(count):
            # In a list, a boolean takes a byte.
            value = self._byte() if kind in (1, 2) else self._value(kind, depth + 1)
            (take or values.append)(value)
        return values

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _number(self) -> int:
        byte = self._data[self.at]
        self.at += 1
        number, shift = byte & 0x7F, 7
        while byte & 0x80:
            byte = self._byte()
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 70:
                raise ValueError("a number is too long")
        return number

    def _zigzag(self) -> int:
        number = self._number()
        return number >> 1 ^ -(number & 1)
