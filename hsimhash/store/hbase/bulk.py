"""Bulk loads through HBase's gateways: sorted runs on disk that are inserted in slices; see `store/sliced_load.py`."""

from __future__ import annotations

from pathlib import Path

from hsimhash.store.base import Mark
from hsimhash.store.hbase.rows.protocol import Writes
from hsimhash.store.runs import Slice
from hsimhash.store.sliced_load import Announce, SlicedLoad


class TableLoad(SlicedLoad):
    """A bulk load that inserts documents into the table in slices; see `BulkLoad`."""

    def __init__(self, writes: Writes, folder: Path, step_documents: int | None) -> None:
        super().__init__(folder, step_documents, has_signatures=writes.record.has_signatures)
        self._writes = writes

    def _marked(self, token: str) -> int:
        return self._writes.marked(token)

    def _write(self, documents: Slice, mark: Mark, announce: Announce) -> None:
        with self._writes.gateway.one_deadline():
            self._writes.add(documents, announce=announce)
            self._writes.set_mark(mark)
            self._writes.same.check()
