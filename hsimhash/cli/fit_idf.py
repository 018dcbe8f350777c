"""`hsimhash fit-idf`: compute a table of inverse document frequencies from your own texts."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence

import click

from hsimhash.cli.console import print_json, say, watching
from hsimhash.cli.count_type import Count
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.cli.help import Command
from hsimhash.cli.options import Settings, inputs_of, reading_of, with_settings
from hsimhash.cli.output_files import complete, refuse_existing, refuse_format
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.fit import FIT_LIMITS, FitLimits, fit_idf
from hsimhash.inputs.files import Input, usual_workers
from hsimhash.inputs.reader import Batch, read_batches, reject_of
from hsimhash.inputs.records import Reject
from hsimhash.load.intake import bytes_before
from hsimhash.progress import Observer


@click.command("fit-idf", cls=Command)
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option("--output", metavar="TABLE", required=True, help="Write the table to this file.")
@click.option("--overwrite", is_flag=True, help="Replace TABLE if it exists.")
@click.option(
    "--min-documents",
    type=Count(),
    default=FIT_LIMITS.min_documents,
    show_default=True,
    metavar="N",
    help="Leave out words in fewer documents; they get the median weight.",
)
@click.option(
    "--max-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=FIT_LIMITS.max_share,
    show_default=True,
    metavar="SHARE",
    help="Give no weight to words in a larger share of the documents.",
)
@click.option(
    "--max-words",
    type=Count(),
    default=FIT_LIMITS.most_words,
    show_default=True,
    metavar="N",
    help="List only the N words in the most documents.",
)
@with_settings("profile", "format", "id_field", "text_field", "extract", "workers")
def fit_idf_command(
    settings: Settings,
    inputs: tuple[str, ...],
    output: str,
    overwrite: bool,
    min_documents: int,
    max_share: float,
    max_words: int,
) -> ExitCode:
    """Measure how common each word is in your texts, and write a table of weights.

    \b
    Example: hsimhash fit-idf pages.jsonl.gz --output pages.idf
             hsimhash create-table --store lmdb://pages --profile auto-2:idf=pages.idf

    INPUTs are those of 'hsimhash ingest', of any size: counting takes at most about 400 MB of memory, then disk. The
    words are those of the profile. A word that is in d of n documents weighs ln(n / d) + 2.

    An index created with the table keeps it. Rejected records are reported on stderr, and the exit code is then 7.
    """
    refuse_format(output, "--output", (".idf", ".txt"))
    if not overwrite:
        refuse_existing(output, "--output")
    profile, reading = Profile.named(settings.profile), reading_of(settings, None)
    found = inputs_of(inputs, reading)
    if fingerprints := [one.name for one in found if one.has_fingerprints]:
        raise click.UsageError(f"{fingerprints[0]} holds fingerprints: expected texts")
    limits = FitLimits(min_documents, max_share, max_words)
    workers = settings.workers or usual_workers(found)
    with watching("read") as observer, complete(output) as stream:
        texts = _TextSource(found, observer, workers)
        batches = map(texts.of, read_batches(found, reading, workers=workers))
        fitted = fit_idf(batches, profile, limits, workers=workers, on_refused=texts.refuse)
        stream.write(fitted.content)
    sha256, rejected = hashlib.sha256(fitted.content).hexdigest(), texts.rejected
    if output != "-":
        print_json({"documents": fitted.documents, "words": fitted.words, "sha256": sha256, "rejected": rejected})
    return ExitCode.REJECTED_RECORDS if rejected else ExitCode.DONE


class _TextSource:
    """The texts of batches; prints progress and what is rejected."""

    def __init__(self, inputs: Sequence[Input], observer: Observer, workers: int) -> None:
        self.rejected = 0
        self._inputs, self._observer, self._read = inputs, observer, 0
        self._recent = deque[tuple[int, Batch]](maxlen=2 * workers + 4)  # more than are counted at once

    def of(self, batch: Batch) -> Sequence[str]:
        """Return the texts of a batch."""
        self._recent.append((self._read, batch))
        self._read += len(batch.documents.texts)
        self._reject(batch, batch.documents.rejects)
        self._observer.report("read", *bytes_before(self._inputs, batch.end), self._read)
        return batch.documents.texts

    def refuse(self, place: int, reason: str) -> None:
        """Reject the text at a position among all, from 0."""
        first, batch = next(one for one in reversed(self._recent) if one[0] <= place)
        self._reject(batch, [reject_of(self._inputs[batch.input], batch.documents, place - first, reason)])

    def _reject(self, batch: Batch, rejects: Sequence[Reject]) -> None:
        self.rejected += len(rejects)
        for reject in rejects:
            say(f"{reject.path or self._inputs[batch.input].name}:{reject.line}: {reject.reason}")
