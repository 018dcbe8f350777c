"""What guards a job folder: its lock, and the sizes of its lists."""

from __future__ import annotations

from pathlib import Path

from hsimhash.errors import CorruptionError, StoreBusyError
from hsimhash.locks import HeldLock, holder_of, take_lock


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
