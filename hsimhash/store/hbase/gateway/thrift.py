"""Code shared by both Thrift interfaces: calls, scans of drawer rows, partial answers, table changes."""

from __future__ import annotations

import time
from abc import abstractmethod
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from types import ModuleType
from typing import Any, cast

import numpy as np

from hsimhash.errors import REPAIR, CorruptionError, HsimhashError, IndexExistsError, StoreUnavailableError
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY, UNANSWERED, Cell, Change, Gateway, Unanswered, always
from hsimhash.store.hbase.gateway.batches import CALL_ROWS, PAGE_ROWS, Range, cells_rows, merged, slices
from hsimhash.store.hbase.gateway.connection import Call, Connection, is_reply
from hsimhash.store.hbase.gateway.failures import no_namespace, reason, store_error
from hsimhash.store.hbase.gateway.pipeline import Caller, Steps, Task, one_call, while_timely
from hsimhash.store.hbase.gateway.silent_servers import LANES, SilentServers
from hsimhash.store.reports import Region

TABLE_CHANGE_S = 300.0  # creating or dropping a table with thousands of regions takes minutes
REGIONS_AGE_S = 300.0
REGIONS_AGAIN_S = 5.0  # how soon the regions are read again after a request without a reply


class ThriftGateway(Gateway):
    """`Gateway` over the Thrift interface in `_service`."""

    _service: ModuleType
    _get_rows = CALL_ROWS  # maximum number of rows in a call of `_get_task`

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._address = caller.pool.address
        self._table = self._address.full_table
        self._width = self._address.options.connections
        self._silent = SilentServers()
        self._regions: list[Region] = []
        self._regions_until_s = 0.0

    def one_deadline(self) -> AbstractContextManager[None]:
        return self._caller.one_deadline()

    def ending(self, timeout_s: float | None) -> AbstractContextManager[None]:
        return self._caller.ending(timeout_s)

    def ending_in_part(self, timeout_s: float | None) -> AbstractContextManager[None]:
        deadline_s = self._caller.deadline_s
        return self.ending(deadline_s if timeout_s is None else min(timeout_s, deadline_s))

    def half(self) -> AbstractContextManager[None]:
        return self._caller.half()

    def close(self) -> None:
        self._caller.pool.close()

    def _call(self, method: str, *arguments: object) -> Call:
        return Call(self._service, method, arguments)

    def _task(self, method: str, *arguments: object) -> Task:
        return one_call(self._call(method, *arguments))

    def _one(self, method: str, *arguments: object) -> Any:  # the IDL defines the type
        return self._run(self._task(method, *arguments))

    def _run(self, task: Task) -> Any:  # the task defines the type
        return self._caller.run([task], width=1)[0]

    def _scan(self, scans: Sequence[DrawerScan], width: int, depth: int) -> Uint8s:
        self._caller.run([scan.steps for scan in scans], width=width, depth=depth)
        return drawer_rows_of(scans)

    def scan_in_part(self, ranges: Sequence[Range]) -> tuple[Uint8s, list[Range]]:
        groups = self._in_groups(merged(ranges), self._regions_in_part())
        scans = [self._scan_of(group) for group in groups]
        done = self._in_part([group[0][0] for group in groups], [scan.steps for scan in scans])
        lacking = (group for group, result in zip(groups, done, strict=True) if result is UNANSWERED)
        return drawer_rows_of(scans), list(chain.from_iterable(lacking))

    def cells_in_part(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell] | Unanswered]:
        def task_of(places: Sequence[int]) -> Task:
            return self._cells_task([rows[place] for place in places], family, limit)

        return self._each_in_part(rows, cells_rows(limit), task_of)

    def get_in_part(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | Unanswered | None]:
        def task_of(places: Sequence[int]) -> Task:
            return self._get_task([keys[place] for place in places], family)

        return self._each_in_part([row for row, _ in keys], self._get_rows, task_of)

    def _each_in_part(self, rows: Sequence[bytes], most: int, task_of: Callable[[Sequence[int]], Task]) -> list[Any]:
        """Return a result for each row. `task_of` returns a task for rows in one region, given the rows' indices."""
        by_region: defaultdict[int, list[int]] = defaultdict(list)
        for place, region in enumerate(region_places(rows, self._regions_in_part())):
            by_region[region].append(place)
        parts = [places[part] for places in by_region.values() for part in slices(len(places), most)]
        done = self._in_part([rows[part[0]] for part in parts], [task_of(part) for part in parts])
        results: list[Any] = [UNANSWERED] * len(rows)
        for part, found in zip(parts, done, strict=True):
            if found is not UNANSWERED:
                for place, one in zip(part, found, strict=True):
                    results[place] = one
        return results

    def _in_part(self, rows: Sequence[bytes], tasks: Sequence[Task]) -> list[Any]:
        """Run tasks on a few connections per server; each task reads the region of the row with the same index.

        This way, a server that does not respond delays only its own calls.
        """
        regions, results = self._regions_in_part(), list[Any]([UNANSWERED] * len(tasks))
        by_server: defaultdict[str, list[int]] = defaultdict(list)
        for number, place in enumerate(region_places(rows, regions)):
            by_server[regions[place].server if regions else ""].append(number)
        asked_s: dict[str, float] = {}

        def steps(server: str, numbers: Sequence[int]) -> Steps:
            asked_s.setdefault(server, time.monotonic())
            for number in numbers:
                if results[number] is UNANSWERED:
                    results[number] = yield from tasks[number]()

        lanes = {server: self._silent.lanes(server) for server in by_server}
        runs = [
            partial(steps, server, numbers[lane :: lanes[server]])
            for lane in range(LANES)
            for server, numbers in by_server.items()
            if lane < min(lanes[server], len(numbers))
        ]
        self._caller.run_in_part(runs, width=self._width)
        for server, began_s in asked_s.items():
            if all(results[number] is UNANSWERED for number in by_server[server]):
                self._silent.unheard(server, time.monotonic() - began_s)
            else:
                self._silent.heard(server)
        return results

    def _regions_in_part(self) -> list[Region]:
        """Return the known regions, or an empty list if they could not be read yet."""
        if time.monotonic() > self._regions_until_s:
            (found,) = self._caller.run_in_part([self._region_steps], width=1)
            self._keep_regions(found if found is not UNANSWERED else self._regions, is_new=found is not UNANSWERED)
        return self._regions

    def _known_regions(self) -> list[Region]:
        if not self._regions or time.monotonic() > self._regions_until_s:
            self._keep_regions(self.regions(), is_new=True)
        return self._regions

    def _keep_regions(self, regions: list[Region], *, is_new: bool) -> None:
        self._regions = regions
        self._regions_until_s = time.monotonic() + (REGIONS_AGE_S if is_new else REGIONS_AGAIN_S)

    def regions(self) -> list[Region]:
        found: list[Region] = self._run(self._region_steps)
        return found

    @abstractmethod
    def _region_steps(self) -> Steps: ...

    @abstractmethod
    def _in_groups(self, ranges: Sequence[Range], regions: Sequence[Region]) -> list[list[Range]]:
        """Group disjoint ranges, so that `_scan_of` can read each group with one scan in one region."""

    @abstractmethod
    def _scan_of(self, ranges: list[Range]) -> DrawerScan: ...

    @abstractmethod
    def _get_task(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> Task: ...

    @abstractmethod
    def _cells_task(self, rows: Sequence[bytes], family: bytes, limit: int) -> Task: ...

    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        tasks = [while_timely(self._change(change), is_timely) for change in changes]
        return self._caller.run(tasks, width=self._width, once=True)

    @abstractmethod
    def _change(self, change: Change) -> Task: ...

    def _create(self, compression: str, *arguments: object) -> None:
        try:
            self._change_table("createTable", *arguments)
        except HsimhashError as error:
            raise self._why_not_created(error.__cause__, compression) or error from error.__cause__

    def _why_not_created(self, error: BaseException | None, compression: str) -> HsimhashError | None:
        message, namespace = _message(error), self._address.namespace
        if "TableExistsException" in message or type(error).__name__ == "AlreadyExists":
            return IndexExistsError(f"table {self._table.decode()} already exists; choose another name")
        if "NamespaceNotFoundException" in message:
            return HsimhashError(no_namespace(namespace))
        if "ompression" in message:
            # Leave out HBase's advice to turn off its checks: it does not help.
            why = message.splitlines()[0].partition(" Set hbase.table.sanity.checks")[0]
            why = why.replace("org.apache.hadoop.hbase.DoNotRetryIOException: ", "").strip(" .")[:200]
            return HsimhashError(
                f"the servers cannot use compression {compression} ({why}): install its codec on the master and the "
                f"region servers and restart them; to test it there, run 'hbase "
                f"org.apache.hadoop.hbase.util.CompressionTest file:///tmp/x {compression.lower()}'; GZ does not need "
                f"a codec"
            )
        return None

    def _delete(self, table: object) -> None:
        try:
            self._change_table("disableTable", table)
        except HsimhashError as error:
            if "TableNotEnabledException" not in _message(error.__cause__):
                raise
        self._change_table("deleteTable", table)

    def _change_table(self, method: str, *arguments: object) -> None:
        """Make a call that may take minutes and is never retried."""
        pool = self._caller.pool
        connection = cast(Connection, pool.take(self._address.options.timeout_s, wait=True))
        try:
            connection.send(self._call(method, *arguments), TABLE_CHANGE_S)
            connection.receive()
        except Exception as error:
            if is_reply(error):
                raise store_error(error, method, self._address, connection.endpoint) from error
            raise StoreUnavailableError(
                f"gateway {connection.endpoint}: {method}: {reason(error, TABLE_CHANGE_S)}"
            ) from error
        finally:
            pool.abandon(connection)


class DrawerScan:
    """A scan of drawer rows, page by page; after a restart, it continues where it stopped.

    With `most`, a page has this many rows, and the scan ends once it has read them.
    """

    def __init__(self, table: bytes, start: bytes, most: int | None = None) -> None:
        self.pages: list[bytes] = []
        self._table = table
        self._row = start
        self._most = most
        self._page_rows = most or PAGE_ROWS

    def steps(self) -> Steps:
        """Scan, and collect the rowkeys in `pages`."""
        raise NotImplementedError

    @property
    def _has_enough(self) -> bool:
        return self._most is not None and sum(map(len, self.pages)) >= self._most * ROWKEY_BYTES

    def _keep(self, rows: Sequence[Any]) -> bytes:
        """Append a page, and return it."""
        page = b"".join([row.row for row in rows])
        if len(page) != len(rows) * ROWKEY_BYTES:
            raise CorruptionError(
                f"table {self._table.decode()} has rowkeys in family {DRAWER_FAMILY.decode()} that are not "
                f"{ROWKEY_BYTES} bytes long; " + REPAIR
            )
        if rows:
            self.pages.append(page)
            self._row = rows[-1].row + b"\x00"
        return page


def drawer_rows_of(scans: Sequence[DrawerScan]) -> Uint8s:
    """Return the rowkeys that scans have read, shape (m, 13), uint8."""
    joined = b"".join(chain.from_iterable(scan.pages for scan in scans))
    return np.frombuffer(joined, np.uint8).reshape(-1, ROWKEY_BYTES)


def region_places(rows: Sequence[bytes], regions: Sequence[Region]) -> list[int]:
    """Return the index of each row's region; 0 for all rows if no regions are known."""
    starts = [region.start for region in regions[1:]]
    return [bisect_right(starts, row) for row in rows]


def _message(error: BaseException | None) -> str:
    return str(getattr(error, "message", error))
