"""Inputs → batches of documents, from any position on; and a second look: texts, and records as they stand."""

from __future__ import annotations

import errno
import stat
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from pathlib import Path

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint.bits import Formats
from hsimhash.inputs.archives import read_archive
from hsimhash.inputs.files import Input, InputOptions, is_page_name, packing_of, usual_workers
from hsimhash.inputs.json_values import json_blocks
from hsimhash.inputs.lines import (
    BLOCK_BYTES,
    Block,
    DamagedInputError,
    Place,
    open_input,
    text_of_file,
    unpacked_whole,
)
from hsimhash.inputs.pages import page_of, page_texts
from hsimhash.inputs.records import Columns, Documents, Reject, parser_of, reason_of
from hsimhash.inputs.tables import read_rows
from hsimhash.processes import Workers

FILES_IN_BATCH = 256
_UNREADABLE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP)  # a file's own fault


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the inputs."""

    input: int = 0  # the number of the input, from 0
    place: Place = field(default_factory=Place)  # where in it
    formats: Formats = ()  # which its fingerprints may have by what came before; none: as at its beginning


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents that follow each other in one input, and the position behind them; none where a stream is silent."""

    input: int
    documents: Documents
    end: Position


def read_batches(
    inputs: Sequence[Input],
    options: InputOptions,
    start: Position | None = None,
    *,
    stop: Callable[[], bool] = lambda: False,
    fields: Sequence[str] = (),
    block_bytes: int = BLOCK_BYTES,
    workers: int | None = None,
) -> Iterator[Batch]:
    """Yield the documents of inputs from a position on, in order. The end of an input is the next one's beginning.

    Of pages in HTML the texts are taken, as the options say, by processes that work a little ahead.

    Args:
        inputs: what to read.
        options: how.
        start: where to begin.
        stop: asked before each batch, and while a stream is silent.
        fields: fields of JSON records to read beside the document's own.
        block_bytes: about so much of an input comes in one batch.
        workers: processes that take texts of pages; by default one per core, for little to do this process alone.
    """
    batches = _batches(inputs, options, start, stop, fields, block_bytes)
    return _with_texts(batches, options.extract, workers or usual_workers(inputs))


def _batches(
    inputs: Sequence[Input],
    options: InputOptions,
    start: Position | None,
    stop: Callable[[], bool],
    fields: Sequence[str],
    block_bytes: int,
) -> Iterator[Batch]:
    start = start or Position()
    is_told = False
    for number, one in enumerate(inputs[start.input :], start.input):
        here = start if number == start.input else Position(number)
        begun = replace(one, formats=here.formats or one.formats)
        read = _guarded(documents_of(begun, options, fields, here.place, block_bytes), here.place)
        places = ((documents, _behind(number, documents, end)) for documents, end in read)
        for documents, position in chain(places, [(Documents(), Position(number + 1))]):
            if stop():
                return
            if documents.numbered and not is_told:
                note = f'records without "{options.named_id_field}" get their line as id: {_numbered(documents)}'
                documents, is_told = replace(documents, note="; ".join(filter(None, (documents.note, note)))), True
            yield Batch(number, documents, position)


def _behind(number: int, documents: Documents, end: Place) -> Position:
    """Return the position behind documents of an input; a job that resumes must not report its damage again."""
    return Position(number + 1) if documents.damage else Position(number, end, documents.formats)


def _guarded(read: Iterator[tuple[Documents, Place]], start: Place) -> Iterator[tuple[Documents, Place]]:
    """Yield what is read of an input; an error that nobody foresaw ends this input, not the job."""
    end = start
    try:
        for documents, end in read:
            yield documents, end
    except (HsimhashError, OSError, ValueError):  # with messages of their own
        raise
    except Exception as error:
        place = replace(end, line=end.line + 1)
        reason = f"unexpected {reason_of(error)}; the rest of the input was not read"
        yield Documents(rejects=[Reject.of(place.line, reason, b"")], damage=reason), place


def _numbered(documents: Documents) -> str:
    """Return the first id of documents that stands for a place."""
    pairs = zip(documents.doc_ids, documents.lines, strict=True)
    return next(doc_id for doc_id, line in pairs if doc_id.endswith(f":{line}"))


def documents_of(
    one: Input,
    options: InputOptions,
    fields: Sequence[str] = (),
    start: Place | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[Documents, Place]]:
    """Yield the documents of an input behind a place, pages as they are, and the place behind each batch."""
    start = start or Place()
    if one.problem:
        return iter([(Documents(rejects=[Reject.of(1, one.problem, b"")]), Place(1, 1, one.size_bytes))][start.line :])
    if one.kind == "files":
        return _files(one, start, block_bytes)
    if one.kind == "warc":
        return read_archive(one, options, fields, start, block_bytes)
    if one.kind in ("parquet", "csv"):
        return read_rows(one, options, fields, start, block_bytes)
    blocks = parsed_blocks(one, options, fields, start, block_bytes)
    return ((documents, block.end) for block, documents in blocks)


