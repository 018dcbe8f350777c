"""`hsimhash dedup`: find near-duplicates in files, and choose which document of each cluster to keep."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack, get_args

import click

from hsimhash import dedup as steps
from hsimhash.cli.closing_messages import NO_DOCUMENTS, dedup_ending, say_format_hint, say_rejected
from hsimhash.cli.console import is_for_people, print_json, say, watching
from hsimhash.cli.count_type import Count
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.options import (
    READING,
    Function,
    field_options,
    fingerprint_field_option,
    fit_option,
    inputs_of,
    json_option,
    metrics_option,
    reading_of,
    utf8,
    warn_of,
    with_settings,
)
from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.dedup import DedupOptions, DedupSummary, Method, PairsListed
from hsimhash.dedup.options import METHODS
from hsimhash.errors import plural
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex, opened_index
from hsimhash.inputs.files import InputOptions
from hsimhash.pairs import MEMORY_BYTES
from hsimhash.pairs.keep_policies import Policy
from hsimhash.settings import Settings
from hsimhash.store import Opening
from hsimhash.store.base import JOB_DEADLINE_S

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"([0-9]+)([KMGT]?)(?:I?B)?", re.ASCII | re.IGNORECASE)


class _Plain(TypedDict):
    """Options that are passed on to the run unchanged."""

    clusters: Method
    max_cluster_size: int | None
    table_format: str
    pairs: PairsListed
    overwrite: bool
    fit: str


def byte_count(text: str) -> int:
    """Parse a number of bytes: `512M`, `2G` or a plain number."""
    match = _SIZE.fullmatch(text)
    count = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if count < 1:
        raise click.BadParameter(f"{text!r} is not a valid size: expected a number of bytes, such as 512M or 2G")
    return count


def named_folder(text: str) -> Path:
    """Return the named folder; an empty name is an error, because it would mean the current folder."""
    if not text:
        raise click.BadParameter("the name is empty: expected a folder, or . for the current one")
    return Path(text)


def clusters_options(command: Function) -> Function:
    """Add the options that define a cluster."""
    size = click.option(
        "--max-cluster-size",
        type=Count(),
        metavar="N",
        help="Split components of more than N documents into stars.",
    )
    method = click.option(
        "--clusters",
        type=click.Choice(METHODS),
        default="star",
        show_default=True,
        help="star: every document is near the kept one; components: chains of near pairs connect the documents.",
    )
    return method(size(command))


pairs_option = click.option(
    "--pairs",
    type=click.Choice(get_args(PairsListed)),
    default="kept",
    show_default=True,
    help="Pairs to list. kept: each dropped document with the one kept in its place; all: every near pair "
    "(their number grows with the square of the cluster size).",
)


@click.command("dedup", cls=Command)
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option("--out", required=True, metavar="DIR", type=named_folder, help="Write the results to this folder.")
@with_settings("profile", "max_distance", "max_sketch", *READING)
@fingerprint_field_option
@field_options
@clusters_options
@click.option(
    "--keep",
    type=utf8,
    multiple=True,
    metavar="POLICY",
    help="Document to keep in each cluster: first (default), last, longest, newest:FIELD, highest:FIELD, shortest-id "
    "or https. Repeat the option to break ties; any remaining tie goes to the smallest id.",
)
@click.option("--against", type=utf8, metavar="URL", help="Also drop documents that are near a document in this index.")
@fit_option
@click.option(
    "--memory",
    type=byte_count,
    metavar="SIZE",
    help="Memory for finding pairs, such as 512M or 2G. Inputs that need more also use disk.",
)
@click.option(
    "--table-format",
    metavar="auto|parquet|jsonl",
    default="auto",
    help="Format of the result tables. Default: Parquet if pyarrow is installed, else JSON lines.",
)
@pairs_option
@click.option("--overwrite", is_flag=True, help="Replace existing results in DIR.")
@json_option
@metrics_option
@click.option("-q", "--quiet", is_flag=True, help="Do not show progress.")
def dedup_command(
    settings: Settings,
    inputs: tuple[str, ...],
    out: Path,
    fingerprint_field: str | None,
    keep: tuple[str, ...],
    against: str | None,
    memory: int | None,
    as_json: bool,
    quiet: bool,
    **plain: Unpack[_Plain],
) -> ExitCode:
    """Find near-duplicates in files, and choose which documents to keep.

    \b
    Example: hsimhash dedup notes/ --out notes.dedup
             hsimhash dedup pages.jsonl.gz --out pages.dedup
             hsimhash apply pages.jsonl.gz --from pages.dedup --out kept.jsonl.gz
             hsimhash dedup pages.jsonl --out new --against lmdb://pages --keep newest:date --keep longest

    Accepts the same INPUTs as 'hsimhash ingest' and does not change them. Run 'hsimhash apply' afterwards to write the
    kept documents.

    Two documents are near-duplicates if their fingerprints differ in at most --distance bits, or if they share a key
    (with auto-3: three of their five heaviest words). If both have sketches, the sketches must agree as well. Profiles
    without keys and sketches, such as auto-1, compare only fingerprints.

    Before dedup drops a document that only shares a key, it compares the texts. It keeps the document if less than half
    of its shingles occur in the text kept in its place. Texts that cannot be read again, such as those from stdin, are
    not compared. --max-sketch off turns off both comparisons, of sketches and of texts.

    DIR then contains report.html, keep.txt and drop.txt with ids, the pairs and clusters tables, and stats.json, which
    is written last. Documents that are too short for a fingerprint are kept and listed in short.jsonl.

    If several records have the same id, dedup uses the first one and rejects later ones with different content.
    Rejected records are listed in rejects.jsonl, and the exit code is 7.

    --against also compares the documents with an index, using its profile and distance. Documents that match a stored
    document are dropped. The matches table lists the nearest match of each dropped document, or, with --pairs all,
    every match. Stored documents whose ids occur in the inputs are ignored; the inputs with these ids are kept rather
    than new ones.
    """
    policies = tuple(map(Policy.parse, keep or ("first",)))
    reading = reading_of(settings, fingerprint_field, index_url=against)
    found = inputs_of(inputs, reading)
    with _against(settings, against) as known, watching("read", quiet=quiet) as observer:
        options = replace(_options(settings, known, reading, plain), keep=policies, memory_bytes=memory or MEMORY_BYTES)
        try:
            summary = steps.dedup(found, out, options, against=known, observer=observer)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("nothing was written; run the same command again to start over") from None
    if is_for_people(as_json):
        dedup_ending(summary, found, inputs, against)
    return _report(summary, options, is_told=is_for_people(as_json))


def _options(settings: Settings, known: HSimIndex | Profile, reading: InputOptions, plain: _Plain) -> DedupOptions:
    """Return the options of the run: by default the index's distance, and sketches if the profile makes them."""
    profile, distance = (known, DEFAULT_DISTANCE) if isinstance(known, Profile) else (known.profile, known.distance)
    return DedupOptions(
        max_distance=distance if settings.max_distance is None else settings.max_distance,
        max_sketch=settings.max_sketch,
        reading=replace(reading, has_signatures=profile.makes_signatures),
        workers=settings.workers,
        **plain,
    )


def _against(settings: Settings, url: str | None) -> AbstractContextManager[HSimIndex | Profile]:
    if url is None:
        profile = Profile.named(settings.profile)
        warn_of(profile)
        return nullcontext(profile)
    asked = settings.profile if "profile" in settings.given else None
    return opened_index(url, Opening(JOB_DEADLINE_S), profile=asked, slow_s=None, takes_any_rarity=True)


def _report(summary: DedupSummary, options: DedupOptions, *, is_told: bool) -> ExitCode:
    for notice in summary.notices:
        say(f"{notice.title}: {notice.detail}")
    if summary.totals.rejected and not is_told:
        say_rejected(summary.totals.rejected, summary.folder / "rejects.jsonl")
    if split := summary.totals.split:
        say(f"split {plural(split, 'component')} of more than {options.max_cluster_size:,} documents into stars")
    if not is_told:
        print_json(summary.to_json())
    if not summary.totals.documents:
        if summary.totals.rejected:
            say_format_hint(summary.folder / "rejects.jsonl")
        elif not is_told:
            say(NO_DOCUMENTS)
    return ExitCode.REJECTED_RECORDS if summary.totals.rejected else ExitCode.DONE
