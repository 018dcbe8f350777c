"""Copy the documents of an index to one with the same profile and another layout: in bulk, resumable.

| file | what |
|---|---|
| `relayout.json` | from where to where, in how many shards, how many of them are read, in how many runs |
| `runs/` | what was read and is not in the new index yet |
| `lock` | held by the process at work |
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

SHARD_DOCUMENTS = 500_000  # whose reading and sorting takes some 300 MB
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
    """Copy all documents of an index into another, with their first seen; only reads the old one.

    Args:
        old: the index that is read. What others write to it meanwhile may be missed.
        new: an index with the same profile.
        folder: of the job; the same call with it continues one that was interrupted.
        stage: on HBase: bring them in by finished files.
        observer: watches, and may ask to end.
        shard_documents: so many are read at once, about, and sorted as one run.

    Returns:
        How many documents are new or changed in the new index; None where it was asked to end.

    Raises:
        ProfileMismatchError: the profiles differ.
        ValueError: they are one index, or the folder has another job.
    """
    _check_pair(old, new)
    with file_errors(folder):
        make_folder(folder)
        lock = lock_or_refuse(folder / "lock", f"works on the same job ({folder})", OTHER_JOB)
    with lock, file_errors(folder), new.bulk(folder / "runs", stage=stage) as bulk:
        state = _read(old, bulk, folder, _begun(folder, old, new, shard_documents), observer)
        if state is None:
            return None
        added = resumed(partial(_merge, new, bulk, state.documents, observer))
        if added is not None:
            bulk.delete()
            for name in (_STATE, "lock"):
                (folder / name).unlink()
            with suppress(OSError):  # others have files there
                folder.rmdir()
        return added


def _merge(new: HSimIndex, bulk: BulkLoad, documents: int, observer: Observer) -> int | None:
    with new.store.writing(stop=observer.stop):
        return bulk.merge(Observer(observer.stop, lambda one: observer.report(*one[:3], documents)))


def _check_pair(old: HSimIndex, new: HSimIndex) -> None:
    if store_name(old.url) == store_name(new.url):
        raise ValueError(f"{old.url} and {new.url} are one index; name another for the new layout")
    if old.profile != new.profile:
        raise ProfileMismatchError(
            f"{new.url} has profile {new.profile.name}, {old.url} has {old.profile.name}: fingerprints do not change "
            f"with the layout; make the new index with the old one's profile"
        )


def _read(old: HSimIndex, bulk: BulkLoad, folder: Path, state: _Reading, observer: Observer) -> _Reading | None:
    """Collect the shards that are left as runs; return the state after the last one, None where asked to end."""
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
    """Return how far the job in the folder is; of a new one its beginning."""
    path, names = folder / _STATE, (store_name(old.url), store_name(new.url))
    if path.exists():
        state = _Reading(**json.loads(path.read_text(encoding="utf-8")))
        if (state.old, state.new) != names:
            raise ValueError(f"{folder} has a job from {state.old} to {state.new}; finish it, or " + OTHER_JOB)
        return state
    state = _Reading(*names, 1 + old.store.estimate() // shard_documents)
    write_json(path, asdict(state))
    return state
