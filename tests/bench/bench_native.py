"""The speed of hsimhash-native against numpy: `python -m tests.bench.bench_native [--data DIR] [--documents N]`.

Each text is 2 KB of UTF-8, made of sentences from labelled sets. Measures the CPU time per text in one thread, numpy
and native in turns, as medians over the rounds; and the wall time of a stream with one and with two threads.

Then compares with MinHash libraries in Rust, with half of the texts in each language: rensa with 128 permutations,
whose shingles must be found in Python, and gaoya with 125 hashes in 25 bands, which finds them itself. Finally compares
`hsimhash dedup` of a file, including its report, with the shortest scripts that use the two (`rust_minhash.py`): whole
commands on all cores.
"""

from __future__ import annotations

import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from hsimhash.fingerprint import DEFAULT_PROFILE, Profile
from hsimhash.fingerprint.stream import signature_stream
from hsimhash.native_package import SWITCH, signer_name
from tests.support.fingerprint_sets import read_documents
from tests.support.programs import (
    data_file,
    in_turns,
    median_ratio,
    options,
    print_bar,
    print_conditions,
    scratch_folder,
    seconds,
)

SETS = {
    "English": ("debian-install-guide", r"(?<=[.!?])\s+", " "),
    "Chinese": ("zh-wiki-paragraphs", r"(?<=。)", ""),
}
TEXT_BYTES = 2_000
PROFILES = ("auto-3", "auto-2")
SEED, ROUNDS, JOB_ROUNDS = 11, 5, 3
BATCHES = 12


def texts_of(path: Path, ends: str, between: str, count: int) -> list[str]:
    """Return texts of randomly chosen sentences."""
    rng = random.Random(SEED)
    sentences = (one for document in read_documents(path) for one in re.split(ends, document["text"]))
    pool = [one for one in sentences if 15 < len(one) < 400]
    texts = []
    for _ in range(count):
        parts, size = [], 0
        while size < TEXT_BYTES:
            parts.append(rng.choice(pool))
            size += len(parts[-1].encode())
        texts.append(between.join(parts))
    return texts


def cpu_us(profile: Profile, texts: Sequence[str], switch: str) -> float:
    """Return the CPU time per text."""
    os.environ[SWITCH] = switch
    start = time.process_time()
    profile.signatures(texts)
    return 1e6 * (time.process_time() - start) / len(texts)


def stream_s(profile: Profile, texts: Sequence[str], workers: int) -> float:
    """Return the wall time of a stream."""
    start = time.perf_counter()
    for _ in signature_stream(profile, [texts] * BATCHES, workers):
        pass
    return time.perf_counter() - start


def shingles(text: str) -> list[str]:
    """Return the shingles for rensa: runs of three words, or of five characters in Chinese."""
    words = re.findall(r"\w+", text.lower())
    if max(text) <= "\u2fff":
        return [" ".join(words[at : at + 3]) for at in range(len(words) - 2)]
    joined = "".join(words)
    return [joined[at : at + 5] for at in range(len(joined) - 4)]


def sign_with_rensa(texts: Sequence[str]) -> None:
    import rensa

    for text in texts:
        rensa.RMinHash(128, SEED).update(shingles(text))


def sign_with_gaoya(texts: Sequence[str]) -> None:
    import gaoya

    index = gaoya.minhash.MinHashStringIndex(32, 0.7, 25, 5, 125, "char", True, (5, 5))
    for number, text in enumerate(texts):
        index.insert_document(number, text)


def print_peers(texts: Sequence[str]) -> None:
    """Measure the default profile against the peers."""
    profile = Profile.named(DEFAULT_PROFILE)

    def taken_us(sign: Callable[[Sequence[str]], object]) -> float:
        start = time.process_time()
        sign(texts)
        return 1e6 * (time.process_time() - start) / len(texts)

    os.environ[SWITCH] = "1"
    signers = {"hsimhash": profile.signatures, "rensa": sign_with_rensa, "gaoya": sign_with_gaoya}
    ways: dict[str, Callable[[], float]] = {name: partial(taken_us, sign) for name, sign in signers.items()}
    in_turns(ways, 1)
    taken = in_turns(ways, ROUNDS)
    print("; ".join(f"{name} {statistics.median(one):.0f} µs a text" for name, one in taken.items()))
    for peer in ("rensa", "gaoya"):
        print_bar(f"{peer}, times hsimhash-native", median_ratio(taken[peer], taken["hsimhash"]), at_least=2.2)


