"""`hsimhash spark`: run large jobs as Spark applications."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import click

from hsimhash.cli.console import print_json, say, watching
from hsimhash.cli.dedup import clusters_options, pairs_option
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Group
from hsimhash.cli.options import Function, first_seen_field_option, fit_option, open_index, utf8, with_settings
from hsimhash.cli.stage_options import (
    check_on_hbase,
    first_load_option,
    loading_words,
    print_option,
    program_option,
    stage_option,
    tell_lines,
)
from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.dedup.options import PairsListed
from hsimhash.errors import HsimhashError, in_shell
from hsimhash.extras import install_command
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.rarity import learnt_json
from hsimhash.pairs.keep_policies import Policy
from hsimhash.progress import UNWATCHED, Observer, Progress
from hsimhash.settings import Settings
from hsimhash.store import StageOptions

_missing: ImportError | None = None
try:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from hsimhash import spark as jobs
except ImportError as error:  # only jobs need these packages, not --help
    _missing = error

_CAUSE_CHARACTERS = 600
_LOCAL = {  # settings of a session on one machine
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "hsimhash.cli.spark_workers",
    "spark.sql.shuffle.partitions": "32",  # Spark merges small partitions
    # Minimum number of partitions after merging. The default is one per core, so one slow task leaves others idle.
    "spark.sql.adaptive.coalescePartitions.minPartitionNum": "8",
}
_FEW_BYTES = 32 << 20  # up to this input size, Spark takes longer to start and plan than to run its tasks
_LOCAL_FEW = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # it would run each stage as a separate job
}
# Java's second compiler and the verification of Spark's bytecode take seconds, and do not pay off for small inputs.
_JAVA_FEW = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_LOCAL_TASK = 1 << 20  # maximum number of documents that one task clusters on this machine, in 1.5 GB
_POLL_S = 1.0  # between two checks of the tasks


def _session_options(job: Function) -> Function:
    """Add the options of a Spark session to a command. If PySpark is missing, the command raises `HsimhashError`."""

    @functools.wraps(job)
    def checked(*given: object, **named: object) -> object:
        if _missing is not None:
            raise HsimhashError(
                f"Spark needs PySpark and Java 17 or 21; install PySpark: {install_command('spark')}"
            ) from _missing
        return job(*given, **named)

    command: Function = checked
    for option in (
        click.option(
            "--driver-memory",
            default="4g",
            show_default=True,
            metavar="SIZE",
            help="Memory for the driver, unless spark-submit sets it.",
        ),
        click.option("--master", metavar="URL", help="local[8], yarn, k8s://…. Default: all cores on this machine."),
    ):
        command = option(command)
    return command


def _job_options(command: Function) -> Function:
    """Add the options of a job that writes files to a command."""
    out = click.option(
        "--out", required=True, metavar="DIR|URL", type=utf8, help="Write the results to this folder or URL."
    )
    return out(_session_options(command))


_format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "parquet", "json"]),
    default="auto",
    show_default=True,
    help="Format of the inputs. auto: JSON lines if the name ends in .jsonl or .json, else Parquet.",
)
_overwrite_option = click.option("--overwrite", is_flag=True, help="Replace existing results.")
_fingerprint_option = click.option(
    "--fingerprint-field", type=utf8, metavar="NAME", help="Read fingerprints from this column instead of texts."
)


@click.group("spark", cls=Group)
def spark_command() -> None:
    """Run dedup, fingerprinting and loading on Spark, for jobs too large for one machine.

    \b
    Example: hsimhash spark dedup pages.parquet --out pages.dedup
             spark-submit --master yarn hsimhash/__main__.py spark dedup hdfs:///pages --out hdfs:///pages.dedup

    Needs PySpark and Java 17 or 21: pip install 'hsimhash[spark]'. By default, the commands run on all cores on this
    machine. To run them on a cluster, use --master, or spark-submit with hsimhash/__main__.py, and install hsimhash in
    the Python environment of its executors.
    """


@contextmanager
def _session(master: str | None, driver_memory: str, inputs: Sequence[str]) -> Iterator[SparkSession]:
    """Yield a Spark session for a job. Spark's errors are shortened to one line."""
    builder = SparkSession.builder.appName("hsimhash").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")  # for times without a zone
    is_local = (master or "local").startswith("local")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit did not start this
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.master(master or "local[*]").config("spark.driver.memory", driver_memory)
        if is_local:
            local = _LOCAL
            if _are_few(inputs):
                local = _LOCAL | _LOCAL_FEW
                os.environ.setdefault("SPARK_SUBMIT_OPTS", _JAVA_FEW)
            for name, value in local.items():
                builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
    except (PySparkException, Py4JError) as error:
        raise HsimhashError(_cause(in_shell(error))) from error


