"""A store from another package, installed next to hsimhash: it passes the tests of every store and all commands.

`examples/sqlite_store` is a separate distribution. It declares its backend as an entry point, and nothing in hsimhash
refers to it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.effort import IS_THOROUGH, thorough

SOURCE = Path(__file__).parent / "examples" / "sqlite_store"
PACKAGE = Path(__file__).parents[1] / "hsimhash"
MOST_LINES = 400
SUITE = f"""
import itertools
import pytest
from hsimhash.store.conformance import *

@pytest.fixture
def place(tmp_path):
    numbers = itertools.count()
    return StorePlace(lambda: f"sqlite://{{tmp_path / str(next(numbers))}}.db", is_quick={not IS_THOROUGH})
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment in which the distribution is installed next to hsimhash."""
    folder = tmp_path_factory.mktemp("elsewhere")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", folder / "site"]
    copy = folder / "source"
    copy.mkdir()
    for path in SOURCE.glob("*.*"):
        (copy / path.name).write_bytes(path.read_bytes())
    subprocess.run([sys.executable, "-m", "pip", "install", *options, copy], check=True, cwd=folder)
    return {**os.environ, "PYTHONPATH": str(folder / "site"), "HSIMHASH_CONFIG": ""}


def test_it_is_small_and_nothing_here_names_it() -> None:
    lines = (SOURCE / "hsimhash_sqlite.py").read_text(encoding="utf-8").splitlines()
    assert len(lines) < MOST_LINES
    assert [
        path for path in PACKAGE.rglob("*.py") if re.search("sqlite://|hsimhash_sqlite", path.read_text("utf-8"))
    ] in (
        [],
        [PACKAGE / "store" / "conformance" / "__init__.py"],  # the example in its docstring
    )


@thorough
def test_it_passes_the_tests_of_every_store(environment: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_sqlite.py").write_text(SUITE)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sqlite.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 25


@thorough
def test_every_command_finds_it(environment: Mapping[str, str], tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hsimhash", *words],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    text = " ".join(f"On day {day} the boats came back with {day * 7 % 31} boxes of fish." for day in range(1, 15))
    (tmp_path / "pages.tsv").write_text("".join(f"{name}\t{text} Seen by {name}.\n" for name in "abc"))
    store = ("--store", "sqlite://pages.db")
    assert "with layout 4" in run("create-table", *store)
    assert '"added": 3' in run("ingest", "pages.tsv", *store, "--json")
    assert '"id": "b"' in run("query", "--id", "a", *store, "--json")
    assert "problems" in run("check", *store)
    run("dedup", "pages.tsv", "--against", "sqlite://pages.db", "--out", "found")
    assert "record" in run("doctor", *store)
    assert "sqlite" in run("plan", "--documents", "1M")
    assert "sqlite3 pages.db VACUUM" in run("compact", *store, code=2)
    assert "nothing is left to collect" in run("collect", *store, code=2)
    assert "--ttl is for an index on HBase or Redis" in run("create-table", *store, "--ttl", "1d", code=2)
    assert "dropped" in run("drop-table", *store, "--yes")
    assert "no index" in run("query", "5", *store, code=5)
