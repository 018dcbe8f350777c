"""Draw a sample of the documents in one pass: hash each document's number, and keep those with the smallest hashes.

The same inputs always yield the same sample. Documents beyond the limits are dropped at random.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from hsimhash.calibrate.options import CalibrateOptions
from hsimhash.fingerprint.murmur3 import mix
from hsimhash.inputs.files import Input
from hsimhash.inputs.reader import read_batches
from hsimhash.progress import Observer

CHARACTERS = 100_000_000  # maximum total length of the texts; documents beyond it are dropped at random
REJECTS_NAMED = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """Documents in input order, with distinct ids."""

    doc_ids: tuple[str, ...]
    texts: tuple[str, ...]
    read: int  # number of documents in the inputs
    rejected: int = 0  # number of invalid records
    reasons: tuple[str, ...] = ()  # location and reason of the first REJECTS_NAMED rejected records


class _Draw:
    """The documents with the lowest ranks, within the limits; documents named by labels are always kept."""

    def __init__(self, documents: int, characters: int, wanted: Collection[str]) -> None:
        self._wanted = wanted
        self._documents = max(documents, len(wanted))
        self._characters_left = characters
        self._kept: list[tuple[int, int, str, str]] = []  # a heap of (negative rank, number, id, text)
        self._doc_ids: set[str] = set()
        self._number = 0

    def take(self, doc_ids: Sequence[str], texts: Sequence[str]) -> None:
        ranks = mix(np.arange(self._number, self._number + len(doc_ids), dtype=np.uint64))
        for rank, doc_id, text in zip(ranks.tolist(), doc_ids, texts, strict=True):
            self._number += 1
            if doc_id not in self._doc_ids:
                self._doc_ids.add(doc_id)
                self._characters_left -= len(text)
                heapq.heappush(self._kept, (1 if doc_id in self._wanted else -rank, self._number, doc_id, text))
        while len(self._kept) > self._documents or (self._characters_left < 0 and self._kept[0][0] <= 0):
            _, _, doc_id, text = heapq.heappop(self._kept)
            self._doc_ids.remove(doc_id)
            self._characters_left += len(text)

    def sample(self, rejected: int, reasons: Sequence[str]) -> Sample:
        kept = sorted(self._kept, key=lambda one: one[1])
        return Sample(
            tuple(one[2] for one in kept), tuple(one[3] for one in kept), self._number, rejected, tuple(reasons)
        )


def draw_sample(
    inputs: Sequence[Input],
    options: CalibrateOptions,
    wanted: Collection[str],
    observer: Observer,
    *,
    characters: int = CHARACTERS,
) -> Sample:
    """Read all inputs and return a sample of their documents, including those with `wanted` ids.

    Raises:
        ValueError: An input contains fingerprints instead of texts.
    """
    for one in inputs:
        if one.has_fingerprints:
            raise ValueError(
                f"input {one.name} contains fingerprints, but profiles are compared on texts; pass texts instead"
            )
    draw, read, rejected, reasons = _Draw(options.sample, characters, wanted), 0, 0, list[str]()
    for batch in read_batches(inputs, options.reading):
        draw.take(batch.documents.doc_ids, batch.documents.texts)
        read += len(batch.documents.doc_ids)
        rejected += len(batch.documents.rejects)
        name = inputs[batch.input].name
        for reject in batch.documents.rejects[: REJECTS_NAMED - len(reasons)]:
            reasons.append(f"{reject.path or f'{name}:{reject.line}'}: {reject.reason}")
        observer.report("read", documents=read)
    return draw.sample(rejected, reasons)
