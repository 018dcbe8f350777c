"""What many crawler processes and their gateways do to each other: `python -m tests.stress.hbase_crawlers`.

| what | what must hold |
|---|---|
| one of two gateways hangs (SIGSTOP) | `open` takes at most 3 s, each query but a process's first at most 2 s |
| one of two gateways is restarted 20 times | the connections of all processes even out: at most 60 : 40 |
| 100 processes, one query and add per second each, on a default gateway | no failures; under 800 connections |
| 60,000 documents under one fingerprint | `query(timeout=0.5)` ends within 0.6 s, with and without a limit |
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, NamedTuple

import numpy as np

from hsimhash import HSimIndex
from hsimhash.errors import HsimhashError, StoreTimeoutError
from tests.stress.hbase_crowd import table, url_of
from tests.support.fingerprint_sets import random_fingerprints
from tests.support.hbase_server import HBaseServer, connections, serving
from tests.support.processes import beside, stopped
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder, seconds

SEED = 31
PROCESSES, SECONDS = 100, 60.0
RESTARTS, RESTARTED_PROCESSES = 20, 8
OPEN_S, QUERY_S = 3.0, 2.0
MOST_CONNECTIONS = 800
MOST_SHARE = 0.6
DOCUMENTS, ALLOWED_S, ENDED_S = 60_000, 0.5, 0.6
LIMIT_S = 180.0
LOOK_S = 0.2  # interval for counting a gateway's connections


class Crawl(NamedTuple):
    """One process's times in seconds, and its errors; `is_well` if its last call was answered."""

    opened_s: float
    first_s: float
    longest_s: float  # of the later queries
    calls: int
    errors: list[str]
    is_well: bool


# Processes, forked from one that has imported everything.


def _crawl(url: str, number: int, pace_s: float, is_over: Any, begun: Callable[[], None]) -> Crawl:
    """Query and add until it is over; return times and errors."""
    rng = np.random.default_rng([SEED, number])
    errors: list[str] = []
    begun()
    began = time.monotonic()
    opened_s = first_s = longest_s = 0.0
    calls, is_well = 0, False
    try:
        with HSimIndex.open(url) as index:
            opened_s = time.monotonic() - began
            while not is_over.is_set():
                value = int(random_fingerprints(rng, 1)[0])
                asked, is_well = time.monotonic(), False
                try:
                    index.query(value, limit=10)
                    took_s = time.monotonic() - asked
                    first_s, longest_s = (took_s, longest_s) if not calls else (first_s, max(longest_s, took_s))
                    index.add(value, f"{number}/{calls}")
                    is_well = True
                except HsimhashError as error:
                    errors.append(f"after {time.monotonic() - asked:.1f} s: {error}"[:300])
                calls += 1
                is_over.wait(max(0.0, pace_s - (time.monotonic() - asked)) * rng.uniform(0.9, 1.1))
    except HsimhashError as error:
        errors.append(str(error)[:300])
    return Crawl(opened_s, first_s, longest_s, calls, errors, is_well)


def crawlers(url: str, count: int, pace_s: float) -> AbstractContextManager[list[Crawl]]:
    """Run processes during the block; afterwards the list has their notes."""
    return beside(_crawl, [(url, number, pace_s) for number in range(count)], method="fork")


@contextmanager
def watched(port: int, *, has_left: bool = False) -> Iterator[list[int]]:
    """Count the connections of a gateway, as `connections` does, repeatedly until the block ends."""
    counts, is_over = [0], threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            counts.append(connections(port, has_left=has_left))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield counts
    finally:
        is_over.set()
        looking.join()


# What must hold.


def hang_one_of_two(server: HBaseServer, opens: int = 8) -> list[Outcome]:
    """Suspend one of two gateways: before processes open the index, and while an index is in use."""
    rng = np.random.default_rng(SEED)
    with table(server) as name, server.gateway("thrift2") as second:
        url = url_of(name, second.port, server.thrift2_port)
        with HSimIndex.open(url) as index:
            for value in random_fingerprints(rng, 50).tolist():
                index.query(value)
            with stopped(server.pid(second.name)):
                took_s = [seconds(lambda: HSimIndex.open(url).close()) for _ in range(opens)]
                began = time.monotonic()
                queries_s = []
                while time.monotonic() - began < 25:  # long enough for three attempts to use the gateway
                    value = int(random_fingerprints(rng, 1)[0])
                    queries_s.append(seconds(lambda value=value: index.query(value)))  # type: ignore[misc]
    return [
        Outcome(max(took_s) <= OPEN_S, f"one of two gateways hangs: open takes {max(took_s):.2f} s at most"),
        Outcome(
            max(queries_s[1:]) <= QUERY_S,
            f"the first query {queries_s[0]:.2f} s, {len(queries_s) - 1:,} later ones {max(queries_s[1:]):.2f} s",
        ),
    ]


