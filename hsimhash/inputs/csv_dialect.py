"""Detect the separator of a CSV file, and parse a row; rows with quotes go through Python's csv module."""

from __future__ import annotations

import csv
from typing import Any

from hsimhash.inputs.lines import RECORD_LIMIT_BYTES

# The csv module ends a row at a carriage return outside quotes. Rows are text whose characters stand for bytes, so this
# character is none of them and can take its place.
_CARRIAGE_RETURN = "\u0100"


class Dialect:
    """The separator of a CSV file.

    A quote inside a quoted field is written twice, or after a backslash if the row is invalid otherwise.

    Rows and values are text in which each character stands for a byte (Latin-1): the same for any encoding that ASCII
    is part of, and as small as the bytes.
    """

    def __init__(self, delimiter: str, *, skips_blanks: bool = False) -> None:
        csv.field_size_limit(max(csv.field_size_limit(), RECORD_LIMIT_BYTES))  # of the whole process, as Python has it
        self._delimiter = delimiter
        self._before = f'{delimiter}"'  # a quoted value
        self._between = f'"{delimiter}"'  # two quoted values
        self._skips_blanks = skips_blanks  # whether spaces after a delimiter belong to it
        reader = csv.reader([], delimiter=delimiter, skipinitialspace=skips_blanks, strict=True)
        self._dialect: Any = reader.dialect  # `reader` takes it as it is, which is quicker than options
        self._escaping: Any = csv.reader([], self._dialect, escapechar="\\").dialect

    def values(self, row: str) -> list[str] | None:
        """Return the values of one row, or None if it ends within a quoted field.

        A final carriage return is not part of the row, and quotes around a value are not part of it.

        Raises:
            ValueError: a closing quote is followed by text, a field is too long, or there is more than one row.
        """
        if row.endswith("\r"):
            row = row[:-1]
        if self._skips_blanks:
            return self._quoted(row)
        quotes = row.count('"')
        if quotes % 2:
            # A pair changes nothing about the quotes around it. So a single quote that is left decides, unless the row
            # is invalid; then it is invalid too with the lines that follow.
            left = row if quotes == 1 else row.replace('""', "")
            if (left[0] == '"' or self._before in left) and (quotes == 1 or left.count('"') == 1):
                return None
        return self._quoted(row) if quotes > 1 else row.split(self._delimiter)

    def _quoted(self, row: str) -> list[str] | None:
        if row[:1] == '"' == row[-1:]:
            values = row[1:-1].split(self._between)
            # Each value has its own two quotes and there are no others, so none is part of a value.
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
        if dialect is None and '\\"' in row:  # as MySQL and Spark write a quote
            return self._read(row, self._escaping)
        raise ValueError('text after a closing quote: write "" for a quote inside a quoted field')
