"""Concurrent claims on a real Redis: in any order of their commands, a document becomes new only if none is near it.

A few actors claim, add, move, remove and collect the same documents, each on its own connection. Before every command,
a seeded choice picks the actor that continues. Because Redis runs one command at a time, this can produce every
possible order. The tests also check that a claim that skips part of its comparison is detected.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hsimhash.fingerprint.bits import distance
from hsimhash.index import HSimIndex
from hsimhash.store.base import Document
from hsimhash.store.redis.rows import RedisLimits
from hsimhash.store.redis.store import RedisStore
from tests.stress.claims import on_redis
from tests.support.effort import thorough, tries
from tests.support.redis_server import RedisServer

SCHEDULES = tries(300, 30)
MOST_SCHEDULES = 1_000  # within which a claim that compares too little must be detected
DISTANCE = 3
BASE = 0x1234567890ABCDEF
VALUES = (BASE, BASE ^ 1, BASE ^ 3, BASE ^ 1 << 60, BASE ^ 2**64 - 1)  # all but the last are near each other
IDS = ("a", "b", "c", "d")
WEIGHTS = {"claim": 6, "claim_many": 2, "add": 2, "remove": 2, "collect": 1}
_numbers = itertools.count()


class Violation(Exception):  # noqa: N818
    """A condition that must hold does not."""


class Turns:
    """Lets one actor at a time send one command; a seeded choice picks the actor."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng, self._changed = random.Random(seed), threading.Condition()
        self._working, self._waiting = count, dict[int, threading.Event]()

    def wait(self, number: int) -> None:
        """Wait for the actor's turn."""
        mine = threading.Event()
        with self._changed:
            self._waiting[number] = mine
            self._working -= 1
            self._next()
        assert mine.wait(60)

    def end(self) -> None:
        """Stop taking turns."""
        with self._changed:
            self._working -= 1
            self._next()

    def _next(self) -> None:
        if not self._working and self._waiting:
            self._working = 1
            self._waiting.pop(self.rng.choice(sorted(self._waiting))).set()


class Actor(threading.Thread):
    """Does random actions, and checks the index after each claim that wrote."""

    def __init__(self, number: int, url: str, turns: Turns, left_out: str) -> None:
        super().__init__(daemon=True)
        self.number, self.turns, self.left_out = number, turns, left_out.encode()
        self.failure: BaseException | None = None
        self.is_adding, self.before = False, dict[str, Document]()
        self.rng = random.Random(f"{turns.rng.random()} {number}")
        self.index, self.observer = HSimIndex.open(url), HSimIndex.open(url)
        store = self.index.store
        assert isinstance(store, RedisStore)
        self._rows, self._add = store.rows, store.rows.add_if_unchanged
        store.rows.limits = RedisLimits(left_s=0)  # leftovers are collected at once
        store.rows.add_if_unchanged = self.add_if_unchanged  # type: ignore[method-assign]
        exchange = store.session._exchange

        def taking_turns(*given: Any) -> Any:
            self.turns.wait(self.number)
            self.before = {one.doc_id: one for one in self.observer.documents()} if self.is_adding else {}
            return exchange(*given)

        store.session._exchange = taking_turns  # type: ignore[method-assign]

    def add_if_unchanged(self, doc_ids: Sequence[bytes], signatures: Any, first_seen: Any, seen: Any) -> bool:
        seen = {read: found for read, found in seen.items() if read[0] != self.left_out}
        self.is_adding = True
        is_added = self._add(doc_ids, signatures, first_seen, seen)
        self.is_adding = False
        if is_added:  # no other actor has had a turn since `before` was read
            for doc_id, fingerprint in zip(map(bytes.decode, doc_ids), signatures.fingerprints.tolist(), strict=True):
                near = {one.doc_id for one in self.before.values() if is_near(one, fingerprint)}
                if near and doc_id not in near:  # otherwise the document is claimed again
                    raise Violation(f"{doc_id} is new beside {near}")
        return is_added

    def run(self) -> None:
        try:
            for _ in range(self.rng.randint(2, 5)):
                verb = self.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                getattr(self, verb)()
        except BaseException as error:  # `run` raises it
            self.failure = error
        self.turns.end()

    def _value(self) -> int:
        return self.rng.choice(VALUES)

    def claim(self) -> None:
        self.index.claim(self._value(), self.rng.choice(IDS))

    def claim_many(self) -> None:
        ids = self.rng.sample(IDS, 3)
        self.index.claim_many([self._value() for _ in ids], ids)

    def add(self) -> None:
        self.index.add(self._value(), self.rng.choice(IDS))

    def remove(self) -> None:
        self.index.remove(self.rng.choice(IDS))

    def collect(self) -> None:
        self.index.collect()


def is_near(document: Document, fingerprint: int) -> bool:
    return distance(document.fingerprint, fingerprint) <= DISTANCE


def run(server: RedisServer, seed: int, left_out: str = "") -> None:
    """Run a schedule; raise `Violation` if a claim became new although a near document existed."""
    url, count = server.url(f"schedule-{next(_numbers)}"), 2 + seed % 3
    HSimIndex.create(url, layout="4", profile="auto-1", distance=DISTANCE).close()
    turns = Turns(seed, count)
    actors = [Actor(number, url, turns, left_out) for number in range(count)]
    for actor in actors:
        actor.start()
    for actor in actors:
        actor.join(120)
        actor.index.close()
        actor.observer.close()
    for actor in actors:
        if actor.failure is not None:
            raise actor.failure
    with HSimIndex.open(url) as index:
        assert index.check().is_sound


def first_violation(server: RedisServer, left_out: str, schedules: int) -> str:
    for seed in range(schedules):
        try:
            run(server, seed, left_out)
        except Violation as violation:
            return f"schedule {seed}: {violation}"
    return ""


def test_what_becomes_new_has_nothing_near_at_that_moment(redis_server: RedisServer) -> None:
    assert first_violation(redis_server, "", SCHEDULES) == ""


@pytest.mark.parametrize("left_out", ["bucket", "listed"])
def test_a_claim_that_compares_too_little_is_seen(redis_server: RedisServer, left_out: str) -> None:
    assert "is new beside" in first_violation(redis_server, left_out, MOST_SCHEDULES)


@thorough
def test_of_claims_of_processes_that_are_killed_one_is_new(tmp_path: Path) -> None:
    outcome = on_redis(tmp_path, processes=4, count=2_000, most_kills=5)
    assert outcome.is_right, outcome.text
