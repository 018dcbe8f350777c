"""What the programs of tests/bench and tests/stress share: options, conditions, scratch folders, turns, outcomes."""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

Measured = TypeVar("Measured")

SCRATCH = Path(".bench")  # on the disk of the project: /tmp may be memory


def print_conditions(title: str, *, packages: Sequence[str] = (), **facts: object) -> None:
    """Print the machine, the versions and the parameters of the measurement, such as rows and seed."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    versions = [f"{name} {_version(name)}" for name in ("hsimhash", "numpy", "lmdb", *packages)]
    print(f"# {title}")
    print(f"machine   {_processor()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()}; load {load}")
    print(f"versions  Python {platform.python_version()}, {', '.join(versions)}")
    print(f"given     {', '.join(f'{name} {_shown(value)}' for name, value in facts.items())}", flush=True)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@dataclass(frozen=True, slots=True)
class Pace:
    """The pace of threads: calls per second of all together, and percentiles of the time per call."""

    rate: float
    p50_ms: float
    p99_ms: float


def pace(call: Callable[[int], object], threads: int, for_s: float) -> Pace:
    """Let threads call repeatedly for `for_s` seconds; each call gets a different number, counting from 0."""
    numbers, end_s = itertools.count(), time.perf_counter() + for_s

    def work(_: int) -> list[float]:
        taken_s = []
        while time.perf_counter() < end_s:
            taken_s.append(seconds(lambda: call(next(numbers))))
        return taken_s

    with ThreadPoolExecutor(threads) as pool:
        began_s = time.perf_counter()
        taken_ms = sorted(1_000 * one for part in pool.map(work, range(threads)) for one in part)
        took_s = time.perf_counter() - began_s
    return Pace(len(taken_ms) / took_s, taken_ms[len(taken_ms) // 2], taken_ms[len(taken_ms) * 99 // 100])


def in_turns(contestants: Mapping[str, Callable[[], Measured]], rounds: int) -> dict[str, list[Measured]]:
    """Call each contestant once per round, in turns, so that other load on the machine affects all of them alike."""
    taken: dict[str, list[Measured]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, measure in contestants.items():
            taken[name].append(measure())
    return taken


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median over the rounds of ours / theirs."""
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))


def print_bar(claim: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> None:
    """Print whether a measured value meets its bar; a missed bar never fails a run, because times vary."""
    is_kept = (at_most is None or value <= at_most) and (at_least is None or value >= at_least)
    bar = f"≤ {at_most:,g}" if at_most is not None else f"≥ {at_least:,g}"
    shown = f"{value:,.0f}" if value >= 1_000 else f"{value:,.2f}"
    print(f"{'PASS' if is_kept else 'FAIL'}  {claim}: {shown} ({bar})", flush=True)


def options(described: str, *, has_data: bool = False, **given: tuple[object, str]) -> argparse.Namespace:
    """Parse the command line of a program: `--scratch` and the options in `given`, each with its default and help.

    A default of False makes a flag; otherwise the value has the default's type. `has_data` adds `--data`: the folder
    of labelled data, or None.
    """
    parser = argparse.ArgumentParser(description=described.partition("\n")[0])
    for name, (default, meaning) in given.items():
        if default is False:
            parser.add_argument(f"--{name}", action="store_true", help=meaning)
        else:
            kind: Any = type(default)
            parser.add_argument(f"--{name}", type=kind, default=default, help=f"{meaning}; by default {default}")
    if has_data:
        data = os.environ.get("HSIMHASH_DATA") or None
        parser.add_argument("--data", type=Path, default=data, help="labelled data; by default $HSIMHASH_DATA")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="for files that are deleted again")
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether a requirement was met, and a text that describes it."""

    is_right: bool
    text: str

    def __str__(self) -> str:
        return f"{'PASS' if self.is_right else 'FAIL'}  {self.text}"


def faults(outcomes: Iterable[Outcome]) -> list[str]:
    """Return the texts of the outcomes that are not right."""
    return [one.text for one in outcomes if not one.is_right]


def print_outcomes(outcomes: Iterable[Outcome]) -> int:
    """Print each outcome as soon as it is available; return the exit code."""
    code = 0
    for one in outcomes:
        print(one, flush=True)
        code |= not one.is_right
    return code


def data_file(data: Path | None, name: str) -> Path | None:
    """Return a file of the labelled data; if it is missing, print a line that says so and return None."""
    if data is None:
        print(f"SKIP  {name}: no labelled data; set HSIMHASH_DATA or give --data")
        return None
    if not (data / name).is_file():
        print(f"SKIP  {name}: not in {data}")
        return None
    return data / name


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder, which is deleted at the end."""
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=parent)).absolute()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
