"""Which layout for how many documents, and what it costs in rows, bytes, reads and candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hsimhash.fingerprint.bits import Floats, Uint64s
from hsimhash.layout import FINGERPRINT_BITS, LAYOUT_NAMES, MAX_DRAWERS, Cut, Layout

# Bytes a drawer row, measured: LMDB after a bulk load of 1e6 and 1e7 documents; HBase with FAST_DIFF, no compression.
LMDB_ROW_BYTES = 24.6
HBASE_ROW_BYTES = 16.5
# Bytes a document beside its drawer rows, for ids of 35 bytes, measured likewise: its listing and its register. Each
# takes 30 bytes and the id on HBase, where 170 were measured for ids of 55.
LMDB_DOCUMENT_BYTES = 108.5
HBASE_DOCUMENT_BYTES = 130


@dataclass(frozen=True, slots=True)
class Prices:
    """What a store takes, in µs: to read one bucket of a query, to compare one candidate, to write one drawer row."""

    read_us: float
    candidate_us: float
    row_us: float


# CPU time on a Xeon at 2.5 GHz with all in memory, from differences of layouts and numbers of documents: single queries
# without a match of 4, 10, 20, 28 and 84 drawers over 50,000 to 4,000,000 random fingerprints, and their bulk loads.
LMDB_PRICES = Prices(read_us=1.5, candidate_us=0.066, row_us=0.44)
# Differences of layouts and of candidates on HBase 2.6 with everything in memory, one client: ten and four scans, 5, 64
# and 900 candidates; documents added by compare-and-set into ten and four drawers.
HBASE_PRICES = Prices(read_us=145, candidate_us=2.9, row_us=16)

MOST_BLOCKS = 10  # of the even layouts that are tried


@dataclass(frozen=True, slots=True)
class Cost:
    """What a layout costs for a number of documents."""

    layout: Layout
    rows: int  # drawer rows
    lmdb_bytes: int  # of the embedded index, ids of 35 bytes
    hbase_bytes: int  # of both families in HBase, ids of 35 bytes, uncompressed; each replica takes as much
    # Rows that a query reads; the mean for uniform fingerprints, or for the sample's where one was given.
    candidates: float
    # Of a query by one of the sample's fingerprints, 99th percentile; None without a sample.
    candidates_p99: float | None = None
    hottest_bucket: float | None = None  # rows in the largest bucket, from the sample; None without one

    @property
    def reads(self) -> int:
        """Buckets that a query reads."""
        return len(self.layout.drawers)

    def time_us(self, prices: Prices) -> float:
        """Return what one query and one added document take together."""
        return self.reads * (prices.read_us + prices.row_us) + self.candidates * prices.candidate_us


def cost(layout: Layout, documents: int, *, sample: Uint64s | None = None) -> Cost:
    """Return what `layout` costs for `documents` documents, with the skew of the sample's fingerprints if given."""
    rows = documents * len(layout.drawers)
    sizes = (
        rows,
        round(rows * LMDB_ROW_BYTES + documents * LMDB_DOCUMENT_BYTES),
        round(rows * HBASE_ROW_BYTES + documents * HBASE_DOCUMENT_BYTES),
    )
    if sample is None or not len(sample):
        return Cost(layout, *sizes, candidates=layout.candidates(documents))
    size, uniform = len(sample), layout.candidates(documents)
    read, hottest = _sampled(layout, sample)
    scale = documents / max(1, size - 1)
    p99 = float(np.percentile(read, 99))
    largest = hottest * documents / size
    return Cost(
        layout,
        *sizes,
        candidates=float(read.mean()) * scale,
        candidates_p99=p99 * scale if _is_beyond_chance(p99, layout.candidates(size)) else uniform,
        hottest_bucket=largest if _is_beyond_chance(hottest, _bucket(layout, size)) else _bucket(layout, documents),
    )


def _bucket(layout: Layout, documents: int) -> float:
    """Return the rows of the drawer's buckets that hold most, for uniform fingerprints."""
    return documents / 2.0 ** min(drawer.segment_bits for drawer in layout.drawers)


def _is_beyond_chance(count: float, expected: float) -> bool:
    """Whether a count in the sample tells of skew; a few rows in one of a million buckets are chance."""
    return bool(count > expected + 4.5 * expected**0.5 + 4.5)  # about the largest of a million Poisson counts


def _sampled(layout: Layout, sample: Uint64s) -> tuple[Floats, int]:
    """Return, for each of the sample's fingerprints, the other rows in its buckets, and the largest bucket's rows."""
    read, hottest = np.zeros(len(sample)), 0
    for drawer in layout.drawers:
        _, bucket, sizes = np.unique(drawer.segments(sample), return_inverse=True, return_counts=True)
        read += sizes[bucket] - 1
        hottest = max(hottest, int(sizes.max()))
    return read, hottest


def layouts_for(distance: int) -> list[Layout]:
    """Return the layouts worth comparing for a distance, by number of drawers: the named ones and the even ones.

    Raises:
        ValueError: no layout with up to 253 drawers finds that distance.
    """
    if distance < 0:
        raise ValueError(f"distance {distance} must be at least 0")
    named = [Layout.named(name) for name in LAYOUT_NAMES]
    found = [layout for layout in named if layout.max_distance == distance]
    for blocks in range(distance + 1, min(distance + MOST_BLOCKS, FINGERPRINT_BITS) + 1):
        if Cut((1,) * blocks, blocks - distance).choices > MAX_DRAWERS:
            break
        layout = Layout.even(blocks, blocks - distance)
        # More drawers must buy fewer candidates: they do not once segments have the 32 bits that are kept.
        if all(
            layout.candidates(1) < other.candidates(1) for other in found if len(other.drawers) <= len(layout.drawers)
        ):
            found.append(layout)
    if not found:
        raise ValueError(f"no layout of up to {MAX_DRAWERS} drawers finds distance {distance}; ask for less")
    return sorted(found, key=lambda layout: len(layout.drawers))


def recommend(costs: Sequence[Cost], prices: Prices) -> tuple[Cost, str]:
    """Return the layout to take at these prices, and why.

    It has the least product of rows and time: rows take disk and memory, which the prices leave out, so that twice as
    many must at least halve the time.
    """
    best = min(costs, key=lambda cost: cost.rows * cost.time_us(prices))
    return best, (
        f"of all it has the least product of rows and time: {best.reads} rows a document, about "
        f"{best.time_us(prices):,.0f} µs for one query and one added document (a query reads about "
        f"{best.candidates:,.0f} candidates)"
    )
