"""`check` for the embedded store: compare registers, documents and drawer rows page by page.

| finding | meaning | repair |
|---|---|---|
| a register whose id is not listed | problem: the id is lost | the register is deleted; add the document again |
| a register whose id is only listed elsewhere | problem: queries miss it or find it there | the id is listed |
| a register whose fingerprint or key lacks drawer rows | problem: queries may miss it | the rows are written |
| a drawer row whose key does not match its contents | problem | deleted |
| a listing without a register, or with a register that contradicts it | left by an interrupted bulk load | deleted |
| a drawer row without any listing | leftover | deleted |
| a block of the base with a wrong checksum, or a missing base | problem | the base is rebuilt from the registers |
| a row in the base that no document needs | leftover of a change | the base is rebuilt from the registers |
| a row in the key drawer with a key that no document with its fingerprint has | leftover of a change | deleted |

Each page is read and repaired in one transaction; others may write between pages.

Before that, `glance` compares counts and sums of hashes in one state of the index, to see whether it has exactly the
rows that its registers require. This takes a quarter of the time, so the index is read page by page only if it is not
sound.
"""

from __future__ import annotations

import logging
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import chain, islice, starmap
from random import shuffle
from secrets import randbits
from typing import NamedTuple

import lmdb
import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Bools, Uint64s, are_in, sorted_distinct
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import (
    FINGERPRINT_BYTES,
    KEY_FLAG,
    PREFIX_BYTES,
    ROWKEY_BYTES,
    SEGMENT_BYTES,
    fingerprints_of,
    key_rows,
    prefix_numbers_of,
)
from hsimhash.store.base import Record
from hsimhash.store.base_files.base_check import GLANCE_ROWS, RowSum, misfiled, mixed_rows
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.lmdb.codec import (
    PACKED_NUMBER,
    Registered,
    Row,
    Rows,
    digest,
    document_key,
    listed_id,
    pack,
    page,
    rows_in,
    unpack_register,
)
from hsimhash.store.lmdb.compaction import make_base
from hsimhash.store.lmdb.files import verify_pages
from hsimhash.store.lmdb.session import LmdbView, Session
from hsimhash.store.reports import CheckReport

CROWD_ROWS = 64  # a key with at least this many rows may have its own LMDB pages
PAGE_ROWS = 20_000  # rows read in one transaction; limits memory use and how long a writer waits
_MARK_BYTES = 8  # bytes of a listed id's digest kept in memory for each document

_log = logging.getLogger("hsimhash.store")


def audit(
    session: Session, *, repair: bool = False, observer: Observer = UNWATCHED, page_rows: int = PAGE_ROWS
) -> CheckReport:
    """Compare the registers, documents and drawer rows of an index; see the module docstring."""
    report = _Audit(session, repair=repair, observer=observer, page_rows=page_rows).run()
    if report.repaired:
        _log.info("index %s: %d rows repaired", session.path, report.repaired)
    return report


class _UnsoundError(Exception):
    """The index is not sound; the page-by-page check finds the reason."""


class LeftOver(NamedTuple):
    """Rows that documents left behind: key drawer rows in LMDB, and the number of such rows in the base."""

    rows: list[bytes]
    in_base: int = 0


def glance(view: LmdbView, record: Record) -> LeftOver | None:
    """Check whether an index has exactly the rows that its registers require, up to 64-bit hash collisions.

    Returns:
        The rows that documents left behind, which are normal; None if anything else is wrong.
    """
    try:
        return _left_over(view, record)
    except _UnsoundError:
        return None


