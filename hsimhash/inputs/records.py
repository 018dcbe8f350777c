"""Parse blocks of lines into columns of documents; an invalid record is rejected with a reason and never raises."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from hsimhash.errors import in_shell
from hsimhash.fingerprint.bits import HEX, Formats, read_fingerprint
from hsimhash.fingerprint.document_fields import join_fields
from hsimhash.fingerprint.signature import Signature, Signatures
from hsimhash.inputs.extraction import text_of_page
from hsimhash.inputs.field_values import (
    digits_in,
    doc_id_of,
    features_text,
    fingerprint_of,
    first_seen_of,
    string_of,
    text_of,
    type_name,
)
from hsimhash.inputs.fields import LEAST_SEEN, has_field, missing_field, value_at
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.fingerprint_format import Narrowing, words_in, written_in
from hsimhash.inputs.lines import Block, preview, text_in
from hsimhash.inputs.pages import Content, content_in
from hsimhash.rowkey import DOC_ID_BYTES, check_doc_id

_NO_SIGNATURES = Signatures.of([])
_MISSING = object()
_ReadText = Callable[[object, str], str]  # takes the value and the name of a field
_DECODER = json.JSONDecoder()
_BACKSLASH, _U = b"\\u"
_SEARCHED_BYTES = 1 << 16  # so that numpy's arrays fit in the cache
_BLANKS, _FIELD_BLANKS = b" \t\r", b" \r"  # where a tab separates fields, a line with only a tab is an error
PARSED_LIMIT_BYTES = 192 << 20  # maximum memory for the parsed values of one JSON record
_HEAVIEST = 192  # upper bound on the bytes of memory per character of JSON, for any values
_JSON_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_JSON_PIECES = re.compile(rf'(?:[^"]++|{_JSON_STRING.pattern}){{1,65536}}+', re.DOTALL)  # the count bounds memory
_PARSED_BYTES = {"{": 232, "[": 88, ",": 64}  # bytes of memory: object with fields, array with values, value
_USUAL = re.compile(  # a character has up to 4 bytes; control characters are U+0000 to U+001F and U+007F to U+009F
    rf"^([^\x00-\x1f\x7f-\x9f]{{1,{DOC_ID_BYTES // 4}}})\t([0-9a-fA-F]{{16}})\r?$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Reject:
    """An invalid record; `preview` is its beginning as printable text, `path` its file if the input is a folder."""

    line: int
    reason: str
    preview: str
    path: str = ""

    @classmethod
    def of(cls, line: int, reason: object, record: bytes, path: str = "") -> Reject:
        """Describe an invalid record, and keep the beginning of `record`."""
        return cls(line, in_shell(reason), preview(record), path)  # in shell terms, because only commands list rejects


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents in the order of their records: ids, and either texts or signatures."""

    doc_ids: Sequence[str] = ()  # already checked
    texts: Sequence[str] = ()  # one for each id; empty if there are signatures
    signatures: Signatures = _NO_SIGNATURES  # one for each id; empty if there are texts
    lines: Sequence[int] = ()  # line of each record, from 1
    first_seen: Sequence[int | None] = ()  # ms since 1970 for each id; None means now; empty means now for all
    rejects: Sequence[Reject] = ()  # the invalid records among them
    damage: str = ""  # why reading stopped here, before the end of the input
    # Further JSON fields that were requested: name -> one value for each id, None where a record lacks the field.
    fields: Mapping[str, Sequence[object]] = field(default_factory=dict)
    formats: Formats = ()  # possible formats of the input's fingerprints, given the values read so far
    note: str = ""  # a message about the input for the user
    # Whether each text is an HTML page, or was one before its text was extracted; empty if no text is a page.
    is_page: Sequence[bool] = ()
    numbered: int = 0  # number of ids made from line numbers, for records without an id

    def warning(self, name: str) -> str:
        """Return the warning to print now about the input `name`; usually empty."""
        if self.damage:
            return f"{name}:{self.rejects[-1].line}: {self.damage}; earlier documents are kept"
        return f"{name}: {self.note}" if self.note else ""


