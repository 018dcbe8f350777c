"""Queries and loads on a real PostgreSQL: `python -m tests.bench.bench_postgresql [--documents N]`.

The server is started for the measurement with its defaults and shares the machine's cores with this client. The peers
use psycopg: for queries a prepared SELECT of the same buckets from the same indexes, which does not count bits or read
documents; for loads `executemany` of the same rows, with 1,000 documents per transaction and the same indexes. All get
the same fingerprints in turns; times are medians over the rounds, ratios medians of the rounds' ratios. A table of rows
(prefix, fingerprint) with one B-tree, the plain way to store drawers, is measured for its bytes.

Waking a process on another core takes 40 of a query's 70 µs. The kernel assigns cores by chance and keeps them for
minutes, so the queries are measured twice: with caller and server on one core, and on two.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import psycopg

from hsimhash import HSimIndex
from hsimhash.layout import Layout
from hsimhash.store.postgresql.codec import segment_sql, signed_word, signed_words
from tests.support.fingerprint_sets import Numbers, page_ids, random_fingerprints
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.programs import in_turns, median_ratio, options, print_bar, print_conditions, scratch_folder, seconds

SEED, LAYOUTS, PROFILE = 5, ("4", "10"), "zh-1"
DOCUMENTS, RUN = 1_000_000, 200_000
ROUNDS, SINGLES, WARM_UP = 7, 300, 200
BATCH = 1_000
PLAIN_ROWS = 200_000  # documents in the plain table


def loaded(server: PostgresqlServer, layout: str, fingerprints: Numbers, folder: Path) -> tuple[str, float]:
    """Fill a new index by a bulk load; return its URL and the documents per second."""
    url, ids = server.url(f"bench_{layout}"), page_ids(0, len(fingerprints))
    with HSimIndex.create(url, layout=layout, profile=PROFILE) as index, index.bulk(folder / layout) as load:
        began = time.perf_counter()
        for start in range(0, len(ids), RUN):
            load.add_run(fingerprints[start : start + RUN], ids[start : start + RUN], 0)
        load.merge()
        rate = len(ids) / (time.perf_counter() - began)
        load.delete()
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        for table in ("", "_fingerprints"):
            connection.execute(f"VACUUM ANALYZE bench_{layout}{table}".encode())
    return url, rate


def peer_rate(server: PostgresqlServer, layout: Layout, fingerprints: Numbers) -> float:
    """Return how many documents per second `executemany` adds to tables with the same indexes."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE peer (LIKE bench_{layout.name} INCLUDING ALL)".encode())
        connection.execute(
            f"CREATE TABLE peer_fingerprints (LIKE bench_{layout.name}_fingerprints INCLUDING ALL)".encode()
        )
        ids, values = page_ids(0, len(fingerprints)), signed_words(fingerprints).tolist()
        began = time.perf_counter()
        for start in range(0, len(ids), BATCH):
            part = slice(start, start + BATCH)
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO peer (doc_id, fingerprint, first_seen) VALUES (%s, %s, 0) ON CONFLICT DO NOTHING",
                    list(zip(ids[part], values[part], strict=True)),
                )
                cursor.executemany(
                    "INSERT INTO peer_fingerprints VALUES (%s) ON CONFLICT DO NOTHING", [(one,) for one in values[part]]
                )
        rate = len(ids) / (time.perf_counter() - began)
        connection.execute("DROP TABLE peer, peer_fingerprints")
    return rate


@contextmanager
def on_cores(server: PostgresqlServer, count: int) -> Iterator[None]:
    """Pin this process and the server's processes for new connections to one shared core, or to one core each."""
    every = os.sched_getaffinity(0)
    cores = sorted(every)[:count]
    try:
        os.sched_setaffinity(server.process.pid, cores[-1:])
        os.sched_setaffinity(0, cores[:1])
        yield
    finally:
        os.sched_setaffinity(0, every)
        os.sched_setaffinity(server.process.pid, every)


