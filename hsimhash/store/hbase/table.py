"""How the table is made: families and settings, what differs from them in one that is there, `hbase shell` lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hsimhash.rowkey import PREFIX_BYTES
from hsimhash.store.hbase.address import DEFAULT_NAMESPACE, Address
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, DRAWER_FAMILY, RECORD_FAMILY

COMPRESSIONS = ("NONE", "GZ", "SNAPPY", "LZ4", "ZSTD", "LZO", "BZIP2")
ENCODING = "FAST_DIFF"
# Thrift does not tell how many region servers there are. Sixteen regions give each of up to five servers three or more,
# so that they can be balanced; they hold 1e9 documents in 10 drawers before HBase splits one, when a family in it has
# 10 GB: f has 165 GB then, and d 130 with ids of 35 bytes (see `plan`); and they are no burden to a lone server. For
# more servers: --regions, three or four for each.
AUTO_REGIONS = 16
BLOCK_BYTES = 16_384  # a bucket is a few rows: a block of 64 KB would be read for each

_RESTRICTION = "hbase.regionserver.region.split_restriction"
TABLE_ATTRIBUTES = {f"{_RESTRICTION}.type": "KeyPrefix", f"{_RESTRICTION}.prefix_length": str(PREFIX_BYTES)}
_BLOOM_PREFIX = "RowPrefixBloomFilter.prefix_length"
_PREFIX_BLOOM = "ROWPREFIX_FIXED_LENGTH"
FOREVER_S = (1 << 31) - 1  # HBase's TTL of families that have none

# What of ColumnFamilyDescriptorBuilder's keys (HBase 2.6) changes how cells are kept, but not which: versions, deleted
# cells and expiry are the index's own, and HBase takes a misspelt name without a word.
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
        for name, value in self.family_options:
            if name not in FAMILY_OPTIONS:
                raise ValueError(f"family option {name}={value} is not one of {', '.join(FAMILY_OPTIONS)}")
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


@dataclass(frozen=True, slots=True)
class Deviation:
    """A setting of a table that is not as it should be; `place` is a family's name, or empty for the table itself.

    Of a family that is missing, `name` is empty and `wanted` all that it should have.
    """

    place: str
    name: str
    found: str
    wanted: str

    def __str__(self) -> str:
        where = f"family {self.place}" if self.place else "table"
        return f"{where}: {self.name} is {self.found}, not {self.wanted}" if self.name else f"{where} is missing"


def deviations(table: Table, settings: TableSettings) -> list[Deviation]:
    """Return in what a table differs from `settings`; a TTL and a compression count only where they ask for one."""
    found = {family.name: family for family in table.families}
    differing = []
    for wanted in families(settings):
        if wanted.name not in found:
            differing.append(Deviation(wanted.name, "", "", ""))
            continue
        values = _values(found[wanted.name])
        asked = {**_chosen_ttl(wanted.name, values, found), **_values(wanted)}
        if asked["COMPRESSION"] == "NONE":
            del asked["COMPRESSION"]
        differing += _differing(wanted.name, values, asked)
    return differing + _differing("", table.attributes, TABLE_ATTRIBUTES)


def _values(family: Family) -> dict[str, str]:
    return family.attributes | family.configuration


def _chosen_ttl(name: str, values: dict[str, str], found: dict[str, Family]) -> dict[str, str]:
    """Return the TTL that a family should have where none is asked for: the record none, the drawers the documents'."""
    if name == RECORD_FAMILY.decode():
        return {"TTL": str(FOREVER_S)} if "TTL" in values else {}
    documents = found.get(DOCUMENT_FAMILY.decode())
    return {"TTL": documents.attributes["TTL"]} if documents and "TTL" in documents.attributes else {}


def _differing(place: str, found: dict[str, str], wanted: dict[str, str]) -> list[Deviation]:
    return [
        Deviation(place, name, found.get(name, "not set"), value)
        for name, value in wanted.items()
        if found.get(name, "").lower() != value.lower()
    ]


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
    words = [_ruby_table(address), *map(_ruby_family, families(settings))]
    if settings.splits:
        words.append(f"SPLITS => [{', '.join(map(_ruby_bytes, settings.splits))}]")
    words.append(f"METADATA => {_ruby_map(TABLE_ATTRIBUTES)}")
    create = "create " + ", ".join(words)
    if address.namespace == DEFAULT_NAMESPACE:
        return [create]
    # `hbase shell -n` ends at the first error, so that a namespace that is there must be none.
    return [f"create_namespace {_ruby(address.namespace)} rescue nil", create]


def alter_lines(address: Address, settings: TableSettings, differing: Sequence[Deviation]) -> list[str]:
    """Return the lines that mend a table in `hbase shell`."""
    lines = []
    for family in families(settings):
        own = {one.name: one.wanted for one in differing if one.place == family.name}
        if "" in own:
            lines.append(f"alter {_ruby_table(address)}, {_ruby_family(family)}")
        elif own:
            configuration = {name: own.pop(name) for name in family.configuration if name in own}
            lines.append(f"alter {_ruby_table(address)}, {_ruby_family(Family(family.name, own, configuration))}")
    own = {one.name: one.wanted for one in differing if not one.place}
    return [*lines, f"alter {_ruby_table(address)}, METADATA => {_ruby_map(own)}"] if own else lines


def compact_line(address: Address) -> str:
    """Return the line that rewrites the table without deleted and expired cells in `hbase shell`."""
    return f"major_compact {_ruby_table(address)}"


def drop_lines(address: Address) -> list[str]:
    """Return the lines that delete the table in `hbase shell`."""
    return [f"disable {_ruby_table(address)}", f"drop {_ruby_table(address)}"]


def snapshot_line(address: Address, name: str) -> str:
    """Return the line that keeps the table as it is now in `hbase shell`; names have letters, digits, `_`, `-`, `.`."""
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
    # The shell reads it with Bytes.toBytesBinary, which knows upper-case digits only.
    return "'" + "".join(f"\\x{byte:02X}" for byte in data) + "'"


def _ruby_map(values: dict[str, str]) -> str:
    return "{" + ", ".join(f"{_ruby(name)} => {_ruby(value)}" for name, value in values.items()) + "}"
