"""The 13 bytes of a rowkey: encode, decode, ranges, splits, document ids."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash import rowkey
from hsimhash.layout import LAYOUT_NAMES, Layout

fingerprints = st.integers(0, 2**64 - 1)


@given(st.sampled_from(LAYOUT_NAMES), st.lists(fingerprints, max_size=4))
def test_rowkeys_are_segment_flag_and_fingerprint(name: str, values: list[int]) -> None:
    layout = Layout.named(name)
    rows = rowkey.encode(layout, np.array(values, np.uint64))
    assert rows.shape == (len(values), len(layout.drawers), 13)
    for value, row in zip(values, rows, strict=True):
        for drawer, key in zip(layout.drawers, row, strict=True):
            prefix = drawer.segment(value).to_bytes(4, "big") + bytes([drawer.number])
            assert key.tobytes() == prefix + value.to_bytes(8, "big")
        assert rowkey.fingerprints_of(row).tolist() == [value] * len(layout.drawers)


@given(fingerprints)
def test_bucket_range_is_half_open_and_holds_every_fingerprint(value: int) -> None:
    prefix = Layout.named("4").prefixes(value)[0]
    start, stop = rowkey.bucket_range(prefix)
    assert start <= prefix + value.to_bytes(8, "big") < stop
    assert start <= prefix + b"\xff" * 8 < stop
    assert stop[:5] == prefix


@pytest.mark.parametrize("name", LAYOUT_NAMES)
@pytest.mark.parametrize("used_bits", [64, 58], ids=["uniform", "skewed"])  # skewed: the first bits are always zero
def test_splits_share_the_rows_evenly(used_bits: int, name: str) -> None:
    layout, regions = Layout.named(name), 16
    values = np.random.default_rng(7).integers(0, 2**used_bits, 20_000, np.uint64)
    keys = rowkey.splits(layout, regions, sample=None if used_bits == 64 else values)
    edges = np.array([int.from_bytes(key, "big") for key in keys], np.uint32)
    shares = np.bincount(np.searchsorted(edges, layout.segments(values).ravel(), "right"), minlength=regions)
    assert len(edges) == regions - 1
    assert shares.max() < 1.1 * shares.mean()


@pytest.mark.parametrize("regions", [0, -1, 65537])
def test_impossible_region_numbers_are_refused(regions: int) -> None:
    with pytest.raises(ValueError, match="regions must be"):
        rowkey.splits(Layout.named("10"), regions)


def test_a_sample_too_small_for_its_regions_is_refused() -> None:
    with pytest.raises(ValueError, match="too few distinct"):
        rowkey.splits(Layout.named("4"), 100, sample=np.array([1, 2], np.uint64))
    with pytest.raises(ValueError, match="empty sample"):
        rowkey.splits(Layout.named("4"), 2, sample=np.array([], np.uint64))


@pytest.mark.parametrize("doc_id", ["a", "https://example.org/?q=文", "\u2028 line separator", "é" * 1024, "x" * 2048])
def test_valid_ids_give_their_utf8(doc_id: str) -> None:
    assert rowkey.check_doc_id(doc_id) == doc_id.encode()


@pytest.mark.parametrize(
    ("doc_id", "error", "reason"),
    [
        ("", ValueError, "1 to 2048"),
        ("é" * 1025, ValueError, "got 2050"),
        ("a\tb", ValueError, "control"),
        ("a\x7f", ValueError, "control"),
        ("a\x85", ValueError, "control"),
        ("\ud800", ValueError, "surrogates"),
        (7, TypeError, "got int"),
        (b"a", TypeError, "got bytes"),
    ],
)
def test_bad_ids_are_refused_with_the_reason(doc_id: object, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        rowkey.check_doc_id(doc_id)
