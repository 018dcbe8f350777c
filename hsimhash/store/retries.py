"""Retry calls to a server: random pauses between attempts, and a warning while all attempts fail."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_WARN_AFTER_S, _WARN_AGAIN_S = 3.0, 60.0
_log = logging.getLogger("hsimhash.store")


# The tenacity library is not used because it keeps the last exception, and with it an interrupted call's connection,
# in a reference cycle.
def pauses() -> Iterator[float]:
    """Yield random pauses between attempts, in seconds. Their upper limit doubles each time."""
    most_s = _FIRST_PAUSE_S
    while True:
        yield secrets.SystemRandom().uniform(0, most_s)  # not `random`: forked children would draw the same numbers
        most_s = min(2 * most_s, _LONGEST_PAUSE_S)


class RetryWarnings:
    """Warns, at most once a minute, that an index's calls fail and are retried; otherwise a job would look hung."""

    def __init__(self) -> None:
        self._due_s = 0.0

    def note(self, error: Exception, *, failing_s: float, left_s: float) -> None:
        """Warn if a call has been failing for some seconds.

        Args:
            error: Why the last attempt failed.
            failing_s: How long the call has been failing.
            left_s: How long it will still be retried.
        """
        if failing_s < _WARN_AFTER_S or time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + _WARN_AGAIN_S
        _log.warning("retrying for another %.0f s (set deadline= in the URL to change this): %s", left_s, error)
