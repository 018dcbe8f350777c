"""Turn names from a command line into inputs; only the beginning of each is read, to detect what it holds."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from hsimhash.errors import Remedy, in_shell
from hsimhash.extras import needed
from hsimhash.fingerprint.bits import ALL_FORMATS, fitting, spoken
from hsimhash.inputs.archives import ID_FIELDS
from hsimhash.inputs.fields import missing_column, missing_field
from hsimhash.inputs.files import (
    TABLES,
    Input,
    InputKind,
    InputOptions,
    files_of,
    is_page_name,
    is_records,
    kind_by_name,
)
from hsimhash.inputs.fingerprint_format import decided_formats, words_in, written_in
from hsimhash.inputs.json_values import json_blocks
from hsimhash.inputs.lines import STDIN, DamagedInputError, InputFile, Place, is_binary, packing_of, preview, text_in
from hsimhash.inputs.pages import require_page_library
from hsimhash.inputs.records import json_object
from hsimhash.inputs.remote import RemoteSource, find_remote, is_remote, matching_urls
from hsimhash.inputs.tables import column_names

SNIFFED_LINES = 16  # first lines that decide between fingerprints and texts; required fields must occur in them
# Maximum number of lines and bytes read to detect the format of fingerprints; the first lines nearly always suffice.
FORMAT_LINES = 10_000
FORMAT_BYTES = 4 << 20
NAMED = 3  # maximum number of files named in a note
_NAME_CHARS = 64  # longest column name accepted as a sign that a TSV file has a header
_SNIFFED_BLOCK_BYTES = 64 << 10
_ARCHIVE = "warc"
_LIBRARIES = {  # kind of input -> module that reads it, and the extra that installs it
    "parquet": ("pyarrow.parquet", "parquet"),
    "warc": ("fastwarc.warc", "warc"),
}


def find_inputs(names: Sequence[str], options: InputOptions) -> list[Input]:
    """Look up every input. A folder becomes one input for its texts, and one for each file of records.

    Raises:
        ValueError: An input does not exist, cannot be read or has an unknown format, or no input has the field for
            the id or the text.
        InputUnavailableError: The server of a URL cannot be reached.
    """
    if not names:
        raise ValueError("nothing to read: pass files, a folder, or - for stdin")
    urls = (matching_urls(name) if is_remote(name) else [name] for name in names)
    found = [one for name in chain.from_iterable(urls) for one in _found(name, options, is_only=len(names) == 1)]
    for one in found[:-1]:
        if one.is_stream:  # a job could not resume in an input after a stream
            raise ValueError(f"input {one.name} is a stream, but only the last input can be a stream")
    if found and all(one.problem for one in found):
        raise ValueError(f"input {found[0].name}: " + found[0].problem)
    return found


def _found(name: str, options: InputOptions, *, is_only: bool) -> list[Input]:
    if is_remote(name):
        return [_remote(name, options)]
    try:
        status = None if name == STDIN else Path(name).stat()
        if status and stat.S_ISDIR(status.st_mode):
            prefix = "" if is_only else f"{os.path.normpath(name)}/"
            return [replace(one, prefix=prefix) for one in _folder(name, options)]
        if not (status and stat.S_ISREG(status.st_mode)):
            return [_stream(name, options)]
        if not os.access(name, os.R_OK):
            raise PermissionError(13, "Permission denied", name)
        return [_file(name, status.st_size, _mark(status), options)]
    except OSError as error:
        raise ValueError(f"input {name} cannot be read: {error.strerror}; nothing was written") from error


def _mark(status: os.stat_result) -> str:
    return f"{status.st_size} bytes of {status.st_mtime_ns}"


def _remote(url: str, options: InputOptions) -> Input:
    source = find_remote(url)
    found = _file(source.name, source.size_bytes or 0, source.mark, options, source)
    if found.kind == "parquet" and not source.has_ranges:
        raise ValueError(f"input {source.name}: its server does not support byte ranges; download the file first")
    return replace(found, note="; ".join(filter(None, (found.note, source.note))))


def _stream(name: str, options: InputOptions) -> Input:
    if options.format in (*TABLES, _ARCHIVE, "files"):
        raise ValueError(f"input {name} is a stream, but format {options.format} needs a file; save it to a file first")
    kind: InputKind = (
        "jsonl" if options.format in ("auto", "jsonl") else "lines" if options.format == "lines" else "tsv"
    )
    has_fingerprints = _has_fingerprints(kind, options)
    formats = options.formats if has_fingerprints else ()
    return Input(name, kind, has_fingerprints, is_stream=True, size_bytes=0, mark="", formats=formats)


# Folders.


def _folder(name: str, options: InputOptions) -> list[Input]:
    """Return one input for the texts and pages in a folder, followed by an input for each file of records in it."""
    if options.format == "files":
        return [_texts(name, options, skips_records=False)]
    paths = [path for _, path in files_of(name) if options.format != "auto" or is_records(path)]
    records = [_shard(path, name, options) for path in paths]
    if options.format != "auto":
        return records or [_texts(name, options, skips_records=True)]
    texts = _texts(name, options, skips_records=bool(records))
    if not records:
        return [texts]
    held, found = _held(texts, records), [*([texts] if texts.size_bytes else []), *records]
    problems = "".join(f"; {one.label} is not read: {in_shell(one.problem)}" for one in records if one.problem)
    return [replace(found[0], note=f"{name} holds {held}{problems}"), *found[1:]]


def _texts(name: str, options: InputOptions, *, skips_records: bool) -> Input:
    whole = Input(name, "files", False, False, 0, "", skips_records=skips_records)
    size, count, digest, has_pages = 0, 0, hashlib.blake2b(digest_size=16), False
    for doc_id, path in whole.documents_in():
        status = os.lstat(path)
        size, count = size + status.st_size, count + 1
        has_pages |= is_page_name(path)
        digest.update(f"{doc_id}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape"))
    if has_pages:
        _need_library(name, options)
    return replace(whole, size_bytes=size, mark=f"{count} files {digest.hexdigest()}")


def _shard(path: str, folder: str, options: InputOptions) -> Input:
    """Return the input for a file of records in a folder; if it cannot be read, `problem` has the reason."""
    status = Path(path).stat()
    try:
        found = _file(path, status.st_size, _mark(status), options)
    except ValueError as error:
        kind = kind_by_name(path) or "jsonl"
        problem = str(error).removeprefix(f"input {path}").lstrip(": ")
        found = Input(path, kind, False, False, status.st_size, _mark(status), problem=problem)
    return replace(found, folder=folder)


def _held(texts: Input, records: Sequence[Input]) -> str:
    """Describe what a folder holds: `2 text files, 1 file of records (a.jsonl)`."""
    pages = Counter(is_page_name(path) for _, path in texts.documents_in())
    counts = [
        (pages[False], "text file", "text files"),
        (pages[True], "page", "pages"),
        (len(records), "file of records", "files of records"),
    ]
    words = [f"{count:,} {one if count == 1 else more}" for count, one, more in counts if count]
    names = ", ".join(one.label for one in records[:NAMED])
    more = f" and {len(records) - NAMED:,} more" if len(records) > NAMED else ""
    return f"{', '.join(words)} ({names}{more})"


# Files.


def _file(name: str, size: int, mark: str, options: InputOptions, remote: RemoteSource | None = None) -> Input:
    kind = _kind_of(name, options) or _kind_by_content(name, remote)
    if kind == "tsv" and options.format == "auto" and _has_header(name, options, remote):
        hint = " (as texts: --format tsv)"
        return replace(
            _file(name, size, mark, replace(options, format="csv"), remote), note=f"{name} holds a table{hint}"
        )
    if kind == "files":
        if is_page_name(name):
            _need_library(name, options)
        return Input(name, "files", False, False, size, mark, remote=remote)
    if library := _LIBRARIES.get(kind):
        needed(*library, f"input {name}")
    one = Input(name, kind, _has_fingerprints(kind, options), False, size, mark, remote=remote)
    one = replace(one, formats=options.formats) if kind in (*TABLES, _ARCHIVE) else _with_formats(one, options)
    return _with_fields(one, options)


def _kind_of(name: str, options: InputOptions) -> InputKind | None:
    """Return what a file holds according to its name and the chosen format; None if this depends on its content."""
    by_name = kind_by_name(name)
    match options.format:
        case "auto":
            return "files" if is_page_name(name) else by_name
        case "fingerprints":
            return by_name or "tsv"
        case "jsonl" | "tsv" | "lines" | "files" | "parquet" | "csv" | "warc" as kind:
            return kind
    raise AssertionError(options.format)


def _kind_by_content(name: str, remote: RemoteSource | None) -> InputKind:
    """Return what a file holds according to its first bytes.

    Raises:
        ValueError: The file is binary.
    """
    with InputFile(name, packing_of(name), file=remote.open() if remote else None) as file:
        try:
            head = file.head() or b""
        except DamagedInputError:
            return "files"  # rejected when it is read
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"WARC/"):
        return "warc"
    if is_binary(head):
        raise ValueError(
            f"input {name} is not text: convert it to text first, or "
            + Remedy("name its format with format=", "pass --format")
            + " if its name is misleading"
        )
    line = head.lstrip().partition(b"\n")[0]
    with suppress(ValueError, RecursionError):
        if isinstance(json.loads(line), dict):
            return "jsonl"
    return "files"


def _has_header(name: str, options: InputOptions, remote: RemoteSource | None) -> bool:
    """Whether the first line of a TSV file has column names, including one for a document's content.

    If there are only two columns, the other one must be the id, because the line could also be an id and a text that
    happens to equal a column name.
    """
    with InputFile(name, packing_of(name), file=remote.open() if remote else None) as file:
        try:
            line = (file.head() or b"").lstrip().partition(b"\n")[0]
        except DamagedInputError:
            return False  # rejected when it is read
    names = [column.strip(b' "\r').decode(errors="replace") for column in line.removeprefix(BOM_UTF8).split(b"\t")]
    wanted = (options.fingerprint_field,) if options.fingerprint_field else options.contents
    is_named = len(set(names)) == len(names) and all(0 < len(one) <= _NAME_CHARS for one in names)
    is_table = is_named and not set(names).isdisjoint(wanted)
    return is_table and (len(names) > 2 or options.named_id_field in names)


def _need_library(name: str, options: InputOptions) -> None:
    """Raise `ValueError` before any page is read if the package that extracts main texts is missing."""
    if options.extract in ("auto", "html"):
        try:
            require_page_library()
        except ValueError as error:
            raise ValueError(f"input {name}: " + error.args[0]) from error


def _has_fingerprints(kind: InputKind, options: InputOptions) -> bool:
    has_fields = kind in ("jsonl", *TABLES)
    return options.format == "fingerprints" or (has_fields and options.fingerprint_field is not None)


def _with_formats(one: Input, options: InputOptions) -> Input:
    """Detect from the first lines whether an input holds texts or fingerprints, and the format of the fingerprints."""
    hint, has_fingerprints, formats = "", one.has_fingerprints, options.formats
    with closing(_first_lines(one)) as lines:
        first = list(islice(lines, SNIFFED_LINES)) if one.kind == "tsv" else []
        if one.kind == "tsv" and options.format == "auto":
            has_fingerprints = _holds_fingerprints(one.name, first)
            hint = " (as texts: --format tsv)" if has_fingerprints else " (as fingerprints: --format fingerprints)"
        field = options.json_fingerprint_field if one.kind == "jsonl" else None
        if has_fingerprints:
            every = chain(first, lines)
            words = words_in(_objects_in(every), field) if field else written_in(every)
            formats = decided_formats(one.name, options.formats, words)
    if has_fingerprints and len(formats) < len(options.formats):
        hint += f", read as {spoken(formats)}"
    note = f"{one.name} holds {'fingerprints' if has_fingerprints else 'texts'}{hint}" if hint else ""
    return replace(one, has_fingerprints=has_fingerprints, formats=formats if has_fingerprints else (), note=note)


def _first_lines(one: Input) -> Generator[bytes, None, None]:
    """Yield the non-blank lines of a file, up to the limits for detecting a format or to the first damage."""
    size = number = 0
    with one.open() as file, suppress(DamagedInputError):
        for block in json_blocks(file, Place(), _SNIFFED_BLOCK_BYTES, is_json=one.kind == "jsonl"):
            for line in filter(bytes.strip, block.lines()):
                if number == FORMAT_LINES or size >= FORMAT_BYTES:
                    return
                yield line
                number, size = number + 1, size + len(line)


def _holds_fingerprints(name: str, first: Sequence[bytes]) -> bool:
    """Return whether the first lines of a TSV file have fingerprints instead of texts after their tabs.

    Raises:
        ValueError: Some of the lines have fingerprints, but others do not.
    """
    others = [(number, line) for number, line in enumerate(first, start=1) if not _is_fingerprint_line(line)]
    if 0 < len(others) < len(first):
        number, line = others[0]
        raise ValueError(
            f"input {name}: {len(first) - len(others)} of its first {len(first)} lines are an id, a tab and a "
            f"fingerprint, but line {number} is '{preview(line)[:80]}'; "
            + Remedy('pass format="fingerprints"', "pass --format fingerprints")
            + " to reject the other lines (such as a header), or "
            + Remedy('format="tsv"', "--format tsv")
            + " if all of them hold texts"
        )
    return bool(first) and not others


def _is_fingerprint_line(line: bytes) -> bool:
    columns = line.split(b"\t")
    return len(columns) == 2 and bool(fitting(columns[1].decode("utf-8", "replace"), ALL_FORMATS))


# Fields.


def _with_fields(one: Input, options: InputOptions) -> Input:
    """Return the input, with `problem` set if all of its first records lack the field for the id or for the text."""
    if one.kind == _ARCHIVE:
        known = options.id_field in (None, *ID_FIELDS)
        wanted = f" must be {' or '.join(ID_FIELDS)}, got {options.id_field!r}"
        problem = "" if known else Remedy("id_field", "--id-field") + wanted
        return replace(one, problem=problem)
    if one.kind in TABLES:
        return replace(one, problem=_problem_of_table(one, options))
    seen: Sequence[Mapping[str, object]] = _first_records(one) if one.kind == "jsonl" else []
    return replace(one, problem=missing_field(one, options, seen)) if seen else one


def _problem_of_table(one: Input, options: InputOptions) -> str:
    """Return why no row of a table can be read; usually an empty string."""
    try:
        names = column_names(one, options)
    except ValueError as error:
        return str(error).removeprefix(f"input {one.name}: ")
    return missing_column(one, options, names) if names else ""


def _first_records(one: Input) -> list[Mapping[str, object]]:
    with closing(_first_lines(one)) as lines:
        first, size = list[bytes](), 0
        for line in islice(lines, SNIFFED_LINES):
            first.append(line)
            if (size := size + len(line)) > FORMAT_BYTES:
                break
    return list(_objects_in(first))


def _objects_in(lines: Iterable[bytes]) -> Iterator[Mapping[str, object]]:
    """Yield the valid records among the lines."""
    for line in lines:
        with suppress(ValueError):
            yield json_object(text_in(line))
