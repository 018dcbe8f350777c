"""What `collect` reads and costs on a real HBase: `python -m tests.bench.bench_collect [--large]`.

Uses tables of ten regions, filled by `bulk-load`. In a small and a large table, documents are removed and moved, and
their leftovers are collected at once, with a required age of 0. The region server counts the rows read for this (the
table's readRequestCount in JMX), so a cost that grows with the table would show. Also measures the cost of the log:
batches of adds, moves and removals with and without it, in turns on one table.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hsimhash.fingerprint.signature import Signatures
from hsimhash.layout import Layout
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Change, Put
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.rows.protocol import Times, Writes
from hsimhash.store.hbase.store import HBaseStore
from tests.bench.bench_bulk_load import Command, write_lines
from tests.bench.bench_hbase import PROFILE, Cores, made
from tests.support.fingerprint_sets import Numbers, page_ids, random_fingerprints
from tests.support.hbase_server import HBaseServer, free_ports, serving
from tests.support.hbase_tables import table_url
from tests.support.programs import (
    in_turns,
    median_ratio,
    options,
    print_bar,
    print_conditions,
    scratch_folder,
    seconds,
)

SEED = 43
SMALL, SIZE, LARGE = 25_000, 200_000, 1_000_000
REMOVED = 10_000
FEW = 1_000
METRICS_S = 0.5  # the interval in which the server updates its metrics
SETTLED_S = 12.0  # until JMX shows the new metrics
ROUNDS, BATCH, WARM_UPS = 7, 2_000, 2
LAYOUT = Layout.parse("10")


class Unlogged(Writes):
    """Writes that do not log their leftovers."""

    def left_by(self, changes: Sequence[Change]) -> list[Put]:
        return []


class UnloggedStore(HBaseStore):
    """A store whose moves and removals are not logged."""

    def _writes(self) -> Writes:
        return Unlogged(self.gateway, self.record, self.times, self._same, exclusive=self.exclusive)


def opened(url: str, kind: type[HBaseStore] = HBaseStore) -> HBaseStore:
    """Open a store that collects leftovers of any age."""
    times = Times(settled_s=0)
    return kind(url, open_gateway(Address.parse(url)), Record(LAYOUT, PROFILE.to_json()), ask_times=lambda: times)


class Counters:
    """A region server's counters."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub=Tables"

    def reads(self, table: str) -> int:
        """Return how many rows of a table have been read so far."""
        time.sleep(SETTLED_S)
        with urllib.request.urlopen(self._url, timeout=30) as reply:
            (bean,) = json.load(reply)["beans"]
        return int(bean[f"Namespace_default_table_{table}_metric_readRequestCount"])


def insert(store: HBaseStore, ids: Sequence[str], fingerprints: Numbers) -> None:
    """Add documents, or move them."""
    store.insert([one.encode() for one in ids], Signatures.of(fingerprints), np.ones(len(ids), np.int64))


def remove(store: HBaseStore, ids: Sequence[str]) -> None:
    """Remove documents."""
    store.remove([one.encode() for one in ids])


def measure(
    store: HBaseStore, counters: Counters, cores: Cores, table: str, what: str, leave: Callable[[], object]
) -> float:
    """Make leftovers and collect them; print and return how many rows were read per log entry."""
    took_s = seconds(leave)
    before, began, began_cores_s = counters.reads(table), time.perf_counter(), cores.seconds()
    report = store.collect()
    collected_s, cores_s = time.perf_counter() - began, cores.seconds() - began_cores_s
    reads = counters.reads(table) - before
    print(
        f"{what:16}{took_s:6.1f} s   collect {collected_s:6.1f} s, {cores_s:6.1f} s of cores{report.entries:8,} entries"
        f"{report.deleted:9,} cells{report.left:4,} left{reads:10,} reads",
        flush=True,
    )
    return reads / max(report.entries, 1)


