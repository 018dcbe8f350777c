"""Count the features of a long text window by window, using 12 bytes for each distinct feature in a window.

The counts of each window are sorted by hash. At the end, all windows are merged, one range of hashes at a time, so
merging takes little additional memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hsimhash.fingerprint.bits import Floats, Int64s, Uint32s, Uint64s, sorted_distinct
from hsimhash.fingerprint.vote import fold_hashes, fold_weights

_SAMPLED = 1 << 10  # every 1,024th feature of a window is a candidate for the end of a range
_RANGE = 1 << 18  # approximate number of window features in one range


class CountedFeatures(NamedTuple):
    """Distinct features: ascending hashes, counts, and weights from a table."""

    hashes: Uint64s
    counts: Int64s
    idf: Floats


class _Window(NamedTuple):
    hashes: Uint64s
    counts: Uint32s
    idf: Floats  # empty if the features are not weighted by a table

    def part(self, low: int, high: int) -> _Window:
        """Return the features in a range of positions."""
        return _Window(self.hashes[low:high], self.counts[low:high], self.idf[low:high])


_NO_IDF: Floats = np.empty(0)


class Tally:
    """Counts the features of a text, window by window."""

    def __init__(self) -> None:
        self.windows: list[_Window] = []

    def add(self, hashes: Uint64s) -> None:
        """Count the features of a window."""
        kept, counts = fold_hashes(np.zeros(len(hashes), np.int64), hashes)
        self._keep(hashes[kept], counts, _NO_IDF)

    def add_counted(self, hashes: Uint64s, counts: Int64s, idf: Floats) -> None:
        """Add the distinct features of a window, with their counts and weights."""
        order = np.argsort(hashes)
        self._keep(hashes[order], counts[order], idf[order])

    def _keep(self, hashes: Uint64s, counts: Int64s, idf: Floats) -> None:
        if len(hashes):
            self.windows.append(_Window(hashes, counts.astype(np.uint32), idf))

    def merged(self) -> Iterator[CountedFeatures]:
        """Yield all features, one range of hashes at a time."""
        return (counted for (counted,) in merged_tallies([self]))

    @cached_property
    def features_by_count(self) -> tuple[Int64s, Int64s]:
        """The distinct feature counts, ascending, and how many features have each; read it after the last window."""
        counts = np.concatenate([np.empty(0, np.int64), *(one.counts for one in self.merged())])
        return np.unique(counts, return_counts=True)


def merged_tallies(tallies: Sequence[Tally]) -> Iterator[list[CountedFeatures]]:
    """Yield the features of each tally, one range of hashes at a time."""
    edges = _edges([window.hashes for tally in tallies for window in tally.windows])
    cuts = [[_cuts(window.hashes, edges) for window in tally.windows] for tally in tallies]
    for number in range(len(edges) + 1):
        yield [
            _counted([window.part(at[number], at[number + 1]) for window, at in zip(tally.windows, own, strict=True)])
            for tally, own in zip(tallies, cuts, strict=True)
        ]


def _edges(hashes: Sequence[Uint64s]) -> Uint64s:
    """Return hashes that split the given hashes into ranges of about `_RANGE` each."""
    sampled = np.sort(np.concatenate([np.empty(0, np.uint64), *(one[::_SAMPLED] for one in hashes)]))
    return sorted_distinct(sampled[_RANGE // _SAMPLED :: _RANGE // _SAMPLED])


def _cuts(hashes: Uint64s, edges: Uint64s) -> list[int]:
    return [0, *np.searchsorted(hashes, edges).tolist(), len(hashes)]


def _counted(parts: Sequence[_Window]) -> CountedFeatures:
    """Merge parts of windows; features with the same hash become one."""
    hashes = np.concatenate([np.empty(0, np.uint64), *(part.hashes for part in parts)])
    counts = np.concatenate([np.empty(0), *(part.counts for part in parts)])
    idf = np.concatenate([_NO_IDF, *(part.idf for part in parts)])
    first, total = fold_weights(np.zeros(len(hashes), np.int64), hashes, counts)
    return CountedFeatures(hashes[first], total.astype(np.int64), idf[first] if len(idf) else idf)
