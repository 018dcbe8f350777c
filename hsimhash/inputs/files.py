"""What is to be read: files, folders, stdin; what each holds, and how a later look tells that it changed.

| input | holds |
|---|---|
| `.jsonl`, `.ndjson`, `.json` | JSON lines, with a text or a fingerprint each |
| `.tsv` | `id<TAB>fingerprint` where each of the first 16 lines is that, `id<TAB>text` where none is |
| a folder | text files, each a document; its id is its path within the folder |
| `-`, or a pipe | JSON lines |

Files may end in `.gz` or `.zst`. Any other name needs a format.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hsimhash.fingerprint.bits import Formats, formats_named, spoken
from hsimhash.inputs.lines import STDIN
from hsimhash.inputs.sniff import FirstLines, decided_formats, holds_fingerprints, refuse_carriage_returns, written_in

FORMATS = ("auto", "jsonl", "tsv", "fingerprints", "files")
PACKED = (".gz", ".zst")
_JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")

Kind = Literal["jsonl", "tsv", "files"]


@dataclass(frozen=True, slots=True)
class InputOptions:
    """How inputs are read.

    Args:
        format: one of `FORMATS`.
        id_field: the JSON field with the document's id.
        text_field: the JSON field with its text.
        fingerprint_field: the JSON field with its fingerprint, read instead of a text; None: texts are read.
        fingerprint_format: how fingerprints are written: `hex`, `decimal`, `signed`; `auto`: as each input's first ones
            tell (`fingerprint/formats.py` has the rule).
        first_seen_field: the JSON field that says when the document was first seen, ms since 1970 or an ISO 8601 time,
            where a record has it; None: `first_seen` where fingerprints are read, else none.
    """

    format: str = "auto"
    id_field: str = "id"
    text_field: str = "text"
    fingerprint_field: str | None = None
    first_seen_field: str | None = None
    fingerprint_format: str = "auto"

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ValueError(f"there is no format {self.format!r}; there are: {', '.join(FORMATS)}")
        formats_named(self.fingerprint_format)
        if "" in (self.id_field, self.text_field, self.fingerprint_field, self.first_seen_field):
            raise ValueError("the name of a JSON field is empty; name one, or leave the option out")

    @property
    def formats(self) -> Formats:
        """Which formats fingerprints may have, before any was read."""
        return formats_named(self.fingerprint_format)

    @property
    def json_fingerprint_field(self) -> str:
        """The JSON field with the fingerprint, where fingerprints are read."""
        return self.fingerprint_field or "fingerprint"


@dataclass(frozen=True, slots=True)
class Input:
    """One input as it was found.

    Args:
        name: as it was given.
        kind: what its records are.
        has_fingerprints: whether they are read instead of texts.
        is_stream: whether it is stdin or a pipe.
        size_bytes: to be read, packed as they are; 0 for a stream.
        mark: changes when the input does.
        note: what was found out, for the user.
        formats: which its fingerprints may have; of a stream, before anything is read of it.
    """

    name: str
    kind: Kind
    has_fingerprints: bool
    is_stream: bool
    size_bytes: int
    mark: str
    note: str = ""
    formats: Formats = ()

    @property
    def packing(self) -> str:
        """`.gz`, `.zst` or nothing."""
        return "" if self.is_stream or self.kind == "files" else _packing_of(self.name)

    @property
    def place(self) -> str:
        """The input's absolute name; what it is called wherever the command runs."""
        return self.name if self.name == STDIN else os.path.abspath(self.name)  # noqa: PTH100 (links stay links)

    def reads(self, path: Path) -> bool:
        """Whether what is at `path`, or comes to be there, is read as this input or as part of it."""
        if self.kind == "files":
            return path.resolve().is_relative_to(Path(self.name).resolve())
        with suppress(OSError):  # one of them is not there
            return os.path.samefile(0 if self.name == STDIN else self.name, path)  # noqa: PTH121 (a descriptor)
        return False


