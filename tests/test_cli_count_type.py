"""Counts of documents, as people write them."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from hsimhash.cli.count_type import Count
from tests.support.command_line import make_index, run
from tests.support.effort import thorough


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("7", 7), ("10_000", 10_000), ("1,000,000", 10**6), ("50M", 50 * 10**6), ("50m", 50 * 10**6)],
        *[("2.5B", 2_500_000_000), ("1e8", 10**8), ("1E+8", 10**8), ("1.5e3", 1500), ("3k", 3000), ("2G", 2 * 10**9)],
        *[("1T", 10**12), ("0.5K", 500)],
    ],
)
def test_a_count_is_read(text: str, number: int) -> None:
    assert Count().convert(text, None, None) == number


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "1e-3", "50X", "5MM", "e8", "1e999", "٣", "inf", "nan", "0x10", "_1"]
)
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a valid count: expected"):
        Count().convert(text, None, None)


@thorough
def test_every_option_that_asks_for_documents_takes_a_count(tmp_path: Path) -> None:
    url, texts = make_index(tmp_path), tmp_path / "in.jsonl"
    lines = [
        json.dumps({"id": str(one), "text": " ".join(["page", *(f"w{one}x{at}" for at in range(40))])})
        for one in range(8)
    ]
    texts.write_text("\n".join(lines))
    for command in (
        ("plan", "--documents", "1K"),
        ("calibrate", str(texts), "--profile", "words-1", "--sample", "1e3", "--documents", "2.5M"),
        ("query", "1", "--limit", "1k", "--store", url),
        ("dedup", str(texts), "--out", str(tmp_path / "out"), "--clusters", "components", "--max-cluster-size", "1K"),
        ("ingest", str(texts), "--rate", "1M", "--store", f"lmdb://{tmp_path / 'new'}"),
        ("fit", str(texts), "--profile", "auto-3", "--output", str(tmp_path / "t"), "--sample", "10K"),
    ):
        assert run(*command).exit_code == 0, command
