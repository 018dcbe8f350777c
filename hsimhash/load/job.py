"""Manage the job folder, which holds the state and the lists of an ingest so that it can resume after an interruption.

| file | content |
|---|---|
| `job.json` | the settings, and the mark of each input |
| `checkpoint.json` | the progress: state, position in the inputs, counts, runs, sizes of the lists |
| `rejects.jsonl` | `{"file", "line", "reason", "record"}`: invalid records |
| `short.jsonl` | `{"id", "file", "line", "why", "indexed"}`: texts with too few features for a vote, or none |
| `decisions.jsonl` | `{"id", "fingerprint", "match", "verdict"}`: for `skip` and `tag`, until the job is done |
| `tags.jsonl` | `{"id", "fingerprint", "match"}`: the nearest match of each document (`tag`) or skipped one (`skip`) |
| `runs/` | for `add`: sorted documents that are not in the index yet |
| `summary.json` | the result |
| `lock` | locked by the process that runs the job; contains its pid |

A list grows before the checkpoint records its new size; a resumed job truncates it to the recorded size. If a document
has a sketch or a key, its decision and tag also have "sketch" and "key".

The index also stores, under the token in the checkpoint, how many documents of the job have been decided. In the index
that the job wrote to, this number is never lower than the checkpoint's count. If it is lower, the index was created
again, or an older backup was restored.

A folder from 0.1.0 does not have a token, and the marks of its inputs do not include formats of fingerprints. A
finished job from 0.1.0 is treated as done unless the index is empty; an unfinished job from 0.1.0 is rejected.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from hsimhash.errors import OTHER_JOB, START_OVER, CorruptionError, HsimhashError, Remedy, StoreBusyError
from hsimhash.files import AppendLog, file_errors, make_folder, write_json
from hsimhash.inputs.files import Input
from hsimhash.inputs.reader import Position
from hsimhash.load.decisions import DecisionLog
from hsimhash.locks import HeldLock, lock_or_refuse
from hsimhash.store import Store, backend_of, store_name

JOB_VERSION = 1  # on disk: never reuse
JOB_LISTS = ("rejects", "short", "decisions", "tags")
RUNS = "runs"
_JOB, _CHECKPOINT, _SUMMARY, _LOCK = "job.json", "checkpoint.json", "summary.json", "lock"
_FILES = (_CHECKPOINT, _SUMMARY, *(f"{name}.jsonl" for name in JOB_LISTS), RUNS, _JOB)  # in the order of deletion
_INPUT = "input "  # begins the name of an input among the parameters of a job
_CONTENT = re.compile(r"\d+ bytes of \d+$")  # part of an input's mark: its size and time of change
_WITH_FORMATS = re.compile("with [a-z ]+ fingerprints")  # part of an input's mark in releases after 0.1.0


def default_job(url: str, inputs: Sequence[Input]) -> Path:
    """Return the default job folder for an index and its inputs.

    For an embedded index, it is inside the index; for an index on a server, it is in `.hsimhash/jobs` in the working
    folder. Raises `ValueError` for other stores.
    """
    jobs = backend_of(url).jobs_of(url)
    names = "\0".join([store_name(url).removeprefix("lmdb://"), *(one.place for one in inputs)])
    return jobs / hashlib.blake2b(names.encode(errors="surrogateescape"), digest_size=8).hexdigest()


def unfinished_jobs(url: str) -> list[Path]:
    """Return the folders of an embedded index's unfinished jobs that have read documents."""
    found = []
    for path in sorted(backend_of(url).jobs_of(url).glob(f"*/{_CHECKPOINT}")):
        with suppress(OSError, ValueError, TypeError):
            checkpoint = _read_checkpoint(path.parent)
            if checkpoint.state is not State.DONE and checkpoint.counts.documents:
                found.append(path.parent)
    return found


