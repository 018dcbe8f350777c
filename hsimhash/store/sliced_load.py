"""Bulk loads through `insert`: sorted runs on disk, inserted in slices by digest of the document id.

Runs and slices are the same as in the embedded store (`store/runs.py`): a document in several runs is inserted once, as
it is in the last run. `merged.json` next to the runs holds the progress of a merge (`_Reached`). After a kill, the
merge resumes with the slice that was being inserted. That slice has the same bounds in every release, and inserting it
again changes nothing. The store keeps the number of slices it has received as a mark under the merge's token. If the
mark is lower than the saved progress, the index was recreated or restored, and all slices are inserted again.
"""

from __future__ import annotations

import json
import uuid
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from hsimhash.files import file_errors, write_json
from hsimhash.fingerprint.signature import Signatures
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store.base import Mark, Store
from hsimhash.store.runs import BulkLoad, Slice

SLICE_DOCUMENTS = 5_000  # documents per slice; on HBase, their rows are not valid until the registers are written

Announce = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Reached:
    """A sliced merge's progress: numbers of runs and slices, the next slice, and how many documents changed.

    `pending` is how many documents in the next slice are new or changed; None until its write has begun.
    """

    runs: int
    slices: int = 0
    slice: int = 0
    added: int = 0
    pending: int | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)  # if the file does not have a token, no mark matches


class SlicedLoad(BulkLoad):
    """A bulk load into a store through inserts; see `BulkLoad` and the module docstring."""

    def __init__(self, folder: Path, step_documents: int | None, *, has_signatures: bool) -> None:
        super().__init__(folder, has_signatures=has_signatures)
        self._slice_documents = step_documents or SLICE_DOCUMENTS
        self._state_path = folder / "merged.json"

    @abstractmethod
    def _marked(self, token: str) -> int:
        """Return the count of the mark with a token."""

    @abstractmethod
    def _write(self, documents: Slice, mark: Mark, announce: Announce) -> None:
        """Insert a slice, then the mark; before the first write, `announce` how many documents are new or changed."""

    def _read_state(self) -> _Reached:
        fresh = _Reached(self.runs, -(-self.documents // self._slice_documents))
        if not self._state_path.exists():
            return fresh
        state = _Reached(**json.loads(self._state_path.read_text()))
        if state.slice > self._marked(state.token):
            return fresh
        # An added run may have documents in any slice, so start again. Version 0.1.0 did not save the number of slices.
        return state if state.runs == self.runs and state.slices else replace(fresh, added=state.added)

    def _save(self, state: _Reached) -> _Reached:
        write_json(self._state_path, asdict(state))
        return state

    def _forget_merge(self) -> None:
        self._state_path.unlink(missing_ok=True)

    def merge(self, observer: Observer = UNWATCHED) -> int | None:
        """Insert all documents; see `BulkLoad.merge`."""
        with file_errors(self.folder):
            state = self._read_state()
            while True:
                observer.report("merge", self.documents * state.slice // max(state.slices, 1), self.documents)
                if state.slice >= state.slices:
                    return state.added
                if observer.stop():
                    return None
                state = self._insert(state)

    def _insert(self, state: _Reached) -> _Reached:
        def announce(count: int) -> None:
            nonlocal state
            if state.pending is None:
                state = self._save(replace(state, pending=count))

        self._write(self.slice_of(state.slice, state.slices), Mark(state.token, state.slice + 1), announce)
        return self._save(replace(state, slice=state.slice + 1, added=state.added + (state.pending or 0), pending=None))


class InsertedLoad(SlicedLoad):
    """A bulk load through `insert`, for stores that do not have their own bulk load."""

    def __init__(self, store: Store, folder: Path, step_documents: int | None) -> None:
        super().__init__(folder, step_documents, has_signatures=store.record.has_signatures)
        self._store = store

    def _marked(self, token: str) -> int:
        return self._store.marked(token)

    def _write(self, documents: Slice, mark: Mark, announce: Announce) -> None:
        ids, signatures = list(documents), Signatures.collected(signature for signature, _ in documents.values())
        first_seen = np.array([seen for _, seen in documents.values()], np.int64)
        if self._store.estimate():
            known = self._store.lookup(ids)
            same = [one is not None and one.signature == new for one, new in zip(known, signatures, strict=True)]
            announce(len(ids) - sum(same))
        else:
            announce(len(ids))
        self._store.insert(ids, signatures, first_seen, mark=mark)
