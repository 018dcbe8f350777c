"""The speed of making fingerprints: `python -m tests.bench.bench_fingerprint [--data DIR] [--documents N]`.

One process: CPU time per document, with contestants in turns; medians over the rounds. Several processes: wall time
from the first result to the last, so that their startup does not count. Import: wall time of a fresh interpreter.
"""

from __future__ import annotations

import logging
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import mmh3

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.stream import signature_stream
from tests.bench.pypi_simhash import PypiSimhash
from tests.support.fingerprint_sets import han_count, read_documents
from tests.support.programs import data_file, in_turns, median_ratio, options, print_bar, print_conditions, seconds

CHINESE = ("zh-laws", "lctt-zh-revisions", "zh-wiki-paragraphs")
ENGLISH = "plag-articles"
CHARACTERS = 930
HAN_SHARE = 0.6  # the minimum share in a Chinese text
TOP = 100
ROUNDS = 7
PLAIN_DOCUMENTS = 60  # per round; peers take milliseconds per document
BATCH = 256
STREAM_BATCHES = 40
IMPORTS = ("import numpy", "from hsimhash import *")  # all public names, because the bare import does not load them
PROFILES = ("auto-1", "zh-1", "words-1", "jieba-topn-1", "jieba-topn-1:top=100")
SIGNING = "auto-2"
SIGNED = f"{SIGNING}, signatures"


