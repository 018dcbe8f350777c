"""The job folder: how far an ingest came, and what it found on the way, so that it can go on after any end.

| file | what |
|---|---|
| `job.json` | what the job was begun with: settings, and each input's mark |
| `checkpoint.json` | how far it came: state, position in the inputs, counts, runs, sizes of the lists |
| `rejects.jsonl` | `{"file", "line", "reason", "record"}`: records that are no documents |
| `short.jsonl` | `{"id", "file", "line", "why", "indexed"}`: texts with too few features for a vote, or none |
| `decisions.jsonl` | `{"id", "fingerprint", "match", "verdict"}`: of `skip` and `tag`, until the job is done |
| `tags.jsonl` | `{"id", "fingerprint", "match"}`: each document's nearest earlier match, of `tag`; or elsewhere |
| `runs/` | of `add`: sorted documents that are not in the index yet |
| `summary.json` | what came of it |
| `lock` | held by the process at work; holds its pid |

A list is appended to before the checkpoint that names its new size; a resume cuts off what is beyond.

The index has a say too. It remembers, by the token in the checkpoint, of how many documents it was told what became of
them; never less than the checkpoint counts. So where it remembers less, it is not the index that the job wrote: another
one was made in its place, or an older backup was restored.

A folder of 0.1.0 has no token, nor the formats of fingerprints in the inputs' marks. Such a job goes on where neither
matters: nothing of it is in the index yet, and it is read whole or has no fingerprints. A finished one counts as done
unless the index is empty.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path

from hsimhash.errors import CorruptionError, HsimhashError
from hsimhash.files import AppendLog, file_errors, make_folder, write_json
from hsimhash.inputs.batch import Position
from hsimhash.load.decisions import Decision
from hsimhash.load.folder import FolderLock, verify_size
from hsimhash.store import Store

VERSION = 1  # on disk: never reuse
LISTS = ("rejects", "short", "decisions", "tags")
RUNS = "runs"
_JOB, _CHECKPOINT, _SUMMARY, _LOCK = "job.json", "checkpoint.json", "summary.json", "lock"
_FILES = (_CHECKPOINT, _SUMMARY, *(f"{name}.jsonl" for name in LISTS), RUNS, _JOB)  # as they are deleted
_NEW = tuple(f"{name}.new" for name in (_JOB, _CHECKPOINT, _SUMMARY))
_OURS = (*_FILES, *_NEW, _LOCK, f"{RUNS}/run-[0-9]*", f"{RUNS}/token", f"{RUNS}/merged.*")  # with what a kill leaves
_DEFAULT_NAME = "jobs/" + "[0-9a-f]" * 16  # as `default_job` gives it: nobody else makes such a folder


class State(StrEnum):
    """How far a job is."""

    RUNNING = "running"
    MERGING = "merging"  # all was read; the runs go into the index
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Counts:
    """Records so far. `documents` = added + unchanged + duplicates + rejected + short + those in runs.

    Args:
        documents: records read, blank lines left out.
        added: new in the index, or moved.
        unchanged: there already with the same fingerprint; of `add` also those that a later record of the job with the
            same id replaced.
        duplicates: left out, for a near-duplicate was there.
        rejected: no documents.
        short: without a feature, so without a fingerprint; left out.
        exact: of those with a fingerprint, how many have too few features for a vote: they match only their equals.
    """

    documents: int = 0
    added: int = 0
    unchanged: int = 0
    duplicates: int = 0
    rejected: int = 0
    short: int = 0
    exact: int = 0

    @property
    def settled(self) -> int:
        """Of how many documents it is known what became of them in the index; of an unfinished `add` of none."""
        return self.added + self.unchanged + self.duplicates

    def plus(self, **more: int) -> Counts:
        """Return the counts with some of them greater."""
        return replace(self, **{name: getattr(self, name) + count for name, count in more.items()})

    def sum(self, other: Counts) -> Counts:
        """Return the counts of both."""
        return self.plus(**dataclasses.asdict(other))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is acknowledged; `sizes` of the lists in bytes, `seconds` of work, `token` of the mark in the index.

    The token is empty in the checkpoint of 0.1.0.
    """

    state: State
    position: Position = field(default_factory=Position)
    counts: Counts = Counts()
    runs: int = 0
    seconds: float = 0.0
    sizes: Mapping[str, int] = field(default_factory=dict)
    token: str = ""

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, text: str) -> Checkpoint:
        """Read what `to_json` gave, as text; `ValueError` for anything else."""
        from pydantic import TypeAdapter  # not needed where there is no checkpoint

        return TypeAdapter(cls).validate_json(text)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """What a job is begun with: settings by name, and the inputs' marks by absolute name, in order.

    `earlier` are the inputs with their marks as 0.1.0 wrote them, without the formats of fingerprints. `can_repeat` is
    false where an input cannot be looked at again, so that the same one may hold something else.
    """

    settings: Mapping[str, object]
    inputs: Sequence[tuple[str, str]]
    earlier: Sequence[tuple[str, str]]
    can_repeat: bool

    def to_json(self) -> dict[str, object]:
        """Return it as JSON values."""
        return {"version": VERSION, "settings": dict(self.settings), "inputs": [list(one) for one in self.inputs]}

    def differences(self, stored: Mapping[str, object]) -> list[str]:
        """Return what is not as `to_json` gave it when the job was begun, for the user."""
        begun = _flat(stored)
        now = _flat(self.to_json())
        return [
            f"{name} was {json.dumps(begun.get(name))}, is {json.dumps(now.get(name))}"
            for name in {**begun, **now}
            if begun.get(name) != now.get(name)
        ]


