"""A short form of the fuzz; `make stress` runs the long one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.stress
def test_fuzzed_records_leave_no_traceback_and_are_all_accounted_for(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "tests.stress.fuzz_records", "--records", "500", "--scratch", str(tmp_path)]
    done = subprocess.run(program, cwd=Path(__file__).parents[1], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS  500 fuzzed records" in done.stdout
