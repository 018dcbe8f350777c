"""Run the command line in the tests: in this process, in a separate one, and on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path

from click.testing import CliRunner, Result

from hsimhash.cli import main
from hsimhash.fingerprint import Signature
from hsimhash.index import HSimIndex
from hsimhash.native_package import SWITCH
from hsimhash.store.unfinished_relayout import UNFINISHED, mark_relayout

PROGRAM = (sys.executable, "-m", "hsimhash")
ANSWER_S = 10.0  # within which a command shows more after its prompt is answered
PATIENCE_S = 120.0
DOCUMENTS = {"a": 0b0001, "b": 0b0011, "中文": 0b0111, "far": 2**64 - 1}


def is_setting(name: str) -> bool:
    """Return whether a variable is a setting of the shell that commands under test must not see."""
    return name.startswith("HSIMHASH_") and name != SWITCH


def run(*arguments: str, given: str | bytes = "", environment: Mapping[str, str] | None = None) -> Result:
    """Run a command in this process, with only the settings in `environment`."""
    cleared = {name: None for name in os.environ if is_setting(name)}
    variables = {**cleared, "HOME": "/nonexistent", **(environment or {})}
    return CliRunner().invoke(main, arguments, input=given, env=variables, prog_name="hsimhash")


def own_process(
    *arguments: str | bytes, environment: Mapping[str, str] | None = None, **options: object
) -> subprocess.Popen[bytes]:
    """Start a command in a separate process with pipes; `options` are those of Popen."""
    kept = {name: value for name, value in os.environ.items() if not is_setting(name)}
    variables = {**kept, "HOME": "/nonexistent", **(environment or {})}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([*PROGRAM, *arguments], env=variables, **{**pipes, **options})


def run_apart(*arguments: str | bytes, given: bytes = b"", **options: object) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a separate process until it ends; `options` are those of `own_process`."""
    process = own_process(*arguments, **options)
    shown, told = process.communicate(given)
    return subprocess.CompletedProcess(process.args, process.returncode, shown, told)


def send(process: subprocess.Popen[bytes], given: bytes) -> None:
    """Write to a process's stdin, which stays open."""
    process.stdin.write(given)
    process.stdin.flush()


def on_terminal(*arguments: str, asked: str = "", typed: str = "") -> tuple[int, str]:
    """Run a command on a terminal and type `typed` once it shows `asked`; return its exit code and all output.

    Types `typed` again while the command shows nothing more: a Ctrl-C between the prompt and the wait for a key takes
    effect only with the next key.
    """
    controller, terminal = pty.openpty()
    process = own_process(
        *arguments,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    shown = b""
    is_asked = False
    with contextlib.suppress(OSError):  # the terminal's last process has ended
        while True:
            if select.select([controller], [], [], ANSWER_S)[0]:
                part = os.read(controller, 65_536)
                if not part:
                    break
                shown += part
                if is_asked or not asked or asked.encode() not in shown:
                    continue
                is_asked = True
            if is_asked:
                os.write(controller, typed.encode())
    os.close(controller)
    return process.wait(), shown.decode()


def lines_of(text: str) -> list[dict[str, object]]:
    """Return the values of JSON lines."""
    return [json.loads(line) for line in text.splitlines()]


def make_index(
    folder: Path,
    documents: Mapping[str, int] | Mapping[str, Signature] | None = None,
    *,
    layout: str = "10",
    profile: str = "auto-1",
    first_seen: int | Sequence[int] = 0,
) -> str:
    """Make an index in a new folder inside `folder`; return its URL."""
    url = f"lmdb://{folder / 'index'}"
    held = DOCUMENTS if documents is None else documents
    with HSimIndex.create(url, layout=layout, profile=profile) as index:
        index.add_many(list(held.values()), list(held), first_seen=first_seen)
    return url


def ids_in(url: str) -> list[str]:
    """Return the ids of an index, sorted."""
    with HSimIndex.open(url) as index:
        return sorted(document.doc_id for document in index.documents())


def show_crowds(url: str) -> tuple[list[dict[str, object]], list[str]]:
    """Return what `status` reports about crowded fingerprints: the JSON, and the lines of text."""
    found = json.loads(run("status", "--store", url, "--json").stdout)["crowds"]
    return found, [line for line in run("status", "--store", url).stdout.splitlines() if line.startswith("crowded")]


def assert_a_half_copied_index_is_reported(url: str) -> None:
    """Assert that `doctor`, `status` and `check` warn about an index while a relayout into it is unfinished."""
    for is_finished in (False, True):
        with HSimIndex.open(url) as index:
            mark_relayout(index.store, is_finished=is_finished)
        for command in ("doctor", "status", "check"):
            result = run(command, "--store", url)
            assert result.exit_code == 0, result.stderr
            assert (UNFINISHED in result.stdout + result.stderr) is not is_finished


def assert_status_names_a_crowd(url: str) -> None:
    """Assert that `status` names a fingerprint only once 3,000 documents have it, among 3,000 others in a new index."""
    others = [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(1, 3_001)]
    with HSimIndex.create(url, layout="4", profile="auto-1") as index:
        index.add_many(others, [f"other {number}" for number in range(3_000)])
    assert show_crowds(url) == ([], [])
    with HSimIndex.open(url) as index:
        index.add_many([2**63 + 5] * 3_000, [f"same {number}" for number in range(3_000)])
    (crowd,), (line,) = show_crowds(url)
    assert (crowd["fingerprint"], crowd["documents"]) == ("8000000000000005", 3_000)
    assert 0.4 < crowd["share"] < 0.6
    assert line == (
        f"crowded fingerprint: 8000000000000005: at least 3,000 documents, about {crowd['share']:.0%} of all documents"
    )
