"""The wheel and the sdist, each installed into an empty environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hsimhash import __version__
from tests.stress.spark_versions import python_of
from tests.support.effort import IS_THOROUGH, thorough

pytestmark = [thorough, pytest.mark.timeout(600)]
TOP = Path(__file__).parents[1]
NEEDED = ("hsimhash", "pyproject.toml", "README.md", "LICENSE")
OLDEST, NEWEST = 11, 14


def pythons() -> list[str]:
    """Return an interpreter for each supported Python here; only thorough runs look beyond the current one."""
    if not IS_THOROUGH:
        return [sys.executable]
    return [one for minor in range(OLDEST, NEWEST + 1) if (one := python_of(f"3.{minor}"))]


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build a wheel and an sdist of this checkout."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("built")
    for name in NEEDED:
        here = TOP / name
        if here.is_dir():
            shutil.copytree(here, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(here, source)
    made = [f"import setuptools.build_meta as build; build.build_{kind}({str(out)!r})" for kind in ("wheel", "sdist")]
    for code in made:
        run(sys.executable, "-c", code, folder=source)
    return {path.suffix: path for path in out.iterdir()}


@pytest.mark.parametrize(
    ("suffix", "python"),
    [(".gz", sys.executable), *((".whl", python) for python in pythons())],
    ids=lambda value: Path(value).name,
)
def test_it_installs_into_an_empty_environment_and_runs(
    suffix: str, python: str, built: dict[str, Path], tmp_path: Path
) -> None:
    run(python, "-m", "venv", "empty", folder=tmp_path)
    run(tmp_path / "empty/bin/pip", "install", "--quiet", built[suffix], folder=tmp_path)
    command = tmp_path / "empty/bin/hsimhash"
    assert run(command, "--version", folder=tmp_path).startswith(f"hsimhash, version {__version__}\n")
    assert "371 documents" in run(command, "demo", folder=tmp_path)
    notes = tmp_path / "notes"
    notes.mkdir()
    for name in ("a.txt", "b.txt"):
        (notes / name).write_text("The harbour ferry will not run on Sunday because divers look at the moorings.\n")
    run(command, "dedup", notes, "--out", "found", folder=tmp_path)
    assert (tmp_path / "found/drop.txt").read_text() == "b.txt\n"
    assert (tmp_path / "found/report.html").exists()
