"""Lines that commands read: requests as JSON lines, ids one a line, texts; `-` is stdin.

A bad line is told on stderr with its number, and the rest goes on.
"""

from __future__ import annotations

import select
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase, UnsupportedOperation
from pathlib import Path
from typing import TypeVar, cast

from hsimhash.cli.console import say
from hsimhash.cli.options import Settings
from hsimhash.cli.streams import check_stdin
from hsimhash.errors import HsimhashError
from hsimhash.files import naming
from hsimhash.fingerprint import TOO_SHORT, Profile
from hsimhash.fingerprint.bits import Formats, formats_named
from hsimhash.inputs.lines import LineSource, chunks_of
from hsimhash.inputs.records import Narrowing, doc_id_of, fingerprint_of, json_object, reason_of, text_of
from hsimhash.inputs.sniff import is_written
from hsimhash.rowkey import check_doc_id

BATCH_LINES = 1_000
BLOCK_BYTES = 1 << 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A fingerprint, or else a text, with its id and its line where it has them."""

    fingerprint: int | None = None
    text: str = ""
    doc_id: str | None = None
    line: int | None = None

    @property
    def label(self) -> dict[str, object]:
        """What tells this request from the others, as JSON values."""
        fields = {"line": self.line, "id": self.doc_id}
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Record:
    """What a line asks for: a fingerprint as it is written, unless it has a text."""

    written: object
    text: str | None
    doc_id: str | None
    line: int


class Lines:
    """The lines of a file, or of stdin for `-`; `rejected` counts the bad ones among those read so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "stdin" if path == "-" else path
        self.rejected = 0

    def requests(self, settings: Settings) -> Iterator[list[Request]]:
        """Yield what JSON lines ask for, in batches; what has come together decides how fingerprints are written."""
        narrowing = Narrowing(formats_named(settings.fingerprint_format))
        for batch in self._batches(lambda line, number: _record(line, number, settings)):
            records = [one for _, one in batch if isinstance(one, _Record)]
            note = narrowing.take(record.written for record in records if is_written(record.written))
            if note:
                say(f"{self.name}: {note}")
            requests = self._good([(number, _request(one, narrowing.formats)) for number, one in batch])
            if requests:
                yield requests

    def doc_ids(self) -> Iterator[list[str]]:
        """Yield ids, one a line, in batches."""
        for batch in self._batches(_doc_id):
            doc_ids = self._good(batch)
            if doc_ids:
                yield doc_ids

    def _good(self, batch: Sequence[tuple[int, T | ValueError]]) -> list[T]:
        """Return what is good of a batch; tell of the rest, each with the number of its line."""
        found = []
        for number, one in batch:
            if isinstance(one, ValueError):
                self.rejected += 1
                say(f"{self.name}:{number}: rejected: {reason_of(one)}")
            else:
                found.append(one)
        return found

    def _batches(self, parse: Callable[[str, int], T]) -> Iterator[list[tuple[int, T | ValueError]]]:
        """Yield full batches while lines are plenty, else what has come: its sender may wait for the answers."""
        batch: list[tuple[int, T | ValueError]] = []
        with _opened(self.path) as stream, naming(self.name):
            for number, line, problem in _numbered_lines(_Arrivals(stream)):
                try:
                    text = _text_of(line, problem, is_first=number == 1)
                    if text:
                        batch.append((number, parse(text, number)))
                except ValueError as error:
                    batch.append((number, error))
                if batch and (line is None or len(batch) == BATCH_LINES):
                    yield batch
                    batch = []
        if batch:
            yield batch


class _Arrivals(LineSource):
    """What comes through an open stream; `read` tells once that nothing more has come, then waits for it."""

    is_stream = True

    def __init__(self, stream: BufferedIOBase) -> None:
        self._stream = stream
        self._has_told = False
        self._read_bytes = 0

    @property
    def read_bytes(self) -> int:
        return self._read_bytes

    def read(self) -> bytes | None:
        self._has_told = not self._has_told and not _is_ready(self._stream)
        if self._has_told:
            return None
        block = self._stream.read1(BLOCK_BYTES)  # leaves nothing in the stream's own buffer, which `select` cannot see
        self._read_bytes += len(block)
        return block

    def __exit__(self, *exc_info: object) -> None:
        pass  # who opened the stream closes it


def _is_ready(stream: BufferedIOBase) -> bool:
    """Whether reading would not wait."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except UnsupportedOperation:  # it is in memory
        return True


def _numbered_lines(source: LineSource) -> Iterator[tuple[int, bytes | None, str]]:
    """Yield each line's number, the line, and what is wrong with it; None for a line where nothing more has come."""
    before = 0
    for chunk in chunks_of(source, lambda: False):
        if chunk.problem:
            yield chunk.end.line, chunk.data, chunk.problem
        elif chunk.data:
            for number, line in enumerate(chunk.data.split(b"\n")[:-1], start=before + 1):
                yield number, line, ""
        else:
            yield before, None, ""
        before = chunk.end.line


def requested_fingerprints(requests: Sequence[Request], profile: Profile) -> list[int | None]:
    """Return the fingerprint of each request, None where its text is too short for one."""
    texts = [request.text for request in requests if request.fingerprint is None]
    if texts:
        profile.verify()
    made = profile.fingerprints(texts)
    of_texts = (
        None if kind == TOO_SHORT else value
        for value, kind in zip(made.values.tolist(), made.kinds.tolist(), strict=True)
    )
    return [next(of_texts) if request.fingerprint is None else request.fingerprint for request in requests]


def read_text(path: str) -> str:
    """Return the text of a UTF-8 file, or of stdin for `-`."""
    name = "stdin" if path == "-" else path
    try:
        with _opened(path) as stream, naming(name):
            return stream.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HsimhashError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from error


@contextmanager
def _opened(path: str) -> Iterator[BufferedIOBase]:
    if path == "-":
        check_stdin()
        yield cast(BufferedIOBase, sys.stdin.buffer)
    else:
        with Path(path).open("rb") as stream:
            yield stream


def _text_of(line: bytes | None, problem: str, *, is_first: bool) -> str:
    if problem:
        raise ValueError(problem)
    return (line or b"").decode("utf-8-sig" if is_first else "utf-8").rstrip("\r")


def _doc_id(line: str, number: int) -> str:  # noqa: ARG001
    check_doc_id(line)
    return line


def _record(line: str, number: int, settings: Settings) -> _Record:
    fields = json_object(line)
    doc_id = fields.get(settings.id_field)
    if doc_id is not None:
        doc_id = doc_id_of(doc_id, settings.id_field)
        check_doc_id(doc_id)
    if "fingerprint" in fields:
        return _Record(fields["fingerprint"], None, doc_id, number)
    if settings.text_field not in fields:
        raise ValueError(f'neither "fingerprint" nor "{settings.text_field}"')
    return _Record(None, text_of(fields[settings.text_field], settings.text_field), doc_id, number)


def _request(record: _Record | ValueError, formats: Formats) -> Request | ValueError:
    """Return what a record asks for, or why it asks for nothing."""
    if isinstance(record, ValueError):
        return record
    if record.text is not None:
        return Request(text=record.text, doc_id=record.doc_id, line=record.line)
    try:
        fingerprint = fingerprint_of(record.written, "fingerprint", formats)
    except ValueError as error:
        return error
    return Request(fingerprint, doc_id=record.doc_id, line=record.line)
