# ruff: noqa: N802  (the methods have Thrift's names)
"""A stand-in for a Thrift2 gateway: one socket, a thread for each connection, calls that hang as long as a test wants.

It has what a table's record, one bucket and one documents row need, and counts its busy threads.
"""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import AbstractContextManager, suppress
from types import SimpleNamespace
from typing import Any, TypeVar

from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TBufferedTransport, TSocket

from hsimhash.layout import Layout
from hsimhash.store import Record
from hsimhash.store.hbase.gateway.connection import THRIFT2
from tests.support.local_server import LocalServer, serving, shut_down

RECORD = Record(Layout.named("10"), {"name": "any"}).to_parts() | {b"ttl": b"0"}


class StandIn(LocalServer):
    """A gateway; methods in `hung` get no answer (`*` means all); each method in `refusals` gets one error instead."""

    def __init__(self) -> None:
        self.hung: set[str] = set()
        self.refusals: list[str] = []  # methods that fail once each with 'Internal error'
        self.busy = self.most_busy = self.accepted = 0
        self.methods: list[str] = []
        self.rows: list[bytes] = []  # what every scan returns
        self.cells: dict[bytes, bytes] = dict(RECORD)
        self.splits: list[bytes] = []
        self.replicas = 1
        self._changed = threading.Condition()
        self._is_over = False
        self._taken: list[socket.socket] = []
        super().__init__(backlog=256)

    def taken(self, connection: socket.socket) -> None:
        with self._changed:
            self.accepted += 1
            self._taken.append(connection)

    def talk(self, connection: socket.socket) -> None:
        protocol = TBinaryProtocol(TBufferedTransport(TSocket(sock=connection)))
        with connection, suppress(OSError):
            while True:
                self._answer(protocol)

    def _answer(self, protocol: Any) -> None:
        try:
            method, _, number = protocol.read_message_begin()
            arguments = getattr(THRIFT2.THBaseService, f"{method}_args")()
            arguments.read(protocol)
            protocol.read_message_end()
        except Exception as error:  # the end of the stream, or something that is not Thrift
            raise ConnectionAbortedError from error
        self._begin(method)
        try:
            if method in self.refusals:
                self.refusals.remove(method)
                protocol.write_message_begin(method, TMessageType.EXCEPTION, number)
                TApplicationException(TApplicationException.INTERNAL_ERROR, f"Internal error in {method}").write(
                    protocol
                )
            else:
                result = getattr(THRIFT2.THBaseService, f"{method}_result")()
                try:
                    result.success = getattr(self, method)(arguments)
                except THRIFT2.TIOError as error:
                    result.io = error
                protocol.write_message_begin(method, TMessageType.REPLY, number)
                result.write(protocol)
            protocol.write_message_end()
            protocol.trans.flush()
        finally:
            with self._changed:
                self.busy -= 1

    def _begin(self, method: str) -> None:
        with self._changed:
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
            self.methods.append(method)
            self._changed.wait_for(lambda: self._is_over or not self.hung & {method, "*"})
            if self._is_over:
                raise ConnectionAbortedError

    def wake(self) -> None:
        """Answer everything."""
        with self._changed:
            self.hung.clear()
            self._changed.notify_all()

    def getThriftServerType(self, arguments: Any) -> int:
        return int(THRIFT2.TThriftServerType.TWO)

    def getAllRegionLocations(self, arguments: Any) -> list[Any]:
        server = THRIFT2.TServerName(hostName="rs", port=16020)
        infos = [
            THRIFT2.THRegionInfo(startKey=start, endKey=stop, replicaId=replica)
            for start, stop in itertools.pairwise([b"", *self.splits, b""])
            for replica in range(self.replicas)
        ]
        return [THRIFT2.THRegionLocation(serverName=server, regionInfo=info) for info in infos]

    def getScannerResults(self, arguments: Any) -> list[Any]:
        start, stop = arguments.tscan.startRow, arguments.tscan.stopRow
        rows = [row for row in self.rows if start <= row < stop]
        return [THRIFT2.TResult(row=row, columnValues=[]) for row in rows]

    def getMultiple(self, arguments: Any) -> list[Any]:
        return [self.get(SimpleNamespace(tget=get)) for get in arguments.tgets]

    def get(self, arguments: Any) -> Any:
        names = [column.qualifier for column in arguments.tget.columns or []]
        cells = [
            THRIFT2.TColumnValue(family=b"i", qualifier=name, value=self.cells[name], timestamp=1)
            for name in names
            if name in self.cells
        ]
        return THRIFT2.TResult(row=arguments.tget.row, columnValues=cells)

    def close(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            taken = list(self._taken)
        super().close()
        for one in taken:
            shut_down(one)


Kind = TypeVar("Kind", bound=StandIn)


def stand_in(kind: type[Kind] = StandIn) -> AbstractContextManager[Kind]:
    """Run a gateway."""
    return serving(kind())
