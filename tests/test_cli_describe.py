"""`hsimhash describe` and `status`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.command_line import assert_status_names_a_crowd, make_index, run


def test_status_counts_documents_and_rows(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    facts = json.loads(run("status", "--store", url, "--json").stdout)
    assert (facts["documents"], facts["drawer_rows"]) == (4, 40)
    shown = dict(line.split("  ", 1) for line in run("status", "--store", url).stdout.splitlines())
    assert shown["documents"].strip() == "4"
    assert shown["file bytes"].endswith("KiB")
    assert f"{facts['free_bytes'] / facts['file_bytes']:.0%} of the file" in shown["free pages"]
    assert "'hsimhash compact'" in shown["free pages"]


def test_status_names_a_crowded_fingerprint(tmp_path: Path) -> None:
    assert_status_names_a_crowd(f"lmdb://{tmp_path / 'index'}")


def test_json_has_the_record_and_the_counts(tmp_path: Path) -> None:
    url = make_index(tmp_path, layout="4")
    facts = json.loads(run("describe", "--store", url, "--json").stdout)
    assert facts["url"] == url
    assert facts["layout"]["name"] == "4"
    assert facts["profile"]["name"] == "auto-1"
    assert (facts["documents"], facts["drawer_rows"], facts["max_distance"]) == (4, 16, 3)
    assert all(0 < facts[f"{name}_bytes"] < facts["file_bytes"] for name in ("drawers", "documents", "register"))


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
