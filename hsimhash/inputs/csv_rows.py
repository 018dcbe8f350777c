"""CSV as people write it → rows of named columns, from any row on; the first line that is not blank has the names.

RFC 4180 has the format. Delimiters other than the comma are found by the header (`csv_header.py`).

**Which lines make a row.** Each line that no earlier row includes begins one. A line that is complete is a row by
itself; quotes inside a field that does not begin with one are text, as in `5" nail`. A line that ends within a quoted
field continues, and then the row must be strict:

1. Its first and its last line have an odd number of quotes, and the lines between them an even number. So the last
   line is the next one with an odd number: in a strict row every quote opens a field, closes one, or is half of a pair.
2. It has as many columns as the header, and a delimiter or the end of the row follows each closing quote.
3. It does not hide rows. If the line behind it is no row, but the row could have begun one line later and every line
   through the one behind it would then be part of a row, the first quote is the stray one.

A line that begins no row by these rules is a reject, and reading continues at the *next* line. So a stray quote costs
the lines it stands in, and never those that follow. Valid CSV always reads as RFC 4180 says: rule 3 needs a bad line.

**Time is linear.** Only lines with an odd number of quotes are looked beyond, and only as far as the next such line,
so these stretches do not overlap. Rule 3 reads a stretch once more, and the one behind it. No line is parsed more than
five times. Which rows there are depends on no earlier line, so any row is a place to go on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from hsimhash.inputs.csv_dialect import Dialect
from hsimhash.inputs.csv_header import header_of, is_blank
from hsimhash.inputs.csv_lines import QUOTE, CsvLines
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, DamagedInputError, Place
from hsimhash.inputs.table_columns import ROWS_IN_BATCH, TableRecord, TableRows, chosen_fields, content_fields


_LONG_DIGITS = 20  # of no time in ms; Python reads no number of thousands


class CsvRows:
    """The rows of a CSV file from a line on, by the rules above; `lines` is behind the row that came last."""

    def __init__(self, lines: CsvLines, dialect: Dialect, width: int) -> None:
        self.lines = lines
        self._dialect = dialect
        self._width = width
        self._known: tuple[int, list[str] | ValueError | None] = (0, None)  # of a line that was looked ahead at

    def __iter__(self) -> Iterator[tuple[int, list[str] | ValueError, bytes]]:
        """Yield each row's first line's number, its values or why it has none, and its first line."""
        lines = self.lines
        while lines.has_line():
            line, number, count = lines.lines[lines.at], lines.number, 1
            size = len(line) + 1
            values = self._known[1] if self._known[0] == number else self._alone(line)
            if values is None:
                values, count, size = self._long(number, size)
            lines.advance(count, size)
            if not is_blank(line):
                yield number, values, line

    def _alone(self, line: bytes) -> list[str] | ValueError | None:
        """Return the values of a row that is one line, or why it is none; None if it ends within a quoted field."""
        if len(line) > RECORD_LIMIT_BYTES:
            return ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")
        return self._values(line)

    def _values(self, row: bytes) -> list[str] | ValueError | None:
        try:
            values = self._dialect.values(row.decode("latin-1"))
        except ValueError as error:
            return error
        return values if values is None or len(values) == self._width else self._fitted(values)

    def _fitted(self, values: list[str]) -> list[str] | ValueError:
        """Return the values of a row without empty ones behind the last column."""
        width, count = self._width, len(values)
        if count > width and not any(values[width:]):
            return values[:width]
        why = f"{count} column{'s' if count > 1 else ''}: expected {width}, as in the header"
        has_return = any("\r" in value for value in values)
        return ValueError(f"{why}; a carriage return alone does not end a row" if has_return else why)

    def _long(self, number: int, size: int) -> tuple[list[str] | ValueError, int, int]:
        """Return the values of the row that continues behind the current line, and the number and bytes of its lines.

        If there is no such row, the first line alone is in error.
        """
        lines, opens = self.lines, f"a quote that opens in line {number}"
        if lines.lines[lines.at].count(QUOTE) % 2 == 0:
            return ValueError(f"{opens} is never closed, and the line has another quote inside a field"), 1, size
        stretch = lines.stretch()
        if stretch is None:
            return ValueError(f"{opens} is never closed"), 1, size
        row, count = stretch
        values = self._values(row)
        if isinstance(values, list) and not self._hides_rows(number, count):
            return values, count, len(row) + 1
        why = "it hides the rows between them" if isinstance(values, list) else values or "it opens another one"
        last = number + count - 1
        return ValueError(f"{opens} is not closed by the next one, in line {last}: {why}"), 1, size

    def _hides_rows(self, number: int, count: int) -> bool:
        """Whether the lines from the next one on are rows, and the line behind the `count` lines of this row is none.

        Then the last line of this row is the first of one that continues.
        """
        behind = self.lines.line_ahead(count)
        if behind is None:
            return False
        values = self._alone(behind)
        self._known = (number + count, values)
        if not isinstance(values, ValueError) and behind.count(QUOTE) % 2 == (values is None) or is_blank(behind):
            return False
        inner = islice(self.lines.ahead(1), count - 2)
        if not all(is_blank(line) or self._is_row(line) for line in inner):
            return False
        stretch = self.lines.stretch(count - 1)
        return stretch is not None and self._is_row(stretch[0])

    def _is_row(self, row: bytes) -> bool:
        return row.count(QUOTE) % 2 == 0 and isinstance(self._values(row), list)


class _Column(NamedTuple):
    """A column that is read."""

    name: str
    at: int
    is_needed: bool  # whether a row without its value is rejected
    made: Callable[[str], object]


def csv_rows(
    one: Input, options: InputOptions, fields: Sequence[str], start: Place, block_bytes: int
) -> Iterator[TableRows]:
    """Yield rows of CSV. A place's offset is in bytes, unpacked; a row's number is that of its first line.

    Raises:
        ValueError: the header is invalid, or lacks a column that is needed.
    """
    place = start
    try:
        with one.open() as file:
            header = header_of(one, CsvLines(file, Place()), content_fields(one, options))
        if not header.names:
            yield TableRows((), header.end)
            return
        columns = _columns(one, header.names, options, fields)
        begun = max(start, header.end, key=lambda place: place.offset)
        with one.open() as file:
            file.skip(begun.offset)
            rows = CsvRows(CsvLines(file, begun), header.dialect, len(header.names))
            note = _note(header.names, columns) if begun == header.end else ""
            for found in _batched(rows, columns, block_bytes):
                place = found.end
                yield found._replace(note=note)
                note = ""
    except DamagedInputError as error:
        yield TableRows((), Place(place.offset, place.line + 1, place.read_bytes), str(error), is_last=True)


def csv_column_names(one: Input, options: InputOptions) -> list[str] | None:
    """Return the names in the header of a CSV file; None if it cannot be read."""
    try:
        with one.open() as file:
            return header_of(one, CsvLines(file, Place()), content_fields(one, options)).names
    except (DamagedInputError, ValueError):
        return None


def _columns(one: Input, names: Sequence[str], options: InputOptions, fields: Sequence[str]) -> list[_Column]:
    made = _conversions(options)
    found: dict[str, _Column] = {}
    for field, (name, is_needed) in chosen_fields(one, names, options, fields).items():
        found.setdefault(name, _Column(name, names.index(name), is_needed, made(field)))
    return list(found.values())


def _note(names: Sequence[str], columns: Sequence[_Column]) -> str:
    repeated = [column.name for column in columns if names.count(column.name) > 1]
    return "; ".join(f"it has several columns named {name!r}, and the first is used" for name in repeated)


def _batched(rows: CsvRows, columns: Sequence[_Column], block_bytes: int) -> Iterator[TableRows]:
    """Yield rows in batches; what was read before damage comes before the damage is raised."""
    records: list[TableRecord] = []
    lines, first = rows.lines, rows.lines.offset
    damage: DamagedInputError | None = None
    try:
        for number, values, line in rows:
            records.append((number, _fields_of(values, columns), line))
            if len(records) == ROWS_IN_BATCH or lines.offset - first >= block_bytes:
                yield TableRows(records, lines.place)
                records, first = [], lines.offset
    except DamagedInputError as error:
        damage = error
    yield TableRows(records, lines.place)
    if damage:
        raise damage


def _fields_of(values: list[str] | ValueError, columns: Sequence[_Column]) -> Mapping[str, object] | ValueError:
    if isinstance(values, ValueError):
        return values
    found: dict[str, object] = {}
    for name, at, is_needed, made in columns:
        try:
            found[name] = made(values[at].encode("latin-1").decode())
        except UnicodeDecodeError as error:
            if is_needed:
                return ValueError(f"not UTF-8: {error.reason} at byte {error.start} of column {name!r}")
            found[name] = None
    return found


def _conversions(options: InputOptions) -> Callable[[str], Callable[[str], object]]:
    """Return what returns, for a field, what makes a value as JSON would have it of the column's text."""
    texts = (options.id_field or "id", options.text_field, options.json_fingerprint_field, *options.fields)

    def made(field: str) -> Callable[[str], object]:
        if field in texts:
            return str
        return _time if field == (options.first_seen_field or "first_seen") else lambda text: text or None

    return made


def _time(text: str) -> object:
    is_number = text.isascii() and text.isdigit() and len(text) < _LONG_DIGITS
    return int(text) if is_number else text or None
