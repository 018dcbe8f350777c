"""Ingest documents: read and fingerprint them, then add them in bulk or decide on each as if they arrived one by one.

However a job ends, everything that its last checkpoint acknowledged is kept, and the same call continues from there. A
job that reads a stream starts over instead.

- `add`: documents are collected into sorted runs. Each run is made durable before its checkpoint. At the end, all runs
  are merged.
- `skip`, `tag`: for each batch, its decisions become durable first, then its documents, its tags, and its checkpoint. A
  resumed job carries out the decisions that it finds beyond the checkpoint. It cannot make them again, because the
  index has changed since then. However, if the store applies batches atomically, decisions that it does not remember
  were not carried out. They are made again, because other writers may have changed the index in the meantime.
- `skip` with claims, if the store does not apply batches atomically: the decision on each document, assuming that it is
  new, becomes durable first, then the batch is claimed, then its checkpoint is written. A resumed job claims again,
  which is harmless because a document is not a duplicate of itself.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Literal

import numpy as np

from hsimhash import metrics
from hsimhash.cover import check_distance
from hsimhash.durations import Pace
from hsimhash.errors import OTHER_JOB, LostRightError, Remedy, StopAskedError
from hsimhash.fingerprint import Signatures
from hsimhash.fingerprint.bits import Int64s, spoken
from hsimhash.fingerprint.signature import MAX_SKETCH, check_max_sketch
from hsimhash.index import HSimIndex
from hsimhash.inputs.files import Input, InputOptions, usual_workers
from hsimhash.inputs.lines import BLOCK_BYTES
from hsimhash.inputs.reader import Position, read_batches
from hsimhash.layout import Layout
from hsimhash.load.decisions import Decision, DuplicateRule, Verdict, decide, expected_of
from hsimhash.load.intake import Gathering, bytes_before, estimated, fingerprinted
from hsimhash.load.job import JOB_LISTS, Checkpoint, Counts, Job, JobSpec, State, Summary, default_job
from hsimhash.progress import UNWATCHED, Observer, Progress
from hsimhash.rowkey import check_documents
from hsimhash.store import BulkLoad, Mark, StageOptions, store_name
from hsimhash.store.base import resumed

OnDuplicate = Literal["add", "skip", "tag"]


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """Limits on the unacknowledged data that is held in memory and can be lost if the process is killed."""

    # `add` ends a sorted run when it reaches the first of these limits.
    run_documents: int = 1_000_000  # documents
    run_id_characters: int = 64 << 20  # characters of ids
    run_s: float = 30.0  # age of the run in seconds, unless the next limit allows more
    run_share: float = 0.02  # age as a share of the job's time so far, so that a long job does not leave too many runs
    # `skip` and `tag` write a checkpoint when they reach the first of these limits.
    gathered_documents: int = 1_000  # documents
    gathered_s: float = 1.0  # age of the batch in seconds
    decided_at_once: int = 2_000  # documents decided together; each is compared with all earlier ones among them
    block_bytes: int = BLOCK_BYTES  # approximate number of bytes read from an input at once
    step_documents: int | None = None  # documents that a merge writes at once; None: the store's own default


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Options for an ingest.

    Args:
        on_duplicate: `add` adds every document, `skip` leaves out documents with a match and lists them, and `tag` adds
            every document and lists its nearest earlier match.
        max_distance: Maximum distance of a match for `skip` and `tag`, in bits. Default: the index's distance.
        max_sketch: See `HSimIndex.query`; for `skip` and `tag`.
        reading: How to read the inputs.
        workers: Number of processes that fingerprint texts. Default: one per core.
        job: Job folder. Default: `default_job`.
        tags: File for the list of matches that `skip` and `tag` write. Default: `tags.jsonl` in the job folder.
        fresh: Whether to ignore what an earlier call left in the job folder.
        rate: Maximum number of documents to read per second; for a bulk load into HBase, to write.
        stage: On HBase, write files in this stage and load them.
        claims: With `skip`, decide by claims if the store does not lock out other writers. Other processes can then
            ingest at the same time, as long as all of them use claims. See `HSimIndex.claim_many`.
        limits: Limits on memory use and on what a kill may lose.
    """

    on_duplicate: OnDuplicate = "add"
    max_distance: int | None = None
    max_sketch: int | None = MAX_SKETCH
    reading: InputOptions = field(default_factory=InputOptions)
    workers: int | None = None
    job: Path | None = None
    tags: Path | None = None
    fresh: bool = False
    rate: float | None = None
    stage: StageOptions | None = None
    claims: bool = False
    limits: IngestLimits = IngestLimits()

    def __post_init__(self) -> None:
        if self.rate is not None and not self.rate > 0:
            raise ValueError(f"rate must be more than 0 documents per second, got {self.rate}")
        check_max_sketch(self.max_sketch)
        if self.on_duplicate not in ("add", "skip", "tag"):
            raise ValueError(f"on_duplicate must be add, skip or tag, got {self.on_duplicate!r}")
        if self.stage is not None and (self.on_duplicate != "add" or self.rate is not None):
            raise ValueError("stage needs on_duplicate add and cannot be combined with rate")
        if self.claims and self.on_duplicate != "skip":
            raise ValueError(f"claims need on_duplicate skip, got {self.on_duplicate}")
        if self.tags is not None and self.on_duplicate == "add":
            raise ValueError("tags need on_duplicate skip or tag, got add")


