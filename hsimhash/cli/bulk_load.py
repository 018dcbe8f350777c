"""`hsimhash bulk-load`: load documents into an index on HBase as HFiles."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from hsimhash import load
from hsimhash.cli.console import watching
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.jobs import check_job, report, stoppable
from hsimhash.cli.options import (
    READING,
    field_options,
    fingerprint_field_option,
    first_seen_field_option,
    inputs_of,
    json_option,
    metrics_option,
    open_index,
    reading_of,
    with_settings,
)
from hsimhash.cli.stage_options import (
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
from hsimhash.settings import Settings

_RUN_BYTES = 500  # approximate memory per document while a run is sorted


@click.command("bulk-load", cls=Command)
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
@click.option("--fresh", is_flag=True, help="Start over, even if an earlier run made progress or finished.")
@json_option
@metrics_option
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
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
    as_json: bool,
    quiet: bool,
) -> ExitCode:
    """Load documents into an index on HBase as HFiles, many times faster than 'hsimhash ingest'.

    \b
    Example: hsimhash bulk-load pages.jsonl.gz --store hbase://gw1:9091/pages --stage /data/stage
             hsimhash bulk-load fps.tsv --format fingerprints --store hbase://gw1:9091/pages --stage hdfs://nn/tmp/stage

    Accepts the same INPUTs as 'hsimhash ingest'. bulk-load sorts their documents in the job folder and writes them as
    HFiles to the stage. HBase's own BulkLoadHFilesTool then hands the files to the region servers, which serve them
    immediately. The rows are loaded first and the registers last, so no query sees a partial document.

    You can use the index during the load. If another process changes one of these documents after the load has started,
    its change wins, provided that the servers' clocks agree. Documents that are already stored keep their first_seen.
    To find them, bulk-load reads the registers of all ids, unless the index is empty or you pass --first-load. If an id
    occurs twice, the last document is kept. Run the same command again to resume; send a stream again from its
    beginning.

    Texts are fingerprinted with the index's profile. To use word weights that 'hsimhash fit' learnt from your own
    texts, create the index with --profile auto-3:rarity=TABLE.

    With --print-commands, bulk-load prints the two commands that load the files instead of running them. Run them, then
    run bulk-load again.
    """
    check_on_hbase(settings.store)
    reading = reading_of(settings, fingerprint_field, first_seen_field, settings.store)
    found = inputs_of(inputs, reading)
    is_stream = any(one.is_stream for one in found)
    if print_commands and is_stream:
        raise click.UsageError("--print-commands needs inputs that can be read twice; save the stream to a file first")
    job = _job_folder(settings, found, stage)
    told, workers = list[str](), settings.workers or os.cpu_count() or 1
    tell = told.extend if print_commands else None
    staged = stage_options(stage, hbase_command, memory_mib, workers, is_first=first_load, tell_commands=tell)
    limits = _limits(memory_mib, workers)
    options = IngestOptions(reading=reading, workers=workers, job=job, fresh=fresh, stage=staged, limits=limits)
    with open_index(settings, is_job=True) as index, stoppable() as stop:
        with watching("read", stop, quiet=quiet) as observer:
            summary = load.ingest(index, found, options, observer)
        if not told:
            return report(summary, index, is_stream=is_stream, as_json=as_json)
    return tell_lines(told)


def _limits(memory_mib: int, workers: int) -> IngestLimits:
    """Return the limits that a caller of `main` passed, or limits for this much memory."""
    given: IngestLimits | None = click.get_current_context().obj
    return given or IngestLimits(run_documents=(memory_mib << 20) // _RUN_BYTES // max(workers, 2))


def _job_folder(settings: Settings, inputs: Sequence[Input], stage: str) -> Path:
    """Return the job folder; reject one that cannot be written, or that is the stage."""
    job = Path(settings.job) if settings.job else default_job(settings.store, inputs)
    check_job(job)
    if "://" not in stage and Path(stage).absolute() == job.absolute():
        raise click.UsageError(f"--stage and --job are the same folder, {stage}; choose another folder for one of them")
    return job
