"""Inputs as found: files, folders, stdin; what each holds, and a state that shows later whether it changed.

| input | holds |
|---|---|
| `.jsonl`, `.ndjson`, `.jl`, `.json` | JSON lines, an array or multi-line objects, each with a text or a fingerprint |
| `.tsv` | `id<TAB>fingerprint` where each of the first 16 lines is that, `id<TAB>text` where none is |
| `.parquet`, `.csv` | tables, one document per row; `.tsv` too if its first line names the text, or with format `csv` |
| `.warc`, `.wet` | web archives: pages that a crawler fetched, and their texts |
| `.html`, `.htm`, and all other names | a page or a text; its id is the name as given |
| a folder | texts and pages, with their paths in the folder as ids; files of records are read as such |
| `-`, or a pipe | JSON lines |
| a URL | what its name says, as above; `remote.py` reads it |

All files but Parquet may end in `.gz`, `.zst`, `.bz2` or `.xz`. `find.py` looks at inputs, `reader.py` reads them.
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
from hsimhash.inputs.lines import STDIN, UNPACKERS, InputFile, open_input
from hsimhash.inputs.remote import RemoteSource

FORMATS = ("auto", "jsonl", "tsv", "fingerprints", "files", "lines", "parquet", "csv", "warc")
EXTRACTS = ("auto", "html", "text", "none")
LITTLE_BYTES = 1 << 20  # of inputs; for so little one process is quicker than several
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml")
_LEFT_OUT = re.compile(r"\.|_(?:SUCCESS|metadata|common_metadata|temporary|started_.*|committed_.*)\Z")

InputKind = Literal["jsonl", "tsv", "lines", "files", "parquet", "csv", "warc"]
TABLES: tuple[InputKind, ...] = ("parquet", "csv")
COPIED_KINDS: tuple[InputKind, ...] = ("jsonl", "tsv", "lines", "files")  # whose records can be copied line by line
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
    ".arc": "warc",  # which is refused with what to do
}


@dataclass(frozen=True, slots=True)
class InputOptions:
    """Options for reading inputs.

    Args:
        format: one of `FORMATS`.
        id_field: the field with the document's id, `meta.url` for a field within `meta`; None: `id`, and a record
            without it gets its input's name and its line as id.
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
            raise ValueError("the name of a JSON field is empty; name one, or leave the option out")

    def for_profile(self, profile: Profile) -> InputOptions:
        """Return the options for a profile: with its fields, or reading features."""
        return replace(self, fields=tuple(profile.field_weights), has_features=profile.tokens == "features")

    @property
    def flags(self) -> list[str]:
        """The flags of a command that reads inputs in this way, without defaults."""
        usual, flags = InputOptions(), list[str]()
        for name in ("format", "id_field", "text_field", "extract", "fingerprint_field", "fingerprint_format"):
            if (value := getattr(self, name)) != getattr(usual, name):
                flags += [f"--{name.replace('_', '-')}", str(value)]
        return flags

    @property
    def formats(self) -> Formats:
        """The possible formats of fingerprints, before any were read."""
        return formats_named(self.fingerprint_format)

    @property
    def named_id_field(self) -> str:
        """The field with the id, for records that have one."""
        return self.id_field or "id"

    @property
    def contents(self) -> tuple[str, ...]:
        """The fields with the text or texts of a document."""
        return self.fields or (self.text_field,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of a record that a document may need, the id first."""
        others = (self.json_fingerprint_field, "sketch", "key", self.first_seen_field or "first_seen")
        return tuple(dict.fromkeys((self.named_id_field, *self.contents, *others)))

    @property
    def json_fingerprint_field(self) -> str:
        """The JSON field with the fingerprint, if fingerprints are read."""
        return self.fingerprint_field or "fingerprint"

    @property
    def reads_signatures(self) -> bool:
        """Whether the fields `sketch` and `key` are read; not if another field has one of these names."""
        taken = {self.named_id_field, self.text_field, self.json_fingerprint_field, self.first_seen_field}
        return self.has_signatures and taken.isdisjoint(("sketch", "key"))


@dataclass(frozen=True, slots=True)
class Input:
    """An input as found."""

    name: str  # as it was given; of a URL without what is secret in it
    kind: InputKind  # what its records are
    has_fingerprints: bool  # whether they are read instead of texts
    is_stream: bool  # whether it is stdin or a pipe
    size_bytes: int  # to be read, packed as they are; 0 for a stream
    mark: str  # changes when the input does
    note: str = ""  # what was found out, for the user
    formats: Formats = ()  # which its fingerprints may have; of a stream, before anything is read of it
    remote: RemoteSource | None = None  # the file behind a URL
    folder: str = ""  # in which it was found, as that was given
    prefix: str = ""  # of paths in a folder that is not the only input: its name, so that no two have the same id
    skips_records: bool = False  # of a folder: whether its files of records are inputs of their own
    problem: str = ""  # why none of it can be read

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
        """The input's absolute name, the same in any working folder."""
        return self.name if self.remote or self.name == STDIN else os.path.abspath(self.name)  # noqa: PTH100 (links stay links)

    @property
    def label(self) -> str:
        """The prefix of ids for records without one: the input's name, relative to its folder if only that is read."""
        name = self.prefix + os.path.relpath(self.name, self.folder) if self.folder else self.name
        return "stdin" if name == STDIN else name

    def path_of(self, doc_id: str) -> str:
        """Return the path of a document in a folder, or of the only one."""
        if doc_id == self.name:
            return self.name
        return os.path.join(self.name, doc_id.removeprefix(self.prefix))  # noqa: PTH118 (a name as it is)

    def documents_in(self) -> Iterator[tuple[str, str]]:
        """Yield (id, path) of the documents in a folder, or of the only one; see `files_of`."""
        if self.remote or os.path.isfile(self.name):  # noqa: PTH113 (a name as it is)
            return iter([(self.name, self.name)])
        return (one for one in files_of(self.name, self.prefix) if not (self.skips_records and is_records(one[1])))

    def reads(self, path: Path) -> bool:
        """Whether a file at `path`, existing or future, would be read as this input or as part of it."""
        if self.remote:
            return False
        if self.kind == "files":
            return path.resolve().is_relative_to(Path(self.name).resolve())
        with suppress(OSError):  # one of them is not there
            return os.path.samefile(0 if self.name == STDIN else self.name, path)  # noqa: PTH121 (a descriptor)
        return False


def packing_of(name: str) -> str:
    """Return `.gz`, `.zst`, `.bz2`, `.xz` or an empty string."""
    return next((packing for packing in UNPACKERS if name.lower().endswith(packing)), "")


def usual_workers(inputs: Sequence[Input]) -> int:
    """Return one worker per core; for little work only this process, because others take seconds to start."""
    is_little = sum(one.size_bytes for one in inputs) < LITTLE_BYTES
    return 1 if is_little and not any(one.is_stream for one in inputs) else os.cpu_count() or 1


def suffix_of(name: str) -> str:
    """Return the suffix of a name from its last dot on, in lower case, without a compression suffix."""
    return Path(name.lower().removesuffix(packing_of(name))).suffix


def kind_by_name(name: str) -> InputKind | None:
    """Return what a file of this name holds, or None for a text or a page."""
    return _BY_SUFFIX.get(suffix_of(name))


def is_page_name(name: str) -> bool:
    """Whether a file of this name is an HTML page."""
    return suffix_of(name) in _PAGE_SUFFIXES


def is_records(path: str) -> bool:
    """Whether a file in a folder holds records instead of a text."""
    return kind_by_name(path) is not None and os.path.isfile(path)  # noqa: PTH113 (a name as it is)


def files_of(folder: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path within the folder, with `/`; path) of every file, sorted by name.

    Hidden files are left out, and so are those with which Spark and its like mark a finished folder. What is within the
    folder is yielded after `prefix`.
    """
    with os.scandir(folder) as found:
        entries = sorted((one for one in found if not _LEFT_OUT.match(one.name)), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):  # a linked folder may contain itself
            yield from files_of(entry.path, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.path
