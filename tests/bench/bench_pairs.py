"""All pairs against peers: `python -m tests.bench.bench_pairs [--large] [--data DIR]`.

Contestants: `find_pairs` in memory, from an array of fingerprints; PyPI `simhash-pybind` (simhash-cpp's core) with m
blocks, from the set that it takes; faiss's binary hash indexes, filled and then queried for all their fingerprints. All
get the same fingerprints in turns; times are medians over the rounds, ratios medians of the rounds' ratios. A slow peer
has fewer rounds. Answers are compared.
"""

from __future__ import annotations

import functools
import importlib.util
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType

import numpy as np

from hsimhash.layout import Layout
from hsimhash.pairs import Pairs, find_pairs
from tests.support.fingerprint_sets import FINGERPRINTS, Numbers, flipped, random_fingerprints, real_fingerprints
from tests.support.programs import (
    Outcome,
    data_file,
    in_turns,
    median_ratio,
    options,
    print_bar,
    print_conditions,
    print_outcomes,
    seconds,
)

SEED = 20_070_508  # the day of Manku, Jain and Das Sarma's paper
K = 3
BLOCKS = (4, 5, 6)
COMPARED_BLOCKS = range(4, 10)
ROUNDS = 3
MANY_ROUNDS_FINGERPRINTS = 1_000_000  # with more, a round of the peers takes minutes, and faiss is left out
FAISS_HASH_FINGERPRINTS = 100_000  # likewise, for the index that flips bits
DENSE, DENSE_PAIRS = 20_000, 4_721_904
EQUAL_SHARE = 0.3

OURS = "hsimhash"
_PYBIND = Path(sys.prefix, "pybind")
Contestants = dict[str, Callable[[], float]]


def simhash_pybind_core() -> Path | None:
    """Return the peer's compiled core; the Makefile installs it where its import name does not clash with others."""
    found = next((_PYBIND / "simhash").glob("_simhash*.so"), None)
    if found is None:
        print("SKIP  simhash-pybind is not there; 'make bench' installs it")
    return found


def simhash_pybind_version() -> str:
    """Return the peer's name and version."""
    found = next(iter(distributions(path=[str(_PYBIND)])), None)
    return f"simhash-pybind {found.version if found else '(not there)'}"


