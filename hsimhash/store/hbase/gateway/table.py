"""The table: its families and settings, and the steps that create or change it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hsimhash.durations import ttl_in_words
from hsimhash.errors import HsimhashError, IndexNotFoundError, StoreUnavailableError, plural
from hsimhash.rowkey import PREFIX_BYTES
from hsimhash.store.hbase.gateway.address import DEFAULT_NAMESPACE, Address
from hsimhash.store.hbase.gateway.base import (
    DOCUMENT_FAMILY,
    DRAWER_FAMILY,
    FOREVER_S,
    RECORD_FAMILY,
    Family,
    Gateway,
    Table,
    ttl_in,
)

COMPRESSIONS = ("NONE", "GZ", "SNAPPY", "LZ4", "ZSTD", "LZO", "BZIP2")
ENCODING = "FAST_DIFF"
# Thrift does not report the number of region servers. With 16 regions, each of up to five servers gets at least three
# regions, so that HBase can balance them, and a single server is not overloaded. The regions hold 1e9 documents in 10
# drawers before HBase splits any of them. It splits a region when one of its families reaches 10 GB. With that many
# documents, family f takes 165 GB across all regions, and family d takes 130 GB with ids of 35 bytes (see `plan`).
# With more servers, use --regions to get three or four regions per server.
AUTO_REGIONS = 16
MOST_REGION_BYTES = 10 << 30  # for `plan`, across all families, without compression
# HBase decodes a block from its start to the row that it seeks. A drawer block has 120 rows. With 480 rows (16 KiB),
# region servers take 1.5 times as long for a query within 6 bits; with 60 rows, the block index takes too much of the
# cache.
DRAWER_BLOCK_BYTES, BLOCK_BYTES = 4_096, 16_384
UNKNOWN_TTL = (
    "cannot read the table's TTL (%s); if it has one, adding a document again does not postpone its expiry; "
    "run 'hsimhash create-table' to write the TTL into the record"
)

_RESTRICTION = "hbase.regionserver.region.split_restriction"
TABLE_ATTRIBUTES = {f"{_RESTRICTION}.type": "KeyPrefix", f"{_RESTRICTION}.prefix_length": str(PREFIX_BYTES)}
_BLOOM_PREFIX = "RowPrefixBloomFilter.prefix_length"
_PREFIX_BLOOM = "ROWPREFIX_FIXED_LENGTH"
_log = logging.getLogger("hsimhash.store")
_VERBS = {"+": "create", "~": "alter", "=": "ok"}

# The keys of ColumnFamilyDescriptorBuilder (HBase 2.6) that change how cells are stored, but not which ones: the index
# itself controls versions, deleted cells and expiry. Names are checked because HBase silently accepts a misspelt name.
FAMILY_OPTIONS = (
    "BLOCKCACHE",
    "BLOCKSIZE",
    "BLOOMFILTER",
    "CACHE_BLOOMS_ON_WRITE",
    "CACHE_DATA_ON_WRITE",
    "CACHE_INDEX_ON_WRITE",
    "COMPRESSION_COMPACT",
    "DATA_BLOCK_ENCODING",
    "DFS_REPLICATION",
    "ENCRYPTION",
    "EVICT_BLOCKS_ON_CLOSE",
    "INDEX_BLOCK_ENCODING",
    "IN_MEMORY",
    "IN_MEMORY_COMPACTION",
    "PREFETCH_BLOCKS_ON_OPEN",
    "REPLICATION_SCOPE",
    "STORAGE_POLICY",
)


# HBase's defaults, on which deletion and expiry rely. A new table has them, so they are only compared.
_RELIED_ON = {"KEEP_DELETED_CELLS": "FALSE", "MIN_VERSIONS": "0"}


@dataclass(frozen=True, slots=True)
class TableSettings:
    """Settings of a table: `splits` are ascending row keys; `ttl_s` applies to all families except the record's.

    A new table without `compression` uses NONE. `family_options` apply to all families; they use HBase's own names and
    values, such as `("IN_MEMORY", "true")`.
    """

    splits: tuple[bytes, ...] = ()
    ttl_s: int | None = None
    compression: str | None = None
    family_options: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if self.compression not in (None, *COMPRESSIONS):
            raise ValueError(f"compression must be one of {', '.join(COMPRESSIONS)}, got {self.compression!r}")
        for name, value in self.family_options:
            if name not in FAMILY_OPTIONS:
                raise ValueError(f"unknown family option {name}={value}: expected one of {', '.join(FAMILY_OPTIONS)}")
        if self.ttl_s is not None and not 1 <= self.ttl_s < 1 << 31:
            raise ValueError(f"TTL must be 1 to 2**31 - 1 seconds (24,855 days), got {self.ttl_s}")
        if list(self.splits) != sorted(set(self.splits)) or b"" in self.splits:
            raise ValueError("splits must be ascending, distinct and not empty")

    @property
    def requested(self) -> set[str]:
        """The names of the family attributes that are set explicitly."""
        chosen = {"TTL": self.ttl_s, "COMPRESSION": self.compression} | dict(self.family_options)
        return {name for name, value in chosen.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Step:
    """A part of an index on HBase that must be created ("+") or altered ("~"), or that already matches ("=").

    `line` carries out the step in `hbase shell`, the only tool that can alter a table. It is empty if another step's
    line includes this step. `attribute` is the name of the attribute that differs.
    """

    sign: Literal["+", "~", "="]
    text: str
    line: str = ""
    attribute: str = ""

    def __str__(self) -> str:
        return f"{self.sign} {_VERBS[self.sign]} {self.text}"


def families(settings: TableSettings) -> tuple[Family, ...]:
    """Return the table's families: for drawers, for documents and registers, and for the record."""
    return (
        _family(settings, DRAWER_FAMILY, _PREFIX_BLOOM),
        _family(settings, DOCUMENT_FAMILY, "ROW"),
        _family(settings, RECORD_FAMILY, "ROW"),
    )


