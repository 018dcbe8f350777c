"""Region servers that do not respond to this process: partial answers leave them out for a while.

A call to a lost server blocks in the gateway until HBase has moved the server's regions, which takes 30 s or more. The
call's connection is blocked as well. So a silent server *rests*: no call is sent to it for a while. After
each rest, one call tries it; the rests get longer, up to a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LANES = 2  # maximum connections to one server in a run of calls, so that a silent server does not tie up all of them
SILENT_S = 0.1  # after a shorter wait, a server is not considered silent: the caller had too little time
FIRST_REST_S, LONGEST_REST_S = 1.0, 8.0


class SilentServers:
    """The servers that are resting. Threads may share it, but two of them may try the same server at the same time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rests: dict[str, tuple[float, float]] = {}  # end and length of each server's rest, in seconds

    def lanes(self, server: str) -> int:
        """Return how many connections may call a server now: none while it rests, then one, to try it."""
        if server not in self._rests:
            return LANES
        until_s, rest_s = self._rests[server]
        if self._clock() < until_s:
            return 0
        self._rests[server] = self._clock() + rest_s, rest_s  # other callers wait for the result of this trial
        return 1

    def heard(self, server: str) -> None:
        """Record that a server responded."""
        self._rests.pop(server, None)

    def unheard(self, server: str, waited_s: float) -> None:
        """Record that a server did not respond to a call within `waited_s` seconds."""
        if waited_s >= SILENT_S:
            _, rest_s = self._rests.get(server, (0.0, FIRST_REST_S / 2))
            rest_s = min(2 * rest_s, LONGEST_REST_S)
            self._rests[server] = self._clock() + rest_s, rest_s