def write_job(path: Path, texts: Sequence[str]) -> None:
    """Write documents; every tenth is an earlier one with its end cut off."""
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            text = texts[number // 2][:-100] if number % 10 == 9 else text
            file.write(json.dumps({"id": f"d{number:07}", "text": text}, ensure_ascii=False) + "\n")


def print_jobs(source: Path, folder: Path) -> None:
    """Compare whole commands."""

    def taken_s(*arguments: object) -> float:
        command = [sys.executable, "-m", *map(str, arguments)]
        return seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))

    ways: dict[str, Callable[[], float]] = {
        "hsimhash": partial(taken_s, "hsimhash", "dedup", source, "--out", folder / "out", "--overwrite", "--quiet"),
        "rensa": partial(taken_s, "tests.bench.rust_minhash", "rensa", source, folder / "rensa"),
        "gaoya": partial(taken_s, "tests.bench.rust_minhash", "gaoya", source, folder / "gaoya"),
    }
    taken = in_turns(ways, JOB_ROUNDS)
    print("; ".join(f"{name} {statistics.median(one):.1f} s" for name, one in taken.items()))
    for peer in ("rensa", "gaoya"):
        print_bar(f"a script with {peer}, times dedup", median_ratio(taken[peer], taken["hsimhash"]), at_least=2)


def main() -> int:
    """Measure, and print the bars."""
    given = options(
        __doc__,
        has_data=True,
        documents=(2_000, "texts of each language"),
        job_documents=(50_000, "texts of each language for dedup"),
    )
    print_conditions(
        f"{signer_name()} and numpy", packages=("rjieba", "rensa", "gaoya"), texts=given.documents, rounds=ROUNDS
    )
    paths = {language: data_file(given.data, f"{name}/docs.jsonl.gz") for language, (name, _, _) in SETS.items()}
    if not signer_name().startswith("hsimhash-native") or None in paths.values():
        print("nothing to measure: `make native` builds the package, and --data names labelled texts")
        return 0
    mixed: list[str] = []
    for language, path in paths.items():
        assert path is not None
        texts = texts_of(path, *SETS[language][1:], given.documents)
        mixed += texts[::2]
        for name in PROFILES:
            profile = Profile.named(name)
            ways: dict[str, Callable[[], float]] = {
                way: partial(cpu_us, profile, texts, switch) for way, switch in (("numpy", "0"), ("native", "1"))
            }
            in_turns(ways, 1)
            taken = in_turns(ways, ROUNDS)
            numpy_us, native_us = (statistics.median(taken[way]) for way in ("numpy", "native"))
            rate = f"{1e6 / native_us:,.0f} texts/s"
            print(f"{name}, {language}: numpy {numpy_us:.0f} µs, native {native_us:.1f} µs, {rate}")
            print_bar("native, times numpy", median_ratio(taken["numpy"], taken["native"]), at_least=3)
        streams = in_turns({str(count): partial(stream_s, profile, texts, count) for count in (1, 2)}, ROUNDS)
        print_bar(f"two threads on {language}, times one", median_ratio(streams["1"], streams["2"]), at_least=1.8)
    print_peers(mixed)
    with scratch_folder(given.scratch) as folder:
        count = given.job_documents
        each = [texts_of(path, *SETS[language][1:], count) for language, path in paths.items() if path is not None]
        mixed = list(chain.from_iterable(zip(*each, strict=True)))
        write_job(folder / "documents.jsonl", mixed)
        print(f"\n{len(mixed):,} documents, with every tenth a copy from before")
        print_jobs(folder / "documents.jsonl", folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
