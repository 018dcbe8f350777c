"""No match missed, none invented: `python -m tests.stress.exactness [--data DIR]`, on LMDB and in memory.

Distances are 0 to 8. The layouts are all the named ones and three odd ones, one of which has a single drawer. Queries
lie at every distance, 0 to k + 1, from a stored fingerprint, with the flipped bits spread over the layout's blocks in
every possible way, or random. Single queries and batches are compared with brute force over all stored fingerprints. On
the real fingerprints they are compared with the list of all near pairs.

Two layouts are also tested with signatures, with keys in parts and with whole ones. Queries by signature are near a
stored document by fingerprint, sketch and key independently. Brute force determines which documents match, how similar
they are, and whether they are found by distance or by key.
"""

from __future__ import annotations

import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsimhash import HSimIndex, Layout, Match, Signatures
from hsimhash.fingerprint import Signature
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import FAR, MAX_SKETCH, SKETCH_BITS
from hsimhash.layout import FINGERPRINT_BITS, LAYOUT_NAMES
from hsimhash.store.conformance.random_calls import plain_parts
from tests.support.fingerprint_sets import (
    FINGERPRINTS,
    LIST_DISTANCE,
    PAIRS,
    Numbers,
    flipped,
    random_fingerprints,
    random_signatures,
    real_fingerprints,
    real_pairs,
)
from tests.support.programs import Outcome, data_file, options, print_conditions, print_outcomes, scratch_folder

SEED = 64
STORED, QUERIES = 100_000, 20_000
LAYOUTS = (*LAYOUT_NAMES, "7,9,16,20,12/2", "20,44/1", "32,32/2")
DISTANCES = range(9)
SIGNED_LAYOUTS = ("4", "10")
SIGNED_PROFILES = {Keying.IN_PARTS: "auto-3", Keying.WHOLE: "auto-2"}
SIGNED_QUERIES, SIGNED_DISTANCES = 4_000, (0, 3, 6)
SKETCH_BOUNDS = (MAX_SKETCH, None)
SINGLE_SHARE = 8  # one query by signature in this many is also run alone
MOST_SINGLE_S = 10  # target for the single queries of one distance; expensive ones are run less often
RANDOM_SHARE = 10  # one query in this many is random
CROWDED_SHARE = 10  # one stored fingerprint in this many equals or is near another one

_NUMBER_BITS = 24  # for the number of a query or a document in a packed match
_DISTANCE_BITS = 8

Flips = tuple[int, ...]
Given = Numbers | Signatures
Way = tuple[str, HSimIndex, float]  # a name, an index, and its share of the queries
Matches = NDArray[np.uint64]  # packed, ascending: query, document, distance
Holders = dict[tuple[int, ...], list[int]]


