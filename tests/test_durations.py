"""Durations as people write them; work at no more than a given rate, on a clock that advances only during waits."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from hsimhash import durations
from hsimhash.durations import Pace, duration_in_words, seconds_in, ttl_in_words


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [("5", 5), ("0s", 0), ("500ms", 0.5), ("1.5m", 90), ("20min", 1_200), ("1h30m", 5_400), ("90d", 7_776_000)]
    + [(text, None) for text in ("", "d", "1y", "-1d", "1h 30m", "1h30", "1.d", "٣d", "1e3", "99999999999s", "5s\n")],
)
def test_a_duration_is_a_number_of_seconds_or_numbers_with_units(duration: str, seconds: float | None) -> None:
    assert seconds_in(duration) == seconds


@pytest.mark.parametrize(
    ("seconds", "words"), [(7_776_000, "90d"), (86_401, "86401s"), (129_600, "36h"), (5_400, "90min"), (75, "75s")]
)
def test_a_duration_in_words_is_read_as_the_same_number_of_seconds(seconds: int, words: str) -> None:
    assert duration_in_words(seconds) == words
    assert seconds_in(words) == seconds
    assert (ttl_in_words(seconds), ttl_in_words(0), ttl_in_words(None)) == (words, "unlimited", "missing")


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(durations, "time", clock)
    return clock


def test_work_waits_until_more_is_due(clock: Clock) -> None:
    one = Pace(100, lambda: False)
    for _ in range(5):
        clock.now += 0.2  # spent on work
        one.keep(50)
    assert clock.now == pytest.approx(2.5)


def test_slow_work_does_not_wait_and_is_not_caught_up_with(clock: Clock) -> None:
    one = Pace(100, lambda: False)
    clock.now = 60
    one.keep(50)
    assert clock.now == 60
    one.keep(50)
    assert clock.now == pytest.approx(60.5)


def test_without_a_rate_nothing_waits(clock: Clock) -> None:
    Pace(None, lambda: False).keep(10**9)
    assert clock.now == 0


def test_a_wait_ends_soon_after_it_is_asked_to(clock: Clock) -> None:
    Pace(1, lambda: clock.now > 3).keep(1_000)
    assert 3 < clock.now < 3.2
