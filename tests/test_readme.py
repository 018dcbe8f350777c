"""The README's commands and code, run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_shell_commands_run_and_find_the_near_duplicate(tmp_path: Path) -> None:
    assert blocks("sh")
    output = "".join(run(["bash", "-euc", block], tmp_path) for block in blocks("sh"))
    assert re.search(r'"id": "b"', output)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_code_runs(block: str, tmp_path: Path) -> None:
    run([sys.executable, "-c", block], tmp_path)


def test_every_command_is_in_the_table() -> None:
    listed = run([sys.executable, "-m", "hsimhash", "--help"], Path.cwd())
    commands = re.findall(r"^  ([a-z-]+)  ", listed[listed.index("Commands:") :], re.MULTILINE)
    assert commands
    assert [name for name in commands if f"`{name}" not in README and f"make {name}" not in README] == []
