"""Read the header of a CSV file: the separator and the column names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from hsimhash.inputs.csv_dialect import Dialect
from hsimhash.inputs.csv_lines import QUOTE, CsvLines
from hsimhash.inputs.fields import column_of
from hsimhash.inputs.files import Input, suffix_of
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, Place

_TAB_SUFFIXES = (".tsv", ".tab")
_DELIMITERS = ",;\t|"
_STATED = re.compile(rb'"?sep=([^"\r])"?\r?', re.IGNORECASE)  # Excel's own first line


class Header(NamedTuple):
    """The contents of a header."""

    names: list[str]  # of the columns; none if the file has no line that is not blank
    dialect: Dialect
    end: Place  # after it


def header_of(one: Input, lines: CsvLines, contents: Sequence[str]) -> Header:
    """Read the header and advance to the next line.

    The columns end at a comma, or at a tab in `.tsv`. If that yields no column for any of `contents` and a semicolon,
    a tab or a bar does, they end there.

    Raises:
        ValueError: the header is too long, or its quotes are not paired.
        DamagedInputError: the file is damaged before the end of the header.
    """
    delimiters = _usual_delimiters(one)
    while lines.has_line():
        line = lines.lines[lines.at]
        if stated := _STATED.fullmatch(line):
            delimiters = [stated[1].decode("latin-1")]
        elif not is_blank(line):
            header, count = _best(one, lines, delimiters, contents)
            lines.skip(count)
            return header._replace(end=lines.place)
        lines.skip(1)
    return Header([], Dialect(delimiters[0]), lines.place)


def is_blank(line: bytes) -> bool:
    """Whether a line is empty or has only spaces, so that it is not a row."""
    return not line or not line.strip(b" \r")


def _usual_delimiters(one: Input) -> list[str]:
    usual = "\t" if suffix_of(one.name) in _TAB_SUFFIXES else ","
    return sorted(_DELIMITERS, key=lambda delimiter: delimiter != usual)


def _best(one: Input, lines: CsvLines, delimiters: Sequence[str], contents: Sequence[str]) -> tuple[Header, int]:
    """Return the header by the best of the delimiters, and the number of its lines."""
    number, line = lines.number, lines.lines[lines.at]
    where = f"input {one.name}: line {number}"
    if len(line) > RECORD_LIMIT_BYTES:
        raise ValueError(f"{where} is longer than {RECORD_LIMIT_BYTES >> 20} MiB: expected the names of the columns")
    stretch = lines.stretch() if line.count(QUOTE) % 2 else None
    found = [_header(line, stretch, delimiter) for delimiter in delimiters]
    headers = [it for it in found if not isinstance(it, str)]
    for header in headers:
        if any(column_of(field, header[0].names) for field in contents):
            return header
    if isinstance(found[0], str):
        raise ValueError(f"{where} is not a valid header: {found[0]}")
    return max(headers, key=lambda it: len(it[0].names))


def _header(line: bytes, stretch: tuple[bytes, int] | None, delimiter: str) -> tuple[Header, int] | str:
    """Return the header that a delimiter makes and the number of its lines, or why it makes none."""
    try:
        for row, count in filter(None, ((line, 1), stretch)):
            if header := _names(row.decode("latin-1"), delimiter):
                return header, count
    except ValueError as error:
        return str(error)
    return "it opens a quote that is never closed"


def _names(row: str, delimiter: str) -> Header | None:
    dialect = Dialect(delimiter)
    values = dialect.values(row)
    if values and len(values) > 1 and all(value.startswith(" ") for value in values[1:]):
        dialect = Dialect(delimiter, skips_blanks=True)
        values = dialect.values(row)
    names = [value.encode("latin-1").decode("utf-8", "backslashreplace").strip() for value in values or ()]
    return Header(names, dialect, Place()) if names else None
