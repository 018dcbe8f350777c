"""If hsimhash-native is installed, its signatures equal those of numpy; `make native` installs it."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable
from itertools import chain
from typing import TypeVar

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hsimhash import Profile, Signatures, sample
from hsimhash.fingerprint import DEFAULT_PROFILE
from hsimhash.fingerprint.features import feature_hashes
from hsimhash.fingerprint.fit import Fit
from hsimhash.fingerprint.long_texts import LONG_CHARACTERS
from hsimhash.fingerprint.native import signs_natively
from hsimhash.fingerprint.rarity import RarityTable
from hsimhash.fingerprint.stream import signature_stream
from hsimhash.native_package import SWITCH, signer_name
from tests.support.effort import tries
from tests.support.random_texts import BLOCKS, LAYOUT

pytest.importorskip("hsimhash_native", reason="hsimhash-native is not installed; make native")
pytestmark = pytest.mark.skipif(os.environ.get(SWITCH) == "0", reason=f"{SWITCH}=0 turns hsimhash-native off")

T = TypeVar("T")
DEFAULT = Profile.named(DEFAULT_PROFILE)
LAYOUTS = st.sampled_from(LAYOUT)


def characters(first: int, last: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(min_codepoint=first, max_codepoint=last, categories=None), min_size=1, max_size=30)


RUNS = st.one_of([characters(*block) for block in BLOCKS])
SENTENCES = re.findall(r'"text": "([^"\\]{20,})"', sample.documents().read_text("utf-8"))
TEXTS = st.lists(st.one_of(RUNS, LAYOUTS, st.sampled_from(SENTENCES)), max_size=12).map("".join)


def by_numpy(make: Callable[[], T]) -> T:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "0")
        return make()


def columns(found: Signatures) -> list[list[int]]:
    return [column.tolist() for column in (found.fingerprints, found.sketches, found.keys, found.kinds)]


def features(texts: list[str]) -> list[tuple[list[int], int, int]]:
    return [(sorted(one.hashes.tolist()), one.key, one.sketch) for one in feature_hashes(DEFAULT, texts)]


def check_equal(profile: Profile, texts: list[str]) -> None:
    assert signs_natively(profile)
    assert columns(profile.signatures(texts)) == columns(by_numpy(lambda: profile.signatures(texts)))


@settings(max_examples=tries(3000, 200), deadline=None)
@example(
    [
        "",
        " ",
        "\0",
        "a\0b",
        "\ud800",
        "\ufdfa" * 9,
        "が" + "か\u3099",
        "e\u0301" * 3,
        "-\n",
        "a-\nb",
        "a'",
        "'a",
        "a\u00ad\u06e8\u00ad\nb",
    ]
)
@given(st.lists(TEXTS, max_size=6))
def test_any_texts_have_the_same_signatures(texts: list[str]) -> None:
    check_equal(DEFAULT, texts)


@settings(max_examples=tries(1000, 50), deadline=None)
@example(["", "\ud800", "e\u0301" * 3, "a-\nb"])
@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_a_rarity_table_is_fitted_to_the_same_features(texts: list[str]) -> None:
    assert features(texts) == by_numpy(lambda: features(texts))


@settings(max_examples=tries(1000, 50), deadline=None)
@example(["", "\ud800", "e\u0301" * 3, "a-\nb", "が" + "か\u3099" * 3])
@given(st.lists(TEXTS, min_size=1, max_size=6))
def test_the_shingles_of_any_texts_are_the_same(texts: list[str]) -> None:
    def shingles() -> list[list[int]]:
        return [one.tolist() for one in DEFAULT.shingles(texts)]

    assert shingles() == by_numpy(shingles)


@settings(max_examples=tries(1000, 50), deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=3), st.integers(1, 60), LAYOUTS)
def test_texts_that_repeat_themselves_have_the_same_signatures(parts: list[str], times: int, between: str) -> None:
    check_equal(DEFAULT, [between.join(parts * times), *(between.join([part] * times) for part in parts)])


def test_texts_of_the_sample_have_the_same_signatures_also_with_a_fitted_table() -> None:
    def table() -> RarityTable:
        fit = Fit(DEFAULT)
        fit.add(SENTENCES)
        return fit.table(workers=2)

    assert table().content() == by_numpy(table).content()
    for profile in (DEFAULT, DEFAULT.fitted(table())):
        check_equal(profile, SENTENCES)


def test_texts_around_the_size_from_which_they_are_signed_in_windows() -> None:
    text = " ".join(chain.from_iterable([SENTENCES] * (1 + LONG_CHARACTERS // sum(map(len, SENTENCES)))))
    check_equal(DEFAULT, [text[: LONG_CHARACTERS + more] for more in (-1, 0, 1)])


@pytest.mark.parametrize("find", [DEFAULT.signatures, features], ids=["signatures", "features"])
def test_signed_texts_take_no_more_memory_than_before(find: Callable[[list[str]], object]) -> None:
    """A job holds texts to compare them later; CPython would also keep the UTF-8 of each one."""
    text = "".join(map(chr, range(0x4E00, 0x4F00)))
    size = sys.getsizeof(text)
    find([text])
    assert sys.getsizeof(text) == size


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_a_stream_signs_in_order_and_in_threads(workers: int) -> None:
    batches = [[f"{sentence} {number}" for sentence in SENTENCES[:300]] for number in range(8)]
    found = [batch.signatures for batch in signature_stream(DEFAULT, batches, workers)]
    assert list(map(columns, found)) == [columns(by_numpy(lambda one=one: DEFAULT.signatures(one))) for one in batches]
    assert not [one for one in threading.enumerate() if one.name.startswith("signer")]


def test_it_can_be_turned_off_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert re.fullmatch(r"hsimhash-native \d+\.\d+\.\d+", signer_name())
    monkeypatch.setenv(SWITCH, "0")
    assert not signs_natively(DEFAULT)
    assert re.fullmatch(rf"numpy \(hsimhash-native \d+\.\d+\.\d+ is turned off by {SWITCH}=0\)", signer_name())


OTHERS = ["auto-3:key=off", "auto-3:sketch=off", "auto-2", "auto-1", "words-1", "words-1:n=3", "zh-1", "chars-1"]


@pytest.mark.parametrize("name", OTHERS)
@settings(max_examples=tries(500, 25), deadline=None)
@given(st.lists(TEXTS, max_size=6))
def test_other_profiles_have_the_same_signatures_whoever_signs(name: str, texts: list[str]) -> None:
    profile = Profile.named(name)
    given_texts = [*texts, *SENTENCES[:40]]
    assert columns(profile.signatures(given_texts)) == columns(by_numpy(lambda: profile.signatures(given_texts)))
