"""The master hangs or a region server is killed while an index is in use: `python -m tests.stress.hbase_failover`.

HBase over HDFS with two region servers and one default gateway.

| what | what must hold |
|---|---|
| the master is stopped (SIGSTOP) | `open`, `query`, `add` work |
| a region server is killed while processes query and write | nothing lost, nothing wrong, no error |
| one is killed while 100 crawlers each query and add once per second | all continue |
| one is killed during each call of the table in operations/hbase.md | each has the same result as undisturbed |

Until the master has assigned the lost regions to the other server, calls on them wait inside the gateway. Its threads,
one per connection, must not pile up: there are never more than twice the connections that the processes may have.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from hsimhash import HSimIndex
from hsimhash.store.hbase.gateway.address import Options
from tests.stress.hbase_crawlers import PROCESSES, crawlers, watched
from tests.stress.hbase_crowd import SEED, Crew, Job, add_base, at_work, table, url_of, verdicts
from tests.support.hbase_cluster import SESSION_MS, HBaseCluster, cluster
from tests.support.hbase_tables import new_table
from tests.support.interrupted_calls import CALLS, all_begun
from tests.support.processes import stopped
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

KILLS, QUERIERS, WRITERS = 2, 8, 4
PEACE_S = 5.0  # before a kill
OUTAGE_S = 40.0  # by then the other server has the regions
OPENED_S = 10.0


def _few(counts: Sequence[int], processes: int) -> Outcome:
    most = 2 * Options().connections * processes
    return Outcome(max(counts) <= most, f"at most {max(counts)} connections at the gateway, allowed {most}")


def kill_region_servers(server: HBaseCluster, kills: int) -> list[Outcome]:
    """Kill and restart one region server after the other while a crowd works with the default settings."""
    with (
        table(server) as name,
        HSimIndex.open(url_of(name, server.thrift2_port, timeout="60s", deadline="300s")) as index,
    ):
        add_base(index)
        url, kinds = url_of(name, server.thrift2_port), ["query"] * QUERIERS + ["write"] * WRITERS
        jobs = [Job(kind, url, number) for number, kind in enumerate(kinds)]  # type: ignore[arg-type]
        with at_work(jobs) as crew, watched(server.thrift2_port, has_left=True) as counts:
            recoveries_s = [_kill_once(server, crew, number) for number in range(kills)]
        failures = [failure for one in crew.notes for failure in one.failures]
        return [
            Outcome(
                True,
                f"a region server killed {kills} times: each of {QUERIERS} queriers and {WRITERS} writers goes on "
                f"by itself, after {max(recoveries_s):.1f} s at the latest",
            ),
            _few(counts, len(kinds)),
            Outcome(not failures, f"{len(failures)} errors {[one.text for one in failures[:2]] or ''}"),
            *verdicts(index, crew.notes),
        ]


def kill_under_crawlers(server: HBaseCluster, processes: int) -> list[Outcome]:
    """Kill a region server while processes query and add with the default settings."""
    with table(server) as name, watched(server.thrift2_port, has_left=True) as counts:
        with crawlers(url_of(name, server.thrift2_port), processes, 1.0) as notes:
            time.sleep(PEACE_S)
            server.kill(server.region_servers[-1])
            time.sleep(OUTAGE_S)
        server.start_region_server(server.region_servers[-1])
    errors = [error for one in notes for error in one.errors]
    return [
        Outcome(
            all(one.is_well for one in notes),
            f"a region server killed under {processes} crawlers: {sum(one.calls for one in notes):,} queries and adds, "
            f"{len(errors)} errors, the slowest query {max(one.longest_s for one in notes):.1f} s {errors[:2] or ''}",
        ),
        _few(counts, processes),
    ]


def kill_under_calls(server: HBaseCluster, folder: Path) -> Outcome:
    """Kill a region server during every kind of call, each on its own index, all at once."""
    with ExitStack() as stack:
        indexes = {}
        for call in CALLS:
            url = url_of(stack.enter_context(new_table(server)), server.thrift2_port, deadline="300s")
            indexes[call] = stack.enter_context(HSimIndex.create(url, layout="4", profile="zh-1"))
            indexes[call].add(5, "a")
        server.kill(server.region_servers[0])
        try:
            with all_begun(CALLS, indexes, folder):
                pass
        except AssertionError as error:
            return Outcome(False, f"a region server killed under {len(CALLS)} calls: {error}")
        finally:
            server.start_region_server(server.region_servers[0])
    return Outcome(True, f"a region server killed under {len(CALLS)} calls, {', '.join(CALLS)}: all right")


def stop_master(server: HBaseCluster) -> Outcome:
    """Open, query and add while the master is suspended."""
    with table(server) as name, stopped(server.pid("master")):
        began = time.monotonic()
        with HSimIndex.open(url_of(name, server.thrift2_port)) as index:
            index.add(7, "seven")
            found = [match.doc_id for match in index.query(7)]
        took_s = time.monotonic() - began
    return Outcome(
        found == ["seven"] and took_s < OPENED_S, f"the master stopped: open, add and query took {took_s:.2f} s"
    )


def _kill_once(server: HBaseCluster, crew: Crew, number: int) -> float:
    time.sleep(PEACE_S)
    name = server.region_servers[number % len(server.region_servers)]
    server.kill(name)
    time.sleep(2 * SESSION_MS / 1_000)  # by then the master has noticed
    recovery_s = crew.await_progress()
    server.start_region_server(name)
    crew.await_progress()
    return recovery_s + 2 * SESSION_MS / 1_000


def main() -> int:
    given = options(__doc__, kills=(KILLS, "of region servers"), processes=(PROCESSES, "crawlers"))
    print_conditions("failover", packages=["thriftpy2"], seed=SEED, kills=given.kills, session_ms=SESSION_MS)
    with scratch_folder(given.scratch) as folder, cluster(folder / "hbase") as server:
        return print_outcomes(
            [
                stop_master(server),
                *kill_region_servers(server, given.kills),
                *kill_under_crawlers(server, given.processes),
                kill_under_calls(server, folder),
            ]
        )


if __name__ == "__main__":
    sys.exit(main())