def _are_few(inputs: Sequence[str]) -> bool:
    """Whether the inputs are small files on this machine."""
    files = [Path(name) for name in inputs]
    return all(one.is_file() for one in files) and sum(one.stat().st_size for one in files) <= _FEW_BYTES


@contextmanager
def _watching(spark: SparkSession, *, quiet: bool) -> Iterator[Observer]:
    """Yield an observer that shows the current stage of a job, and how many of its tasks are done."""
    tracker, is_over, now = spark.sparkContext.statusTracker(), Event(), Progress("read")
    with watching(now.stage, quiet=quiet) as shown, ThreadPoolExecutor(1) as pool:

        def begin(stage: Progress) -> None:
            nonlocal now
            now = stage

        def poll() -> None:
            while not is_over.wait(_POLL_S):
                known = [tracker.getStageInfo(one) for one in tracker.getActiveStageIds()]
                running = [one for one in known if one is not None]
                done = sum(one.numCompletedTasks for one in running)
                if running:
                    shown.report(now.stage, done, sum(one.numTasks for one in running))

        pool.submit(poll)
        try:
            yield Observer(progress=begin, say=shown.say)
        finally:
            is_over.set()


def _cause(text: str) -> str:
    """Return the message of a Spark error, without stack traces."""
    if "JAVA_GATEWAY_EXITED" in text:
        return "Java did not start: Spark needs Java 17 or 21; install it, or set JAVA_HOME"
    lines = [line.strip().removeprefix("Caused by: ") for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if re.match(r"[\w.]+(Error|Exception): |\[USER_RAISED_EXCEPTION\]", line)]
    return (ours[-1] if ours else lines[0] if lines else "Spark failed")[:_CAUSE_CHARACTERS]


