"""An embedded index larger than memory: `python -m tests.bench.bench_huge [--documents 100000000]`.

Uses layout 10, and fingerprints with ids of 38 bytes. `hsimhash ingest` builds the index from a file as usual. Queries
within 3 bits follow, every other one with a match: one by one with nothing cached, which depends on the disk; one by
one with as many cached pages as memory allows; and 1,000 at a time. For 100,000,000 documents it takes half an hour and
25 GB of disk.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from tests.bench.bench_load import MADE, ingested, print_ingested, write_input
from tests.support.fingerprint_sets import Numbers, half_near, random_fingerprints
from tests.support.programs import options, print_bar, print_conditions, scratch_folder, seconds

SEED, K = 5, 3
DOCUMENTS = 100_000_000
COLD, WARMING, WARM, BATCHES, BATCH = 500, 200_000, 20_000, 10, 1_000


def forget(folder: Path) -> None:
    """Drop the cached pages of a folder's files, which must not be mapped."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def show(name: str, times_s: Sequence[float]) -> None:
    """Print the median and the tail of some times."""
    ordered = sorted(times_s)
    median, p99 = statistics.median(ordered), ordered[len(ordered) * 99 // 100]
    print(f"{name}: median {median * 1e6:,.1f} µs, p99 {p99 * 1e6:,.1f}, most {ordered[-1] * 1e6:,.0f}", flush=True)


def build(fingerprints: Numbers, folder: Path) -> Path:
    """Ingest the documents; return the folder of the index."""
    source = folder / "documents.tsv"
    write_input(source, fingerprints)
    one = ingested(source, folder)
    print(f"ingest: {one.rate:,.0f} documents/s")
    print_ingested(one, source)
    source.unlink()
    return folder / "index"


def timed(query: Callable[[int], object], asked: Sequence[int]) -> list[float]:
    """Return how long each query takes."""
    return [seconds(lambda one=one: query(one)) for one in asked]  # type: ignore[misc]


def main() -> None:
    given = options(__doc__, documents=(DOCUMENTS, "how many"))
    print_conditions("an index larger than memory", seed=SEED, k=K, **MADE, documents=given.documents)
    rng = np.random.default_rng(SEED)
    with scratch_folder(given.scratch) as scratch:
        fingerprints = random_fingerprints(rng, given.documents)
        place = build(fingerprints, scratch.resolve())
        asked = half_near(rng, fingerprints, COLD + WARMING + WARM + BATCHES * BATCH, K)
        del fingerprints
        forget(place)
        cold, warming, warm, batches = np.split(asked, np.cumsum([COLD, WARMING, WARM]))
        with HSimIndex.open(f"lmdb://{place}") as index:
            show("single, cold", timed(lambda one: index.query(one, max_distance=K), cold.tolist()))
            for start in range(0, len(warming), BATCH):
                index.query_many(warming[start : start + BATCH], max_distance=K)
            warm_s = timed(lambda one: index.query(one, max_distance=K), warm.tolist())
            show("single, warm", warm_s)
            of_batches = [
                seconds(lambda part=part: index.query_many(part, max_distance=K)) / BATCH  # type: ignore[misc]
                for part in np.split(batches, BATCHES)
            ]
            show("in a batch of 1,000, each", of_batches)
            print_bar("single, warm, µs", statistics.median(warm_s) * 1e6, at_most=1_000)


if __name__ == "__main__":
    main()
