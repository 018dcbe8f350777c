"""Maintain an index: `hsimhash check`, `collect`, `compact` and `backup`."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from hsimhash.cli.console import print_fields, print_json, say, size, watching
from hsimhash.cli.count_type import Count
from hsimhash.cli.exit_codes import ExitCode, message_of
from hsimhash.cli.help import Command
from hsimhash.cli.jobs import (
    check_job,
    refuse_walk,
    shard_option,
    walk_job_option,
    walk_workers_option,
    walks_ranges,
)
from hsimhash.cli.options import (
    json_option,
    metrics_option,
    open_index,
    refuse_flags,
    tell_instead,
    utf8,
    with_settings,
)
from hsimhash.errors import CorruptionError
from hsimhash.load import default_job
from hsimhash.settings import Settings
from hsimhash.store import CheckReport, backend_of, capable
from hsimhash.store.capabilities import BacksUp, Collects, Compacts, Shard, WalksRanges
from hsimhash.store.unfinished_relayout import has_unfinished_relayout
from hsimhash.store.urls import holds_password

_LEFTOVERS_SHOWN = 3  # if there are no problems


@click.command("check", cls=Command)
@with_settings("store", "lock_timeout_s")
@click.option("--repair", is_flag=True, help="Repair problems and delete leftovers.")
@click.option(
    "--sample",
    type=Count(),
    metavar="N",
    help="HBase: check only N random documents and N random drawer rows.",
)
@walk_workers_option
@walk_job_option
@shard_option("read only the Kth of N parts into --job; other machines read the other parts.")
@json_option
@metrics_option
def check_command(
    settings: Settings,
    repair: bool,
    sample: int | None,
    workers: int | None,
    job: Path | None,
    shard: Shard | None,
    as_json: bool,
) -> ExitCode:
    """Check an index for problems, and repair them.

    \b
    Example: hsimhash check --store lmdb://pages --repair
             hsimhash check --store hbase://gw1:9091/pages --sample 10K

    check compares registers, documents and drawer rows. Problems are documents that a query can miss, and rows that
    cannot be correct. If there are any, the exit code is 6, or 0 if --repair fixed them. If a file cannot be read at
    all, the exit code is also 6: restore a backup. Leftovers of interrupted work are harmless. Other processes can read
    and write during a check.

    On HBase, --repair deletes leftovers only if they are more than an hour old. Several processes read the table in
    ranges and record their findings in a job folder, by default below .hsimhash/jobs. The folder takes about 70 bytes
    per document and 8 per drawer row. To resume, run the same command again within a day.

    To share the reading between machines, pass --shard 1/16 on the first, --shard 2/16 on the second, and so on, with a
    --job folder that all of them can reach. When all have finished, run the command without --shard to compare what
    they read.
    """
    _refuse_mixed(settings, sample, is_repair=repair, is_walk=any(one is not None for one in (workers, job, shard)))
    refuse_walk(settings.store, workers, job, shard)
    if shard is not None:
        return _read_shard(settings, shard, job, workers, is_repair=repair, as_json=as_json)
    folder = (job or default_job(settings.store, [])) if walks_ranges(settings.store) else None
    if folder is not None and sample is None:
        check_job(folder)
    try:
        with open_index(settings, is_job=True) as index, watching("check") as observer:
            is_half = has_unfinished_relayout(index.store)
            if sample is None:
                processes = workers or os.cpu_count() or 1
                report = index.check(repair=repair, observer=observer, workers=processes, folder=folder)
            else:
                report = capable(index.store, WalksRanges).check_sample(sample, time.time_ns(), observer=observer)
    except CorruptionError as error:
        say(f"error: {message_of(error)}")
        return ExitCode.PROBLEMS_FOUND
    cleaner = "collect" if Collects in backend_of(settings.store).capabilities else "check --repair"
    if sample is not None:
        say("this was a sample: the counts cover only the rows that were checked")
    _print_report(report, as_json=as_json)
    if is_half:
        say("check the index again when the relayout into it has finished")
    else:
        _say_remedies(report, cleaner, is_repair=repair)
    return ExitCode.DONE if report.is_sound or repair else ExitCode.PROBLEMS_FOUND


def _print_report(report: CheckReport, *, as_json: bool) -> None:
    facts = report.to_json()
    if as_json:
        print_json(facts)
    else:
        print_fields({name: value for name, value in facts.items() if type(value) is int})
        for example in report.examples if report.problems else report.examples[:_LEFTOVERS_SHOWN]:
            say(example)


def _say_remedies(report: CheckReport, cleaner: str, *, is_repair: bool) -> None:
    """Print what to do about problems and leftovers; `cleaner` is the command that deletes leftovers."""
    if report.leftovers:
        rest = (
            "a later run deletes those that are old enough"
            if is_repair
            else f"run 'hsimhash {cleaner}' to delete those that are old enough"
        )
        say(f"leftovers are harmless; {rest}")
    if not (report.is_sound or is_repair):
        say("found problems; run 'hsimhash check --repair' to repair them")


def _read_shard(
    settings: Settings, shard: Shard, job: Path | None, workers: int | None, *, is_repair: bool, as_json: bool
) -> ExitCode:
    """Read a shard of a check, and print what is left to do."""
    if job is None:
        raise click.UsageError("--shard needs --job, a folder that all machines can reach")
    check_job(job)
    with open_index(settings, is_job=True) as index, watching("check") as observer:
        walker, processes = capable(index.store, WalksRanges), workers or os.cpu_count() or 1
        read, ranges = walker.check_shard(shard, repair=is_repair, folder=job, workers=processes, observer=observer)
    if as_json:
        print_json({"shard": str(shard), "ranges": ranges, "read": read})
    if read < ranges:
        left = f"{read:,} of {ranges:,} ranges have been read; after the last one,"
    else:
        left = "all ranges have been read;"
    say(f"finished shard {shard}; {left} run the command without --shard")
    return ExitCode.DONE


def _refuse_mixed(settings: Settings, sample: int | None, *, is_repair: bool, is_walk: bool) -> None:
    """Reject options that cannot be combined, or do not suit the store. `is_walk`: an option of the walk was passed."""
    if sample is not None and is_walk:
        raise click.UsageError("--workers, --job and --shard cannot be combined with --sample; leave one of them out")
    if sample is not None and is_repair:
        raise click.UsageError("--repair checks the whole index; leave --sample out")
    if sample is not None:
        refuse_flags(settings.store, "--sample")


@click.command("collect", cls=Command)
@with_settings("store")
@json_option
def collect_command(settings: Settings, as_json: bool) -> ExitCode:
    """Delete old leftovers of moved and removed documents.

    \b
    Example: hsimhash collect --store hbase://gw1:9091/pages
             17 * * * *  hsimhash collect --store hbase://gw1:9091/pages >>$HOME/hsimhash.log    (a line in crontab)

    Every write logs what it leaves behind. collect reads that log, never the whole index, and deletes leftovers that
    are more than an hour old. On HBase, run it every hour. It prints how many log entries it read (it skips those of
    the last hour), how many cells it deleted, and how many entries it kept because a row was too recent. An interrupted
    run does no harm. Other processes can read and write at the same time.

    The log does not contain leftovers of interrupted writes, of 'bulk-load --first-load', or of releases without this
    command. 'hsimhash check --repair' finds those as well.

    On Redis, every write already deletes a few leftovers. collect deletes all that are more than 10 minutes old, and
    removes documents whose TTL has expired. An embedded index does not have leftovers.
    """
    if tell_instead(settings.store, Collects):
        return ExitCode.MISUSED
    with open_index(settings, is_job=True) as index, watching("collect") as observer:
        report = index.collect(observer=observer)
    if as_json:
        print_json(report._asdict())
    else:
        print_fields(report._asdict())
        if not (report.deleted or report.left):
            say("nothing to delete; a later run deletes leftovers that are too recent now")
    return ExitCode.DONE


@click.command("compact", cls=Command)
@with_settings("store", "lock_timeout_s")
@json_option
def compact_command(settings: Settings, as_json: bool) -> ExitCode:
    """Reclaim unused space in an index, and print its size before and after.

    \b
    Example: hsimhash compact --store lmdb://pages

    No other process may have the index open. If others have it open, compact prints their process ids and changes
    nothing. The disk needs space for both the old and the new copy.

    HBase, PostgreSQL and Redis compact by themselves. On these stores, compact prints the line for hbase shell, psql or
    redis-cli that starts a compaction now, and the exit code is 2.
    """
    if tell_instead(settings.store, Compacts):
        return ExitCode.MISUSED
    with open_index(settings) as index:
        before, after = index.compact()
    if as_json:
        print_json({"bytes_before": before, "bytes_after": after})
    else:
        print_fields({"before": size(before), "after": size(after)})
    return ExitCode.DONE


@click.command("backup", cls=Command)
@click.argument("target", type=utf8, metavar="DEST")
@with_settings("store")
def backup_command(settings: Settings, target: str) -> ExitCode:
    """Copy an index to the folder DEST while the index is in use. DEST must be new or empty.

    \b
    Example: hsimhash backup backups/2026-01-31 --store lmdb://pages

    The copy is a complete index in its current state. Open it with --store lmdb://DEST.

    On HBase, PostgreSQL and Redis, backup prints the commands for a snapshot, pg_dump or BGSAVE instead, and the exit
    code is 2.
    """
    if "://" in target and holds_password(target):
        raise click.BadParameter("the URL contains a password, which would be printed; leave it out", param_hint="DEST")
    if tell_instead(settings.store, BacksUp, target):
        return ExitCode.MISUSED
    folder = Path(target)
    if "://" in target:
        problem = f"{target!r} is a URL: expected a folder; omit the lmdb://"
    elif not target:
        problem = "the name is empty: expected a new folder"
    elif folder.is_symlink() and not folder.exists():
        problem = f"{target} is a broken link: expected a new folder"
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        problem = f"{target} exists and is not empty; choose a new folder"
    else:
        with open_index(settings) as index:
            index.backup(folder)
        say(f"copied {settings.store}; open the copy with --store lmdb://{target}")
        return ExitCode.DONE
    raise click.BadParameter(problem, param_hint="DEST")