class Columns:
    """Collects documents one by one, with the `fields` of their JSON records."""

    def __init__(self, fields: Sequence[str] = ()) -> None:
        self._doc_ids: list[str] = []
        self._texts: list[str] = []
        self._signatures: list[Signature] = []
        self._lines: list[int] = []
        self._first_seen: list[int | None] = []
        self._fields: dict[str, list[object]] = {name: [] for name in fields}
        self._is_page: list[bool] = []
        self.rejects: list[Reject] = []
        self.text_characters = self.numbered = 0

    def __len__(self) -> int:
        """Return the number of records, including rejects."""
        return len(self._doc_ids) + len(self.rejects)

    def take(
        self,
        line: int,
        doc_id: str,
        value: str | Signature,
        first_seen: int | None = None,
        record: Mapping[str, object] | None = None,
        *,
        is_page: bool = False,
    ) -> None:
        """Add a document with its text, which may be HTML, or its signature; raise `ValueError` for an invalid id."""
        check_doc_id(doc_id)
        self._doc_ids.append(doc_id)
        self._lines.append(line)
        self._first_seen.append(first_seen)
        self._is_page.append(is_page)
        if isinstance(value, str):
            self._texts.append(value)
            self.text_characters += len(value)
        else:
            self._signatures.append(value)
        for name, column in self._fields.items():
            column.append(value_at(record, name) if record else None)

    def take_each(self, records: Iterable[tuple[int, bytes]], take: Callable[[int, bytes], None]) -> Documents:
        """Call `take` for each record with its line number; any exception makes the record a reject."""
        for line, record in records:
            try:
                take(line, record)
            except Exception as error:
                self.rejects.append(Reject.of(line, reason_of(error), record))
        return self.documents()

    def documents(self) -> Documents:
        """Return the added documents."""
        return Documents(
            self._doc_ids,
            self._texts,
            Signatures.collected(self._signatures),
            self._lines,
            self._first_seen if any(one is not None for one in self._first_seen) else (),
            self.rejects,
            fields=self._fields,
            is_page=self._is_page if any(self._is_page) else (),
            numbered=self.numbered,
        )


def reason_of(error: Exception) -> str:
    """Return why a record is rejected: the message of a `ValueError`, or the type and message of any other error."""
    return in_shell(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def parser_of(one: Input, options: InputOptions, fields: Sequence[str] = ()) -> Callable[[Block], Documents]:
    """Return the function that parses an input's lines into documents."""
    if one.kind == "jsonl":
        return RecordReader(one, options, fields).parse
    if one.has_fingerprints:
        return _FingerprintLines(one.formats).parse
    return (
        partial(_parse_lines, one, options.extract) if one.kind == "lines" else partial(_parse_texts, options.extract)
    )


def _records(block: Block, blanks: bytes = _BLANKS) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) for each line that is not blank."""
    return ((number, line) for number, line in block.numbered() if line.strip(blanks))


def _parse_texts(extract: str, block: Block) -> Documents:
    found = Columns()

    def take(number: int, line: bytes) -> None:
        doc_id, tab, text = text_in(line).removesuffix("\r").partition("\t")
        if not tab:
            raise ValueError("no tab between id and text")
        content = content_in(text, extract)
        found.take(number, doc_id, content.text, is_page=content.is_page)

    return found.take_each(_records(block, _FIELD_BLANKS), take)


def _parse_lines(one: Input, extract: str, block: Block) -> Documents:
    found = Columns()

    def take(number: int, line: bytes) -> None:
        content = content_in(text_in(line).removesuffix("\r"), extract)
        found.take(number, numbered_id(one, number), content.text, is_page=content.is_page)
        found.numbered += 1

    return found.take_each(_records(block), take)


def numbered_id(one: Input, number: int) -> str:
    """Return the id for a record that does not have one: the label of its input and the record's number in it."""
    return f"{one.label}:{number}"


class _FingerprintLines:
    def __init__(self, formats: Formats) -> None:
        self._narrowing = Narrowing(formats)

    def parse(self, block: Block) -> Documents:
        note = self._narrowing.take(written_in(block.lines())) if self._narrowing.is_open else ""
        formats = self._narrowing.formats
        documents = (_usual_lines(block) if formats == HEX else None) or _each_line(block, formats)
        return replace(documents, formats=formats, note=note)


def _usual_lines(block: Block) -> Documents | None:
    """Return the documents of a block in which every line is an id, a tab and 16 hex digits; None for other blocks.

    This is only a fast path: with `_each_line` alone, `dedup` takes an eighth longer and `ingest` a seventh longer.
    """
    with suppress(UnicodeDecodeError):
        found = _USUAL.findall(block.data.decode())
        if found and len(found) == block.end.line - block.first + 1:
            doc_ids, digits = zip(*found, strict=True)
            fingerprints = np.frombuffer(bytes.fromhex("".join(digits)), ">u8").astype(np.uint64)
            lines = range(block.first, block.end.line + 1)
            return Documents(doc_ids, signatures=Signatures.of(fingerprints), lines=lines)
    return None


