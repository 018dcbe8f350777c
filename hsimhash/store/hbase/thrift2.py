"""The table through HBase's second Thrift gateway, where a scan is one call and filters are sent as bytes."""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import CorruptionError
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.batches import (
    CALL_CELLS,
    CALL_ROWS,
    PAGE_ROWS,
    PUT_ROWS,
    Range,
    ScanBatch,
    columns_after,
    first_columns,
    merged,
    put_batches,
    row_ranges,
    share,
    slices,
)
from hsimhash.store.hbase.connection import Call
from hsimhash.store.hbase.failures import RefusedError
from hsimhash.store.hbase.gateway import DRAWER_FAMILY, Cell, Change, Deletion, Gateway, Put, Region, always
from hsimhash.store.hbase.idl import THRIFT2
from hsimhash.store.hbase.lanes import Caller, Steps, Task, one_call, while_timely
from hsimhash.store.hbase.wire import put_arguments, put_bytes, row_puts, scan_arguments, sorted_rows, struct_bytes

SINGLE_SCANS = 40  # so many ranges are scanned one by one; measured: beyond, one filter for each region is faster
REGIONS_AGE_S = 300.0

_QUERY_LANES, _LANE_SCANS = 5, 2  # a query's scans go two to a connection: half the threads of a gateway, as fast
_WRITERS = 4  # connections of one `put` or `get`: more do not make a gateway faster
_PREAD = THRIFT2.TReadType.PREAD
_ROW_SCAN = {
    "columns": [THRIFT2.TColumn(family=DRAWER_FAMILY)],
    "caching": PAGE_ROWS,
    "readType": _PREAD,
    "limit": PAGE_ROWS,
}
_ROW_SCAN_BYTES = struct_bytes(THRIFT2.TScan(**_ROW_SCAN))

_log = logging.getLogger("hsimhash.store")


class _FiltersIgnoredError(RefusedError):
    """The gateway does not apply a filter that is given as bytes: one older than HBase 2.2."""


