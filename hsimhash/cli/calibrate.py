"""`hsimhash calibrate`: find the profile and distance that suit your texts."""

from __future__ import annotations

from pathlib import Path

import click

from hsimhash import calibrate as steps
from hsimhash.calibrate import CalibrateOptions, Calibration
from hsimhash.calibrate.options import SAMPLED
from hsimhash.cli.closing_messages import calibrate_ending
from hsimhash.cli.console import print_json, print_table, say, watching
from hsimhash.cli.count_type import Count
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.options import inputs_of, json_option, reading_of, utf8, with_settings
from hsimhash.cli.output_files import refuse_format
from hsimhash.cli.plan import MOST_DOCUMENTS
from hsimhash.dedup.report_texts import date_of
from hsimhash.errors import plural
from hsimhash.files import replace_file
from hsimhash.settings import Settings

REJECTS_SHOWN = 10


@click.command("calibrate", cls=Command)
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write an HTML report to FILE."
)
@click.option(
    "--pairs",
    "labels",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="LABELS",
    help="File of labels: lines of id<TAB>id<TAB>1 or 0, or id<TAB>cluster after a header line id<TAB>cluster.",
)
@click.option(
    "--edits", "is_planted", is_flag=True, help="Create near pairs by editing texts. The default without --pairs."
)
@click.option(
    "--profile",
    "profiles",
    type=utf8,
    multiple=True,
    metavar="NAME",
    help="Profile to compare. Repeatable. Default: profiles that suit the scripts of the texts.",
)
@click.option(
    "--documents",
    type=Count(2, MOST_DOCUMENTS),
    metavar="N",
    help="Number of documents to plan for, such as 50M or 1e8. Default: the number in the inputs, and without --pairs, "
    "at least 1M.",
)
@click.option(
    "--sample",
    type=Count(2),
    default=SAMPLED,
    show_default=True,
    metavar="N",
    help="Number of documents to compare.",
)
@with_settings("format", "id_field", "text_field", "extract", "workers")
@json_option
def calibrate_command(
    settings: Settings,
    inputs: tuple[str, ...],
    labels: Path | None,
    is_planted: bool,
    profiles: tuple[str, ...],
    documents: int | None,
    sample: int,
    report: Path | None,
    as_json: bool,
) -> ExitCode:
    """Find the profile and distance that suit your texts.

    \b
    Example: hsimhash calibrate pages.jsonl.gz --report calibration.html
             hsimhash calibrate pages.jsonl.gz --documents 100M
             hsimhash calibrate pages.jsonl.gz --pairs labels.tsv --profile auto-2 --profile zh-1 --json

    Accepts the same INPUTs as 'hsimhash ingest', if they contain texts. calibrate draws a sample of the documents and
    compares all pairs in it.

    Without labels, calibrate creates near pairs by editing texts: it adds and removes sentences, replaces words, adds a
    header and a footer, and cuts off the end. Precision and F1 apply to a collection of N documents (--documents), each
    with one near copy. A pair is false if it is found even though its texts share less than a fifth of their shingles,
    or even though LABELS marks it as not near.

    Profiles that weigh words by how rare they are, such as auto-3, are compared twice: with weights fitted to the
    sample, and with weights for general text.

    With fewer than 200 labelled near pairs, or if no label says that a pair is not near, calibrate keeps the defaults.
    Otherwise, it leaves them only for a choice that is clearly better: its F1 is higher by more than .01. Of the
    clearly better choices whose F1 is at most .01 below the best, it recommends the one with the distance nearest to
    the default. It does not consider the cost of queries; the tables show it.

    If a distance finds no false pairs in the sample, calibrate can only give an upper bound on their number in a
    collection of N documents. To decide, it assumes that the defaults have none, and that other choices have as many as
    the bound allows.

    --report writes a page with plots, all numbers, and example pairs of your documents.
    """
    _refuse_contradictions(labels, report, is_planted=is_planted)
    reading = reading_of(settings, None)
    options = CalibrateOptions(profiles, labels, documents, reading, settings.workers, sample)
    found_inputs = inputs_of(inputs, reading)
    with watching("read") as observer:
        found = steps.calibrate(found_inputs, options, observer)
    if report:
        _write_page(report, steps.calibration_page(found, inputs=inputs, date=date_of(found_inputs)))
    if as_json:
        print_json(found.to_json())
    else:
        _print_tables(found)
        calibrate_ending(found, inputs, reading, report)
    return _rejected(found)


def _refuse_contradictions(labels: Path | None, report: Path | None, *, is_planted: bool) -> None:
    if labels and is_planted:
        raise click.UsageError("--edits cannot be combined with --pairs; pass only one of them")
    if report:
        if not report.parent.is_dir():
            raise click.UsageError(f"--report {report}: there is no folder {report.parent}; create it first")
        refuse_format(str(report), "--report", (".html", ".htm"))


def _write_page(path: Path, page: str) -> None:
    with replace_file(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))


def _rejected(found: Calibration) -> ExitCode:
    """Print the first rejected records, and return the exit code."""
    named = (*found.sample.reasons, *found.label_rejects)
    for reason in named[:REJECTS_SHOWN]:
        say(f"rejected: {reason}")
    count = found.sample.rejected + len(found.label_rejects)
    if count > len(named[:REJECTS_SHOWN]):
        say(f"{plural(count, 'record')} rejected in all")
    return ExitCode.REJECTED_RECORDS if count else ExitCode.DONE


def _print_tables(found: Calibration) -> None:
    """Print each profile's scores when used in a query, and the scores of the recommendation."""
    usual = {one.profile: one for one in found.curves}  # each profile's last way is the one that queries use
    curves = [one for one in found.curves if one in (usual[one.profile], found.choice.curve)]
    print_table(
        ["bits>", *(f"{one.profile}{'' if one is usual[one.profile] else f', {one.way}'}>" for one in curves)],
        [
            [str(row[0].distance), *(f"{score.f1:.3f}" for score in row)]
            for row in zip(*(one.scores for one in curves), strict=True)
        ],
        title="F1 by distance",
    )
    _print_curve(found)


def _print_curve(found: Calibration) -> None:
    curve, taken = found.choice.curve, found.choice.score
    rows = [
        [
            "*" if score is taken else "",
            str(score.distance),
            found.with_mark(score.precision, score),
            f"{score.recall:.3f}",
            found.with_mark(score.f1, score),
            f"{'≈ ' if score.false_pairs.weight > 1 and score.false_pairs.seen else ''}"
            f"{score.false_pairs.seen:,.0f} of {score.false_pairs.of:,}",
            score.false_pairs.in_words(found.documents),
            f"{cost.time_us:,.0f}",
        ]
        for score, cost in zip(curve.scores, curve.costs, strict=True)
    ]
    columns = [
        "",
        "bits>",
        "precision>",
        "recall>",
        "F1>",
        "false in sample>",
        f"in {found.documents:,} documents>",
        "µs>",
    ]
    print_table(columns, rows, title=f"{curve.profile}, found by {curve.way}")
