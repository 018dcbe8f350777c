"""`hsimhash fit-idf`: a table of inverse document frequencies of one's own texts."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence

import click

from hsimhash.cli.console import print_json, say, staged_progress
from hsimhash.cli.exits import ExitCode
from hsimhash.cli.options import Settings, inputs_of, reading_of, with_settings
from hsimhash.cli.written import complete, refuse_existing
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.fit import FIT_LIMITS, FitLimits, fit_idf
from hsimhash.inputs.files import usual_workers
from hsimhash.inputs.reader import Batch, read_batches, reject_of
from hsimhash.inputs.records import Reject
from hsimhash.load.intake import bytes_before


@click.command("fit-idf", short_help="Make an idf table of your own texts.")
@click.argument("inputs", metavar="INPUT…", nargs=-1, required=True)
@click.option("--output", metavar="TABLE", required=True, help="The file to write.")
@click.option("--overwrite", is_flag=True, help="Replace TABLE if it exists.")
@click.option(
    "--min-documents",
    type=click.IntRange(min=1),
    default=FIT_LIMITS.min_documents,
    show_default=True,
    metavar="N",
    help="Words in fewer documents are left out; they weigh the median.",
)
@click.option(
    "--max-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=FIT_LIMITS.max_share,
    show_default=True,
    metavar="SHARE",
    help="Words in a larger share of the documents weigh nothing.",
)
@click.option(
    "--max-words",
    type=click.IntRange(min=1),
    default=FIT_LIMITS.most_words,
    show_default=True,
    metavar="N",
    help="List only so many, those in the most documents.",
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
    """Count in how many texts of each INPUT each word is, and write what each word weighs: TABLE, a line a word.

    INPUTs are those of 'hsimhash ingest', of any size: the counts take at most about 400 MB of memory, then disk. The
    words are those of the profile: Chinese ones as jieba cuts them, and those between spaces of all languages. A word
    in d of n documents weighs ln(n / d) + 2.

    An index made with the table keeps it: --profile takes it as idf=TABLE. Bad records are named on stderr, and the
    exit code is then 7.

    \b
    Example: hsimhash fit-idf pages.jsonl.gz --output pages.idf
             hsimhash create-table --store lmdb://pages --profile auto-2:idf=pages.idf
    """
    if not overwrite:
        refuse_existing(output, "--output")
    profile, reading = Profile.named(settings.profile), reading_of(settings, None)
    found = inputs_of(inputs, reading)
    if fingerprints := [one.name for one in found if one.has_fingerprints]:
        raise click.UsageError(f"{fingerprints[0]} holds fingerprints; words are counted in texts")
    limits = FitLimits(min_documents, max_share, max_words)
    workers = settings.workers or usual_workers(found)
    rejected = read = 0
    recent: deque[tuple[int, Batch]] = deque(maxlen=2 * workers + 4)  # more than are counted at once
    with staged_progress("counting words") as show, complete(output) as stream:

        def tell(batch: Batch, rejects: Sequence[Reject]) -> None:
            nonlocal rejected
            rejected += len(rejects)
            for reject in rejects:
                say(f"{reject.path or found[batch.input].name}:{reject.line}: {reject.reason}")

        def texts_of(batch: Batch) -> Sequence[str]:
            nonlocal read
            recent.append((read, batch))
            read += len(batch.documents.texts)
            tell(batch, batch.documents.rejects)
            show("counting words", *bytes_before(found, batch.end), "")
            return batch.documents.texts

        def refused(place: int, reason: str) -> None:
            first, batch = next(one for one in reversed(recent) if one[0] <= place)
            tell(batch, [reject_of(found[batch.input], batch.documents, place - first, reason)])

        batches = map(texts_of, read_batches(found, reading, workers=workers))
        fitted = fit_idf(batches, profile, limits, workers=workers, on_refused=refused)
        stream.write(fitted.content)
    sha256 = hashlib.sha256(fitted.content).hexdigest()
    if output != "-":
        print_json({"documents": fitted.documents, "words": fitted.words, "sha256": sha256, "rejected": rejected})
    return ExitCode.REJECTED_RECORDS if rejected else ExitCode.DONE
