"""Turn rows of Parquet and CSV files into columns of documents, starting at any row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hsimhash.inputs.csv_rows import csv_column_names, csv_rows
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.lines import BLOCK_BYTES, Place
from hsimhash.inputs.parquet_rows import parquet_column_names, parquet_rows
from hsimhash.inputs.records import Documents, RecordReader, Reject


def read_rows(
    one: Input, options: InputOptions, fields: Sequence[str], start: Place, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[Documents, Place]]:
    """Yield batches of a table's documents, starting at `start`, each with the position after it.

    Raises:
        ValueError: The table does not have the column that `options` names for the id, or any column for the content.
    """
    reader = RecordReader(one, options, fields)
    rows = csv_rows if one.kind == "csv" else parquet_rows
    for found in rows(one, options, fields, start, block_bytes):
        documents = reader.documents(found.records)
        if found.note:
            documents = replace(documents, note="; ".join(filter(None, (documents.note, found.note))))
        if found.damage:
            reject = Reject.of(found.end.line, found.damage, b"")
            documents = Documents(rejects=[reject], damage=found.damage if found.is_last else "")
        yield documents, found.end


def column_names(one: Input, options: InputOptions) -> list[str] | None:
    """Return a table's column names without reading rows, or None if the table is damaged before its rows.

    Raises:
        ValueError: The header is invalid.
    """
    return csv_column_names(one, options) if one.kind == "csv" else parquet_column_names(one)
