"""`hsimhash create-table` and `drop-table`, on embedded indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hsimhash.index import HSimIndex
from tests.support.command_line import ids_in, make_index, run


def test_an_index_goes_with_its_folder(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    (tmp_path / "index" / "jobs" / "one").mkdir(parents=True)
    result = run("drop-table", "--yes", "--store", url)
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"dropped {url}" in result.stderr
    assert not (tmp_path / "index").exists()
    assert run("create-table", "--store", url, "--layout", "4").exit_code == 0


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    (tmp_path / "index" / "mine").write_text("mine")
    result = run("drop-table", "--yes", "--store", url)
    assert result.exit_code == 0
    assert "they were kept" in result.stderr
    assert [path.name for path in (tmp_path / "index").iterdir()] == ["mine"]


@pytest.mark.parametrize("found", ["nothing", "folder", "data"])
def test_what_is_no_index_is_refused_and_left_alone(found: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    if found != "nothing":
        place.mkdir()
        (place / ("data.mdb" if found == "data" else "mine")).write_text("mine")
    result = run("drop-table", "--yes", "--store", f"lmdb://{place}")
    assert result.exit_code == 5
    assert "no index at" in result.stderr
    assert "create-table" not in result.stderr
    assert [path.read_text() for path in tmp_path.glob("place/*")] == ([] if found == "nothing" else ["mine"])


def test_a_damaged_index_goes_too(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    (tmp_path / "index" / "data.mdb").resolve().write_bytes(b"")
    assert run("describe", "--store", url).exit_code == 1
    assert run("drop-table", "--yes", "--store", url).exit_code == 0
    assert not (tmp_path / "index").exists()


def test_it_makes_an_empty_index_with_layout_and_profile(tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path / 'pages'}"
    result = run("create-table", "--store", url, "--layout", "13,13,13,13,12/2", "--profile", "words-1")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "created" in result.stderr
    with HSimIndex.open(url) as index:
        assert (index.count(), index.layout.name, index.profile.name) == (0, "10", "words-1")


def test_same_index_again_is_harmless(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    before = ids_in(url)
    result = run("create-table", "--store", url, "--layout", "10")
    assert result.exit_code == 0
    assert "already exists" in result.stderr
    assert ids_in(url) == before


@pytest.mark.parametrize(
    "made", [("--layout", "10"), ("--distance", "2"), ("--layout", "16", "--profile", "words-1"), ()]
)
@pytest.mark.every_case
def test_what_was_not_requested_may_differ_in_an_existing_index(tmp_path: Path, made: tuple[str, ...]) -> None:
    url = f"lmdb://{tmp_path}/index"
    for options in (made, (), made):
        result = run("create-table", "--store", url, *options)
        assert result.exit_code == 0, result.stderr
    assert "already exists" in result.stderr
    other = run("create-table", "--store", url, "--distance", "1")
    assert other.exit_code == 5
    assert "distance: the index has" in other.stderr
    assert "to change the layout or the distance, copy the index with 'hsimhash relayout'" in other.stderr


def test_other_index_is_a_mismatch_and_the_differences_are_named(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    result = run("create-table", "--store", url, "--layout", "4", "--profile", "words-1")
    assert result.exit_code == 5
    assert "layout: the index has 10, requested 4" in result.stderr
    assert "relayout" not in result.stderr
    assert "profile: the index has auto-1, requested words-1" in result.stderr
    assert "layout.inner" not in result.stderr
    with HSimIndex.open(url) as index:
        assert index.layout.name == "10"


def test_bad_layout_and_profile_are_misuse(tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path / 'pages'}"
    for flag, value in [("--layout", "13"), ("--layout", "32,32,1/1"), ("--profile", "zh-9")]:
        result = run("create-table", "--store", url, flag, value)
        assert result.exit_code == 2
        assert value in result.stderr
    assert not (tmp_path / "pages").exists()


def test_place_that_cannot_be_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("create-table", "--store", f"lmdb://{tmp_path / 'file' / 'pages'}")
    assert result.exit_code == 4
    assert str(tmp_path / "file") in result.stderr
