"""An index on Redis against redis-py itself: `python -m tests.bench.bench_redis [--documents N]`.

On a separate server, on loopback, with everything in memory and without an AOF:

- single queries with layout 10: without a match, against a hand-written redis-py pipeline that reads the same ten sets;
  with a match, against one that also confirms it; both also with the layout and distance of a new index;
- adding documents in batches of 1,000, against pipelines of the single commands for 1,000 documents.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import redis

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.signature import Signatures
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.store import create_store, new_record
from hsimhash.store.redis.store import RedisStore
from tests.support.programs import in_turns, median_ratio, options, print_bar, print_conditions, scratch_folder, seconds
from tests.support.redis_server import RedisServer, redis_running

SEED = 20_070_508
DOCUMENTS = 1_000_000
ROUNDS = 5
QUERIES = 2_000
BATCH = 1_000
ADDED = 20_000  # documents added per round
PROFILE = Profile.named("auto-1").to_json()


def ids_of(start: int, count: int) -> list[bytes]:
    return [b"https://example.org/page/%011d" % number for number in range(start, start + count)]


class Plain:
    """The design that articles describe, with redis-py's pipelines: a set per segment, and a hash of documents."""

    def __init__(self, server: RedisServer, layout: Layout) -> None:
        self.client, self.layout = redis.Redis(port=server.port, protocol=2), layout

    def add(self, ids: list[bytes], fingerprints: Uint64s) -> None:
        for start in range(0, len(ids), BATCH):
            pipeline = self.client.pipeline(transaction=False)
            for doc_id, value in zip(
                ids[start : start + BATCH], fingerprints[start : start + BATCH].tolist(), strict=True
            ):
                packed = value.to_bytes(8, "big")
                for prefix in self.layout.prefixes(value):
                    pipeline.sadd(b"plain:" + prefix, packed)
                pipeline.sadd(b"ids:" + packed, doc_id)
                pipeline.hset("documents", doc_id, packed)
            pipeline.execute()

    def query(self, value: int) -> set[bytes]:
        pipeline = self.client.pipeline(transaction=False)
        for prefix in self.layout.prefixes(value):
            pipeline.smembers(b"plain:" + prefix)
        return set().union(*pipeline.execute())

    def matches(self, value: int) -> list[bytes | None]:
        near = [one for one in self.query(value) if (int.from_bytes(one, "big") ^ value).bit_count() <= 3]
        pipeline = self.client.pipeline(transaction=False)
        for packed in near:
            pipeline.smembers(b"ids:" + packed)
        ids = sorted(set().union(*pipeline.execute()))
        return self.client.hmget("documents", ids) if ids else []


def used_bytes(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def load(store: RedisStore, fingerprints: Uint64s) -> None:
    for start in range(0, len(fingerprints), 10_000):
        part = fingerprints[start : start + 10_000]
        store.insert(ids_of(start, len(part)), Signatures.of(part), np.zeros(len(part), np.int64))


def loaded(server: RedisServer, layout: str | None, fingerprints: Uint64s) -> str:
    """Load an index; return its URL."""
    url = server.url(f"layout-{layout}")
    record = new_record(url, PROFILE, layout=None if layout is None else Layout.named(layout))
    client = redis.Redis(port=server.port)
    before = used_bytes(client)
    with create_store(url, record) as store:
        assert isinstance(store, RedisStore)
        took = seconds(lambda: load(store, fingerprints))
    told = (used_bytes(client) - before) / len(fingerprints)
    client.close()
    name = record.layout.name
    print(f"layout {name}: loaded at {len(fingerprints) / took:,.0f} documents/s; {told:,.0f} bytes a document")
    return url


def median_us(ask: Callable[[int], object], queries: list[int]) -> float:
    times = []
    for value in queries:
        began = time.perf_counter()
        ask(value)
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times)


def compare_queries(server: RedisServer, urls: dict[str, str], fingerprints: Uint64s) -> None:
    rng = np.random.default_rng(SEED + 1)
    plain = Plain(server, Layout.named("10"))
    plain.add(ids_of(0, len(fingerprints)), fingerprints)
    with HSimIndex.open(urls["10"]) as ten, HSimIndex.open(urls["new"]) as new:
        misses = lambda: rng.integers(0, 2**64, QUERIES, np.uint64).tolist()  # noqa: E731
        hits = lambda: rng.choice(fingerprints, QUERIES).tolist()  # noqa: E731
        taken = in_turns(
            {
                "pipeline of 10 sets": lambda: median_us(plain.query, misses()),
                "pipelines of sets, ids and documents": lambda: median_us(plain.matches, hits()),
                "hsimhash 10, 3 bits": lambda: median_us(ten.query, misses()),
                "hsimhash 10, 3 bits, all with a match": lambda: median_us(ten.query, hits()),
                f"hsimhash {new.layout.name}, {new.distance} bits": lambda: median_us(new.query, misses()),
                f"hsimhash {new.layout.name}, 3 bits": lambda: median_us(
                    lambda value: new.query(value, max_distance=3), misses()
                ),
            },
            ROUNDS,
        )
    for name, times in taken.items():
        print(f"{name}: {statistics.median(times):,.0f} µs")
    print_bar(
        "a query, to the pipeline",
        median_ratio(taken["hsimhash 10, 3 bits"], taken["pipeline of 10 sets"]),
        at_most=1.5,
    )
    theirs = taken["pipelines of sets, ids and documents"]
    ours = taken["hsimhash 10, 3 bits, all with a match"]
    print_bar("a query with a match, to three pipelines", median_ratio(ours, theirs), at_most=1.5)


def compare_adding(server: RedisServer, layout: str) -> None:
    rng, url = np.random.default_rng(SEED + 2), server.url(f"adding-{layout}")
    plain, number = Plain(server, Layout.named(layout)), 0
    with create_store(url, new_record(url, PROFILE, layout=Layout.named(layout))) as store:

        def batches() -> list[tuple[list[bytes], Uint64s]]:
            nonlocal number
            number += ADDED
            values = rng.integers(0, 2**64, ADDED, np.uint64)
            return [(ids_of(number + at, BATCH), values[at : at + BATCH]) for at in range(0, ADDED, BATCH)]

        def ours() -> float:
            given = batches()
            return seconds(
                lambda: [store.insert(ids, Signatures.of(part), np.zeros(BATCH, np.int64)) for ids, part in given]
            )

        def theirs() -> float:
            given = batches()
            return seconds(lambda: [plain.add(ids, part) for ids, part in given])

        taken = in_turns({"hsimhash": ours, "pipelines": theirs}, ROUNDS)
    for name, times in taken.items():
        print(f"layout {layout}, {name}: {ADDED / statistics.median(times):,.0f} documents/s")
    print_bar(
        f"layout {layout}: rate of adding, to pipelines",
        median_ratio(taken["pipelines"], taken["hsimhash"]),
        at_least=2,
    )


def main() -> int:
    given = options(__doc__, documents=(DOCUMENTS, "in the index"))
    print_conditions("Redis", packages=("redis",), seed=SEED, documents=given.documents, rounds=ROUNDS)
    fingerprints = np.random.default_rng(SEED).integers(0, 2**64, given.documents, np.uint64)
    with scratch_folder(given.scratch) as folder, redis_running(Path(folder)) as server:
        urls = {"new": loaded(server, None, fingerprints), "10": loaded(server, "10", fingerprints)}
        compare_queries(server, urls, fingerprints)
        for layout in ("4", "10"):
            compare_adding(server, layout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
