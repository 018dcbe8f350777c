"""`hsimhash find-all` and `find-clusters`, with the options, messages and exit codes of simhash-cpp's two programs.

Existing scripts rely on those programs, so these two commands keep their exit codes. Any other failure exits with 1.
"""

from __future__ import annotations

import functools
import getopt
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from hsimhash.cli.exit_codes import message_of
from hsimhash.cli.output_files import complete
from hsimhash.cli.standard_streams import check_stdin
from hsimhash.errors import HsimhashError, in_shell, plural

if TYPE_CHECKING:
    from hsimhash.fingerprint.bits import Uint64s

MOST_BLOCKS = 64
_OPTIONS = {"i": "input", "o": "output", "b": "blocks", "d": "distance"}
_COMPLAINTS = (
    ("requires argument", "option requires an argument -- '{}'", "option '--{}' requires an argument"),
    ("not recognized", "invalid option -- '{}'", "unrecognized option '--{}'"),
    ("must not have", "", "option '--{}' doesn't allow an argument"),
)
_NUMBER = re.compile(r"\s*\+?([0-9]{1,20})")
_tell = functools.partial(click.echo, err=True)


class PeerCode(IntEnum):
    """The exit codes of simhash-cpp's programs."""

    DONE = 0
    UNKNOWN_OPTION = 1
    NO_BLOCKS = 2
    NO_DISTANCE = 3
    NO_INPUT = 4
    NO_OUTPUT = 5
    TOO_FEW_BLOCKS = 6
    READING = 7
    WRITING = 8


@dataclass(frozen=True, slots=True)
class Finder:
    """The differences between the two commands: help, messages, and the function that returns the lines."""

    purpose: str
    given: str  # example fingerprints
    blocks_must_be: str  # operator that compares blocks with the distance
    computing: str
    writing: str  # word for the results in the message about writing a file
    lines_of: str  # name of the function in `simhash_cpp_format` that returns the lines


