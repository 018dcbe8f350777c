"""Handle standard streams that are closed or whose other end is gone.

If the caller closed a stream, no file opened later may get its number, and writing to a closed stdout is an error. If
nobody reads stderr any more, or its disk is full, messages are lost and the work continues.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

from hsimhash.files import naming

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_closed: set[str] = set()


def check_stdin() -> None:
    """Reject stdin if the caller had closed it."""
    if "stdin" in _closed:
        raise click.UsageError("- is stdin, and stdin is closed; name a file")


def open_closed_streams() -> None:
    """Open the null device on each closed one of 0, 1, 2, and give `sys` an object for it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            _closed.add(name)
            # It takes the lowest free number: this one. What is written to a stdout for reading alone fails.
            os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


@contextmanager
def writing_stdout() -> Iterator[None]:
    """Name stdout in errors of writing to it; after an error, drop the rest of its buffer."""
    try:
        with naming("standard output"):
            yield
    except OSError:
        drop_stdout()
        raise


def flush_or_drop() -> None:
    """Flush stdout; if that fails, drop the rest, because the interpreter would exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_stdout()


def drop_stdout() -> None:
    """Drop what stdout still holds."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


class _Stderr(io.FileIO):
    """Stderr, on which nothing fails."""

    def write(self, data: ReadableBuffer, /) -> int:
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def ignore_stderr_errors() -> None:
    """Ignore write errors on stderr."""
    stderr = io.BufferedWriter(_Stderr(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(stderr, sys.stderr.encoding, errors="backslashreplace", line_buffering=True)