def _flat(data: Mapping[str, object]) -> dict[str, object]:
    settings, inputs = data["settings"], data["inputs"]
    if not isinstance(settings, dict) or not isinstance(inputs, list) or data["version"] != VERSION:
        raise ValueError("not of this version")
    return {**settings, **{f"input {number} ({name})": mark for number, (name, mark) in enumerate(inputs, start=1)}}


def _has_lost(store: Store, checkpoint: Checkpoint) -> bool:
    """Whether the index does not remember all that the job wrote; of a finished one of 0.1.0: whether it is empty."""
    counts = checkpoint.counts
    if checkpoint.token:
        return counts.settled > store.marked(checkpoint.token)
    if checkpoint.state is State.DONE:
        return counts.added + counts.unchanged > 0 and store.is_empty()
    return counts.settled > 0


class DecisionLog:
    """Decisions in the order of their documents; those made but not acknowledged before a kill come `ahead`."""

    def __init__(self, path: Path, acknowledged: int) -> None:
        self._ahead = _decisions_behind(path, acknowledged)
        self.acknowledged = acknowledged
        self._listing = AppendLog(path, acknowledged + sum(size for _, size in self._ahead))

    def take(self, doc_ids: Sequence[str], fingerprints: Sequence[int]) -> list[Decision]:
        """Return the decisions ahead about the first of these documents; none if they were never made.

        Decisions about others than come now, for a stream may go on in another way, are dropped.
        """
        taken: list[Decision] = []
        for doc_id, fingerprint in zip(doc_ids, fingerprints, strict=True):
            if not self._ahead:
                break
            decision, size = self._ahead[0]
            if (decision.doc_id, decision.fingerprint) != (doc_id, fingerprint):
                self.drop()
                break
            self._ahead.popleft()
            self.acknowledged += size
            taken.append(decision)
        return taken

    def append(self, decisions: Iterable[Decision]) -> None:
        """Write decisions, durable on return."""
        self._listing.append(decision.to_line() for decision in decisions)
        self._listing.sync()
        self.acknowledged = self._listing.size

    def drop(self, after: int = 0) -> None:
        """Forget the decisions ahead, but for the first `after`."""
        if len(self._ahead) > after:
            self._ahead = deque(islice(self._ahead, after))
            self.close()
            self._listing = AppendLog(self._listing.path, self.acknowledged + sum(size for _, size in self._ahead))

    def close(self) -> None:
        """Close the file."""
        self._listing.close()


def _decisions_behind(path: Path, offset: int) -> deque[tuple[Decision, int]]:
    """Return the whole decisions behind `offset`, each with its size in bytes."""
    found: deque[tuple[Decision, int]] = deque()
    if not path.exists():
        return found
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            try:
                found.append((Decision.from_line(line), len(line)))
            except (ValueError, KeyError, TypeError):  # a kill cut it off, and no checkpoint knows of it
                break
            if not line.endswith(b"\n"):
                found.pop()
    return found


