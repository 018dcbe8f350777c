"""`hsimhash bulk-load`: documents into an index on HBase by files that its servers take over."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from hsimhash import load
from hsimhash.cli.console import say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.jobs import check_job, report, shown, stoppable
from hsimhash.cli.options import (
    READING,
    Settings,
    field_options,
    fingerprint_field_option,
    first_seen_field_option,
    inputs_of,
    metrics_option,
    open_index,
    reading_of,
    with_settings,
)
from hsimhash.cli.stages import (
    check_on_hbase,
    first_load_option,
    memory_option,
    print_option,
    program_option,
    stage_option,
    stage_options,
    tell_lines,
)
from hsimhash.inputs import Input
from hsimhash.load import IngestLimits, IngestOptions, default_job

_RUN_BYTES = 500  # of memory, about, of each document of a run that is sorted


@click.command("bulk-load", short_help="Load documents into HBase by finished files.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@with_settings("store", "layout", "profile", *READING, "job")
@stage_option
@first_load_option
@program_option
@print_option
@memory_option
@fingerprint_field_option
@first_seen_field_option
@field_options
@click.option("--fresh", is_flag=True, help="Start over, whatever an earlier run left in the job folder.")
@metrics_option
@click.option("--quiet", is_flag=True, help="Show no progress.")
def bulk_load_command(
    settings: Settings,
    inputs: tuple[str, ...],
    stage: str,
    first_load: bool,
    hbase_command: str,
    print_commands: bool,
    memory_mib: int,
    fingerprint_field: str | None,
    first_seen_field: str | None,
    fresh: bool,
    quiet: bool,
) -> ExitCode:
    """Bring the documents of each INPUT into an index on HBase by files, many times as fast as 'hsimhash ingest'.

    INPUTs are those of 'hsimhash ingest'. Their documents are sorted in the job folder and written as HFiles into the
    stage. Then HBase's own BulkLoadHFilesTool hands the files to the region servers, which serve them at once: first
    the rows, and when all are there the registers, so no query sees half a document.

    The index may be used meanwhile. Where others change a document of INPUTs after the load began, their change stays,
    as far as the servers' clocks agree. Documents that are there as they should be keep their first_seen, and their
    rows are not written again; to find them the registers of all INPUTs' ids are read, unless the index is empty or
    --first-load says that it has none of them. Of an id that comes twice the last one counts. The same command
    continues where any end left it, but a stream must be sent again as a whole.

    With --print-commands the two commands are printed instead of run; run this command again after them.

    \b
    Example: hsimhash bulk-load pages.jsonl.gz --store hbase://gw1:9091/pages --stage /data/stage
             hsimhash bulk-load fps.tsv --format fingerprints --store hbase://gw1:9091/pages --stage hdfs://nn/tmp/stage
    """
    check_on_hbase(settings.store)
    reading = reading_of(settings, fingerprint_field, first_seen_field)
    found = inputs_of(inputs, reading)
    is_stream = any(one.is_stream for one in found)
    if print_commands and is_stream:
        raise click.UsageError("--print-commands needs INPUTs that can be read again, no stream; write it to a file")
    job = _job_folder(settings, found, stage)
    told, workers = list[str](), settings.workers or os.cpu_count() or 1
    tell = told.extend if print_commands else None
    staged = stage_options(stage, hbase_command, memory_mib, workers, is_first=first_load, tell_commands=tell)
    usual = IngestLimits(run_documents=(memory_mib << 20) // _RUN_BYTES // max(workers, 2))
    limits = click.get_current_context().obj or usual
    options = IngestOptions(reading=reading, workers=workers, job=job, fresh=fresh, stage=staged, limits=limits)
    showing = shown(quiet=quiet, merging="writing files")
    with open_index(settings, is_job=True) as index, stoppable() as stop, showing as show:
        summary = load.ingest(index, found, options, load.IngestObserver(stop, show, say))
    if told:
        return tell_lines(told)
    return report(summary, is_stream=is_stream)


def _job_folder(settings: Settings, inputs: Sequence[Input], stage: str) -> Path:
    """Return the job's folder; refuse one that cannot be written, or that is the stage."""
    job = Path(settings.job) if settings.job else default_job(settings.store, inputs)
    check_job(job)
    if "://" not in stage and Path(stage).absolute() == job.absolute():
        raise click.UsageError(f"--stage and --job are one folder, {stage}; choose another for one of them")
    return job
