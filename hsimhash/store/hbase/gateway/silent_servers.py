"""Region servers that do not answer, as this process knows them: partial answers do without them for a while.

A call on a lost server waits in the gateway until HBase has moved its regions, 30 s and more, and so does the
connection. So a silent server rests, longer each time, and after each rest one call tries it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

LANES = 2  # connections on which one run of calls asks a server: if it is silent, others are left for the rest
SILENT_S = 0.1  # a server that did not answer in less time is not silent: the caller had too little time
FIRST_REST_S, LONGEST_REST_S = 1.0, 8.0


class SilentServers:
    """The servers that rest. Thread-safe as far as it matters: two threads may try a server at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rests: dict[str, tuple[float, float]] = {}  # by server: until when, and how long

    def lanes(self, server: str) -> int:
        """Return on how many connections to ask a server now: none while it rests, then one to try it."""
        if server not in self._rests:
            return LANES
        until_s, rest_s = self._rests[server]
        if self._clock() < until_s:
            return 0
        self._rests[server] = self._clock() + rest_s, rest_s  # the others wait for what this one finds out
        return 1

    def heard(self, server: str) -> None:
        """Record that a server answered."""
        self._rests.pop(server, None)

    def unheard(self, server: str, waited_s: float) -> None:
        """Record that a server did not answer a call in so many seconds."""
        if waited_s >= SILENT_S:
            _, rest_s = self._rests.get(server, (0.0, FIRST_REST_S / 2))
            rest_s = min(2 * rest_s, LONGEST_REST_S)
            self._rests[server] = self._clock() + rest_s, rest_s
