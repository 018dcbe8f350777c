"""What many crawlers' processes do to gateways, and gateways to them: `python -m tests.stress.hbase_crawlers`.

| what | what must hold |
|---|---|
| one of two gateways hangs (SIGSTOP) | `open` takes 3 s at most, no query 2 s, save a process' first |
| one of two gateways is started again 20 times | the connections of all processes even out: 60 : 40 at most |
| 100 processes, each a query and an add a second, on one gateway as it comes | none fails; under 800 connections |
| 60,000 documents under one fingerprint | `query(timeout=0.5)` ends within 0.6 s, with and without a limit |
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hsimhash import HSimIndex
from hsimhash.errors import HsimhashError, StoreTimeoutError
from tests.bench.conditions import add_scratch_option, print_conditions, scratch_folder
from tests.stress.hbase_crowd import table, url_of
from tests.stress.hbase_verdict import Outcome
from tests.support.fingerprint_sets import random_fingerprints
from tests.support.hbase_server import HBaseServer

SEED = 31
PROCESSES, SECONDS = 100, 60.0
RESTARTS, RESTARTED_PROCESSES = 20, 8
OPEN_S, QUERY_S = 3.0, 2.0
MOST_CONNECTIONS = 800
MOST_SHARE = 0.6
DOCUMENTS, ALLOWED_S, ENDED_S = 60_000, 0.5, 0.6
LIMIT_S = 180.0


class Crawl(NamedTuple):
    """What one process met, in seconds and in errors; `is_well` if its last call was answered."""

    opened_s: float
    first_s: float
    longest_s: float  # of the later queries
    calls: int
    errors: list[str]
    is_well: bool


# Processes, forked from one that has imported everything.


def _crawl(url: str, number: int, pace_s: float, is_over: Any, notes: Any) -> None:
    """Query and add until it is over; tell what was met."""
    rng = np.random.default_rng([SEED, number])
    errors: list[str] = []
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
    notes.put(Crawl(opened_s, first_s, longest_s, calls, errors, is_well))


@contextmanager
def crawlers(url: str, count: int, pace_s: float) -> Iterator[Callable[[], list[Crawl]]]:
    """Run processes; give what ends them and returns their notes."""
    context = get_context("fork")
    is_over, notes = context.Event(), context.Queue()
    started = [
        context.Process(target=_crawl, args=(url, number, pace_s, is_over, notes), daemon=True)
        for number in range(count)
    ]
    for one in started:
        one.start()

    def end() -> list[Crawl]:
        is_over.set()
        found = [notes.get(timeout=LIMIT_S) for _ in started]
        for one in started:
            one.join(LIMIT_S)
        return found

    try:
        yield end
    finally:
        is_over.set()
        for one in started:
            if one.is_alive():
                one.join(LIMIT_S)


def connections(port: int) -> int:
    """Return how many connections a gateway of this machine has taken."""
    wanted, established = f":{port:04X}", "01"
    lines = (
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    )
    return sum(line[1].endswith(wanted) and line[3] == established for line in lines)


def pid_of(server: HBaseServer, name: str) -> int:
    return int((server.folder / "run" / f"{name}.pid").read_text())


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process, and let it go on."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def urls_of(name: str, *ports: int, **options: object) -> str:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"hbase://{hosts}/{name}?{'&'.join(f'{key}={value}' for key, value in options.items()) or 'timeout=5s'}"


# What must hold.


def hang_one_of_two(server: HBaseServer, opens: int = 8) -> list[Outcome]:
    """Stop one of two gateways: before processes open, and under an index that is at work."""
    rng = np.random.default_rng(SEED)
    with table(server) as name, server.gateway("thrift2") as second:
        url = urls_of(name, second.port, server.thrift2_port)
        with HSimIndex.open(url) as index:
            for value in random_fingerprints(rng, 50).tolist():
                index.query(value)
            with stopped(pid_of(server, second.name)):
                took_s = [_seconds(lambda: HSimIndex.open(url).close()) for _ in range(opens)]
                began = time.monotonic()
                queries_s = []
                while time.monotonic() - began < 25:  # through three trials of the gateway
                    value = int(random_fingerprints(rng, 1)[0])
                    queries_s.append(_seconds(lambda value=value: index.query(value)))  # type: ignore[misc]
    return [
        Outcome(max(took_s) <= OPEN_S, f"one of two gateways hangs: open takes {max(took_s):.2f} s at most"),
        Outcome(
            max(queries_s[1:]) <= QUERY_S,
            f"the first query {queries_s[0]:.2f} s, {len(queries_s) - 1:,} later ones {max(queries_s[1:]):.2f} s",
        ),
    ]


def restart_one_of_two(server: HBaseServer, restarts: int) -> Outcome:
    """Kill one of two gateways and start it again, many times; then see how connections are shared."""
    with table(server) as name, server.gateway("thrift2") as second:
        url = urls_of(name, second.port, server.thrift2_port)
        with crawlers(url, RESTARTED_PROCESSES, 0.05) as end:
            shares = []
            for _ in range(restarts):
                server.kill_gateway(second.name)
                server.start_gateway(second.name)
                shares.append(_await_share(second.port, server.thrift2_port))
            notes = end()
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
    """Let many processes query and add on one gateway as it comes."""
    with table(server) as name, crawlers(url_of(server.thrift2_port, name), processes, 1.0) as end:
        most, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            most = max(most, connections(server.thrift2_port))
            time.sleep(0.5)
        notes = end()
    errors = [error for one in notes for error in one.errors]
    calls = sum(one.calls for one in notes)
    return Outcome(
        not errors and most < MOST_CONNECTIONS * processes / PROCESSES and calls >= processes,
        f"{processes} processes for {seconds:g} s: {calls:,} queries and adds, {len(errors)} errors, {most} "
        f"connections at most, the slowest query {max(one.longest_s for one in notes):.2f} s {errors[:2] or ''}",
    )


def end_in_time(server: HBaseServer, documents: int = DOCUMENTS) -> Outcome:
    """Ask for a fingerprint that many documents have."""
    ended: list[float] = []
    with table(server) as name, HSimIndex.open(url_of(server.thrift2_port, name, timeout="60s")) as index:
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


def _seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of the crowd, by default {SECONDS:g}")
    parser.add_argument("--processes", type=int, default=PROCESSES, help=f"of the crowd, by default {PROCESSES}")
    parser.add_argument("--restarts", type=int, default=RESTARTS, help=f"of a gateway, by default {RESTARTS}")
    add_scratch_option(parser)
    given = parser.parse_args(arguments)
    print_conditions("crawlers", packages=["thriftpy2"], seed=SEED, processes=given.processes, seconds=given.seconds)
    outcomes: list[Outcome] = []

    def tell(*found: Outcome) -> None:
        outcomes.extend(found)
        for one in found:
            one.print()

    with scratch_folder(given.scratch) as folder:
        server = HBaseServer.planned(folder / "hbase")
        server.prepare()
        server.start()
        try:
            tell(end_in_time(server))
            tell(*hang_one_of_two(server))
            tell(crowd(server, given.processes, given.seconds))
            tell(restart_one_of_two(server, given.restarts))
        finally:
            server.stop()
    return 0 if all(one.is_right for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
