"""What it costs to compare neighbours in sorted drawers; by it layouts and finer cuts are chosen.

Measured with numpy 2.4 on AVX-512, random fingerprints, one thread. Only the choice depends on these numbers, never the
answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

DRAWER_NS = 100_000.0  # calls that any drawer costs
SORT_NS = 27.0  # a value's permutation and sort
LAG_NS = 1.1  # a value and the one so many places behind it, side by side in memory
GATHER_NS = 6.0  # the same where only some positions are still compared
CELL_NS = 0.9  # a cell of all-against-all
DENSE_BUCKET = 256  # values; a bucket of more is no longer compared place by place


def drawers_ns(values: int, segment_bits: Iterable[int]) -> float:
    """Return what drawers with these segments cost for so many values, spread evenly."""
    return sum(DRAWER_NS + values * (SORT_NS + _compare_ns(values / 2.0**bits)) for bits in segment_bits)


def all_pairs_ns(values: int) -> float:
    """Return what comparing all with all costs."""
    return CELL_NS * values * values / 2


def _compare_ns(bucket: float) -> float:
    """Return what a value's comparisons cost in buckets of that mean size."""
    if bucket > DENSE_BUCKET:
        return CELL_NS * bucket / 2
    return LAG_NS * (1 + bucket) + GATHER_NS * min(bucket, math.sqrt(bucket))
