"""`hsimhash fit`: learn from the user's texts how rare each feature is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial

import click

from hsimhash.cli.console import print_json, say, watching
from hsimhash.cli.count_type import Count
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.options import Settings, inputs_of, reading_of, with_settings
from hsimhash.cli.output_files import complete, refuse_existing, refuse_format
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.fit import SAMPLE, Fit
from hsimhash.inputs.files import Input, usual_workers
from hsimhash.inputs.reader import Batch, read_batches
from hsimhash.load.intake import bytes_before
from hsimhash.progress import Observer


@click.command("fit", cls=Command)
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option("--output", metavar="TABLE", required=True, help="Write the table to this file.")
@click.option("--overwrite", is_flag=True, help="Replace TABLE if it exists.")
@click.option(
    "--sample",
    type=Count(),
    default=SAMPLE,
    show_default=True,
    metavar="N",
    help="Learn from at most N documents, chosen by their text.",
)
@with_settings("profile", "format", "id_field", "text_field", "extract", "workers")
def fit_command(settings: Settings, inputs: tuple[str, ...], output: str, overwrite: bool, sample: int) -> ExitCode:
    """Learn from your own texts how rare each word is, and write a table of weights.

    \b
    Example: hsimhash fit pages.jsonl.gz --output pages.rarity
             hsimhash create-table --store lmdb://pages --profile auto-3:rarity=pages.rarity

    Words that many documents have in common, such as those of a template, then count for less when documents are
    compared, and rare ones for more. INPUTs are those of 'hsimhash ingest', of any size. The sample does not depend on
    the order of the documents.

    An index created with the table keeps it. Rejected records are reported on stderr, and the exit code is then 7.
    """
    refuse_format(output, "--output", (".rarity", ".txt"))
    if not overwrite:
        refuse_existing(output, "--output")
    reading = reading_of(settings, None)
    found = inputs_of(inputs, reading)
    if fingerprints := [one.name for one in found if one.has_fingerprints]:
        raise click.UsageError(f"{fingerprints[0]} holds fingerprints: expected texts")
    workers = settings.workers or usual_workers(found)
    fit = Fit(Profile.named(settings.profile), sample)
    with watching("read") as observer, complete(output) as stream:
        texts = _TextSource(found, observer)
        for batch in read_batches(found, reading, workers=workers):
            fit.add(texts.of(batch), partial(texts.name_of, batch))
        table = fit.table(workers=workers, on_refused=texts.refuse)
        content = table.content()
        stream.write(content)
    if output != "-":
        print_json(
            {
                "documents": fit.read,
                "sample": table.documents,
                "features": len(table),
                "sha256": hashlib.sha256(content).hexdigest(),
                "rejected": texts.rejected,
            }
        )
    return ExitCode.REJECTED_RECORDS if texts.rejected else ExitCode.DONE


class _TextSource:
    """The texts of batches; prints progress and what is rejected."""

    def __init__(self, inputs: Sequence[Input], observer: Observer) -> None:
        self.rejected = 0
        self._inputs, self._observer, self._read = inputs, observer, 0

    def of(self, batch: Batch) -> Sequence[str]:
        """Return the texts of a batch."""
        self._read += len(batch.documents.texts)
        for reject in batch.documents.rejects:
            self.refuse(f"{reject.path or self._inputs[batch.input].name}:{reject.line}", reject.reason)
        self._observer.report("read", *bytes_before(self._inputs, batch.end), self._read)
        return batch.documents.texts

    def name_of(self, batch: Batch, place: int) -> str:
        """Name the text at a place in a batch by its file and line."""
        its, documents = self._inputs[batch.input], batch.documents
        is_file = its.kind == "files"
        return f"{its.path_of(documents.doc_ids[place])}:1" if is_file else f"{its.name}:{documents.lines[place]}"

    def refuse(self, name: str, reason: str) -> None:
        """Reject a text."""
        self.rejected += 1
        say(f"{name}: {reason}")
