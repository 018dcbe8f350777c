"""A batch of documents against a stored index: which stored ones are near each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hsimhash.dedup.documents import Collected
from hsimhash.index import QUERY_BATCH, HSimIndex, Match

ROWS_AT_ONCE = 1 << 16  # of matches, written together; a document adds all of its own

Rows = tuple[Sequence[str], Sequence[str], NDArray[np.uint8], NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Stored:
    """Stored documents that are the nearest to some of a batch.

    Args:
        nearest: shape (n,), for each document of the batch which of these it is, -1 where nothing is near.
        doc_ids: theirs.
        fingerprints: theirs, uint64.
    """

    nearest: NDArray[np.int64]
    doc_ids: Sequence[str]
    fingerprints: NDArray[np.uint64]


NONE_STORED = Stored(np.empty(0, np.int64), (), np.empty(0, np.uint64))


def match_stored(
    index: HSimIndex,
    documents: Collected,
    max_distance: int,
    write: Callable[[Rows], object],
    progress: Callable[[int, int], object],
) -> Stored:
    """Query an index for every fingerprint, once each; matches with the batch's own documents are left out.

    Those are compared within the batch, as they are now; two that are stored already must not drop each other.

    Args:
        index: only read.
        documents: the batch.
        max_distance: 0 to the index's k.
        write: told columns of document, stored document, distance, first seen: all matches, by fingerprint in the order
            of its first document, then by document, nearest first.
        progress: told (done, total) fingerprints.
    """
    found = _Found(documents.doc_ids, write)
    order, starts = _by_fingerprint(documents)
    for start in range(0, len(starts) - 1, QUERY_BATCH):
        batch = range(start, min(start + QUERY_BATCH, len(starts) - 1))
        groups = [order[starts[at] : starts[at + 1]].tolist() for at in batch]
        queries = documents.fingerprints[[numbers[0] for numbers in groups]]
        for numbers, matches in zip(groups, index.query_many(queries, max_distance=max_distance), strict=True):
            for number in numbers if matches else ():
                found.take(number, matches)
        found.write_rows()
        progress(batch.stop, len(starts) - 1)
    return found.stored()


def _by_fingerprint(documents: Collected) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the comparable documents, equal ones together, in order of each group's first; and where groups begin."""
    among = documents.comparable
    _, first, group = np.unique(documents.fingerprints[among], return_index=True, return_inverse=True)
    place = first[group]
    order = np.argsort(place, kind="stable")
    is_start = np.append(True, np.diff(place[order]) != 0)[: len(order)]
    return among[order], np.append(np.flatnonzero(is_start), len(order))


class _Found:
    def __init__(self, doc_ids: Sequence[str], write: Callable[[Rows], object]) -> None:
        self._doc_ids = doc_ids
        self._batch = frozenset(doc_ids)
        self._write = write
        self._nearest = np.full(len(doc_ids), -1, np.int64)
        self._numbers: dict[str, int] = {}
        self._fingerprints: list[int] = []
        self._rows: list[tuple[str, Match]] = []

    def take(self, number: int, matches: Sequence[Match]) -> None:
        """Note the matches of a document, nearest first."""
        own = self._doc_ids[number]
        others = [match for match in matches if match.doc_id not in self._batch]
        if others:
            self._nearest[number] = self._number_of(others[0])
        self._rows += [(own, match) for match in others]
        if len(self._rows) >= ROWS_AT_ONCE:
            self.write_rows()

    def write_rows(self) -> None:
        """Write what was noted since the last call."""
        rows, self._rows = self._rows, []
        self._write(
            (
                [own for own, _ in rows],
                [match.doc_id for _, match in rows],
                np.array([match.distance for _, match in rows], np.uint8),
                np.array([match.first_seen for _, match in rows], np.int64),
            )
        )

    def _number_of(self, match: Match) -> int:
        number = self._numbers.setdefault(match.doc_id, len(self._numbers))
        if number == len(self._fingerprints):
            self._fingerprints.append(match.fingerprint)
        return number

    def stored(self) -> Stored:
        return Stored(self._nearest, list(self._numbers), np.array(self._fingerprints, np.uint64))
