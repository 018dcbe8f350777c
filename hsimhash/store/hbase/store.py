"""The index on HBase: buckets, listings, registers and the record as cells of one table, through a `Gateway`.

What the cells are says `cells.py`; in which order they are written, `protocol.py`; how leftovers go, `audit.py`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import (
    CorruptionError,
    IndexExistsError,
    IndexNotFoundError,
    StoreClosedError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from hsimhash.rowkey import DOCUMENTS_FLAG, PREFIX_BYTES, RECORD_ROWKEY, bucket_range, documents_rowkey
from hsimhash.store.base import (
    RECORD_PARTS,
    BulkLoad,
    CheckReport,
    Document,
    Mark,
    Progress,
    Reader,
    Record,
    Store,
    last_occurrences,
    mark_key,
    up_to,
)
from hsimhash.store.hbase.audit import Audit, Sample, count_documents, pages, server_time
from hsimhash.store.hbase.bulk import TableLoad
from hsimhash.store.hbase.cells import NOW, Register, is_listing, record_from, register_key
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, RECORD_FAMILY, Cell, Change, Gateway, Put
from hsimhash.store.hbase.protocol import BATCH_DOCUMENTS, Times, Wanted, Writes
from hsimhash.store.hbase.survey import Survey, survey

ROWS_AT_ONCE = 100  # documents rows read by one call, and of each
FIRST_CELLS = 100  # so many listings; most rows have one
MORE_CELLS = 5_000  # of a row that has more
CREATE_TRIES = 3  # of writing a part of the record
MARK_TRIES = 10  # one is enough, but for replies that do not come
SLOW_S = 1.0  # a query that takes longer is logged
TTL = b"ttl"  # beside the record's parts: the table's TTL in seconds, 0 for none

_log = logging.getLogger("hsimhash.store")


class HBaseStore(Store):
    """The index in the table behind `gateway`; see the module's text and `Store`.

    Args:
        url: `hbase://…`, for messages.
        gateway: to the table; closed with the store.
        record: what the table's record says; see `create` and `open`.
        times: see `Times`; or what returns them, called once they are needed.
        exclusive: no one else writes the documents that this store is given; their registers are written faster.
    """

    is_atomic = False

    def __init__(
        self,
        url: str,
        gateway: Gateway,
        record: Record,
        *,
        times: Times | Callable[[], Times] | None = None,
        exclusive: bool = False,
    ) -> None:
        self.url = url
        self.record = record
        self.exclusive = exclusive
        self._times = times or Times()
        self._open_gateway: Gateway | None = gateway

    @property
    def times(self) -> Times:
        """Return how long writes may take; asked for when first needed, where the record does not say it."""
        if not isinstance(self._times, Times):
            self._times = self._times()
        return self._times

    @times.setter
    def times(self, times: Times) -> None:
        self._times = times

    @classmethod
    def create(
        cls, url: str, gateway: Gateway, record: Record, *, times: Times | None = None, exclusive: bool = False
    ) -> HBaseStore:
        """Write the record into a table that has none; `IndexExistsError` where it has one."""
        values, found = record.to_parts(), _record_cells(gateway)
        if all(part in found for part in RECORD_PARTS):
            raise IndexExistsError(f"there is an index at {url} already; open it, or choose another table")
        # Part by part, each only where there is none: of two that create at once, one meets the other's part.
        for part in RECORD_PARTS:
            for _ in range(CREATE_TRIES):
                if part not in found:
                    gateway.change([Change(RECORD_ROWKEY, RECORD_FAMILY, part, None, values[part])])
                    found = _record_cells(gateway)
            if part not in found:
                raise _hidden(gateway, part)
            if found[part] != values[part]:
                raise IndexExistsError(
                    f"another index is being created at {url}, or its creation was interrupted: its {part.decode()} "
                    f"differs; create it as it was, or drop the table"
                )
        return cls(url, gateway, record, times=times, exclusive=exclusive)

    @classmethod
    def open(
        cls, url: str, gateway: Gateway, *, times: Times | Callable[[], Times] | None = None, exclusive: bool = False
    ) -> HBaseStore:
        """Open the index in a table, which takes one read; `IndexNotFoundError` where the table has no record.

        Args:
            url: for messages.
            gateway: to the table.
            times: what returns them, where the record has no TTL: one that release 0.1.0 wrote.
            exclusive: see `HBaseStore`.
        """
        try:
            found = _record_cells(gateway)
        except IndexNotFoundError as error:
            raise IndexNotFoundError(
                f"no index at {url}: there is no such table; 'hsimhash create-table' makes one"
            ) from error
        except CorruptionError as error:  # all that can be wrong with what such a read meets
            raise IndexNotFoundError(f"no index at {url}: {error}") from error
        ttl = found.pop(TTL, None)
        if not found:
            raise IndexNotFoundError(
                f"no index at {url}: the table has no record; make one with 'hsimhash create-table'"
            )
        if ttl is not None:
            times = Times(ttl_s=_seconds_of(ttl) or None)
        return cls(url, gateway, record_from(found, url), times=times, exclusive=exclusive)

    @property
    def gateway(self) -> Gateway:
        """The gateway to the table; `StoreClosedError` after `close`."""
        if self._open_gateway is None:
            raise StoreClosedError(f"{self.url} was closed; open it again")
        return self._open_gateway

    def _writes(self) -> Writes:
        return Writes(self.gateway, self.record.layout, self.times, exclusive=self.exclusive)

    @contextmanager
    def view(self, *, timeout_s: float | None = None) -> Iterator[Reader]:
        view, began = HBaseView(self), time.monotonic()
        with self.gateway.ending(timeout_s):
            try:
                yield view
            except StoreTimeoutError as error:
                raise StoreTimeoutError(
                    f"a query of {self.url} did not end in time, having read {view}: {error}; allow more time, or "
                    f"give a limit"
                ) from error
            finally:
                took_s = time.monotonic() - began
                if took_s > SLOW_S:
                    _log.info("a query of %s took %.1f s: it read %s", self.url, took_s, view)

    def writing(self, *, stop: Callable[[], bool] | None = None) -> AbstractContextManager[object]:  # noqa: ARG002
        return nullcontext()

    def scan(self, prefixes: Sequence[bytes]) -> NDArray[np.uint8]:
        return self.gateway.scan(list(map(bucket_range, prefixes)))

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        return HBaseView(self).documents(fingerprints, limit)

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        cells = self.gateway.get([register_key(doc_id) for doc_id in doc_ids], DOCUMENT_FAMILY)
        return [
            Register.from_bytes(cell.value).document(doc_id) if cell is not None else None
            for doc_id, cell in zip(doc_ids, cells, strict=True)
        ]

    def insert(
        self,
        doc_ids: Sequence[bytes],
        fingerprints: NDArray[np.uint64],
        first_seen: NDArray[np.int64],
        *,
        mark: Mark | None = None,
    ) -> int:
        writes, last = self._writes(), last_occurrences(doc_ids)
        with self.gateway.one_deadline():
            added = sum(
                writes.add(_wanted(last[start : start + BATCH_DOCUMENTS], doc_ids, fingerprints, first_seen))
                for start in range(0, len(last), BATCH_DOCUMENTS)
            )
            if mark is not None:
                self.set_mark(mark)
        return added

    def set_mark(self, mark: Mark) -> None:
        """Remember how far a job came."""
        # Not by a put: one that lands late, or that a slower clock stamps, would bring an earlier mark back.
        for _ in range(MARK_TRIES):
            (cell,) = self.gateway.get([(RECORD_ROWKEY, mark.key)], RECORD_FAMILY)
            held = cell.value if cell is not None else None
            change = Change(RECORD_ROWKEY, RECORD_FAMILY, mark.key, held, mark.value)
            if held == mark.value or self.gateway.change([change]) == [True]:
                return
        raise StoreUnavailableError(f"{self.url} does not keep how far the job came; 'hsimhash doctor' tells more")

    def marked(self, token: str) -> int:
        (cell,) = self.gateway.get([(RECORD_ROWKEY, mark_key(token))], RECORD_FAMILY)
        return int(cell.value) if cell is not None else 0

    def insert_announced(self, wanted: Wanted, announce: Callable[[int], None]) -> int:
        """Insert one batch as `insert` does, telling how many are new or moved before anything is written."""
        with self.gateway.one_deadline():
            return self._writes().add(wanted, announce=announce)

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        writes, distinct = self._writes(), list(dict.fromkeys(doc_ids))
        with self.gateway.one_deadline():
            return sum(
                writes.remove(distinct[start : start + BATCH_DOCUMENTS], before=before)
                for start in range(0, len(distinct), BATCH_DOCUMENTS)
            )

    def count(self) -> int:
        return count_documents(self.gateway)

    def is_empty(self) -> bool:
        return not any(self.walk())

    def walk(self) -> Iterator[list[Document]]:
        # Listings sort as their fingerprints do: a row begins with the first four bytes of its fingerprint.
        for page in pages(self.gateway, DOCUMENT_FAMILY, is_whole=lambda flag: flag == DOCUMENTS_FLAG):
            listings = [cell for cell in page if is_listing(cell.row)]
            found = zip(self.lookup([cell.qualifier for cell in listings]), listings, strict=True)
            yield [
                document
                for document, cell in found
                if document is not None and document.fingerprint == int.from_bytes(cell.row[PREFIX_BYTES:], "big")
            ]

    def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
        return Audit(self.gateway, self.record.layout, self.times, repair=repair, progress=progress).run()

    def check_sample(self, sample: Sample, *, progress: Progress | None = None) -> CheckReport:
        """Compare the rows of a sample as `check` does those of all; the report counts what was looked at."""
        return Audit(self.gateway, self.record.layout, self.times, sample=sample, progress=progress).run()

    def survey(self) -> Survey:
        """Count the drawer rows of every region, from samples in a large table."""
        return survey(self.gateway)

    def describe(self) -> dict[str, object]:
        regions = self.gateway.regions()
        return {"regions": len(regions), "servers": len({region.server for region in regions} - {""})}

    def bulk(self, folder: Path) -> BulkLoad:
        return TableLoad(self, folder)

    def close(self) -> None:
        gateway, self._open_gateway = self._open_gateway, None
        if gateway is not None:
            gateway.close()


class HBaseView(Reader):
    """The reads of one query, which counts them."""

    def __init__(self, store: HBaseStore) -> None:
        self._store = store
        self._asked = self._buckets = self._rows = self._documents = 0

    def __str__(self) -> str:
        return f"{self._buckets} of {self._asked} buckets with {self._rows} rows, and {self._documents} documents"

    def scan(self, prefixes: Sequence[bytes]) -> NDArray[np.uint8]:
        self._asked += len(prefixes)
        rows = self._store.scan(prefixes)
        self._buckets += len(prefixes)
        self._rows += len(rows)
        return rows

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        gateway, found = self._store.gateway, list[list[Document]]()
        most = FIRST_CELLS if limit is None else min(limit, FIRST_CELLS)
        for start in range(0, len(fingerprints), ROWS_AT_ONCE):
            part = fingerprints[start : start + ROWS_AT_ONCE]
            listings = gateway.cells_of([documents_rowkey(value) for value in part], DOCUMENT_FAMILY, limit=most)
            confirmed = self._confirmed([cell for cells in listings for cell in cells])
            for fingerprint, cells in zip(part, listings, strict=True):
                first = [next(confirmed) for _ in cells]
                found.append(self._up_to(fingerprint, first, cells, most, limit))
        return found

    def _up_to(
        self, fingerprint: int, found: list[Document | None], listed: list[Cell], most: int, limit: int | None
    ) -> list[Document]:
        """Return the documents of a row up to the limit, reading on behind the first page where that is not enough."""
        documents = [document for document in found if document is not None]
        while len(listed) == most and (limit is None or _held(documents, fingerprint) < limit):
            row, after, most = documents_rowkey(fingerprint), listed[-1].qualifier, min(4 * most, MORE_CELLS)
            listed = self._store.gateway.cells(row, DOCUMENT_FAMILY, after=after, limit=most)
            documents += [document for document in self._confirmed(listed) if document is not None]
        return documents if limit is None else up_to(documents, fingerprint, limit)

    def _confirmed(self, listings: Sequence[Cell]) -> Iterator[Document | None]:
        """Return what the registers of listed documents say, in their order."""
        found = self.lookup([cell.qualifier for cell in listings])
        self._documents += len(found)
        return iter(found)

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        return self._store.lookup(doc_ids)


def recorded_ttl_s(gateway: Gateway) -> int | None:
    """Return what is written of the table's TTL, 0: never; None where nothing is, as release 0.1.0 wrote nothing."""
    ttl = _record_cells(gateway).get(TTL)
    return None if ttl is None else _seconds_of(ttl)


