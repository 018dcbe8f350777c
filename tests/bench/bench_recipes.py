"""The speed of each profile, and its equality with its peer: `python -m tests.bench.bench_recipes [--data DIR]`.

Compares with each peer that can be imported: PyPI `simhash`, `simhash-pybind` (as `make bench` installs it),
`text-dedup`, `trafilatura`, `chdb`. Install missing ones into a folder with `pip install --target`, and add it to
PYTHONPATH. Texts of 2 KB are cut from the labelled data, Chinese and English in turns; equality is tested on whole
documents, including edge cases. Times are CPU times of one process, as medians over the rounds.
"""

from __future__ import annotations

import json
import logging
import re
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from hsimhash.fingerprint import TOO_SHORT, Profile
from tests.bench.bench_fingerprint import CHINESE, ENGLISH, cpu_of_batch
from tests.bench.bench_pairs import simhash_pybind
from tests.bench.pypi_simhash import PypiSimhash
from tests.support.fingerprint_sets import read_documents
from tests.support.programs import data_file, in_turns, median_ratio, options, print_bar, print_conditions

LABELLED = ("lctt-zh-revisions", "debian-install-guide", "zh-laws", "licence-texts")
TEXT_BYTES = 2_000
ROUNDS = 5
PASSES = 4  # over the texts per turn, after two untimed ones, because other turns evict caches
PEER_TEXTS = 60  # per round; peers take milliseconds per text
MOST_CHARACTERS = 20_000  # of each document that is compared
GENERIC = (
    *("auto-2", "words-1", "chars-1", "zh-1", "words-1:n=3,hash=fnv-1a-64", "words-1:tokens=stop-words,n=4"),
    *("chars-1:hash=md5-last", "words-1:hash=jenkins-lookup3", "words-1:weights=log", "mfonda-1", "java-ik-1"),
)
RATIO = "times the peer of "
BAR = ("words-1", "chars-1", "words-1:n=3,hash=fnv-1a-64")  # shingles and characters: 10,000 texts/s
EDGES = (
    "",
    "a",
    "abc",
    "abcd",
    "!!! ???",
    "İstanbul ΑΣ ΣΑΣ",
    "you and me",
    "x" * 3_000,
    "a b c d e f",
    "ß ŉ",
    "\0a\0b",
)

Peer = Callable[[Sequence[str]], list[int]]


def each(fingerprint: Callable[[str], int]) -> Peer:
    """Turn a peer that takes one text into one that takes many."""
    return lambda texts: list(map(fingerprint, texts))


def of_pypi() -> Peer:
    return each(lambda text: int(PypiSimhash(text).value))


def core() -> Any:
    """Return `simhash-pybind`'s compiled core; raise `ImportError` if it is missing."""
    module = simhash_pybind()
    if module is None:
        raise ImportError("no simhash-pybind")
    return module


def md5_of(piece: str) -> int:
    from hashlib import md5

    return int.from_bytes(md5(piece.encode(), usedforsecurity=False).digest()[:8], "big")


def of_seomoz() -> Peer:
    compute = core().compute
    return each(lambda text: int(compute([md5_of(text[at : at + 4]) for at in range(len(text) - 3)])))


def of_data_juicer() -> Peer:
    compute = core().compute

    def fingerprint(text: str) -> int:
        words = [word for word in re.split(" ", text.lower()) if word]
        return int(compute([md5_of(" ".join(words[at : at + 6])) for at in range(len(words) - 5)]))

    return each(fingerprint)


def of_trafilatura() -> Peer:
    simhash = import_module("trafilatura.deduplication").Simhash
    return each(lambda text: int(simhash(text).hash))


def of_text_dedup() -> Peer:
    module, digest = import_module("text_dedup.simhash"), import_module("xxhash").xxh3_64_digest

    def fingerprint(text: str) -> int:
        found = module.embed_func(text, 0, ngram=3, permutations=None, hash_func=digest)["__signature__"]
        return int.from_bytes(found, "big") if len(found) == 8 else 0

    return each(fingerprint)


def of_clickhouse(function: str) -> Peer:
    query = import_module("chdb").query

    def fingerprints(texts: Sequence[str]) -> list[int]:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            for number, text in enumerate(texts):
                file.write(json.dumps({"n": number, "t": text}) + "\n")
            file.flush()
            source = f"file('{file.name}', 'JSONEachRow', 'n UInt32, t String')"
            return list(
                map(
                    int,
                    str(query(f"select {function}(t) from {source} order by n settings max_threads=1", "CSV")).split(),
                )
            )

    return fingerprints


PEERS: dict[str, Callable[[], Peer]] = {
    "1e0ng-1": of_pypi,
    "seomoz-1": of_seomoz,
    "data-juicer-1": of_data_juicer,
    "text-dedup-chars-1": of_text_dedup,
    "trafilatura-1": of_trafilatura,
    "clickhouse-1": partial(of_clickhouse, "wordShingleSimHash"),
    "clickhouse-ngram-1": partial(of_clickhouse, "ngramSimHash"),
}


def found_peers() -> dict[str, Peer]:
    """Return the installed peers, and print which are missing."""
    peers = {}
    for name, peer in PEERS.items():
        try:
            peers[name] = peer()
        except ImportError as error:
            print(f"SKIP  {name}: {error}")
    return peers


