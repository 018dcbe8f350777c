"""Shared parts of reading CSV and Parquet: batches of rows, and the columns that documents need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hsimhash.inputs.fields import column_of, content_fields, missing_column
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.lines import Place

ROWS_IN_BATCH = 1_024

TableRecord = tuple[int, Mapping[str, object] | ValueError, bytes]


class TableRows(NamedTuple):
    """A batch of rows; each has its number, its values or an error, and its bytes."""

    records: Sequence[TableRecord]
    end: Place  # after the batch
    damage: str = ""  # why rows before `end` are missing; then there are no records
    is_last: bool = False  # whether the rest of the input cannot be read
    note: str = ""  # what the user should know about the table


def chosen_fields(
    one: Input, names: Sequence[str], options: InputOptions, fields: Sequence[str]
) -> dict[str, tuple[str, bool]]:
    """Return the fields that a table has columns for, with the column, and whether a document needs the value.

    A row whose needed value cannot be read is rejected; any other value becomes None.

    Args:
        one: the table.
        names: its columns.
        options: how it is read.
        fields: fields to read in addition to the document's own.

    Raises:
        ValueError: the table lacks the column for the id that `options` names, or every column for the content.
    """
    if problem := missing_column(one, options, names):
        raise ValueError(f"input {one.name}: " + problem)
    needed = [options.named_id_field, *content_fields(one, options), *_others(one, options)]
    found = {field: column_of(field, names) for field in [*needed, *fields]}
    return {field: (column, field in needed) for field, column in found.items() if column is not None}


def _others(one: Input, options: InputOptions) -> Iterator[str]:
    """Yield what is read besides id and content; without fingerprints, columns named `sketch` mean something else."""
    if options.first_seen_field or one.has_fingerprints:
        yield options.first_seen_field or "first_seen"
    if one.has_fingerprints and options.reads_signatures:
        yield from ("sketch", "key")
