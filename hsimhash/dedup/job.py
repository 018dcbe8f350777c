"""Run the steps of `hsimhash dedup`: write pairs, clusters and lists of what to keep to a results folder.

Results depend only on the inputs and options. Two runs can differ only in the `run` entry in `stats.json`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from hsimhash.cover import check_dedup_distance, check_distance
from hsimhash.dedup.documents import Collected, Listener, collect
from hsimhash.dedup.grouping import (
    Stored,
    about_pairs,
    dropped_by_key,
    find_near,
    group,
    kept_pairs,
    match_stored,
    none_stored,
)
from hsimhash.dedup.key_check import TextCheck
from hsimhash.dedup.options import DedupOptions, DedupSummary
from hsimhash.dedup.outputs import NAMES, REJECTS, SHORT, output_errors, output_folder
from hsimhash.dedup.results import MATCH_COLUMNS, SIGNATURE_COLUMNS, Results
from hsimhash.dedup.summary import Outcome
from hsimhash.dedup.tables import Form, open_table, table_form
from hsimhash.errors import plural
from hsimhash.files import AppendLog
from hsimhash.fingerprint import Profile, Signatures
from hsimhash.fingerprint.rarity import FIT_AUTO, FIT_OFF
from hsimhash.fingerprint.recipe import BY_RARITY
from hsimhash.index import HSimIndex
from hsimhash.inputs.files import Input
from hsimhash.inputs.reader import HeldBatches
from hsimhash.load.fitting import fitted_profile
from hsimhash.pairs.keep_policies import needed_fields, needs_lengths
from hsimhash.progress import UNWATCHED, Observer


def dedup(
    inputs: Sequence[Input],
    folder: Path,
    options: DedupOptions,
    *,
    against: HSimIndex | Profile,
    observer: Observer = UNWATCHED,
) -> DedupSummary:
    """Find near-duplicates in inputs, and write which documents to keep; the inputs are not changed.

    Args:
        inputs: Inputs found by `find_inputs`.
        folder: Folder for the results; they appear only when all of them are complete.
        options: Options for the run.
        against: Index with earlier documents, whose profile is then used, or a profile.
        observer: Receives progress and warnings.

    Raises:
        ValueError: An argument is invalid, or the folder already has results; nothing was written.
        HsimhashError: The folder cannot be written.
    """
    form = table_form(options.table_format)
    profile = against.profile if isinstance(against, HSimIndex) else against
    options = replace(options, reading=options.reading.for_profile(profile))
    _check(inputs, options, profile, against)
    _check_place(inputs, folder)
    with output_folder(folder, overwrite=options.overwrite) as new:
        run = _DedupRun(inputs, new, options, form, against, observer, profile)
        outcome = run.outcome()
        run.write(outcome, folder)
    return DedupSummary(outcome.totals, outcome.notices, run.seconds, folder, run.profile.learnt)


def _check(inputs: Sequence[Input], options: DedupOptions, profile: Profile, against: HSimIndex | Profile) -> None:
    """Raise `ValueError` for invalid options before anything is read."""
    if options.fit not in (FIT_AUTO, FIT_OFF):
        if isinstance(against, HSimIndex):
            raise ValueError(
                f"fit {options.fit} does not apply to an index, which keeps the profile that it was created with; "
                f"omit fit"
            )
        fitted_profile(inputs, options.reading, profile, options.fit)
    find_near(Signatures.of([]), options)
    if isinstance(against, HSimIndex):
        check_distance(options.max_distance, against.layout)
    else:
        check_dedup_distance(options.max_distance)
    textless = [one.name for one in inputs if one.has_fingerprints]
    if textless and needs_lengths(options.keep):
        raise ValueError(
            f"keep policy longest needs texts, but input {textless[0]} holds fingerprints; omit the policy"
        )


def _check_place(inputs: Sequence[Input], folder: Path) -> None:
    for one in inputs:
        within = one.folder or (one.name if one.kind == "files" else "")
        if within and not one.remote and folder.resolve().is_relative_to(Path(within).resolve()):
            raise ValueError(
                f"{folder} is inside input {within}, so the next run would read the results; choose another folder"
            )
        if any(one.reads(folder / name) for name in NAMES):
            raise ValueError(
                f"input {one.name} has the name of a result in {folder} and would be overwritten; choose another folder"
            )


@dataclass(slots=True)
class _DedupRun:
    inputs: Sequence[Input]
    folder: Path
    options: DedupOptions
    form: Form
    against: HSimIndex | Profile
    observer: Observer
    profile: Profile
    seconds: dict[str, float] = field(default_factory=dict)
    _documents: int = 0
    _began_ms: int = field(default_factory=lambda: -(-time.time_ns() // 1_000_000))

    def outcome(self) -> Outcome:
        options, held = self.options, HeldBatches(needed_fields(self.options.keep))
        if self.profile.weights == BY_RARITY and not isinstance(self.against, HSimIndex):
            with self._stage("fit"):
                self.profile = self._fitted(self.against, held)
        with self._stage("read"):
            documents = self._read(held)
            self._documents = len(documents.doc_ids)
            self._warn_of_fields(documents)
        with self._stage("find"):
            if options.pairs == "all":
                self._warn_of_pairs(documents)
            pairs = find_near(documents.signatures(documents.comparable), options, partial(self._report, "find"))
        stored = None
        if isinstance(self.against, HSimIndex):
            with self._stage("match"):
                stored = self._match(self.against, documents)
        documents.doc_ids.settle()
        with (
            self._stage("cluster"),
            TextCheck(documents, self.inputs, options, self.profile, self.folder) as check,
        ):
            grouping = group(documents, pairs, options, stored or none_stored(documents), check.refuses)
            looked = check.looked(*dropped_by_key(documents, grouping, options))
            if options.pairs != "all":
                pairs = kept_pairs(documents, grouping, pairs.groups, options, looked)
        return Outcome(documents, pairs, options, grouping, stored, looked)

    def write(self, outcome: Outcome, out: Path) -> None:
        url = self.against.url if isinstance(self.against, HSimIndex) else None
        asked = self.profile if isinstance(self.against, HSimIndex) else self.against
        results = Results(outcome, self.inputs, self.options, url, self.profile, asked.name, out)
        with output_errors(self.folder):
            with self._stage("write"):
                results.write_tables(self.folder, self.form)
                shown = results.write_report(self.folder, self.form, lambda: self._report("write"))
            results.write_stats(self.folder, shown, {"began_ms": self._began_ms, "seconds": self.seconds})

    @contextmanager
    def _stage(self, stage: str) -> Iterator[None]:
        began_at = time.monotonic()
        self._report(stage)
        yield
        self.seconds[stage] = round(time.monotonic() - began_at, 3)

    def _report(self, stage: str, done: int = 0, total: int = 0) -> None:
        self.observer.report(stage, done, total, self._documents)

    def _fitted(self, profile: Profile, held: HeldBatches) -> Profile:
        options, observer = self.options, self.observer
        return fitted_profile(
            self.inputs, options.reading, profile, options.fit, workers=options.workers, observer=observer, held=held
        )

    def _read(self, held: HeldBatches) -> Collected:
        rejects, short = (AppendLog(self.folder / name, errors=output_errors) for name in (REJECTS, SHORT))
        with closing(rejects), closing(short):
            listener = Listener(rejects.append, short.append, self.observer)
            return collect(self.inputs, self.options, self.profile, self.folder, listener, held)

    def _warn_of_pairs(self, documents: Collected) -> None:
        """Warn if there are more near pairs than documents."""
        about = about_pairs(documents.signatures(documents.comparable), self.options)
        if about > len(documents.doc_ids):
            self.observer.say(
                f"about {about:,} near pairs will be listed, in addition to pairs of equal documents; each needs up to "
                f"40 bytes of memory and adds a row to the table; to list only each dropped document and the one kept "
                f"in its place, use --pairs kept"
            )

    def _warn_of_fields(self, documents: Collected) -> None:
        """Warn if a policy does not have any effect, as when its field is misspelt, or cannot compare some values."""
        for policy in filter(documents.values.get, self.options.keep):
            values = documents.values[policy]
            if values.count and not values.compared:
                self.observer.say(f'keep {policy} has no effect: no document has a comparable field "{policy.field}"')
            elif values.unfit:
                wanted = "neither a number nor an ISO 8601 time" if policy.kind == "newest" else "not a number"
                (first,) = documents.doc_ids.at(np.array([values.first_unfit]))
                self.observer.say(
                    f'keep {policy}: documents whose "{policy.field}" is {wanted} come last: {values.unfit:,}, '
                    f"starting with {first!r:.200}"
                )

    def _match(self, index: HSimIndex, documents: Collected) -> Stored:
        path = self.folder / f"matches.{self.form}"
        columns = (*MATCH_COLUMNS, *(SIGNATURE_COLUMNS if documents.has_signatures else ()))
        with output_errors(path), open_table(path, self.form, columns) as table:
            stored = match_stored(index, documents, self.options, table.write, partial(self._report, "match"))
        if count := len(stored.same_ids):
            (example,) = documents.doc_ids.at(stored.same_ids[:1])
            self.observer.say(
                f"{plural(count, 'document')} already in the index under the same id, such as {example!r:.200}; "
                f"documents are not compared with themselves; if an id stands for two different documents, change one "
                f"(for files, pass the parent folder)"
            )
        self._warn_of_other_ids(documents, stored)
        return stored

    def _warn_of_other_ids(self, documents: Collected, stored: Stored) -> None:
        """Warn if all documents may have been stored under different ids, so that each is a duplicate of itself."""
        numbers, nearest = documents.comparable, stored.nearest[documents.comparable]
        if len(numbers) < 2 or np.any(nearest < 0):
            return
        if np.array_equal(documents.fingerprints[numbers], stored.fingerprints[nearest]):
            (own,) = documents.doc_ids.at(numbers[:1])
            self.observer.say(
                f"every document has the same fingerprint as a stored document with a different id, such as "
                f"{own!r:.200} and {stored.doc_ids[nearest[0]]!r:.200}; if these are the same documents, use their "
                f"stored ids (for files, pass the folder that was ingested)"
            )
