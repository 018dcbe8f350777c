"""`hsimhash tables`: write a set of documents as compressed tables, and match many queries against them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from hsimhash.cli.closing_messages import say_rejected
from hsimhash.cli.console import print_json, say, watching
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Group
from hsimhash.cli.jobs import stoppable
from hsimhash.cli.options import (
    READING,
    Settings,
    fingerprint_field_option,
    fit_option,
    inputs_of,
    reading_of,
    with_settings,
)
from hsimhash.cli.output_files import JSON_LINES, refuse_existing, refuse_format, written
from hsimhash.compressed import CompressedTables, NearPairs, Written, write_tables
from hsimhash.errors import StopAskedError
from hsimhash.files import AppendLog
from hsimhash.fingerprint import Profile, Signatures
from hsimhash.fingerprint.bits import format_fingerprint
from hsimhash.fingerprint.rarity import learnt_json
from hsimhash.inputs import Input, InputOptions
from hsimhash.inputs.files import usual_workers
from hsimhash.inputs.reader import read_batches
from hsimhash.layout import Layout
from hsimhash.load.intake import Gathering, fingerprinted

DEFAULT_LAYOUT = "10"
QUERIES_AT_ONCE = 1_000_000  # each is in memory once for each table


@click.group("tables", cls=Group)
def tables_command() -> None:
    """Match millions of queries against compressed tables.

    \b
    Example: hsimhash tables write pages.jsonl.gz --out pages.tables
             hsimhash tables match today.jsonl.gz --tables pages.tables --output near.jsonl.gz

    The tables are sorted Parquet files. 'match' reads each of them once from start to end, which is fast for millions
    of queries against millions or billions of documents. Needs pyarrow: pip install 'hsimhash[parquet]'.
    """


@tables_command.command("write", short_help="Write documents as compressed tables.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Write to this new or empty folder."
)
@with_settings("layout", "profile", *READING)
@fingerprint_field_option
@fit_option
def write_tables_command(
    settings: Settings, inputs: tuple[str, ...], out: Path, fingerprint_field: str | None, fit: str
) -> ExitCode:
    """Write documents as compressed tables, one per drawer of the layout.

    \b
    Example: hsimhash tables write pages.jsonl.gz --out pages.tables
             hsimhash tables write fingerprints.tsv --format fingerprints --layout 28 --out pages.tables

    INPUTs are those of 'hsimhash ingest'. A row takes about 5.5 bytes for ten million documents, and less for more. If
    an id comes twice, the last document counts. With profiles such as auto-3, word weights are learnt from the INPUTs
    as 'hsimhash ingest' learns them for a new index, and the tables keep them. Rejected records are listed in
    rejects.jsonl, and the exit code is then 7; texts that are too short are listed in short.jsonl. After Ctrl-C
    nothing is left.
    """
    reading = reading_of(settings, fingerprint_field)
    found = inputs_of(inputs, reading)
    layout, profile = Layout.parse(settings.layout or DEFAULT_LAYOUT), Profile.named(settings.profile)
    with stoppable() as stop, watching("read", stop) as observer:
        try:
            result = write_tables(
                found,
                reading,
                out,
                layout=layout,
                profile=profile,
                fit=fit,
                workers=settings.workers,
                observer=observer,
            )
        except StopAskedError:
            say("interrupted; nothing is left of the tables")
            return ExitCode.INTERRUPTED
    _keep_lists(result, out)
    manifest, counts = result.manifest, result.counts
    print_json(
        {
            "documents": manifest.documents,
            "fingerprints": manifest.fingerprints,
            "layout": manifest.layout,
            "profile": manifest.profile,
            **learnt_json(result.learnt),
            "rejected": counts.rejected,
            "short": counts.short,
            "bytes": sum(path.stat().st_size for path in out.glob("*.parquet")),
        }
    )
    if result.rejects:
        say_rejected(counts.rejected, out / "rejects.jsonl")
    return ExitCode.REJECTED_RECORDS if result.rejects else ExitCode.DONE


def _keep_lists(result: Written, out: Path) -> None:
    """Write the lists of rejected and short texts, unless they are empty."""
    for name, lines in (("rejects", result.rejects), ("short", result.short)):
        if lines:
            log = AppendLog(out / f"{name}.jsonl")
            log.append(lines)
            log.close()


@tables_command.command("match", short_help="Find the documents in tables that are near many queries.")
@click.argument("inputs", metavar="QUERIES…", nargs=-1, required=True)
@click.option(
    "--tables",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="The folder with the tables.",
)
@click.option("--output", metavar="FILE", default="-", help="Write to FILE instead of stdout; .gz and .zst compress.")
@click.option("--overwrite", is_flag=True, help="Replace FILE if it exists.")
@with_settings("max_distance", *READING)
@fingerprint_field_option
def match_tables_command(
    settings: Settings,
    inputs: tuple[str, ...],
    folder: Path,
    output: str,
    overwrite: bool,
    fingerprint_field: str | None,
) -> ExitCode:
    """Find the documents in compressed tables that are near each query.

    \b
    Example: hsimhash tables match today.jsonl.gz --tables pages.tables --output near.jsonl.gz

    match writes a JSON line per query: its id, its fingerprint, and the stored documents within --distance bits. The
    default and maximum is the distance of the tables' layout. Keys and sketches do not count. Texts are fingerprinted
    with the profile of the tables. A million queries are answered at a time. Rejected records are reported on stderr,
    and the exit code is then 7.
    """
    tables = CompressedTables(folder)
    refuse_format(output, "--output", JSON_LINES)
    if not overwrite:
        refuse_existing(output, "--output")
    reading = reading_of(settings, fingerprint_field)
    found = inputs_of(inputs, reading)
    rejected = 0
    with watching("match") as observer, written(output) as write:
        for gathered in _queries(found, reading, tables.profile, settings.workers):
            signatures, _ = gathered.columns()
            rejected += gathered.counts.rejected
            for line in gathered.rejects:
                reject = json.loads(line)
                say(f"{reject['file']}:{reject['line']}: {reject['reason']}")
            near = tables.match(signatures.fingerprints, settings.max_distance, partial(observer.report, "match"))
            for answer in _answers(tables, near, gathered.doc_ids, signatures):
                write(answer)
    return ExitCode.REJECTED_RECORDS if rejected else ExitCode.DONE


def _answers(
    tables: CompressedTables, near: NearPairs, doc_ids: Sequence[str], signatures: Signatures
) -> Iterator[bytes]:
    """Yield the line of each query."""
    stored = tables.documents(near.fingerprints)
    for doc_id, signature, pairs in zip(doc_ids, signatures, near.by_query(len(signatures)), strict=True):
        found = zip(near.fingerprints[pairs].tolist(), near.distances[pairs].tolist(), strict=True)
        rows = [
            {
                "distance": distance,
                "id": one.doc_id,
                "fingerprint": format_fingerprint(one.fingerprint),
                "first_seen": one.first_seen,
            }
            for fingerprint, distance in found
            for one in stored[fingerprint]
        ]
        answer = {"id": doc_id, "fingerprint": format_fingerprint(signature.fingerprint), "matches": rows}
        yield json.dumps(answer, ensure_ascii=False).encode() + b"\n"


def _queries(
    inputs: Sequence[Input], reading: InputOptions, profile: Profile, workers: int | None
) -> Iterator[Gathering]:
    """Yield queries, so many at a time."""
    gathering = Gathering()
    workers = workers or usual_workers(inputs)
    batches = read_batches(inputs, reading.for_profile(profile), workers=workers)
    for batch, made in fingerprinted(inputs, batches, profile, workers):
        gathering.take(inputs[batch.input], batch, made)
        if len(gathering.doc_ids) >= QUERIES_AT_ONCE:
            yield gathering
            gathering = Gathering()
    if gathering.end is not None:
        yield gathering
