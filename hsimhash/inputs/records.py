"""Inputs → batches of documents; what is no document is rejected with a reason, never raised."""

from __future__ import annotations

import codecs
import errno
import json
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from hsimhash.fingerprint.bits import Formats, narrow, read_fingerprint, spoken
from hsimhash.inputs.batch import BadRecordError, Batch, Documents, Position, Reject
from hsimhash.inputs.columns import fingerprint_columns
from hsimhash.inputs.files import PACKED, Input, InputOptions, files_of
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, Chunk, Place, chunks_of, open_source
from hsimhash.inputs.sniff import is_written, written_in
from hsimhash.rowkey import check_doc_id
from hsimhash.times import milliseconds_of

TEXT_BLOCK_BYTES = 256 << 10  # about so much text comes in one batch; more only where a single record is larger
FILES_IN_BATCH = 256
_UNREADABLE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP)  # a file's own fault
_TOO_LONG = f"longer than {RECORD_LIMIT_BYTES >> 20} MiB"

Parse = Callable[[bytes, int], Documents]


class DocumentReader:
    """Batches of the inputs from a position on, in order. `is_exhausted` once all was read, not when `stop` ended it.

    Args:
        inputs: what to read.
        options: how.
        stop: asked between blocks, and while a stream is silent.
        block_bytes: about so many bytes of fingerprints come in one batch.
        fields: fields of JSON records to read beside the document's own.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        options: InputOptions,
        stop: Callable[[], bool],
        block_bytes: int,
        *,
        fields: Sequence[str] = (),
    ) -> None:
        self._inputs = inputs
        self._options = options
        self._stop = stop
        self._block_bytes = block_bytes
        self._fields = fields
        self.is_exhausted = False

    def batches(self, start: Position) -> Iterator[Batch]:
        """Yield the batches behind `start`.

        The last position in an input is the next one's beginning. In a stream, the last input, it is the stream's end:
        what is sent when the job goes on must begin with the same, and may go on.
        """
        for number in range(start.input, len(self._inputs)):
            here = start if number == start.input else Position(number)
            one = self._inputs[number]
            found = self._files(one, here.place) if one.kind == "files" else self._lines(one, here)
            formats = here.formats
            for documents, end in found:
                formats = documents.formats or formats
                yield Batch(number, documents, Position(number, end, formats))
            if self._stop():
                return
            if not one.is_stream:
                yield Batch(number, Documents(), Position(number + 1))
        self.is_exhausted = True

    def _lines(self, one: Input, start: Position) -> Iterator[tuple[Documents, Place]]:
        begun = replace(one, formats=start.formats or one.formats)
        parse = parser_of(begun, self._options, self._fields)
        block_bytes = self._block_bytes if one.has_fingerprints else TEXT_BLOCK_BYTES
        for line, chunk in numbered_chunks(one, block_bytes, self._stop, start.place):
            yield documents_of(chunk, line, parse), chunk.end

    def _files(self, one: Input, start: Place) -> Iterator[tuple[Documents, Place]]:
        batch, number, read_bytes = _Columns(), 0, start.read_bytes
        for number, (doc_id, path) in enumerate(files_of(one.name), start=1):
            if self._stop():
                return
            if number <= start.offset:
                continue
            try:
                data = bytes_of_file(path)
                batch.take(doc_id, number, text=data.decode("utf-8-sig"))
                read_bytes += len(data)
            except (BadRecordError, UnicodeDecodeError) as error:
                batch.reject(1, reason_of(error), b"", path)
            if batch.size_bytes >= TEXT_BLOCK_BYTES or batch.count == FILES_IN_BATCH:
                yield batch.documents(), Place(number, number, read_bytes)
                batch = _Columns()
        yield batch.documents(), Place(number, number, read_bytes)


def numbered_chunks(
    one: Input, block_bytes: int, stop: Callable[[], bool], start: Place | None = None
) -> Iterator[tuple[int, Chunk]]:
    """Yield the lines of an input from `start` on, each chunk with how many lines are before it."""
    line = start.line if start else 0
    with open_source(one.name, one.packing, block_bytes, is_stream=one.is_stream) as source:
        for chunk in chunks_of(source, stop, start):
            yield line, chunk
            line = chunk.end.line


def documents_of(chunk: Chunk, lines_before: int, parse: Parse) -> Documents:
    """Return the documents of a chunk."""
    if chunk.problem:
        rejects = [Reject.of(chunk.end.line, chunk.problem, chunk.data)]
        return Documents(rejects=rejects, damage=chunk.problem if chunk.is_damaged else "")
    data = data_of(chunk, lines_before)
    return parse(data, lines_before + 1) if data else Documents()


def data_of(chunk: Chunk, lines_before: int) -> bytes:
    """Return the lines of a chunk, without the byte order mark that an input may begin with."""
    return chunk.data if lines_before else chunk.data.removeprefix(codecs.BOM_UTF8)


def parser_of(one: Input, options: InputOptions, fields: Sequence[str] = ()) -> Parse:
    """Return what makes documents of an input's lines, the first of which has the number given."""
    if one.kind == "jsonl":
        return _JsonLines(one, options, fields).parse
    return _FingerprintLines(one.formats).parse if one.has_fingerprints else _parse_tsv


