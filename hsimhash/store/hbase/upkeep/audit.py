"""The rules of `check` on HBase: which registers, listings and drawer rows are wrong or left over, and the repairs.

They apply to suspects from `full_check.py`, to a sample, or to the cells that the log of orphans names (`collect.py`).

| finding | meaning | repair |
|---|---|---|
| a register whose fingerprint does not list it, or is not in all drawers ¹ | problem: may be missed | rows added |
| an unreadable register | problem: the document is lost | deleted; add the document again |
| a cell in a row where it does not belong | problem | deleted |
| a listing that its register contradicts | leftover of a move, a removal or an interrupted write | deleted |
| a drawer row whose fingerprint lists nothing | leftover | deleted |
| a row of the key drawer whose fingerprint does not list a document with that key | leftover | deleted |
| the register of a document removed long ago | neither problem nor leftover | deleted |

¹ Including the key drawer, if it has a key.

Other processes write during a check, and their calls may take effect late. So a check deletes only cells that were
settled when it began (see `Times`). The time at which it began is the server's timestamp of a cell written for this
purpose. A deletion uses the timestamp that was read *before* the evidence against the cell, so later puts are
kept.

A sample has a given number of documents and drawer rows from the whole table, chosen anew in each run. The key range is
divided into strata of equal size. In each stratum, rows are read starting at a random position; if the stratum ends too
soon, the remaining rows are read from its start. Registers are distributed evenly because their rows begin with a
digest; listings and drawer rows are distributed like the fingerprints.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, compress

import numpy as np

from hsimhash.errors import CorruptionError
from hsimhash.fingerprint.signature import Signature
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import (
    FINGERPRINT_BYTES,
    KEY_FLAG,
    PREFIX_BYTES,
    RECORD_ROWKEY,
    ROWKEY_BYTES,
    SEGMENT_BYTES,
    documents_rowkey,
    encode,
    fingerprints_of,
)
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.base import (
    DOCUMENT_FAMILY,
    DRAWER_FAMILY,
    RECORD_FAMILY,
    Cell,
    Deletion,
    Gateway,
    Having,
    Put,
)
from hsimhash.store.hbase.rows.cells import (
    COLLECTED,
    SEGMENTS,
    TABLE_START,
    TABLE_STOP,
    Orphan,
    is_listing,
    is_register,
    is_text,
    listing_key,
    parsed,
    register_key,
    row_flag,
    rows_of_key,
    segment_key,
    segment_of,
    signature_in,
)
from hsimhash.store.hbase.rows.protocol import Times, end_load, loads_begun, put_drawer_rows, put_listings
from hsimhash.store.reports import CheckReport

PAGE_ROWS = 1_000  # rows read by one call; bounds memory, together with the next two
PAGE_COLUMNS = 16  # cells read first from a row; the remaining cells of a wide row are read in pages
PAGE_CELLS = 10_000  # cells in a page of a wide row
PROGRESS_STEPS = 1 << 12  # progress steps in one pass over the table
STRATA = 256  # strata of a sample

_log = logging.getLogger("hsimhash.store")


def pages(
    gateway: Gateway,
    family: bytes,
    *,
    bounds: tuple[bytes, bytes] = (TABLE_START, TABLE_STOP),
    flag: int | None = None,
    having: Having | None = None,
) -> Iterator[list[Cell]]:
    """Yield the cells of a family ordered by (row, qualifier), in pages; wide rows are never completely in memory.

    With `flag`, only rows with this flag are guaranteed to be complete; other rows have at least their first cells.
    With `having`, cells whose qualifier or value (whichever it names) is empty are left out, at least among a row's
    first cells.
    """
    start, stop = bounds
    while rows := gateway.rows(start, stop, family, limit=PAGE_ROWS, columns=PAGE_COLUMNS, having=having):
        page: list[Cell] = []
        for row in rows:
            page += row
            if len(row) == PAGE_COLUMNS and flag in (None, row_flag(row[0].row)):
                for more in rest_of_row(gateway, family, page[-1]):
                    yield page
                    page = more
        yield page
        start = rows[-1][0].row + b"\x00"


def rest_of_row(gateway: Gateway, family: bytes, cell: Cell) -> Iterator[list[Cell]]:
    """Yield the cells of a row after a given cell, in pages."""
    while page := gateway.cells(cell.row, family, after=cell.qualifier, limit=PAGE_CELLS):
        yield page
        cell = page[-1]


def sampled_pages(gateway: Gateway, documents: int, seed: int, family: bytes) -> Iterator[list[Cell]]:
    """Yield a family's cells in a random sample of about `documents` documents, in order, in pages."""
    strata, rng = min(STRATA, documents), np.random.default_rng([seed, *family])
    rows_each = -(-documents // strata)
    if family == DOCUMENT_FAMILY:
        rows_each *= 2  # a document has a listing and a register
    page: list[Cell] = []
    for number in range(strata):
        low, high = number * SEGMENTS // strata, (number + 1) * SEGMENTS // strata
        page += _drawn(gateway, family, (low, int(rng.integers(low, high)), high), rows_each)
        if len(page) >= PAGE_ROWS:
            yield page
            page = []
    yield page


def _drawn(gateway: Gateway, family: bytes, segments: tuple[int, int, int], count: int) -> list[Cell]:
    """Return the cells of `count` rows between the first and the last of three segments, starting at the middle one."""
    low, middle, high = map(segment_key, segments)
    rows = gateway.rows(middle, high, family, limit=count, columns=PAGE_COLUMNS)
    if low < middle and len(rows) < count:
        rows = gateway.rows(low, middle, family, limit=count - len(rows), columns=PAGE_COLUMNS) + rows
    return [cell for row in rows for cell in row]


def server_time(gateway: Gateway) -> int:
    """Return a server's time in ms since 1970: the timestamp of a cell written to the record's row for this purpose.

    Cells with older timestamps existed before this moment, whatever this machine's clock shows.
    """
    gateway.put([Put(RECORD_ROWKEY, RECORD_FAMILY, COLLECTED, b"")])
    (cell,) = gateway.get([(RECORD_ROWKEY, COLLECTED)], RECORD_FAMILY)
    if cell is None:
        raise CorruptionError(
            f"the cell i:{COLLECTED.decode()} in row {RECORD_ROWKEY.hex()} is hidden as soon as it is written: a "
            f"delete marker's timestamp is ahead of the servers' clocks; correct the clocks, and run a major compaction"
        )
    return cell.timestamp


class Audit:
    """A run of `check`; see the module.

    Args:
        gateway: Gateway to the table.
        record: Index record. Its layout determines the drawer rows; format 2 and later have a key drawer.
        times: Minimum ages for collection.
        repair: Whether to repair problems and collect leftovers.
        observer: Receives the progress, in steps.
        pages: Returns a family's cells to check, in pages.
        is_sample: Whether the cells are a random sample instead of suspects.
    """

    def __init__(
        self,
        gateway: Gateway,
        record: Record,
        times: Times,
        *,
        repair: bool = False,
        observer: Observer = UNWATCHED,
        pages: Callable[[bytes], Iterable[list[Cell]]],
        is_sample: bool = False,
    ) -> None:
        self.gateway = gateway
        self.record = record
        self.times = times
        self.is_repair = repair
        self.observer = observer
        self._pages = pages
        self._is_sample = is_sample
        self.report = CheckReport()
        self.deleted = 0
        # Latest timestamps of cells that may be deleted; without repair, none may.
        self.settled_before = self.forgotten_before = -1
        self.ever: float = math.inf if repair else -1

    def run(self) -> CheckReport:
        """Check all pages, with repairs if requested; return the report."""
        if self.is_repair:
            now = server_time(self.gateway)
            youngest = self._before_loads(now)
            self.settled_before = min(now - round(self.times.settled_s * 1_000), youngest)
            self.forgotten_before = min(now - round(self.times.forgotten_s * 1_000), youngest)
        # Listings first: a drawer row becomes a leftover once its last listing is gone.
        for page in self._pages(DOCUMENT_FAMILY):
            self._check_documents(page)
            self._advance(0, page)
        for page in self._pages(DRAWER_FAMILY):
            self._check_drawer_rows(page)
            self._advance(1, page)
        if self.report.repaired:
            _log.info("repaired %d cells", self.report.repaired)
        return self.report

    def _before_loads(self, now: int) -> int:
        """Return the latest time before all current bulk loads via HFiles; abandon loads that are too old."""
        youngest = now
        for token, began in loads_begun(self.gateway).items():
            if now - began > self.times.load_s * 1_000:
                end_load(self.gateway, token)
                _log.warning("abandoned a bulk load that began more than %d days ago", self.times.load_s // 86_400)
            else:
                youngest = min(youngest, began - 1)
        return youngest

    def _advance(self, family: int, page: Sequence[Cell]) -> None:
        if page:
            place = segment_of(page[-1].row)
            done = (family * SEGMENTS + place) * PROGRESS_STEPS // SEGMENTS
            self.observer.report("check", done, 2 * PROGRESS_STEPS)

    def _problem(self, text: str) -> None:
        self.report.problem(text)
        self.report.repaired += self.is_repair

    def _collect(self, cells: Iterable[Cell], family: bytes, before: float) -> int:
        """Delete cells with timestamps up to `before`, at the timestamps that were read; return how many."""
        deletions = [
            Deletion(cell.row, family, cell.qualifier, cell.timestamp) for cell in cells if cell.timestamp <= before
        ]
        if deletions:
            self.gateway.delete(deletions)
        self.deleted += len(deletions)
        return len(deletions)

    def _collect_leftovers(self, cells: Sequence[Cell], family: bytes, young: Iterable[Cell] = ()) -> None:
        """Delete settled leftovers; keep the others, and the `young` ones, which are too young for another reason."""
        self.report.repaired += self._collect(cells, family, self.settled_before)
        self._leave([*young, *(cell for cell in cells if cell.timestamp > self.settled_before)])

    def _leave(self, cells: Sequence[Cell]) -> None:
        """Handle leftover listings or drawer rows that are not deleted; this class ignores them."""

    def _misfiled(self, cells: Sequence[Cell], family: bytes) -> None:
        for cell in cells:
            self._problem(f"{family.decode()}:{cell.qualifier[:80]!r} does not belong in row {cell.row.hex()}")
        self._collect(cells, family, self.ever)  # of any age, because no write creates such cells

    # Family d: listings and registers.

    def _check_documents(self, cells: Sequence[Cell]) -> None:
        listings, registers, misfiled = list[Cell](), list[Cell](), list[Cell]()
        for cell in cells:
            if is_listing(cell.row) and is_text(cell.qualifier):
                listings.append(cell)
            elif is_register(cell.row, cell.qualifier) and is_text(cell.qualifier):
                registers.append(cell)
            elif Orphan.of(cell) is None:
                misfiled.append(cell)
        self._misfiled(misfiled, DOCUMENT_FAMILY)
        self._check_listings(listings)
        self._check_registers(registers)

    def _check_listings(self, listings: Sequence[Cell]) -> None:
        contradicted, young = list[Cell](), list[Cell]()
        for cell, register in zip(listings, self._registers_of(listings), strict=True):
            fingerprint, signature = int.from_bytes(cell.row[PREFIX_BYTES:], "big"), signature_in(register)
            if signature is None or signature.fingerprint != fingerprint:
                self.report.leftover(
                    f"{_shown(cell.qualifier)} is listed under {fingerprint:016x}, but its register disagrees"
                )
                # A young register may belong to a document that is about to return to this fingerprint.
                is_settled = register is None or register.timestamp <= self.settled_before
                (contradicted if is_settled else young).append(cell)
        self._collect_leftovers(contradicted, DOCUMENT_FAMILY, young)

    def _registers_of(self, listings: Sequence[Cell]) -> list[Cell | None]:
        return self.gateway.get([register_key(cell.qualifier) for cell in listings], DOCUMENT_FAMILY)

    def _check_registers(self, cells: Sequence[Cell]) -> None:
        filed, removed, unreadable = dict[Cell, Signature](), list[Cell](), list[Cell]()
        for cell in cells:
            register = parsed(cell)
            if register is None:
                self._problem(f"the register of {_shown(cell.qualifier)} cannot be read: {cell.value[:40].hex()}")
                unreadable.append(cell)
            elif register.signature is None:
                removed.append(cell)
            else:
                filed[cell] = register.signature
        self._collect(unreadable, DOCUMENT_FAMILY, self.ever)
        self.report.documents += len(filed)
        self._check_filed(filed)
        self._collect(removed, DOCUMENT_FAMILY, self.forgotten_before)

    def _check_filed(self, filed: Mapping[Cell, Signature]) -> None:
        """Check that registers, given with their signatures, have their listings and drawer rows."""
        keys = [listing_key(signature.fingerprint, cell.qualifier) for cell, signature in filed.items()]
        listed = self.gateway.get(keys, DOCUMENT_FAMILY)
        unfiled = self._unfiled(set(filed.values()))
        lacking = [
            cell
            for cell, listing in zip(filed, listed, strict=True)
            if (listing is None or filed[cell] in unfiled) and not self._is_expiring(cell)
        ]
        if lacking:
            # Registers that were changed since they were read are not a problem.
            now = set(self.gateway.get([(cell.row, cell.qualifier) for cell in lacking], DOCUMENT_FAMILY))
            self._file({cell.qualifier: filed[cell] for cell in lacking if cell in now})

    def _unfiled(self, signatures: Set[Signature]) -> set[Signature]:
        """Return the signatures that lack a row in some drawer or, if they have a key, in the key drawer."""
        rows = [row.tobytes() for row in self.record.filed_rowkeys(signatures)]
        missing = {row for row, is_one in zip(rows, self.gateway.holds(rows), strict=True) if not is_one}
        numbers = {row[PREFIX_BYTES:] for row in missing if not self.record.is_key_row(row)}
        return {
            signature
            for signature in signatures
            if signature.fingerprint.to_bytes(FINGERPRINT_BYTES, "big") in numbers
            or not missing.isdisjoint(rows_of_key(self.record, signature))
        }

    def _is_expiring(self, register: Cell) -> bool:
        """Whether the table's TTL will soon drop the register, so that its rows, which are older, may be gone."""
        if self.times.ttl_s is None:
            return False
        age_s = self.times.wall_clock() - register.timestamp / 1_000
        return age_s > self.times.ttl_s - self.times.settled_s

    def _file(self, signatures: Mapping[bytes, Signature]) -> None:
        """Report documents that queries may miss; with repair, write their rows."""
        for doc_id, signature in signatures.items():
            self._problem(
                f"{_shown(doc_id)} (fingerprint {signature.fingerprint:016x}) is not listed, or not in all drawers"
            )
        if self.is_repair and signatures:
            put_listings(self.gateway, signatures)
            put_drawer_rows(self.gateway, self.record, signatures)

    # Family f.

    def _check_drawer_rows(self, cells: Sequence[Cell]) -> None:
        whole = [cell for cell in cells if len(cell.row) == ROWKEY_BYTES and not cell.qualifier]
        rows = np.frombuffer(b"".join(cell.row for cell in whole), np.uint8).reshape(-1, ROWKEY_BYTES)
        is_right = (encode(self.record.layout, fingerprints_of(rows)) == rows[:, None]).all(axis=2).any(axis=1)
        is_key_row = (rows[:, SEGMENT_BYTES] == KEY_FLAG) & self.record.has_signatures
        right = list(compress(whole, (is_right | is_key_row).tolist()))
        known = {cell.row for cell in right}
        self._misfiled([cell for cell in cells if cell.row not in known or cell.qualifier], DRAWER_FAMILY)
        self.report.drawer_rows += len(right)
        self._check_listed(right)

    def _check_listed(self, cells: Sequence[Cell]) -> None:
        """Check that each row's fingerprint, and in the key drawer its key, has a document."""
        rows = list(dict.fromkeys(map(_listings_of, cells)))
        listed = self.gateway.cells_of(rows, DOCUMENT_FAMILY, limit=1)
        empty = {row for row, found in zip(rows, listed, strict=True) if not found}
        left = [cell for cell in cells if _listings_of(cell) in empty]
        for cell in left:
            self.report.leftover(f"drawer row {cell.row.hex()} does not belong to a document")
        self._collect_leftovers(left, DRAWER_FAMILY)
        if not self._is_sample:  # because this would read all listings of a crowded fingerprint
            self._check_keys(
                [cell for cell in cells if self.record.is_key_row(cell.row) and _listings_of(cell) not in empty]
            )

    def _check_keys(self, cells: Sequence[Cell]) -> None:
        """Check that each row's key belongs to a document that is listed under its fingerprint."""
        filed, young = set[bytes](), set[bytes]()
        own: dict[bytes, list[bytes]] = {}
        for cell in cells:
            own.setdefault(_listings_of(cell), []).append(cell.row)
        for listings in self._listings(own, lambda row: not filed.issuperset(own[row])):
            registers = self.gateway.get([register_key(cell.qualifier) for cell in listings], DOCUMENT_FAMILY)
            for listing, register in zip(listings, registers, strict=True):
                if register is not None and register.timestamp > self.settled_before:
                    young.add(listing.row)
                signature = signature_in(register)
                if signature is not None:
                    filed.update(rows_of_key(self.record, signature))
        left = [cell for cell in cells if cell.row not in filed]
        for cell in left:
            self.report.leftover(
                f"row {cell.row.hex()} in the key drawer does not belong to a document with such a key"
            )
        # A query in progress may need the row to find a document whose key has just changed.
        settled = [cell for cell in left if _listings_of(cell) not in young]
        self._collect_leftovers(settled, DRAWER_FAMILY, (cell for cell in left if _listings_of(cell) in young))

    def _listings(self, rows: Iterable[bytes], is_wanted: Callable[[bytes], bool]) -> Iterator[list[Cell]]:
        return listings_in(self.gateway, rows, is_wanted)


def listings_in(
    gateway: Gateway, rows: Iterable[bytes], is_wanted: Callable[[bytes], bool] = lambda _: True
) -> Iterator[list[Cell]]:
    """Yield all cells of listing rows, in pages; rows for which `is_wanted` becomes false may be incomplete."""
    firsts = gateway.cells_of(list(rows), DOCUMENT_FAMILY, limit=PAGE_COLUMNS)
    yield list(chain.from_iterable(firsts))
    for page in firsts:
        while len(page) >= PAGE_COLUMNS and is_wanted(page[0].row):
            page = gateway.cells(page[-1].row, DOCUMENT_FAMILY, after=page[-1].qualifier, limit=PAGE_CELLS)
            yield page


def _listings_of(drawer_row: Cell) -> bytes:
    """Return the row that lists the documents of a drawer row's fingerprint."""
    return documents_rowkey(int.from_bytes(drawer_row.row[PREFIX_BYTES:], "big"))


def _shown(doc_id: bytes) -> str:
    return repr(doc_id.decode())
