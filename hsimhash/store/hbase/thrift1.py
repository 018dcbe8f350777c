"""The table through HBase's first Thrift gateway, in happybase's terms.

It has no one-call scan, no get that takes a filter or a limit, and no filter as bytes: what may be wide is read by
scans, and a batch of queries is a batch of scans.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import happybase  # noqa: F401  # makes the module Hbase_thrift
import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import CorruptionError
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.batches import (
    CALL_CELLS,
    CALL_ROWS,
    PAGE_ROWS,
    columns_after,
    first_columns,
    merged,
    put_batches,
    slices,
)
from hsimhash.store.hbase.connection import Call
from hsimhash.store.hbase.gateway import DRAWER_FAMILY, Cell, Change, Deletion, Gateway, Put, Region, always
from hsimhash.store.hbase.idl import THRIFT2
from hsimhash.store.hbase.lanes import Caller, Steps, Task, one_call, while_timely

HBASE: ModuleType = import_module("Hbase_thrift")

_WRITERS = 4  # connections of one `put`: more do not make a gateway faster
_LANE_SCANS = 2  # at once on one connection
_GET_ROWS = 32  # in one call, which asks for each column in each row
_REPLICA = re.compile(rb",\d+_[0-9A-F]{4}\.[0-9a-f]{32}\.\Z")  # how the name of a region's other replica ends
_NO_ATTRIBUTES: dict[bytes, bytes] = {}


class Thrift1Gateway(Gateway):
    """`Gateway` on Thrift1."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._table = caller.pool.address.full_table
        self._width = caller.pool.address.options.connections

    def one_deadline(self) -> AbstractContextManager[None]:
        return self._caller.one_deadline()

    def ending(self, timeout_s: float | None) -> AbstractContextManager[None]:
        return self._caller.ending(timeout_s)

    def scan(self, ranges: Sequence[tuple[bytes, bytes]]) -> NDArray[np.uint8]:
        scans = [_OpenScan(self._table, start, stop) for start, stop in merged(ranges)]
        self._caller.run([scan.steps for scan in scans], width=self._width, depth=_LANE_SCANS)
        joined = b"".join([page for scan in scans for page in scan.pages])
        return np.frombuffer(joined, np.uint8).reshape(-1, ROWKEY_BYTES)

    def rows(self, start: bytes, stop: bytes, family: bytes, *, limit: int, columns: int = 1) -> list[list[Cell]]:
        if start >= stop or limit < 1:
            return []
        page = min(limit, max(1, CALL_CELLS // columns))
        scan = HBASE.TScan(
            startRow=start, stopRow=stop, columns=[family], caching=page, filterString=first_columns(columns)
        )
        results = self._caller.run([partial(self._pages, scan, limit, page)], width=1)[0]
        return list(map(_cells, results))

    def cells(self, row: bytes, family: bytes, *, after: bytes | None = None, limit: int) -> list[Cell]:
        found: list[Cell] = self._caller.run([self._first_cells(row, family, after, limit)], width=1)[0]
        return found

    def cells_of(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell]]:
        return self._caller.run([self._first_cells(row, family, None, limit) for row in rows], width=self._width)

    def _first_cells(self, row: bytes, family: bytes, after: bytes | None, limit: int) -> Task:
        page = min(limit, CALL_ROWS)
        scan = HBASE.TScan(
            startRow=row,
            stopRow=row + b"\x00",
            columns=[family],
            caching=1,
            filterString=None if after is None else columns_after(after),
            batchSize=page,
        )
        return partial(self._row_parts, scan, limit, page)

    def _row_parts(self, scan: Any, limit: int, page: int) -> Steps:
        # A scan in batches gives a wide row in parts, each as a result of its own.
        scanner = yield self._call("scannerOpenWithScan", self._table, scan, _NO_ATTRIBUTES)
        found: list[Cell] = []
        is_last = False
        while not is_last:
            parts = yield self._call("scannerGetList", scanner, 1)
            cells = _cells(parts[0]) if parts else []
            found += cells
            is_last = len(cells) < page or len(found) >= limit
        yield self._call("scannerClose", scanner)
        return found[:limit]

    def _pages(self, scan: Any, limit: int, page: int) -> Steps:
        scanner = yield self._call("scannerOpenWithScan", self._table, scan, _NO_ATTRIBUTES)
        found: list[Any] = []
        is_last = False
        while not is_last:
            wanted = min(page, limit - len(found))
            rows = yield self._call("scannerGetList", scanner, wanted)
            found += rows
            is_last = len(rows) < wanted or len(found) >= limit
        yield self._call("scannerClose", scanner)
        return found

    def get(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | None]:
        batches = [keys[part] for part in slices(len(keys), _GET_ROWS)]
        tasks = [self._get(batch, family) for batch in batches]
        found: list[Cell | None] = []
        for batch, results in zip(batches, self._caller.run(tasks, width=self._width), strict=True):
            cells = {(cell.row, cell.qualifier): cell for result in results for cell in _cells(result)}
            found += map(cells.get, batch)
        return found

    def _get(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> Task:
        rows = list(dict.fromkeys(row for row, _ in keys))
        columns = list(dict.fromkeys(_column(family, qualifier) for _, qualifier in keys))
        return self._task("getRowsWithColumns", self._table, rows, columns, _NO_ATTRIBUTES)

    def put(self, puts: Sequence[Put], *, is_timely: Callable[[], bool] = always) -> None:
        by_time: defaultdict[int | None, list[Put]] = defaultdict(list)
        for put in puts:
            by_time[put.timestamp].append(put)
        tasks = [
            while_timely(partial(self._put, batch, timestamp), is_timely)
            for timestamp, group in by_time.items()
            for batch in put_batches(group)
        ]
        self._caller.run(tasks, width=_WRITERS)

    def _put(self, batch: Sequence[Put], timestamp: int | None) -> Steps:
        rows = [HBASE.BatchMutation(row=put.row, mutations=[_mutation(put)]) for put in batch]
        if timestamp is None:
            yield self._call("mutateRows", self._table, rows, _NO_ATTRIBUTES)
        else:
            yield self._call("mutateRowsTs", self._table, rows, timestamp, _NO_ATTRIBUTES)

    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        tasks = [while_timely(self._change(change), is_timely) for change in changes]
        return self._caller.run(tasks, width=self._width, once=True)

    def _change(self, change: Change) -> Task:
        row, family, qualifier, expected, value = change
        mutation = _mutation(Put(row, family, qualifier, value))
        column = _column(family, qualifier)
        return self._task("checkAndPut", self._table, row, column, expected or None, mutation, _NO_ATTRIBUTES)

    def delete(self, deletions: Sequence[Deletion]) -> None:
        by_time: defaultdict[int, list[Any]] = defaultdict(list)
        for deletion in deletions:
            column = _column(deletion.family, deletion.qualifier)
            mutation = HBASE.Mutation(isDelete=True, column=column)
            by_time[deletion.timestamp].append(HBASE.BatchMutation(row=deletion.row, mutations=[mutation]))
        tasks = [
            self._task("mutateRowsTs", self._table, rows[part], timestamp, _NO_ATTRIBUTES)
            for timestamp, rows in by_time.items()
            for part in slices(len(rows), CALL_ROWS)
        ]
        self._caller.run(tasks, width=_WRITERS)

    def regions(self) -> list[Region]:
        return regions_of_infos(self._caller.run([self._task("getTableRegions", self._table)], width=1)[0])

    def close(self) -> None:
        self._caller.pool.close()

    def _call(self, method: str, *arguments: object) -> Call:
        return Call(HBASE.Hbase, method, arguments)

    def _task(self, method: str, *arguments: object) -> Task:
        return one_call(self._call(method, *arguments))


class _OpenScan:
    """The rows within a half-open range, page by page; begun again, it goes on where it was."""

    def __init__(self, table: bytes, start: bytes, stop: bytes) -> None:
        self._table = table
        self._row = start
        self._stop = stop
        self.pages: list[bytes] = []

    def steps(self) -> Steps:
        """Scan; the pages are in `pages`."""
        scan = HBASE.TScan(startRow=self._row, stopRow=self._stop, columns=[DRAWER_FAMILY], caching=PAGE_ROWS)
        scanner = yield Call(HBASE.Hbase, "scannerOpenWithScan", (self._table, scan, _NO_ATTRIBUTES))
        count = PAGE_ROWS
        while count == PAGE_ROWS:
            rows = yield Call(THRIFT2.TRowScan, "scannerGetList", (scanner, PAGE_ROWS))
            count = len(rows)
            self._keep(rows)
        yield Call(HBASE.Hbase, "scannerClose", (scanner,))

    def _keep(self, rows: Sequence[Any]) -> None:
        page = b"".join([row.row for row in rows])
        if len(page) != len(rows) * ROWKEY_BYTES:
            raise CorruptionError(
                f"table {self._table.decode()} has rows in family {DRAWER_FAMILY.decode()} that are not "
                f"{ROWKEY_BYTES} bytes long; 'hsimhash check --repair' deletes them"
            )
        if rows:
            self.pages.append(page)
            self._row = rows[-1].row + b"\x00"


def regions_of_infos(infos: Iterable[Any]) -> list[Region]:
    """Return the regions of a gateway's `TRegionInfo`s, of which each replica has one, named `…_0001.…` and so on."""
    return sorted(
        Region(info.startKey, info.endKey, f"{info.serverName.decode()}:{info.port}" if info.serverName else "")
        for info in infos
        if not _REPLICA.search(info.name)
    )


def _column(family: bytes, qualifier: bytes) -> bytes:
    return family + b":" + qualifier


def _mutation(put: Put) -> Any:
    return HBASE.Mutation(column=_column(put.family, put.qualifier), value=put.value)


def _cells(result: Any) -> list[Cell]:
    return [
        Cell(result.row, column.partition(b":")[2], cell.value, cell.timestamp)
        for column, cell in sorted(result.columns.items())  # the gateway's own order takes bytes as signed
    ]
