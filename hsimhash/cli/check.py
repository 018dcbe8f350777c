"""`hsimhash check`: compare an index's rows with each other, and mend them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import click

from hsimhash.cli.console import print_fields, print_json, progress, say
from hsimhash.cli.exits import ExitCode, message_of
from hsimhash.cli.options import is_on_hbase, json_option, open_index, with_settings
from hsimhash.errors import CorruptionError
from hsimhash.index import HSimIndex
from hsimhash.settings import Settings
from hsimhash.store import CheckReport
from hsimhash.store.hbase.audit import Sample
from hsimhash.store.hbase.store import HBaseStore


@click.command("check")
@with_settings("store", "lock_timeout_s")
@click.option("--repair", is_flag=True, help="Mend the problems and delete the leftovers.")
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="On HBase: look at N documents and N drawer rows from all over the table, each time others.",
)
@json_option
def check_command(settings: Settings, repair: bool, sample: int | None, as_json: bool) -> ExitCode:
    """Compare registers, documents and drawer rows with each other.

    Problems are documents that a query may miss, and rows that cannot be: exit code 6, or 0 where --repair has mended
    them. A file so damaged that it cannot be read is exit code 6 too; nothing mends it. Leftovers of interrupted work
    are harmless. Others may read and write meanwhile. On HBase only leftovers over an hour old are deleted.

    \b
    Example: hsimhash check --store lmdb://pages --repair
             hsimhash check --store hbase://gw1:9091/pages --sample 10000
    """
    if sample is not None and repair:
        raise click.UsageError("--repair goes through the whole index; leave --sample out")
    if sample is not None and not is_on_hbase(settings):
        raise click.UsageError(f"--sample is for an index on HBase; {settings.store} is checked whole, leave it out")
    try:
        with open_index(settings, is_job=True) as index, progress("check") as tell:
            report = _report(index, tell, repair=repair, sample=sample)
    except CorruptionError as error:
        say(f"error: {message_of(error)}")
        return ExitCode.PROBLEMS_FOUND
    if sample is not None:
        say("a sample: the counts are of what was looked at")
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


def _report(index: HSimIndex, tell: Callable[[int, int], None], *, repair: bool, sample: int | None) -> CheckReport:
    if sample is not None and isinstance(index.store, HBaseStore):
        return index.store.check_sample(Sample(sample, time.time_ns()), progress=tell)
    return index.check(repair=repair, progress=tell)
