"""A folder with tables: the contents of `tables.json`, and errors that name the folder.

| file | contents |
|---|---|
| `tables.json` | the record of the index and the parts; written last, so a folder without it is unfinished |
| `part-….rows` | the drawers of a part; see `hsimhash/store/base_files/base_format.py` |
| `part-….docs` | the documents of the part; see `documents_format.py` |
| `list-…` | a list that the profile needs, such as a fitted rarity table, named by its SHA-256 |
| `writer.lock`, `runs/` | exist only during a write |

Each document in a folder is in exactly one part.
"""

from __future__ import annotations

import json
import re
import secrets
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hsimhash.errors import CorruptionError, FormatVersionError, IndexNotFoundError, Remedy, StoreReadOnlyError
from hsimhash.fingerprint.recipe import own_lists
from hsimhash.fingerprint.wordlists import kept_list
from hsimhash.store.base import Record
from hsimhash.store.base_files.base_format import BaseName
from hsimhash.store.tables.documents_file import DocumentsName

MANIFEST = "tables.json"
RUNS = "runs"
VERSION = 3  # on disk: never reuse; 1 and 2 were Parquet tables of earlier releases
_OWN = re.compile(r"part-[0-9a-f]+\.(rows|docs)|list-[0-9a-f]{64}")
_WRITE = Remedy("write tables with HSimIndex.write_tables(...)", "write tables with 'hsimhash export --to tables://…'")
_AGAIN = Remedy(
    "copy the folder again, or write it again with HSimIndex.write_tables(...)",
    "copy the folder again, or write it again with 'hsimhash export --to tables://…'",
)


@dataclass(frozen=True, slots=True)
class TablesPart:
    """The files of a part."""

    rows: BaseName
    documents: DocumentsName


def new_part_name() -> str:
    """Return a name that the files of a new part share."""
    return f"part-{secrets.token_hex(8)}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of `tables.json`."""

    record: Record
    parts: tuple[TablesPart, ...]

    @property
    def documents(self) -> int:
        """The number of documents in all parts."""
        return sum(part.documents.documents for part in self.parts)

    @property
    def files(self) -> set[str]:
        """The names of all files except the manifest."""
        lists = map(list_file, own_lists(self.record.profile))
        return {*lists, *(part.rows.file for part in self.parts), *(part.documents.file for part in self.parts)}

    def contents(self) -> dict[str, bytes]:
        """Return the contents of the lists and, last, of the manifest, by file name."""
        named = own_lists(self.record.profile).items()
        lists = {list_file(sha256): kept_list(kind, sha256) for sha256, kind in named}
        parts = [{"rows": asdict(part.rows), "documents": part.documents._asdict()} for part in self.parts]
        record = {name.decode(): json.loads(value) for name, value in self.record.to_parts().items()}
        fields = {"version": VERSION, "documents": self.documents, "record": record, "parts": parts}
        fields["crc32"] = _checksum(fields)
        return {**lists, MANIFEST: json.dumps(fields, ensure_ascii=False, indent=1).encode()}

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest, and load the profile's lists into this process.

        Raises:
            IndexNotFoundError: There is no manifest.
            FormatVersionError: This release does not support the format of the tables.
            CorruptionError: The manifest or a list is damaged.
        """
        try:
            fields = json.loads((folder / MANIFEST).read_bytes())
            check_version(fields["version"], folder)
            if fields.pop("crc32") != _checksum(fields):
                raise ValueError("its checksum does not match")
            parts = tuple(
                TablesPart(BaseName(**one["rows"]), DocumentsName(**one["documents"])) for one in fields["parts"]
            )
            record = Record.from_parts(
                {name.encode(): json.dumps(value).encode() for name, value in fields["record"].items()}, f"{folder}"
            )
        except (FileNotFoundError, NotADirectoryError):
            raise _not_found(folder) from None
        except (ValueError, TypeError, LookupError) as error:
            raise damaged(folder, f"{MANIFEST} cannot be read ({error})") from error
        return cls(record.learn_lists(lambda name: _piece(folder, name), f"{folder}"), parts)


def _checksum(fields: Mapping[str, object]) -> int:
    """Return the CRC-32 of the fields as JSON with sorted names and without spaces."""
    return zlib.crc32(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def check_version(version: object, folder: Path) -> None:
    """Raise `FormatVersionError` unless this release reads tables with that version."""
    if version in (1, 2):
        raise FormatVersionError(
            f"{folder} contains Parquet tables from an earlier release; import them into an index with 'hsimhash "
            f"ingest {folder}/documents.parquet --fingerprint-field fingerprint --store lmdb://…', then write that "
            f"index as tables with 'hsimhash export --to tables://…'"
        )
    if version != VERSION:
        raise FormatVersionError(
            f"{folder} has tables of version {version!r}, but this release reads version {VERSION}; upgrade hsimhash"
        )


def list_file(sha256: str) -> str:
    """Return the file name of a list."""
    return f"list-{sha256}"


def _piece(folder: Path, name: bytes) -> bytes | None:
    """Return a whole list as its first piece; see `Record.learn_lists`."""
    _, sha256, number = name.decode().split(":")
    if int(number):
        return None
    try:
        return (folder / list_file(sha256)).read_bytes()
    except FileNotFoundError:
        return None


def own_files(folder: Path) -> list[Path]:
    """Return the parts and lists in a folder, complete or not."""
    return [path for path in folder.iterdir() if _OWN.fullmatch(path.name)] if folder.is_dir() else []


def remove_files(folder: Path, keep: Iterable[str] = ()) -> None:
    """Delete parts and lists. Processes that have mapped them can still read them."""
    kept = set(keep)
    for path in own_files(folder):
        if path.name not in kept:
            path.unlink(missing_ok=True)


def _not_found(folder: Path) -> IndexNotFoundError:
    if folder.is_file():
        return IndexNotFoundError(f"no tables in {folder}: it is a file, not the folder of tables; " + _WRITE)
    if own_files(folder) or (folder / RUNS).is_dir():
        return IndexNotFoundError(f"the tables in {folder} are unfinished: there is no {MANIFEST}; " + _AGAIN)
    return IndexNotFoundError(f"no tables in {folder}: there is no {MANIFEST}; " + _WRITE)


def damaged(folder: Path, found: object) -> CorruptionError:
    """Return the error for damaged tables."""
    return CorruptionError(f"the tables in {folder} are damaged: {found}; " + _AGAIN)


def read_only(url: str) -> StoreReadOnlyError:
    """Return the error for a write to tables."""
    return StoreReadOnlyError(
        f"{url} is read-only: tables cannot be changed; "
        + Remedy("write new tables with HSimIndex.write_tables(...)", "write new tables with 'hsimhash export --to …'")
    )
