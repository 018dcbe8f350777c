"""Shared code of long-running commands: the job folder, options for walking a table, Ctrl-C, the summary."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from hsimhash.cli.closing_messages import NO_DOCUMENTS, ingest_ending, say_format_hint, say_rejected
from hsimhash.cli.console import is_for_people, print_json, say
from hsimhash.cli.exit_codes import ExitCode, answering, interrupt
from hsimhash.errors import HsimhashError, StoreUnavailableError, plural
from hsimhash.index import HSimIndex
from hsimhash.load import Summary
from hsimhash.store import backend_of
from hsimhash.store.capabilities import Shard, WalksRanges

MOST_SHARDS = 10_000  # maximum number of files in an export, and of machines that share a job
_CONTINUES = (
    "run the same command again to resume",
    "send the whole stream again with the same command",
)  # indexed by `is_stream`
BATCH_S = 2.5  # time for the current batch to end after a request to stop

walk_workers_option = click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="HBase: number of reader processes. Default: one per core.",
)


class ShardType(click.ParamType[Shard]):
    """A shard of a job, such as 3/16."""

    name = "shard"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Shard:
        """Return the shard."""
        number, slash, count = str(value).partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count) <= MOST_SHARDS):
            self.fail(f"{value!r} is not a shard: expected K/N with K from 1 to N, such as 3/16", param, ctx)
        return Shard(int(number), int(count))


def shard_option(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option for this machine's shard; `what` is its help."""
    return click.option("--shard", type=ShardType(), metavar="K/N", help=f"HBase: {what}")


walk_job_option = click.option(
    "--job",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="HBase: keep the progress in DIR, to resume an interrupted run.",
)


def walks_ranges(store: str) -> bool:
    """Whether several processes walk the index at a URL in ranges, and keep a job folder."""
    return WalksRanges in backend_of(store).capabilities


def refuse_walk(store: str, *given: object) -> None:
    """Reject options for walking if the store does not walk in ranges."""
    if not walks_ranges(store) and any(one is not None for one in given):
        raise click.UsageError(f"--workers, --job and --shard are only for an index on HBase, not for {store}")


def check_job(folder: Path) -> None:
    """Reject a job folder that cannot be created or written. Call this before creating an index."""
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise click.UsageError(f"job folder {folder}: {there} is not a writable folder; choose another folder")


def report(summary: Summary, index: HSimIndex, *, is_stream: bool, as_json: bool) -> ExitCode:
    """Print the summary of a job that added documents to an index, and return the exit code."""
    if not summary.is_complete:
        place = f", after {plural(summary.counts.documents, 'document')}"
        if summary.done is not None:
            place = f" at {summary.done:.0%}{place}"
        elif not is_stream:
            place += ", which are all that the inputs have"
        say(f"interrupted{place}: {_CONTINUES[is_stream]}")
        return ExitCode.INTERRUPTED
    if is_for_people(as_json):
        first = None
        with suppress(HsimhashError):  # everything is written, so it does not matter if a server fails now
            first = next(index.documents(), None)
        ingest_ending(summary, index.url, first and first.doc_id)
    else:
        if summary.is_repeated:
            say(
                "nothing to do: these inputs were already ingested, with the counts below; pass --fresh to ingest them "
                "again"
            )
        if summary.rejects:
            say_rejected(summary.counts.rejected, summary.rejects)
        if replaced := summary.counts.replaced:
            say(f"replaced {plural(replaced, 'document')} with the same id as a later record")
        print_json(summary.to_json())
        if not summary.counts.documents:
            say(NO_DOCUMENTS)
    if summary.rejects and not summary.is_repeated and summary.counts.rejected == summary.counts.documents:
        say_format_hint(summary.rejects)
    return ExitCode.REJECTED_RECORDS if summary.counts.rejected else ExitCode.DONE


@contextmanager
def stoppable(*, is_stream: bool = False) -> Iterator[Callable[[], bool]]:
    """Stop after the current batch on Ctrl-C or SIGTERM, or at once on a second signal or after `BATCH_S`.

    If a batch is cut short, or the store fails, say how to resume.
    """
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            interrupt(number, frame)
        asked.set()
        # The batch may be waiting for the store, possibly for minutes. The next run repeats it.
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, BATCH_S)
        # Write to the descriptor directly: the signal may arrive while a message is being written.
        with suppress(OSError):
            os.write(2, b"\nhsimhash: stopping after this batch; interrupt again to stop now\n")

    with answering(ask):
        try:
            yield asked.is_set
        except KeyboardInterrupt:
            say(f"stopped in the middle of a batch: {_CONTINUES[is_stream]}")
            raise
        except StoreUnavailableError:
            say(f"stopped because of the error below; when the store works again, {_CONTINUES[is_stream]}")
            raise
