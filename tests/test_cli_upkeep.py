"""`hsimhash check`, `compact` and `backup`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hsimhash.layout import Layout
from hsimhash.store import open_store
from hsimhash.store.lmdb.store import LmdbStore
from hsimhash.store.reports import MOST_EXAMPLES, CheckReport
from tests.support.command_line import DOCUMENTS, ids_in, lines_of, make_index, run


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """Return the URL of an index that has lost two drawer rows of a document."""
    url = make_index(tmp_path)
    with open_store(url) as store:
        assert isinstance(store, LmdbStore)
        with store.session.write() as transaction:
            for prefix in Layout.named("10").prefixes(DOCUMENTS["far"])[:2]:
                packed = DOCUMENTS["far"].to_bytes(8, "big")
                assert transaction.delete(prefix, packed, db=store.session.environment.databases["drawers"])
    return url


def test_sound_index_has_no_problems(tmp_path: Path) -> None:
    result = run("check", "--store", make_index(tmp_path))
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["documents", "4"],
        ["drawer", "rows", "40"],
        ["problems", "0"],
        ["leftovers", "0"],
        ["repaired", "0"],
    ]


@pytest.mark.damages
def test_problems_have_their_exit_code_and_examples(damaged: str) -> None:
    result = run("check", "--store", damaged)
    assert result.exit_code == 6
    assert "problems     2" in result.stdout
    assert f"{DOCUMENTS['far']:016x}" in result.stderr
    assert "--repair" in result.stderr
    result = run("check", "--store", damaged, "--json")
    assert result.exit_code == 6
    report = json.loads(result.stdout)
    assert (report["problems"], report["is_sound"], len(report["examples"])) == (2, False, 2)


def test_examples_are_problems_first_and_then_leftovers() -> None:
    report = CheckReport()
    for number in range(MOST_EXAMPLES):
        report.leftover(f"{number}")
    report.problem("a")
    report.problem("b")
    assert report.examples == ["a", "b", *(f"leftover: {number}" for number in range(MOST_EXAMPLES - 2))]
    for _ in range(MOST_EXAMPLES):
        report.problem("c")
    assert report.examples == ["a", "b", *"c" * (MOST_EXAMPLES - 2)]
    assert (report.problems, report.leftovers) == (MOST_EXAMPLES + 2, MOST_EXAMPLES)


@pytest.mark.damages
def test_a_sample_is_for_hbase_and_not_for_repairs(damaged: str) -> None:
    result = run("check", "--sample", "5", "--store", damaged)
    assert result.exit_code == 2
    assert "--sample is for an index on HBase" in result.stderr
    result = run("check", "--sample", "5", "--repair", "--store", "hbase://gw/pages")
    assert (result.exit_code, "leave --sample out" in result.stderr) == (2, True)


@pytest.mark.damages
def test_damage_that_cannot_be_read_ends_in_the_code_of_problems_elsewhere_in_that_of_failure(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    data = (tmp_path / "index" / "data.mdb").resolve()
    content = data.read_bytes()
    data.write_bytes(content[:8192] + bytes(len(content) - 8192))  # all but the two pages that say where the others are
    for command, code in ((["check"], 6), (["check", "--repair"], 6), (["describe"], 1), (["query", "1"], 1)):
        result = run(*command, "--store", url)
        assert (result.exit_code, result.stdout) == (code, ""), command
        assert result.stderr.startswith(f"hsimhash: error: index {tmp_path / 'index'} is damaged: "), command
        assert "restore a backup" in result.stderr


def test_repair_mends_and_the_index_is_sound_again(damaged: str) -> None:
    result = run("check", "--repair", "--store", damaged)
    assert result.exit_code == 0
    assert "repaired     2" in result.stdout
    assert run("check", "--store", damaged).exit_code == 0
    answer = lines_of(run("query", str(DOCUMENTS["far"]), "--store", damaged).stdout)[0]
    assert [match["id"] for match in answer["matches"]] == ["far"]


def test_it_gives_free_space_back_and_loses_nothing(tmp_path: Path) -> None:
    url = make_index(tmp_path, {f"d{number}": number * 0x9E3779B97F4A7C15 % 2**64 for number in range(3_000)})
    assert run("remove", *(f"d{number}" for number in range(2_900)), "--yes", "--store", url).exit_code == 0
    result = run("compact", "--store", url, "--json")
    assert result.exit_code == 0
    sizes = json.loads(result.stdout)
    assert sizes["bytes_after"] < sizes["bytes_before"] / 2
    assert ids_in(url) == sorted(f"d{number}" for number in range(2_900, 3_000))


def test_people_read_both_sizes(tmp_path: Path) -> None:
    shown = run("compact", "--store", make_index(tmp_path)).stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["before", "after"]
    assert all(line.endswith("KiB") for line in shown)


def test_copy_is_an_index_with_the_same_documents(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    copy = tmp_path / "backups" / "monday"
    result = run("backup", str(copy), "--store", url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"--store lmdb://{copy}" in result.stderr
    assert run("remove", "a", "--yes", "--store", url).exit_code == 0
    assert ids_in(f"lmdb://{copy}") == sorted(["a", "b", "far", "中文"])
    assert run("check", "--store", f"lmdb://{copy}").exit_code == 0


@pytest.mark.parametrize(
    ("place", "reason"),
    [("full", "not empty; choose a new folder"), ("full/mine", "full/mine"), ("lmdb://copy", "omit the lmdb://")],
)
def test_place_that_is_no_new_folder_is_refused_and_left_alone(
    place: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = make_index(tmp_path)
    Path("full").mkdir()
    Path("full/mine").write_text("mine")
    result = run("backup", place, "--store", url)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "index"]
    assert [path.read_text() for path in Path("full").iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["index/jobs/b", "index/b/c", "link/b", "index", "index/empty"])
def test_no_backup_goes_into_the_folder_of_its_index(name: str, tmp_path: Path) -> None:
    url = make_index(tmp_path)
    (tmp_path / "index" / "empty").mkdir()
    (tmp_path / "link").symlink_to("index")
    before = sorted(tmp_path.rglob("*"))
    result = run("backup", str(tmp_path / name), "--store", url)
    assert result.exit_code == 2
    assert str(tmp_path / name) in result.stderr
    assert sorted(tmp_path.rglob("*")) == before
