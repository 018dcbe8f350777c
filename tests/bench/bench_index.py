"""Queries against peers: `python -m tests.bench.bench_index [--large] [--data DIR]`.

Contestants: hsimhash on LMDB, layouts 10 and 4; faiss `IndexBinaryMultiHash`, in memory with one thread, which has
positions instead of ids; PyPI `simhash`'s index; brute force in numpy. All get the same queries in turns; every other
query has a match, and each round has new queries. Times are medians over the rounds, ratios medians of the rounds'
ratios. hsimhash and faiss first answer 100,000 other queries, so that a process that has just mapped its index is not
compared with one that has just built its index in memory. If half of the queries have matches, the times have two modes
and the median lies between them, so the median of each is also printed. So are batches in which all queries have a
match, and the time of LMDB's own calls for as many listings, without further work. Answers are compared. With a
million documents greater distances are also measured; faiss then flips a bit of each of its four hashes, which is exact
up to 7 bits.
"""

from __future__ import annotations

import functools
import itertools
import logging
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from hsimhash import HSimIndex, Signatures
from hsimhash.native_package import native_package
from tests.support.fingerprint_sets import FINGERPRINTS, Numbers, half_near, random_fingerprints, real_fingerprints
from tests.support.programs import (
    Outcome,
    data_file,
    in_turns,
    median_ratio,
    options,
    print_bar,
    print_conditions,
    print_outcomes,
    scratch_folder,
)

LAYOUTS = ("10", "4")  # the last one is the default for embedded indexes
SEED = 20_070_508  # the day of Manku, Jain and Das Sarma's paper
K = 3
FAR = (6, 7)
DISTANCES = (1, 2, 3, 4, 6, 8, 10)
DISTANCE_QUERIES = 200
ROUNDS = 5
SINGLE_QUERIES = 2_000
BATCHES, BATCH = 4, 1_000
WARMING_QUERIES = 100_000
SLOW_QUERIES = 20  # for a peer that takes milliseconds per query
PYPI_DOCUMENTS = 200_000  # with more it takes minutes
RUN_DOCUMENTS = 1_000_000
HOT_DOCUMENTS, HOT_LIMIT = 1_000_000, 10
NORMAL_DOCUMENTS = 100_000

Query = TypeVar("Query")
Answers = list[set[int]]


class Contestant(ABC):
    """An index of fingerprints, which are identified by their positions."""

    name: str
    k = K
    single_queries = SINGLE_QUERIES
    ask: Callable[[Any], object]  # takes an element of what `singles` returns
    ask_many: Callable[[Numbers], object] | None = None  # None: batches are not supported

    def set_distance(self, k: int) -> None:
        """Set the distance of the following queries to k bits."""
        self.k = k

    @abstractmethod
    def singles(self, queries: Numbers) -> Sequence[object]:
        """Return single queries in the form that `ask` takes."""

    @abstractmethod
    def answers(self, queries: Numbers) -> Answers:
        """Return the positions within k of each query."""


class Hsimhash(Contestant):
    def __init__(self, layout: str, fingerprints: Numbers, folder: Path) -> None:
        self.name = f"hsimhash {layout}"
        self.index = HSimIndex.create(f"lmdb://{folder / f'layout-{layout}'}", layout=layout, profile="auto-1")
        self.set_distance(K)
        load(self.index, folder / f"runs-{layout}", fingerprints, list(map(str, range(len(fingerprints)))))

    def set_distance(self, k: int) -> None:
        self.ask = functools.partial(self.index.query, max_distance=k)
        self.ask_many = functools.partial(self.index.query_many, max_distance=k)

    def singles(self, queries: Numbers) -> list[int]:
        return queries.tolist()

    def answers(self, queries: Numbers) -> Answers:
        return [{int(match.doc_id) for match in matches} for matches in self.ask_many(queries)]


