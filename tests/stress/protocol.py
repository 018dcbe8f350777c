"""How writes keep the invariant, on a model of HBase: `python -m tests.stress.protocol [--schedules 100000]`.

In every schedule a few actors run the real store at once. They add, change and remove the same documents, one by one or
like an `ingest` that skips or tags near-duplicates; they also query, check and collect. Some changes affect only the
key. In half of the schedules one or both documents belong to a single actor, which writes `exclusive`. Before each part
of each call of the gateway another actor may continue, time may pass, a clock may jump, and calls may land late, twice
or never (`tests/support/hbase_model.py`). The schedule's number determines everything.

After every write, a register that has a signature implies its listing, all its drawer rows and, for its key, its rows
in the key drawer. For every query, by distance and by key: if a document's last write was acknowledged before the query
and no other write began before the query's end, the answer agrees with that write, whatever earlier writes land late.
At the end nothing acknowledged is lost, `check` finds no problem and, once everything is old, leaves exactly the rows
that registers rely on. In half of the schedules `collect` runs before it and does the same, except for rows of failed
adds.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import NamedTuple

from hsimhash.errors import StoreUnavailableError
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import Signature
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.rowkey import RECORD_ROWKEY, REGISTER_FLAG, filed_rowkeys
from hsimhash.store.base import RECORD_PARTS, Record
from hsimhash.store.conformance.random_calls import packed_key, share_a_key
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, RECORD_FAMILY, Put
from hsimhash.store.hbase.rows.cells import (
    TABLE_START,
    TABLE_STOP,
    Register,
    listing_key,
    register_key,
    row_flag,
)
from hsimhash.store.hbase.rows.protocol import Times
from hsimhash.store.hbase.store import HBaseStore
from tests.support.hbase_model import (
    DAY_MS,
    DRIFT_MS,
    LATEST_MS,
    MINUTE_MS,
    SERVERS,
    Cluster,
    Key,
    Mischief,
    ModelGateway,
)
from tests.support.programs import Outcome, options, print_conditions, print_outcomes

SCHEDULES = 100_000
PROFILES = ("auto-3", "auto-2")  # keys in parts, and whole ones; schedules use them in turns
AT_ONCE = 500  # schedules per task
LAYOUT = Layout.parse("32,32/1")  # two drawers, k = 1
DOC_IDS = ("a", "b")
NEAR, NEARER, FAR = 0x1234567890ABCDEF, 0x1234567890ABCDEE, 0xFEDCBA0987654321
KEY, SHIFTED_KEY = (
    packed_key([1, 2, 3, 4, 5]),
    packed_key([2, 3, 4, 6, 7]),
)  # as whole keys they differ
SIGNATURES = (Signature(NEAR, 0, KEY), Signature(NEAR, 0, SHIFTED_KEY), Signature(NEARER), Signature(FAR, 0, KEY))
FIRST_SEEN = 7  # always the same, so that a document that comes back gets the same register
STEPS_MS = tuple(minutes * MINUTE_MS for minutes in (1, 3, 9, 11, 19, 21, 41, 61, 90))
HURRY = (0.6, 0.8, 0.95)  # share of steps in which only a millisecond passes; each schedule picks one
EXCLUSIVE = 0.3  # share of documents written by a single actor
JUMPS, COMPACTIONS, DAYS = 0.04, 0.005, 0.002  # shares of steps: clocks jump, HBase compacts, over a day passes
RESTLESS = (0.1, 0.3, 1.0)  # share of steps after which another actor may continue; with few, actors stall
FAILED = (0.01, 0.01, 0.1)  # share of calls; each schedule picks one
SHRINK_TRIES = 300  # a smaller plan must fail in one of this many schedules
ADDS = {"add": 3, "skip": 1, "tag": 1}
WRITES = {**ADDS, "remove": 2}
OTHERS = {"query": 3, "check": 1, "collect": 1, "wait": 2}
WRONG_CLOCKS_H = (0, 0, -11, 11)  # how wrong the clock is that writers use to log leftovers


class Operation(NamedTuple):
    verb: str
    doc_id: str = ""
    signature: Signature = SIGNATURES[0]
    is_exclusive: bool = False


Plan = tuple[tuple[Operation, ...], ...]  # the operations of each actor


@dataclass(frozen=True, slots=True)
class Kind:
    """What is tested: a store, and a gateway to the model. A test may break either; with `hurry` it fails sooner."""

    store: type[HBaseStore] = HBaseStore
    gateway: type[ModelGateway] = ModelGateway
    times: Times = field(default_factory=lambda: Times(put_from=1))
    hurry: tuple[float, ...] = HURRY
    profile: str = "auto-2"

    @property
    def record(self) -> Record:
        """The record of the index."""
        return Record(LAYOUT, Profile.named(self.profile).to_json())


class Violation(Exception):  # noqa: N818
    """A condition that must hold does not."""


class _Aborted(BaseException):
    """Another actor has failed."""


# The plan.


def plan_of(rng: random.Random) -> Plan:
    """Choose at random what each of two to four actors does, and which documents belong to a single actor."""
    actors = range(rng.randint(2, 4))
    owners = {doc_id: rng.choice(actors) for doc_id in DOC_IDS if rng.random() < EXCLUSIVE}
    shared = [doc_id for doc_id in DOC_IDS if doc_id not in owners]
    owned = [[doc_id for doc_id, owner in owners.items() if owner == actor] for actor in actors]
    return tuple(
        tuple(_operation(rng, own or shared, is_exclusive=bool(own)) for _ in range(rng.randint(1, 4))) for own in owned
    )


def _operation(rng: random.Random, doc_ids: Sequence[str], *, is_exclusive: bool) -> Operation:
    counts = WRITES | OTHERS if doc_ids else OTHERS
    verb = rng.choices(list(counts), list(counts.values()))[0]
    doc_id = rng.choice(doc_ids) if verb in WRITES else ""
    return Operation(verb, doc_id, rng.choice(SIGNATURES), is_exclusive)


# What was done, and what may follow from it.


@dataclass(slots=True)
class Done:
    """A write from its beginning to its end; a failed write may take effect until its calls have landed.

    `is_made`: it found the document in a different state, so writes that ended before it can no longer take effect.
    """

    doc_id: str
    signature: Signature | None
    began: int
    ended: int | None = None
    is_acknowledged: bool = False
    is_made: bool = False

    @property
    def settled(self) -> int:
        if self.ended is None:
            return sys.maxsize
        return self.ended if self.is_acknowledged else self.ended + LATEST_MS


def states(history: Sequence[Done], doc_id: str, began: int, ended: int) -> set[Signature | None] | None:
    """Return which signatures a document may have throughout [began, ended]; None if it was being written."""
    writes = [write for write in history if write.doc_id == doc_id]
    before = [write for write in writes if write.settled < began]
    if any(write.began <= ended for write in writes if write not in before):
        return None
    last = [write for write in before if not any(_follows(other, write) for other in before)]
    found = {write.signature for write in last}
    return found if any(write.is_acknowledged for write in last) else found | {None}


def _follows(other: Done, write: Done) -> bool:
    if not other.is_acknowledged:
        return False
    return other.began > (write.ended if other.is_made and write.ended is not None else write.settled)


# The actors.


class _Crew:
    """Threads that last as long as the process; one runs at a time, then hands over to another."""

    def __init__(self) -> None:
        self.gates: list[threading.Lock] = []
        self.jobs: list[Callable[[], None] | None] = []

    def hire(self, count: int) -> None:
        while len(self.gates) < count:
            gate = threading.Lock()
            gate.acquire()
            self.gates.append(gate)
            self.jobs.append(None)
            threading.Thread(target=self._work, args=(len(self.gates) - 1,), daemon=True).start()

    def _work(self, number: int) -> None:
        while True:
            self.gates[number].acquire()
            job = self.jobs[number]
            if job is None:
                raise AssertionError(f"actor {number} was woken without work")
            job()


_crew = _Crew()


class Schedule:
    """One schedule: a plan, and a `seed` for everything else."""

    def __init__(self, plan: Plan, seed: int, kind: Kind, trace: Callable[[str], None] | None = None) -> None:
        self.plan = plan
        self.rng = random.Random(seed)
        self.trace = trace
        self.kind = kind
        self.cluster = Cluster()
        self.cluster.put(Put(RECORD_ROWKEY, RECORD_FAMILY, RECORD_PARTS[0], b"as it is made"))
        self.cluster.changed = self._check_invariant
        self.history: list[Done] = []
        self.failure: BaseException | None = None
        wrong_s = 3_600 * self.rng.choice(WRONG_CLOCKS_H)
        self.times = replace(kind.times, clock=self._seconds, wall_clock=lambda: self._seconds() + wrong_s)
        self._restless, self._hurry = self.rng.choice(RESTLESS), self.rng.choice(kind.hurry)
        self._failed = self.rng.choice(FAILED)
        self._alive: list[int] = []
        self._finished = threading.Lock()

    def _seconds(self) -> float:
        return self.cluster.now / 1_000

    def _say(self, text: str) -> None:
        if self.trace is not None:
            self.trace(f"{self.cluster.now - 1_700_000_000_000:>12,} ms  {text}")

    def run(self) -> None:
        """Run the schedule; raise `Violation` if a condition does not hold."""
        self._index().close()
        self._set_clocks()
        _crew.hire(len(self.plan))
        self._alive = list(range(len(self.plan)))
        for number in self._alive:
            _crew.jobs[number] = lambda number=number: self._act(number)  # type: ignore[misc]
        self._finished.acquire()
        _crew.gates[self.rng.choice(self._alive)].release()
        self._finished.acquire()
        if self.failure is not None:
            raise self.failure
        self._check_end()

    def _index(self, mischief: Mischief | None = None, *, exclusive: bool = False) -> HSimIndex:
        gateway, record = self.kind.gateway(self.cluster, mischief), self.kind.record
        store = self.kind.store("hbase://model", gateway, record, ask_times=lambda: self.times, exclusive=exclusive)
        return HSimIndex(store, Profile.named(self.kind.profile))

    def _act(self, number: int) -> None:
        try:
            if self.failure is None:
                operations = self.plan[number]
                mischief = Mischief(self.rng, lambda: self._pause(number), failed=self._failed)
                index = self._index(mischief, exclusive=any(operation.is_exclusive for operation in operations))
                for operation in operations:
                    self._operate(number, index, operation)
        except _Aborted:
            pass
        except BaseException as error:  # raised in the thread that waits for the schedule
            self.failure = self.failure or error
        self._alive.remove(number)
        if self._alive:
            _crew.gates[self.rng.choice(self._alive)].release()
        else:
            self._finished.release()

    def _pause(self, number: int) -> None:
        """Let time pass, and let any actor continue."""
        if self.failure is not None:
            raise _Aborted
        self._pass_time()
        following = self.rng.choice(self._alive) if self.rng.random() < self._restless else number
        if following != number:
            _crew.gates[following].release()
            _crew.gates[number].acquire()
            if self.failure is not None:
                raise _Aborted

    def _pass_time(self) -> None:
        if self.rng.random() < JUMPS:
            self._set_clocks()
        if self.rng.random() < COMPACTIONS:
            self.cluster.compact()
        if self.rng.random() < DAYS:
            self.cluster.advance(DAY_MS)
        self.cluster.advance(1 if self.rng.random() < self._hurry else self.rng.choice(STEPS_MS))

    def _set_clocks(self) -> None:
        self.cluster.drifts = [self.rng.choice([-DRIFT_MS, 0, DRIFT_MS]) for _ in range(SERVERS)]

    def _operate(self, number: int, index: HSimIndex, operation: Operation) -> None:
        self._say(f"actor {number} begins {operation}")
        began = self.cluster.now
        try:
            getattr(self, f"_{operation.verb}")(index, operation)
            outcome = "done"
        except StoreUnavailableError:
            outcome = "unavailable"
        self._say(f"actor {number} ends {operation}: {outcome}")
        self.cluster.advance(1 if self.cluster.now > began else 2)

    def _add(self, index: HSimIndex, operation: Operation) -> None:
        with self._noted(operation.doc_id, operation.signature) as done:
            added = index.add_many([operation.signature], [operation.doc_id], first_seen=FIRST_SEEN)
            done.is_made = added > 0

    def _skip(self, index: HSimIndex, operation: Operation) -> None:
        if not self._query(index, operation).keys() - {operation.doc_id}:
            self._add(index, operation)

    def _tag(self, index: HSimIndex, operation: Operation) -> None:
        self._query(index, operation)
        self._add(index, operation)

    def _remove(self, index: HSimIndex, operation: Operation) -> None:
        with self._noted(operation.doc_id, None) as done:
            done.is_made = index.remove(operation.doc_id) > 0

    @contextmanager
    def _noted(self, doc_id: str, signature: Signature | None) -> Iterator[Done]:
        """Note a write in the history, and how it ended."""
        done = Done(doc_id, signature, self.cluster.now)
        self.history.append(done)
        try:
            yield done
            done.is_acknowledged = True
        finally:
            done.ended = self.cluster.now

    def _query(self, index: HSimIndex, operation: Operation) -> dict[str, int]:
        began = self.cluster.now
        matches = {match.doc_id: match.fingerprint for match in index.query(operation.signature)}
        self._say(f"    answer {matches}")
        for doc_id in DOC_IDS:
            allowed = states(self.history, doc_id, began, self.cluster.now)
            if allowed is not None:
                near = {self._found(signature, operation.signature) for signature in allowed}
                if matches.get(doc_id) not in near:
                    raise Violation(f"{operation} answers {matches.get(doc_id)} for {doc_id}, not one of {near}")
        return matches

    def _check(self, index: HSimIndex, operation: Operation) -> None:
        report = index.check(repair=True)
        if report.problems:
            raise Violation(f"check finds problems: {report.examples}")

    def _collect(self, index: HSimIndex, operation: Operation) -> None:
        index.collect()

    def _wait(self, index: HSimIndex, operation: Operation) -> None:
        self.cluster.advance(self.rng.choice((*STEPS_MS, DAY_MS)))

    # What must hold.

    def _check_invariant(self) -> None:
        for doc_id in DOC_IDS:
            signature = self._register(doc_id)
            if signature is not None:
                self._check_rows(doc_id, signature)

    def _register(self, doc_id: str) -> Signature | None:
        row, qualifier = REGISTER_KEYS[doc_id]
        version = self.cluster.newest((DOCUMENT_FAMILY, row, qualifier))
        return Register.from_bytes(version.value).signature if version else None

    def _check_rows(self, doc_id: str, signature: Signature) -> None:
        for key in _row_keys(self.kind.record.keying, doc_id, signature):
            if self.cluster.newest(key) is None:
                text = f"{doc_id} has {signature}, but {key[0].decode()}:{key[1].hex()} is not there"
                self._say(text)
                raise Violation(text)

    def _check_end(self) -> None:
        self.cluster.advance(LATEST_MS + 1)
        now = self.cluster.now
        for doc_id in DOC_IDS:
            allowed = states(self.history, doc_id, now, now)
            if allowed is None or self._register(doc_id) not in allowed:
                raise Violation(f"at the end {doc_id} has {self._register(doc_id)}, not one of {allowed}")
        index = self._index()
        if self.rng.random() < 0.5:
            self._check_collected(index)
        self.cluster.advance(DAY_MS)
        index.check(repair=True)
        report = index.check()
        if report.problems or report.leftovers:
            raise Violation(f"at the end check finds {report}")
        needed = self._needed()
        left = {key for key in self._left() if row_flag(key[1]) != REGISTER_FLAG}
        if left != needed:
            raise Violation(f"at the end {left ^ needed} are too many, or too few")

    def _check_collected(self, index: HSimIndex) -> None:
        """Collect by the log alone; assert that it leaves only what failed adds may have left."""
        for _ in range(3):  # one run collects rows; a later one, the removed registers, logged a day ahead
            self.cluster.advance(DAY_MS)
            index.collect()
        allowed = {key for done in self.history if not done.is_acknowledged for key in self.left_by(done)}
        held = {(DOCUMENT_FAMILY, *REGISTER_KEYS[doc_id]) for doc_id in DOC_IDS if self._register(doc_id)}
        needed, left = self._needed() | held, self._left()
        if not needed <= left <= needed | allowed:
            raise Violation(f"collect leaves {left - needed - allowed}, and lacks {needed - left}")

    def left_by(self, failed: Done) -> Sequence[Key]:
        """Return what a failed write may leave for `check --repair`."""
        return _row_keys(self.kind.record.keying, failed.doc_id, failed.signature) if failed.signature else ()

    def _needed(self) -> set[Key]:
        held = ((doc_id, self._register(doc_id)) for doc_id in DOC_IDS)
        keying = self.kind.record.keying
        return {key for doc_id, signature in held if signature for key in _row_keys(keying, doc_id, signature)}

    def _found(self, signature: Signature | None, query: Signature) -> int | None:
        """Return the fingerprint under which a query finds a document with a signature; None if it does not."""
        if signature is None:
            return None
        is_near = (signature.fingerprint ^ query.fingerprint).bit_count() <= LAYOUT.max_distance
        is_met = is_near or share_a_key(signature.key, query.key, self.kind.record.keying)
        return signature.fingerprint if is_met else None

    def _left(self) -> set[Key]:
        return {
            (family, cell.row, cell.qualifier)
            for family in (DOCUMENT_FAMILY, DRAWER_FAMILY)
            for cell in self.cluster.cells(family, (TABLE_START, b""), (TABLE_STOP, b""))
        }


REGISTER_KEYS = {doc_id: register_key(doc_id.encode()) for doc_id in DOC_IDS}


@cache
def _row_keys(keying: Keying, doc_id: str, signature: Signature) -> list[Key]:
    return [
        (DOCUMENT_FAMILY, *listing_key(signature.fingerprint, doc_id.encode())),
        *((DRAWER_FAMILY, row.tobytes(), b"") for row in filed_rowkeys(LAYOUT, [signature], keying)),
    ]


# Many schedules.


def failure_of(plan: Plan, seed: int, kind: Kind, trace: Callable[[str], None] | None = None) -> str | None:
    """Run a schedule; return which condition does not hold, if any."""
    try:
        Schedule(plan, seed, kind, trace).run()
    except Violation as violation:
        return str(violation)
    return None


def kind_of(number: int) -> Kind:
    """Return what the schedule with a number tests."""
    return Kind(profile=PROFILES[number % len(PROFILES)])


def tasks_of(schedules: int) -> Iterator[tuple[range, Kind]]:
    """Yield the numbers of the schedules in parts, each of one kind."""
    for start in range(0, schedules, AT_ONCE):
        for first in range(start, start + len(PROFILES)):
            yield range(first, min(start + AT_ONCE, schedules), len(PROFILES)), kind_of(first)


def first_failure(numbers: Sequence[int], kind: Kind) -> tuple[int, str] | None:
    """Run the schedules of these numbers; return the first that fails, and why."""
    for number in numbers:
        text = failure_of(plan_of(random.Random(number)), number, kind)
        if text is not None:
            return number, text
    return None


def shrunk(plan: Plan, seed: int, kind: Kind) -> tuple[Plan, int]:
    """Return a plan reduced to what the failure needs, and a seed with which it fails."""
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for smaller in _smaller(plan):
            found = next((s for s in (seed, *range(SHRINK_TRIES)) if failure_of(smaller, s, kind)), None)
            if found is not None:
                plan, seed, is_smaller = smaller, found, True
                break
    return plan, seed


def _smaller(plan: Plan) -> Iterator[Plan]:
    for actor, operations in enumerate(plan):
        for place in range(len(operations)):
            rest = operations[:place] + operations[place + 1 :]
            smaller = plan[:actor] + ((rest,) if rest else ()) + plan[actor + 1 :]
            if smaller:
                yield smaller


def show(plan: Plan, seed: int, kind: Kind) -> None:
    """Print a schedule step by step."""
    for number, operations in enumerate(plan):
        print(f"actor {number}: {', '.join(map(repr, operations))}")
    if (text := failure_of(plan, seed, kind, print)) is not None:
        print(f"FAIL  {text}")


def outcomes(schedules: int) -> Iterator[Outcome]:
    """Run that many schedules on all cores."""
    began = time.monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(first_failure, *zip(*tasks_of(schedules), strict=True))
        failures = [failure for failure in found if failure is not None]
    for number, text in failures:
        yield Outcome(False, f"schedule {number}: {text}; --show {number} prints it")
    text = f"{schedules:,} schedules in {time.monotonic() - began:.0f} s, {len(failures)} fail"
    yield Outcome(not failures, text)


def main() -> int:
    given = options(
        __doc__, schedules=(SCHEDULES, "how many"), show=(-1, "shrink and print the schedule of this number, from 0 on")
    )
    if given.show >= 0:
        kind = kind_of(given.show)
        show(*shrunk(plan_of(random.Random(given.show)), given.show, kind), kind)
        return 0
    print_conditions("protocol", schedules=given.schedules)
    return print_outcomes(outcomes(given.schedules))


if __name__ == "__main__":
    sys.exit(main())
