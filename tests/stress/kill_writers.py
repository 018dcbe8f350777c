"""`kill -9` of writers and of compactions; see `kills`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from tests.stress.killing import (
    LATEST_S,
    Tally,
    check,
    check_keys,
    contents,
    crowded,
    delay,
    stray_files,
    url_in,
    victim,
)
from tests.stress.victims import Documents, operation
from tests.support.fingerprint_sets import random_signatures

COMPACTED_DOCUMENTS = 3_000
SEED = 9  # of the writers' operations
OPERATIONS = 600  # per writer
ROUND_S = 0.3  # the longest time that the writers run between two kills


@dataclass(slots=True)
class Writer:
    """A writer's acknowledged state: `documents` is the result of the operations before `next`."""

    number: int
    seed: int
    next: int = 0
    documents: Documents = field(default_factory=dict)

    def acknowledge(self, count: int) -> None:
        """Apply the next `count` operations to `documents`."""
        for _ in range(count):
            operation(self.seed, self.number, self.next).apply(self.documents)
            self.next += 1

    def arguments(self, url: str) -> tuple[object, ...]:
        return ("writer", url, self.seed, self.number, self.next, OPERATIONS)

    def phase(self, found: Documents) -> str | None:
        """Return how far the interrupted operation got; None if the index is in a state that it must not be in."""
        mine = {doc_id: value for doc_id, value in found.items() if doc_id.startswith(f"writer-{self.number}/")}
        following = operation(self.seed, self.number, self.next)
        further = dict(self.documents)
        following.apply(further)
        if mine == self.documents:
            return f"{following.kind}, not committed" if further != mine else f"{following.kind} without a change"
        return f"{following.kind}, committed, not acknowledged" if mine == further else None


def kill_writers(kills: int, tally: Tally, folder: Path, rng: np.random.Generator) -> None:
    """Let two writers write at once, and kill them one after the other, repeatedly."""
    number = 0
    while tally.kills_of("writers") < kills:
        number += 1
        trial = folder / f"writers-{number}"
        HSimIndex.create(url_in(trial)).close()
        writers = [Writer(one, SEED + number) for one in range(2)]
        while tally.kills_of("writers") < kills and all(one.next < OPERATIONS for one in writers):
            what = f"writers, index {number}, operations {[one.next for one in writers]}"
            delays = [delay(rng, ROUND_S), delay(rng, ROUND_S)]
            if not _round(writers, url_in(trial), delays, tally, what):
                return
        _round(writers, url_in(trial), [LATEST_S, LATEST_S], tally, f"writers, index {number}, to the end")
        tally.ends += 1
        if any(one.next < OPERATIONS for one in writers):
            tally.unequal_ends += 1
            tally.fault(f"writers, index {number}: ended at operations {[one.next for one in writers]}")
        tally.stray_files += stray_files(trial)
        shutil.rmtree(trial)


def _round(writers: Sequence[Writer], url: str, delays: Sequence[float], tally: Tally, what: str) -> bool:
    """Run both writers, kill each after its delay, and compare the index with what they acknowledged."""
    with victim(*writers[0].arguments(url)) as first, victim(*writers[1].arguments(url)) as second:
        killed = []
        for writer, one, delay_s in zip(writers, (first, second), delays, strict=True):
            killed.append(one.kill_after(delay_s))
            if not check(url, tally, f"{what}, writer {writer.number} killed, the other at work"):
                return False
            if not killed[-1] and one.process.returncode != 0:
                tally.fault(f"{what}: writer {writer.number}: {one.last_words()}")
        for writer, one in zip(writers, (first, second), strict=True):
            writer.acknowledge((one.output() or b"").count(b"\n"))
    if not check(url, tally, f"{what}, both killed"):
        return False
    found = contents(url)
    check_keys(url, found, tally, f"{what}, both killed")
    for one, was_killed in zip(writers, killed, strict=True):
        phase = one.phase(found)
        if phase is None:
            tally.lost += 1
            tally.fault(
                f"{what}: writer {one.number} has acknowledged {one.next} operations, the index tells otherwise"
            )
        if was_killed:
            tally.phases["writers", phase or "lost"] += 1
    return True


def kill_compactions(kills: int, tally: Tally, folder: Path, rng: np.random.Generator) -> None:
    """Kill a process that compacts an index, repeatedly; then let one compaction finish."""
    trial = folder / "compact"
    with HSimIndex.create(url_in(trial)) as index:
        signatures = random_signatures(rng, crowded(rng, COMPACTED_DOCUMENTS))
        index.add_many(signatures, [f"页/{number}" for number in range(COMPACTED_DOCUMENTS)])
    expected = contents(url_in(trial))
    while tally.kills_of("compact") < kills:
        what = f"compact, kill {tally.kills_of('compact') + 1}"
        with victim("compact", url_in(trial), sys.maxsize) as one:
            if not one.kill_after(float(rng.uniform(0, ROUND_S))):
                tally.fault(f"{what}: {one.last_words()}")
        tally.phases["compact", compact_phase(trial)] += 1
        if not check(url_in(trial), tally, what):
            return
        if contents(url_in(trial)) != expected:
            tally.lost += 1
            tally.fault(f"{what}: other documents than before")
    with HSimIndex.open(url_in(trial)) as index:
        index.compact()
    check_keys(url_in(trial), expected, tally, "compact, to its end")
    tally.ends += 1
    if contents(url_in(trial)) != expected or stray_files(trial):
        tally.unequal_ends += 1
        tally.fault(f"compact, to its end: {stray_files(trial)} stray files, or other documents than before")


def compact_phase(trial: Path) -> str:
    """Return the phase that a killed compaction was in, from the files that it left."""
    if stray_files(trial):
        return "copying"
    return (
        "between two"
        if (trial / "index" / "data.mdb-lock").exists()
        else "about to put the copy in place, or just after"
    )
