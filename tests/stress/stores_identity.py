"""An index that disappears and returns during writes: `python -m tests.stress.stores_identity --store NAME`.

Eight processes write while the index is dropped and created again with another layout and profile, while its keys are
flushed, while its table is truncated, and while its server is killed and restarted: Redis keeps only occasional
snapshots, or the masters of its cluster keep nothing at all. A writer that gets an error that cannot be retried notes
that its writes may be lost, and opens the index again. At the end each writes once more. Then every document that was
acknowledged to a writer since its last such error is in the index as it was written, and `check` finds no problem; on
HBase it first repairs what the writers of another index left in this one.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import NamedTuple

import numpy as np
import redis

from hsimhash import HSimIndex, Signatures
from hsimhash.errors import HsimhashError
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import make_table
from hsimhash.store.urls import with_options
from tests.support.command_line import run
from tests.support.fingerprint_sets import random_signatures
from tests.support.hbase_server import Gateways, serving
from tests.support.hbase_tables import table_url
from tests.support.postgresql_server import postgresql_serving
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.redis_server import RedisServer, redis_running

SEED, ROUNDS, WRITERS, BATCH = 7, 100, 8, 5
KINDS = tuple(
    (layout, profile) for profile in ("auto-1", "auto-2", "auto-3") for layout in ("4", "10")
)  # layout, profile
UP_S = (0.1, 0.5)  # between two rounds
END_S = 120.0  # within which the writers end


class Written(NamedTuple):
    """What was acknowledged to a writer since its last error, its total number of batches, and its number of errors."""

    held: dict[str, int]
    batches: int
    errors: int


def write(url: str, number: int, started: Barrier, is_over: Event, told: Queue[Written]) -> None:
    """Write until it is over, then once more."""
    started.wait()
    rng = np.random.default_rng((SEED, number))
    held: dict[str, int] = {}
    batches = errors = 0
    url = url if url.startswith("lmdb:") else with_options(url, {"deadline": "60s"})
    while True:
        try:
            with HSimIndex.open(url) as index:
                is_last = False
                while not is_last:
                    is_last = is_over.is_set()
                    values = rng.integers(0, 2**64, BATCH, np.uint64)
                    signatures = random_signatures(rng, values, index.store.record.keying)
                    ids = [f"{number} {batches} {place}" for place in range(BATCH)]
                    add(index, signatures, ids)
                    held |= zip(ids, values.tolist(), strict=True)
                    batches += 1
                told.put(Written(held, batches, errors))
                return
        except HsimhashError:
            held, errors = {}, errors + 1
            time.sleep(0.02)


def add(index: HSimIndex, signatures: Signatures, ids: list[str]) -> None:
    """Add documents; retry after an error that is retryable."""
    while True:
        try:
            index.add_many(signatures, ids, first_seen=1)
        except HsimhashError as error:
            if not error.is_retryable:
                raise
        else:
            return


class Place:
    """The place of an index, and what may happen to it."""

    def __init__(self, url: str, rng: np.random.Generator) -> None:
        self.url, self.rng = url, rng
        self.actions: dict[str, Callable[[], None]] = {"drop": self.drop}

    def make(self) -> None:
        """Create an index unless a complete one exists; drop the remains of an incomplete one first."""
        layout, profile = KINDS[self.rng.integers(len(KINDS))]
        with suppress(HsimhashError):
            HSimIndex.open(self.url).close()
            return
        self.drop()
        HSimIndex.create(self.url, layout=layout, profile=profile).close()

    def drop(self) -> None:
        dropped = run("drop-table", "--yes", "--store", self.url)
        assert dropped.exit_code in (0, 5), dropped.output


class HBaseTable(Place):
    """A table, which may lose its record."""

    def __init__(self, gateways: Gateways, rng: np.random.Generator) -> None:
        super().__init__(table_url(gateways, "identity"), rng)
        self.actions["truncate"] = self.truncate

    def truncate(self) -> None:
        self.drop()
        with open_gateway(Address.parse(self.url)) as gateway:
            make_table(gateway, TableSettings())


def redis_actions(server: RedisServer) -> Mapping[str, Callable[[], None]]:
    def call(name: str) -> None:
        with closing(redis.Redis(port=server.port)) as client:
            client.execute_command(name)

    return {"flush": lambda: call("FLUSHALL"), "save": lambda: call("SAVE"), "restart": lambda: restart(server)}


def restart(server: RedisServer) -> None:
    server.kill()
    server.start()


def shaken(place: Place, rounds: int, writers: int) -> Iterator[Outcome]:
    """Disturb an index while writers use it; judge the results."""
    place.make()
    context, counts = multiprocessing.get_context("spawn"), dict.fromkeys(place.actions, 0)
    started, is_over, told = context.Barrier(writers + 1), context.Event(), context.Queue()
    shared = started, is_over, told
    processes = [
        context.Process(target=write, args=(place.url, number, *shared), daemon=True) for number in range(writers)
    ]
    for process in processes:
        process.start()
    started.wait(END_S)
    for _ in range(rounds):
        time.sleep(place.rng.uniform(*UP_S))
        name = str(place.rng.choice(list(place.actions)))
        place.actions[name]()
        counts[name] += 1
        place.make()
    time.sleep(UP_S[1])
    is_over.set()
    written = [told.get(timeout=END_S) for _ in processes]
    for process in processes:
        process.join(END_S)
    yield from judged(place.url, written, counts)


def judged(url: str, written: list[Written], counts: Mapping[str, int]) -> Iterator[Outcome]:
    with HSimIndex.open(url) as index:
        if not index.store.is_atomic:  # repair what was written to it but meant for another index
            index.check(repair=True)
        there = {document.doc_id: document.fingerprint for document in index.documents()}
        report = index.check()
    held = {doc_id: value for one in written for doc_id, value in one.held.items()}
    missing = [doc_id for doc_id, value in held.items() if there.get(doc_id) != value]
    happened = ", ".join(f"{count} x {name}" for name, count in counts.items())
    batches, errors = (sum(one) for one in zip(*((one.batches, one.errors) for one in written), strict=True))
    yield Outcome(
        not missing and all(one.batches and one.errors for one in written),
        f"{happened}: {batches:,} batches, {errors:,} errors; of {len(held):,} documents acknowledged since the last "
        f"error of their writer {len(missing)} are missing {missing[:3]}",
    )
    yield Outcome(report.is_sound, f"check: {report.problems} problems, {report.leftovers} leftovers")


def outcomes(store: str, folder: Path, rounds: int, seed: int, writers: int = WRITERS) -> Iterator[Outcome]:
    """Run `shaken` on a store, with the servers that it needs."""
    rng = np.random.default_rng(seed)
    with ExitStack() as stack:
        if store == "lmdb":
            place = Place(f"lmdb://{folder / 'index'}", rng)
        elif store == "postgresql":
            database = stack.enter_context(postgresql_serving())
            place = Place(database.url("pages"), rng)
            place.actions["restart"] = lambda: (database.kill(), database.start())[1]
        elif store == "redis":
            server = stack.enter_context(redis_running(folder / "redis"))
            place = Place(server.url("pages"), rng)
            place.actions |= redis_actions(server)
        else:
            place = HBaseTable(stack.enter_context(serving(folder / "hbase")).gateways, rng)
        yield from shaken(place, rounds, writers)


STORES = ("lmdb", "postgresql", "redis", "hbase")


def main() -> int:
    given = options(
        __doc__,
        store=("redis", f"one of {', '.join(STORES)}"),
        rounds=(ROUNDS, "how often something happens"),
        seed=(SEED, "of what happens"),
    )
    print_conditions(
        f"an index that goes on {given.store}", packages=["psycopg", "redis"], seed=given.seed, rounds=given.rounds
    )
    with scratch_folder(given.scratch) as folder:
        return print_outcomes(outcomes(given.store, folder, given.rounds, given.seed))


if __name__ == "__main__":
    sys.exit(main())
