"""Every command that fingerprints inputs rejects a text that cannot be fingerprinted, and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hsimhash.cli.exit_codes import ExitCode
from hsimhash.fingerprint.long_texts import MOST_RUN
from tests.support.command_line import Result, run
from tests.support.effort import thorough
from tests.test_calibrate import article

REASON = f"text has a run of over {MOST_RUN:,} characters that the Chinese segmenter cannot split"
PAGES = ["Near-duplicate pages are common on the web.", "网" * (MOST_RUN + 1), "A page about something else entirely."]


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    records = [{"id": f"d{number}", "text": text} for number, text in enumerate(PAGES)]
    Path("pages.jsonl").write_text("".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records))
    return "pages.jsonl"


def rejects(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def summary_of(result: Result) -> dict[str, Any]:
    assert result.exit_code == ExitCode.REJECTED_RECORDS, result.stderr
    summary: dict[str, Any] = json.loads(result.stdout)
    return summary


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("on_duplicate", ["add", "skip", "tag"])
def test_ingest_rejects_it_and_adds_the_others(pages: str, on_duplicate: str, workers: str) -> None:
    options = ("--store", "lmdb://index", "--on-duplicate", on_duplicate, "--workers", workers)
    summary = summary_of(run("ingest", pages, *options))
    assert (summary["documents"], summary["rejected"], summary["added"]) == (3, 1, 2)
    (reject,) = rejects(Path(summary["rejects"]))
    assert (reject["file"], reject["line"]) == (pages, 2)
    assert reject["reason"].startswith(REASON)
    assert reject["record"].startswith("网网")


def test_a_file_of_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    for number, text in enumerate(PAGES):
        Path("notes", f"{number}.txt").write_text(text)
    summary = summary_of(run("ingest", "notes", "--store", "lmdb://index"))
    (reject,) = rejects(Path(summary["rejects"]))
    assert Path(reject["file"]).parts[-2:] == ("notes", "1.txt")
    assert summary["documents"] == summary["rejected"] + summary["added"] == 3


def test_dedup_rejects_it_and_compares_the_others(pages: str) -> None:
    summary = summary_of(run("dedup", pages, "--out", "out"))
    assert (summary["rejected"], summary["documents"], summary["kept"] + summary["dropped"]) == (1, 2, 2)


@thorough
def test_calibrate_compares_the_others(pages: str) -> None:
    texts = [*PAGES[:1], PAGES[1], *map(article, range(20))]
    lines = (json.dumps({"id": f"d{number}", "text": text}) for number, text in enumerate(texts))
    Path("more.jsonl").write_text("\n".join(lines))
    result = run("calibrate", "more.jsonl", "--profile", "auto-2", "--json")
    assert result.exit_code == ExitCode.DONE, result.stderr
    assert json.loads(result.stdout)["sample"] == len(texts)
