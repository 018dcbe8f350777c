"""The last lines that a command prints on a terminal: what it did, where the results are, and what to run next."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hsimhash.cli.console import print_line, say
from hsimhash.cli.output_files import PACKED_OUTPUTS
from hsimhash.errors import plural
from hsimhash.inputs.files import COPIED_KINDS, Input, InputOptions, suffix_of
from hsimhash.inputs.lines import STDIN, packing_of

if TYPE_CHECKING:
    from hsimhash.calibrate import Calibration
    from hsimhash.dedup import Applied, DedupSummary
    from hsimhash.load import Summary

NO_DOCUMENTS = "the inputs do not contain any documents"
FIRST_REJECTS = 100  # number of rejected records to check for a common cause
MOST_WORDS = 30  # maximum number of inputs to repeat in a command; with more, the command shows INPUT…


def dedup_ending(summary: DedupSummary, found: Sequence[Input], names: Sequence[str], url: str | None) -> None:
    """Print what dedup found, and how to apply the result to the inputs."""
    totals, folder = summary.totals, summary.folder
    if not totals.documents:
        print_line(f"Read 0 documents: {NO_DOCUMENTS}.")
    elif totals.dropped:
        kinds = f"dropped {plural(totals.dropped, 'near-duplicate')}"
        kinds += f" in {plural(totals.clusters, 'cluster')}" if totals.clusters else ""
        print_line(f"Read {plural(totals.documents, 'document')}: kept {totals.kept:,}, {kinds}.")
    else:
        print_line(f"Read {plural(totals.documents, 'document')}: kept all of them, found no near-duplicates.")
    if totals.matched:
        print_line(f"Of the dropped documents, {totals.matched:,} matched a document in {url}.")
    if summary.learnt:
        print_line(f"Word weights: {summary.learnt}.")
    _tell_lists(folder, totals.rejected, totals.short, "kept")
    if not totals.documents:
        return
    tell_report(folder / "report.html")
    keep = folder / "keep.txt"
    if refused := [one.name for one in found if one.kind not in COPIED_KINDS and not one.problem]:
        print_line(f"Next: use the ids to keep in {shell_word(keep)} ('hsimhash apply' cannot copy {refused[0]}).")
    elif any(one.is_stream for one in found):
        tell_next(
            *("apply", "-", "--from", folder, "--out", _kept_name(found, folder)), note="with the same records on stdin"
        )
    else:
        tell_next("apply", *_given(names), "--from", folder, "--out", _kept_name(found, folder))


def apply_ending(count: Applied, out: str, reading: InputOptions, *, are_paths: bool) -> None:
    """Print what apply wrote to a file, and how to index that file."""
    left = f", left out {count.left_out:,}" if count.left_out else ""
    print_line(f"Wrote {plural(count.written, 'document')} to {shell_word(out)}{left}.")
    if count.repeated or count.rejected:
        also = [(count.repeated, "record", "with a duplicate id"), (count.rejected, "invalid record", "")]
        told = (f"{plural(number, noun)} {why}".rstrip() for number, noun, why in also if number)
        print_line(f"Left out {' and '.join(told)}{unread(count)}.")
    if count.changed:
        print_line(f"Kept {changed(count)}.")
    if count.missing:
        print_line(f"Missing from the inputs: {plural(count.missing, 'document')} that dedup read.")
    if not are_paths:
        reading = replace(reading, format="auto") if suffix_of(out) else reading  # the name determines the format
        tell_next("ingest", out, *reading.flags, "--store", "lmdb://index")


def unread(count: Applied) -> str:
    """Return the end of a message about rejects: the files that apply left out because it could not read them."""
    if not count.unread:
        return ""
    others = ", including files" if count.unread < count.rejected else ""
    names = _first_of(count.unread_files, count.unread)
    return f"{others}: {names}; see rejects.jsonl in the dedup results for the reasons"


def changed(count: Applied) -> str:
    """Return the end of a message about dropped files that apply kept because of later changes."""
    files = plural(count.changed, "file")
    names = _first_of(count.changed_files, count.changed)
    return (
        f"{files} that dedup dropped, because later the dropped or the kept file was modified or removed: {names}; "
        f"run 'hsimhash dedup' again"
    )


def _first_of(files: Sequence[str], count: int) -> str:
    """Return the names of the first files of `count`."""
    more = count - len(files)
    return ", ".join(map(shell_word, files)) + (f" and {more:,} more" if more else "")


def ingest_ending(summary: Summary, url: str, doc_id: str | None) -> None:
    """Print what ingest added to an index, and how to query one of its documents."""
    counts = summary.counts
    if summary.is_repeated:
        print_line("These inputs were already ingested, so nothing was read. Pass --fresh to ingest them again.")
    else:
        print_line(f"Read {plural(counts.documents, 'document')}: {', '.join(_shares(summary))}.")
    if counts.replaced:
        print_line(f"Replaced {plural(counts.replaced, 'document')} with the same id as a later record.")
    _tell_lists(summary.job, counts.rejected, counts.short, "left out")
    if summary.tags:
        listed = "The skipped documents and their" if counts.duplicates else "The"
        print_line(f"{listed} nearest matches are listed in {shell_word(summary.tags)}.")
    if doc_id is not None:
        tell_next("query", "--id", doc_id, "--store", url)


def _shares(summary: Summary) -> list[str]:
    counts = summary.counts
    named = {
        "already in the index": counts.unchanged,
        "skipped as near-duplicates": counts.duplicates,
    }
    return [f"{counts.added:,} added", *(f"{number:,} {what}" for what, number in named.items() if number)]


def calibrate_ending(found: Calibration, names: Sequence[str], reading: InputOptions, page: Path | None) -> None:
    """Print the recommendation, and how to use it for dedup or for an index."""
    curve, score, best_f1, _ = found.choice
    way = "on the labelled pairs" if found.is_labelled else f"in a collection of {found.documents:,} documents"
    print_line(
        f"recommended: {curve.profile}, by {curve.way}, within {plural(score.distance, 'bit')}"
        f"{' (the defaults)' if found.choice.is_default else ''}."
    )
    f1 = found.with_mark(score.f1, score)
    print_line(f"It finds {score.recall:.1%} of the near pairs; F1 {f1} {way} (the best is {best_f1:.3f}).")
    if found.reason:
        print_line(found.reason)
    print_line(score.false_pairs.sentence(found.own_documents))
    for caveat in found.caveats:
        print_line(caveat)
    for label, learnt in found.learnt.items():
        print_line(f"Word weights for {label}: {learnt}.")
    if page is not None:
        tell_report(page)
    flags = found.flags
    dedup_flags = shlex.split(flags.for_dedup(score.distance))
    tell_next("dedup", *_given(names), "--out", "result", *reading.flags, *dedup_flags)
    if flags.fit:
        tell_next("fit", *_given(names), *reading.flags, *shlex.split(flags.fit), title="  or")
    tell_next(
        "create-table", "--store", "lmdb://index", *shlex.split(flags.create), title=" and" if flags.fit else "  or"
    )
    tell_next("ingest", *_given(names), *reading.flags, "--store", "lmdb://index", title=" and")
    if flags.query:
        print_line(f"Query the index with {flags.query}.")


def _tell_lists(folder: Path, rejected: int, short: int, what_of_short: str) -> None:
    if rejected:
        path = folder / "rejects.jsonl"
        print_line(f"Rejected {plural(rejected, 'invalid record')}: see {shell_word(path)}.")
        if first := first_reject(path):
            print_line(f"The first: {first}")
    if short:
        verb = "was" if short == 1 else "were"
        print_line(
            f"{plural(short, 'document')} {verb} too short to compare and {verb} {what_of_short}: see "
            f"{shell_word(folder / 'short.jsonl')}."
        )


def say_rejected(count: int, path: Path) -> None:
    """Print how many records were rejected, the path of their list, and the first reason."""
    first = first_reject(path)
    say(f"{plural(count, 'record')} rejected, see {path}{f'; the first: {first}' if first else ''}")


def first_reject(path: Path) -> str:
    """Return the location and reason of the first record in a list of rejects, or "" if the list was deleted."""
    if not path.exists():
        return ""
    with path.open(encoding="utf-8") as lines:
        first = json.loads(next(lines))
    told = f"{'stdin' if first['file'] == STDIN else first['file']}:{first['line']}: {first['reason']}"
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in told)


def tell_report(page: Path) -> None:
    """Print how to open a report."""
    print_line(f"Report: {'open' if sys.platform == 'darwin' else 'xdg-open'} {shell_word(page)}")


def tell_next(*words: str | os.PathLike[str], note: str = "", title: str = "Next") -> None:
    """Print the command to run next."""
    print_line(f"{title}: {command_line(words)}{f'   ({note})' if note else ''}")


def command_line(words: Iterable[str | os.PathLike[str]]) -> str:
    """Return an hsimhash command line, quoted for a shell."""
    config = click.get_current_context().find_root().params.get("config")
    return " ".join([program(), *map(shell_word, [*(["--config", config] if config else []), *words])])


def program() -> str:
    """Return the shell command that runs this program."""
    called = Path(sys.argv[0])
    if called.name == "hsimhash" and not shutil.which("hsimhash"):
        return shlex.quote(str(called))
    return "python -m hsimhash" if called.name == "__main__.py" and not shutil.which("hsimhash") else "hsimhash"


def shell_word(word: str | os.PathLike[str]) -> str:
    """Quote a word for a shell, with terminal control characters escaped."""
    text = os.fspath(word)
    if text.isprintable():
        return shlex.quote(text)
    codes = text.encode("utf-8", "surrogateescape")
    return "$'" + "".join(chr(one) if 32 <= one < 127 and one not in b"'\\" else f"\\x{one:02x}" for one in codes) + "'"


def _given(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) <= MOST_WORDS else ["INPUT…"]


def _kept_name(found: Sequence[Input], folder: Path) -> Path:
    """Return a path for the kept records: in the current folder, unless it is taken or belongs to an input."""
    first = found[0]
    packing = packing_of(first.name) if packing_of(first.name) in PACKED_OUTPUTS else ""
    suffix = ".txt" if first.kind == "files" else (suffix_of(first.name) or f".{first.kind}") + packing
    path = Path(f"kept{suffix}")
    return folder / path if path.exists() or any(one.reads(path.absolute()) for one in found) else path


def say_format_hint(rejects: Path) -> None:
    """Print a hint about the format if none of the rejected records is JSON."""
    with rejects.open(encoding="utf-8") as lines:
        first = [json.loads(line) for line in islice(lines, FIRST_REJECTS)]
    if first and all("JSON" in reject["reason"] for reject in first):
        say(
            "these records are not JSON; if each file is one text, leave out --format; if each line has an id, a tab "
            "and a text, pass --format tsv"
        )
