"""What disturbances inside HBase do to an index in use: `python -m tests.stress.hbase_disturbed [--only ttl,merges]`.

HBase over HDFS with three region servers, three DataNodes and two gateways. Of 60 crawlers, a third query with a
time-out, a third query in part, and a third add, move and remove, each every three seconds.

| experiment | what happens meanwhile |
|---|---|
| skew | two region servers' clocks are 15 s ahead and behind; then one is 15 minutes ahead: `doctor` must report it |
| ttl | documents expire by the table's TTL |
| disable | the table is disabled and enabled again |
| datanode | one of three DataNodes is killed |
| queue | the region servers have short queues and only one handler |
| merges | regions are merged and split |
| regionserver | one of three region servers is killed |

In each experiment brute force judges all answers and the final contents: nothing missing, nothing extra, and no
acknowledged write lost. Except during the disturbance and the 45 s that HBase takes to recover, at most one query in a
hundred may miss its time-out; a query in part never does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain

from hsimhash import HSimIndex, Profile
from hsimhash.layout import Layout
from hsimhash.store import Record
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.info_port import region_starts
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import create_at
from tests.stress.hbase_crowd import SEED, Failure, Job, Notes, add_base, at_work, base, table, url_of, verdicts
from tests.stress.hbase_verdict import Query, Write, judge
from tests.support.command_line import run
from tests.support.hbase_cluster import SESSION_MS, HBaseCluster, cluster
from tests.support.hbase_tables import new_table
from tests.support.processes import wait_until
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

PROFILE = Profile.named("auto-3")
PROCESSES, PACE_S = 60, 3.0
TIMEOUT_S, SLACK_S = 2.0, 1.0  # a query's time-out, and extra time for a busy machine
PEACE_S, RECOVERY_S = 10.0, 45.0
MOST_LATE = 0.01
SKEWS_S, WRONG_S = (15.0, -15.0), 900.0
DISABLED_S = 10.0
TTL_S, TTL_SLACK_S, WAVES = 30, 2.0, 4
NARROW = {
    "hbase.regionserver.handler.count": 1,
    "hbase.ipc.server.max.callqueue.length": 2,
}


# What all experiments share.


def disturbed(
    server: HBaseCluster, what: str, disturb: Callable[[str], object] | None = None, *, processes: int
) -> list[Outcome]:
    """Disturb a table in use, given its name, and judge; without `disturb`, the servers are disturbed throughout."""
    with table(server) as name, HSimIndex.open(_patient(server, name)) as index:
        add_base(index)
        jobs = _jobs(server, name, processes)
        with at_work(jobs, method="fork") as crew:
            time.sleep(PEACE_S)
            began = ended = time.monotonic_ns()
            if disturb is not None:
                disturb(name)
                ended = time.monotonic_ns() + round(RECOVERY_S * 1e9)
            time.sleep(RECOVERY_S + PEACE_S)
            crew.await_progress()
        return [
            Outcome(one.is_right, f"{what}: {one.text}")
            for one in [*verdicts(index, crew.notes), *_in_time(jobs, crew.notes, range(began, ended))]
        ]


def _patient(server: HBaseCluster, name: str) -> str:
    return url_of(name, *server.thrift2_ports, timeout="60s", deadline="300s")


def _jobs(server: HBaseCluster, name: str, processes: int) -> list[Job]:
    url, kinds = url_of(name, *server.thrift2_ports), ("query", "in part", "write")
    return [
        Job(kind, url, number, timeout_s=None if kind == "write" else TIMEOUT_S, pace_s=PACE_S)
        for number in range(processes)
        for kind in [kinds[number % len(kinds)]]  # type: ignore[assignment]
    ]


def _in_time(jobs: Sequence[Job], notes: Sequence[Notes], outage: range) -> list[Outcome]:
    """Judge how long queries took; during `outage`, queries may fail unless they are in part."""
    calls: dict[str, list[Query | Failure]] = {job.kind: [] for job in jobs}
    for note in notes:
        calls[jobs[note.number].kind] += [*note.queries, *note.failures]

    def is_late(one: Query | Failure) -> bool:
        return isinstance(one, Failure) or one.ended - one.began > (TIMEOUT_S + SLACK_S) * 1e9

    outside = [one for one in calls["query"] if one.ended < outage.start or one.began >= outage.stop]
    late, late_in_part = sum(map(is_late, outside)), sum(map(is_late, calls["in part"]))
    slowest_s = max((one.ended - one.began) / 1e9 for one in calls["in part"])
    cut = sum(bool(one.missing) for one in calls["in part"] if isinstance(one, Query))
    return [
        Outcome(
            bool(outside) and late <= MOST_LATE * len(outside),
            f"of {len(outside):,} queries outside of the outage {late} had no answer within {TIMEOUT_S:g} s, of "
            f"{len(calls['query']) - len(outside):,} in it {sum(map(is_late, calls['query'])) - late}",
        ),
        Outcome(
            bool(calls["in part"]) and not late_in_part,
            f"of {len(calls['in part']):,} queries in part {late_in_part} were late or refused, the slowest took "
            f"{slowest_s:.2f} s; {cut:,} lacked some drawers",
        ),
    ]


@contextmanager
def restarted(server: HBaseCluster, names: Sequence[str], start: Callable[[str], object]) -> Iterator[None]:
    """Restart region servers with `start` for the block, which begins once HBase has recovered."""
    for begin in (start, server.start_region_server):
        for name in names:
            server.kill(name)
        time.sleep(2 * SESSION_MS / 1_000)  # by then the master has noticed
        for name in names:
            begin(name)
        time.sleep(RECOVERY_S)
        if begin is start:
            yield


# The experiments.


def skew(server: HBaseCluster, processes: int) -> Iterator[Outcome]:
    """Let clocks of region servers differ by 30 s; then let one differ by more than is allowed."""
    skews = dict(zip(server.region_servers, SKEWS_S, strict=False))
    with restarted(server, list(skews), lambda name: server.start_region_server(name, skew_s=skews[name])):
        yield from disturbed(server, "clocks 15 s ahead and behind", processes=processes)
    first = server.region_servers[:1]
    with restarted(server, first, partial(server.start_region_server, skew_s=WRONG_S)), table(server) as name:
        done = run("doctor", "--store", _patient(server, name), "--write", "--json")
    failed = [
        f"{one['name']}: {one['message']}" for one in json.loads(done.stdout)["checks"] if one["status"] == "fail"
    ]
    is_told = len(failed) == 2 and all(text.startswith("clock ") for text in failed)
    yield Outcome(is_told, f"a clock {WRONG_S:g} s ahead: doctor --write ends with {done.exit_code}: {failed}")


def ttl(server: HBaseCluster, processes: int) -> Iterator[Outcome]:
    """Let documents expire during queries; the judge treats each expiry as a removal around that time."""
    record, ttl_ns, slack_ns = Record(Layout.named("10"), PROFILE.to_json()), TTL_S * 10**9, round(TTL_SLACK_S * 1e9)
    writes, documents = list[Write](), list(base().items())
    with new_table(server) as name:
        create_at(_patient(server, name), record, TableSettings(ttl_s=TTL_S)).close()
        jobs = [job for job in _jobs(server, name, processes) if job.kind != "write"]
        jobs = [replace(job, number=number) for number, job in enumerate(jobs)]
        with HSimIndex.open(_patient(server, name)) as index, at_work(jobs, method="fork") as crew:
            for part in (documents[start::WAVES] for start in range(WAVES)):
                began = time.monotonic_ns()
                index.add_many([signature for _, signature in part], [doc_id for doc_id, _ in part], first_seen=0)
                ended = time.monotonic_ns()
                expiry = began + ttl_ns - slack_ns, ended + ttl_ns + slack_ns
                for doc_id, signature in part:
                    writes += [Write(doc_id, signature, began, ended), Write(doc_id, None, *expiry)]
                time.sleep(TTL_S / WAVES)
            time.sleep(TTL_S + 2 * TTL_SLACK_S)
        verdict = judge(
            writes, (one for note in crew.notes for one in note.queries), index.layout.max_distance, index.cover()
        )
    yield Outcome(verdict.is_right, f"{len(documents):,} documents expire by a TTL of {TTL_S} s: {verdict}")


def disable(server: HBaseCluster, processes: int) -> Iterator[Outcome]:
    """Disable the table, then enable it again."""

    def disturb(name: str) -> None:
        server.shell(f"disable '{name}'\nsleep {DISABLED_S:g}\nenable '{name}'\n")

    yield from disturbed(server, "the table disabled and enabled", disturb, processes=processes)


def datanode(server: HBaseCluster, processes: int) -> Iterator[Outcome]:
    """Kill a DataNode that has blocks to be read; every block has a copy on another DataNode."""
    killed = server.datanodes[0]

    def disturb(name: str) -> None:
        server.shell(f"flush '{name}'\n")
        server.kill(killed)

    try:
        yield from disturbed(server, "a DataNode killed", disturb, processes=processes)
    finally:
        server.start_datanode(killed)


def queue(server: HBaseCluster, processes: int) -> Iterator[Outcome]:
    """Make every region server refuse calls because its queue is full."""
    with restarted(server, server.region_servers, partial(server.start_region_server, settings=NARROW)):
        yield from disturbed(server, "full queues", processes=processes)
        refused = sum(server.log(name).count("CallQueueTooBigException") for name in server.gateways)
        yield Outcome(refused > 0, f"full queues: region servers refused {refused:,} calls")


def merges(server: HBaseCluster, processes: int) -> Iterator[Outcome]:
    """Merge eight regions in pairs, and split four others."""

    def disturb(name: str) -> None:
        address = Address.parse(_patient(server, name))
        with open_gateway(address) as gateway:
            starts = {start: encoded for encoded, start in region_starts(address).items()}
            names = [starts[start] for start in sorted(starts)]
            merged = [f"merge_region '{one}', '{other}'" for one, other in zip(names[:8:2], names[1:8:2], strict=True)]
            server.shell("\n".join([*merged, *(f"split '{one}'" for one in names[8:12]), ""]))
            wait_until(lambda: len(gateway.regions()) == len(names) - 4 + 4 and names[0] not in region_starts(address))

    yield from disturbed(server, "regions merged and split", disturb, processes=processes)


def regionserver(server: HBaseCluster, processes: int) -> Iterator[Outcome]:
    """Kill one of the region servers."""
    killed = server.region_servers[-1]
    try:
        yield from disturbed(server, "a region server killed", lambda _: server.kill(killed), processes=processes)
    finally:
        server.start_region_server(killed)


EXPERIMENTS = {one.__name__: one for one in (ttl, disable, merges, datanode, regionserver, skew, queue)}


def main() -> int:
    given = options(__doc__, processes=(PROCESSES, "crawlers"), only=(",".join(EXPERIMENTS), "names, with commas"))
    print_conditions("disturbed", packages=["thriftpy2"], seed=SEED, processes=given.processes, timeout_s=TIMEOUT_S)
    with (
        scratch_folder(given.scratch) as folder,
        cluster(folder / "hbase", region_servers=3, datanodes=3, gateways=2) as server,
    ):
        chosen = (EXPERIMENTS[name](server, given.processes) for name in given.only.split(","))
        return print_outcomes(chain.from_iterable(chosen))


if __name__ == "__main__":
    sys.exit(main())
