"""Queries and loads on a real HBase: `python -m tests.bench.bench_hbase [--large]`.

The server is the project's own, started for the measurement with the JVM's defaults: one region server, both gateways
and this client share this machine's cores. Each table has ten regions. The peer is happybase in its natural use: one
prefix scan per drawer in sequence, and `batch()` for the same rows. For comparison, one multi-get reads a table whose
rows end after the prefix and have fingerprints as columns, without documents. Tables are compacted before queries, as
after a load; greater distances are also measured before that. All get the same fingerprints, in turns, with new ones in
each round; times are medians over the rounds, ratios medians of the rounds' ratios. The answers of both are compared. A
proxy in a separate process delays each reply to simulate a round trip of 0.5 ms, and to count sequential round trips.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import signal
import statistics
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

import happybase
import numpy as np

from hsimhash import HSimIndex
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.signature import Signature
from hsimhash.layout import Layout
from hsimhash.rowkey import (
    FINGERPRINT_BYTES,
    PREFIX_BYTES,
    ROWKEY_BYTES,
    documents_rowkey,
    encode,
    register_rowkey,
    splits,
)
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY, Put
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import create_at
from hsimhash.store.hbase.rows.cells import Register
from hsimhash.store.urls import with_options
from tests.support.fingerprint_sets import Numbers, half_near, page_ids, random_fingerprints
from tests.support.hbase_server import Gateways, HBaseServer, serving
from tests.support.hbase_tables import new_table, table_url
from tests.support.programs import (
    Outcome,
    Pace,
    in_turns,
    median_ratio,
    options,
    pace,
    print_bar,
    print_conditions,
    print_outcomes,
    scratch_folder,
    seconds,
)
from tests.support.tcp_proxy import proxied

SEED = 20_070_508
K = 3
REGIONS = 10
PROFILE = Profile.named("auto-1")
SIZE, LARGE = 200_000, 1_000_000
ROUNDS = 7
SINGLES, PEER_SINGLES = 200, 60  # queries per round
WARM_UP_ROUNDS = 10  # until the JVMs have compiled the code that is measured
ROUND_TRIP_S = 0.0005
SLOW_REPLY_S = 0.1  # to count round trips: everything else is short in comparison
COUNTED = 10
LOADED, LOAD_ROUNDS, LOAD_WARM_UPS = 10_000, 5, 8  # with fewer warm-ups, a new server's first table is a tenth slower
HOT_DOCUMENTS, HOT_LIMIT, HOT_QUERIES = 1_000_000, 10, 50
LOADED_AT_ONCE = 20_000

WIDE_CELLS = 100  # cells read from a wide row

FAR = (3, 4, 6)
FAR_SINGLES, FAR_BATCH, FAR_WARM_UPS = 20, 100, 5

MANY_THREADS, MANY_S, MANY_FINGERPRINTS = 32, 3.0, 100_000  # threads that query at once, and the time per round
CLAIMS = 50  # per round
LONE = 2_000  # queries of one thread, in turns with as many that do not share calls

Query = Callable[[int], object]


@contextmanager
def far_away(gateways: Gateways, reply_s: float) -> Iterator[Gateways]:
    """Yield both gateways behind a proxy that delays each reply."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    ports = (gateways.thrift1_port, gateways.thrift2_port)
    process = context.Process(target=_serve_proxies, args=(ports, reply_s, theirs), daemon=True)
    process.start()
    try:
        yield Gateways(gateways.host, *ours.recv())
    finally:
        process.terminate()
        process.join()


def _serve_proxies(ports: Sequence[int], reply_s: float, started: Pipe) -> None:
    with ExitStack() as stack:
        started.send([stack.enter_context(proxied(port, lambda _: reply_s)).port for port in ports])
        threading.Event().wait()


@contextmanager
def made(gateways: Gateways, layout: Layout) -> Iterator[str]:
    """Make a table of ten regions with an empty index and yield its name; it is dropped at the end."""
    with new_table(gateways) as name:
        settings = TableSettings(tuple(splits(layout, REGIONS)))
        create_at(table_url(gateways, name), Record(layout, PROFILE.to_json()), settings).close()
        yield name


