"""The parts of a bulk load that do not need HBase: the stage, finding the program, and making a table's files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hsimhash.errors import HsimhashError, StoreUnavailableError
from hsimhash.hfile import BloomFilter, FileSettings
from hsimhash.store.hbase.files.load_tool import load_command, load_words, only_one, run_load
from hsimhash.store.hbase.files.region_writer import file_settings
from hsimhash.store.hbase.files.stage import Stage, open_stage
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Family, Table
from hsimhash.store.hbase.gateway.table import TableSettings, families
from tests.support.effort import thorough

ADDRESS = Address.parse("hbase://gw/crawl:pages")


@pytest.fixture(params=["", "file://"], ids=["local", "fsspec"])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Stage:
    return open_stage(f"{request.param}{tmp_path}/a/stage")


def test_a_stage_keeps_whole_files(stage: Stage, tmp_path: Path) -> None:
    assert stage.url == f"file://{tmp_path}/a/stage"
    assert stage.is_empty()
    assert stage.manifest() is None
    stage.write_manifest({"token": "x"})
    for content in (b"first", b"second"):
        with stage.writing("rows/f/region-1") as stream:
            stream.write(content)
    assert (stage.read("rows/f/region-1"), stage.size("rows/f/region-1")) == (b"second", 6)
    with pytest.raises(TypeError), stage.writing("rows/f/region-2") as stream:
        stream.write("no bytes")
    assert stage.size("rows/f/region-2") is None
    assert stage.manifest() == {"token": "x"}
    assert not stage.is_empty()
    names = {path.name for path in (tmp_path / "a" / "stage").rglob("*") if path.is_file()}
    assert {name for name in names if not name.startswith("_")} == {"manifest.json", "region-1"}
    stage.delete("rows")
    stage.delete("rows")
    stage.delete("manifest.json")
    assert stage.is_empty()


def test_a_manifest_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(HsimhashError, match=r"manifest.json cannot be read .* delete the stage"):
        open_stage(str(tmp_path)).manifest()


def test_a_stage_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreUnavailableError, match=r"cannot use .*file"):
        open_stage(str(tmp_path / "file" / "stage")).write_manifest({})
    with pytest.raises(HsimhashError, match="stage nowhere://x cannot be reached"):
        open_stage("nowhere://x")


def test_two_attempts_at_once_leave_one_whole_file(stage: Stage, tmp_path: Path) -> None:
    with stage.writing("rows/f/region-1", "first") as one, stage.writing("rows/f/region-1", "second") as other:
        one.write(b"cel")
        other.write(b"cells")
        one.write(b"ls")
    assert stage.read("rows/f/region-1") == b"cells"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["region-1"]


def test_a_manifest_that_a_kill_left_without_its_name_counts(stage: Stage, tmp_path: Path) -> None:
    stage.write_manifest({"token": "x"})
    path = tmp_path / "a" / "stage" / "manifest.json"
    path.rename(path.with_name("_manifest.json.new"))
    assert stage.manifest() == {"token": "x"}


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_program_is_the_one_that_is_named_or_found(tmp_path: Path) -> None:
    home, in_path = program(tmp_path / "home" / "bin" / "hbase"), program(tmp_path / "bin" / "hbase")
    path = {"PATH": str(in_path.parent)}
    assert load_command("hbase --config 'my conf'", path) == ["hbase", "--config", "my conf"]
    assert load_command("", {**path, "HBASE_HOME": str(tmp_path / "home")}) == [str(home)]
    assert load_command("", path) == [str(in_path)]
    assert load_command("", {"PATH": ""})[1:] == ["java"]  # with the jars of the clone
    with pytest.raises(HsimhashError, match="no such program: 'nothing'; correct --hbase-command"):
        load_command("nothing", path)
    with pytest.raises(HsimhashError, match=r"HBASE_HOME is /nowhere, but /nowhere/bin/hbase is not executable"):
        load_command("", {"HBASE_HOME": "/nowhere"})
    words = load_words(["hbase"], "file:///stage/rows", ADDRESS)
    assert (words[0], words[-2:]) == ("hbase", ["file:///stage/rows", "crawl:pages"])


def loaded(words: list[str], log: Path) -> None:
    with only_one(log.parent, log, None) as lock:
        run_load(words, log, lock)


def test_what_a_program_says_is_kept_and_its_end_shown(tmp_path: Path) -> None:
    log = tmp_path / "load.log"
    loaded(["sh", "-c", "echo fine"], log)
    with pytest.raises(HsimhashError, match=r"failed with exit code 3; nothing is lost.*\n  bad\n  Caused by: worse$"):
        loaded(["sh", "-c", r"printf 'bad\n\tat one\n\tat two\nCaused by: worse\n' >&2; exit 3"], log)
    assert log.read_text() == "fine\nbad\n\tat one\n\tat two\nCaused by: worse\n"
    with pytest.raises(HsimhashError, match=r"cannot run .*: .*; correct --hbase-command"):
        loaded([str(tmp_path)], log)


@thorough
def test_a_program_that_outlives_its_caller_is_waited_for(tmp_path: Path) -> None:
    log, script = tmp_path / "load.log", "echo $$; sleep 2; echo ended"
    code = (
        "import sys; from pathlib import Path; from tests.test_hbase_local_load import loaded; "
        f"loaded(['sh', '-c', {script!r}], Path(sys.argv[1]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(log)]) as caller:
        while not (log.exists() and log.read_text()):
            time.sleep(0.01)
        os.kill(caller.pid, signal.SIGKILL)
    loaded(["echo", "next"], log)
    assert log.read_text().splitlines()[1:] == ["ended", "next"]


def test_files_are_made_as_the_table_says() -> None:
    assert file_settings(Table(families(TableSettings()), {})) == {
        b"f": FileSettings("FAST_DIFF", BloomFilter(5), 4_096),
        b"d": FileSettings("FAST_DIFF", BloomFilter(), 16_384),
    }
    plain = Family("f", {"DATA_BLOCK_ENCODING": "NONE", "BLOOMFILTER": "NONE", "BLOCKSIZE": "65536"}, {})
    assert file_settings(Table((plain,), {}))[b"f"] == FileSettings("NONE", None, 65_536)
    for unknown in (None, Table((Family("f", {"TTL": "5"}, {}),), {}, is_complete=False)):
        assert file_settings(unknown) == {
            b"f": FileSettings(bloom=BloomFilter(5)),
            b"d": FileSettings(bloom=BloomFilter()),
        }
