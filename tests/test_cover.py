"""Covers are proved, not trusted: a cover does not miss any way to flip k bits, and is the cheapest found."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.cover import ALL_ROWS, Cover, Prices, Probe, cover, own_probes
from hsimhash.layout import LAYOUT_NAMES, Layout
from tests.stress.exactness import cells
from tests.support.effort import IS_THOROUGH, thorough
from tests.support.prices import HBASE_PRICES, LMDB_PRICES, REDIS_PRICES
from tests.test_layout import any_layout, fingerprints, flips

MILLION = 1_000_000
LAYOUTS = [*map(Layout.named, LAYOUT_NAMES), *map(Layout.parse, ["32,32/2", "20,44/1", "7,9,16,20,12/2"])]


def meets(found: Cover, fingerprint: int, other: int) -> bool:
    return any(
        set(probe_set.numbers_of(fingerprint).tolist())
        & set(probe_set.own_numbers(np.array([other], np.uint64)).ravel().tolist())
        for probe_set in found.probe_sets
    )


@pytest.mark.parametrize("distance", [2, 4, 7] if IS_THOROUGH else [2, 4])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_no_way_to_flip_k_bits_is_missed(layout: Layout, distance: int) -> None:
    found = cover(layout, distance, MILLION, LMDB_PRICES)
    # The number of flips in each cell describes a way, because all bits of a cell are in the same drawers' segments.
    # The leading bits of a segment may split a cell, so a probe with fewer bits is counted at its worst.
    for spread in spreads([len(cell) for cell in cells(layout)], distance):
        flipped = dict(zip(map(frozenset, cells(layout)), spread, strict=True))
        assert any(most_seen(layout, probe, flipped) <= probe.radius for probe in found.probes), (found.probes, spread)


def spreads(sizes: list[int], flips: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for size in sizes:
        found = [(*one, more) for one in found for more in range(min(size, flips - sum(one)) + 1)]
    return [one for one in found if sum(one) == flips]


def most_seen(layout: Layout, probe: Probe, flipped: dict[frozenset[int], int]) -> int:
    """Return the largest number of flips that a probe can see."""
    seen = set(layout.drawers[probe.drawer - 1].positions[: probe.bits])
    return sum(min(count, len(cell & seen)) for cell, count in flipped.items())


@given(st.data())
def test_near_fingerprint_is_read_on_any_layout(data: st.DataObject) -> None:
    layout, distance = data.draw(any_layout()), data.draw(st.integers(0, 5))
    prices = data.draw(st.sampled_from([LMDB_PRICES, HBASE_PRICES]))
    found = cover(layout, distance, 1 << data.draw(st.integers(0, 30)), prices)
    fingerprint = data.draw(fingerprints)
    if found.bucket_count < 100_000:
        assert meets(found, fingerprint, fingerprint ^ data.draw(flips(distance)))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("distance", [1, 3, 5] if IS_THOROUGH else [1, 4])
def test_what_is_read_is_what_was_counted_once_each(layout: Layout, distance: int) -> None:
    found = cover(layout, distance, MILLION, HBASE_PRICES)
    queries = np.random.default_rng(1).integers(0, 2**64, 3, np.uint64)
    for probe_set in found.probe_sets:
        numbers = probe_set.numbers(queries)
        assert [probe_set.numbers_of(int(query)).tolist() for query in queries] == numbers.tolist()
        assert all(len(set(row)) == len(row) for row in numbers.tolist())
        assert set(itertools.chain.from_iterable(probe_set.own_numbers(queries).tolist())) <= set(
            numbers.ravel().tolist()
        )
    assert sum(probe_set.numbers(queries).shape[1] for probe_set in found.probe_sets) == found.bucket_count


@pytest.mark.parametrize(
    ("name", "distance", "reads"),
    [("4", 4, 20), ("4", 6, 52), ("4", 7, 68), ("4", 8, 188), ("10", 1, 2), ("10", 3, 10), ("10", 6, 731)],
)
def test_covers_of_the_usual_layouts_stay_as_cheap_as_they_are(name: str, distance: int, reads: int) -> None:
    assert cover(Layout.named(name), distance, MILLION, LMDB_PRICES).bucket_count <= reads


@thorough
def test_one_drawer_is_probed_around_its_segment_or_read_whole() -> None:
    layout = Layout.parse("32,32/2")
    near, far = cover(layout, 1, MILLION, LMDB_PRICES), cover(layout, 12, MILLION, LMDB_PRICES)
    assert (near.bucket_count, near.is_swept) == (26, True)
    assert far.probes == ALL_ROWS
    assert far.candidates(MILLION) == MILLION


def test_a_store_without_an_order_of_buckets_is_asked_for_whole_ones() -> None:
    chosen = cover(Layout.parse("32,32/2"), 2, 200_000, REDIS_PRICES)
    assert (chosen.bucket_count, chosen.is_swept) == (1 + 32 + 496, False)


def test_what_is_dear_decides() -> None:
    layout = Layout.named("28")
    few_reads = Prices(1, 0.001, 1, 1, 1, 1, neighbour_us=1, swept_us=1)
    few_rows = Prices(1, 1_000, 1, 1, 1, 1, neighbour_us=1, swept_us=1_000)
    assert cover(layout, 8, MILLION, few_reads).bucket_count <= cover(layout, 8, MILLION, few_rows).bucket_count
    all_rows = Prices(1, 1, 1, 1, 1, 1, neighbour_us=1, swept_us=0)
    assert cover(layout, 8, MILLION, all_rows).probes == ALL_ROWS


def test_a_batch_reads_all_rows_once_where_each_of_its_queries_alone_would_not() -> None:
    layout = Layout.named("20")
    assert cover(layout, 8, 20_000, LMDB_PRICES).probes != ALL_ROWS
    assert cover(layout, 8, 20_000, LMDB_PRICES, 1_000).probes == ALL_ROWS


def test_the_layouts_own_distance_reads_one_bucket_of_each_drawer() -> None:
    for layout in LAYOUTS:
        own = cover(layout, layout.max_distance, MILLION, LMDB_PRICES)
        assert own.is_own
        assert own.bucket_count == len(layout.drawers)


@pytest.mark.parametrize(
    ("distance", "probes", "reason"),
    [
        (4, [Probe(1, 16, 1)], "misses 4 flips"),
        (4, [Probe(5, 16, 1)], "does not have a drawer 5"),
        (4, [Probe(1, 17, 1)], "radius must be between 0 and bits"),
        (4, [Probe(1, 16, 17)], "radius must be between 0 and bits"),
        (4, [], "misses"),
        (5, cover(Layout.named("4"), 4, MILLION, LMDB_PRICES).probes, "misses 5 flips"),
    ],
)
def test_what_is_no_cover_is_refused(distance: int, probes: Sequence[Probe], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Cover(Layout.named("4"), distance, tuple(probes))


@pytest.mark.parametrize(("name", "distance"), [("4", 17), ("4", -1), ("28", 17)])
def test_a_distance_beyond_16_is_refused(name: str, distance: int) -> None:
    with pytest.raises(ValueError, match="must be 0 to 16"):
        cover(Layout.named(name), distance, MILLION, LMDB_PRICES)


def test_a_layouts_own_distance_may_be_greater() -> None:
    layout = Layout.even(20, 1)
    assert cover(layout, 19, MILLION, LMDB_PRICES).probes == own_probes(layout)
