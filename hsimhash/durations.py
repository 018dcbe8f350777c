"""Parse and print times and durations; limit a rate."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

_UNIT_S = {"ms": 0.001, "min": 60, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_NUMBER = r"([0-9]{1,10}(?:\.[0-9]{1,9})?)"
_PART = f"{_NUMBER}({'|'.join(_UNIT_S)})"
_STOP_SEEN_S = 0.1  # maximum delay until a wait notices `stop`
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def seconds_in(duration: str) -> float | None:
    """Parse a duration such as 90d, 1h30m, 500ms or 5 (seconds) into seconds; return None for any other text."""
    if re.fullmatch(_NUMBER, duration):
        return float(duration)
    is_duration = re.fullmatch(f"(?:{_PART})+", duration)
    return sum(float(number) * _UNIT_S[unit] for number, unit in re.findall(_PART, duration)) if is_duration else None


def duration_in_words(seconds: int) -> str:
    """Return a duration as `seconds_in` parses it, in the largest unit that divides it: 90d, 36h, 90min, 75s."""
    units = {"d": 86_400, "h": 3_600, "min": 60}
    return next((f"{seconds // size}{unit}" for unit, size in units.items() if seconds % size == 0), f"{seconds}s")


def ttl_in_words(ttl_s: int | None) -> str:
    """Return a TTL in words; 0 means that documents do not expire, None that the TTL is missing."""
    return duration_in_words(ttl_s) if ttl_s else "unlimited" if ttl_s == 0 else "missing"


def milliseconds_of(value: object) -> float | None:
    """Parse an ISO 8601 time into ms since 1970; return None for anything else. A time without a zone is UTC."""
    try:
        time = datetime.fromisoformat(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        return None
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) / timedelta(milliseconds=1)


class Pace:
    """Limits work to `rate` documents per second; None means no limit. Does not catch up on lost time.

    A wait ends early if `stop` returns true.
    """

    def __init__(self, rate: float | None, stop: Callable[[], bool]) -> None:
        self._rate = rate
        self._stop = stop
        self._due_s = time.monotonic()

    def keep(self, documents: int) -> None:
        """Wait as long as needed to stay within the rate after `documents` more documents."""
        if self._rate is None:
            return
        self._due_s = max(self._due_s + documents / self._rate, time.monotonic())
        while (left_s := self._due_s - time.monotonic()) > 0 and not self._stop():
            time.sleep(min(left_s, _STOP_SEEN_S))
