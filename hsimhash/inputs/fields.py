"""Look up fields of records and columns of tables by name; a path such as `meta.url` names a nested field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from hsimhash.errors import Remedy
from hsimhash.inputs.files import TABLES, Input, InputOptions
from hsimhash.inputs.lines import Place

LEAST_SEEN = 2  # minimum number of records needed to conclude that a field is missing from all
ROWS_IN_BATCH = 1_024  # maximum number of CSV rows in a batch
_MISSING = object()
_SHOWN = 20  # maximum number of fields named in a message

TableRecord = tuple[int, Mapping[str, object] | ValueError, bytes]


def value_at(record: Mapping[str, object], name: str, default: object = None) -> object:
    """Return the value of a field, or the default if the field does not exist.

    `meta.url` means the field with that name if it exists, else the field `url` in the object `meta`.
    """
    if name in record:
        return record[name]
    outer, dot, inner = name.partition(".")
    while dot:
        value = record.get(outer)
        if isinstance(value, Mapping) and (found := value_at(value, inner, _MISSING)) is not _MISSING:
            return found
        more, dot, inner = inner.partition(".")
        outer = f"{outer}.{more}"
    return default


def has_field(record: Mapping[str, object], name: str) -> bool:
    """Whether a record has a field, which may be null; see `value_at`."""
    return value_at(record, name, _MISSING) is not _MISSING


def names_in(records: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names of the fields in records, such as `url` and `meta.lang`, to show in a message."""
    names: dict[str, None] = {}
    for name in _each_name(records):
        names[name] = None
        if len(names) > _SHOWN:  # a record may have a million fields
            return [*list(names)[:_SHOWN], "…"]
    return list(names)


def _each_name(records: Sequence[Mapping[str, object]]) -> Iterator[str]:
    for record in records:
        for name, value in record.items():
            if isinstance(value, Mapping) and value:
                yield from (f"{name}.{inner}" for inner in value)
            else:
                yield name


def missing_field(one: Input, options: InputOptions, seen: Sequence[Mapping[str, object]]) -> str:
    """Return a message about a field that all records lack, with their fields and what to pass; usually empty.

    A single record is not enough to tell, because it may be an exception.
    """
    if len(seen) < LEAST_SEEN:
        return ""
    has = partial(_have_field, seen)
    return _missing(one, options, has, names_in(seen), _longest_text(seen, without=options.named_id_field))


def missing_column(one: Input, options: InputOptions, names: Sequence[str]) -> str:
    """Return a message about a column that a table lacks, with its columns and what to pass; usually empty."""
    shown = [*names[:_SHOWN], *(["…"] if len(names) > _SHOWN else [])]
    return _missing(one, options, lambda name: column_of(name, names) is not None, shown)


def column_of(field: str, names: Sequence[str]) -> str | None:
    """Return the column that holds a field: the column with the field's name, or with its part before the first dot.

    Returns None if the table has neither.
    """
    head, dot, _ = field.partition(".")
    return field if field in names else head if dot and head in names else None


def content_fields(one: Input, options: InputOptions) -> tuple[str, ...]:
    """Return the fields for a document's content; a record needs at least one of them."""
    return (options.json_fingerprint_field,) if one.has_fingerprints else options.contents


def _have_field(records: Sequence[Mapping[str, object]], name: str) -> bool:
    return any(has_field(record, name) for record in records)


def _missing(
    one: Input, options: InputOptions, has: Callable[[str], bool], there: Sequence[str], longest: str = ""
) -> str:
    flag = "--fingerprint-field" if one.has_fingerprints else "--field" if options.fields else "--text-field"
    wanted = [(flag, content_fields(one, options))]
    if options.id_field:
        wanted.append(("--id-field", (options.id_field,)))
    for option, names in wanted:
        if not any(map(has, names)):
            noun = "column" if one.kind in TABLES else "field"
            missing, guess = " or ".join(f'"{name}"' for name in names), longest if option == "--text-field" else ""
            return f"no {noun} {missing}; the {noun}s are {', '.join(there):.500}; pass " + _option(
                option, guess or "NAME"
            )
    return ""


def _option(flag: str, name: str) -> Remedy:
    keyword = flag.removeprefix("--").replace("-", "_")
    return Remedy("another profile" if flag == "--field" else f'{keyword}="{name}"', f"{flag} {name}")


def _longest_text(records: Sequence[Mapping[str, object]], *, without: str) -> str:
    """Return the field with the most text over all records, or an empty string if there are no texts."""
    lengths: dict[str, int] = {}
    for record in records:
        for name in names_in([record]):
            value = value_at(record, name)
            lengths[name] = lengths.get(name, 0) + (len(value) if isinstance(value, str) and name != without else 0)
    longest = max(lengths, key=lambda name: lengths[name], default="")
    return longest if lengths.get(longest) else ""


class TableRows(NamedTuple):
    """A batch of rows, each as (number, values or an error, bytes)."""

    records: Sequence[TableRecord]
    end: Place  # position after the batch
    damage: str = ""  # why rows before `end` are missing; `records` is then empty
    is_last: bool = False  # whether the rest of the input is unreadable
    note: str = ""  # a message about the table for the user


def chosen_fields(
    one: Input, names: Sequence[str], options: InputOptions, fields: Sequence[str]
) -> dict[str, tuple[str, bool]]:
    """Return the fields for which a table has columns: field -> (column, whether a document needs the value).

    A row with an unreadable value is rejected if a document needs that value; otherwise the value becomes None.

    Args:
        one: Table to read.
        names: Column names of the table.
        options: How to read the table.
        fields: Fields to read in addition to those of the document itself.

    Raises:
        ValueError: The table lacks the column for the id that `options` names, or every column for the content.
    """
    if problem := missing_column(one, options, names):
        raise ValueError(f"input {one.name}: " + problem)
    needed = [options.named_id_field, *content_fields(one, options), *_others(one, options)]
    found = {field: column_of(field, names) for field in [*needed, *fields]}
    return {field: (column, field in needed) for field, column in found.items() if column is not None}


def _others(one: Input, options: InputOptions) -> Iterator[str]:
    """Yield the other fields that a document may need; without fingerprints, a `sketch` column means something else."""
    if options.first_seen_field or one.has_fingerprints:
        yield options.first_seen_field or "first_seen"
    if one.has_fingerprints and options.reads_signatures:
        yield from ("sketch", "key")