def _seconds_of(value: bytes) -> int:
    if not value.isdigit():
        raise CorruptionError(f"the record's ttl is {value!r}, not seconds; 'hsimhash create-table' writes it again")
    return int(value)


def record_ttl(gateway: Gateway, ttl_s: int) -> None:
    """Write down the table's TTL, 0: never, where something else is written or nothing."""
    value = b"%d" % ttl_s
    if _record_cells(gateway).get(TTL) != value:
        gateway.put([Put(RECORD_ROWKEY, RECORD_FAMILY, TTL, value)])


def _hidden(gateway: Gateway, part: bytes) -> CorruptionError:
    stamp = datetime.fromtimestamp(server_time(gateway, NOW) / 1_000, UTC)
    return CorruptionError(
        f"the cell i:{part.decode()} of row {RECORD_ROWKEY.hex()} was written {CREATE_TRIES} times and is not there: a "
        f"delete lies ahead of the servers' clocks, one of which says {stamp:%Y-%m-%dT%H:%M:%SZ}, or they do not "
        f"answer; correct the clocks and run a major compaction, or drop the table"
    )


def has_record(gateway: Gateway) -> bool:
    """Whether the table has a part of an index's record at least."""
    return bool(_record_cells(gateway))


def _record_cells(gateway: Gateway) -> dict[bytes, bytes]:
    cells = gateway.get([(RECORD_ROWKEY, part) for part in (*RECORD_PARTS, TTL)], RECORD_FAMILY)
    return {cell.qualifier: cell.value for cell in cells if cell is not None}


def _wanted(
    positions: Sequence[int],
    doc_ids: Sequence[bytes],
    fingerprints: NDArray[np.uint64],
    first_seen: NDArray[np.int64],
) -> Wanted:
    return {doc_ids[place]: (int(fingerprints[place]), int(first_seen[place])) for place in positions}


def _held(documents: Sequence[Document], fingerprint: int) -> int:
    """Return how many documents' registers have the fingerprint."""
    return sum(document.fingerprint == fingerprint for document in documents)
