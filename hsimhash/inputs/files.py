"""What is to be read: files, folders, stdin; what each holds, and how a later look tells that it changed.

| input | holds |
|---|---|
| `.jsonl`, `.ndjson`, `.json` | JSON lines, with a text or a fingerprint each |
| `.tsv` | `id<TAB>fingerprint` where each of the first 16 lines is that, `id<TAB>text` where none is |
| `.parquet`, `.csv` | tables, a document a row; `.tsv` too where the format is `csv`, with names in its first line |
| `.warc`, `.wet` | web archives: pages that a crawler got, and their texts |
| `.html`, `.htm` | a page; its id is the name as given |
| a folder | text files and pages, each a document; its id is its path within the folder |
| `-`, or a pipe | JSON lines |
| a URL | what its name says, as above; `remote.py` has how it is read |

Files but Parquet and pages may end in `.gz` or `.zst`. Any other name needs a format.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO, Literal, TypeGuard

from hsimhash.extras import needed
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import ALL_FORMATS, Formats, fitting, formats_named, spoken
from hsimhash.inputs.lines import PACKED, STDIN, DamagedInputError, InputFile, blocks_of, open_input, preview
from hsimhash.inputs.remote import RemoteSource, find_remote, is_remote, matching_urls

FORMATS = ("auto", "jsonl", "tsv", "fingerprints", "files", "parquet", "csv", "warc")
EXTRACTS = ("auto", "html", "text", "none")
LITTLE_BYTES = 1 << 20  # of inputs; for so little one process is quicker than several
SNIFFED_LINES = 16  # that tell fingerprints from texts
FORMAT_LINES = 10_000  # read at most to decide a format, and
FORMAT_BYTES = 4 << 20  # so many bytes; nearly every input is decided by its first lines
_SNIFFED_BLOCK_BYTES = 64 << 10
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
_PAGE_SUFFIXES = (".html", ".htm")

Kind = Literal["jsonl", "tsv", "files", "parquet", "csv", "warc"]
_BY_SUFFIX: dict[str, Kind] = {".parquet": "parquet", ".csv": "csv", ".warc": "warc", ".wet": "warc"}
_LIBRARIES = {  # that read a kind of input: module and extra
    "parquet": ("pyarrow.parquet", "parquet"),
    "warc": ("fastwarc.warc", "warc"),
}


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How inputs are read.

    Args:
        format: one of `FORMATS`.
        id_field: the JSON field with the document's id.
        text_field: the JSON field with its text.
        fingerprint_field: the JSON field with its fingerprint, read instead of a text; None: texts are read.
        fingerprint_format: how fingerprints are written: `hex`, `decimal`, `signed`, `binary`; `auto`: as each input's
            first ones tell (`fingerprint/bits.py` has the rule).
        first_seen_field: the JSON field that says when the document was first seen, ms since 1970 or an ISO 8601 time,
            where a record has it; None: `first_seen` where fingerprints are read, else none.
        has_signatures: whether the JSON fields `sketch` and `key` are read beside a fingerprint, where a record has a
            sketch.
        fields: the JSON fields of a document of several texts, read instead of one text.
        has_features: whether `text_field` has features with weights instead of a text.
        extract: how values are read. `auto`: of an HTML page the main text, of a fragment of HTML the visible text,
            anything else as it is. `html`: every value is a page or a fragment. `text`: every value as it is. `none`:
            as `auto`, but of a page all visible text.
    """

    format: str = "auto"
    id_field: str = "id"
    text_field: str = "text"
    fingerprint_field: str | None = None
    first_seen_field: str | None = None
    fingerprint_format: str = "auto"
    has_signatures: bool = True
    fields: tuple[str, ...] = ()
    has_features: bool = False
    extract: str = "auto"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"unknown format {self.format!r}; use one of {', '.join(FORMATS)}")
        if self.extract not in EXTRACTS:
            raise ValueError(f"unknown extract {self.extract!r}; use one of {', '.join(EXTRACTS)}")
        formats_named(self.fingerprint_format)
        if "" in (self.id_field, self.text_field, self.fingerprint_field, self.first_seen_field):
            raise ValueError("the name of a JSON field is empty; name one, or leave the option out")

    def for_profile(self, profile: Profile) -> InputOptions:
        """Return how inputs are read that are fingerprinted by a profile: its fields, or its features."""
        return replace(self, fields=tuple(profile.field_weights), has_features=profile.tokens == "features")

    @property
    def formats(self) -> Formats:
        """Which formats fingerprints may have, before any was read."""
        return formats_named(self.fingerprint_format)

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of a record that a document may be made of, its id first."""
        contents = self.fields or (self.text_field,)
        others = (self.json_fingerprint_field, "sketch", "key", self.first_seen_field or "first_seen")
        return tuple(dict.fromkeys((self.id_field, *contents, *others)))

    @property
    def json_fingerprint_field(self) -> str:
        """The JSON field with the fingerprint, where fingerprints are read."""
        return self.fingerprint_field or "fingerprint"

    @property
    def reads_signatures(self) -> bool:
        """Whether the fields `sketch` and `key` are read: not where one of them is the name of another field."""
        taken = {self.id_field, self.text_field, self.json_fingerprint_field, self.first_seen_field}
        return self.has_signatures and taken.isdisjoint(("sketch", "key"))


@dataclass(frozen=True, slots=True)
class Input:
    """One input as it was found."""

    name: str  # as it was given; of a URL without what is secret in it
    kind: Kind  # what its records are
    has_fingerprints: bool  # whether they are read instead of texts
    is_stream: bool  # whether it is stdin or a pipe
    size_bytes: int  # to be read, packed as they are; 0 for a stream
    mark: str  # changes when the input does
    note: str = ""  # what was found out, for the user
    formats: Formats = ()  # which its fingerprints may have; of a stream, before anything is read of it
    remote: RemoteSource | None = None  # of a URL: what is behind it

    def open(self) -> InputFile:
        """Open an input that is no folder."""
        file = self.remote.open() if self.remote else None
        packing = "" if self.is_stream else packing_of(self.name)
        return InputFile(self.name, packing, is_stream=self.is_stream, file=file)

    def source(self) -> BinaryIO:
        """Open an input that is no folder as it is, packed or not."""
        return self.remote.open() if self.remote else open_input(self.name)

    @property
    def place(self) -> str:
        """The input's absolute name; what it is called wherever the command runs."""
        return self.name if self.remote or self.name == STDIN else os.path.abspath(self.name)  # noqa: PTH100 (links stay links)

    def path_of(self, doc_id: str) -> str:
        """Return the path of a document of a folder, or of the only one."""
        return self.name if doc_id == self.name else os.path.join(self.name, doc_id)  # noqa: PTH118 (a name as it is)

    def documents_in(self) -> Iterator[tuple[str, str]]:
        """Yield (id, path) of the documents of a folder, or of the page that this is; see `files_of`."""
        return iter([(self.name, self.name)]) if self.remote else files_of(self.name)

    def reads(self, path: Path) -> bool:
        """Whether what is at `path`, or comes to be there, is read as this input or as part of it."""
        if self.remote:
            return False
        if self.kind == "files":
            return path.resolve().is_relative_to(Path(self.name).resolve())
        with suppress(OSError):  # one of them is not there
            return os.path.samefile(0 if self.name == STDIN else self.name, path)  # noqa: PTH121 (a descriptor)
        return False


