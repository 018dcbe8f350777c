"""`hsimhash expire`: remove the documents first seen before a date."""

from __future__ import annotations

import re
import time
from itertools import islice

import click

from hsimhash.cli.console import iso_time, plural, print_json, progress, say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import confirm, json_option, open_index, with_settings, yes_option
from hsimhash.index import HSimIndex
from hsimhash.settings import Settings
from hsimhash.times import UNIT_S, milliseconds_of

BATCH_DOCUMENTS = 100_000  # in key order; each batch rewrites most pages of the index once
_AGE = re.compile(r"(\d{1,9})(min|[hdw])", re.ASCII)


def _moment(ctx: click.Context, param: click.Parameter, value: str) -> int:  # noqa: ARG001
    """Return ms since 1970 for an ISO 8601 date or time, UTC unless it says otherwise, or for an age."""
    age = _AGE.fullmatch(value)
    if age:
        return time.time_ns() // 1_000_000 - int(age[1]) * UNIT_S[age[2][0]] * 1_000
    if re.fullmatch(r"\d+m", value, re.ASCII):
        raise click.BadParameter(
            f"{value!r} may be minutes or months; write {value}in for minutes, or days such as 180d"
        )
    moment = milliseconds_of(value)
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
    if is_dry_run:
        with open_index(settings, is_job=True) as index:
            old = sum(1 for _ in index.documents(before=before))
        _report("would_remove", f"would remove {plural(old, 'document')}", old, as_json=as_json)
        return ExitCode.DONE
    with open_index(settings, is_job=True) as index:
        question = f"Remove every document first seen before {iso_time(before)} from {settings.store}?"
        if not confirm(question, is_confirmed=is_confirmed):
            return ExitCode.FAILED
        removed = _remove_old(index, before)
    _report("removed", f"removed {plural(removed, 'document')}", removed, as_json=as_json)
    return ExitCode.DONE


def _remove_old(index: HSimIndex, before: int) -> int:
    """Remove the documents first seen before, batch by batch; no read transaction is open while a batch is removed."""
    removed = 0
    old = index.documents(before=before)
    with progress("expire") as tell:
        while batch := [document.doc_id for document in islice(old, BATCH_DOCUMENTS)]:
            removed += index.remove(batch, before=before)  # a page of the walk may be old by now
            tell(removed, 0)
    return removed


def _report(name: str, text: str, count: int, *, as_json: bool) -> None:
    if as_json:
        print_json({name: count})
    else:
        say(text)