def _each_line(block: Block, formats: Formats) -> Documents:
    found = Columns()

    def take(number: int, line: bytes) -> None:
        columns = text_in(line).removesuffix("\r").split("\t")
        if len(columns) != 2:
            raise ValueError(f"{len(columns)} columns: expected an id, a tab and a fingerprint")
        found.take(number, columns[0], Signature(read_fingerprint(columns[1], formats)))

    return found.take_each(_records(block, _FIELD_BLANKS), take)


class RecordReader:
    """Turns an input's records with named fields into documents, block by block."""

    def __init__(self, one: Input, options: InputOptions, fields: Sequence[str] = ()) -> None:
        self._input = one
        self._first: list[Mapping[str, object]] | None = [] if one.is_stream else None  # for checking a stream's start
        self._fields = fields
        self._options = options
        self._fingerprint_field = options.json_fingerprint_field if one.has_fingerprints else None
        self._reads_signatures = options.reads_signatures
        self._first_seen_field = options.first_seen_field or ("first_seen" if one.has_fingerprints else None)
        self._narrowing = Narrowing(one.formats)

    def parse(self, block: Block) -> Documents:
        """Return the documents in a block whose lines are JSON objects."""
        records = [(number, _object_or_error(line), line) for number, line in _records(block)]
        return self.documents(records, text_of if _has_escapes(block.data) else string_of)

    def documents(
        self,
        records: Sequence[tuple[int, Mapping[str, object] | ValueError, bytes]],
        read_text: _ReadText = text_of,
    ) -> Documents:
        """Return the documents in records, each given as (number, fields or an error, bytes)."""
        found = Columns(self._fields)
        by_number = {number: record for number, record, _ in records}
        objects = [record for record in by_number.values() if isinstance(record, Mapping)]
        self._check_stream(objects)
        words = words_in(objects, self._fingerprint_field or "")
        note = self._narrowing.take(words) if self._narrowing.is_open else ""

        def take(number: int, _: bytes) -> None:
            record = by_number[number]
            if isinstance(record, ValueError):
                raise record
            named = self._doc_id(record)
            content, is_page = self._content(record, read_text)
            doc_id = numbered_id(self._input, number) if named is None else named
            found.take(number, doc_id, content, self._first_seen(record), record, is_page=is_page)
            found.numbered += named is None

        documents = found.take_each(((number, data) for number, _, data in records), take)
        return replace(documents, formats=self._narrowing.formats, note=note)

    def _check_stream(self, objects: Sequence[Mapping[str, object]]) -> None:
        """Raise `ValueError` if the first records of a stream all lack a field; `find_inputs` checks files."""
        if self._first is None:
            return
        self._first += objects
        if len(self._first) >= LEAST_SEEN:
            problem, self._first = missing_field(self._input, self._options, self._first), None
            if problem:
                raise ValueError(f"input {self._input.label}: " + problem)

    def _doc_id(self, record: Mapping[str, object]) -> str | None:
        """Return the id of a record, or None if its number serves as its id."""
        name, is_asked = self._options.named_id_field, self._options.id_field is not None
        value = field_value(record, name) if is_asked else value_at(record, name)
        return None if value is None and not is_asked else doc_id_of(value, name)

    def _content(self, record: Mapping[str, object], read_text: _ReadText) -> tuple[str | Signature, bool]:
        """Return the text or the signature of a record, and whether it is a page."""
        if self._fingerprint_field is None:
            return _content_in(record, self._options, read_text)
        formats, reads_signatures = self._narrowing.formats, self._reads_signatures
        return signature_of(record, self._fingerprint_field, formats, reads_signatures=reads_signatures), False

    def _first_seen(self, record: Mapping[str, object]) -> int | None:
        value = value_at(record, self._first_seen_field) if self._first_seen_field is not None else None
        return None if value is None else first_seen_of(value, str(self._first_seen_field))


def _has_escapes(lines: bytes) -> bool:
    """Whether JSON has escapes with numbers of characters. Without them, its strings do not have lone surrogates.

    For texts that are not ASCII, this takes less time than encoding each of them.
    """
    if b"\\" not in lines:
        return False
    codes = np.frombuffer(lines, np.uint8)
    parts = (codes[start : start + _SEARCHED_BYTES + 1] for start in range(0, len(codes), _SEARCHED_BYTES))
    return any(((part[:-1] == _BACKSLASH) & (part[1:] == _U)).any() for part in parts)


def _object_or_error(line: bytes) -> Mapping[str, object] | ValueError:
    try:
        return json_object(text_in(line))
    except ValueError as error:
        return error


