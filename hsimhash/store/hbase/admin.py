"""Making, reading and dropping the table: what `hsimhash create-table` needs of a cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from hsimhash.errors import HsimhashError, IndexExistsError, StoreUnavailableError
from hsimhash.rowkey import PREFIX_BYTES
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.connect import TWO, first_gateway
from hsimhash.store.hbase.connection import Connection, is_reply, tls_context
from hsimhash.store.hbase.diagnosis import reason
from hsimhash.store.hbase.failures import failure
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, DRAWER_FAMILY, RECORD_FAMILY
from hsimhash.store.hbase.idl import THRIFT2
from hsimhash.store.hbase.thrift1 import HBASE

COMPRESSIONS = ("NONE", "GZ", "SNAPPY", "LZ4", "ZSTD", "LZO", "BZIP2")
ENCODING = "FAST_DIFF"
BLOCK_BYTES = 16_384  # a bucket is a few rows: a block of 64 KB would be read for each
ADMIN_TIMEOUT_S = 300.0  # a table of thousands of regions takes minutes

_RESTRICTION = "hbase.regionserver.region.split_restriction"
TABLE_ATTRIBUTES = {f"{_RESTRICTION}.type": "KeyPrefix", f"{_RESTRICTION}.prefix_length": str(PREFIX_BYTES)}
_BLOOM_PREFIX = "RowPrefixBloomFilter.prefix_length"
_PREFIX_BLOOM = "ROWPREFIX_FIXED_LENGTH"
_FOREVER = (1 << 31) - 1  # HBase's TTL of families that have none


@dataclass(frozen=True, slots=True)
class TableSettings:
    """How the table is made; `splits` are ascending row keys, `ttl_s` holds for all but the record's family.

    `family_options` are HBase's own names and values, for all families, such as `("IN_MEMORY", "true")`.
    """

    splits: tuple[bytes, ...] = ()
    ttl_s: int | None = None
    compression: str = "NONE"
    family_options: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.compression not in COMPRESSIONS:
            raise ValueError(f"compression {self.compression!r} is not one of {', '.join(COMPRESSIONS)}")
        if self.ttl_s is not None and not 1 <= self.ttl_s < 1 << 31:
            raise ValueError(f"a TTL of {self.ttl_s} s is outside [1, 2**31)")
        if list(self.splits) != sorted(set(self.splits)) or b"" in self.splits:
            raise ValueError("splits must be ascending, distinct and not empty")


@dataclass(frozen=True, slots=True)
class Family:
    """A column family: its attributes and its configuration by HBase's names."""

    name: str
    attributes: dict[str, str]
    configuration: dict[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table as the cluster describes it."""

    families: tuple[Family, ...]
    attributes: dict[str, str]


def families(settings: TableSettings) -> tuple[Family, ...]:
    """Return the table's families: drawers, documents with registers, the record."""
    return (
        _family(settings, DRAWER_FAMILY, _PREFIX_BLOOM),
        _family(settings, DOCUMENT_FAMILY, "ROW"),
        _family(settings, RECORD_FAMILY, "ROW"),
    )


def _family(settings: TableSettings, name: bytes, bloom: str) -> Family:
    attributes = {
        "VERSIONS": "1",
        "DATA_BLOCK_ENCODING": ENCODING,
        "BLOOMFILTER": bloom,
        "BLOCKSIZE": str(BLOCK_BYTES),
        "COMPRESSION": settings.compression,
    }
    if settings.ttl_s is not None and name != RECORD_FAMILY:
        attributes["TTL"] = str(settings.ttl_s)
    attributes |= dict(settings.family_options)
    prefix = {_BLOOM_PREFIX: str(PREFIX_BYTES)} if attributes["BLOOMFILTER"] == _PREFIX_BLOOM else {}
    return Family(name.decode(), attributes, prefix)


def shell_lines(address: Address, settings: TableSettings) -> list[str]:
    """Return the lines that make the table in `hbase shell`."""
    words = [_ruby(f"{address.namespace}:{address.table}"), *map(_ruby_family, families(settings))]
    if settings.splits:
        words.append(f"SPLITS => [{', '.join(map(_ruby_bytes, settings.splits))}]")
    words.append(f"METADATA => {_ruby_map(TABLE_ATTRIBUTES)}")
    create = "create " + ", ".join(words)
    if address.namespace == "default":
        return [create]
    return [f"create_namespace {_ruby(address.namespace)} # unless it is there", create]


def _ruby_family(family: Family) -> str:
    words = [f"NAME => {_ruby(family.name)}"]
    words += [f"{name} => {_ruby(value)}" for name, value in family.attributes.items()]
    if family.configuration:
        words.append(f"CONFIGURATION => {_ruby_map(family.configuration)}")
    return f"{{{', '.join(words)}}}"


def _ruby(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _ruby_bytes(data: bytes) -> str:
    # The shell reads it with Bytes.toBytesBinary, which knows upper-case digits only.
    return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"


def _ruby_map(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{_ruby(name)} => {_ruby(value)}" for name, value in values.items()) + "}"


class Admin(AbstractContextManager["Admin"]):
    """One connection to a gateway, for calls that make, describe and drop the table; they are not retried."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._endpoint, self.server_type = first_gateway(address)
        self._table = THRIFT2.TTableName(ns=address.namespace.encode(), qualifier=address.table.encode())
        self._connection = self._connect()

    def _connect(self) -> Connection:
        return Connection(self._endpoint, self._address, tls_context(self._address), timeout_s=ADMIN_TIMEOUT_S)

    @property
    def can_split(self) -> bool:
        """Whether the gateway can make the table with its splits, its Bloom filter and its attributes."""
        return self.server_type == TWO and self._address.options.transport != "framed"

    def create_table(self, settings: TableSettings) -> None:
        """Make the table; `IndexExistsError` where there is one."""
        if not self.can_split:
            raise HsimhashError(
                f"gateway {self._endpoint} cannot make the table as it must be: that takes Thrift2, not framed, which "
                f"garbles split keys; run what 'hsimhash create-table --print-shell' prints in hbase shell"
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
        self._create(THRIFT2.THBaseService, descriptor, list(settings.splits) or None)

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
        self._create(HBASE.Hbase, self._address.full_table, columns)

    def _create(self, service: Any, *arguments: object) -> None:
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
                    "the region servers cannot use that compression; is its codec installed on each of them? "
                    f"'hbase org.apache.hadoop.hbase.util.CompressionTest' tells. {message.splitlines()[0]:.200}"
                ) from error
            raise self._meaning(error, "createTable") from error

    def table(self) -> Table | None:
        """Return how the table is made, None where there is none; `HsimhashError` on Thrift1, which does not tell."""
        if self.server_type != TWO:
            raise HsimhashError(f"gateway {self._endpoint} is Thrift1, which does not tell how a table is made")
        if not self.exists():
            return None
        found = self._call(THRIFT2.THBaseService, "getTableDescriptor", self._table)
        described = (
            Family(family.name.decode(), _decoded(family.attributes), dict(family.configuration or {}))
            for family in found.columns
        )
        return Table(tuple(sorted(described, key=lambda family: family.name)), _decoded(found.attributes))

    def ttl_s(self) -> int | None:
        """Return after how many seconds the table drops documents or drawer rows, None: never."""
        if self.server_type == TWO:
            table = self.table()
            options = (
                {family.name: family.attributes.get("TTL", _FOREVER) for family in table.families} if table else {}
            )
        else:
            columns = self._call(HBASE.Hbase, "getColumnDescriptors", self._address.full_table)
            options = {column.name.rstrip(b":").decode(): column.timeToLive for column in columns.values()}
        found = [options.get(family.decode(), _FOREVER) for family in (DRAWER_FAMILY, DOCUMENT_FAMILY)]
        shortest = min(int(ttl) if str(ttl).isdecimal() else _FOREVER for ttl in found)
        return shortest if 0 < shortest < _FOREVER else None

    def exists(self) -> bool:
        """Whether the table is there."""
        if self.server_type == TWO:
            return bool(self._call(THRIFT2.THBaseService, "tableExists", self._table))
        names = self._call(HBASE.Hbase, "getTableNames")
        return self._name.removeprefix("default:").encode() in names

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
            return failure(error, method, self._name)
        return StoreUnavailableError(f"gateway {self._endpoint}: {method}: {reason(error, ADMIN_TIMEOUT_S)}")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _encoded(values: dict[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in values.items()}


def _decoded(values: dict[bytes, bytes] | None) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in (values or {}).items()}
