"""What a call of queries reads: counted for the numbers to watch, and logged where the call was slow, on any store.

The logger is `hsimhash.slow`, the level WARNING. A batch counts as one call.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hsimhash import metrics

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SLOW_S = 1.0  # a call that takes longer is logged, unless another time is set

_log = logging.getLogger("hsimhash.slow")


class Reads:
    """What one call has read so far; begins with the call, and `end` says that it is over."""

    buckets = 0  # of drawers, or ranges of them; one that several queries of a batch ask for is read once
    rows = 0  # candidates
    near = 0  # fingerprints near enough, or under the key
    matches: int | None = None  # None: it failed
    view: object = ""  # what a view says of itself

    def __init__(self, call: str) -> None:
        self._call, self._began_s = call, time.perf_counter()

    def end(
        self, slow_s: float | None, url: str, fingerprints: Sequence[int] | NDArray[np.uint64], distance: int
    ) -> None:
        """Count, and log a call that took longer than `slow_s` seconds; None or 0: never.

        Args:
            slow_s: seconds.
            url: of the store; that of a store which is open holds no password.
            fingerprints: what was asked for; the log has the first, and how many others.
            distance: in bits.
        """
        meters = metrics.current
        if meters is not None:
            meters.rows.inc(self.rows)
            meters.near.inc(self.near)
        took_s = time.perf_counter() - self._began_s
        if slow_s and took_s > slow_s:
            first = " ".join(f"{int(one):016x}" for one in fingerprints[:1])
            more = f" and {len(fingerprints) - 1:,} more" if len(fingerprints) > 1 else ""
            text = "slow %s of %s: %.0f ms for fingerprint %s%s within %d bits; %s"
            _log.warning(text, self._call, url, 1_000 * took_s, first, more, distance, self)

    def __str__(self) -> str:
        ended = "it failed" if self.matches is None else f"matches: {self.matches}"
        own = f" ({self.view})" if str(self.view) else ""
        return f"buckets or ranges: {self.buckets}, rows: {self.rows}, near: {self.near}, {ended}{own}"