def ingest(
    index: HSimIndex, inputs: Sequence[Input], options: IngestOptions, observer: Observer = UNWATCHED
) -> Summary:
    """Load the documents of inputs into an index; resumes where an earlier call with the same arguments ended.

    Raises:
        ValueError: An argument is invalid, or an unfinished job has different arguments. Nothing was written.
        StoreBusyError: Another process is working on the same job or writing to the index.
        StoreUnavailableError: A disk is full or read-only. Once that is fixed, the same call continues.
    """
    index.backend.refuse_writes(index.url)
    folder = options.job or default_job(index.full_url, inputs)
    check_options(index.layout, inputs, options)
    distance = index.distance if options.max_distance is None else options.max_distance
    rule = DuplicateRule(distance, options.max_sketch, leaves_out=options.on_duplicate == "skip")
    has_signatures = index.store.record.has_signatures
    reading = replace(options.reading, has_signatures=has_signatures).for_profile(index.profile)
    options = replace(options, reading=reading, claims=options.claims and not index.store.is_atomic)
    if options.claims:
        index.claim_many([], [])  # fails if the store does not support claims
    if options.tags is not None and index.backend.is_own_file(index.full_url, options.tags):
        raise ValueError(f"tags {options.tags} is a file in the index {index.url} itself; choose another name")
    lists = [folder / f"{name}.jsonl" for name in JOB_LISTS]
    if read := [one.name for one in inputs if one.kind != "files" and any(map(one.reads, lists))]:
        raise ValueError(f"input {read[0]} is an output file of job {folder} and would be overwritten; " + OTHER_JOB)
    spec = _spec(index, inputs, options, rule)
    with Job.open(folder, spec, tags=options.tags, fresh=options.fresh, store=index.store) as job:
        if job.was_forgotten:
            observer.say("this job is finished, but its results are not in the index, so its inputs are ingested again")
        run = _Run(index, inputs, options, observer, job)
        if job.was_done:  # the job may have been killed before it cleaned up
            if job.runs_folder.exists():
                index.bulk(job.runs_folder, stage=options.stage).delete()
            return run.end()
        if job.is_resumed:
            run.say_resumed()
        try:
            return run.bulk() if options.on_duplicate == "add" else run.decide(rule)
        except StopAskedError:  # `stop` returned True while this call was waiting for another writer
            return run.summary(is_complete=False)


def check_options(layout: Layout, inputs: Sequence[Input], options: IngestOptions) -> None:
    """Raise `ValueError` if an option is not possible with this layout, or if the tags cannot be written."""
    if options.tags is not None:
        _check_tags(options.tags, inputs)
    if options.max_distance is not None:
        check_distance(options.max_distance, layout)


def _check_tags(tags: Path, inputs: Sequence[Input]) -> None:
    reason = ""
    if not tags.parent.is_dir():
        reason = f"folder {tags.parent} does not exist"
    elif os.path.lexists(tags) and not tags.is_file():
        reason = "it is not a file"
    elif not os.access(tags if tags.exists() else tags.parent, os.W_OK):
        reason = "permission denied"
    elif read := [one.name for one in inputs if one.reads(tags)]:
        reason = f"it is also input {read[0]}"
    if reason:
        raise ValueError(f"tags {tags} cannot be written: {reason}; nothing was written; choose another name")


