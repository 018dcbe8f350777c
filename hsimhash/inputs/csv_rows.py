"""Read rows of named columns from CSV files, even imperfect ones, starting at any row.

The first non-blank line is the header. RFC 4180 defines the format. Delimiters other than the comma are detected from
the header (`csv_dialect.py`).

**Which lines form a row.** Each line that is not part of an earlier row begins a new row. A complete line is a row by
itself; quotes inside a field that does not begin with a quote are text, as in `5" nail`. If a line ends within a quoted
field, the row continues on the next lines and must then be strict:

1. Its first and its last line have an odd number of quotes, and the lines between them an even number. So the last
   line is the next one with an odd number: in a strict row every quote opens a field, closes one, or is half of a pair.
2. It has as many columns as the header, its id is on one line, and a delimiter or the end of the row follows each
   closing quote.
3. It does not hide rows. If the line after it does not begin a strict row, but a strict row begins at its last line and
   includes the line after it, then the quote that opens the first row is a stray quote.

A line that does not begin a row by these rules is rejected, and reading continues at the *next* line. So a stray quote
costs only the lines that contain it, never later lines. Valid CSV is always read according to RFC 4180, because
rule 3 applies only if there is a bad line.

**Time is linear.** Lookahead happens only at lines with an odd number of quotes, and only as far as the next such line,
so these stretches do not overlap. Rule 3 reads a stretch and the next stretch once more. No line is parsed more than
ten times: five times, and five more if it has quotes after backslashes. Rows do not depend on earlier lines, so reading
can resume at any row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from hsimhash.errors import plural
from hsimhash.inputs.csv_dialect import Dialect, header_of, is_blank
from hsimhash.inputs.csv_lines import QUOTE, CsvLines
from hsimhash.inputs.fields import ROWS_IN_BATCH, TableRecord, TableRows, chosen_fields, content_fields
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, DamagedInputError, Place

_LONG_DIGITS = 20  # no time in ms is that long, and Python refuses to convert thousands of digits


class _Row(NamedTuple):
    """The row that begins at a line, or just that line if no row begins there."""

    values: list[str] | ValueError
    lines: int  # number of lines
    size: int  # bytes of its lines, including newlines
    is_strict: bool  # whether it is a valid row with an id, and every field that contains a quote begins with one


class CsvRows:
    """The rows of a CSV file, starting at any line, by the rules above; `lines` is positioned after the last row."""

    def __init__(self, lines: CsvLines, dialect: Dialect, width: int, id_at: int | None) -> None:
        self.lines = lines
        self._dialect = dialect
        self._width = width
        self._id_at = id_at
        self._known: tuple[int, _Row | None] = (0, None)  # line number and row found by lookahead

    def __iter__(self) -> Iterator[tuple[int, list[str] | ValueError, bytes]]:
        """Yield (number of the first line, values or an error, first line) for each row."""
        lines = self.lines
        while lines.has_line():
            line, number = lines.lines[lines.at], lines.number
            if not line or line == b"\r":
                lines.advance(1, len(line) + 1)
                continue
            row = self._known[1] if self._known[0] == number else None
            if row is None and (values := self._usual(line)):
                lines.advance(1, len(line) + 1)
                yield number, values, line
                continue
            row = row or self._row(line, number, 0)
            if row.lines > 1 and self._hides_rows(number, row.lines):
                row = self._failed(line, number, number + row.lines - 1, "that would hide the rows between them")
            lines.advance(row.lines, row.size)
            if not is_blank(line):
                yield number, row.values, line

    def _usual(self, line: bytes) -> list[str] | None:
        """Return the values of a line that is a complete row, else None. This is the fast path."""
        values = self._values(line) if len(line) <= RECORD_LIMIT_BYTES else None
        return values if isinstance(values, list) and len(values) == self._width > 1 else None

    def _row(self, line: bytes, number: int, first: int) -> _Row:
        """Return the row that begins at a line, `first` lines after the current line, according to rules 1 and 2."""
        size, is_odd = len(line) + 1, line.count(QUOTE) % 2 == 1
        if size > RECORD_LIMIT_BYTES + 1:
            return _Row(ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB"), 1, size, False)
        values = self._values(line)
        if values is not None:
            if isinstance(values, list) and len(values) != self._width:
                values = self._fitted(values)
            return _Row(values, 1, size, not is_odd and self._has_id(values))
        if not is_odd:
            why = f"a quote that opens in line {number} is never closed, and the line has another quote inside a field"
            return _Row(ValueError(why), 1, size, False)
        stretch = self.lines.stretch(first)
        if stretch is None:
            return _Row(ValueError(f"a quote that opens in line {number} is never closed"), 1, size, False)
        values = self._several(stretch[0])
        if isinstance(values, list):
            return _Row(values, stretch[1], len(stretch[0]) + 1, self._has_id(values))
        return self._failed(line, number, number + stretch[1] - 1, values)

    def _has_id(self, values: list[str] | ValueError) -> bool:
        return isinstance(values, list) and (self._id_at is None or values[self._id_at] != "")

    def _failed(self, line: bytes, number: int, last: int, why: object) -> _Row:
        error = ValueError(
            f"a quote that opens in line {number} cannot be closed by the next one, in line {last}: {why}"
        )
        return _Row(error, 1, len(line) + 1, False)

    def _values(self, row: bytes) -> list[str] | ValueError | None:
        try:
            return self._dialect.values(row.decode("latin-1"))
        except ValueError as error:
            return error

    def _several(self, row: bytes) -> list[str] | ValueError:
        """Return the values of a row that spans several lines, or an error if the lines are not a valid row."""
        values = self._values(row)
        if values is None:
            return ValueError("that quote opens another field")
        if isinstance(values, list) and len(values) != self._width:
            return self._wrong_width(values)
        if isinstance(values, list) and self._id_at is not None and "\n" in values[self._id_at]:
            return ValueError("the id would span several lines")
        return values

    def _fitted(self, values: list[str]) -> list[str] | ValueError:
        """Return the values of a single-line row, without empty values after the last column of the header."""
        is_longer = len(values) > self._width and not any(values[self._width :])
        return values[: self._width] if is_longer else self._wrong_width(values)

    def _wrong_width(self, values: list[str]) -> ValueError:
        why = f"{plural(len(values), 'column')}: expected {self._width}, as in the header"
        has_return = any("\r" in value.rstrip("\r") for value in values)
        return ValueError(f"{why}; a carriage return alone does not end a row" if has_return else why)

    def _hides_rows(self, number: int, count: int) -> bool:
        """Whether a row of `count` lines breaks rule 3: a row begins at its last line, but not at the line after it."""
        at, behind = count, self.lines.line_ahead(count)
        if behind is not None and is_blank(behind):
            ahead = enumerate(self.lines.ahead(count), start=count)
            at, behind = next(((at, line) for at, line in ahead if not is_blank(line)), (at, None))
        if behind is None:
            return False
        row = self._row(behind, number + at, at)
        self._known = (number + at, row)
        if row.is_strict:
            return False
        last = self.lines.line_ahead(count - 1)
        found = self._row(last, number + count - 1, count - 1) if last is not None else None
        return found is not None and found.is_strict and count - 1 + found.lines > at


class _Column(NamedTuple):
    """A column to read."""

    name: str
    at: int  # index in the row
    is_needed: bool  # whether a row is rejected if this value is unreadable
    made: Callable[[str], object]  # converts the text of a value


def csv_rows(
    one: Input, options: InputOptions, fields: Sequence[str], start: Place, block_bytes: int
) -> Iterator[TableRows]:
    """Yield the rows of a CSV file. Offsets are in unpacked bytes; a row is numbered by its first line.

    Raises:
        ValueError: The header is invalid, or lacks a required column.
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
            id_at = next((column.at for column in columns if column.name == options.named_id_field), None)
            rows = CsvRows(CsvLines(file, begun), header.dialect, len(header.names), id_at)
            note = _note(header.names, columns) if begun == header.end else ""
            for found in _batched(rows, columns, block_bytes):
                place = found.end
                yield found._replace(note=note)
                note = ""
    except DamagedInputError as error:
        yield TableRows((), Place(place.offset, place.line + 1, place.read_bytes), str(error), is_last=True)


