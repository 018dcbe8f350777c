"""`hsimhash ingest`: add documents from files, folders or stdin to an index."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import click

from hsimhash import load
from hsimhash.cli.console import say, watching
from hsimhash.cli.count_type import Count
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.jobs import check_job, report, stoppable
from hsimhash.cli.options import (
    READING,
    create_index,
    exclusive_option,
    field_options,
    fingerprint_field_option,
    first_seen_field_option,
    fit_option,
    inputs_of,
    json_option,
    metrics_option,
    open_index,
    reading_of,
    refuse_memory,
    wanted_record,
    with_settings,
)
from hsimhash.cli.output_files import JSON_LINES, refuse_format
from hsimhash.errors import IndexExistsError, IndexNotFoundError, ProfileMismatchError
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.rarity import FIT_AUTO, FIT_OFF
from hsimhash.index import HSimIndex
from hsimhash.inputs import Input, InputOptions
from hsimhash.load import IngestLimits, IngestOptions, check_options, default_job
from hsimhash.load.fitting import fitted_profile
from hsimhash.settings import Settings
from hsimhash.store import backend_of


@click.command("ingest", cls=Command)
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@with_settings(
    "store", "layout", "profile", "on_duplicate", "max_distance", "max_sketch", *READING, "lock_timeout_s", "job"
)
@exclusive_option
@click.option(
    "--claim",
    is_flag=True,
    help="With --on-duplicate skip: keep results exact while other processes write with --claim.",
)
@click.option(
    "--rate",
    type=Count(0, is_whole=False),
    metavar="N",
    help="Add at most N documents per second.",
)
@fingerprint_field_option
@first_seen_field_option
@field_options
@fit_option
@click.option(
    "--tags",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --on-duplicate skip or tag: list the matches in FILE. Default: tags.jsonl in the job folder.",
)
@click.option("--fresh", is_flag=True, help="Start over, even if an earlier run made progress or finished.")
@json_option
@metrics_option
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
def ingest_command(
    settings: Settings,
    inputs: tuple[str, ...],
    claim: bool,
    rate: float | None,
    fingerprint_field: str | None,
    first_seen_field: str | None,
    fit: str,
    tags: Path | None,
    fresh: bool,
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Add documents from files to an index. Creates the index if needed.

    \b
    Example: hsimhash ingest pages.jsonl.gz --store lmdb://pages
             hsimhash ingest pages/ --store lmdb://pages --on-duplicate skip
             zcat pages.tsv.gz | hsimhash ingest - --format tsv --store lmdb://pages
             hsimhash ingest crawl.warc.gz 's3://bucket/*.parquet' --id-field url --text-field html --store lmdb://pages
             hsimhash ingest pages.jsonl --store hbase://gw1:9091/pages --rate 5000

    An INPUT is a text (.txt, .md) or web page (.html); JSON lines or a JSON array (.jsonl, .json); a table with column
    names (.csv, .parquet); lines with an id, a tab, and a text or fingerprint (.tsv); a web archive (.warc, .wet); a
    folder of any of these; or - for stdin. All formats except Parquet can be compressed (.gz, .zst, .bz2, .xz). URLs
    such as s3://, hdfs:// and https://, and patterns with *, are read through fsspec. A record can be up to 16 MiB in
    size.

    For HTML pages, only the main text is used, or all visible text with --extract none. Pages without text are listed
    in short.jsonl. From web archives, ingest reads pages and plain texts with status 200, and all texts in .wet files.

    By default, all documents are added, and they become visible when the command ends. With --on-duplicate skip, a
    document is left out if it is near an earlier document in the index or in this run. With tag, it is added. Both
    write the document's nearest match to a file (see --tags). A document whose id is already in the index replaces the
    stored one.

    On LMDB and PostgreSQL, skip and tag are always exact. On HBase and Redis, they are exact as long as no other
    process writes. With --claim, skip is exact as long as all writers use --claim.

    With profiles such as auto-3, ingest learns how rare each word is when it creates an index; it reads the INPUTs
    twice to do so. It does not learn from streams or from fewer than 100 documents. The learnt weights do not change
    when you add documents later. --fit TABLE fails if the index exists and uses a different table.

    Run the same command again to resume after an interruption; send a stream again from its beginning. Repeating a
    finished job does nothing, even if documents have been removed or have expired since, unless you pass --fresh. The
    job folder holds the checkpoint and the lists. It is inside an embedded index; for other stores, it is below
    .hsimhash/jobs. Invalid records are listed there in rejects.jsonl, and the exit code is 7.
    """
    _refuse_contradictions(settings, tags, claim=claim)
    reading = reading_of(settings, fingerprint_field, first_seen_field, settings.store)
    found = inputs_of(inputs, reading)
    options = replace(_options(settings, reading, tags, fresh=fresh, rate=rate), claims=claim)
    with _index(settings, found, options, fit, quiet=quiet) as index:
        if options.on_duplicate == "add" and settings.max_distance not in (None, index.distance):
            say(f"the index keeps its distance of {index.distance}; here, --distance is only for skip and tag")
        return _ingest(index, found, options, quiet=quiet, as_json=as_json)


