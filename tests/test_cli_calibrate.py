"""`hsimhash calibrate` through the entry point; `test_calibrate.py` tests its numbers."""

from __future__ import annotations

import gzip
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import click
import pytest

from hsimhash.cli.calibrate import calibrate_command
from hsimhash.cli.closing_messages import calibrate_ending
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions
from tests.support.command_line import run, run_apart
from tests.support.effort import thorough
from tests.test_calibrate import article, calibrated, edited, templated, written
from tests.test_dedup_report import Page

FEW = ("--profile", "words-1")


@pytest.fixture
def pages(tmp_path: Path) -> str:
    texts = {str(number): article(number) for number in range(30)}
    return written(tmp_path, texts | {f"near-{number}": edited(texts[str(number)], 5, number) for number in range(9)})


@thorough
def test_people_read_tables_and_what_is_recommended(pages: str) -> None:
    result = run("calibrate", pages, *FEW)
    assert result.exit_code == 0, result.stderr
    assert "F1 by distance" in result.stdout
    assert "recommended: words-1, by distance, within" in result.stdout
    assert "of the near pairs; F1 " in result.stdout


def test_a_profile_with_lists_of_ones_own_is_tried(pages: str, tmp_path: Path) -> None:
    stops = tmp_path / "stops.txt"
    stops.write_text("the\n")
    result = run("calibrate", pages, "--profile", f"auto-2:stops={stops}", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["recommended"]["profile"].startswith("auto-2-stops-")


@thorough
def test_json_and_a_page_from_labels(pages: str, tmp_path: Path) -> None:
    labels, page = tmp_path / "labels.tsv", tmp_path / "page.html"
    labels.write_text("".join(f"{number}\tnear-{number}\n" for number in range(9)))
    result = run("calibrate", pages, "--pairs", str(labels), *FEW, "--report", str(page), "--json")
    facts = json.loads(result.stdout)
    assert (facts["labelled"], facts["near_pairs"], facts["sample"]) == (True, 9, 39)
    assert facts["recommended"]["create_table"] in Page(page.read_text(encoding="utf-8")).commands[1]


@thorough
def test_bad_records_and_labels_are_named_and_the_rest_is_counted(pages: str, tmp_path: Path) -> None:
    with Path(pages).open("a") as file:
        file.write("no JSON\n")
    labels = tmp_path / "labels.tsv"
    labels.write_text("1\tnear-1\t1\n2\tnear-2\tperhaps\n")
    result = run("calibrate", pages, "--pairs", str(labels), *FEW, "--json")
    assert result.exit_code == 7
    assert f"{pages}:40: " in result.stderr
    assert f"{labels}:2: " in result.stderr
    facts = json.loads(result.stdout)
    assert (facts["near_pairs"], facts["rejected"]) == (1, 2)


@pytest.mark.parametrize("first", ["1\tnear-1\tyes", "near-2\tother\tyes", "id\tother\tnear"])
def test_a_first_line_of_labels_with_ids_of_documents_is_no_header(pages: str, tmp_path: Path, first: str) -> None:
    labels = tmp_path / "labels.tsv"
    labels.write_text(f"{first}\n1\tnear-1\t1\n2\tnear-2\t1\n2\tnear-1\tno\n")
    result = run("calibrate", pages, "--pairs", str(labels), *FEW, "--json")
    assert result.exit_code == 7
    rejected = [line.split(": ")[2] for line in result.stderr.splitlines() if "the third column must be 1" in line]
    assert rejected == [f"{labels}:{number}" for number in ((1, 4) if first.endswith("yes") else (4,))]
    assert json.loads(result.stdout)["near_pairs"] == 2


def test_what_cannot_be_calibrated_is_refused(pages: str, tmp_path: Path) -> None:
    labels, numbers, few, cut = (tmp_path / one for one in ("labels.tsv", "numbers.tsv", "few.jsonl", "cut.tsv.gz"))
    cut.write_bytes(gzip.compress(b"a\tb\n" * 99)[:20])
    alike = written(tmp_path, {"a": article(1), "b": edited(article(1), 3, 1)}, "alike.jsonl")
    labels.write_text("x\ty\n")
    numbers.write_text("a\t0123456789abcdef\n")
    few.write_text('{"id": "a", "text": "one"}\n')
    refused = {
        ("--pairs", str(labels), "--edits", pages): (2, "pass only one of them"),
        ("--pairs", str(labels), pages): (1, "no document has the id 'x', but one has '0'; if"),
        ("--profile", "none-1", pages): (2, "unknown profile 'none-1'"),
        (str(numbers),): (2, "pass texts instead"),
        ("--pairs", str(cut), pages): (2, "cut.tsv.gz: damaged or truncated"),
        (alike, *FEW): (1, "no two documents in the sample are unrelated"),
        (str(few),): (1, "too few documents to compare: expected at least 2, got 1"),
        ("--sample", "1", pages): (2, "--sample"),
        ("--report", str(tmp_path / "no" / "page.html"), pages, *FEW): (2, "no folder"),
    }
    for options, (code, words) in refused.items():
        result = run("calibrate", *options)
        assert (result.exit_code, result.stdout) == (code, ""), result.stderr
        assert words in result.stderr


@thorough
def test_texts_come_from_stdin_too(pages: str) -> None:
    result = run_apart("calibrate", "-", *FEW, "--json", "--documents", "1000000", given=Path(pages).read_bytes())
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["documents"] == 1_000_000


def _commands(told: str) -> list[list[str]]:
    """Return the commands that a calibration suggests running next, without the program's name."""
    lines = (line.partition(": ") for line in told.splitlines())
    return [
        shlex.split(words.partition("hsimhash ")[2])
        for title, _, words in lines
        if title.strip() in ("Next", "or", "and")
    ]


def test_flags_that_queries_of_the_recommended_index_need_are_told(
    pages: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = calibrated(pages, profiles=("auto-2",))
    by_way = {str(curve.way): curve for curve in found.curves}
    for way, told in (("distance or key", ["--max-sketch off"]), ("distance or key, sketches agree", [])):
        curve = by_way[way]
        chosen = replace(found, choice=found.choice._replace(curve=curve, score=curve.scores[6]))
        with click.Context(calibrate_command):
            calibrate_ending(chosen, [pages], InputOptions(), None)
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1 - len(told)].startswith(" and: ")
        assert lines[-1:] == [f"Query the index with {flags}." for flags in told] or not told


def test_what_is_recommended_of_a_profile_that_is_fitted_can_be_pasted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source, labels = templated(Path(), is_labelled=True)
    result = run("calibrate", source, "--pairs", str(labels), "--profile", "auto-3", "--report", "page.html")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"bits +auto-3 \(fitted\) +auto-3 \(not fitted\)\s", result.stdout)
    assert "recommended: auto-3 (fitted), by" in result.stdout
    assert "Word weights for auto-3 (fitted): learnt from 130 documents; " in result.stdout
    commands = _commands(result.stdout)
    assert [command[0] for command in commands] == ["dedup", "fit", "create-table", "ingest"]
    page = Page(Path("page.html").read_text(encoding="utf-8"))
    assert [one.split()[1] for one in page.commands[:4]] == [command[0] for command in commands]
    assert page.commands[0].endswith(" ".join(commands[0][-6:]))
    for command in commands:
        done = run(*command)
        assert done.exit_code == 0, done.stderr
    with HSimIndex.open("lmdb://index") as index:
        assert index.count() == 130
        assert index.profile.name == json.loads(Path("result", "stats.json").read_text())["profile"]
