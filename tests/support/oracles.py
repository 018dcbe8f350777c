"""What the tests compare with: fingerprints that crowd, and the plain ways to vote and to cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st


def crowds(most: int, *, least: int = 0, bits: int = 64) -> st.SearchStrategy[list[int]]:
    """Draw fingerprints around few places, up to 5 of the low `bits` away from each, many of them equal."""
    places = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=3)
    flips = st.sets(st.integers(0, bits - 1), max_size=5)

    def around(centres: list[int]) -> st.SearchStrategy[list[int]]:
        near = st.tuples(st.sampled_from([*centres, 0, 2**64 - 1]), flips)
        one = near.map(lambda drawn: drawn[0] ^ sum(1 << bit for bit in drawn[1]))
        return st.lists(one, min_size=least, max_size=most)

    return places.flatmap(around)


def plain_vote(features: Iterable[tuple[int, float]]) -> int:
    """Vote by hashes and weights as the definition says."""
    sums = [0.0] * 64
    for hashed, weight in features:
        for bit in range(64):
            sums[bit] += weight if hashed >> bit & 1 else -weight
    return sum(1 << bit for bit in range(64) if sums[bit] > 0)


def plain_stars(values: Sequence[int], order: Sequence[int], k: int) -> list[int]:
    """Return which document is kept for each, where each one in `order` takes those near it that are left."""
    kept: dict[int, int] = {}
    for one in order:
        if one not in kept:
            near = [other for other in order if (values[one] ^ values[other]).bit_count() <= k]
            kept |= {other: one for other in near if other not in kept}
    return [kept[one] for one in range(len(values))]


def plain_components(values: Sequence[int], order: Sequence[int], k: int) -> list[int]:
    """Return which document is kept for each, where it is the first in `order` that near ones lead to."""
    kept: dict[int, int] = {}
    for one in order:
        reached = [] if one in kept else [one]
        for at in reached:
            kept[at] = one
            near = [other for other in order if (values[at] ^ values[other]).bit_count() <= k]
            reached += [other for other in near if other not in kept and other not in reached]
    return [kept[one] for one in range(len(values))]
