"""Queries, writers and the collector at once on a real HBase: `python -m tests.stress.hbase_live [--seconds 120]`.

Ten threads of one process and four other processes query. Two processes add, change and remove documents, partly the
same ones. One process collects and repairs again and again, which deletes leftovers. The hour after which that is
allowed, the ten minutes that a writer may take, and the gateway's own time-out are all reduced in proportion, so that
every document is written, collected and written again many times. One in forty replies to the writers arrives too
late, so they must find out whether the write was made.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from hsimhash import HSimIndex
from hsimhash.store.hbase.rows.protocol import Times
from tests.stress.hbase_crowd import SEED, Job, Notes, add_base, all_writes, at_work, table, url_of, verdicts
from tests.stress.hbase_verdict import ask_for_all, judge
from tests.support.hbase_server import HBaseServer, serving
from tests.support.processes import wait_until
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.tcp_proxy import proxied

SECONDS = 120.0
PROPORTION = 360.0  # how many times faster than in production
OPERATION_TIMEOUT_S = 1_200.0  # hbase.client.operation.timeout: a call lands within this time or never
THREADS, QUERIERS, WRITERS = 10, 4, 2
LEAST_CHECKS = 3  # before all stop: during the first, perhaps nothing is old enough to collect
LATE_SHARE, TIMEOUT_S, LATE_S = 40, 1.0, 1.3

_EARNEST = Times()


def cut_times(proportion: float) -> Times:
    """Return scaled limits for writes and collection; registers of removed documents last two "hours" instead of 24."""
    settled_s = _EARNEST.settled_s / proportion
    return Times(_EARNEST.rewrite_s / proportion, settled_s, forgotten_s=2 * settled_s)


def run(server: HBaseServer, idl: str, *, seconds: float, proportion: float = PROPORTION) -> list[Outcome]:
    """Let all processes work for a while, and judge their answers."""
    timeout_ms = str(round(OPERATION_TIMEOUT_S / proportion * 1_000))
    settings = {"hbase.client.operation.timeout": timeout_ms, "hbase.client.meta.operation.timeout": timeout_ms}
    times = cut_times(proportion)
    with (
        table(server) as name,
        server.gateway(idl, settings=settings) as gateway,
        proxied(gateway.port, lambda number: LATE_S if number % LATE_SHARE == 0 else 0.0) as proxy,
        HSimIndex.open(url_of(name, gateway.port)) as index,
    ):
        add_base(index)
        late = url_of(name, proxy.port, timeout=f"{TIMEOUT_S:g}s", deadline="60s")
        with at_work(_jobs(url_of(name, gateway.port), late, times)) as crew:
            time.sleep(seconds)
            wait_until(lambda: crew.done[-1] >= LEAST_CHECKS)  # this takes longer on a busy machine
        return [*verdicts(index, crew.notes), _checks(crew.notes), *_settled(index, crew.notes)]


def _jobs(url: str, late_url: str, times: Times) -> list[Job]:
    jobs = [Job("query", url, 0, threads=THREADS)]
    jobs += [Job("query", url, number) for number in range(1, 1 + QUERIERS)]
    jobs += [Job("write", late_url, 1 + QUERIERS + number, times=times) for number in range(WRITERS)]
    # Without a pause, on a busy machine, check --repair deletes all that grows old before collect reads the log again.
    return [*jobs, Job("check", url, 1 + QUERIERS + WRITERS, times=times, pace_s=times.settled_s)]


def _checks(notes: Sequence[Notes]) -> Outcome:
    checks, problems, repaired, collected = (
        sum(getattr(one, name) for one in notes) for name in ("checks", "problems", "repaired", "collected")
    )
    failures = sum(len(one.failures) for one in notes)
    return Outcome(
        not problems and collected > 0,
        f"collect and check --repair ran {checks} times meanwhile: {problems} problems, {collected:,} cells collected "
        f"by the log, {repaired:,} besides; {failures} calls of all processes failed and were repeated",
    )


def _settled(index: HSimIndex, notes: Sequence[Notes]) -> list[Outcome]:
    """Collect all leftovers, and query again."""
    index.store.times = Times(settled_s=0, forgotten_s=0)  # type: ignore[attr-defined]  # of an HBaseStore
    index.check(repair=True)
    report = index.check()
    writes = all_writes(notes)
    end = judge(writes, ask_for_all(index, writes), index.layout.max_distance)
    return [
        Outcome(
            report.is_sound and not report.leftovers,
            f"all collected: {report.documents:,} documents, {report.problems} problems, {report.leftovers} leftovers",
        ),
        Outcome(end.is_right, f"after it {end}"),
    ]


def main() -> int:
    given = options(__doc__, seconds=(SECONDS, "how long they work"))
    print_conditions("live", packages=["thriftpy2"], seed=SEED, seconds=given.seconds, proportion=PROPORTION)
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase") as server:
        return print_outcomes(run(server, "thrift2", seconds=given.seconds))


if __name__ == "__main__":
    sys.exit(main())