def find_inputs(names: Sequence[str], options: InputOptions) -> list[Input]:
    """Look at every input, without reading more than its first lines.

    Raises:
        ValueError: no input has that name, it cannot be read, or its format cannot be recognised.
        InputUnavailableError: the server of a URL cannot be reached.
    """
    if not names:
        raise ValueError("nothing to read: name files, a folder, or - for stdin")
    urls = (matching_urls(name) if is_remote(name) else [name] for name in names)
    found = [_remote(name, options) if is_remote(name) else _find(name, options) for name in chain.from_iterable(urls)]
    for one in found[:-1]:
        if one.is_stream:  # what comes behind it could not be resumed
            raise ValueError(f"input {one.name} is a stream, and a stream can only be the last input")
    return found


def _find(name: str, options: InputOptions) -> Input:
    try:
        status = None if name == STDIN else Path(name).stat()
        if status and stat.S_ISDIR(status.st_mode):
            return _folder(name, options)
        if is_page_name(name) and options.format in ("auto", "files") and status and stat.S_ISREG(status.st_mode):
            return _folder(name, options)
        if options.format == "files":
            raise ValueError(f"input {name} is not a folder, and --format files reads folders")
        if status and not os.access(name, os.R_OK):
            raise PermissionError(13, "Permission denied", name)
        if status and stat.S_ISREG(status.st_mode):
            return _file(name, status.st_size, f"{status.st_size} bytes of {status.st_mtime_ns}", options)
        return _stream(name, options)
    except OSError as error:
        raise ValueError(f"input {name} cannot be read: {error.strerror}; nothing was written") from error