class Job:
    """A job at work in its folder, which no other process may use meanwhile. Made by `open`; a context manager."""

    def __init__(self, folder: Path, tags: Path | None = None) -> None:
        self.folder = folder
        self.checkpoint = Checkpoint(State.RUNNING, token=uuid.uuid4().hex)
        self.is_resumed = False
        self.was_done = False
        self.was_forgotten = False  # by the index, though it had ended; so it begins anew
        self._paths = {name: folder / f"{name}.jsonl" for name in LISTS}
        self._paths["tags"] = tags or self._paths["tags"]
        self._resources = ExitStack()
        self._lock = FolderLock(folder / _LOCK)

    @classmethod
    def open(cls, folder: Path, spec: JobSpec, *, tags: Path | None, fresh: bool, store: Store) -> Job:
        """Begin a job, or go on with the one in the folder.

        Args:
            folder: where it is, or shall be.
            spec: what it is begun with.
            tags: the list of tags, where it shall not be in the folder.
            fresh: forget what is in the folder.
            store: of the index, which is asked what it remembers of the job.

        Raises:
            ValueError: the job there was begun otherwise, or the folder's files are not a job's.
            HsimhashError: the index does not remember all that the unfinished job there wrote, or 0.1.0 began it, or
                files of it vanished.
            StoreBusyError: another process works on it.
        """
        job = cls(folder, tags)
        try:
            with file_errors(folder):
                job._refuse_foreign(fresh=fresh)
                make_folder(folder)
                job._resources.enter_context(job._lock)
                job._begin(spec, fresh=fresh, store=store)
        except BaseException:
            job.close()
            raise
        return job

    def _begin(self, spec: JobSpec, *, fresh: bool, store: Store) -> None:
        stored = None if fresh else self._stored()
        if stored is not None:
            begun, checkpoint = stored
            has_lost = _has_lost(store, checkpoint)
            differences = spec.differences(begun)
            if checkpoint.state is not State.RUNNING:  # all was read: how 0.1.0 read it no longer matters
                differences = min(differences, replace(spec, inputs=spec.earlier).differences(begun), key=len)
            if checkpoint.state is State.DONE:
                is_same = spec.can_repeat and not differences
                self.was_done, self.was_forgotten = is_same and not has_lost, is_same and has_lost
            else:
                if checkpoint.state is State.RUNNING and not checkpoint.token:
                    self._refuse_earlier(spec, has_lost=has_lost)
                self._refuse(differences, has_lost=has_lost)
                self.is_resumed = True
            if self.was_done or self.is_resumed:
                self.checkpoint = replace(checkpoint, token=checkpoint.token or self.checkpoint.token)
        if not self.was_done and not self.is_resumed:
            begun_tags = stored and _flat(stored[0]).get("tags")
            self._clear(may_replace_tags=fresh or (begun_tags is not None and begun_tags == spec.settings["tags"]))
            write_json(self.folder / _JOB, spec.to_json())
            write_json(self.folder / _CHECKPOINT, self.checkpoint.to_json())
        if self.was_done:
            verify_size(self._paths["tags"], self.checkpoint.sizes.get("tags", 0))
        else:
            self._open_lists()

    def _stored(self) -> tuple[Mapping[str, object], Checkpoint] | None:
        if not (self.folder / _CHECKPOINT).exists():  # killed as the job was begun, or deleted
            return None
        try:
            begun = json.loads((self.folder / _JOB).read_text(encoding="utf-8"))
            checkpoint = Checkpoint.from_json((self.folder / _CHECKPOINT).read_text(encoding="utf-8"))
            _flat(begun)
        except (FileNotFoundError, ValueError, TypeError, KeyError) as error:
            reason = ", ".join(str(error).splitlines())
            raise CorruptionError(f"job {self.folder} cannot be read ({reason}); start over with --fresh") from error
        return begun, checkpoint

    def _refuse_earlier(self, spec: JobSpec, *, has_lost: bool) -> None:
        if has_lost or spec.inputs != spec.earlier:
            raise HsimhashError(
                f"job {self.folder} is unfinished, and an earlier release began this job; start over with --fresh"
            )

    def _refuse(self, differences: Sequence[str], *, has_lost: bool) -> None:
        if differences:
            raise ValueError(
                f"job {self.folder} is unfinished and was begun otherwise: {'; '.join(differences)}; "
                f"ask for what it was begun with, or start over with --fresh"
            )
        if has_lost:
            raise HsimhashError(
                f"job {self.folder} is unfinished, and the index does not remember all that it wrote: it was made anew "
                f"or restored since; start over with --fresh"
            )

    def _refuse_foreign(self, *, fresh: bool) -> None:
        """Raise an error where files of a job's names are there, but no job of ours; see `_DEFAULT_NAME`."""
        found = [self.folder / name for name in _FILES if (self.folder / name).exists()]
        if not found or self._is_job():
            return
        if self.folder.absolute().match(_DEFAULT_NAME):
            found = [
                path for path in (*self.folder.iterdir(), *self.folder.glob(f"{RUNS}/*")) if not self._is_ours(path)
            ]
            if not found and not fresh:
                raise CorruptionError(f"job {self.folder} lost {_JOB} and {_CHECKPOINT}; start over with --fresh")
        if found:
            raise ValueError(f"{found[0]} is there, but no job of hsimhash is; choose another folder with --job")

    def _is_ours(self, path: Path) -> bool:
        name = path.relative_to(self.folder).as_posix()
        return any(fnmatchcase(name, pattern) for pattern in _OURS)

    def _is_job(self) -> bool:
        """Whether there is a job: one of its two files can be read, for the other may be damaged."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            _flat(json.loads((self.folder / _JOB).read_text(encoding="utf-8")))
            return True
        with suppress(OSError, ValueError):
            Checkpoint.from_json((self.folder / _CHECKPOINT).read_text(encoding="utf-8"))
            return True
        return False

    def _clear(self, *, may_replace_tags: bool) -> None:
        """Delete this job's files, and nothing else; refuse to write over tags elsewhere that are not its own."""
        found = [self.folder / name for name in _FILES if (self.folder / name).exists()]
        tags = self._paths["tags"]
        if not may_replace_tags and tags not in found and tags.exists() and tags.stat().st_size:
            raise ValueError(f"{tags} is there already; choose another name, or write over it with --fresh")
        for path in found:  # the job's own file last: what a kill leaves is still known as a job's
            shutil.rmtree(path) if path.name == RUNS else path.unlink()

    def _open_lists(self) -> None:
        sizes = self.checkpoint.sizes
        for name in LISTS:
            verify_size(self._paths[name], sizes.get(name, 0))
        self.lists = {name: AppendLog(self._paths[name], sizes.get(name, 0)) for name in LISTS if name != "decisions"}
        self.decisions = DecisionLog(self._paths["decisions"], sizes.get("decisions", 0))
        for listing in self.lists.values():
            self._resources.callback(listing.close)
        self._resources.callback(self.decisions.close)

    @property
    def runs_folder(self) -> Path:
        """Where the sorted runs are."""
        return self.folder / RUNS

    def path_of(self, name: str) -> Path:
        """Return the path of a list."""
        return self._paths[name]

    def save(self, checkpoint: Checkpoint) -> None:
        """Acknowledge: make the lists durable, then the checkpoint, which is given their sizes."""
        self._lock.verify()
        with file_errors(self.folder):
            for listing in self.lists.values():
                listing.sync()
            sizes = {name: listing.size for name, listing in self.lists.items()}
            sizes["decisions"] = self.decisions.acknowledged
            self.checkpoint = replace(checkpoint, sizes=sizes)
            write_json(self.folder / _CHECKPOINT, self.checkpoint.to_json())

    @property
    def has_summary(self) -> bool:
        """Whether what came of the job is written down."""
        return (self.folder / _SUMMARY).exists()

    def write_summary(self, summary: Mapping[str, object]) -> None:
        """Write down what came of the job."""
        with file_errors(self.folder):
            write_json(self.folder / _SUMMARY, summary)

    def delete_decisions(self) -> None:
        """Delete the decisions, which nobody needs once the job is done: they may be gigabytes."""
        with file_errors(self.folder):
            self._paths["decisions"].unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the folder; harmless when repeated."""
        self._resources.close()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
