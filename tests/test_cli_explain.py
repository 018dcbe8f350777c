"""`hsimhash explain` and `hsimhash status` on embedded indexes."""

import json
from pathlib import Path

from hsimhash.layout import Layout
from hsimhash.rowkey import bucket_range
from tests.support.command_line import DOCUMENTS, make_index, run


def test_every_bucket_is_told_with_its_range_and_rows(tmp_path: Path) -> None:
    url = make_index(tmp_path, layout="4")
    facts = json.loads(run("explain", "--query", "1", "--store", url, "--json").stdout)
    ranges = [tuple(key.hex() for key in bucket_range(prefix)) for prefix in Layout.named("4").prefixes(1)]
    assert [(one["drawer"], one["start"], one["stop"]) for one in facts["buckets"]] == [
        (number, *keys) for number, keys in enumerate(ranges, start=1)
    ]
    # The three near ones differ in the last of four blocks only: three buckets have them all, the fourth just itself.
    assert [(one["rows"], one["near"]) for one in facts["buckets"]] == [(3, 3), (3, 3), (3, 3), (1, 1)]
    assert (facts["scans"], facts["candidates"], facts["near"], facts["documents"]) == (4, 10, 10, 3)
    assert "server" not in facts["buckets"][0]


def test_a_document_is_explained_by_its_fingerprint(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    facts = json.loads(run("explain", "--id", "far", "--store", url, "--json", "--max-distance", "0").stdout)
    assert (facts["fingerprint"], facts["documents"]) == ("f" * 16, 1)
    assert int(facts["fingerprint"], 16) == DOCUMENTS["far"]


def test_people_read_a_table_and_the_sums(tmp_path: Path) -> None:
    shown = run("explain", "--query", "1", "--store", make_index(tmp_path)).stdout
    assert "milliseconds" in shown
    assert "0000000001" in shown
    assert "candidates" in shown


def test_one_question_at_a_time(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    assert run("explain", "--store", url).exit_code == 2
    assert run("explain", "--query", "1", "--id", "a", "--store", url).exit_code == 2
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
