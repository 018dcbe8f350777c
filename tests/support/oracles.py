"""What the tests compare with: crowded fingerprints, and plain implementations of voting, matching and clustering."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import strategies as st

from hsimhash.cover import ALL_ROWS, Cover
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import MAX_SKETCH, Signature, as_signature
from hsimhash.rowkey import KEY_FLAG
from hsimhash.store import Document, Matches
from hsimhash.store.conformance.random_calls import packed_key, share_a_key


def crowds(most: int, *, least: int = 0, bits: int = 64) -> st.SearchStrategy[list[int]]:
    """Draw fingerprints around a few values, with up to 5 of the low `bits` flipped; many are equal."""
    places = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=3)
    flips = st.sets(st.integers(0, bits - 1), max_size=5)

    def around(centres: list[int]) -> st.SearchStrategy[list[int]]:
        near = st.tuples(st.sampled_from([*centres, 0, 2**64 - 1]), flips)
        one = near.map(lambda drawn: drawn[0] ^ sum(1 << bit for bit in drawn[1]))
        return st.lists(one, min_size=least, max_size=most)

    return places.flatmap(around)


def plain_vote(features: Iterable[tuple[int, float]]) -> int:
    """Vote by hashes and weights, exactly as defined."""
    sums = [0.0] * 64
    for hashed, weight in features:
        for bit in range(64):
            sums[bit] += weight if hashed >> bit & 1 else -weight
    return sum(1 << bit for bit in range(64) if sums[bit] > 0)


def signed(
    fingerprints: st.SearchStrategy[list[int]], keying: Keying = Keying.WHOLE
) -> st.SearchStrategy[list[Signature]]:
    """Draw signatures with these fingerprints and a few sketches and keys, including 0, so that many are alike."""
    sketches, keys = st.sampled_from([0, 0, 1, 0b11, 0b111111, 2**64 - 1]), st.sampled_from([0, 0, 5, 6, 2**64 - 1])
    if keying is not Keying.WHOLE:
        tags = st.sampled_from([0, 1, 2, 3, 0xFFF])
        keys = st.one_of(st.just(0), st.lists(tags, min_size=1, max_size=5).map(packed_key))

    def alike(values: list[int]) -> st.SearchStrategy[list[Signature]]:
        return st.tuples(*(st.builds(Signature, st.just(value), sketches, keys) for value in values)).map(list)

    return fingerprints.flatmap(alike)


def are_near(
    one: Signature | int,
    other: Signature | int,
    k: int,
    max_sketch: int | None = None,
    keying: Keying = Keying.WHOLE,
) -> bool:
    """Return whether two signatures match: by distance or by key, and then by their sketches."""
    one, other = as_signature(one), as_signature(other)
    distance = (one.fingerprint ^ other.fingerprint).bit_count()
    if not (distance <= k or share_a_key(one.key, other.key, keying)):
        return False
    if max_sketch is None or 0 in (one.sketch, other.sketch):
        return True
    far = max(0, distance - 16)
    return (one.sketch ^ other.sketch).bit_count() <= max(0, max_sketch - far)


def plain_stars(
    values: Sequence[Signature | int],
    order: Sequence[int],
    k: int,
    max_sketch: int | None = None,
    keying: Keying = Keying.WHOLE,
) -> list[int]:
    """Return which document is kept for each, if each one in `order` takes the near ones that are left."""
    kept: dict[int, int] = {}
    for one in order:
        if one not in kept:
            near = [other for other in order if are_near(values[one], values[other], k, max_sketch, keying)]
            kept |= {other: one for other in near if other not in kept}
    return [kept[one] for one in range(len(values))]


def plain_components(
    values: Sequence[Signature | int], order: Sequence[int], k: int, max_sketch: int | None = None
) -> list[int]:
    """Return which document is kept for each: the first in `order` that a chain of near ones leads to."""
    kept: dict[int, int] = {}
    for one in order:
        reached = [] if one in kept else [one]
        for at in reached:
            kept[at] = one
            near = [other for other in order if are_near(values[at], values[other], k, max_sketch)]
            reached += [other for other in near if other not in kept and other not in reached]
    return [kept[one] for one in range(len(values))]


def drawers_finding(document: Document, query: Signature, cover: Cover, keying: Keying = Keying.WHOLE) -> set[int]:
    """Return the numbers of the drawers in which a query finds a document, by the definition of a cover."""
    found = {KEY_FLAG} if share_a_key(document.key, query.key, keying) else set()
    if (document.fingerprint ^ query.fingerprint).bit_count() > cover.distance:
        return found
    if cover.probes == ALL_ROWS:
        return found | {drawer.number for drawer in cover.layout.drawers}
    for probe in cover.probes:
        drawer = cover.layout.drawers[probe.drawer - 1]
        differing = (drawer.segment(document.fingerprint) ^ drawer.segment(query.fingerprint)) >> 32 - probe.bits
        if differing.bit_count() <= probe.radius:
            found.add(probe.drawer)
    return found


def check_partial(
    found: Matches, query: Signature, documents: Sequence[Document], cover: Cover, keying: Keying = Keying.WHOLE
) -> None:
    """Assert that an answer agrees with brute force, except for what the missing drawers explain."""
    near = [one for one in documents if are_near(one.signature, query, cover.distance, MAX_SKETCH, keying)]
    got = {match.doc_id for match in found}
    assert got <= {one.doc_id for one in near}
    for absent in near:
        if absent.doc_id not in got:
            assert drawers_finding(absent, query, cover, keying) <= set(found.missing)
            assert found.missing