class Peer:
    """happybase on the same table."""

    def __init__(self, gateways: Gateways, table: str, layout: Layout) -> None:
        self.connection = happybase.Connection(gateways.host, gateways.thrift1_port, timeout=60_000)
        self.table = self.connection.table(table)
        self.layout = layout

    def query(self, fingerprint: int) -> set[int]:
        """Return the stored fingerprints within k bits."""
        found = set()
        for prefix in self.layout.prefixes(fingerprint):
            for row, _ in self.table.scan(row_prefix=prefix, columns=[DRAWER_FAMILY]):
                stored = int.from_bytes(row[PREFIX_BYTES:], "big")
                if (stored ^ fingerprint).bit_count() <= K:
                    found.add(stored)
        return found

    def add_many(self, fingerprints: Numbers, ids: Sequence[str]) -> None:
        """Put the rows that the index would store for new documents."""
        values, drawers = fingerprints.tolist(), len(self.layout.drawers)
        rows = [row.tobytes() for row in encode(self.layout, fingerprints).reshape(-1, ROWKEY_BYTES)]
        with self.table.batch(batch_size=1_000) as batch:
            for number, (value, doc_id) in enumerate(zip(values, ids, strict=True)):
                column = b"d:" + doc_id.encode()
                batch.put(documents_rowkey(value), {column: b""})
                for row in rows[number * drawers : (number + 1) * drawers]:
                    batch.put(row, {b"f:": b""})
                register = Register().filed(Signature(value), 1).to_bytes(has_signatures=False)
                batch.put(register_rowkey(doc_id.encode()), {column: register})


def ours(index: HSimIndex, fingerprint: int) -> set[int]:
    return {match.fingerprint for match in index.query(fingerprint)}


def _milliseconds(ask: Query) -> float:
    return seconds(lambda: ask(0)) * 1_000


def p50_ms(ask: Query, fingerprints: Numbers) -> float:
    """Return the median time of a call."""
    return statistics.median(seconds(functools.partial(ask, one)) for one in fingerprints.tolist()) * 1_000


def fill(url: str, fingerprints: Numbers) -> None:
    """Load an index."""
    with HSimIndex.open(with_options(url, {"exclusive": "yes"})) as index:
        for start in range(0, len(fingerprints), LOADED_AT_ONCE):
            part = fingerprints[start : start + LOADED_AT_ONCE]
            index.add_many(part, page_ids(start, len(part)))


def fill_wide(url: str, layout: Layout, fingerprints: Numbers) -> None:
    """Fill a table with one row per bucket, with the fingerprints as columns."""
    gateway = open_gateway(Address.parse(url))
    for start in range(0, len(fingerprints), LOADED_AT_ONCE):
        rows = encode(layout, fingerprints[start : start + LOADED_AT_ONCE]).reshape(-1, ROWKEY_BYTES)
        cells = [(row[:PREFIX_BYTES], row[PREFIX_BYTES:]) for row in map(bytes, rows)]
        gateway.put([Put(prefix, DRAWER_FAMILY, value, b"") for prefix, value in cells])
    gateway.close()


def compact(server: HBaseServer, *tables: str) -> None:
    """Compact each family into one file per region, and wait until that is done."""
    lines = [f"flush '{table}'\nmajor_compact '{table}'" for table in tables]
    lines.append(
        "admin = org.apache.hadoop.hbase.client.ConnectionFactory.createConnection(@hbase.configuration).admin"
    )
    lines.append("sleep 5")  # until the compaction has begun
    for table in tables:
        name = f"org.apache.hadoop.hbase.TableName.valueOf('{table}')"
        lines.append(f"sleep 0.5 while admin.getCompactionState({name}).to_s != 'NONE'")
    if server.shell("\n".join([*lines, ""])):
        raise RuntimeError(f"{', '.join(tables)} cannot be compacted")


