"""Access the table through HBase's first Thrift gateway, with the Thrift module that happybase generates.

This interface does not support scans in a single call, gets with a filter or a limit, or filters as bytes. So wide rows
are read with scans, and a batch of queries becomes a batch of scans.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import Any

import happybase  # noqa: F401  # creates the Hbase_thrift module

from hsimhash.fingerprint.bits import Uint8s
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY, Cell, Change, Deletion, Family, Having, Put, Table, always
from hsimhash.store.hbase.gateway.batches import (
    CALL_CELLS,
    CALL_ROWS,
    PAGE_ROWS,
    Range,
    columns_after,
    first_columns,
    merged,
    put_batches,
    slices,
)
from hsimhash.store.hbase.gateway.connection import THRIFT2, Call
from hsimhash.store.hbase.gateway.pipeline import Steps, Task, while_timely
from hsimhash.store.hbase.gateway.thrift import DrawerScan, ThriftGateway
from hsimhash.store.reports import Region

HBASE: ModuleType = import_module("Hbase_thrift")

_WRITERS = 4  # connections that one `put` uses; more do not make a gateway faster
_LANE_SCANS = 2  # maximum scans in progress on one connection
_GET_ROWS = 32  # maximum rows in one call; small because a call reads every requested column in every row
_REPLICA = re.compile(rb",\d+_[0-9A-F]{4}\.[0-9a-f]{32}\.\Z")  # end of a secondary replica's region name
_NO_ATTRIBUTES: dict[bytes, bytes] = {}


class Thrift1Gateway(ThriftGateway):
    """`Gateway` over Thrift1."""

    _service = HBASE.Hbase
    makes_tables = "plain"
    _get_rows = _GET_ROWS

    def scan(self, ranges: Sequence[tuple[bytes, bytes]], most: int | None = None) -> Uint8s:
        if most is not None and most <= PAGE_ROWS:
            return self._scan([_OpenScan(self._table, *one, most) for one in ranges], self._width, _LANE_SCANS)
        scans = [self._scan_of([one]) for one in merged(ranges)]
        return self._scan(scans, self._width, _LANE_SCANS)

    def rows(
        self, start: bytes, stop: bytes, family: bytes, *, limit: int, columns: int = 1, having: Having | None = None
    ) -> list[list[Cell]]:
        if start >= stop or limit < 1:
            return []
        page = min(limit, max(1, CALL_CELLS // columns))
        scan = HBASE.TScan(
            startRow=start,
            stopRow=stop,
            columns=[family],
            caching=page,
            filterString=first_columns(columns, having),
        )
        found: list[list[Cell]] = self._run(
            partial(self._results, scan, limit, page, page, lambda rows: list(map(_cells, rows)))
        )
        return found

    def cells(self, row: bytes, family: bytes, *, after: bytes | None = None, limit: int) -> list[Cell]:
        found: list[Cell] = self._run(self._first_cells(row, family, after, limit))
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
            batchSize=page,  # a wide row arrives in parts, each as a separate result
        )
        return partial(
            self._results, scan, limit, page, 1, lambda parts: [cell for one in parts for cell in _cells(one)]
        )

    def _results(self, scan: Any, limit: int, page: int, count: int, read: Callable[[list[Any]], list[Any]]) -> Steps:
        """Read `count` results per call, until one returns fewer than `page` items in all, or the limit is hit."""
        scanner = yield self._call("scannerOpenWithScan", self._table, scan, _NO_ATTRIBUTES)
        found: list[Any] = []
        is_last = False
        while not is_last:
            things = read((yield self._call("scannerGetList", scanner, count)))
            found += things
            is_last = len(things) < page or len(found) >= limit
        yield self._call("scannerClose", scanner)
        return found[:limit]

    def get(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | None]:
        tasks = [self._get_task(keys[part], family) for part in slices(len(keys), _GET_ROWS)]
        return list(chain.from_iterable(self._caller.run(tasks, width=self._width)))

    def _get_task(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> Task:
        rows = list(dict.fromkeys(row for row, _ in keys))
        columns = list(dict.fromkeys(_column(family, qualifier) for _, qualifier in keys))

        def steps() -> Steps:
            results = yield self._call("getRowsWithColumns", self._table, rows, columns, _NO_ATTRIBUTES)
            cells = {(cell.row, cell.qualifier): cell for result in results for cell in _cells(result)}
            return list(map(cells.get, keys))

        return steps

    def _cells_task(self, rows: Sequence[bytes], family: bytes, limit: int) -> Task:
        def steps() -> Steps:
            found = []
            for row in rows:
                found.append((yield from self._first_cells(row, family, None, limit)()))  # noqa: PERF401 (it yields)
            return found

        return steps

    def put(self, puts: Sequence[Put], *, is_timely: Callable[[], bool] = always) -> None:
        self._mutate(puts, _mutation, is_timely)

    def delete(self, deletions: Sequence[Deletion]) -> None:
        marks = [Put(row, family, qualifier, b"", timestamp) for row, family, qualifier, timestamp in deletions]
        self._mutate(
            marks, lambda put: HBASE.Mutation(isDelete=True, column=_column(put.family, put.qualifier)), always
        )

    def _mutate(self, puts: Sequence[Put], made_of: Callable[[Put], Any], is_timely: Callable[[], bool]) -> None:
        by_time: defaultdict[int | None, list[Put]] = defaultdict(list)
        for put in puts:
            by_time[put.timestamp].append(put)
        tasks = [
            while_timely(partial(self._mutate_rows, batch, timestamp, made_of), is_timely)
            for timestamp, group in by_time.items()
            for batch in put_batches(group)
        ]
        self._caller.run(tasks, width=_WRITERS)

    def _mutate_rows(self, batch: Sequence[Put], timestamp: int | None, made_of: Callable[[Put], Any]) -> Steps:
        rows = [HBASE.BatchMutation(row=put.row, mutations=[made_of(put)]) for put in batch]
        if timestamp is None:
            yield self._call("mutateRows", self._table, rows, _NO_ATTRIBUTES)
        else:
            yield self._call("mutateRowsTs", self._table, rows, timestamp, _NO_ATTRIBUTES)

    def _change(self, change: Change) -> Task:
        row, family, qualifier, expected, value = change
        mutation = _mutation(Put(row, family, qualifier, value))
        column = _column(family, qualifier)
        return self._task("checkAndPut", self._table, row, column, expected or None, mutation, _NO_ATTRIBUTES)

    def _region_steps(self) -> Steps:
        return regions_of_infos((yield self._call("getTableRegions", self._table)))

    def _in_groups(self, ranges: Sequence[Range], regions: Sequence[Region]) -> list[list[Range]]:
        return [[one] for one in ranges]

    def _scan_of(self, ranges: list[Range]) -> DrawerScan:
        ((start, stop),) = ranges
        return _OpenScan(self._table, start, stop)

    def exists(self) -> bool:
        return self._table.removeprefix(b"default:") in self._one("getTableNames")

    def table(self) -> Table | None:
        if not self.exists():
            return None
        columns = self._one("getColumnDescriptors", self._table)
        ttls = {name.rstrip(b":").decode(): {"TTL": str(column.timeToLive)} for name, column in columns.items()}
        return Table(tuple(Family(name, ttl, {}) for name, ttl in sorted(ttls.items())), {}, is_complete=False)

    def create_table(self, table: Table, splits: Sequence[bytes]) -> None:  # ignores the splits
        columns = [
            HBASE.ColumnDescriptor(
                name=f"{family.name}:".encode(),
                maxVersions=1,
                compression=table.compression,
                bloomFilterType="ROW",
                blockCacheEnabled=True,
                timeToLive=int(family.attributes.get("TTL", -1)),
            )
            for family in table.families
        ]
        self._create(table.compression, self._table, columns)

    def delete_table(self) -> None:
        self._delete(self._table)


class _OpenScan(DrawerScan):
    """A scan of the rows in a half-open range."""

    def __init__(self, table: bytes, start: bytes, stop: bytes, most: int | None = None) -> None:
        super().__init__(table, start, most)
        self._stop = stop

    def steps(self) -> Steps:
        if self._has_enough:
            return
        page = self._page_rows
        scan = HBASE.TScan(startRow=self._row, stopRow=self._stop, columns=[DRAWER_FAMILY], caching=page)
        scanner = yield Call(HBASE.Hbase, "scannerOpenWithScan", (self._table, scan, _NO_ATTRIBUTES))
        count = page
        while count == page and not self._has_enough:
            rows = yield Call(THRIFT2.TRowScan, "scannerGetList", (scanner, page))
            count = len(rows)
            self._keep(rows)
        yield Call(HBASE.Hbase, "scannerClose", (scanner,))


def regions_of_infos(infos: Iterable[Any]) -> list[Region]:
    """Return the regions in `TRegionInfo`s, without secondary replicas (named `…_0001.…` and so on)."""
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
        for column, cell in sorted(result.columns.items())  # the gateway orders bytes as signed numbers
    ]
