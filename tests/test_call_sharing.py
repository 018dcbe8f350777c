"""Callers that share calls: each gets its own answer or error, whatever happens to the call."""

from __future__ import annotations

import functools
import itertools
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from hsimhash import HSimIndex, Match, Profile
from hsimhash.call_sharing import Asked, Callers, SharedCall
from hsimhash.errors import CorruptionError, StoreTimeoutError, StoreUnavailableError
from hsimhash.layout import Layout
from hsimhash.store import Record
from hsimhash.store.hbase.store import HBaseStore
from tests.support.fingerprint_sets import half_near, page_ids, random_fingerprints
from tests.support.hbase_model import Cluster, ModelGateway
from tests.support.processes import forked

THREADS = 16
PROFILE = Profile.named("auto-1")
LAYOUT = Layout.named("10")


class Square:
    """A function that squares numbers and records those of each call; the call for `held` waits until released."""

    def __init__(self, *held: int) -> None:
        self.held = list(held)
        self.calls: list[list[int]] = []
        self.is_held, self.is_released = threading.Event(), threading.Event()

    def __call__(self, numbers: Sequence[int], given: object, timeout_s: float | None) -> list[int]:
        self.calls.append(list(numbers))
        if numbers == self.held:
            self.is_held.set()
            assert self.is_released.wait(60)
        if 13 in numbers:
            raise CorruptionError("13 is damaged")
        if 99 in numbers:
            raise StoreUnavailableError("away")
        return [number * number for number in numbers]


@contextmanager
def busy(callers: Callers, square: Square) -> Iterator[None]:
    """Keep a call under way until the end of the block, or until it is released."""
    square.held = [0]
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(callers.ask, SharedCall(square, 0))
        assert square.is_held.wait(60)
        try:
            yield
        finally:
            square.is_released.set()
        assert first.result() == 0


def asked_of(callers: Callers, square: Square, numbers: Sequence[int], given: object = None) -> list[Asked[int, int]]:
    """Queue questions for the next call."""
    asked = [Asked(SharedCall(square, number, given), lambda: None) for number in numbers]
    for one in asked:
        callers.gather(one)
    return asked


def test_who_comes_alone_asks_alone() -> None:
    square, callers = Square(), Callers()

    assert [callers.ask(SharedCall(square, number)) for number in (2, 3)] == [4, 9]
    assert square.calls == [[2], [3]]


def test_who_comes_while_a_call_is_under_way_leaves_with_the_others() -> None:
    square, callers = Square(), Callers()

    with busy(callers, square):
        asked = asked_of(callers, square, [1, 2, 3])
        assert not callers.has_turn
    callers.serve()

    assert square.calls == [[0], [1, 2, 3]]
    assert [one.answer for one in asked] == [1, 4, 9]


def test_other_options_go_in_another_call() -> None:
    square, callers = Square(), Callers()
    near, far = (asked_of(callers, square, numbers, given) for numbers, given in (([1, 2], "near"), ([3], "far")))

    callers.serve()
    callers.serve()

    assert square.calls == [[1, 2], [3]]
    assert [one.answer for one in (*near, *far)] == [1, 4, 9]


def test_whom_one_call_answered_together_go_together_again() -> None:
    callers, sizes = Callers(), list[int]()

    def slowly(numbers: Sequence[int], *_: object) -> list[int]:
        sizes.append(len(numbers))
        time.sleep(0.03)
        return [number * number for number in numbers]

    with ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(lambda n: [callers.ask(SharedCall(slowly, n)) for _ in range(20)], range(THREADS)))
    assert answers == [[n * n] * 20 for n in range(THREADS)]
    assert statistics.median(sizes) > THREADS * 3 / 4  # rather than two halves that take turns


def test_who_asks_alone_again_behind_a_shared_call_waits_for_the_others_but_a_moment() -> None:
    callers, square = Callers(), Square()
    asked_of(callers, square, [1, 2, 3])
    callers.serve()
    assert [callers.ask(SharedCall(square, n)) for n in (4, 5, 6)] == [16, 25, 36]
    assert square.calls == [[1, 2, 3], [4], [5], [6]]


