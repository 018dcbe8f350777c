"""`hsimhash plan` compared with a real store: `python -m tests.bench.bench_plan [--store lmdb] [--documents N]`.

An index with keys in parts, and the store's default layout and distance, gets random documents in bulk, or one batch at
a time on Redis and HBase. Every key has all its parts; groups of four documents share some parts. Compares the rows and
bytes per document, and the buckets and candidates of a query for a document that is not in the index. On PostgreSQL and
Redis the server's own counts are compared as well. Times depend on the machine, so they are printed but not judged.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psycopg
import redis

from hsimhash import HSimIndex, Signatures
from hsimhash.fingerprint.keys import COUNT_SHIFT, TAGS, Keying
from hsimhash.plan import Cost, cost
from hsimhash.store.capabilities import LoadsInBulk
from tests.support.fingerprint_sets import keys_in_parts, random_fingerprints
from tests.support.hbase_server import serving
from tests.support.hbase_tables import table_url
from tests.support.postgresql_server import postgresql_serving
from tests.support.programs import options, print_bar, print_conditions, scratch_folder
from tests.support.redis_server import redis_running

SEED, PROFILE = 11, "auto-3"
DOCUMENTS, GROUP = 200_000, 4
QUERIES, BATCH = 500, 1_000
LEAST_ROWS = 1_000
COUNTS = re.compile(r"buckets or ranges: (\d+), rows: (\d+)")

PG_BYTES = "SELECT pg_total_relation_size('pages') + pg_total_relation_size('pages_fingerprints')"
PG_SCANS = (
    "SELECT sum(idx_scan) FROM pg_stat_user_indexes "
    "WHERE indexrelname LIKE 'pages_drawer_%' OR indexrelname LIKE 'pages_key_%'"
)


class Place(NamedTuple):
    """The place of an index, and the server's counts for it."""

    url: str
    used_bytes: Callable[[], float]
    looked_up: Callable[[], float] | None = None  # buckets read so far, including by processes that have ended


@contextmanager
def lmdb_place(folder: Path) -> Iterator[Place]:
    index = folder / "index"
    yield Place(f"lmdb://{index}", lambda: sum(one.stat().st_size for one in index.iterdir() if one.is_file()))


@contextmanager
def postgresql_place(folder: Path) -> Iterator[Place]:
    with postgresql_serving() as server:

        def ask(statement: str) -> float:
            with psycopg.connect(server.conninfo, autocommit=True) as connection:
                found = connection.execute(statement.encode()).fetchone()
            assert found is not None
            return float(found[0])

        yield Place(server.url("pages"), lambda: ask(PG_BYTES), lambda: ask(PG_SCANS))


@contextmanager
def redis_place(folder: Path) -> Iterator[Place]:
    with redis_running(folder / "redis") as server, closing(redis.Redis(port=server.port)) as client:
        empty = client.info("memory")["used_memory"]

        def looked_up() -> float:
            stats = client.info("stats")
            return float(stats["keyspace_hits"] + stats["keyspace_misses"])

        yield Place(server.url("pages"), lambda: client.info("memory")["used_memory"] - empty, looked_up)


@contextmanager
def hbase_place(folder: Path) -> Iterator[Place]:
    with serving(folder / "hbase") as server:

        def used_bytes() -> float:
            if server.shell("flush 'pages'\n"):
                raise RuntimeError("the table cannot be flushed")
            files = (folder / "hbase").glob("**/data/default/pages/*/[df]/*")
            return float(sum(path.stat().st_size for path in files))

        yield Place(table_url(server, "pages"), used_bytes)


PLACES = {"lmdb": lmdb_place, "postgresql": postgresql_place, "redis": redis_place, "hbase": hbase_place}


