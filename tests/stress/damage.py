"""Damage inside a data file or a base: `python -m tests.stress.damage [--trials 300]`.

Every trial changes bytes of an index's pages, or zeroes pages, and runs each command on a copy of the result. A command
may answer, because LMDB's pages do not have checksums, or it must report that the index is damaged and exit with 6 for
`check` and 1 for the others. If LMDB itself ends the process with a signal, that is only counted.

Every other trial flips bits of the base instead. `check` finds them, and `check --repair` and `compact` rebuild the
base. A query answers as if the base were whole, or reports that it is damaged.
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
from typing import cast

import click
import numpy as np

from hsimhash import HSimIndex
from hsimhash.cli import main as hsimhash
from hsimhash.store.lmdb import files
from hsimhash.store.lmdb.compaction import make_base
from hsimhash.store.lmdb.store import LmdbStore
from tests.support.fingerprint_sets import random_signatures
from tests.support.processes import fork
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

SEED = 7
TRIALS = 300
DOCUMENTS = 4_000
MOST_PAGES = 10  # damaged in one trial
INGEST = ("ingest", "--fingerprint-field", "fingerprint", "--fresh", "--quiet", "--job")


def make_index(folder: Path, rng: np.random.Generator) -> list[str]:
    """Make an index, and documents to ingest; return some of its fingerprints."""
    values = rng.integers(0, 2**64, DOCUMENTS, np.uint64)
    values[:500] >>= np.uint64(40)  # a large bucket
    signatures = random_signatures(rng, values)
    with HSimIndex.create(f"lmdb://{folder / 'whole'}", profile="auto-3") as index:
        for part in np.array_split(np.arange(DOCUMENTS), 8):
            index.add_many(
                signatures[part], [f"doc/{number}{'/long' * 120 * (number % 50 == 0)}" for number in part.tolist()]
            )
            if part[0] < DOCUMENTS // 2:  # the others stay in the top
                make_base(cast(LmdbStore, index.store).session)
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
    """Change random pages, except the two meta pages: one byte of each page, one byte of its header, or all of it."""
    changed, size = bytearray(content), mmap.PAGESIZE
    reach = int(rng.choice([16, size, 0]))
    for page in rng.integers(2, len(content) // size, rng.integers(1, MOST_PAGES + 1)).tolist():
        if reach:
            changed[page * size + int(rng.integers(reach))] = int(rng.integers(256))
        else:
            changed[page * size : (page + 1) * size] = bytes(size)
    return bytes(changed)


def flipped_bits(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip a few bits, each in a different byte."""
    changed = bytearray(content)
    for at in set(rng.integers(0, len(content), rng.integers(1, MOST_PAGES + 1)).tolist()):
        changed[at] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def run(arguments: Sequence[str], told: Path, answered: str = os.devnull) -> tuple[int, str]:
    """Run a command in a separate process; return its exit code and its last message."""

    def work() -> None:
        os.dup2(os.open(answered, os.O_RDWR | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        hsimhash(arguments, prog_name="hsimhash")

    _, status = os.waitpid(fork(work), 0)
    lines = told.read_text(errors="replace").splitlines()
    return os.waitstatus_to_exitcode(status), lines[-1] if lines else ""


def fault(name: str, code: int, said: str) -> bool:
    """Whether a command ended in a way that it must not."""
    if "is damaged" in said:
        return code != (6 if name.startswith("check") else 1)
    # 5: the damaged record looks like that of another release.
    return code >= 0 and code not in (0, 5) and (name, code) != ("check", 6)


def base_fault(name: str, code: int, said: str, is_right: bool) -> bool:
    """Whether a command ended in a way that it must not if only bits of the base are flipped."""
    if name == "check":
        return code != 6
    if name in ("check --repair", "compact"):
        return code != 0
    if "is damaged" in said and "rebuilding its base" not in said:
        return code != 1
    return code != 0 or not is_right


def run_trials(trials: int, folder: Path, rng: np.random.Generator) -> tuple[Counter[tuple[str, int]], int]:
    """Return how often each command ended in each way, and the number of faults."""
    given = commands(folder, make_index(folder, rng))
    for arguments in given.values():  # import each command once, for all processes
        hsimhash.get_command(click.Context(hsimhash), arguments[0])
    whole, trial, answered = folder / "whole", folder / "trial", folder / "answered"
    (base,) = files.bases(whole)
    content = {path: path.read_bytes() for path in (whole / files.DATA, base)}
    run([*given["query"], "--store", f"lmdb://{whole}"], folder / "told", str(answered))
    right, ends, faults = answered.read_bytes(), Counter[tuple[str, int]](), 0
    for number in range(trials):
        of_base = number % 2 == 1
        change = {base: flipped_bits} if of_base else {whole / files.DATA: damaged}
        changed = {path.name: change[path](was, rng) if path in change else was for path, was in content.items()}
        for name, arguments in given.items():
            for left in (trial, folder / "job", folder / "backup"):
                shutil.rmtree(left, ignore_errors=True)
            trial.mkdir()
            for file, its in changed.items():
                (trial / file).write_bytes(its)
            code, said = run([*arguments, "--store", f"lmdb://{trial}"], folder / "told", str(answered))
            ends[f"{name}{', base' if of_base else ''}", code] += 1
            is_right = name != "query" or answered.read_bytes() == right
            if base_fault(name, code, said, is_right) if of_base else fault(name, code, said):
                faults += 1
                print(f"FAIL  {name}: exit code {code}, {said}", flush=True)
    return ends, faults


def main() -> int:
    given = options(__doc__, trials=(TRIALS, "how many files to damage"), seed=(SEED, "of the index and the damage"))
    print_conditions("damaged data files", seed=given.seed, trials=given.trials, documents=DOCUMENTS)
    with scratch_folder(given.scratch) as folder:
        ends, faults = run_trials(given.trials, folder.resolve(), np.random.default_rng(given.seed))
    for (name, code), count in sorted(ends.items()):
        print(f"{name:28} {f'exit code {code}' if code >= 0 else f'signal {-code}':12} {count:4}")
    signals = sum(count for (_, code), count in ends.items() if code < 0)
    text = f"{ends.total()} commands: {faults} faults, {signals} ended by LMDB by a signal"
    return print_outcomes([Outcome(not faults, text)])


if __name__ == "__main__":
    sys.exit(main())
