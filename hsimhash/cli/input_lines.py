"""Read a file line by line: requests as JSON lines, or one id per line. `-` is stdin.

Invalid lines are reported on stderr with their line numbers, and the other lines are processed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from io import BufferedIOBase
from pathlib import Path
from typing import TypeVar, cast

from hsimhash.cli.console import say
from hsimhash.cli.standard_streams import check_stdin
from hsimhash.errors import in_shell
from hsimhash.files import naming
from hsimhash.fingerprint import TOO_SHORT, Profile, Signature
from hsimhash.fingerprint.bits import Formats, formats_named
from hsimhash.inputs.field_values import doc_id_of
from hsimhash.inputs.fields import has_field, value_at
from hsimhash.inputs.files import InputOptions
from hsimhash.inputs.fingerprint_format import Narrowing, words_in
from hsimhash.inputs.lines import BLOCK_BYTES, blocks_of, text_in
from hsimhash.inputs.records import content_of, json_object, signature_of
from hsimhash.rowkey import check_doc_id
from hsimhash.settings import Settings

BATCH_LINES = 1_000

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A signature or a text, with an optional id and line number."""

    signature: Signature | None = None
    text: str = ""
    doc_id: str | None = None
    line: int | None = None

    @property
    def label(self) -> dict[str, object]:
        """The id or line number of this request, as JSON values."""
        fields = {"line": self.line, "id": self.doc_id}
        return {name: value for name, value in fields.items() if value is not None}


class Lines:
    """The lines of a file, or of stdin for `-`; `rejected` counts the invalid lines read so far."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.name = "stdin" if path == "-" else path
        self.rejected = 0

    def requests(self, settings: Settings, profile: Profile, *, has_signatures: bool) -> Iterator[list[Request]]:
        """Yield batches of requests from JSON lines. The format of fingerprints is detected for a whole batch.

        Texts are read as the profile requires. With `has_signatures`, sketches and keys are read along with
        fingerprints.
        """
        narrowing = Narrowing(formats_named(settings.fingerprint_format))
        options = InputOptions(
            id_field=settings.id_field,
            text_field=settings.text_field,
            extract=settings.extract,
            has_signatures=has_signatures,
        ).for_profile(profile)
        for lines in self._batches():
            records = self._made(lines, lambda _, line: json_object(line))
            note = narrowing.take(words_in((record for _, record in records), "fingerprint"))
            if note:
                say(f"{self.name}: {note}")
            requests = self._made(records, partial(_request, options, narrowing.formats))
            if requests:
                yield [request for _, request in requests]

    def doc_ids(self) -> Iterator[list[str]]:
        """Yield ids, one per line, in batches."""
        for lines in self._batches():
            doc_ids = [line for _, line in self._made(lines, lambda _, line: check_doc_id(line).decode())]
            if doc_ids:
                yield doc_ids

    def _batches(self) -> Iterator[list[tuple[int, str]]]:
        """Yield the lines that have arrived, with their numbers. The sender may be waiting for answers to them."""
        with _opened(self.path) as stream, naming(self.name):
            for block in blocks_of(lambda: stream.read1(BLOCK_BYTES)):
                lines = list(enumerate(block.lines(), block.first))
                for start in range(0, len(lines), BATCH_LINES):
                    texts = self._made(lines[start : start + BATCH_LINES], lambda _, line: text_in(line).rstrip("\r"))
                    yield [(number, text) for number, text in texts if text]

    def _made(self, numbered: Iterable[tuple[int, S]], make: Callable[[int, S], T]) -> list[tuple[int, T]]:
        """Call `make` on each line and return the results. Report the lines for which it raises `ValueError`."""
        made = []
        for number, one in numbered:
            try:
                made.append((number, make(number, one)))
            except ValueError as error:
                self.rejected += 1
                say(f"{self.name}:{number}: rejected: {in_shell(error)}")
        return made


def _request(options: InputOptions, formats: Formats, line: int, record: Mapping[str, object]) -> Request:
    """Return the request on a line: a signature, or else a text."""
    doc_id = value_at(record, options.named_id_field)
    if doc_id is not None:
        doc_id = doc_id_of(doc_id, options.named_id_field)
        check_doc_id(doc_id)
    if "fingerprint" in record:
        signature = signature_of(record, "fingerprint", formats, reads_signatures=options.reads_signatures)
        return Request(signature, doc_id=doc_id, line=line)
    if not options.fields and not has_field(record, options.text_field):
        raise ValueError(f'missing field: expected "fingerprint" or "{options.text_field}" (see --text-field)')
    return Request(text=content_of(record, options), doc_id=doc_id, line=line)


def requested_signatures(requests: Sequence[Request], profile: Profile) -> list[Signature | None]:
    """Return the signature of each request, or None if its text is too short for one."""
    texts = [request.text for request in requests if request.signature is None]
    if texts:
        profile.verify()
    made = profile.signatures(texts)
    of_texts = (None if kind == TOO_SHORT else one for one, kind in zip(made, made.kinds.tolist(), strict=True))
    return [next(of_texts) if request.signature is None else request.signature for request in requests]


def _opened(path: str) -> AbstractContextManager[BufferedIOBase]:
    if path != "-":
        return Path(path).open("rb")
    check_stdin()
    return nullcontext(cast(BufferedIOBase, sys.stdin.buffer))
