"""Processes that query, write and check one index on HBase at once.

Each process notes when its calls began and ended, by a clock that all processes share; `hbase_verdict.py` judges the
notes. A write that fails is retried until it is acknowledged, so it lasts from its first attempt to its end.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from hsimhash import HSimIndex, Match
from hsimhash.errors import StoreUnavailableError
from hsimhash.fingerprint import Signature, Signatures
from hsimhash.fingerprint.keys import Keying
from hsimhash.store.hbase.rows.protocol import Times
from tests.stress.hbase_verdict import Query, Write, ask_for_all, judge, lost_documents, noted
from tests.support.fingerprint_sets import Numbers, flipped, keys_in_parts, random_fingerprints
from tests.support.hbase_cluster import HBaseCluster
from tests.support.hbase_server import HBaseServer
from tests.support.hbase_tables import new_table, table_url
from tests.support.processes import beside
from tests.support.programs import Outcome

SEED = 4
KEYS, GROUP = 100, 4  # of written documents, each in many crowds; keys in groups of 4 share parts
IDS = 150  # per writer, and of the shared ones
CENTRES, VARIANTS = 100, 15  # of the written fingerprints: crowds within 4 bits of each other
BASE_DOCUMENTS = 1_000  # added before all others, and never changed
SHARED_SHARE, REMOVE_SHARE = 0.4, 0.25
MOST_DOCUMENTS = 8  # per write
BATCH = 20  # queries per `query_many`, which is called now and then
BATCH_SHARE = 0.1
LATEST_S = 180.0  # no call may take this long

Answer = TypeVar("Answer")


class Failure(NamedTuple):
    """A call that was not answered, with the times when it began and ended."""

    text: str
    began: int
    ended: int


@dataclass(slots=True)
class Notes:
    """What one process did; `number` is that of its job."""

    number: int
    writes: list[Write] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    checks: int = 0
    problems: int = 0
    repaired: int = 0
    collected: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """What one process has to do; `number` is its position in the crew.

    A query with a `timeout_s` is run only once; it fails if there is no answer in time, while a query "in part" must
    always have an answer by then. Between two calls a thread waits for `pace_s`.
    """

    kind: Literal["query", "in part", "write", "check"]
    url: str
    number: int
    threads: int = 1
    times: Times | None = None
    timeout_s: float | None = None
    pace_s: float = 0.0


# The index.


@contextmanager
def table(server: HBaseServer | HBaseCluster, layout: str = "10") -> Iterator[str]:
    """Yield the name of a new table with an empty index."""
    with new_table(server) as name:
        HSimIndex.create(table_url(server, name), layout=layout, profile="auto-3").close()
        yield name


def url_of(name: str, *ports: int, **options: object) -> str:
    """Return the URL of a table behind local gateways, Thrift1 or Thrift2."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    return f"hbase://{hosts}/{name}?{'&'.join(f'{key}={value}' for key, value in options.items())}"


def pool_of_signatures() -> Signatures:
    """Return the signatures that writers give to documents; a few do not have a key."""
    rng = np.random.default_rng(SEED)
    centres = random_fingerprints(rng, CENTRES).repeat(VARIANTS)
    return _signed(rng, flipped(rng, centres, rng.integers(0, 3, len(centres))))