def find_inputs(names: Sequence[str], options: InputOptions) -> list[Input]:
    """Look at every input, without reading more than its first lines.

    Raises:
        ValueError: there is none of that name, it cannot be read, or what it holds cannot be told.
    """
    if not names:
        raise ValueError("nothing to read: name files, a folder, or - for stdin")
    found = [_find(name, options) for name in names]
    for one in found[:-1]:
        if one.is_stream:  # a job that goes on could not tell that other bytes come where it has been already
            raise ValueError(f"input {one.name} is a stream, and a stream can only be the last input")
    return found


def _find(name: str, options: InputOptions) -> Input:
    if name == STDIN:
        return _stream(name, options)
    try:
        status = Path(name).stat()
        if stat.S_ISDIR(status.st_mode):
            return _folder(name, options)
        if not os.access(name, os.R_OK):
            raise PermissionError(13, "Permission denied", name)
        return _file(name, status, options) if stat.S_ISREG(status.st_mode) else _stream(name, options)
    except OSError as error:
        raise ValueError(f"input {name} cannot be read: {error.strerror}; nothing was written") from error


def _stream(name: str, options: InputOptions) -> Input:
    if options.format == "files":
        raise ValueError(f"input {name} is no folder, and --format files reads folders")
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


def _file(name: str, status: os.stat_result, options: InputOptions) -> Input:
    kind, lines = _kind_of(name, options), FirstLines(name, _packing_of(name))
    has_fingerprints, hint = _has_fingerprints(kind, options), ""
    if kind == "tsv":
        refuse_carriage_returns(name, lines)
        if options.format == "auto":
            has_fingerprints = holds_fingerprints(name, lines)
            hint = " (as texts: --format tsv)" if has_fingerprints else " (as fingerprints: --format fingerprints)"
    formats = _formats(name, kind, lines, options) if has_fingerprints else ()
    if has_fingerprints and len(formats) < len(options.formats):
        hint += f", read as {spoken(formats)}"
    note = f"{name} holds {'fingerprints' if has_fingerprints else 'texts'}{hint}" if hint else ""
    mark = f"{status.st_size} bytes of {status.st_mtime_ns}"
    return Input(name, kind, has_fingerprints, False, status.st_size, mark, note, formats)


def _formats(name: str, kind: Kind, lines: FirstLines, options: InputOptions) -> Formats:
    field = options.json_fingerprint_field if kind == "jsonl" else None
    return decided_formats(name, options.formats, written_in(lines.bounded(), field))


def _kind_of(name: str, options: InputOptions) -> Kind:
    suffix = Path(name.lower().removesuffix(_packing_of(name))).suffix
    is_json = suffix in _JSON_SUFFIXES
    if options.format == "files":
        raise ValueError(f"input {name} is no folder, and --format files reads folders")
    if options.format == "fingerprints":
        return "jsonl" if is_json else "tsv"
    if options.format == "jsonl" or (options.format == "auto" and is_json):
        return "jsonl"
    if options.format == "tsv" or suffix == ".tsv":
        return "tsv"
    raise ValueError(
        f"input {name}: its name does not tell what it holds; say --format jsonl, tsv or fingerprints, or put texts "
        f"into a folder"
    )


def _has_fingerprints(kind: Kind, options: InputOptions) -> bool:
    return options.format == "fingerprints" or (kind == "jsonl" and options.fingerprint_field is not None)


def _packing_of(name: str) -> str:
    return next((packing for packing in PACKED if name.lower().endswith(packing)), "")


def files_of(folder: str) -> Iterator[tuple[str, str]]:
    """Yield (path within the folder, with `/`; path) of every file, in the order of names; hidden ones are left out."""
    yield from _files_under(folder, "")


def _files_under(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as found:
        entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):  # a linked folder may contain itself
            yield from _files_under(entry.path, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.path
