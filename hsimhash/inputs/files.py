"""Describe inputs (files, folders and stdin): what each one holds, and a mark that shows later whether it has changed.

| input | holds |
|---|---|
| `.jsonl`, `.ndjson`, `.jl`, `.json` | JSON lines, an array or multi-line objects, each with a text or a fingerprint |
| `.tsv` | `id<TAB>fingerprint` if each of the first 16 lines has that form, `id<TAB>text` if none of them does |
| `.parquet`, `.csv` | tables, one document per row; also `.tsv` if its first line is a header, or with format `csv` |
| `.warc`, `.wet` | web archives: pages that a crawler fetched, and their texts |
| `.html`, `.htm`, and all other names | a page or a text; its id is the name as given |
| a folder | texts and pages, with their paths in the folder as ids; files of records are read as above |
| `-`, or a pipe | JSON lines |
| a URL | depends on its suffix, as above; `remote.py` reads it |

All names except those of Parquet files may end in `.gz`, `.zst`, `.bz2` or `.xz`. `find.py` detects what inputs hold;
`reader.py` reads them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Formats, formats_named
from hsimhash.inputs.lines import STDIN, InputFile, open_input, packing_of, path_order
from hsimhash.inputs.remote import RemoteSource

FORMATS = ("auto", "jsonl", "tsv", "fingerprints", "files", "lines", "parquet", "csv", "warc")
EXTRACTS = ("auto", "html", "text", "none")
LITTLE_BYTES = 1 << 20  # total size of the inputs below which one process is faster than several
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml")
_LEFT_OUT = re.compile(r"\.|_(?:SUCCESS|metadata|common_metadata|temporary|started_.*|committed_.*)\Z")

InputKind = Literal["jsonl", "tsv", "lines", "files", "parquet", "csv", "warc"]
TABLES: tuple[InputKind, ...] = ("parquet", "csv")
COPIED_KINDS: tuple[InputKind, ...] = ("jsonl", "tsv", "lines", "files")  # kinds that `apply` can copy
_BY_SUFFIX: dict[str, InputKind] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jl": "jsonl",
    ".json": "jsonl",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".csv": "csv",
    ".warc": "warc",
    ".wet": "warc",
    ".arc": "warc",  # the WARC reader rejects it and explains how to convert it
}


@dataclass(frozen=True, slots=True)
class InputOptions:
    """Options for reading inputs.

    Args:
        format: One of `FORMATS`.
        id_field: Field with the document's id; `meta.url` means the field `url` within `meta`. None: `id`, and a
            record without it gets the input's name and its line number as its id.
        text_field: JSON field with the document's text.
        fingerprint_field: JSON field with the document's fingerprint, read instead of a text; None: texts are read.
        fingerprint_format: Format of fingerprints: `hex`, `decimal`, `signed`, `binary`, or `auto` to detect it from
            the first fingerprints in each input (see `fingerprint/bits.py`).
        first_seen_field: Optional JSON field with the time at which the document was first seen, in ms since 1970 or
            ISO 8601. None: `first_seen` if fingerprints are read, else no field.
        has_signatures: Whether the JSON fields `sketch` and `key` are read along with a fingerprint, if a record has
            a sketch.
        fields: JSON fields of a document that consists of several texts, read instead of one text.
        has_features: Whether `text_field` has weighted features instead of a text.
        extract: Which text to use. `auto`: the main text of an HTML page, the visible text of an HTML fragment, and any
            other value unchanged. `html`: like `auto`, but every value is treated as a page or a fragment. `text`:
            every value unchanged. `none`: like `auto`, but all visible text of a page.
    """

    format: str = "auto"
    id_field: str | None = None
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
            raise ValueError("the name of a JSON field is empty; pass a name, or omit the option")

    def for_profile(self, profile: Profile) -> InputOptions:
        """Return these options for a profile: with its fields, and with features if the profile reads them."""
        return replace(self, fields=tuple(profile.field_weights), has_features=profile.tokens == "features")

    @property
    def flags(self) -> list[str]:
        """The command-line flags for the options that differ from their defaults."""
        usual, flags = InputOptions(), list[str]()
        for name in ("format", "id_field", "text_field", "extract", "fingerprint_field", "fingerprint_format"):
            if (value := getattr(self, name)) != getattr(usual, name):
                flags += [f"--{name.replace('_', '-')}", str(value)]
        return flags

    @property
    def formats(self) -> Formats:
        """The formats that fingerprints may have, before any are read."""
        return formats_named(self.fingerprint_format)

    @property
    def named_id_field(self) -> str:
        """The field with the id, in records that have an id."""
        return self.id_field or "id"

    @property
    def contents(self) -> tuple[str, ...]:
        """The fields with the text or texts of a document."""
        return self.fields or (self.text_field,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of a record that a document may need, starting with the id."""
        others = (self.json_fingerprint_field, "sketch", "key", self.first_seen_field or "first_seen")
        return tuple(dict.fromkeys((self.named_id_field, *self.contents, *others)))

    @property
    def json_fingerprint_field(self) -> str:
        """The JSON field with the fingerprint; relevant only if fingerprints are read."""
        return self.fingerprint_field or "fingerprint"

    @property
    def reads_signatures(self) -> bool:
        """Whether the fields `sketch` and `key` are read; false if an option uses one of these names."""
        taken = {self.named_id_field, self.text_field, self.json_fingerprint_field, self.first_seen_field}
        return self.has_signatures and taken.isdisjoint(("sketch", "key"))


