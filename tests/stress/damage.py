"""Damage inside a data file: `python -m tests.stress.damage [--trials 300]`.

Every trial changes bytes of an index's pages, or zeroes pages, and lets each command work on a copy of that. A command
may answer, for LMDB's pages have no checksums; or it says that the index is damaged, with its exit code: 6 of `check`,
1 of the others. Where LMDB itself ends the process by a signal nothing can be said: that is counted.
"""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np

from hsimhash import HSimIndex
from hsimhash.cli import main as hsimhash
from tests.support.fingerprint_sets import random_signatures
from tests.support.processes import fork
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

SEED = 7
TRIALS = 300
DOCUMENTS = 4_000
MOST_PAGES = 10  # damaged in one trial
INGEST = ("ingest", "--fingerprint-field", "fingerprint", "--fresh", "--quiet", "--job")


def make_index(folder: Path, rng: np.random.Generator) -> list[str]:
    """Make an index, and documents to ingest; return some fingerprints of it."""
    values = rng.integers(0, 2**64, DOCUMENTS, np.uint64)
    values[:500] >>= np.uint64(40)  # a large bucket
    signatures = random_signatures(rng, values)
    with HSimIndex.create(f"lmdb://{folder / 'whole'}", profile="auto-3") as index:
        for part in np.array_split(np.arange(DOCUMENTS), 8):
            index.add_many(
                signatures[part], [f"doc/{number}{'/long' * 120 * (number % 50 == 0)}" for number in part.tolist()]
            )
    records = [{"id": f"new/{number}", **one.to_json()} for number, one in enumerate(signatures)]
    (folder / "new.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records[::20]))
    return [f"{value:016x}" for value in values[::70].tolist()]


def commands(folder: Path, fingerprints: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the commands by name."""
    ingest = (*INGEST, str(folder / "job"), str(folder / "new.jsonl"))
    return {
        "check": ("check",),
        "check --repair": ("check", "--repair"),
        "describe": ("describe",),
        "query": ("query", *fingerprints),
        "export": ("export",),
        "ingest": ingest,
        "ingest --on-duplicate": (*ingest, "--on-duplicate", "skip"),
        "remove": ("remove", "--yes", *(f"doc/{number}" for number in range(1, DOCUMENTS, 300))),
        "compact": ("compact",),
        "backup": ("backup", str(folder / "backup")),
    }


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Change pages, but for the two that say where the others are: one byte of each, of its head, or all of it."""
    changed, size = bytearray(content), mmap.PAGESIZE
    reach = int(rng.choice([16, size, 0]))
    for page in rng.integers(2, len(content) // size, rng.integers(1, MOST_PAGES + 1)).tolist():
        if reach:
            changed[page * size + int(rng.integers(reach))] = int(rng.integers(256))
        else:
            changed[page * size : (page + 1) * size] = bytes(size)
    return bytes(changed)


def run(arguments: Sequence[str], told: Path) -> tuple[int, str]:
    """Run a command in a process of its own; return how that ended, and the last that it said."""

    def work() -> None:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        hsimhash(arguments, prog_name="hsimhash")

    _, status = os.waitpid(fork(work), 0)
    lines = told.read_text(errors="replace").splitlines()
    return os.waitstatus_to_exitcode(status), lines[-1] if lines else ""


def fault(name: str, code: int, said: str) -> bool:
    """Whether a command ended as it must not."""
    if "is damaged" in said:
        return code != (6 if name.startswith("check") else 1)
    # 5: the record was changed into that of another release.
    return code >= 0 and code not in (0, 5) and (name, code) != ("check", 6)


def run_trials(trials: int, folder: Path, rng: np.random.Generator) -> tuple[Counter[tuple[str, int]], int]:
    """Return how often each command ended in which way, and the number of faults."""
    given = commands(folder, make_index(folder, rng))
    for arguments in given.values():  # once for all processes
        hsimhash.get_command(click.Context(hsimhash), arguments[0])
    whole, trial = folder / "whole" / "data.mdb", folder / "trial"
    content, ends, faults = whole.read_bytes(), Counter[tuple[str, int]](), 0
    for _ in range(trials):
        changed = damaged(content, rng)
        for name, arguments in given.items():
            for left in (trial, folder / "job", folder / "backup"):
                shutil.rmtree(left, ignore_errors=True)
            trial.mkdir()
            (trial / whole.name).write_bytes(changed)
            code, said = run([*arguments, "--store", f"lmdb://{trial}"], folder / "told")
            ends[name, code] += 1
            if fault(name, code, said):
                faults += 1
                print(f"FAIL  {name}: exit code {code}, {said}", flush=True)
    return ends, faults


def main() -> int:
    given = options(__doc__, trials=(TRIALS, "how many files to damage"), seed=(SEED, "of the index and the damage"))
    print_conditions("damaged data files", seed=given.seed, trials=given.trials, documents=DOCUMENTS)
    with scratch_folder(given.scratch) as folder:
        ends, faults = run_trials(given.trials, folder.resolve(), np.random.default_rng(given.seed))
    for (name, code), count in sorted(ends.items()):
        print(f"{name:22} {f'exit code {code}' if code >= 0 else f'signal {-code}':12} {count:4}")
    signals = sum(count for (_, code), count in ends.items() if code < 0)
    text = f"{ends.total()} commands: {faults} faults, {signals} ended by LMDB by a signal"
    return print_outcomes([Outcome(not faults, text)])


if __name__ == "__main__":
    sys.exit(main())
