"""An open index: its environment, its views, and the writer's lock."""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import compress, islice, takewhile
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from hsimhash.errors import (
    LayoutMismatchError,
    StoreBusyError,
    StoreClosedError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from hsimhash.fingerprint.bits import Int64s, Uint8s, Uint64s, spans
from hsimhash.locks import WRITER_LOCK, held_here, wait_for_lock
from hsimhash.rowkey import (
    FINGERPRINT_BYTES,
    PREFIX_BYTES,
    fingerprints_of,
    prefix_numbers,
    prefix_numbers_of,
    prefixes_of,
)
from hsimhash.store.base import Document, ListedDocuments, View, up_to
from hsimhash.store.base_files.base_file import Base, first_of_each
from hsimhash.store.lmdb.codec import (
    HEAD_BYTES,
    PACKED_ROWKEY,
    DamagedRowError,
    Rows,
    decode_id,
    digest,
    listed_first_seen,
    listed_id,
    listing_table,
    pack,
    register_fields,
    register_table,
    rows_in,
)
from hsimhash.store.lmdb.environment import Environment, acquire, release, reopened_writable
from hsimhash.store.lmdb.files import (
    BASE_LIMITS,
    DATA,
    FOREIGN_ERRORS,
    BaseLimits,
    lmdb_errors,
    read_only,
    store_error,
)
from hsimhash.store.reports import MOST_LISTED

_SCANS_AT_ONCE = 10_000  # number of buckets read between two deadline checks
_LISTED_AT_ONCE = 256  # number of listings read between two deadline checks


class Session:
    """The index in folder `path`, open in this process; see `Store`.

    Args:
        url: `lmdb://…`, for messages.
        path: The index's folder.
        lock_timeout_s: How long, in seconds, a write waits for another writer, and opening waits for a compaction.
        limits: When the index gets a base.
    """

    def __init__(self, url: str, path: Path, lock_timeout_s: float, limits: BaseLimits = BASE_LIMITS) -> None:
        self.url, self.limits = url, limits
        self.lock_timeout_s = lock_timeout_s
        self._is_closed = False
        self._environment = acquire(path, self, lock_timeout_s)
        self.path = self._environment.path  # absolute: the process may change its working folder
        self.record = self._environment.record

    @property
    def environment(self) -> Environment:
        """The process's environment for this index, reopened after a fork; raises `StoreClosedError` after `close`."""
        environment = self._environment
        return self._opened_again() if environment.is_over or self._is_closed else environment

    def _opened_again(self) -> Environment:
        if self._is_closed:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        new = acquire(self.path, self, self.lock_timeout_s)
        if new.record != self.record:
            release(new, self)
            raise LayoutMismatchError(
                f"another index has been created at {self.path} since this one was opened; open it again"
            )
        self._environment = new
        return new

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:
        """Hold the writer's lock during the block, which sees every earlier commit; see `Store.writing`."""
        environment = self.environment
        if not environment.may_write:
            if not environment.has_lock_file:
                raise read_only(self.path)
            raise StoreUnavailableError(
                f"index {self.path} cannot be written: this user cannot write to {DATA}; grant write access"
            )
        path = self.path / WRITER_LOCK
        if held_here(path) is not None:
            self._make_writable()
            return nullcontext()
        with lmdb_errors(self.path):
            try:
                lock = wait_for_lock(path, self.lock_timeout_s, stop)
            except FileNotFoundError:
                environment.verify_place()
                raise
            try:
                self._make_writable()
                self._show_last_commit()
            except BaseException:
                lock.close()
                raise
            return lock

    def _make_writable(self) -> None:
        while not (environment := self.environment).is_writable:
            self._environment = reopened_writable(environment, self, self.lock_timeout_s)

    def _show_last_commit(self) -> None:
        """Make the last commit visible even if its writer was killed before it updated LMDB's lock file.

        Otherwise, reads see the state before that commit until the next write transaction begins. A caller that reads,
        decides and then writes would miss the committed documents.
        """
        with (environment := self.environment).turn, environment.begin_write():
            pass

    def verify_lock(self) -> None:
        """Raise `StoreBusyError` if the writer's lock file was deleted or replaced while this thread was writing."""
        lock = held_here(self.path / WRITER_LOCK)
        if lock is None or not lock.is_in_place():
            raise StoreBusyError(
                f"{self.path / WRITER_LOCK} was deleted while this process was writing, so other processes may be "
                f"writing as well; unacknowledged writes were not stored; try again, and do not delete that file"
            )

    @contextmanager
    def write(self) -> Iterator[lmdb.Transaction]:
        """Return a write transaction under the writer's lock; durable after the block, rolled back if it raises."""
        with (
            lmdb_errors(self.path),
            self.writing(),
            (environment := self.environment).turn,
            environment.begin_write() as transaction,
        ):
            yield transaction
            self.verify_lock()

    def rows(self, transaction: lmdb.Transaction) -> Rows:
        """Return the index's rows in a transaction."""
        environment = self.environment
        return Rows(self.record, environment.databases, transaction, environment.based(transaction).base)

    def last_transaction(self) -> tuple[str, int]:
        """Return the identity of the data file and the number of its last committed transaction."""
        with LmdbView(self) as view:
            return self.data_file(), int(view.transaction.id())

    def data_file(self) -> str:
        """Return the identity of the data file, which a compaction changes."""
        return str(os.fstat(self.environment.lock.fileno()).st_ino)

    def file_bytes(self) -> int:
        """Return the size of the data file."""
        return os.fstat(self.environment.lock.fileno()).st_size

    def close(self) -> None:
        """Release the environment; the last session of the process closes it."""
        self._is_closed = True
        release(self._environment, self)


class LmdbView(View):
    """One state of an index, in a read transaction; see `Store.view`. As a generator, it would make queries slower."""

    __slots__ = ("_deadline", "_environment", "_session", "_state", "_timeout_s", "databases", "transaction")

    def __init__(self, session: Session, timeout_s: float | None = None) -> None:
        self._session = session
        self._timeout_s = timeout_s
        self._deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s

    def __enter__(self) -> LmdbView:
        try:
            self._begin()
            if self._state.based.is_missing:  # a new base may have just replaced it
                self.transaction.abort()
                self._begin()
        except lmdb.Error as error:
            self._environment.views.pop(id(self), None)
            raise self._our_error(error) from error
        return self

    def _begin(self) -> None:
        while True:
            self._environment = environment = self._session.environment
            environment.views[id(self)] = weakref.ref(self)
            if not (environment.gate.locked() or environment.is_over):
                break
            del environment.views[id(self)]
            with environment.gate:
                pass
        self.transaction = environment.env.begin()
        self.databases = environment.databases
        self._state = environment.state(self.transaction)

    @property
    def base(self) -> Base | None:
        """The base, if there is one; raises `DamagedBaseError` if it cannot be read."""
        return self._state.based.readable_base()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        environment = self._environment
        if not environment.is_over:  # in a forked child, the transaction belongs to the parent
            is_alone = environment.has_lock_file or self.transaction.id() == environment.env.info()["last_txnid"]
            self.transaction.abort()
            environment.views.pop(id(self), None)
            if not is_alone:
                raise StoreUnavailableError(
                    f"index {environment.path} was written to while it was being read from a read-only mount, where "
                    f"readers cannot be registered; try again, mount it writable, or read a backup"
                ) from error
        if isinstance(error, FOREIGN_ERRORS):
            raise self._our_error(error) from error

    def _our_error(self, error: BaseException) -> Exception:
        if self._environment.is_over:
            return StoreClosedError(f"{self._session.url} was closed or compacted by another thread during this call")
        return store_error(self._session.path, error)

    @property
    def base_damage(self) -> Exception | None:
        """Why the base cannot be read; None if it can be read, or if the index does not have a base."""
        return self._state.based.damage

    @property
    def sound_base(self) -> Base | None:
        """The base, if the index has one that can be read."""
        return self._state.based.base

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        base = self.base
        if base is None:
            return self._scan_top(prefixes, most)
        parts = [base.scan(part, most) for part in self._in_time(prefixes)]
        if self._state.has_top:
            parts.append(self._scan_top(prefixes, most))
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return rows if most is None or len(rows) < most else _first_rows(rows, most)

    def _scan_top(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        """Scan the drawer rows in LMDB."""
        cursor = self.transaction.cursor(self.databases["drawers"])
        if len(prefixes) <= _SCANS_AT_ONCE and self._timeout_s is None:  # usual case; takes a quarter less time
            rows = _rows_under(cursor, prefixes, most)
        else:
            rows = b"".join(_rows_under(cursor, part, most) for part in self._in_time(prefixes))
        return rows_in(rows, PACKED_ROWKEY)

    def _in_time(self, prefixes: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Yield prefixes in parts; raise `StoreTimeoutError` when the time is up."""
        for start in range(0, max(len(prefixes), 1), _SCANS_AT_ONCE):
            if time.monotonic() >= self._deadline:
                raise self._late(f"{start:,} of {len(prefixes):,} buckets")
            yield prefixes[start : start + _SCANS_AT_ONCE]

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        cursor = self.transaction.cursor(self.databases["drawers"])
        prefixes = [prefix for one in ranges for prefix in _prefixes_within(cursor, *one)]
        if wrong := set(map(len, prefixes)) - {PREFIX_BYTES}:
            raise DamagedRowError(f"the key of a drawer row has {wrong.pop()} bytes instead of {PREFIX_BYTES}")
        rows = self._scan_top([prefix for prefix in prefixes if not self._session.record.is_key_row(prefix)])
        return rows if self.base is None else np.concatenate([self.base.sweep(ranges), rows])

    @property
    def finds_near(self) -> bool:
        return self._state.based.base is not None or self._state.based.damage is not None

    def near_one(
        self, fingerprint: int, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[int] | None:
        base, has_top = self._ready_base(), self._state.has_top
        if has_top and most is not None:
            return None
        if numbers is None:
            near = base.near(fingerprint, distance, most)
        else:
            near = base.near_among(numbers, fingerprint, distance, most)
        if not has_top or near is None:
            return near
        layout = self._session.record.layout
        prefixes = layout.prefixes(fingerprint) if numbers is None else prefixes_of(numbers)
        since = fingerprints_of(self._scan_top(prefixes))
        found: list[int] = since[np.bitwise_count(since ^ np.uint64(fingerprint)) <= distance].tolist()
        return near + found

    def near_many(
        self, fingerprints: Uint64s, distance: int, numbers: Uint64s | None = None, most: int | None = None
    ) -> list[tuple[Int64s, Uint64s]] | None:
        base, has_top = self._ready_base(), self._state.has_top
        if has_top and most is not None:
            return None
        near = base.near_many(fingerprints, distance, numbers, most)
        if not has_top or near is None:
            return near
        if numbers is None:
            layout = self._session.record.layout
            prefixes = layout.prefix_array(fingerprints).reshape(-1, PREFIX_BYTES)
            numbers = prefix_numbers(prefixes).reshape(len(fingerprints), -1)
        return [*near, self._near_since(fingerprints, distance, numbers)]

    def _ready_base(self) -> Base:
        base = self.base
        if base is None or (self._timeout_s is not None and time.monotonic() >= self._deadline):
            raise self._late("nothing")
        return base

    def _near_since(self, fingerprints: Uint64s, distance: int, numbers: Uint64s) -> tuple[Int64s, Uint64s]:
        """Return the pairs that `near_many` finds in LMDB's drawer rows."""
        order = np.argsort(numbers, axis=None)
        ordered = numbers.ravel()[order]
        rows = self._scan_top(prefixes_of(ordered[np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]]))
        read, since = prefix_numbers_of(rows), fingerprints_of(rows)
        first, stop = (np.searchsorted(ordered, read, side) for side in ("left", "right"))
        places, since = order[spans(first, stop - first)] // numbers.shape[1], np.repeat(since, stop - first)
        is_near = np.bitwise_count(since ^ fingerprints[places]) <= distance
        return places[is_near], since[is_near]

    def estimate(self) -> int:
        return int(self.transaction.stat(self.databases["register"])["entries"])

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        listing = self.transaction.cursor(self.databases["documents"])
        return [self._documents_of(listing, fingerprint, limit) for fingerprint in fingerprints]

    def documents_of(self, fingerprints: Sequence[int]) -> ListedDocuments:
        places, ids, values = self._listed(fingerprints)
        if self._is_listing_enough:
            of_each = np.array(fingerprints, np.uint64)[places]
            return ListedDocuments(
                np.array(places, np.int64), list(map(decode_id, ids)), listing_table(of_each, values)
            )
        registers = self._registers(ids)
        if None in registers:
            are_there = [register is not None for register in registers]
            places, ids, registers = ([*compress(column, are_there)] for column in (places, ids, registers))
        return ListedDocuments(np.array(places, np.int64), list(map(decode_id, ids)), register_table(registers))

    @property
    def _is_listing_enough(self) -> bool:
        """Whether the listings say all that the registers say; reading a register takes longer than a listing."""
        return self._state.is_exact and not self._session.record.has_signatures

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        return [
            None if value is None else Document(decode_id(doc_id), *register_fields(value))
            for doc_id, value in zip(doc_ids, self._registers(doc_ids), strict=True)
        ]

    def _registers(self, doc_ids: Sequence[bytes]) -> list[Any]:
        """Return each document's register, or None. Reading them all first takes a sixth less time."""
        get, register = self.transaction.get, self.databases["register"]
        return [get(one, db=register) for one in map(digest, doc_ids)]

    def confirmed(self, doc_id: bytes) -> Document | None:
        """Return a document according to its register."""
        value = self.transaction.get(digest(doc_id), db=self.databases["register"])
        return None if value is None else Document(decode_id(doc_id), *register_fields(value))

    def listed(self, fingerprint: int) -> int:
        """Return how many documents are listed under a fingerprint, up to `MOST_LISTED`."""
        packed, listing = pack(fingerprint), self.transaction.cursor(self.databases["documents"])
        keys = listing.iternext(values=False) if listing.set_range(packed) else iter(())
        return sum(1 for _ in islice(takewhile(lambda key: key.startswith(packed), keys), MOST_LISTED))

    def _listed(self, fingerprints: Sequence[int]) -> tuple[list[int], list[bytes], list[bytes]]:
        """Return the index of each listed id's fingerprint, the ids, and the listings' values if they are enough.

        All are in key order.
        """
        listing = self.transaction.cursor(self.databases["documents"])
        places, ids, values, due = list[int](), list[bytes](), list[bytes](), 0
        is_enough = self._is_listing_enough
        set_range, item_of, following = listing.set_range, listing.item, listing.next
        keys = np.array(fingerprints, ">u8").tobytes()
        for place in range(len(fingerprints)):
            packed = keys[FINGERPRINT_BYTES * place : FINGERPRINT_BYTES * (place + 1)]
            is_there = set_range(packed)
            while is_there:
                if len(ids) >= due:
                    if time.monotonic() >= self._deadline:
                        raise self._late(f"{len(ids):,} documents of {place:,} fingerprints")
                    due += _LISTED_AT_ONCE
                key, value = item_of()
                if not key.startswith(packed):
                    break
                places.append(place)
                ids.append(listed_id(key, value))
                if is_enough:
                    values.append(value)
                is_there = following()
        return places, ids, values

    def _documents_of(self, listing: lmdb.Cursor, fingerprint: int, limit: int | None) -> list[Document]:
        """Return the confirmed documents listed under a fingerprint; stop after `limit` whose register still has it."""
        packed, found, wanted, head, number = pack(fingerprint), list[Document](), limit, b"", 0
        document: Document | None
        is_enough = self._is_listing_enough
        is_there = listing.set_range(packed)
        while is_there:
            if number % _LISTED_AT_ONCE == 0 and time.monotonic() >= self._deadline:
                raise self._late(f"{number:,} documents of fingerprint {fingerprint:016x}")
            key, value = listing.item()
            # Keys with truncated ids are not sorted by the rest of the id, so read all ids that start alike.
            if not key.startswith(packed) or (wanted == 0 and key[:HEAD_BYTES] != head):
                break
            if is_enough:
                document = Document(decode_id(listed_id(key, value)), fingerprint, listed_first_seen(value))
            else:
                document = self.confirmed(listed_id(key, value))
            if document is not None:
                found.append(document)
                if wanted and document.fingerprint == fingerprint:
                    wanted, head = wanted - 1, key[:HEAD_BYTES]
            is_there, number = listing.next(), number + 1
        found.sort()
        return found if limit is None else up_to(found, fingerprint, limit)

    def _late(self, reached: str) -> StoreTimeoutError:
        return StoreTimeoutError(
            f"index {self._environment.path}: the time limit of {self._timeout_s:g} s was exceeded; "
            f"the query had read {reached}"
        )


def _rows_under(cursor: lmdb.Cursor, prefixes: Sequence[bytes], most: int | None) -> bytes:
    """Return the rows of buckets, but at most the first `most` rows of each bucket."""
    first = list[bytes]()
    if most is not None:
        crowded = {one for one in prefixes if cursor.set_key(one) and cursor.count() > most}
        for prefix in crowded:
            cursor.set_key(prefix)
            first += [prefix + value for value in islice(cursor.iternext_dup(), most)]
        if crowded:
            prefixes = [one for one in prefixes if one not in crowded]
    rows: bytes = cursor.getmulti(prefixes, dupdata=True, dupfixed_bytes=FINGERPRINT_BYTES, keyfixed=True)
    return b"".join([*first, rows]) if first else rows


def _first_rows(rows: Uint8s, most: int) -> Uint8s:
    """Return up to `most` rows of each bucket."""
    rows = rows[np.argsort(prefix_numbers_of(rows), kind="stable")]
    return rows[first_of_each(prefix_numbers_of(rows), most)]


def _prefixes_within(cursor: lmdb.Cursor, start: bytes, stop: bytes) -> Iterator[bytes]:
    """Return the prefixes in the half-open range."""
    prefixes = cursor.iternext_nodup(keys=True, values=False) if cursor.set_range(start) else iter(())
    return takewhile(lambda prefix: prefix < stop, prefixes)
