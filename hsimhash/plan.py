"""Compare the costs of layouts for a number of documents: rows, bytes, reads and candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hsimhash.cover import (
    MOST_DISTANCE,
    Cover,
    Prices,
    cover,
)
from hsimhash.fingerprint.bits import Floats, Uint64s, whole_number
from hsimhash.layout import FINGERPRINT_BITS, LAYOUT_NAMES, MAX_DRAWERS, Cut, Layout

MOST_BLOCKS = 10  # an even layout has at most this many blocks more than its distance in bits
MOST_GROWTH = 1 << 20  # maximum factor by which the number of documents is increased
SIGNATURE_BYTES = 16  # sketch and key
SAMPLED_BUCKETS = 1 << 22  # maximum number of buckets to read in queries with a sample's fingerprints


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a layout on a store, for a number of documents and for queries within one distance."""

    cover: Cover
    prices: Prices
    documents: int
    key_rows: int  # maximum number of rows per document in the key drawer; 0: documents do not have sketches and keys
    rows: int  # number of drawer rows, including the key drawer, as if every key had all of its parts
    bytes: int  # size of all rows, with ids of 35 bytes; on HBase uncompressed, for each replica
    # Mean number of rows that a query reads, for the fingerprints of the sample or, without one, uniform fingerprints.
    # Rows that are read from the key drawer are not counted.
    candidates: float
    time_us: float  # for one query and one added document
    # 99th percentile of candidates for queries with the sample's fingerprints; None without a sample.
    candidates_p99: float | None = None
    hottest_bucket: float | None = None  # rows in the largest bucket, from the sample; None without a sample

    @property
    def layout(self) -> Layout:
        """The layout."""
        return self.cover.layout

    @property
    def reads(self) -> int:
        """The number of buckets, or ranges of buckets, that a query reads, including those of its key."""
        return self.cover.bucket_count + self.key_rows


def cost(
    layout: Layout,
    documents: int,
    distance: int,
    prices: Prices,
    *,
    sample: Uint64s | None = None,
    key_rows: int = 0,
) -> Cost:
    """Return the cost of `layout` for `documents` documents, including the skew of the sample if there is one."""
    chosen = cover(layout, distance, documents, prices)
    found, uniform = _uniform(chosen, prices, documents, key_rows=key_rows), chosen.candidates(documents)
    if sample is None or not len(sample):
        return found
    size = len(sample)
    scale = documents / max(1, size - 1)
    counts, hottest = _sampled(chosen, sample)
    mean, p99 = float(counts.mean()) * scale, float(np.percentile(counts, 99))
    return replace(
        _with_candidates(found, mean),
        candidates_p99=p99 * scale if _is_beyond_chance(p99, chosen.candidates(size)) else uniform,
        hottest_bucket=hottest * documents / size
        if _is_beyond_chance(hottest, _bucket(layout, size))
        else _bucket(layout, documents),
    )


def _uniform(chosen: Cover, prices: Prices, documents: int, *, key_rows: int) -> Cost:
    """Return the cost of a cover for this many documents with uniform fingerprints."""
    rows_each = len(chosen.layout.drawers) + key_rows
    bytes_each = rows_each * prices.row_bytes + prices.document_bytes + SIGNATURE_BYTES * (key_rows > 0)
    buckets = _buckets(chosen.layout, documents) + documents * key_rows
    part_us = prices.part_us + (prices.read_us if chosen.is_own else prices.neighbour_us)
    time_us = chosen.time_us(documents, prices) + key_rows * part_us + rows_each * prices.row_us
    rows, candidates = documents * rows_each, chosen.candidates(documents)
    size = round(documents * bytes_each + buckets * prices.bucket_bytes)
    return Cost(chosen, prices, documents, key_rows, rows, size, candidates, time_us)


def _with_candidates(uniform: Cost, candidates: float) -> Cost:
    """Return a cost with uniform fingerprints, changed to another number of candidates."""
    row_us = uniform.prices.swept_us if uniform.cover.is_swept else uniform.prices.candidate_us
    time_us = uniform.time_us + (candidates - uniform.candidates) * row_us
    return replace(uniform, candidates=candidates, time_us=time_us)


def outgrown(costs: Sequence[Cost]) -> tuple[int, Layout] | None:
    """Return the number of documents at which another layout is better, and that layout; None if never."""
    best = recommend(costs)[0]
    documents = best.documents
    while documents < MOST_GROWTH * best.documents:
        documents *= 2
        grown = [_grown(one, documents) for one in costs]
        if (layout := recommend(grown)[0].layout) != best.layout:
            return documents, layout
    return None