def test_of_those_whom_a_call_answered_each_wakes_the_next() -> None:
    callers, square, woken = Callers(), Square(1, 2, 3, 4), list[int]()
    asked = [Asked(SharedCall(square, n), functools.partial(woken.append, n)) for n in square.held]
    for one in asked:
        callers.gather(one)
    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(callers.serve)
        assert square.is_held.wait(60)
        callers.withdraw(asked[1])  # while its call is under way
        square.is_released.set()
        serving.result()

    assert woken == [1]
    asked[0].pass_on()
    assert woken == [1, 3]
    asked[2].pass_on()
    assert woken == [1, 3, 4]
    asked[3].pass_on()
    assert woken == [1, 3, 4]


def test_a_question_that_fails_by_itself_fails_no_other_one() -> None:
    square, callers = Square(), Callers()
    asked = asked_of(callers, square, [2, 13, 3])

    callers.serve()

    assert [one.answer for one in asked] == [4, None, 9]
    assert isinstance(asked[1].error, CorruptionError)
    assert square.calls == [[2, 13, 3], [2], [13], [3]]


def test_where_the_store_fails_each_gets_an_error_of_its_own() -> None:
    square, callers = Square(), Callers()
    asked = asked_of(callers, square, [2, 99])

    callers.serve()

    assert [type(one.error) for one in asked] == [StoreUnavailableError] * 2
    assert asked[0].error is not asked[1].error
    assert square.calls == [[2, 99]]


def test_the_time_allowed_ends_behind_a_call_that_does_not() -> None:
    square, callers = Square(), Callers()

    with busy(callers, square), pytest.raises(StoreTimeoutError, match=r"timed out after 0\.001 s while other calls"):
        callers.ask(SharedCall(square, 5, timeout_s=0.001))

    callers.serve()
    assert square.calls == [[0]]  # the call that timed out no longer waits


def test_a_slow_call_holds_nobody_up() -> None:
    square, callers = Square(), Callers()

    with busy(callers, square):
        assert callers.ask(SharedCall(square, 5)) == 25  # while the first call is under way


def test_a_question_withdrawn_is_not_asked() -> None:
    square, callers = Square(), Callers()
    asked = asked_of(callers, square, [1, 2])

    callers.withdraw(asked[0])
    callers.serve()

    assert square.calls == [[2]]


def test_a_call_that_a_signal_ends_is_made_again_for_the_others() -> None:
    is_first = itertools.chain([True], itertools.repeat(False))

    def interrupted_once(numbers: Sequence[int], *_: object) -> list[int]:
        if next(is_first):
            raise KeyboardInterrupt
        return [number * number for number in numbers]

    callers = Callers()
    asked = [Asked(SharedCall(interrupted_once, number), lambda: None) for number in (2, 3)]
    for one in asked:
        callers.gather(one)

    with pytest.raises(KeyboardInterrupt):
        callers.serve()
    callers.serve()

    assert [one.answer for one in asked] == [4, 9]


def test_a_forked_child_does_not_wait_for_its_parents_threads() -> None:
    square, callers = Square(), Callers()

    with busy(callers, square), forked(lambda: callers.ask(SharedCall(square, 5)) == 25 or pytest.fail("not answered")):
        pass


def test_threads_get_their_own_answers_in_fewer_calls() -> None:
    square, callers = Square(), Callers()
    start = threading.Barrier(THREADS)

    def ask(first: int) -> list[int]:
        start.wait()
        return [callers.ask(SharedCall(square, number, number % 2)) for number in range(first, first + 200)]

    firsts = range(1_000, 1_000 + 200 * THREADS, 200)
    with ThreadPoolExecutor(THREADS) as threads:
        answers = list(threads.map(ask, firsts))

    assert list(itertools.chain(*answers)) == [number * number for number in range(1_000, 1_000 + 200 * THREADS)]
    assert all(len({number % 2 for number in call}) == 1 for call in square.calls)