def documents(count: int) -> Signatures:
    """Return signatures whose keys have all their parts."""
    rng = np.random.default_rng(SEED)
    values, sketches = random_fingerprints(rng, count), random_fingerprints(rng, count)
    keys = keys_in_parts(rng, np.arange(2 * count) // GROUP)
    keys = keys[keys >> np.uint64(COUNT_SHIFT) == TAGS][:count]
    return Signatures(values, sketches, keys, np.zeros(count, np.uint8), Keying.IN_PARTS)


def fill(index: HSimIndex, signatures: Signatures, folder: Path) -> None:
    """Add documents with ids like those of a crawl, of 35 bytes."""
    ids = [f"https://example.org/page/{number:010d}" for number in range(len(signatures))]
    if LoadsInBulk in index.backend.capabilities:
        with index.bulk(folder / "load") as load:
            load.add_run(signatures, ids, 0)
            load.merge()
            load.delete()
        return
    for start in range(0, len(ids), BATCH):
        index.add_many(signatures[start : start + BATCH], ids[start : start + BATCH], first_seen=0)


class Counts(logging.Handler):
    """The buckets and rows that each query has read, according to the log of slow queries."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[int, int]] = []

    def emit(self, record: logging.LogRecord) -> None:
        found = COUNTS.search(record.getMessage())
        assert found is not None
        self.read.append((int(found[1]), int(found[2])))


def ask(place: Place, planned: Cost) -> None:
    """Query documents that are not in the index; compare what that reads and costs with the plan."""
    far, counts, log = documents(2 * QUERIES)[QUERIES:], Counts(), logging.getLogger("hsimhash.slow")
    far = Signatures(~far.fingerprints, far.sketches, far.keys ^ np.uint64(0xFFF), far.kinds, far.keying)
    before = place.looked_up() if place.looked_up else 0.0
    log.addHandler(counts)
    log.propagate = False
    with HSimIndex.open(place.url, slow_s=1e-9) as index:
        for one in far:
            index.query(one)
    log.removeHandler(counts)
    buckets, rows = np.mean(counts.read, axis=0)
    print_bar("reads of a query, by plan / by the store", planned.reads / buckets, at_least=0.85, at_most=1.15)
    if rows * len(far) >= LEAST_ROWS:  # fewer depend on chance; PostgreSQL counts bits itself
        print_bar("candidates, by plan / by the store", planned.candidates / rows, at_least=0.85, at_most=1.15)
    if place.looked_up:
        time.sleep(2)  # until the process has reported its counts
        looked_up = (place.looked_up() - before) / len(far)
        print(f"the server looked up {looked_up:.1f} buckets a query, by plan {planned.reads}")
    with HSimIndex.open(place.url, slow_s=None) as index:
        index.query(far.at(0))
        began_s = time.perf_counter()
        for one in far:
            index.query(one)
        alone_us = 1e6 * (time.perf_counter() - began_s) / len(far)
        index.query_many(far)
        began_s = time.perf_counter()
        index.query_many(far)
        together_us = 1e6 * (time.perf_counter() - began_s) / len(far)
    query_us = planned.time_us - planned.rows / planned.documents * planned.prices.row_us
    print(f"µs of a query: {alone_us:,.0f} alone, {together_us:,.0f} in a batch of {len(far):,}; plan {query_us:,.0f}")


def compare(place: Place, signatures: Signatures, folder: Path) -> None:
    """Fill an index, and compare it and its queries with the plan."""
    with HSimIndex.create(place.url, profile=PROFILE) as index:
        fill(index, signatures, folder)
        record, prices, rows = index.store.record, index.backend.prices, index.check().drawer_rows
    planned = cost(record.layout, len(signatures), record.reach, prices, key_rows=record.most_key_rows)
    print(f"layout {record.layout.name}, {record.reach} bits, {rows / len(signatures):.2f} rows a document")
    print_bar("rows, by plan / by the store", planned.rows / rows, at_least=0.85, at_most=1.15)
    used = place.used_bytes()
    print(f"{used / len(signatures):,.0f} bytes a document, by plan {planned.bytes / len(signatures):,.0f}")
    print_bar("bytes, by plan / by the store", planned.bytes / used, at_least=0.85, at_most=1.15)
    ask(place, planned)


def main() -> int:
    given = options(__doc__, store=("lmdb", f"one of {', '.join(PLACES)}"), documents=(DOCUMENTS, "in the index"))
    packages = ("psycopg", "redis", "thriftpy2")
    print_conditions(f"plan and {given.store}", packages=packages, seed=SEED, documents=given.documents)
    with scratch_folder(given.scratch) as folder, PLACES[given.store](folder) as place:
        compare(place, documents(given.documents), folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
