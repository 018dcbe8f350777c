"""`kill -9` of a server under load: `python -m tests.stress.stores_kills --store NAME [--kills 30]`.

PostgreSQL uses its defaults. Redis has an AOF that is synced before each reply; then one that is synced every second.
Writers add, move and remove their own documents, which share fingerprints and parts of keys. Readers query other
documents that stay, by their whole signature and by the key alone. There is an index with keys in parts and one without
keys. The server is killed at random moments and restarted; all processes continue without help. After each kill every
document is as its last acknowledged write left it, except for writes within the time span whose loss the setting
allows. The other documents are unchanged, and at the end `check` finds no problem.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np

from hsimhash import HSimIndex, Signatures
from hsimhash.errors import CorruptionError
from hsimhash.fingerprint import Signature
from hsimhash.store.urls import with_options
from tests.support.fingerprint_sets import random_signatures
from tests.support.postgresql_server import postgresql_serving
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.redis_server import DURABLE, redis_running

SEED, KILLS, WRITERS = 7, 30, 2
PROFILES = ("auto-3", "auto-1")  # of the indexes
SIGNATURES = 2_000  # shared by the documents, around 50 fingerprints
FIXED, CHANGING, BATCH = 200, 2_000, 50
NOWHERE = 0  # a fingerprint that no document has
UP_S = (0.1, 0.6)  # between two kills
EVERY_SECOND = ("--appendonly", "yes", "--appendfsync", "everysec", "--save", "")
EVERY_SECOND_S = 2.0  # a server with a busy disk waits this long before it writes


class Server(Protocol):
    """One of the tests' own servers."""

    def url(self, name: str, /) -> str: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


class Load:
    """A writer and a reader, each in its own thread, and which of their documents the index must have.

    `lossy_s`: a kill may lose what was acknowledged within this time before it.
    """

    def __init__(self, url: str, number: int, seed: int, lossy_s: float) -> None:
        self.number, self.lossy_s, self.lost, self.oldest_s = number, lossy_s, 0, 0.0
        self.acknowledged_s: dict[str, float] = {}  # when each document was last written
        self.calling = threading.Lock()
        self.index = HSimIndex.open(with_options(url, {"deadline": "60s"}))
        self.rng = np.random.default_rng((seed, number))
        self.pool = list(self.index.store.record.stored(shared_signatures(seed)))
        self.fixed = {f"{number} fixed {place}": one for place, one in enumerate(self._signatures(FIXED))}
        self.index.add_many(list(self.fixed.values()), list(self.fixed), first_seen=1)
        self.held: dict[str, Signature] = {}
        self.is_over = threading.Event()
        self.calls = self.queries = 0
        self.faults: list[str] = []
        self.threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._write, self._read)]
        for thread in self.threads:
            thread.start()

    def _signatures(self, count: int) -> list[Signature]:
        return [self.pool[place] for place in self.rng.integers(0, len(self.pool), count).tolist()]

    def _guarded(self, work: object) -> None:
        try:
            while not self.is_over.is_set():
                work()  # type: ignore[operator]
        except Exception as error:  # reported at the end
            self.faults.append(f"{type(error).__name__}: {error}")

    def _write(self) -> None:
        try:
            self._change()
        except CorruptionError:  # acknowledged writes were lost, and this one was not stored
            if not self.lossy_s:
                raise

    def _change(self) -> None:
        ids = [f"{self.number} {place}" for place in self.rng.choice(CHANGING, BATCH, replace=False).tolist()]
        with self.calling:
            if self.rng.random() < 0.3:
                self.index.remove(ids)
                for doc_id in ids:
                    self.held.pop(doc_id, None)
            else:
                signatures = self._signatures(BATCH)
                self.index.add_many(signatures, ids, first_seen=1)
                self.held |= zip(ids, signatures, strict=True)
            self.acknowledged_s |= dict.fromkeys(ids, time.monotonic())
        self.calls += 1

    def _read(self) -> None:
        doc_id = f"{self.number} fixed {self.queries % FIXED}"
        one = self.fixed[doc_id]
        for asked in (one, one._replace(fingerprint=NOWHERE)) if one.key else (one,):
            if doc_id not in {match.doc_id for match in self.index.query(asked, max_distance=0, max_sketch=None)}:
                self.faults.append(f"{doc_id} was not found by {asked}")
        self.queries += 1

    def judge(self, there: dict[str, Signature], killed_s: float) -> None:
        """Compare the documents after a kill with the acknowledged ones; from then on they count as acknowledged."""
        found = {doc_id: one for doc_id, one in there.items() if doc_id.startswith(f"{self.number} ")}
        expected = self.fixed | self.held
        for doc_id in found.keys() | expected.keys():
            if found.get(doc_id) != expected.get(doc_id):
                age_s = killed_s - self.acknowledged_s.get(doc_id, 0)
                self.lost, self.oldest_s = self.lost + 1, max(self.oldest_s, age_s)
                if age_s > self.lossy_s:
                    self.faults.append(f"{doc_id} is not as acknowledged {age_s:.2f} s before a kill")
        self.held = {doc_id: one for doc_id, one in found.items() if doc_id not in self.fixed}

    def stop(self) -> None:
        """Stop the writer and the reader."""
        self.is_over.set()
        for thread in self.threads:
            thread.join()

    def outcome(self) -> Outcome:
        """Return the outcome."""
        lost = f"{self.lost} documents were not as acknowledged"
        if self.lossy_s:
            lost += f" (at most {self.oldest_s:.2f} s before a kill, {self.lossy_s:g} s allowed)"
        return Outcome(
            not self.faults and bool(self.calls) and bool(self.queries),
            f"{self.index.profile.name}: {self.calls:,} writes of {BATCH} documents, {self.queries:,} queries: "
            f"{lost}, faults: {self.faults[:3] or 'none'}",
        )