@dataclass(frozen=True, slots=True)
class Input:
    """An input, and what was detected about it."""

    name: str  # the name as given; a URL without its secrets
    kind: InputKind  # kind of its records
    has_fingerprints: bool  # whether fingerprints are read instead of texts
    is_stream: bool  # whether it is stdin or a pipe
    size_bytes: int  # packed size; 0 for a stream
    mark: str  # changes when the input does
    note: str = ""  # a message about the input for the user
    formats: Formats = ()  # possible formats of its fingerprints; for a stream, before anything is read
    remote: RemoteSource | None = None  # the file behind a URL
    folder: str = ""  # folder in which it was found, as given
    prefix: str = ""  # prefix of ids in a folder: the folder's name if there are other inputs, to keep ids unique
    skips_records: bool = False  # for a folder: whether its files of records are separate inputs
    problem: str = ""  # why it cannot be read at all

    def open(self) -> InputFile:
        """Open an input other than a folder."""
        file = self.remote.open() if self.remote else None
        packing = "" if self.is_stream else packing_of(self.name)
        return InputFile(self.name, packing, is_stream=self.is_stream, file=file)

    def source(self) -> BinaryIO:
        """Open an input other than a folder without unpacking it."""
        return self.remote.open() if self.remote else open_input(self.name)

    @property
    def place(self) -> str:
        """The input's absolute name, which does not depend on the working folder."""
        return self.name if self.remote or self.name == STDIN else os.path.abspath(self.name)  # noqa: PTH100 (keeps links)

    @property
    def label(self) -> str:
        """The prefix of generated ids: the input's name, relative to its folder if that folder is the only input."""
        name = self.prefix + os.path.relpath(self.name, self.folder) if self.folder else self.name
        return "stdin" if name == STDIN else name

    def path_of(self, doc_id: str) -> str:
        """Return the path of a document in a folder, or of the input itself if it is a single file."""
        if doc_id == self.name:
            return self.name
        return os.path.join(self.name, doc_id.removeprefix(self.prefix))  # noqa: PTH118 (keeps the name)

    def place_of(self, doc_id: str, line: int) -> tuple[str, int]:
        """Return the file and the line of a document; a file in a folder is a single record, in its line 1."""
        return (self.path_of(doc_id), 1) if self.kind == "files" else (self.name, line)

    def documents_in(self) -> Iterator[tuple[str, str]]:
        """Yield (id, path) for each document in a folder, or for a single file; see `files_of`."""
        if self.remote or os.path.isfile(self.name):  # noqa: PTH113 (keeps the name)
            return iter([(self.name, self.name)])
        return (one for one in files_of(self.name, self.prefix) if not (self.skips_records and is_records(one[1])))

    def reads(self, path: Path) -> bool:
        """Whether a file at `path`, which may not exist yet, would be read as this input or as part of it."""
        if self.remote:
            return False
        if self.kind == "files":
            return path.resolve().is_relative_to(Path(self.name).resolve())
        with suppress(OSError):  # one of the files does not exist
            return os.path.samefile(0 if self.name == STDIN else self.name, path)  # noqa: PTH121 (a descriptor)
        return False


def usual_workers(inputs: Sequence[Input]) -> int:
    """Return the default number of workers: one per core, or 1 for small inputs; processes take seconds to start."""
    is_little = sum(one.size_bytes for one in inputs) < LITTLE_BYTES
    return 1 if is_little and not any(one.is_stream for one in inputs) else os.cpu_count() or 1


def suffix_of(name: str) -> str:
    """Return the suffix of a name in lower case, ignoring a compression suffix: `.csv` for `A.CSV.gz`."""
    return Path(name.lower().removesuffix(packing_of(name))).suffix


def kind_by_name(name: str) -> InputKind | None:
    """Return what a file with this name holds, or None for a text or a page."""
    return _BY_SUFFIX.get(suffix_of(name))


def is_page_name(name: str) -> bool:
    """Whether a file with this name is an HTML page."""
    return suffix_of(name) in _PAGE_SUFFIXES


def is_records(path: str) -> bool:
    """Whether a file in a folder holds records instead of a text."""
    return kind_by_name(path) is not None and os.path.isfile(path)  # noqa: PTH113 (keeps the name)


def files_of(folder: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (id, path) for every file; the id is `prefix` and the path within the folder, with `/`.

    Files are sorted by `path_order`, so that a file precedes copies such as `a (1).txt` and `a-v2.txt`.
    Skips hidden files, the marker files that Spark and similar programs leave in a folder, and links to files in the
    folder, which would otherwise duplicate their targets.
    """
    return _files_within(f"{os.path.realpath(folder).rstrip(os.sep)}{os.sep}", folder, prefix)


def _files_within(top: str, folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as found:
        shown = (one for one in found if not _LEFT_OUT.match(one.name))
        entries = sorted(shown, key=lambda one: path_order(one.name))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):  # a linked folder may contain itself
            yield from _files_within(top, entry.path, f"{prefix}{entry.name}/")
        elif not (entry.is_symlink() and _leads_to_file_in(top, entry.path)):
            yield f"{prefix}{entry.name}", entry.path


def _leads_to_file_in(top: str, link: str) -> bool:
    """Whether a link leads to a file below the folder `top` that is read itself."""
    target = os.path.realpath(link)
    return (
        target.startswith(top)
        and not any(map(_LEFT_OUT.match, Path(target.removeprefix(top)).parts))
        and Path(target).is_file()
    )
