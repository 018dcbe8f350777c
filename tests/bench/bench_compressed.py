"""Compressed tables: `python -m tests.bench.bench_compressed [--large]`.

Random fingerprints are written as tables, and matched: queries of which half lie near a stored one, all at once. The
answers to a part of them are compared with brute force. Beside it `query_many` of an LMDB index with the same layout.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from hsimhash.compressed import CompressedTables, write_tables
from hsimhash.fingerprint import Profile
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.layout import Layout
from tests.support.fingerprint_sets import Numbers, half_near, page_ids, random_fingerprints
from tests.support.programs import Outcome, options, print_bar, print_conditions, print_outcomes, scratch_folder

SEED = 47
SIZE, LARGE = 1_000_000, 10_000_000
QUERIES, CHECKED = 100_000, 500
K = 3


def brute_force(stored: Numbers, queries: Numbers) -> set[tuple[int, int]]:
    """Return the pairs of a query's position and a fingerprint within k bits."""
    return {
        (place, int(value))
        for place, query in enumerate(queries)
        for value in stored[np.bitwise_count(stored ^ query) <= K]
    }


def main() -> int:
    given = options(__doc__, large=(False, "10,000,000 documents instead of 1,000,000"))
    size = LARGE if given.large else SIZE
    print_conditions("Compressed tables", packages=("pyarrow",), seed=SEED, documents=size, queries=QUERIES)
    rng = np.random.default_rng(SEED)
    stored = np.unique(random_fingerprints(rng, size))
    queries = half_near(rng, stored, QUERIES, K)
    with scratch_folder(given.scratch) as folder:
        path, tables = folder / "given.tsv", folder / "tables"
        pairs = zip(page_ids(0, len(stored)), stored.tolist(), strict=True)
        path.write_text("".join(f"{doc_id}\t{value:016x}\n" for doc_id, value in pairs))
        reading = InputOptions("fingerprints")
        inputs = find_inputs([str(path)], reading)
        began = time.perf_counter()
        write_tables(inputs, reading, tables, layout=Layout.parse("10"), profile=Profile.named("auto-2"))
        print(f"written: {len(stored) / (time.perf_counter() - began):,.0f} documents/s", flush=True)
        sizes = [one.stat().st_size for one in tables.glob("drawer-*.parquet")]
        bound = 64 - np.log2(len(stored))
        print(f"bytes a row: {sum(sizes) / len(sizes) / len(stored):.2f}; log2(2^64/n) bits are {bound / 8:.2f}")
        print_bar("bytes a row", sum(sizes) / len(sizes) / len(stored), at_most=5.5 if given.large else 6)
        began = time.perf_counter()
        found = CompressedTables(tables).match(queries)
        scanned_s = time.perf_counter() - began
        print(f"matched: {QUERIES / scanned_s:,.0f} queries/s, {10 * len(stored) / scanned_s:,.0f} rows/s", flush=True)
        part = found.queries < CHECKED
        got = set(zip(found.queries[part].tolist(), found.fingerprints[part].tolist(), strict=True))
        outcome = Outcome(got == brute_force(stored, queries[:CHECKED]), f"{len(got):,} pairs equal to brute force")
        if not given.large:
            compare(folder, stored, queries, scanned_s)
        return print_outcomes([outcome])


def compare(folder: Path, stored: Numbers, queries: Numbers, scanned_s: float) -> None:
    """Print how long an LMDB index takes for the same queries."""
    with HSimIndex.create(f"lmdb://{folder}/index", layout="10", profile="auto-2") as index:
        with index.bulk(folder / "runs") as bulk:
            bulk.add_run(stored, page_ids(0, len(stored)), 0)
            with index.store.writing():
                bulk.merge()
        began = time.perf_counter()
        index.query_many(queries, max_distance=K)
        print(f"query_many on LMDB / match: {(time.perf_counter() - began) / scanned_s:.2f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
