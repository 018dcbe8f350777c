"""Who may use an environment, and who may write an index: locks among threads and among processes.

LMDB's own writer lock has neither time-out nor holder, hence `writer.lock`; and `writer.queue`, which the next writer
holds, so that a process that writes without pause starves nobody.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hsimhash.errors import StoreBusyError

WRITER_LOCK = "writer.lock"
WRITER_QUEUE = "writer.queue"
LOCK_POLL_S = 0.0005, 0.02  # first and longest pause between two tries


class Gate:
    """Lets many calls use an environment at once, and one close it when none does.

    `enter` and `leave` take no lock unless the gate is shut: a call marks itself before it looks at the gate, and
    `shut` shuts the gate before it looks at the marks, so that one of them sees the other.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._users: set[int] = set()  # threads: none makes a call within a call, so a mark left behind heals
        self._is_shut = False

    def enter(self) -> None:
        """Begin a call; waits while the environment is being closed."""
        thread = threading.get_ident()
        self._users.add(thread)
        if self._is_shut:
            self._wait(thread)

    def _wait(self, thread: int) -> None:
        with self._changed:
            self._users.discard(thread)
            self._changed.notify_all()
            while self._is_shut:
                self._changed.wait()
            self._users.add(thread)

    def leave(self) -> None:
        """End a call."""
        self._users.discard(threading.get_ident())
        if self._is_shut:
            with self._changed:
                self._changed.notify_all()

    def shut(self) -> None:
        """Wait until nobody uses the environment, and keep everybody out."""
        with self._changed:
            while self._is_shut:
                self._changed.wait()
            self._is_shut = True
            self._users.discard(threading.get_ident())  # Ctrl-C may have ended its last call half-way
            while self._users:
                self._changed.wait()

    def reopen(self) -> None:
        """Let calls in again."""
        with self._changed:
            self._is_shut = False
            self._changed.notify_all()


class LockFile:
    """A file that one process at a time has locked (flock); it holds that process's pid."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def take(self) -> bool:
        """Lock the file if nobody else has; return whether it is locked now."""
        while True:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                is_locked = self._try_lock()
                if is_locked and self.is_in_place():
                    self._sign()
                    return True
            except BaseException:
                self.release()
                raise
            self.release()
            if not is_locked:
                return False

    def _try_lock(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _sign(self) -> None:
        with suppress(OSError):  # on a full disk the others are not told who has it
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def is_in_place(self) -> bool:
        """Whether the file that is locked is the one at `path`: another that took its place can be locked too."""
        try:
            return os.path.samestat(os.fstat(self._fd), self.path.stat())
        except FileNotFoundError:
            return False

    def holder(self) -> str:
        """Return the pid of the process that has it, for a message."""
        try:
            return self.path.read_text(encoding="ascii", errors="replace") or "unknown"
        except OSError:
            return "unknown"

    def release(self) -> None:
        """Unlock the file; harmless when repeated."""
        if self._fd == -1:
            return
        # Closing alone would not do: a child forked meanwhile has the descriptor too. Forgotten before it is closed, so
        # that such a child closes no other file's descriptor.
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        fd, self._fd = self._fd, -1
        os.close(fd)

    def forget(self) -> None:
        """In a forked child: close the file and leave the parent its lock."""
        if self._fd != -1:
            os.close(self._fd)
        self._fd = -1


def writer_of(lock: Path) -> str | None:
    """Return the pid of the process that holds a writer's lock, None where nobody does."""
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return LockFile(lock).holder()
    finally:
        os.close(fd)
    return None


class WriterLock:
    """The right to write an index: one thread of one process at a time; re-entrant within the thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = LockFile(path)
        self._queue = LockFile(path.with_name(WRITER_QUEUE))
        self._thread = threading.RLock()
        self._depth = 0

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Hold the lock for the block.

        Raises:
            StoreBusyError: another writer kept it for `timeout_s` seconds; the message names its process.
        """
        deadline = time.monotonic() + timeout_s
        if not self._thread.acquire(timeout=timeout_s):
            raise StoreBusyError(f"{self.path}: another thread of this process has written for over {timeout_s:g} s")
        try:
            if self._depth == 0:
                self._acquire(deadline, timeout_s)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._file.release()
        finally:
            self._thread.release()

    def verify(self) -> None:
        """Raise `StoreBusyError` if the lock's file was deleted or replaced while the lock is held."""
        if not self._file.is_in_place():
            raise StoreBusyError(
                f"{self.path} was deleted while this process was writing, so another may write too; what was not yet "
                f"acknowledged is not stored: try again, and leave that file alone"
            )

    def forget(self) -> None:
        """In a forked child: let go of the parent's lock without releasing it."""
        self._file.forget()
        self._queue.forget()
        self._depth, self._thread = 0, threading.RLock()

    def _acquire(self, deadline: float, timeout_s: float) -> None:
        self._wait_for(self._queue, deadline, timeout_s)
        try:
            self._wait_for(self._file, deadline, timeout_s)
        finally:
            self._queue.release()

    def _wait_for(self, file: LockFile, deadline: float, timeout_s: float) -> None:
        pause = LOCK_POLL_S[0]
        while not file.take():
            if time.monotonic() >= deadline:
                raise StoreBusyError(
                    f"process {self._file.holder()} is writing ({file.path}); waited {timeout_s:g} s; wait for it to "
                    f"end, or allow more with --lock-timeout"
                )
            time.sleep(pause)
            pause = min(2 * pause, LOCK_POLL_S[1])
