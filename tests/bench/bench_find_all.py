"""`hsimhash find-all` against peers, file to file: `python -m tests.bench.bench_find_all [--large]`.

Each contestant is a separate process that reads a file of decimal fingerprints and writes one of pairs: ours; PyPI
`simhash-pybind` with input and output in Python; and simhash-cpp's own program if `SIMHASH_CPP` names its binary. They
run in turns; times are medians over the rounds, ratios medians of the rounds' ratios. Answers are compared. A measured
memory peak is never below that of this process, because a new process starts with it.
"""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.bench.bench_pairs import DENSE, EQUAL_SHARE, OURS, best_peer, simhash_pybind_core, simhash_pybind_version
from tests.support.fingerprint_sets import Numbers, random_fingerprints
from tests.support.programs import in_turns, median_ratio, options, print_bar, print_conditions, scratch_folder

SEED = 20_070_508
K = 3
BLOCKS = (4, 5, 6)
ROUNDS = 3
WRITTEN_AT_ONCE = 1 << 16  # so that this process stays small

# The fastest input and output in plain Python that we know; the core accepts a set of integers directly.
_PYBIND = """
import importlib.util, sys
core, blocks, distance, source, target = sys.argv[1:]
spec = importlib.util.spec_from_file_location("_simhash", core)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with open(source, "rb") as file:
    given = set(map(int, file.read().split()))
pairs = module.find_all(given, int(blocks), int(distance))
with open(target, "w") as file:
    file.write("".join(map("[%d, %d]\\n".__mod__, map(tuple, pairs))))
"""


class Taken(NamedTuple):
    """The resources that a process used."""

    seconds: float
    peak_gib: float


def run(command: Sequence[str | Path]) -> Taken:
    """Run a command to its end."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, [str(part) for part in command])
    return Taken(time.perf_counter() - began, usage.ru_maxrss / (1 << 20))


def commands(source: Path, blocks: Sequence[int], core: Path | None) -> dict[str, list[str | Path]]:
    """Return each contestant's command; its output is `source` with its name after it."""

    def arguments(m: int, name: str) -> list[str | Path]:
        return ["--blocks", str(m), "--distance", str(K), "--input", source, "--output", output(source, name)]

    found: dict[str, list[str | Path]] = {
        OURS: [sys.executable, "-m", "hsimhash", "find-all", *arguments(blocks[0], OURS)]
    }
    for m in blocks:
        if core is not None:
            name = f"simhash-pybind m={m}"
            found[name] = [sys.executable, "-c", _PYBIND, core, str(m), str(K), source, output(source, name)]
        if "SIMHASH_CPP" in os.environ:
            name = f"simhash-cpp m={m}"
            found[name] = [os.environ["SIMHASH_CPP"], *arguments(m, name)]
    return found


def output(source: Path, name: str) -> Path:
    """Return the path of a contestant's output."""
    return source.with_name(f"{source.name} {name}")


def lines(path: Path) -> list[bytes]:
    """Return the sorted lines of a file."""
    return sorted(path.read_bytes().splitlines())


def race(title: str, values: Numbers, folder: Path, blocks: Sequence[int], rounds: int) -> dict[str, list[Taken]]:
    """Let all contestants find the pairs of the same fingerprints; print their times."""
    print(f"\n## {title}")
    source = folder / "numbers"
    with source.open("w") as file:
        for start in range(0, len(values), WRITTEN_AT_ONCE):
            file.writelines(map("%d\n".__mod__, values[start : start + WRITTEN_AT_ONCE].tolist()))
    contestants: dict[str, Callable[[], Taken]] = {
        name: functools.partial(run, command)
        for name, command in commands(source, blocks, simhash_pybind_core()).items()
    }
    taken = in_turns(contestants, rounds)
    ours = statistics.median(one.seconds for one in taken[OURS])
    print(f"{'':22}{'seconds':>9} {'/ ours':>8} {'GiB':>6}")
    for name, its in taken.items():
        seconds = statistics.median(one.seconds for one in its)
        print(f"{name:22}{seconds:9.3f} {seconds / ours:8.2f} {max(one.peak_gib for one in its):6.2f}", flush=True)
    expected = lines(output(source, OURS))
    wrong = [name for name in taken if lines(output(source, name)) != expected]
    print(
        f"{'FAIL' if wrong else 'PASS'}  {len(expected):,} pairs, other answers: {', '.join(wrong) or 'none'}",
        flush=True,
    )
    if wrong:
        sys.exit(1)
    return taken


def main() -> None:
    given = options(__doc__, large=(False, "also 10 million fingerprints: minutes"))
    print_conditions("find-all, file to file", seed=SEED, k=K, rounds=ROUNDS, peer=simhash_pybind_version())
    rng = np.random.default_rng(SEED)
    with scratch_folder(given.scratch) as folder:
        race("random, 100,000", random_fingerprints(rng, 100_000), folder, BLOCKS, ROUNDS)
        million = random_fingerprints(rng, 1_000_000)
        taken = race("random, 1,000,000", million, folder, BLOCKS, ROUNDS)
        seconds = {name: [one.seconds for one in its] for name, its in taken.items()}
        if (peer := best_peer(seconds)) is not None:
            ratio = median_ratio(peer, seconds[OURS])
            print_bar("1e6 random: simhash-pybind's best m / hsimhash", ratio, at_least=3)
        equal = np.where(rng.random(len(million)) < EQUAL_SHARE, rng.choice(million[:1_000], len(million)), million)
        race(f"1,000,000, of which {EQUAL_SHARE:.0%} equal one of 1,000", equal, folder, BLOCKS, ROUNDS)
        dense = race(f"one dense bucket, {DENSE:,}", np.arange(DENSE, dtype=np.uint64) * np.uint64(4), folder, (6,), 1)
        print_bar("dense bucket, seconds", dense[OURS][0].seconds, at_most=5)
        if given.large:
            many = race("random, 10,000,000", random_fingerprints(rng, 10_000_000), folder, (5, 6), 1)[OURS][0]
            print_bar("1e7 random, seconds", many.seconds, at_most=25)
            print_bar("1e7 random, GiB at the peak", many.peak_gib, at_most=1.5)


if __name__ == "__main__":
    main()