def new_table(address: Address, wanted: TableSettings, namespaces: Sequence[str] = ()) -> list[Step]:
    """Return the steps that create the table, and its namespace unless that is known to exist."""
    words = [_ruby_table(address), *map(_ruby_family, families(wanted))]
    if wanted.splits:
        words.append(f"SPLITS => [{', '.join(map(_ruby_bytes, wanted.splits))}]")
    words.append(f"METADATA => {_ruby_map(TABLE_ATTRIBUTES)}")
    regions = plural(len(wanted.splits) + 1, "region")
    steps = [Step("+", f"table {address.full_table.decode()}: {regions}", f"create {', '.join(words)}")]
    steps += [Step("+", f"family {one.name}: {_values(one.attributes)}") for one in families(wanted)]
    if address.namespace in (DEFAULT_NAMESPACE, *namespaces):
        return steps
    # `hbase shell -n` stops at the first error, so an existing namespace must not cause one.
    line = f"create_namespace {_ruby(address.namespace)} rescue nil"
    return [Step("+", f"namespace {address.namespace}: requires hbase shell", line), *steps]


def missing_families(table: Table) -> list[str]:
    """Return an index's column families that a table lacks, sorted; empty if the gateway does not report any."""
    found = {family.name for family in table.families}
    return sorted({family.name for family in families(TableSettings())} - found) if found else []


def compared(address: Address, table: Table, wanted: TableSettings) -> list[Step]:
    """Compare a table with `wanted`; TTL and compression are compared only if `wanted` has them."""
    name, alter = f"table {address.full_table.decode()}", f"alter {_ruby_table(address)}, "
    if not table.is_complete:
        return [Step("=", f"{name}, as far as Thrift1 can tell")]
    found = {family.name: family.attributes | family.configuration for family in table.families}
    own = _differing(table.attributes, TABLE_ATTRIBUTES)
    steps = _alterations(name, table.attributes, own, f"{alter}METADATA => {_ruby_map(own)}") or [Step("=", name)]
    for family in families(wanted):
        place, its = f"family {family.name}", found.get(family.name)
        if its is None:
            steps.append(Step("+", f"{place}: it is missing", alter + _ruby_family(family)))
            continue
        asked = _chosen_ttl(family.name, found) | family.attributes | family.configuration
        if wanted.compression is None:
            asked["COMPRESSION"] = its.get("COMPRESSION", "NONE")
        asked |= {key: value for key, value in _RELIED_ON.items() if its.get(key, value).upper() != value}
        own = _differing(its, asked)
        configuration = {key: own.pop(key) for key in family.configuration if key in own}
        line = alter + _ruby_family(Family(family.name, own, configuration))
        same = {name: its[name] for name in asked if name in its}
        steps += _alterations(place, its, own | configuration, line) or [Step("=", f"{place}: {_values(same)}")]
    return steps


