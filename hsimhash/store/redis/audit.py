"""`check` for an index on Redis: it compares registers, listings and buckets with each other.

| finding | meaning | repair |
|---|---|---|
| a register whose document is not listed under its fingerprint | problem: queries miss it | it is listed and filed |
| a listed fingerprint that is missing from a bucket or its key's bucket | problem: queries may miss it | it is filed |
| a bucket row whose key does not match its contents | problem | deleted |
| a count of documents that differs from the number of registers | problem | corrected |
| a listing without a register, or with a register that contradicts it | leftover of a change | logged, then collected |
| a bucket row with an unlisted fingerprint, or with a key that none of its documents has | leftover | deleted |

Everything is read once, page by page, while others read and write. Differences are read again and repaired in one
step. The check needs 16 bytes of memory for each fingerprint (more for over 64 drawers), and about 100 bytes for each
row of the key drawer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b

import numpy as np

from hsimhash.fingerprint.bits import Bools, Uint8s
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import FINGERPRINT_BYTES, PREFIX_BYTES, SEGMENT_BYTES, fingerprints_of
from hsimhash.store.base import Document
from hsimhash.store.redis.codec import SHARDS, document_in, numbers_of, pack_fingerprint, rowkeys_in
from hsimhash.store.redis.rows import RedisRows
from hsimhash.store.redis.scripts import COMPLETE, CORRECT, LOOKUP, UNFILE, UNLISTED
from hsimhash.store.reports import CheckReport

_SCANNED = 1_000  # number of keys that SCAN examines in one call
_WORD = 64  # number of drawers per number in `met`, one bit each
Listed = Callable[[], Iterator[list[bytes]]]  # pages of fingerprint (8) and id


def audit(rows: RedisRows, listed: Listed, *, repair: bool, observer: Observer = UNWATCHED) -> CheckReport:
    """Compare registers, listings and buckets with each other; see the module docstring."""
    if repair:
        rows.forget()
    check = RedisAudit(rows, listed, repair=repair)
    steps = (check.read_listings, check.read_registers, check.read_buckets, check.find_missing)
    for number, step in enumerate(steps, start=1):
        step()
        observer.report("check", number, len(steps))
    if repair:
        for _ in rows.collected():
            pass
    check.report.drawer_rows = int(np.bitwise_count(check.met).sum()) + len(set(check.met_keys))
    return check.report


class RedisAudit:
    """A check of an index in progress."""

    def __init__(self, rows: RedisRows, listed: Listed, *, repair: bool) -> None:
        self.session, self.keys, self.record, self.limits = rows.session, rows.keys, rows.record, rows.limits
        self.listed = listed
        self.is_repair = repair
        self.report = CheckReport()
        self.fingerprints = np.empty(0, np.uint64)  # the listed fingerprints, ascending
        self.met = np.empty((0, 0), np.uint64)  # for each fingerprint, a bit per drawer: whether the drawer has it
        self.needed, self.met_keys = set[int](), array("Q")  # marks of key drawer rows

    def _is_repaired(self, count: Callable[[str], None], text: str) -> bool:
        """Count a problem or a leftover; return whether to repair it."""
        count(text)
        self.report.repaired += self.is_repair
        return self.is_repair

    def _documents(self, rows: Sequence[bytes]) -> list[Document | None]:
        """Return listed documents according to their registers."""
        ids = [row[FINGERPRINT_BYTES:] for row in rows]
        values = self.session.read(LOOKUP, list(map(self.keys.register, ids)), [b"", *ids]) if ids else []
        return list(map(document_in, ids, values))

    # Step 1: every listing is confirmed by its register.

    def read_listings(self) -> None:
        packed = bytearray()
        for page in self.listed():
            for row, document in zip(page, self._documents(page), strict=True):
                fingerprint = row[:FINGERPRINT_BYTES]
                if packed[-FINGERPRINT_BYTES:] != fingerprint:
                    packed += fingerprint
                if document is None or pack_fingerprint(document.fingerprint) != fingerprint:
                    text = f"{row[FINGERPRINT_BYTES:]!r} is listed under {fingerprint.hex()}"
                    if self._is_repaired(self.report.leftover, text):
                        self._log(row)
                else:
                    self.needed.update(self._key_marks(document))
        self.fingerprints = numbers_of(bytes(packed))
        self.met = np.zeros((len(self.fingerprints), -(-len(self.record.layout.drawers) // _WORD)), np.uint64)

    def _key_marks(self, document: Document) -> list[int]:
        """Return the marks of a document's rows in the key drawer."""
        packed = pack_fingerprint(document.fingerprint)
        return [_mark(prefix, packed) for prefix in self.record.key_prefixes(document.key)]

    def _log(self, row: bytes) -> None:
        """Write a listing to the log of orphans, with the current time."""
        no_key = bytes(FINGERPRINT_BYTES * self.record.has_signatures)
        orphan = row[:FINGERPRINT_BYTES] + no_key + row[FINGERPRINT_BYTES:]
        self.session.write(CORRECT, [self.keys.orphans], [orphan, 0])

    # Step 2: every register's document is listed under its fingerprint.

    def read_registers(self) -> None:
        before, shard = self._counted(), 0
        while shard < SHARDS:
            stop = min(shard + self.limits.shards, SHARDS)
            given: list[bytes | int] = [self.keys.listings, shard, stop, self.limits.documents]
            shard, count, unlisted = self.session.read(UNLISTED, (), [*given, self.keys.registers])
            self.report.documents += count
            for doc_id, value in zip(unlisted[::2], unlisted[1::2], strict=True):
                where = f"{value[:FINGERPRINT_BYTES].hex()}, the fingerprint in its register"
                if self._is_repaired(self.report.problem, f"{doc_id!r} is not listed under {where}"):
                    self._complete(doc_id, value)
        after, found = self._counted(), self.report.documents
        if before == after != found:
            text = f"the record counts {after} documents, but {found} have registers"
            if self._is_repaired(self.report.problem, text):
                self.session.write(CORRECT, [self.keys.orphans], [b"", found - after])

    def _counted(self) -> int:
        return int(self.session.call("HGET", self.keys.record, b"documents") or 0)

    def _complete(self, doc_id: bytes, value: bytes) -> None:
        """List and file a document according to its register, unless the register has changed since it was read."""
        document = document_in(doc_id, value)
        if document is not None:
            filed = [key for key in self.keys.filed(self.record, document.signature) if key != self.keys.record]
            self.session.write(COMPLETE, [self.keys.register(doc_id), *filed], [doc_id, value])

    # Step 3: the key of every bucket row matches its contents, and its fingerprint is listed.

    def read_buckets(self) -> None:
        cursor, size = b"0", len(self.keys.buckets) + PREFIX_BYTES
        while True:
            cursor, found = self.session.call("SCAN", cursor, "MATCH", self.keys.buckets + b"*", "COUNT", _SCANNED)
            named = [key for key in found if len(key) == size]
            if named:
                rows = rowkeys_in([key[-PREFIX_BYTES:] for key in named], self.session.call("MGET", *named))
                self._check_rows(rows, self._meet(rows))
            if cursor == b"0":
                return

    def _meet(self, rows: Uint8s) -> Bools:
        """Mark the rows that are known to be correct; return which rows are not."""
        values, flags = fingerprints_of(rows), rows[:, SEGMENT_BYTES]
        segments = rows[:, :SEGMENT_BYTES].copy().view(">u4").ravel()
        is_known = np.zeros(len(rows), np.bool_)
        if not len(self.fingerprints):
            return ~is_known
        place = np.minimum(np.searchsorted(self.fingerprints, values), len(self.fingerprints) - 1)
        for drawer in self.record.layout.drawers:
            own = np.flatnonzero(flags == drawer.number)
            own = own[(drawer.segments(values[own]) == segments[own]) & (self.fingerprints[place[own]] == values[own])]
            is_known[own] = True
            word, bit = divmod(drawer.number - 1, _WORD)
            self.met[place[own], word] |= np.uint64(1 << bit)
        return ~is_known

    def _check_rows(self, rows: Uint8s, is_unknown: Bools) -> None:
        """Check the key drawer rows, and the other rows that are not known to be correct."""
        for row in rows[is_unknown]:
            prefix, packed = row[:PREFIX_BYTES].tobytes(), row[PREFIX_BYTES:].tobytes()
            mark, text = _mark(prefix, packed), f"drawer row {prefix.hex()} {packed.hex()}"
            is_key = self.record.is_key_row(prefix)
            if is_key and mark in self.needed:
                self.met_keys.append(mark)
            elif not (is_key or prefix in self.record.layout.prefixes(int.from_bytes(packed, "big"))):
                if self._is_repaired(self.report.problem, f"{text} has a key that does not match its contents"):
                    self._unfile(prefix, packed, b"1")
            elif not self._is_counted_on(prefix, packed, is_key=is_key):
                why = "document with this key" if is_key else "document"
                if self._is_repaired(self.report.leftover, f"{text} does not belong to a {why}"):
                    self._unfile(prefix, packed, b"1" if is_key else b"0")

    def _is_counted_on(self, prefix: bytes, packed: bytes, *, is_key: bool) -> bool:
        """Whether a document is listed under a row's fingerprint and, for a key drawer row, has the row's key."""
        start, stop = b"[" + packed, b"(" + packed + b"\xff"
        listed = self.session.call("ZRANGEBYLEX", self.keys.listing(packed), start, stop)
        if not is_key:
            return bool(listed)
        documents = self._documents(listed)
        return any(one is not None and prefix in self.record.key_prefixes(one.key) for one in documents)

    def _unfile(self, prefix: bytes, packed: bytes, even_if_listed: bytes) -> None:
        keys = [self.keys.bucket(prefix), self.keys.listing(packed)]
        self.session.write(UNFILE, keys, [packed, even_if_listed])

    # Step 4: look again for rows that were not found.

    def find_missing(self) -> None:
        drawers = len(self.record.layout.drawers)
        unmet = self.fingerprints[np.bitwise_count(self.met).sum(axis=1) < drawers].tolist()
        checked = set(map(pack_fingerprint, unmet))
        for packed in sorted(checked):
            start, stop = b"[" + packed, b"(" + packed + b"\xff"
            self._check_filing(self.session.call("ZRANGEBYLEX", self.keys.listing(packed), start, stop))
        if missing := self.needed.difference(self.met_keys):
            for page in self.listed():
                for row, document in zip(page, self._documents(page), strict=True):
                    is_its = document is not None and pack_fingerprint(document.fingerprint) == row[:FINGERPRINT_BYTES]
                    if document is None or not is_its or row[:FINGERPRINT_BYTES] in checked:
                        continue
                    if not missing.isdisjoint(self._key_marks(document)):
                        self._check_filing([row])

    def _check_filing(self, listed: Sequence[bytes]) -> None:
        """Look for a fingerprint in all buckets that its documents need."""
        for row in listed:
            packed, doc_id = row[:FINGERPRINT_BYTES], row[FINGERPRINT_BYTES:]
            value = self.session.call("HGET", self.keys.register(doc_id), doc_id)
            document = document_in(doc_id, value)
            if document is None or pack_fingerprint(document.fingerprint) != packed:
                continue
            filed = [key for key in self.keys.filed(self.record, document.signature)[1:] if key != self.keys.record]
            buckets = self.session.call("MGET", *filed)
            lacking = [key for key, one in zip(filed, buckets, strict=True) if not _has(one, packed)]
            for key in lacking:
                prefix = key[-PREFIX_BYTES:]
                is_key = self.record.is_key_row(prefix)
                drawer = "the key drawer" if is_key else f"drawer {prefix[SEGMENT_BYTES]}"
                self._is_repaired(self.report.problem, f"fingerprint {packed.hex()} does not have a row in {drawer}")
            if lacking and self.is_repair:
                self._complete(doc_id, value)


def _has(bucket: bytes | None, packed: bytes) -> bool:
    return bucket is not None and packed in (bucket[at : at + FINGERPRINT_BYTES] for at in range(0, len(bucket), 8))


def _mark(prefix: bytes, packed: bytes) -> int:
    """Return a number that identifies a row of the key drawer, up to 64-bit collisions."""
    return int.from_bytes(blake2b(prefix + packed, digest_size=FINGERPRINT_BYTES).digest(), "big")
