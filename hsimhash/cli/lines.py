"""Lines that commands read: requests as JSON lines, ids one a line, texts; `-` is stdin.

A bad line is told on stderr with its number, and the rest goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from hsimhash.cli.console import say
from hsimhash.cli.exits import naming
from hsimhash.cli.streams import check_stdin
from hsimhash.errors import HsimhashError
from hsimhash.fingerprint import TOO_SHORT, Profile
from hsimhash.load.lines import RECORD_LIMIT_BYTES
from hsimhash.load.records import doc_id_of, fingerprint_of, json_object, reason_of, text_of
from hsimhash.rowkey import check_doc_id

if TYPE_CHECKING:
    from hsimhash.settings import Settings

BATCH_LINES = 1_000

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


class Lines:
    """The lines of a file, or of stdin for `-`; `rejected` counts the bad ones among those read so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "stdin" if path == "-" else path
        self.rejected = 0

    def requests(self, settings: Settings) -> Iterator[list[Request]]:
        """Yield what JSON lines ask for, in batches."""
        return self._batches(lambda line, number: _request(line, number, settings))

    def doc_ids(self) -> Iterator[list[str]]:
        """Yield ids, one a line, in batches."""
        return self._batches(_doc_id)

    def _batches(self, parse: Callable[[str, int], T]) -> Iterator[list[T]]:
        batch: list[T] = []
        with _opened(self.path) as stream, naming(self.name):
            for number, line in enumerate(_bounded_lines(stream), start=1):
                try:
                    text = _text_of(line, is_first=number == 1)
                    if text:
                        batch.append(parse(text, number))
                except ValueError as error:
                    self.rejected += 1
                    say(f"{self.name}:{number}: rejected: {reason_of(error)}")
                if len(batch) == BATCH_LINES:
                    yield batch
                    batch = []
        if batch:
            yield batch


def fingerprints_of(requests: Sequence[Request], profile: Profile) -> list[int | None]:
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
def _opened(path: str) -> Iterator[BinaryIO]:
    if path == "-":
        check_stdin()
        yield sys.stdin.buffer
    else:
        with Path(path).open("rb") as stream:
            yield stream


def _bounded_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield lines; of one over the limit only so much that this shows."""
    while line := stream.readline(RECORD_LIMIT_BYTES + 1):
        yield line
        while len(line) > RECORD_LIMIT_BYTES and not line.endswith(b"\n"):
            line = stream.readline(RECORD_LIMIT_BYTES + 1)


def _text_of(line: bytes, *, is_first: bool) -> str:
    if len(line) > RECORD_LIMIT_BYTES:
        raise ValueError(f"longer than {RECORD_LIMIT_BYTES >> 20} MiB")
    return line.decode("utf-8-sig" if is_first else "utf-8").rstrip("\r\n")


def _doc_id(line: str, number: int) -> str:  # noqa: ARG001
    check_doc_id(line)
    return line


def _request(line: str, number: int, settings: Settings) -> Request:
    fields = json_object(line)
    doc_id = fields.get(settings.id_field)
    if doc_id is not None:
        doc_id = doc_id_of(doc_id, settings.id_field)
        check_doc_id(doc_id)
    if "fingerprint" in fields:
        return Request(fingerprint_of(fields["fingerprint"], "fingerprint"), doc_id=doc_id, line=number)
    if settings.text_field not in fields:
        raise ValueError(f'neither "fingerprint" nor "{settings.text_field}"')
    return Request(text=text_of(fields[settings.text_field], settings.text_field), doc_id=doc_id, line=number)
