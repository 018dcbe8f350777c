"""Compare the texts of documents that would be dropped only because they share a key with the kept document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hsimhash.dedup.documents import Collected
from hsimhash.dedup.options import DedupOptions
from hsimhash.dedup.outputs import output_errors
from hsimhash.dedup.rereading import texts_again
from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Bools, Int64s, sorted_distinct
from hsimhash.inputs.files import Input
from hsimhash.pairs.pair_blocks import pair_words
from hsimhash.pairs.shared_shingles import SharedShingles

_NONE = np.empty(0, np.int64)


class Looked(NamedTuple):
    """The result of comparing texts."""

    refused: Int64s = _NONE  # pairs whose texts share too little, as ascending `pair_words`
    unseen: int = 0  # number of documents dropped only by key whose texts could not be compared
    reasons: tuple[str, ...] = ()  # why these texts could not be compared


class TextCheck:
    """Refuses pairs whose texts share too little. A context manager.

    Args:
        documents: All documents.
        inputs: Inputs of the documents.
        options: How to read the inputs. Without a limit for sketches, no texts are compared.
        profile: Profile that defines the shingles.
        folder: Folder for a temporary file.
    """

    def __init__(
        self, documents: Collected, inputs: Sequence[Input], options: DedupOptions, profile: Profile, folder: Path
    ) -> None:
        self._documents, self._inputs, self._options, self._profile = documents, inputs, options, profile
        self._folder = folder
        self._shingles = SharedShingles(profile, self._texts, folder)
        self._refused = _NONE
        self._missing: dict[int, str] = {}  # number of an input that cannot be read again → reason

    def _texts(self, numbers: Int64s) -> Iterable[tuple[int, str]]:
        if self._profile.sketch is None:
            return ()
        return texts_again(self._documents, self._inputs, self._options.reading, numbers, self._missing)

    def __enter__(self) -> TextCheck:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._shingles.__exit__(*exc_info)

    def refuses(self, dropped: Int64s, kept: Int64s) -> Bools:
        """Return whether each dropped document's text shares too little with the text of the kept document.

        The result is False if either text is not available; the sketches then decide.
        """
        if self._options.max_sketch is None:
            return np.zeros(len(dropped), np.bool_)
        with output_errors(self._folder):
            found = self._shingles.too_few(dropped, kept)
        self._refused = sorted_distinct(np.concatenate([self._refused, pair_words(dropped[found], kept[found])]))
        return found

    def looked(self, dropped: Int64s, kept: Int64s) -> Looked:
        """Compare the documents dropped only by key; return the result of this and all earlier comparisons."""
        if self._options.max_sketch is None:
            return Looked()
        self.refuses(dropped, kept)  # not all were compared: in a component, other documents may connect the two
        pairs = zip(dropped.tolist(), kept.tolist(), strict=True)
        unread = [unread for pair in pairs if (unread := [one for one in pair if one not in self._shingles])]
        numbers = np.array([number for some in unread for number in some], np.int64)
        inputs = sorted_distinct(self._documents.rows.at(numbers)["input"]).tolist()
        return Looked(self._refused, len(unread), tuple(map(self._reason, inputs)))

    def _reason(self, at: int) -> str:
        if self._profile.sketch is None:
            return f"profile {self._profile.name} does not make sketches"
        return self._missing.get(at, f"{self._inputs[at].name} has changed since it was read")
