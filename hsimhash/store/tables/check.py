"""Compare the two files of a part in a folder of tables: checksums, drawers, documents and ids."""

from __future__ import annotations

from collections.abc import Callable
from secrets import randbits

import numpy as np

from hsimhash.fingerprint.bits import Int64s
from hsimhash.rowkey import KEY_FLAG, distinct_rows, key_rows
from hsimhash.store.base import Record
from hsimhash.store.base_files.base_check import GLANCE_ROWS, RowSum, misfiled, mixed_rows
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.base_files.base_format import DamagedBaseError
from hsimhash.store.lmdb.codec import digest
from hsimhash.store.tables.documents_file import DocumentsFile

_AT_ONCE = 20_000  # number of fingerprints, or of id buckets, checked at a time


def check_part(part: DocumentsFile, record: Record, advance: Callable[[int], None]) -> None:
    """Raise `DamagedBaseError` unless a part is intact and has exactly the rows that its documents need.

    Args:
        part: Documents of the part, with its base.
        record: Record of the index.
        advance: Called repeatedly with the number of documents checked so far.
    """
    part.base.blocks.verify_all()
    part.blocks.verify_all()
    for fault in misfiled(part.base):
        raise DamagedBaseError(fault)
    seed = np.uint64(randbits(64) | 1)
    if _needed_key_rows(part, record, seed, advance) != _key_rows(part.base, seed):
        raise DamagedBaseError(f"{part.base.path.name}: the rows of the key drawer do not match {part.path.name}")
    _check_ids(part, seed)


def _needed_key_rows(part: DocumentsFile, record: Record, seed: np.uint64, advance: Callable[[int], None]) -> RowSum:
    """Return the sum of the key drawer rows that the documents need; check the order of the documents."""
    needed, end = RowSum(), 0
    for place in range(0, part.base.rows, _AT_ONCE):
        first, stop = part.bounds_of(np.arange(place, min(place + _AT_ONCE, part.base.rows)))
        if first[0] != end or (first[1:] != stop[:-1]).any() or (first >= stop).any():
            raise DamagedBaseError(
                f"{part.path.name}: documents with the same fingerprint are not stored next to each other"
            )
        end = int(stop[-1])
        columns = part.page(int(first[0]), end)
        fingerprints = columns.signatures.fingerprints
        is_same = fingerprints[1:] == fingerprints[:-1]
        if any(columns.ids[at] >= columns.ids[at + 1] for at in np.flatnonzero(is_same).tolist()):
            raise DamagedBaseError(f"{part.path.name}: the ids of a fingerprint are out of order")
        if record.has_signatures:
            prefixes, filed = distinct_rows(*key_rows(record.keying, columns.signatures.keys, fingerprints))
            needed.add(mixed_rows(seed, filed, prefixes))
        advance(end)
    if end != part.documents:
        raise DamagedBaseError(f"{part.path.name}: {part.documents - end:,} documents do not have a fingerprint")
    return needed


def _key_rows(base: Base, seed: np.uint64) -> RowSum:
    """Return the sum of the key drawer's rows."""
    found = RowSum()
    for start in range(0, base.key_rows, GLANCE_ROWS):
        rows = base.key_part(start, min(start + GLANCE_ROWS, base.key_rows))
        if (rows["segment"][1:] < rows["segment"][:-1]).any():
            raise DamagedBaseError(f"{base.path.name}: the key drawer is out of order")
        prefixes = rows["segment"].astype(np.uint64) << np.uint64(8) | np.uint64(KEY_FLAG)
        found.add(mixed_rows(seed, rows["fingerprint"].astype(np.uint64), prefixes))
    return found


def _check_ids(part: DocumentsFile, seed: np.uint64) -> None:
    """Raise `DamagedBaseError` if a document is not in the bucket of its id."""
    bits, found, every = part.header.bucket_bits, RowSum(), RowSum()
    for start in range(0, 1 << bits, _AT_ONCE):
        stop = min(start + _AT_ONCE, 1 << bits)
        numbers, counts = part.numbers_of_buckets(start, stop)
        found.add(mixed_rows(seed, numbers.astype(np.uint64)))
        buckets: Int64s = np.repeat(np.arange(start, stop), counts)
        own = [int.from_bytes(digest(one)[:8], "big") >> 64 - bits for one in part.columns(numbers).ids]
        if own != buckets.tolist():
            raise DamagedBaseError(f"{part.path.name}: a document is not in the bucket of its id")
    for start in range(0, part.documents, GLANCE_ROWS):
        every.add(mixed_rows(seed, np.arange(start, min(start + GLANCE_ROWS, part.documents), dtype=np.uint64)))
    if found != every:
        raise DamagedBaseError(f"{part.path.name}: some documents cannot be found by id")
