"""`hsimhash describe`, `status` and `distance`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import make_index, run


def test_status_counts_documents_and_rows(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    facts = json.loads(run("status", "--store", url, "--json").stdout)
    assert (facts["documents"], facts["drawer_rows"]) == (4, 40)
    shown = dict(line.split("  ", 1) for line in run("status", "--store", url).stdout.splitlines())
    assert shown["documents"].strip() == "4"
    assert shown["file bytes"].endswith("KiB")


def test_json_has_the_record_and_the_counts(tmp_path: Path) -> None:
    url = make_index(tmp_path, layout="4")
    facts = json.loads(run("describe", "--store", url, "--json").stdout)
    assert facts["url"] == url
    assert facts["layout"]["name"] == "4"
    assert facts["profile"]["name"] == "auto-1"
    assert (facts["documents"], facts["drawer_rows"], facts["max_distance"]) == (4, 16, 3)


def test_people_read_a_line_for_each_fact(tmp_path: Path) -> None:
    result = run("describe", "--store", make_index(tmp_path))
    assert result.exit_code == 0
    facts = dict(line.split("  ", 1) for line in result.stdout.splitlines())
    assert facts["documents"].strip() == "4"
    assert facts["file bytes"].endswith("KiB")
    assert [facts[f"layout {name}"].strip() for name in ("name", "blocks", "choose", "drawers")] == [
        *("10", "13 13 13 13 12", "2", "10")
    ]
    assert (facts["distance"].strip(), facts["profile"].strip()) == ("3", "auto-1")
    assert "max distance" not in facts
    assert len(facts) < 20
    assert not any("{" in line or '"' in line for line in result.stdout.splitlines())


def test_the_bits_that_differ_are_counted_and_named() -> None:
    result = run("distance", "0123456789abcdef", "0x8123456789abcdee", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "distance": 2,
        "a": "0123456789abcdef",
        "b": "8123456789abcdee",
        "differing": "8000000000000001",
        "bits": [0, 63],
    }


def test_people_read_names_and_values() -> None:
    shown = dict(line.split(maxsplit=1) for line in run("distance", "7", "0x5").stdout.splitlines())
    assert (shown["distance"], shown["a"], shown["bits"]) == ("1", "0000000000000007", "1")
    assert "none" in run("distance", "7", "0x7").stdout


def test_numbers_are_read_as_the_format_says() -> None:
    # 1 bit apart as decimals; the first has 16 digits.
    pair = ("1291587514616409", "19305986024098393")
    assert json.loads(run("distance", *pair, "--json", "--fingerprint-format", "decimal").stdout)["distance"] == 1
    assert json.loads(run("distance", "--json", "--fingerprint-format", "signed", "--", "-1", "0").stdout)["bits"] == [
        *range(64)
    ]
    refused = run("distance", *pair)
    assert refused.exit_code == 2
    assert "ambiguous fingerprint '1291587514616409'" in refused.stderr


@pytest.mark.parametrize("words", [("1",), ("1", "2", "3"), ("1", "xyz"), ("1", "gone.txt")])
def test_anything_but_two_fingerprints_is_misuse(words: tuple[str, ...]) -> None:
    assert run("distance", *words).exit_code == 2
