"""`hsimhash ingest`: documents from files, folders or stdin into the index."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from hsimhash import load
from hsimhash.cli.console import say
from hsimhash.cli.counts import Count
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.jobs import check_job, report, shown, stoppable
from hsimhash.cli.options import (
    READING,
    Settings,
    create_index,
    field_options,
    fingerprint_field_option,
    first_seen_field_option,
    inputs_of,
    metrics_option,
    open_index,
    reading_of,
    wanted_record,
    with_settings,
)
from hsimhash.errors import IndexExistsError, IndexNotFoundError
from hsimhash.index import HSimIndex
from hsimhash.inputs import Input, InputOptions
from hsimhash.load import IngestLimits, IngestOptions, check_options, default_job
from hsimhash.store import is_hbase, is_on_server


@click.command("ingest", short_help="Bring documents into the index.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@with_settings(
    "store", "layout", "profile", "on_duplicate", "max_distance", "max_sketch", *READING, "lock_timeout_s", "job"
)
@click.option(
    "--exclusive", is_flag=True, help="On HBase: no other process writes these documents; they are written faster."
)
@click.option("--claim", is_flag=True, help="With skip: exact while others claim too; on HBase it takes claims.")
@click.option(
    "--rate",
    type=Count(0, is_whole=False),
    metavar="N",
    help="Documents a second, at most: as they are read, or, added to HBase, as they are written.",
)
@fingerprint_field_option
@first_seen_field_option
@field_options
@click.option("--tags", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where tag writes.")
@click.option("--fresh", is_flag=True, help="Start over, whatever an earlier run left in the job folder.")
@metrics_option
@click.option("--quiet", is_flag=True, help="Show no progress.")
def ingest_command(
    settings: Settings,
    inputs: tuple[str, ...],
    exclusive: bool,
    claim: bool,
    rate: float | None,
    fingerprint_field: str | None,
    first_seen_field: str | None,
    tags: Path | None,
    fresh: bool,
    quiet: bool,
) -> ExitCode:
    """Bring the documents of each INPUT into the index, which is created if it does not exist.

    An INPUT is a file of JSON lines (.jsonl, .ndjson, .json); of id, a tab and a text or a fingerprint (.tsv); a table
    with names of columns (.parquet, .csv); a web archive (.warc, .wet); all but .parquet also as .gz or .zst; a page
    (.html, .htm); a folder of text files and pages, whose names become ids; or - for stdin. A record has up to 16 MiB.
    A URL of a file (s3://, hdfs://, https:// …), or a pattern with *, is read through fsspec.

    Of a web archive the pages and plain texts with status 200 are read, of .wet all texts. Of HTML (pages, and texts of
    tables that begin with <!doctype html or <html) the main text is taken, or with --extract none all text; what has
    none is listed in short.jsonl. Beside a fingerprint "sketch" and "key" are read, where the index has such.

    skip leaves a document out that has a match among those that came before it, in the index or in the same run; tag
    adds it, and writes the nearest of them down, with the similarity and "found_by" of 'hsimhash query'. A document of
    the index with the same id and another signature is changed. On HBase both are exact while no other process adds;
    skip with --claim also while others do, if all of them claim. On LMDB and PostgreSQL skip is exact in any case.

    The job folder has the checkpoint, the lists and, of add, what is not in the index yet. By default it is within an
    embedded index, and .hsimhash/jobs/… in the working folder for others. On HBase ?connections=N in the URL bounds how
    many write at once, and with --exclusive no other process may write the same ids, nor within 20 minutes after.

    Bad records go to a list in the job folder, and the exit code is then 7. Ctrl-C ends after the batch; the same
    command continues where any end left it, but a stream must be sent again as a whole. The summary is JSON. What an
    index has ingested is not ingested again unless with --fresh, even if documents were removed or expired since.

    \b
    Example: hsimhash ingest pages.jsonl.gz --store lmdb://pages
             zcat pages.tsv.gz | hsimhash ingest - --format tsv --on-duplicate skip
             hsimhash ingest crawl.warc.gz 's3://bucket/*.parquet' --id-field url --text-field html --store lmdb://pages
             hsimhash ingest pages.jsonl --store hbase://gw1:9091/pages --exclusive --rate 5000
    """
    _refuse_contradictions(settings, exclusive=exclusive, claim=claim)
    reading = reading_of(settings, fingerprint_field, first_seen_field)
    found = inputs_of(inputs, reading)
    options = replace(_options(settings, reading, tags, fresh=fresh, rate=rate), claims=claim)
    index = _index(settings, found, options, exclusive=exclusive)
    with index, stoppable() as stop, shown(quiet=quiet) as tell:
        summary = load.ingest(index, found, options, load.IngestObserver(stop, tell, say))
    return report(summary, is_stream=any(one.is_stream for one in found))


def _refuse_contradictions(settings: Settings, *, exclusive: bool, claim: bool) -> None:
    if exclusive and not is_hbase(settings.store):
        raise click.UsageError(f"--exclusive is for an index on HBase, and {settings.store} is not; leave it out")
    if claim and settings.on_duplicate != "skip":
        raise click.UsageError("--claim goes with --on-duplicate skip, which decides what is new; add that, or omit it")
    if claim and exclusive:
        raise click.UsageError("--claim is for several processes at once, and --exclusive for one alone; omit one")


def _options(
    settings: Settings, reading: InputOptions, tags: Path | None, *, fresh: bool, rate: float | None
) -> IngestOptions:
    return IngestOptions(
        on_duplicate=settings.on_duplicate,
        max_distance=settings.max_distance,
        max_sketch=settings.max_sketch,
        reading=reading,
        workers=settings.workers,
        job=Path(settings.job) if settings.job else None,
        tags=tags,
        fresh=fresh,
        rate=rate,
        limits=click.get_current_context().obj or IngestLimits(),  # who calls `main` may give others
    )


def _index(settings: Settings, inputs: list[Input], options: IngestOptions, *, exclusive: bool) -> HSimIndex:
    """Open the index, or make it, unless the ingest would then be refused; first check its job folder."""
    if options.job or is_on_server(settings.store):
        check_job(options.job or default_job(settings.store, inputs))
    try:
        return open_index(settings, exclusive=exclusive, is_job=True)
    except IndexNotFoundError:
        check_options(wanted_record(settings, None).layout, inputs, options)
    with suppress(IndexExistsError):  # another process was quicker
        create_index(settings)
        if "profile" not in settings.model_fields_set and any(one.has_fingerprints for one in inputs):
            say(f"fingerprints are taken for those of profile {settings.profile}; name another with --profile")
    return open_index(settings, exclusive=exclusive, is_job=True)
