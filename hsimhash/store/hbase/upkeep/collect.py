"""`collect`: delete the cells that moves and removals left behind, as recorded in the log of orphans.

A move or a removal logs what the document leaves behind (`protocol.py`), in a row that begins with the hour. So the
entries of all hours are in one short range of the table, with almost nothing else in it. An entry only shows where to
look. The cells that it names are passed in pages to `audit.py`, which applies its rules to:

1. each entry's listing, and its document's register if the document was removed,
2. after all of these, the drawer rows of each entry's fingerprint and of its key.

Then the entry is deleted, with the timestamp that was read, unless the entry or a leftover of its fingerprint is too
young. A removed document's register is deleted after a day: an entry for the deletion is logged in the hour in which
it is due. So whenever collection is killed, there is an entry for everything that remains.

A cell next to the record holds the hour before which all entries have been processed. Writers choose the hour by their
own clocks, so the next collection begins a day earlier. Leftovers of a failed add are not in the log; `check --repair`
finds them, and also processes the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hsimhash.fingerprint.signature import Signature
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import ORPHANS_FLAG, PREFIX_BYTES, RECORD_ROWKEY
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.base import (
    DOCUMENT_FAMILY,
    DRAWER_FAMILY,
    RECORD_FAMILY,
    Cell,
    Deletion,
    Gateway,
    Put,
)
from hsimhash.store.hbase.rows.cells import (
    HOUR_MS,
    WORKED_OFF,
    Orphan,
    listing_key,
    parsed,
    register_key,
    row_flag,
    segment_key,
)
from hsimhash.store.hbase.rows.protocol import Times
from hsimhash.store.hbase.upkeep.audit import Audit, pages
from hsimhash.store.reports import CollectReport

SLACK_H = 24  # hours that a writer's clock may be behind

LoggedOrphan = tuple[Cell, Orphan]


class Collection(Audit):
    """A run of `collect`; see the module.

    Args:
        gateway: Gateway to the table.
        record: Index record. Its layout determines the drawer rows; format 2 and later have a key drawer.
        times: Minimum ages for collection.
        hours: Hours of the log to process, whatever their age; None: all that are over an hour old.
        observer: Receives the progress in hours of the log, each of which is read twice.
    """

    def __init__(
        self,
        gateway: Gateway,
        record: Record,
        times: Times,
        *,
        hours: Iterable[int] | None = None,
        observer: Observer = UNWATCHED,
    ) -> None:
        super().__init__(gateway, record, times, repair=True, observer=observer, pages=self._suspects)
        self._hours = None if hours is None else sorted(hours)
        self._ranges: list[tuple[int, int]] = []  # half-open ranges of hours
        self._registers: dict[bytes, Cell | None] = {}
        self._left = set[int]()  # fingerprints with leftovers that are too young
        self._open_hours = set[int]()  # hours with entries that stay
        self._entries = self._stayed = 0

    def collect(self) -> CollectReport:
        """Process the log, and return the report."""
        self.run()
        if self._hours is None:
            hour = min({self._end_hour - 1, *self._open_hours})
            self.gateway.put([Put(RECORD_ROWKEY, RECORD_FAMILY, WORKED_OFF, b"%d" % hour)])
        return CollectReport(self._entries, self.deleted, self._stayed)

    @property
    def _end_hour(self) -> int:
        return max(0, int(self.settled_before)) // HOUR_MS + 1

    def _suspects(self, family: bytes) -> Iterator[list[Cell]]:
        return self._named_documents() if family == DOCUMENT_FAMILY else self._named_rows()

    def _log(self, half: int) -> Iterator[list[LoggedOrphan]]:
        """Yield the entries of the log, in order, in pages."""
        for first, end in self._ranges:
            for page in pages(
                self.gateway, DOCUMENT_FAMILY, bounds=(segment_key(first), segment_key(end)), flag=ORPHANS_FLAG
            ):
                found = ((cell, Orphan.of(cell)) for cell in page if row_flag(cell.row) == ORPHANS_FLAG)
                entries = [(cell, orphan) for cell, orphan in found if orphan is not None]
                if entries:
                    yield entries
                    self._tell(half, entries[-1][1].hour)

    def _tell(self, half: int, hour: int) -> None:
        first, total = self._ranges[0][0], self._ranges[-1][1] - self._ranges[0][0]
        self.observer.report("collect", half * total + hour - first, 2 * total)

    def _open_ranges(self) -> list[tuple[int, int]]:
        if self._hours is not None:
            return [(hour, hour + 1) for hour in self._hours]
        (cell,) = self.gateway.get([(RECORD_ROWKEY, WORKED_OFF)], RECORD_FAMILY)
        first = int(cell.value) - SLACK_H if cell is not None and cell.value.isdigit() else 0
        return [(max(0, min(first, self._end_hour - 1)), self._end_hour)]

    def _is_settled(self, entry: LoggedOrphan) -> bool:
        return entry[0].timestamp <= self.settled_before

    # The documents.

    def _named_documents(self) -> Iterator[list[Cell]]:
        self._ranges = self._open_ranges()
        for page in self._log(0):
            orphans = [orphan for _, orphan in filter(self._is_settled, page)]
            keys = [listing_key(one.signature.fingerprint, one.doc_id) for one in orphans if not one.is_register]
            listings = self.gateway.get(list(dict.fromkeys(keys)), DOCUMENT_FAMILY)
            by_id = {orphan.doc_id: orphan for orphan in orphans}
            registers = self.gateway.get(list(map(register_key, by_id)), DOCUMENT_FAMILY)
            self._registers = dict(zip(by_id, registers, strict=True))
            removed = [cell for cell in registers if cell is not None and _is_removed(cell)]
            self._remember([cell for cell in removed if cell.timestamp > self.forgotten_before], by_id)
            yield [cell for cell in listings if cell is not None] + removed

    def _registers_of(self, listings: Sequence[Cell]) -> list[Cell | None]:
        return [self._registers[cell.qualifier] for cell in listings]  # read after the listings

    def _remember(self, removed: Sequence[Cell], by_id: dict[bytes, Orphan]) -> None:
        """Log when removed documents' registers must be deleted."""
        after_ms = round(self.times.forgotten_s * 1_000)
        entries = (
            by_id[cell.qualifier]._replace(hour=(cell.timestamp + after_ms) // HOUR_MS, is_register=True)
            for cell in removed
        )
        self.gateway.put([entry.put(self.record.keying) for entry in entries])

    # The drawer rows.

    def _named_rows(self) -> Iterator[list[Cell]]:
        judged = set[Signature]()
        for page in self._log(1):
            named = {orphan.signature for _, orphan in filter(self._is_settled, page) if not orphan.is_register}
            rows = self.record.filed_rowkeys(named - judged) if named else ()
            cells = self.gateway.get([(row.tobytes(), b"") for row in rows], DRAWER_FAMILY)
            yield [cell for cell in cells if cell is not None]
            self._strike(page)
            # A crowded fingerprint's entries span several pages, but its listings should be read only once.
            judged = {one for one in judged | named if one.fingerprint == page[-1][1].signature.fingerprint}

    def _leave(self, cells: Sequence[Cell]) -> None:
        self._left |= {int.from_bytes(cell.row[PREFIX_BYTES:], "big") for cell in cells}

    def _strike(self, page: Sequence[LoggedOrphan]) -> None:
        """Delete the finished entries in a page."""
        done = list[Deletion]()
        for entry in page:
            cell, orphan = entry
            if self._is_settled(entry) and (orphan.is_register or orphan.signature.fingerprint not in self._left):
                done.append(Deletion(cell.row, DOCUMENT_FAMILY, cell.qualifier, cell.timestamp))
            else:
                self._open_hours.add(orphan.hour)
        self.gateway.delete(done)
        self._entries += len(page)
        self._stayed += len(page) - len(done)

    def _advance(self, family: int, page: Sequence[Cell]) -> None:
        """Do nothing: `_log` reports the progress."""


def _is_removed(register: Cell) -> bool:
    said = parsed(register)
    return said is not None and said.signature is None
