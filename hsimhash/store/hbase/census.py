"""The census of a check: all cells scanned, in ranges, and compared by sorting; what does not fit is suspect.

A range leaves four files, each sorted by fingerprint: what its listings and its registers say, and the fingerprints
and keys of its drawer rows. An id is a number here, a hash with a seed of the walk's own. Then, one part of the
fingerprints after the other:

| suspect | because |
|---|---|
| a listing | no register says so |
| a register | nothing lists the document; or a row of its fingerprint is missing in a drawer, or in the key drawer |
| a drawer row | no register has its fingerprint, or in the key drawer its fingerprint and key |

Others write meanwhile, so a suspect may be sound. It is read again, and `audit.py` judges it by its rules.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import mmh3
import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import CorruptionError
from hsimhash.fingerprint.bits import Bools, Uint8s, Uint64s
from hsimhash.fingerprint.signature import Signature, Signatures
from hsimhash.rowkey import (
    DOCUMENTS_FLAG,
    KEY_FLAG,
    REGISTER_FLAG,
    ROWKEY_BYTES,
    SEGMENT_BYTES,
    documents_rowkey,
    encode,
    fingerprints_of,
    key_numbers,
    prefix_numbers_of,
    register_numbers,
    rowkeys_of,
)
from hsimhash.store.base import Record
from hsimhash.store.hbase.audit import PAGE_COLUMNS, PAGE_ROWS, listings_in, pages
from hsimhash.store.hbase.batches import slices
from hsimhash.store.hbase.cells import Orphan, is_listing, is_text, parsed, row_flag
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, DRAWER_FAMILY, Cell, Gateway
from hsimhash.store.hbase.walk import RangeTask
from hsimhash.store.runs import write_array

PART_BYTES = 1 << 26  # of files, compared at once
_HELD = 1 << 18  # cells of documents that are held as tuples

_LISTED = np.dtype([("fingerprint", "u8"), ("id", "u8")])
_FILED = np.dtype([*_LISTED.descr, ("key", "u8"), ("segment", "u4"), ("rest", "u8")])  # and the register's row
_ROW = np.dtype([("fingerprint", "u8")])
_KEYED = np.dtype([("fingerprint", "u8"), ("prefix", "u8")])
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits as good as random


class Compared(NamedTuple):
    """What a part of the fingerprints has, of all ranges."""

    listed: Any  # each an array with a column "fingerprint", or a `OnDisk`
    filed: Any
    rows: Any
    keyed: Any


_KINDS = Compared(_LISTED, _FILED, _ROW, _KEYED)


class OnDisk(NamedTuple):
    """An array in a file, sorted by fingerprint."""

    path: Path
    dtype: Any

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return self.path.stat().st_size


class Surveyed(NamedTuple):
    """What a range has: how many documents and drawer rows, the cells that are suspect by themselves, the rest."""

    documents: int
    drawer_rows: int
    odd: list[tuple[bytes, bytes, bytes]]  # family, row, qualifier
    hours: list[int]  # of which the log of orphans has entries
    part: Compared


def survey_range(gateway: Gateway, task: RangeTask, removed_before: int = -1) -> Surveyed:
    """Scan a range; suspect by themselves are also registers of documents removed before a time (ms since 1970)."""
    documents = _Documents(task.seed, removed_before)
    for page in pages(gateway, DOCUMENT_FAMILY, bounds=task.bounds):
        documents.take(page)
    rows, odd = _drawer_rows(gateway, task)
    fingerprints, is_key_row = fingerprints_of(rows), _is_key_row(task.record, rows)
    is_right = _is_right(task.record, rows, fingerprints) | is_key_row
    odd += [(DRAWER_FAMILY, row.tobytes(), b"") for row in rows[~is_right]]
    keyed = np.empty(int(is_key_row.sum()), _KEYED)
    keyed["fingerprint"], keyed["prefix"] = fingerprints[is_key_row], prefix_numbers_of(rows[is_key_row])
    found = Compared(*documents.arrays(), fingerprints[is_right & ~is_key_row].view(_ROW), keyed)
    return Surveyed(
        len(found.filed),
        int(is_right.sum()),
        odd + documents.odd,
        sorted(documents.hours),
        Compared(*map(_sorted, found)),
    )


def _sorted(found: NDArray[np.void]) -> NDArray[np.void]:
    ordered: NDArray[np.void] = found[np.argsort(found["fingerprint"])]
    return ordered


def survey_to_files(gateway: Gateway, task: RangeTask, *, removed_before: int = -1) -> Any:
    """Scan a range, write what is to be compared, and return the rest for `surveyed_in`."""
    documents, drawer_rows, odd, hours, part = survey_range(gateway, task, removed_before)
    for kind, array in zip(Compared._fields, part, strict=True):
        write_array(_file(task.folder, task.number, kind), array)
    return documents, drawer_rows, [[part.hex() for part in cell] for cell in odd], hours


def surveyed_in(folder: Path, results: Sequence[Any]) -> list[Surveyed]:
    """Return what `survey_to_files` wrote and returned, range by range; the files are not read yet."""
    found = []
    for number, (documents, drawer_rows, odd, hours) in enumerate(results):
        files = (_file(folder, number, kind) for kind in Compared._fields)
        compared = Compared(*map(OnDisk, files, _KINDS))
        cells = [
            (bytes.fromhex(family), bytes.fromhex(row), bytes.fromhex(qualifier)) for family, row, qualifier in odd
        ]
        found.append(Surveyed(documents, drawer_rows, cells, hours, compared))
    return found


def _file(folder: Path, number: int, kind: str) -> Path:
    return folder / f"{number:06d}.{kind}"


def _drawer_rows(gateway: Gateway, task: RangeTask) -> tuple[Uint8s, list[tuple[bytes, bytes, bytes]]]:
    """Return the rows of the family `f` that may be right, and the cells that cannot be."""
    try:
        if not gateway.rows(*task.bounds, DRAWER_FAMILY, limit=1, having="qualifier"):
            return gateway.scan([task.bounds]), []
    except CorruptionError:  # rows of another length
        pass
    whole, odd = list[bytes](), list[tuple[bytes, bytes, bytes]]()
    for cell in chain.from_iterable(pages(gateway, DRAWER_FAMILY, bounds=task.bounds)):
        if len(cell.row) == ROWKEY_BYTES and not cell.qualifier:
            whole.append(cell.row)
        else:
            odd.append((DRAWER_FAMILY, cell.row, cell.qualifier))
    return np.frombuffer(b"".join(whole), np.uint8).reshape(-1, ROWKEY_BYTES), odd


def _is_key_row(record: Record, rows: Uint8s) -> Bools:
    is_one: Bools = (rows[:, SEGMENT_BYTES] == KEY_FLAG) & record.has_signatures
    return is_one


def _is_right(record: Record, rows: Uint8s, fingerprints: Uint64s) -> Bools:
    """Whether each row is the one that its fingerprint has in its drawer."""
    prefixes, is_right = prefix_numbers_of(rows), np.zeros(len(rows), np.bool_)
    for drawer in record.layout.drawers:
        its = np.flatnonzero(rows[:, SEGMENT_BYTES] == drawer.number)
        segments = drawer.segments(fingerprints[its]).astype(np.uint64)
        is_right[its] = prefixes[its] >> np.uint64(8) == segments
    return is_right


def _hashed(doc_id: bytes, seed: int) -> int:
    """Return a number for an id, which nobody can choose who does not know the seed."""
    number: int = mmh3.hash64(doc_id, seed, signed=False)[0]
    return number


class _Documents:
    """What cells of the family `d` say; they are looked at many at a time."""

    def __init__(self, seed: int, removed_before: int) -> None:
        self._seed, self._removed_before = seed, removed_before
        self._listings, self._registers = list[Cell](), list[Cell]()
        self._arrays: tuple[list[NDArray[np.void]], list[NDArray[np.void]]] = [], []
        self.odd: list[tuple[bytes, bytes, bytes]] = []  # family, row, qualifier
        self.hours = set[int]()

    def take(self, cells: Sequence[Cell]) -> None:
        """Take a page."""
        for cell in cells:
            flag = row_flag(cell.row)
            if flag == DOCUMENTS_FLAG:
                self._listings.append(cell)
            elif flag == REGISTER_FLAG:
                self._registers.append(cell)
            elif orphan := Orphan.of(cell):
                self.hours.add(orphan.hour)
            else:
                self._suspect(cell)
        if len(self._listings) + len(self._registers) >= _HELD:
            self._pack()

    def _suspect(self, cell: Cell) -> None:
        self.odd.append((DOCUMENT_FAMILY, cell.row, cell.qualifier))

    def _pack(self) -> None:
        """Hold as arrays what is held as cells, in a tenth of the memory."""
        self._arrays[0].append(self._listed(self._listings))
        self._arrays[1].append(self._filed(self._registers))
        self._listings, self._registers = [], []

    def _listed(self, cells: list[Cell]) -> NDArray[np.void]:
        cells = self._without(cells, [is_listing(cell.row) for cell in cells])
        found = np.empty(len(cells), _LISTED)
        found["fingerprint"] = fingerprints_of(_rows_of(cells))
        found["id"] = self._hashes(cells)
        return found

    def _filed(self, cells: list[Cell]) -> NDArray[np.void]:
        rows = _rows_of(cells)
        segments, rests = register_numbers(cell.qualifier for cell in cells)
        is_right = (prefix_numbers_of(rows) >> np.uint64(8) == segments) & (fingerprints_of(rows) == rests)
        cells = self._without(cells, is_right.tolist())
        signatures, filed = list[Signature](), list[Cell]()
        for cell in cells:
            register = parsed(cell)
            if register is not None and register.signature is not None:
                signatures.append(register.signature)
                filed.append(cell)
            elif register is None or cell.timestamp <= self._removed_before:
                self._suspect(cell)
        found, several, rows = np.empty(len(filed), _FILED), Signatures.collected(signatures), _rows_of(filed)
        found["fingerprint"], found["key"] = several.fingerprints, several.keys
        found["segment"], found["rest"] = prefix_numbers_of(rows) >> np.uint64(8), fingerprints_of(rows)
        found["id"] = self._hashes(filed)
        return found

    def _without(self, cells: list[Cell], is_right: list[bool]) -> list[Cell]:
        """Return the cells that are right, and whose ids are text; the others are suspect."""
        try:
            b"\n".join([cell.qualifier for cell in cells]).decode()
        except UnicodeDecodeError:
            is_right = [is_one and is_text(cell.qualifier) for cell, is_one in zip(cells, is_right, strict=True)]
        if all(is_right):
            return cells
        for cell, is_one in zip(cells, is_right, strict=True):
            if not is_one:
                self._suspect(cell)
        return list(compress(cells, is_right))

    def _hashes(self, cells: list[Cell]) -> list[int]:
        return [_hashed(cell.qualifier, self._seed) for cell in cells]

    def arrays(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return listings and registers."""
        self._pack()
        return np.concatenate(self._arrays[0]), np.concatenate(self._arrays[1])


