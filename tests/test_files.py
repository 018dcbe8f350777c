"""What is durable on return: files before they get their names, and folders after names in them have changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hsimhash.files import AppendLog, make_folder, naming, put_in_place, replace_file, write_json
from hsimhash.index import HSimIndex
from tests.support.command_line import run


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, Path]]]:
    """Record every rename, by its new name, and every sync of a file or folder, in order."""
    done: list[tuple[str, Path]] = []
    fsync, replace = os.fsync, os.replace

    def synced(fd: int) -> None:
        done.append(("synced", Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    def replaced(old: Path, new: Path, **given: int) -> None:
        done.append(("named", Path(os.fsdecode(new)).absolute()))
        replace(old, new, **given)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)  # which `Path.replace` calls
    return done


def unsynced(steps: list[tuple[str, Path]]) -> list[Path]:
    """Return the new names whose folder was not synced after the rename."""
    return [
        path
        for place, (what, path) in enumerate(steps)
        if what == "named" and ("synced", path.parent) not in steps[place:]
    ]


@pytest.mark.parametrize("name", ["put_in_place", "replace_file", "write_json"])
def test_a_new_name_is_durable(name: str, tmp_path: Path, steps: list[tuple[str, Path]]) -> None:
    path, open_files = tmp_path / "file", set(Path("/proc/self/fd").iterdir())
    if name == "put_in_place":
        (tmp_path / "part").write_text("new")
        put_in_place(tmp_path / "part", path)
    elif name == "replace_file":
        with replace_file(path) as stream:
            stream.write(b"new")
        assert steps[0][0] == "synced", "the content comes before the name"
    else:
        write_json(path, {"new": 1})
    assert ("named", path) in steps
    assert unsynced(steps) == []
    assert set(Path("/proc/self/fd").iterdir()) == open_files


def test_new_folders_are_durable_and_returned_innermost_first(tmp_path: Path, steps: list[tuple[str, Path]]) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "inner"
    assert make_folder(inner) == [inner, outer]
    assert steps == [("synced", outer), ("synced", tmp_path)]
    assert make_folder(inner) == []


def compacted(url: str, folder: Path) -> None:
    assert run("compact", "--store", url).exit_code == 0


def backed_up(url: str, folder: Path) -> None:
    assert run("backup", str(folder / "copy"), "--store", url).exit_code == 0


def dropped(url: str, folder: Path) -> None:
    assert run("drop-table", "--yes", "--store", url).exit_code == 0


def ingested(url: str, folder: Path) -> None:
    (folder / "in.jsonl").write_text('{"id": "b", "text": "a text with a few words in it, and then some more"}\n')
    assert run("ingest", str(folder / "in.jsonl"), "--store", url, "--workers", "1").exit_code == 0


def deduplicated(url: str, folder: Path) -> None:
    (folder / "in.jsonl").write_text('{"id": "b", "text": "a text with a few words in it, and then some more"}\n')
    assert run("dedup", str(folder / "in.jsonl"), "--out", str(folder / "out"), "--workers", "1").exit_code == 0


@pytest.mark.parametrize("work", [compacted, backed_up, dropped, ingested, deduplicated])
def test_a_command_leaves_no_name_that_a_power_cut_takes_back(
    work: Callable[[str, Path], None], tmp_path: Path, steps: list[tuple[str, Path]]
) -> None:
    url = f"lmdb://{tmp_path / 'index'}"
    with HSimIndex.create(url) as index:
        index.add(5, "a")
    work(url, tmp_path)
    assert [path for path in unsynced(steps) if path.exists()] == []


def test_rejects_are_durable_before_the_checkpoint_that_counts_them(
    tmp_path: Path, steps: list[tuple[str, Path]]
) -> None:
    (tmp_path / "in.jsonl").write_text("no record\n")
    job = tmp_path / "job"
    run(
        "ingest",
        str(tmp_path / "in.jsonl"),
        "--store",
        f"lmdb://{tmp_path / 'index'}",
        "--job",
        str(job),
        "--workers",
        "1",
    )
    named = [place for place, step in enumerate(steps) if step == ("named", job / "checkpoint.json")]
    assert named[0] < steps.index(("synced", job / "rejects.jsonl")) < named[1]


def test_lines_of_a_log_are_durable_after_sync_and_its_name_before(
    tmp_path: Path, steps: list[tuple[str, Path]]
) -> None:
    path = tmp_path / "log"
    log = AppendLog(path)
    log.append(["one"])
    assert steps == [("synced", tmp_path)]
    log.sync()
    log.sync()  # there is nothing new to sync
    assert steps == [("synced", tmp_path), ("synced", path)]
    log.append(["two"])
    log.sync()
    assert steps[2:] == [("synced", path)]
    log.close()


def test_a_log_is_cut_off_where_it_was_acknowledged_even_if_nothing_is_added(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("acknowledged\nnot acknowledged\n")
    AppendLog(path, len("acknowledged\n")).close()
    assert path.read_text() == "acknowledged\n"


def test_an_error_of_a_file_names_it_and_the_remedy() -> None:
    with pytest.raises(OSError, match="No space left on device; make room: 'a/file'"), naming("a/file", "make room"):
        raise OSError(28, "No space left on device")
    with pytest.raises(OSError, match="gone: 'its/own'"), naming("a/file"):
        raise OSError(2, "gone", "its/own")
