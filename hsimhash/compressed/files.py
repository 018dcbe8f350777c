"""The folder of compressed tables; `schema/tables.md` has the contract.

Source: Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling", WWW 2007, sections 3.2 and 3.3.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hsimhash.errors import CorruptionError, FormatVersionError, IndexNotFoundError
from hsimhash.files import write_json
from hsimhash.layout import Layout

MANIFEST, DOCUMENTS = "tables.json", "documents.parquet"
PERMUTED = "permuted"
VERSION = 1  # on disk: never reuse


@dataclass(frozen=True, slots=True)
class Manifest:
    """What tables hold: `fingerprints` distinct ones, of so many documents."""

    layout: str
    profile: str
    documents: int
    fingerprints: int
    version: int = VERSION

    def save(self, folder: Path) -> None:
        """Write it: the tables are whole."""
        write_json(folder / MANIFEST, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read it; `IndexNotFoundError`, `FormatVersionError` or `CorruptionError` where that fails."""
        try:
            found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if found["version"] != VERSION:
                raise FormatVersionError(
                    f"the tables in {folder} have format version {found['version']}, this release reads {VERSION}; use "
                    f"the release that wrote them"
                )
            manifest = cls(**found)
            Layout.parse(manifest.layout)
        except FileNotFoundError as error:
            raise IndexNotFoundError(
                f"no tables in {folder}: there is no {MANIFEST}; 'hsimhash tables write' writes them"
            ) from error
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptionError(f"{folder / MANIFEST} cannot be read ({error}); write the tables again") from error
        return manifest


def arrow() -> tuple[Any, Any]:
    """Return the modules pyarrow and pyarrow.parquet; `ValueError` where they are missing."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ValueError("compressed tables need pyarrow: pip install 'hsimhash[parquet]'") from error
    return pa, pq


def drawer_file(folder: Path, number: int) -> Path:
    """Return the file of a drawer."""
    return folder / f"drawer-{number:03d}.parquet"