@functools.cache
def simhash_pybind() -> ModuleType | None:
    """Return the peer's module; None if it is missing."""
    path = simhash_pybind_core()
    if path is None:
        return None
    spec = importlib.util.spec_from_file_location("_simhash", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ours(values: Numbers, max_distance: int = K) -> Contestants:
    return {OURS: lambda: seconds(lambda: find_pairs(values, max_distance=max_distance))}


def pybind(values: Numbers, blocks: tuple[int, ...] = BLOCKS, max_distance: int = K) -> Contestants:
    core = simhash_pybind()
    if core is None:
        return {}
    given = set(values.tolist())
    return {
        f"simhash-pybind m={m}": functools.partial(seconds, functools.partial(core.find_all, given, m, max_distance))
        for m in blocks
    }


def faiss_indexes(values: Numbers) -> Contestants:
    import faiss

    def all_within(make: Callable[[], faiss.IndexBinary]) -> None:
        index = make()
        index.add(rows)
        index.range_search(rows, K + 1)  # the radius is exclusive

    def flipping() -> faiss.IndexBinary:
        index = faiss.IndexBinaryHash(64, 16)
        index.nflip = K
        return index

    rows = values.view(np.uint8).reshape(-1, 8)
    makers: dict[str, Callable[[], faiss.IndexBinary]] = {
        "faiss MultiHash": lambda: faiss.IndexBinaryMultiHash(64, K + 1, 64 // (K + 1))
    }
    if len(values) <= FAISS_HASH_FINGERPRINTS:
        makers["faiss Hash"] = flipping
    return {name: functools.partial(seconds, functools.partial(all_within, make)) for name, make in makers.items()}


def take(contestants: Contestants, slow: Contestants) -> dict[str, list[float]]:
    """Return the times of all contestants; slow ones run only one round."""
    return in_turns(contestants, ROUNDS) | in_turns(slow, 1)


def print_times(times: Mapping[str, list[float]]) -> None:
    """Print each contestant's median, and its ratio to ours."""
    print(f"{'':22}{'seconds':>9} {'/ ours':>8}")
    for name, taken in times.items():
        ratio = statistics.median(taken) / statistics.median(times[OURS])
        print(f"{name:22}{statistics.median(taken):9.3f} {ratio:8.2f}", flush=True)


def best_peer(times: Mapping[str, list[float]]) -> list[float] | None:
    """Return simhash-pybind's times with its fastest m."""
    peers = [taken for name, taken in times.items() if name.startswith("simhash-pybind")]
    return min(peers, key=statistics.median, default=None)


def random_ones(size: int) -> None:
    """Find all pairs of random fingerprints."""
    values = random_fingerprints(np.random.default_rng(SEED), size)
    print(f"\n## random, {size:,}")
    peers = pybind(values)
    if size <= MANY_ROUNDS_FINGERPRINTS:
        times = take(ours(values) | peers, faiss_indexes(values))
    else:
        times = take(ours(values), peers)
    print_times(times)
    peer = best_peer(times)
    if peer is not None and size == 1_000_000:
        print_bar("1e6 random: simhash-pybind's best m / hsimhash", median_ratio(peer, times[OURS]), at_least=2)


def large(size: int) -> None:
    """Find all pairs of many random fingerprints, in a separate process to measure its peak memory."""
    print(f"\n## random, {size:,}, process of its own")
    code = (
        "import resource, time, numpy as np\n"
        "from hsimhash.pairs import find_pairs\n"
        f"values = np.random.default_rng({SEED}).integers(0, 2**64, {size}, np.uint64)\n"
        "began = time.perf_counter()\n"
        "find_pairs(values)\n"
        "print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = [subprocess.run([sys.executable, "-c", code], check=True, capture_output=True) for _ in range(ROUNDS)]
    taken, peaks = zip(*(map(float, one.stdout.split()) for one in done), strict=True)
    print_bar("1e7 random, seconds", statistics.median(taken), at_most=12)
    print_bar("1e7 random, GiB at the peak", max(peaks) / (1 << 20), at_most=1)


def dense_bucket() -> None:
    """Find all pairs of fingerprints that share their first 47 bits."""
    print(f"\n## one dense bucket, {DENSE:,}")
    values = np.arange(DENSE, dtype=np.uint64) * np.uint64(4)
    times = take(ours(values), pybind(values, BLOCKS[-1:]))
    print_times(times)
    found = find_pairs(values)
    print_bar("dense bucket, seconds", statistics.median(times[OURS]), at_most=1.5)
    print(f"{'PASS' if len(found.left) == DENSE_PAIRS else 'FAIL'}  {len(found.left):,} pairs ({DENSE_PAIRS:,})")


def equal_ones(size: int) -> None:
    """Find all pairs if many or all fingerprints are equal."""
    rng = np.random.default_rng(SEED)
    values = random_fingerprints(rng, size)
    some = np.where(rng.random(size) < EQUAL_SHARE, rng.choice(values[:1_000], size), values)
    print(f"\n## {size:,}, of which {EQUAL_SHARE:.0%} equal one of 1,000")
    print_times(take(ours(some) | pybind(some), {}))
    times = in_turns({"random": ours(values)[OURS], "equal": ours(np.full(size, values[0]))[OURS]}, ROUNDS)
    print_bar(f"{size:,} equal ones / random ones", median_ratio(times["equal"], times["random"]), at_most=1)


def real_ones(data: Path | None) -> None:
    """Find all pairs of the labelled documents' fingerprints."""
    path = data_file(data, FINGERPRINTS)
    if path is None:
        return
    values = real_fingerprints(path)
    for k, blocks in ((3, BLOCKS), (6, (7, 8, 9))):
        print(f"\n## real, {len(values):,}, k = {k}")
        print_times(take(ours(values, k) | pybind(values, blocks, k), {}))


def wrong_answers() -> int:
    """Print and return for how many m the peer's answer differs from ours."""
    core = simhash_pybind()
    if core is None:
        return 0
    rng = np.random.default_rng(SEED)
    values = random_fingerprints(rng, 100_000)
    values[:10_000] = flipped(rng, values[10_000:20_000], np.arange(10_000) % (K + 3))
    given = set(values.tolist())
    print(f"\n## answers, {len(values):,} random and planted")
    wrong = 0
    for m in COMPARED_BLOCKS:
        theirs = {tuple(pair) for pair in core.find_all(given, m, K)}
        answers = [by_value(values, find_pairs(values, layout=layout)) for layout in (Layout.even(m, m - K), None)]
        wrong += any(answer != theirs for answer in answers)
        print(f"{'equal' if answers == [theirs] * 2 else 'WRONG'}  m={m}: {len(theirs):,} pairs", flush=True)
    return wrong


def by_value(values: Numbers, pairs: Pairs) -> set[tuple[int, int]]:
    """Return pairs in the peer's form: the lesser fingerprint, the greater one."""
    ends = values[pairs.left], values[pairs.right]
    return set(zip(np.minimum(*ends).tolist(), np.maximum(*ends).tolist(), strict=True))


def main() -> int:
    given = options(__doc__, has_data=True, large=(False, "also 10 million fingerprints, against the peers: minutes"))
    sizes = [100_000, 1_000_000] + [10_000_000] * given.large
    print_conditions(
        "pairs", packages=("faiss-cpu",), seed=SEED, k=K, rounds=ROUNDS, rows=sizes, peer=simhash_pybind_version()
    )
    wrong = wrong_answers()
    for size in sizes:
        random_ones(size)
    large(10_000_000)
    dense_bucket()
    equal_ones(1_000_000)
    real_ones(given.data)
    return print_outcomes([Outcome(not wrong, f"answers that differ from the peer's: {wrong}")])


if __name__ == "__main__":
    sys.exit(main())
