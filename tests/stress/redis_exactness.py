"""No match missed, none invented, on a real Redis: `python -m tests.stress.redis_exactness`.

Queries lie as in `exactness.py`, by fingerprint and by signature, single and in batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from hsimhash import HSimIndex
from hsimhash.store.redis.operations import drop_redis_index
from tests.stress.exactness import SEED, SIGNED_LAYOUTS, Given, Way, check_layout, check_signatures, profile_of
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder, seconds
from tests.support.redis_server import RedisServer, redis_running

LAYOUTS = ("4", "10", "20,44/1", "32,32/2")
STORED, QUERIES = 200_000, 2_000
MOST_BATCH_S = 30  # by the prices: of dearer queries fewer are asked


@contextmanager
def filled(url: str, layout: str, fingerprints: Given) -> Iterator[list[Way]]:
    """Give an index on Redis, whose documents' ids are their positions."""
    with HSimIndex.create(url, layout=layout, profile=profile_of(fingerprints)) as index:
        ids = list(map(str, range(len(fingerprints))))
        took_s = seconds(lambda: index.add_many(fingerprints, ids, first_seen=0))
        print(f"{len(fingerprints):,} documents in layout {layout}: {took_s:.0f} s", flush=True)
        yield [("Redis", index, 1.0)]
        report = index.check()
        assert (report.documents, report.problems, report.leftovers) == (len(fingerprints), 0, 0), report
    drop_redis_index(url)


def outcomes(server: RedisServer, stored: int, queries: int) -> Iterator[Outcome]:
    for name in LAYOUTS:
        yield from check_layout(name, partial(filled, server.url()), stored, queries, most_batch_s=MOST_BATCH_S)
    for name in SIGNED_LAYOUTS:
        yield from check_signatures(name, partial(filled, server.url()), stored // 4, queries)


def main() -> int:
    given = options(__doc__)
    print_conditions("exactness on Redis", packages=["redis"], seed=SEED, stored=STORED, queries=QUERIES)
    with scratch_folder(given.scratch) as folder, redis_running(folder) as server:
        return print_outcomes(outcomes(server, STORED, QUERIES))


if __name__ == "__main__":
    sys.exit(main())
