"""A partial embedded index: left by a kill while it was created or dropped, or with missing or empty files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hsimhash.fingerprint.wordlists import keep_list
from hsimhash.store.lmdb.files import drop_at
from tests.support.command_line import run
from tests.support.effort import thorough
from tests.support.half_states import (
    create_and_drop_at_once,
    created,
    dropped,
    files_in,
    filled,
    killed_at_each_step,
    way_out,
)
from tests.support.processes import forked

pytestmark = pytest.mark.every_case
MADE = "data-4711-18a0b2c4d6e8f012.mdb"  # as release 0.1.0 named it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "index"


@pytest.fixture
def url(folder: Path) -> str:
    return f"lmdb://{folder}"


def linked(folder: Path) -> Path:
    """Give an index the files of release 0.1.0; return its data file."""
    data = (folder / "data.mdb").rename(folder / MADE)
    (folder / "data.mdb").symlink_to(MADE)
    (folder / "writer.queue").touch()
    return data


def test_create_table_gets_out_of_a_creation_that_was_killed_at_any_step(folder: Path, url: str) -> None:
    for _ in killed_at_each_step(lambda: None, lambda: created(url), files_in(folder)):
        assert way_out(url) in ("ingest INPUT", "")
        assert not folder.exists()


@thorough
def test_create_table_follows_a_killed_creation_with_large_lists_of_words(
    folder: Path, url: str, tmp_path: Path
) -> None:
    keep_list(words := "".join(f"词{number} 1 n\n" for number in range(50_000)).encode())
    (tmp_path / "words").write_bytes(words)
    create = ("--layout", "4", "--profile", f"zh-1:words={tmp_path / 'words'}")
    for _ in killed_at_each_step(lambda: None, lambda: run("create-table", "--store", url, *create), files_in(folder)):
        done = run("create-table", "--store", url, *create)
        assert done.exit_code == 0, done.output
        assert not list(folder.glob("data.*-*.mdb"))
        assert dropped(url).exit_code == 0


@pytest.mark.parametrize("is_of_0_1_0", [False, pytest.param(True, marks=thorough)])
def test_drop_table_ends_a_drop_that_was_killed_at_any_step(folder: Path, url: str, is_of_0_1_0: bool) -> None:
    def prepare() -> None:
        filled(url)
        (folder / "jobs" / "one").mkdir(parents=True)
        (folder / "jobs" / "one" / "rejects.jsonl").touch()
        (folder / "data.12-ab.mdb").write_bytes(bytes(1 << 20))  # left by a killed compaction
        if is_of_0_1_0:
            linked(folder)

    for _ in killed_at_each_step(prepare, lambda: dropped(url), files_in(folder)):
        if folder.exists() and any(folder.iterdir()):
            copy = shutil.copytree(folder, folder.with_name("copy"), symlinks=True)
            assert dropped(f"lmdb://{copy}").exit_code == 0
            assert not copy.exists()
        # If only an index's link is gone, there is no way to know whether somebody meant to drop the index.
        commands = ("ingest INPUT", "drop-table", "") if is_of_0_1_0 else ("ingest INPUT", "")
        assert way_out(url) in commands
        assert not folder.exists()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


# What is done to the files of an index, and the command that recovers from it.
STATES: dict[str, tuple[Callable[[Path], object], str]] = {
    "data.mdb is missing": (lambda folder: (folder / "data.mdb").unlink(), "ingest INPUT"),
    "data.mdb is empty": (lambda folder: emptied(folder / "data.mdb"), "drop-table"),
    "data.mdb is cut": (lambda folder: os.truncate(folder / "data.mdb", 5_000), "drop-table"),
    "data.mdb-lock is missing": (lambda folder: (folder / "data.mdb-lock").unlink(), ""),
    "data.mdb-lock is empty": (lambda folder: emptied(folder / "data.mdb-lock"), ""),
    "writer.lock is missing": (lambda folder: (folder / "writer.lock").unlink(), ""),
    "writer.lock is empty": (lambda folder: emptied(folder / "writer.lock"), ""),
    "only data.mdb is left": (lambda folder: [(folder / f).unlink() for f in ("data.mdb-lock", "writer.lock")], ""),
    "only data.mdb is left, empty": (
        lambda folder: [(folder / "writer.lock").unlink(), emptied(folder / "data.mdb")],
        "drop-table",
    ),
    "only data.mdb-lock is left": (
        lambda folder: [(folder / f).unlink() for f in ("data.mdb", "writer.lock")],
        "ingest INPUT",
    ),
    "the file that data.mdb links to is missing": (lambda folder: linked(folder).unlink(), "drop-table"),
    "the link of 0.1.0 is missing": (
        lambda folder: [os.truncate(linked(folder), 1 << 17), (folder / "data.mdb").unlink()],
        "drop-table",
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_all_commands_name_the_one_that_gets_out(folder: Path, url: str, state: str) -> None:
    change, command = STATES[state]
    filled(url)
    change(folder)
    (folder / "mine").write_text("mine")
    assert way_out(url) == command
    assert [path.name for path in folder.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["data.mdb", "writer.lock"])
def test_files_of_others_with_the_names_of_an_index_stay(folder: Path, url: str, name: str) -> None:
    folder.mkdir()
    (folder / name).write_text("mine")
    assert dropped(url).exit_code == 5
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, "mine")]


def test_creations_and_drops_at_once_meet_nothing_else(folder: Path, url: str) -> None:
    assert create_and_drop_at_once(url, lambda: drop_at(folder, lock_timeout_s=60)) == []
    assert way_out(url) in ("ingest INPUT", "")
    assert not folder.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_a_user_without_the_right_changes_nothing_and_is_told_what_to_grant() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # which the user `nobody` can reach too
        folder = Path(place) / "index"
        filled(url := f"lmdb://{folder}")
        Path(place).chmod(0o755)

        def as_nobody() -> None:
            os.setuid(65534)
            for done, path in ((dropped(url), folder), (created(f"lmdb://{place}/new"), f"{place}/new")):
                assert (done.exit_code, "Permission denied" in done.stderr, str(path) in done.stderr) == (4, True, True)

        with forked(as_nobody):
            pass
        assert way_out(url) == ""
