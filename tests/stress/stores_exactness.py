"""No match missed, none invented, on a server: `python -m tests.stress.stores_exactness --store NAME`.

Queries are made as in `exactness.py`, by fingerprint and by signature, single and in batches. Half of the documents are
added by a bulk load, half in small batches, like a crawler does.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from hsimhash import HSimIndex
from tests.stress.exactness import SEED, Given, Way, check_all_signatures, check_layout, profile_of
from tests.support.postgresql_server import postgresql_serving
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder, seconds
from tests.support.redis_server import redis_running

LAYOUTS = ("4", "10", "20,44/1", "32,32/2")
STORED, QUERIES = 200_000, 2_000
MOST_BATCH_S = 30  # estimated by prices; fewer of the expensive queries are run
BATCH = 1_000
_numbers = itertools.count()


class Server(Protocol):
    """One of the tests' own servers."""

    def url(self, name: str, /) -> str: ...


@contextmanager
def filled(server: Server, folder: Path, layout: str, fingerprints: Given) -> Iterator[list[Way]]:
    """Make an index and fill it; each document's id is its position."""
    url = server.url(f"exact_{next(_numbers)}")
    with HSimIndex.create(url, layout=layout, profile=profile_of(fingerprints)) as index:
        ids, half = list(map(str, range(len(fingerprints)))), len(fingerprints) // 2

        def fill() -> None:
            load = index.bulk(folder / "load")
            for start, stop in itertools.pairwise((0, half // 3, half)):
                load.add_run(fingerprints[start:stop], ids[start:stop], 0)
            load.merge()
            load.delete()
            for start in range(half, len(ids), BATCH):
                index.add_many(fingerprints[start : start + BATCH], ids[start : start + BATCH], first_seen=0)

        print(f"{len(ids):,} documents in layout {layout}: {seconds(fill):.0f} s", flush=True)
        yield [(url.partition(":")[0], index, 1.0)]
        report = index.check()
        assert (report.documents, report.problems, report.leftovers) == (len(ids), 0, 0), report


def outcomes(server: Server, folder: Path, stored: int, queries: int) -> Iterator[Outcome]:
    fill = partial(filled, server, folder)
    for name in LAYOUTS:
        yield from check_layout(name, fill, stored, queries, most_batch_s=MOST_BATCH_S)
    yield from check_all_signatures(fill, stored // 4, queries // 4)


SERVING = {"postgresql": lambda _: postgresql_serving(), "redis": redis_running}


def main() -> int:
    given = options(
        __doc__,
        store=("postgresql", f"one of {', '.join(SERVING)}"),
        stored=(STORED, "documents"),
        queries=(QUERIES, "queries of each distance"),
    )
    print_conditions(f"exactness on {given.store}", packages=["psycopg", "redis"], seed=SEED, rows=given.stored)
    with scratch_folder(given.scratch) as folder, SERVING[given.store](folder / "server") as server:
        return print_outcomes(outcomes(server, folder, given.stored, given.queries))


if __name__ == "__main__":
    sys.exit(main())
