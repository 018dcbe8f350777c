"""Fit a rarity table to the texts in the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from hsimhash.errors import StopAskedError
from hsimhash.fingerprint.fit import Fit, profile_with_table
from hsimhash.fingerprint.profile import Profile
from hsimhash.fingerprint.rarity import FIT_AUTO, RarityTable
from hsimhash.inputs.extraction import PageTexts, refusal
from hsimhash.inputs.files import Input, InputOptions, usual_workers
from hsimhash.inputs.reader import Batch, HeldBatches, raw_batches, texts_of_raw
from hsimhash.load.intake import bytes_before
from hsimhash.processes import NoResult
from hsimhash.progress import UNWATCHED, Observer


class Fitted(NamedTuple):
    """A table, and the number of documents read for it."""

    table: RarityTable
    read: int


def fit_inputs(
    inputs: Sequence[Input],
    reading: InputOptions,
    profile: Profile,
    *,
    sample: int | None = None,
    workers: int | None = None,
    observer: Observer = UNWATCHED,
    on_rejected: Callable[[str, str], None] = lambda *_: None,
    held: HeldBatches | None = None,
) -> Fitted:
    """Read the inputs once, and fit a table to a sample of their texts; see `Fit`.

    Only HTML pages in the sample are parsed.

    Args:
        inputs: Inputs with texts.
        reading: How to read them.
        profile: Profile that defines the features and weighs them by rarity.
        sample: Maximum number of texts in the sample. Default: see `sample_size`.
        workers: Number of processes that handle the sample.
        observer: Receives progress; if its `stop` returns True, `StopAskedError` is raised.
        on_rejected: Called with (file and line, reason) for each record without a usable text.
        held: Keeps what was read, for `read_again`.

    Raises:
        ValueError: There is nothing to learn, or the profile does not weigh features by rarity.
    """
    fit, workers = Fit(profile, sample), workers or usual_workers(inputs)

    def wanted_texts(pages: PageTexts) -> Iterator[tuple[int, str, str]]:
        for batch in raw_batches(inputs, reading, stop=observer.stop, held=held):
            one, documents = inputs[batch.input], batch.documents
            for reject in documents.rejects:
                on_rejected(f"{reject.path or one.name}:{reject.line}", reject.reason)
            wanted = fit.wanted(documents.texts)
            found = texts_of_raw(pages, one, documents, list(wanted.values()))
            for (hashed, place), text in zip(wanted.items(), found, strict=True):
                if isinstance(text, NoResult):
                    on_rejected(_name_of(one, batch, place), refusal(text))
                else:
                    yield hashed, text, _name_of(one, batch, place)
            observer.report("fit", *bytes_before(inputs, batch.end), fit.read)

    with PageTexts(reading, workers) as pages:
        fit.take_all(wanted_texts(pages), workers=workers)
    if observer.stop():
        raise StopAskedError("stopped while fitting")
    return Fitted(fit.table(workers=workers, on_refused=on_rejected), fit.read)


def fitted_profile(
    inputs: Sequence[Input],
    reading: InputOptions,
    profile: Profile,
    fit: str = FIT_AUTO,
    *,
    workers: int | None = None,
    observer: Observer = UNWATCHED,
    held: HeldBatches | None = None,
) -> Profile:
    """Return the profile with a rarity table.

    Args:
        inputs: Inputs to be fingerprinted.
        reading: How to read them.
        profile: Profile that the user chose.
        fit: Path of a table, `FIT_OFF` for the profile's own table of general text, or `FIT_AUTO` for a table fitted to
            the inputs. `FIT_AUTO` leaves the profile unchanged if it does not weigh features by rarity, if the user
            chose a table for it, if the inputs have fingerprints or include a stream (which cannot be read twice), or
            if there are fewer than `LEAST_DOCUMENTS`.
        workers: Number of processes that handle the sample.
        observer: Receives progress.
        held: Keeps what was read, for `read_again`.

    Raises:
        ValueError: The file cannot be read or is not a table, or the profile does not weigh features by rarity.
    """

    def learn() -> RarityTable | None:
        if any(one.is_stream or one.has_fingerprints for one in inputs):
            return None
        return fit_inputs(inputs, reading, profile, workers=workers, observer=observer, held=held).table

    return profile_with_table(profile, fit, learn)


def _name_of(one: Input, batch: Batch, place: int) -> str:
    """Return the file and line of the text at an index in a batch."""
    file, line = one.place_of(batch.documents.doc_ids[place], batch.documents.lines[place])
    return f"{file}:{line}"
