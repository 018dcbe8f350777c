"""Fit a rarity table to the user's texts, without labels: `Fit`.

The sample is chosen by the hashes of the texts, so it is the same in whatever order they come, and a text that is there
many times counts once. Of texts with the same key only a few count: else the words of a page that half of a crawl
copied would seem common, and its copies would be told apart by what was changed in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import mmh3

from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.features import feature_hashes
from hsimhash.fingerprint.profile import Profile, split_batch
from hsimhash.fingerprint.rarity import RarityTable
from hsimhash.fingerprint.recipe import BY_RARITY
from hsimhash.fingerprint.stream import RefusedText, worked

SAMPLE = 20_000  # documents
MOST_CHARACTERS = 1 << 14  # of a document; what follows is like it
MOST_ALIKE = 16  # documents with the same key that count
_SEED = 0x51AB1E  # of the hash that chooses
BATCH = 1024  # texts that are given to the workers at once


class Fit:
    """Collects a sample of texts for a profile, and fits a table to it.

    Args:
        profile: whose features; one with weights by rarity.
        sample: the most texts that count.

    Raises:
        ValueError: the profile does not weigh features by their rarity.
    """

    def __init__(self, profile: Profile, sample: int = SAMPLE) -> None:
        if profile.weights != BY_RARITY:
            raise ValueError(f"profile {profile.name} does not weigh features by how rare they are; use auto-3")
        self.profile, self.sample = profile, sample
        self._chosen: dict[int, tuple[str, str]] = {}  # by the hash of a text: its beginning, and its name
        self._limit = (1 << 64) - 1
        self.read = 0

    def add(self, texts: Sequence[str], name_of: Callable[[int], str] = str) -> None:
        """Take those of the texts whose hashes are among the least so far.

        Args:
            texts: in any order.
            name_of: what to call the text at a place, if its features cannot be found.
        """
        for place, text in enumerate(texts):
            hashed = mmh3.mmh3_x64_128_uintdigest(text.encode("utf-8", "replace"), _SEED) & (1 << 64) - 1
            if hashed <= self._limit and hashed not in self._chosen:
                self._chosen[hashed] = text[:MOST_CHARACTERS], name_of(place)
        self.read += len(texts)
        if len(self._chosen) >= 2 * self.sample:
            self._drop()

    def _drop(self) -> None:
        least = sorted(self._chosen)[: self.sample]
        self._chosen = {hashed: self._chosen[hashed] for hashed in least}
        self._limit = least[-1] if len(least) == self.sample else self._limit

    def table(self, *, workers: int = 1, on_refused: Callable[[str, str], None] | None = None) -> RarityTable:
        """Return the table.

        Args:
            workers: how many processes look at the sample; 1 works in this one.
            on_refused: called with the name and the reason of each text whose features cannot be found.

        Raises:
            ValueError: no two texts have a feature in common, so there is nothing to learn.
        """
        self._drop()
        chosen = [self._chosen[hashed] for hashed in sorted(self._chosen)]
        batches = ([text for text, _ in chosen[at : at + BATCH]] for at in range(0, len(chosen), BATCH))
        names = (name for _, name in chosen)
        documents, alike = list[Uint64s](), Counter[int]()
        for part in (part for parts in worked(self.profile, batches, workers, _hashed) for part in parts):
            if isinstance(part, RefusedText):
                name = next(names)
                if on_refused is not None:
                    on_refused(name, part.reason)
                continue
            for (key, hashes), _ in zip(part, names, strict=False):
                alike[key] += 1
                if len(hashes) and alike[key] <= MOST_ALIKE:
                    documents.append(hashes)
        table = RarityTable.fitted(documents)
        if not len(table):
            raise ValueError(f"no word is in two of {len(documents):,} documents, so none can be told to be common")
        return table


def _hashed(profile: Profile, texts: Sequence[str]) -> list[tuple[int, Uint64s]]:
    """Return the key and the hashes of the features of each text."""
    return [one for part in split_batch(texts) for one in feature_hashes(profile, part)]
