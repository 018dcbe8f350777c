"""The methods that `bench_quality` compares: hsimhash's command, its peers' packages, exact Jaccard."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tests.support.labelled_pairs import Found, LabelledSet

PEERS = Path(sys.prefix, "datatrove", "bin", "python")  # a separate environment, also for text-dedup
BEFORE = ("--profile", "auto-2", "--distance", "6", "--max-sketch", "16")
MINHASHES = 128
MOST_BITS = 16  # the greatest distance tried for PyPI simhash
LEAST_JACCARD = 0.05
NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
MARKS = "\u0300-\u036f\u0610-\u061a\u064b-\u065f\u0900-\u0dff"  # parts of words that \w does not match
CHARACTERS = frozenset(re.findall(f"[{NO_SPACES}]", "".join(map(chr, range(0x10000)))))
UNIT = re.compile(rf"[{NO_SPACES}]|(?:[^\W_{NO_SPACES}]|[{MARKS}])+")


@dataclass(frozen=True, slots=True)
class Method:
    """How to find pairs in a set, and the closeness cutoffs from which one is chosen per family of sets."""

    name: str
    find: Callable[[LabelledSet, Path], Found]
    cutoffs: tuple[float, ...] = (0.0,)
    is_own: bool = False


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def by_dedup(arguments: Sequence[str], given: LabelledSet, work: Path) -> Found:
    """Run `hsimhash dedup`; its CPU time includes the program's start and its report."""
    out = work / "dedup"
    fixed = ("--pairs", "all", "--table-format", "jsonl", "--workers", "1", "--quiet", "--overwrite")
    command = [sys.executable, "-m", "hsimhash", "dedup", given.path.absolute(), "--out", out, *fixed, *arguments]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HSIMHASH_")}
    env["PYTHONPATH"] = str(Path(__file__).parents[2])
    began = cpu_seconds()
    done = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 7):  # 7: some texts were rejected, so their pairs are missed
        raise RuntimeError(done.stderr)
    took_s, place = cpu_seconds() - began, {one: at for at, one in enumerate(given.ids)}
    with (out / "pairs.jsonl").open(encoding="utf-8") as lines:
        return fixed_pairs(((place[row["left"]], place[row["right"]]) for row in map(json.loads, lines)), took_s)


def fixed_pairs(pairs: Iterator[tuple[int, int]], cpu_s: float) -> Found:
    """Return pairs that are all equally close."""
    positions = np.array(list(pairs), np.int64).reshape(-1, 2)
    return Found(positions, np.zeros(len(positions)), cpu_s)


def by_simhash(given: LabelledSet, work: Path) -> Found:
    """Compare all fingerprints of PyPI `simhash`."""
    from tests.bench.pypi_simhash import by_pypi_simhash

    began = cpu_seconds()
    values = by_pypi_simhash(given.texts)
    distances = np.bitwise_count(values[:, None] ^ values[None, :])
    pairs = np.argwhere(np.triu(distances <= MOST_BITS, 1))
    return Found(pairs, -distances[pairs[:, 0], pairs[:, 1]].astype(np.float64), cpu_seconds() - began)


def shingles(texts: Sequence[str]) -> list[set[str]]:
    """Return each text's runs of 3 words, or of 5 characters if most texts are in a script without spaces."""
    units = [UNIT.findall(unicodedata.normalize("NFKC", text).lower()) for text in texts]
    shares = [np.mean([one in CHARACTERS for one in row]) for row in units if row]
    n = 5 if shares and np.median(shares) > 0.5 else 3
    return [{" ".join(row[at : at + n]) for at in range(max(1, len(row) - n + 1))} if row else set() for row in units]


def by_datasketch(threshold: float, given: LabelledSet, work: Path) -> Found:
    """Query datasketch's MinHashLSH for each text, as in its documentation."""
    from datasketch import MinHash, MinHashLSH

    began = cpu_seconds()
    lsh, pairs = MinHashLSH(threshold=threshold, num_perm=MINHASHES), []
    for place, row in enumerate(shingles(given.texts)):
        minhash = MinHash(num_perm=MINHASHES)
        minhash.update_batch([one.encode("utf-8", "replace") for one in row])
        if row:
            pairs += [(place, other) for other in lsh.query(minhash)]
            lsh.insert(place, minhash)
    return fixed_pairs(iter(pairs), cpu_seconds() - began)


def by_jaccard(given: LabelledSet, work: Path) -> Found:
    """Compute the Jaccard index of all pairs that share a shingle; keep those of at least `LEAST_JACCARD`."""
    began = cpu_seconds()
    rows = shingles(given.texts)
    sizes, holders = np.array([len(row) for row in rows]), dict[str, list[int]]()
    pairs, indexes = [np.empty((0, 2), np.int64)], [np.empty(0)]
    for place, row in enumerate(rows):
        before = [at for one in row for at in holders.setdefault(one, [])]
        shared = np.bincount(np.array(before, np.intp), minlength=place)[:place]
        index = shared / np.maximum(1, sizes[:place] + len(row) - shared)
        near = np.flatnonzero(index >= LEAST_JACCARD)
        pairs.append(np.stack([near, np.full(len(near), place)], axis=1))
        indexes.append(index[near])
        for one in row:
            holders[one].append(place)
    return Found(np.concatenate(pairs), np.concatenate(indexes), cpu_seconds() - began)


def by_peer(peer: str, given: LabelledSet, work: Path) -> Found:
    """Run a peer of `minhash_peers.py`, which measures its own CPU time, without imports."""
    out = work / f"{peer}.npy"
    script = Path(__file__).with_name("minhash_peers.py")
    done = subprocess.run([PEERS, script, peer, given.path, out], check=True, capture_output=True, text=True)
    return fixed_pairs(map(tuple, np.load(out).tolist()), float(done.stdout.split()[-1]))


METHODS = (
    Method("hsimhash fitted", partial(by_dedup, ()), is_own=True),
    Method("hsimhash unfitted", partial(by_dedup, ("--fit", "off")), is_own=True),
    Method("hsimhash fitted 3 bits", partial(by_dedup, ("--distance", "3")), is_own=True),
    Method("hsimhash unfitted 3 bits", partial(by_dedup, ("--fit", "off", "--distance", "3")), is_own=True),
    Method("hsimhash auto-2 6 bits", partial(by_dedup, BEFORE), is_own=True),
    Method("PyPI simhash", by_simhash, tuple(map(float, range(-MOST_BITS, 1)))),
    *(Method(f"MinHash {one}", partial(by_datasketch, one)) for one in (0.5, 0.7, 0.8)),
    Method("text-dedup", partial(by_peer, "text-dedup")),
    Method("datatrove", partial(by_peer, "datatrove")),
    Method("exact Jaccard", by_jaccard, tuple(np.arange(LEAST_JACCARD, 0.96, 0.05).round(2).tolist())),
)