@dataclass(frozen=True, slots=True)
class Planted:
    """Queries; the first `len(targets)` are at `distances` from the stored fingerprints at `targets`."""

    queries: Numbers
    targets: NDArray[np.int64]
    distances: NDArray[np.int64]
    patterns: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison; `right` is the number of matches that exist."""

    right: int
    missed: int
    extra: int

    def outcome(self, what: str) -> Outcome:
        """Judge the comparison, which must be exact and have at least one match."""
        is_exact = self.right > 0 and not self.missed and not self.extra
        return Outcome(is_exact, f"{what}: {self.right:,} matches, {self.missed} missed, {self.extra} extra")


def cells(layout: Layout) -> list[list[int]]:
    """Return groups of bit positions that are in the segments of the same drawers: the layout's blocks, or parts.

    A group is part of a block if an inner cut divides the block, or if only a part of a segment is stored.
    """
    drawers_of: dict[tuple[int, ...], list[int]] = {}
    for position in range(FINGERPRINT_BITS):
        filed = tuple(drawer.number for drawer in layout.drawers if position in drawer.positions)
        drawers_of.setdefault(filed, []).append(position)
    return list(drawers_of.values())


def patterns(widths: Sequence[int], flips: int) -> Iterator[Flips]:
    """Yield every way to spread `flips` over cells of these widths."""
    if not widths:
        if not flips:
            yield ()
        return
    for here in range(min(flips, widths[0]) + 1):
        for rest in patterns(widths[1:], flips - here):
            yield (here, *rest)


def stored_fingerprints(rng: np.random.Generator, count: int) -> Numbers:
    """Return fingerprints to store: uniform ones, the extremes, and crowds that are equal or differ in a bit or two."""
    fingerprints = random_fingerprints(rng, count)
    crowded = rng.choice(count, count // CROWDED_SHARE, replace=False)
    models = fingerprints[crowded[rng.integers(0, max(1, len(crowded) // 20), len(crowded))]]
    bits = rng.integers(0, FINGERPRINT_BITS, (2, len(crowded))).astype(np.uint64)
    masks = (np.uint64(1) << bits) * rng.integers(0, 2, bits.shape).astype(np.uint64)
    fingerprints[crowded] = models ^ masks[0] ^ masks[1]
    fingerprints[:3] = [0, 2**64 - 1, 0xFFFF_FFFF]
    return fingerprints


def planted(rng: np.random.Generator, layout: Layout, k: int, stored: Numbers, count: int) -> Planted:
    """Return queries within k + 1 bits of stored fingerprints, with every pattern in turn, followed by random ones."""
    found = cells(layout)
    widths = [len(cell) for cell in found]
    ways = [way for flips in range(k + 2) for way in patterns(widths, flips)]
    rng.shuffle(ways)  # if there are more ways than queries
    near = count - count // RANDOM_SHARE
    targets = rng.integers(0, len(stored), near)
    masks = [_mask(rng, found, ways[number % len(ways)]) for number in range(near)]
    distances = np.array([sum(ways[number % len(ways)]) for number in range(near)])
    queries = np.concatenate([stored[targets] ^ np.array(masks, np.uint64), random_fingerprints(rng, count - near)])
    return Planted(queries, targets, distances, min(len(ways), near))


def _mask(rng: np.random.Generator, found: Sequence[Sequence[int]], way: Flips) -> int:
    positions = [
        position
        for cell, flips in zip(found, way, strict=True)
        if flips
        for position in rng.choice(cell, flips, replace=False).tolist()
    ]
    return sum(1 << (FINGERPRINT_BITS - 1 - position) for position in positions)


def brute_force(stored: Numbers, queries: Numbers, k: int) -> Matches:
    """Return all matches."""

    def near(number: int) -> Matches:
        distances = np.bitwise_count(stored ^ queries[number])
        documents = np.flatnonzero(distances <= k)
        return _packed(number, documents, distances[documents])

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # numpy releases the GIL
        return np.concatenate(list(pool.map(near, range(len(queries)), chunksize=100)))


def _packed(
    queries: int | NDArray[np.int64], documents: NDArray[np.int64], distances: NDArray[np.integer[Any]]
) -> Matches:
    packed = (queries << _NUMBER_BITS | documents) << _DISTANCE_BITS | distances
    return packed.astype(np.uint64)


def answered(answers: Sequence[Sequence[Match]], asked: Iterable[int]) -> Matches:
    """Return the matches that an index returned for the queries with these numbers; its ids are positions."""
    found = [
        (number << (_NUMBER_BITS + _DISTANCE_BITS)) | int(match.doc_id) << _DISTANCE_BITS | match.distance
        for number, matches in zip(map(int, asked), answers, strict=True)
        for match in matches
    ]
    return np.array(found, np.uint64)


def compared(right: Matches, found: Matches) -> Comparison:
    """Count the matches that are missed, extra or returned twice."""
    missed = len(np.setdiff1d(right, found))
    return Comparison(len(right), missed, len(found) - (len(right) - missed))


def misplaced(plan: Planted, right: Matches, k: int) -> int:
    """Return how many planted queries brute force does not find where planted; anything but 0 is a bug in this file."""
    near = np.flatnonzero(plan.distances <= k)
    far = np.flatnonzero(plan.distances > k)
    wanted = _packed(near, plan.targets[near], plan.distances[near])
    seen = right >> np.uint64(_DISTANCE_BITS)
    unwanted = _packed(far, plan.targets[far], plan.distances[far]) >> np.uint64(_DISTANCE_BITS)
    return int(np.count_nonzero(~np.isin(wanted, right)) + np.count_nonzero(np.isin(unwanted, seen)))


def check_layout(
    name: str,
    filled: Callable[[str, Numbers], AbstractContextManager[Sequence[Way]]],
    stored: int,
    queries: int,
    distances: Sequence[int] = DISTANCES,
    most_batch_s: float = math.inf,
) -> Iterator[Outcome]:
    """Compare indexes of a layout with brute force, in batches and one by one, for every distance.

    `filled` yields indexes of the given fingerprints; each document's id is its position. If queries are expensive,
    fewer are run, so that the batches of one distance should take at most `most_batch_s`.
    """
    layout, rng = Layout.parse(name), np.random.default_rng(SEED)
    fingerprints = stored_fingerprints(rng, stored)
    with filled(name, fingerprints) as ways:
        for k in distances:
            plan = planted(rng, layout, k, fingerprints, queries)
            right = brute_force(fingerprints, plan.queries, k)
            if wrong := misplaced(plan, right, k):
                raise AssertionError(f"{wrong} queries of layout {name} are not where they were planted")
            for way, index, share in ways:
                cover = index.cover(k)
                what = (
                    f"layout {name}, {way}, k = {k}: {cover.bucket_count:,} "
                    f"{'ranges' if cover.is_swept else 'buckets'} a query, "
                    f"{plan.patterns:,} ways to flip up to k + 1 bits"
                )
                whole_s = queries * cover.time_us(stored, index.backend.prices) / 1e6
                batched, single = (min(share, most_s / whole_s) for most_s in (most_batch_s, MOST_SINGLE_S))
                yield _asked(index, plan.queries, right, k, batched).outcome(f"{what}, in batches")
                yield _asked(index, plan.queries, right, k, single, is_single=True).outcome(f"{what}, single")


def _asked(
    index: HSimIndex, queries: Numbers, right: Matches, k: int, share: float, *, is_single: bool = False
) -> Comparison:
    """Run a share of the queries; compare the answers with the right ones."""
    asked = np.sort(np.random.default_rng(SEED).permutation(len(queries))[: max(1, round(share * len(queries)))])
    if is_single:
        answers = [index.query(query, max_distance=k) for query in queries[asked].tolist()]
    else:
        answers = index.query_many(queries[asked], max_distance=k)
    expected = right[np.isin(right >> (_NUMBER_BITS + _DISTANCE_BITS), asked)]
    return compared(expected, answered(answers, asked))


def check_signatures(
    name: str,
    filled: Callable[[str, Signatures], AbstractContextManager[Sequence[Way]]],
    stored: int,
    queries: int,
    distances: Sequence[int] = SIGNED_DISTANCES,
    keying: Keying = Keying.IN_PARTS,
) -> Iterator[Outcome]:
    """Compare answers to queries by signature with brute force, for every distance and every limit on sketches."""
    rng = np.random.default_rng(SEED)
    documents = random_signatures(rng, stored_fingerprints(rng, stored), keying)
    asked = list(signed_queries(rng, documents, queries))
    holders = holders_of(documents)
    with filled(name, documents) as ways:
        for k, max_sketch in itertools.product(distances, SKETCH_BOUNDS):
            right = [matching(documents, holders, one, k, max_sketch) for one in asked]
            by_key = sum(match.found_by == "key" for matches in right for match in matches)
            for way, index, share in ways:
                part = slice(round(share * queries))
                single = slice(part.stop // SINGLE_SHARE)
                ask = {"max_distance": k, "max_sketch": max_sketch}
                what = f"layout {name}, {way}, keys {keying.value}, k = {k}, max_sketch = {max_sketch}"
                what += f" ({by_key:,} by key alone)"
                answers = index.query_many(asked[part], **ask)
                yield told(right[part], answers).outcome(f"{what}, in batches")
                answers = [index.query(one, **ask) for one in asked[single]]
                yield told(right[single], answers).outcome(f"{what}, single")


def check_all_signatures(
    filled: Callable[[str, Signatures], AbstractContextManager[Sequence[Way]]], stored: int, queries: int
) -> Iterator[Outcome]:
    """Run `check_signatures` for every layout and kind of keys."""
    for name, keying in itertools.product(SIGNED_LAYOUTS, SIGNED_PROFILES):
        yield from check_signatures(name, filled, stored, queries, keying=keying)


def signed_queries(rng: np.random.Generator, stored: Signatures, count: int) -> Signatures:
    """Return queries whose fingerprint, sketch and key equal a stored document's, are near, unrelated, or missing."""
    targets = stored[rng.integers(0, len(stored), count)]
    others = random_signatures(rng, random_fingerprints(rng, count), stored.keying)
    near = flipped(rng, targets.fingerprints, rng.integers(0, max(SIGNED_DISTANCES) + 2, count))
    alike = flipped(rng, targets.sketches, rng.integers(0, 2 * MAX_SKETCH, count))
    draws = rng.random((3, count))
    return Signatures(
        np.where(draws[0] < 0.7, near, others.fingerprints),
        np.where(draws[1] < 0.7, alike, others.sketches),
        np.where(draws[2] < 0.7, targets.keys, others.keys),
        targets.kinds,
        stored.keying,
    )


