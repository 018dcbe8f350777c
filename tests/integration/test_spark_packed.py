"""The Spark page's recipe for executors without hsimhash, on a cluster of two local processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.support.spark_session import QUICK, need_java
from tests.test_readme import TOP, USED_AS, blocks

WHEELS = Path(sys.prefix, "wheels")
# Variables of the calling shell that would lead executors to packages outside the archive, or to another Spark.
FOREIGN = ("PYTHONPATH", "PYSPARK_", "SPARK_", "VIRTUAL_ENV", "PIP_")


def lines_of(language: str, words: str) -> str:
    """The code block of the pages that contains these words."""
    (block,) = (one for page in USED_AS for one in blocks(language, page) if words in one)
    return block


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with some documents, in which the recipe's lines can be run."""
    if not WHEELS.is_dir():
        end = pytest.fail if os.environ.get("REQUIRE_HBASE") == "1" else pytest.skip
        end("there are no packages to pack: 'make test-servers' fetches them")
    folder = tmp_path / "checkout"
    shutil.copytree(TOP / "hsimhash", folder / "hsimhash", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(TOP / name, folder)
    printed, _, _ = lines_of("sh", "> pages.jsonl").partition("hsimhash ")
    subprocess.run(["bash", "-euc", printed], cwd=folder, check=True)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Variables for a Spark with two executors in separate processes, and for a pip without a network."""
    (folder / "conf").mkdir()
    options = {"spark.master": "local-cluster[2,1,1024]", "spark.sql.shuffle.partitions": "1", **QUICK}
    lines = "".join(f"{name} {value}\n" for name, value in options.items())
    (folder / "conf" / "spark-defaults.conf").write_text(lines)
    own = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return own | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(WHEELS),
        "PIP_NO_COMPILE": "1",
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_WORKER_DIR": str(folder / "workers"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def test_executors_without_hsimhash_get_it_by_the_readmes_recipe(checkout: Path, tmp_path: Path) -> None:
    need_java()
    variables = environment(tmp_path)

    def ran(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euc", f"exec 2>&1\n{command}"],  # spark-submit prints Python's error messages to stdout
            cwd=checkout,
            env=variables,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )

    done = ran(lines_of("bash", "venv-pack"))
    assert done.returncode == 0, done.stdout
    parts = [part.read_text(encoding="utf-8") for part in (checkout / "kept.jsonl").glob("part-*")]
    kept = [json.loads(line)["id"] for line in "".join(parts).splitlines()]
    assert sorted(kept) == ["a", "c"]

    bare = tmp_path / "bare" / "bin" / "python"
    without = ran(
        f"python3 -m venv --without-pip {tmp_path}/bare\n"
        f"PYSPARK_DRIVER_PYTHON=environment/bin/python PYSPARK_PYTHON={bare} spark-submit job.py"
    )
    assert without.returncode != 0
    assert f"cannot import hsimhash with {bare}: install hsimhash for that Python" in without.stdout
    assert "ship an environment (spark.archives)" in without.stdout