def _ingest(index: HSimIndex, inputs: list[Input], options: IngestOptions, *, quiet: bool, as_json: bool) -> ExitCode:
    is_stream = any(one.is_stream for one in inputs)
    with stoppable(is_stream=is_stream) as stop:
        with watching("read", stop, quiet=quiet) as observer:
            summary = load.ingest(index, inputs, options, observer)
        return report(summary, index, is_stream=is_stream, as_json=as_json)


def _refuse_contradictions(settings: Settings, tags: Path | None, *, claim: bool) -> None:
    if tags is not None:
        refuse_format(str(tags), "--tags", JSON_LINES)
    if claim and settings.on_duplicate != "skip":
        raise click.UsageError("--claim needs --on-duplicate skip; add it, or leave --claim out")


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
        limits=click.get_current_context().obj or IngestLimits(),  # a caller of `main` may pass others
    )


def _index(settings: Settings, inputs: list[Input], options: IngestOptions, fit: str, *, quiet: bool) -> HSimIndex:
    """Check the job folder, then open the index, or create it unless it would not suit the inputs and options."""
    backend = backend_of(settings.store)
    backend.refuse_writes(settings.store)
    if options.job or not backend.is_embedded:
        check_job(options.job or default_job(settings.store, inputs))
    try:
        return _opened(settings, fit)
    except IndexNotFoundError:
        check_options(wanted_record(settings, None).layout, inputs, options)
    refuse_memory(settings)
    asked = Profile.named(settings.profile)
    try:
        with watching("fit", quiet=quiet) as observer:
            profile = fitted_profile(inputs, options.reading, asked, fit, workers=settings.workers, observer=observer)
    except KeyboardInterrupt:
        say("stopped while learning word weights: the index was not created yet; run the same command again")
        raise
    with suppress(IndexExistsError):  # another process created it first
        create_index(settings, profile=profile)
        if profile.learnt:
            say(f"word weights: {profile.learnt}")
        elif fit == FIT_AUTO and asked.can_be_fitted and not any(one.has_fingerprints for one in inputs):
            is_stream = any(one.is_stream for one in inputs)
            why = "a stream cannot be read twice" if is_stream else "there are too few documents to learn from"
            say(f"word weights: those of general text, because {why}; the index keeps them")
        if "profile" not in settings.given and any(one.has_fingerprints for one in inputs):
            say(f"assuming that the fingerprints were made with profile {profile.name}; pass --profile if not")
    return _opened(settings, fit)


def _opened(settings: Settings, fit: str) -> HSimIndex:
    """Open the index. If `fit` names a file, the index must use the rarity table in that file."""
    index = open_index(settings, is_job=True)
    if fit in (FIT_AUTO, FIT_OFF):
        return index
    try:
        wanted = fitted_profile([], InputOptions(), index.profile, fit)
        if wanted.rarity != index.profile.rarity:
            raise ProfileMismatchError(
                f"{index.url} has profile {index.profile.name}, but {fit} is not its rarity table: documents with "
                f"other weights would not be found; omit --fit, or create another index"
            )
    except BaseException:
        index.close()
        raise
    return index
