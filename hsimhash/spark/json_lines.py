"""Parse lines of JSON in tasks as 'hsimhash dedup' parses them, with the same reasons for rejects."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from hsimhash.inputs.field_values import doc_id_of
from hsimhash.inputs.fields import value_at
from hsimhash.inputs.files import InputOptions
from hsimhash.inputs.lines import preview, text_in
from hsimhash.inputs.records import field_value, json_object, written_content
from hsimhash.rowkey import check_doc_id

_BLANKS = b" \t\r"


def read_lines(batch: pa.RecordBatch, options: InputOptions, fields: Sequence[str | None]) -> pa.RecordBatch:
    """Parse the records in the column `line`, and drop blank lines; the column `place` is unchanged.

    Args:
        batch: Columns `line`, as bytes, and `place`.
        options: Fields for id and text.
        fields: More fields to read: first the field with the time first seen, or None, then the fields that keep
            policies compare.

    Returns:
        `id` and `text`, null if missing or invalid; `wrong`, why the record is invalid, else null; `line`, the
        beginning of an invalid record; `first_seen`, `field_0` and so on, their values as strings; and `place`.
    """
    lines = batch.column("line").to_pylist()
    kept = [at for at, line in enumerate(lines) if line.strip(_BLANKS)]
    rows = [_record(lines[at], options, fields) for at in kept]
    columns = zip(*rows, strict=True) if rows else [()] * (4 + len(fields))
    arrays = [pa.array(column, pa.string()) for column in columns]
    others = [f"field_{at}" for at in range(len(fields) - 1)]
    names = ["id", "text", "wrong", "line", "first_seen", *others, "place"]
    return pa.RecordBatch.from_arrays([*arrays, batch.column("place").take(pa.array(kept, pa.int64()))], names)


def _record(line: bytes, options: InputOptions, fields: Sequence[str | None]) -> tuple[str | None, ...]:
    doc_id = None
    try:
        record = json_object(text_in(line))
        named = doc_id_of(field_value(record, options.named_id_field), options.named_id_field)
        check_doc_id(named)
        doc_id = named
        text = written_content(record, options)
    except ValueError as error:
        return doc_id, None, str(error), preview(line), *(None for _ in fields)
    return doc_id, text, None, None, *(_written(None if one is None else value_at(record, one)) for one in fields)


def _written(value: object) -> str | None:
    """Return a value as a string; any value that is not a string becomes JSON."""
    if value is None:
        return None
    return (value if isinstance(value, str) else json.dumps(value)).encode(errors="replace").decode()