def field_value(record: Mapping[str, object], field: str) -> object:
    """Return the value of a field; raise `ValueError` if the record does not have it."""
    value = value_at(record, field, _MISSING)
    if value is _MISSING:
        raise ValueError(f'no field "{field}"')
    return value


def json_object(text: str) -> Mapping[str, object]:
    """Parse a JSON object; raise `ValueError` for anything else, or if its values need too much memory."""
    text = text.removeprefix("\ufeff")  # a file with a byte order mark may have been appended to another
    check_values(text, PARSED_LIMIT_BYTES)
    try:
        # Only `json.loads` accepts white space around the object, and it takes an eighth longer.
        record, end = _DECODER.raw_decode(text) if text.startswith("{") else (None, 0)
        if end < len(text) or not text:
            record = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"invalid JSON at character {error.pos}") from error
    except RecursionError as error:
        raise ValueError("invalid JSON: nested too deeply") from error
    except ValueError as error:
        raise ValueError("invalid JSON: a number has too many digits") from error
    if not isinstance(record, dict):
        raise ValueError(f"invalid JSON: expected an object, got {type_name(record)}")
    return record


def check_values(text: str | bytes, most_bytes: int) -> None:
    """Raise `ValueError` if the parsed values of a JSON text may need more than `most_bytes` of memory."""
    if len(text) * _HEAVIEST <= most_bytes:
        return
    text = text if isinstance(text, str) else text.decode(errors="replace")
    # The first estimate also counts marks within strings, because removing strings is slow and blocks other threads.
    if _marked_bytes(text) > most_bytes and _parsed_bytes(text) > most_bytes:
        raise ValueError(f"invalid JSON: its values need more than {most_bytes >> 20} MiB of memory")


def _parsed_bytes(text: str) -> int:
    """Estimate the bytes of memory that the parsed values of a JSON text need, not counting the content of strings."""
    place = needed = 0
    while place < len(text):
        pieces = _JSON_PIECES.match(text, place)
        end = pieces.end() if pieces else len(text)  # a string that never ends
        needed += _marked_bytes(_JSON_STRING.sub("", text[place:end]))
        place = end
    return needed


def _marked_bytes(text: str) -> int:
    return sum(text.count(mark) * size for mark, size in _PARSED_BYTES.items())


def content_of(record: Mapping[str, object], options: InputOptions) -> str:
    """Return a record's text, its fields joined into one text, or its features as JSON; for a page, its main text.

    Raises:
        ValueError: The record does not have content, or is a page that exceeds the limits.
    """
    content = _content_in(record, options)
    return text_of_page(content.text, options) if content.is_page else content.text


def _content_in(record: Mapping[str, object], options: InputOptions, read_text: _ReadText = text_of) -> Content:
    """Return the text or the page in a record; raise `ValueError` if it has neither."""
    text = written_content(record, options, read_text)
    return Content(text) if options.has_features else content_in(text, options.extract, has_fields=bool(options.fields))


def written_content(record: Mapping[str, object], options: InputOptions, read_text: _ReadText = text_of) -> str:
    """Return a record's text, which may be a page, its fields joined into one text, or its features as JSON.

    `read_text` returns the value of the text field as text.

    Raises:
        ValueError: The record does not have content.
    """
    if options.fields:
        if not any(has_field(record, name) for name in options.fields):
            raise ValueError(f"no field {' or '.join(json.dumps(name) for name in options.fields)}")
        return join_fields(_field_text(value_at(record, name), name) for name in options.fields)
    value = field_value(record, options.text_field)
    return features_text(value, options.text_field) if options.has_features else read_text(value, options.text_field)


def _field_text(value: object, field: str) -> str:
    """Return the text of one of several fields.

    An array of texts, such as headings, becomes lines; null becomes an empty text.
    """
    if isinstance(value, list):
        return "\n".join([text_of(one, field) for one in value])
    return "" if value is None else text_of(value, field)


def signature_of(
    record: Mapping[str, object], field: str, formats: Formats, *, reads_signatures: bool = True
) -> Signature:
    """Return a record's fingerprint, with sketch and key if it has a sketch; raise `ValueError` if one is invalid.

    Args:
        record: JSON object.
        field: Field that holds the fingerprint.
        formats: Formats that the fingerprint may have; a sketch and a key always have 16 hexadecimal digits.
        reads_signatures: Whether to read sketch and key. Without a sketch, a field named `key` means something else.
    """
    fingerprint = fingerprint_of(field_value(record, field), field, formats)
    if reads_signatures and record.get("sketch") is not None:
        return Signature(fingerprint, *(digits_in(record.get(name), name) for name in ("sketch", "key")))
    return Signature(fingerprint)
