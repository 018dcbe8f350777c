"""The bulk path of Redis: sorted runs on disk, inserted in slices; see `store/sliced_load.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hsimhash.fingerprint.signature import Signatures
from hsimhash.store.base import Mark, Store
from hsimhash.store.runs import Slice
from hsimhash.store.sliced_load import Announce, SlicedLoad


class RedisLoad(SlicedLoad):
    """A bulk load into Redis; see `BulkLoad`."""

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