class Faiss(Contestant):
    name = "faiss"

    def __init__(self, fingerprints: Numbers) -> None:
        import faiss

        faiss.omp_set_num_threads(1)
        self.index = faiss.IndexBinaryMultiHash(64, K + 1, 64 // (K + 1))
        self.index.add(_as_bytes(fingerprints))

    def singles(self, queries: Numbers) -> list[np.ndarray]:
        rows = _as_bytes(queries)
        return [rows[number : number + 1] for number in range(len(rows))]

    def set_distance(self, k: int) -> None:
        self.k = k
        self.index.nflip = k // (K + 1)

    def ask(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.index.range_search(rows, self.k + 1)  # the radius is exclusive

    def ask_many(self, queries: Numbers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.ask(_as_bytes(queries))

    def answers(self, queries: Numbers) -> Answers:
        ends, _, positions = self.ask_many(queries)
        return [set(positions[start:end].tolist()) for start, end in itertools.pairwise(ends.tolist())]


class PypiSimhash(Contestant):
    name = "PyPI simhash"
    single_queries = SINGLE_QUERIES // 10

    def __init__(self, fingerprints: Numbers) -> None:
        from simhash import Simhash, SimhashIndex

        logging.getLogger("simhash").setLevel(logging.ERROR)  # it logs a warning for every large bucket
        self.new = Simhash
        documents = [(str(number), Simhash(value)) for number, value in enumerate(fingerprints.tolist())]
        self.ask = SimhashIndex(documents, k=K).get_near_dups

    def singles(self, queries: Numbers) -> list[object]:
        return [self.new(query) for query in queries.tolist()]

    def answers(self, queries: Numbers) -> Answers:
        return [set(map(int, self.ask(query))) for query in self.singles(queries)]


class BruteForce(Contestant):
    name = "numpy brute force"
    single_queries = SLOW_QUERIES

    def __init__(self, fingerprints: Numbers) -> None:
        self.fingerprints = fingerprints

    def singles(self, queries: Numbers) -> list[np.uint64]:
        return list(queries)

    def ask(self, query: np.uint64) -> np.ndarray:
        return np.flatnonzero(np.bitwise_count(self.fingerprints ^ query) <= self.k)

    def answers(self, queries: Numbers) -> Answers:
        return [set(self.ask(query).tolist()) for query in queries]


def _as_bytes(fingerprints: Numbers) -> np.ndarray:
    return np.ascontiguousarray(fingerprints).view(np.uint8).reshape(-1, 8)


def times_us(ask: Callable[[Query], object], queries: Sequence[Query]) -> list[float]:
    """Return the time of each call."""
    times = []
    for query in queries:
        began = time.perf_counter_ns()
        ask(query)
        times.append((time.perf_counter_ns() - began) / 1_000)
    return times


def batch_us(ask: Callable[[np.ndarray], object], queries: np.ndarray) -> float:
    """Return the time per query in batches."""
    began = time.perf_counter_ns()
    for start in range(0, len(queries), BATCH):
        ask(queries[start : start + BATCH])
    return (time.perf_counter_ns() - began) / 1_000 / len(queries)


def bare_us(index: HSimIndex, other: HSimIndex, queries: Numbers) -> float:
    """Return the time per query of LMDB's calls alone: a listing for each match.

    The matches come from another index, so these rows are no more likely to be in the processor's caches than during a
    query.
    """
    matches = [match for found in other.query_many(queries, max_distance=K) for match in found]
    listed = sorted(match.fingerprint.to_bytes(8, "big") for match in matches)
    with index.store.view() as view:
        began = time.perf_counter_ns()
        cursor = view.transaction.cursor(view.databases["documents"])
        for key in listed:
            cursor.set_range(key)
            cursor.item()
        return (time.perf_counter_ns() - began) / 1_000 / len(queries)


def load(index: HSimIndex, runs: Path, fingerprints: Numbers | Signatures, doc_ids: Sequence[str]) -> None:
    """Load an index in bulk."""
    with index.bulk(runs) as bulk:
        for start in range(0, len(fingerprints), RUN_DOCUMENTS):
            part = slice(start, start + RUN_DOCUMENTS)
            bulk.add_run(fingerprints[part], doc_ids[part], 0)
        bulk.merge()
        bulk.delete()


class Race:
    """Runs the same queries on all contestants in turns; `rounds` has the queries of each round."""

    def __init__(self, contestants: Sequence[Contestant], rounds: Sequence[Numbers]) -> None:
        self.contestants = contestants
        self.rounds = rounds
        singles = {one.name: self._singles(one) for one in contestants}
        times = in_turns(singles, len(rounds))
        batched = [one for one in contestants if one.ask_many]
        # Every other query has a match.
        self.columns = {
            "p50": {name: [statistics.median(one) for one in taken] for name, taken in times.items()},
            "match": {name: [statistics.median(one[::2]) for one in taken] for name, taken in times.items()},
            "none": {name: [statistics.median(one[1::2]) for one in taken] for name, taken in times.items()},
            "batch": in_turns({one.name: self._batches(one, rounds) for one in batched}, len(rounds)),
            "matching": in_turns(
                {one.name: self._batches(one, [queries[::2] for queries in rounds]) for one in batched}, len(rounds)
            ),
        }

    def _singles(self, one: Contestant) -> Callable[[], list[float]]:
        queries = itertools.cycle(self.rounds)
        return lambda: times_us(one.ask, one.singles(next(queries)[: one.single_queries]))

    def _batches(self, one: Contestant, rounds: Sequence[Numbers]) -> Callable[[], float]:
        queries = itertools.cycle(rounds)
        return lambda: batch_us(one.ask_many, next(queries))

    def print_times(self) -> None:
        """Print the times, and their ratios to faiss's."""
        titles = ("single p50", "with match", "without", "batch", "all match")
        print("µs per query        " + "".join(f"{title:>12} {'ratio':>7}" for title in titles))
        for one in self.contestants:
            print(f"{one.name:20}" + "".join(_cell(taken, one.name) for taken in self.columns.values()), flush=True)

    def print_bars(self, ours: str, title: str) -> None:
        """Print the bars of one contestant."""
        single, batch = (
            median_ratio(self.columns[name][ours], self.columns[name][Faiss.name]) for name in ("p50", "batch")
        )
        print_bar(f"{title}: single query p50, {ours} / faiss", single, at_most=1.5)
        print_bar(f"{title}: batch of {BATCH:,} queries, {ours} / faiss", batch, at_most=1 if native_package() else 2)
        for name, most in (("p50", 20), ("batch", 5)) if native_package() else (("p50", 25), ("batch", 12)):
            print_bar(f"{title}: {name}, {ours}, µs", statistics.median(self.columns[name][ours]), at_most=most)

    def print_matching(self, ours: Sequence[Hsimhash], title: str) -> None:
        """Print the times of batches with matches, the time of LMDB's own calls, and the default layout's bar."""
        for one, other in zip(ours, reversed(ours), strict=True):
            asked = [queries[: 2 * BATCH : 2] for queries in self.rounds]
            bare = statistics.median(bare_us(one.index, other.index, queries) for queries in asked)
            taken = statistics.median(self.columns["matching"][one.name])
            print(f"       {one.name}: {taken:.1f} µs a query in a batch with matches, LMDB's own calls {bare:.1f}")
        print_bar(f"{title}: batch of {BATCH:,} queries with matches, {one.name}, µs each", taken, at_most=12)

    def print_far_bars(self, title: str, k: int) -> None:
        """Print the bars for a greater distance."""
        single = self.columns["p50"]
        ratio = min(median_ratio(single[f"hsimhash {layout}"], single[Faiss.name]) for layout in LAYOUTS)
        print_bar(f"{title}: single query p50 at {k} bits, the better layout / faiss", ratio, at_most=0.6)
        wide = statistics.median(single[f"hsimhash {LAYOUTS[0]}"])
        print_bar(f"{title}: single query p50 at {k} bits, layout {LAYOUTS[0]}, µs", wide, at_most=1_500)

    def wrong_answers(self) -> int:
        """Print and return how many answers differ from the first contestant's."""
        queries = np.concatenate(self.rounds)
        expected = self.contestants[0].answers(queries)
        wrong = 0
        for one in self.contestants[1:]:
            count = len(queries) if one.ask_many else one.single_queries
            found = one.answers(queries[:count])
            differing = sum(answer != other for answer, other in zip(found, expected[:count], strict=True))
            wrong += differing
            print(f"{'WRONG' if differing else 'equal'}  {one.name}: {differing} of {count:,} answers differ")
        matched = sum(map(bool, expected))
        print(f"       {matched:,} of {len(expected):,} queries have matches, {sum(map(len, expected)):,} in all")
        return wrong


def _cell(taken: Mapping[str, list[float]], name: str) -> str:
    if name not in taken:
        return ""
    return f"{statistics.median(taken[name]):12,.1f} {median_ratio(taken[name], taken[Faiss.name]):7.2f}"


def warm_up(contestants: Sequence[Contestant], queries: Numbers) -> None:
    """Let each contestant answer the queries in batches."""
    for one in contestants:
        for start in range(0, len(queries), BATCH):
            one.ask_many(queries[start : start + BATCH])


def race(title: str, fingerprints: Numbers, folder: Path, *, has_bars: bool) -> int:
    """Compare the contestants on these fingerprints; return how many answers were wrong."""
    rng = np.random.default_rng(SEED + 1)
    rounds = [half_near(rng, fingerprints, BATCHES * BATCH, K) for _ in range(ROUNDS)]
    print(f"\n## {title}: {len(fingerprints):,} documents; a round has {len(rounds[0]):,} queries")
    ours = [Hsimhash(layout, fingerprints, folder) for layout in LAYOUTS]
    contestants: list[Contestant] = [*ours, Faiss(fingerprints)]
    warm_up(contestants, half_near(rng, fingerprints, WARMING_QUERIES, K))
    if len(fingerprints) <= PYPI_DOCUMENTS:
        contestants.append(PypiSimhash(fingerprints))
    contestants.append(BruteForce(fingerprints))
    taken = Race(contestants, rounds)
    taken.print_times()
    if has_bars:
        taken.print_bars(ours[0].name, title)
        taken.print_matching(ours, title)
    wrong = taken.wrong_answers()
    for k in FAR if has_bars else ():
        print(f"\n### within {k} bits")
        able = [*ours, *(one for one in contestants if isinstance(one, (Faiss, BruteForce)))]
        for one in able:
            one.set_distance(k)
        far = Race(able, [half_near(rng, fingerprints, BATCH, k) for _ in range(ROUNDS)])
        far.print_times()
        far.print_far_bars(title, k)
        wrong += far.wrong_answers()
    for one in ours:
        one.index.close()
    return wrong


def by_distance(fingerprints: Numbers, folder: Path) -> None:
    """Print the time of a query by signature, by layout and distance; keys and sketches are random."""
    rng = np.random.default_rng(SEED + 2)
    sketches, keys = (random_fingerprints(rng, len(fingerprints)) for _ in range(2))
    signatures = Signatures(fingerprints, sketches, keys, np.zeros(len(fingerprints), np.uint8))
    asked = list(signatures[rng.permutation(len(signatures))[:DISTANCE_QUERIES]])
    print(f"\n## queries by signature, each with a match: {len(fingerprints):,} documents; µs at k =")
    print(f"{'layout':8}{'bytes a document':>18}" + "".join(f"{k:>9}" for k in DISTANCES))
    for layout in reversed(LAYOUTS):
        url = f"lmdb://{folder / f'signed-{layout}'}"
        with HSimIndex.create(url, layout=layout, profile="auto-2") as index:
            load(index, folder / f"runs-signed-{layout}", signatures, list(map(str, range(len(fingerprints)))))
            ways = {
                k: functools.partial(_p50_us, functools.partial(index.query, max_distance=k), asked) for k in DISTANCES
            }
            in_turns(ways, 1)
            times = in_turns(ways, ROUNDS)
            size = index.describe()["file_bytes"] / len(fingerprints)
        print(
            f"{layout:8}{size:18,.0f}" + "".join(f"{statistics.median(times[k]):9,.0f}" for k in DISTANCES), flush=True
        )


def hot(folder: Path) -> None:
    """Query a fingerprint that a million documents share, and ordinary ones, in the same index."""
    print(
        f"\n## {HOT_DOCUMENTS:,} documents under one fingerprint, {NORMAL_DOCUMENTS:,} under others; limit={HOT_LIMIT}"
    )
    rng = np.random.default_rng(SEED)
    usual = random_fingerprints(rng, NORMAL_DOCUMENTS)
    fingerprints = np.concatenate([np.full(HOT_DOCUMENTS, usual[0]), usual])
    queries = {"hot": [int(usual[0])] * SINGLE_QUERIES, "usual": half_near(rng, usual[1:], SINGLE_QUERIES, K).tolist()}
    with HSimIndex.create(f"lmdb://{folder / 'hot'}", layout="10", profile="auto-1") as index:
        load(
            index, folder / "runs-hot", fingerprints, [f"https://example.org/{n:07d}" for n in range(len(fingerprints))]
        )
        ask = functools.partial(index.query, limit=HOT_LIMIT)
        measures = {name: functools.partial(_p50_us, ask, asked) for name, asked in queries.items()}
        taken = in_turns(measures, ROUNDS)
    for name, times in taken.items():
        print(f"{name:20}{statistics.median(times):12,.1f} µs")
    print_bar("hot fingerprint / usual query", median_ratio(taken["hot"], taken["usual"]), at_most=10)


def _p50_us(ask: Callable[[Query], object], queries: Sequence[Query]) -> float:
    return statistics.median(times_us(ask, queries))


def main() -> int:
    given = options(__doc__, has_data=True, large=(False, "also 10 million documents: minutes, and 5 GB of disk"))
    sizes = [100_000, 1_000_000] + [10_000_000] * given.large
    print_conditions("queries", packages=("faiss-cpu", "simhash"), seed=SEED, k=K, rounds=ROUNDS, rows=sizes)
    wrong = 0
    for size in sizes:
        with scratch_folder(given.scratch) as folder:
            fingerprints = random_fingerprints(np.random.default_rng(SEED), size)
            wrong += race(f"random, {size:.0e}".replace("e+0", "e"), fingerprints, folder, has_bars=size == 1_000_000)
            if size >= RUN_DOCUMENTS:
                by_distance(fingerprints, folder)
    real = data_file(given.data, FINGERPRINTS)
    with scratch_folder(given.scratch) as folder:
        if real is not None:
            wrong += race("real", real_fingerprints(real), folder, has_bars=False)
        hot(folder)
    return print_outcomes([Outcome(not wrong, f"answers that differ between peers: {wrong:,}")])


if __name__ == "__main__":
    sys.exit(main())
