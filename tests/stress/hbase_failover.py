"""A region server is killed under processes that query and write: `python -m tests.stress.hbase_failover`.

HBase over HDFS with two region servers and one default gateway. Until the master has given the lost regions to the
other server, calls on them wait inside the gateway. Every process must go on by itself, nothing may be lost or wrong,
and the gateway's threads, one a connection, must not pile up: at no moment more than twice the connections that the
processes may have.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hsimhash import HSimIndex
from hsimhash.store.hbase.address import Options
from tests.bench.conditions import add_scratch_option, print_conditions, scratch_folder
from tests.hbase_cluster import SESSION_MS, HBaseCluster, cluster
from tests.stress.hbase_crowd import SEED, Crew, Job, add_base, at_work, table, url_of, verdicts
from tests.stress.hbase_verdict import Outcome

KILLS, QUERIERS, WRITERS = 2, 8, 4
PEACE_S = 5.0  # before a kill
LOOK_S = 0.2  # between two looks at the gateway's connections


class Watch:
    """The most connections that a gateway had threads for."""

    def __init__(self) -> None:
        self.most = 0


@contextmanager
def watched(server: HBaseCluster) -> Iterator[Watch]:
    """Count the gateway's connections until the block ends."""
    watch, is_over = Watch(), threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            watch.most = max(watch.most, server.gateway_connections())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield watch
    finally:
        is_over.set()
        looking.join()


def kill_region_servers(server: HBaseCluster, kills: int) -> list[Outcome]:
    """Kill one region server after the other, and start it again, under a crowd with the default settings."""
    with table(server) as name:
        url = url_of(server.thrift2_port, name)
        with HSimIndex.open(url_of(server.thrift2_port, name, timeout="60s", deadline="300s")) as index:
            add_base(index)
            kinds = ["query"] * QUERIERS + ["write"] * WRITERS
            with at_work([Job(kind, url, number) for number, kind in enumerate(kinds)]) as crew:  # type: ignore[arg-type]
                with watched(server) as watch:
                    recoveries_s = [_kill_once(server, crew, number) for number in range(kills)]
                notes = crew.stop()
            most = 2 * Options().connections * len(kinds)
            failures = [failure for one in notes for failure in one.failures]
            return [
                Outcome(
                    True,
                    f"a region server killed {kills} times: each of {QUERIERS} queriers and {WRITERS} writers goes on "
                    f"by itself, after {max(recoveries_s):.1f} s at the latest",
                ),
                Outcome(watch.most <= most, f"at most {watch.most} connections at the gateway, allowed {most}"),
                Outcome(not failures, f"{len(failures)} errors {[one.text for one in failures[:2]] or ''}"),
                *verdicts(index, notes),
            ]


def _kill_once(server: HBaseCluster, crew: Crew, number: int) -> float:
    time.sleep(PEACE_S)
    name = server.region_servers[number % len(server.region_servers)]
    server.kill(name)
    time.sleep(2 * SESSION_MS / 1_000)  # by then the master knows
    recovery_s = crew.await_progress()
    server.start_region_server(name)
    crew.await_progress()
    return recovery_s + 2 * SESSION_MS / 1_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help=f"how many, by default {KILLS}")
    add_scratch_option(parser)
    arguments = parser.parse_args()
    print_conditions("failover", packages=["thriftpy2"], seed=SEED, kills=arguments.kills, session_ms=SESSION_MS)
    with scratch_folder(arguments.scratch) as folder, cluster(folder / "hbase") as server:
        outcomes = kill_region_servers(server, arguments.kills)
    for one in outcomes:
        one.print()
    return 0 if all(one.is_right for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
