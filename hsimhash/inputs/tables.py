"""Rows of Parquet and CSV → documents in columns, from any row on; the first line of CSV has the columns' names.

Of Parquet those row groups that were read are passed over, and of the columns only the needed ones are read; a row
group that is damaged is a reject.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any, NamedTuple

from hsimhash.extras import arrow_needed
from hsimhash.inputs.files import Input, InputOptions, suffix_of
from hsimhash.inputs.lines import (
    BLOCK_BYTES,
    RECORD_LIMIT_BYTES,
    DamagedInputError,
    InputFile,
    Place,
    blocks_of,
    text_in,
)
from hsimhash.inputs.records import Documents, RecordReader, Reject

ROWS_IN_BATCH = 1_024
_READ_BYTES = 1 << 20  # of a column at once: a row group may be larger than memory
_Column = tuple[int, Callable[[str], object]]  # of a column: its number, and what makes a value of its text
_TAB_SUFFIXES = (".tsv", ".tab")


class _Rows(NamedTuple):
    """Rows that follow each other, each with its number and its bytes; or why there are none."""

    records: Sequence[tuple[int, Mapping[str, object] | ValueError, bytes]]
    end: Place
    damage: str = ""  # of what is before `end`
    is_last: bool = False  # whether nothing behind it can be read


def read_rows(
    one: Input, options: InputOptions, fields: Sequence[str], start: Place, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[Documents, Place]]:
    """Yield the documents of a table behind `start`, and the place behind each batch.

    Raises:
        ValueError: the table has no column with the id, or none with the text.
    """
    reader = RecordReader(one, options, fields)
    rows = _csv_rows if one.kind == "csv" else _parquet_rows
    for found in rows(one, options, fields, start, block_bytes):
        documents = reader.documents(found.records)
        if found.damage:
            reject = Reject.of(found.end.line, found.damage, b"")
            documents = Documents(rejects=[reject], damage=found.damage if found.is_last else "")
        yield documents, found.end


def _wanted(one: Input, names: Sequence[str], options: InputOptions, fields: Sequence[str]) -> list[str]:
    """Return those columns that a document may be made of."""
    contents = (options.json_fingerprint_field,) if one.has_fingerprints else options.fields or (options.text_field,)
    for needed_ones in ((options.id_field,), contents):
        if not set(needed_ones) & set(names):
            raise ValueError(
                f"input {one.name} has no column {' or '.join(map(repr, needed_ones))}; its columns are "
                f"{', '.join(names):.500}; choose with --id-field and --text-field"
            )
    wanted = {*options.columns, *fields}
    return [name for name in names if name in wanted]


# Parquet.


def _parquet_rows(
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
        names = _wanted(one, table.schema_arrow.names, options, fields)
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


# CSV.


class _Lines:
    """The lines of a file from a place on, one by one as they are asked for; `place` is behind the last one."""

    def __init__(self, file: InputFile, start: Place) -> None:
        self.place = start
        self.last = b""  # the line that came last
        self._file = file

    def __iter__(self) -> Iterator[str]:
        for block in blocks_of(partial(self._file.read, BLOCK_BYTES), self.place, self._file.tell):
            end = block.end
            # A byte order mark is left out of the first line, and the last one got a newline.
            begun = max(0, end.offset - self.place.offset - len(block.data)) + self.place.offset
            for line in block.lines():
                begun += len(line) + 1
                self.place = Place(min(begun, end.offset), self.place.line + 1, end.read_bytes)
                self.last = line
                yield line.decode("utf-8", "surrogateescape") + "\n"


def _csv_rows(
    one: Input, options: InputOptions, fields: Sequence[str], start: Place, block_bytes: int
) -> Iterator[_Rows]:
    """Yield rows of CSV; of a place offset is in bytes, unpacked, and a row's number is that of its first line."""
    csv.field_size_limit(max(csv.field_size_limit(), RECORD_LIMIT_BYTES))  # of the whole process, as Python has it
    delimiter = "\t" if suffix_of(one.name) in _TAB_SUFFIXES else ","
    lines = None
    try:
        with one.open() as file:
            lines = _Lines(file, Place())
            names = next(csv.reader(lines, delimiter=delimiter), [])
            begun = max(start, lines.place, key=lambda place: place.offset)
        wanted = _wanted(one, names, options, fields)
        with one.open() as file:
            file.skip(begun.offset)
            lines = _Lines(file, begun)
            places = {name: (names.index(name), _value_as(name, options)) for name in wanted}
            yield from _batched(lines, len(names), places, delimiter, block_bytes)
    except DamagedInputError as error:
        place = lines.place if lines else start
        yield _Rows((), Place(place.offset, place.line + 1, place.read_bytes), str(error), is_last=True)


def _batched(
    lines: _Lines, width: int, places: Mapping[str, _Column], delimiter: str, block_bytes: int
) -> Iterator[_Rows]:
    reader, first, begun = csv.reader(lines, delimiter=delimiter), lines.place, lines.place
    records: list[tuple[int, Mapping[str, object] | ValueError, bytes]] = []
    while True:
        record: Mapping[str, object] | ValueError | None = None
        try:
            values = next(reader, None)
            record = _fields_of(values, width, places) if values else None
        except csv.Error as error:
            values, record = [], ValueError(f"invalid CSV: {error}")
        except ValueError as error:
            record = error
        if record is not None:
            records.append((begun.line + 1, record, lines.last))
        begun = lines.place
        if values is None or len(records) == ROWS_IN_BATCH or begun.offset - first.offset >= block_bytes:
            yield _Rows(records, begun)
            records, first = [], begun
        if values is None:
            return


def _fields_of(values: Sequence[str], width: int, places: Mapping[str, _Column]) -> Mapping[str, object]:
    if len(values) != width:
        raise ValueError(f"{len(values)} columns instead of the {width} of the first line")
    try:
        "".join([values[at] for at, _ in places.values()]).encode()
    except UnicodeEncodeError as error:
        raise ValueError("not UTF-8") from error
    return {name: made(values[at]) for name, (at, made) in places.items()}


def _value_as(name: str, options: InputOptions) -> Callable[[str], object]:
    """Return what makes a column's value as JSON would have it of its text."""
    if name in (options.id_field, options.text_field, options.json_fingerprint_field, *options.fields):
        return str
    if name == (options.first_seen_field or "first_seen"):
        return lambda text: int(text) if text.isascii() and text.isdigit() else text or None
    return lambda text: text or None
