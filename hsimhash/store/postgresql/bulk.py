"""Bulk loads on PostgreSQL: sorted runs on disk, written in slices by digest of the document id.

The runs and slices are the same as in the embedded store (`store/runs.py`): a document in several runs is inserted
once, as it is in the last run. Each slice is one transaction, which also saves the progress in `pages_record` under
`load:<token>`; `delete` removes this entry. A killed merge resumes at that point.

If the index is empty, all database indexes except primary keys are dropped first, and created from sorted rows at the
end. A drawer then takes a fifth of the time, and three quarters of the space. Until the indexes exist, queries read the
whole table. If nobody finishes the load, `check --repair` creates the missing indexes.

Only the tables' owner can drop and create indexes. Loads by other users keep the indexes, and take longer.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from hsimhash.files import file_errors
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store.postgresql.audit import make_indexes
from hsimhash.store.postgresql.codec import Tables
from hsimhash.store.postgresql.privileges import privileges
from hsimhash.store.postgresql.session import DatabaseSession, Link
from hsimhash.store.postgresql.write import TableWrites
from hsimhash.store.runs import BulkLoad, Slice

TRANSACTION_DOCUMENTS = 50_000
_log = logging.getLogger("hsimhash.store")
_INDEXED = 0.5  # approximate time for the indexes, relative to the time for the documents


@dataclass(frozen=True, slots=True)
class _Merged:
    """A sliced merge's progress: numbers of runs and slices, the next slice, and how many documents changed."""

    runs: int
    slices: int
    slice: int = 0
    added: int = 0


class DatabaseLoad(BulkLoad):
    """A bulk load into PostgreSQL; see `BulkLoad` and the module docstring."""

    def __init__(self, session: DatabaseSession, tables: Tables, folder: Path, step_documents: int | None) -> None:
        super().__init__(folder, has_signatures=tables.record.has_signatures)
        self._session = session
        self._tables = tables
        self._slice_documents = step_documents or TRANSACTION_DOCUMENTS
        self._name = f"load:{self.token()}"

    def merge(self, observer: Observer = UNWATCHED) -> int | None:
        """Insert all documents; see `BulkLoad.merge`."""
        documents, total = self.documents, round(self.documents * (1 + _INDEXED))
        with file_errors(self.folder), self._session.writing(observer.stop):
            state = self._state()
            # Nobody else can write now, and no two slices share a document, so in an empty index all documents are new.
            is_first = state.slice == 0 < state.slices - 1 and self._session.transaction(self._begin_empty)
            insert = partial(self._insert, are_new=is_first)
            while state.slice < state.slices:
                observer.report("merge", documents * state.slice // state.slices, total)
                if observer.stop():
                    return None
                wanted = self.slice_of(state.slice, state.slices)
                state = self._session.transaction(lambda link: insert(link, wanted, state), is_long=True)  # noqa: B023
            observer.report("merge", documents, total)
            make_indexes(self._session, self._tables)
            observer.report("merge", total, total)
        return state.added

    def _state(self) -> _Merged:
        fresh = _Merged(self.runs, -(-self.documents // self._slice_documents))
        stored = self._session.call(lambda link: self._stored(link))
        # An added run may have documents in any slice, so start again. Keep the count: some may already be stored.
        return fresh if stored is None else stored if stored.runs == self.runs else replace(fresh, added=stored.added)

    def _stored(self, link: Link) -> _Merged | None:
        found = link.rows(f"SELECT value FROM {self._tables.named('_record')} WHERE name = $1", self._name)
        return _Merged(**json.loads(found[0][0])) if found else None

    def _begin_empty(self, link: Link) -> bool:
        """Drop the indexes if there are no documents and this user can recreate them.

        Returns:
            Whether there are no documents.
        """
        if link.rows(f"SELECT 1 FROM {self._tables.documents} LIMIT 1"):
            return False
        found = privileges(link, self._tables)
        if not found.can_rebuild:
            _log.warning(
                'user "%s" cannot create indexes on %s, so this load keeps them and takes longer; to load faster, run '
                "it as the owner of the tables",
                found.user,
                self._tables.address.full_table,
            )
            return True
        for name in self._tables.indexes():
            link.do(f'DROP INDEX IF EXISTS "{self._tables.address.schema}"."{name}"')
        return True

    def _insert(self, link: Link, wanted: Slice, state: _Merged, *, are_new: bool) -> _Merged:
        stored = self._stored(link)
        if stored is not None and stored.runs == state.runs and stored.slice > state.slice:
            return stored  # the reply to the commit was lost
        writes = TableWrites(link, self._tables)
        state = replace(state, slice=state.slice + 1, added=state.added + writes.put_documents(wanted, are_new=are_new))
        writes.set_part(self._name, json.dumps(asdict(state)))
        return state

    def _forget_merge(self) -> None:
        name = self._name
        statement = f"DELETE FROM {self._tables.named('_record')} WHERE name = $1"
        self._session.transaction(lambda link: link.do(statement, name))

    def delete(self) -> None:
        """Remove the merge's progress from the index, then the runs."""
        self._forget_merge()
        super().delete()
