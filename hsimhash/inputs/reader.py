"""Read inputs in batches of documents, starting at any position; reread single texts or unchanged records."""

from __future__ import annotations

import errno
import os
import stat
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, compress
from pathlib import Path

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint.bits import Formats
from hsimhash.inputs.archives import read_archive
from hsimhash.inputs.extraction import PageTexts, refusal
from hsimhash.inputs.files import Input, InputOptions, is_page_name, usual_workers
from hsimhash.inputs.json_values import json_blocks
from hsimhash.inputs.lines import (
    BLOCK_BYTES,
    PREVIEW_BYTES,
    Block,
    DamagedInputError,
    Place,
    open_input,
    packing_of,
    text_of_file,
    unpacked_whole,
)
from hsimhash.inputs.markup import PAGE_BEGINNING_BYTES, is_page
from hsimhash.inputs.pages import Content, content_in, page_of
from hsimhash.inputs.records import Columns, Documents, Reject, parser_of, reason_of
from hsimhash.inputs.tables import read_rows
from hsimhash.processes import NoResult

FILES_IN_BATCH = 256
HELD_BYTES = 512 << 20  # maximum size of the texts that a job keeps in memory instead of reading them again
_KNOWN_PAGES = ("files", "warc")  # in these inputs, a file name or a media type identifies the pages
_UNREADABLE = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.ELOOP)  # errors that affect only one file


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the inputs."""

    input: int = 0  # number of the input, from 0
    place: Place = field(default_factory=Place)  # position within that input
    formats: Formats = ()  # possible formats of its fingerprints, given the values read so far; empty: `Input.formats`


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive documents from one input, and the position after them; empty while a stream is silent."""

    input: int
    documents: Documents
    end: Position


class HeldBatches:
    """Holds the first batches of inputs that are read twice, so that they are parsed only once. HTML is kept unchanged.

    Args:
        fields: JSON fields that the second pass needs, as for `read_batches`.
        most_bytes: Maximum bytes of text to hold.
    """

    def __init__(self, fields: Sequence[str] = (), most_bytes: int = HELD_BYTES) -> None:
        self.fields = fields
        self._left = most_bytes
        self._batches = deque[Batch]()

    def take(self, batch: Batch) -> None:
        """Keep a batch from the first pass, unless it or an earlier batch exceeds the limit."""
        if self._left > 0:  # once the limit is exceeded, later batches are not even measured
            self._left -= sum(map(sys.getsizeof, batch.documents.texts))
            if self._left >= 0:
                self._batches.append(batch)

    def release(self) -> Iterator[Batch]:
        """Yield the batches in order, and drop each one."""
        while self._batches:
            yield self._batches.popleft()


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
    """Yield batches of documents in order, starting at any position. The end of an input is the start of the next one.

    Worker processes extract the texts of HTML pages slightly ahead of the caller, as the options specify.

    Args:
        inputs: Inputs to read.
        options: How to read them.
        start: Position to start from.
        stop: Called before each batch and while a stream is silent; reading ends when it returns True.
        fields: JSON fields to read in addition to the document's own.
        block_bytes: Approximate number of input bytes per batch.
        workers: Number of processes that extract texts from pages. Default: one per core, or 1 if the inputs are small.
    """
    batches = _batches(inputs, options, start, stop, fields, block_bytes)
    return _with_texts(inputs, batches, options, workers or usual_workers(inputs))


def raw_batches(
    inputs: Sequence[Input],
    options: InputOptions,
    *,
    stop: Callable[[], bool] = lambda: False,
    held: HeldBatches | None = None,
) -> Iterator[Batch]:
    """Yield batches of documents with unchanged HTML; `texts_of_raw` extracts the texts of some of them.

    The first batches are also kept in `held`, for `read_again`.
    """
    held = held or HeldBatches(most_bytes=0)
    for batch in _batches(inputs, options, None, stop, held.fields, BLOCK_BYTES, is_raw=True):
        held.take(batch)
        yield batch


