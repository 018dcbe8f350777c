"""`kill -9` of a Redis under load: `python -m tests.stress.redis_kills [--kills 30]`.

The server keeps an AOF that is synced before each reply. A writer adds, moves and removes documents, a reader asks for
others that stay; the server is killed at random moments, and started again. Both go on by themselves. At the end every
document is as its last acknowledged write left it, the others are as they were, and `check` finds no problem.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.redis_server import DURABLE, RedisServer, redis_running

SEED, KILLS = 7, 30
FIXED, CHANGING, BATCH = 200, 2_000, 50
UP_S = (0.1, 0.6)  # between two kills


class Load:
    """A writer and a reader in threads of their own, and what the index must hold."""

    def __init__(self, url: str, seed: int) -> None:
        self.index = HSimIndex.open(url)
        self.rng = np.random.default_rng(seed)
        self.fixed = {f"fixed {number}": int(value) for number, value in enumerate(self._values(FIXED))}
        self.index.add_many(list(self.fixed.values()), list(self.fixed), first_seen=1)
        self.held: dict[str, int] = {}
        self.is_over = threading.Event()
        self.calls = self.queries = 0
        self.faults: list[str] = []
        self.threads = [threading.Thread(target=self._guarded, args=(work,)) for work in (self._write, self._read)]

    def _values(self, count: int) -> list[int]:
        centres = self.rng.integers(0, 2**64, 50, np.uint64)  # documents share fingerprints
        return [int(value) for value in centres[self.rng.integers(0, 50, count)] ^ np.uint64(self.rng.integers(0, 4))]

    def _guarded(self, work: object) -> None:
        try:
            while not self.is_over.is_set():
                work()  # type: ignore[operator]
        except Exception as error:  # what a thread met is told at the end
            self.faults.append(f"{type(error).__name__}: {error}")

    def _write(self) -> None:
        ids = [f"doc {number}" for number in self.rng.choice(CHANGING, BATCH, replace=False).tolist()]
        if self.rng.random() < 0.3:
            self.index.remove(ids)
            for doc_id in ids:
                self.held.pop(doc_id, None)
        else:
            values = self._values(BATCH)
            self.index.add_many(values, ids, first_seen=1)
            self.held |= zip(ids, values, strict=True)
        self.calls += 1

    def _read(self) -> None:
        doc_id = f"fixed {self.queries % FIXED}"
        if doc_id not in {match.doc_id for match in self.index.query(self.fixed[doc_id], max_distance=0)}:
            self.faults.append(f"{doc_id} was not found")
        self.queries += 1

    def end(self) -> Outcome:
        """Stop both; judge what is there."""
        self.is_over.set()
        for thread in self.threads:
            thread.join()
        found = {document.doc_id: document.fingerprint for document in self.index.documents()}
        expected = self.fixed | self.held
        differing = {doc_id for doc_id in found.keys() | expected.keys() if found.get(doc_id) != expected.get(doc_id)}
        report = self.index.check()
        self.index.close()
        return Outcome(
            not differing and not self.faults and report.is_sound and bool(self.calls) and bool(self.queries),
            f"{self.calls:,} writes of {BATCH} documents, {self.queries:,} queries: {len(differing)} documents are not "
            f"as acknowledged, {report.problems} problems found by check, faults: {self.faults[:3] or 'none'}",
        )


def kill_server(server: RedisServer, kills: int, *, seed: int = SEED) -> Outcome:
    """Kill a running server so many times under load; judge what came of it."""
    HSimIndex.create(server.url(), layout="4", profile="auto-1").close()
    load, rng = Load(server.url(), seed), np.random.default_rng(seed + 1)
    for thread in load.threads:
        thread.start()
    for _ in range(kills):
        time.sleep(rng.uniform(*UP_S))
        server.kill()
        server.start()
    time.sleep(UP_S[0])
    return load.end()


def main() -> int:
    given = options(__doc__, kills=(KILLS, "how often to kill"), seed=(SEED, "of the writes and the moments"))
    print_conditions("kill -9 of Redis", packages=["redis"], seed=given.seed, kills=given.kills)
    with scratch_folder(given.scratch) as folder, redis_running(Path(folder), DURABLE) as server:
        return print_outcomes([kill_server(server, given.kills, seed=given.seed)])


if __name__ == "__main__":
    sys.exit(main())