def _remote(url: str, options: InputOptions) -> Input:
    source = find_remote(url)
    name, size = source.name, source.size_bytes or 0
    if is_page_name(name) and options.format in ("auto", "files"):
        return Input(name, "files", False, False, size, source.mark, remote=source)
    if options.format == "files":
        raise ValueError(f"input {name} is no page, and --format files reads folders and pages")
    found = _file(name, size, source.mark, options, source)
    if found.kind == "parquet" and not source.has_ranges:
        raise ValueError(f"input {name}: its server gives no byte ranges, which Parquet needs; download the file")
    return replace(found, note="; ".join(filter(None, (found.note, source.note))))


def _stream(name: str, options: InputOptions) -> Input:
    if options.format in _BY_SUFFIX.values():
        raise ValueError(f"input {name} is a stream, and --format {options.format} reads files; write it into one")
    kind: Kind = "jsonl" if options.format in ("auto", "jsonl") else "tsv"
    has_fingerprints = _has_fingerprints(kind, options)
    formats = options.formats if has_fingerprints else ()
    return Input(name, kind, has_fingerprints, is_stream=True, size_bytes=0, mark="", formats=formats)


def _folder(name: str, options: InputOptions) -> Input:
    if options.format not in ("auto", "files"):
        raise ValueError(f"input {name} is a folder, whose files are texts; --format {options.format} reads files")
    size, count, digest = 0, 0, hashlib.blake2b(digest_size=16)
    for doc_id, path in files_of(name):
        status = os.lstat(path)
        size, count = size + status.st_size, count + 1
        digest.update(f"{doc_id}\0{status.st_size}\0{status.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return Input(name, "files", False, is_stream=False, size_bytes=size, mark=f"{count} files {digest.hexdigest()}")


def _file(name: str, size: int, mark: str, options: InputOptions, remote: RemoteSource | None = None) -> Input:
    kind, hint = _kind_of(name, options), ""
    has_fingerprints = _has_fingerprints(kind, options)
    if kind in _BY_SUFFIX.values():
        if library := _LIBRARIES.get(kind):
            needed(*library, f"input {name}")
        formats = options.formats if has_fingerprints else ()
        return Input(name, kind, has_fingerprints, False, size, mark, formats=formats, remote=remote)
    with closing(_first_lines(name, remote)) as lines:
        first = list(islice(lines, SNIFFED_LINES)) if kind == "tsv" else []
        _refuse_carriage_returns(name, first)
        if kind == "tsv" and options.format == "auto":
            has_fingerprints = _holds_fingerprints(name, first)
            hint = " (as texts: --format tsv)" if has_fingerprints else " (as fingerprints: --format fingerprints)"
        field = options.json_fingerprint_field if kind == "jsonl" else None
        written = written_in(chain(first, lines), field)
        formats = decided_formats(name, options.formats, written) if has_fingerprints else ()
    if has_fingerprints and len(formats) < len(options.formats):
        hint += f", read as {spoken(formats)}"
    note = f"{name} holds {'fingerprints' if has_fingerprints else 'texts'}{hint}" if hint else ""
    return Input(name, kind, has_fingerprints, False, size, mark, note, formats, remote)


def _kind_of(name: str, options: InputOptions) -> Kind:
    suffix = suffix_of(name)
    is_json = suffix in _JSON_SUFFIXES
    if options.format in ("auto", "fingerprints") and suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    if named := next((kind for kind in _BY_SUFFIX.values() if kind == options.format), None):
        return named
    if options.format == "fingerprints":
        return "jsonl" if is_json else "tsv"
    if options.format == "jsonl" or (options.format == "auto" and is_json):
        return "jsonl"
    if options.format == "tsv" or suffix == ".tsv":
        return "tsv"
    raise ValueError(
        f"input {name}: cannot tell from its name what it holds; pass --format jsonl, tsv, csv, parquet, warc or "
        f"fingerprints, or put texts into a folder"
    )


def _has_fingerprints(kind: Kind, options: InputOptions) -> bool:
    has_fields = kind in ("jsonl", "parquet", "csv")
    return options.format == "fingerprints" or (has_fields and options.fingerprint_field is not None)


def packing_of(name: str) -> str:
    """Return `.gz`, `.zst` or nothing."""
    return next((packing for packing in PACKED if name.lower().endswith(packing)), "")


def usual_workers(inputs: Sequence[Input]) -> int:
    """Return one for each core; for little to do this process alone, for others take seconds to start."""
    is_little = sum(one.size_bytes for one in inputs) < LITTLE_BYTES
    return 1 if is_little and not any(one.is_stream for one in inputs) else os.cpu_count() or 1


def suffix_of(name: str) -> str:
    """Return the end of a name from its last dot on, in lower case, without that of a packing."""
    return Path(name.lower().removesuffix(packing_of(name))).suffix


def is_page_name(name: str) -> bool:
    """Whether a file of this name is a page in HTML."""
    return Path(name.lower()).suffix in _PAGE_SUFFIXES


def files_of(folder: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path within the folder, with `/`; path) of every file, in the order of names; hidden ones are left out.

    What is within the folder is yielded behind `prefix`. Of a file that is no folder its own name.
    """
    if os.path.isfile(folder):  # noqa: PTH113 (a name as it is)
        yield folder, folder
        return
    with os.scandir(folder) as found:
        entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):  # a linked folder may contain itself
            yield from files_of(entry.path, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.path


def _first_lines(name: str, remote: RemoteSource | None) -> Generator[bytes, None, None]:
    """Yield the lines of a file that are not blank, as many as decide a format at most, and up to damage if any."""
    size = number = 0
    with InputFile(name, packing_of(name), file=remote.open() if remote else None) as file, suppress(DamagedInputError):
        for block in blocks_of(partial(file.read, _SNIFFED_BLOCK_BYTES)):
            for line in filter(bytes.strip, block.lines()):
                if number == FORMAT_LINES or size >= FORMAT_BYTES:
                    return
                yield line
                number, size = number + 1, size + len(line)


def _holds_fingerprints(name: str, first: Sequence[bytes]) -> bool:
    """Return whether the first lines of a TSV file have fingerprints, not texts, behind their tabs.

    Raises:
        ValueError: some have, others have not.
    """
    others = [(number, line) for number, line in enumerate(first, start=1) if not _is_fingerprint_line(line)]
    if 0 < len(others) < len(first):
        number, line = others[0]
        raise ValueError(
            f"input {name}: {len(first) - len(others)} of its first {len(first)} lines are an id, a tab and a "
            f"fingerprint, but line {number} is '{preview(line)[:80]}'; pass --format fingerprints, which "
            f"rejects the others (a header, say), or --format tsv if all of them are texts"
        )
    return bool(first) and not others


def _is_fingerprint_line(line: bytes) -> bool:
    columns = line.split(b"\t")
    return len(columns) == 2 and bool(fitting(columns[1].decode("utf-8", "replace"), ALL_FORMATS))


def _refuse_carriage_returns(name: str, first: Sequence[bytes]) -> None:
    """Raise `ValueError` where a TSV file has records, but no line feeds between them."""
    if len(first) == 1 and b"\t" in first[0].rstrip(b"\r").partition(b"\r")[2]:
        raise ValueError(
            f"input {name}: its lines end in a carriage return alone, so that all of it would be one record; make "
            f"them line feeds (tr '\\r' '\\n')"
        )


def decided_formats(name: str, formats: Formats, written: Iterable[str | int]) -> Formats:
    """Return which formats the fingerprints of a file may have: one, or several that agree on all that was seen.

    Args:
        name: of the file.
        formats: those to choose from.
        written: its first fingerprints; no more of them are read than decide.

    Raises:
        ValueError: there are words, and all of them may be hexadecimal or decimal.
    """
    words = 0
    for one in written:
        if len(formats) == 1:
            return formats
        fits = fitting(one, formats)
        words += isinstance(one, str) and bool(fits)
        formats = fits or formats
    if words and len(formats) > 1 and "hex" in formats:
        raise ValueError(
            f"input {name}: all of its first fingerprints ({words:,}) have 16 digits and no letter, so they may be "
            f"hexadecimal or decimal; choose with --fingerprint-format {'|'.join(formats)}"
        )
    return formats


def written_in(lines: Iterable[bytes], field: str | None) -> Iterator[str | int]:
    """Yield what stands for a fingerprint in lines: in a JSON field, or behind the last tab where `field` is None."""
    for line in lines:
        with suppress(ValueError, RecursionError):  # a bad record decides nothing
            if field is None:
                yield line.rpartition(b"\t")[2].decode()
                continue
            record = json.loads(line)
            value = record.get(field) if isinstance(record, dict) else None
            if is_written(value):
                yield value


def is_written(value: object) -> TypeGuard[str | int]:
    """Whether a JSON value is a word or a whole number, so that it may be a fingerprint."""
    return isinstance(value, (str, int)) and not isinstance(value, bool)
