"""`check` of the embedded store: registers, documents and drawer rows compared with each other, page by page.

| found | what it is | repair |
|---|---|---|
| a register whose id is listed nowhere | problem: the id is lost | the register is deleted; add the document again |
| a register whose id is listed under another fingerprint only | problem: queries miss it | it is listed |
| a register whose fingerprint lacks drawer rows | problem: queries may miss it | the rows are written |
| a drawer row whose key does not recompute | problem | deleted |
| a listing that the register contradicts, or without register | leftover of an interrupted bulk load | deleted |
| a drawer row without any listing | leftover | deleted |
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hsimhash.rowkey import FINGERPRINT_BYTES, PREFIX_BYTES, SEGMENT_BYTES
from hsimhash.store.base import CheckReport, Progress
from hsimhash.store.lmdb.codec import digest, document_key, listed_id, pack, unpack_register
from hsimhash.store.lmdb.data_file import verify_pages
from hsimhash.store.lmdb.rows import Rows, page
from hsimhash.store.lmdb.session import Session

if TYPE_CHECKING:
    import lmdb

PAGE_ROWS = 20_000  # rows read in one transaction; bounds memory, and how long a writer waits
DIGESTS_IN_MEMORY = 2_000_000  # when registers lack listings, how many ids are compared in one pass
MOST_EXAMPLES = 20

_log = logging.getLogger("hsimhash.store")


class _Audit:
    def __init__(self, session: Session, *, repair: bool, progress: Progress | None) -> None:
        self.session = session
        self.is_repair = repair
        self.progress = progress
        self.done = 0
        self.problems = self.leftovers = self.repaired = 0
        self.examples: list[str] = []
        names = ("register", "documents", "drawers")
        with session.view() as view:
            verify_pages(view.transaction, *(view.databases[name] for name in names))
            counts = [view.transaction.stat(view.databases[name])["entries"] for name in names]
        self.registers, self.listings, self.drawer_rows = counts
        self.total = self.listings + self.drawer_rows

    def run(self) -> CheckReport:
        begun = self.session.last_transaction()
        confirmed = self._check_listings()
        # The counts tell that every register is listed only if nobody wrote meanwhile.
        if confirmed < self.registers or self.session.last_transaction() != begun:
            self._check_registers()
        self._check_drawer_rows()
        return CheckReport(
            self.registers, self.drawer_rows, self.problems, self.leftovers, self.repaired, tuple(self.examples)
        )

    @contextmanager
    def _transaction(self) -> Iterator[lmdb.Transaction]:
        """Give a transaction: a page is read, and mended, in one."""
        if self.is_repair:
            with self.session.write() as transaction:
                yield transaction
        else:
            with self.session.view() as view:
                yield view.transaction

    def _problem(self, text: str, *, is_leftover: bool = False) -> bool:
        """Count what was found; return whether to mend it."""
        if is_leftover:
            self.leftovers += 1
        else:
            self.problems += 1
        if len(self.examples) < MOST_EXAMPLES:
            self.examples.append(text)
        self.repaired += self.is_repair
        return self.is_repair

    def _advance(self, count: int) -> None:
        self.done += count
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

    def _each_page(self, name: str, visit: Callable[[Rows, list[tuple[bytes, bytes]]], None], *, counts: bool) -> None:
        """Call `visit` with the rows of a database, page by page; what it reads and mends is one transaction."""
        after = b""
        while True:
            with self._transaction() as transaction:
                found = page(transaction, self.session.environment.databases[name], after, PAGE_ROWS)
                visit(self.session.rows(transaction), found)
            if not found:
                return
            after = found[-1][0]
            if counts:
                self._advance(len(found))

    def _check_listings(self) -> int:
        """Compare every listing with its register, and the drawer rows of those confirmed; return how many are."""
        confirmed = 0

        def visit(rows: Rows, listings: list[tuple[bytes, bytes]]) -> None:
            nonlocal confirmed
            held: set[bytes] = set()
            for key, value in listings:
                packed, doc_id = key[:FINGERPRINT_BYTES], listed_id(key, value)
                if _is_confirmed(rows, key, value):
                    confirmed += 1
                    held.add(packed)
                    continue
                self._check_filed_elsewhere(rows, doc_id)
                if self._problem(f"leftover: {doc_id!r} is listed under {packed.hex()}", is_leftover=True):
                    rows.transaction.delete(key, db=rows.listing)
            for packed in sorted(held):
                self._check_filing(rows, packed)

        self._each_page("documents", visit, counts=True)
        return confirmed

    def _check_filed_elsewhere(self, rows: Rows, doc_id: bytes) -> None:
        """Look for a document where its register says; repairing, list and file it there."""
        register = rows.get_register(doc_id)
        if register is None:
            return
        fingerprint, first_seen = register
        if rows.transaction.get(document_key(pack(fingerprint), doc_id), db=rows.listing) is None and self._problem(
            f"{doc_id!r} is not listed under {fingerprint:016x}, which its register says"
        ):
            rows.put([(doc_id, fingerprint, first_seen)])

    def _check_filing(self, rows: Rows, packed: bytes) -> None:
        """Look for the drawer rows of a fingerprint."""
        fingerprint = int.from_bytes(packed, "big")
        cursor = rows.transaction.cursor(rows.drawers)
        missing = [prefix for prefix in rows.layout.prefixes(fingerprint) if not cursor.set_key_dup(prefix, packed)]
        for prefix in missing:
            if self._problem(f"fingerprint {packed.hex()} has no row in drawer {prefix[SEGMENT_BYTES]}"):
                rows.transaction.put(prefix, packed, db=rows.drawers)

    def _check_registers(self) -> None:
        """Find the registers whose id is listed nowhere: a register has only its id's digest, so compare digests."""
        passes = -(-self.listings // DIGESTS_IN_MEMORY) or 1
        for number in range(passes):
            low, high = (number << 64) // passes, ((number + 1) << 64) // passes
            listed = self._listed_digests(low, high)

            def visit(rows: Rows, registers: list[tuple[bytes, bytes]]) -> None:
                for key, value in registers:
                    is_suspect = low <= int.from_bytes(key[:8], "big") < high and key not in listed  # noqa: B023
                    # The digests are of moments ago, and others write: what counts is one moment's listing.
                    if is_suspect and not _is_listed_now(rows, key, value):
                        self._register_problem(rows, key, value)

            self._each_page("register", visit, counts=False)

    def _register_problem(self, rows: Rows, key: bytes, value: bytes) -> None:
        fingerprint = unpack_register(value)[0]
        if self._problem(f"register {key.hex()} (fingerprint {fingerprint:016x}) is listed nowhere"):
            rows.transaction.delete(key, db=rows.register)

    def _listed_digests(self, low: int, high: int) -> set[bytes]:
        """Return the digests in [low, high) of the ids that are listed where their register says."""
        found: set[bytes] = set()

        def visit(rows: Rows, listings: list[tuple[bytes, bytes]]) -> None:
            for key, value in listings:
                key_of_register = digest(listed_id(key, value))
                if low <= int.from_bytes(key_of_register[:8], "big") < high and _is_confirmed(rows, key, value):
                    found.add(key_of_register)

        self._each_page("documents", visit, counts=False)
        return found

    def _check_drawer_rows(self) -> None:
        """Recompute every drawer row's key, and look for a document of its fingerprint."""
        after: tuple[bytes, bytes] | None = None
        while True:
            with self._transaction() as transaction:
                rows = self.session.rows(transaction)
                found = _drawer_page(transaction, rows.drawers, after)
                for prefix, packed in found:
                    self._check_drawer_row(rows, prefix, packed)
            if not found:
                return
            after = found[-1]
            self._advance(len(found))

    def _check_drawer_row(self, rows: Rows, prefix: bytes, packed: bytes) -> None:
        row = f"drawer row {prefix.hex()} {packed.hex()}"
        if not _recomputes(rows, prefix, packed):
            is_mended = self._problem(f"{row} does not recompute")
        elif not rows.is_listed(packed):
            is_mended = self._problem(f"leftover: {row} has no document", is_leftover=True)
        else:
            return
        if is_mended:
            rows.transaction.delete(prefix, packed, db=rows.drawers)


def _is_confirmed(rows: Rows, key: bytes, value: bytes) -> bool:
    """Whether a listing is where the register of its id says."""
    register = rows.get_register(listed_id(key, value))
    return register is not None and register[0] == int.from_bytes(key[:FINGERPRINT_BYTES], "big")


def _is_listed_now(rows: Rows, key: bytes, value: bytes) -> bool:
    """Whether an id of the register's digest is listed under its fingerprint."""
    packed = value[:FINGERPRINT_BYTES]
    cursor = rows.transaction.cursor(rows.listing)
    if not cursor.set_range(packed):
        return False
    for listed, rest in cursor.iternext():
        if not listed.startswith(packed):
            return False
        if digest(listed_id(listed, rest)) == key:
            return True
    return False


def _recomputes(rows: Rows, prefix: bytes, packed: bytes) -> bool:
    if len(prefix) != PREFIX_BYTES or len(packed) != FINGERPRINT_BYTES:
        return False
    number = prefix[SEGMENT_BYTES]
    if not 1 <= number <= len(rows.layout.drawers):
        return False
    segment = rows.layout.drawers[number - 1].segment(int.from_bytes(packed, "big"))
    return segment == int.from_bytes(prefix[:SEGMENT_BYTES], "big")


def _drawer_page(
    transaction: lmdb.Transaction, drawers: object, after: tuple[bytes, bytes] | None
) -> list[tuple[bytes, bytes]]:
    """Return the next rows after `after`, which may lie within a bucket."""
    cursor = transaction.cursor(drawers)
    if after is None:
        is_there = cursor.first()
    elif cursor.set_range_dup(*after):
        is_there = cursor.item() != after or cursor.next()
    else:  # the bucket ends there, or is gone
        is_there = cursor.set_range(after[0] + b"\x00")
    if not is_there:
        return []
    return [row for row, _ in zip(cursor.iternext(), range(PAGE_ROWS), strict=False)]


def audit(session: Session, *, repair: bool, progress: Progress | None) -> CheckReport:
    """Compare registers, documents and drawer rows of an index; see the module's text."""
    report = _Audit(session, repair=repair, progress=progress).run()
    if report.repaired:
        _log.info("index %s: %d rows repaired", session.path, report.repaired)
    return report
