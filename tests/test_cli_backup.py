"""`hsimhash backup`."""

from pathlib import Path

import pytest

from tests.support.command_line import ids_in, make_index, run


def test_copy_is_an_index_with_the_same_documents(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    copy = tmp_path / "backups" / "monday"
    result = run("backup", str(copy), "--store", url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"--store lmdb://{copy}" in result.stderr
    assert run("remove", "a", "--yes", "--store", url).exit_code == 0
    assert ids_in(f"lmdb://{copy}") == sorted(["a", "b", "far", "中文"])
    assert run("check", "--store", f"lmdb://{copy}").exit_code == 0


def test_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("mine")
    result = run("backup", str(tmp_path / "full"), "--store", make_index(tmp_path))
    assert result.exit_code == 2
    assert "not empty; give a new folder" in result.stderr
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine"]


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


def test_url_is_no_folder(tmp_path: Path) -> None:
    result = run("backup", "lmdb://copy", "--store", make_index(tmp_path))
    assert result.exit_code == 2
    assert "leave the lmdb:// away" in result.stderr


def test_file_is_no_folder_for_a_backup(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    result = run("backup", str(tmp_path / "file"), "--store", make_index(tmp_path))
    assert result.exit_code == 2
    assert str(tmp_path / "file") in result.stderr
    assert (tmp_path / "file").read_text() == "mine"