def _left_over(view: LmdbView, record: Record) -> LeftOver:
    base, is_listed = view.base, 0
    seed, width = np.uint64(randbits(64) | 1), 6 if record.has_signatures else 4
    registered, listed, needed = RowSum(), RowSum(), RowSum()
    keyed, last = [np.empty(0, np.uint64)], np.empty(0, np.uint64)
    for rows in _batches(view, "register"):
        table = _table(b"".join(chain.from_iterable(rows)), len(rows), width)
        registered.add(mixed_rows(seed, table[:, 2], table[:, 0], table[:, 1]))
        if record.has_signatures:
            prefixes, fingerprints = key_rows(record.keying, table[:, 5], table[:, 2])
            keyed.append(sorted_distinct(mixed_rows(seed, fingerprints, prefixes)))
    for rows in _batches(view, "documents"):
        digests = _table(b"".join([digest(listed_id(key, value)) for key, value in rows]), len(rows), 2)
        fingerprints = _table(b"".join([key[:FINGERPRINT_BYTES] for key, _ in rows]), len(rows), 1)[:, 0]
        listed.add(mixed_rows(seed, fingerprints, digests[:, 0], digests[:, 1]))
        distinct = sorted_distinct(np.concatenate([last, fingerprints]))[len(last) :]
        if base is not None:
            is_in_base = are_in(distinct, base.fingerprints)
            is_listed += int(np.count_nonzero(is_in_base))
            distinct = distinct[~is_in_base]
        needed.add(mixed_rows(seed, distinct))
        last = fingerprints[-1:]
    if registered != listed:
        raise _UnsoundError
    by_key = sorted_distinct(np.concatenate(keyed))
    has_key, left_in_base = np.zeros(len(by_key), np.bool_), 0
    if base is not None:
        left_in_base = (base.rows - is_listed) * len(base.drawers)
        left_in_base += _keys_in_base(base, seed, by_key, has_key)
    left = _left_in_drawers(view, record, seed, needed, by_key, has_key)
    if not has_key.all():
        raise _UnsoundError
    return LeftOver(left, left_in_base)


def _keys_in_base(base: Base, seed: np.uint64, by_key: Uint64s, has_key: Bools) -> int:
    """Mark the needed key drawer rows that the base has; return how many unneeded key drawer rows it has."""
    left = 0
    for start in range(0, base.key_rows, GLANCE_ROWS):
        rows = base.key_part(start, min(start + GLANCE_ROWS, base.key_rows))
        numbers = rows["segment"].astype(np.uint64) << np.uint64(8) | np.uint64(KEY_FLAG)
        mixed = mixed_rows(seed, rows["fingerprint"], numbers)
        is_needed = are_in(mixed, by_key)
        has_key[np.searchsorted(by_key, mixed[is_needed])] = True
        left += len(rows) - int(np.count_nonzero(is_needed))
    return left


def _left_in_drawers(
    view: LmdbView, record: Record, seed: np.uint64, needed: RowSum, by_key: Uint64s, has_key: Bools
) -> list[bytes]:
    """Return LMDB's unneeded key drawer rows; raise `_UnsoundError` unless the drawers have exactly the needed rows.

    Rows that are also in the base are not a fault: their documents were removed and added again.
    """
    drawers, base = record.layout.drawers, view.base
    sums, left_over = [RowSum() for _ in drawers], list[bytes]()
    for rows in _batches(view, "drawers"):
        joined = b"".join(chain.from_iterable(rows))
        if len(joined) != len(rows) * ROWKEY_BYTES:
            raise _UnsoundError
        rowkeys = np.frombuffer(joined, np.uint8).reshape(-1, ROWKEY_BYTES)
        numbers, fingerprints = prefix_numbers_of(rowkeys), fingerprints_of(rowkeys)
        flags, left = rowkeys[:, SEGMENT_BYTES], len(rowkeys)
        for drawer, found in zip(drawers, sums, strict=True):
            places = np.flatnonzero(flags == drawer.number)
            values = fingerprints[places]
            if (drawer.segments(values) != numbers[places] >> np.uint64(8)).any():
                raise _UnsoundError
            found.add(mixed_rows(seed, values if base is None else values[~are_in(values, base.fingerprints)]))
            left -= len(places)
        if record.has_signatures:
            places = np.flatnonzero(flags == KEY_FLAG)
            mixed = mixed_rows(seed, fingerprints[places], numbers[places])
            is_needed = are_in(mixed, by_key)
            has_key[np.searchsorted(by_key, mixed[is_needed])] = True
            left_over += [row.tobytes() for row in rowkeys[places[~is_needed]]]
            left -= len(places)
        if left:
            raise _UnsoundError
    if any(one != needed for one in sums):
        raise _UnsoundError
    return left_over