def csv_column_names(one: Input, options: InputOptions) -> list[str] | None:
    """Return the names in the header of a CSV file, or None if the file is damaged before the end of the header.

    Raises:
        ValueError: The header is invalid.
    """
    try:
        with one.open() as file:
            return header_of(one, CsvLines(file, Place()), content_fields(one, options)).names
    except DamagedInputError:
        return None


def _columns(one: Input, names: Sequence[str], options: InputOptions, fields: Sequence[str]) -> list[_Column]:
    made = _conversions(options)
    found: dict[str, _Column] = {}
    for field, (name, is_needed) in chosen_fields(one, names, options, fields).items():
        found.setdefault(name, _Column(name, names.index(name), is_needed, made(field)))
    return list(found.values())


def _note(names: Sequence[str], columns: Sequence[_Column]) -> str:
    repeated = [column.name for column in columns if names.count(column.name) > 1]
    return "; ".join(f"several columns are named {name!r}; the first one is used" for name in repeated)


def _batched(rows: CsvRows, columns: Sequence[_Column], block_bytes: int) -> Iterator[TableRows]:
    """Yield rows in batches; rows before damage are yielded before the error is raised."""
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
                return ValueError(f'column "{name}": not UTF-8: {error.reason} at byte {error.start}')
            found[name] = None
    return found


def _conversions(options: InputOptions) -> Callable[[str], Callable[[str], object]]:
    """Return a function that maps a field to its converter, which turns the text of a value into its JSON value."""
    texts = (options.named_id_field, options.text_field, options.json_fingerprint_field, *options.fields)

    def made(field: str) -> Callable[[str], object]:
        if field in texts:
            return str
        return _time if field == (options.first_seen_field or "first_seen") else lambda text: text or None

    return made


def _time(text: str) -> object:
    is_number = text.isascii() and text.isdigit() and len(text) < _LONG_DIGITS
    return int(text) if is_number else text or None
