"""Fingerprints for measurements and comparisons: random ones, near ones, and the real ones of the labelled data."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsimhash import Signatures
from hsimhash.fingerprint.keys import COUNT_SHIFT, SHIFTS, TAG_MASK, TAGS, Keying

FINGERPRINTS = "fingerprints/fingerprints.tsv.gz"
PAIRS = "fingerprints/pairs_within_6.tsv.gz"
LIST_DISTANCE = 6  # the greatest distance in the lists of pairs, in bits

Numbers = NDArray[np.uint64]


def page_ids(start: int, count: int) -> list[str]:
    """Return ids like those of a crawl, for the pages [start, start + count)."""
    return [f"https://www.example.org/page/{number:09d}" for number in range(start, start + count)]


def read_clusters(path: Path) -> dict[str, str]:
    """Return the cluster of each document of a labelled set."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: row["cluster"] for row in csv.DictReader(file, delimiter="\t")}


def random_fingerprints(rng: np.random.Generator, count: int) -> Numbers:
    """Return uniform fingerprints."""
    return rng.integers(0, 2**64, count, np.uint64)


def flipped(rng: np.random.Generator, fingerprints: Numbers, distances: NDArray[np.intp]) -> Numbers:
    """Return each fingerprint with as many random bits flipped as its distance says."""
    places = np.argsort(rng.random((len(fingerprints), 64)), axis=1).astype(np.uint64)
    is_flipped = np.arange(64) < distances[:, None]
    masks = np.bitwise_or.reduce(np.where(is_flipped, np.uint64(1) << places, np.uint64(0)), axis=1)
    return fingerprints ^ masks


def near_and_equal(rng: np.random.Generator, count: int, *, near: float, equal: float, most: int) -> Numbers:
    """Return random fingerprints: a share `near` within `most` bits of others, and a share `equal` from ten values."""
    values = random_fingerprints(rng, count)
    some = int(count * near)
    values[:some] = flipped(rng, values[rng.integers(some, count, some)], rng.integers(1, most + 1, some))
    is_equal = rng.random(count) < equal
    values[is_equal] = values[-10:][rng.integers(0, 10, int(is_equal.sum()))]
    return values


def random_signatures(rng: np.random.Generator, fingerprints: Numbers, keying: Keying = Keying.IN_PARTS) -> Signatures:
    """Return signatures with these fingerprints; about eight sketches are near each other, and about four share a key.

    One in five does not have a sketch; one in five does not have a key. Every other whole key has the same first half
    as another one, so both are filed under one prefix. Keys in parts differ within a group; most share some parts.
    """
    count = len(fingerprints)
    centres, groups = random_fingerprints(rng, count // 8 + 1), rng.integers(0, count // 4 + 2, count)
    sketches = flipped(rng, centres[rng.integers(0, len(centres), count)], rng.integers(0, 20, count))
    if keying is Keying.WHOLE:
        whole = random_fingerprints(rng, count // 4 + 2)
        whole[1::2] = whole[: len(whole) // 2 * 2 : 2] ^ np.uint64(1)
        keys = whole[groups]
    else:
        keys = keys_in_parts(rng, groups)
    sketches[rng.random(count) < 0.2] = 0
    keys[rng.random(count) < 0.2] = 0
    return Signatures(fingerprints, sketches, keys, np.zeros(count, np.uint8), keying)


def keys_in_parts(rng: np.random.Generator, groups: NDArray[np.integer[Any]]) -> Numbers:
    """Return a key for each document: five of its group's six tags in random order; one in ten has fewer.

    Two keys of a group therefore often differ, share only some parts, and have them in different places.
    """
    count = len(groups)
    of_group = rng.integers(0, TAG_MASK + 1, (int(groups.max(initial=0)) + 1, TAGS + 1))
    chosen = np.argsort(rng.random((count, TAGS + 1)), axis=1)[:, :TAGS]
    tags = np.take_along_axis(of_group[groups], chosen, axis=1)
    there = np.where(rng.random(count) < 0.1, rng.integers(1, TAGS, count), TAGS)
    packed = np.where(np.arange(TAGS) < there[:, None], tags << np.array(SHIFTS), 0).sum(axis=1)
    return packed.astype(np.uint64) | there.astype(np.uint64) << np.uint64(COUNT_SHIFT)


def crowded_signatures(rng: np.random.Generator, count: int, keying: Keying) -> Signatures:
    """Return signatures: half of them share keys with many others, half with few.

    Some are equal, or have equal or near fingerprints; one in ten does not have a key, one in ten does not have a
    sketch. Keys in parts differ within a crowd, and some have fewer tags.
    """
    fingerprints = near_and_equal(rng, count, near=0.2, equal=0.1, most=8)
    groups = np.where(rng.random(count) < 0.5, 0, rng.integers(1, min(count // 8, 500) + 2, count))
    centres = random_fingerprints(rng, 502)[groups]
    sketches = flipped(rng, centres, rng.integers(0, 10, count)) * (rng.random(count) >= 0.1)
    keys = groups.astype(np.uint64) + np.uint64(1) << np.uint64(32)
    if keying is not Keying.WHOLE:
        keys = keys_in_parts(rng, groups)
    keys *= rng.random(count) >= 0.1
    found = Signatures(fingerprints, sketches, keys, np.zeros(count, np.uint8), keying)
    return found[np.append(np.arange(count - count // 20), rng.integers(0, count, count // 20))]


def write_signatures(path: Path, ids: Sequence[str], signatures: Signatures) -> None:
    """Write signatures as JSON lines."""
    lines = (json.dumps({"id": doc_id} | one.to_json()) for doc_id, one in zip(ids, signatures, strict=True))
    path.write_text("\n".join(lines) + "\n")


def half_near(rng: np.random.Generator, stored: Numbers, count: int, k: int) -> Numbers:
    """Return queries: every other one within k bits of a stored fingerprint, at uniform distances; the rest random."""
    queries = random_fingerprints(rng, count)
    targets = stored[rng.integers(0, len(stored), len(queries[::2]))]
    queries[::2] = flipped(rng, targets, np.arange(len(targets)) % (k + 1))
    return queries


def read_documents(path: Path) -> list[dict[str, str]]:
    """Return the documents in a folder's docs.jsonl.gz, as the labelled data have it."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def han_count(text: str) -> int:
    """Return the number of Han characters."""
    return sum("\u4e00" <= char <= "\u9fff" for char in text)


def real_fingerprints(path: Path) -> Numbers:
    """Return the fingerprints of the labelled documents, in the order of their rows."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return np.array([int(row["fingerprint_hex"], 16) for row in csv.DictReader(file, delimiter="\t")], np.uint64)


def real_pairs(path: Path, max_distance: int) -> set[tuple[int, int, int]]:
    """Return all pairs of rows within `max_distance` bits, at most `LIST_DISTANCE`: (row, row, distance)."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        found = {
            (int(row["row1"]), int(row["row2"]), int(row["distance"])) for row in csv.DictReader(file, delimiter="\t")
        }
    return {pair for pair in found if pair[2] <= max_distance}
