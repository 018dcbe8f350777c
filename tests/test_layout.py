"""Layouts are proved, not trusted: each named one is shown to be complete, exhaustively over blocks, then at random."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.layout import LAYOUT_NAMES, Cut, Layout
from tests.stress.exactness import cells

fingerprints = st.integers(0, 2**64 - 1)
named = st.sampled_from([Layout.named(name) for name in LAYOUT_NAMES])


@st.composite
def any_layout(draw: st.DrawFn) -> Layout:
    """Draw a named layout, or one with up to 8 blocks of any widths."""
    if draw(st.booleans()):
        return draw(named)
    count = draw(st.integers(1, 8))
    ends = [0, *sorted(draw(st.sets(st.integers(1, 63), min_size=count - 1, max_size=count - 1))), 64]
    blocks = tuple(stop - start for start, stop in itertools.pairwise(ends))
    return Layout(Cut(blocks, draw(st.integers(1, count))))


@st.composite
def flips(draw: st.DrawFn, most: int) -> int:
    """Draw a word with at most `most` bits set."""
    return sum(1 << bit for bit in draw(st.sets(st.integers(0, 63), max_size=most)))


def untouched(layout: Layout, flipped: set[int]) -> bool:
    return any(flipped.isdisjoint(drawer.positions) for drawer in layout.drawers)


def atoms(layout: Layout) -> list[int]:
    """Return one bit position for each class of positions that lie in the same drawers' segments.

    Flips within one class have the same effect. Positions beyond a segment's first 32 bits are not part of the drawer,
    which can only leave more drawers untouched.
    """
    return [positions[0] for positions in cells(layout)]


@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_every_spread_of_k_flips_over_the_blocks_leaves_a_drawer_untouched(name: str) -> None:
    layout = Layout.named(name)
    for count in range(layout.max_distance + 1):
        for flipped in itertools.combinations(atoms(layout), count):
            assert untouched(layout, set(flipped)), f"{name} misses flips at {flipped}"


@pytest.mark.parametrize("name", ["4", "10", "28"])
def test_k_is_the_greatest_distance_that_is_complete(name: str) -> None:
    layout = Layout.named(name)
    spreads = itertools.combinations(atoms(layout), layout.max_distance + 1)
    assert not all(untouched(layout, set(flipped)) for flipped in spreads)


@given(st.data())
def test_near_fingerprint_shares_a_bucket(data: st.DataObject) -> None:
    layout = data.draw(any_layout())
    fingerprint, flip = data.draw(fingerprints), data.draw(flips(layout.max_distance))
    assert set(layout.prefixes(fingerprint)) & set(layout.prefixes(fingerprint ^ flip))


@pytest.mark.parametrize(
    ("name", "documents", "candidates"), [("4", 10**6, 61), ("10", 2**34, 3584), ("28", 10**6, 427)]
)
def test_uniform_candidates_are_the_published_ones(name: str, documents: int, candidates: int) -> None:
    assert round(Layout.named(name).candidates(documents)) == candidates


@given(any_layout(), st.lists(fingerprints, max_size=5))
def test_array_and_scalar_forms_agree(layout: Layout, values: list[int]) -> None:
    array = np.array(values, np.uint64)
    assert layout.segments(array).tolist() == [[d.segment(value) for d in layout.drawers] for value in values]
    prefixes = [[bytes(prefix) for prefix in row] for row in layout.prefix_array(array)]
    assert prefixes == [layout.prefixes(value) for value in values]


@given(any_layout(), st.lists(fingerprints, min_size=1, max_size=20))
def test_permuted_order_is_the_order_of_segment_and_fingerprint(layout: Layout, values: list[int]) -> None:
    for drawer in layout.drawers:
        permuted = drawer.permute(np.array(values, np.uint64))
        assert drawer.restore(permuted).tolist() == values
        ordered = drawer.restore(np.sort(permuted)).tolist()
        assert ordered == sorted(values, key=lambda value: (drawer.segment(value), value))


@given(any_layout())
def test_json_and_text_form_give_the_layout_back(layout: Layout) -> None:
    assert Layout.from_json(layout.to_json()) == layout
    assert Layout.parse(layout.text_form) == layout
    assert Layout.parse(layout.name) == layout


def test_blocks_of_a_named_layout_get_its_name() -> None:
    assert Layout.parse("13,13,13,13,12/2").name == "10"
    assert Layout.even(6, 3).name == "20"
    assert Layout.even(5, 1).name == "13,13,13,13,12/1"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("16,16,16/1", "sum to 64, got 48"),
        ("64,0/1", "at least 1 bit"),
        ("16,16,16,16/5", "k = -1; choose"),
        ("16,16,16,16/0", "at least 1 block"),
        ("6,6,6,6,6,6,6,6,6,5,5/5", "462 drawers"),
        ("16,16,16,16/1+16,16,15/1", "sum to 48"),
        ("7", "expected 4, 10"),
        ("16,x/1", "expected blocks/choice"),
        ("32,32/1+16,16/1+8,8/1", "one or two cuts"),
    ],
)
def test_a_layout_that_cannot_be_stored_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("(", r"\(")):
        Layout.parse(text)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"blocks": [64]},
        {"blocks": "64", "choose": 1},
        {"blocks": [64], "choose": True},
        {"blocks": [64], "choose": 1, "k": 3},
        {"blocks": [64], "choose": 1, "name": "4"},
        {"blocks": [64], "choose": 1, "inner": []},
    ],
)
def test_json_that_is_no_layout_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="layout"):
        Layout.from_json(fields)


def test_most_drawers_that_fit_the_flag_are_accepted() -> None:
    assert len(Layout.even(23, 2).drawers) == math.comb(23, 2) == 253


@pytest.mark.parametrize("name", ["4", "10", "16", "28", "64/1", "1,1,62/2"])
def test_one_fingerprint_is_permuted_as_many_are(name: str) -> None:
    values = np.random.default_rng(4).integers(0, 2**64, 20, np.uint64)
    for drawer in Layout.parse(name).drawers:
        permuted = drawer.permute(values).tolist()
        assert [drawer.permute_one(value) for value in values.tolist()] == permuted
        assert [drawer.restore_one(value) for value in permuted] == values.tolist()
