"""Read the header of a CSV file (delimiter and names), and parse rows; the csv module parses rows with quotes."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from hsimhash.inputs.csv_lines import QUOTE, CsvLines
from hsimhash.inputs.fields import column_of
from hsimhash.inputs.files import Input, suffix_of
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, Place

_TAB_SUFFIXES = (".tsv", ".tab")
_DELIMITERS = ",;\t|"
_STATED = re.compile(rb'"?sep=([^"\r])"?\r?', re.IGNORECASE)  # a first line in which Excel states the delimiter
# The csv module ends a row at a carriage return outside quotes. Each character of a row stands for a byte, so this
# character cannot occur in a row and can replace carriage returns.
_CARRIAGE_RETURN = "\u0100"


class Dialect:
    """Parses the rows of a CSV file with its delimiter.

    A quote inside a quoted field is doubled, or preceded by a backslash if the row would be invalid otherwise.

    Rows and values are strings in which each character stands for a byte (Latin-1). This works for any superset of
    ASCII, and does not take more memory than the bytes.
    """

    def __init__(self, delimiter: str, *, skips_blanks: bool = False) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), RECORD_LIMIT_BYTES))  # Python has one limit per process
        self._delimiter = delimiter
        self._before = f'{delimiter}"'  # precedes a quoted value
        self._between = f'"{delimiter}"'  # separates two quoted values
        self._skips_blanks = skips_blanks  # whether to skip spaces after a delimiter
        reader = csv.reader([], delimiter=delimiter, skipinitialspace=skips_blanks, strict=True)
        self._dialect: Any = reader.dialect  # passing this object to `reader` is faster than passing options
        self._escaping: Any = csv.reader([], self._dialect, escapechar="\\").dialect

    def values(self, row: str) -> list[str] | None:
        """Return the values of one row, or None if it ends within a quoted field.

        A final carriage return is not part of the row, and the quotes around a value are not part of the value.

        Raises:
            ValueError: A closing quote is followed by text, a field is too long, or there is more than one row.
        """
        if row.endswith("\r"):
            row = row[:-1]
        if self._skips_blanks:
            return self._quoted(row)
        quotes = row.count('"')
        if quotes % 2:
            # Doubled quotes do not affect the quotes around them. If exactly one quote remains without them, and it
            # opens a field, the row is unfinished. An invalid row stays invalid when the following lines are added.
            left = row if quotes == 1 else row.replace('""', "")
            if (left[0] == '"' or self._before in left) and (quotes == 1 or left.count('"') == 1):
                return None
        return self._quoted(row) if quotes > 1 else row.split(self._delimiter)

    def _quoted(self, row: str) -> list[str] | None:
        if row[:1] == '"' == row[-1:]:
            values = row[1:-1].split(self._between)
            # There are exactly two quotes per value, so no quote is part of a value.
            if not self._skips_blanks and row.count('"') == 2 * len(values):
                return values
        if "\r" not in row:
            return self._read(row)
        read = self._read(row.replace("\r", _CARRIAGE_RETURN))
        return read and [value.replace(_CARRIAGE_RETURN, "\r") for value in read]

    def _read(self, row: str, dialect: Any = None) -> list[str] | None:
        try:
            return next(csv.reader([row], dialect or self._dialect))
        except csv.Error as error:
            said = str(error)
        if "unexpected end" in said:
            return None
        if "field limit" in said:
            raise ValueError(f"a field is longer than {RECORD_LIMIT_BYTES >> 20} MiB")
        if "new-line" in said:
            raise ValueError("the row ends before its last line")
        if dialect is None and '\\"' in row:  # MySQL and Spark escape quotes this way
            return self._read(row, self._escaping)
        raise ValueError('text after a closing quote: write "" for a quote inside a quoted field')


class Header(NamedTuple):
    """The header of a CSV file."""

    names: list[str]  # column names; empty if all lines of the file are blank
    dialect: Dialect
    end: Place  # position after the header


def header_of(one: Input, lines: CsvLines, contents: Sequence[str]) -> Header:
    """Read the header and advance to the line after it.

    The delimiter is a comma, or a tab in `.tsv` files. If it does not yield a column for any field in `contents`, but
    another delimiter (comma, semicolon, tab or bar) does, that one is used instead.

    Raises:
        ValueError: The header is too long, or its quotes are not paired.
        DamagedInputError: The file is damaged before the end of the header.
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
    """Whether a line is empty or consists of spaces, and is therefore not a row."""
    return not line or not line.strip(b" \r")


def _usual_delimiters(one: Input) -> list[str]:
    usual = "\t" if suffix_of(one.name) in _TAB_SUFFIXES else ","
    return sorted(_DELIMITERS, key=lambda delimiter: delimiter != usual)


def _best(one: Input, lines: CsvLines, delimiters: Sequence[str], contents: Sequence[str]) -> tuple[Header, int]:
    """Return the header parsed with the best delimiter, and its number of lines."""
    number, line = lines.number, lines.lines[lines.at]
    where = f"input {one.name}: line {number}"
    if len(line) > RECORD_LIMIT_BYTES:
        raise ValueError(f"{where} is longer than {RECORD_LIMIT_BYTES >> 20} MiB: expected the column names")
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
    """Return the header parsed with a delimiter and its number of lines, or the reason why it is invalid."""
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
