"""Write tables as Parquet or JSON lines, column by column, in blocks of rows."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from hsimhash.extras import arrow_needed, install_command

TABLE_FORMATS = ("auto", "parquet", "jsonl")
BLOCK_ROWS = 1 << 17  # rows in a Parquet row group, and in memory while they are written

Form = Literal["parquet", "jsonl"]
ColumnKind = Literal["text", "bits", "number", "truth", "share"]  # a share is a float, NaN if missing
ColumnValues = Sequence[str] | NDArray[np.generic]


def table_form(name: str) -> Form:
    """Return the format of tables.

    Raises:
        ValueError: There is no such format, or it needs a package that is not installed.
    """
    if name not in TABLE_FORMATS:
        raise ValueError(f"unknown table format {name!r}; use {', '.join(TABLE_FORMATS)}")
    has_arrow = importlib.util.find_spec("pyarrow") is not None
    if name == "parquet" and not has_arrow:
        raise ValueError(f"Parquet needs pyarrow; install it with {install_command('parquet')}, or use jsonl")
    return "parquet" if has_arrow and name != "jsonl" else "jsonl"


def open_table(path: Path, form: Form, columns: Sequence[tuple[str, ColumnKind]]) -> _JsonTable | _ParquetTable:
    """Start a table with named columns; `write` adds rows, and the table is complete when the block ends."""
    return _ParquetTable(path, columns) if form == "parquet" else _JsonTable(path, columns)


class _JsonTable(AbstractContextManager["_JsonTable"]):
    def __init__(self, path: Path, columns: Sequence[tuple[str, ColumnKind]]) -> None:
        self._kinds = [kind for _, kind in columns]
        # % formatting is the fastest way to format many lines.
        self._line = "{" + ", ".join(f"{encode_basestring(name)}: %s" for name, _ in columns) + "}\n"
        self._file: BinaryIO = path.open("xb")

    def write(self, columns: Sequence[ColumnValues]) -> None:
        for start in range(0, len(columns[0]), BLOCK_ROWS):
            part = [column[start : start + BLOCK_ROWS] for column in columns]
            texts = [_json_texts(column, kind) for column, kind in zip(part, self._kinds, strict=True)]
            self._file.write("".join(map(self._line.__mod__, zip(*texts, strict=True))).encode())

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()


def _json_texts(column: ColumnValues, kind: ColumnKind) -> Iterable[object]:
    if not isinstance(column, np.ndarray):
        return map(encode_basestring, column)
    values: list[object] = (np.where(column, "true", "false") if kind == "truth" else column).tolist()
    return ["null" if value != value else value for value in values] if kind == "share" else values


class _ParquetTable(AbstractContextManager["_ParquetTable"]):
    def __init__(self, path: Path, columns: Sequence[tuple[str, ColumnKind]]) -> None:
        pa, pq = arrow_needed("Parquet")
        kinds = {"text": pa.string(), "bits": pa.uint8(), "number": pa.int64(), "truth": pa.bool_()}
        self._arrow = pa
        self._schema = pa.schema(
            [
                pa.field(name, pa.float64()) if kind == "share" else pa.field(name, kinds[kind], nullable=False)
                for name, kind in columns
            ]
        )
        self._file: BinaryIO = path.open("xb")  # pyarrow would parse some paths as URLs
        self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        self._held: list[Any] = []  # Arrow tables

    def write(self, columns: Sequence[ColumnValues]) -> None:
        for start in range(0, len(columns[0]), BLOCK_ROWS):
            part = [column[start : start + BLOCK_ROWS] for column in columns]
            arrays = [_arrow_array(self._arrow, *pair) for pair in zip(part, self._schema.types, strict=True)]
            self._held.append(self._arrow.table(arrays, schema=self._schema))
            if sum(map(len, self._held)) >= BLOCK_ROWS:
                self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(self._arrow.concat_tables(self._held), row_group_size=2 * BLOCK_ROWS)
        self._held = []

    def __exit__(self, exc_type: object, *exc_info: object) -> None:
        with self._file:
            if exc_type is None:
                self._flush()
            self._writer.close()


def _arrow_array(pa: Any, column: ColumnValues, kind: Any) -> Any:
    """Return a column as an Arrow array, with NaN as null; pyarrow's own conversion would import pandas."""
    if not isinstance(column, np.ndarray):
        texts = [text.encode() for text in column]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        return pa.Array.from_buffers(kind, len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])
    validity = None
    if pa.types.is_floating(kind):
        validity = pa.py_buffer(np.packbits(column == column, bitorder="little"))
    if pa.types.is_boolean(kind):
        values: NDArray[np.generic] = np.packbits(column.astype(np.bool_), bitorder="little")
    else:
        values = column.astype(kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(column), [validity, pa.py_buffer(np.ascontiguousarray(values))])


def read_column_values(path: Path, names: Sequence[str]) -> Iterable[tuple[object, ...]]:
    """Yield the rows of a table that `open_table` wrote, with only the named columns."""
    if path.suffix == ".parquet":
        _, pq = arrow_needed("Parquet")
        with path.open("rb") as file, pq.ParquetFile(file) as table:
            for batch in table.iter_batches(columns=list(names)):
                yield from zip(*(batch.column(name).to_pylist() for name in names), strict=True)
    else:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                yield tuple(record[name] for name in names)