def model_index(*_: object) -> HSimIndex:
    record = Record(LAYOUT, PROFILE.to_json())
    return HSimIndex(HBaseStore.create("hbase://model/shared", ModelGateway(Cluster()), record), PROFILE)


def embedded_index(folder: Path) -> HSimIndex:
    return HSimIndex.create(f"lmdb://{folder}/index", layout="10", profile=PROFILE)


@pytest.fixture(params=[embedded_index, model_index])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HSimIndex]:
    with request.param(tmp_path) as made:
        yield made


def test_threads_find_what_one_finds_each_with_its_options(index: HSimIndex) -> None:
    rng = np.random.default_rng(7)
    stored = random_fingerprints(rng, 2_000)
    ids = page_ids(0, len(stored))
    index.add_many(stored, ids)
    asked = [
        (query, {"max_distance": distance, "limit": limit, "exclude": exclude})
        for query, distance, limit, exclude in zip(
            half_near(rng, stored, 400, 3).tolist(),
            itertools.cycle([None, 1, 3, 4]),
            itertools.cycle([None, 1, 2]),
            itertools.cycle([None, *ids[:3]]),
            strict=False,
        )
    ]
    expected = [index.query(query, **options) for query, options in asked]

    with ThreadPoolExecutor(THREADS) as threads:
        found: list[list[Match]] = list(threads.map(lambda one: index.query(one[0], **one[1]), asked))

    assert found == expected
    assert any(expected)


def test_threads_that_add_at_once_lose_nothing_and_wrong_ones_fail_alone(index: HSimIndex) -> None:
    fingerprints = random_fingerprints(np.random.default_rng(8), 320).tolist()
    ids = page_ids(0, len(fingerprints))
    start = threading.Barrier(THREADS)

    def add(part: int) -> int:
        start.wait()
        failed = 0
        for place in range(part, len(ids), THREADS):
            index.add(fingerprints[place], ids[place], first_seen=place)
            try:
                index.add(fingerprints[place], "\n")
            except ValueError:
                failed += 1
        return failed

    with ThreadPoolExecutor(THREADS) as threads:
        failed = sum(threads.map(add, range(THREADS)))

    assert failed == len(ids)
    documents = index.get_many(ids)
    assert [(one.fingerprint, one.first_seen) for one in documents if one] == list(
        zip(fingerprints, itertools.count(), strict=False)
    )


def test_of_threads_that_claim_near_documents_at_once_one_learns_that_its_own_is_new(tmp_path: Path) -> None:
    groups = random_fingerprints(np.random.default_rng(9), 40).tolist()
    with embedded_index(tmp_path) as index, ThreadPoolExecutor(THREADS) as threads:
        asked = [(group ^ (1 << bit), f"page-{group}-{bit}") for bit in range(8) for group in groups]
        claims = list(threads.map(lambda one: index.claim(*one), asked))

        new = [doc_id for (_, doc_id), claim in zip(asked, claims, strict=True) if claim.is_new]
        assert sorted(doc_id.split("-")[1] for doc_id in new) == sorted(map(str, groups))
        assert {claim.match.doc_id for claim in claims if claim.match} == set(new)


def test_threads_that_add_to_an_embedded_index_share_its_commits(tmp_path: Path) -> None:
    with embedded_index(tmp_path) as index, ThreadPoolExecutor(THREADS) as threads:
        before = index.store.session.last_transaction()[1]  # type: ignore[attr-defined]  # it is embedded
        list(threads.map(lambda number: index.add(number, f"page-{number}"), range(THREADS * 20)))
        commits = index.store.session.last_transaction()[1] - before  # type: ignore[attr-defined]

    assert 0 < commits < THREADS * 20 / 2


def test_a_closed_index_says_so_to_each_thread(index: HSimIndex) -> None:
    index.close()

    def add(number: int) -> str:
        with suppress(ValueError):
            try:
                index.add(number, f"page-{number}")
            except Exception as error:
                return str(error)
        return "added"

    with ThreadPoolExecutor(THREADS) as threads:
        said = set(threads.map(add, range(100)))

    assert all("was closed" in text for text in said)
