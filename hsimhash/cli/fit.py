"""`hsimhash fit`: learn from the user's texts how rare each feature is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import click

from hsimhash.cli.console import print_json, say, watching
from hsimhash.cli.count_type import Count
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.options import inputs_of, reading_of, with_settings
from hsimhash.cli.output_files import complete, refuse_existing, refuse_format
from hsimhash.errors import plural
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.fit import LEAST_DOCUMENTS, LEAST_SAMPLE, MOST_SAMPLE
from hsimhash.load.fitting import fit_inputs
from hsimhash.settings import Settings

REJECTS_SHOWN = 10


@click.command("fit", cls=Command)
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option("--output", metavar="TABLE", required=True, help="Write the table to this file.")
@click.option("--overwrite", is_flag=True, help="Replace TABLE if it exists.")
@click.option(
    "--sample",
    type=Count(),
    metavar="N",
    help=f"Learn from at most N documents, chosen by the hashes of their texts. Default: a tenth of them, but at least "
    f"{LEAST_SAMPLE:,} and at most {MOST_SAMPLE:,}.",
)
@with_settings("profile", "format", "id_field", "text_field", "extract", "workers")
def fit_command(
    settings: Settings, inputs: tuple[str, ...], output: str, overwrite: bool, sample: int | None
) -> ExitCode:
    """Learn from your own texts how rare each word is, and write a table of weights.

    \b
    Example: hsimhash fit pages.jsonl.gz --output pages.rarity
             hsimhash create-table --store lmdb://pages --profile auto-3:rarity=pages.rarity

    With such a table, words that many documents have in common, such as words in a template, count less when documents
    are compared, and rare words count more. Accepts the same INPUTs as 'hsimhash ingest', of any size. The sample does
    not depend on the order of the documents.

    The profile (default: auto-3) must weigh words by how rare they are. An index created with the table stores it. If
    records are rejected, the first ones are shown on stderr, and the exit code is 7.
    """
    refuse_format(output, "--output", (".rarity", ".txt"))
    if not overwrite:
        refuse_existing(output, "--output")
    reading = reading_of(settings, None)
    found = inputs_of(inputs, reading)
    if fingerprints := [one.name for one in found if one.has_fingerprints]:
        raise click.UsageError(f"{fingerprints[0]} contains fingerprints: expected texts")
    with watching("fit") as observer, complete(output) as stream, _rejects() as rejects:
        profile, workers = Profile.named(settings.profile), settings.workers
        table, read = fit_inputs(
            found, reading, profile, sample=sample, workers=workers, observer=observer, on_rejected=rejects.add
        )
        content = table.content()
        stream.write(content)
    if table.documents < LEAST_DOCUMENTS:
        say(
            f"the table was learnt from only {plural(table.documents, 'document')}, so words that a few of them share "
            f"seem common; use at least {LEAST_DOCUMENTS}, as 'hsimhash dedup' and 'hsimhash ingest' do"
        )
    if output != "-":
        print_json(
            {
                "documents": read,
                "sample": table.documents,
                "features": len(table),
                "sha256": hashlib.sha256(content).hexdigest(),
                "rejected": rejects.count,
            }
        )
    return ExitCode.REJECTED_RECORDS if rejects.count else ExitCode.DONE


class _Rejects:
    """Prints the first few rejected records, and counts all of them."""

    count = 0

    def add(self, name: str, reason: str) -> None:
        self.count += 1
        if self.count <= REJECTS_SHOWN:
            say(f"{name}: {reason}")


@contextmanager
def _rejects() -> Iterator[_Rejects]:
    """Yield a collector for rejected records; at the end, print how many were not shown."""
    rejects = _Rejects()
    try:
        yield rejects
    finally:
        if rejects.count > REJECTS_SHOWN:
            say(f"and {rejects.count - REJECTS_SHOWN:,} more rejected records")
