"""File locks between processes, and between threads of one process; released when their holder ends.

A lock is just an open file that is locked with flock: closing the file unlocks it. A `with` block on the file holds
the lock. Leaving a `with` block is implemented in C, so an exception raised by a signal handler cannot interrupt it.
Before the `with` block begins, the file is closed when the last reference to it goes away. No counter or flag in memory
can be left behind.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path

from hsimhash.errors import WAIT_LONGER, StopAskedError, StoreBusyError

WRITER_LOCK = "writer.lock"
LOCK_POLL_S = 0.001  # pause between attempts; short, because a process that keeps writing leaves only short gaps
_LEFT_S = 5.0  # time for the children of a killed process to close the files inherited from it


class HeldLock(FileIO):
    """A file that is locked until it is closed or no longer referenced. A context manager."""

    is_locked = False
    __del__ = FileIO.close  # without a ResourceWarning, because an interrupted call relies on this

    def is_in_place(self) -> bool:
        """Whether the locked file is still the one at its path. If it was replaced, others can lock the new file."""
        try:
            return os.path.samestat(os.fstat(self.fileno()), os.stat(self.name))  # noqa: PTH116
        except FileNotFoundError:
            return False

    def sign(self) -> None:
        """Write this process's pid into the file."""
        with suppress(OSError):  # if the disk is full, others cannot see which process holds the lock
            os.ftruncate(self.fileno(), 0)
            os.pwrite(self.fileno(), str(os.getpid()).encode(), 0)


# The file last opened with each descriptor, and its place, so that a forked child can close its parent's files.
_files: dict[int, tuple[weakref.ref[HeldLock], str]] = {}
_opening = threading.Lock()  # so that no fork happens between opening a file and recording it
_held: dict[tuple[str, int], weakref.ref[HeldLock]] = {}  # by path and thread, to re-enter a lock


def take_lock(path: Path) -> HeldLock | None:
    """Lock a file for this thread alone and write the pid into it; create it if needed. Return None if it is taken."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    return _take(lambda: HeldLock(path, "r+", opener=lambda name, _: os.open(name, flags, 0o666)), fcntl.LOCK_EX)


def lock_data(path: Path, *, is_shared: bool) -> HeldLock | None:
    """Lock an existing file to read it, shared or exclusive; return None if another lock prevents it."""
    return _take(lambda: HeldLock(path), fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)


def _opened(make: Callable[[], HeldLock]) -> HeldLock:
    with _opening:
        lock = make()
        _files[lock.fileno()] = weakref.ref(lock), _place_of(lock.fileno())
        return lock


def _take(make: Callable[[], HeldLock], kind: int) -> HeldLock | None:
    lock = _opened(make)
    try:
        while not lock.is_locked:
            fcntl.flock(lock.fileno(), kind | fcntl.LOCK_NB)
            if lock.is_in_place():
                lock.is_locked = True
            else:
                lock.close()
                lock = _opened(make)
        if lock.writable():
            lock.sign()
            _held[str(lock.name), threading.get_ident()] = weakref.ref(lock)
    except BlockingIOError:
        lock.close()
        return None
    except BaseException:
        lock.close()
        raise
    return lock


def lock_or_refuse(path: Path, work: str, remedy: str) -> HeldLock:
    """Lock a file as `take_lock` does. If another process holds it, raise `StoreBusyError` with its pid and the remedy.

    A child that a killed process was about to start may hold the lock for a moment. So if the holder has exited, wait
    for the lock for at most _LEFT_S seconds.
    """
    deadline = time.monotonic() + _LEFT_S
    while (lock := take_lock(path)) is None:
        holder = holder_of(path)
        if not _is_over(holder) or time.monotonic() >= deadline:
            raise StoreBusyError(f"process {holder} {work}; wait for it to end, or " + remedy)
        time.sleep(LOCK_POLL_S)
    return lock


def _is_over(pid: str) -> bool:
    """Whether Linux reports that the process with that pid does not exist or has exited."""
    try:
        os.kill(int(pid), 0)
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z"
    except ProcessLookupError:
        return True
    except (ValueError, OSError):  # unknown, or owned by another user
        return False


def wait_for_lock(path: Path, timeout_s: float, stop: Callable[[], bool] | None = None) -> HeldLock:
    """Lock a file as `take_lock` does, as soon as it is free.

    Raises:
        StoreBusyError: Another process held it for `timeout_s` seconds; the message names it.
        StopAskedError: `stop` returned true.
    """
    deadline = time.monotonic() + timeout_s
    while (lock := take_lock(path)) is None:
        if stop is not None and stop():
            raise StopAskedError(f"stopped while waiting for {path}")
        if time.monotonic() >= deadline:
            raise StoreBusyError(
                f"process {holder_of(path)} is writing ({path}), and did not finish within {timeout_s:g} s; "
                f"wait for it to end, or " + WAIT_LONGER
            )
        time.sleep(LOCK_POLL_S)
    return lock


def held_here(path: Path) -> HeldLock | None:
    """Return this thread's lock on a file, or None."""
    known = _held.get((str(path), threading.get_ident()))
    lock = known() if known is not None else None
    return lock if lock is not None and not lock.closed else None


def holder_of(path: Path) -> str:
    """Return the pid of the process that has locked a file exclusively, for messages."""
    try:
        return path.read_text(encoding="ascii", errors="replace") or "unknown"
    except OSError:
        return "unknown"


def writer_of(lock: Path) -> str | None:
    """Return the pid of the process that holds a writer's lock, or None."""
    try:
        held = lock_data(lock, is_shared=True)
    except FileNotFoundError:
        return None
    if held is None:
        return holder_of(lock)
    held.close()
    return None


def users_of(path: Path) -> list[int]:
    """Return the pids of the processes that have locked a file, as far as Linux reports them."""
    inode = str(path.stat().st_ino)
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    # 1: FLOCK  ADVISORY  READ 4711 08:01:1234567 0 EOF
    words = [line.split() for line in lines]
    return sorted({int(one[4]) for one in words if one[1] == "FLOCK" and one[5].rpartition(":")[2] == inode})


def _after_fork_in_child() -> None:
    """Close the files that the parent has locked: a lock lasts until every process has closed its file."""
    for fd, (ref, place) in _files.items():
        lock = ref()
        if lock is not None and not lock.closed:
            lock.close()
        elif place and _place_of(fd) == place:  # the parent was about to close it
            os.close(fd)
    _files.clear()
    _held.clear()
    _opening.release()


def _place_of(fd: int) -> str:
    """Return the inode and path of an open file if the system reports them (Linux), otherwise an empty string.

    The path is included because a descriptor and an inode may since have been reused for another file.
    """
    try:
        return f"{os.fstat(fd).st_ino} {os.readlink(f'/proc/self/fd/{fd}')}"  # noqa: PTH115 (takes half the time)
    except OSError:
        return ""


# `acquire` and `release` are implemented in C, so that no signal can leave the lock held.
os.register_at_fork(before=_opening.acquire, after_in_parent=_opening.release, after_in_child=_after_fork_in_child)