def _rows_of(cells: Iterable[Cell]) -> Uint8s:
    return np.frombuffer(b"".join([cell.row for cell in cells]), np.uint8).reshape(-1, ROWKEY_BYTES)


class Census:
    """What all ranges have, and the suspects among it.

    Args:
        gateway: to the table.
        record: of the index.
        seed: of the ids' numbers.
        ranges: what each has.
        part_bytes: see `PART_BYTES`.
    """

    def __init__(
        self, gateway: Gateway, record: Record, seed: int, ranges: Sequence[Surveyed], part_bytes: int = PART_BYTES
    ) -> None:
        self._gateway, self._record, self._seed = gateway, record, seed
        self._ranges, self._part_bytes = ranges, part_bytes
        self.documents = sum(one.documents for one in ranges)
        self.drawer_rows = sum(one.drawer_rows for one in ranges)
        self.hours = {hour for one in ranges for hour in one.hours}

    def suspects(self, family: bytes) -> Iterator[list[Cell]]:
        """Yield the cells of a family that are suspect, as they are now, in pages."""
        odd = [(row, qualifier) for one in self._ranges for its, row, qualifier in one.odd if its == family]
        yield from self._cells(odd, family)
        for part in self._parts():
            if family == DRAWER_FAMILY:
                yield from self._cells([(row, b"") for row in self._rows_of(part)], family)
            else:
                yield from self._listings_of(part)
                yield from self._registers_of(part)

    def _cells(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> Iterator[list[Cell]]:
        for part in slices(len(keys), PAGE_ROWS):
            yield [cell for cell in self._gateway.get(keys[part], family) if cell is not None]

    # The parts.

    def _parts(self) -> Iterator[Compared]:
        """Yield what is there, by ranges of fingerprints."""
        count = 1 + sum(array.nbytes for one in self._ranges for array in one.part) // self._part_bytes
        for number in range(count):
            edges = (number << 64) // count, (number + 1 << 64) // count
            columns = zip(*(one.part for one in self._ranges), strict=True)
            yield Compared(*(np.concatenate([_within(array, *edges) for array in arrays]) for arrays in columns))

    # The suspects of a part.

    def _listings_of(self, part: Compared) -> Iterator[list[Cell]]:
        listed = part.listed[~np.isin(_marks(part.listed), _marks(part.filed))]
        wanted = set(listed["id"].tolist())
        rows = map(documents_rowkey, dict.fromkeys(listed["fingerprint"].tolist()))
        for some in _batches(rows):
            for page in listings_in(self._gateway, some):
                yield [cell for cell in page if _hashed(cell.qualifier, self._seed) in wanted]

    def _registers_of(self, part: Compared) -> Iterator[list[Cell]]:
        filed = part.filed
        is_listed = np.isin(_marks(filed), _marks(part.listed))
        own, counts = np.unique(part.rows["fingerprint"], return_counts=True)
        is_whole = np.isin(filed["fingerprint"], own[counts == len(self._record.layout.drawers)])
        prefixes = key_numbers(filed["key"])
        is_keyed = np.isin(
            _mixed(filed["fingerprint"], prefixes), _mixed(part.keyed["fingerprint"], part.keyed["prefix"])
        )
        is_keyed |= (filed["key"] == 0) | (not self._record.has_signatures)
        suspect = filed[~(is_listed & is_whole & is_keyed)]
        segments = suspect["segment"].astype(np.uint64)
        rows = rowkeys_of(segments << np.uint64(8) | np.uint64(REGISTER_FLAG), suspect["rest"])
        for some in _batches(row.tobytes() for row in rows):
            yield list(chain.from_iterable(self._gateway.cells_of(some, DOCUMENT_FAMILY, limit=PAGE_COLUMNS)))

    def _rows_of(self, part: Compared) -> Iterator[bytes]:
        left = np.setdiff1d(part.rows["fingerprint"], part.filed["fingerprint"])
        yield from (row.tobytes() for row in encode(self._record.layout, left).reshape(-1, ROWKEY_BYTES))
        filed = part.filed[part.filed["key"] != 0]
        needed = _mixed(filed["fingerprint"], key_numbers(filed["key"]))
        keyed = part.keyed[~np.isin(_keyed_marks(part.keyed), needed)]
        yield from (row.tobytes() for row in rowkeys_of(keyed["prefix"], keyed["fingerprint"]))


def _within(stored: NDArray[np.void] | OnDisk, low: int, high: int) -> NDArray[np.void]:
    """Return what is there of fingerprints in [low, high)."""
    if isinstance(stored, OnDisk):  # opened for now: there may be more files than a process may have open
        stored = np.memmap(*stored, "r") if stored.nbytes else np.empty(0, stored.dtype)
    column = stored["fingerprint"]
    start, stop = (bisect_left(column, edge, key=int) for edge in (low, high))
    return np.array(stored[start:stop])


def _marks(documents: NDArray[np.void]) -> Uint64s:
    """Return a number for each pair of fingerprint and id."""
    return _mixed(documents["fingerprint"], documents["id"])


def _keyed_marks(rows: NDArray[np.void]) -> Uint64s:
    """Return a number for each row of the key drawer."""
    return _mixed(rows["fingerprint"], rows["prefix"])


def _mixed(fingerprints: Uint64s, others: Uint64s) -> Uint64s:
    return fingerprints * _MIX ^ others


def _batches(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    whole = list(rows)
    return (whole[part] for part in slices(len(whole), PAGE_ROWS))