def restart_one_of_two(server: HBaseServer, restarts: int) -> Outcome:
    """Kill one of two gateways and restart it, many times; then judge how connections are distributed."""
    with table(server) as name, server.gateway("thrift2") as second:
        url = url_of(name, second.port, server.thrift2_port)
        with crawlers(url, RESTARTED_PROCESSES, 0.05) as notes:
            shares = []
            for _ in range(restarts):
                server.kill_gateway(second.name)
                server.start_gateway(second.name)
                shares.append(_await_share(second.port, server.thrift2_port))
    errors = [error for one in notes for error in one.errors]
    worst = max(share for share, _ in shares)
    waited_s = [seconds for _, seconds in shares]
    return Outcome(
        worst <= MOST_SHARE and not errors,
        f"{restarts} restarts of one of two gateways under {RESTARTED_PROCESSES} processes: the fuller one has "
        f"{worst:.0%} of the connections after {statistics.median(waited_s):.0f} s ({max(waited_s):.0f} at most), "
        f"{len(errors)} errors {errors[:2] or ''}",
    )


def _await_share(*ports: int) -> tuple[float, float]:
    began = time.monotonic()
    while True:
        held = [connections(port) for port in ports]
        share, waited_s = max(held) / max(sum(held), 1), time.monotonic() - began
        if (share <= MOST_SHARE and sum(held) > RESTARTED_PROCESSES) or waited_s > LIMIT_S / 2:
            return share, waited_s
        time.sleep(0.2)


def crowd(server: HBaseServer, processes: int, seconds: float) -> Outcome:
    """Let many processes query and add through one gateway with default settings."""
    port = server.thrift2_port
    with table(server) as name, crawlers(url_of(name, port), processes, 1.0) as notes, watched(port) as counts:
        time.sleep(seconds)
    errors = [error for one in notes for error in one.errors]
    calls = sum(one.calls for one in notes)
    return Outcome(
        not errors and max(counts) < MOST_CONNECTIONS * processes / PROCESSES and calls >= processes,
        f"{processes} processes for {seconds:g} s: {calls:,} queries and adds, {len(errors)} errors, {max(counts)} "
        f"connections at most, the slowest query {max(one.longest_s for one in notes):.2f} s {errors[:2] or ''}",
    )


def end_in_time(server: HBaseServer, documents: int = DOCUMENTS) -> Outcome:
    """Query a fingerprint that many documents have."""
    ended: list[float] = []
    with table(server) as name, HSimIndex.open(url_of(name, server.thrift2_port, timeout="60s")) as index:
        for start in range(0, documents, 10_000):
            index.add_many([7] * min(10_000, documents - start), [f"{start + number}" for number in range(10_000)])
        for limit in [None, 10] * 5:
            began = time.monotonic()
            with suppress(StoreTimeoutError):
                index.query(7, limit=limit, timeout=ALLOWED_S)
            ended.append(time.monotonic() - began)
    return Outcome(
        max(ended) <= ENDED_S,
        f"{documents:,} documents under one fingerprint: query(timeout={ALLOWED_S:g}) ends within {max(ended):.2f} s",
    )


def main() -> int:
    given = options(
        __doc__,
        seconds=(SECONDS, "of the crowd"),
        processes=(PROCESSES, "of the crowd"),
        restarts=(RESTARTS, "of a gateway"),
    )
    print_conditions("crawlers", packages=["thriftpy2"], seed=SEED, processes=given.processes, seconds=given.seconds)
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase") as server:
        return print_outcomes(outcomes(server, given.processes, given.seconds, given.restarts))


def outcomes(server: HBaseServer, processes: int, seconds: float, restarts: int) -> Iterator[Outcome]:
    yield end_in_time(server)
    yield from hang_one_of_two(server)
    yield crowd(server, processes, seconds)
    yield restart_one_of_two(server, restarts)


if __name__ == "__main__":
    sys.exit(main())
