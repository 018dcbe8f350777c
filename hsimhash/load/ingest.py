"""Documents → index: read, fingerprint, and add them in bulk, or decide about each as if they came one by one.

Every way to end keeps what the last checkpoint acknowledged, and the same call goes on there:

- `add`: documents are collected into sorted runs; a run is durable, then its checkpoint. At the end all are merged.
- `skip`, `tag`: for each batch its decisions are durable, then its documents, then its tags, then its checkpoint. A
  resume carries out the decisions that it finds beyond the checkpoint instead of making them anew: the index that they
  were made against is no longer there. Where the store does all of a batch or nothing, those that it does not remember
  were not carried out, and are made anew: others may have written meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import StopAskedError
from hsimhash.fingerprint.bits import spoken
from hsimhash.index import HSimIndex
from hsimhash.inputs.files import Input, InputOptions
from hsimhash.inputs.records import DocumentReader
from hsimhash.layout import Layout
from hsimhash.load.decisions import Decision, DuplicateRule, Verdict, count_verdicts, decide
from hsimhash.load.intake import Gathering, Intake, bytes_before, intakes, usual_workers
from hsimhash.load.job import LISTS, Counts, Job, JobSpec, State
from hsimhash.load.pace import Pace
from hsimhash.rowkey import check_documents
from hsimhash.store import BulkLoad, Mark, is_hbase, is_own_file, store_name

RUN_DOCUMENTS = 1_000_000  # in one sorted run
RUN_ID_CHARACTERS = 64 << 20  # of ids in one sorted run
RUN_S = 30.0  # a kill loses so much work, or
RUN_SHARE = 0.02  # this share of it: a job of days shall not leave thousands of runs
DECIDED_AT_ONCE = 2_000  # each is compared with all of them
GATHERED_DOCUMENTS = 1_000  # of `skip` and `tag`: so many for a checkpoint, or
GATHERED_S = 1.0  # what came in this time
JOBS = Path(".hsimhash", "jobs")  # of an index that is no folder itself
BULK_BLOCK_BYTES = 256 << 10
DECIDED_BLOCK_BYTES = 64 << 10

OnDuplicate = Literal["add", "skip", "tag"]


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What an ingest does.

    Args:
        on_duplicate: `add` every document; `skip` those that have a match; or `tag`: add them all, and write down each
            one's nearest earlier match.
        max_distance: what counts as a match for `skip` and `tag`: 0 to the layout's k, its default.
        reading: how the inputs are read.
        workers: processes that fingerprint texts; by default one per core.
        job: the job folder; by default that of `default_job`.
        tags: where `tag` writes; by default `tags.jsonl` in the job folder.
        fresh: forget what an earlier call left in the job folder.
        rate: documents a second, at most: read, or, in bulk on HBase, brought into the table.
    """

    on_duplicate: OnDuplicate = "add"
    max_distance: int | None = None
    reading: InputOptions = field(default_factory=InputOptions)
    workers: int | None = None
    job: Path | None = None
    tags: Path | None = None
    fresh: bool = False
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and not self.rate > 0:
            raise ValueError(f"rate {self.rate} is no number of documents a second; it must be greater than 0")
        if self.on_duplicate not in ("add", "skip", "tag"):
            raise ValueError(f"on_duplicate is add, skip or tag, not {self.on_duplicate!r}")
        if self.tags is not None and self.on_duplicate != "tag":
            raise ValueError(f"tags are only written where on_duplicate is tag, not {self.on_duplicate}")


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an ingest is: stage `read` counts bytes of the inputs (0 in all: unknown), stage `merge` rows."""

    stage: Literal["read", "merge"]
    done: int
    total: int
    documents: int


@dataclass(frozen=True, slots=True)
class IngestObserver:
    """Who watches: `stop` is asked whether to end soon, `progress` and `say` are told. All may be called often."""

    stop: Callable[[], bool] = lambda: False
    progress: Callable[[IngestProgress], None] = lambda _: None
    say: Callable[[str], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Summary:
    """What came of an ingest: `counts` (see `Counts`); `is_complete` is false where `stop` ended it before its end.

    `rejects` and `tags` are the lists, where there are any; `seconds` of work over all calls; `done` is the share of
    the inputs that was read, None where their size is unknown or all was read.
    """

    counts: Counts
    seconds: float
    job: Path
    rejects: Path | None
    tags: Path | None
    is_complete: bool
    is_repeated: bool
    done: float | None

    def to_json(self) -> dict[str, object]:
        """Return the counts, seconds, documents per second, the job folder, and the lists that there are."""
        rate = round(self.counts.documents / self.seconds) if self.seconds else 0
        places = {"job": self.job, "rejects": self.rejects, "tags": self.tags}
        named = {name: str(path) for name, path in places.items() if path is not None}
        figures = {"seconds": round(self.seconds, 3), "rate": rate, "repeated": self.is_repeated}
        return {**asdict(self.counts), **figures, **named}


def ingest(
    index: HSimIndex, inputs: Sequence[Input], options: IngestOptions, observer: IngestObserver | None = None
) -> Summary:
    """Bring the documents of inputs into an index; go on where an earlier call with the same arguments ended.

    Args:
        index: with the layout and the profile that count.
        inputs: what `find_inputs` found.
        options: what to do.
        observer: who watches.

    Raises:
        ValueError: bad arguments, or an unfinished job that was begun otherwise; nothing was written.
        StoreBusyError: another process works on the same job, or writes the index.
        StoreUnavailableError: a disk is full or read-only. Once that is mended the same call goes on.
    """
    observer = observer or IngestObserver()
    folder = options.job or default_job(_url(index), inputs)
    rule = check_options(index.layout, inputs, options)
    if options.tags is not None and is_own_file(_url(index), options.tags):
        raise ValueError(f"tags {options.tags} is a file of the index {index.url} itself; choose another name")
    lists = [folder / f"{name}.jsonl" for name in LISTS]
    if read := [one.name for one in inputs if one.kind != "files" and any(map(one.reads, lists))]:
        raise ValueError(
            f"input {read[0]} is a list of job {folder}, which would be lost; choose another folder with --job"
        )
    spec = _spec(index, inputs, options, rule)
    with Job.open(folder, spec, tags=options.tags, fresh=options.fresh, store=index.store) as job:
        if job.was_forgotten:
            observer.say("the index does not remember this job, which had ended: its inputs are ingested again")
        run = _Run(index, inputs, options, observer, job)
        if job.was_done:  # and perhaps killed before its end
            if not job.has_summary:
                job.write_summary(run.summary(is_complete=True).to_json())
            if job.runs_folder.exists():
                index.bulk(job.runs_folder).delete()
            job.delete_decisions()
            return run.summary(is_complete=True)
        try:
            return run.bulk() if options.on_duplicate == "add" else run.decide(rule)
        except StopAskedError:  # while another process was writing
            return run.summary(is_complete=False)


def default_job(url: str, inputs: Sequence[Input]) -> Path:
    """Return the folder of a job that is not told one: for each store and inputs another.

    It is within an embedded index, and below `JOBS` in the working folder for one on HBase; `ValueError` for others.
    """
    scheme, _, place = url.partition("://")
    if scheme != "lmdb" and not is_hbase(url):
        raise ValueError(f"{url} has no place for a job folder; say which one to use")
    name = store_name(url)
    names = "\0".join([name.removeprefix("lmdb://"), *(one.place for one in inputs)])
    digest = hashlib.blake2b(names.encode(errors="surrogateescape"), digest_size=8).hexdigest()
    return Path(place, "jobs", digest) if scheme == "lmdb" else JOBS / digest


def check_options(layout: Layout, inputs: Sequence[Input], options: IngestOptions) -> DuplicateRule:
    """Return how documents are decided about; `ValueError` for what an index of this layout or the disk refuses."""
    if options.tags is not None:
        _check_tags(options.tags, inputs)
    most = layout.max_distance
    k = most if options.max_distance is None or options.on_duplicate == "add" else options.max_distance
    if not 0 <= k <= most:
        raise ValueError(f"max_distance {k} is outside 0 to {most}, what layout {layout.name} finds")
    return DuplicateRule(k, leaves_out=options.on_duplicate == "skip")


def _check_tags(tags: Path, inputs: Sequence[Input]) -> None:
    reason = ""
    if not tags.parent.is_dir():
        reason = f"there is no folder {tags.parent}"
    elif os.path.lexists(tags) and not tags.is_file():
        reason = "it is no file"
    elif not os.access(tags if tags.exists() else tags.parent, os.W_OK):
        reason = "permission denied"
    elif read := [one.name for one in inputs if one.reads(tags)]:
        reason = f"it is read as input {read[0]}"
    if reason:
        raise ValueError(f"tags {tags} cannot be written: {reason}; nothing was written, choose another name")


def _spec(index: HSimIndex, inputs: Sequence[Input], options: IngestOptions, rule: DuplicateRule) -> JobSpec:
    settings: dict[str, object] = {
        "store": store_name(_url(index)),
        "layout": index.layout.name,
        "profile": index.profile.name,
        "on_duplicate": options.on_duplicate,
        "max_distance": None if options.on_duplicate == "add" else rule.max_distance,
        "tags": str(options.tags.absolute()) if options.tags else None,
        **asdict(options.reading),
    }
    del settings["fingerprint_format"]  # what it came to stands with each input
    marks = [(one.place, f"{_holds(one, spoken(one.formats))} {one.mark}".rstrip()) for one in inputs]
    earlier = [(one.place, f"{_holds(one, '')} {one.mark}".rstrip()) for one in inputs]
    return JobSpec(settings, marks, earlier, can_repeat=not any(one.is_stream for one in inputs))


def _holds(one: Input, formats: str) -> str:
    return f"{one.kind} with {f'{formats} fingerprints'.lstrip() if one.has_fingerprints else 'texts'}"


def _url(index: HSimIndex) -> str:
    """Return the index's URL with its own path: a relative one would go along when the process changes its folder."""
    return f"lmdb://{index.describe()['path']}" if index.url.startswith("lmdb://") else index.url