def collects(server: HBaseServer, counters: Counters, folder: Path, size: int) -> float:
    """Measure with a table of `size` documents; return the reads per removed document."""
    print(f"\n## {size:,} documents", flush=True)
    fingerprints = random_fingerprints(np.random.default_rng(SEED), size)
    write_lines(folder / f"{size}.tsv", fingerprints)
    ids = page_ids(0, size)
    with made(server.gateways, LAYOUT) as table:
        url = table_url(server.gateways, table)
        command = Command(server, folder, "bulk-load", folder / f"{size}.tsv", "--format", "fingerprints")
        print(f"{'bulk-load':34}{seconds(lambda: command.load(url, size)):8.1f} s", flush=True)
        moved, new = ids[REMOVED + FEW :][:REMOVED], random_fingerprints(np.random.default_rng(SEED + 1), REMOVED)
        with opened(url) as store:
            measured = functools.partial(measure, store, counters, Cores(server), table)
            measured("nothing", lambda: None)
            few = measured(f"{FEW:,} removed", lambda: remove(store, ids[:FEW]))
            many = measured(f"{REMOVED:,} removed", lambda: remove(store, ids[FEW : FEW + REMOVED]))
            measured(f"{len(moved):,} moved", lambda: insert(store, moved, new[: len(moved)]))
            measured("nothing", lambda: None)
        print_bar(f"reads a removed document, {REMOVED:,} / {FEW:,}", many / few, at_most=1.1)
    return many


def costs(server: HBaseServer) -> None:
    """Compare writes with and without the log, on one table."""
    print(f"\n## batches of {BATCH:,}, with the log and without", flush=True)
    rng, numbers = np.random.default_rng(SEED + 2), iter(range(0, 1 << 40, BATCH))
    with made(server.gateways, LAYOUT) as table:
        url = table_url(server.gateways, table)
        with opened(url) as logged, opened(url, UnloggedStore) as unlogged:
            stores = {"with": logged, "without": unlogged}
            rates: dict[str, dict[str, list[float]]] = {"add": {}, "move": {}, "remove": {}}

            def life(name: str) -> None:
                store, ids = stores[name], page_ids(next(numbers), BATCH)
                steps = {
                    "add": functools.partial(insert, store, ids, random_fingerprints(rng, BATCH)),
                    "move": functools.partial(insert, store, ids, random_fingerprints(rng, BATCH)),
                    "remove": functools.partial(remove, store, ids),
                }
                for verb, step in steps.items():
                    rates[verb].setdefault(name, []).append(BATCH / seconds(step))

            in_turns({name: functools.partial(life, name) for name in stores}, WARM_UPS + ROUNDS)
    for verb, taken in rates.items():
        its = {name: found[WARM_UPS:] for name, found in taken.items()}
        shown = "".join(f"{statistics.median(found):10,.0f}/s {name}" for name, found in its.items())
        print(f"{verb:10}{shown}", flush=True)
        print_bar(f"{verb}: rate with the log / without", median_ratio(its["with"], its["without"]), at_least=0.8)


@contextmanager
def counted_server(folder: Path) -> Iterator[tuple[HBaseServer, Counters]]:
    """Run a server whose counters can be read."""
    (port,) = free_ports(1)
    settings = {
        "hbase.regionserver.info.port": str(port),
        "hbase.regionserver.info.bindAddress": "127.0.0.1",
        "hbase.regionserver.metrics.period": str(round(METRICS_S * 1_000)),
    }
    with serving(folder, jvm="", settings=settings) as server:
        yield server, Counters(port)


def main() -> int:
    given = options(__doc__, large=(False, "with a million documents"))
    sizes = (SMALL, LARGE if given.large else SIZE)
    print_conditions("collect", packages=("thriftpy2",), seed=SEED, rows=sizes, rounds=ROUNDS, layout=LAYOUT.name)
    with scratch_folder(given.scratch) as folder, counted_server(folder / "hbase") as (server, counters):
        costs(server)
        small, large = (collects(server, counters, folder, size) for size in sizes)
    print_bar("reads a removed document", large, at_most=2 * len(LAYOUT.drawers))
    print_bar(f"the same, of {sizes[1]:,} documents / of {sizes[0]:,}", large / small, at_most=1.1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
