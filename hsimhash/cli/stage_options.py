"""Options for loading HFiles, shared by `bulk-load` and `relayout`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence

import click

from hsimhash.cli.console import print_line, say
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.errors import HsimhashError, in_shell
from hsimhash.store import StageOptions, backend_of
from hsimhash.store.capabilities import LoadsFiles
from hsimhash.store.hbase.files.load_tool import load_command
from hsimhash.store.hbase.files.stage import open_stage

LEAST_MEMORY_MIB = 128

stage_option = click.option(
    "--stage",
    required=True,
    metavar="DIR",
    help="Folder or URL (hdfs://…) for the HFiles; the region servers must be able to open it.",
)
first_load_option = click.option(
    "--first-load",
    is_flag=True,
    help="Assume that the index does not contain any of the documents, and do not look them up.",
)
print_option = click.option(
    "--print-commands", is_flag=True, help="Print the commands that load the files instead of running them."
)
program_option = click.option(
    "--hbase-command",
    default="",
    metavar="PROGRAM",
    help="The hbase program. Default: $HBASE_HOME/bin/hbase, then hbase on the PATH, then the jars from 'make hbase'.",
)
memory_option = click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(min=LEAST_MEMORY_MIB),
    default=1024,
    show_default=True,
    metavar="MIB",
    help="Approximate memory for all processes together, in MiB.",
)


def stage_options(
    stage: str,
    hbase_command: str,
    memory_mib: int,
    workers: int,
    *,
    is_first: bool,
    tell_commands: Callable[[Sequence[str]], None] | None,
) -> StageOptions:
    """Return the options for staging documents; see `loading_words`."""
    words = loading_words(stage, hbase_command, is_run=tell_commands is None)
    return StageOptions(stage, words, is_first, workers, tell_commands, (memory_mib << 20) // 4 // workers)


def loading_words(stage: str, hbase_command: str, *, is_run: bool) -> list[str]:
    """Return the command that runs HBase's loader. The program only has to exist if hsimhash runs it.

    Raises:
        click.BadParameter: The stage cannot be used.
        HsimhashError: No program that can load the files was found.
    """
    check_stage(stage)
    try:
        return load_command(hbase_command, os.environ)
    except HsimhashError:
        if is_run:
            raise
        return shlex.split(hbase_command or "hbase")  # an operator runs it


def tell_lines(lines: Sequence[str]) -> ExitCode:
    """Print the commands that operators must run."""
    say("wrote the files; run these commands in this order, then run this command again:")
    for line in lines:
        print_line(line)
    return ExitCode.DONE


def check_on_hbase(store: str) -> None:
    """Reject a store that cannot load files."""
    if LoadsFiles not in backend_of(store).capabilities:
        raise click.UsageError(f"{store} is not on HBase; use 'hsimhash ingest' instead")


def check_stage(place: str) -> None:
    """Raise `click.BadParameter` if a stage cannot be reached or written, or contains other files."""
    try:
        open_stage(place).claim()
    except HsimhashError as error:
        raise click.BadParameter(in_shell(error), param_hint="'--stage'") from error
