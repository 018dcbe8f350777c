"""Files and folders that last: made durable, and errors that name what to do."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path


def make_folder(path: Path) -> list[Path]:
    """Make a folder and those that it is in, durably; return those that were not there, the innermost first."""
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
    """Make the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def copy_owner(of: Path, to: Path) -> None:
    """Give a file the owner and the mode of another, as far as this user may."""
    wanted, found = of.stat(), to.stat()
    with suppress(PermissionError):
        if (wanted.st_uid, wanted.st_gid) != (found.st_uid, found.st_gid):
            os.chown(to, wanted.st_uid, wanted.st_gid)
        if wanted.st_mode != found.st_mode:
            to.chmod(wanted.st_mode & 0o777)


def remedy(error: OSError) -> str:
    """Return what the user can do about a folder in which files could not be written."""
    return {errno.ENOSPC: "free the disk", errno.EROFS: "mount it writable"}.get(error.errno or 0, "mend the folder")
