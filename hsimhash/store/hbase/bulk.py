"""The bulk path of HBase: sorted runs on disk, inserted in slices of their documents' digests.

The runs are the embedded store's (`store/runs.py`). A *slice* has the documents whose digests lie in one range, of
every run: so a document that is in several runs is met once, and the last run counts. How far a merge came is in
`merged.json` beside the runs: into how many slices it cuts them, the slice, how many documents were new or moved
before it, and, once it was begun, in it. A merge that was killed goes on with that slice, cut as it was, whatever the
release; inserting it again changes nothing. The table remembers, by the merge's token, how many slices it was given:
one that remembers fewer was made anew or restored, and gets them all.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from hsimhash.files import file_errors, write_json
from hsimhash.store.base import Mark, Progress
from hsimhash.store.hbase.protocol import BATCH_DOCUMENTS, Wanted
from hsimhash.store.runs import RunFolder


class Target(Protocol):
    """What a bulk load needs of the store."""

    def insert_announced(self, wanted: Wanted, announce: Callable[[int], None]) -> int: ...
    def set_mark(self, mark: Mark) -> None: ...
    def marked(self, token: str) -> int: ...


@dataclass(frozen=True, slots=True)
class _Reached:
    """How far a merge of so many runs, cut into so many slices, came; `pending` counts the slice that was begun."""

    runs: int
    slices: int = 0
    slice: int = 0
    added: int = 0
    pending: int | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex)  # in a file without one: of no mark


def _tell_nobody(done: int, total: int) -> None:
    pass


class TableLoad(RunFolder):
    """A bulk load of an HBase store, in slices of about `slice_documents`; see `BulkLoad` and the module's text."""

    def __init__(self, store: Target, folder: Path, *, slice_documents: int | None = None) -> None:
        super().__init__(folder)
        self._store = store
        self._slice_documents = slice_documents or BATCH_DOCUMENTS

    @property
    def _state_path(self) -> Path:
        return self.folder / "merged.json"

    def _read_state(self) -> _Reached:
        slices = -(-sum(run.size for run in self._runs) // self._slice_documents)
        if not self._state_path.exists():
            return _Reached(self.runs, slices)
        state = _Reached(**json.loads(self._state_path.read_text()))
        if state.slice > self._store.marked(state.token):
            return _Reached(self.runs, slices)
        # A run more: its documents belong to any slice. 0.1.0 did not say how many slices it cut.
        return state if state.runs == self.runs and state.slices else _Reached(self.runs, slices, added=state.added)

    def _save(self, state: _Reached) -> _Reached:
        write_json(self._state_path, asdict(state))
        return state

    def _forget_merge(self) -> None:
        self._state_path.unlink(missing_ok=True)

    def merge(self, *, progress: Progress | None = None, stop: Callable[[], bool] | None = None) -> int | None:
        """Insert all documents; see `BulkLoad.merge`."""
        with file_errors(self.folder):
            state = self._read_state()
            documents = sum(run.size for run in self._runs)
            tell = progress or _tell_nobody
            while state.slice < state.slices:
                tell(documents * state.slice // state.slices, documents)
                if stop is not None and stop():
                    return None
                state = self._insert(state)
            tell(documents, documents)
            return state.added

    def _insert(self, state: _Reached) -> _Reached:
        low, high = (state.slice << 64) // state.slices, (state.slice + 1 << 64) // state.slices
        begun = state

        def announce(count: int) -> None:
            nonlocal begun
            if state.pending is None:
                begun = self._save(replace(state, pending=count))

        self._store.insert_announced(self._documents(low, high), announce)
        self._store.set_mark(Mark(state.token, state.slice + 1))
        return self._save(replace(begun, slice=begun.slice + 1, added=begun.added + (begun.pending or 0), pending=None))

    def _documents(self, low: int, high: int) -> Wanted:
        """Return the documents whose digests begin with a number in [low, high), as the last run has them."""
        documents: dict[bytes, tuple[int, int]] = {}
        for run in self._runs:
            registers, start = run.registers(low, high)
            places = run.read("places", np.uint32, start, start + len(registers)).tolist()
            ends, ids = run.map("id_ends", np.int64), run.map("ids", np.uint8)
            fingerprints, first_seen = registers["fingerprint"].tolist(), registers["first_seen"].tolist()
            for place, fingerprint, seen in zip(places, fingerprints, first_seen, strict=True):
                documents[ids[ends[place] : ends[place + 1]].tobytes()] = (fingerprint, seen)
        return documents
