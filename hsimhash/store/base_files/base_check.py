"""Compare the drawers in a base with each other. Sets of rows are compared by the sums of their hashes."""

from __future__ import annotations

from dataclasses import dataclass
from secrets import randbits

import numpy as np

from hsimhash.fingerprint.bits import Uint64s
from hsimhash.fingerprint.murmur3 import mix
from hsimhash.store.base_files.base_file import Base

GLANCE_ROWS = 1 << 17  # number of rows read at a time; limits memory use


@dataclass(slots=True)
class RowSum:
    """The number of hashes, and their sum."""

    count: int = 0
    total: int = 0

    def add(self, hashes: Uint64s) -> None:
        self.count += len(hashes)
        self.total = (self.total + int(hashes.sum(dtype=np.uint64))) % (1 << 64)


def mixed_rows(seed: np.uint64, *columns: Uint64s) -> Uint64s:
    """Return a hash of each row in the given columns."""
    mixed = np.full(len(columns[0]), seed)
    for column in columns:
        mixed = mix(mixed ^ column) + seed
    return mixed


def misfiled(base: Base) -> list[str]:
    """Return the faults of a base with correct checksums: drawers that are unsorted or differ from the first one."""
    seed, sums, faults = np.uint64(randbits(64) | 1), list[RowSum](), []
    for drawer in base.drawers:
        found, last = RowSum(), np.empty(0, np.uint64)
        for start in range(0, base.rows, GLANCE_ROWS):
            values = base.part(drawer, start, min(start + GLANCE_ROWS, base.rows))
            permuted = np.concatenate([last, drawer.permute(values)])
            if (permuted[1:] <= permuted[:-1]).any():
                faults.append(f"{base.path.name}: drawer {drawer.number} is out of order")
                break
            last = permuted[-1:]
            found.add(mixed_rows(seed, values))
        sums.append(found)
    if not faults and any(one != sums[0] for one in sums):
        faults.append(f"{base.path.name}: its drawers have different fingerprints")
    return faults
