"""Errors of LMDB and of the file system, told as hsimhash's own."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from hsimhash.errors import CorruptionError, HsimhashError, StoreUnavailableError

FULL_BYTES = 1 << 20  # free on a full disk, at most: ext4 keeps up to some dozen blocks for itself
_CORRUPT = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,
    lmdb.VersionMismatchError,
    lmdb.IncompatibleError,
    lmdb.BadValsizeError,
    lmdb.BadDbiError,
    lmdb.BadTxnError,
    lmdb.CursorFullError,
    lmdb.PageFullError,
    lmdb.PanicError,
)


class DamagedRowError(Exception):
    """Stored bytes are not what they must be; leaves the store as a `CorruptionError` that names the index."""


def damaged(path: Path, found: object) -> CorruptionError:
    """Return what to raise where the index `path` is not as it was written."""
    return CorruptionError(f"index {path} is damaged: {found}; restore a backup, or make it anew and ingest again")


def as_our_error(path: Path, error: lmdb.Error | OSError | DamagedRowError) -> HsimhashError:
    """Return what to raise for an error of LMDB or of the file system at the index `path`."""
    if isinstance(error, (*_CORRUPT, DamagedRowError)):
        return damaged(path, error)
    if is_full(path, error):
        return no_space(path)
    if isinstance(error, lmdb.Error) and os.strerror(errno.EIO) in str(error):
        return damaged(
            path,
            f"{error}, though the disk has room: a page number leads too far, or past 'ulimit -f', or a disk fails",
        )
    if getattr(error, "errno", None) == errno.EROFS:
        return read_only(path)
    if isinstance(error, lmdb.MapFullError):
        return StoreUnavailableError(
            f"index {path} is full: an embedded index holds 1 TiB, about 3,000 million documents; nothing of this "
            f"write was stored: begin another, or use HBase"
        )
    if isinstance(error, lmdb.MemoryError):
        return StoreUnavailableError(
            f"index {path}: cannot reserve 1 TiB of address space, which takes no memory; allow it with 'ulimit -v "
            f"unlimited'"
        )
    if os.strerror(errno.EAGAIN) in str(error):
        return StoreUnavailableError(
            f"index {path}: a process with the same number ({os.getpid()}), in another container, has it open; let the "
            f"containers share their process numbers (docker run --pid=host, or --pid=container:…)"
        )
    if isinstance(error, OSError):
        return StoreUnavailableError(f"index {path}: {error.strerror or error} ({error.filename or path})")
    return StoreUnavailableError(f"index {path}: {error}")


def no_space(path: Path) -> StoreUnavailableError:
    """Return what to raise where the disk of the index `path` is full."""
    return StoreUnavailableError(
        f"no space left on the disk of index {path}; nothing of this write was stored: free some space and go on"
    )


def read_only(path: Path) -> StoreUnavailableError:
    """Return what to raise where the disk of the index `path` is mounted read-only."""
    return StoreUnavailableError(f"index {path} cannot be written: its file system is read-only; mount it writable")


def is_full(path: Path, error: BaseException) -> bool:
    """Whether an error tells that the disk is full: LMDB says input/output error where a write was cut short."""
    if isinstance(error, lmdb.DiskError) or getattr(error, "errno", None) == errno.ENOSPC:
        return True
    if not isinstance(error, (lmdb.Error, OSError)) or os.strerror(errno.EIO) not in str(error):
        return False
    try:
        return shutil.disk_usage(path).free < FULL_BYTES
    except OSError:
        return False


@contextmanager
def lmdb_errors(path: Path) -> Iterator[None]:
    """Raise errors of LMDB and of the file system as hsimhash's own, naming the index at `path`."""
    try:
        yield
    except (lmdb.Error, OSError, DamagedRowError) as error:
        raise as_our_error(path, error) from error
