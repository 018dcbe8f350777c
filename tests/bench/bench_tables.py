"""Tables: `python -m tests.bench.bench_tables [--large]`.

Writes an LMDB index of random fingerprints as tables, plain and with `compress`, and measures the speed and the size on
disk. Then the index, both tables and faiss `IndexBinaryMultiHash` (see `bench_index`) get the same queries, half of
which have a match; the answers are compared. `get_many` and `check` come last.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from tests.bench.bench_index import BATCH, ROUNDS, WARMING_QUERIES, Contestant, Faiss, Hsimhash, K, Race, warm_up
from tests.support.fingerprint_sets import Numbers, half_near, random_fingerprints
from tests.support.programs import Outcome, options, print_bar, print_conditions, print_outcomes, scratch_folder

SEED = 47
SIZE, LARGE = 1_000_000, 10_000_000
LAYOUTS = {"10": K, "4": 6}  # layouts, and the distance for each
BATCHES = 2


class Tables(Hsimhash):
    """The tables of an index, queried in the same way."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.index = HSimIndex.open(f"tables://{folder}")


def written(index: HSimIndex, folder: Path, *, compress: bool) -> Tables:
    """Write tables; print how long that took, and their size on disk."""
    name = "compressed" if compress else "tables"
    began = time.perf_counter()
    count = index.write_tables(folder, compress=compress)
    print(f"\n{name}: written at {count / (time.perf_counter() - began):,.0f} documents/s", flush=True)
    tables = Tables(name, folder)
    facts = tables.index.store.describe()
    row, document = int(facts["rows_bytes"]) / int(facts["drawer_rows"]), int(facts["documents_bytes"]) / count
    print(f"{name}: {int(facts['file_bytes']) / count:.1f} bytes a document, {document:.1f} of them beside its rows")
    print_bar(f"{name}: bytes a row", row, at_most=9 if not compress else 5.5 if count >= LARGE else 6.5)
    return tables


def print_rest(tables: Tables, size: int) -> None:
    """Print how long looking up ids and a check take."""
    ids = list(map(str, np.random.default_rng(SEED).integers(0, size, BATCH).tolist()))
    tables.index.get_many(ids)
    began = time.perf_counter()
    tables.index.get_many(ids)
    print(f"{tables.name}: {(time.perf_counter() - began) / BATCH * 1e6:.1f} µs for an id", flush=True)
    began = time.perf_counter()
    with HSimIndex.open(f"tables://{tables.folder}"):
        opened_s = time.perf_counter() - began
    began = time.perf_counter()
    tables.index.check()
    print(f"{tables.name}: opened in {1_000 * opened_s:.0f} ms, checked in {time.perf_counter() - began:.1f} s")


def main() -> int:
    given = options(__doc__, large=(False, "10,000,000 documents instead of 1,000,000"))
    size = LARGE if given.large else SIZE
    print_conditions("Tables", packages=("faiss-cpu",), seed=SEED, documents=size, rounds=ROUNDS)
    stored = random_fingerprints(np.random.default_rng(SEED), size)
    wrong = 0
    for layout, k in LAYOUTS.items():
        with scratch_folder(given.scratch) as folder:
            wrong += measure(layout, k, stored, folder)
    return print_outcomes([Outcome(not wrong, f"answers that differ: {wrong:,}")])


def measure(layout: str, k: int, stored: Numbers, folder: Path) -> int:
    """Compare an index with its tables and faiss, for one layout; return how many answers differ."""
    print(f"\n## layout {layout}, within {k} bits")
    rng = np.random.default_rng(SEED + 1)
    embedded = Hsimhash(layout, stored, folder)
    both = [written(embedded.index, folder / f"tables-{one}", compress=one) for one in (False, True)]
    contestants: list[Contestant] = [embedded, *both, Faiss(stored)]
    for one in contestants:
        one.set_distance(k)
    warm_up(contestants, half_near(rng, stored, WARMING_QUERIES, k))
    rounds = [half_near(rng, stored, BATCHES * BATCH, k) for _ in range(ROUNDS)]
    race = Race(contestants, rounds)
    race.print_times()
    for tables in both:
        single = statistics.median(race.columns["p50"][tables.name])
        print_bar(f"{tables.name}: single query p50, µs", single, at_most=1_000)
        print_rest(tables, len(stored))
    return race.wrong_answers()


if __name__ == "__main__":
    sys.exit(main())
