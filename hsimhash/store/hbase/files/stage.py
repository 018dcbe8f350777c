"""The stage that holds a bulk load's files: a local folder, or one that fsspec can open, such as `hdfs://…`."""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from hsimhash.errors import OTHER_STAGE, HsimhashError
from hsimhash.extras import install_command
from hsimhash.files import file_errors, make_folder, replace_file, sync_folder
from hsimhash.store.urls import holds_password, masked

MANIFEST = "manifest.json"
_NO_STAGES = ("memory", "http", "https")


class Stage(ABC):
    """A folder with a manifest and files, which are named relative to it; a file that exists is complete.

    Attributes:
        url: URL of the folder, which region servers must be able to open.
    """

    url: str

    @abstractmethod
    def writing(self, name: str, attempt: str = "") -> AbstractContextManager[BinaryIO]:
        """Return a stream for a file, which appears when the block ends without an error.

        Several attempts may write the same bytes at the same time if each has a different `attempt`.
        """

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it does not exist."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the size of a file in bytes, or None if it does not exist."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the folder is empty or missing."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a file, or a folder with its contents, if it exists."""

    @abstractmethod
    def free_bytes(self) -> int | None:
        """Return the free space in bytes, or None if unknown."""

    @abstractmethod
    def is_on_disk_of(self, folder: Path) -> bool:
        """Whether it is on the same disk as a local folder."""

    def manifest(self) -> dict[str, Any] | None:
        """Return the last manifest written, or None; raise `HsimhashError` if it is not an hsimhash manifest."""
        # The second name remains if the process was killed before the rename.
        data = self.read(MANIFEST) or self.read(f"_{MANIFEST}.new")
        try:
            found = None if data is None else json.loads(data)
        except ValueError as error:
            raise HsimhashError(f"{self.url}/{MANIFEST} cannot be read ({error}); delete the stage") from error
        if found is not None and not (isinstance(found, dict) and (not found or "token" in found)):
            raise HsimhashError(f"{self.url}/{MANIFEST} is not an hsimhash manifest; " + OTHER_STAGE)
        return found

    def claim(self) -> None:
        """Ensure that a manifest exists; raise `HsimhashError` if it cannot be written, or if other files exist.

        This detects a folder that is not writable before any work is done.
        """
        if self.manifest() is None:
            if not self.is_empty():
                raise HsimhashError(f"stage {self.url} has files that hsimhash did not write; " + OTHER_STAGE)
            self.write_manifest({})

    def write_manifest(self, manifest: Mapping[str, object]) -> None:
        """Replace the manifest."""
        with self.writing(MANIFEST) as stream:
            stream.write(json.dumps(manifest, ensure_ascii=False, indent=1).encode())


def open_stage(place: str) -> Stage:
    """Return the stage at a path or URL, without creating it.

    Raises:
        HsimhashError: The stage cannot be used: see the message, and `reached` for URLs.
    """
    scheme, is_url, path = place.partition("://")
    if not place or (is_url and scheme in _NO_STAGES) or (scheme == "file" and is_url and not path.startswith("/")):
        raise HsimhashError(
            f"{masked(place)!r} cannot be a stage: region servers must be able to open it; pass a path, file:///path, "
            f"or a URL such as hdfs://name/path"
        )
    if not is_url:
        return _LocalStage(Path(place))
    return _RemoteStage(place.rstrip("/"), *reached(place, "stage"))


def reached(url: str, what: str) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path in it; `what` describes the URL in messages.

    Raises:
        HsimhashError: fsspec is missing or does not support the URL, or the URL has a password.
    """
    if holds_password(url):
        raise HsimhashError(
            f"{what} {masked(url)} contains a password, which would be printed and stored; move it to the "
            f"configuration of fsspec, HBase or Spark"
        )
    try:
        import fsspec  # imported here because only remote stages and snapshots need it
    except ImportError as error:
        raise HsimhashError(f"a {what} at {masked(url)} needs fsspec; run {install_command('stage')}") from error
    try:
        files, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError, OSError) as error:
        raise HsimhashError(f"{what} {url} cannot be reached: {error}") from error
    return files, path.rstrip("/")


class _LocalStage(Stage):
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.url = f"file://{self.folder}"

    @contextmanager
    def writing(self, name: str, attempt: str = "") -> Iterator[BinaryIO]:
        path = self.folder / name
        with file_errors(self.folder):
            make_folder(path.parent)
            # HBase ignores files with such names, so it does not matter if a killed process leaves one behind.
            with replace_file(path, path.with_name(f"_{path.name}{attempt}.new")) as stream:
                yield stream

    def read(self, name: str) -> bytes | None:
        with file_errors(self.folder), suppress(FileNotFoundError):
            return (self.folder / name).read_bytes()
        return None

    def size(self, name: str) -> int | None:
        with file_errors(self.folder), suppress(FileNotFoundError):
            return (self.folder / name).stat().st_size
        return None

    def is_empty(self) -> bool:
        with file_errors(self.folder):
            return not self.folder.exists() or not any(self.folder.iterdir())

    def delete(self, name: str) -> None:
        path = self.folder / name
        with file_errors(self.folder):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
            if self.folder.exists():
                sync_folder(self.folder)

    def free_bytes(self) -> int | None:
        return shutil.disk_usage(self._there()).free

    def is_on_disk_of(self, folder: Path) -> bool:
        return folder.stat().st_dev == self._there().stat().st_dev

    def _there(self) -> Path:
        return next(path for path in (self.folder, *self.folder.parents) if path.exists())


class _RemoteStage(Stage):
    def __init__(self, url: str, files: Any, folder: str) -> None:
        self.url, self._files, self._folder = url, files, folder

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HsimhashError(f"cannot use stage {self.url}: {error}") from error

    @contextmanager
    def writing(self, name: str, attempt: str = "") -> Iterator[BinaryIO]:
        parent, _, base = self._path(name).rpartition("/")
        part = f"{parent}/_{base}{attempt}.new"
        with self._errors():
            self._files.makedirs(parent, exist_ok=True)
            with self._files.open(part, "wb") as stream:
                yield stream
            if self._files.exists(self._path(name)):
                if attempt:  # another attempt has written it
                    self._files.rm(part)
                    return
                self._files.rm(self._path(name))
            self._files.mv(part, self._path(name))

    def read(self, name: str) -> bytes | None:
        with self._errors(), suppress(FileNotFoundError):
            return bytes(self._files.cat_file(self._path(name)))
        return None

    def size(self, name: str) -> int | None:
        with self._errors(), suppress(FileNotFoundError):
            return int(self._files.info(self._path(name))["size"])
        return None

    def is_empty(self) -> bool:
        with self._errors():
            return not self._files.exists(self._folder) or not self._files.ls(self._folder)

    def delete(self, name: str) -> None:
        with self._errors(), suppress(FileNotFoundError):
            self._files.rm(self._path(name), recursive=True)

    def free_bytes(self) -> int | None:
        return None

    def is_on_disk_of(self, folder: Path) -> bool:
        return False
