"""Many different documents in one cluster: `python -m tests.bench.bench_crowds [--large] [--store URL]`.

Runs `hsimhash dedup` on n documents made from one page, each with up to three words replaced, and on n unrelated ones,
in separate processes. Time may grow with n, but not with its square. Some of the clusters are compared with brute
force. `--large` adds 1,000,000 documents, half of them in ten clusters. With a store, it measures claims and queries
instead, in an index of n near signatures with one key; the index is dropped at the end.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.fingerprint import DEFAULT_PROFILE, Profile, Signatures
from hsimhash.fingerprint.bits import Uint64s
from hsimhash.index import HSimIndex
from hsimhash.pairs import find_pairs, star
from hsimhash.store import backend_of
from hsimhash.store.backend import Opening
from tests.support.programs import options, print_bar, print_conditions, scratch_folder, seconds

SEED = 38
SIZES = (10_000, 20_000, 40_000, 80_000)
LARGE, LARGE_CROWDS = 1_000_000, 10
COMPARED = 5_000  # documents whose clusters are compared with clusters of all pairs
INDEXED = (1_000, 4_000, 16_000, 64_000, 256_000)
CALLS, WHOLE_QUERIES = 50, 5
CENTRE = np.uint64(0x9E3779B97F4A7C15)
WORDS, WORDS_IN_DOCUMENT, REPLACED = 5_000, 130, 3
MIB = 1 << 20


def write_documents(path: Path, count: int, crowds: int, share: float = 1.0) -> None:
    """Write documents: a share of them made from `crowds` pages, the others unrelated."""
    rng = np.random.default_rng(SEED)
    pages = rng.integers(0, WORDS, (max(1, crowds), WORDS_IN_DOCUMENT))
    with path.open("w", encoding="ascii") as file:
        for number in range(count):
            if crowds and rng.random() < share:
                words = pages[rng.integers(0, crowds)].copy()
                changed = rng.integers(0, WORDS_IN_DOCUMENT, rng.integers(0, REPLACED + 1))
                words[changed] = rng.integers(0, WORDS, len(changed))
            else:
                words = rng.integers(0, WORDS, WORDS_IN_DOCUMENT)
            text = " ".join(f"w{word}" for word in words.tolist())
            file.write(json.dumps({"id": f"d{number:07}", "text": text}) + "\n")


def command(source: str, out: Path, *options: str) -> list[str]:
    words = ["dedup", source, "--out", str(out), "--quiet", "--overwrite", "--table-format", "jsonl", *options]
    return [sys.executable, "-m", "hsimhash", *words]


def dedup_s(path: Path, out: Path) -> float:
    """Return how many seconds a dedup takes."""
    return seconds(lambda: subprocess.run(command(str(path), out), check=True, stdout=subprocess.DEVNULL))


def is_plain(path: Path, out: Path) -> bool:
    """Whether the first documents' clusters equal those of all their pairs; in a stream, signatures alone decide."""
    lines = path.read_text().splitlines(keepends=True)[:COMPARED]
    given = "".join(lines).encode()
    subprocess.run(command("-", out, "--fit", "off"), input=given, check=True, stdout=subprocess.DEVNULL)
    signatures = Profile.named(DEFAULT_PROFILE).signatures([json.loads(line)["text"] for line in lines])
    expected = star(signatures, find_pairs(signatures, max_distance=DEFAULT_DISTANCE), np.arange(len(lines))).kept
    rows = [json.loads(line) for line in (out / "clusters.jsonl").read_text().splitlines()]
    return [int(row["kept_id"][1:]) for row in rows] == expected.tolist()


def near_signatures(rng: np.random.Generator, count: int) -> Signatures:
    """Return signatures with one key; fingerprints differ from a centre in up to six bits, sketches in up to three."""

    def flips(bits: int) -> Uint64s:
        drawn = np.uint64(1) << rng.integers(0, 64, (count, bits), np.uint64)
        return np.bitwise_xor.reduce(np.where(rng.random((count, bits)) < 0.7, drawn, np.uint64(0)), axis=1)

    return Signatures.of(CENTRE ^ flips(6), CENTRE ^ flips(3), np.full(count, CENTRE))


def measure_index(url: str) -> None:
    """Print the times of calls on an index with a crowd."""
    print(f"{'documents':>10}{'claim, ms':>12}{'limit=10, ms':>14}{'all matches, ms':>17}{'matches':>9}")
    rng, stored = np.random.default_rng(SEED), 0
    with HSimIndex.create(url, profile="auto-2") as index:
        index.slow_s = None
        for count in INDEXED:
            signatures = near_signatures(rng, count - stored)
            index.add_many(signatures, [f"d{number}" for number in range(stored, count)])
            stored = count
            asked = near_signatures(rng, CALLS)
            queries = [asked.at(place) for place in range(CALLS)]
            claimed = [seconds(partial(index.claim, one, f"claimed {n}")) for n, one in enumerate(queries)]
            limited = [seconds(partial(index.query, one, limit=10)) for one in queries]
            whole = [seconds(partial(index.query, one)) for one in queries[:WHOLE_QUERIES]]
            columns = [1_000 * statistics.median(times) for times in (claimed, limited, whole)]
            matches = len(index.query(queries[0]))
            print(f"{count:10,}{columns[0]:12.2f}{columns[1]:14.2f}{columns[2]:17.1f}{matches:9,}", flush=True)
    backend_of(url).drop(url, Opening(), is_sure=lambda _: True, say=lambda _: None)


def main() -> None:
    """Measure, and print a table."""
    given = options(str(__doc__), large=(False, "1,000,000 documents too"), store=("", "URL of an index to make"))
    print_conditions("crowds")
    if given.store:
        measure_index(given.store)
        return
    with scratch_folder(given.scratch) as folder:
        path, out = folder / "in.jsonl", folder / "out"
        print(f"{'documents':>10}{'one cluster, s':>16}{'unrelated, s':>14}{'pairs':>9}{'memory, MiB':>13}")
        times = []
        for count in SIZES:
            write_documents(path, count, 0)
            alone = dedup_s(path, out)
            write_documents(path, count, 1)
            times.append(dedup_s(path, out))
            pairs = json.loads((out / "stats.json").read_text())["pairs"]
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
            print(f"{count:10,}{times[-1]:16.2f}{alone:14.2f}{pairs:9,}{peak:13,}", flush=True)
        print_bar("greatest time for twice the documents", max(b / a for a, b in pairwise(times)), at_most=2.3)
        print_bar("clusters are those of all pairs", float(is_plain(path, out)), at_least=1)
        if given.large:
            write_documents(path, LARGE, 0)
            alone = dedup_s(path, out)
            write_documents(path, LARGE, LARGE_CROWDS, 0.5)
            print_bar("half in ten clusters / unrelated", dedup_s(path, out) / alone, at_most=1.5)


if __name__ == "__main__":
    main()