def shell_lines(steps: Iterable[Step]) -> list[str]:
    """Return the `hbase shell` lines that carry out the steps."""
    return list(dict.fromkeys(step.line for step in steps if step.line))


def _alterations(place: str, found: dict[str, str], wanted: dict[str, str], line: str) -> list[Step]:
    return [
        Step("~", f"{place}: {name} is {_shown(name, found)}, expected {_shown(name, wanted)}", line, name)
        for name in wanted
    ]


def _shown(name: str, attributes: Mapping[str, str]) -> str:
    if name not in attributes:
        return "not set"
    return ttl_in_words(ttl_in(attributes)) if name == "TTL" else attributes[name]


def _values(attributes: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in attributes.items())


def _differing(found: dict[str, str], wanted: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if found.get(name, "").lower() != value.lower()}


def _chosen_ttl(name: str, found: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return a family's expected TTL if none is requested: the documents' TTL for drawers; the record never expires."""
    if name == RECORD_FAMILY.decode():
        return {"TTL": str(FOREVER_S)} if "TTL" in found[name] else {}
    documents = found.get(DOCUMENT_FAMILY.decode(), {})
    return {"TTL": documents["TTL"]} if "TTL" in documents else {}


def _family(settings: TableSettings, name: bytes, bloom: str) -> Family:
    attributes = {
        "VERSIONS": "1",
        "DATA_BLOCK_ENCODING": ENCODING,
        "BLOOMFILTER": bloom,
        "BLOCKSIZE": str(DRAWER_BLOCK_BYTES if name == DRAWER_FAMILY else BLOCK_BYTES),
        "COMPRESSION": settings.compression or "NONE",
    }
    if settings.ttl_s is not None and name != RECORD_FAMILY:
        attributes["TTL"] = str(settings.ttl_s)
    attributes |= dict(settings.family_options)
    prefix = {_BLOOM_PREFIX: str(PREFIX_BYTES)} if attributes["BLOOMFILTER"] == _PREFIX_BLOOM else {}
    return Family(name.decode(), attributes, prefix)


def compact_line(address: Address) -> str:
    """Return the `hbase shell` line that rewrites the table without deleted and expired cells."""
    return f"major_compact {_ruby_table(address)}"


def drop_lines(address: Address) -> list[str]:
    """Return the `hbase shell` lines that delete the table."""
    return [f"disable {_ruby_table(address)}", f"drop {_ruby_table(address)}"]


def snapshot_prefix(address: Address) -> str:
    """Return the beginning of the names of a table's snapshots, which differs between namespaces."""
    return address.table if address.namespace == DEFAULT_NAMESPACE else f"{address.namespace}-{address.table}"


def snapshot_line(address: Address, name: str) -> str:
    """Return the `hbase shell` line that takes a snapshot; names may contain letters, digits, `_`, `-` and `.`."""
    return f"snapshot {_ruby_table(address)}, {_ruby(name)}"


def _ruby_table(address: Address) -> str:
    return _ruby(f"{address.namespace}:{address.table}")


def _ruby_family(family: Family) -> str:
    words = [f"NAME => {_ruby(family.name)}"]
    words += [f"{name} => {_ruby(value)}" for name, value in family.attributes.items()]
    if family.configuration:
        words.append(f"CONFIGURATION => {_ruby_map(family.configuration)}")
    return f"{{{', '.join(words)}}}"


def _ruby(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _ruby_bytes(data: bytes) -> str:
    # The shell parses it with Bytes.toBytesBinary, which accepts only upper-case hex digits.
    return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"


def _ruby_map(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{_ruby(name)} => {_ruby(value)}" for name, value in values.items()) + "}"


def described(gateway: Gateway) -> Table | None:
    """Return the table's settings, None if it does not exist, or an empty `Table` if this user may not read them."""
    try:
        return gateway.table()
    except (IndexNotFoundError, StoreUnavailableError):
        raise
    except HsimhashError as error:
        _log.warning(UNKNOWN_TTL, error)
        return Table((), {}, is_complete=False)
