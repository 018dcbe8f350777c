"""`hsimhash check`: compare an index's rows with each other, and mend them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import print_fields, print_json, progress, say
from hsimhash.cli.exits import ExitCode, message_of
from hsimhash.cli.options import json_option, open_index, with_settings
from hsimhash.errors import CorruptionError

if TYPE_CHECKING:
    from hsimhash.settings import Settings


@click.command()
@with_settings("store", "lock_timeout_s")
@click.option("--repair", is_flag=True, help="Mend the problems and delete the leftovers.")
@json_option
def check(settings: Settings, repair: bool, as_json: bool) -> ExitCode:
    """Compare registers, documents and drawer rows with each other.

    Problems are documents that a query may miss, and rows that cannot be: exit code 6, or 0 where --repair has mended
    them. A file so damaged that it cannot be read is exit code 6 too; nothing mends it. Leftovers of interrupted work
    are harmless. Others may read and write meanwhile.

    \b
    Example: hsimhash check --store lmdb://pages --repair
    """
    try:
        with open_index(settings) as index, progress("check") as tell:
            report = index.check(repair=repair, progress=tell)
    except CorruptionError as error:
        say(f"error: {message_of(error)}")
        return ExitCode.PROBLEMS_FOUND
    facts = {**dataclasses.asdict(report), "is_sound": report.is_sound}
    if as_json:
        print_json(facts)
    else:
        counts = [(name, value) for name, value in facts.items() if type(value) is int]
        print_fields([(name.replace("_", " "), f"{value:,}") for name, value in counts])
        for example in report.examples:
            say(example)
    is_mended = report.is_sound or repair
    if not is_mended:
        say("problems found; 'hsimhash check --repair' mends them")
    return ExitCode.DONE if is_mended else ExitCode.PROBLEMS_FOUND
