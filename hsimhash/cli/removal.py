"""`hsimhash remove`: documents by id; `hsimhash expire`: those first seen before a date."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from itertools import islice

import click

from hsimhash.cli.console import iso_time, plural, print_json, progress, say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.lines import Lines
from hsimhash.cli.options import Settings, confirm, json_option, open_index, utf8, with_settings, yes_option
from hsimhash.index import HSimIndex
from hsimhash.times import milliseconds_of, seconds_in

BATCH_DOCUMENTS = 100_000  # in key order; each batch rewrites most pages of the index once


@click.command("remove")
@click.argument("doc_ids", type=utf8, metavar="[ID…|-]", nargs=-1)
@click.option("--file", "path", metavar="FILE", help="A file with one id a line; - is stdin.")
@with_settings("store", "lock_timeout_s")
@yes_option
@json_option
def remove_command(
    settings: Settings, doc_ids: tuple[str, ...], path: str | None, is_confirmed: bool, as_json: bool
) -> ExitCode:
    """Remove documents by ID, and say how many there were and how many were unknown.

    Ids may come from a file or, with -, from stdin, one a line. A line that is no valid id is reported on stderr, the
    other lines count, and the exit code is 7. What was removed before an interruption stays removed; the same command
    again does the rest.

    \b
    Example: hsimhash remove https://example.org/a --store lmdb://pages
             hsimhash remove --file gone.txt --yes --store lmdb://pages
    """
    if bool(doc_ids) == (path is not None) or ("-" in doc_ids and len(doc_ids) > 1):
        raise click.UsageError("give ids, or --file, or - for ids on stdin")
    lines = Lines(path or "-") if path is not None or doc_ids == ("-",) else None
    what = f"the documents named in {lines.name}" if lines else plural(len(doc_ids), "document")
    removed = unknown = 0
    with open_index(settings) as index:
        if not confirm(f"Remove {what} from {settings.store}?", is_confirmed=is_confirmed):
            return ExitCode.FAILED
        batches: Iterator[list[str]] = lines.doc_ids() if lines else iter([list(doc_ids)])
        for batch in batches:
            known = index.remove(batch)
            removed += known
            unknown += len(set(batch)) - known
    if as_json:
        print_json({"removed": removed, "unknown": unknown})
    else:
        say(f"removed {plural(removed, 'document')}, {unknown:,} unknown")
    return ExitCode.REJECTED_RECORDS if lines and lines.rejected else ExitCode.DONE


def _moment(ctx: click.Context, param: click.Parameter, value: str) -> int:  # noqa: ARG001
    """Return ms since 1970 for an ISO 8601 date or time, UTC unless it says otherwise, or for an age."""
    if re.fullmatch(r"[\d.]+m", value, re.ASCII):
        raise click.BadParameter(
            f"{value!r} may be minutes or months; write {value}in for minutes, or days such as 180d"
        )
    age_s = seconds_in(value) if value[-1:].isalpha() else None  # a bare number has no unit that goes without saying
    moment = milliseconds_of(value) if age_s is None else 1_000 * (time.time() - age_s)
    if moment is None:
        raise click.BadParameter(
            f"{value!r} is neither a date such as 2026-01-31 or 2026-01-31T12:00Z nor an age such as 30d"
        )
    return round(moment)


@click.command("expire")
@click.option(
    "--before", callback=_moment, metavar="DATE", required=True, help="2026-01-31, 2026-01-31T12:00Z, or 30d, 12h."
)
@with_settings("store", "lock_timeout_s")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Count only.")
@yes_option
@json_option
def expire_command(settings: Settings, before: int, is_dry_run: bool, is_confirmed: bool, as_json: bool) -> ExitCode:
    """Remove the documents first seen before DATE (UTC), or longer ago than an age: min, h, d or w.

    Others may read and write meanwhile. What was removed before an interruption stays removed.

    \b
    Example: hsimhash expire --before 90d --dry-run --store lmdb://pages
             hsimhash expire --before 2026-01-31 --yes --store lmdb://pages
    """
    question = f"Remove every document first seen before {iso_time(before)} from {settings.store}?"
    with open_index(settings, is_job=True) as index:
        if not confirm(question, is_confirmed=is_confirmed or is_dry_run):
            return ExitCode.FAILED
        count = sum(1 for _ in index.documents(before=before)) if is_dry_run else _remove_old(index, before)
    verb = "would remove" if is_dry_run else "removed"
    if as_json:
        print_json({verb.replace(" ", "_"): count})
    else:
        say(f"{verb} {plural(count, 'document')}")
    return ExitCode.DONE


def _remove_old(index: HSimIndex, before: int, at_once: int = BATCH_DOCUMENTS) -> int:
    """Remove the documents first seen before, batch by batch; no read transaction is open while a batch is removed."""
    removed = 0
    old = index.documents(before=before)
    with progress("expire") as tell:
        while batch := [document.doc_id for document in islice(old, at_once)]:
            removed += index.remove(batch, before=before)  # a page of the walk may be old by now
            tell(removed, 0)
    return removed