class _Columns:
    """Documents while they are collected one by one."""

    def __init__(self, fields: Sequence[str] = ()) -> None:
        self._fields: dict[str, list[object]] = {name: [] for name in fields}
        self._doc_ids: list[str] = []
        self._texts: list[str] = []
        self._fingerprints: list[int] = []
        self._lines: list[int] = []
        self._first_seen: list[int | None] = []
        self._rejects: list[Reject] = []
        self.size_bytes = 0

    @property
    def count(self) -> int:
        return len(self._doc_ids) + len(self._rejects)

    def take(
        self,
        doc_id: str,
        line: int,
        *,
        text: str | None = None,
        fingerprint: int | None = None,
        first_seen: int | None = None,
        record: Mapping[str, object] | None = None,
    ) -> None:
        """Add a document that has a text or a fingerprint; `BadRecordError` if its id is none."""
        _check(doc_id)
        self._doc_ids.append(doc_id)
        self._lines.append(line)
        self._first_seen.append(first_seen)
        if text is not None:
            self._texts.append(text)
            self.size_bytes += len(text)
        if fingerprint is not None:
            self._fingerprints.append(fingerprint)
        for name, column in self._fields.items():
            column.append(record.get(name) if record else None)

    def reject(self, line: int, reason: str, record: bytes, path: str = "") -> None:
        self._rejects.append(Reject.of(line, reason, record, path))

    def documents(self) -> Documents:
        return Documents(
            self._doc_ids,
            self._texts,
            np.array(self._fingerprints, np.uint64),
            self._lines,
            self._first_seen if any(one is not None for one in self._first_seen) else (),
            self._rejects,
            fields=self._fields,
        )


def _check(doc_id: str) -> None:
    try:
        check_doc_id(doc_id)
    except ValueError as error:
        raise BadRecordError(str(error)) from error


def reason_of(error: ValueError) -> str:
    """Return why a record is rejected, for the user."""
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8: {error.reason} at byte {error.start}"
    return str(error)


def _parse_tsv(data: bytes, first_line: int) -> Documents:
    found = _Columns()
    for number, line in enumerate(data.split(b"\n")[:-1], start=first_line):
        if not line.strip(b" \r"):
            continue
        try:
            doc_id, tab, text = line.removesuffix(b"\r").decode("utf-8").partition("\t")
            if not tab:
                raise BadRecordError("no tab between id and text")
            found.take(doc_id, number, text=text)
        except (BadRecordError, UnicodeDecodeError) as error:
            found.reject(number, reason_of(error), line)
    return found.documents()


class Narrowing:
    """Which formats an input's fingerprints may have, as it is read."""

    def __init__(self, formats: Formats) -> None:
        self.formats = formats

    @property
    def is_open(self) -> bool:
        """Whether what is read may still rule formats out."""
        return len(self.formats) > 1

    def take(self, written: Iterable[str | int]) -> str:
        """Rule out formats by what a block of the input has; return what to tell the user, if there is news."""
        before, self.formats = self.formats, narrow(self.formats, written)
        is_news = self.formats != before and ("hex" not in self.formats or not self.is_open)
        return f"fingerprints are read as {spoken(self.formats)}" if is_news else ""


class _FingerprintLines:
    def __init__(self, formats: Formats) -> None:
        self._narrowing = Narrowing(formats)

    def parse(self, data: bytes, first_line: int) -> Documents:
        note = self._narrowing.take(written_in(data.split(b"\n"), None)) if self._narrowing.is_open else ""
        formats = self._narrowing.formats
        return replace(fingerprint_columns(data, first_line, formats), formats=formats, note=note)


