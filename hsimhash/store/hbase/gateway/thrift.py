"""Shared parts of the gateways of both Thrift interfaces: calls, scans of drawer rows, tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from types import ModuleType
from typing import Any, cast

import numpy as np

from hsimhash.errors import REPAIR, CorruptionError, HsimhashError, IndexExistsError, StoreUnavailableError
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY, Change, Gateway, always
from hsimhash.store.hbase.gateway.connection import Call, Connection, is_reply
from hsimhash.store.hbase.gateway.failures import reason, store_error
from hsimhash.store.hbase.gateway.pipeline import Caller, Steps, Task, one_call, while_timely

TABLE_CHANGE_S = 300.0  # a table of thousands of regions takes minutes


class ThriftGateway(Gateway):
    """`Gateway` on the interface of `_service`."""

    _service: ModuleType

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._address = caller.pool.address
        self._table = self._address.full_table
        self._width = self._address.options.connections

    def one_deadline(self) -> AbstractContextManager[None]:
        return self._caller.one_deadline()

    def ending(self, timeout_s: float | None) -> AbstractContextManager[None]:
        return self._caller.ending(timeout_s)

    def close(self) -> None:
        self._caller.pool.close()

    def _call(self, method: str, *arguments: object) -> Call:
        return Call(self._service, method, arguments)

    def _task(self, method: str, *arguments: object) -> Task:
        return one_call(self._call(method, *arguments))

    def _one(self, method: str, *arguments: object) -> Any:  # as the IDL has it
        return self._run(self._task(method, *arguments))

    def _run(self, task: Task) -> Any:  # as the task has it
        return self._caller.run([task], width=1)[0]

    def _scan(self, scans: Sequence[DrawerScan], width: int, depth: int) -> Uint8s:
        self._caller.run([scan.steps for scan in scans], width=width, depth=depth)
        joined = b"".join(chain.from_iterable(scan.pages for scan in scans))
        return np.frombuffer(joined, np.uint8).reshape(-1, ROWKEY_BYTES)

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
            return HsimhashError(f"no namespace {namespace} there; in hbase shell: create_namespace '{namespace}'")
        if "ompression" in message:
            why = message.splitlines()[0].partition(" Set hbase.table.sanity.checks")[0]  # what follows is no remedy
            why = why.replace("org.apache.hadoop.hbase.DoNotRetryIOException: ", "").strip(" .")[:200]
            return HsimhashError(
                f"the servers cannot use compression {compression} ({why}): install its codec on master and region "
                f"servers and start them again; 'hbase org.apache.hadoop.hbase.util.CompressionTest file:///tmp/x "
                f"{compression.lower()}' tries it there. GZ needs none"
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
        """Make a call that may take minutes, and is not repeated."""
        pool = self._caller.pool
        connection = cast(Connection, pool.take(self._address.options.timeout_s, wait=True))
        try:
            connection.send(self._call(method, *arguments), TABLE_CHANGE_S)
            connection.receive()
        except Exception as error:
            if is_reply(error):
                raise store_error(error, method, self._table.decode(), connection.endpoint) from error
            raise StoreUnavailableError(
                f"gateway {connection.endpoint}: {method}: {reason(error, TABLE_CHANGE_S)}"
            ) from error
        finally:
            pool.abandon(connection)


class DrawerScan:
    """A scan of drawer rows, page by page; it continues where it was when it begins again."""

    def __init__(self, table: bytes, start: bytes) -> None:
        self.pages: list[bytes] = []
        self._table = table
        self._row = start

    def steps(self) -> Steps:
        """Scan; collect the rowkeys in `pages`."""
        raise NotImplementedError

    def _keep(self, rows: Sequence[Any]) -> bytes:
        """Add a page, and return it."""
        page = b"".join([row.row for row in rows])
        if len(page) != len(rows) * ROWKEY_BYTES:
            raise CorruptionError(
                f"table {self._table.decode()} has rows in family {DRAWER_FAMILY.decode()} that are not "
                f"{ROWKEY_BYTES} bytes long; " + REPAIR
            )
        if rows:
            self.pages.append(page)
            self._row = rows[-1].row + b"\x00"
        return page


def _message(error: BaseException | None) -> str:
    return str(getattr(error, "message", error))