class State(StrEnum):
    """The state of a job."""

    RUNNING = "running"
    MERGING = "merging"  # all inputs have been read, and the runs are being merged into the index
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of records so far. `documents` = added + unchanged + duplicates + rejected + short + records in runs."""

    documents: int = 0  # records read, not counting blank lines
    added: int = 0  # new or changed in the index
    # Already in the index with the same signature; with `add`, also records replaced by a later record in the job with
    # the same id.
    unchanged: int = 0
    duplicates: int = 0  # skipped because of a near-duplicate
    rejected: int = 0  # invalid records
    short: int = 0  # skipped because they do not have any features, and therefore no fingerprint
    # Documents with too few features for a vote; they match only identical documents.
    exact: int = 0
    # Replaced by a later record with the same id: with `add`, records of this job; with `skip` and `tag`, documents in
    # the index with a different signature, from any job.
    replaced: int = 0

    @property
    def settled(self) -> int:
        """The number of documents whose outcome in the index is known; 0 for an unfinished `add`."""
        return self.added + self.unchanged + self.duplicates

    def plus(self, **more: int) -> Counts:
        """Return the counts, with the named ones increased by the given numbers."""
        return replace(self, **{name: getattr(self, name) + count for name, count in more.items()})

    def sum(self, other: Counts) -> Counts:
        """Return the sum of both counts."""
        return self.plus(**dataclasses.asdict(other))


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of an ingest.

    `rejects` and `tags` are the paths of these lists, if they exist. `seconds` is the working time of all calls.
    `is_complete` is false if `stop` ended the job early. `done` is the share of the inputs that has been read, or None
    if their size is unknown or all of them have been read.
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
        """Return the counts, seconds, documents per second, job folder, and paths of existing lists."""
        rate = round(self.counts.documents / self.seconds) if self.seconds else 0
        places = {"job": self.job, "rejects": self.rejects, "tags": self.tags}
        named = {name: str(path) for name, path in places.items() if path is not None}
        figures = {"seconds": round(self.seconds, 3), "rate": rate, "repeated": self.is_repeated}
        return {**dataclasses.asdict(self.counts), **figures, **named}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The acknowledged state.

    `sizes` has the sizes of the lists in bytes, and `seconds` is the working time. `token` identifies the mark in the
    index; it is empty in checkpoints from 0.1.0.
    """

    state: State
    position: Position = field(default_factory=Position)
    counts: Counts = Counts()
    runs: int = 0
    seconds: float = 0.0
    sizes: Mapping[str, int] = field(default_factory=dict)
    token: str = ""

    def is_blank(self, store: Store) -> bool:
        """Whether the job has not processed any record yet, for example because its first one raised an error."""
        is_beginning = replace(self, seconds=0.0, sizes={}, token="") == Checkpoint(State.RUNNING)
        return bool(self.token) and is_beginning and not store.marked(self.token)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The parameters of a job: settings by name, and (absolute name, mark) for each input, in order.

    `is_stream` means that an input cannot be read twice; such a job always starts over.
    """

    settings: Mapping[str, object]
    inputs: Sequence[tuple[str, str]]
    is_stream: bool

    def to_json(self) -> dict[str, object]:
        """Return JSON values for `job.json`."""
        return {"version": JOB_VERSION, "settings": dict(self.settings), "inputs": [list(one) for one in self.inputs]}

    def differences(self, begun: Mapping[str, object], *, has_formats: bool) -> list[str]:
        """Describe the differences from a job that was started earlier; jobs from 0.1.0 do not have formats."""
        now = _flat(self.to_json())
        if not has_formats:
            now |= {name: _WITH_FORMATS.sub("with fingerprints", one) for name, one in now.items() if type(one) is str}
        return [
            _difference(name, begun.get(name), now.get(name))
            for name in {**begun, **now}
            if begun.get(name) != now.get(name)
        ]


def _difference(name: str, begun: object, now: object) -> str:
    """Say how a setting or an input differs; of an input that only has another content, its size is not shown."""
    without_content = [_CONTENT.sub("", mark) for mark in (begun, now) if isinstance(mark, str)]
    if name.startswith(_INPUT) and without_content[1:] == without_content[:1]:
        return f"{name} has changed since the job was started"
    return f"{name} was {json.dumps(begun)}, is {json.dumps(now)}"


def _flat(data: Mapping[str, object]) -> dict[str, object]:
    settings, inputs = data["settings"], data["inputs"]
    if not isinstance(settings, dict) or not isinstance(inputs, list) or data["version"] != JOB_VERSION:
        raise ValueError("unknown version")
    return {**settings, **{f"{_INPUT}{number} ({name})": mark for number, (name, mark) in enumerate(inputs, start=1)}}


def _read_begun(folder: Path) -> dict[str, object]:
    return _flat(json.loads((folder / _JOB).read_text(encoding="utf-8")))


def _read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint that `Job` wrote; raise `ValueError` for anything else."""
    from pydantic import TypeAdapter  # needed only if there is a checkpoint

    return TypeAdapter(Checkpoint).validate_json((folder / _CHECKPOINT).read_text(encoding="utf-8"))


