"""Bulk loads on LMDB: sorted runs on disk, merged in key order.

Committing unsorted documents writes a random page per row. So documents are collected in *runs*, which are sorted files
that do not need a lock. At the end, the runs are merged under the writer's lock, each database in the order of its
keys:

1. *resolve*: if an id occurs in several runs, the last one is kept; unchanged documents are left out.
2. *documents*: the listings are written.
3. *drawers*: the drawer rows are written to LMDB, or to a new base with all rows if there are enough (`BaseLimits`).
4. *registers*: each register is written in the same commit that deletes the rows that a moved document leaves behind.

Each commit also saves the merge's progress in `record` under `load:<token>`, which `delete` removes. After a kill, the
merge resumes at that point if nobody else has committed since, except that an unfinished base is rebuilt from scratch.
Otherwise, the merge starts over. Readers do not trust listings while there are more of them than registers, so they do
not see an unfinished merge.
"""

from __future__ import annotations

import heapq
import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import StopAskedError
from hsimhash.files import file_errors
from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.layout import SEGMENT_BITS
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import FINGERPRINT_BYTES, PREFIX_BYTES
from hsimhash.store.base_files.base_build import build_base
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.base_files.base_format import BaseName, DamagedBaseError
from hsimhash.store.lmdb.codec import DIGEST_BYTES, Row, unpack_register, verify_order
from hsimhash.store.lmdb.compaction import filed_registers, filed_top
from hsimhash.store.lmdb.files import DATA, FILED, JOBS, new_base, remove_bases
from hsimhash.store.lmdb.session import LmdbView, Session
from hsimhash.store.runs import (
    TOKEN_FILE,
    BulkLoad,
    FiledRows,
    Found,
    Run,
    digest_ranges,
    drawer_rows,
    join_registers,
    key_order,
    permuted_of,
    resolve,
    segment_ranges,
    write_permuted,
)

if TYPE_CHECKING:
    import lmdb

COMMIT_DOCUMENTS = 200_000  # number of documents whose listings or registers are written in one transaction
ROWS_A_DOCUMENT = 2  # drawer rows per document in one transaction; a bucket with more rows is not split
ADDED = "add_many"  # name of the job folder of a large `add_many`
_DONE = "done"  # stage after the last one

_log = logging.getLogger("hsimhash.store")


class SortedRuns(BulkLoad):
    """A bulk load into the embedded store; see `BulkLoad` and the module docstring."""

    def __init__(self, session: Session, folder: Path, step_documents: int | None) -> None:
        super().__init__(folder, has_signatures=session.record.has_signatures)
        self._session = session
        self._step_documents = step_documents or COMMIT_DOCUMENTS
        self._state_key = self._new_state_key()

    def _new_state_key(self) -> bytes:
        return f"load:{self.token()}".encode()

    def _forget_merge(self) -> None:
        (self.folder / TOKEN_FILE).unlink()
        self._state_key = self._new_state_key()

    def merge(self, observer: Observer = UNWATCHED) -> int | None:
        """Merge all runs into the index; see `BulkLoad.merge`."""
        if not self._runs:
            return 0
        try:
            with file_errors(self.folder), self._session.writing(stop=observer.stop):
                return _Merge(self._session, self._runs, self._state_key, self._step_documents, observer).run()
        except StopAskedError:
            return None

    def delete(self) -> None:
        """Remove the runs, and their merge's progress from the index."""
        with file_errors(self.folder):
            while self._runs:  # first, because the disk may be full
                self._runs.pop().delete()
        with LmdbView(self._session) as view:
            is_remembered = view.transaction.get(self._state_key, db=view.databases["record"]) is not None
        if is_remembered:
            with self._session.write() as transaction:
                transaction.delete(self._state_key, db=self._session.environment.databases["record"])
        super().delete()


def merge_documents(session: Session, doc_ids: list[bytes], signatures: Signatures, first_seen: Int64s) -> int:
    """Add documents with distinct ids to the index by a bulk load; return how many are new or changed.

    A killed call may have added some of them, and leaves a folder that the next call deletes.
    """
    folder = session.path / JOBS / ADDED
    with session.writing():  # so that nobody else uses the folder
        if folder.exists():
            SortedRuns(session, folder, None).delete()
        load = SortedRuns(session, folder, None)
        try:
            load.add_distinct(signatures, doc_ids, first_seen)
            return load.merge() or 0
        finally:
            load.delete()


@dataclass(frozen=True, slots=True)
class _State:
    """The state of a merge: the stage, the last key written in it, and the transaction that wrote it."""

    stage: str
    after: bytes
    added: int
    runs: int
    data: str  # identity of the data file: a compaction renumbers transactions
    transaction: int = 0

    def to_json(self) -> bytes:
        return json.dumps({**asdict(self), "after": self.after.hex()}).encode()

    @classmethod
    def from_json(cls, text: bytes) -> _State:
        fields = json.loads(text)
        return cls(**{**fields, "after": bytes.fromhex(fields["after"])})


