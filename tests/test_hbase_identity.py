"""What happens to the writes of open processes when a table on HBase is truncated, or dropped and created again.

A writer adds, moves, removes and claims on a model whose calls land late, twice or never. Meanwhile, another index is
created in the table. Every write that was reported as done was done before this other index was created. None of the
writer's registers is set more than 30 seconds, plus the time of one call, after that. `check` finds whatever is left of
the writer's writes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from hsimhash.errors import ClaimBusyError, IndexNotFoundError, StoreUnavailableError
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.base import Change, Put, always
from hsimhash.store.hbase.rows.protocol import SameIndex, Times
from hsimhash.store.hbase.store import HBaseStore
from tests.support.effort import tries
from tests.support.hbase_model import DAY_MS, LATEST_MS, MINUTE_MS, START_MS, Cluster, Mischief, ModelGateway

URL = "hbase://model/pages"
PROFILE = Profile.named("auto-1")
RECORD = Record(Layout.parse("32,32/1"), PROFILE.to_json())
SCHEDULES = tries(1_000, 100)  # a third of them detect LooksOnlyAtTheEnd
MOST_SCHEDULES = 3_000  # among which a broken check must be detected at least once
OWN = {f"own {number}": 1 << number for number in range(5)}  # documents of the new index
MOST_STEPS = 60  # that the writer takes before the new index is created
SAME_MS = 30_000


class Violation(Exception):  # noqa: N818
    """A guarantee does not hold."""


class Watched(ModelGateway):
    """The writer's gateway, which checks that no register is sent too long after the new index was created."""

    def __init__(self, schedule: Remade, mischief: Mischief) -> None:
        super().__init__(schedule.cluster, mischief)
        self._schedule = schedule

    def put(self, puts: Sequence[Put], *, is_timely: Callable[[], bool] = always) -> None:
        has_registers = any(put.timestamp is not None for put in puts)
        super().put(puts, is_timely=self._asked(is_timely) if has_registers else is_timely)

    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        return super().change(changes, is_timely=self._asked(is_timely))

    def _asked(self, is_timely: Callable[[], bool]) -> Callable[[], bool]:
        def asked() -> bool:
            is_sent, made = is_timely(), self._schedule.remade_at
            if is_sent and made is not None and self.cluster.now > made + SAME_MS:
                raise Violation(f"a register is sent {self.cluster.now - made:,} ms after another index was made")
            return is_sent

        return asked


class Remade:
    """One schedule, fully determined by its number: a writer, and somebody who creates another index in its table."""

    def __init__(self, number: int, same: type[SameIndex]) -> None:
        self.rng = random.Random(number)
        self.cluster, self._same = Cluster(), same
        self.times = Times(clock=self._seconds, wall_clock=self._seconds, sleep=self._sleep, put_from=1)
        self.remade_at: int | None = None
        self._due = self.rng.randrange(1, MOST_STEPS)
        self._hurry = self.rng.choice([0.5, 0.95])

    def _seconds(self) -> float:
        return self.cluster.now / 1_000

    def _sleep(self, seconds: float) -> None:
        self.cluster.advance(round(1_000 * seconds))

    def _pause(self) -> None:
        """Let time pass between two parts of a call, and create the new index when it is due."""
        self.cluster.advance(1 if self.rng.random() < self._hurry else self.rng.choice([9_000, 19_000, MINUTE_MS]))
        self._due -= 1
        if self._due == 0:
            self.cluster.clear()
            made = HBaseStore.create(URL, ModelGateway(self.cluster), RECORD)
            self.remade_at = self.cluster.now
            HSimIndex(made, PROFILE).add_many(list(OWN.values()), list(OWN), first_seen=9)

    def run(self) -> None:
        """Run the schedule; raise `Violation` if a guarantee does not hold."""
        HBaseStore.create(URL, ModelGateway(self.cluster), RECORD)
        gateway = Watched(self, Mischief(self.rng, self._pause))
        record = HBaseStore.open(URL, ModelGateway(self.cluster)).record
        store = HBaseStore(URL, gateway, record, ask_times=lambda: self.times, exclusive=self.rng.random() < 0.3)
        store.__dict__["_same"] = self._same(URL, gateway, record, self.times)
        try:
            while self.cluster.now < START_MS + DAY_MS:
                self._write(HSimIndex(store, PROFILE))
        except IndexNotFoundError as error:
            if self.remade_at is None or "recreated" not in str(error):
                raise Violation(f"no other index was made, but: {error}") from error
        self.cluster.advance(LATEST_MS + 1)
        self._check_new()

    def _write(self, index: HSimIndex) -> None:
        ids = self.rng.sample(("a", "b", "c"), self.rng.randint(1, 3))
        values = [self.rng.choice((1 << 40, 3 << 40, 1 << 50)) for _ in ids]
        call = self.rng.choice(
            (
                lambda: index.add_many(values, ids, first_seen=7),
                lambda: index.claim_many(values, ids, first_seen=7),
                lambda: [index.remove(doc_id) for doc_id in ids],
            )
        )
        try:
            call()
        except (StoreUnavailableError, ClaimBusyError):
            return
        if self.remade_at is not None:
            raise Violation(f"told to be done {self.cluster.now - self.remade_at:,} ms after another index was made")

    def _check_new(self) -> None:
        index = HSimIndex(HBaseStore.open(URL, ModelGateway(self.cluster), ask_times=lambda: self.times), PROFILE)
        index.check(repair=True)
        report = index.check()
        found = {doc_id: document and document.fingerprint for doc_id in OWN for document in [index.get(doc_id)]}
        if report.problems or found != OWN:
            raise Violation(f"the new index has {found}, and its check finds {report}")


class NeverLooks(SameIndex):
    def check(self) -> None:
        pass


class LooksOnlyAtTheEnd(SameIndex):
    def check_unless_recent(self) -> None:
        self.is_recent = always


def first_violation(same: type[SameIndex], schedules: int) -> str:
    for number in range(schedules):
        try:
            Remade(number, same).run()
        except Violation as violation:
            return f"schedule {number}: {violation}"
    return ""


def test_nothing_is_told_to_be_done_in_an_index_that_another_one_replaced() -> None:
    assert first_violation(SameIndex, SCHEDULES) == ""


@pytest.mark.parametrize(("same", "seen"), [(NeverLooks, "told to be done"), (LooksOnlyAtTheEnd, "a register is sent")])
def test_a_check_that_is_left_out_is_seen(same: type[SameIndex], seen: str) -> None:
    assert seen in first_violation(same, MOST_SCHEDULES)
