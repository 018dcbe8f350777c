from __future__ import annotations

import errno
import os
import resource
import tempfile
import threading
import tracemalloc
from collections.abc import Generator, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hsimhash.layout import LAYOUT_NAMES, Layout
from hsimhash.pairs import PairBlock, Pairs, find_pairs, group_equal, iter_pairs
from hsimhash.pairs.distinct import ROW_BYTES
from hsimhash.pairs.neighbours import DENSE_BUCKET, MOST_PAIRS
from hsimhash.pairs.search import LEAST_PART, LOOKAHEAD, in_order
from hsimhash.plan import layouts_for
from tests.support.effort import thorough, tries
from tests.support.fingerprint_sets import FINGERPRINTS, PAIRS, flipped, real_fingerprints, real_pairs
from tests.support.oracles import crowds

LAYOUTS = [*map(Layout.named, LAYOUT_NAMES), Layout.even(7, 2), Layout.parse("7,9,16,20,12/2"), Layout.even(64, 63)]
DTYPES = ["i8", "i8", "u1", "i8"]  # of left, right, distance and groups

Triples = NDArray[np.int64]  # rows of (left, right, distance), in order


def brute_force(values: NDArray[np.uint64], k: int, *, least: int = 1) -> Triples:
    """Return all pairs that differ in `least` to `k` bits, by comparing every two values."""
    found = [np.empty((0, 3), np.int64)]
    for start in range(0, len(values), 4):
        distances = np.bitwise_count(values[start : start + 4, None] ^ values[start:])
        left, right = np.divmod(np.flatnonzero(distances <= k), len(values) - start)
        rows = np.stack([left + start, right + start, distances[left, right]], axis=-1)
        found.append(rows[(left < right) & (rows[:, 2] >= least)])
    return np.concatenate(found)


def triples(block: Pairs | PairBlock) -> Triples:
    return np.stack([block.left, block.right, block.distance.astype(np.int64)], axis=-1)


def of_blocks(blocks: Iterator[PairBlock]) -> Triples:
    return np.concatenate([np.empty((0, 3), np.int64), *map(triples, blocks)])


def by_position(rows: Triples) -> Triples:
    return rows[np.lexsort(rows.T[::-1])]


