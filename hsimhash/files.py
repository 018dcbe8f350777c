"""Write files and folders durably and atomically; errors name the file and the remedy."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from hsimhash.errors import LIMITS, StoreUnavailableError


def make_folder(path: Path) -> list[Path]:
    """Create a folder and its missing parents durably; return the created folders, innermost first."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in made:
        sync_folder(folder.parent)
    return made


def sync_file(path: Path) -> None:
    """Make a file's content durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Make a folder's entries durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def copy_owner(of: Path, to: Path) -> bool:
    """Copy the owner and mode of one file to another, as far as permissions allow; return whether both were copied."""
    wanted, found = of.stat(), to.stat()
    with suppress(PermissionError):
        if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
            os.chown(to, wanted.st_uid, wanted.st_gid)
        if wanted.st_mode != found.st_mode:
            to.chmod(wanted.st_mode & 0o7777)
        return True
    return False


def put_in_place(part: Path, path: Path) -> None:
    """Rename a durable file over `path` in one step, and keep the old file's owner and mode. Durable on return."""
    if path.exists():
        copy_owner(path, part)
    part.replace(path)
    sync_folder(path.parent)


@contextmanager
def replace_file(
    path: Path, part: Path | None = None, put: Callable[[Path, Path], None] = put_in_place
) -> Iterator[BinaryIO]:
    """Yield a stream to a new file, `part`, which replaces `path` if the block ends without an error."""
    part = part or path.with_name(f"{path.name}.new")
    with part.open("wb") as stream:
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    put(part, path)


def write_json(path: Path, data: Mapping[str, object]) -> None:
    """Replace a file with JSON in one step. Durable on return."""
    with replace_file(path) as file:
        file.write(json.dumps(data, ensure_ascii=False, indent=1).encode("utf-8", "backslashreplace"))


@contextmanager
def naming(path: str | Path, remedy: str = "") -> Iterator[None]:
    """Add a remedy and the file's name to errors from an open file. Disk-full errors do not contain the name."""
    try:
        yield
    except OSError as error:
        error.strerror = f"{error.strerror or error}; " + remedy if remedy else error.strerror or str(error)
        error.filename = str(path) if error.filename is None else error.filename
        raise


@contextmanager
def file_errors(
    path: Path,
    kind: type[Exception] = StoreUnavailableError,
    advice: str = ", and run the same command again; acknowledged writes are kept",
) -> Iterator[None]:
    """Reraise errors about the file or folder `path` as `kind`; `advice` is appended to the remedy for the error."""
    try:
        yield
    except OSError as error:
        raise kind(
            f"cannot use {error.filename or path}: "
            + (error.strerror or str(error))
            + f"; {LIMITS.get(error.errno or 0, 'fix this problem')}"
            + advice
        ) from error


class AppendLog:
    """A file to which lines are appended after its first `size` bytes. The first line creates the file."""

    def __init__(
        self, path: Path, size: int = 0, errors: Callable[[Path], AbstractContextManager[None]] = file_errors
    ) -> None:
        self.path = path
        self.size = size
        self._errors = errors
        self._file: FileIO | None = None
        self._is_synced = True
        if path.exists():
            self._open(size)

    def _open(self, size: int) -> FileIO:
        with self._errors(self.path):
            is_new = not self.path.exists()
            self._file = self.path.open("x+b" if is_new else "r+b", buffering=0)
            self._file.truncate(size)
            self._file.seek(size)
            if is_new:
                sync_folder(self.path.parent)
            return self._file

    def append(self, lines: Iterable[str]) -> None:
        """Add lines; durable after `sync`."""
        # An input's name may contain bytes that are not UTF-8; they become valid JSON escapes.
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        if not data:
            return
        file = self._file or self._open(self.size)
        self._is_synced = False
        with self._errors(self.path):
            while data:
                written = file.write(data)
                self.size += written
                data = data[written:]

    def sync(self) -> None:
        """Make all added lines durable."""
        if self._file is not None and not self._is_synced:
            with self._errors(self.path):
                os.fsync(self._file.fileno())
            self._is_synced = True

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
