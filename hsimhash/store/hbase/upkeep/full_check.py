"""A full check: scan all cells, range by range, and compare them by sorting; mismatched cells are suspect.

Each range produces four files, which are sorted by fingerprint: the contents of its listings, the contents of its
registers, the fingerprints of its drawer rows, and the fingerprints and keys of its rows in the key drawer. In these
files, ids are represented by hashes with the walk's own seed. Then the files are compared, one part of the fingerprints
at a time:

| suspect | because |
|---|---|
| a listing | no register matches it |
| a register | the document is not listed, or a row of its fingerprint is missing from a drawer or the key drawer |
| a drawer row | no register has its fingerprint (in the key drawer, its fingerprint and key) |

Other processes write during the check, so a suspect may be correct. Each suspect is read again, and `audit.py` applies
its rules.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import mmh3
import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Bools, Uint8s, Uint64s, are_in, sorted_distinct
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
    key_rows,
    prefix_numbers_of,
    register_numbers,
    register_rowkeys,
    rowkeys_of,
)
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, Cell, CellArrays, Gateway
from hsimhash.store.hbase.gateway.batches import slices
from hsimhash.store.hbase.rows.cells import Orphan, is_text, register_columns
from hsimhash.store.hbase.upkeep.audit import PAGE_COLUMNS, PAGE_ROWS, listings_in, pages, rest_of_row
from hsimhash.store.hbase.upkeep.range_jobs import Bounds, RangeTask
from hsimhash.store.runs import write_array

PART_BYTES = 1 << 26  # bytes of the files to compare at a time
_HELD = 1 << 16  # cells of documents that are buffered before they are examined

_LISTED = np.dtype([("fingerprint", "u8"), ("id", "u8")])
# `segment` and `rest` identify the register's row.
_FILED = np.dtype([*_LISTED.descr, ("key", "u8"), ("segment", "u4"), ("rest", "u8")])
_ROW = np.dtype([("fingerprint", "u8")])
_KEYED = np.dtype([("fingerprint", "u8"), ("prefix", "u8")])
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, with bits that look random


class Compared(NamedTuple):
    """The data that a full check compares, from one range or for one part of the fingerprints."""

    listed: Any  # these four are arrays with a "fingerprint" column, or `OnDisk`
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
        """The size in bytes."""
        return self.path.stat().st_size


class Surveyed(NamedTuple):
    """The findings in a range; the cells in `odd` are always suspect, and `part` remains to be compared."""

    documents: int
    drawer_rows: int
    odd: list[tuple[bytes, bytes, bytes]]  # family, row, qualifier
    hours: list[int]  # hours with entries in the log of orphans
    part: Compared


def survey_range(gateway: Gateway, task: RangeTask, removed_before: int = -1) -> Surveyed:
    """Scan a range; registers of documents removed up to a time (ms since 1970) are always suspect."""
    documents = _Documents(task.seed, removed_before)
    documents.read(gateway, task.bounds)
    rows, odd = _drawer_rows(gateway, task)
    fingerprints = fingerprints_of(rows)
    is_key_row: Bools = (rows[:, SEGMENT_BYTES] == KEY_FLAG) & task.record.has_signatures
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
        Compared(*(part[np.argsort(part["fingerprint"])] for part in found)),
    )


def survey_to_files(gateway: Gateway, task: RangeTask, *, removed_before: int = -1) -> Any:
    """Scan a range, write the data for the comparison to files, and return the other findings for `surveyed_in`."""
    documents, drawer_rows, odd, hours, part = survey_range(gateway, task, removed_before)
    for kind, array in zip(Compared._fields, part, strict=True):
        write_array(_file(task.folder, task.number, kind), array)
    return documents, drawer_rows, [[part.hex() for part in cell] for cell in odd], hours


def surveyed_in(folder: Path, results: Sequence[Any]) -> list[Surveyed]:
    """Return the findings from the results of `survey_to_files`, ordered by range, without reading the files."""
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
    """Return the rows in family `f` that may be correct, and the cells that are certainly wrong."""
    rows = gateway.drawer_rows(*task.bounds)
    if rows is not None:
        return rows, []
    whole, odd = list[bytes](), list[tuple[bytes, bytes, bytes]]()
    for cell in chain.from_iterable(pages(gateway, DRAWER_FAMILY, bounds=task.bounds)):
        if len(cell.row) == ROWKEY_BYTES and not cell.qualifier:
            whole.append(cell.row)
        else:
            odd.append((DRAWER_FAMILY, cell.row, cell.qualifier))
    return np.frombuffer(b"".join(whole), np.uint8).reshape(-1, ROWKEY_BYTES), odd


def _is_right(record: Record, rows: Uint8s, fingerprints: Uint64s) -> Bools:
    """Return whether each row is the row of its fingerprint in its drawer."""
    prefixes, is_right = prefix_numbers_of(rows), np.zeros(len(rows), np.bool_)
    for drawer in record.layout.drawers:
        its = np.flatnonzero(rows[:, SEGMENT_BYTES] == drawer.number)
        segments = drawer.segments(fingerprints[its]).astype(np.uint64)
        is_right[its] = prefixes[its] >> np.uint64(8) == segments
    return is_right


def _hashed(doc_id: bytes, seed: int) -> int:
    """Return a hash of an id; ids with equal hashes cannot be constructed without knowing the seed."""
    number: int = mmh3.hash64(doc_id, seed, signed=False)[0]
    return number


class _Documents:
    """The cells in family `d`, examined in batches."""

    def __init__(self, seed: int, removed_before: int) -> None:
        self._seed, self._removed_before = seed, removed_before
        self._held = list[CellArrays]()
        self._listed, self._filed = list[NDArray[np.void]](), list[NDArray[np.void]]()
        self.odd: list[tuple[bytes, bytes, bytes]] = []  # family, row, qualifier
        self.hours = set[int]()

    def read(self, gateway: Gateway, bounds: Bounds) -> None:
        """Read the cells of a range."""
        start, stop = bounds
        limits = {"limit": PAGE_ROWS, "columns": PAGE_COLUMNS}
        while (page := gateway.columns(start, stop, DOCUMENT_FAMILY, **limits)) is not None:
            if not len(page.rows):
                return
            self._take(page)
            for place in _ends_of_wide(page.rows).tolist():
                for more in rest_of_row(gateway, DOCUMENT_FAMILY, page.cell(place)):
                    self._take(CellArrays.of(more))
            start = page.rows[-1].tobytes() + b"\x00"
        for cells in pages(gateway, DOCUMENT_FAMILY, bounds=(start, stop)):
            whole = list[Cell]()
            for cell in cells:
                (whole.append if len(cell.row) == ROWKEY_BYTES else self._suspect)(cell)
            self._take(CellArrays.of(whole))

    def _take(self, page: CellArrays) -> None:
        self._held.append(page)
        if sum(len(one.rows) for one in self._held) >= _HELD:
            self._pack()

    def _suspect(self, cell: Cell) -> None:
        self.odd.append((DOCUMENT_FAMILY, cell.row, cell.qualifier))

    def _pack(self) -> None:
        """Convert the buffered pages to arrays."""
        cells, self._held = CellArrays.joined(self._held), []
        flags, right = cells.rows[:, SEGMENT_BYTES], _are_text(cells.qualifiers)
        prefixes, fingerprints = prefix_numbers_of(cells.rows), fingerprints_of(cells.rows)
        segments, ids = prefixes >> np.uint64(8), self._hashes(cells.qualifiers)
        is_listing = right & (flags == DOCUMENTS_FLAG) & (segments == fingerprints >> np.uint64(32))
        self._listed.append(_table(_LISTED, fingerprint=fingerprints[is_listing], id=ids[is_listing]))
        registers = np.flatnonzero(right & (flags == REGISTER_FLAG))
        digests = register_numbers([cells.qualifiers[place] for place in registers.tolist()])
        registers = registers[(segments[registers] == digests[0]) & (fingerprints[registers] == digests[1])]
        is_filed, is_removed, own, keys = register_columns([cells.values[place] for place in registers.tolist()])
        filed = registers[is_filed]
        self._filed.append(
            _table(_FILED, fingerprint=own, id=ids[filed], key=keys, segment=segments[filed], rest=fingerprints[filed])
        )
        is_old = cells.timestamps[registers] <= self._removed_before
        is_sound = is_listing.copy()
        is_sound[registers] = is_filed | is_removed & ~is_old
        for place in np.flatnonzero(~is_sound).tolist():
            cell = cells.cell(place)
            if orphan := Orphan.of(cell):
                self.hours.add(orphan.hour)
            else:
                self._suspect(cell)

    def _hashes(self, doc_ids: list[bytes]) -> Uint64s:
        return np.array([_hashed(doc_id, self._seed) for doc_id in doc_ids], np.uint64)

    def arrays(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return all listings and registers."""
        self._pack()
        return np.concatenate(self._listed), np.concatenate(self._filed)


