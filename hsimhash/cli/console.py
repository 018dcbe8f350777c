"""Print JSON lines, tables, numbers, dates, progress and the log."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from shutil import get_terminal_size

import click

from hsimhash.cli.standard_streams import writing_stdout
from hsimhash.errors import plural
from hsimhash.progress import UNWATCHED, Observer, Progress

PROGRESS_INTERVAL_S = 10.0  # between two progress lines if stderr is not a terminal
_TITLES = {
    "read": "reading",
    "fit": "learning which words are rare",
    "find": "finding pairs",
    "match": "matching",
    "cluster": "clustering",
    "compare": "comparing",
    "merge": "merging",
    "write": "writing",
}
WIDE_COLUMNS = 110  # minimum width of a terminal for wide tables
PIPED_COLUMNS = 1_000  # table width if stdout is not a terminal: wide enough not to break lines
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def say(text: str) -> None:
    """Print a message for the user on stderr."""
    click.echo(f"hsimhash: {text}", err=True)


def print_line(text: str) -> None:
    """Print a line of results, without colours, because other programs read it."""
    with writing_stdout():
        print(text)


def send() -> None:
    """Flush stdout, because the sender of the requests may be waiting for these answers."""
    with writing_stdout():
        sys.stdout.flush()


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    print_line(json.dumps(value, ensure_ascii=False))


def is_for_people(as_json: bool) -> bool:
    """Whether to print for people: stdout is a terminal, and --json was not passed."""
    return not as_json and sys.stdout.isatty()


def print_fields(fields: Mapping[str, object]) -> None:
    """Print names and values for people, one pair per line, values aligned."""
    rows = list(_flat(fields))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print_line(f"{name:{width}}  {value}")


def _flat(fields: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield names and values. Each item of a dict value is yielded separately."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield prefix + name.replace("_", " "), _shown(name, value)


def _shown(name: str, value: object) -> str:
    """Format a value for people. Names of values in bytes end in `_bytes`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return size(value) if name.endswith("_bytes") else f"{value:,}"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def is_narrow() -> bool:
    """Whether stdout is a terminal too narrow for wide tables."""
    return sys.stdout.isatty() and get_terminal_size().columns < WIDE_COLUMNS


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str | None = None) -> None:
    """Print a table; columns whose names end in `>` are right-aligned. Nothing is truncated."""
    from rich import box, console, table  # imported here because only tables need them

    width = None if sys.stdout.isatty() else PIPED_COLUMNS
    shown = table.Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        shown.add_column(name.removesuffix(">"), justify="right" if name.endswith(">") else "left", overflow="fold")
    for row in rows:
        shown.add_row(*row)
    with writing_stdout():
        console.Console(markup=False, emoji=False, highlight=False, width=width).print(shown)


def iso_time(milliseconds: int) -> str:
    """Format ms since 1970 as an ISO 8601 time in UTC, to the second; beyond the year 9999, return the number."""
    try:
        return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def size(count: int) -> str:
    """Format a number of bytes for people: 24.0 KiB."""
    value, unit = float(count), 0
    while value >= 1024 and unit + 1 < len(_UNITS):
        value, unit = value / 1024, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if unit else f"{count} bytes"


@contextmanager
def watching(stage: str, stop: Callable[[], bool] = UNWATCHED.stop, *, quiet: bool = False) -> Iterator[Observer]:
    """Yield an observer that prints a job's messages and, unless `quiet`, its progress.

    Progress is a bar if stderr is a terminal, otherwise a line every 10 s.
    """
    if quiet or not sys.stderr.isatty():
        yield Observer(stop, UNWATCHED.progress if quiet else progress_lines(), say)
        return
    from rich import console, progress

    columns = (*progress.Progress.get_default_columns(), progress.TextColumn("{task.fields[words]}"))
    # Without `redirect_stdout=False`, rich would wrap stdout and print it on the terminal, even if stdout is a file.
    shown = progress.Progress(*columns, console=console.Console(stderr=True), transient=True, redirect_stdout=False)
    with shown as bar:
        task, in_words = bar.add_task(_title(stage), total=None, words=""), _wording()
        yield Observer(
            stop,
            lambda one: bar.update(
                task, description=_title(one.stage), completed=one.done, total=one.total or None, words=in_words(one)
            ),
            say,
        )


def progress_lines(interval_s: float = PROGRESS_INTERVAL_S) -> Callable[[Progress], None]:
    """Return a function that prints the progress of a job, at most one line per `interval_s`."""
    told_at, in_words = time.monotonic(), _wording()

    def show(one: Progress) -> None:
        nonlocal told_at
        words = in_words(one)
        if time.monotonic() - told_at >= interval_s:
            told_at = time.monotonic()
            shares = [f"{one.done / one.total:.0%}"] if one.total else []
            say(f"{_title(one.stage)}: {', '.join(filter(None, [*shares, words]))}")

    return show


def _title(stage: str) -> str:
    return _TITLES.get(stage, stage)


def _wording() -> Callable[[Progress], str]:
    """Return a function that describes progress; while reading, also in documents per second since its first call."""
    began: tuple[float, int] | None = None

    def words(one: Progress) -> str:
        nonlocal began
        if not one.documents:
            return f"{one.done:,} of {one.total:,}" if one.total else ""
        began = began or (time.monotonic(), one.documents)
        seconds, documents = time.monotonic() - began[0], one.documents - began[1]
        rate = f", {documents / seconds if seconds else 0:,.0f}/s" if one.stage == "read" else ""
        return plural(one.documents, "document") + rate

    return words


def log_to_stderr(verbosity: int) -> None:
    """Log the messages of the `hsimhash` loggers to stderr: warnings with verbosity 0, info with 1, details with 2."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    logger = logging.getLogger("hsimhash")
    logger.handlers = [handler]  # a single handler, even if a process runs many commands
    logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)])
