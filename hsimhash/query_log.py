"""Statistics of queries: counted for the metrics, and logged if a call was slow.

Slow calls are logged to `hsimhash.slow` at level WARNING. A batch counts as one call.
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

SLOW_S = 1.0  # default threshold: slower calls are logged

_log = logging.getLogger("hsimhash.slow")


class QueryStats:
    """Counts what one call reads. Create it when the call begins, and call `end` when it is over."""

    buckets = 0  # buckets or ranges read, including those of keys; a bucket that several queries need is counted once
    rows = 0  # candidates
    near = 0  # fingerprints that are near enough or share a key
    matches: int | None = None  # None: the call failed
    view: object = ""  # its `str` is logged too

    def __init__(self, call: str) -> None:
        self._call, self._began_s = call, time.perf_counter()

    def end(
        self, slow_s: float | None, url: str, fingerprints: Sequence[int] | NDArray[np.uint64], distance: int
    ) -> None:
        """Add the counts to the metrics, and log the call if it was slow.

        Args:
            slow_s: Log calls that took longer than this, in seconds; None or 0: do not log any calls.
            url: URL of an open store, which never contains a password.
            fingerprints: Fingerprints of the queries. The log shows the first one and how many others there are.
            distance: Distance of the queries, in bits.
        """
        metrics.current.count_reads(self.rows, self.near)
        took_s = time.perf_counter() - self._began_s
        if slow_s and took_s > slow_s:
            first = " ".join(f"{int(one):016x}" for one in fingerprints[:1])
            more = f" and {len(fingerprints) - 1:,} more" if len(fingerprints) > 1 else ""
            text = "slow %s of %s: %.0f ms for fingerprint %s%s within %d bits; %s"
            _log.warning(text, self._call, url, 1_000 * took_s, first, more, distance, self)

    def __str__(self) -> str:
        ended = "failed" if self.matches is None else f"matches: {self.matches}"
        own = f" ({self.view})" if str(self.view) else ""
        return f"buckets or ranges: {self.buckets}, rows: {self.rows}, near: {self.near}, {ended}{own}"
