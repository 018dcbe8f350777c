"""Pairs of each distance to look at, and how many there are just beyond the distance searched for.

What a greater distance would add is counted by comparing some fingerprints with all: `ROWS` of them, or as many as
`CELLS` comparisons allow, which are all of a small set. It costs a few microseconds a document, whatever the distance
is and however the fingerprints lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsimhash.layout import FINGERPRINT_BITS
from hsimhash.pairs import PairBlock, Pairs

BEYOND_BITS = 3
ROWS = 4_000  # fingerprints compared with all, at least,
CELLS = 250_000_000  # or more while comparisons are fewer than that
ROWS_AT_ONCE, COLUMNS_AT_ONCE = 16, 1 << 12  # of a tile that stays in the processor's cache
HELD = 1_000  # pairs of a distance among which some are chosen

Numbers = NDArray[np.int64]
Couples = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Beyond:
    """Pairs of distinct fingerprints just beyond the distance searched for.

    Args:
        pairs: distance → how many; an estimate where not all fingerprints were compared.
        held: distance → the first ones found, by the first positions of both fingerprints; HELD at most.
        sampled: fingerprints that were compared with all.
        distinct: fingerprints that there are.
    """

    pairs: Mapping[int, int]
    held: Mapping[int, Couples]
    sampled: int
    distinct: int


def find_beyond(fingerprints: NDArray[np.uint64], groups: Numbers, max_distance: int) -> Beyond:
    """Count the pairs that are up to BEYOND_BITS farther apart than `max_distance`; `groups` is that of `Pairs`."""
    first = np.flatnonzero(np.equal(groups, np.arange(len(groups))))
    values = fingerprints[first]
    sampled = min(len(values), max(ROWS, CELLS // max(1, len(values))))
    # Taken from their sorted order, for the order of the inputs may have a rhythm.
    rows = np.argsort(values)[np.arange(sampled) * len(values) // max(1, sampled)]
    last = min(max_distance + BEYOND_BITS, FINGERPRINT_BITS)
    met = dict.fromkeys(range(max_distance + 1, last + 1), 0)
    held: dict[int, Couples] = {bits: [] for bits in met}
    for block in _near(values, rows, max_distance, last):
        for bits in np.unique(block.distance).tolist():
            is_such = block.distance == bits
            met[bits] += int(np.count_nonzero(is_such))
            some = slice(0, HELD - len(held[bits]))
            held[bits] += _couples(first[block.left[is_such][some]], first[block.right[is_such][some]])
    # Each pair is met from both its ends, where both are among the rows.
    pairs = {bits: round(count * len(values) / (2 * sampled)) if sampled else 0 for bits, count in met.items()}
    return Beyond(pairs, {bits: sorted(set(ones)) for bits, ones in held.items()}, sampled, len(values))


def _near(values: NDArray[np.uint64], rows: Numbers, least: int, most: int) -> Iterator[PairBlock]:
    """Yield the pairs of a row and any value whose distance is in (least, most]."""
    for row in range(0, len(rows), ROWS_AT_ONCE):
        mine = rows[row : row + ROWS_AT_ONCE]
        for column in range(0, len(values), COLUMNS_AT_ONCE):
            bits = np.bitwise_count(values[mine, None] ^ values[column : column + COLUMNS_AT_ONCE])
            is_near = bits - np.uint8(least + 1) < most - least  # below `least` it wraps around
            if is_near.any():
                left, right = np.nonzero(is_near)
                yield PairBlock(mine[left], right + column, bits[left, right])


def _couples(left: Numbers, right: Numbers) -> Couples:
    return list(zip(np.minimum(left, right).tolist(), np.maximum(left, right).tolist(), strict=True))


def some_within(pairs: Pairs, bits: int, count: int) -> Couples:
    """Return pairs of a distance, spread over all of them; of equal documents each with the first."""
    if bits == 0:
        right = _spread(np.flatnonzero(np.not_equal(pairs.groups, np.arange(len(pairs.groups)))), count)
        return _couples(pairs.groups[right], right)
    at = _spread(np.flatnonzero(pairs.distance == bits), count)
    return _couples(pairs.left[at], pairs.right[at])


def some_beyond(beyond: Beyond, bits: int, count: int) -> Couples:
    """Return pairs of a distance, spread over those held."""
    held = beyond.held[bits]
    return [held[at] for at in _spread(np.arange(len(held)), count).tolist()]


def _spread(numbers: Numbers, count: int) -> Numbers:
    """Return up to `count` of numbers, evenly spread."""
    count = min(count, len(numbers))
    chosen: Numbers = numbers[(2 * np.arange(count) + 1) * len(numbers) // max(1, 2 * count)]
    return chosen
