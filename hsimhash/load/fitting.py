"""Fit a rarity table to the texts of inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """A table, and how many documents were read for it."""

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

    HTML is read only in the sample.

    Args:
        inputs: texts.
        reading: how they are read.
        profile: whose features; one with weights by rarity.
        sample: the most texts that count; by default see `sample_size`.
        workers: processes that look at them.
        observer: watches; if its `stop` asks to end, `StopAskedError` is raised.
        on_rejected: called with the file and line, and the reason, of each record without a text that can be used.
        held: takes what was read, for `read_again`.

    Raises:
        ValueError: there is nothing to learn, or the profile does not weigh features by their rarity.
    """
    fit, workers = Fit(profile, sample), workers or usual_workers(inputs)
    with PageTexts(reading, workers) as pages:
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
                    fit.take(hashed, text, _name_of(one, batch, place))
            observer.report("fit", *bytes_before(inputs, batch.end), fit.read)
    if observer.stop():
        raise StopAskedError("asked to end while fitting")
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
        inputs: what is to be fingerprinted.
        reading: how they are read.
        profile: as it was asked for.
        fit: the file of a table; `FIT_OFF`: the profile's own, of general text; `FIT_AUTO`: one fitted to the inputs,
            unless that is not possible or of no use: where the profile does not weigh by rarity, or has a table of the
            user's; where the inputs are fingerprints, or a stream, which cannot be read twice; and where there are
            fewer than `LEAST_DOCUMENTS`.
        workers: processes that look at the sample.
        observer: watches.
        held: takes what was read, for `read_again`.

    Raises:
        ValueError: the file cannot be read or holds no table, or the profile does not weigh by one.
    """

    def learn() -> RarityTable | None:
        if any(one.is_stream or one.has_fingerprints for one in inputs):
            return None
        return fit_inputs(inputs, reading, profile, workers=workers, observer=observer, held=held).table

    return profile_with_table(profile, fit, learn)


def _name_of(one: Input, batch: Batch, place: int) -> str:
    """Name the text at a place in a batch by its file and line."""
    documents = batch.documents
    is_file = one.kind == "files"
    return f"{one.path_of(documents.doc_ids[place])}:1" if is_file else f"{one.name}:{documents.lines[place]}"
