"""`hsimhash doctor` on embedded indexes, and when no server answers."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.locks import WRITER_LOCK, wait_for_lock
from tests.support.command_line import make_index, run
from tests.support.tcp_proxy import refusing_port


def test_a_sound_index_is_well_and_its_settings_can_be_pasted(tmp_path: Path) -> None:
    url = make_index(tmp_path, layout="4")
    result = run("doctor", "--store", url)
    assert (result.exit_code, result.stderr) == (0, "")
    checks, _, block = result.stdout.partition("\n\n")
    assert [line.split(":")[0].split() for line in checks.splitlines()] == [
        ["ok", name] for name in ("folder", "record", "read", "writer", "file", "disk")
    ]
    assert yaml.safe_load(block) == {"store": url, "layout": "4", "profile": "auto-1"}
    (tmp_path / "hsimhash.yaml").write_text(block)
    assert run("--config", str(tmp_path / "hsimhash.yaml"), "describe").exit_code == 0


@pytest.mark.parametrize("kind", ["a list", "a name"])
def test_settings_do_not_name_a_profile_that_its_name_does_not_make(tmp_path: Path, kind: str) -> None:
    (tmp_path / "stops.txt").write_text("page\n")
    own = {
        "a list": Profile.named(f"auto-3:stops={tmp_path / 'stops.txt'}"),
        "a name": replace(Profile.named("auto-1"), name="mine-1"),
    }
    url = f"lmdb://{tmp_path / 'index'}"
    HSimIndex.create(url, layout="4", profile=own[kind]).close()
    _, _, block = run("doctor", "--store", url).stdout.partition("\n\n")
    assert yaml.safe_load(block) == {"store": url, "layout": "4"}
    (tmp_path / "hsimhash.yaml").write_text(block)
    assert run("--config", str(tmp_path / "hsimhash.yaml"), "describe").exit_code == 0


def test_who_writes_is_named(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    with wait_for_lock(tmp_path / "index" / WRITER_LOCK, 1):
        assert "is writing; other writers wait" in run("doctor", "--store", url).stdout


def test_a_file_of_mostly_free_pages_is_named_with_the_remedy(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    assert "ok    file: " in run("doctor", "--store", url).stdout
    with HSimIndex.open(url) as index:
        session, name = index.store.session, b"large"  # type: ignore[attr-defined]
        with session.write() as transaction:
            transaction.put(name, bytes(80 << 20), db=session.environment.databases["record"])
        with session.write() as transaction:
            transaction.delete(name, db=session.environment.databases["record"])
    result = run("doctor", "--store", url)
    assert result.exit_code == 0
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("warn"))
    assert re.fullmatch(
        r"warn  file: (100|9\d)% of its [\d.]+ MiB are free pages: run 'hsimhash compact' while .*", line
    )
    assert run("compact", "--store", url).exit_code == 0
    assert "ok    file: " in run("doctor", "--store", url).stdout


def test_no_index_and_a_damaged_one_have_their_codes(tmp_path: Path) -> None:
    missing = run("doctor", "--store", f"lmdb://{tmp_path / 'gone'}")
    assert missing.exit_code == 5
    assert missing.stdout.startswith("fail  index: no index at")
    assert run("doctor", "--quick", "--store", f"lmdb://{tmp_path / 'gone'}").exit_code == 4
    url = make_index(tmp_path)
    (tmp_path / "index" / "data.mdb").resolve().write_bytes(b"")
    damaged = run("doctor", "--store", url, "--json")
    assert damaged.exit_code == 6
    facts = json.loads(damaged.stdout)
    assert not facts["is_well"]
    assert "is empty" in facts["checks"][0]["message"]


def test_a_gateway_that_is_not_there_is_unreachable_and_the_remedy_named() -> None:
    with refusing_port() as port:
        store = f"hbase://127.0.0.1:{port}/pages"
        result = run("doctor", "--store", store)
        assert result.exit_code == 4
        assert f"fail  gateway 127.0.0.1:{port}: nothing is listening" in result.stdout
        assert "hbase thrift2 start" in result.stdout
        assert run("doctor", "--quick", "--store", store).exit_code == 4
