"""`hsimhash remove` and `expire`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hsimhash.cli import removal
from hsimhash.index import HSimIndex
from tests.support.command_line import ids_in, make_index, on_terminal, run
from tests.support.effort import thorough

DAY_MS = 86_400_000
NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01, UTC


@pytest.fixture
def url(tmp_path: Path) -> str:
    times = [NEW_YEAR_MS - 1, NEW_YEAR_MS, NEW_YEAR_MS - 365 * DAY_MS, time.time_ns() // 1_000_000]
    return make_index(tmp_path, first_seen=times)  # a, b, 中文, far


def test_documents_first_seen_earlier_are_removed(url: str) -> None:
    result = run("expire", "--before", "2026-01-01", "--yes", "--store", url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert "removed 2 documents" in result.stderr
    assert ids_in(url) == ["b", "far"]


@pytest.mark.parametrize(
    ("before", "removed"),
    [
        ("2025-12-31T23:59:59.999", 1),
        ("2026-01-01T00:00:00.001Z", 3),
        ("2026-01-01T08:00:00+08:00", 2),
        ("2026-01-01T00:00:00+08:00", 1),
        ("1d", 3),
        ("0min", 4),
        ("999999999w", 0),
    ],
)
def test_date_is_utc_unless_it_says_otherwise_and_may_be_an_age(url: str, before: str, removed: int) -> None:
    result = run("expire", "--before", before, "--dry-run", "--json", "--store", url)
    assert json.loads(result.stdout) == {"would_remove": removed}
    assert len(ids_in(url)) == 4


def test_minutes_or_months_are_refused_with_the_remedy(url: str) -> None:
    result = run("expire", "--before", "6m", "--yes", "--store", url)
    assert result.exit_code == 2
    assert (
        "'6m' could mean minutes or months; write 6min for minutes, or a number of days such as 180d" in result.stderr
    )
    assert len(ids_in(url)) == 4


def test_dry_run_removes_nothing_whatever_else_is_said(url: str) -> None:
    result = run("expire", "--before", "0min", "--dry-run", "--yes", "--store", url)
    assert result.exit_code == 0
    assert "would remove 4 documents" in result.stderr
    assert len(ids_in(url)) == 4


@pytest.mark.parametrize("before", ["yesterday", "30", "30y", "-1d", "2026-13-01", "٣d", "", None])
def test_bad_date_or_none_is_misuse(url: str, before: str | None) -> None:
    date = () if before is None else (f"--before={before}",)
    assert run("expire", *date, "--yes", "--store", url).exit_code == 2
    assert len(ids_in(url)) == 4


def test_all_batches_are_removed_while_the_index_is_walked(tmp_path: Path) -> None:
    times = [NEW_YEAR_MS - number % 3 for number in range(200)]
    url = make_index(tmp_path, {f"d{number}": number * 3 for number in range(200)}, first_seen=times)
    with HSimIndex.open(url) as index:
        assert removal._remove_old(index, NEW_YEAR_MS, at_once=7) == 133
    assert ids_in(url) == sorted(f"d{number}" for number in range(0, 200, 3))


def test_document_added_anew_meanwhile_stays(tmp_path: Path) -> None:
    url = make_index(tmp_path, {"old": 1, "again": 2})

    class Index(HSimIndex):
        """Adds a document again after the walk has found it, as another process might."""

        def remove(self, doc_ids, *, before=None):  # type: ignore[no-untyped-def]
            super().remove("again")
            self.add(2, "again", first_seen=NEW_YEAR_MS)
            return super().remove(doc_ids, before=before)

    with Index.open(url) as index:
        assert removal._remove_old(index, NEW_YEAR_MS) == 1
    assert ids_in(url) == ["again"]


def test_removed_and_unknown_documents_are_counted(url: str) -> None:
    result = run("remove", "a", "nobody", "中文", "a", "--yes", "--store", url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"hsimhash: removed 2 documents from {url}, 1 unknown: 'nobody'\n"
    assert ids_in(url) == ["b", "far"]


def test_the_first_unknown_ids_are_named(url: str) -> None:
    several = run("remove", "u1", "a", "u2", "u1", "u3", "u4", "--yes", "--store", url)
    assert several.stderr.endswith(", 4 unknown: 'u1', 'u2', 'u3', …\n")
    assert run("remove", "b", "--yes", "--store", url).stderr.endswith(f"removed 1 document from {url}, 0 unknown\n")


def test_ids_come_from_a_file_or_stdin_one_a_line(url: str, tmp_path: Path) -> None:
    (tmp_path / "gone").write_bytes("a\r\n\n中文\n".encode())
    assert run("remove", "--file", str(tmp_path / "gone"), "--yes", "--store", url).exit_code == 0
    assert ids_in(url) == ["b", "far"]
    assert run("remove", "-", "--yes", "--store", url, given="b").exit_code == 0
    assert ids_in(url) == ["far"]


def test_many_ids_are_removed_batch_by_batch(tmp_path: Path) -> None:
    url = make_index(tmp_path, {f"d{number}": number for number in range(2_500)})
    ids = "\n".join(["nobody", *(f"d{number}" for number in range(2_499))])
    result = run("remove", "-", "--yes", "--json", "--store", url, given=ids)
    assert json.loads(result.stdout) == {"removed": 2_499, "unknown": 1}
    assert ids_in(url) == ["d2499"]


def test_bad_lines_are_rejected_and_the_rest_is_removed(url: str) -> None:
    result = run("remove", "-", "--yes", "--store", url, given=b"a\nb\tb\n\xff\nfar\n")
    assert result.exit_code == 7
    assert "stdin:2: rejected" in result.stderr
    assert "stdin:3: rejected" in result.stderr
    assert ids_in(url) == ["b", "中文"]


def test_bad_id_on_the_command_line_is_misuse_and_nothing_is_removed(url: str) -> None:
    result = run("remove", "a", "b\tb", "--yes", "--store", url)
    assert result.exit_code == 2
    assert len(ids_in(url)) == 4


@thorough
@pytest.mark.parametrize(
    ("answer", "code", "left"), [("\n", 1, 4), ("y\n", 0, 3), ("\x03", 130, 4)], ids=["enter", "yes", "Ctrl-C"]
)
def test_only_a_yes_on_the_terminal_removes(url: str, answer: str, code: int, left: int) -> None:
    status, shown = on_terminal("remove", "a", "--store", url, asked="[y/N]", typed=answer)
    assert (status, len(ids_in(url))) == (code, left)
    assert f"Remove 1 document from {url}?" in shown


def test_missing_file_is_named(url: str) -> None:
    result = run("remove", "--file", "gone.txt", "--yes", "--store", url)
    assert result.exit_code == 1
    assert "gone.txt: No such file" in result.stderr
