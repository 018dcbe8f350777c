"""Indexes on HBase: a table, reached through Thrift gateways."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from types import ModuleType

from hsimhash.cover import Prices
from hsimhash.store.backend import Backend, Instead, Opening
from hsimhash.store.base import Record, Store
from hsimhash.store.capabilities import (
    AnswersInPart,
    BacksUp,
    Collects,
    Compacts,
    HasTable,
    LoadsFiles,
    LoadsInBulk,
    WalksRanges,
)
from hsimhash.store.checkup import Check
from hsimhash.store.hbase.gateway.address import DEFAULT_PORTS, Address
from hsimhash.store.urls import DEADLINE, EXCLUSIVE, masked


def _operations() -> ModuleType:
    from hsimhash.store.hbase import operations  # imported here because importing thriftpy2 is slow

    return operations


class _HBaseBackend(Backend):
    name = "hbase"
    title = "HBase"
    schemes = tuple(DEFAULT_PORTS)
    example = "hbase://gateway:9091/namespace:table"
    # Derived from measurements on HBase 2.6 with one client and everything in memory. They compare ten scans with four;
    # 5, 64 and 900 candidates; 81 buckets with 838; and adding documents by compare-and-set to ten drawers with adding
    # them to four. Bytes include FAST_DIFF encoding but not compression; a listing and a register each take
    # 30 bytes plus the id.
    prices = Prices(
        read_us=145,
        candidate_us=2.9,
        row_us=16,
        row_bytes=16.5,
        bucket_bytes=0,
        document_bytes=130,
        neighbour_us=12,
        swept_us=2.9,
    )
    layout = "10"
    distance = None  # the layout's, because a query within 6 bits takes five times as long on HBase
    shares_queries = True
    options = frozenset({DEADLINE, EXCLUSIVE})
    capabilities = frozenset({AnswersInPart, Collects, HasTable, LoadsFiles, LoadsInBulk, WalksRanges})
    flags = frozenset(
        {
            "--allow-plain",
            "--compression",
            "--dry-run",
            "--family-option",
            "--load",
            "--print-commands",
            "--regions",
            "--sample",
            "--shard",
            "--shards",
            "--splits-from",
            "--stage",
            "--ttl",
            "--write",
        }
    )

    def size_note(self, size: int) -> str:
        from hsimhash.store.hbase.gateway.table import AUTO_REGIONS, MOST_REGION_BYTES

        least = -(-size // MOST_REGION_BYTES)
        return (
            f"Sizes are for one replica, uncompressed; HDFS keeps 3. If the ids are URLs, 'hsimhash create-table "
            f"--compression GZ' halves the size of the table. Plan for three or four regions per region server, and "
            f"for at least {least} in total, so that none is larger than {MOST_REGION_BYTES >> 30} GiB. By default, "
            f"'hsimhash create-table' creates {AUTO_REGIONS}."
        )

    def parse(self, url: str) -> Address:
        return Address.parse(url)

    def name_of(self, url: str) -> str:
        return Address.parse(url).index_url

    def create(self, url: str, record: Record, opening: Opening, ttl_s: int | None = None) -> Store:
        if ttl_s is not None:
            raise ValueError(
                f"ttl_s does not apply to {masked(url)}; for a table with a TTL, use 'hsimhash create-table --ttl'"
            )
        made: Store = _operations().create_at(url, record)
        return made

    def open(self, url: str, opening: Opening) -> Store:
        opened: Store = _operations().open_at(url, deadline_s=opening.deadline_s)
        return opened

    def drop(self, url: str, opening: Opening, *, is_sure: Callable[[str], bool], say: Callable[[str], None]) -> bool:
        def is_sure_without(snapshot_line: str) -> bool:
            say(f"to keep a copy, take a snapshot first; in hbase shell: {snapshot_line}")
            say("after a restore, run 'hsimhash check --repair' first: a snapshot's rows are from different times")
            say("before you create a table with this name again, wait 20 minutes or restart the gateways")
            return is_sure(f"Drop {url} and everything in it?")

        return bool(_operations().drop_at(url, is_sure_without))

    def checks(
        self, url: str, opening: Opening, *, is_quick: bool = False, writes: bool = False, processes: int | None = None
    ) -> Iterator[Check]:
        from hsimhash.store.hbase.checkup import checks, quick_checks

        return quick_checks(url) if is_quick else checks(url, writes=writes, processes=processes)

    def instead(self, capability: type, url: str, target: str = "") -> Instead | None:
        from hsimhash.store.hbase.gateway.table import compact_line, snapshot_line, snapshot_prefix

        address = Address.parse(url)
        if capability is Compacts:
            said = "HBase compacts tables automatically; to do it now, run this in hbase shell:"
            return Instead(said, [compact_line(address)])
        if capability is BacksUp:
            last = re.sub(r"[^\w.-]", "-", target.rstrip("/").rpartition("/")[2], flags=re.ASCII)
            name = f"{snapshot_prefix(address)}-{last}"
            copying = "to get a command that also copies the snapshot, pass a URL, such as hdfs://backups/2026-01-31"
            if "://" in target:
                tool = "hbase org.apache.hadoop.hbase.snapshot.ExportSnapshot"
                copying = f"then, to copy the snapshot: {tool} -snapshot {name} -copy-to {shlex.quote(target)}"
            said = "HBase backs up tables with snapshots; run this in hbase shell:"
            return Instead(said, [snapshot_line(address, name)], copying)
        return super().instead(capability, url, target)


BACKEND = _HBaseBackend()