def _spec(index: HSimIndex, inputs: Sequence[Input], options: IngestOptions, rule: DuplicateRule) -> JobSpec:
    decides = options.on_duplicate != "add"
    settings: dict[str, object] = {
        "store": store_name(index.full_url),
        "layout": index.layout.name,
        "profile": index.profile.name,
        "on_duplicate": options.on_duplicate,
        "max_distance": rule.max_distance if decides else None,
        "max_sketch": rule.max_sketch if decides and options.reading.has_signatures else None,
        "tags": str(options.tags.absolute()) if options.tags else None,
        **({} if options.stage is None else {"stage": options.stage.stage}),
        **({"claims": True} if options.claims else {}),
        **asdict(options.reading),
        "id_field": options.reading.named_id_field,
    }
    del settings["fingerprint_format"]  # the mark of each input includes the detected format
    for name in ("has_signatures", "fields", "has_features"):  # determined by the profile
        del settings[name]
    if options.reading.extract == "auto":  # jobs from earlier releases do not have this setting
        del settings["extract"]
    marks = []
    for one in inputs:
        content = f"{spoken(one.formats)} fingerprints" if one.has_fingerprints else "texts"
        marks.append((one.place, f"{one.kind} with {content} {one.mark}".rstrip()))
    return JobSpec(settings, marks, is_stream=any(one.is_stream for one in inputs))


def _refuse_numbered(one: Input, count: int) -> None:
    """Raise `ValueError` if records of a stream lack ids, because the next stream would reuse their numbers."""
    if one.is_stream and count:
        raise ValueError(
            f"{one.label}: some records do not have an id, and records of a stream cannot be numbered, because the "
            f"next stream would replace them; save the stream to a file, or "
            + Remedy("pass the field with the id as id_field", "pass --id-field")
        )