class Race:
    """Queries of one table in every way, near and far; the table `wide` has the same fingerprints, see `fill_wide`."""

    def __init__(self, gateways: Gateways, table: str, wide: str, layout: Layout, stored: Numbers) -> None:
        self.gateways = gateways
        self.table = table
        self.wide = wide
        self.layout = layout
        self.stored = stored
        self.rng = np.random.default_rng(SEED + 1)
        self.times: dict[str, list[float]] = {}

    def run(self) -> None:
        """Measure, and store the times in `times`."""
        with far_away(self.gateways, ROUND_TRIP_S) as far, ExitStack() as stack:
            near_ways, far_ways = self._ways(self.gateways, stack, ""), self._ways(far, stack, ", 0.5 ms away")
            index = stack.enter_context(HSimIndex.open(table_url(self.gateways, self.table)))
            batches = {
                f"hsimhash query_many({size:,})": functools.partial(self._batch_ms, index, size)
                for size in (100, 1_000)
            }
            ways = {**near_ways, **batches, **far_ways}
            in_turns(ways, WARM_UP_ROUNDS)
            self.times = in_turns(ways, ROUNDS)

    def _ways(self, gateways: Gateways, stack: ExitStack, where: str) -> dict[str, Callable[[], float]]:
        peer = Peer(gateways, self.table, self.layout)
        stack.callback(peer.connection.close)
        index = stack.enter_context(HSimIndex.open(table_url(gateways, self.table)))
        gateway, wide = (open_gateway(Address.parse(table_url(gateways, name))) for name in (self.table, self.wide))
        stack.callback(gateway.close)
        stack.callback(wide.close)

        def get(fingerprint: int) -> object:
            row = self.layout.prefixes(fingerprint)[0] + fingerprint.to_bytes(FINGERPRINT_BYTES, "big")
            return gateway.get([(row, b"")], DRAWER_FAMILY)

        def get_wide(fingerprint: int) -> object:
            return wide.cells_of(self.layout.prefixes(fingerprint), DRAWER_FAMILY, limit=WIDE_CELLS)

        return {
            f"one Get{where}": functools.partial(self._p50_ms, get, SINGLES),
            f"one multi-get of wide rows{where}": functools.partial(self._p50_ms, get_wide, SINGLES),
            f"happybase, scans{where}": functools.partial(self._p50_ms, peer.query, PEER_SINGLES),
            f"hsimhash query{where}": functools.partial(self._p50_ms, index.query, SINGLES),
            f"hsimhash query, match{where}": lambda: p50_ms(index.query, self.rng.choice(self.stored, SINGLES // 2)),
        }

    def _p50_ms(self, ask: Query, count: int) -> float:
        return p50_ms(ask, random_fingerprints(self.rng, count))

    def _batch_ms(self, index: HSimIndex, size: int) -> float:
        fingerprints = random_fingerprints(self.rng, size)
        return seconds(lambda: index.query_many(fingerprints)) * 1_000 / size

    def run_far(self) -> None:
        """Measure queries for greater distances, single and in batches; print their times and bars."""
        with HSimIndex.open(table_url(self.gateways, self.table)) as index:
            singles = {k: functools.partial(self._far_ms, index, k) for k in FAR}
            batches = {k: functools.partial(self._far_batch_ms, index, k) for k in FAR}
            for ways in (singles, batches):
                in_turns(ways, FAR_WARM_UPS)
            one, many = in_turns(singles, ROUNDS), in_turns(batches, ROUNDS)
            print(f"{'within bits':12}{'buckets':>10}{'ms a query':>12}{f'in {FAR_BATCH}, each':>14}")
            for k in FAR:
                times = (statistics.median(taken[k]) for taken in (one, many))
                print(
                    f"{k:<12}{index.cover(k).bucket_count:10,}" + "".join(f"{time:13.3f}" for time in times), flush=True
                )
        print_bar("query within 4 bits / within 3", median_ratio(one[4], one[3]), at_most=2.5)
        print_bar("query within 6 bits, ms", statistics.median(one[6]), at_most=20)
        print_bar(f"query within 6 bits in a batch of {FAR_BATCH}, ms", statistics.median(many[6]), at_most=2.5)

    def _far_ms(self, index: HSimIndex, k: int) -> float:
        return p50_ms(functools.partial(index.query, max_distance=k), random_fingerprints(self.rng, FAR_SINGLES))

    def _far_batch_ms(self, index: HSimIndex, k: int) -> float:
        fingerprints = random_fingerprints(self.rng, FAR_BATCH)
        return seconds(lambda: index.query_many(fingerprints, max_distance=k)) * 1_000 / FAR_BATCH

    def run_callers(self) -> None:
        """Measure queries of many threads, with shared and separate calls; print their times and bars."""
        fingerprints = itertools.cycle(random_fingerprints(self.rng, MANY_FINGERPRINTS).tolist())
        with HSimIndex.open(table_url(self.gateways, self.table)) as index:
            ask = {
                "shared": lambda _: index.query(next(fingerprints)),
                "alone": lambda _: index.query_call(next(fingerprints)).alone(),
            }
            ways = {name: functools.partial(pace, call, MANY_THREADS, MANY_S) for name, call in ask.items()}
            in_turns(ways, FAR_WARM_UPS)
            paces = in_turns(ways, ROUNDS)
            lone = in_turns({name: functools.partial(_milliseconds, call) for name, call in ask.items()}, LONE)
        print(f"{f'{MANY_THREADS} threads':20}{'queries/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'one alone, p50 ms':>20}")
        for name, taken in paces.items():
            rate, p50, p99 = (statistics.median(getattr(one, part) for one in taken) for part in Pace.__slots__)
            print(f"{name:20}{rate:12,.0f}{p50:10.1f}{p99:10.1f}{statistics.median(lone[name]):20.3f}", flush=True)
        rates, p99s = (
            median_ratio(*([getattr(one, part) for one in paces[name]] for name in ask)) for part in ("rate", "p99_ms")
        )
        print_bar(f"{MANY_THREADS} threads: queries/s, shared / alone", rates, at_least=3.5)
        print_bar(f"{MANY_THREADS} threads: p99, shared / alone", p99s, at_most=0.5)
        slower = statistics.median(lone["shared"]) / statistics.median(lone["alone"])
        print_bar("one thread: p50, shared / alone", slower, at_most=1.03)

    def run_claims(self) -> None:
        """Measure single claims, of new documents and of others; print their times and bar."""
        ids = map("claimed-{}".format, itertools.count())
        with HSimIndex.open(table_url(self.gateways, self.table)) as index:

            def claim(fingerprint: int) -> object:
                return index.claim(fingerprint, next(ids))

            ways = {
                "query, no match": functools.partial(self._p50_ms, index.query, CLAIMS),
                "query, match": lambda: p50_ms(index.query, self.rng.choice(self.stored, CLAIMS)),
                "claim, new": functools.partial(self._p50_ms, claim, CLAIMS),
                "claim, match": lambda: p50_ms(claim, self.rng.choice(self.stored, CLAIMS)),
            }
            in_turns(ways, FAR_WARM_UPS)
            times = in_turns(ways, ROUNDS)
        for name, taken in times.items():
            print(f"{name:20}{statistics.median(taken):12.3f} ms", flush=True)
        for way in ("new", "match"):
            ratio = median_ratio(times[f"claim, {way}"], times["query, match"])
            print_bar(f"claim, {way} / query, match", ratio, at_most=3)

    def print_times(self) -> None:
        """Print the times, and happybase's as multiples of ours."""
        print(f"{'':40}{'ms a query':>12}{'happybase /':>14}")
        for name, times in self.times.items():
            print(f"{name:40}{statistics.median(times):12.3f}{self._faster(name):14.2f}", flush=True)
        for where in ("", ", 0.5 ms away"):
            ratio = median_ratio(self.times[f"hsimhash query{where}"], self.times[f"one multi-get of wide rows{where}"])
            print_bar(f"query / one multi-get of wide rows{where}", ratio, at_most=1.5)

    def _faster(self, name: str) -> float:
        where = ", 0.5 ms away" if name.endswith("away") else ""
        return median_ratio(self.times[f"happybase, scans{where}"], self.times[name])

    def print_bars(self) -> None:
        """Print the bars."""
        for name, bar in (("query", 2.2), ("query, 0.5 ms away", 6), ("query_many(1,000)", 30)):
            faster = self._faster(f"hsimhash {name}")
            print_bar(f"{name}: times faster than happybase's scans", faster, at_least=bar)
        with far_away(self.gateways, SLOW_REPLY_S) as slow, HSimIndex.open(table_url(slow, self.table)) as index:
            for name, fingerprints, most in (
                ("no match", random_fingerprints(self.rng, COUNTED), 1),
                ("match", self.stored[:COUNTED], 3),
            ):
                index.query(int(fingerprints[0]))  # opens the connections
                trips = p50_ms(index.query, fingerprints) // (SLOW_REPLY_S * 1_000)
                print_bar(f"query, {name}: round trips in sequence", trips, at_most=most)

    def wrong_answers(self) -> int:
        """Print and return how many answers differ from happybase's."""
        queries = half_near(self.rng, self.stored, SINGLES, K).tolist()
        peer = Peer(self.gateways, self.table, self.layout)
        with HSimIndex.open(table_url(self.gateways, self.table)) as index:
            expected = list(map(peer.query, queries))
            singles = [ours(index, query) for query in queries]
            batch = [{match.fingerprint for match in matches} for matches in index.query_many(queries)]
        peer.connection.close()
        pairs = zip(expected * 2, singles + batch, strict=True)
        wrong = sum(one != other for one, other in pairs)
        matched = sum(map(bool, expected))
        print(f"{'WRONG' if wrong else 'equal'}  {wrong} of {2 * len(queries)} answers differ; {matched} have matches")
        return wrong


def race(server: HBaseServer, layout: Layout, size: int) -> int:
    """Compare queries; return how many answers were wrong."""
    stored = random_fingerprints(np.random.default_rng(SEED), size)
    print(f"\n## queries: layout {layout.name}, {size:,} documents; no match unless it says so", flush=True)
    with made(server.gateways, layout) as table, made(server.gateways, layout) as wide:
        fill(table_url(server.gateways, table), stored)
        one = Race(server.gateways, table, wide, layout, stored)
        if layout.name == "10":
            print("as it was filled", flush=True)
            one.run_far()
        fill_wide(table_url(server.gateways, wide), layout, stored)
        compact(server, table, wide)
        print("after a major compaction", flush=True)
        one.run()
        one.print_times()
        if layout.name == "10":
            one.run_far()
        if (layout.name, size) == ("10", SIZE):
            one.print_bars()
            one.run_callers()
            one.run_claims()
        return one.wrong_answers()


class Cores:
    """CPU seconds of this process and of the server's processes."""

    def __init__(self, server: HBaseServer) -> None:
        pids = [int(file.read_text()) for file in sorted((server.folder / "run").glob("*.pid"))]
        self._files = [Path(f"/proc/{pid}/stat") for pid in [os.getpid(), *pids]]

    def seconds(self) -> float:
        fields = [file.read_text().rpartition(")")[2].split() for file in self._files]
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def load_race(server: HBaseServer, layout: Layout) -> None:
    """Compare loads of new documents, each way into a separate table."""
    rows = len(layout.drawers) + 2
    print(f"\n## loads: layout {layout.name}, {LOADED:,} documents a round, {rows} rows each", flush=True)
    rng, cores = np.random.default_rng(SEED + 2), Cores(server)
    spent: dict[str, list[float]] = {}
    with ExitStack() as stack:
        tables = {
            name: stack.enter_context(made(server.gateways, layout)) for name in ("happybase", "exclusive", "shared")
        }
        peer = Peer(server.gateways, tables["happybase"], layout)
        stack.callback(peer.connection.close)
        exclusive, shared = (
            stack.enter_context(HSimIndex.open(with_options(table_url(server.gateways, tables[name]), options)))
            for name, options in (("exclusive", {"exclusive": "yes"}), ("shared", {}))
        )
        numbers = iter(range(0, 1 << 40, LOADED))

        def rate(name: str, add_many: Callable[[Numbers, Sequence[str]], object]) -> float:
            fingerprints, ids = random_fingerprints(rng, LOADED), page_ids(next(numbers), LOADED)
            spent_before_s = cores.seconds()
            took_s = seconds(lambda: add_many(fingerprints, ids))
            spent.setdefault(name, []).append((cores.seconds() - spent_before_s) * 1e6 / LOADED)
            return LOADED / took_s

        ways = {
            "happybase batch()": peer.add_many,
            "hsimhash, exclusive": exclusive.add_many,
            "hsimhash": shared.add_many,
        }
        contestants = {name: functools.partial(rate, name, way) for name, way in ways.items()}
        in_turns(contestants, LOAD_WARM_UPS)
        rates = in_turns(contestants, LOAD_ROUNDS)
    print(f"{'':24}{'documents/s':>12}{'rows/s':>12}{'ratio':>8}{'core-µs a document':>20}")
    for name, taken in rates.items():
        median, ratio = statistics.median(taken), median_ratio(taken, rates["happybase batch()"])
        cost = statistics.median(spent[name][LOAD_WARM_UPS:])
        print(f"{name:24}{median:12,.0f}{median * rows:12,.0f}{ratio:8.2f}{cost:20,.0f}")
    if layout.name == "10":
        for name, bar in (("hsimhash, exclusive", 1.6), ("hsimhash", 0.6)):
            print_bar(f"load, {name} / happybase", median_ratio(rates[name], rates["happybase batch()"]), at_least=bar)


def hot(server: HBaseServer, layout: Layout) -> None:
    """Query a fingerprint that a million documents share, and ordinary ones, in the same index."""
    print(f"\n## {HOT_DOCUMENTS:,} documents under one fingerprint; limit={HOT_LIMIT}", flush=True)
    rng = np.random.default_rng(SEED + 3)
    usual = random_fingerprints(rng, LOADED)
    with made(server.gateways, layout) as table:
        url = table_url(server.gateways, table)
        fill(url, np.concatenate([usual, np.full(HOT_DOCUMENTS, usual[0])]))
        with HSimIndex.open(url) as index:
            ask = functools.partial(index.query, limit=HOT_LIMIT)
            contestants = {
                "hot": lambda: p50_ms(ask, np.full(HOT_QUERIES, usual[0])),
                "usual": lambda: p50_ms(ask, rng.choice(usual[1:], HOT_QUERIES)),
            }
            in_turns(contestants, WARM_UP_ROUNDS)
            times = in_turns(contestants, ROUNDS)
    for name, taken in times.items():
        print(f"{name:20}{statistics.median(taken):12.2f} ms")
    print_bar("hot fingerprint / usual query with a match", median_ratio(times["hot"], times["usual"]), at_most=10)


def main() -> int:
    given = options(__doc__, large=(False, "also a million documents: about ten minutes more"))
    sizes = [SIZE] + [LARGE] * given.large
    print_conditions(
        "HBase", packages=("thriftpy2", "happybase"), seed=SEED, k=K, regions=REGIONS, rounds=ROUNDS, rows=sizes
    )
    layouts = [Layout.named(name) for name in ("10", "4")]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server is stopped
    # With the script's own JVM settings, as in `make hbase`; the cache has room for both tables of a million documents.
    caches = {"hfile.block.cache.size": "0.5", "hbase.regionserver.global.memstore.size": "0.3"}
    with (
        scratch_folder(given.scratch) as folder,
        serving(folder / "hbase", jvm="", settings=caches) as server,
    ):
        for layout in layouts:
            load_race(server, layout)
        wrong = sum(race(server, layout, size) for size in sizes for layout in layouts)
        hot(server, layouts[0])
    return print_outcomes([Outcome(not wrong, f"answers that differ: {wrong:,}")])


if __name__ == "__main__":
    sys.exit(main())