def _batches(view: LmdbView, name: str) -> Iterator[list[Row]]:
    """Yield the rows of a database in order, after checking that a search by key finds each of them."""
    rows = view.transaction.cursor(view.databases[name]).iternext()
    while batch := list(islice(rows, GLANCE_ROWS)):
        if not _are_found(view.transaction.cursor(view.databases[name]), batch):
            raise _UnsoundError
        yield batch


def _are_found(cursor: lmdb.Cursor, rows: Sequence[Row]) -> bool:
    """Whether a search from the root finds each row; a walk in order does not detect a page with wrong links."""
    sizes = Counter(key for key, _ in rows)
    keys = list(sizes)
    shuffle(keys)  # otherwise LMDB would first look on the page of the previous key
    if len(cursor.getmulti(keys)) < len(keys):
        return False
    crowded = [row for row in rows if sizes[row[0]] >= CROWD_ROWS]
    shuffle(crowded)
    return all(cursor.set_key_dup(*row) for row in crowded)


def _table(joined: bytes, count: int, width: int) -> NDArray[np.uint64]:
    """Return an array of `count` rows with `width` numbers each."""
    if len(joined) != count * width * 8:
        raise _UnsoundError
    return np.frombuffer(joined, ">u8").reshape(-1, width).astype(np.uint64)