def _grown(one: Cost, documents: int) -> Cost:
    """Return a cost for another number of documents, with the sample's skew if there is one."""
    uniform = _uniform(one.cover, one.prices, documents, key_rows=one.key_rows)
    if one.hottest_bucket is None:
        return uniform
    # In a small sample, no two fingerprints may share a bucket.
    return _with_candidates(uniform, max(one.candidates * documents / one.documents, uniform.candidates))


def _buckets(layout: Layout, documents: int) -> float:
    """Return how many buckets in all drawers have rows, for uniform fingerprints."""
    sizes = np.array([2.0**drawer.segment_bits for drawer in layout.drawers])
    return float((-sizes * np.expm1(-documents / sizes)).sum())


def _bucket(layout: Layout, documents: int) -> float:
    """Return the number of rows per bucket in the drawer with the largest buckets, for uniform fingerprints."""
    return documents / 2.0 ** min(drawer.segment_bits for drawer in layout.drawers)


def _is_beyond_chance(count: float, expected: float) -> bool:
    """Whether a count in the sample shows skew. A few rows in one of a million buckets can be chance."""
    return bool(count > expected + 4.5 * expected**0.5 + 4.5)  # about the largest of a million Poisson counts


def _sampled(chosen: Cover, sample: Uint64s) -> tuple[Floats, int]:
    """Query with part of the sample; return how many other rows each query reads, and the largest bucket's size."""
    asked = sample[: max(1, SAMPLED_BUCKETS // chosen.bucket_count)]
    counts, hottest = np.zeros(len(asked)), 0
    for drawer in chosen.layout.drawers:
        hottest = max(hottest, int(np.unique(drawer.segments(sample), return_counts=True)[1].max()))
    for probe in chosen.probes:
        probe_set = chosen.probe_set([probe])
        numbers, sizes = np.unique(probe_set.own_numbers(sample), return_counts=True)
        wanted = probe_set.numbers(asked)
        place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        counts += np.where(numbers[place] == wanted, sizes[place], 0).sum(axis=1) - 1
    return counts, hottest


def layouts_of(distance: int) -> list[Layout]:
    """Return the layouts worth comparing for queries within a distance, in order of their number of drawers."""
    named = [Layout.named(name) for name in LAYOUT_NAMES] if distance <= MOST_DISTANCE else []
    return sorted({*named, *layouts_for(distance)}, key=lambda layout: (len(layout.drawers), layout.name))


def layouts_for(distance: int) -> list[Layout]:
    """Return the named and even layouts that cover a distance with one bucket in each drawer.

    Raises:
        ValueError: No layout with up to 253 drawers covers that distance.
    """
    if whole_number(distance, "distance") < 0:
        raise ValueError(f"distance must be at least 0, got {distance}")
    named = [Layout.named(name) for name in LAYOUT_NAMES]
    found = [layout for layout in named if layout.max_distance == distance]
    for blocks in range(distance + 1, min(distance + MOST_BLOCKS, FINGERPRINT_BITS) + 1):
        if Cut((1,) * blocks, blocks - distance).choices > MAX_DRAWERS:
            break
        layout = Layout.even(blocks, blocks - distance)
        # More drawers pay off only if queries read fewer candidates, which stops once segments have all 32 bits.
        if all(
            layout.candidates(1) < other.candidates(1) for other in found if len(other.drawers) <= len(layout.drawers)
        ):
            found.append(layout)
    if not found:
        raise ValueError(f"distance {distance} is too large: no layout with up to {MAX_DRAWERS} drawers covers it")
    return sorted(found, key=lambda layout: len(layout.drawers))


def recommend(costs: Sequence[Cost]) -> tuple[Cost, str]:
    """Return the cost of the recommended layout, and the reason.

    The recommended layout has the smallest product of rows and time. Rows take disk space and memory, which the time
    does not include, so twice as many rows must at least halve the time.
    """
    best = min(costs, key=lambda one: one.rows * one.time_us)
    return best, (
        f"it has the smallest product of rows and time: {best.rows // best.documents} rows per document, and about "
        f"{best.time_us:,.0f} µs for one query and one added document (a query reads "
        f"{best.reads:,} buckets with about {best.candidates:,.0f} candidates)"
    )
