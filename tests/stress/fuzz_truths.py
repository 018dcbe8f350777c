"""What a fuzzed file must be read as, by the plainest reading; None if that reading is ambiguous."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from hsimhash.fingerprint import Signature
from tests.stress.fuzz_records import BadError, checked_id, digits_truth, number_truth
from tests.support import plain_readings as plain

_LONE_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
_FIELD = rb'(?:"(?:[^"]++|"")*+"|[^",\r\n]*+)'
_RFC_4180 = re.compile(rb"(?:" + _FIELD + rb"(?:,|\r?\n|\Z))*+")
_EXACT_FLOATS = 1 << 53


class Judgement(Enum):
    """What a record is if its exact contents are not compared."""

    REJECT = "a reject"
    EITHER = "a document or a reject"
    DOCUMENT = "a document"


Content = tuple[str, str | Signature]  # an id, and a text or a signature
Truth = list[tuple[int, Content | Judgement]]  # with the number of each record: its line, row, …


@dataclass(frozen=True, slots=True)
class Question:
    """A fuzzed file, unpacked and in UTF-8."""

    form: str
    data: bytes
    label: str  # precedes the number in the ids of records without one
    needs_id: bool = False  # whether a record without an id is a reject
    in_folder: bool = False


def truth_of(question: Question) -> Truth | None:
    """Return what each record must be, or None if only the reader can tell."""
    match question.form:
        case "jsonl" | "array" | "objects" | "signatures" | "fragments":
            return _json(question)
        case "tsv" | "fingerprints" | "lines":
            return _lines(question)
        case "text":
            return _text(question)
        case "csv":
            return _csv(question)
        case "parquet":
            return _parquet(question)
        case "page":
            return [(1, Judgement.EITHER)]
    return _archive(question)


def _judged(read: Iterator[Content | Judgement]) -> Content | Judgement:
    try:
        return next(read)
    except (BadError, ValueError, KeyError, TypeError):
        return Judgement.REJECT


# JSON.


def _json(question: Question) -> Truth | None:
    data = _with_line_feeds(question.data)
    head = data.lstrip(b" \t\r\n")
    if _may_be_spread(head):
        return None
    if head.startswith(b"[") or _is_spread(head):
        values = plain.json_values(data)
        is_open = values is None or (not head.startswith(b"[") and not all(isinstance(one, dict) for one in values))
        return None if is_open else [_record(n, one, question) for n, one in enumerate(values or (), start=1)]
    lines = data.split(b"\n")
    return [_record_of_line(n, line, question) for n, line in enumerate(lines, start=1) if line.strip(b" \t\r")]


def _is_spread(head: bytes) -> bool:
    """Whether the first value is an object over several lines, or is followed by another value or comma on its line."""
    first, _, rest = _first_object(head)
    return "\n" in first or rest.lstrip(" \t\r")[:1] in ("{", ",")


def _may_be_spread(head: bytes) -> bool:
    """Whether a file begins like an invalid object over several lines."""
    first, text, _ = _first_object(head)
    return not first and text.startswith("{") and text.partition("\n")[2].lstrip(" \t\r\n").startswith('"')


def _first_object(head: bytes) -> tuple[str, str, str]:
    """Return the first object of a file (empty unless it is valid), the whole file, and what follows the object."""
    text = head.decode("utf-8", "surrogateescape")
    try:
        end = json.JSONDecoder().raw_decode(text)[1] if text.startswith("{") else 0
    except (ValueError, RecursionError):
        end = 0
    return text[:end], text, text[end:] if end else ""


def _record_of_line(number: int, line: bytes, question: Question) -> tuple[int, Content | Judgement]:
    try:
        return _record(number, plain.json_value(line.decode("utf-8-sig")), question)
    except ValueError:
        return number, Judgement.REJECT


def _record(number: int, value: object, question: Question) -> tuple[int, Content | Judgement]:
    return number, _judged(_contents(number, value, question))


def _contents(number: int, value: object, question: Question) -> Iterator[Content]:
    if not isinstance(value, dict):
        raise BadError
    doc_id = _id(value.get("id"), number, question)
    if question.form != "signatures":
        text = value["text"]
        if not isinstance(text, str):
            raise BadError
        text.encode()
        yield doc_id, text
        return
    fingerprint = number_truth(value["fingerprint"])
    names = ("sketch", "key") if value.get("sketch") is not None else ()
    yield doc_id, Signature(fingerprint, *(digits_truth(value.get(name)) for name in names))


def _id(value: object, number: int, question: Question) -> str:
    if value is None and not question.needs_id:
        return f"{question.label}:{number}"
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_FLOATS:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise BadError
    return checked_id(str(value))


# Lines.


def _with_line_feeds(data: bytes) -> bytes:
    """Return a file without its byte order mark; if carriage returns are the only line ends, they end its lines."""
    data = data.removeprefix(codecs.BOM_UTF8)
    is_old = b"\n" not in data and _LONE_CARRIAGE_RETURN.search(data.removesuffix(b"\r"))
    return data.replace(b"\r", b"\n") if is_old else data


def _lines(question: Question) -> Truth | None:
    def contents(number: int, line: bytes) -> Iterator[Content]:
        text = line.decode().removesuffix("\r")
        if question.form == "lines":
            yield f"{question.label}:{number}", text
        elif question.form == "tsv":
            doc_id, value = text.split("\t", 1)
            yield checked_id(doc_id), value
        else:
            doc_id, value = text.split("\t")
            yield checked_id(doc_id), Signature(number_truth(value))

    data = _with_line_feeds(question.data)
    if question.form == "tsv" and b"text" in map(bytes.strip, data.lstrip().partition(b"\n")[0].split(b"\t")):
        return None  # perhaps a header
    lines = enumerate(data.split(b"\n"), start=1)
    blanks = b" \t\r" if question.form == "lines" else b" \r"
    return [(number, _judged(contents(number, line))) for number, line in lines if line.strip(blanks)]


def _text(question: Question) -> Truth | None:
    data = question.data.removeprefix(codecs.BOM_UTF8)
    is_other = (
        data.startswith((b"PAR1", b"WARC/")) or b"\0" in data or data.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")
    )
    if is_other and not question.in_folder:
        return None
    if b"\0" in data:  # it can only be a text if it is UTF-16
        return [(1, Judgement.EITHER)]
    try:
        return [(1, (question.label, data.decode()))]
    except UnicodeDecodeError:
        return [(1, Judgement.REJECT)]


# Tables and archives.


def _csv(question: Question) -> Truth | None:
    """Return what rows must be; None unless they follow RFC 4180 exactly and rows with line feeds are unambiguous."""
    data = question.data
    is_odd = b"\0" in data or _LONE_CARRIAGE_RETURN.search(data) or not _RFC_4180.fullmatch(data)
    if is_odd or plain.csv_rows(data) is None:
        return None
    reader = csv.reader(io.StringIO(data.decode("utf-8-sig"), newline=""))
    header = next(reader, [])
    names = [name.strip() for name in header]
    if "text" not in names or len(set(names)) < len(names) or any(name.startswith(" ") for name in header):
        return None  # after blanks in the header, those in rows may belong to the delimiters
    truth, first = Truth(), reader.line_num + 1
    for row in reader:
        is_wrong = len(row) != len(names)
        if (row and not "".join(row).strip()) or (is_wrong and reader.line_num > first):
            return None  # a row of spaces may be a blank line; a quote that spans rows may be a mistake
        if not is_wrong and "id" in names and "\n" in row[names.index("id")]:
            return None  # likewise
        if row:
            judged = Judgement.EITHER if is_wrong else _judged(_cells(first, names, row, question))
            truth.append((first, judged))
        first = reader.line_num + 1
    return truth


def _cells(number: int, names: Sequence[str], row: Sequence[str], question: Question) -> Iterator[Content]:
    cells = dict(zip(names, row, strict=True))
    yield _id(cells.get("id"), number, question), cells["text"]


def _parquet(question: Question) -> Truth | None:
    import pyarrow
    from pyarrow import parquet

    try:
        names = {"id", "text"}
        file = parquet.ParquetFile(pyarrow.BufferReader(question.data), page_checksum_verification=True)
        names &= set(file.schema_arrow.names)
        table = file.read(columns=sorted(names), use_threads=False)
        table.validate(full=True)
        rows = table.to_pylist()
    except Exception:  # pyarrow raises many types for damage
        return None
    is_short = len(rows) < file.metadata.num_rows  # fewer rows than the footer says
    if "text" not in names or len(table.schema.names) != len(names) or is_short:
        return None
    return [_record(number, _decoded(row), question) for number, row in enumerate(rows, start=1)]


def _decoded(row: dict[str, object]) -> dict[str, object] | None:
    """Return a row with bytes decoded to texts; None if a value is not UTF-8."""
    try:
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
    except UnicodeDecodeError:
        return None


def _archive(question: Question) -> Truth:
    """Return what each record must be, up to the first one with damaged framing."""
    records = enumerate(plain.archive_records(question.data), start=1)
    return [(number, Judgement.EITHER) for number, one in records if one.is_document]