def holders_of(stored: Signatures) -> Holders:
    """Return the positions of the documents that have each part of a key."""
    holders: Holders = {}
    for place, key in enumerate(stored.keys.tolist()):
        for part in plain_parts(key, stored.keying):
            holders.setdefault(part, []).append(place)
    return holders


def matching(stored: Signatures, holders: Holders, query: Signature, k: int, max_sketch: int | None) -> list[Match]:
    """Return the right answer to a query; each document's id is its position."""
    distances = np.bitwise_count(stored.fingerprints ^ np.uint64(query.fingerprint))
    bits = np.bitwise_count(stored.sketches ^ np.uint64(query.sketch))
    is_near = distances <= k
    is_match = is_near.copy()
    for part in plain_parts(query.key, stored.keying):
        is_match[holders.get(part, [])] = True
    is_compared = (stored.sketches != 0) & (query.sketch != 0)
    if max_sketch is not None:
        is_match &= ~is_compared | (bits <= np.maximum(0, max_sketch - np.maximum(0, distances.astype(int) - FAR)))
    return sorted(
        Match(
            int(distances[place]),
            str(place),
            int(stored.fingerprints[place]),
            0,
            max(0.0, 1 - 2 * int(bits[place]) / SKETCH_BITS) if is_compared[place] else None,
            "distance" if is_near[place] else "key",
        )
        for place in np.flatnonzero(is_match).tolist()
    )


