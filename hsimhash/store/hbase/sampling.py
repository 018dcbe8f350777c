"""`check` of a sample: so many documents and drawer rows from all over the table, each run others.

The keys are cut into strata of one size. In each a place is drawn, and rows are read from there on, and from the
stratum's start where it ends before there are enough. Registers lie evenly, for their rows begin with a digest;
listings and drawer rows as the fingerprints do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from hsimhash.layout import Layout
from hsimhash.rowkey import SEGMENT_BYTES
from hsimhash.store.base import Progress
from hsimhash.store.hbase.cells import TABLE_STOP
from hsimhash.store.hbase.collect import PAGE_COLUMNS, PAGE_ROWS, Audit
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, Cell, Gateway
from hsimhash.store.hbase.protocol import Times

STRATA = 256
_SEGMENTS = 1 << 8 * SEGMENT_BYTES


@dataclass(frozen=True, slots=True)
class Sample:
    """About how many documents to check, and as many drawer rows; the seed draws which."""

    documents: int
    seed: int


class SampleAudit(Audit):
    """One run of `check` on a sample; see the module's text. It mends nothing."""

    def __init__(
        self, gateway: Gateway, layout: Layout, times: Times, sample: Sample, *, progress: Progress | None
    ) -> None:
        super().__init__(gateway, layout, times, repair=False, progress=progress)
        self._sample = sample
        self._rng = np.random.default_rng(sample.seed)

    def _pages(self, family: bytes) -> Iterator[list[Cell]]:
        strata = min(STRATA, self._sample.documents)
        rows_each = -(-self._sample.documents // strata)
        if family == DOCUMENT_FAMILY:
            rows_each *= 2  # a document has a listing and a register
        page: list[Cell] = []
        for number in range(strata):
            page += self._drawn(family, number * _SEGMENTS // strata, (number + 1) * _SEGMENTS // strata, rows_each)
            if len(page) >= PAGE_ROWS:
                yield page
                page = []
        yield page

    def _drawn(self, family: bytes, low: int, high: int, count: int) -> list[Cell]:
        """Return the cells of `count` rows whose segments lie in [low, high), in order."""
        middle = int(self._rng.integers(low, high))
        behind = self._rows(family, middle, high, count)
        before = self._rows(family, low, middle, count - len(behind))
        return [cell for row in before + behind for cell in row]

    def _rows(self, family: bytes, low: int, high: int, count: int) -> list[list[Cell]]:
        if low == high or not count:
            return []
        return self.gateway.rows(_key(low), _key(high), family, limit=count, columns=PAGE_COLUMNS)


def _key(segment: int) -> bytes:
    return segment.to_bytes(SEGMENT_BYTES, "big") if segment < _SEGMENTS else TABLE_STOP
