"""Compare the shingles of texts that are near only by key, because sketches merely estimate what the texts share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from hsimhash.fingerprint import Profile
from hsimhash.fingerprint.bits import Bools, Int64s, Uint64s, are_in, sorted_distinct
from hsimhash.fingerprint.profile import BATCH_CHARACTERS, BATCH_DOCUMENTS

LEAST_SHARED = 0.5  # minimum share of a dropped text's distinct shingles that the kept text must contain
HELD_BYTES = 64 << 20  # maximum size of shingles in memory; beyond that, they go to a file


class SharedShingles:
    """A context manager for the shingles of documents, which it keeps in a temporary file if they exceed HELD_BYTES.

    Args:
        profile: Profile whose sketches define the shingles.
        read: Takes ascending document numbers, and returns the number and the text of each document whose text is
            available. Each document is requested once.
        folder: Folder for the file; the default is the folder for temporary files.
    """

    def __init__(
        self, profile: Profile, read: Callable[[Int64s], Iterable[tuple[int, str]]], folder: Path | None = None
    ) -> None:
        self._profile, self._read = profile, read
        self._file = tempfile.SpooledTemporaryFile[bytes](HELD_BYTES, dir=None if folder is None else str(folder))
        self._asked = np.empty(0, np.int64)
        self._places: dict[int, tuple[int, int]] = {}  # start and number of each document's shingles

    def __enter__(self) -> SharedShingles:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()

    def __contains__(self, number: int) -> bool:
        return number in self._places

    def too_few(self, dropped: Int64s, kept: Int64s) -> Bools:
        """Return in which pairs less than LEAST_SHARED of the dropped text's shingles are in the kept text.

        The value is False if a text is not available, or if the dropped text does not have shingles.
        """
        numbers = sorted_distinct(np.concatenate([dropped, kept]))
        self._add(numbers[~are_in(numbers, self._asked)])
        found = np.zeros(len(dropped), np.bool_)
        number, others = -1, np.empty(0, np.uint64)
        for place in np.argsort(kept, kind="stable").tolist():
            one, other = int(dropped[place]), int(kept[place])
            if one not in self or other not in self:
                continue
            if other != number:
                number, others = other, self._at(other)
            own = self._at(one)
            found[place] = np.count_nonzero(are_in(own, others)) < LEAST_SHARED * len(own)
        return found

    def _add(self, numbers: Int64s) -> None:
        if not len(numbers):
            return
        self._asked = np.sort(np.concatenate([self._asked, numbers]))
        self._file.seek(0, os.SEEK_END)
        for batch in _batches(self._read(numbers)):
            for (number, _), shingles in zip(batch, self._profile.shingles([text for _, text in batch]), strict=True):
                self._places[number] = self._file.tell(), len(shingles)
                self._file.write(shingles.tobytes())

    def _at(self, number: int) -> Uint64s:
        start, count = self._places[number]
        self._file.seek(start)
        return np.frombuffer(self._file.read(8 * count), np.uint64)


def _batches(texts: Iterable[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """Yield numbered texts in batches of a size that is efficient for cutting shingles."""
    held, characters = list[tuple[int, str]](), 0
    for number, text in texts:
        held.append((number, text))
        characters += len(text)
        if characters > BATCH_CHARACTERS or len(held) == BATCH_DOCUMENTS:
            yield held
            held, characters = [], 0
    if held:
        yield held
