"""What `bulk-load` and `relayout` share: the options of a load by finished files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence

import click

from hsimhash.cli.console import say
from hsimhash.errors import HsimhashError
from hsimhash.store import FileLimits, StageOptions
from hsimhash.store.hbase.load_tool import load_command
from hsimhash.store.hbase.stage import open_stage

LEAST_MEMORY_MIB = 128
_ROW_BYTES, _DOCUMENT_BYTES = 100, 800  # of memory, about, for each that is held at once

program_option = click.option(
    "--hbase-command",
    default="",
    metavar="PROGRAM",
    help="What runs HBase's classes; by default $HBASE_HOME/bin/hbase, hbase, or the jars of 'make hbase'.",
)
memory_option = click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(min=LEAST_MEMORY_MIB),
    default=1024,
    show_default=True,
    metavar="MIB",
    help="How much memory to use, about, in all processes.",
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
    """Return how documents are staged.

    Raises:
        click.BadParameter: the stage cannot be used; nothing was begun.
        HsimhashError: no program is found that could load the files.
    """
    check_stage(stage)
    try:
        words = load_command(hbase_command, os.environ)
    except HsimhashError:
        if tell_commands is None:
            raise
        words = shlex.split(hbase_command or "hbase")  # where others run it
    own = (memory_mib << 20) // 4 // workers
    limits = FileLimits(own // _ROW_BYTES, own // _DOCUMENT_BYTES)
    return StageOptions(stage, words, is_first, workers, tell_commands, say, limits)


def check_stage(place: str) -> None:
    """Raise `click.BadParameter` where a stage cannot be reached or written, or has files of others."""
    try:
        stage = open_stage(place)
        if stage.manifest() is None and not stage.is_empty():
            raise HsimhashError(f"{stage.url} has files that are no stage of hsimhash; choose another one")
        if stage.manifest() is None:
            stage.write_manifest({})
    except HsimhashError as error:
        raise click.BadParameter(str(error), param_hint="'--stage'") from error