def _signed(rng: np.random.Generator, fingerprints: Numbers) -> Signatures:
    keys = keys_in_parts(np.random.default_rng(SEED), np.arange(KEYS + 1) // GROUP)
    keys[0] = 0
    drawn, sketches = rng.integers(0, len(keys), len(fingerprints)), random_fingerprints(rng, len(fingerprints))
    return Signatures(fingerprints, sketches, keys[drawn], np.zeros(len(fingerprints), np.uint8), Keying.IN_PARTS)


def base() -> dict[str, Signature]:
    """Return the documents added before all others; half of them are near what is written."""
    rng, pool = np.random.default_rng(SEED + 1), pool_of_signatures()
    values = random_fingerprints(rng, BASE_DOCUMENTS)
    values[::2] = flipped(rng, rng.choice(pool.fingerprints, len(values[::2])), rng.integers(0, 3, len(values) // 2))
    return {f"base/{number}": signature for number, signature in enumerate(_signed(rng, values))}


def add_base(index: HSimIndex) -> None:
    """Add the base."""
    documents = base()
    index.add_many(list(documents.values()), list(documents), first_seen=0)


def all_writes(notes: Sequence[Notes]) -> list[Write]:
    """Return all writes, beginning with those of the base."""
    return [Write(doc_id, signature, 0, 0) for doc_id, signature in base().items()] + [
        write for one in notes for write in one.writes
    ]


# The processes.


@dataclass(frozen=True, slots=True)
class Crew:
    """Processes at work: how much each has done so far and, once the block has ended, what it did."""

    done: Any  # a shared array
    notes: Sequence[Notes]

    def await_progress(self) -> float:
        """Wait until every process has made progress; return the seconds that took."""
        began, before = time.monotonic(), self.done[:]
        while any(now <= then for now, then in zip(self.done[:], before, strict=True)):
            if time.monotonic() - began > LATEST_S:
                raise TimeoutError(f"of {before} calls some processes did no more for {LATEST_S:g} s: {self.done[:]}")
            time.sleep(0.02)
        return time.monotonic() - began


@contextmanager
def at_work(jobs: Sequence[Job], *, method: str = "spawn") -> Iterator[Crew]:
    """Yield a crew once all of its processes are at work."""
    done = multiprocessing.get_context(method).Array("q", len(jobs))  # type: ignore[attr-defined]
    with beside(_work, [(job, done) for job in jobs], method=method) as notes:
        yield Crew(done, notes)


def _work(job: Job, done: Any, is_over: Any, begun: Callable[[], None]) -> Notes:
    notes, pool = Notes(job.number), pool_of_signatures()
    act = {"query": _query, "in part": _query, "write": _write, "check": _check}[job.kind]

    def repeat(thread: int) -> None:
        rng = np.random.default_rng([SEED, job.number, thread])
        while not is_over.is_set():
            act(job, index, notes, rng, pool)
            done[job.number] += 1
            is_over.wait(job.pace_s * rng.uniform(0.9, 1.1))

    with HSimIndex.open(job.url, slow_s=0) as index, ThreadPoolExecutor(job.threads) as threads:
        if job.times is not None:
            index.store.times = job.times  # type: ignore[attr-defined]  # of an HBaseStore
        begun()
        list(threads.map(repeat, range(job.threads)))
    return notes


def _query(job: Job, index: HSimIndex, notes: Notes, rng: np.random.Generator, pool: Signatures) -> None:
    count = BATCH if rng.random() < BATCH_SHARE else 1
    drawn = pool[rng.integers(0, len(pool), count)]
    values = flipped(rng, drawn.fingerprints, rng.integers(0, index.layout.max_distance + 1, count))
    asked = replace(drawn, fingerprints=values)
    ask = partial(index.query_many, asked, max_sketch=None)
    if count == 1:
        ask = partial(_query_one, index, asked.at(0))
    if job.timeout_s is not None:
        _query_in_time(job, index, notes, asked)
        return
    began, ended, answers = _answered(ask, notes)
    notes.queries += noted(asked, began, ended, answers)


def _query_in_time(job: Job, index: HSimIndex, notes: Notes, asked: Signatures) -> None:
    began = time.monotonic_ns()
    try:
        answers = index.query_many(asked, max_sketch=None, timeout=job.timeout_s, partial=job.kind == "in part")
    except StoreUnavailableError as error:
        notes.failures.append(Failure(str(error), began, time.monotonic_ns()))
    else:
        notes.queries += noted(asked, began, time.monotonic_ns(), answers)


def _query_one(index: HSimIndex, signature: Signature) -> list[list[Match]]:
    return [index.query(signature, max_sketch=None)]


def _write(job: Job, index: HSimIndex, notes: Notes, rng: np.random.Generator, pool: Signatures) -> None:
    doc_ids = list(dict.fromkeys(_any_id(job.number, rng) for _ in range(rng.integers(1, MOST_DOCUMENTS + 1))))
    states: Sequence[Signature | None] = [None] * len(doc_ids)
    call: Callable[[], int] = partial(index.remove, doc_ids)
    if rng.random() >= REMOVE_SHARE:
        filed = pool[rng.integers(0, len(pool), len(doc_ids))]
        states, call = list(filed), partial(index.add_many, filed, doc_ids, first_seen=0)
    first = time.monotonic_ns()
    _, ended, _ = _answered(call, notes)
    notes.writes += [Write(doc_id, state, first, ended) for doc_id, state in zip(doc_ids, states, strict=True)]


def _any_id(writer: int, rng: np.random.Generator) -> str:
    """Return one of a writer's ids or of the shared ones; some are rarely chosen, so their documents grow old."""
    owner = "shared" if rng.random() < SHARED_SHARE else f"writer-{writer}"
    return f"{owner}/{int(IDS * rng.random() ** 3)}"


def _check(job: Job, index: HSimIndex, notes: Notes, rng: np.random.Generator, pool: Signatures) -> None:
    _, _, collected = _answered(index.collect, notes)
    _, _, report = _answered(partial(index.check, repair=True), notes)
    notes.collected += collected.deleted
    notes.checks += 1
    notes.problems += report.problems
    notes.repaired += report.repaired


def _answered(call: Callable[[], Answer], notes: Notes) -> tuple[int, int, Answer]:
    """Call until there is an answer; return when the call that got it began and ended, and the answer."""
    give_up = time.monotonic() + LATEST_S
    while True:
        began = time.monotonic_ns()
        try:
            answer = call()
        except StoreUnavailableError as error:
            notes.failures.append(Failure(str(error), began, time.monotonic_ns()))
            if time.monotonic() > give_up:
                raise
        else:
            return began, time.monotonic_ns(), answer


def verdicts(index: HSimIndex, notes: Sequence[Notes]) -> list[Outcome]:
    """Judge the answers, and the contents of the index at the end."""
    writes, k = all_writes(notes), index.layout.max_distance
    verdict = judge(writes, (query for one in notes for query in one.queries), k, index.cover())
    end = judge(writes, ask_for_all(index, writes), k)
    lost = lost_documents(index, writes)
    report = index.check()
    return [
        Outcome(verdict.is_right, f"meanwhile {verdict}"),
        Outcome(not lost, f"{len(writes):,} acknowledged writes: {len(lost)} lost {lost[:3] or ''}"),
        Outcome(end.is_right, f"at the end {end}"),
        Outcome(report.is_sound, f"check: {report.problems} problems, {report.leftovers:,} leftovers"),
    ]
