"""Hold the texts of small inputs in memory until the report is written, so that they do not have to be read again."""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from hsimhash.fingerprint.bits import Int64s
from hsimhash.inputs.reader import HELD_BYTES, Batch


class HeldTexts:
    """Texts by input and line: all texts, or none if they take more than `HELD_BYTES`."""

    def __init__(self) -> None:
        self._left = HELD_BYTES
        self._batches = defaultdict[int, list[tuple[Int64s, Sequence[str]]]](list)  # by input; lines and texts

    def take(self, batch: Batch) -> None:
        """Hold the texts of the next batch; once they exceed the limit, drop all texts."""
        texts = batch.documents.texts
        if self._left < 0 or not texts:
            return
        lines = np.array(batch.documents.lines, np.int64)
        self._left -= sum(map(sys.getsizeof, texts)) + lines.nbytes + sys.getsizeof(texts)
        if self._left < 0:
            self._batches.clear()
        else:
            self._batches[batch.input].append((lines, texts))

    def at(self, place: int, lines: Sequence[int]) -> list[tuple[int, str]] | None:
        """Return (line, text) for the given lines of input number `place`, or None if its texts are not held."""
        if place not in self._batches:
            return None
        batches, found = self._batches[place], []
        first_lines = [batch_lines[0] for batch_lines, _ in batches]
        for line in lines:
            batch_lines, texts = batches[bisect_right(first_lines, line) - 1]
            found.append((line, texts[int(np.searchsorted(batch_lines, line))]))
        return found
