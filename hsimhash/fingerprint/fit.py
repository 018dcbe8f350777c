"""Fit a rarity table to the user's texts, without labels: `Fit`.

The sample is a tenth of the texts, within bounds. Texts are chosen by their hashes, so the sample does not depend on
their order, and a repeated text is sampled once. Of texts that share a key and have almost the same sketch, only a few
are used. Otherwise, if copies of one page made up half of a crawl, its words would seem common, and whatever was
changed in the copies would determine their fingerprints.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import mmh3
import numpy as np

from hsimhash.fingerprint.features import TextFeatures, feature_hashes
from hsimhash.fingerprint.native import signs_natively
from hsimhash.fingerprint.profile import Profile
from hsimhash.fingerprint.rarity import FIT_AUTO, FIT_OFF, GENERAL_SHA256, RarityTable, rarity_table
from hsimhash.fingerprint.recipe import BY_RARITY
from hsimhash.fingerprint.stream import RefusedText, worked

LEAST_SAMPLE, MOST_SAMPLE = 2_000, 20_000  # documents
TENTH = (1 << 64) // 10  # hashes below it are sampled; the sample makes `dedup` take about 1.15 times as long
# With fewer documents, the words that two versions of a page share seem common. On 50, 100 and 200 documents from 22
# labelled sets, the mean F1 with a fitted table was .008 below, .001 above and .016 above the mean F1 with the
# package's table.
LEAST_DOCUMENTS = 100
MOST_CHARACTERS = 1 << 14  # maximum characters used from each document; the rest is assumed to be similar
MOST_ALIKE = 16  # maximum number of near copies of a document that are used
ALIKE_BITS = 10  # maximum distance between the sketches of near copies: a Jaccard similarity of about .7
_MOST_COMPARED = 256  # maximum number of documents that a document is compared with, per part of its key
_SEED = 0x51AB1E  # seed of the hash that selects texts
BATCH = 1024  # texts handed to the workers at once
AHEAD = 256  # the same, while texts are still being read


class NothingToLearnError(ValueError):
    """No two texts have a feature in common, so a rarity table cannot be fitted to them."""


class Fit:
    """Collects a sample of texts for a profile, and fits a table to it.

    Args:
        profile: Profile that weights features by rarity.
        sample: Maximum number of texts in the sample; the default depends on the input, see `sample_size`.

    Raises:
        ValueError: the profile does not weight features by rarity.
    """

    def __init__(self, profile: Profile, sample: int | None = None) -> None:
        if profile.weights != BY_RARITY:
            raise ValueError(f"profile {profile.name} does not weight features by rarity; use auto-3")
        self.profile, self._sample = profile, sample
        self._held: dict[int, tuple[str, str]] = {}  # by the hash of a text: its beginning and its name
        self._found: dict[int, TextFeatures | RefusedText] = {}  # by the same hashes, for some of the texts
        self._most_held = 2 * (sample or LEAST_SAMPLE)
        self._limit = (1 << 64) - 1
        self.read = 0

    def add(self, texts: Sequence[str]) -> None:
        """Add the texts that may be in the sample; the name of each is its index in `texts`."""
        for hashed, place in self.wanted(texts).items():
            self.take(hashed, texts[place], str(place))

    def wanted(self, values: Sequence[str]) -> dict[int, int]:
        """Return the hashes of the values that may be in the sample, with their indices.

        Args:
            values: Texts, or the sources of texts, such as pages; in any order.
        """
        self.read += len(values)
        found = dict[int, int]()
        for place, value in enumerate(values):
            hashed = text_hash(value)
            if hashed <= self._limit and hashed not in self._held:
                found.setdefault(hashed, place)
        return found

    def take(self, hashed: int, text: str, name: str) -> None:
        """Add the text of a value that `wanted` returned; `name` is reported if its features cannot be found."""
        self._held[hashed] = text[:MOST_CHARACTERS], name
        if len(self._held) >= self._most_held:
            least = self._least()
            self._held = {hashed: self._held[hashed] for hashed in least}
            self._found = {hashed: self._found[hashed] for hashed in least if hashed in self._found}
            if len(least) == self._sample or len(least) >= MOST_SAMPLE:
                self._limit = least[-1]
            elif self._sample is None and len(least) >= LEAST_SAMPLE:
                self._limit = max(least[-1], TENTH)
            self._most_held = 2 * len(least)

    def take_all(self, wanted: Iterable[tuple[int, str, str]], *, workers: int) -> None:
        """Take texts as `take` does; other workers extract features while the next texts are read.

        They start with the texts that are hardly ever left out, whose hashes are in the lowest tenth of the range.
        """
        waiting = deque[dict[int, str]]()

        def likely() -> Iterator[tuple[int, str]]:
            for hashed, text, name in wanted:
                self.take(hashed, text, name)
                if workers > 1 and hashed < TENTH:
                    yield hashed, text[:MOST_CHARACTERS]

        def batches() -> Iterator[list[str]]:
            texts = likely()
            while batch := dict(islice(texts, AHEAD)):
                waiting.append(batch)
                yield list(batch.values())

        for found in _each_features(self.profile, batches(), workers):
            pairs = zip(waiting.popleft(), found, strict=True)
            self._found.update((hashed, one) for hashed, one in pairs if hashed in self._held)

    def _least(self) -> list[int]:
        least = sorted(self._held)
        return least[: self._sample or sample_size(bisect_left(least, TENTH))]

    def chosen(self) -> list[tuple[int, str, str]]:
        """Return the hash, the beginning and the name of each text in the sample, ordered by hash."""
        return [(hashed, *self._held[hashed]) for hashed in self._least()]

    def table(self, *, workers: int = 1, on_refused: Callable[[str, str], None] | None = None) -> RarityTable:
        """Return the table fitted to the sample.

        Args:
            workers: Number of workers that extract features; with 1, this process extracts them.
            on_refused: Called with the name and the reason for each text whose features cannot be found.

        Raises:
            ValueError: no two texts have a feature in common, so there is nothing to learn.
        """
        chosen = self.chosen()
        others = text_features(self.profile, [text for hashed, text, _ in chosen if hashed not in self._found], workers)

        def accepted() -> Iterator[TextFeatures]:
            for hashed, _, name in chosen:
                one = self._found.get(hashed) or next(others)
                if not isinstance(one, RefusedText):
                    yield one
                elif on_refused is not None:
                    on_refused(name, one.reason)

        return fitted_table(self.profile, accepted())


def text_hash(value: str) -> int:
    """Return the hash that decides whether a text is in the sample."""
    return int(mmh3.mmh3_x64_128_uintdigest(value.encode("utf-8", "replace"), _SEED)) & (1 << 64) - 1


def sample_size(below: int) -> int:
    """Return the sample size; `below` is the number of texts whose hashes are in the lowest tenth of the range."""
    return min(max(LEAST_SAMPLE, below), MOST_SAMPLE)


def text_features(profile: Profile, texts: Sequence[str], workers: int = 1) -> Iterator[TextFeatures | RefusedText]:
    """Yield the features of each text, in order, or the reason why they cannot be found."""
    batches = (texts[at : at + BATCH] for at in range(0, len(texts), BATCH))
    return chain.from_iterable(_each_features(profile, batches, workers))


def _each_features(
    profile: Profile, batches: Iterable[Sequence[str]], workers: int
) -> Iterator[list[TextFeatures | RefusedText]]:
    """Yield the features of each batch of texts, or the reasons why they cannot be found."""
    for parts in worked(profile, batches, workers, _hashed, in_threads=signs_natively(profile)):
        yield [one for part in parts for one in ([part] if isinstance(part, RefusedText) else part)]


def fitted_table(profile: Profile, sample: Iterable[TextFeatures]) -> RarityTable:
    """Fit a table to a sample, in the order of `Fit.chosen`, and merge it with the table of general text.

    The sample may be small, or unlike later texts, so features that are common in general text also get a low weight.

    Raises:
        NothingToLearnError: No two texts have a feature in common.
    """
    known = [one for one in sample if len(one.hashes)]
    parts = profile.key_kind.parts(np.array([one.key for one in known], np.uint64)).tolist()
    crowds = _Crowds()
    documents = [one.hashes for one, keys in zip(known, parts, strict=True) if not crowds.are_full(keys, one.sketch)]
    table = RarityTable.fitted(documents)
    if not len(table):
        raise NothingToLearnError(f"nothing to learn from {len(documents):,} documents: no word occurs in two of them")
    general = [rarity_table(GENERAL_SHA256)] if profile.rarity == GENERAL_SHA256 else []
    return RarityTable.joined([table, *general], table.documents)


def profile_with_table(profile: Profile, fit: str, learn: Callable[[], RarityTable | None]) -> Profile:
    """Return the profile with a rarity table; see `hsimhash.load.fitting.fitted_profile`.

    Args:
        profile: Profile as requested.
        fit: Path of a table file, `FIT_OFF` or `FIT_AUTO`.
        learn: Returns a table fitted to the inputs, or None, or raises `NothingToLearnError`. Called only if the
            profile can use a table.

    Raises:
        ValueError: the file cannot be read or does not contain a table, or the profile does not use rarity tables.
    """
    if fit == FIT_OFF:
        return profile
    if fit != FIT_AUTO:
        try:
            return profile.with_lists(rarity=Path(fit))
        except OSError as error:
            raise ValueError(f"{fit}: {error.strerror}; create a rarity table with 'hsimhash fit'") from error
    if not profile.can_be_fitted:
        return profile
    try:
        table = learn()
    except NothingToLearnError:
        return profile
    return profile if table is None or table.documents < LEAST_DOCUMENTS else profile.fitted(table)


def fitted_to(texts: Sequence[str], profile: Profile, *, workers: int = 1) -> Profile:
    """Return the profile with a rarity table fitted to texts, if it can use one and there are enough texts."""

    def learn() -> RarityTable:
        fit = Fit(profile)
        fit.add(texts)
        return fit.table(workers=workers)

    return profile_with_table(profile, FIT_AUTO, learn)


class _Crowds:
    """The sketches of the documents in use, listed under each part of their keys."""

    def __init__(self) -> None:
        self._sketches = defaultdict[int, "array[int]"](lambda: array("Q"))

    def are_full(self, parts: Sequence[int], sketch: int) -> bool:
        """Return whether enough near copies of a document are already used; if not, add it. Ignore parts of 0."""
        groups = [self._sketches[part] for part in parts if part]
        for group in groups:
            if len(group) >= MOST_ALIKE:
                differing = np.bitwise_count(np.frombuffer(group, np.uint64) ^ np.uint64(sketch))
                if np.count_nonzero(differing <= ALIKE_BITS) >= MOST_ALIKE:
                    return True
        for group in groups:
            if len(group) < _MOST_COMPARED:
                group.append(sketch)
        return False


def _hashed(profile: Profile, texts: Sequence[str]) -> list[TextFeatures]:
    """Return the features of each text."""
    return [one for part in profile.batches(texts) for one in feature_hashes(profile, part)]