def read_again(
    inputs: Sequence[Input], options: InputOptions, held: HeldBatches, workers: int | None = None
) -> Iterator[Batch]:
    """Yield all batches as `read_batches` does, but take the batches that `raw_batches` kept in `held` from memory."""

    def batches() -> Iterator[Batch]:
        end, is_told = Position(), False
        for batch in held.release():
            end, is_told = batch.end, is_told or batch.documents.numbered > 0
            yield _with_pages(batch, inputs[batch.input], options) if batch.documents.texts else batch
        yield from _batches(inputs, options, end, lambda: False, held.fields, BLOCK_BYTES, is_told=is_told)

    return _with_texts(inputs, batches(), options, workers or usual_workers(inputs))


def _with_pages(batch: Batch, one: Input, options: InputOptions) -> Batch:
    """Convert a batch from `raw_batches` to what `read_batches` reads before it extracts the texts of pages."""
    documents = batch.documents
    if one.kind in _KNOWN_PAGES or options.has_features or options.extract == "text":
        return batch
    contents = [content_in(text, options.extract, has_fields=bool(options.fields)) for text in documents.texts]
    texts, is_page = ([*column] for column in zip(*contents, strict=True))
    return replace(batch, documents=replace(documents, texts=texts, is_page=is_page if any(is_page) else ()))


def texts_of_raw(pages: PageTexts, one: Input, documents: Documents, places: Sequence[int]) -> Sequence[str | NoResult]:
    """Return the texts of the documents at the given indices in a batch that `raw_batches` read."""
    values = [documents.texts[place] for place in places]
    if one.kind not in _KNOWN_PAGES:
        return pages.texts_of(values)
    is_page = [bool(documents.is_page) and documents.is_page[place] for place in places]
    found = iter(pages.submit(list(compress(values, is_page))).result() if any(is_page) else ())
    return [next(found) if page else value for page, value in zip(is_page, values, strict=True)]


def _batches(
    inputs: Sequence[Input],
    options: InputOptions,
    start: Position | None,
    stop: Callable[[], bool],
    fields: Sequence[str],
    block_bytes: int,
    *,
    is_raw: bool = False,
    is_told: bool = False,
) -> Iterator[Batch]:
    """Yield batches; `is_told`: whether the user already knows that records without an id are numbered."""
    start = start or Position()
    for number, one in enumerate(inputs[start.input :], start.input):
        here = start if number == start.input else Position(number)
        begun = replace(one, formats=here.formats or one.formats)
        reading = replace(options, extract="text") if is_raw and one.kind not in _KNOWN_PAGES else options
        read = _guarded(documents_of(begun, reading, fields, here.place, block_bytes), here.place)
        places = ((documents, _behind(number, documents, end)) for documents, end in read)
        for documents, position in chain(places, [(Documents(), Position(number + 1))]):
            if stop():
                return
            if documents.numbered and not is_told:
                note = f'records without "{options.named_id_field}" get their line number as id: {_numbered(documents)}'
                documents, is_told = replace(documents, note="; ".join(filter(None, (documents.note, note)))), True
            yield Batch(number, documents, position)


def _behind(number: int, documents: Documents, end: Place) -> Position:
    """Return the position after documents of an input, or after the whole input if it is damaged.

    A resumed job must not report the same damage again.
    """
    return Position(number + 1) if documents.damage else Position(number, end, documents.formats)


def _guarded(read: Iterator[tuple[Documents, Place]], start: Place) -> Iterator[tuple[Documents, Place]]:
    """Yield what is read from an input; an unexpected error ends this input, not the job."""
    end = start
    try:
        for documents, end in read:
            yield documents, end
    except (HsimhashError, OSError, ValueError):  # expected errors, with their own messages
        raise
    except Exception as error:
        place = replace(end, line=end.line + 1)
        reason = f"unexpected {reason_of(error)}; the rest of the input was not read"
        yield Documents(rejects=[Reject.of(place.line, reason, b"")], damage=reason), place


def _numbered(documents: Documents) -> str:
    """Return the first id that was made from an input's name and a line number."""
    pairs = zip(documents.doc_ids, documents.lines, strict=True)
    return next(doc_id for doc_id, line in pairs if doc_id.endswith(f":{line}"))


