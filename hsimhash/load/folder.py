"""What a job folder is made of: lists that grow, JSON replaced in one step, a lock, and errors that name the file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from hsimhash.errors import CorruptionError, StoreBusyError, StoreUnavailableError
from hsimhash.files import remedy, sync_folder
from hsimhash.store.locks import HeldLock, holder_of, take_lock


class Listing:
    """A file of lines that is only appended to; it is made with its first line."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = path
        self.size = size
        self._file: FileIO | None = None
        self._is_synced = True
        verify_size(path, size)
        if path.exists():
            self._open(size)

    def _open(self, size: int) -> FileIO:
        is_new = not self.path.exists()
        self._file = self.path.open("x+b" if is_new else "r+b", buffering=0)
        self._file.truncate(size)
        self._file.seek(size)
        if is_new:
            sync_folder(self.path.parent)
        return self._file

    def append(self, lines: Iterable[str]) -> None:
        """Add lines; durable after `sync`."""
        # An input's name may hold bytes that are no UTF-8: they become escapes that JSON reads.
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
        if not data:
            return
        file = self._file or self._open(self.size)
        self._is_synced = False
        while data:
            written = file.write(data)
            self.size += written
            data = data[written:]

    def sync(self) -> None:
        """Make what was added durable."""
        if self._file is not None and not self._is_synced:
            os.fsync(self._file.fileno())
            self._is_synced = True

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def verify_size(path: Path, size: int) -> None:
    """Raise `CorruptionError` where a list has less than the `size` bytes that its job wrote."""
    if size and not path.exists():
        raise CorruptionError(f"{path} is missing, which its job wrote; start over with --fresh")
    if size and path.stat().st_size < size:
        raise CorruptionError(f"{path} is shorter than the {size:,} bytes that its job wrote; start over with --fresh")


class FolderLock:
    """The right to work in a folder, for one process at a time. A context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: HeldLock | None = None

    def __enter__(self) -> FolderLock:
        self._lock = take_lock(self.path)
        if self._lock is None:
            raise StoreBusyError(
                f"process {holder_of(self.path)} works on the same job ({self.path}); wait for it to end, or "
                f"choose another folder with --job"
            )
        return self

    def verify(self) -> None:
        """Raise `StoreBusyError` if the file was deleted or replaced, so that another process may hold the new one."""
        if self._lock is None or not self._lock.is_in_place():
            raise StoreBusyError(
                f"{self.path} was deleted while this process was at work, so another may work on the same job; "
                f"what was acknowledged is kept: the same command goes on"
            )

    def __exit__(self, *exc_info: object) -> None:
        if self._lock is not None:
            self._lock.close()


def write_json(path: Path, data: Mapping[str, object]) -> None:
    """Put JSON in the place of a file, in one step, durable on return."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(data, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


@contextmanager
def job_errors(folder: Path) -> Iterator[None]:
    """Raise errors of the job's files as `StoreUnavailableError`, naming the folder."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailableError(
            f"cannot use the job's files in {error.filename or folder}: {error.strerror or error}; what was "
            f"acknowledged is kept: {remedy(error)}, and the same command goes on"
        ) from error
