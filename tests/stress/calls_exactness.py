"""Random calls with every option, compared with brute force: `python -m tests.stress.calls_exactness [--store NAME]`.

Each trial makes an index and runs the calls of `hsimhash/store/conformance/random_calls.py` on it: with crowds of a
dozen documents, of hundreds that share a fingerprint, and of more than a store reads in one call. Documents move,
disappear and come back, and their leftovers stay in the index or are collected at random. In every other trial a bucket
of more than three documents counts as crowded. On Redis every other index has a TTL, and documents outlive it; on HBase
every other index uses Thrift1.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hsimhash.matching import CROWDED_ROWS
from hsimhash.store.conformance.place import StorePlace
from hsimhash.store.conformance.random_calls import Trial, run_trial
from tests.support.hbase_server import serving
from tests.support.places import hbase_place, redis_place
from tests.support.postgresql_server import postgresql_serving
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.redis_server import redis_running

SEED = 36
COUNTS = {"lmdb": 200_000, "postgresql": 50_000, "redis": 50_000, "hbase": 20_000}  # operations and queries
MADE = (("4", "auto-2"), ("10", "auto-2"), ("10", "auto-1"), ("4", "auto-1"), ("4", "auto-3"), ("10", "auto-3"))
SIZES = ((40, 400), (12, 400), (300, 400), (5_000, 150))  # documents, and the number of calls with them
_numbers = itertools.count()


@contextmanager
def places(store: str, folder: Path) -> Iterator[Sequence[StorePlace]]:
    """Yield the places where a store's indexes are made, to be used in turns."""
    with ExitStack() as ends:
        match store:
            case "lmdb":
                yield [StorePlace(lambda: f"lmdb://{folder / str(next(_numbers))}")]
            case "postgresql":
                postgresql = ends.enter_context(postgresql_serving())
                yield [StorePlace(lambda: postgresql.url(f"calls_{next(_numbers)}"))]
            case "redis":
                redis = ends.enter_context(redis_running(folder))
                yield [redis_place(redis, ttl_s) for ttl_s in (None, 86_400)]
            case _:
                gateways = ends.enter_context(serving(folder / "hbase")).gateways
                yield [ends.enter_context(hbase_place(gateways, is_first=is_first)) for is_first in (False, True)]


def outcomes(where: Sequence[StorePlace], count: int, sizes: Sequence[tuple[int, int]] = SIZES) -> Iterator[Outcome]:
    """Run trials, in an order that mixes all kinds, until they have made `count` operations and queries."""
    kinds = list(itertools.product(where, MADE, sizes))
    random.Random(SEED).shuffle(kinds)
    done, matches = 0, 0
    for seed, (place, (layout, profile), (documents, calls)) in zip(
        itertools.count(SEED), itertools.cycle(kinds), strict=False
    ):
        if done >= count:
            break
        try:
            crowded_rows = 3 if seed % 2 else CROWDED_ROWS
            made = run_trial(place, Trial(layout, profile, seed, calls, documents, crowded_rows))
        except AssertionError as error:
            yield Outcome(is_right=False, text=str(error))
            return
        done, matches = done + calls + made["queries"], matches + made["matches"]
        yield Outcome(
            is_right=True,
            text=f"layout {layout}, {profile}, {documents:,} documents, seed {seed}: {calls:,} calls with "
            f"{made['query'] + made['queries']:,} queries, {made['matches']:,} matches",
        )
    yield Outcome(is_right=matches > 0, text=f"{done:,} operations and queries, {matches:,} matches: all right")


def main() -> int:
    given = options(
        __doc__,
        store=("lmdb", f"one of {', '.join(COUNTS)}"),
        count=(0, "operations and queries; 0: as many as befits the store"),
    )
    count = given.count or COUNTS[given.store]
    print_conditions(
        f"random calls on {given.store}", packages=["psycopg", "redis", "thriftpy2"], seed=SEED, count=count
    )
    with scratch_folder(given.scratch) as folder, places(given.store, folder) as where:
        return print_outcomes(outcomes(where, count))


if __name__ == "__main__":
    sys.exit(main())
