"""What a query reads, bucket by bucket."""

from __future__ import annotations

import time
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from hsimhash.rowkey import bucket_range, fingerprints_of
from hsimhash.store.base import Store
from hsimhash.store.hbase.gateway import Region
from hsimhash.store.hbase.store import HBaseStore


@dataclass(frozen=True, slots=True)
class Scan:
    """One bucket as it was read: half-open keys, rows, how many of them are near enough, time; on HBase its region."""

    drawer: int
    start: bytes
    stop: bytes
    rows: int
    near: int
    milliseconds: float
    region: Region | None


def explain(store: Store, query: int, k: int) -> list[Scan]:
    """Read the bucket of each drawer that a query for distance `k` reads, one after the other."""
    layout, scans = store.record.layout, []
    regions = store.gateway.regions() if isinstance(store, HBaseStore) else []
    starts = [region.start for region in regions]
    for drawer, prefix in zip(layout.drawers, layout.prefixes(query), strict=True):
        began = time.perf_counter()
        rows = store.scan([prefix])
        milliseconds = 1_000 * (time.perf_counter() - began)
        near = int(np.count_nonzero(np.bitwise_count(fingerprints_of(rows) ^ np.uint64(query)) <= k))
        region = regions[bisect_right(starts, prefix) - 1] if regions else None
        scans.append(Scan(drawer.number, *bucket_range(prefix), len(rows), near, milliseconds, region))
    return scans
