"""What CSV and Parquet share: batches of rows, and the columns that a document needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.lines import Place

ROWS_IN_BATCH = 1_024
_SHOWN_NAMES = 40  # of columns, in a message
_SHOWN_CHARACTERS = 500

TableRecord = tuple[int, Mapping[str, object] | ValueError, bytes]


class TableRows(NamedTuple):
    """A batch of rows, each with its number, its values or the reason why it has none, and its bytes."""

    records: Sequence[TableRecord]
    end: Place  # behind the batch
    damage: str = ""  # why rows before `end` are missing; then there are no records
    is_last: bool = False  # whether the rest of the input cannot be read
    note: str = ""  # what the user should know about the table


def content_fields(one: Input, options: InputOptions) -> tuple[str, ...]:
    """Return the fields that hold a document's content; a table needs one of them."""
    if one.has_fingerprints:
        return (options.json_fingerprint_field,)
    return options.fields or (options.text_field,)


def column_of(field: str, names: Sequence[str]) -> str | None:
    """Return the column that holds a field: the one of that name, else the one named by the part before the first dot.

    None if the table has neither.
    """
    head, dot, _ = field.partition(".")
    return field if field in names else head if dot and head in names else None


def chosen_fields(
    one: Input, names: Sequence[str], options: InputOptions, fields: Sequence[str]
) -> dict[str, tuple[str, bool]]:
    """Return the fields that a table has columns for: for each its column, and whether a document needs its value.

    A row whose needed value cannot be read is rejected; any other value becomes None.

    Args:
        one: the table.
        names: its columns.
        options: how it is read.
        fields: fields to read in addition to the document's own.

    Raises:
        ValueError: the table lacks the column for the id that `options` names, or every column for the content.
    """
    contents = content_fields(one, options)
    if options.id_field not in (None, "id") and column_of(options.id_field, names) is None:
        raise _missing(one, names, (options.id_field,), "name another with --id-field")
    if not any(column_of(field, names) for field in contents):
        option = "--fingerprint-field" if one.has_fingerprints else "--text-field"
        is_profile = bool(options.fields) and not one.has_fingerprints
        raise _missing(one, names, contents, f"name another with {'--profile' if is_profile else option}")
    needed = [options.id_field or "id", *contents, *_others(one, options)]
    found = {field: column_of(field, names) for field in [*needed, *fields]}
    return {field: (column, field in needed) for field, column in found.items() if column is not None}


def _others(one: Input, options: InputOptions) -> Iterator[str]:
    """Yield what is read besides id and content; without fingerprints, columns named `sketch` mean something else."""
    if options.first_seen_field or one.has_fingerprints:
        yield options.first_seen_field or "first_seen"
    if one.has_fingerprints and options.reads_signatures:
        yield from ("sketch", "key")


def _missing(one: Input, names: Sequence[str], fields: Sequence[str], remedy: str) -> ValueError:
    shown = ", ".join(map(repr, names[:_SHOWN_NAMES]))
    shown = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"
    more = f" and {len(names) - _SHOWN_NAMES:,} more" if len(names) > _SHOWN_NAMES else ""
    return ValueError(
        f"input {one.name} has no column {' or '.join(map(repr, fields))}: its columns are {shown}{more}; {remedy}"
    )
