"""`hsimhash calibrate`: which profile and which distance fit one's own texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hsimhash import calibrate as steps
from hsimhash.calibrate import CalibrateLimits, CalibrateOptions, Calibration
from hsimhash.calibrate.results import MILLION
from hsimhash.calibrate.scores import Curve, DistanceScore
from hsimhash.cli.console import plural, print_json, print_line, print_table, say, staged_progress
from hsimhash.cli.counts import Count
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import Settings, inputs_of, json_option, reading_of, utf8, with_settings
from hsimhash.cli.plan import MOST_DOCUMENTS
from hsimhash.dedup.texts import date_of
from hsimhash.files import replace_file
from hsimhash.inputs import Input

REJECTS_SHOWN = 10
_STAGES = {"read": ("reading", "document"), "compare": ("comparing", "profile")}


@click.command("calibrate", short_help="Find out which profile and distance fit your texts.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option(
    "--pairs",
    "labels",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="LABELS",
    help="Which documents are near: lines of id<TAB>id<TAB>1 or 0; or a table of clusters, its header id<TAB>cluster.",
)
@click.option("--edits", "is_planted", is_flag=True, help="Plant edits in the texts: the default without --pairs.")
@click.option(
    "--profile",
    "profiles",
    type=utf8,
    multiple=True,
    metavar="NAME",
    help="A profile to compare; may be repeated. By default those that fit the scripts of the texts.",
)
@click.option(
    "--documents",
    type=Count(2, MOST_DOCUMENTS),
    metavar="N",
    help="How many documents the collection will have; by default as many as the inputs.",
)
@click.option(
    "--sample",
    type=Count(2),
    default=CalibrateLimits().documents,
    show_default=True,
    metavar="N",
    help="How many documents are compared.",
)
@click.option(
    "--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write a page, in HTML."
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
    """Compare profiles and distances on a sample of your own texts, and recommend what to take.

    INPUTs are those of 'hsimhash ingest' with texts. Without labels edits are planted: sentences added and removed,
    words replaced, a header and a footer, an end cut off. Near pairs are then a text and its edited copy, and a
    precision is that of a collection of N documents with one near copy of each.

    False pairs are pairs of the sample that are found though their texts share less than a fifth of their shingles, or
    that LABELS call not near. Where none was seen, the tail of their distances is continued; "at most" is the upper end
    of the 95 % interval of what was seen.

    Recommended is, of all that comes within .01 of the best F1, with labels also of the best that is expected in a
    collection of N documents, what costs queries least. --report writes a page with
    plots, all numbers, and pairs of your documents to look at, within the distance and just beyond it.

    \b
    Example: hsimhash calibrate pages.jsonl.gz --report calibration.html
             hsimhash calibrate pages.jsonl.gz --pairs labels.tsv --profile auto-2 --profile zh-1 --json
             hsimhash calibrate pages.jsonl.gz --documents 100000000
    """
    if labels and is_planted:
        raise click.UsageError("--edits and --pairs are two ways to know near pairs; give one of them")
    if report and not report.parent.is_dir():
        raise click.UsageError(f"--report {report}: there is no folder {report.parent}; make it, or name another")
    reading = reading_of(settings, None)
    options = CalibrateOptions(
        profiles, labels, documents, reading, settings.workers, CalibrateLimits(documents=sample)
    )
    found_inputs = inputs_of(inputs, reading)
    found = _calibrated(found_inputs, options)
    if report:
        page = steps.calibration_page(found, inputs=inputs, date=date_of(found_inputs))
        with replace_file(report) as file:
            file.write(page.encode("utf-8", "backslashreplace"))
    if as_json:
        print_json(found.to_json())
    else:
        _print_tables(found)
    return _rejected(found)


def _calibrated(inputs: Sequence[Input], options: CalibrateOptions) -> Calibration:
    with staged_progress(_STAGES["read"][0]) as show:

        def tell(stage: str, done: int, total: int) -> None:
            title, noun = _STAGES[stage]
            show(title, done, total, plural(done, noun))

        return steps.calibrate(inputs, options, tell)


def _rejected(found: Calibration) -> ExitCode:
    """Say which records were none."""
    named = (*found.sample.reasons, *found.label_rejects)
    for reason in named[:REJECTS_SHOWN]:
        say(f"rejected: {reason}")
    count = found.sample.rejected + len(found.label_rejects)
    if count > len(named[:REJECTS_SHOWN]):
        say(f"{plural(count, 'record')} rejected in all")
    return ExitCode.REJECTED_RECORDS if count else ExitCode.DONE


def _print_tables(found: Calibration) -> None:
    print_table(
        ["bits>", *(f"{one.profile}, {one.way}>" for one in found.curves)],
        [
            [str(row[0].distance), *(f"{score.f1:.3f}" for score in row)]
            for row in zip(*(one.scores for one in found.curves), strict=True)
        ],
        title="F1 by distance",
    )
    curve, score, best_f1 = found.choice
    _print_curve(curve, score)
    way = "labelled" if found.is_labelled else f"in a collection of {found.documents:,} documents, each with one copy"
    print_line(
        f"recommended: {curve.profile}, by {curve.way}, within {score.distance} bits: F1 {score.f1:.3f} (best of all "
        f"{best_f1:.3f}), {score.found:,.0f} of {score.wanted:,.0f} near pairs found, {score.wrong:,.1f} false ones, "
        f"{way}"
    )
    print_line(f"  create-table {found.flags.create}")
    if found.flags.query:
        print_line(f"  query {found.flags.query}")


def _print_curve(curve: Curve, taken: DistanceScore) -> None:
    rows = []
    for score, cost in zip(curve.scores, curve.costs, strict=True):
        expected, most = score.false_pairs.among(MILLION)
        rows.append(
            [
                "*" if score is taken else "",
                str(score.distance),
                *(f"{share:.3f}" for share in (score.precision, score.recall, score.f1)),
                f"{score.false_pairs.seen:,.0f} of {score.false_pairs.of:,}",
                *(_count(one) for one in (expected, most)),
                f"{cost.time_us:,.0f}",
            ]
        )
    columns = ["", "bits>", "precision>", "recall>", "F1>", "unrelated seen>", "false in 1,000,000>", "at most>", "µs>"]
    print_table(columns, rows, title=f"{curve.profile}, found by {curve.way}")


def _count(number: float) -> str:
    if number < 0.01:
        return "under 0.01"
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"