class _Audit:
    def __init__(self, session: Session, *, repair: bool, observer: Observer, page_rows: int) -> None:
        self.session = session
        self.is_repair = repair
        self.observer = observer
        self.page_rows = page_rows
        self.report = CheckReport()
        self.confirmed = self.done = self.total = 0
        self.is_base_damaged = False
        self.listed = np.zeros(0, np.uint64)  # marks of listed ids, ascending, then 2**64 - 1 as a sentinel
        self.keyed = array("Q")  # marks of the key drawer rows that listed documents need
        self.known_keys = np.empty(0, np.uint64)  # the marks in `keyed`, ascending

    def run(self) -> CheckReport:
        names = ("register", "documents", "drawers")
        with self._rows():  # a repair fails here if it cannot write
            pass
        self._check_base()
        with LmdbView(self.session) as view:
            verify_pages(view.transaction, *(view.databases[name] for name in names))
            registers, listings, since = (view.transaction.stat(view.databases[name])["entries"] for name in names)
            base = None if self.is_base_damaged else view.base
            self.report.documents, self.total = registers, listings + since
            self.report.drawer_rows = since + (base.row_count if base is not None else 0)
            left_over = None if self.is_base_damaged else glance(view, self.session.record)
        if left_over is not None and not (left_over.rows and self.is_repair and not left_over.in_base):
            self._report_left_over(left_over)
            self.observer.report("check", self.total, self.total)
            return self.report
        begun = self.session.last_transaction()
        self._each_page("documents", self._check_listings)
        # The counts do not prove that every register is listed if anybody wrote in the meantime.
        if self.confirmed < registers or self.session.last_transaction() != begun:
            self.listed = self._marks_of_listed()
            self._each_page("register", self._check_registers)
        self.known_keys = np.frombuffer(self.keyed, np.uint64)  # not copied, because there are as many as documents
        self.known_keys.sort()
        self._each_page("drawers", self._check_drawer_rows)
        return self.report

    def _check_base(self) -> None:
        """Verify all checksums of the base; if the base is damaged and this is a repair, rebuild it."""
        with LmdbView(self.session) as view:
            damages = [str(view.base_damage)] if view.base_damage else []
            if view.sound_base is not None:
                name, blocks = view.sound_base.path.name, view.sound_base.blocks.damaged()
                damages += [f"{name} is damaged at byte {at:,}" for at in blocks] or misfiled(view.sound_base)
        for damage in damages:
            self._problem(damage)
        if damages and self.is_repair:
            make_base(self.session)
        self.is_base_damaged = bool(damages) and not self.is_repair

    def _report_left_over(self, left_over: LeftOver) -> None:
        """Report rows that no document needs; when repairing, rebuild the base without them."""
        for row in left_over.rows:
            self.report.leftover(_keyless(row[:PREFIX_BYTES], row[PREFIX_BYTES:]))
        if left_over.in_base:
            self.report.leftover(
                f"{left_over.in_base:,} rows in the base do not belong to a document; 'hsimhash compact' removes them"
            )
            self.report.leftovers += left_over.in_base - 1
            if self.is_repair:
                make_base(self.session)
                self.report.repaired += self.report.leftovers

    def _marks_of_listed(self) -> Uint64s:
        marks, after = bytearray(), None
        while True:
            with LmdbView(self.session) as view:
                found = page(view.transaction, view.databases, "documents", after, self.page_rows)
            if not found:
                return np.sort(rows_in(marks + b"\xff" * _MARK_BYTES, PACKED_NUMBER).astype(np.uint64))
            marks += b"".join(digest(listed_id(*listing))[:_MARK_BYTES] for listing in found)
            after = found[-1]

    @contextmanager
    def _rows(self) -> Iterator[Rows]:
        if self.is_repair:
            with self.session.write() as transaction:
                yield self.session.rows(transaction)
        else:
            with LmdbView(self.session) as view:
                yield self.session.rows(view.transaction)

    def _each_page(self, name: str, check: Callable[[Rows, Sequence[Row]], None]) -> None:
        after = None
        while True:
            with self._rows() as rows:
                found = page(rows.transaction, rows.databases, name, after, self.page_rows)
                check(rows, found)
            if not found:
                return
            after = found[-1]
            if name != "register":
                self.done += len(found)
                self.observer.report("check", min(self.done, self.total), self.total)

    def _problem(self, text: str) -> bool:
        """Count a problem; return whether to repair it."""
        self.report.problem(text)
        self.report.repaired += self.is_repair
        return self.is_repair

    def _leftover(self, text: str) -> bool:
        """Count a leftover; return whether to delete it."""
        self.report.leftover(text)
        self.report.repaired += self.is_repair
        return self.is_repair

    def _check_listings(self, rows: Rows, listings: Sequence[Row]) -> None:
        """Compare each listing with its register, and check the drawer rows of confirmed documents."""
        filed: set[bytes] = set()
        keyed: set[Row] = set()
        for key, value in listings:
            packed, doc_id = key[:FINGERPRINT_BYTES], listed_id(key, value)
            register = rows.get_register(doc_id)
            if register is not None and pack(register.signature.fingerprint) == packed:
                self.confirmed += 1
                filed.add(packed)
                keyed |= {(prefix, packed) for prefix in rows.record.key_prefixes(register.signature.key)}
                continue
            if register is not None:
                self._check_listed(rows, doc_id, register)
            if self._leftover(f"{doc_id!r} is listed under {packed.hex()}"):
                rows.transaction.delete(key, db=rows.listing)
        self.keyed.extend(starmap(_mark, keyed))
        prefixes_of = rows.record.layout.prefixes
        drawers = {(prefix, one) for one in filed for prefix in prefixes_of(int.from_bytes(one, "big"))}
        self._check_filing(rows, sorted(drawers | keyed))

    def _check_listed(self, rows: Rows, doc_id: bytes, register: Registered) -> None:
        """Check whether a document is listed under its register's fingerprint; when repairing, list and file it."""
        fingerprint = register.signature.fingerprint
        key = document_key(pack(fingerprint), doc_id)
        if rows.transaction.get(key, db=rows.listing) is None and self._problem(
            f"{doc_id!r} is not listed under {fingerprint:016x}, the fingerprint in its register"
        ):
            rows.put([(doc_id, register)])

    def _check_filing(self, rows: Rows, wanted: Sequence[Row]) -> None:
        """Check whether drawer rows exist; when repairing, write the missing ones."""
        cursor = rows.transaction.cursor(rows.drawers)
        missing = [row for row in wanted if not cursor.set_key_dup(*row)]
        for prefix, packed in self._not_in_base(rows, missing):
            is_key = self.session.record.is_key_row(prefix)
            drawer = "the key drawer" if is_key else f"drawer {prefix[SEGMENT_BYTES]}"
            if self._problem(f"fingerprint {packed.hex()} does not have a row in {drawer}"):
                rows.transaction.put(prefix, packed, db=rows.drawers)

    def _not_in_base(self, rows: Rows, wanted: Sequence[Row]) -> Iterator[Row]:
        """Yield the rows that the base does not have; none if the base is damaged, which was already reported."""
        if rows.base is None or self.is_base_damaged:
            yield from () if self.is_base_damaged else wanted
            return
        keyed = {prefix for prefix, _ in wanted if self.session.record.is_key_row(prefix)}
        known = {row.tobytes() for row in rows.base.scan(sorted(keyed))}
        packed = np.frombuffer(b"".join(packed for _, packed in wanted), ">u8").astype(np.uint64)
        for row, is_known in zip(wanted, are_in(packed, rows.base.fingerprints).tolist(), strict=True):
            if not (b"".join(row) in known if row[0] in keyed else is_known):
                yield row

    def _check_registers(self, rows: Rows, registers: Sequence[Row]) -> None:
        """Find the registers whose id is not listed. A register has only its id's digest, so compare digests."""
        marks = rows_in(b"".join(key[:_MARK_BYTES] for key, _ in registers), PACKED_NUMBER).astype(np.uint64)
        unlisted = np.flatnonzero(self.listed[np.searchsorted(self.listed, marks)] != marks).tolist()
        suspects = [
            (registers[number][0], unpack_register(registers[number][1]).signature.fingerprint) for number in unlisted
        ]
        # Documents that were listed after the marks were read do not have a mark.
        listed = {value: _listed_digests(rows, pack(value)) for value in {fingerprint for _, fingerprint in suspects}}
        for key, fingerprint in suspects:
            if key not in listed[fingerprint] and self._problem(
                f"the document of register {key.hex()} (fingerprint {fingerprint:016x}) is not listed"
            ):
                rows.transaction.delete(key, db=rows.register)

    def _check_drawer_rows(self, rows: Rows, found: Sequence[Row]) -> None:
        """Recompute each drawer row's key, and look for a document with its fingerprint."""
        for prefix, packed in found:
            row = f"drawer row {prefix.hex()} {packed.hex()}"
            is_key = self.session.record.is_key_row(prefix)
            if not (is_key or _recomputes(rows, prefix, packed)):
                is_repaired = self._problem(f"{row} has a key that does not match its contents")
            elif not rows.is_listed(packed):
                is_repaired = self._leftover(f"{row} does not belong to a document")
            elif is_key and not self._is_keyed(rows, prefix, packed):
                is_repaired = self._leftover(_keyless(prefix, packed))
            else:
                continue
            if is_repaired:
                rows.transaction.delete(prefix, packed, db=rows.drawers)

    def _is_keyed(self, rows: Rows, prefix: bytes, packed: bytes) -> bool:
        """Whether a document with this fingerprint has a key that the key drawer files under `prefix`."""
        mark = np.uint64(_mark(prefix, packed))
        place = np.searchsorted(self.known_keys, mark)
        if place < len(self.known_keys) and self.known_keys[place] == mark:
            return True
        # The document may have been added after the listings were read.
        registers = (rows.transaction.get(one, db=rows.register) for one in _listed_digests(rows, packed))
        signatures = [unpack_register(value).signature for value in registers if value is not None]
        return any(
            pack(one.fingerprint) == packed and prefix in rows.record.key_prefixes(one.key) for one in signatures
        )