def chinese_texts(data: Path, count: int) -> list[str]:
    """Return Chinese texts of `CHARACTERS` characters each, taken evenly from all the corpora."""
    pieces = []
    for name in CHINESE:
        whole = "\n".join(document["text"] for document in read_documents(data / name / "docs.jsonl.gz"))
        pieces += [whole[at : at + CHARACTERS] for at in range(0, len(whole) - CHARACTERS, CHARACTERS)]
    mostly = [piece for piece in pieces if han_count(piece) >= HAN_SHARE * len(piece)]
    return mostly[:: max(1, len(mostly) // count)][:count]


def plain_jieba(text: str) -> int:
    """Fingerprint as jieba's users do today: extract_tags, mmh3, a loop over the bits."""
    import jieba.analyse

    sums = [0.0] * 64
    for word, weight in jieba.analyse.extract_tags(text, topK=TOP, withWeight=True):
        hashed = mmh3.hash64(word, signed=False)[0]
        for bit in range(64):
            sums[bit] += weight if hashed >> bit & 1 else -weight
    return sum(1 << bit for bit in range(64) if sums[bit] > 0)


def pypi_on_tags(text: str) -> int:
    """Fingerprint jieba's tags with PyPI simhash."""
    import jieba.analyse

    return int(PypiSimhash(jieba.analyse.extract_tags(text, topK=TOP, withWeight=True)).value)


def pypi_on_text(text: str) -> int:
    """Fingerprint a text with PyPI simhash's own 4-grams."""
    return int(PypiSimhash(text).value)


def cpu_of_each(fingerprint: Callable[[str], int], texts: Sequence[str]) -> float:
    """Return the CPU seconds per document, with one call for each."""
    start = time.process_time()
    for text in texts:
        fingerprint(text)
    return (time.process_time() - start) / len(texts)


def cpu_of_batch(make: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    """Return the CPU seconds per document, with one call for all."""
    start = time.process_time()
    make(texts)
    return (time.process_time() - start) / len(texts)


def measure_one_process(texts: list[str], title: str) -> dict[str, list[float]]:
    """Print a table; return each round's CPU seconds per document, by name."""
    few = texts[:: max(1, len(texts) // PLAIN_DOCUMENTS)][:PLAIN_DOCUMENTS]
    contestants: dict[str, Callable[[], float]] = {
        f"plain: extract_tags({TOP}), mmh3, loop": partial(cpu_of_each, plain_jieba, few),
        f"extract_tags({TOP}), PyPI simhash": partial(cpu_of_each, pypi_on_tags, few),
        "PyPI simhash of the text": partial(cpu_of_each, pypi_on_text, few),
        f"{PROFILES[0]}, one text a call": partial(cpu_of_each, Profile.named(PROFILES[0]).fingerprint, few),
        **{name: partial(cpu_of_batch, Profile.named(name).fingerprints, texts) for name in (*PROFILES, SIGNING)},
        SIGNED: partial(cpu_of_batch, Profile.named(SIGNING).signatures, texts),
    }
    in_turns(contestants, 1)  # loads dictionaries, fills the memo
    taken = in_turns(contestants, ROUNDS)
    characters = statistics.mean(map(len, texts))
    print(f"\n{title}: {len(texts):,} texts of {characters:,.0f} characters, one process; plain and peers {len(few)}")
    print(f"{'':38}{'µs/text':>9}{'texts/s':>9}{'ratio':>8}")
    plain = next(iter(taken.values()))
    for name, times in taken.items():
        middle = statistics.median(times)
        print(f"{name:38}{middle * 1e6:9,.0f}{1 / middle:9,.0f}{median_ratio(plain, times):8.1f}", flush=True)
    return taken


def stream_rate(texts: list[str], workers: int) -> float:
    """Return texts per second from the first result, when all workers run, to the last."""
    batches = [texts[(at * BATCH) % len(texts) :][:BATCH] for at in range(STREAM_BATCHES + 2 * workers + 2)]
    results = signature_stream(Profile.named(PROFILES[0]), batches, workers)
    for _ in range(2 * workers + 2):
        next(results)
    start = time.perf_counter()
    count = sum(len(batch.signatures) for batch in results)
    return count / (time.perf_counter() - start)


def measure_processes(texts: list[str], rounds: int = 5) -> float:
    """Print the rates of one process and of two workers; return their ratio."""
    taken = in_turns({str(workers): partial(stream_rate, texts, workers) for workers in (1, 2)}, rounds)
    rates = {name: statistics.median(rate) for name, rate in taken.items()}
    print(f"\nprocesses, {PROFILES[0]}, batches of {BATCH}: 1: {rates['1']:,.0f} texts/s, 2: {rates['2']:,.0f} texts/s")
    return median_ratio(taken["2"], taken["1"])


def main() -> None:
    """Measure, and print the bars."""
    given = options(__doc__, has_data=True, documents=(2_000, "texts of each language"))
    warnings.simplefilter("ignore")  # from jieba itself
    logging.getLogger("jieba").setLevel(logging.ERROR)
    packages = ("rjieba", "jieba", "mmh3", "simhash")
    print_conditions("Speed of fingerprints", packages=packages, texts=given.documents, rounds=ROUNDS, batch=BATCH)
    imports = in_turns(
        {
            statement: partial(seconds, partial(subprocess.run, [sys.executable, "-c", statement], check=True))
            for statement in IMPORTS
        },
        9,
    )
    ours, numpys = (statistics.median(imports[statement]) for statement in reversed(IMPORTS))
    print(f"import    numpy {numpys:.3f} s, hsimhash {ours:.3f} s")
    print_bar("all of hsimhash imported beyond numpy's, s", ours - numpys, at_most=0.15)
    needed = [data_file(given.data, f"{name}/docs.jsonl.gz") for name in (*CHINESE, ENGLISH)]
    if None in needed:
        return
    texts = chinese_texts(given.data, given.documents)
    english = [document["text"] for document in read_documents(given.data / ENGLISH / "docs.jsonl.gz")]
    taken = {
        "Chinese": measure_one_process(texts, "Chinese"),
        "English": measure_one_process(english[: given.documents], "English"),
    }
    scaling = measure_processes(texts)
    print()
    for name, bar in ((PROFILES[0], 12), (SIGNED, 10)):
        speedup = median_ratio(next(iter(taken["Chinese"].values())), taken["Chinese"][name])
        print_bar(f"{name} on Chinese, one process, times the plain route", speedup, at_least=bar)
    for language, times in taken.items():
        for name, bar in ((SIGNING, 0.9), (SIGNED, 0.6)):
            rate = median_ratio(times[PROFILES[0]], times[name])
            print_bar(f"{name} on {language}, texts/s of {PROFILES[0]}'s", rate, at_least=bar)
    print_bar("two worker processes, times one", scaling, at_least=1.7)


if __name__ == "__main__":
    main()