class Thrift2Gateway(Gateway):
    """`Gateway` on Thrift2."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._table = caller.pool.address.full_table
        self._width = caller.pool.address.options.connections
        self._is_binary = caller.pool.address.options.protocol == "binary"
        self._takes_filters = True
        self._regions: list[Region] = []
        self._regions_read_s = 0.0

    def one_deadline(self) -> AbstractContextManager[None]:
        return self._caller.one_deadline()

    def ending(self, timeout_s: float | None) -> AbstractContextManager[None]:
        return self._caller.ending(timeout_s)

    def scan(self, ranges: Sequence[Range]) -> NDArray[np.uint8]:
        disjoint = merged(ranges)
        if len(disjoint) > SINGLE_SCANS and self._takes_filters:
            try:
                batch = ScanBatch.of(disjoint, self._known_regions())
                if batch is not None:
                    return self._scan(batch.groups, min(batch.width, self._width))
            except RefusedError as error:
                self._takes_filters = not isinstance(error, _FiltersIgnoredError)
                _log.warning("a batch of %d scans is made one by one: %s", len(disjoint), error)
        lanes = max(len(disjoint) // _LANE_SCANS, _QUERY_LANES)
        return self._scan([[one] for one in disjoint], min(lanes, self._width), depth=_LANE_SCANS)

    def _scan(self, groups: Sequence[list[Range]], width: int, *, depth: int = 1) -> NDArray[np.uint8]:
        scans = [_RowScan(self._table, group, is_binary=self._is_binary) for group in groups]
        self._caller.run([scan.steps for scan in scans], width=width, depth=depth)
        joined = b"".join(chain.from_iterable(scan.pages for scan in scans))
        return np.frombuffer(joined, np.uint8).reshape(-1, ROWKEY_BYTES)

    def _known_regions(self) -> list[Region]:
        if not self._regions or time.monotonic() - self._regions_read_s > REGIONS_AGE_S:
            self._regions, self._regions_read_s = self.regions(), time.monotonic()
        return self._regions

    def rows(self, start: bytes, stop: bytes, family: bytes, *, limit: int, columns: int = 1) -> list[list[Cell]]:
        found: list[list[Cell]] = []
        page = max(1, CALL_CELLS // columns)
        while len(found) < limit and start < stop:
            wanted = min(page, limit - len(found))
            scan = THRIFT2.TScan(
                startRow=start,
                stopRow=stop,
                columns=[THRIFT2.TColumn(family=family)],
                caching=wanted,
                filterString=first_columns(columns),
                readType=_PREAD,
                limit=wanted,
            )
            results = self._one("getScannerResults", self._table, scan, wanted)
            found += map(_cells, results)
            if len(results) < wanted:
                break
            start = results[-1].row + b"\x00"
        return found

    def cells(self, row: bytes, family: bytes, *, after: bytes | None = None, limit: int) -> list[Cell]:
        found: list[Cell] = []
        while len(found) < limit:
            wanted = min(CALL_ROWS, limit - len(found))
            get = THRIFT2.TGet(
                row=row,
                columns=[THRIFT2.TColumn(family=family)],
                filterString=None if after is None else columns_after(after),
                storeLimit=wanted,
            )
            page = _cells(self._one("get", self._table, get))
            found += page
            if len(page) < wanted:
                break
            after = page[-1].qualifier
        return found

    def cells_of(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell]]:
        columns = [THRIFT2.TColumn(family=family)]
        gets = [THRIFT2.TGet(row=row, columns=columns, storeLimit=limit) for row in rows]
        return self._get(gets, max(1, min(CALL_ROWS, CALL_CELLS // limit)))

    def get(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | None]:
        gets = [
            THRIFT2.TGet(row=row, columns=[THRIFT2.TColumn(family=family, qualifier=qualifier)])
            for row, qualifier in keys
        ]
        return [cells[0] if cells else None for cells in self._get(gets, share(len(gets), CALL_ROWS, _WRITERS))]

    def holds(self, rows: Sequence[bytes]) -> list[bool]:
        # Measured: scans that hop from row to row take less than half the time of gets.
        held = {row.tobytes() for row in self.scan([(row, row + b"\x00") for row in rows])}
        return [row in held for row in rows]

    def _get(self, gets: list[Any], size: int) -> list[list[Cell]]:
        tasks = [self._task("getMultiple", self._table, gets[part]) for part in slices(len(gets), size)]
        return list(map(_cells, chain.from_iterable(self._caller.run(tasks, width=self._width))))

    def put(self, puts: Sequence[Put], *, is_timely: Callable[[], bool] = always) -> None:
        ordered = sorted(puts, key=itemgetter(0))  # cut into calls, each then meets few regions
        batches = put_batches(ordered, share(len(ordered), PUT_ROWS, _WRITERS))
        tasks = [while_timely(partial(self._put, batch), is_timely) for batch in batches]
        self._caller.run(tasks, width=_WRITERS)

    def _put(self, batch: Sequence[Put]) -> Steps:
        if self._is_binary:
            yield self._put_call(b"".join(map(put_bytes, batch)), len(batch))
        else:
            yield Call(THRIFT2.THBaseService, "putMultiple", (self._table, list(map(_tput, batch))))

    def _put_call(self, puts: bytes, count: int) -> Call:
        return Call(THRIFT2.THBaseService, "putMultiple", put_arguments(self._table, puts, count))

    def put_rows(self, rows: NDArray[np.uint8]) -> None:
        if not self._is_binary:
            super().put_rows(rows)
            return
        ordered = sorted_rows(rows)
        parts = slices(len(ordered), share(len(ordered), PUT_ROWS, _WRITERS))
        tasks = [partial(self._put_rows, ordered[part]) for part in parts]
        self._caller.run(tasks, width=_WRITERS)

    def _put_rows(self, rows: NDArray[np.uint8]) -> Steps:
        yield self._put_call(row_puts(rows).tobytes(), len(rows))

    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        tasks = [while_timely(self._change(change), is_timely) for change in changes]
        return self._caller.run(tasks, width=self._width, once=True)

    def _change(self, change: Change) -> Task:
        row, family, qualifier, expected, value = change
        put = _tput(Put(row, family, qualifier, value))
        return self._task("checkAndPut", self._table, row, family, qualifier, expected or None, put)

    def delete(self, deletions: Sequence[Deletion]) -> None:
        tasks = [
            self._task("deleteMultiple", self._table, list(map(_tdelete, deletions[part])))
            for part in slices(len(deletions), CALL_ROWS)
        ]
        self._caller.run(tasks, width=_WRITERS)

    def regions(self) -> list[Region]:
        return regions_of_locations(self._one("getAllRegionLocations", self._table))

    def close(self) -> None:
        self._caller.pool.close()

    def _task(self, method: str, *arguments: object) -> Task:
        return one_call(Call(THRIFT2.THBaseService, method, arguments))

    def _one(self, method: str, *arguments: object) -> Any:  # as the IDL has it
        return self._caller.run([self._task(method, *arguments)], width=1)[0]


class _RowScan:
    """The rows within ascending, disjoint ranges, page by page; begun again, it goes on where it was."""

    def __init__(self, table: bytes, ranges: list[Range], *, is_binary: bool) -> None:
        self._table = table
        self._ranges = ranges
        self._is_binary = is_binary
        self._row = ranges[0][0]
        self.pages: list[bytes] = []

    def steps(self) -> Steps:
        """Scan; the pages are in `pages`."""
        is_last = False
        while not is_last:
            rows = yield self._call()
            page = b"".join([row.row for row in rows])
            self._check(page, len(rows))
            self.pages.append(page)
            # HBase takes a scan whose start is its stop for a get, so such a one is never sent.
            self._row = rows[-1].row + b"\x00" if rows else self._row
            is_last = len(rows) < PAGE_ROWS or self._row >= self._ranges[-1][1]

    def _call(self) -> Call:
        return Call(THRIFT2.TRowScan, "getScannerResults", self._arguments())

    def _arguments(self) -> tuple[object, ...] | bytes:
        stop = self._ranges[-1][1]
        if self._is_binary and len(self._ranges) == 1:
            return scan_arguments(self._table, self._row, stop, _ROW_SCAN_BYTES, PAGE_ROWS)
        left = [(max(start, self._row), stop) for start, stop in self._ranges if stop > self._row]
        filter_bytes = row_ranges(left) if len(left) > 1 else None
        scan = THRIFT2.TScan(startRow=self._row, stopRow=stop, filterBytes=filter_bytes, **_ROW_SCAN)
        return self._table, scan, PAGE_ROWS

    def _check(self, page: bytes, count: int) -> None:
        if len(page) != count * ROWKEY_BYTES:
            raise CorruptionError(
                f"table {self._table.decode()} has rows in family {DRAWER_FAMILY.decode()} that are not "
                f"{ROWKEY_BYTES} bytes long; 'hsimhash check --repair' deletes them"
            )
        # A gateway older than HBase 2.2 passes over filterBytes without a word.
        if count and len(self._ranges) > 1 and not (self._has(page[:ROWKEY_BYTES]) and self._has(page[-ROWKEY_BYTES:])):
            raise _FiltersIgnoredError("the gateway does not apply filterBytes; it is older than HBase 2.2")

    def _has(self, row: bytes) -> bool:
        position = bisect_right(self._ranges, row, key=lambda one: one[0]) - 1
        return position >= 0 and row < self._ranges[position][1]


def regions_of_locations(locations: Iterable[Any]) -> list[Region]:
    """Return the regions of a gateway's `THRegionLocation`s, of which each replica has one."""
    return sorted(
        Region(
            location.regionInfo.startKey or b"",
            location.regionInfo.endKey or b"",
            f"{location.serverName.hostName}:{location.serverName.port}" if location.serverName else "",
        )
        for location in locations
        if not location.regionInfo.replicaId
    )


def _cells(result: Any) -> list[Cell]:
    return [Cell(result.row, found.qualifier, found.value, found.timestamp) for found in result.columnValues]


def _tput(put: Put) -> Any:
    row, family, qualifier, value, timestamp = put
    column = THRIFT2.TColumnValue(family=family, qualifier=qualifier, value=value, timestamp=timestamp)
    return THRIFT2.TPut(row=row, columnValues=[column])


def _tdelete(deletion: Deletion) -> Any:
    row, family, qualifier, timestamp = deletion
    column = THRIFT2.TColumn(family=family, qualifier=qualifier, timestamp=timestamp)
    return THRIFT2.TDelete(row=row, columns=[column], deleteType=THRIFT2.TDeleteType.DELETE_COLUMNS)
