"""The folder of results: complete or not there at all, whatever ends a run."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hsimhash.dedup import DedupOptions, dedup
from hsimhash.errors import HsimhashError, StoreBusyError
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.pairs.keep_policies import Policy
from hsimhash.progress import Progress
from tests.support.effort import thorough
from tests.test_dedup import PROFILE, contents, fingerprints, ids, rows, run, stats

# Runs into folders 0, 1, 2, … until one ends by itself. The n-th run kills itself before its n-th change of a name,
# because the folder is different after each such change. Prints the exit code of each run.
DOOMED = """
import os, pathlib, sys
import hsimhash.cli.dedup, hsimhash.dedup.report, hsimhash.settings
from hsimhash.cli import main
from tests.support.processes import fork

def doomed(method):
    def change(*arguments, **options):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return method(*arguments, **options)
    return change

def run():
    for name in ("replace", "unlink", "mkdir"):
        setattr(pathlib.Path, name, doomed(getattr(pathlib.Path, name)))
    main([*sys.argv[2:], "--out", f"{sys.argv[1]}/{left}"])

for left in range(100):
    code = os.waitstatus_to_exitcode(os.waitpid(fork(run), 0)[1])
    print("ended", code, file=sys.stderr)
    if code != -9:
        break
"""
MOMENTS = 25  # more than a run has


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return fingerprints(tmp_path / "in.tsv", [1, 2, 255 << 30, 4])


@thorough
@pytest.mark.parametrize("is_overwritten", [False, pytest.param(True, marks=thorough)])
def test_a_run_killed_at_any_change_of_a_name_is_made_good_by_the_next(
    is_overwritten: bool, source: Path, tmp_path: Path
) -> None:
    plain = {"has_signatures": False}  # as the command reads for a profile that makes only fingerprints
    run(tmp_path / "whole", source, reading=plain)
    whole = before = contents(tmp_path / "whole")
    if is_overwritten:
        other = fingerprints(tmp_path / "other.tsv", [9] * 5)
        for moment in range(MOMENTS):
            run(tmp_path / str(moment), other, reading=plain, pairs="all")
        before = contents(tmp_path / "0")
    options = [
        "--profile",
        PROFILE.name,
        "--table-format",
        "jsonl",
        "--quiet",
        "--distance",
        "3",
        *(["--overwrite"] * is_overwritten),
    ]
    ended = subprocess.run(
        [sys.executable, "-c", DOOMED, str(tmp_path), "dedup", str(source), *options],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        check=True,
    )
    said = [line.split() for line in ended.stderr.splitlines()]
    *killed, last = [int(words[1]) for words in said if words[0] == b"ended"]
    assert (set(killed), last) == ({-signal.SIGKILL}, 0)
    assert 8 < len(killed) < MOMENTS
    for moment in range(len(killed)):
        out = tmp_path / str(moment)
        assert not (out / "stats.json").exists() or contents(out) in (before, whole)
        run(out, source, reading=plain, overwrite=is_overwritten)
        assert not list(out.glob(".*"))
        assert contents(out) == whole
    assert contents(tmp_path / str(len(killed))) == whole


def test_overwrite_leaves_nothing_of_the_results_before(source: Path, out: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text("nonsense\n!\t!\n")
    run(out, tmp_path / "bad.tsv", table_format="parquet", reading={"format": "tsv"})
    assert (out / "rejects.jsonl").exists()
    assert (out / "short.jsonl").exists()
    (out / "mine.txt").write_text("not one of the results")
    run(out, source, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == sorted(
        ["clusters.jsonl", "drop.txt", "keep.txt", "mine.txt", "pairs.jsonl", "report.html", "stats.json"]
    )


@pytest.mark.parametrize("name", ["stats.json", "keep.txt"], ids=["of a run", "of others"])
def test_a_file_with_the_name_of_a_result_is_not_replaced_unasked(name: str, source: Path, out: Path) -> None:
    out.mkdir()
    (out / name).write_text("mine")
    with pytest.raises(ValueError, match=f"{name} already exists; pass overwrite=True"):
        run(out, source)
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [(name, "mine")]


def test_a_folder_in_use_is_refused_and_left_alone(source: Path, out: Path) -> None:
    out.mkdir()
    (out / ".dedup.new").mkdir()
    with (out / ".dedup.new" / "lock").open("w") as lock:
        lock.write("4711")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreBusyError, match="process 4711 is working in"):
            run(out, source)
    assert [str(path.relative_to(out)) for path in sorted(out.rglob("*"))] == [".dedup.new", ".dedup.new/lock"]


def test_a_failed_run_leaves_nothing(source: Path, out: Path) -> None:
    class StopError(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.stage == "write":
            raise StopError

    with pytest.raises(StopError):
        run(out, source, progress=stop)
    assert list(out.iterdir()) == []


def test_a_full_disk_is_said_and_leaves_no_results(small_disk: Callable[[str], Path], tmp_path: Path) -> None:
    out = small_disk("1m") / "out"
    values = np.random.default_rng(5).integers(0, 2**64, 20_000, np.uint64)
    source = fingerprints(tmp_path / "in.tsv", values.tolist())
    with pytest.raises(HsimhashError, match=r"cannot use .*out.*No space left on device.*free some disk space"):
        run(out, source)
    assert list(out.iterdir()) == []
    assert run(tmp_path / "elsewhere", source).totals.documents == len(values)


def test_what_is_half_renamed_is_gone_once_the_next_run_fails(source: Path, out: Path) -> None:
    out.mkdir()
    (out / ".dedup.new").mkdir()
    (out / "keep.txt").write_text("d0\n")
    with pytest.raises(ValueError, match="longest needs texts"):
        run(out, source, keep=[Policy("longest")])
    assert (out / "keep.txt").exists()
    found = find_inputs([str(source)], InputOptions(format="fingerprints"))
    source.unlink()
    with pytest.raises(FileNotFoundError):
        dedup(found, out, DedupOptions(), against=PROFILE)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_results_within_an_input_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / name).write_text('{"id": "a", "text": "some words"}\n')
    with pytest.raises(ValueError, match=r"is inside input .*/given, so the next run would read the results"):
        run(tmp_path / "given" / "out", tmp_path / "given")
    assert [path.name for path in (tmp_path / "given").iterdir()] == [name]


def test_results_are_not_written_over_an_input(source: Path, out: Path) -> None:
    out.mkdir()
    given = out / "pairs.jsonl"
    given.hardlink_to(source)
    with pytest.raises(ValueError, match=r"pairs\.jsonl has the name of a result"):
        run(out, given, overwrite=True)
    assert given.exists()
    assert list(out.iterdir()) == [given]


def test_a_file_in_the_folders_place_is_refused(source: Path, out: Path) -> None:
    out.write_text("mine")
    with pytest.raises(ValueError, match="is not a folder"):
        run(out, source)


def test_ids_of_any_writing_come_back_as_they_were(out: Path, tmp_path: Path) -> None:
    names = ['quote " and \\', "中文", "line\u2028separator", "percent %s", "</script>", "tab-less"]
    run(out, fingerprints(tmp_path / "in.tsv", [1] * len(names), names))
    assert ids(out, "keep") + ids(out, "drop") == names
    assert [row[0] for row in rows(out, "clusters")] == names
    assert [row[1] for row in rows(out, "pairs")] == names[1:]


def test_the_numbers_tell_how_they_came_about(source: Path, out: Path) -> None:
    run(out, source, memory_bytes=1 << 20, workers=1)
    found = stats(out)
    assert found["cluster_sizes"] == {"3": 1}
    assert found["distances"] == {"2": 2}  # each paired with the kept one
    assert found["run"]["memory_bytes"] == 1 << 20
    assert found["run"]["seconds"].keys() == {"read", "find", "cluster", "write"}
    assert json.dumps(found["options"]["keep"]) == '["first"]'
