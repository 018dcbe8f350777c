"""Reports about a store: results of checks, a table's settings, and the distribution of its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from hsimhash.cover import Cover, Probe
from hsimhash.fingerprint.bits import format_fingerprint
from hsimhash.rowkey import DOCUMENTS_FLAG, ORPHANS_FLAG, PREFIX_BYTES, RECORD_FLAG, REGISTER_FLAG, SEGMENT_BYTES

MOST_EXAMPLES = 20
CROWDED_DOCUMENTS = 1_000  # a fingerprint with at least this many documents is crowded
SAMPLED_DOCUMENTS = 20_000  # number of documents read to find crowded fingerprints
MOST_CROWDS = 5  # maximum number of crowded fingerprints reported
MOST_LISTED = 20_000  # maximum number of documents counted per crowded fingerprint
_OTHER_ROWS = {
    DOCUMENTS_FLAG: "documents",
    ORPHANS_FLAG: "log of orphans",
    REGISTER_FLAG: "registers",
    RECORD_FLAG: "record",
}


@dataclass(slots=True)
class CheckReport:
    """The findings of `check`, counted while it runs.

    Problems are registers that lack rows, and rows whose key does not match their contents. Leftovers of an interrupted
    write are harmless. `repaired` counts repaired problems and deleted leftovers; `examples` holds the first few
    problems, and then leftovers. `drawer_rows` includes the rows of the key drawer.
    """

    documents: int = 0
    drawer_rows: int = 0
    problems: int = 0
    leftovers: int = 0
    repaired: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        """Whether no problem was found."""
        return self.problems == 0

    def problem(self, text: str) -> None:
        """Count a problem."""
        if self.problems < MOST_EXAMPLES:
            self.examples.insert(self.problems, text)  # before the leftovers
            del self.examples[MOST_EXAMPLES:]
        self.problems += 1

    def leftover(self, text: str) -> None:
        """Count a leftover."""
        self.leftovers += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(f"leftover: {text}")

    def to_json(self) -> dict[str, object]:
        """Return the counts, the examples, and whether the index is sound."""
        return {**asdict(self), "is_sound": self.is_sound}


class CollectReport(NamedTuple):
    """The result of `collect`: log entries read, cells deleted, and entries kept because a row is too recent."""

    entries: int
    deleted: int
    left: int


class Region(NamedTuple):
    """A region of a table: the half-open range [start, stop), where an empty bound means the table's start or end.

    `server` is host:port. It is empty while no server hosts the region, because the region is moving or stuck.
    """

    start: bytes
    stop: bytes
    server: str

    @property
    def segments(self) -> str:
        """The half-open range of segments in words; it covers all drawers unless a drawer is named."""
        return f"[{key_in_words(self.start)}, {key_in_words(self.stop) if self.stop else 'end'})"

    def to_json(self) -> dict[str, object]:
        """Return the keys in hex, the range in words, and the server."""
        return {
            "start": self.start.hex(),
            "stop": self.stop.hex(),
            "segments": self.segments,
            "server": self.server,
        }


def key_in_words(key: bytes) -> str:
    """Return a region boundary in words: its segment, and its drawer if it falls inside one."""
    segment = key[:SEGMENT_BYTES].ljust(SEGMENT_BYTES, b"\x00").hex()
    if len(key) < PREFIX_BYTES:
        return segment
    flag, rest = key[SEGMENT_BYTES], key[PREFIX_BYTES:]
    return f"{segment} {_OTHER_ROWS.get(flag, f'drawer {flag}')}{f' {rest.hex()}' if rest else ''}"


@dataclass(frozen=True, slots=True)
class ProbeRead:
    """One probe of a query and its result. It reads a bucket in one drawer and, with a radius, neighbouring buckets.

    `start` and `stop` are the half-open range of the query's own bucket, and `region` is the region that contains it.
    If `probe` is None, this is the bucket of the query's key.
    """

    probe: Probe | None
    start: bytes
    stop: bytes
    region: Region | None
    rows: int
    near: int
    milliseconds: float

    def to_json(self) -> dict[str, object]:
        """Return the result as JSON values; the bounds of the query's own bucket and of its region are in hex."""
        place = {"region": self.region.start.hex(), "server": self.region.server} if self.region else {}
        return {
            "drawer": "key" if self.probe is None else self.probe.drawer if self.probe.bits else "all",
            "radius": self.probe.radius if self.probe else 0,
            "buckets": self.probe.bucket_count if self.probe else 1,
            "start": self.start.hex(),
            "stop": self.stop.hex(),
            **place,
            "rows": self.rows,
            "near": self.near,
            "milliseconds": round(self.milliseconds, 2),
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cost of a query: its cover, each probe, the total time, and the number of matching documents."""

    cover: Cover
    documents: int
    milliseconds: float
    probes: tuple[ProbeRead, ...]

    @property
    def bucket_count(self) -> int:
        """The number of buckets, or ranges of buckets, that the query reads."""
        return self.cover.bucket_count + sum(read.probe is None for read in self.probes)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table's regions and, if the gateway reports them, each column family's settings and their deviations.

    A deviation is a setting that differs from what `create-table` sets.
    """

    regions: tuple[Region, ...]
    families: Mapping[str, Mapping[str, str]] | None = None
    deviations: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the known facts."""
        made = {} if self.families is None else {"families": self.families, "deviations": self.deviations}
        return {**made, "region_ranges": [region.to_json() for region in self.regions]}


@dataclass(frozen=True, slots=True)
class Counted:
    """A region's drawer rows, and how many of them are in the key drawer; estimates unless `is_exact`."""

    region: Region
    rows: int
    key_rows: int
    is_exact: bool


class RegionLoad(NamedTuple):
    """A region server's report about a region. `requests` counts reads and writes since the server opened it."""

    name: str  # the region's name in HBase, as HBase's shell accepts it
    families: int
    store_files: int
    compactions_waiting: int
    requests: int


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """A region server's report: this table's regions by start key, and percentages over all tables on the server.

    If the server does not respond, only `problem` is set. A percentage is None if there is nothing to count.
    """

    server: str
    regions: Mapping[bytes, RegionLoad] = field(default_factory=dict)
    local_percent: float | None = None
    cache_hit_percent: float | None = None
    problem: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the known facts except the regions."""
        if self.problem:
            return {"server": self.server, "problem": self.problem}
        percents = {"local_percent": self.local_percent, "cache_hit_percent": self.cache_hit_percent}
        return {"server": self.server, **{name: one and round(one, 1) for name, one in percents.items()}}


def load_of(region: Region, servers: Sequence[ServerLoad]) -> RegionLoad | None:
    """Return the load of a region if its server is among `servers` and responded."""
    return next((one.regions.get(region.start) for one in servers if one.server == region.server), None)


@dataclass(frozen=True, slots=True)
class CrowdedFingerprint:
    """A fingerprint shared by at least this many documents, and its share of all documents."""

    fingerprint: int
    documents: int
    share: float

    def to_json(self) -> dict[str, object]:
        """Return the fingerprint in hex, and the counts."""
        return {**asdict(self), "fingerprint": format_fingerprint(self.fingerprint), "share": round(self.share, 3)}


def crowded(sampled: Sequence[int], listed: Callable[[int], int]) -> tuple[CrowdedFingerprint, ...]:
    """Return the crowded fingerprints in a sample of documents, most common first.

    Args:
        sampled: The fingerprint of each sampled document.
        listed: Returns the number of documents with a fingerprint; it may stop counting at `MOST_LISTED`.
    """
    common = [(value, met) for value, met in Counter(sampled).most_common(MOST_CROWDS) if met > 1]
    found = (CrowdedFingerprint(value, listed(value), met / len(sampled)) for value, met in common)
    return tuple(crowd for crowd in found if crowd.documents >= CROWDED_DOCUMENTS)


@dataclass(frozen=True, slots=True)
class Survey:
    """A table's regions in order, its fullest buckets (prefix, minimum number of rows), and its servers."""

    regions: tuple[Counted, ...]
    hot_buckets: tuple[tuple[bytes, int], ...]
    servers: tuple[ServerLoad, ...] = ()

    def load(self, region: Region) -> RegionLoad | None:
        """Return the load of a region if its server responded."""
        return load_of(region, self.servers)

    @property
    def rows(self) -> int:
        """The number of drawer rows, including the key drawer."""
        return sum(counted.rows for counted in self.regions)

    @property
    def skew(self) -> float | None:
        """The number of rows in the fullest region divided by the mean; None for an empty table."""
        return max(one.rows for one in self.regions) * len(self.regions) / self.rows if self.rows else None

    def to_json(self, drawers: int) -> dict[str, object]:
        """Return the totals and the details; `fingerprints` is computed from the number of drawers."""
        key_rows = sum(counted.key_rows for counted in self.regions)
        return {
            "regions": len(self.regions),
            "servers": len({counted.region.server for counted in self.regions} - {""}),
            "drawer_rows": self.rows,
            "is_exact": all(counted.is_exact for counted in self.regions),
            "fingerprints": round((self.rows - key_rows) / drawers),
            "skew": self.skew and round(self.skew, 2),
            "region_rows": [
                {
                    **counted.region.to_json(),
                    "rows": counted.rows,
                    "is_exact": counted.is_exact,
                    **(load._asdict() if (load := self.load(counted.region)) else {}),
                }
                for counted in self.regions
            ],
            "region_servers": [one.to_json() for one in self.servers],
            "hot_buckets": [
                {"segment": prefix[:SEGMENT_BYTES].hex(), "drawer": prefix[SEGMENT_BYTES], "rows": rows}
                for prefix, rows in self.hot_buckets
            ],
        }
