"""Pairs of distinct fingerprints → pairs of all their occurrences."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def expanded(
    left: Indices, right: Indices, distance: NDArray[np.uint8], groups: Indices, at_once: int
) -> Iterator[tuple[Indices, Indices, NDArray[np.uint8]]]:
    """Yield (left, right, distance) of every pair of occurrences, `at_once` at most in a block.

    Args:
        left: as in `Pairs`, like all that follow: positions of first occurrences.
        right: likewise.
        distance: in bits.
        groups: for each position that of the first occurrence.
        at_once: pairs.
    """
    # The occurrences of each group stand together in `members`, in order.
    members = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[members], prepend=-1))
    sizes = np.diff(starts, append=len(groups))
    start_of, size_of = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    start_of[members[starts]], size_of[members[starts]] = starts, sizes

    # Equal ones: each occurrence with those behind it in its group.
    behind = np.repeat(starts + sizes, sizes) - np.arange(len(groups)) - 1
    for place, rank in _ragged(behind, at_once):
        yield members[place], members[place + 1 + rank], np.zeros(len(place), np.uint8)

    # Each pair of groups: all of the one with all of the other.
    for pair, rank in _ragged(size_of[left] * size_of[right], at_once):
        one, other = np.divmod(rank, size_of[right[pair]])
        ends = members[start_of[left[pair]] + one], members[start_of[right[pair]] + other]
        yield np.minimum(*ends), np.maximum(*ends), distance[pair]


def _ragged(counts: Indices, at_once: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield the numbers (row, 0), (row, 1), … (row, counts[row] - 1) of all rows, `at_once` at most at a time."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for start in range(0, total, at_once):
        numbers = np.arange(start, min(start + at_once, total))
        rows = np.searchsorted(ends, numbers, "right")
        yield rows, numbers - (ends[rows] - counts[rows])