@spark_command.command("dedup", short_help="Find near-duplicates in files, and choose which to keep.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@with_settings("profile", "max_distance", "max_sketch", "id_field", "text_field")
@_fingerprint_option
@_format_option
@clusters_options
@pairs_option
@click.option("--keep", type=utf8, multiple=True, metavar="POLICY", help="Document to keep: see 'hsimhash dedup'.")
@fit_option
@_overwrite_option
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
@_job_options
def spark_dedup_command(
    settings: Settings,
    inputs: tuple[str, ...],
    fingerprint_field: str | None,
    form: str,
    clusters: str,
    max_cluster_size: int | None,
    pairs: PairsListed,
    keep: tuple[str, ...],
    fit: str,
    overwrite: bool,
    quiet: bool,
    out: str,
    master: str | None,
    driver_memory: str,
) -> ExitCode:
    """Find near-duplicates in Parquet or JSON lines, and choose which documents to keep.

    \b
    Example: hsimhash spark dedup pages.parquet --out pages.dedup
             hsimhash spark dedup 's3a://crawl/*.parquet' --out s3a://crawl-dedup --keep newest:date --master yarn

    The results are the same as those of 'hsimhash dedup', except that documents that only share a key are compared by
    their sketches, not by their texts. INPUTs are files, folders, globs or URLs that Spark can read. The results are
    Parquet folders: pairs, clusters, keep, drop, rejects, short and stats, which is written last. If records are
    rejected, the exit code is 7.
    """
    policies = tuple(map(Policy.parse, keep or ("first",)))
    records = replace(_reading(settings, form, fingerprint_field, settings.profile), keep=policies)
    distance = DEFAULT_DISTANCE if settings.max_distance is None else settings.max_distance
    options = jobs.SparkDedupOptions(distance, settings.max_sketch, clusters, max_cluster_size, pairs, fit=fit)
    with _session(master, driver_memory, inputs) as spark, _watching(spark, quiet=quiet) as observer:
        if re.fullmatch(r"local(\[.*\])?", spark.sparkContext.master):
            options = replace(options, limits=replace(options.limits, single_task=_LOCAL_TASK))
        summary = jobs.dedup_files(spark, inputs, out, records, options, overwrite=overwrite, observer=observer)
    print_json({**summary.to_json(), "out": out})
    rejected = summary.totals.rejected
    if rejected:
        say(f"{rejected:,} records rejected, see {out}/rejects")
    return ExitCode.REJECTED_RECORDS if rejected else ExitCode.DONE


@spark_command.command("tables", short_help="Write documents as a read-only index.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@with_settings("layout", "profile", "id_field", "text_field")
@_fingerprint_option
@_format_option
@fit_option
@click.option("--compress", is_flag=True, help="Use less space. Queries take longer.")
@_job_options
def spark_tables_command(
    settings: Settings,
    inputs: tuple[str, ...],
    fingerprint_field: str | None,
    form: str,
    fit: str,
    compress: bool,
    out: str,
    master: str | None,
    driver_memory: str,
) -> ExitCode:
    """Write documents as tables: a read-only index, as written by 'hsimhash export --to'.

    \b
    Example: hsimhash spark tables pages.parquet --out pages.tables
             hsimhash spark tables 'hdfs:///fps/*.parquet' --fingerprint-field fp --out hdfs:///tables --master yarn
             hsimhash query --text "some text" --store tables://pages.tables

    The folder must be new or empty. If it is not on a disk of the machine that runs the queries, copy it there. Each
    task writes a part of about 4 million documents. Word weights are learnt from the INPUTs and stored, as with
    'hsimhash ingest' for a new index. If an id occurs twice, the first document is kept.
    """
    options = _reading(settings, form, fingerprint_field, settings.profile)
    with _session(master, driver_memory, inputs) as spark:
        jobs.check_new_tables(out)
        profile = jobs.fitted_to_files(spark, inputs, options, fit, UNWATCHED)
        read = jobs.read_documents(spark, inputs, replace(options, profile=profile))
        manifest = jobs.write_tables(read.documents, out, layout=settings.layout, profile=profile, compress=compress)
        rejected = read.rejected
    print_json(
        {
            "documents": manifest.documents,
            "parts": len(manifest.parts),
            "layout": manifest.record.layout.name,
            "profile": profile.name,
            **learnt_json(profile.learnt),
        }
    )
    return _told(rejected)


@spark_command.command("bulk-load", short_help="Load documents into HBase as HFiles.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@with_settings("store", "layout", "profile", "id_field", "text_field")
@stage_option
@first_load_option
@program_option
@print_option
@_fingerprint_option
@first_seen_field_option
@_format_option
@_session_options
def spark_bulk_load_command(
    settings: Settings,
    inputs: tuple[str, ...],
    stage: str,
    first_load: bool,
    hbase_command: str,
    print_commands: bool,
    fingerprint_field: str | None,
    first_seen_field: str | None,
    form: str,
    master: str | None,
    driver_memory: str,
) -> ExitCode:
    """Load documents from Parquet or JSON lines into an index on HBase, as 'hsimhash bulk-load' does.

    \b
    Example: hsimhash spark bulk-load pages.parquet --store hbase://gw1:9091/pages --stage /data/stage
             hsimhash spark bulk-load 'hdfs:///pages/*.parquet' --stage hdfs://nn/tmp/stage --master yarn

    Tasks write HFiles to the stage, which the driver, the executors and the region servers must be able to open.
    Executors compare the documents with the table through its gateways. The driver then runs HBase's own loader; with
    --print-commands, it prints the commands instead. Run the same command again to resume, even on another machine. If
    an id occurs twice, the last document is kept.
    """
    check_on_hbase(settings.store)
    words, told = loading_words(stage, hbase_command, is_run=not print_commands), list[str]()
    options = StageOptions(stage, words, first_load, tell_commands=told.extend if print_commands else None)
    with open_index(settings, is_job=True) as index:
        reading = _reading(settings, form, fingerprint_field, index.profile)
    with _session(master, driver_memory, inputs) as spark:
        records = replace(reading, first_seen_field=first_seen_field)
        totals = jobs.bulk_load_files(spark, inputs, settings.store, records, options, Observer(say=say))
    if totals is None:
        return tell_lines(told)
    print_json(totals.to_json())
    return _told(totals.rejected)


@spark_command.command("fingerprint", short_help="Write the fingerprint of each document.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@with_settings("profile", "id_field", "text_field")
@_format_option
@_overwrite_option
@_job_options
def spark_fingerprint_command(
    settings: Settings,
    inputs: tuple[str, ...],
    form: str,
    overwrite: bool,
    out: str,
    master: str | None,
    driver_memory: str,
) -> ExitCode:
    """Write the fingerprint of each document as Parquet.

    \b
    Example: hsimhash spark fingerprint pages.parquet --out pages.fingerprints

    The columns are id, fingerprint, sketch, key and kind. Fingerprints are signed bigints with the same 64 bits as
    in all other commands.
    """
    options = _reading(settings, form, None, settings.profile)
    with _session(master, driver_memory, inputs) as spark:
        jobs.check_place(spark, out, inputs, overwrite=overwrite)
        read = jobs.read_documents(spark, inputs, options)
        columns = "id", "fingerprint", "sketch", "key", "kind"
        read.documents.select(*columns).write.mode(jobs.write_mode(overwrite=overwrite)).parquet(out)
        rejected = read.rejected
    return _told(rejected)


def _reading(
    settings: Settings, form: str, fingerprint_field: str | None, profile: Profile | str
) -> jobs.RecordOptions:
    names = settings.id_field or "id", settings.text_field, fingerprint_field
    return jobs.RecordOptions(Profile.named(profile) if isinstance(profile, str) else profile, form, *names)


def _told(rejected: int) -> ExitCode:
    if rejected:
        say(f"{rejected:,} records rejected; run 'hsimhash spark dedup' to list them")
    return ExitCode.REJECTED_RECORDS if rejected else ExitCode.DONE
