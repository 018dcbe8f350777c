"""`hsimhash settings show`."""

import json
from pathlib import Path

import pytest

from hsimhash.settings import KEYS
from tests.support.command_line import run


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_shows_every_setting_its_value_and_its_source(tmp_path: Path) -> None:
    Path("mine.yaml").write_text("id_field: url\n")
    environment = {"HSIMHASH_LAYOUT": "20"}
    result = run("--config", "mine.yaml", "settings", "show", "--store", "lmdb://x", environment=environment)
    assert result.exit_code == 0
    shown = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert tuple(shown) == KEYS
    assert shown["id_field"] == ['"url"', "mine.yaml:1"]
    assert shown["layout"] == ['"20"', "HSIMHASH_LAYOUT"]
    assert shown["store"] == ['"lmdb://x"', "--store"]
    assert shown["workers"] == ["null", "default"]


def test_json_has_value_and_source_of_each() -> None:
    shown = json.loads(run("settings", "show", "--json", "--lock-timeout", "5").stdout)
    assert shown["lock_timeout_s"] == {"value": 5.0, "source": "--lock-timeout"}
    assert shown["max_distance"] == {"value": None, "source": "default"}
    assert tuple(shown) == KEYS


def test_every_setting_has_a_flag() -> None:
    help_text = run("settings", "show", "--help").stdout
    shown = json.loads(run("settings", "show", "--json").stdout)
    for key in shown:
        assert f"--{key.removesuffix('_s').replace('_', '-')} " in help_text