def _has_lost(store: Store, checkpoint: Checkpoint) -> bool:
    """Whether the index lacks anything that the job wrote; for a job from 0.1.0, whether the index is empty."""
    counts = checkpoint.counts
    if checkpoint.token:
        return counts.settled > store.marked(checkpoint.token)
    return counts.added + counts.unchanged > 0 and not any(store.walk())


def _verify_size(path: Path, size: int) -> None:
    """Raise `CorruptionError` if a list is shorter than the `size` bytes that its job wrote."""
    if size and not path.exists():
        raise CorruptionError(f"{path} is missing, although its job wrote it; " + START_OVER)
    if size and path.stat().st_size < size:
        raise CorruptionError(f"{path} is shorter than the {size:,} bytes that its job wrote; " + START_OVER)


class Job:
    """A running job and its folder, which other processes cannot use. Created by `open`."""

    _lock: HeldLock

    def __init__(self, folder: Path, tags: Path | None = None) -> None:
        self.folder = folder
        self.runs_folder = folder / RUNS
        self.checkpoint = Checkpoint(State.RUNNING, token=uuid.uuid4().hex)
        self.is_resumed = False
        self.was_done = False
        self.was_forgotten = False  # the job was done, but the index lacks its results, so it starts over
        self.paths = {name: folder / f"{name}.jsonl" for name in JOB_LISTS}  # list name -> path
        self.paths["tags"] = tags or self.paths["tags"]

    @classmethod
    @contextmanager
    def open(cls, folder: Path, spec: JobSpec, *, tags: Path | None, fresh: bool, store: Store) -> Iterator[Job]:
        """Start a job for the block, or continue the job in the folder.

        Args:
            folder: Job folder, created if needed.
            spec: Settings and inputs of the job.
            tags: File for the list of tags if it is not in the folder.
            fresh: Whether to discard an earlier job in the folder.
            store: Store of the index, which records how much of the job was carried out.

        Raises:
            ValueError: The folder has a job that was started with a different spec, or files that are not from a job.
            HsimhashError: The folder has an unfinished job from 0.1.0, or an unfinished job whose files are missing or
                whose results are not all in the index.
            StoreBusyError: Another process is working on the job.
        """
        job = cls(folder, tags)
        with ExitStack() as resources:
            with file_errors(folder):
                job._refuse_foreign()
                make_folder(folder)
                lock = folder / _LOCK
                job._lock = resources.enter_context(
                    lock_or_refuse(lock, f"is working on the same job ({lock})", OTHER_JOB)
                )
                job._begin(spec, fresh=fresh, store=store)
                if job.was_done:
                    _verify_size(job.paths["tags"], job.checkpoint.sizes.get("tags", 0))
                else:
                    job._open_lists(resources)
            yield job

    def _begin(self, spec: JobSpec, *, fresh: bool, store: Store) -> None:
        stored = None if fresh else self._stored()
        if stored is not None:
            begun, checkpoint = stored
            has_lost = _has_lost(store, checkpoint)
            differences = spec.differences(begun, has_formats=bool(checkpoint.token))
            if checkpoint.state is not State.DONE and not (differences and checkpoint.is_blank(store)):
                self._refuse(differences, spec, checkpoint, has_lost=has_lost)
                self.is_resumed = not spec.is_stream
            elif not spec.is_stream and not differences:
                self.was_done, self.was_forgotten = not has_lost, has_lost
            if self.was_done or self.is_resumed:
                self.checkpoint = checkpoint
        if not self.was_done and not self.is_resumed:
            begun_tags = stored and stored[0].get("tags")
            self._clear(may_replace_tags=fresh or (begun_tags is not None and begun_tags == spec.settings["tags"]))
            write_json(self.folder / _JOB, spec.to_json())
            write_json(self.folder / _CHECKPOINT, dataclasses.asdict(self.checkpoint))

    def _stored(self) -> tuple[Mapping[str, object], Checkpoint] | None:
        if not (self.folder / _CHECKPOINT).exists():  # killed while starting, or deleted
            return None
        try:
            return _read_begun(self.folder), _read_checkpoint(self.folder)
        except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
            reason = ", ".join(str(error).splitlines())
            raise CorruptionError(f"job {self.folder} cannot be read ({reason}); " + START_OVER) from error

    def _refuse(self, differences: Sequence[str], spec: JobSpec, checkpoint: Checkpoint, *, has_lost: bool) -> None:
        """Raise an error if the unfinished job in the folder cannot be continued."""
        if differences:
            raise ValueError(
                f"job {self.folder} is unfinished and was started with other inputs or options: "
                f"{'; '.join(differences)}; use the original inputs and options, or " + START_OVER
            )
        if (has_lost or not checkpoint.token) and not spec.is_stream:
            lost = "the index lacks some of its results, because it was created again or restored from a backup"
            reason = lost if checkpoint.token else "it was started by an earlier release"
            raise HsimhashError(f"job {self.folder} is unfinished, and {reason}; " + START_OVER)

    def _refuse_foreign(self) -> None:
        """Raise `ValueError` if the folder has files with names of job files but is not a job folder."""
        found = self._found()
        if found and not self._is_job():
            raise ValueError(
                f"{found[0]} exists, but there is no readable hsimhash job in its folder; delete that folder, or "
                + OTHER_JOB
            )

    def _is_job(self) -> bool:
        """Whether the folder has a job: at least one of its two files can be read; the other may be damaged."""
        for read in (_read_begun, _read_checkpoint):
            with suppress(OSError, ValueError, TypeError, KeyError):
                read(self.folder)
                return True
        return False

    def _found(self) -> list[Path]:
        return [self.folder / name for name in _FILES if (self.folder / name).exists()]

    def _clear(self, *, may_replace_tags: bool) -> None:
        """Delete only this job's files; raise `ValueError` if this would replace another job's tags file."""
        found, tags = self._found(), self.paths["tags"]
        if not may_replace_tags and tags not in found and tags.exists() and tags.stat().st_size:
            raise ValueError(
                f"{tags} already exists; choose another name, or "
                + Remedy("pass fresh=True to replace it", "replace it with --fresh")
            )
        for path in found:  # `job.json` comes last, so that the folder is recognized as a job folder after a kill
            shutil.rmtree(path) if path.name == RUNS else path.unlink()

    def _open_lists(self, resources: ExitStack) -> None:
        sizes = self.checkpoint.sizes
        for name in JOB_LISTS:
            _verify_size(self.paths[name], sizes.get(name, 0))
        self.lists = {
            name: AppendLog(self.paths[name], sizes.get(name, 0)) for name in JOB_LISTS if name != "decisions"
        }
        self.decisions = DecisionLog(self.paths["decisions"], sizes.get("decisions", 0))
        for close in (self.decisions.close, *(log.close for log in self.lists.values())):
            resources.callback(close)

    def save(self, checkpoint: Checkpoint) -> None:
        """Acknowledge progress: make the lists durable, then the checkpoint with their sizes.

        Raises:
            StoreBusyError: The lock file was deleted or replaced, so another process may hold the new one.
        """
        if not self._lock.is_in_place():
            raise StoreBusyError(
                f"{self.folder / _LOCK} was deleted while this process was running, so another process may be working "
                f"on the same job; acknowledged data is kept; run the same command again to resume"
            )
        with file_errors(self.folder):
            for log in self.lists.values():
                log.sync()
            sizes = {name: log.size for name, log in self.lists.items()}
            self.checkpoint = replace(checkpoint, sizes={**sizes, "decisions": self.decisions.acknowledged})
            write_json(self.folder / _CHECKPOINT, dataclasses.asdict(self.checkpoint))

    def end(self, summary: Summary) -> None:
        """Write the summary unless it already exists, and delete the decisions, which may take gigabytes."""
        with file_errors(self.folder):
            if not (self.folder / _SUMMARY).exists():
                write_json(self.folder / _SUMMARY, summary.to_json())
            self.paths["decisions"].unlink(missing_ok=True)
