"""Two documents explained: sums, pushes and drawers agree with fingerprints, queries and covers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hsimhash import HSimIndex
from hsimhash.calibrate.compare_two import Side, TwoDocuments, explain_two
from hsimhash.cover import cover
from hsimhash.fingerprint import Profile, Signature
from hsimhash.fingerprint.signature import MAX_SKETCH
from hsimhash.layout import Layout
from tests.support.prices import LMDB_PRICES
from tests.test_calibrate import article, chinese, edited

PROFILES = ("auto-2", "auto-1", "zh-1", "words-1", "jieba-topn-1:top=100")
TEXTS = [
    (article(1), edited(article(1), 6, 1)),
    (article(1), article(2)),
    (chinese(1), chinese(1)[:200] + chinese(2)[:40]),
    (chinese(1) + article(1), chinese(1) + edited(article(1), 9, 2)),
]


def explained(profile: Profile, a: str, b: str, *, layout: str = "10", distance: int = 3) -> TwoDocuments:
    chosen = cover(Layout.named(layout), distance, 1_000, LMDB_PRICES)
    sides = (Side(text[:9], profile.signature(text), text) for text in (a, b))
    return explain_two(*sides, profile, chosen, max_sketch=MAX_SKETCH)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize(("a", "b"), TEXTS)
def test_the_sums_of_the_votes_are_the_bits_that_differ(name: str, a: str, b: str) -> None:
    profile = Profile.named(name)
    found = explained(profile, a, b)
    fingerprints = [profile.fingerprint(text) for text in (a, b)]
    for one in found.flips:
        for total, value in zip(one.sums, fingerprints, strict=True):
            is_even = profile.is_plain and abs(total) < 1e-9  # the order of the floats decides such a vote
            assert is_even or (total > 0) == bool(value >> one.bit & 1)
        assert one.features
    assert len(found.flips) == found.distance == (fingerprints[0] ^ fingerprints[1]).bit_count()


def test_what_pushed_a_bit_votes_for_it_and_the_pushes_are_what_the_sums_changed_by() -> None:
    profile = Profile.named("auto-2")
    found = explained(profile, "A tram for all of us. " + article(1), "A fisherman of the harbour. " + article(1))
    hashes = {
        one.text: one.hash for text in (found.sides[0].text, found.sides[1].text) for one in profile.features(str(text))
    }
    flipped = {one.bit: one.sums for one in found.flips}
    assert any("fisherman" in one.text for one in found.features)
    for one in found.features:
        change = one.weights[1] - one.weights[0]
        pushes = [
            (change if hashes[one.text] >> bit & 1 else -change) * (1 if sums[1] > 0 else -1)
            for bit, sums in flipped.items()
        ]
        assert one.push == pytest.approx(sum(pushes))
        assert set(one.bits) == {bit for bit, push in zip(flipped, pushes, strict=True) if push > 0}


@pytest.mark.parametrize(("layout", "distance"), [("10", 3), ("4", 3), ("4", 6), ("28", 8)])
def test_a_drawer_meets_exactly_where_a_query_reads_the_other(layout: str, distance: int) -> None:
    chance, seen = random.Random(distance), set()
    chosen = cover(Layout.named(layout), distance, 1_000_000, LMDB_PRICES)
    probe_sets = [chosen.probe_set([probe]) for probe in chosen.probes]
    for _ in range(60):
        a = b = chance.getrandbits(64)
        for bit in chance.sample(range(64), chance.randrange(2 * distance)):
            b ^= 1 << bit
        sides = Side("a", Signature(a)), Side("b", Signature(b))
        found = explain_two(*sides, Profile.named("words-1"), chosen, max_sketch=None)
        reads = [one.own_numbers(np.array([b], np.uint64))[0, 0] in one.numbers_of(a) for one in probe_sets]
        assert [one.meets for one in found.probes] == reads
        assert (found.found_by == "distance") == ((a ^ b).bit_count() <= distance)
        assert any(reads) or found.reason
        seen |= set(reads)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("other", "found_by", "reason"),
    [
        (Signature(7, 1, 9), "distance", ""),
        (Signature(2**20 - 1, 1, 9), "key", ""),
        (Signature(7, 2**22 - 1, 0), None, "sketches differ in 21 bits, more than 20"),
        (
            Signature(2**20 - 1, 2**18 - 1, 9),
            None,
            "20 bits apart and share a key, but their sketches differ in 17 bits, more than 16",
        ),
        (Signature(2**20 - 1, 1, 8), None, "20 bits apart, more than 3, and they do not share a key"),
    ],
)
def test_it_is_said_why_a_query_does_not_find_the_other(other: Signature, found_by: str | None, reason: str) -> None:
    chosen = cover(Layout.named("10"), 3, 1_000, LMDB_PRICES)
    sides = Side("a", Signature(0, 1, 9)), Side("b", other)
    found = explain_two(*sides, Profile.named("auto-2"), chosen, max_sketch=MAX_SKETCH)
    assert found.found_by == found_by
    assert reason in found.reason
    with HSimIndex.create("memory://two", layout="10", profile="auto-2", distance=3) as index:
        index.add(other, "b")
        assert [match.found_by for match in index.query(Signature(0, 1, 9))] == [found_by] * bool(found_by)


def test_blocks_are_the_layouts_and_hold_each_differing_bit_once() -> None:
    found = explained(Profile.named("auto-1"), article(1), article(2))
    assert [one.highest - one.lowest + 1 for one in found.blocks] == [13, 13, 13, 13, 12]
    assert [bit for one in found.blocks for bit in one.differing] == sorted(
        (one.bit for one in found.flips), reverse=True
    )


def test_texts_without_a_vote_have_no_features_but_words() -> None:
    found = explained(Profile.named("auto-1"), "one short text", "one other text")
    assert (found.features, found.flips) == ((), ())
    assert "fewer than 16 features" in found.features_missing
    assert found.words is not None
    assert found.words.equal_share < 1


@pytest.mark.parametrize(("profile", "common"), [("auto-3", 3), ("auto-2", 6)])
@pytest.mark.parametrize(("a", "b"), TEXTS)
def test_texts_that_share_a_key_have_the_features_that_it_is_made_from_in_common(
    profile: str, common: int, a: str, b: str
) -> None:
    found = explained(Profile.named(profile), a, b)
    assert found.key_features is not None
    of_a, of_b = found.key_features
    assert len(of_a) == len(set(of_a)) == len(of_b) == Profile.named(profile).key
    assert found.shares_key == (len({*of_a} & {*of_b}) >= common)
    for text, words in ((a, of_a), (b, of_b)):
        assert all(word in text.lower() for one in words for word in one.split())


def test_keys_of_texts_that_are_not_available_or_do_not_have_one_are_not_explained() -> None:
    assert explained(Profile.named("auto-2"), "one short text", article(1)).key_features is None
    assert explained(Profile.named("auto-1"), article(1), article(1)).key_features is None
    side = Side("a", Profile.named("auto-3").signature(article(1)))
    chosen = cover(Layout.named("4"), 6, 1_000, LMDB_PRICES)
    assert explain_two(side, side, Profile.named("auto-3"), chosen, max_sketch=MAX_SKETCH).key_features is None


def test_equal_texts_differ_in_nothing() -> None:
    found = explained(Profile.named("auto-2"), article(1), article(1))
    assert (found.distance, found.similarity, found.shares_key, found.features) == (0, 1.0, True, ())
    assert all(one.meets for one in found.probes)
