"""Times and durations as people write them; work at a given rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_STOP_SEEN_S = 0.1  # within which a wait ends when it is asked to
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds_of(value: object) -> float | None:
    """Return an ISO 8601 time as ms since 1970, None where it is none; one without a zone is UTC."""
    try:
        time = datetime.fromisoformat(value if isinstance(value, str) else "")
    except (ValueError, OverflowError):
        return None
    return (time.replace(tzinfo=time.tzinfo or UTC) - _EPOCH) / timedelta(milliseconds=1)


class Pace:
    """Lets work continue at no more than `rate` documents a second, None: any; time lost before is not caught up with.

    `stop` is asked whether to end a wait.
    """

    def __init__(self, rate: float | None, stop: Callable[[], bool]) -> None:
        self._rate = rate
        self._stop = stop
        self._due_s = time.monotonic()

    def keep(self, documents: int) -> None:
        """Wait after work on so many documents, until more are due."""
        if self._rate is None:
            return
        self._due_s = max(self._due_s + documents / self._rate, time.monotonic())
        while (left_s := self._due_s - time.monotonic()) > 0 and not self._stop():
            time.sleep(min(left_s, _STOP_SEEN_S))
