"""The folder of compressed tables; `schema/tables.md` has the contract.

Source: Manku, Jain, Das Sarma, "Detecting Near-Duplicates for Web Crawling", WWW 2007, sections 3.2 and 3.3.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from hsimhash.errors import CorruptionError, FormatVersionError, IndexNotFoundError, Remedy
from hsimhash.files import write_json
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.wordlists import keep_list, kept_list
from hsimhash.layout import Layout

MANIFEST, DOCUMENTS, PROFILE = "tables.json", "documents.parquet", "profile.json"
PERMUTED = "permuted"
# On disk: never reuse. The second is that of tables with files for the profile, because its name does not suffice.
TABLES_VERSION, KEPT_PROFILE_VERSION = 1, 2


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
        return cls.parse(file_content(folder, MANIFEST), str(folder))

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
            if found["version"] not in (TABLES_VERSION, KEPT_PROFILE_VERSION):
                raise FormatVersionError(
                    f"the tables in {place} have format version {found['version']}, this release reads "
                    f"{TABLES_VERSION} and {KEPT_PROFILE_VERSION}; use the release that wrote them"
                )
            manifest = cls(**found)
            Layout.parse(manifest.layout)
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptionError(f"{place}/{MANIFEST} cannot be read ({error}); write the tables again") from error
        return manifest


def keep_profile(profile: Profile, write: Callable[[str, bytes], object]) -> int:
    """Write the profile and its lists as files unless its name suffices; return the version of the tables."""
    if profile.is_known_by_name:
        return TABLES_VERSION
    for sha256, kind in profile.own_lists.items():
        write(_list_name(sha256), kept_list(kind, sha256))
    write(PROFILE, json.dumps(profile.to_json(), ensure_ascii=False, indent=1).encode())
    return KEPT_PROFILE_VERSION


def kept_profile(manifest: Manifest, place: str, read: Callable[[str], bytes | None]) -> Profile:
    """Return the profile of tables, and load its lists into this process.

    Args:
        manifest: of the tables.
        place: where they are, for messages.
        read: returns the bytes of one of their files, or None if it is missing.

    Raises:
        CorruptionError: the profile or one of its lists is damaged.
    """
    if manifest.version == TABLES_VERSION:
        return Profile.named(manifest.profile)
    name = PROFILE
    try:
        profile = Profile.from_json(json.loads(_there(read(name))))
        for sha256, kind in profile.own_lists.items():
            name = _list_name(sha256)
            if keep_list(_there(read(name))) != sha256:
                raise ValueError(f"it is not the {kind} of profile {profile.name}")
    except (OSError, ValueError) as error:
        raise CorruptionError(f"{place}/{name} cannot be read ({error}); write the tables again") from error
    return profile


def _there(content: bytes | None) -> bytes:
    if content is None:
        raise ValueError("it is missing")
    return content


def _list_name(sha256: str) -> str:
    return f"list-{sha256}"


def file_content(folder: Path, name: str) -> bytes | None:
    """Return the bytes of a file of tables in a local folder, or None if it is missing."""
    with suppress(FileNotFoundError):
        return (folder / name).read_bytes()
    return None


def drawer_name(number: int) -> str:
    """Return the name of a drawer's table."""
    return f"drawer-{number:03d}.parquet"


def drawer_file(folder: Path, number: int) -> Path:
    """Return the file of a drawer."""
    return folder / drawer_name(number)