class PeerError(Exception):
    """Ends the command with one of simhash-cpp's messages and exit codes."""

    def __init__(self, code: PeerCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class PeerCommand(click.Command):
    """A command that parses its arguments like `getopt_long`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:  # noqa: D102
        ctx.params["arguments"] = tuple(args)
        return []


@click.command("find-all", cls=PeerCommand, add_help_option=False)
@click.pass_context
def find_all_command(ctx: click.Context, arguments: tuple[str, ...]) -> int:
    """Find all pairs, as simhash-find-all does."""
    purpose = """\
Find all pairs within DISTANCE bits of each other. Write each as a line, [206, 238], with the lower number first."""
    return _run(ctx, arguments, Finder(purpose, r"255\n239\n51\n", ">=", "matches", "matches", "pair_lines"))


@click.command("find-clusters", cls=PeerCommand, add_help_option=False)
@click.pass_context
def find_clusters_command(ctx: click.Context, arguments: tuple[str, ...]) -> int:
    """Find all clusters, as simhash-find-clusters does."""
    purpose = """\
Join fingerprints within DISTANCE bits of each other into clusters, step by step. Write each cluster of two or more as a
line, [255, 239, 238, 206], in the order of the input."""
    return _run(ctx, arguments, Finder(purpose, r"255\n239\n238\n51\n", ">", "clusters", "results", "cluster_lines"))


def _list_format() -> ModuleType:
    from hsimhash.pairs import simhash_cpp_format  # imported here because numpy would slow down --help

    return simhash_cpp_format


def _run(ctx: click.Context, arguments: Sequence[str], finder: Finder) -> int:
    """Read fingerprints, find pairs or clusters, and write them. Return the exit code."""
    program = ctx.command_path
    try:
        options = _options(program, arguments)
        if options is None:
            click.echo(_USAGE.format(program=program, purpose=finder.purpose, given=finder.given))
            return PeerCode.DONE
        distance = _checked_distance(options, finder)
        _refuse_input(options["input"], options["output"])
        fingerprints = _read(options["input"])
        _tell(f"Computing {finder.computing}...")
        _write(options["output"], finder.writing, getattr(_list_format(), finder.lines_of)(fingerprints, distance))
    except PeerError as error:
        _tell(in_shell(error))
        return error.code
    return PeerCode.DONE


_USAGE = """\
usage: {program} --blocks BLOCKS --distance DISTANCE --input INPUT --output OUTPUT

{purpose}
Duplicate numbers are ignored.

  -b, --blocks BLOCKS      Number of blocks: more than DISTANCE, at most 64. Does not affect the result.
  -d, --distance DISTANCE  Number of bits that may differ.
  -i, --input INPUT        File of fingerprints, one unsigned decimal number per line; - is stdin, the default.
  -o, --output OUTPUT      File to write, which appears when it is complete; - is stdout, the default.
  -h, --help               Show this message and exit.

The options and exit codes are those of simhash-cpp: 0 success, 1 unknown option or other failure, 2 missing or invalid
blocks, 3 missing distance, 4 missing input, 5 missing output, 6 too few blocks, 7 input cannot be read, 8 output cannot
be written, 130 interrupted.

Example: printf '{given}' | {program} --blocks 4 --distance 3"""


def _options(program: str, arguments: Sequence[str]) -> dict[str, str] | None:
    """Return the options by their long names, or None if help was requested."""
    short, long = "".join(f"{letter}:" for letter in _OPTIONS), [f"{name}=" for name in _OPTIONS.values()]
    try:
        given, _ = getopt.gnu_getopt(list(arguments), f"{short}h", [*long, "help"])
    except getopt.GetoptError as error:
        raise PeerError(PeerCode.UNKNOWN_OPTION, f"{program}: {_complaint(error)}") from error
    options = {"input": "-", "output": "-", "blocks": "", "distance": ""}
    for name, value in given:
        word = name.lstrip("-")
        if word in ("h", "help"):
            return None
        options[_OPTIONS.get(word, word)] = value
    return options


def _complaint(error: getopt.GetoptError) -> str:
    """Return an error with the wording of getopt_long, which Python's getopt does not always use."""
    for python_words, short, long in _COMPLAINTS:
        if python_words in error.msg:
            return (short if len(error.opt) == 1 else long).format(error.opt)
    return error.msg


def _checked_distance(options: dict[str, str], finder: Finder) -> int:
    blocks, distance = _number(options["blocks"]), _number(options["distance"])
    too_few = f"Blocks ({blocks}) must be {finder.blocks_must_be} distance ({distance})"
    problems = (
        (blocks == 0, PeerCode.NO_BLOCKS, "Blocks must be provided and > 0"),
        (distance == 0, PeerCode.NO_DISTANCE, "Distance must be provided and > 0"),
        (not options["input"], PeerCode.NO_INPUT, "Input must be provided and non-empty."),
        (not options["output"], PeerCode.NO_OUTPUT, "Output must be provided and non-empty."),
        (blocks <= distance, PeerCode.TOO_FEW_BLOCKS, too_few),
        (blocks > MOST_BLOCKS, PeerCode.NO_BLOCKS, f"Number of blocks must not exceed {MOST_BLOCKS}, got {blocks}"),
    )
    for is_problem, code, message in problems:
        if is_problem:
            raise PeerError(code, message)
    return distance


def _number(text: str) -> int:
    """Return the number at the start of a text, or 0 if there is none."""
    match = _NUMBER.match(text)
    return int(match[1]) if match else 0


def _refuse_input(name: str, output: str) -> None:
    """Raise if the output is the input, even through a link: writing it would destroy the numbers."""
    with suppress(OSError):  # one of them does not exist
        if output != "-" and Path(output).is_file() and os.path.samefile(0 if name == "-" else name, output):  # noqa: PTH121 (it also accepts a descriptor)
            raise PeerError(PeerCode.WRITING, f"Error writing {output}: it is the input; choose another file")


def _read(name: str) -> Uint64s:
    shown = "stdin" if name == "-" else name
    _tell("Reading hashes from stdin." if name == "-" else f"Reading hashes from {name}")
    try:
        if name == "-":
            check_stdin()
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as stream:
            numbers = _list_format().read_numbers(stream)
    except (OSError, HsimhashError, click.UsageError) as error:
        raise PeerError(PeerCode.READING, f"Error reading {shown}: {_reason(error)}") from error
    if numbers.blank_lines:
        lines = plural(numbers.blank_lines, "blank line")
        _tell(f"Skipped {lines} in {shown}; the first is line {numbers.first_blank}")
    values: Uint64s = numbers.values
    return values


def _reason(error: Exception) -> str:
    return in_shell((isinstance(error, OSError) and error.strerror) or error)


def _write(name: str, what: str, lines: Iterator[bytes]) -> None:
    shown = "stdout" if name == "-" else name
    _tell("Writing results to stdout." if name == "-" else f"Writing {what} to {name}")
    try:
        with complete(name) as stream:
            for data in _searched(lines):
                stream.write(data)
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise PeerError(PeerCode.WRITING, f"Error writing {shown}: {_reason(error)}") from error


def _searched(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines. Errors in the search are not reported as output errors."""
    try:
        yield from lines
    except OSError as error:
        raise HsimhashError(message_of(error)) from error
