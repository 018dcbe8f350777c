"""Rows of Parquet → rows of named columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from hsimhash.extras import arrow_needed
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, Place, text_in
from hsimhash.inputs.table_columns import ROWS_IN_BATCH, chosen_fields
from hsimhash.inputs.table_columns import TableRows as _Rows

_READ_BYTES = 1 << 20

# Parquet.


def parquet_rows(
    one: Input, options: InputOptions, fields: Sequence[str], start: Place, block_bytes: int
) -> Iterator[_Rows]:
    """Yield rows of Parquet; of a place offset and line are rows."""
    arrow, parquet = arrow_needed(one.name)
    with one.source() as source:
        try:
            table = parquet.ParquetFile(source, pre_buffer=False, buffer_size=_READ_BYTES)
        except (arrow.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # Arrow's own has none
            yield _Rows((), Place(1, 1), f"damaged, or no Parquet: {error}", is_last=True)
            return
        names = [c for c, _ in chosen_fields(one, table.schema_arrow.names, options, fields).values()]
        last = 0
        for number in range(table.num_row_groups):
            group, first = table.metadata.row_group(number), last
            last += group.num_rows
            if last <= start.offset:
                continue
            size = min(ROWS_IN_BATCH, max(1, block_bytes * group.num_rows // max(group.total_byte_size, 1)))
            try:
                batches = table.iter_batches(size, row_groups=[number], columns=names, use_threads=False)
                for batch in batches:
                    rows = batch.slice(min(max(start.offset - first, 0), len(batch)))
                    begun, first = first + len(batch) - len(rows), first + len(batch)
                    if not len(rows):  # all of them were read before
                        continue
                    read_bytes = one.size_bytes * first // max(table.metadata.num_rows, 1)
                    records = [(line, row, b"") for line, row in enumerate(_plain_rows(rows), begun + 1)]
                    yield _Rows(records, Place(first, first, read_bytes))
            except (arrow.ArrowException, OSError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise
                why = f"rows {first + 1:,} to {last:,} are damaged: {error}"
                yield _Rows((), Place(last, last), why)


def _plain_rows(batch: Any) -> Iterator[Mapping[str, object] | ValueError]:
    """Yield the rows of a record batch, or why one has no fields."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    for number in range(len(batch)):
        try:
            yield {name: _plain(column[number]) for name, column in columns.items()}
        except ValueError as error:
            yield error


def _plain(scalar: Any) -> object:
    """Return a value as JSON would have it; `ValueError` where it is a text in bytes that are none, or too long."""
    try:
        value = scalar.as_py()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from error
    if isinstance(value, (bytes, str)):
        return text_in(value) if isinstance(value, bytes) else _bounded_text(value)
    return value.isoformat() if isinstance(value, date) else value


def _bounded_text(value: str) -> str:
    if len(value) > RECORD_LIMIT_BYTES:
        raise ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")
    return value


def parquet_column_names(one: Input) -> list[str] | None:
    return None
