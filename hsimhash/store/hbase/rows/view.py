"""Reads for queries: buckets by scans, listings row by row, and registers, which confirm each document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hsimhash.errors import StoreUnavailableError
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.rowkey import KEY_FLAG, PREFIX_BYTES, SEGMENT_BYTES, bucket_range, documents_rowkey
from hsimhash.store.base import Document, Record, View, ViewInPart, up_to
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, UNANSWERED, Cell, Gateway
from hsimhash.store.hbase.gateway.batches import slices
from hsimhash.store.hbase.rows.cells import Register, register_key
from hsimhash.store.hbase.rows.survey import rows_about

ROWS_AT_ONCE = 100  # rows of listings read by one call
FIRST_CELLS = 100  # listings read from each row at first; most rows have one
MORE_CELLS = 5_000  # maximum listings in each later call for a row that has more
ASSUMED_DOCUMENTS = 1 << 27  # assumed if servers do not respond; high enough that no cover reads all rows


class HBaseView(View):
    """The reads of one query; `str()` gives their counts."""

    def __init__(self, gateway: Gateway, record: Record) -> None:
        self._gateway, self._record = gateway, record
        self._asked = self._buckets = self._rows = self._documents = 0

    def __str__(self) -> str:
        return f"{self._buckets} of {self._asked} buckets with {self._rows} rows, and {self._documents} documents"

    def scan(self, prefixes: Sequence[bytes], most: int | None = None) -> Uint8s:
        return self._read(list(map(bucket_range, prefixes)), most)

    def sweep(self, ranges: Sequence[tuple[bytes, bytes]]) -> Uint8s:
        rows = self._read(ranges)
        return rows[rows[:, SEGMENT_BYTES] != KEY_FLAG] if self._record.has_signatures else rows

    def _read(self, ranges: Sequence[tuple[bytes, bytes]], most: int | None = None) -> Uint8s:
        self._asked += len(ranges)
        rows = self._scanned(ranges, most)
        self._buckets += len(ranges)
        self._rows += len(rows)
        return rows

    def _scanned(self, ranges: Sequence[tuple[bytes, bytes]], most: int | None) -> Uint8s:
        return self._gateway.scan(ranges, most)

    def estimate(self) -> int:
        return rows_about(self._gateway, self._record) // len(self._record.layout.drawers)

    def documents(self, fingerprints: Sequence[int], limit: int | None = None) -> list[list[Document]]:
        found = list[list[Document]]()
        most = FIRST_CELLS if limit is None else min(limit, FIRST_CELLS)
        for part in slices(len(fingerprints), ROWS_AT_ONCE):
            rows = [documents_rowkey(value) for value in fingerprints[part]]
            listings = self._first_listings(rows, most)
            confirmed = iter(self.lookup([cell.qualifier for cells in listings for cell in cells]))
            for fingerprint, cells in zip(fingerprints[part], listings, strict=True):
                documents = [document for _, document in zip(cells, confirmed, strict=False) if document is not None]
                found.append(self._up_to(fingerprint, documents, cells, most, limit))
        return found

    def _up_to(
        self, fingerprint: int, documents: list[Document], listed: list[Cell], most: int, limit: int | None
    ) -> list[Document]:
        """Return a row's documents up to the limit; read more pages if the first one does not have enough."""
        while len(listed) == most:
            if limit is not None and sum(document.fingerprint == fingerprint for document in documents) >= limit:
                break
            row, after, most = documents_rowkey(fingerprint), listed[-1].qualifier, min(4 * most, MORE_CELLS)
            listed = self._next_listings(row, after, most)
            documents += filter(None, self.lookup([cell.qualifier for cell in listed]))
        return documents if limit is None else up_to(documents, fingerprint, limit)

    def _first_listings(self, rows: Sequence[bytes], most: int) -> list[list[Cell]]:
        return self._gateway.cells_of(rows, DOCUMENT_FAMILY, limit=most)

    def _next_listings(self, row: bytes, after: bytes, most: int) -> list[Cell]:
        return self._gateway.cells(row, DOCUMENT_FAMILY, after=after, limit=most)

    def _registers(self, doc_ids: Sequence[bytes]) -> list[Cell | None]:
        return self._gateway.get([register_key(doc_id) for doc_id in doc_ids], DOCUMENT_FAMILY)

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        self._documents += len(doc_ids)
        cells = self._registers(doc_ids)
        return [
            Register.from_bytes(cell.value).document(doc_id) if cell is not None else None
            for doc_id, cell in zip(doc_ids, cells, strict=True)
        ]


class HBaseViewInPart(HBaseView, ViewInPart):
    """The reads of one query, which continues without servers that do not respond."""

    def __init__(self, gateway: Gateway, record: Record) -> None:
        HBaseView.__init__(self, gateway, record)
        ViewInPart.__init__(self)
        self._listed: defaultdict[bytes, set[int]] = defaultdict(set)  # fingerprints that list each id

    def _scanned(self, ranges: Sequence[tuple[bytes, bytes]], most: int | None) -> Uint8s:
        rows, unanswered = self._gateway.scan_in_part(ranges)
        self.unanswered += unanswered
        return rows

    def estimate(self) -> int:
        try:
            with self._gateway.half():
                return super().estimate()
        except StoreUnavailableError:
            return ASSUMED_DOCUMENTS

    def _first_listings(self, rows: Sequence[bytes], most: int) -> list[list[Cell]]:
        found = list[list[Cell]]()
        for row, cells in zip(rows, self._gateway.cells_in_part(rows, DOCUMENT_FAMILY, limit=most), strict=True):
            found.append([] if cells is UNANSWERED else self._noted(row, cells))
            if cells is UNANSWERED:
                self.unread.add(_fingerprint_in(row))
        return found

    def _next_listings(self, row: bytes, after: bytes, most: int) -> list[Cell]:
        try:
            return self._noted(row, super()._next_listings(row, after, most))
        except StoreUnavailableError:
            self.unread.add(_fingerprint_in(row))
            return []

    def _noted(self, row: bytes, cells: list[Cell]) -> list[Cell]:
        for cell in cells:
            self._listed[cell.qualifier].add(_fingerprint_in(row))
        return cells

    def _registers(self, doc_ids: Sequence[bytes]) -> list[Cell | None]:
        found = list[Cell | None]()
        keys = [register_key(doc_id) for doc_id in doc_ids]
        for doc_id, cell in zip(doc_ids, self._gateway.get_in_part(keys, DOCUMENT_FAMILY), strict=True):
            if cell is UNANSWERED:
                self.unread |= self._listed[doc_id]
            found.append(None if cell is UNANSWERED else cell)
        return found


def _fingerprint_in(row: bytes) -> int:
    return int.from_bytes(row[PREFIX_BYTES:], "big")
