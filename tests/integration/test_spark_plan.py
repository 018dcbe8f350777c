"""How the search for all pairs is cut into parts: every pair is found once, and no part is large."""

from __future__ import annotations

import mmh3
import numpy as np
import pytest
from numpy.typing import NDArray

from hsimhash.layout import Layout
from hsimhash.pairs import find_pairs
from hsimhash.pairs.neighbours import searches
from hsimhash.spark import PairLimits
from hsimhash.spark.columns import partition_keys
from hsimhash.spark.near_pairs import PartPlan
from tests.support.fingerprint_sets import Numbers, flipped, random_fingerprints


def crowded(rng: np.random.Generator, count: int) -> Numbers:
    """Distinct fingerprints: a third share their first 26 bits, a third lie near others, the rest are random."""
    values = random_fingerprints(rng, count)
    third = count // 3
    values[:third] = values[0] & ~np.uint64((1 << 38) - 1) | values[:third] & np.uint64((1 << 38) - 1)
    values[third : 2 * third] = flipped(rng, values[rng.integers(0, third, third)], rng.integers(1, 4, third))
    return np.unique(values)


def planned(values: Numbers, sample: Numbers, k: int, limits: PairLimits, layout: str) -> PartPlan:
    return PartPlan.of(searches(Layout.parse(layout).drawers, k), sample, len(values), limits)


def found_pairs(values: Numbers, plan: PartPlan) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the pairs of all parts, and how many values each part has."""
    parts: dict[int, list[NDArray[np.uint64]]] = {}
    for some in np.array_split(values, 3):
        for table, start in zip(plan.tables, plan.starts.tolist(), strict=False):
            for number, block in table.split(some):
                parts.setdefault(start + number, []).append(block)
    pairs = []
    for part, blocks in parts.items():
        ordered = np.sort(np.concatenate(blocks))
        for left, right in plan.place_of(part)[0].search.near_values(ordered):
            pairs += [tuple(sorted(pair)) for pair in zip(left.tolist(), right.tolist(), strict=True)]
    return sorted(pairs), [sum(map(len, blocks)) for blocks in parts.values()]


@pytest.mark.parametrize(("k", "layout"), [(3, "10"), (3, "4"), (6, "28")])
@pytest.mark.parametrize("seed", range(3))
def test_each_pair_is_found_once_in_any_parts(k: int, layout: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = crowded(rng, 9_000)
    expected = find_pairs(values, max_distance=k)
    known = sorted((int(values[a]), int(values[b])) for a, b in zip(expected.left, expected.right, strict=True))
    for limits in (PairLimits(), PairLimits(part=700), PairLimits(part=700, depth=0)):
        sample = rng.choice(values, 1_500, replace=False)
        pairs, _ = found_pairs(values, planned(values, sample, k, limits, layout))
        assert pairs == known


def test_a_large_bucket_is_cut_into_tables_of_its_own() -> None:
    rng = np.random.default_rng(5)
    values = np.unique(random_fingerprints(rng, 60_000))
    values[:30_000] = values[0] & ~np.uint64((1 << 38) - 1) | values[:30_000] & np.uint64((1 << 38) - 1)
    values = np.unique(values)
    limits = PairLimits(part=6_000)
    plan = planned(values, values[::4], 3, limits, "10")
    assert any(table.within for table in plan.tables)
    _, sizes = found_pairs(values, plan)
    assert max(sizes) < 2 * limits.part
    _, uncut = found_pairs(values, planned(values, values[::4], 3, PairLimits(part=6_000, depth=0), "10"))
    assert max(uncut) > 4 * limits.part


def test_every_partition_has_a_key_of_its_own() -> None:
    places = [mmh3.hash(key.to_bytes(4, "little"), 42) % 1_000 for key in partition_keys(1_000)]
    assert places == list(range(1_000))
