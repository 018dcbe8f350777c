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


class WriterLock:
    """The right to write an index: one thread of one process at a time; re-entrant within the thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._thread = threading.RLock()
        self._depth = 0
        self._fd = -1
        self._fds: set[int] = set()  # all that are open: a forked child closes them

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
                    self._release()
        finally:
            self._thread.release()

    def verify(self) -> None:
        """Raise `StoreBusyError` if the lock's file was deleted or replaced while the lock is held."""
        try:
            named = self.path.stat()
        except FileNotFoundError:
            named = None
        held = os.fstat(self._fd)
        if named is None or (named.st_dev, named.st_ino) != (held.st_dev, held.st_ino):
            raise StoreBusyError(
                f"{self.path} was deleted while this process was writing, so another may write too; what was not yet "
                f"acknowledged is not stored: try again, and leave that file alone"
            )

    def forget(self) -> None:
        """In a forked child: let go of the parent's lock without releasing it."""
        for fd in self._fds:
            os.close(fd)
        self._fds.clear()
        self._fd, self._depth, self._thread = -1, 0, threading.RLock()

    def _acquire(self, deadline: float, timeout_s: float) -> None:
        queue = self._lock_file(self.path.with_name(WRITER_QUEUE), deadline, timeout_s)
        try:
            self._fd = self._lock_file(self.path, deadline, timeout_s)
        finally:
            self._unlock_file(queue)
        with suppress(OSError):  # on a full disk the others are not told who writes
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def _lock_file(self, path: Path, deadline: float, timeout_s: float) -> int:
        """Return the descriptor of the file at `path`, locked."""
        pause = LOCK_POLL_S[0]
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._fds.add(fd)
            if _try_lock(fd) and _is_file(fd, path):
                return fd
            self._unlock_file(fd)
            if time.monotonic() >= deadline:
                raise StoreBusyError(
                    f"process {self._holder()} is writing ({self.path}); waited {timeout_s:g} s; wait for it to end, "
                    f"or allow more with --lock-timeout"
                )
            time.sleep(pause)
            pause = min(2 * pause, LOCK_POLL_S[1])

    def _holder(self) -> str:
        try:
            return self.path.read_text() or "unknown"
        except OSError:
            return "unknown"

    def _release(self) -> None:
        self._unlock_file(self._fd)
        self._fd = -1

    def _unlock_file(self, fd: int) -> None:
        # Closing alone would not do: a child forked meanwhile has the descriptor too. Off the list before it is closed,
        # so that such a child closes no other file's descriptor.
        fcntl.flock(fd, fcntl.LOCK_UN)
        self._fds.discard(fd)
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_file(fd: int, path: Path) -> bool:
    """Whether `fd` is the file now at `path`."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
