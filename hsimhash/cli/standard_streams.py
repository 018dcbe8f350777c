"""Handle standard streams that are closed, or whose other end is gone.

If the caller closed a stream, no file that is opened later may get its descriptor. Writing to a closed stdout is an
error. If stderr is no longer read, or its disk is full, messages are lost and the work continues.
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
    """Raise `click.UsageError` if the caller closed stdin."""
    if "stdin" in _closed:
        raise click.UsageError("cannot read from -: stdin is closed; pass a file instead")


def open_closed_streams() -> None:
    """Open the null device for each of the descriptors 0, 1 and 2 that is closed, and set its stream in `sys`."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            _closed.add(name)
            # The null device gets the lowest free number, which is this one. Stdout is opened read-only so that
            # writing to it fails.
            os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


@contextmanager
def writing_stdout() -> Iterator[None]:
    """Add the name of stdout to write errors. After an error, drop what is left in its buffer."""
    try:
        with naming("standard output"):
            yield
    except OSError:
        drop_stdout()
        raise


def flush_or_drop() -> None:
    """Flush stdout. If that fails, drop its buffer, because otherwise the interpreter would exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        drop_stdout()


def drop_stdout() -> None:
    """Drop what is left in the buffer of stdout."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


class _Stderr(io.FileIO):
    """Stderr without write errors."""

    def write(self, data: ReadableBuffer, /) -> int:
        with suppress(OSError):
            super().write(data)
        return memoryview(data).nbytes


def ignore_stderr_errors() -> None:
    """Ignore write errors on stderr."""
    stderr = io.BufferedWriter(_Stderr(2, "w", closefd=False))
    sys.stderr = io.TextIOWrapper(stderr, sys.stderr.encoding, errors="backslashreplace", line_buffering=True)