def shared_signatures(seed: int) -> Signatures:
    """Return the signatures that all writers' documents share."""
    rng = np.random.default_rng(seed)
    centres = rng.integers(0, 2**64, 50, np.uint64)
    return random_signatures(rng, rng.choice(centres, SIGNATURES) ^ rng.integers(0, 4, SIGNATURES, np.uint64))


def judge_all(of_index: Mapping[str, list[Load]], killed_s: float) -> None:
    """Judge all loads after a kill, while none of them writes; read each index only once."""
    with ExitStack() as stack:
        for load in chain.from_iterable(of_index.values()):
            stack.enter_context(load.calling)
        for loads in of_index.values():
            there = {document.doc_id: document.signature for document in loads[0].index.documents()}
            for load in loads:
                load.judge(there, killed_s)


def kill_server(server: Server, kills: int = KILLS, *, seed: int = SEED, lossy_s: float = 0) -> Iterator[Outcome]:
    """Kill a running server that many times under load; judge the results."""
    rng, of_index = np.random.default_rng(seed + 1), {}
    for number, profile in enumerate(PROFILES):
        url = server.url(f"pages_{number}")
        HSimIndex.create(url, layout="4", profile=profile).close()
        of_index[url] = [Load(url, number, seed, lossy_s) for number in range(WRITERS)]
    for _ in range(kills):
        time.sleep(rng.uniform(*UP_S))
        server.kill()
        killed_s = time.monotonic()
        server.start()
        judge_all(of_index, killed_s)
    time.sleep(UP_S[0])
    for load in chain.from_iterable(of_index.values()):
        load.stop()
    judge_all(of_index, math.inf)
    for url, loads in of_index.items():
        yield from outcomes_of(url, loads, kills)


def outcomes_of(url: str, loads: list[Load], kills: int) -> Iterator[Outcome]:
    """Judge the results of an index's writers and readers, and its contents."""
    for load in loads:
        load.index.close()
        yield load.outcome()
    with HSimIndex.open(url) as index:
        report = index.check()
        yield Outcome(
            report.is_sound, f"{kills} kills; check: {report.problems} problems, {report.leftovers} leftovers"
        )


def outcomes(store: str, folder: Path, kills: int, seed: int) -> Iterator[Outcome]:
    if store == "postgresql":
        with postgresql_serving() as database:
            yield from kill_server(database, kills, seed=seed)
        return
    with redis_running(folder / "always", DURABLE) as server:
        yield from kill_server(server, kills, seed=seed)
    with redis_running(folder / "everysec", EVERY_SECOND) as server:
        yield from kill_server(server, kills, seed=seed, lossy_s=EVERY_SECOND_S)


def main() -> int:
    given = options(
        __doc__,
        store=("postgresql", "or redis"),
        kills=(KILLS, "how often to kill"),
        seed=(SEED, "of the writes and the moments"),
    )
    print_conditions(f"kill -9 of {given.store}", packages=["psycopg", "redis"], seed=given.seed, kills=given.kills)
    with scratch_folder(given.scratch) as folder:
        return print_outcomes(outcomes(given.store, folder, given.kills, given.seed))


if __name__ == "__main__":
    sys.exit(main())