def _ends_of_wide(rows: Uint8s) -> NDArray[np.intp]:
    """Return the index of the last cell of each row that may have more cells."""
    before = PAGE_COLUMNS - 1
    return np.flatnonzero((rows[before:] == rows[: max(len(rows) - before, 0)]).all(axis=1)) + before


def _are_text(doc_ids: list[bytes]) -> Bools:
    try:
        b"\n".join(doc_ids).decode()
    except UnicodeDecodeError:
        return np.array(list(map(is_text, doc_ids)))
    return np.ones(len(doc_ids), np.bool_)


def _table(dtype: Any, **columns: NDArray[Any]) -> NDArray[np.void]:
    made: NDArray[np.void] = np.empty(len(columns["fingerprint"]), dtype)
    for name, column in columns.items():
        made[name] = column
    return made


class FullCheck:
    """The findings in all ranges, and the suspects among them.

    Args:
        gateway: Gateway to the table.
        record: Index record.
        seed: Seed of the hashes that represent ids.
        ranges: Findings in each range.
        part_bytes: See `PART_BYTES`.
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
        """Yield the suspect cells of a family with their current contents, in pages."""
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
        """Yield the data of all ranges, one part of the fingerprints at a time."""
        count = 1 + sum(array.nbytes for one in self._ranges for array in one.part) // self._part_bytes
        for number in range(count):
            edges = (number << 64) // count, (number + 1 << 64) // count
            columns = zip(*(one.part for one in self._ranges), strict=True)
            yield Compared(*(np.concatenate([_within(array, *edges) for array in arrays]) for arrays in columns))

    # The suspects of a part.

    def _listings_of(self, part: Compared) -> Iterator[list[Cell]]:
        listed = part.listed[~_is_in(_marks(part.listed), _marks(part.filed))]
        wanted = set(listed["id"].tolist())
        rows = map(documents_rowkey, dict.fromkeys(listed["fingerprint"].tolist()))
        for some in _batches(rows):
            for page in listings_in(self._gateway, some):
                yield [cell for cell in page if _hashed(cell.qualifier, self._seed) in wanted]

    def _registers_of(self, part: Compared) -> Iterator[list[Cell]]:
        filed = part.filed
        is_listed = _is_in(_marks(filed), _marks(part.listed))
        is_whole = _counts_in(filed["fingerprint"], part.rows["fingerprint"]) == len(self._record.layout.drawers)
        parts = self._record.keying.parts(filed["key"])
        needed = _mixed(filed["fingerprint"][:, None], key_numbers(parts))
        is_filed = (parts == 0) | _is_in(needed.ravel(), _keyed_marks(part.keyed)).reshape(needed.shape)
        is_keyed = is_filed.all(axis=1) | (not self._record.has_signatures)
        suspect = filed[~(is_listed & is_whole & is_keyed)]
        segments = suspect["segment"].astype(np.uint64)
        rows = register_rowkeys(segments, suspect["rest"])
        for some in _batches(row.tobytes() for row in rows):
            yield list(chain.from_iterable(self._gateway.cells_of(some, DOCUMENT_FAMILY, limit=PAGE_COLUMNS)))

    def _rows_of(self, part: Compared) -> Iterator[bytes]:
        own = part.rows["fingerprint"]
        left = sorted_distinct(own[~_is_in(own, part.filed["fingerprint"])])
        yield from (row.tobytes() for row in encode(self._record.layout, left).reshape(-1, ROWKEY_BYTES))
        prefixes, fingerprints = key_rows(self._record.keying, part.filed["key"], part.filed["fingerprint"])
        keyed = part.keyed[~_is_in(_keyed_marks(part.keyed), _mixed(fingerprints, prefixes))]
        yield from (row.tobytes() for row in rowkeys_of(keyed["prefix"], keyed["fingerprint"]))


def _within(stored: NDArray[np.void] | OnDisk, low: int, high: int) -> NDArray[np.void]:
    """Return the entries with fingerprints in [low, high)."""
    if isinstance(stored, OnDisk):  # opened only now, because there may be more files than a process may keep open
        stored = np.memmap(*stored, "r") if stored.nbytes else np.empty(0, stored.dtype)
    column = stored["fingerprint"]
    start, stop = (bisect_left(column, edge, key=int) for edge in (low, high))
    return np.array(stored[start:stop])


def _counts_in(numbers: Uint64s, others: Uint64s) -> NDArray[np.intp]:
    """Return how often each number occurs in `others`; fast if both consist of sorted runs."""
    ordered = np.sort(others, kind="stable")
    return np.searchsorted(ordered, numbers, "right") - np.searchsorted(ordered, numbers)


def _is_in(numbers: Uint64s, others: Uint64s) -> Bools:
    """Return whether each number occurs in `others`; fast if `others` consists of sorted runs."""
    return are_in(numbers, np.sort(others, kind="stable"))


def _marks(documents: NDArray[np.void]) -> Uint64s:
    """Return a number for each fingerprint with its id."""
    return _mixed(documents["fingerprint"], documents["id"])


def _keyed_marks(rows: NDArray[np.void]) -> Uint64s:
    """Return a number for each row of the key drawer."""
    return _mixed(rows["fingerprint"], rows["prefix"])


def _mixed(fingerprints: Uint64s, others: Uint64s) -> Uint64s:
    return fingerprints * _MIX ^ others


def _batches(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    whole = list(rows)
    return (whole[part] for part in slices(len(whole), PAGE_ROWS))
