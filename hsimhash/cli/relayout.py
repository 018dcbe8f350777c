"""`hsimhash relayout`: copy the documents of an index to one with a different layout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import click

from hsimhash.cli.closing_messages import shell_word
from hsimhash.cli.console import say, watching
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.jobs import check_job, stoppable
from hsimhash.cli.options import metrics_option, open_index, refuse_flags, say_created, store_url, with_settings
from hsimhash.cli.stage_options import memory_option, program_option, stage_options
from hsimhash.errors import HsimhashError, IndexExistsError, plural
from hsimhash.index import HSimIndex, opened_index
from hsimhash.layout import Layout
from hsimhash.load import default_job, relayout
from hsimhash.load.job import unfinished_jobs
from hsimhash.load.relayout import is_begun
from hsimhash.settings import Settings
from hsimhash.store import Opening, backend_of
from hsimhash.store.base import JOB_DEADLINE_S
from hsimhash.store.urls import EXCLUSIVE, with_options


@click.command("relayout", cls=Command)
@with_settings("store", "workers", "lock_timeout_s", "job")
@click.option(
    "--to", "target", required=True, callback=store_url, metavar="URL", help="The new index, created if needed."
)
@click.option(
    "--to-layout",
    metavar="NAME",
    help="The new layout: 4, 10, 16, 20, 28, or blocks/choice. Default: the layout of the old index.",
)
@click.option(
    "--distance",
    type=int,
    metavar="BITS",
    help="Default distance for queries on the new index. Default: that of the old index, unless the layout changes.",
)
@click.option("--stage", metavar="DIR", help="HBase: load HFiles through this folder, as bulk-load does.")
@program_option
@memory_option
@metrics_option
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
def relayout_command(
    settings: Settings,
    target: str,
    to_layout: str | None,
    distance: int | None,
    stage: str | None,
    hbase_command: str,
    memory_mib: int,
    quiet: bool,
) -> ExitCode:
    """Copy all documents of an index to a new one, on another store or with a different layout.

    \b
    Example: hsimhash relayout --store lmdb://pages --to lmdb://pages-10 --to-layout 10
             hsimhash relayout --store lmdb://pages --to 'postgresql://db1/crawl?table=pages'
             hsimhash relayout --store hbase://gw1/pages --to hbase://gw1/pages16 --to-layout 16 --stage hdfs://nn/tmp/s

    relayout does not need the texts: fingerprints, sketches, keys and first_seen stay the same. It does not change the
    old index. Stop its writers first, because documents written during the copy can be missed. On HBase, run
    create-table first if you want to choose the regions or the TTL of the new table. The new index does not record
    which ingest jobs have finished. If you repeat one, it adds documents that have been removed in the meantime.

    Run the same command again to resume. At the end, relayout counts the documents in both indexes and prints what is
    left to do. Until then, the new index is incomplete, and doctor, status and check print a warning. If the new index
    already has documents, relayout prints a warning and replaces those with the same id. Do not run relayout again once
    programs write to the new index: it restores what they changed or removed.
    """
    if stage is not None:
        refuse_flags(target, "--stage")
    job = Path(settings.job) if settings.job else default_job(target, []).with_suffix(".relayout")
    check_job(job)
    options, workers = None, settings.workers or os.cpu_count() or 1
    if stage is not None:
        options = stage_options(stage, hbase_command, memory_mib, workers, is_first=False, tell_commands=None)
    _refuse_unfinished(settings.store)
    with ExitStack() as resources:
        with _nothing_copied():
            old = resources.enter_context(open_index(settings, is_job=True))
            new = resources.enter_context(_made(old, target, to_layout, distance))
            is_resumed = is_begun(job)
            if not (is_resumed or new.is_empty()):
                say(f"{target} already has documents; those with the same id are replaced")
        with stoppable() as stop, watching("read", stop, quiet=quiet) as observer:
            added = relayout(old, new, job, stage=options, observer=observer)
        if added is None:
            say(f"interrupted: run the same command again to resume; until it finishes, {target} is incomplete")
            return ExitCode.INTERRUPTED
        counts = old.count(workers=workers), new.count(workers=workers)
    return _conclude(settings.store, target, counts, f"{added:,}{' since the job began' if is_resumed else ''}")


@contextmanager
def _nothing_copied() -> Iterator[None]:
    """If an interrupt ends the block, print that this run did not copy anything."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped before this run copied anything")
        raise


def _refuse_unfinished(url: str) -> None:
    """Raise `HsimhashError` if documents that a job has read are not in an embedded index yet."""
    unfinished = unfinished_jobs(url) if backend_of(url).is_embedded else []
    if unfinished:
        raise HsimhashError(
            f"{url} has an unfinished job, and documents that the job has read would not be copied: run its command "
            f"again until it finishes, or delete {unfinished[0]}"
        )


def _conclude(old: str, new: str, counts: tuple[int, int], added: str) -> ExitCode:
    """Print how many documents both indexes have and how many the job added, and what is left to do."""
    have = f"{old} has {plural(counts[0], 'document')}, {new} has {counts[1]:,}"
    say(f"{have}; new or changed: {added}")
    if counts[0] > counts[1]:
        say("other processes wrote during the copy; run the command again to copy their documents")
        return ExitCode.FAILED
    if counts[0] < counts[1]:
        say(
            "the copy is complete, but the new index has more documents than the old one: it was not empty, other "
            "processes removed documents from the old one, or programs already write to the new one; in the last case, "
            "do not run relayout again, because it undoes their changes and removals; use 'hsimhash export' to compare "
            "the indexes"
        )
        return ExitCode.FAILED
    say(f"to verify the copy: hsimhash check --store {shell_word(new)}")
    say(f"to switch over: replace {old} with {new} in --store, HSIMHASH_STORE and hsimhash.yaml")
    say(f"to delete the old index when it is no longer needed: hsimhash drop-table --store {shell_word(old)}")
    return ExitCode.DONE


def _made(old: HSimIndex, target: str, layout: str | None, distance: int | None) -> HSimIndex:
    """Create the new index, or open it if it exists."""
    kept = None
    if layout is None or Layout.parse(layout) == old.layout:
        layout, kept = old.layout.name, old.distance
    first = kept if distance is None else distance
    try:
        with HSimIndex.create(target, layout=layout, profile=old.profile, distance=first) as made:
            say_created(target, made.store)
    except IndexExistsError:
        pass
    if EXCLUSIVE in backend_of(target).options:
        target = with_options(target, {EXCLUSIVE: "yes"})
    index = opened_index(target, Opening(JOB_DEADLINE_S), layout=layout)
    try:
        index.store.record.check_same(replace(index.store.record, distance=distance), target)
    except IndexExistsError:
        index.close()
        raise
    return index
