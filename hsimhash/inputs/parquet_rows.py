"""Read rows of named columns from Parquet files, even imperfect ones, starting at any row. Positions count rows.

Only the columns that a document needs are read, and only row groups with rows after the position. If a row group cannot
be read, it is rejected with the numbers of its rows.

**Memory.** Arrow unpacks whole pages, and a page of 2 GiB may take 2 KiB in the file. A dictionary page may hold one
long value that a few bytes in the other pages repeat a million times. So the page headers decide how many rows a batch
has: as many as would fit into memory if every value were as long as its page allows. Each column takes about
`BATCH_BYTES` plus twice its largest page. A page that would take too much memory is not read. Rows are passed on in
parts of about one block. A value that exceeds the limit is rejected before it becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from hsimhash.errors import HsimhashError
from hsimhash.extras import arrow_needed, needed
from hsimhash.inputs.arrow_values import TOO_LONG, ArrowValues
from hsimhash.inputs.fields import TableRecord, TableRows, chosen_fields
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, Place
from hsimhash.inputs.parquet_metadata import Chunk, Page, chunks_in, pages_of

BATCH_BYTES = 32 << 20  # bytes of one column in a batch
ROWS_AT_ONCE = 1_024
_PAGE_BYTES = 64 << 20  # maximum unpacked size of a page, regardless of its compression ratio
_PAGE_RATIO = 64  # maximum compression ratio of a larger page; text rarely shrinks to a tenth
_LARGE_PAGE_BYTES = 512 << 20  # maximum unpacked size of a page whose values exceed the limit on average
_LEVELS = 4 << 20  # maximum number of values in a page of a nested column if they take less than 1/64 byte each
_VALUE_BYTES = 16  # approximate overhead of a nested value in bytes
_SHORT_DICTIONARY_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """How to read a column in a row group."""

    why_not: str = ""  # why it cannot be read
    rows_at_once: int = ROWS_AT_ONCE
    has_long_dictionary: bool = False  # if so, a row with many values may take much more memory than its pages


def plan_of(pages: Iterable[Page], rows: int, *, is_nested: bool) -> ReadPlan:
    """Decide from its pages how to read a column in a row group.

    A value in a column that is not nested is never longer than `Page.longest`, except for a long value among short
    values, which is bounded by its page. For a nested column, only the average is known before it is read.
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
    """Return why a page cannot be unpacked; empty if it can."""
    is_packed = page.unpacked > _PAGE_BYTES and page.unpacked > _PAGE_RATIO * page.packed
    is_long = page.unpacked > _LARGE_PAGE_BYTES and page.unpacked > RECORD_LIMIT_BYTES * page.values
    is_deep = is_nested and page.values > max(_LEVELS, _PAGE_RATIO * page.unpacked)
    why = f"a page with {page.values:,} values unpacks {page.packed:,} bytes to {page.unpacked:,}"
    return why if is_packed or is_long or is_deep else ""


_READ_BYTES = 1 << 20  # bytes of a column read at once, because a row group may be larger than memory
_TRUSTED_BYTES = 256 << 20  # behind a URL, only the first page header of a column chunk up to this size is checked


class _UnreadableError(Exception):
    """The rest of a row group cannot be read."""


class _Part(NamedTuple):
    """Rows that were read together, and the size of their values in bytes."""

    rows: TableRows
    size: int


class _Leaf(NamedTuple):
    """A Parquet column to read: a column of the table, or part of a nested column."""

    at: int
    path: str
    is_nested: bool  # whether a row may have several values


def parquet_rows(
    one: Input, options: InputOptions, fields: Sequence[str], start: Place, block_bytes: int
) -> Iterator[TableRows]:
    """Yield rows of Parquet.

    Raises:
        ValueError: The table lacks a required column.
    """
    with one.source() as source:
        table = _opened(one, source)
        if isinstance(table, str):
            yield TableRows((), Place(1, 1), f"damaged, or not Parquet: {table}", is_last=True)
            return
        if not (names := table.schema_arrow.names):
            if rows := table.metadata.num_rows:
                yield TableRows((), Place(rows, rows), f"the table has {rows:,} rows, but no columns", is_last=True)
            return
        chosen = chosen_fields(one, names, options, fields)
        yield from _in_blocks(_Table(one, source, table, chosen).parts(start, block_bytes), block_bytes)