def cut_texts(data: Path, names: Sequence[str], count: int) -> list[str]:
    """Return texts of about `TEXT_BYTES`, taken evenly from the data."""
    whole = "\n".join(document["text"] for name in names for document in read_documents(data / name / "docs.jsonl.gz"))
    size = TEXT_BYTES * len(whole) // len(whole.encode())
    pieces = [whole[at : at + size] for at in range(0, len(whole) - size, size)]
    return pieces[:: max(1, len(pieces) // count)][:count]


def documents(data: Path, count: int) -> list[str]:
    """Return documents of the labelled sets, in turns, and edge cases."""
    sets = [read_documents(data / name / "docs.jsonl.gz") for name in (*LABELLED, *CHINESE, ENGLISH)]

    def taken() -> Iterator[str]:
        for place in range(max(map(len, sets))):
            yield from (one[place]["text"] for one in sets if place < len(one))

    fitting = [text for text in dict.fromkeys(taken()) if len(text) <= MOST_CHARACTERS]
    return [*fitting[:count], *EDGES]


def differing(name: str, peer: Peer, texts: Sequence[str]) -> tuple[int, int]:
    """Return for how many texts a profile and its peer differ, and how many are too short for the profile."""
    found, theirs = Profile.named(name).fingerprints(texts), peer(texts)
    rows = zip(found.values.tolist(), found.kinds.tolist(), theirs, strict=True)
    others = sum(own != other for own, kind, other in rows if kind != TOO_SHORT)
    return others, int((found.kinds == TOO_SHORT).sum())


def measure(texts: list[str], language: str, peers: dict[str, Peer]) -> dict[str, float]:
    """Print a table of speeds; return texts per second by name, and the ratios to peers by `RATIO` and name."""
    few = texts[:: max(1, len(texts) // PEER_TEXTS)][:PEER_TEXTS]
    names = [*GENERIC, *(name for name in PEERS if name not in GENERIC), "text-dedup-1"]
    contestants: dict[str, Callable[[], float]] = {}
    for name in names:
        if _is_there(name):
            contestants[name] = partial(cpu_when_warm, Profile.named(name).fingerprints, texts, PASSES)
        if name in peers:
            own = texts if name.startswith("clickhouse") else few  # a query costs more than its texts
            contestants[f"peer of {name}"] = partial(cpu_when_warm, peers[name], own, 1)
    in_turns(contestants, 1)  # loads dictionaries, fills memos
    taken = in_turns(contestants, ROUNDS)
    size = statistics.mean(len(text.encode()) for text in texts)
    print(f"\n{language}: {len(texts):,} texts of {size:,.0f} bytes, one process; peers {len(few)}")
    print(f"{'':38}{'µs/text':>9}{'texts/s':>9}{'MB/s':>7}{'times its peer':>16}")
    measured = {}
    for name, times in taken.items():
        middle = statistics.median(times)
        theirs = taken.get(f"peer of {name}")
        measured[name] = 1 / middle
        ratio = ""
        if theirs:
            measured[RATIO + name] = median_ratio(theirs, times)
            ratio = f"{measured[RATIO + name]:.1f}"
        print(f"{name:38}{middle * 1e6:9,.0f}{1 / middle:9,.0f}{size / middle / 1e6:7.1f}{ratio:>16}", flush=True)
    return measured


def cpu_when_warm(make: Callable[[Sequence[str]], object], texts: list[str], passes: int) -> float:
    """Return the CPU seconds per text, after two untimed passes."""
    make(texts * 2)
    return cpu_of_batch(make, texts * passes)


def _is_there(name: str) -> bool:
    """Whether the profile's hash is available."""
    try:
        Profile.named(name).fingerprint("some words of a text, many enough")
    except Exception as error:  # raised for a missing package
        print(f"SKIP  {name}: {error}")
        return False
    return True


def main() -> None:
    """Compare, measure, and print the bars."""
    given = options(__doc__, has_data=True, texts=(1_000, "of each language"), documents=(5_000, "that are compared"))
    logging.getLogger("jieba").setLevel(logging.ERROR)
    packages = ("simhash", "xxhash", "trafilatura", "text-dedup", "chdb")
    print_conditions("Recipes", packages=packages, texts=given.texts, documents=given.documents, rounds=ROUNDS)
    if any(data_file(given.data, f"{name}/docs.jsonl.gz") is None for name in (*LABELLED, *CHINESE, ENGLISH)):
        return
    peers, compared = found_peers(), documents(given.data, given.documents)
    for name, peer in peers.items():
        others, short = differing(name, peer, compared)
        print_bar(f"{name}: of {len(compared):,} documents ({short} too short) differ from the peer", others, at_most=0)
    speeds = {
        "Chinese": measure(cut_texts(given.data, CHINESE, given.texts), "Chinese", peers),
        "English": measure(cut_texts(given.data, (ENGLISH,), given.texts), "English", peers),
    }
    print()
    for language, measured in speeds.items():
        for name in BAR:
            print_bar(f"{name} on {language}, texts/s", measured[name], at_least=10_000)
        for name in peers:
            least = 10 if name == "1e0ng-1" else 1
            print_bar(f"{name} on {language}, times its peer", measured[RATIO + name], at_least=least)


if __name__ == "__main__":
    main()
