"""Inputs a second time: their records as they stand, and the texts of some."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from hsimhash.inputs.batch import BadRecordError, Documents
from hsimhash.inputs.files import Input, InputOptions, files_of
from hsimhash.inputs.records import TEXT_BLOCK_BYTES, bytes_of_file, data_of, documents_of, numbered_chunks, parser_of


@dataclass(frozen=True, slots=True)
class RawRecords:
    """Lines as they stand, from line `first_line` on, and the documents among them; no byte order mark."""

    lines: Sequence[bytes]
    first_line: int
    documents: Documents

    def line(self, number: int) -> bytes:
        """Return a line by its number in the input, without its newline."""
        return self.lines[number - self.first_line]


def raw_records(one: Input, options: InputOptions) -> Iterator[RawRecords]:
    """Yield the lines of an input that is no folder."""
    parse = parser_of(one, options)
    for before, chunk in numbered_chunks(one, TEXT_BLOCK_BYTES, lambda: False):
        yield RawRecords(data_of(chunk, before).split(b"\n")[:-1], before + 1, documents_of(chunk, before, parse))


def texts_at(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    """Yield (line, id, text) of the documents that stand at `lines`, ascending; reads no further than the last."""
    return _texts_of_files(one, lines) if one.kind == "files" else _texts_of_lines(one, options, lines)


def _texts_of_lines(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    parse, wanted = parser_of(one, options), deque(lines)
    for before, chunk in numbered_chunks(one, TEXT_BLOCK_BYTES, lambda: False):
        if wanted[0] > chunk.end.line:
            continue
        held = [] if chunk.problem else chunk.data.split(b"\n")
        while wanted and wanted[0] <= chunk.end.line:
            line = wanted.popleft()
            if held:
                alone = replace(chunk, data=held[line - before - 1] + b"\n")
                documents = documents_of(alone, line - 1, parse)
                yield from zip(documents.lines, documents.doc_ids, documents.texts, strict=True)
        if not wanted:
            return


def _texts_of_files(one: Input, lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    wanted = set(lines)
    for number, (doc_id, path) in enumerate(files_of(one.name), start=1):
        if number in wanted:
            with suppress(BadRecordError, UnicodeDecodeError):  # it has changed since
                yield number, doc_id, bytes_of_file(path).decode("utf-8-sig")