def parquet_column_names(one: Input) -> list[str] | None:
    """Return the names of a Parquet file's columns; None if they cannot be read."""
    with one.source() as source:
        table = _opened(one, source)
        return None if isinstance(table, str) else list(table.schema_arrow.names)


def _in_blocks(parts: Iterator[_Part], block_bytes: int) -> Iterator[TableRows]:
    """Join parts into batches of about one block, because a part has few rows if its pages may have long values."""
    held = list[TableRecord]()
    size, end = 0, Place()
    for rows, added in parts:
        if held and (rows.damage or size + added > block_bytes):
            yield TableRows(held, end)
            held, size = [], 0
        if rows.damage:
            yield rows
        else:
            held += rows.records
        size, end = size + added, rows.end
    if held:
        yield TableRows(held, end)


def _opened(one: Input, source: BinaryIO, metadata: Any = None, dictionaries: Sequence[str] = ()) -> Any:
    """Return Arrow's reader for a file, or a string with the reason why the file cannot be read."""
    _, parquet = arrow_needed(one.name)
    try:
        return parquet.ParquetFile(
            source,
            metadata=metadata,
            read_dictionary=list(dictionaries),
            pre_buffer=False,
            buffer_size=_READ_BYTES,
            page_checksum_verification=True,
        )
    except Exception as error:  # Arrow raises its own classes, Python's, and those of the file object
        return _why(error)


def _why(error: Exception) -> str:
    """Return the problem with a file from Arrow's error; reraise errors that are not about the bytes in the file."""
    if isinstance(error, HsimhashError) or (isinstance(error, OSError) and error.errno is not None):
        raise error
    return " ".join(str(error).split()) or type(error).__name__