def _keyless(prefix: bytes, packed: bytes) -> str:
    return f"drawer row {prefix.hex()} {packed.hex()} does not belong to a document with this key"


def _mark(prefix: bytes, packed: bytes) -> int:
    """Return a number that identifies a row of the key drawer, up to 64-bit collisions."""
    return int.from_bytes(blake2b(prefix + packed, digest_size=_MARK_BYTES).digest(), "big")


def _recomputes(rows: Rows, prefix: bytes, packed: bytes) -> bool:
    if len(prefix) != PREFIX_BYTES or len(packed) != FINGERPRINT_BYTES:
        return False
    number, drawers = prefix[SEGMENT_BYTES], rows.record.layout.drawers
    segment = int.from_bytes(prefix[:SEGMENT_BYTES], "big")
    return 1 <= number <= len(drawers) and drawers[number - 1].segment(int.from_bytes(packed, "big")) == segment


def _listed_digests(rows: Rows, packed: bytes) -> set[bytes]:
    """Return the digests of the ids that are listed under a fingerprint."""
    cursor = rows.transaction.cursor(rows.listing)
    found, is_there = set(), cursor.set_range(packed)
    while is_there and cursor.key().startswith(packed):
        found.add(digest(listed_id(*cursor.item())))
        is_there = cursor.next()
    return found