def documents_of(
    one: Input,
    options: InputOptions,
    fields: Sequence[str] = (),
    start: Place | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[Documents, Place]]:
    """Yield batches of an input's documents from `start`, each with the position after it; pages are unchanged."""
    start = start or Place()
    if one.problem:
        return iter([(Documents(rejects=[Reject.of(1, one.problem, b"")]), Place(1, 1, one.size_bytes))][start.line :])
    if one.kind == "files":
        return _files(one, options, start, block_bytes)
    if one.kind == "warc":
        return read_archive(one, options, fields, start, block_bytes)
    if one.kind in ("parquet", "csv"):
        return read_rows(one, options, fields, start, block_bytes)
    blocks = parsed_blocks(one, options, fields, start, block_bytes)
    return ((documents, block.end) for block, documents in blocks)


def _with_texts(
    inputs: Sequence[Input], batches: Iterator[Batch], options: InputOptions, workers: int
) -> Iterator[Batch]:
    """Yield batches in order, with each page replaced by its text, or rejected if its text cannot be extracted."""
    waiting: deque[tuple[Batch, Future[list[str | NoResult]] | None]] = deque()

    def finished() -> Batch:
        batch, work = waiting.popleft()
        return batch if work is None else _with_text(batch, work.result(), inputs[batch.input])

    with PageTexts(options, workers) as pages:
        for batch in batches:
            documents = batch.documents
            if not (documents.is_page or waiting):
                yield batch
                continue
            work = pages.submit(list(compress(documents.texts, documents.is_page))) if documents.is_page else None
            waiting.append((batch, work))
            while len(waiting) > 2 * workers:
                yield finished()
        while waiting:
            yield finished()


def _with_text(batch: Batch, found: Sequence[str | NoResult], one: Input) -> Batch:
    """Return a batch with its pages replaced by `found`, their texts in order."""
    documents, rest = batch.documents, iter(found)
    pairs = zip(documents.texts, documents.is_page, strict=True)
    texts = [next(rest) if is_one else text for text, is_one in pairs]
    reasons = {at: refusal(text) for at, text in enumerate(texts) if isinstance(text, NoResult)}
    kept = [page if isinstance(text, NoResult) else text for page, text in zip(documents.texts, texts, strict=True)]
    return replace(batch, documents=without_refused(one, replace(documents, texts=kept), reasons))


def without_refused(one: Input, documents: Documents, reasons: Mapping[int, str]) -> Documents:
    """Turn the documents at the indices in `reasons` into rejects."""
    if not reasons:
        return documents
    kept = [at not in reasons for at in range(len(documents.doc_ids))]
    rejects = [reject_of(one, documents, at, reason) for at, reason in reasons.items()]
    return replace(
        documents,
        doc_ids=list(compress(documents.doc_ids, kept)),
        texts=list(compress(documents.texts, kept)),
        lines=list(compress(documents.lines, kept)),
        first_seen=list(compress(documents.first_seen, kept)),
        fields={name: list(compress(values, kept)) for name, values in documents.fields.items()},
        is_page=list(compress(documents.is_page, kept)),
        rejects=sorted([*documents.rejects, *rejects], key=lambda reject: reject.line),
    )


def reject_of(one: Input, documents: Documents, at: int, reason: str) -> Reject:
    """Return the reject for the document with index `at`, which must have a text."""
    is_file = one.kind == "files"
    beginning = documents.texts[at][:PREVIEW_BYTES].encode(errors="replace")
    path = one.path_of(documents.doc_ids[at]) if is_file else ""
    return Reject.of(1 if is_file else documents.lines[at], reason, beginning, path)


def _files(one: Input, options: InputOptions, start: Place, block_bytes: int) -> Iterator[tuple[Documents, Place]]:
    found, number, read_bytes = Columns(), 0, start.read_bytes
    for number, (doc_id, path) in enumerate(one.documents_in(), start=1):
        if number <= start.offset:
            continue
        try:
            _check_name(doc_id)
            content, size = _content_of_file(path, one, options.extract)
            found.take(number, doc_id, content.text, is_page=content.is_page)
            read_bytes += size
        except ValueError as error:
            found.rejects.append(Reject.of(1, error, b"", path))
        if found.text_characters >= block_bytes or len(found) == FILES_IN_BATCH:
            yield found.documents(), Place(number, number, read_bytes)
            found = Columns()
    yield found.documents(), Place(number, number, read_bytes)


