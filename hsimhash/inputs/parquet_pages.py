"""Decide from its page headers how much of a Parquet file can be unpacked at once.

Arrow unpacks whole pages, and a page of 2 GiB may take 2 KiB in the file. A dictionary page may hold one long value
that a few bytes of the other pages repeat a million times. So a batch has as many rows as would fit into memory if
every value were the longest that its page allows. A page that would take too much is not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hsimhash.inputs.lines import RECORD_LIMIT_BYTES
from hsimhash.inputs.parquet_metadata import Page

BATCH_BYTES = 32 << 20  # of a column, in one batch
ROWS_AT_ONCE = 1_024
_PAGE_BYTES = 64 << 20  # that any page may unpack to
_PAGE_RATIO = 64  # to which a larger page may be packed; text is rarely packed to a tenth
_LARGE_PAGE_BYTES = 512 << 20  # that a page may unpack to if its values are over the limit on average
_LEVELS = 4 << 20  # values in a page of a nested column that may take less than 1/64 byte each
_VALUE_BYTES = 16  # that a nested value takes besides its bytes, about
_SHORT_DICTIONARY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The way to read a column in a row group."""

    why_not: str = ""  # why it cannot be
    rows_at_once: int = ROWS_AT_ONCE
    has_long_dictionary: bool = False  # so that a row with many values may take much more than its pages


def plan_of(pages: Iterable[Page], rows: int, *, is_nested: bool) -> ReadPlan:
    """Return how to read a column in a row group, from its pages.

    A value of a column that is not nested is never longer than `Page.longest`, but for a long one among short ones,
    whose page then bounds it. Of a nested column, only the average is known before it is read.
    """
    total = values = longest = dictionary = 0
    for page in pages:
        if why_not := _too_large(page, is_nested):
            return ReadPlan(why_not)
        total, values = total + page.unpacked, values + page.values
        longest = max(longest, page.longest)
        dictionary = max(dictionary, page.unpacked if page.is_shared else 0)
    if is_nested:
        if total > _LARGE_PAGE_BYTES and total > RECORD_LIMIT_BYTES * rows:
            return ReadPlan(f"{rows:,} rows have {total:,} bytes")
        longest = (total + values * _VALUE_BYTES) // max(rows, 1)
    size = min(ROWS_AT_ONCE, max(1, BATCH_BYTES // max(longest, 1)))
    return ReadPlan("", size, is_nested and dictionary > _SHORT_DICTIONARY_BYTES)


def _too_large(page: Page, is_nested: bool) -> str:
    """Return why a page cannot be unpacked; nothing if it can."""
    is_packed = page.unpacked > _PAGE_BYTES and page.unpacked > _PAGE_RATIO * page.packed
    is_long = page.unpacked > _LARGE_PAGE_BYTES and page.unpacked > RECORD_LIMIT_BYTES * page.values
    is_deep = is_nested and page.values > max(_LEVELS, _PAGE_RATIO * page.unpacked)
    why = f"a page with {page.values:,} values unpacks {page.packed:,} bytes to {page.unpacked:,}"
    return why if is_packed or is_long or is_deep else ""
