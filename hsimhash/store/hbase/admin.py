"""Making, reading and dropping the table: what `hsimhash create-table` needs of a cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from hsimhash.errors import HsimhashError, IndexExistsError, StoreUnavailableError
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.connect import TWO, first_gateway
from hsimhash.store.hbase.connection import Connection, is_reply, tls_context
from hsimhash.store.hbase.diagnosis import reason
from hsimhash.store.hbase.failures import disabled, failure
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, DRAWER_FAMILY
from hsimhash.store.hbase.idl import THRIFT2
from hsimhash.store.hbase.table import FOREVER_S, TABLE_ATTRIBUTES, Family, Table, TableSettings, families
from hsimhash.store.hbase.thrift1 import HBASE

ADMIN_TIMEOUT_S = 300.0  # a table of thousands of regions takes minutes


class Admin(AbstractContextManager["Admin"]):
    """One connection to a gateway, for calls that make, describe and drop the table; they are not retried."""

    def __init__(self, address: Address, *, timeout_s: float = ADMIN_TIMEOUT_S) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._endpoint, self.server_type = first_gateway(address)
        self._table = THRIFT2.TTableName(ns=address.namespace.encode(), qualifier=address.table.encode())
        self._connection = self._connect()

    def _connect(self) -> Connection:
        return Connection(self._endpoint, self._address, tls_context(self._address), timeout_s=self._timeout_s)

    @property
    def can_split(self) -> bool:
        """Whether the gateway can make the table with its splits, its Bloom filter and its attributes."""
        return self.server_type == TWO and self._address.options.transport != "framed"

    @property
    def is_plain(self) -> bool:
        """Whether the gateway can make a plain table only."""
        return bool(self.server_type != TWO)

    def create_table(self, settings: TableSettings) -> None:
        """Make the table; `IndexExistsError` where there is one."""
        if not self.can_split:
            raise HsimhashError(
                f"gateway {self._endpoint} cannot make the table as it must be: that takes Thrift2, not framed, which "
                f"garbles split keys; run what 'hsimhash create-table --print-shell' prints in hbase shell, then this "
                f"command again{'; or take a lesser table with --allow-plain' if self.is_plain else ''}"
            )
        columns = [
            THRIFT2.TColumnFamilyDescriptor(
                name=family.name.encode(), attributes=_encoded(family.attributes), configuration=family.configuration
            )
            for family in families(settings)
        ]
        descriptor = THRIFT2.TTableDescriptor(
            tableName=self._table, columns=columns, attributes=_encoded(TABLE_ATTRIBUTES)
        )
        self._create(settings.compression, THRIFT2.THBaseService, descriptor, list(settings.splits) or None)

    def create_plain_table(self, settings: TableSettings) -> None:
        """Make the table through Thrift1: one region, no prefix Bloom filter, no encoding, no split restriction."""
        columns = [
            HBASE.ColumnDescriptor(
                name=f"{family.name}:".encode(),
                maxVersions=1,
                compression=settings.compression,
                bloomFilterType="ROW",
                blockCacheEnabled=True,
                timeToLive=int(family.attributes.get("TTL", -1)),
            )
            for family in families(settings)
        ]
        self._create(settings.compression, HBASE.Hbase, self._address.full_table, columns)

    def _create(self, compression: str, service: Any, *arguments: object) -> None:
        try:
            self._fit().call(service, "createTable", *arguments)
        except Exception as error:
            message = str(getattr(error, "message", error))
            if "TableExistsException" in message or type(error).__name__ == "AlreadyExists":
                raise IndexExistsError(f"table {self._name} is there already; choose another name") from error
            if "NamespaceNotFoundException" in message:
                raise HsimhashError(
                    f"no namespace {self._address.namespace} there; in hbase shell: "
                    f"create_namespace '{self._address.namespace}'"
                ) from error
            if "ompression" in message and is_reply(error):
                raise HsimhashError(
                    f"the servers cannot use compression {compression} ({_why(message)}): install its codec on master "
                    f"and region servers and start them again; 'hbase org.apache.hadoop.hbase.util.CompressionTest "
                    f"file:///tmp/x {compression.lower()}' tries it there. GZ needs none"
                ) from error
            raise self._meaning(error, "createTable") from error

    def table(self) -> Table | None:
        """Return how the table is made, None where there is none."""
        if not self.exists():
            return None
        if self.server_type == TWO:
            found = self._call(THRIFT2.THBaseService, "getTableDescriptor", self._table)
            described = (
                Family(family.name.decode(), _decoded(family.attributes), dict(family.configuration or {}))
                for family in found.columns
            )
            return Table(tuple(sorted(described, key=lambda family: family.name)), _decoded(found.attributes))
        columns = self._call(HBASE.Hbase, "getColumnDescriptors", self._address.full_table)
        ttls = {name.rstrip(b":").decode(): {"TTL": str(column.timeToLive)} for name, column in columns.items()}
        return Table(tuple(Family(name, ttl, {}) for name, ttl in sorted(ttls.items())), {}, is_told=False)

    def region_count(self) -> int:
        """Return how many regions the table has."""
        table = self._address.full_table
        if self.server_type == TWO:
            return len(self._call(THRIFT2.THBaseService, "getAllRegionLocations", table))
        return len(self._call(HBASE.Hbase, "getTableRegions", table))

    def ttl_s(self) -> int | None:
        """Return after how many seconds the table drops documents or drawer rows, None: never."""
        table = self.table()
        options = {family.name: family.attributes.get("TTL", "") for family in table.families} if table else {}
        found = [options.get(family.decode(), "") for family in (DRAWER_FAMILY, DOCUMENT_FAMILY)]
        shortest = min(int(ttl) if ttl.isdecimal() else FOREVER_S for ttl in found)
        return shortest if 0 < shortest < FOREVER_S else None

    def exists(self) -> bool:
        """Whether the table is there."""
        if self.server_type == TWO:
            return bool(self._call(THRIFT2.THBaseService, "tableExists", self._table))
        names = self._call(HBASE.Hbase, "getTableNames")
        return self._name.removeprefix("default:").encode() in names

    def check_enabled(self) -> None:
        """Raise `StoreUnavailableError` where the table is disabled.

        Calls on such a table time out through Thrift2; through Thrift1 they say why.
        """
        if self.is_disabled():
            raise disabled(self._name)

    def is_disabled(self) -> bool:
        """Whether the table is disabled; False on Thrift1, whose calls on it say so by themselves."""
        return self.server_type == TWO and bool(self._call(THRIFT2.THBaseService, "isTableDisabled", self._table))

    def delete_table(self) -> None:
        """Disable and drop the table; `IndexNotFoundError` where there is none."""
        if self.server_type == TWO:
            self._disable_and_delete(THRIFT2.THBaseService, self._table)
        else:
            self._disable_and_delete(HBASE.Hbase, self._address.full_table)

    def _disable_and_delete(self, service: Any, table: object) -> None:
        try:
            self._fit().call(service, "disableTable", table)
        except Exception as error:
            if "TableNotEnabledException" not in str(getattr(error, "message", "")):
                raise self._meaning(error, "disableTable") from error
        self._call(service, "deleteTable", table)

    def namespaces(self) -> list[str]:
        """Return the cluster's namespaces; through Thrift1, which does not tell, none."""
        if self.server_type != TWO:
            return []
        return sorted(found.name for found in self._call(THRIFT2.THBaseService, "listNamespaceDescriptors"))

    @property
    def _name(self) -> str:
        return self._address.full_table.decode()

    def _call(self, service: Any, method: str, *arguments: object) -> Any:
        try:
            return self._fit().call(service, method, *arguments)
        except Exception as error:
            raise self._meaning(error, method) from error

    def _fit(self) -> Connection:
        if not self._connection.is_fit:
            self._connection.close()
            self._connection = self._connect()
        return self._connection

    def _meaning(self, error: Exception, method: str) -> HsimhashError:
        if is_reply(error):
            return failure(error, method, self._name, self._endpoint)
        return StoreUnavailableError(f"gateway {self._endpoint}: {method}: {reason(error, self._timeout_s)}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _why(message: str) -> str:
    line = message.splitlines()[0].partition(" Set hbase.table.sanity.checks")[0]  # what follows is no remedy
    return line.replace("org.apache.hadoop.hbase.DoNotRetryIOException: ", "").strip(" .")[:200]


def _encoded(values: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in values.items()}


def _decoded(values: dict[bytes, bytes] | None) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in (values or {}).items()}
