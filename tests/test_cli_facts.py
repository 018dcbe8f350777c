"""`hsimhash describe`, `explain` and `distance`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hsimhash import HSimIndex, Signature
from hsimhash.layout import Layout
from hsimhash.rowkey import bucket_range
from tests.support.command_line import DOCUMENTS, make_index, run


def test_every_bucket_is_shown_with_its_range_and_rows(tmp_path: Path) -> None:
    url = make_index(tmp_path, layout="4")
    facts = json.loads(run("explain", "--query", "1", "--distance", "3", "--store", url, "--json").stdout)
    ranges = [tuple(key.hex() for key in bucket_range(prefix)) for prefix in Layout.named("4").prefixes(1)]
    assert [(one["drawer"], one["start"], one["stop"]) for one in facts["probes"]] == [
        (number, *keys) for number, keys in enumerate(ranges, start=1)
    ]
    # The three near ones differ in the last of four blocks only: three buckets have them all, the fourth just itself.
    assert [(one["rows"], one["near"]) for one in facts["probes"]] == [(3, 3), (3, 3), (3, 3), (1, 1)]
    assert (facts["scans"], facts["candidates"], facts["near"], facts["documents"]) == (4, 10, 10, 3)
    assert "server" not in facts["probes"][0]


def test_a_document_is_explained_by_its_fingerprint(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    facts = json.loads(run("explain", "--id", "far", "--store", url, "--json", "--max-distance", "0").stdout)
    assert (facts["fingerprint"], facts["documents"]) == ("f" * 16, 1)
    assert int(facts["fingerprint"], 16) == DOCUMENTS["far"]


def test_a_text_is_explained_by_its_signature_also_from_a_file(tmp_path: Path) -> None:
    url, text = f"lmdb://{tmp_path / 'texts'}", " ".join(f"word{number}" for number in range(100))
    (tmp_path / "page.txt").write_text(text)
    with HSimIndex.create(url, profile="auto-2") as index:
        signature = index.profile.signature(text)
        index.add(signature, "a")
        index.add(Signature(signature.fingerprint ^ 0xFFFF, signature.sketch, signature.key), "framed")
    for given in (("--text", text), ("--file", str(tmp_path / "page.txt"))):
        facts = json.loads(run("explain", *given, "--store", url, "--json").stdout)
        assert facts["fingerprint"] == f"{signature.fingerprint:016x}"
        assert (facts["probes"][-1]["drawer"], facts["probes"][-1]["rows"], facts["documents"]) == ("key", 2, 2)


def test_people_read_a_table_and_the_sums(tmp_path: Path) -> None:
    shown = run("explain", "--query", "1", "--store", make_index(tmp_path)).stdout
    assert "milliseconds" in shown
    assert "0000000001" in shown
    assert "candidates" in shown


def test_one_question_at_a_time(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    assert run("explain", "--store", url).exit_code == 2
    assert run("explain", "--query", "1", "--id", "a", "--store", url).exit_code == 2
    assert run("explain", "--text", "a", "--file", "a", "--store", url).exit_code == 2
    unknown = run("explain", "--id", "z", "--store", url)
    assert unknown.exit_code == 1
    assert "no document 'z'" in unknown.stderr


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
    assert (facts["max distance"].strip(), facts["profile name"].strip()) == ("3", "auto-1")
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


@pytest.mark.parametrize("words", [("1",), ("1", "2", "3"), ("1", "xyz")])
def test_anything_but_two_fingerprints_is_misuse(words: tuple[str, ...]) -> None:
    assert run("distance", *words).exit_code == 2
