"""The 13 bytes: encode, decode, ranges, splits, document ids."""

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


def test_rowkey_of_the_documented_example() -> None:
    row = rowkey.encode(Layout.named("4"), np.array([0x0123456789ABCDEF], np.uint64))[0, 1]
    assert row.tobytes().hex() == "45670000020123456789abcdef"


@given(fingerprints)
def test_bucket_range_is_half_open_and_holds_every_fingerprint(value: int) -> None:
    prefix = Layout.named("4").prefixes(value)[0]
    start, stop = rowkey.bucket_range(prefix)
    assert start <= prefix + value.to_bytes(8, "big") < stop
    assert start <= prefix + b"\xff" * 8 < stop
    assert stop[:5] == prefix


def test_documents_register_and_record_rows_have_their_flags() -> None:
    assert rowkey.documents_rowkey(0x0123456789ABCDEF).hex() == "01234567000123456789abcdef"
    assert rowkey.register_rowkey("文档".encode())[4] == 254
    assert bytes(4) + b"\xff" + bytes(8) == rowkey.RECORD_ROWKEY


@pytest.mark.parametrize("name", LAYOUT_NAMES)
def test_uniform_splits_share_the_rows_evenly(name: str) -> None:
    layout = Layout.named(name)
    values = np.random.default_rng(7).integers(0, 2**64, 20_000, np.uint64)
    edges = np.array([int.from_bytes(key, "big") for key in rowkey.splits(layout, 8)], np.uint32)
    shares = np.bincount(np.searchsorted(edges, layout.segments(values).ravel(), "right"), minlength=8)
    assert len(edges) == 7
    assert shares.max() < 1.1 * shares.mean()


def test_splits_from_a_sample_balance_skewed_fingerprints() -> None:
    layout = Layout.named("10")
    sample = np.random.default_rng(7).integers(0, 2**58, 20_000, np.uint64)  # the first bits are always zero
    edges = np.array([int.from_bytes(key, "big") for key in rowkey.splits(layout, 16, sample=sample)], np.uint32)
    shares = np.bincount(np.searchsorted(edges, layout.segments(sample).ravel(), "right"), minlength=16)
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
        ("é" * 1025, ValueError, "not 2050"),
        ("a\tb", ValueError, "control"),
        ("a\x7f", ValueError, "control"),
        ("a\x85", ValueError, "control"),
        ("\ud800", ValueError, "surrogates"),
        (7, TypeError, "not int"),
        (b"a", TypeError, "not bytes"),
    ],
)
def test_bad_ids_are_refused_with_the_reason(doc_id: object, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        rowkey.check_doc_id(doc_id)
