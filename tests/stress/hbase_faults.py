"""How faults of gateways and networks affect an index on HBase: `python -m tests.stress.hbase_faults [--kills 20]`.

| fault | meanwhile | what must hold |
|---|---|---|
| a gateway is killed and comes back | eight processes query, two add, move and remove | no wrong answer, nothing lost |
| every tenth reply comes after the time-out | threads query | no answer belongs to another call |
| connections are idle for longer than the gateway allows | | the next call succeeds |

While the gateway is down, calls fail within their deadline and name the gateway. Calls with a deadline longer than the
outage do not fail. Every process continues without help.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from hsimhash import HSimIndex
from tests.stress.hbase_crowd import Crew, Failure, Job, Notes, add_base, at_work, table, url_of, verdicts
from tests.support.fingerprint_sets import flipped, random_fingerprints
from tests.support.hbase_server import Gateway, HBaseServer, serving
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.tcp_proxy import proxied

SEED = 20
KILLS, QUERIERS, WRITERS = 20, 8, 2
THRIFT1_SHARE = 4  # for every 4 kills, one more kill of a Thrift1 gateway
DEADLINE_S = 2.0  # of the impatient processes: every other querier, and one writer
PATIENCE_S = 120.0  # of the other processes
SLACK_S = 1.0  # allowed beyond a deadline, because the processes share the machine's cores
LONGEST_UP_S, SHORTLY_DOWN_S, LONGER_DOWN_S = 4.0, 1.0, 2.0  # the last is longer than a deadline allows

ANSWERS, ASKERS, LATE_DOCUMENTS = 10_000, 16, 2_000
TIMEOUT_S, LATE_S, LATE_SHARE = 0.3, 0.45, 10  # one reply in 10 is late
IDLE_S = 70.0  # a gateway closes idle connections after 60 s by default


# Kills.


def kill_gateway(server: HBaseServer, idl: str, kills: int, *, slack_s: float = SLACK_S) -> list[Outcome]:
    """Kill a gateway repeatedly while a crowd uses it."""
    rng, latest_s = np.random.default_rng(SEED), DEADLINE_S + slack_s
    with (
        table(server) as name,
        server.gateway(idl) as gateway,
        HSimIndex.open(url_of(name, gateway.port, timeout="60s", deadline="120s")) as index,
    ):
        add_base(index)
        with at_work(_jobs(gateway, name)) as crew:
            down_s = [
                rng.uniform(0, SHORTLY_DOWN_S) if number % 2 else latest_s + rng.uniform(0, LONGER_DOWN_S)
                for number in range(kills)
            ]
            killed = [_kill_once(server, gateway, crew, rng.uniform(0, LONGEST_UP_S), one_s) for one_s in down_s]
        return [
            Outcome(
                True,
                f"{idl} gateway killed {kills} times: each of {QUERIERS} queriers and {WRITERS} writers goes on by "
                f"itself, the last {max(kill.recovery_s for kill in killed):.1f} s after the gateway listens",
            ),
            *verdicts(index, crew.notes),
            *_failures(gateway, crew.notes, killed, latest_s),
        ]


def _jobs(gateway: Gateway, name: str) -> list[Job]:
    def url(number: int) -> str:
        deadline_s = DEADLINE_S if _is_impatient(number) else PATIENCE_S
        return url_of(name, gateway.port, timeout="5s", deadline=f"{deadline_s:g}s")

    kinds = ["query"] * QUERIERS + ["write"] * WRITERS
    return [Job(kind, url(number), number) for number, kind in enumerate(kinds)]  # type: ignore[arg-type]


def _is_impatient(number: int) -> bool:
    return number % 2 == 0


class Kill(NamedTuple):
    """When the gateway was killed and restarted, and how long it then took every process to get an answer from it."""

    gone: int
    started: int
    recovery_s: float


def _kill_once(server: HBaseServer, gateway: Gateway, crew: Crew, up_s: float, down_s: float) -> Kill:
    """Kill the gateway after `up_s`, and restart it after `down_s`."""
    time.sleep(up_s)
    server.kill_gateway(gateway.name)
    gone = time.monotonic_ns()
    time.sleep(down_s)
    started = time.monotonic_ns()
    server.start_gateway(gateway.name)
    return Kill(gone, started, crew.await_progress())


def _failures(gateway: Gateway, notes: Sequence[Notes], killed: Sequence[Kill], latest_s: float) -> list[Outcome]:
    impatient = [failure for one in notes if _is_impatient(one.number) for failure in one.failures]
    patient = [failure for one in notes if not _is_impatient(one.number) for failure in one.failures]
    named = (f"deadline of {DEADLINE_S:g} s", f"127.0.0.1:{gateway.port}")
    bad = [failure.text for failure in impatient if not all(name in failure.text for name in named)]
    waits_s = [
        wait_s for failure in impatient for kill in killed if (wait_s := _wait_s(failure, kill, latest_s)) is not None
    ]
    return [
        Outcome(
            bool(impatient) and not bad,
            f"of {len(impatient)} errors {len(bad)} do not name the gateway and the deadline {bad[:2] or ''}",
        ),
        Outcome(
            bool(waits_s) and max(waits_s) <= latest_s,
            f"with a deadline of {DEADLINE_S:g} s {len(waits_s)} errors while there was no gateway, the latest after "
            f"{max(waits_s, default=0.0):.2f} s",
        ),
        Outcome(
            not patient,
            f"with a deadline of {PATIENCE_S:g} s: {len(patient)} errors {[one.text for one in patient[:2]] or ''}",
        ),
    ]


def _wait_s(failure: Failure, kill: Kill, latest_s: float) -> float | None:
    """Return how long a call waited without a gateway; None if the gateway came back before the call had to end."""
    began = max(failure.began, kill.gone)
    is_within = failure.ended > kill.gone and began + latest_s * 1e9 <= kill.started
    return (failure.ended - began) / 1e9 if is_within else None


# Late replies.


def answer_late(server: HBaseServer, port: int, answers: int) -> Outcome:
    """Query through a proxy that delays every tenth reply; the right answers are known in advance."""
    rng = np.random.default_rng(SEED)
    values = random_fingerprints(rng, LATE_DOCUMENTS).tolist()
    with table(server, layout="4") as name:
        with HSimIndex.open(url_of(name, port, timeout="60s", deadline="120s")) as index:
            index.add_many(values, [str(number) for number in range(len(values))], first_seen=0)
            expected = [[match.doc_id for match in found] for found in index.query_many(values)]
        with proxied(port, lambda number: LATE_S if number % LATE_SHARE == 0 else 0.0) as proxy:
            began = time.monotonic()
            with HSimIndex.open(url_of(name, proxy.port, timeout=f"{TIMEOUT_S:g}s", deadline="60s")) as index:
                wrong = _ask_many(index, values, expected, answers)
            seconds = time.monotonic() - began
    return Outcome(
        not wrong,
        f"every tenth reply late: {answers:,} answers in {seconds:.0f} s, {len(wrong)} of another call, "
        f"{proxy.connections:,} connections {wrong[:3] or ''}",
    )


def _ask_many(
    index: HSimIndex, values: Sequence[int], expected: Sequence[Sequence[str]], answers: int
) -> list[tuple[int, object]]:
    def ask(place: int) -> tuple[int, object] | None:
        number = place % len(values)
        if place % 4 == 3:
            document = index.get(str(number))
            return None if document and document[:2] == (str(number), values[number]) else (number, document)
        matches = index.query(values[number])
        ids, shown = [match.doc_id for match in matches], [match.fingerprint for match in matches]
        return None if ids == expected[number] and values[number] in shown else (number, matches)

    with ThreadPoolExecutor(ASKERS) as pool:
        return [wrong for wrong in pool.map(ask, range(answers)) if wrong is not None]


# Idle connections.


def stay_idle(server: HBaseServer, idl: str, idle_s: float, settings: dict[str, str] | None = None) -> Outcome:
    """Query and write, stay idle for longer than the gateway allows, then query and write again."""
    value = int(flipped(np.random.default_rng(SEED), np.array([1], np.uint64), np.array([1]))[0])
    with (
        table(server) as name,
        server.gateway(idl, settings=settings) as gateway,
        HSimIndex.open(url_of(name, gateway.port)) as index,
    ):
        calls: list[Callable[[], object]] = [
            lambda: [match.doc_id for match in index.query(1)] == ["first"],
            lambda: index.add_many([value], ["second"]) == 1,
        ]
        index.add(1, "first")
        errors = []
        cut_s = 0.0
        for call in calls:
            with ThreadPoolExecutor(4) as pool:  # several connections, all of them idle afterwards
                list(pool.map(index.query, [1] * 8))
            cut_s = _idle(gateway.port, idle_s)
            try:
                if not call():
                    errors.append("a wrong answer")
            except Exception as error:  # the fault to be found
                errors.append(repr(error))
    return Outcome(
        not errors, f"{idl}, idle for {idle_s:g} s (the gateway cuts after {cut_s:.1f}): {len(errors)} errors {errors}"
    )


def _idle(port: int, idle_s: float) -> float:
    """Stay idle for a while; return after how many seconds the gateway closed a connection."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 10 * idle_s) as idle:
        if idle.recv(1):
            raise AssertionError(f"the gateway at port {port} speaks without being asked")
        cut_s = time.monotonic() - began
    time.sleep(max(0.0, idle_s - cut_s))
    return cut_s


def main() -> int:
    given = options(__doc__, kills=(KILLS, "how many"), answers=(ANSWERS, "how many, with late ones among them"))
    print_conditions("faults", packages=["thriftpy2"], seed=SEED, kills=given.kills, answers=given.answers)
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase") as server:
        return print_outcomes(outcomes(server, given.kills, given.answers))


def outcomes(server: HBaseServer, kills: int, answers: int) -> Iterator[Outcome]:
    with ThreadPoolExecutor(2) as pool:  # both wait most of the time, while other programs keep the machine busy
        idle = [pool.submit(stay_idle, server, idl, IDLE_S) for idl in ("thrift2", "thrift1")]
        yield answer_late(server, server.thrift2_port, answers)
        yield from (one.result() for one in idle)
    yield from kill_gateway(server, "thrift2", kills)
    yield from kill_gateway(server, "thrift1", kills // THRIFT1_SHARE)


if __name__ == "__main__":
    sys.exit(main())