def firsts(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    return first[inverse]


def between_firsts(values: NDArray[np.uint64], k: int) -> Triples:
    """Return what `find_pairs` promises: the pairs of distinct fingerprints, by their first occurrences."""
    first = np.unique(firsts(values))
    rows = brute_force(values[first], k)
    rows[:, :2] = first[rows[:, :2]]
    return rows


def planted(count: int, seed: int = 7) -> NDArray[np.uint64]:
    """Return shuffled random fingerprints, a tenth of which differ from another one in 0 to 8 bits."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2**64, count, np.uint64)
    near = count // 10
    values[:near] = flipped(rng, values[near : 2 * near], np.arange(near) % 9)
    return rng.permutation(values)


@settings(max_examples=tries(150, 40))
@given(values=crowds(30), layout=st.sampled_from([None, *LAYOUTS]), data=st.data())
def test_pairs_equal_brute_force(values: list[int], layout: Layout | None, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, layout.max_distance if layout else 6))
    array = np.array(values, np.uint64)
    found = find_pairs(values, max_distance=k, layout=layout)
    assert [column.dtype for column in (found.left, found.right, found.distance, found.groups)] == DTYPES
    assert np.array_equal(triples(found), between_firsts(array, k))
    assert np.array_equal(found.groups, firsts(array))
    assert np.array_equal(group_equal(values), found.groups)
    assert np.array_equal(by_position(of_blocks(iter_pairs(values, max_distance=k, layout=layout))), triples(found))
    assert np.array_equal(by_position(of_blocks(found.expand())), brute_force(array, k, least=0))


@pytest.fixture(scope="module")
def thirty_thousand() -> tuple[NDArray[np.uint64], Triples]:
    values = planted(30_000)
    return values, between_firsts(values, max(layout.max_distance for layout in LAYOUTS))


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_layout_finds_all_pairs_of_30_000_at_every_distance(
    layout: Layout, thirty_thousand: tuple[NDArray[np.uint64], Triples]
) -> None:
    values, expected = thirty_thousand
    for k in range(1, layout.max_distance + 1):
        found = triples(find_pairs(values, max_distance=k, layout=layout))
        assert len(found) > 300 * k
        assert np.array_equal(found, expected[expected[:, 2] <= k])


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_without_a_layout_every_distance_is_found(k: int, thirty_thousand: tuple[NDArray[np.uint64], Triples]) -> None:
    values, expected = thirty_thousand
    assert np.array_equal(triples(find_pairs(values, max_distance=k)), expected[expected[:, 2] <= k])


@pytest.mark.parametrize("layout", layouts_for(3), ids=lambda layout: layout.name)
@pytest.mark.parametrize("step", [1, 4, 1 << 20, (1 << 49) + 1])
def test_a_dense_bucket_is_searched_whole(layout: Layout, step: int) -> None:
    values = np.arange(6_000, dtype=np.uint64) * np.uint64(step)
    assert np.array_equal(triples(find_pairs(values, layout=layout)), brute_force(values, 3))


@pytest.mark.parametrize("size", [DENSE_BUCKET - 1, DENSE_BUCKET, DENSE_BUCKET + 1, DENSE_BUCKET + 2])
def test_buckets_about_the_size_that_is_dense_are_searched_whole(size: int) -> None:
    rng = np.random.default_rng(size)
    tops = rng.integers(0, 2**16, 20, np.uint64) << np.uint64(48)
    values = np.concatenate([top | rng.choice(1 << 12, size, replace=False).astype(np.uint64) for top in tops])
    assert np.array_equal(triples(find_pairs(values, layout="4")), between_firsts(values, 3))


def test_dense_buckets_of_few_varying_and_of_noisy_bits_are_cut_finer() -> None:
    rng = np.random.default_rng(3)
    centres = rng.integers(0, 2**20, 60, np.uint64) << np.uint64(20)
    noisy = flipped(rng, np.repeat(centres, 250), rng.integers(0, 6, 60 * 250))
    for k in (2, 3, 6):
        assert np.array_equal(triples(find_pairs(noisy, max_distance=k)), between_firsts(noisy, k))


def test_a_finer_cut_finds_what_comparing_all_with_all_does() -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(0, 2**40, 12_000, np.uint64)  # the first drawer's bucket holds them all
    values[:1_000] = flipped(rng, values[1_000:2_000], np.arange(1_000) % 5) & np.uint64(2**40 - 1)
    assert np.array_equal(triples(find_pairs(values, layout="4")), between_firsts(values, 3))


def test_a_million_equal_ones_are_one_group() -> None:
    found = find_pairs(np.full(1_000_000, 7, np.uint64))
    assert len(found.left) == 0
    assert not found.groups.any()
    first = next(found.expand())
    assert (len(first.left), first.distance.any()) == (1 << 20, False)


@thorough
def test_no_budget_changes_the_answer_nor_its_order() -> None:
    budgets = [1, 1 << 20, 4 << 20, 9 << 20, 1 << 30]
    rng = np.random.default_rng(11)
    dense = np.arange(3_000, dtype=np.uint64) * np.uint64(4)
    values = np.concatenate([planted(270_000, 1), dense, dense[:1_000] << np.uint64(40)])
    values[rng.random(len(values)) < 0.3] = values[9]
    values = rng.permutation(np.concatenate([values, rng.choice(values, 30_000)]))
    assert budgets[-2] < len(values) * ROW_BYTES < budgets[-1]
    expected, streamed = find_pairs(values), of_blocks(iter_pairs(values))
    assert len(expected.left) > 10_000
    assert np.array_equal(by_position(streamed), triples(expected))
    assert np.array_equal(expected.groups, firsts(values))
    for memory_bytes in budgets:
        found = find_pairs(values, memory_bytes=memory_bytes)
        assert np.array_equal(triples(found), triples(expected))
        assert np.array_equal(found.groups, expected.groups)
        assert np.array_equal(group_equal(values, memory_bytes=memory_bytes), expected.groups)
        assert np.array_equal(of_blocks(iter_pairs(values, memory_bytes=memory_bytes)), streamed)


@pytest.mark.parametrize("is_spilled", [False, True])
def test_the_search_tells_how_many_parts_of_its_drawers_are_done(is_spilled: bool) -> None:
    told: list[tuple[int, int]] = []
    values, layout = planted(270_000, 1), Layout.parse("10")
    parts = -(-len(np.unique(values)) // LEAST_PART) if is_spilled else 1
    memory_bytes = 1 << 20 if is_spilled else 1 << 30
    find_pairs(values, layout=layout, memory_bytes=memory_bytes, tell=lambda *counts: told.append(counts))
    total = parts * len(layout.drawers)
    assert told[-1] == (total, total)
    assert {of for _, of in told} == {total}
    done = [count for count, _ in told]
    assert done == sorted(done)
    assert len(set(done)) > (total // 3 if is_spilled else 3)


@pytest.mark.parametrize("memory_bytes", [4 << 20, 1 << 30])
def test_no_number_of_threads_changes_the_order(memory_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = planted(100_000)
    streams = []
    for processors in (1, 2, 7):
        monkeypatch.setattr(os, "cpu_count", lambda processors=processors: processors)
        streams.append(of_blocks(iter_pairs(values, layout="10", memory_bytes=memory_bytes)))
    assert len(streams[0]) > 3_000
    assert np.array_equal(streams[0], streams[1])
    assert np.array_equal(streams[0], streams[2])


@thorough
def test_crowds_are_taken_in_portions() -> None:
    centres = np.random.default_rng(6).integers(0, 2**64, 2_000, np.uint64).repeat(60)
    values = centres ^ np.tile(np.arange(60, dtype=np.uint64) << np.uint64(16), 2_000)
    blocks = list(iter_pairs(values, layout="4"))
    found = find_pairs(values, layout="4")
    assert len(found.left) > 3 * MOST_PAIRS / 2
    assert len(blocks) > 1
    assert max(len(block.left) for block in blocks) <= MOST_PAIRS
    assert np.array_equal(by_position(of_blocks(iter(blocks))), triples(found))


@thorough
def test_a_million_spill_with_a_budget_of_a_few_megabytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    values = planted(1_000_000)
    expected = find_pairs(values)
    blocks = iter_pairs(values, memory_bytes=8 << 20)
    first = next(blocks)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.run")) >= len(values) * 8
    rows = np.concatenate([triples(first), of_blocks(blocks)])
    assert np.array_equal(by_position(rows), triples(expected))
    assert list(tmp_path.iterdir()) == []


def test_a_mapped_file_is_searched_as_an_array_is(tmp_path: Path) -> None:
    values = planted(5_000)
    values.tofile(tmp_path / "values")
    mapped = np.memmap(tmp_path / "values", np.uint64, "r")
    for memory_bytes in (1, 1 << 30):
        found = find_pairs(mapped, memory_bytes=memory_bytes)
        assert np.array_equal(triples(found), triples(find_pairs(values)))
        assert not isinstance(found.distance, np.memmap)


def test_a_folder_that_cannot_be_written_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(OSError, match=r"TMPDIR.*memory_bytes") as raised:
        find_pairs(planted(100_000), memory_bytes=1 << 20)
    assert raised.value.errno == errno.ENOENT
    assert str(raised.value.filename).startswith(str(tmp_path / "gone"))


def test_a_full_disk_is_an_error_that_names_the_folder_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
    try:
        with pytest.raises(OSError, match=r"TMPDIR.*memory_bytes") as raised:
            find_pairs(planted(300_000), memory_bytes=1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert raised.value.errno == errno.EFBIG  # a full disk would be ENOSPC
    assert str(raised.value.filename).startswith(str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("memory_bytes", [1 << 20, 1 << 30])
def test_a_stream_that_is_closed_early_leaves_no_thread_and_no_file(
    memory_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    threads = set(threading.enumerate())
    blocks = iter_pairs(planted(300_000), layout="10", memory_bytes=memory_bytes)
    next(blocks)
    blocks.close()
    assert set(threading.enumerate()) <= threads
    assert list(tmp_path.iterdir()) == []


def counted(made: list[int], items: int, error: Exception | None = None) -> Generator[int]:
    for item in range(items):
        made.append(item)
        yield item
    if error is not None:
        raise error


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_items_come_in_order_and_no_thread_works_far_ahead(threads: int) -> None:
    made: list[list[int]] = [[] for _ in range(4)]
    read = 0
    for item in in_order([counted(some, 50) for some in made], threads):
        assert item == read % 50
        assert len(made[read // 50]) <= item + 2 * LOOKAHEAD
        read += 1
    assert read == 200


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_error_in_a_thread_reaches_the_reader_and_ends_the_others(threads: int) -> None:
    before = threading.active_count()
    sources = [counted([], 3), counted([], 2, KeyError("wrong")), counted([], 1_000), counted([], 1_000)]
    read = []
    with pytest.raises(KeyError, match="wrong"):
        read.extend(in_order(sources, threads))
    assert threading.active_count() == before


def test_parts_that_spill_cut_no_bucket() -> None:
    rng = np.random.default_rng(13)
    tops = np.array([1, 2, 3], np.uint64) << np.uint64(40)
    values = rng.choice(tops, 140_000) | rng.integers(0, 2**40, 140_000, np.uint64)
    values[:5_000] = flipped(rng, values[5_000:10_000], np.arange(5_000) % 4) & np.uint64(2**42 - 1)
    expected = find_pairs(values, layout="4")
    assert len(expected.left) > 2_000
    assert np.array_equal(triples(find_pairs(values, layout="4", memory_bytes=1)), triples(expected))


@pytest.mark.parametrize(
    ("values", "options", "error", "reason"),
    [
        ([1, -1], {}, ValueError, "got -1"),
        ([1, 2**64], {}, ValueError, "must be 0 to"),
        ([1, 1.5], {}, TypeError, "got float"),
        ([1, True], {}, TypeError, "got bool"),
        (np.array([1.0]), {}, TypeError, "got float"),
        ([1], {"max_distance": -1}, ValueError, "at least 0"),
        ([1], {"max_distance": -1, "layout": "4"}, ValueError, "must be 0 to 3"),
        ([1], {"max_distance": 4, "layout": "10"}, ValueError, "must be 0 to 3 with layout 10, got 4"),
        ([1], {"max_distance": 1.0}, TypeError, "got float"),
        ([1], {"max_distance": 400}, ValueError, "400"),
        ([1], {"layout": "11"}, ValueError, "unknown layout '11'"),
        ([1], {"layout": 5}, TypeError, "got int: 5"),
        ([1], {"memory_bytes": 0}, ValueError, "above 0"),
        (np.broadcast_to(np.uint64(1), 1 << 32), {}, ValueError, "too many"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_reason(
    values: object, options: dict[str, object], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        find_pairs(values, **options)  # type: ignore[arg-type]


def test_ints_of_any_size_are_taken_as_they_are() -> None:
    mixed = [2**64 - 1, 2**64 - 2, 1, np.uint8(3), 2**63, 2**53 + 1]
    assert triples(find_pairs(mixed, max_distance=2)).tolist()[0] == [0, 1, 1]
    assert np.array_equal(triples(find_pairs(mixed)), brute_force(np.array(list(map(int, mixed)), np.uint64), 3))


@pytest.mark.parametrize("k", [3, 6])
def test_the_pairs_of_real_fingerprints_are_those_of_their_list(labelled_data: Path, k: int) -> None:
    values, expected = real_fingerprints(labelled_data / FINGERPRINTS), real_pairs(labelled_data / PAIRS, k)
    found = of_blocks(find_pairs(values, max_distance=k).expand())
    assert len(found) == len(expected)
    assert set(map(tuple, found.tolist())) == expected


def test_finding_pairs_takes_little_more_memory_than_they_do() -> None:
    values = np.arange(20_000, dtype=np.uint64)
    tracemalloc.start()
    try:
        pairs = len(find_pairs(values, max_distance=3, memory_bytes=1 << 24).left)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 * pairs  # bytes; a pair takes 17
