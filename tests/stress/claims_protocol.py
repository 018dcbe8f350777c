"""How claims end, on a model of HBase: `python -m tests.stress.claims_protocol [--schedules 100000]`.

As in `protocol.py`, but a few actors claim two documents that are near each other, some of them several times, like
claimants that were killed and restarted. In a third of the schedules they also add, move and remove these documents;
then the same rules as in `protocol.py` hold. In the other schedules, the two documents are never in the index at the
same time. Completed claims agree on which one is new and return it as the match of the other; a document that was
claimed as new is in the index. After all actors have ended, whatever they left tentative, another round of claims
completes, and exactly one of the documents is in the index.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from hsimhash.errors import StoreBusyError, StoreUnavailableError
from hsimhash.fingerprint import Signature
from hsimhash.fingerprint.keys import Keying
from hsimhash.index import HSimIndex
from hsimhash.store.base import Claim
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY
from tests.stress.protocol import (
    DOC_IDS,
    FAR,
    REGISTER_KEYS,
    SCHEDULES,
    SHIFTED_KEY,
    SIGNATURES,
    Done,
    Kind,
    Operation,
    Plan,
    Schedule,
    Violation,
    kind_of,
    tasks_of,
)
from tests.support.hbase_model import DRIFT_MS, LATEST_MS, MINUTE_MS, Key
from tests.support.programs import Outcome, options, print_conditions, print_outcomes

# The signatures of a schedule's documents, any two of them near each other; some keys in parts share only one part.
CLAIMED = {
    Keying.WHOLE: SIGNATURES[:3],
    Keying.IN_PARTS: (*SIGNATURES[:2], Signature(FAR, 0, SHIFTED_KEY)),
}
ALONE = {"claim": 6, "query": 1, "check": 1, "collect": 1, "wait": 1}
MIXED = {**ALONE, "add": 2, "remove": 2}
WAITS_S = (30, 3_600)  # how long a claim waits for others; each schedule picks one
# After this time any two servers' clocks show that a claimant is dead, and its calls cannot land any more.
ENDED_MS = LATEST_MS + 21 * MINUTE_MS + 2 * DRIFT_MS


def claims_of(rng: random.Random, keying: Keying) -> tuple[Plan, bool]:
    """Choose at random what each of two to four actors does, and whether other calls than claims write."""
    is_mixed = rng.random() < 1 / 3
    counts = MIXED if is_mixed else ALONE
    own = {doc_id: rng.choice(CLAIMED[keying]) for doc_id in DOC_IDS}

    def operation() -> Operation:
        verb, doc_id = rng.choices(list(counts), list(counts.values()))[0], rng.choice(DOC_IDS)
        return Operation(verb, doc_id, rng.choice(SIGNATURES) if is_mixed else own[doc_id])

    return tuple(tuple(operation() for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(2, 4))), is_mixed


class ClaimSchedule(Schedule):
    """One schedule of claims."""

    def __init__(self, numbered: tuple[Plan, bool], seed: int, kind: Kind, trace: Callable[[str], None] | None = None):
        plan, self._is_mixed = numbered
        super().__init__(plan, seed, kind, trace)
        self.times = replace(self.times, sleep=self._sleep, claim_wait_s=self.rng.choice(WAITS_S))
        self._ended: list[tuple[str, Claim]] = []

    def _sleep(self, _: float) -> None:
        self.cluster.advance(self.rng.randrange(2 * MINUTE_MS))

    def _claim(self, index: HSimIndex, operation: Operation) -> None:
        with self._noted(operation.doc_id, operation.signature) as done:
            try:
                claim = index.claim(operation.signature, operation.doc_id, first_seen=self.rng.choice((7, 8)))
            except StoreBusyError as error:
                raise StoreUnavailableError(*error.args) from error
            self._say(f"    {claim}")
            self._ended.append((operation.doc_id, claim))
            if not claim.is_new:
                self.history.remove(done)  # the document is unchanged
        if not self._is_mixed:
            self._check_answers()

    def _check_answers(self) -> None:
        new = {doc_id if claim.match is None else claim.match.doc_id for doc_id, claim in self._ended}
        if len(new) > 1:
            raise Violation(f"more than one is new: {self._ended}")
        for doc_id in new:
            if self._register(doc_id) is None:
                raise Violation(f"{doc_id} is new, and not there")

    def _check_invariant(self) -> None:
        super()._check_invariant()
        there = [doc_id for doc_id in DOC_IDS if self._register(doc_id) is not None]
        if not self._is_mixed and len(there) > 1:
            raise Violation(f"{there} are there at once")

    def left_by(self, failed: Done) -> Sequence[Key]:
        return [*super().left_by(failed), (DOCUMENT_FAMILY, *REGISTER_KEYS[failed.doc_id])]

    def _check_end(self) -> None:
        if not self._is_mixed:
            self.cluster.advance(ENDED_MS)
            index = self._index()
            operations = {one.doc_id: one for actor in self.plan for one in actor if one.verb == "claim"}
            for doc_id in self.rng.sample(sorted(operations), len(operations)):
                try:
                    self._claim(index, operations[doc_id])
                except StoreUnavailableError:  # it resumed a claim as old as the dead one that it waits for
                    self._claim(index, operations[doc_id])
            there = [doc_id for doc_id in DOC_IDS if self._register(doc_id) is not None]
            if len(there) != bool(operations):
                raise Violation(f"at the end {there} are there")
        super()._check_end()


def failed_claim(
    numbered: tuple[Plan, bool], seed: int, kind: Kind, trace: Callable[[str], None] | None = None
) -> str | None:
    """Run a schedule; return which condition does not hold, if any."""
    try:
        ClaimSchedule(numbered, seed, kind, trace).run()
    except Violation as violation:
        return str(violation)
    return None


def first_failed_claim(numbers: Sequence[int], kind: Kind) -> tuple[int, str] | None:
    """Run the schedules of these numbers; return the first that fails, and why."""
    for number in numbers:
        text = failed_claim(claims_of(random.Random(number), kind.record.keying), number, kind)
        if text is not None:
            return number, text
    return None


def outcomes(schedules: int) -> Iterator[Outcome]:
    """Run that many schedules on all cores."""
    began = time.monotonic()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        ended = pool.map(first_failed_claim, *zip(*tasks_of(schedules), strict=True))
        found = [one for one in ended if one is not None]
    for number, text in found:
        yield Outcome(False, f"schedule {number}: {text}; --show {number} prints it")
    yield Outcome(not found, f"{schedules:,} schedules in {time.monotonic() - began:.0f} s, {len(found)} fail")


def main() -> int:
    given = options(__doc__, schedules=(SCHEDULES, "how many"), show=(-1, "print the schedule of this number"))
    if given.show >= 0:
        kind = kind_of(given.show)
        print(failed_claim(claims_of(random.Random(given.show), kind.record.keying), given.show, kind, print))
        return 0
    print_conditions("claims_protocol", schedules=given.schedules)
    return print_outcomes(outcomes(given.schedules))


if __name__ == "__main__":
    sys.exit(main())
