"""The page headers of a Parquet file: how much each page unpacks to, before Arrow unpacks it.

Arrow unpacks whole pages, and a page of 2 GiB may take 2 KiB in the file. A dictionary page may hold one long value
that a few bytes of the other pages repeat a million times. So a batch has as many rows as fit into memory if every
value were the longest that its page allows, and a page that would take too much is not read.

The format of page headers: https://github.com/apache/parquet-format (parquet.thrift), in Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from hsimhash.inputs.lines import RECORD_LIMIT_BYTES

BATCH_BYTES = 32 << 20  # of a column, in one batch
ROWS_AT_ONCE = 1_024
_PAGE_BYTES = 64 << 20  # that any page may unpack to
_PAGE_RATIO = 64  # to which a larger page may be packed; text is rarely packed to a tenth
_LARGE_PAGE_BYTES = 512 << 20  # that a page may unpack to if its values are over the limit on average
_LEVELS = 4 << 20  # values in a page of a nested column that may take less than 1/64 byte each
_VALUE_BYTES = 16  # that a nested value takes besides its bytes, about
_SHORT_DICTIONARY_BYTES = 64 << 10
_FIRST_BYTES = 4 << 10  # read for a header, which rarely has more than 100
_MOST_BYTES = 64 << 20
_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7  # an encoding: each value begins as the one before it
_UNPACKED, _PACKED = 2, 3
_VALUES, _ENCODING = 1, 2
_HEADERS = {5: _ENCODING, 7: _ENCODING, 8: 4}  # by field, the header of a page of each kind: its field for the encoding


@dataclass(frozen=True, slots=True)
class Page:
    """What a page's header says."""

    unpacked: int  # bytes
    packed: int  # bytes
    values: int
    is_shared: bool  # whether its values may repeat parts of it: a dictionary, or values as what they add to others

    @property
    def longest(self) -> int:
        """The bytes of a value: at most, or on average if the page has all bytes of each."""
        return self.unpacked if self.is_shared else self.unpacked // max(self.values, 1)


def pages_of(source: BinaryIO, chunk: Any) -> Iterator[Page]:
    """Yield what the headers of a column's pages in a row group say, as far as they can be read.

    Args:
        source: the file.
        chunk: Arrow's metadata of the column in the row group.
    """
    offset: int = chunk.data_page_offset
    if chunk.dictionary_page_offset and 0 < chunk.dictionary_page_offset < offset:
        offset = chunk.dictionary_page_offset
    end = offset + chunk.total_compressed_size
    while offset < end:
        header = _header_at(source, offset)
        if header is None:
            return
        page, length = header
        yield page
        offset += length + page.packed


@dataclass(frozen=True, slots=True)
class Plan:
    """How a column in a row group can be read."""

    why_not: str = ""  # why it cannot be
    rows_at_once: int = ROWS_AT_ONCE
    has_long_dictionary: bool = False  # so that a row with many values may take much more than its pages


def plan_of(pages: Iterable[Page], rows: int, *, is_nested: bool) -> Plan:
    """Plan how to read a column in a row group by its pages.

    A value of a column that is not nested is never longer than `Page.longest`, but for a long one among short ones,
    whose page then bounds it. Of a nested column, only the average is known before it is read.
    """
    total = values = longest = dictionary = 0
    for page in pages:
        if why_not := _too_large(page, is_nested):
            return Plan(why_not)
        total, values = total + page.unpacked, values + page.values
        longest = max(longest, page.longest)
        dictionary = max(dictionary, page.unpacked if page.is_shared else 0)
    if is_nested:
        if total > _LARGE_PAGE_BYTES and total > RECORD_LIMIT_BYTES * rows:
            return Plan(f"{rows:,} rows have {total:,} bytes")
        longest = (total + values * _VALUE_BYTES) // max(rows, 1)
    size = min(ROWS_AT_ONCE, max(1, BATCH_BYTES // max(longest, 1)))
    return Plan("", size, is_nested and dictionary > _SHORT_DICTIONARY_BYTES)


def _too_large(page: Page, is_nested: bool) -> str:
    """Return why a page cannot be unpacked; nothing if it can."""
    is_packed = page.unpacked > _PAGE_BYTES and page.unpacked > _PAGE_RATIO * page.packed
    is_long = page.unpacked > _LARGE_PAGE_BYTES and page.unpacked > RECORD_LIMIT_BYTES * page.values
    is_deep = is_nested and page.values > max(_LEVELS, _PAGE_RATIO * page.unpacked)
    why = f"a page with {page.values:,} values unpacks {page.packed:,} bytes to {page.unpacked:,}"
    return why if is_packed or is_long or is_deep else ""


def _header_at(source: BinaryIO, offset: int) -> tuple[Page, int] | None:
    """Return the page header at an offset and its length; None if there is none."""
    size = _FIRST_BYTES
    while size <= _MOST_BYTES:
        source.seek(offset)
        data = source.read(size)
        try:
            return _parsed(data)
        except IndexError:  # the header is longer
            if len(data) < size:
                return None
        except ValueError:
            return None
        size *= 16
    return None


def _parsed(data: bytes) -> tuple[Page, int]:
    reader = _Thrift(data)
    fields = reader.struct()
    unpacked, packed = fields.get(_UNPACKED), fields.get(_PACKED)
    if not isinstance(unpacked, int) or not isinstance(packed, int) or unpacked < 0 or packed < 0:
        raise ValueError("not a page header")
    for field, encoding in _HEADERS.items():
        if isinstance(header := fields.get(field), dict):
            values = header.get(_VALUES)
            is_shared = fields.get(1) == _DICTIONARY_PAGE or header.get(encoding) == _DELTA_BYTE_ARRAY
            return Page(unpacked, packed, values if isinstance(values, int) else 0, is_shared), reader.at
    return Page(unpacked, packed, 0, is_shared=False), reader.at


class _Thrift:
    """Values in Thrift's compact protocol: `IndexError` if they end too soon, `ValueError` if they are invalid."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int = 0) -> dict[int, object]:
        """Return the fields of a struct by their numbers: numbers and structs, None for any other."""
        if depth > 8:
            raise ValueError("nested too deeply")
        fields: dict[int, object] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> object:
        if kind in (1, 2):  # a truth value, which the kind has
            return None
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind in (7, 8):
            self._pass(8 if kind == 7 else self._number())
            return None
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError("page headers have no lists")

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _pass(self, size: int) -> None:
        self.at += size
        if self.at > len(self._data):
            raise IndexError

    def _number(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80:
            number |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("a number is too long")
        return number | byte << shift

    def _zigzag(self) -> int:
        number = self._number()
        return number >> 1 ^ -(number & 1)
