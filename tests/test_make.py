"""The make targets: what they run, that they fail early, and the reasons they give for skipping tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effort import thorough

TOP = Path(__file__).parents[1]
INTEGRATION = TOP / "tests" / "integration"


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Run make with a virtual environment that does not exist and that make cannot create."""
    of_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "TESTS")
    kept = {name: value for name, value in os.environ.items() if name not in of_make}
    command = ["make", "VENV=/nonexistent/venv", *words]
    return subprocess.run(command, cwd=TOP, env=kept, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("target", ["test", "test-servers"])
@pytest.mark.parametrize("name", ["tests/test_nothing.py", "tests/test_layout.py tests/nothing/", "nothing.py::test_a"])
def test_a_test_file_that_does_not_exist_is_named_before_anything_is_installed(target: str, name: str) -> None:
    done = make(target, f"TESTS={name}")
    assert done.returncode != 0
    assert f"no such test file: {name.split()[-1]}" in done.stderr
    assert "pip" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    "given", ["tests/test_layout.py::test_x[a/b]", "tests -k 'large or small'", "tests --ignore=tests/none.py"]
)
def test_test_files_that_exist_and_options_are_taken(given: str) -> None:
    assert make("named-tests", f"TESTS={given}").returncode == 0


def test_the_servers_tests_are_apart() -> None:
    alone, servers = (make("--dry-run", target).stdout for target in ("test", "test-servers"))
    assert alone.endswith(" tests --ignore=tests/integration\n")
    assert servers.endswith(" tests/integration\n")
    assert "fetching" not in alone + servers


@thorough
@pytest.mark.parametrize(("required", "code", "word"), [("0", 5, "SKIPPED"), ("1", 2, "ERROR")])
def test_modules_whose_package_is_missing_are_skipped_with_the_reason_or_fail(
    required: str, code: int, word: str
) -> None:
    packages = {"psycopg": "postgresql", "redis": "redis", "pyspark": "spark"}
    modules = [str(path) for extra in packages.values() for path in sorted(INTEGRATION.glob(f"test_{extra}_*.py"))]
    without = f"sys.modules.update(dict.fromkeys({list(packages)}))"
    program = f"import sys, pytest; {without}; sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "-q", "-p", "no:cacheprovider", *modules]
    environment = {**os.environ, "REQUIRE_SERVERS": required}
    done = subprocess.run(command, cwd=TOP, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert len(re.findall(rf"^{word} .*", done.stdout, re.M)) == (len(modules) if required == "1" else len(packages))
    for package in packages:
        assert f"{package} is not installed: install it with 'make test-servers'" in done.stdout
    assert "Traceback" not in done.stdout