def told(right: Sequence[Sequence[Match]], answers: Sequence[Sequence[Match]]) -> Comparison:
    """Count the matches that are missed, and those that are extra, returned twice, or in a different order."""
    count = missed = extra = 0
    for expected, found in zip(right, answers, strict=True):
        count += len(expected)
        if list(found) != list(expected):
            lacking = len(set(expected) - set(found))
            missed += lacking
            extra += max(len(found) - (len(expected) - lacking), not lacking)  # one for a different order
    return Comparison(count, missed, extra)


@contextmanager
def embedded(folder: Path, layout: str, fingerprints: Given) -> Iterator[list[Way]]:
    """Yield an index in a folder, and one in memory, which gets fewer queries."""
    with (
        _index_of(fingerprints, layout, folder) as index,
        HSimIndex.create(f"memory://{folder}", layout=layout, profile=profile_of(fingerprints)) as in_memory,
    ):
        in_memory.add_many(fingerprints, list(map(str, range(len(fingerprints)))), first_seen=0)
        yield [("LMDB", index, 1.0), ("memory", in_memory, 0.1)]


@contextmanager
def in_scratch(scratch: Path, layout: str, fingerprints: Given) -> Iterator[list[Way]]:
    """Yield what `embedded` does, in a separate folder."""
    with scratch_folder(scratch) as folder, embedded(folder, layout, fingerprints) as ways:
        yield ways


def profile_of(given: Given) -> str:
    """Return a profile that produces such values, for the index's format."""
    return SIGNED_PROFILES[given.keying] if isinstance(given, Signatures) else "auto-1"


def _index_of(fingerprints: Given, layout: str, folder: Path) -> HSimIndex:
    place = folder / layout.replace("/", "of")
    index = HSimIndex.create(f"lmdb://{place}", layout=layout, profile=profile_of(fingerprints))
    bulk = index.bulk(folder / f"runs-{place.name}")
    half = len(fingerprints) // 2  # half in bulk, in two runs; half one batch at a time, like a crawler
    for start, stop in itertools.pairwise((0, half // 3, half)):
        bulk.add_run(fingerprints[start:stop], [str(number) for number in range(start, stop)], 0)
    bulk.merge()
    bulk.delete()
    for start in range(half, len(fingerprints), 1_000):
        part = fingerprints[start : start + 1_000]
        index.add_many(part, [str(number) for number in range(start, start + len(part))], first_seen=0)
    return index


def check_real(name: str, folder: Path, fingerprints: Numbers, pairs: Path) -> Outcome:
    """Query each of the real fingerprints; compare with the list of all near pairs of rows."""
    k = LIST_DISTANCE
    ids = [str(number) for number in range(len(fingerprints))]
    both = [
        (left, right, bits) for one, other, bits in real_pairs(pairs, k) for left, right in ((one, other), (other, one))
    ]
    left, right, bits = (np.array(column, np.int64) for column in zip(*both, strict=True))
    with _index_of(fingerprints, name, folder) as index:
        found = answered(index.query_many(fingerprints, max_distance=k, exclude=ids), range(len(ids)))
    real = f"layout {name}, the pairs of {len(ids):,} real fingerprints within {k} bits, from both sides"
    return compared(np.sort(_packed(left, right, bits)), found).outcome(real)


def outcomes(data: Path | None, scratch: Path) -> Iterator[Outcome]:
    for name in LAYOUTS:
        yield from check_layout(name, partial(in_scratch, scratch), STORED, QUERIES)
    yield from check_all_signatures(partial(in_scratch, scratch), STORED, SIGNED_QUERIES)
    real, pairs = data_file(data, FINGERPRINTS), data_file(data, PAIRS)
    if real is not None and pairs is not None:
        for name in LAYOUT_NAMES:
            with scratch_folder(scratch) as folder:
                yield check_real(name, folder, real_fingerprints(real), pairs)


def main() -> int:
    given = options(__doc__, has_data=True)
    print_conditions("exactness", seed=SEED, stored=STORED, queries=QUERIES)
    return print_outcomes(outcomes(given.data, given.scratch))


if __name__ == "__main__":
    sys.exit(main())
