"""What `bulk-load` and `relayout` share: the options of a load by finished files."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence

import click

from hsimhash.cli.console import say
from hsimhash.store import FileLimits, StageOptions
from hsimhash.store.hbase.load_tool import load_command

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
    """Return how documents are staged; `HsimhashError` where no program is found that could load the files."""
    is_told = tell_commands is not None
    words = shlex.split(hbase_command or "hbase") if is_told else load_command(hbase_command, os.environ)
    own = (memory_mib << 20) // 4 // workers
    limits = FileLimits(own // _ROW_BYTES, own // _DOCUMENT_BYTES)
    return StageOptions(stage, words, is_first, workers, tell_commands, say, limits)
