"""What all kill loops share: a victim in a separate process, the time of its death, and the results."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np

from hsimhash import HsimhashError, HSimIndex
from hsimhash.fingerprint import Signature
from hsimhash.store.conformance.random_calls import plain_parts
from tests.stress.victims import READY, Documents
from tests.support.command_line import is_setting
from tests.support.fingerprint_sets import flipped

LATEST_S = 120.0  # no victim may take this long
ORPHANS_S = 60.0  # time for a dead victim's children to end; on a busy machine one may still be importing
NOWHERE = 0  # a fingerprint that no document has
PLANTED_BEFORE = 10**9  # a first_seen below this was in the input; others are the time of the run


@dataclass(slots=True)
class Tally:
    """The results of the kills."""

    phases: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lost: int = 0
    failed_opens: int = 0
    problems: int = 0
    ends: int = 0
    unequal_ends: int = 0
    stray_files: int = 0

    @property
    def kills(self) -> int:
        return self.phases.total()

    @property
    def is_sound(self) -> bool:
        return not (self.faults or self.lost or self.failed_opens or self.problems or self.unequal_ends)

    def kills_of(self, victim: str) -> int:
        return sum(count for (name, _), count in self.phases.items() if name == victim)

    def fault(self, text: str) -> None:
        self.faults.append(text)
        print(f"FAIL  {text}", flush=True)


@dataclass(frozen=True, slots=True)
class Victim:
    """A process at work; `log` is its stderr."""

    process: subprocess.Popen[bytes]
    log: IO[bytes]

    def kill_after(self, delay_s: float) -> bool:
        """Kill it after a delay; return whether it was still at work."""
        try:
            self.process.wait(delay_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait() == -signal.SIGKILL
        return False

    def output(self) -> bytes | None:
        """Return the rest of its output once it is dead; if children keep it open, end them and return None."""
        try:
            return self.process.communicate(timeout=ORPHANS_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # only the victim's own session
            return None

    def last_words(self) -> str:
        """Return its exit code and the last line of its stderr."""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").splitlines()
        return f"exit code {self.process.returncode}, {lines[-1:]}"


@contextmanager
def victim(*arguments: object) -> Iterator[Victim]:
    """Start a victim and wait until it is at work; it does not outlive the block."""
    environment = {name: value for name, value in os.environ.items() if not is_setting(name)}
    command = [sys.executable, "-m", "tests.stress.victims", *map(str, arguments)]
    with (
        tempfile.TemporaryFile() as log,
        # Unbuffered, because `output` must be able to read what the victim writes right after READY.
        subprocess.Popen(
            command, bufsize=0, stdout=subprocess.PIPE, stderr=log, env=environment, start_new_session=True
        ) as process,
    ):
        one = Victim(process, log)
        try:
            if process.stdout.readline() != READY:
                process.wait(LATEST_S)
                raise RuntimeError(f"{' '.join(command)} did not begin: {one.last_words()}")
            yield one
        finally:
            if process.poll() is None:
                process.kill()


def delay(rng: np.random.Generator, whole_s: float) -> float:
    """Return a moment in a run of `whole_s` seconds, more often early: resumed runs reach the later parts."""
    return float(rng.uniform(0, whole_s * rng.choice([0.3, 1.0])))


def contents(url: str) -> Documents:
    """Return the documents of an index; a first_seen that is the time of the run becomes -1."""
    with HSimIndex.open(url) as index:
        return {
            document.doc_id: (document.signature, document.first_seen if document.first_seen < PLANTED_BEFORE else -1)
            for document in index.documents()
        }


def check(url: str, tally: Tally, what: str) -> bool:
    """Open an index and check it; return whether it opened."""
    try:
        with HSimIndex.open(url) as index:
            report = index.check()
    except HsimhashError as error:
        tally.failed_opens += 1
        tally.fault(f"{what}: {error}")
        return False
    if not report.is_sound:
        tally.problems += report.problems
        tally.fault(f"{what}: {report.problems} problems: {report.examples[:3]}")
    return True


def check_keys(url: str, documents: Documents, tally: Tally, what: str) -> None:
    """Query an index by each key of its documents alone; it must return the documents that share it."""
    having: dict[tuple[int, ...], set[str]] = {}  # ids, by each part of a key
    with HSimIndex.open(url) as index:
        keying = index.store.record.keying
        for doc_id, (signature, _) in documents.items():
            for part in plain_parts(signature.key, keying):
                having.setdefault(part, set()).add(doc_id)
        keys = sorted({signature.key for signature, _ in documents.values()} - {0})
        answers = index.query_many([Signature(NOWHERE, key=key) for key in keys], max_distance=0)
    for key, matches in zip(keys, answers, strict=True):
        found = {match.doc_id for match in matches}
        expected = set().union(*(having[part] for part in plain_parts(key, keying)))
        tally.lost += len(expected - found)
        if found != expected:
            tally.fault(f"{what}: key {key:016x} finds {len(found)} documents, {len(expected)} share it")


def url_in(folder: Path) -> str:
    return f"lmdb://{folder / 'index'}"


def stray_files(trial: Path) -> int:
    """Return how many data files and bases in an index's folder are not in use."""
    index = trial / "index"
    return len(list(index.glob("data.*-*.mdb"))) + len(list(index.glob("base*"))[1:])


def crowded(rng: np.random.Generator, count: int) -> np.ndarray:
    """Return fingerprints, two in five of them 0 to 4 bits from an earlier one."""
    values = rng.integers(0, 2**64, count, np.uint64)
    near = np.flatnonzero(rng.random(count) < 0.4)[1:]
    values[near] = flipped(rng, values[rng.integers(0, near)], rng.integers(0, 5, len(near)))
    return values
