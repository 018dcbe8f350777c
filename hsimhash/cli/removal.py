"""`hsimhash remove`: remove documents by id. `hsimhash expire`: remove documents first seen before a date."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import click

from hsimhash.cli.console import iso_time, print_json, say, watching
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.input_lines import Lines
from hsimhash.cli.jobs import check_job, refuse_walk, walk_job_option, walk_workers_option, walks_ranges
from hsimhash.cli.options import confirm, json_option, open_index, utf8, with_settings, yes_option
from hsimhash.durations import milliseconds_of, seconds_in
from hsimhash.errors import plural
from hsimhash.files import make_folder, write_json
from hsimhash.index import HSimIndex
from hsimhash.load import default_job
from hsimhash.settings import Settings
from hsimhash.store import capable
from hsimhash.store.capabilities import WalksRanges
from hsimhash.store.hbase.upkeep.range_jobs import AGE_S

BATCH_DOCUMENTS = 100_000  # per batch, in key order; each batch rewrites most pages of the index once
_UNKNOWN_SHOWN = 3
BEGUN = "expire.json"  # file in the job folder on HBase: the cutoff time, and when the job started


@click.command("remove", cls=Command)
@click.argument("doc_ids", type=utf8, metavar="[ID…|-]", nargs=-1)
@click.option("--file", "path", metavar="FILE", help="Remove the ids in FILE, one per line; - is stdin.")
@with_settings("store", "lock_timeout_s")
@yes_option
@json_option
def remove_command(
    settings: Settings, doc_ids: tuple[str, ...], path: str | None, is_confirmed: bool, as_json: bool
) -> ExitCode:
    """Remove documents by id, and print how many were removed and how many were unknown.

    \b
    Example: hsimhash remove https://example.org/a --store lmdb://pages
             hsimhash remove --file gone.txt --yes --store lmdb://pages

    Every argument is an id, even if a file has that name. --file reads ids from a file, and - reads them from stdin,
    one per line. Invalid lines are reported on stderr and skipped, and the exit code is 7. After an interruption, run
    the same command again.
    """
    if bool(doc_ids) == (path is not None) or ("-" in doc_ids and len(doc_ids) > 1):
        raise click.UsageError("expected either ids, or --file, or - alone to read ids from stdin")
    lines = Lines(path or "-") if path is not None or doc_ids == ("-",) else None
    what = f"the documents listed in {lines.name}" if lines else plural(len(doc_ids), "document")
    removed = unknown = 0
    named: list[str] = []  # the first unknown ids
    with open_index(settings) as index:
        if not confirm(f"Remove {what} from {settings.store}?", is_confirmed=is_confirmed):
            return ExitCode.FAILED
        batches: Iterator[list[str]] = lines.doc_ids() if lines else iter([list(doc_ids)])
        for batch in batches:
            if not as_json and len(named) < _UNKNOWN_SHOWN:
                found = zip(batch, index.get_many(batch), strict=True)
                named += dict.fromkeys(doc_id for doc_id, document in found if document is None)
            known = index.remove(batch)
            removed += known
            unknown += len(set(batch)) - known
    if unknown and (files := [one for one in doc_ids if Path(one).is_file()]):
        say(f"{files[0]!r:.200} is a file; to remove the ids in it, pass it with --file")
    if as_json:
        print_json({"removed": removed, "unknown": unknown})
    else:
        examples = ", ".join(f"{doc_id!r:.200}" for doc_id in named[:_UNKNOWN_SHOWN])
        examples = f": {examples}{', …' if unknown > _UNKNOWN_SHOWN else ''}" if unknown and examples else ""
        say(f"removed {plural(removed, 'document')} from {settings.store}, {unknown:,} unknown{examples}")
    return ExitCode.REJECTED_RECORDS if lines and lines.rejected else ExitCode.DONE


class _Moment(NamedTuple):
    """A time as the user wrote it, and in ms since 1970."""

    said: str
    milliseconds: int


def _moment(ctx: click.Context, param: click.Parameter, value: str) -> _Moment:  # noqa: ARG001
    """Parse an ISO 8601 date or time, in UTC unless it has a zone, or an age."""
    if re.fullmatch(r"[\d.]+m", value, re.ASCII):
        raise click.BadParameter(
            f"{value!r} could mean minutes or months; write {value}in for minutes, or a number of days such as 180d"
        )
    age_s = seconds_in(value) if value[-1:].isalpha() else None  # a bare number does not have an obvious unit
    moment = milliseconds_of(value) if age_s is None else 1_000 * (time.time() - age_s)
    if moment is None:
        raise click.BadParameter(
            f"{value!r} is neither a date such as 2026-01-31 or 2026-01-31T12:00Z nor an age such as 30d"
        )
    return _Moment(value, round(moment))


@click.command("expire", cls=Command)
@click.option(
    "--before",
    callback=_moment,
    metavar="DATE",
    required=True,
    help="Date (2026-01-31, 2026-01-31T12:00Z) or age (30d, 12h).",
)
@with_settings("store", "lock_timeout_s")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only count the documents.")
@walk_workers_option
@walk_job_option
@yes_option
@json_option
def expire_command(
    settings: Settings,
    before: _Moment,
    is_dry_run: bool,
    workers: int | None,
    job: Path | None,
    is_confirmed: bool,
    as_json: bool,
) -> ExitCode:
    """Remove documents that were first seen before a date (UTC), or longer ago than an age in min, h, d or w.

    \b
    Example: hsimhash expire --before 90d --dry-run --store lmdb://pages
             hsimhash expire --before 2026-01-31 --yes --store lmdb://pages

    Other processes can read and write at the same time. After an interruption, run the same command again.

    On HBase, several processes read the table in ranges and record their progress in a folder below .hsimhash/jobs.
    Within a day, the same command resumes an interrupted run; an age is then measured from the start of that run.
    """
    refuse_walk(settings.store, workers, job)
    folder = (job or default_job(settings.store, []).with_suffix(".expire")) if walks_ranges(settings.store) else None
    if folder is not None and not is_dry_run:
        check_job(folder)
        before = _begun(folder, before)
    question = f"Remove every document first seen before {iso_time(before.milliseconds)} from {settings.store}?"
    with open_index(settings, is_job=True) as index:
        if not confirm(question, is_confirmed=is_confirmed or is_dry_run):
            return ExitCode.FAILED
        count = _expired(index, before, folder, workers or os.cpu_count() or 1, is_dry_run=is_dry_run)
    verb = "would remove" if is_dry_run else "removed"
    if as_json:
        print_json({verb.replace(" ", "_"): count})
    else:
        say(f"{verb} {plural(count, 'document')}")
    return ExitCode.DONE


def _expired(index: HSimIndex, before: _Moment, folder: Path | None, workers: int, *, is_dry_run: bool) -> int:
    """Remove the documents first seen before the cutoff, or only count them; return their number."""
    if folder is None and not is_dry_run:
        return _remove_old(index, before.milliseconds)
    with watching("expire") as observer:
        if folder is None or is_dry_run:
            return index.store.count(before=before.milliseconds, workers=workers, observer=observer)
        path = folder / BEGUN
        if not path.exists() or json.loads(path.read_text(encoding="utf-8"))["before"] != [*before]:
            make_folder(folder)
            write_json(path, {"before": before, "began_s": time.time()})
        store = capable(index.store, WalksRanges)
        removed = store.expire(before.milliseconds, workers=workers, folder=folder, observer=observer)
        path.unlink()
        return removed


def _begun(folder: Path, asked: _Moment) -> _Moment:
    """Return the cutoff of an interrupted run, if it was written the same way within a day; otherwise `asked`."""
    path = folder / BEGUN
    if not path.exists():
        return asked
    begun = json.loads(path.read_text(encoding="utf-8"))
    moment = _Moment(*begun["before"])
    is_young = 0 <= time.time() - begun["began_s"] < AGE_S
    return moment if moment.said == asked.said and is_young else asked


def _remove_old(index: HSimIndex, before: int, at_once: int = BATCH_DOCUMENTS) -> int:
    """Remove the documents first seen before `before`, in batches, with no read transaction open during a removal."""
    removed = 0
    old = index.documents(before=before)
    with watching("expire") as observer:
        while batch := [document.doc_id for document in islice(old, at_once)]:
            removed += index.remove(batch, before=before)  # what the iteration read may be out of date by now
            observer.report("expire", documents=removed)
    return removed