def _check_name(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(name).decode("utf-8", "backslashreplace")
        raise ValueError(f"the file name {shown!r:.200} is not UTF-8; rename it, for example with convmv") from error


def parsed_blocks(
    one: Input,
    options: InputOptions,
    fields: Sequence[str] = (),
    start: Place | None = None,
    block_bytes: int = BLOCK_BYTES,
) -> Iterator[tuple[Block, Documents]]:
    """Yield blocks of lines, starting at `start`, with the documents of each; the input must not be a folder."""
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
    """Yield (line, id, text) for the documents at `lines`, which are ascending, and stop after the last one.

    Documents that have changed in the meantime and no longer have a text are skipped.
    """
    readers = {
        "jsonl": _contents_of_lines,
        "tsv": _contents_of_lines,
        "lines": _contents_of_lines,
        "files": _contents_of_files,
    }
    with PageTexts(options) as pages:
        for line, doc_id, content in readers.get(one.kind, _contents_of_records)(one, options, lines):
            with suppress(ValueError):
                yield line, doc_id, pages.text(content.text) if content.is_page else content.text


def _contents_of_records(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, Content]]:
    left = set(lines)
    for documents, _ in documents_of(one, options):
        for line, doc_id, content in _contents(documents):
            if line in left:
                left.remove(line)
                yield line, doc_id, content
        if not left:
            return


def _contents(documents: Documents) -> Iterator[tuple[int, str, Content]]:
    pages = documents.is_page or [False] * len(documents.texts)
    return zip(documents.lines, documents.doc_ids, map(Content, documents.texts, pages), strict=True)


def _contents_of_lines(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, Content]]:
    parse, done = parser_of(one, options), 0
    with suppress(DamagedInputError):
        for block in _blocks(one):
            start, done = done, bisect_right(lines, block.end.line, done)
            if start < done:
                yield from _contents(parse(replace(block, wanted=lines[start:done])))
            if done == len(lines):
                return


def _contents_of_files(one: Input, options: InputOptions, lines: Sequence[int]) -> Iterator[tuple[int, str, Content]]:
    wanted = set(lines)
    for number, (doc_id, path) in enumerate(one.documents_in(), start=1):
        if number in wanted:
            with suppress(ValueError):  # the file has changed in the meantime
                yield number, doc_id, _content_of_file(path, one, options.extract)[0]


def _content_of_file(path: str, one: Input, extract: str) -> tuple[Content, int]:
    """Return a file's content and the number of bytes read; raise `ValueError` if the file cannot be a document."""
    data, size = _bytes_of_file(path, one)
    return content_of_file(path, data, extract), size


def content_of_file(path: str, data: bytes, extract: str) -> Content:
    """Return the content of a file: a page if its name or its beginning shows that it is one, else a text.

    Raises:
        ValueError: The file is neither, or is too long.
    """
    if extract != "text" and (is_page_name(path) or is_page(data[:PAGE_BEGINNING_BYTES].decode("latin-1"))):
        return Content(page_of(data), is_page=True)
    text = page_of(data) if is_page_name(path) else text_of_file(data)
    return content_in(text, extract) if extract == "html" else Content(text)


def _bytes_of_file(path: str, one: Input) -> tuple[bytes, int]:
    try:
        if not one.remote and not stat.S_ISREG(Path(path).stat().st_mode):
            raise ValueError("not a regular file")
        with one.source() if one.remote else open_input(path) as file:
            return unpacked_whole(file, packing_of(path)), file.tell()
    except DamagedInputError as error:
        raise ValueError(str(error)) from error
    except OSError as error:
        if error.errno not in _UNREADABLE:
            raise
        raise ValueError(f"cannot be read: {error.strerror}") from error