class _JsonLines:
    def __init__(self, one: Input, options: InputOptions, fields: Sequence[str]) -> None:
        self._fields = fields
        self._id_field = options.id_field
        self._text_field = options.text_field
        self._fingerprint_field = options.json_fingerprint_field if one.has_fingerprints else None
        self._first_seen_field = options.first_seen_field or ("first_seen" if one.has_fingerprints else None)
        self._narrowing = Narrowing(one.formats)

    def parse(self, data: bytes, first_line: int) -> Documents:
        found = _Columns(self._fields)
        lines = [(number, line) for number, line in enumerate(data.split(b"\n")[:-1], first_line) if line.strip()]
        records = [_record_or_error(line) for _, line in lines]
        note = self._narrowing.take(self._written(records)) if self._narrowing.is_open else ""
        for (number, line), record in zip(lines, records, strict=True):
            try:
                if isinstance(record, ValueError):
                    raise record
                self._take(found, number, record)
            except (BadRecordError, UnicodeDecodeError) as error:
                found.reject(number, reason_of(error), line)
        return replace(found.documents(), formats=self._narrowing.formats, note=note)

    def _take(self, found: _Columns, number: int, record: Mapping[str, object]) -> None:
        doc_id = doc_id_of(_value(record, self._id_field), self._id_field)
        first_seen = self._first_seen(record)
        if self._fingerprint_field is not None:
            value = _value(record, self._fingerprint_field)
            fingerprint = fingerprint_of(value, self._fingerprint_field, self._narrowing.formats)
            found.take(doc_id, number, fingerprint=fingerprint, first_seen=first_seen, record=record)
            return
        text = text_of(_value(record, self._text_field), self._text_field)
        found.take(doc_id, number, text=text, first_seen=first_seen, record=record)

    def _written(self, records: Sequence[Mapping[str, object] | ValueError]) -> Iterator[str | int]:
        for record in records:
            value = record.get(self._fingerprint_field or "") if isinstance(record, Mapping) else None
            if is_written(value):
                yield value

    def _first_seen(self, record: Mapping[str, object]) -> int | None:
        value = record.get(self._first_seen_field) if self._first_seen_field is not None else None
        if value is None:
            return None
        time = value if isinstance(value, int) and not isinstance(value, bool) else milliseconds_of(value)
        if time is None or not 0 <= round(time) < 1 << 63:
            raise BadRecordError(
                f'"{self._first_seen_field}" is neither ms since 1970 nor an ISO 8601 time since then: {value!r:.80}'
            )
        return round(time)


def _record_or_error(line: bytes) -> Mapping[str, object] | ValueError:
    try:
        return json_object(line.decode("utf-8"))
    except (BadRecordError, UnicodeDecodeError) as error:
        return error


def _value(record: Mapping[str, object], field: str) -> object:
    if field not in record:
        raise BadRecordError(f'no field "{field}"')
    return record[field]


def _type_of(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def json_object(text: str) -> Mapping[str, object]:
    """Return the object that a JSON text is; `BadRecordError` for any other text."""
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadRecordError(f"no JSON from character {error.pos} on") from error
    except RecursionError as error:
        raise BadRecordError("no JSON: nested too deeply") from error
    except ValueError as error:
        raise BadRecordError("no JSON: a number has too many digits") from error
    if not isinstance(record, dict):
        raise BadRecordError(f"no JSON object but {_type_of(record)}")
    return record


def doc_id_of(value: object, field: str) -> str:
    """Return a field's value as an id that `check_doc_id` may still refuse, a number as its digits; or raise."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise BadRecordError(f'"{field}" is no text but {_type_of(value)}')
    return value


def text_of(value: object, field: str) -> str:
    """Return a field's value as a text; `BadRecordError` if it is none."""
    if not isinstance(value, str):
        raise BadRecordError(f'"{field}" is no text but {_type_of(value)}')
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BadRecordError(f'"{field}" has a lone surrogate (\\ud800 to \\udfff)') from error
    return value


def fingerprint_of(value: object, field: str, formats: Formats) -> int:
    """Return a field's value as a fingerprint; `BadRecordError` if it is none in these formats."""
    if not is_written(value):
        raise BadRecordError(f'"{field}" is no fingerprint but {_type_of(value)}')
    try:
        return read_fingerprint(value, formats)
    except ValueError as error:
        raise BadRecordError(str(error)) from error


def bytes_of_file(path: str) -> bytes:
    """Return a file of a folder; `BadRecordError` where it cannot be a document."""
    if path.lower().endswith(PACKED):
        raise BadRecordError("packed; within a folder files are read as they are")
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise BadRecordError("no regular file")
        with Path(path).open("rb") as file:
            data = file.read(RECORD_LIMIT_BYTES + 1)
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        raise BadRecordError(f"cannot be read: {error.strerror}") from error
    if len(data) > RECORD_LIMIT_BYTES:
        raise BadRecordError(_TOO_LONG)
    return data
