"""Read all registers in a range of rows: yield documents, count them, or remove old ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hsimhash.rowkey import REGISTER_FLAG
from hsimhash.store.base import Document
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Cell, Gateway
from hsimhash.store.hbase.rows.cells import Register, is_register, parsed
from hsimhash.store.hbase.rows.protocol import BATCH_DOCUMENTS, SameIndex, Times, Writes
from hsimhash.store.hbase.upkeep.audit import pages
from hsimhash.store.hbase.upkeep.range_jobs import Bounds, RangeTask


def register_pages(gateway: Gateway, bounds: Bounds) -> Iterator[list[Cell]]:
    """Yield the registers of a range, in pages; listings, whose values are empty, stay on the servers."""
    for page in pages(gateway, DOCUMENT_FAMILY, bounds=bounds, flag=REGISTER_FLAG, having="value"):
        yield [cell for cell in page if is_register(cell.row, cell.qualifier)]


def documents_in(gateway: Gateway, bounds: Bounds) -> Iterator[list[Document]]:
    """Yield the documents with registers in a range, in pages; raise `CorruptionError` if one is unreadable."""
    for page in register_pages(gateway, bounds):
        found = (Register.from_bytes(cell.value).document(cell.qualifier) for cell in page)
        yield [document for document in found if document is not None]


def count_range(gateway: Gateway, task: RangeTask, *, before: int | None = None) -> int:
    """Count the documents in a range; with `before` (ms since 1970), only those first seen earlier."""
    return sum(len(_filed(page, before)) for page in register_pages(gateway, task.bounds))


def expire_range(gateway: Gateway, task: RangeTask, *, url: str, before: int, times: Times) -> int:
    """Remove a range's documents that were first seen before a time (ms since 1970); return how many."""
    same = SameIndex(url, gateway, task.record, times)
    writes, old, removed = Writes(gateway, task.record, times, same), list[bytes](), 0
    for page in register_pages(gateway, task.bounds):
        old += _filed(page, before)
        if len(old) >= BATCH_DOCUMENTS:
            removed += writes.remove(old, before=before)
            old = []
    removed += writes.remove(old, before=before)
    same.check()
    return removed


def _filed(page: Sequence[Cell], before: int | None) -> list[bytes]:
    """Return the ids of existing documents; unreadable registers are skipped."""
    found = ((cell.qualifier, parsed(cell)) for cell in page)
    return [doc_id for doc_id, register in found if register is not None and register.is_filed(before)]
