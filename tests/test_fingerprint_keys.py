"""Keys of both kinds, compared with their definition."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.features import feature_hashes
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.long_texts import MOST_RUN
from hsimhash.fingerprint.murmur3 import mix
from hsimhash.fingerprint.signature import VOTED
from hsimhash.fingerprint.stream import signature_stream
from hsimhash.native_package import SWITCH
from tests.support.effort import tries
from tests.support.oracles import packed_key, share_a_key

MASK = (1 << 64) - 1
TAGS = st.sampled_from([0, 1, 2, 3, 0x7FF, 0xFFF])
PACKED = st.one_of(st.just(0), st.integers(0, MASK), st.lists(TAGS, min_size=1, max_size=5).map(packed_key))


def mixed(value: int) -> int:
    return int(mix(np.array([value & MASK], np.uint64))[0])


def whole_key(heaviest: Sequence[int]) -> int:
    return max(mixed(sum(map(mixed, heaviest))), 1) if heaviest else 0


def tagged_key(heaviest: Sequence[int]) -> int:
    return packed_key(mixed(hashed) >> 52 for hashed in heaviest)


@pytest.mark.parametrize(("keying", "definition"), [(Keying.WHOLE, whole_key), (Keying.IN_PARTS, tagged_key)])
@given(
    st.lists(st.dictionaries(st.integers(0, MASK), st.integers(1, 4), max_size=20), max_size=4),
    st.integers(1, 5),
    st.randoms(),
)
def test_keys_are_of_the_heaviest_features_whatever_their_order(
    keying: Keying, definition: object, documents: list[dict[int, int]], count: int, chance: random.Random
) -> None:
    assert callable(definition)
    features = [(doc, hashed, weight) for doc, own in enumerate(documents) for hashed, weight in own.items()]
    chance.shuffle(features)
    doc, hashes, weights = zip(*features, strict=True) if features else ((), (), ())
    found = keying.make(
        np.array(doc, np.int64), np.array(hashes, np.uint64), np.array(weights, np.float64), count, len(documents)
    )
    for key, own in zip(found.tolist(), documents, strict=True):
        assert key == definition(sorted(own, key=lambda hashed: (-own[hashed], hashed))[:count])


@given(st.lists(st.tuples(PACKED, PACKED), max_size=30))
def test_two_keys_are_shared_if_both_have_a_set_of_three_tags(pairs: list[tuple[int, int]]) -> None:
    keying = Keying.IN_PARTS
    some, others = np.array(pairs, np.uint64).reshape(-1, 2).T
    expected = [share_a_key(one, other, keying) for one, other in pairs]
    assert keying.shared(some, others).tolist() == expected
    assert np.diagonal(keying.shared(some[:, None], others)).tolist() == expected
    by_parts = [bool(set(keying.parts_of(one)) & set(keying.parts_of(other))) for one, other in pairs]
    assert by_parts == expected


@given(st.lists(PACKED, max_size=20))
def test_a_key_has_each_part_once_and_at_most_five(keys: list[int]) -> None:
    parts = Keying.IN_PARTS.parts(np.array(keys, np.uint64))
    assert parts.shape == (len(keys), 5)
    for key, own in zip(keys, parts.tolist(), strict=True):
        there = [part for part in own if part]
        assert len(set(there)) == len(there)
        assert (len(there) > 0) == (key != 0)
        assert tuple(there) == Keying.IN_PARTS.parts_of(key)
    assert Keying.WHOLE.parts(np.array(keys, np.uint64)).ravel().tolist() == keys


def test_a_batch_that_begins_with_a_refused_text_keeps_its_kind_of_keys() -> None:
    texts = ["中" * (MOST_RUN + 1), "harbour ferry tide buoy crane"]
    ((signatures, refused),) = signature_stream(Profile.named("auto-3"), [texts], 1)
    assert list(refused) == [0]
    assert signatures.keying is Keying.IN_PARTS


@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_pair_that_is_left_out_because_words_are_heavier_is_in_no_key(
    switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCH, switch)
    rng, profile = random.Random(11), Profile.named("auto-3")
    words = [f"{chr(97 + number % 26)}{number}" for number in range(60)] + ["the", "of", "and", "is", "to"]
    texts = [
        " ".join(rng.choice(words[: rng.randint(1, 65)]) for _ in range(rng.randint(1, 200)))
        for _ in range(tries(2_000, 300))
    ]
    keys = [one.key for one in feature_hashes(profile, texts)]
    assert profile.signatures(texts).keys.tolist() == [
        key * (kind == VOTED) for key, kind in zip(keys, profile.signatures(texts).kinds.tolist(), strict=True)
    ]


def test_one_word_replaced_in_a_short_text_mostly_leaves_its_key() -> None:
    profile = Profile.named("auto-3")
    words = ["harbour", "ferry", "tide", "buoy", "crane", "pilot", "anchor", "quay", "mooring", "gull"]
    changed = [[*words[:place], "lantern", *words[place + 1 :]] for place in range(len(words))]
    keys = profile.signatures(map(" ".join, [words, *changed])).keys.tolist()
    assert {key >> 60 for key in keys} == {5}
    assert sum(Keying.IN_PARTS.is_shared(keys[0], key) for key in keys[1:]) >= 8