class _Table:
    """A Parquet file whose footer has been read."""

    def __init__(self, one: Input, source: BinaryIO, table: Any, chosen: Mapping[str, tuple[str, bool]]) -> None:
        self._one = one
        self._source = source
        self._table = table
        self._needed = {column for column, is_needed in chosen.values() if is_needed}
        leaves = [table.schema.column(at) for at in range(len(table.schema))]
        # If part of a nested column has the field's full name, only that part is read.
        paths = {field if _leaves_of(field, leaves) else column for field, (column, _) in chosen.items()}
        self._paths = sorted(paths)
        wanted = {at for path in paths for at in _leaves_of(path, leaves)}
        self._leaves = [_Leaf(at, leaves[at].path, leaves[at].max_repetition_level > 0) for at in sorted(wanted)]
        self._chunks: list[dict[int, Chunk]] = []
        arrow, _ = arrow_needed(one.name)
        needed("pyarrow.compute", "parquet", one.name)
        self._values = ArrowValues(arrow)

    def parts(self, start: Place, block_bytes: int) -> Iterator[_Part]:
        """Yield the rows after a position, in parts of at most `block_bytes` or of one row."""
        last, metadata = 0, self._table.metadata
        for number in range(metadata.num_row_groups):
            first, last = last, last + max(0, metadata.row_group(number).num_rows)
            if last <= start.offset:
                continue
            end, why = first, f"row group {number + 1} ends before them"
            try:
                for batch in self._batches(number, last - first):
                    begun, end = end, end + len(batch)
                    if end > start.offset:
                        read = batch.slice(max(0, start.offset - begun))
                        yield from self._parts(read, end - len(read), block_bytes)
            except _UnreadableError as error:
                why = str(error)
            if (end := max(end, start.offset)) < last:
                yield self._missing(last, f"rows {end + 1:,} to {last:,} cannot be read: {why}")
        if start.offset <= last < metadata.num_rows:
            why = f"the footer states {metadata.num_rows:,} rows, but its row groups have {last:,}"
            yield self._missing(metadata.num_rows, f"rows are missing: {why}")

    def _missing(self, last: int, damage: str) -> _Part:
        return _Part(TableRows((), self._place(last), damage), 0)

    def _place(self, row: int) -> Place:
        return Place(row, row, self._one.size_bytes * row // max(self._table.metadata.num_rows, row, 1))

    def _batches(self, number: int, rows: int) -> Iterator[Any]:
        """Yield the rows of a row group in batches that fit into memory.

        Raises:
            _UnreadableError: The remaining rows cannot be read.
        """
        try:
            self._chunks = self._chunks or chunks_in(self._source, [leaf.at for leaf in self._leaves])
            plans = {leaf.path: self._plan(leaf, self._chunks[number][leaf.at], rows) for leaf in self._leaves}
            size = min([plan.rows_at_once for plan in plans.values()], default=ROWS_AT_ONCE)
            dictionaries = [path for path, plan in plans.items() if plan.has_long_dictionary]
            table = self._with_dictionaries(dictionaries) if dictionaries else self._table
            batches = table.iter_batches(size, row_groups=[number], columns=self._paths, use_threads=False)
            while (batch := next(batches, None)) is not None:
                yield batch
        except _UnreadableError:
            raise
        except Exception as error:  # Arrow raises its own classes, Python's, and those of the file object
            raise _UnreadableError(_why(error)) from error

    def _plan(self, leaf: _Leaf, chunk: Chunk, rows: int) -> ReadPlan:
        if chunk.is_encrypted:
            raise _UnreadableError(f"column {leaf.path!r} is encrypted")
        if not leaf.is_nested and chunk.values != rows:
            raise _UnreadableError(f"column {leaf.path!r} has {chunk.values:,} values in {rows:,} rows")
        plan = plan_of(self._pages(chunk), rows, is_nested=leaf.is_nested)
        if plan.why_not:
            raise _UnreadableError(f"column {leaf.path!r} is too large to unpack: {plan.why_not}")
        return plan

    def _with_dictionaries(self, paths: Sequence[str]) -> Any:
        """Return a reader that keeps these columns as dictionaries instead of expanding each use of a value."""
        table = _opened(self._one, self._source, self._table.metadata, paths)
        if isinstance(table, str):
            raise _UnreadableError(table)
        return table

    def _pages(self, chunk: Chunk) -> Iterator[Page]:
        pages = pages_of(self._source, chunk)
        if self._one.remote and chunk.unpacked <= _TRUSTED_BYTES:  # avoid downloading it twice
            return chain(islice(pages, 1), [Page(chunk.unpacked, chunk.unpacked, chunk.values, is_shared=False)])
        return pages

    def _parts(self, batch: Any, first: int, block_bytes: int) -> Iterator[_Part]:
        """Yield the rows of a batch in parts of about `block_bytes`; `first` is the number of rows before it."""
        columns: dict[str, Any] = {}
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            columns.setdefault(name, column)  # if a name is repeated, the first column is used
        sizes = {name: self._values.sizes(column) for name, column in columns.items()}
        ends = np.cumsum(sum(sizes.values(), start=np.zeros(len(batch), np.int64)))
        begin = 0
        while begin < len(batch):
            before = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, before + block_bytes, "right")))
            values = {
                name: self._column(one.slice(begin, end - begin), sizes[name][begin:end])
                for name, one in columns.items()
            }
            records: list[TableRecord] = [
                (row, self._record(list(values), ones), b"")
                for row, ones in enumerate(zip(*values.values(), strict=True), first + begin + 1)
            ]
            yield _Part(TableRows(records, self._place(first + end)), int(ends[end - 1]) - before)
            begin = end

    def _column(self, column: Any, sizes: npt.NDArray[np.int64]) -> list[object]:
        if not len(sizes) or sizes.max() <= RECORD_LIMIT_BYTES:
            return self._values.values(column)
        return [
            ValueError(TOO_LONG) if size > RECORD_LIMIT_BYTES else self._values.values(column.slice(at, 1))[0]
            for at, size in enumerate(sizes)
        ]

    def _record(self, names: Sequence[str], values: Sequence[object]) -> Mapping[str, object] | ValueError:
        record = dict(zip(names, values, strict=True))
        for name, value in record.items():
            if isinstance(value, ValueError):
                if name in self._needed:
                    return ValueError(f'column "{name}": {value}')
                record[name] = None
        return record


def _leaves_of(path: str, leaves: Sequence[Any]) -> list[int]:
    """Return the numbers of the Parquet columns at or below a path."""
    return [at for at, leaf in enumerate(leaves) if leaf.path == path or leaf.path.startswith(f"{path}.")]
