"""Work at no more than a given rate."""

from __future__ import annotations

import time
from collections.abc import Callable

_STOP_SEEN_S = 0.1  # within which a wait ends when it is asked to


class Pace:
    """Lets work go on only so fast; what was slower before is not caught up with.

    Args:
        rate: documents a second, None: any number.
        stop: whether to end a wait.
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
