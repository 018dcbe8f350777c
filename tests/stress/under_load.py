"""All tests on a busy machine: `python -m tests.stress.under_load [--runs 10] [--load 6] [--tests FILES]`.

`--load` processes keep the machine busy without a pause: a third of them write and sync files, and the rest compute.
The first run simulates a bare machine: `make test test-servers` in a fresh clone of HEAD, with its own home and TMPDIR,
so that the caches of pip, Maven and jieba are empty. Every run must be green and must not leave a process.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import beside, spin
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

RUNS, LOAD = 10, 6
TOP = Path(__file__).parents[2]
MARK = "TESTS_UNDER_LOAD"  # in the environment of every process that a run starts
WRITTEN_BYTES = 64 << 20
FAREWELL_S = 120.0  # a test's HBase ends a while after its last user
END = re.compile(r"^=+ (.*(?:passed|failed|error).*) =+$|^(\d+ (?:passed|failed).*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run: its log, and the processes that it left, by pid."""

    code: int
    seconds: float
    log: str
    left: dict[int, str]

    @property
    def is_green(self) -> bool:
        return self.code == 0 and not self.left

    def told(self) -> str:
        ends = [match[1] or match[2] for match in END.finditer(self.log)]
        return f"{self.seconds:.0f} s, {'; '.join(ends) or f'exit code {self.code}'}, {len(self.left)} processes left"


# The load.


def write(folder: Path, is_over: Any, begun: Callable[[], None]) -> None:
    """Keep a disk busy, for `beside`; also end when the parent ends, for whatever reason."""
    parent, path = os.getppid(), folder / str(os.getpid())
    begun()
    while not is_over.is_set() and os.getppid() == parent:
        with path.open("wb") as file:
            file.write(random.randbytes(1 << 20) * (WRITTEN_BYTES >> 20))
            os.fsync(file.fileno())


# The runs.


def run(tests: str, folder: Path, *, is_bare: bool) -> Run:
    """Run the tests once, with their own files in `folder`."""
    mark = f"{os.getpid()}-{folder.name}"
    environment = {**os.environ, MARK: mark, "TMPDIR": str(folder / "tmp")}
    for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS"):
        environment.pop(name, None)
    (folder / "tmp").mkdir(parents=True)
    place = TOP
    if is_bare:
        place = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", TOP, place], check=True)
        (folder / "home").mkdir()
        environment |= {"HOME": str(folder / "home"), "MAVEN_OPTS": f"-Duser.home={folder / 'home'}"}
        environment = {name: value for name, value in environment.items() if name not in ("PIP_CACHE_DIR", "HBASE_LIB")}
    began = time.monotonic()
    with (folder / "log").open("wb") as log:
        targets = [f"TESTS={tests}", "test-servers"] if tests else ["test", "test-servers"]
        command = ["make", "-C", place, f"PYTHON={sys.executable}", *targets]
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, check=False)
    seconds = time.monotonic() - began
    return Run(done.returncode, seconds, (folder / "log").read_text(errors="replace"), end_rest(mark))


def end_rest(mark: str) -> dict[int, str]:
    """Wait for the last processes of a run; end and return those that do not end on their own."""
    deadline = time.monotonic() + FAREWELL_S
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.5)
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return left


def marked(mark: str) -> dict[int, str]:
    """Return the command lines of the processes whose environment has a run's mark."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                )
    return found


def main() -> int:
    given = options(
        __doc__,
        runs=(RUNS, "how often to run the tests, one after the other"),
        load=(LOAD, "how many processes are busy beside them"),
        tests=("", "test files, as `make test-servers TESTS=…` takes them; without it all tests run"),
    )
    print_conditions("all tests under load", packages=["pytest"], runs=given.runs, load=given.load)
    writers = given.load // 3
    with (
        scratch_folder(given.scratch) as folder,
        beside(spin, [()] * (given.load - writers)),
        beside(write, [(folder,)] * writers),
    ):
        return print_outcomes(outcomes(given.tests, given.runs, folder))


def outcomes(tests: str, runs: int, folder: Path) -> Iterator[Outcome]:
    """Run the tests `runs` times; print the logs of runs that are not green."""
    for number in range(runs):
        done = run(tests, folder / str(number), is_bare=number == 0)
        yield Outcome(done.is_green, f"run {number + 1} of {runs}: {done.told()}")
        if not done.is_green:
            print(done.log, *done.left.items(), sep="\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
