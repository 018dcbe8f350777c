"""The base file: its answers compared with brute force, and the effect of flipped bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signatures
from hsimhash.layout import Layout
from hsimhash.rowkey import KEY_FLAG, PREFIX_BYTES, encode, key_rowkeys, prefix_numbers
from hsimhash.store.base_files import base_file
from hsimhash.store.base_files.base_build import build_base
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.base_files.base_format import BaseHeader, BaseName, DamagedBaseError
from hsimhash.store.base_files.packed_base import PackedBase, opened_base
from hsimhash.store.runs import FiledRows
from tests.support.effort import tries

LAYOUTS = [Layout.parse(text) for text in ("4", "10", "16", "28", "64/1", "1,1,62/2")]
Row = bytes


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], Path]:
    numbers = itertools.count()
    return lambda: tmp_path / str(next(numbers))


def signatures_of(rng: np.random.Generator, count: int, bits: int) -> Signatures:
    """Return random signatures: their fingerprints differ in the lowest `bits` bits, their keys in a few bits."""
    values = rng.integers(0, 2**64, count, np.uint64)
    if bits < 64:
        values &= np.uint64((1 << bits) - 1)
    keys = rng.integers(0, 9, count, np.uint64) << np.uint64(30)
    return replace(Signatures.of(values, rng.integers(0, 2**64, count, np.uint64), keys), keying=Keying.WHOLE)


def filed(folder: Path, layout: Layout, signatures: Signatures) -> FiledRows:
    return FiledRows.sort(folder, signatures.fingerprints, key_rowkeys(signatures), layout.drawers)


def rows_of(layout: Layout, parts: Sequence[Signatures]) -> set[Row]:
    rows = [encode(layout, one.fingerprints).reshape(-1, 13) for one in parts] + [key_rowkeys(one) for one in parts]
    return {row.tobytes() for row in np.concatenate(rows)}


def opened(path: Path, name: BaseName, layout: Layout) -> Base:
    return opened_base(path, name, layout)


@settings(max_examples=tries(200, 15), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    seed=st.integers(0, 2**32),
    counts=st.lists(st.integers(0, 400), min_size=1, max_size=3),
    bits=st.sampled_from([64, 64, 40, 8]),
    is_packed=st.booleans(),
)
def test_a_base_has_the_rows_of_its_sources(
    folder: Callable[[], Path], layout: Layout, seed: int, counts: list[int], bits: int, is_packed: bool
) -> None:
    rng, place = np.random.default_rng(seed), folder()
    parts = [signatures_of(rng, count, bits) for count in counts]
    sources = [filed(place / str(number), layout, one) for number, one in enumerate(parts)]
    first = opened(place / "a", build_base(place / "a", layout, sources[:1]), layout)
    name = build_base(place / "b", layout, sources[1:], first, is_packed=is_packed)
    base = opened(place / "b", name, layout)
    assert isinstance(base, PackedBase) == is_packed
    wanted = rows_of(layout, parts)
    assert list(base.blocks.damaged()) == []
    everything = base.sweep([(bytes(5), b"\xff" * 5)])
    assert sorted(row.tobytes() for row in everything) == sorted(row for row in wanted if row[4] != KEY_FLAG)
    prefixes = sorted({row[:PREFIX_BYTES] for row in wanted})
    asked = {one for one in prefixes if rng.random() < 0.5}
    asked |= {*layout.prefixes(int(rng.integers(2**63))), b"\x12\x34\x56\x78\xfd"}
    expected = sorted(row for row in wanted if row[:PREFIX_BYTES] in asked)
    found = [row.tobytes() for row in base.scan(sorted(asked))]
    assert sorted(found) == expected
    counted = {prefix: len(list(rows)) for prefix, rows in itertools.groupby(expected, lambda row: row[:5])}
    for most in (1, 3, 200):
        cut = [row.tobytes() for row in base.scan(sorted(asked), most)]
        kept = {prefix: len(list(rows)) for prefix, rows in itertools.groupby(sorted(cut), lambda row: row[:5])}
        assert kept == {prefix: min(most, count) for prefix, count in counted.items()}
        assert set(cut) <= set(expected)
    if len(prefixes) > 1:
        low, high = sorted(rng.choice(len(prefixes), 2, replace=False).tolist())
        found = [row.tobytes() for row in base.sweep([(prefixes[low], prefixes[high])])]
        assert sorted(found) == sorted(
            row for row in wanted if prefixes[low] <= row[:PREFIX_BYTES] < prefixes[high] and row[4] != KEY_FLAG
        )


@settings(max_examples=tries(200, 15), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    seed=st.integers(0, 2**32),
    count=st.integers(0, 600),
    bits=st.sampled_from([64, 9]),
    is_packed=st.booleans(),
)
def test_near_fingerprints_are_those_of_brute_force(
    folder: Callable[[], Path], layout: Layout, seed: int, count: int, bits: int, is_packed: bool
) -> None:
    rng, place = np.random.default_rng(seed), folder()
    signatures = signatures_of(rng, count, bits)
    name = build_base(place.with_suffix(".base"), layout, [filed(place, layout, signatures)], is_packed=is_packed)
    base = opened(place.with_suffix(".base"), name, layout)
    ordered = np.unique(signatures.fingerprints)
    asked = np.concatenate([ordered, ordered ^ np.uint64(1 << 50), np.array([0, 2**64 - 1], np.uint64)])
    places = [int(np.flatnonzero(ordered == one)[0]) if one in ordered else -1 for one in asked]
    assert base.places_of(asked).tolist() == [base.place_of(one) for one in asked.tolist()] == places
    k = layout.max_distance
    queries = near_or_not(rng, signatures.fingerprints, 40, k)
    expected = [
        set(signatures.fingerprints[np.bitwise_count(signatures.fingerprints ^ one) <= k].tolist()) for one in queries
    ]
    assert [set(base.near(one, k)) for one in queries.tolist()] == expected
    numbers = np.stack([prefix_numbers(layout.prefix_array(queries[place : place + 1])[0]) for place in range(40)])
    among = [base.near_among(row, one, k) for row, one in zip(numbers, queries.tolist(), strict=True)]
    assert [set(one or []) for one in among] == expected
    with patch.object(base_file, "_MET_AT_ONCE", 50):
        for pairs in (base.near_many(queries, k), base.near_many(queries, k, numbers)):
            found: list[set[int]] = [set() for _ in queries]
            for places, values in pairs or []:
                for place_of, value in zip(places.tolist(), values.tolist(), strict=True):
                    found[place_of].add(value)
            assert found == expected


def near_or_not(rng: np.random.Generator, values: Uint64s, count: int, k: int) -> Uint64s:
    queries = rng.integers(0, 2**64, count, np.uint64)
    if len(values):
        queries[::2] = rng.choice(values, len(queries[::2]))
        for place in range(0, count, 2):
            for bit in rng.choice(64, int(rng.integers(k + 1)), replace=False).tolist():
                queries[place] ^= np.uint64(1 << bit)
    return queries


@pytest.mark.parametrize("is_packed", [False, True])
def test_flipped_bits_are_found_and_what_is_read_is_right_or_an_error(
    folder: Callable[[], Path], is_packed: bool
) -> None:
    layout, rng, place = Layout.parse("10"), np.random.default_rng(5), folder()
    signatures = signatures_of(rng, 500, 64)
    path = place.with_suffix(".base")
    name = build_base(path, layout, [filed(place, layout, signatures)], is_packed=is_packed)
    whole = path.read_bytes()
    queries = signatures.fingerprints[:3]
    prefixes = sorted({row[:PREFIX_BYTES].tobytes() for row in key_rowkeys(signatures)})
    right = opened(path, name, layout)
    answers = [right.near(int(one), 3) for one in queries], right.scan(prefixes).tobytes()
    for _ in range(tries(10_000, 300)):
        bit = int(rng.integers(len(whole) * 8))
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.unlink()  # the mapped file stays unchanged
        path.write_bytes(changed)
        is_found = False
        try:
            base = opened(path, name, layout)
            is_found = bool(list(base.blocks.damaged()))
        except DamagedBaseError:
            is_found = True
        assert is_found, f"bit {bit} is not noticed"
        with suppress(DamagedBaseError):
            base = opened(path, name, layout)
            assert [base.near(int(one), 3) for one in queries] == answers[0]
            assert base.scan(prefixes).tobytes() == answers[1]


def test_a_file_that_was_cut_or_is_another_base_is_refused(folder: Callable[[], Path]) -> None:
    layout, rng, place = Layout.parse("4"), np.random.default_rng(6), folder()
    path, other = place.with_suffix(".base"), place.with_suffix(".other")
    name = build_base(path, layout, [filed(place / "a", layout, signatures_of(rng, 900, 64))])
    build_base(other, layout, [filed(place / "b", layout, signatures_of(rng, 900, 64))])
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:5_000], b"", whole[:100], other.read_bytes(), bytes(len(whole))):
        path.unlink()
        path.write_bytes(content)
        with pytest.raises(DamagedBaseError):
            opened(path, name, layout)


def test_a_merge_of_a_damaged_base_says_so_and_leaves_no_file(folder: Callable[[], Path]) -> None:
    layout, rng, place = Layout.parse("10"), np.random.default_rng(7), folder()
    path = place.with_suffix(".base")
    name = build_base(path, layout, [filed(place / "a", layout, signatures_of(rng, 900, 64))])
    changed = bytearray(path.read_bytes())
    changed[9_000] ^= 1
    path.write_bytes(changed)
    more = filed(place / "b", layout, signatures_of(rng, 900, 64))
    with pytest.raises(DamagedBaseError, match="byte 8,192"):
        build_base(place.with_suffix(".new"), layout, [more], opened(path, name, layout))
    assert not place.with_suffix(".new").exists()


def test_a_header_is_what_was_packed() -> None:
    header = BaseHeader("16,16,16,16/1", 4, 1_000, 30, 8, 0xFFFFFFFF)
    assert BaseHeader.unpack(header.packed()) == header
