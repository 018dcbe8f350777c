"""`hsimhash explain`: what a query reads, and how two documents compare; see also `test_calibrate_compare_two.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from hsimhash import HSimIndex, Signature
from hsimhash.cli.explain import print_probes
from hsimhash.layout import Layout
from hsimhash.rowkey import bucket_range
from tests.support.command_line import DOCUMENTS, make_index, run, run_apart
from tests.test_calibrate import article, edited


def test_every_bucket_is_shown_with_its_range_and_rows(tmp_path: Path) -> None:
    url = make_index(tmp_path, layout="4")
    facts = json.loads(run("explain", "1", "--distance", "3", "--store", url, "--json").stdout)
    ranges = [tuple(key.hex() for key in bucket_range(prefix)) for prefix in Layout.named("4").prefixes(1)]
    assert [(one["drawer"], one["start"], one["stop"]) for one in facts["probes"]] == [
        (number, *keys) for number, keys in enumerate(ranges, start=1)
    ]
    # The three near ones differ only in the last of four blocks: three buckets contain all three, the fourth only one.
    assert [(one["rows"], one["near"]) for one in facts["probes"]] == [(3, 3), (3, 3), (3, 3), (1, 1)]
    assert (facts["scans"], facts["candidates"], facts["near"], facts["documents"]) == (4, 10, 10, 3)
    assert "server" not in facts["probes"][0]


def test_a_document_is_explained_by_its_fingerprint(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    facts = json.loads(run("explain", "--id", "far", "--store", url, "--json", "--distance", "0").stdout)
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
    shown = run("explain", "1", "--store", make_index(tmp_path)).stdout
    assert "milliseconds" in shown
    assert "0000000001" in shown
    assert "candidates" in shown


def test_one_question_at_a_time(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    assert run("explain", "--store", url).exit_code == 2
    assert run("explain", "--id", "a", "--id", "b", "--id", "c", "--store", url).exit_code == 2
    unknown = run("explain", "--id", "z", "--store", url)
    assert unknown.exit_code == 1
    assert "does not have a document 'z'" in unknown.stderr


def bits_of(number: int) -> list[int]:
    return [bit for bit in range(64) if number >> bit & 1]


def differing_bits(facts: dict[str, Any]) -> list[int]:
    return sorted(bit for one in facts["blocks"] for bit in one["differing"])


@pytest.fixture
def pages(tmp_path: Path) -> tuple[str, str]:
    paths = tmp_path / "a.txt", tmp_path / "b.txt"
    for path, text in zip(paths, (article(1), edited(article(1), 4, 1)), strict=True):
        path.write_text(text)
    return str(paths[0]), str(paths[1])


def test_two_files_are_compared(pages: tuple[str, str]) -> None:
    facts = json.loads(run("explain", *pages, "--profile", "auto-2", "--json").stdout)
    a, b = (int(facts[side]["fingerprint"], 16) for side in "ab")
    assert facts["distance"] == len(facts["flips"]) > 0
    assert sorted(one["bit"] for one in facts["flips"]) == differing_bits(facts) == bits_of(a ^ b)
    assert facts["features"][0]["push"] > 0
    shown = run("explain", *pages).stdout
    assert "drawer" in shown
    assert "words equal: 9" in shown
    assert shown.count("\n- ") == shown.count("\n+ ") > 0


def test_it_says_which_word_weights_it_used_where_dedup_would_use_others(pages: tuple[str, str]) -> None:
    hint = "explain uses word weights for general text"
    assert hint in run("explain", *pages).stderr
    assert hint not in run("explain", *pages, "--profile", "auto-2").stderr
    assert hint not in run("explain", "1", "2").stderr


@pytest.mark.usefixtures("in_empty_folder")
def test_a_single_document_without_an_index_needs_another(pages: tuple[str, str]) -> None:
    result = run("explain", pages[0])
    assert (result.exit_code, "pass --store, or a second document" in result.stderr) == (2, True)
    assert run("explain", pages[0], "--store", "lmdb://nowhere").exit_code == 5


def test_documents_of_an_index_are_compared_by_what_it_knows(pages: tuple[str, str], tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path / 'index'}"
    with HSimIndex.create(url, profile="auto-2", layout="10", distance=5) as index:
        index.add(index.profile.signature(article(1)), "one")
        index.add(index.profile.signature(article(2)), "other")
        reach = index.cover().probes
    facts = json.loads(run("explain", "one", "other", "--store", url, "--json").stdout)
    assert (facts["a"]["name"], facts["found_by"], facts["features"]) == ("id one", None, [])
    assert "do not contain texts" in facts["features_missing"]
    assert [(one["drawer"], one["bits"], one["radius"]) for one in facts["probes"]] == [
        (one.drawer, one.bits, one.radius) for one in reach
    ]
    mixed = json.loads(run("explain", "one", pages[0], "--store", url, "--json").stdout)
    assert (mixed["distance"], mixed["found_by"], mixed["b"]["name"]) == (0, "distance", f"file {pages[0]}")


def test_a_text_is_what_is_neither_a_file_nor_an_id(pages: tuple[str, str], tmp_path: Path) -> None:
    facts = json.loads(run("explain", article(1), pages[0], "--json").stdout)
    assert (facts["distance"], facts["words"]["equal_share"]) == (0, 1.0)
    assert facts["a"]["name"].startswith("text ")
    named = [word for page in pages for word in ("--text", page)]
    texts = json.loads(run("explain", *named, "--json").stdout)
    assert [texts[side]["name"] for side in "ab"] == [f"text {page:.40}" for page in pages]
    own = ("--text", pages[0], "--file", pages[0])  # two paths may have the same fingerprint by chance
    assert json.loads(run("explain", *own, "--json").stdout)["distance"] > 0
    from_stdin = run_apart("explain", "-", pages[0], "--json", given=article(1).encode())
    assert json.loads(from_stdin.stdout)["distance"] == 0
    unknown = run("explain", "nobody", "a", "--store", make_index(tmp_path))
    assert unknown.exit_code == 1
    assert "'nobody'" in unknown.stderr
    assert "--text" in unknown.stderr


@pytest.mark.parametrize("command", ["explain", "fingerprint"])
@pytest.mark.parametrize("missing", ["notes/a.txt", "/a", "a.html", "b.jsonl.gz", "./a"])
def test_a_path_of_no_file_is_not_a_text(command: str, missing: str, pages: tuple[str, str]) -> None:
    refused = run(command, missing, pages[0])
    assert (refused.exit_code, f"no such file: {missing!r}; to use" in refused.stderr) == (2, True)
    assert run(command, "--text", missing, "--text", "a").exit_code == 0
    for text in (
        "either/or",
        "https://example.org/a",
        "U.S.A",
        "请访问example.com",
        "车速80km/h也没问题。",
        "the end.txt is",
    ):
        assert run(command, text, pages[0]).exit_code == 0
    Path("folder").mkdir(exist_ok=True)
    assert "'folder' is a folder; to use" in run(command, "folder", pages[0]).stderr


def test_the_bits_in_which_two_fingerprints_differ_are_counted_and_named(tmp_path: Path) -> None:
    pair = ("0123456789abcdef", "0x8123456789abcdee")
    index = ("--store", make_index(tmp_path))
    for store in ((), index):
        facts = json.loads(run("explain", *pair, *store, "--json").stdout)
        assert (facts["distance"], differing_bits(facts)) == (2, [0, 63])
        assert [facts[side]["fingerprint"] for side in "ab"] == ["0123456789abcdef", "8123456789abcdee"]
    shown = dict(line.split(maxsplit=1) for line in run("explain", "7", "0x5").stdout.splitlines()[:5])
    assert (shown["distance"], shown["a"]) == ("1", "0000000000000007  fingerprint 7")


def test_an_id_of_the_index_comes_before_a_fingerprint(tmp_path: Path) -> None:
    url = make_index(tmp_path, {"0123456789abcdef": 5})
    facts = json.loads(run("explain", "0123456789abcdef", "7", "--store", url, "--json").stdout)
    assert (facts["a"]["name"], facts["a"]["fingerprint"]) == ("id 0123456789abcdef", f"{5:016x}")
    assert (facts["b"]["name"], facts["distance"]) == ("fingerprint 7", 1)


def test_the_fingerprints_of_two_arguments_are_read_as_the_format_says() -> None:
    pair = ("1291587514616409", "19305986024098393")  # 1 bit apart as decimals; the first has 16 digits
    facts = json.loads(run("explain", *pair, "--json", "--fingerprint-format", "decimal").stdout)
    assert facts["distance"] == 1
    facts = json.loads(run("explain", "--json", "--fingerprint-format", "signed", "--", "-1", "0").stdout)
    assert differing_bits(facts) == [*range(64)]
    refused = run("explain", *pair)
    assert refused.exit_code == 2
    assert "ambiguous fingerprint '1291587514616409'" in refused.stderr


def test_two_documents_and_nothing_else(pages: tuple[str, str]) -> None:
    refused = [("a",), ("a", "b", "c"), (*pages, "--id", "a"), ("--id", "a", "--id", "b"), ("-", "-")]
    assert [run("explain", *one).exit_code for one in refused] == [2] * len(refused)
    assert run("explain", "?", pages[0]).exit_code == 1
    assert run("explain", "--file", "/no/such/file", pages[0]).exit_code == 1


def test_a_narrow_terminal_breaks_no_cell_of_a_table_on_hbase(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probes = [
        {
            **{"drawer": number, "radius": 0, "buckets": 1, "start": "0123456789", "stop": "012345678a"},
            **{
                "region": "0123456789",
                "server": "region-server-1:16020",
                "rows": 1_000,
                "near": 3,
                "milliseconds": 1.25,
            },
        }
        for number in range(1, 12)
    ]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for columns, has_ends in (("80", False), ("120", True)):
        monkeypatch.setenv("COLUMNS", columns)
        print_probes(probes)
        lines = capsys.readouterr().out.splitlines()
        assert sum("region-server-1:16020" in line for line in lines) == 11
        assert len(lines) < 16
        assert ("012345678a" in lines[5]) == has_ends