def _with_texts(batches: Iterator[Batch], extract: str, workers: int) -> Iterator[Batch]:
    """Yield batches with the texts of pages instead of the pages, in order."""
    waiting: deque[tuple[Batch, Future[list[str]] | None]] = deque()
    with Workers(workers) as pool:
        for batch in batches:
            documents = batch.documents
            if workers == 1 or not (documents.is_page or waiting):
                yield _with_text(batch, page_texts(_pages(documents), extract)) if documents.is_page else batch
                continue
            work = pool.submit(page_texts, _pages(documents), extract) if documents.is_page else None
            waiting.append((batch, work))
            while len(waiting) > 2 * workers:
                yield _finished(*waiting.popleft())
        while waiting:
            yield _finished(*waiting.popleft())


def _pages(documents: Documents) -> list[str]:
    return list(compress(documents.texts, documents.is_page))


def _finished(batch: Batch, work: Future[list[str]] | None) -> Batch:
    return batch if work is None else _with_text(batch, work.result())


def _with_text(batch: Batch, found: Sequence[str]) -> Batch:
    documents, rest = batch.documents, iter(found)
    pairs = zip(documents.texts, documents.is_page, strict=True)
    texts = [next(rest) if is_one else text for text, is_one in pairs]
    return replace(batch, documents=replace(documents, texts=texts))


def _files(one: Input, start: Place, block_bytes: int) -> Iterator[tuple[Documents, Place]]:
    found, number, read_bytes = Columns(), 0, start.read_bytes
    for number, (doc_id, path) in enumerate(one.documents_in(), start=1):
        if number <= start.offset:
            continue
        try:
            text, size = _text_of_file(path, one)
            found.take(number, doc_id, text, is_page=is_page_name(path))
            read_bytes += size
        except ValueError as error:
            found.rejects.append(Reject.of(1, error, b"", path))
        if found.text_characters >= block_bytes or len(found) == FILES_IN_BATCH:
            yield found.documents(), Place(number, number, read_bytes)
            found = Columns()
    yield found.documents(), Place(number, number, read_bytes)


def parsed_blocks(
    one: Input,
    options: InputOptions,
    fields: Sequence[str] = (),
    start: Place | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[Block, Documents]]:
    """Yield the lines of an input that is no folder from `start` on, and the documents among them."""
    parse, end = parser_of(one, options, fields), start or Place()
    try:
        for block in _blocks(one, start, block_bytes):
            yield block, _with_damage(parse(block), block)
            end = block.end
    except DamagedInputError as error:
        end = replace(end, line=end.line + 1)
        yield Block(b"", end.line, end), Documents(rejects=[Reject.of(end.line, error, b"")], damage=str(error))


def _with_damage(documents: Documents, block: Block) -> Documents:
    if not block.damage:
        return documents
    reject = Reject.of(block.end.line + 1, block.damage, b"")
    return replace(documents, rejects=[*documents.rejects, reject], damage=block.damage)


def _blocks(one: Input, start: Place | None = None, block_bytes: int = BLOCK_BYTES) -> Iterator[Block]:
    with one.open() as file:
        yield from json_blocks(file, start or Place(), block_bytes, is_json=one.kind == "jsonl")


def texts_at(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    """Yield (line, id, text) of the documents that stand at `lines`, ascending; reads no further than the last."""
    if one.kind == "files":
        return _texts_of_files(one, options, lines)
    return (
        _texts_of_lines(one, options, lines)
        if one.kind in ("jsonl", "tsv", "lines")
        else _texts_of_records(one, options, lines)
    )


def _texts_of_records(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    left = set(lines)
    for documents, _ in documents_of(one, options):
        pages = documents.is_page or [False] * len(documents.texts)
        for line, doc_id, text, is_one in zip(documents.lines, documents.doc_ids, documents.texts, pages, strict=True):
            if line in left:
                left.remove(line)
                yield line, doc_id, page_texts([text], options.extract)[0] if is_one else text
        if not left:
            return


def _texts_of_lines(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    parse, wanted = parser_of(one, options), deque(lines)
    with suppress(DamagedInputError):
        for block in _blocks(one):
            held = block.lines() if wanted[0] <= block.end.line else []
            while wanted and wanted[0] <= block.end.line:
                line = wanted.popleft()
                documents = parse(replace(block, data=held[line - block.first] + b"\n", first=line))
                yield from zip(documents.lines, documents.doc_ids, documents.texts, strict=True)
            if not wanted:
                return


def _texts_of_files(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    wanted = set(lines)
    for number, (doc_id, path) in enumerate(one.documents_in(), start=1):
        if number in wanted:
            with suppress(ValueError):  # it has changed since
                text = _text_of_file(path, one)[0]
                yield number, doc_id, page_texts([text], options.extract)[0] if is_page_name(path) else text


def _text_of_file(path: str, one: Input) -> tuple[str, int]:
    """Return the text of a file, and how many bytes of it were read; `ValueError` if it cannot be a document."""
    try:
        if not one.remote and not stat.S_ISREG(Path(path).stat().st_mode):
            raise ValueError("not a regular file")
        with one.source() if one.remote else open_input(path) as file:
            data = unpacked_whole(file, packing_of(path))
            size = file.tell()
    except DamagedInputError as error:
        raise ValueError(str(error)) from error
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        raise ValueError(f"cannot be read: {error.strerror}") from error
    return page_of(data) if is_page_name(path) else text_of_file(data), size