@dataclass
class _Merge:
    """One merge, under the writer's lock."""

    session: Session
    runs: list[Run]
    state_key: bytes
    step_documents: int
    observer: Observer
    added: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.drawers = self.session.record.layout.drawers
        self.documents = sum(run.size for run in self.runs)
        # Each document is written as a listing, as its drawer rows and as a register.
        self.total = self.documents * (2 + len(self.drawers))

    def run(self) -> int:
        stored = self._stored()
        if stored is not None and stored.stage == _DONE:
            return stored.added
        if stored is not None and (stored.data, stored.transaction) == self.session.last_transaction():
            reached, self.added = stored, stored.added
        else:
            if stored is not None:
                _log.info(
                    "index %s: restarting the merge, because the index has been written to since it was interrupted",
                    self.session.path,
                )
            kept = resolve(self.runs, self.step_documents, self._changes)
            self.added = kept if stored is None else stored.added  # keep the first count: some may be stored by now
            reached = _State("documents", b"", self.added, len(self.runs), "")
            with self._commit(reached.stage, reached.after):
                pass
        self._write_from(reached)
        return self.added

    def _write_from(self, reached: _State) -> None:
        stages = {
            "documents": self._write_documents,
            "drawers": self._write_drawers,
            "registers": self._write_registers,
        }
        first, after = list(stages).index(reached.stage), reached.after
        self.done = self.documents * (0, 1, 1 + len(self.drawers))[first]
        for write in list(stages.values())[first:]:
            write(after)
            after = b""

    def _stored(self) -> _State | None:
        """Return the progress of an earlier merge of the same runs."""
        with LmdbView(self.session) as view:
            stored = view.transaction.get(self.state_key, db=view.databases["record"])
        state = _State.from_json(stored) if stored else None
        return state if state is not None and state.runs == len(self.runs) else None

    @contextmanager
    def _commit(self, stage: str, after: bytes) -> Iterator[lmdb.Transaction]:
        """Return a write transaction that also saves the merge's progress."""
        with self.session.write() as transaction:
            data = self.session.data_file()
            state = _State(stage, after, self.added, len(self.runs), data, transaction.id())
            transaction.put(self.state_key, state.to_json(), db=self.session.environment.databases["record"])
            yield transaction

    def _advance(self, count: int, *, is_last: bool = False) -> None:
        self.done = self.total if is_last else min(self.done + count, self.total)
        self.observer.report("merge", self.done, self.total)
        if not is_last and self.observer.stop():
            raise StopAskedError("the merge was stopped between two commits")

    # Stage 1.

    def _changes(self, found: Found) -> Bools:
        """Return whether each register differs from the one in the index."""
        with LmdbView(self.session) as view:
            database = view.databases["register"]
            if not view.transaction.stat(database)["entries"]:
                return np.ones(len(found.registers), np.bool_)
            items = _rows_of(found.registers)
            stored = dict(view.transaction.cursor(database).getmulti([key for key, _ in items]))
        return np.array([_is_change(stored.get(key), value) for key, value in items], np.bool_)

    # Stage 2.

    def _write_documents(self, after: bytes) -> None:
        rows = heapq.merge(*(run.listings(after) for run in self.runs))
        while batch := list(itertools.islice(rows, self.step_documents)):
            with self._commit("documents", batch[-1][0]) as transaction:
                cursor = transaction.cursor(self.session.environment.databases["documents"])
                is_behind = not cursor.last() or cursor.key() < batch[0][0]
                verify_order(cursor.putmulti(batch, append=is_behind))
            self._advance(len(batch))

    # Stage 3.

    def _write_drawers(self, after: bytes) -> None:
        if after >= _edge(1 << SEGMENT_BITS):
            remove_bases(self.session.path, self.session.environment.base_file())  # a killed merge may have left some
            return
        for run in self.runs:
            write_permuted(run, self.drawers, self.session.record.keying)
        if self._is_base_due():
            self._write_base()
        else:
            self._write_top(after)

    def _is_base_due(self) -> bool:
        """Whether enough rows have been added since the base was built to justify a new one; see `BaseLimits`."""
        environment, limits = self.session.environment, self.session.limits
        new: int = sum(permuted_of(run, self.drawers).shape[1] for run in self.runs)
        with LmdbView(self.session) as view:
            entries: int = view.transaction.stat(view.databases["drawers"])["entries"]
            named = environment.based(view.transaction).named
        since = entries // len(self.drawers)
        if named is not None:
            return (new + since) * limits.share > BaseName.from_json(named).rows
        return new + since >= limits.documents and new * limits.share >= since

    def _write_base(self) -> None:
        """Build a base from the index's rows and the runs; it replaces all drawer rows in LMDB."""
        environment, path = self.session.environment, self.session.path
        remove_bases(path, environment.base_file())
        name = self._built_base()
        with self._commit("drawers", _edge(1 << SEGMENT_BITS)) as transaction:
            environment.name_base(transaction, name)
        remove_bases(path, name.file)

    def _built_base(self) -> BaseName:
        record, path = self.session.record, self.session.path
        with LmdbView(self.session) as view:
            try:
                if (old := view.base) is not None:
                    with filed_top(view.transaction, view.databases["drawers"], record, path / FILED) as filed:
                        return self._build([*self.runs, *filed], old)
            except DamagedBaseError as error:
                _log.warning("index %s: %s; rebuilding its base from the registers", path, error)
            with filed_registers(view.transaction, view.databases["register"], record, path / FILED) as filed:
                return self._build([*self.runs, *filed], None)

    def _build(self, filed: Sequence[FiledRows], old: Base | None) -> BaseName:
        count = sum(permuted_of(one, self.drawers).shape[1] for one in filed) + (old.rows if old else 0)
        share = self.documents / max(count, 1)  # share of the written rows that come from this merge
        return build_base(
            new_base(self.session.path),
            self.session.record.layout,
            filed,
            old,
            lambda rows: self._advance(int(rows * share)),
            like=self.session.path / DATA,
        )

    def _write_top(self, after: bytes) -> None:
        ranges = segment_ranges(self.runs, self.drawers, ROWS_A_DOCUMENT * self.step_documents)
        for low, high in ranges:
            if _edge(high) > after:
                with self._commit("drawers", _edge(high)) as transaction:
                    self._put_drawer_rows(transaction, drawer_rows(self.runs, self.drawers, low, high))
            self._advance(self.documents * len(self.drawers) // len(ranges))

    def _put_drawer_rows(self, transaction: lmdb.Transaction, rows: Uint8s) -> None:
        if not len(rows):
            return
        cursor = transaction.cursor(self.session.environment.databases["drawers"])
        is_behind = not cursor.last() or cursor.key() < rows[0, :PREFIX_BYTES].tobytes()
        prefixes = np.ascontiguousarray(rows[:, :PREFIX_BYTES]).view(f"V{PREFIX_BYTES}").ravel().tolist()
        values = np.ascontiguousarray(rows[:, PREFIX_BYTES:]).view(f"V{FINGERPRINT_BYTES}").ravel().tolist()
        written = cursor.putmulti(zip(prefixes, values, strict=True), dupdata=is_behind, append=is_behind)
        if is_behind:
            verify_order(written)

    # Stage 4.

    def _write_registers(self, after: bytes) -> None:
        ranges = digest_ranges(self.runs, self.step_documents)
        for low, high in ranges:
            if _edge(high) > after:
                kept = self._kept_registers(low, high)
                with self._commit(_DONE if high >> 64 else "registers", _edge(high)) as transaction:
                    self._put_registers(transaction, *kept)
            self._advance(self.documents // len(ranges), is_last=bool(high >> 64))

    def _kept_registers(self, low: int, high: int) -> tuple[NDArray[np.void], Int64s]:
        """Return the registers to write, in key order, with each one's run number and position in that run."""
        parts, origins = [], []
        for number, run in enumerate(self.runs):
            registers, start = run.registers(low, high)
            places = run.read("places", np.uint32, start, start + len(registers))
            keep = run.map("keep", np.bool_)[places]
            parts.append(registers[keep])
            origins.append(np.stack([np.full(np.count_nonzero(keep), number), places[keep]], axis=1))
        registers = join_registers(parts)
        order = key_order(registers)
        return registers[order], np.concatenate(origins)[order]

    def _put_registers(self, transaction: lmdb.Transaction, registers: NDArray[np.void], origins: Int64s) -> None:
        rows, items = self.session.rows(transaction), _rows_of(registers)
        if not items:
            return
        cursor = transaction.cursor(rows.register)
        is_behind = not cursor.last() or cursor.key() < items[0][0]
        stored = {} if is_behind else dict(cursor.getmulti([key for key, _ in items]))
        verify_order(cursor.putmulti(items, append=is_behind))
        if stored:
            rows.unlist(
                [
                    (self.runs[number].ids(place, place + 1)[0], unpack_register(stored[key]).signature)
                    for (key, value), (number, place) in zip(items, origins.tolist(), strict=True)
                    if key in stored and stored[key][:FINGERPRINT_BYTES] != value[:FINGERPRINT_BYTES]
                ]
            )


def _is_change(old: bytes | None, new: bytes) -> bool:
    """Whether a register's signature differs from the one in the index."""
    behind = 2 * FINGERPRINT_BYTES  # offset after the fingerprint and first seen
    return old is None or old[:FINGERPRINT_BYTES] != new[:FINGERPRINT_BYTES] or old[behind:] != new[behind:]


def _rows_of(registers: NDArray[np.void]) -> list[Row]:
    packed, size = registers.tobytes(), registers.itemsize
    return [
        (packed[at : at + DIGEST_BYTES], packed[at + DIGEST_BYTES : at + size]) for at in range(0, len(packed), size)
    ]


def _edge(number: int) -> bytes:
    """Return the end of a range, up to 2**64, as bytes that sort like the numbers."""
    return number.to_bytes(9, "big")
