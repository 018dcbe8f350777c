"""Kill -9 of a PostgreSQL under load: `python -m tests.stress.postgresql_kills [--rounds N]`.

Processes add, move and remove documents of their own through an index each, and note what was acknowledged, while the
server and all its processes are killed and started again. At the end every document is as its writer last had it
acknowledged, or as a call that was not acknowledged would have it; the index is sound; and no writer met an error.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hsimhash import HSimIndex
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.processes import beside
from tests.support.programs import Outcome, options, print_conditions, print_outcomes

SEED, ROUNDS, WRITERS, DOCUMENTS = 5, 20, 4, 200
LOAD_S = 2.0

State = dict[str, int | None]  # the fingerprint of a document, None: removed


def write(url: str, worker: int, is_over: Any, begun: Callable[[], None]) -> tuple[State, int]:
    """Change documents until told to end; return what was acknowledged of each, and how many calls there were."""
    rng, state, calls = np.random.default_rng((SEED, worker)), State(), 0
    with HSimIndex.open(url, deadline_s=60) as index:
        begun()
        while not is_over.is_set():
            ids = [f"{worker} {number}" for number in rng.permutation(DOCUMENTS)[: rng.integers(1, 20)]]
            if rng.random() < 0.2:
                index.remove(ids)
                state |= dict.fromkeys(ids)
            else:
                values = rng.integers(0, 50, len(ids), np.uint64) << np.uint64(32)
                index.add_many(values, ids)
                state |= dict(zip(ids, values.tolist(), strict=True))
            calls += 1
    return state, calls


def killed(server: PostgresqlServer, rounds: int) -> Iterator[Outcome]:
    url = server.url("pages")
    HSimIndex.create(url, layout="4", profile="zh-1").close()
    with beside(write, [(url, worker) for worker in range(WRITERS)]) as answers:
        for _ in range(rounds):
            time.sleep(LOAD_S)
            server.kill()
            server.start()
        time.sleep(LOAD_S)
    with HSimIndex.open(url) as index:
        found = {document.doc_id: document.fingerprint for document in index.documents()}
        wrong = sum(found.get(doc_id) != value for state, _ in answers for doc_id, value in state.items())
        calls = sum(calls for _, calls in answers)
        yield Outcome(
            wrong == 0, f"{rounds} kills, {calls:,} calls, none failed; documents not as acknowledged: {wrong}"
        )
        report = index.check()
        yield Outcome(report.is_sound, f"check: {report.problems} problems, {report.leftovers} leftovers")


def main() -> int:
    given = options(__doc__, rounds=(ROUNDS, "kills"))
    print_conditions("PostgreSQL: kills", packages=("psycopg",), seed=SEED, writers=WRITERS, kills=given.rounds)
    with postgresql_serving() as server:
        return print_outcomes(killed(server, given.rounds))


if __name__ == "__main__":
    sys.exit(main())
