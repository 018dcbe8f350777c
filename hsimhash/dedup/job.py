"""Inputs → pairs, clusters, and what to keep, in a folder of results: the steps of `hsimhash dedup`.

Results depend on inputs and options alone: only what `stats.json` has under `run` differs from one run to the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hsimhash.dedup.against import NONE_STORED, Stored, match_stored
from hsimhash.dedup.documents import Collected, Listener, Reading, collect
from hsimhash.dedup.grouping import Rule, find_near, group
from hsimhash.dedup.options import DedupObserver, DedupOptions, DedupProgress, DedupSummary, Stage
from hsimhash.dedup.outputs import NAMES, REJECTS, SHORT, OutputFolder, output_errors
from hsimhash.dedup.results import MATCH_COLUMNS, Results
from hsimhash.dedup.summary import Outcome
from hsimhash.dedup.tables import Form, open_table, table_form
from hsimhash.files import AppendLog
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.inputs.files import Input
from hsimhash.pairs import find_pairs
from hsimhash.pairs.keep import needed_fields, needs_lengths, rank


def dedup(
    inputs: Sequence[Input],
    folder: Path,
    options: DedupOptions,
    *,
    against: HSimIndex | Profile,
    observer: DedupObserver | None = None,
) -> DedupSummary:
    """Find near-duplicates in inputs, and write what to keep; the inputs are not changed.

    Args:
        inputs: what `find_inputs` found.
        folder: where results are written; all of them appear when they are complete.
        options: what to do.
        against: an index with documents from before, whose profile then counts; or else the profile.
        observer: who watches.

    Raises:
        ValueError: bad arguments, or there are results already; nothing was written.
        HsimhashError: the folder cannot be written.
    """
    rule, form = options.rule, table_form(options.table_format)
    _check(inputs, options, against)
    _check_place(inputs, folder)
    with OutputFolder.begin(folder, overwrite=options.overwrite) as output:
        return _Run(inputs, output, options, rule, form, against, observer or DedupObserver()).run()


def _check(inputs: Sequence[Input], options: DedupOptions, against: HSimIndex | Profile) -> None:
    """Refuse what could not be done, before anything is read."""
    find_pairs(np.empty(0, np.uint64), max_distance=options.max_distance)
    if isinstance(against, HSimIndex) and not 0 <= options.max_distance <= against.layout.max_distance:
        raise ValueError(
            f"max_distance {options.max_distance} is outside 0 to {against.layout.max_distance}, what {against.url} "
            f"finds without a miss"
        )
    textless = [one.name for one in inputs if one.has_fingerprints]
    if textless and needs_lengths(options.keep):
        raise ValueError(f"keep policy longest needs texts, and input {textless[0]} holds fingerprints; leave it out")


def _check_place(inputs: Sequence[Input], folder: Path) -> None:
    for one in inputs:
        if one.kind == "files" and one.reads(folder):
            raise ValueError(
                f"{folder} lies within input {one.name}, so its files would be read as texts; choose another"
            )
        if any(one.reads(folder / name) for name in NAMES):
            raise ValueError(
                f"input {one.name} has the name of a result in {folder}, so it would be lost; choose another"
            )


@dataclass(slots=True)
class _Run:
    inputs: Sequence[Input]
    output: OutputFolder
    options: DedupOptions
    rule: Rule
    form: Form
    against: HSimIndex | Profile
    observer: DedupObserver
    _seconds: dict[str, float] = field(default_factory=dict)
    _documents: int = 0

    def run(self) -> DedupSummary:
        with self._stage("read"):
            documents = self._read()
            self._warn_of_fields(documents)
        with self._stage("find"):
            pairs = find_near(documents, self.rule)
        stored = NONE_STORED
        if isinstance(self.against, HSimIndex):
            with self._stage("match"):
                stored = self._match(self.against, documents)
        with self._stage("cluster"):
            ranks = rank(self.options.keep, documents.doc_ids, lengths=documents.lengths, fields=documents.fields)
            grouping = group(documents, pairs, ranks, self.rule, stored)
        outcome = Outcome(documents, pairs, self.rule.max_distance, grouping, stored)
        results = Results(outcome, self.inputs, self.options, self._url, self._profile.name)
        with output_errors(self.output.new):
            with self._stage("write"):
                results.write_tables(self.output.new, self.form)
                distances = results.write_report(self.output.new, self.form, lambda: self._tell("write"))
            results.write_stats(self.output.new, distances, self._seconds)
        self.output.finish()
        return DedupSummary(outcome.counts, outcome.notices, self._seconds, self.output.path)

    @contextmanager
    def _stage(self, stage: Stage) -> Iterator[None]:
        began_at = time.monotonic()
        self._tell(stage)
        yield
        self._seconds[stage] = round(time.monotonic() - began_at, 3)

    def _tell(self, stage: Stage, done: int = 0, total: int = 0, documents: int | None = None) -> None:
        self._documents = self._documents if documents is None else documents
        self.observer.progress(DedupProgress(stage, done, total, self._documents))

    @property
    def _profile(self) -> Profile:
        return self.against.profile if isinstance(self.against, HSimIndex) else self.against

    @property
    def _url(self) -> str | None:
        return self.against.url if isinstance(self.against, HSimIndex) else None

    def _read(self) -> Collected:
        options, fields = self.options, needed_fields(self.options.keep)
        reading = Reading(self.inputs, options.reading, self._profile, options.workers, fields)
        with closing(self._list(REJECTS)) as rejects, closing(self._list(SHORT)) as short:

            def progress(done: int, total: int, documents: int) -> None:
                self._tell("read", done, total, documents)

            return collect(reading, Listener(rejects.append, short.append, self.observer.say, progress))

    def _list(self, name: str) -> AppendLog:
        return AppendLog(self.output.new / name, errors=output_errors)

    def _warn_of_fields(self, documents: Collected) -> None:
        """Tell where a policy has no effect, for a misspelt field would have none, or passes over values."""
        for policy in self.options.keep:
            values = documents.fields.get(policy.field, ())
            last = [number for number, value in enumerate(values) if policy.value_of(value) is None]
            unfit = [number for number in last if values[number] is not None]
            if values and len(last) == len(values):
                self.observer.say(f'keep {policy}: no document has a field "{policy.field}" that can be compared')
            elif unfit:
                wanted = "no number and no ISO 8601 time" if policy.kind == "newest" else "no number"
                self.observer.say(
                    f'keep {policy}: documents whose "{policy.field}" is {wanted} come last: {len(unfit):,}, the first '
                    f"is {documents.doc_ids[unfit[0]]!r:.200}"
                )

    def _match(self, index: HSimIndex, documents: Collected) -> Stored:
        path = self.output.new / f"matches.{self.form}"
        with output_errors(path), open_table(path, self.form, MATCH_COLUMNS) as table:

            def progress(done: int, total: int) -> None:
                self._tell("match", done, total)

            return match_stored(index, documents, self.options.max_distance, table.write, progress)
