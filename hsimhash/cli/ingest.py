"""`hsimhash ingest`: documents from files, folders or stdin into the index."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import PROGRESS_INTERVAL_S, plural, print_json, say
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import create_index, open_index, with_settings
from hsimhash.cli.streams import check_stdin
from hsimhash.errors import IndexExistsError, IndexNotFoundError

if TYPE_CHECKING:
    from hsimhash.index import HSimIndex
    from hsimhash.load import IngestOptions, Input, InputOptions, Progress, Summary
    from hsimhash.settings import Settings

Tell = Callable[["Progress"], None]

_STAGES = {"read": "reading", "merge": "merging"}


@click.command(short_help="Bring documents into the index.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@with_settings(
    "store",
    "layout",
    "profile",
    "on_duplicate",
    "max_distance",
    "format",
    "id_field",
    "text_field",
    "workers",
    "lock_timeout_s",
    "job",
)
@click.option("--fingerprint-field", metavar="NAME", help="The JSON field with a fingerprint, read instead of a text.")
@click.option(
    "--first-seen-field",
    metavar="NAME",
    help="The JSON field with ms since 1970 or an ISO 8601 time; with fingerprints it is first_seen by default.",
)
@click.option("--tags", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where tag writes.")
@click.option("--fresh", is_flag=True, help="Start over, whatever an earlier run left in the job folder.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def ingest(
    settings: Settings,
    inputs: tuple[str, ...],
    fingerprint_field: str | None,
    first_seen_field: str | None,
    tags: Path | None,
    fresh: bool,
    quiet: bool,
) -> ExitCode:
    """Bring the documents of each INPUT into the index, which is made if there is none.

    An INPUT is a file of JSON lines (.jsonl, .ndjson, .json); of id, a tab and a text or a fingerprint (.tsv); either
    also as .gz or .zst; a folder of text files, whose names become ids; or - for stdin. A record has up to 16 MiB.

    skip leaves a document out that has a match, in the index or earlier in the same run; tag adds it, and writes its
    nearest earlier match down. A document of the index with the same id and another fingerprint is moved.

    Bad records go to a list in the job folder, and the exit code is then 7. Ctrl-C ends after the batch; the same
    command goes on where any end left it. At last a summary is printed as JSON.

    \b
    Example: hsimhash ingest pages.jsonl.gz --store lmdb://pages
             zcat pages.tsv.gz | hsimhash ingest - --format tsv --on-duplicate skip
    """
    from hsimhash.load import InputOptions, find_inputs

    reading = InputOptions(settings.format, settings.id_field, settings.text_field, fingerprint_field, first_seen_field)
    if "-" in inputs:
        check_stdin()
    found = find_inputs(inputs, reading)
    options = _options(settings, reading, tags, fresh=fresh)
    for note in (one.note for one in found if one.note):
        say(note)
    with _index(settings) as index:
        summary = _run(index, found, options, quiet=quiet)
    return _report(summary, is_stream=any(one.is_stream for one in found))


def _options(settings: Settings, reading: InputOptions, tags: Path | None, *, fresh: bool) -> IngestOptions:
    from hsimhash.load import IngestOptions

    return IngestOptions(
        on_duplicate=settings.on_duplicate,
        max_distance=settings.max_distance,
        reading=reading,
        workers=settings.workers,
        job=Path(settings.job) if settings.job else None,
        tags=tags,
        fresh=fresh,
    )


def _index(settings: Settings) -> HSimIndex:
    """Open the index, or make it."""
    try:
        return open_index(settings)
    except IndexNotFoundError:
        pass
    try:
        index = create_index(settings)
    except IndexExistsError:  # another process was quicker
        return open_index(settings)
    say(f"made {settings.store} with layout {settings.layout} and profile {settings.profile}")
    return index


def _run(index: HSimIndex, inputs: list[Input], options: IngestOptions, *, quiet: bool) -> Summary:
    from hsimhash import load

    with _stoppable() as stop, _shown(quiet=quiet) as tell:
        return load.ingest(index, inputs, options, load.Observer(stop, tell, say))


def _report(summary: Summary, *, is_stream: bool) -> ExitCode:
    if not summary.is_complete:
        place = "" if summary.done is None else f" at {summary.done:.0%}"
        how = "with the same input goes on, with an empty one it finishes" if is_stream else "goes on"
        say(f"interrupted{place}, after {plural(summary.counts.documents, 'document')}: the same command {how}")
        return ExitCode.INTERRUPTED
    if summary.is_repeated:
        say("nothing to do, these inputs were ingested already; --fresh ingests again")
    if summary.rejects:
        say(f"{plural(summary.counts.rejected, 'record')} rejected, see {summary.rejects}")
    print_json(summary.to_json())
    return ExitCode.REJECTED_RECORDS if summary.counts.rejected else ExitCode.DONE


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C or SIGTERM ask to end after the batch, and the second end at once."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            signal.default_int_handler(number, frame)
        asked.set()
        # Straight to the file: the signal may come while a message is being written.
        os.write(2, b"\nhsimhash: ending after this batch; once more ends at once\n")

    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _shown(*, quiet: bool) -> Iterator[Tell]:
    """Show progress: a bar on a terminal, elsewhere a line every 10 s."""
    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    else:
        yield _lines()


@contextmanager
def _bar() -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[documents]:,} documents, {task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None, documents=0, rate=0)
        rate = _rate()

        def tell(progress: Progress) -> None:
            bar.update(
                task,
                description=_STAGES[progress.stage],
                completed=progress.done,
                total=progress.total or None,
                documents=progress.documents,
                rate=rate(progress.documents),
            )

        yield tell


def _lines() -> Tell:
    told_at = time.monotonic()
    rate = _rate()

    def tell(progress: Progress) -> None:
        nonlocal told_at
        per_second = rate(progress.documents)
        if time.monotonic() - told_at >= PROGRESS_INTERVAL_S:
            told_at = time.monotonic()
            share = f" {progress.done / progress.total:.0%}," if progress.total else ""
            documents = plural(progress.documents, "document")
            say(f"{_STAGES[progress.stage]}:{share} {documents}, {per_second:,.0f}/s")

    return tell


def _rate() -> Callable[[int], float]:
    """Return a function that tells documents per second since it was first told a number of documents."""
    began: tuple[float, int] | None = None

    def rate(documents: int) -> float:
        nonlocal began
        began = began or (time.monotonic(), documents)
        seconds = time.monotonic() - began[0]
        return (documents - began[1]) / seconds if seconds else 0.0

    return rate