def queries(
    server: PostgresqlServer, url: str, layout: Layout, asked: Sequence[int], far: Sequence[int], where: str
) -> None:
    """Compare single queries with the hand-written SELECT."""
    arms = (
        f"SELECT fingerprint FROM bench_{layout.name}_fingerprints WHERE ({segment_sql(drawer)}) = %s"
        for drawer in layout.drawers
    )
    select = " UNION ALL ".join(arms).encode()
    k = layout.max_distance
    with HSimIndex.open(url) as index, psycopg.connect(server.conninfo, autocommit=True) as connection:
        cursor = connection.cursor(binary=True)

        def by_hand(query: int) -> object:
            segments = [drawer.segment(query) for drawer in layout.drawers]
            return cursor.execute(select, segments, prepare=True).fetchall()

        for query in asked[:WARM_UP]:
            by_hand(query)
            assert index.query(query, max_distance=k)[0].distance == 0

        def each(ask: object, given: Sequence[int]) -> float:
            return statistics.median(seconds(partial(ask, query)) for query in given)  # type: ignore[arg-type]

        turns: Iterator[int] = iter(range(0, len(asked), SINGLES))
        contestants = {}
        taken: dict[str, list[float]] = {}
        for start in turns:
            part, other = asked[start : start + SINGLES], far[start : start + SINGLES]
            contestants = {
                "by hand": partial(each, by_hand, part),
                "query with a match": partial(each, partial(index.query, max_distance=k), part),
                "query without": partial(each, partial(index.query, max_distance=k), other),
                "within 6 bits": partial(each, partial(index.query, max_distance=6), other[:30]),
            }
            for name, found in in_turns(contestants, 1).items():
                taken.setdefault(name, []).extend(found)
        batch = seconds(lambda: index.query_many(list(far), max_distance=k)) / len(far)
    print(where)
    for name, times in taken.items():
        print(f"{name:20}{1e6 * statistics.median(times):10,.0f} µs", flush=True)
    print(f"{'in a batch':20}{1e6 * batch:10,.0f} µs")
    for name in ("query with a match", "query without"):
        print_bar(f"{where}, {name} / SELECT by hand", median_ratio(taken[name], taken["by hand"]), at_most=1.5)


def plain_bytes(server: PostgresqlServer, layout: Layout, fingerprints: Numbers) -> float:
    """Return the bytes per row (prefix, fingerprint) in a table with a covering B-tree, filled at once."""
    words = [(layout.prefixes(int(value)), signed_word(int(value))) for value in fingerprints]
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("CREATE TABLE plain (prefix bytea NOT NULL, fingerprint bigint NOT NULL)")
        with connection.cursor().copy("COPY plain FROM STDIN") as copy:
            for prefixes, word in words:
                for prefix in prefixes:
                    copy.write_row((prefix, word))
        connection.execute("ALTER TABLE plain ADD PRIMARY KEY (prefix, fingerprint)")
        found = connection.execute("SELECT pg_total_relation_size('plain')").fetchone()
        connection.execute("DROP TABLE plain")
    assert found is not None
    return found[0] / len(words) / len(layout.drawers)


def main() -> int:
    given = options(__doc__, documents=(DOCUMENTS, "how many documents"))
    count = given.documents
    print_conditions("PostgreSQL", packages=("psycopg",), seed=SEED, rows=count, rounds=ROUNDS)
    rng = np.random.default_rng(SEED)
    fingerprints = random_fingerprints(rng, count)
    asked = fingerprints[rng.integers(0, count, ROUNDS * SINGLES)].tolist()
    far = random_fingerprints(rng, ROUNDS * SINGLES).tolist()
    with scratch_folder(given.scratch) as folder, postgresql_serving() as server:
        for name in LAYOUTS:
            layout = Layout.named(name)
            url, rate = loaded(server, name, fingerprints, folder)
            with HSimIndex.open(url) as index:
                facts = index.store.describe()
            size = int(facts["documents_bytes"]) + int(facts["fingerprints_bytes"])
            print(
                f"\n## layout {name}: {size / count:,.0f} bytes a document, loaded {rate:,.0f} documents/s", flush=True
            )
            plain = plain_bytes(server, layout, fingerprints[:PLAIN_ROWS])
            drawer = (int(facts["fingerprints_bytes"]) / count - 67) / len(layout.drawers)
            print(f"a drawer row: {drawer:.1f} bytes; as a row of a plain table {plain:.1f}", flush=True)
            peer = peer_rate(server, layout, fingerprints)
            print_bar(f"load / executemany ({peer:,.0f} documents/s)", rate / peer, at_least=2)
            for cores, where in ((1, "one core"), (2, "two cores")):
                with on_cores(server, cores):
                    queries(server, url, layout, asked, far, where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
