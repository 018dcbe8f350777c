"""Near-duplicates of a file of texts: `python -m tests.bench.bench_dedup [--large]`.

Compares `hsimhash dedup --fit off`, from text to clusters and report, with `hsimhash fingerprint` of the same file:
both as whole commands in separate processes, in turns. `fingerprint` has one process, so `dedup` gets only one, too; it
is also measured with one per core. Then compares `dedup` with its defaults, which fit weights to the file, with `--fit
off`. Times are medians, ratios medians of the rounds' ratios.

One document in ten is a copy of an earlier one with a single word replaced. Clusters are compared with brute force over
all pairs of signatures, in blocks; earlier documents are kept first.

`--large` also measures the memory for a file of ten million fingerprints, one in ten near an earlier one, and for as
many with sketches and keys.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np

from hsimhash import Profile, Signature
from hsimhash.cover import DEFAULT_DISTANCE
from hsimhash.fingerprint.recipe import DEFAULT_PROFILE
from hsimhash.fingerprint.signature import MAX_SKETCH, are_alike
from tests.support.programs import in_turns, median_ratio, options, print_bar, print_conditions, scratch_folder, seconds

SEED = 11
DOCUMENTS, ROUNDS = 100_000, 3
LARGE, FINGERPRINTS = 1_000_000, 10_000_000
WORDS, WORDS_IN_DOCUMENT = 20_000, 147  # about 1 KB
COPIED_SHARE = 0.1
ROWS_AT_ONCE = 2_000  # for comparing all fingerprints with all others
LINES_AT_ONCE = 1 << 18
MIB = 1 << 20
GIB = 1 << 30


def write_input(path: Path, documents: int) -> None:
    """Write documents of random words, some of them near copies."""
    rng = np.random.default_rng(SEED)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
    vocabulary = ["".join(rng.choice(letters, rng.integers(3, 10))) for _ in range(WORDS)]
    numbers = rng.integers(0, WORDS, (documents, WORDS_IN_DOCUMENT))
    for copy in np.flatnonzero(rng.random(documents) < COPIED_SHARE).tolist():
        if copy:
            numbers[copy] = numbers[rng.integers(0, copy)]
            numbers[copy, rng.integers(0, WORDS_IN_DOCUMENT)] = rng.integers(0, WORDS)
    with path.open("w", encoding="ascii") as file:
        for number, row in enumerate(numbers.tolist()):
            text = " ".join([vocabulary[word] for word in row])
            file.write(json.dumps({"id": f"https://www.example.org/page/{number:09d}", "text": text}) + "\n")


def command_s(*arguments: object, stdin: Path, output: Path) -> float:
    """Return how many seconds a command takes."""
    command = [sys.executable, "-m", "hsimhash", *map(str, arguments)]
    with stdin.open("rb") as given, output.open("wb") as printed:
        return seconds(lambda: subprocess.run(command, stdin=given, stdout=printed, check=True))


def dedup_s(source: Path, folder: Path, *options: object) -> float:
    """Return how many seconds `hsimhash dedup` takes."""
    out, printed = folder / "results", folder / "summary"
    arguments = ("dedup", source, "--out", out, "--overwrite", "--quiet", "--table-format", "jsonl", *options)
    return command_s(*arguments, stdin=Path(os.devnull), output=printed)


def fingerprint_s(source: Path, folder: Path) -> float:
    """Return how many seconds `hsimhash fingerprint` takes."""
    return command_s("fingerprint", "-", "--signature", stdin=source, output=folder / "signatures")


def plain_kept(fingerprints: np.ndarray, sketches: np.ndarray, keys: np.ndarray) -> dict[int, int]:
    """Return which document is kept for each, preferring earlier ones, by comparing all signatures with all others."""
    near: dict[int, list[int]] = {}
    keying = Profile.named(DEFAULT_PROFILE).key_kind
    for start in range(0, len(fingerprints), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        distances = np.bitwise_count(fingerprints[part, None] ^ fingerprints[start:])
        places = np.nonzero(np.triu(are_alike(sketches[part, None], sketches[start:], MAX_SKETCH, distances), 1))
        row, column = (place + start for place in places)
        is_pair = (distances[places] <= DEFAULT_DISTANCE) | keying.shared(keys[row], keys[column])
        for one, other in zip(row[is_pair].tolist(), column[is_pair].tolist(), strict=True):
            near.setdefault(one, []).append(other)
    kept: dict[int, int] = {}
    for number in range(len(fingerprints)):
        if number not in kept:
            kept[number] = number
            for other in near.get(number, ()):
                kept.setdefault(other, number)
    return kept


def clusters_differ(folder: Path) -> int:
    """Return for how many documents a different one is kept than by `plain_kept`."""
    lines = list(map(json.loads, (folder / "signatures").read_text().splitlines()))
    columns = (np.array([int(line.get(name) or "0", 16) for line in lines], np.uint64) for name in Signature._fields)
    rows = [json.loads(line) for line in (folder / "results" / "clusters.jsonl").read_text().splitlines()]
    doc_ids = [row["id"] for row in rows]
    kept = plain_kept(*columns)
    return sum(row["kept_id"] != doc_ids[kept[number]] for number, row in enumerate(rows))


def usual(folder: Path) -> None:
    """Compare `dedup` with fingerprinting alone."""
    source = folder / "documents.jsonl"
    write_input(source, DOCUMENTS)
    taken = in_turns(
        {
            "fingerprint": lambda: fingerprint_s(source, folder),
            "dedup --workers 1, fitted": lambda: dedup_s(source, folder, "--workers", 1),
            "dedup --workers 1": lambda: dedup_s(source, folder, "--workers", 1, "--fit", "off"),
            "dedup": lambda: dedup_s(source, folder, "--fit", "off"),
        },
        ROUNDS,
    )
    print(f"\n## {DOCUMENTS:,} documents, {source.stat().st_size / DOCUMENTS:,.0f} bytes each as JSON")
    for name, times in taken.items():
        print(f"{name:28}{statistics.median(times):8.1f} s  ({min(times):.1f} to {max(times):.1f})")
    print_stages(folder)
    ratio = median_ratio(taken["dedup --workers 1"], taken["fingerprint"])
    print_bar("dedup / fingerprint, one worker each", ratio, at_most=1.3)
    ratio = median_ratio(taken["dedup --workers 1, fitted"], taken["dedup --workers 1"])
    print_bar("dedup, fitted / not fitted", ratio, at_most=1.15)
    print_bar("report.html, MB", _report_mb(folder), at_most=3)
    print_bar("documents whose kept one is not the plain way's", clusters_differ(folder), at_most=0)


def large(folder: Path) -> None:
    """Deduplicate ten times as many documents, once."""
    source = folder / "documents.jsonl"
    write_input(source, LARGE)
    print(f"\n## {LARGE:,} documents: {dedup_s(source, folder):,.0f} s")
    print_stages(folder)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"    peak memory of a process {(peak << 10) / MIB:,.0f} MiB; report {_report_mb(folder):.2f} MB")


def write_signatures(path: Path, documents: int, *, is_plain: bool) -> None:
    """Write ids of 35 characters and random signatures, some near earlier ones; `is_plain`: only fingerprints."""
    rng = np.random.default_rng(SEED)
    columns = rng.integers(1, 1 << 64, (1 if is_plain else 3, documents), np.uint64)
    copies = np.flatnonzero(rng.random(documents) < COPIED_SHARE)[1:]
    bits = np.uint64(1) << rng.integers(0, 64, len(copies), np.uint64)
    columns[:, copies] = columns[:, (rng.random(len(copies)) * copies).astype(np.int64)]
    columns[0, copies] ^= bits
    with path.open("w", encoding="ascii") as file:
        for start in range(0, documents, LINES_AT_ONCE):
            part = zip(*columns[:, start : start + LINES_AT_ONCE].tolist(), strict=True)
            for number, words in enumerate(part, start):
                fields = zip(("fingerprint", "sketch", "key"), (f"{word:016x}" for word in words), strict=False)
                file.write(json.dumps({"id": f"https://www.example.org/p/{number:09d}", **dict(fields)}) + "\n")


def of_fingerprints(folder: Path, *, is_plain: bool) -> None:
    """Deduplicate ten million fingerprints, or signatures, once."""
    source = folder / "given.jsonl"
    write_signatures(source, FINGERPRINTS, is_plain=is_plain)
    command = [sys.executable, "-m", "hsimhash", "dedup", str(source), "--out", str(folder / "results"), "--quiet"]
    with (folder / "summary").open("wb") as printed:
        process = subprocess.Popen([*command, "--fingerprint-field", "fingerprint"], stdout=printed)
        _, status, used = os.wait4(process.pid, 0)  # the peak of this process; RUSAGE_CHILDREN has that of all children
    process.returncode = os.waitstatus_to_exitcode(status)
    what = "fingerprints" if is_plain else "signatures"
    print(f"\n## {FINGERPRINTS:,} {what}, {source.stat().st_size / FINGERPRINTS:,.0f} bytes each with its id")
    print_stages(folder)
    print_bar("exit code of dedup", process.returncode, at_most=0)
    print_bar("peak memory of dedup, GiB", (used.ru_maxrss << 10) / GIB, at_most=1.5)


def _report_mb(folder: Path) -> float:
    return (folder / "results" / "report.html").stat().st_size / 1e6


def print_stages(folder: Path) -> None:
    """Print the stages that the last run reports."""
    stats = json.loads((folder / "results" / "stats.json").read_text())
    stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in stats["run"]["seconds"].items())
    print(f"    {stages}; {stats['dropped']:,} dropped, {stats['clusters']:,} clusters, {stats['pairs']:,} pairs")


def main() -> None:
    given = options(__doc__, large=(False, "also a million texts, ten million fingerprints: minutes, and 3 GB of disk"))
    print_conditions("dedup", seed=SEED, rounds=ROUNDS, rows=DOCUMENTS)
    plain, signed = (partial(of_fingerprints, is_plain=is_plain) for is_plain in (True, False))
    for measure in (usual, large, plain, signed) if given.large else (usual,):
        with scratch_folder(given.scratch) as folder:
            measure(folder)


if __name__ == "__main__":
    main()