class _Run:
    """One call of `ingest`."""

    def __init__(
        self, index: HSimIndex, inputs: Sequence[Input], options: IngestOptions, observer: Observer, job: Job
    ) -> None:
        self._index = index
        self._inputs = inputs
        self._options = options
        self._limits = options.limits
        self._observer = observer
        self._job = job
        self._counts = job.checkpoint.counts
        self._marked = 0  # number of decisions carried out, according to the index
        self._is_recalled = False  # whether `_marked` was read from the index
        self._began_at = time.monotonic() - job.checkpoint.seconds  # includes the working time of earlier calls
        self._pace = Pace(options.rate, observer.stop)
        self._is_paced_by_merge = options.on_duplicate == "add" and not index.backend.is_embedded
        self._merged: int | None = None  # documents merged so far; the first report includes earlier calls

    def say_resumed(self) -> None:
        """Report where the job continues."""
        done, total = bytes_before(self._inputs, self._job.checkpoint.position)
        share = f" at {done / total:.0%}" if total else ""
        self._observer.say(f"resuming{share}, after {self._counts.documents:,} documents (job {self._job.folder})")

    def bulk(self) -> Summary:
        """Collect sorted runs and merge them."""
        with self._index.bulk(self._job.runs_folder, self._limits.step_documents, stage=self._options.stage) as bulk:
            bulk.discard_after(self._job.checkpoint.runs)
            if (
                self._options.stage is not None
                and not bulk.runs
                and (expected := estimated(self._inputs, self._options.reading))
            ):
                bulk.expect(*expected)
            for gathered in self._gathered(self._is_run):
                if gathered.doc_ids:
                    signatures, first_seen = gathered.columns()
                    bulk.add_run(signatures, gathered.doc_ids, first_seen)
                self._acknowledge(gathered, runs=bulk.runs)
            if not self._is_all_read():
                return self.summary(is_complete=False)
            self._save(replace(self._job.checkpoint, state=State.MERGING))
            summary = resumed(partial(self._merge, bulk, self._counts))
            if summary.is_complete:
                bulk.delete()
        return summary

    def _merge(self, bulk: BulkLoad, counts: Counts) -> Summary:
        """Merge all runs; `counts` covers the records read."""
        with self._index.store.writing(stop=self._observer.stop):
            added = metrics.measured("merge")(bulk.merge)(Observer(self._observer.stop, self._report_merge))
            if added is None:
                self._save(self._job.checkpoint)
                return self.summary(is_complete=False)
            indexed = counts.documents - counts.rejected - counts.short
            replaced = indexed - bulk.distinct_documents
            self._counts = counts.plus(added=added, unchanged=indexed - added, replaced=replaced)
            self._remember()
            return self._finish()

    def decide(self, rule: DuplicateRule) -> Summary:
        """Decide on the documents batch by batch, and carry out the decisions."""
        store = self._index.store
        for gathered in self._gathered(self._is_batch):
            signatures, first_seen = gathered.columns()
            signatures = store.record.stored(signatures)
            start = 0
            while start < len(signatures):
                part = slice(start, start + self._limits.decided_at_once)
                some = gathered.doc_ids[part], signatures[part], first_seen[part]
                start += resumed(partial(self._settle, *some, rule, self._counts, self._job.decisions.acknowledged))
            self._acknowledge(gathered)
        return self._finish() if self._is_all_read() else self.summary(is_complete=False)

    def _recall(self) -> None:
        """Read from the index what was carried out before a kill or before write access was lost."""
        self._marked = self._index.store.marked(self._job.checkpoint.token)
        if self._index.store.is_atomic:
            self._job.decisions.drop(after=max(0, self._marked - self._counts.settled))
        self._is_recalled = True

    def _settle(
        self,
        doc_ids: Sequence[str],
        signatures: Signatures,
        first_seen: Int64s,
        rule: DuplicateRule,
        counts: Counts,
        acknowledged: int,
    ) -> int:
        """Decide on the first of these documents, and carry out the decisions; return the number of documents.

        If write access is lost, the counts and the decisions are reset to `counts` and `acknowledged`. The next attempt
        then reads from the index what was carried out, as after a kill.
        """
        try:
            # Other writers must wait, because the decisions would not take their documents into account.
            with self._index.store.writing(stop=self._observer.stop):
                if not self._is_recalled:
                    self._recall()
                if self._options.claims:
                    decisions = self._claimed(doc_ids, signatures, first_seen, rule)
                else:
                    decisions = self._decisions(doc_ids, signatures, rule)
                done = slice(len(decisions))
                self._carry_out(decisions, signatures[done], first_seen[done])
        except LostRightError:
            self._counts, self._is_recalled = counts, False
            self._job.decisions.rewind(acknowledged)
            raise
        return len(decisions)

    def summary(self, *, is_complete: bool) -> Summary:
        """Return the counts and progress so far."""
        done, total = bytes_before(self._inputs, self._job.checkpoint.position)
        return Summary(
            self._counts,
            self._seconds(),
            self._job.folder,
            self._job.paths["rejects"] if self._counts.rejected else None,
            self._job.paths["tags"] if self._options.on_duplicate == "tag" or self._counts.duplicates else None,
            is_complete,
            self._job.was_done,
            done / total if total and self._job.checkpoint.state is State.RUNNING else None,
        )

    def end(self) -> Summary:
        """Return the summary of the finished job, and write it to the job folder."""
        summary = self.summary(is_complete=True)
        self._job.end(summary)
        return summary

    # From inputs to batches that are acknowledged together.

    def _gathered(self, is_enough: Callable[[Gathering], bool]) -> Iterator[Gathering]:
        """Yield what is read, in batches; the last batch ends with the inputs, or when `stop` returns True."""
        workers = self._options.workers or usual_workers(self._inputs)
        profile = self._index.profile
        if not all(one.has_fingerprints for one in self._inputs):
            profile.verify()
        start = self._job.checkpoint.position
        batches = read_batches(
            self._inputs,
            self._options.reading,
            start,
            stop=self._observer.stop,
            block_bytes=self._limits.block_bytes,
            workers=workers,
        )
        gathering = Gathering()
        with closing(fingerprinted(self._inputs, batches, profile, workers)) as found:
            for batch, made in found:
                _refuse_numbered(self._inputs[batch.input], batch.documents.numbered)
                before = gathering.counts.documents
                gathering.take(self._inputs[batch.input], batch, made)
                taken = gathering.counts.documents - before
                if warning := batch.documents.warning(self._inputs[batch.input].name):
                    self._observer.say(warning)
                done, total = bytes_before(self._inputs, batch.end)
                documents = self._counts.documents + gathering.counts.documents
                self._observer.report("read", done, total, documents)
                if is_enough(gathering):
                    yield gathering
                    gathering = Gathering()
                if not self._is_paced_by_merge:
                    self._pace.keep(taken)
        if gathering.end is not None:
            yield gathering

    def _is_all_read(self) -> bool:
        return self._job.checkpoint.position.input == len(self._inputs)

    def _is_run(self, gathering: Gathering) -> bool:
        limits, ids = self._limits, len(gathering.doc_ids)
        is_full = ids >= limits.run_documents or gathering.id_characters >= limits.run_id_characters
        return is_full or gathering.is_older_than(max(limits.run_s, limits.run_share * self._seconds()))

    def _is_batch(self, gathering: Gathering) -> bool:
        limits = self._limits
        return len(gathering.doc_ids) >= limits.gathered_documents or gathering.is_older_than(limits.gathered_s)

    def _decisions(self, doc_ids: Sequence[str], signatures: Signatures, rule: DuplicateRule) -> list[Decision]:
        """Return decisions made on the first of these documents before a kill, else new decisions on all of them."""
        log = self._job.decisions
        decisions = log.take(doc_ids, signatures)
        if not decisions:
            if self._marked > self._counts.settled:  # the mark counts decisions on other documents
                self._remember()
            decisions = decide(self._index, doc_ids, signatures, rule)
            log.append(decisions)
        return decisions

    def _claimed(
        self, doc_ids: Sequence[str], signatures: Signatures, first_seen: Int64s, rule: DuplicateRule
    ) -> list[Decision]:
        """Claim documents, resuming after a kill; return the final decisions."""
        log = self._job.decisions
        expected = log.take(doc_ids, signatures)
        if not expected:
            expected = expected_of(self._index, doc_ids, signatures)
            log.append(expected)
        claiming = slice(len(expected))
        claims = self._index.claim_many(
            signatures[claiming],
            doc_ids[claiming],
            max_distance=rule.max_distance,
            max_sketch=rule.max_sketch,
            first_seen=first_seen[claiming].tolist(),
        )
        return [one.claimed(claim) for one, claim in zip(expected, claims, strict=True)]

    def _carry_out(self, decisions: Sequence[Decision], signatures: Signatures, first_seen: Int64s) -> None:
        is_added = np.array([decision.verdict is not Verdict.DUPLICATE for decision in decisions], np.bool_)
        doc_ids = [decision.doc_id for decision, is_one in zip(decisions, is_added, strict=True) if is_one]
        number = Counter(decision.verdict for decision in decisions)
        self._counts = self._counts.plus(
            added=number[Verdict.ADDED] + number[Verdict.CHANGED],
            replaced=number[Verdict.CHANGED],
            unchanged=number[Verdict.UNCHANGED],
            duplicates=number[Verdict.DUPLICATE],
        )
        if self._options.claims:  # claiming has already stored the documents
            self._remember()
        elif self._counts.settled > self._marked:  # else they were stored before a kill, and may have changed since
            self._insert(signatures[is_added], doc_ids, first_seen[is_added])
        is_listed = [one.verdict is Verdict.DUPLICATE or self._options.on_duplicate == "tag" for one in decisions]
        self._job.lists["tags"].append(decision.to_tag() for decision in compress(decisions, is_listed))

    @metrics.measured("add_many")
    def _insert(self, signatures: Signatures, doc_ids: Sequence[str], first_seen: Int64s) -> None:
        """Add documents, and record in the index how many are settled, including these."""
        signatures, encoded, times = check_documents(signatures, doc_ids, first_seen)
        mark = Mark(self._job.checkpoint.token, self._counts.settled)
        self._index.store.insert(encoded, signatures, times, mark=mark)
        self._marked = mark.count

    def _remember(self) -> None:
        """Record in the index how many documents are settled."""
        self._insert(Signatures.of([]), [], np.empty(0, np.int64))

    # Checkpoints and reports.

    def _acknowledge(self, gathered: Gathering, *, runs: int = 0) -> None:
        self._job.lists["rejects"].append(gathered.rejects)
        self._job.lists["short"].append(gathered.short)
        self._counts = self._counts.sum(gathered.counts)
        self._save(replace(self._job.checkpoint, position=gathered.end or Position(), runs=runs))

    def _save(self, checkpoint: Checkpoint) -> None:
        self._job.save(replace(checkpoint, counts=self._counts, seconds=self._seconds()))

    def _finish(self) -> Summary:
        self._save(replace(self._job.checkpoint, state=State.DONE))
        return self.end()

    def _seconds(self) -> float:
        """Return the working time of all calls, in seconds."""
        is_done = self._job.checkpoint.state is State.DONE
        return self._job.checkpoint.seconds if is_done else time.monotonic() - self._began_at

    def _report_merge(self, merged: Progress) -> None:
        if self._is_paced_by_merge:
            self._pace.keep(merged.done - (merged.done if self._merged is None else self._merged))
        self._merged = merged.done
        self._observer.report(merged.stage, merged.done, merged.total, self._counts.documents)
