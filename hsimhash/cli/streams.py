"""Standard streams that the caller closed: files opened later must not get their numbers."""

from __future__ import annotations

import os
import sys

import click

_closed: set[str] = set()


def check_stdin() -> None:
    """Refuse to read stdin where the caller had closed it."""
    if "stdin" in _closed:
        raise click.UsageError("- is stdin, and stdin is closed; name a file")


def open_closed_streams() -> None:
    """Open the null device on each closed one of 0, 1, 2, and give `sys` an object for it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            _closed.add(name)
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number: this one
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            mode = "w" if number else "r"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115