class _Run:
    """One call of `ingest`."""

    def __init__(
        self, index: HSimIndex, inputs: Sequence[Input], options: IngestOptions, observer: IngestObserver, job: Job
    ) -> None:
        self._index = index
        self._inputs = inputs
        self._options = options
        self._observer = observer
        self._job = job
        self._counts = job.checkpoint.counts
        self._marked = index.store.marked(job.checkpoint.token)
        self._seconds_before = job.checkpoint.seconds
        self._began_at = time.monotonic()
        is_bulk = options.on_duplicate == "add"
        is_written_at_rate = is_bulk and is_hbase(index.url)
        self._reading = Pace(None if is_written_at_rate else options.rate, observer.stop)
        self._writing = Pace(options.rate if is_written_at_rate else None, observer.stop)
        self._merged: int | None = None  # so far; the first number that a merge tells is of calls before
        block_bytes = BULK_BLOCK_BYTES if is_bulk else DECIDED_BLOCK_BYTES
        self._reader = DocumentReader(inputs, options.reading, observer.stop, block_bytes)

    def bulk(self) -> Summary:
        """Collect runs, and merge them."""
        self._say_resumed()
        with self._index.bulk(self._job.runs_folder) as bulk:
            bulk.discard_after(self._job.checkpoint.runs)
            for gathered in self._gathered(self._is_run):  # while it was merging, a stream may have grown
                self._add_run(bulk, gathered)
            if not self._reader.is_exhausted:
                return self.summary(is_complete=False)
            self._save(state=State.MERGING)
            with self._alone():
                added = bulk.merge(progress=self._tell_merge, stop=self._observer.stop)
                if added is None:
                    self._save()
                    return self.summary(is_complete=False)
                counts = self._counts
                indexed = counts.documents - counts.rejected - counts.short
                self._counts = counts.plus(added=added, unchanged=indexed - added)
                self._remember()
                summary = self._finish()
                bulk.delete()
        return summary

    def decide(self, rule: DuplicateRule) -> Summary:
        """Decide about the documents batch by batch, and carry the decisions out."""
        self._say_resumed()
        if self._index.store.is_atomic:
            self._job.decisions.drop(after=max(0, self._marked - self._counts.settled))
        for gathered in self._gathered(self._is_batch):
            fingerprints, first_seen = gathered.columns()
            start = 0
            while start < len(fingerprints):
                part = slice(start, start + DECIDED_AT_ONCE)
                with self._alone():  # what others add between deciding and adding would not be met
                    decisions = self._decisions(gathered.doc_ids[part], fingerprints[part], rule)
                    part = slice(start, start + len(decisions))
                    self._carry_out(decisions, fingerprints[part], first_seen[part])
                start += len(decisions)
            self._acknowledge(gathered)
        return self._finish() if self._reader.is_exhausted else self.summary(is_complete=False)

    def summary(self, *, is_complete: bool) -> Summary:
        """Return how far it is."""
        rejects = self._job.path_of("rejects") if self._counts.rejected else None
        done, total = bytes_before(self._inputs, self._job.checkpoint.position)
        return Summary(
            self._counts,
            self._seconds(),
            self._job.folder,
            rejects,
            self._job.path_of("tags") if self._options.on_duplicate == "tag" else None,
            is_complete,
            self._job.was_done,
            done / total if total and self._job.checkpoint.state is State.RUNNING else None,
        )

    # From inputs to what is acknowledged at once.

    def _gathered(self, is_enough: Callable[[Gathering], bool]) -> Iterator[Gathering]:
        """Yield what comes in, in portions; the last one when the inputs end, or when `stop` ends them."""
        workers = self._options.workers or usual_workers(self._inputs)
        if not all(one.has_fingerprints for one in self._inputs):
            self._index.profile.verify()
        batches = self._reader.batches(self._job.checkpoint.position)
        gathering = Gathering()
        with closing(intakes(self._inputs, batches, self._index.profile, workers)) as found:
            for intake in found:
                gathering.take(intake)
                if intake.warning:
                    self._observer.say(intake.warning)
                self._tell_read(gathering, intake)
                if is_enough(gathering):
                    yield gathering
                    gathering = Gathering()
                self._reading.keep(intake.counts.documents)
        if gathering.end is not None:
            yield gathering

    def _is_run(self, gathering: Gathering) -> bool:
        is_full = len(gathering.doc_ids) >= RUN_DOCUMENTS or gathering.id_characters >= RUN_ID_CHARACTERS
        return is_full or gathering.is_older_than(max(RUN_S, RUN_SHARE * self._seconds()))

    def _is_batch(self, gathering: Gathering) -> bool:
        return len(gathering.doc_ids) >= GATHERED_DOCUMENTS or gathering.is_older_than(GATHERED_S)

    def _add_run(self, bulk: BulkLoad, gathered: Gathering) -> None:
        if gathered.doc_ids:
            fingerprints, first_seen = gathered.columns()
            bulk.add_run(fingerprints, gathered.doc_ids, first_seen)
        self._acknowledge(gathered, runs=bulk.runs)

    def _decisions(
        self, doc_ids: Sequence[str], fingerprints: NDArray[np.uint64], rule: DuplicateRule
    ) -> list[Decision]:
        """Return decisions made before a kill about the first of these documents, else new ones about all of them."""
        log = self._job.decisions
        decisions = log.take(doc_ids, fingerprints.tolist())
        if not decisions:
            if self._marked > self._counts.settled:  # of decisions about others than come now
                self._remember()
            decisions = decide(self._index, doc_ids, fingerprints, rule)
            log.append(decisions)
        return decisions

    def _carry_out(
        self, decisions: Sequence[Decision], fingerprints: NDArray[np.uint64], first_seen: NDArray[np.int64]
    ) -> None:
        is_added = np.array([decision.verdict is not Verdict.DUPLICATE for decision in decisions], np.bool_)
        doc_ids = [decision.doc_id for decision, is_one in zip(decisions, is_added, strict=True) if is_one]
        number = count_verdicts(decisions)
        self._counts = self._counts.plus(
            added=number[Verdict.ADDED],
            unchanged=number[Verdict.UNCHANGED],
            duplicates=number[Verdict.DUPLICATE],
        )
        if self._counts.settled > self._marked:  # else they were carried out before a kill, and may have moved since
            self._insert(fingerprints[is_added], doc_ids, first_seen[is_added])
        if self._options.on_duplicate == "tag":
            self._job.lists["tags"].append(decision.to_tag() for decision in decisions)

    def _insert(self, fingerprints: NDArray[np.uint64], doc_ids: Sequence[str], first_seen: NDArray[np.int64]) -> None:
        """Add documents, and let the index remember how many are settled with them."""
        values, encoded, times = check_documents(fingerprints, doc_ids, first_seen)
        mark = Mark(self._job.checkpoint.token, self._counts.settled)
        self._index.store.insert(encoded, values, times, mark=mark)
        self._marked = mark.count

    def _alone(self) -> AbstractContextManager[object]:
        """Keep others from writing for the block; `stop` ends the wait for one that writes already."""
        return self._index.store.writing(stop=self._observer.stop)

    def _remember(self) -> None:
        """Let the index remember how many documents are settled."""
        self._insert(np.empty(0, np.uint64), [], np.empty(0, np.int64))

    # What is said and kept.

    def _acknowledge(self, gathered: Gathering, *, runs: int = 0) -> None:
        self._job.lists["rejects"].append(gathered.rejects)
        self._job.lists["short"].append(gathered.short)
        self._counts = self._counts.sum(gathered.counts)
        self._save(position=gathered.end, runs=runs)

    def _save(self, **changes: object) -> None:
        checkpoint = replace(self._job.checkpoint, **changes)  # type: ignore[arg-type]
        self._job.save(replace(checkpoint, counts=self._counts, seconds=self._seconds()))

    def _finish(self) -> Summary:
        self._save(state=State.DONE)
        summary = self.summary(is_complete=True)
        self._job.write_summary(summary.to_json())
        self._job.delete_decisions()
        return summary

    def _seconds(self) -> float:
        if self._job.checkpoint.state is State.DONE:
            return self._job.checkpoint.seconds
        return self._seconds_before + time.monotonic() - self._began_at

    def _say_resumed(self) -> None:
        if self._job.is_resumed:
            done, total = bytes_before(self._inputs, self._job.checkpoint.position)
            share = f" at {done / total:.0%}" if total else ""
            self._observer.say(f"resuming{share}, after {self._counts.documents:,} documents (job {self._job.folder})")

    def _tell_read(self, gathering: Gathering, intake: Intake) -> None:
        done, total = bytes_before(self._inputs, intake.end)
        documents = self._counts.documents + gathering.counts.documents
        self._observer.progress(IngestProgress("read", done, total, documents))

    def _tell_merge(self, done: int, total: int) -> None:
        self._writing.keep(done - (done if self._merged is None else self._merged))
        self._merged = done
        self._observer.progress(IngestProgress("merge", done, total, self._counts.documents))
