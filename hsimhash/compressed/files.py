"""The folder of compressed tables; `schema/tables.md` has the contract.

Source: Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling", WWW 2007, sections 3.2 and 3.3.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hsimhash.errors import CorruptionError, FormatVersionError, IndexNotFoundError, Remedy
from hsimhash.files import write_json
from hsimhash.layout import Layout

MANIFEST, DOCUMENTS = "tables.json", "documents.parquet"
PERMUTED = "permuted"
TABLES_VERSION = 1  # on disk: never reuse


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of the tables: how many documents, and how many distinct fingerprints.

    `parts`: of tables whose drawers are folders, what each file but the first begins with at the least, as 16
    hexadecimal digits, drawer by drawer; no segment lies in two files.
    """

    layout: str
    profile: str
    documents: int
    fingerprints: int
    parts: list[list[str]] | None = None
    version: int = TABLES_VERSION

    def save(self, folder: Path) -> None:
        """Write the manifest, which makes the tables complete."""
        write_json(folder / MANIFEST, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest; raise `IndexNotFoundError`, `FormatVersionError` or `CorruptionError`."""
        try:
            data = (folder / MANIFEST).read_bytes()
        except FileNotFoundError:
            data = None
        return cls.parse(data, str(folder))

    @classmethod
    def parse(cls, data: bytes | None, place: str) -> Manifest:
        """Parse the file's bytes, None if it is missing; see `load`."""
        if data is None:
            raise IndexNotFoundError(
                f"no tables in {place}: there is no {MANIFEST}; "
                + Remedy("write them with hsimhash.compressed.write_tables", "write them with 'hsimhash tables write'")
            )
        try:
            found = json.loads(data)
            if found["version"] != TABLES_VERSION:
                raise FormatVersionError(
                    f"the tables in {place} have format version {found['version']}, this release reads "
                    f"{TABLES_VERSION}; use the release that wrote them"
                )
            manifest = cls(**found)
            Layout.parse(manifest.layout)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptionError(f"{place}/{MANIFEST} cannot be read ({error}); write the tables again") from error
        return manifest


def drawer_name(number: int) -> str:
    """Return the name of a drawer's table."""
    return f"drawer-{number:03d}.parquet"


def drawer_file(folder: Path, number: int) -> Path:
    """Return the file of a drawer."""
    return folder / drawer_name(number)
