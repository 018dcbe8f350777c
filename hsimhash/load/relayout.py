"""Copy the documents of an index in bulk to an index with the same profile and a different layout; resumable.

| file | content |
|---|---|
| `relayout.json` | both indexes; the total number of shards; the numbers of shards, runs and documents read so far |
| `runs/` | documents that were read but are not in the new index yet |
| `lock` | locked by the process that runs the job |
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from hsimhash.errors import OTHER_JOB, ProfileMismatchError
from hsimhash.files import file_errors, make_folder, write_json
from hsimhash.fingerprint import Signatures
from hsimhash.index import HSimIndex
from hsimhash.locks import lock_or_refuse
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store import BulkLoad, StageOptions, store_name
from hsimhash.store.base import resumed
from hsimhash.store.unfinished_relayout import mark_relayout

SHARD_DOCUMENTS = 500_000  # reading and sorting a shard takes about 300 MB
_STATE = "relayout.json"


@dataclass(frozen=True, slots=True)
class _Reading:
    """The progress of reading the old index."""

    old: str
    new: str
    shards: int
    shard: int = 0
    runs: int = 0
    documents: int = 0


def relayout(
    old: HSimIndex,
    new: HSimIndex,
    folder: Path,
    *,
    stage: StageOptions | None = None,
    observer: Observer = UNWATCHED,
    shard_documents: int = SHARD_DOCUMENTS,
) -> int | None:
    """Copy all documents from one index to another, with the times they were first seen; only reads the old index.

    Args:
        old: Index to read. Documents that others write to it in the meantime may be missed.
        new: Index to write, with the same profile.
        folder: Job folder; the same call with the same folder continues an interrupted job.
        stage: On HBase, write files in this stage and load them.
        observer: Receives progress, and may request to stop.
        shard_documents: Approximate number of documents to read at once and sort as one run.

    Returns:
        Number of documents that the job has added or changed in the new index, in all of its calls; None if the
        observer requested to stop.

    Raises:
        ProfileMismatchError: The profiles differ.
        ValueError: Both are the same index, or the folder belongs to another job.
    """
    _check_pair(old, new)
    with file_errors(folder):
        make_folder(folder)
        lock = lock_or_refuse(folder / "lock", f"is working on the same job ({folder})", OTHER_JOB)
    with lock, file_errors(folder), new.bulk(folder / "runs", stage=stage) as bulk:
        state = _begun(folder, old, new, shard_documents)
        mark_relayout(new.store, is_finished=False)
        reached = _read(old, bulk, folder, state, observer)
        if reached is None:
            return None
        added = resumed(partial(_merge, new, bulk, reached.documents, observer))
        if added is not None:
            mark_relayout(new.store, is_finished=True)
            bulk.delete()
            for name in (_STATE, "lock"):
                (folder / name).unlink()
            with suppress(OSError):  # the folder has other files
                folder.rmdir()
        return added


def is_begun(folder: Path) -> bool:
    """Whether a job folder has an unfinished relayout."""
    return (folder / _STATE).exists()


def _merge(new: HSimIndex, bulk: BulkLoad, documents: int, observer: Observer) -> int | None:
    with new.store.writing(stop=observer.stop):
        return bulk.merge(Observer(observer.stop, lambda one: observer.report(*one[:3], documents)))


def _check_pair(old: HSimIndex, new: HSimIndex) -> None:
    if store_name(old.url) == store_name(new.url):
        raise ValueError(f"{old.url} and {new.url} are the same index; choose another index to copy to")
    if old.profile != new.profile:
        raise ProfileMismatchError(
            f"{new.url} is already an index, with profile {new.profile.name}, but {old.url} has {old.profile.name}, "
            f"and a copy keeps the fingerprints, so it needs the same profile; choose another target"
        )


def _read(old: HSimIndex, bulk: BulkLoad, folder: Path, state: _Reading, observer: Observer) -> _Reading | None:
    """Collect the remaining shards as runs; return the state after the last shard, or None if stopped early."""
    bulk.discard_after(state.runs)
    while state.shard < state.shards:
        if observer.stop():
            return None
        documents = [one for page in old.store.registered(state.shard, state.shards) for one in page]
        if documents:
            signatures = Signatures.collected(one.signature for one in documents)
            first_seen = np.array([one.first_seen for one in documents], np.int64)
            bulk.add_run(signatures, [one.doc_id for one in documents], first_seen)
        state = replace(state, shard=state.shard + 1, runs=bulk.runs, documents=state.documents + len(documents))
        write_json(folder / _STATE, asdict(state))
        observer.report("read", state.shard, state.shards, state.documents)
    return state


def _begun(folder: Path, old: HSimIndex, new: HSimIndex, shard_documents: int) -> _Reading:
    """Return the state of the job in the folder, or the initial state of a new job."""
    path, names = folder / _STATE, (store_name(old.url), store_name(new.url))
    if path.exists():
        state = _Reading(**json.loads(path.read_text(encoding="utf-8")))
        if (state.old, state.new) != names:
            raise ValueError(f"{folder} holds a job from {state.old} to {state.new}; finish that job, or " + OTHER_JOB)
        return state
    state = _Reading(*names, 1 + old.store.estimate() // shard_documents)
    write_json(path, asdict(state))
    return state
