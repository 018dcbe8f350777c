"""The write protocol: many processes add, change and remove documents, although HBase is atomic only per row.

Readers rely on this invariant: *if a register has fingerprint F and key K, then F lists the document, all drawer rows
of F are visible, and so are the rows of F under all parts of K in the key drawer.* (In format 2, a key has one part:
the key itself.) So a write

1. reads the registers; a document that already has the signature is done,
2. puts the listings,
3. puts the drawer rows, including the rows of the key drawer,
4. sets the registers by compare-and-set; it starts over for registers that have changed or whose outcome is unknown.

The fingerprint and the key determine the rows that a register depends on. A write puts all of these rows before it sets
the register, even if they already exist. The protocol does not depend on the number of rows.

A write does not delete anything. The cells that it leaves behind are collected later (`upkeep/`), but only once they
are older than any write that may still depend on them. The *log of orphans* records where to look. Before step 4, a
write logs what the document is about to leave: its fingerprint, or a key with a part that the new key does not have. So
does a removal. An entry names all rows of the old key. Collection checks each row separately, and keeps rows
that a document still depends on. A crash after the entry is written and before the register is set leaves an entry for
rows that are not orphans, which is harmless. Collection processes an entry only once the register of its write can no
longer arrive. An entry records the hour of its write. More than a day after that hour, collection no longer looks for
new entries in it. So a write sends an entry only while it may still send the register.

All of this depends on the times in `Times` (`rewrite_s`, `settled_s`, `forgotten_s`) and on two guarantees from the
cluster: its region servers' clocks are correct to within 10 minutes, and a call whose reply was lost takes effect
within 20 minutes or never (`hbase.client.operation.timeout`). In minutes: 10 for the writer (`rewrite_s`) + 20 for the
call + 2 · 10 for the clocks < 60 (`settled_s`).

If no other process writes the same documents (`exclusive`), a writer puts new registers in batches. A copy of such a
put may take effect after a later write of the document, so its timestamp must be lower than that
write's. It is half an hour in the past, which is earlier than any timestamp that a server assigns from now on, because
clocks differ by at most 2 · 10 minutes. It is also later than the timestamps of all earlier puts of this kind, by any
writer: it is derived from a server's time, which is used only if a certain cell next to the record does not have a
later timestamp. The writer then reads these registers again, as after an unknown outcome. It uses compare-and-set for
registers that it does not see, because a delete marker may hide them.

HBase cannot compare across rows, so a write cannot verify in the same step that the table still has the index that was
opened. A call's writes are acknowledged only after the call reads the index's identity again, at its
end (`SameIndex`). The identity is unique, so if it is unchanged, everything written until then went into this index. A
register is sent only if the identity was read less than 30 seconds earlier, so that few writes can go into an index
that has replaced this one. A `check` of that index finds them: they are registers without rows, or rows without
registers.

A bulk load via HFiles (`files/load_steps.py`) loads rows hours before their registers. The timestamp of all its cells
is the time at which it began. So it records its start next to the record. Until it ends, cells with this timestamp or a
later one are not collected.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

from hsimhash.errors import StoreUnavailableError
from hsimhash.fingerprint.signature import Signature
from hsimhash.rowkey import RECORD_ROWKEY
from hsimhash.store.base import IDENTITY_PART, RECORD_PARTS, Mark, Record, gone
from hsimhash.store.hbase.gateway.base import (
    DOCUMENT_FAMILY,
    RECORD_FAMILY,
    UNANSWERED,
    Cell,
    Change,
    Deletion,
    Gateway,
    Put,
    always,
)
from hsimhash.store.hbase.gateway.batches import slices
from hsimhash.store.hbase.rows.cells import HOUR_S, NOW, Orphan, Register, listing_put, register_key

BATCH_DOCUMENTS = 5_000  # documents written together; bounds memory, and the time between rows and their registers
CHANGES_AT_ONCE = 200  # registers set by one call; bounds the time lost if no reply arrives
MOST_DRAWS = 3  # attempts to draw a timestamp while other writers do so; after that, compare-and-set is used
MARK_TRIES = 10  # one is enough unless replies are lost
LOADS = b"load:"  # qualifier prefix of a cell next to the record, followed by a load's token
LOADS_AT_ONCE = 100  # cells read by one call
MOST_LOST = 5  # consecutive calls to set registers without a single reply, after which a write fails

Wanted = Mapping[bytes, tuple[Signature, int]]  # document id → signature, first seen (ms since 1970)


def _awake_or_asleep() -> float:
    """Return the time in seconds, if possible on a clock that also runs while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Times:
    """Time limits of writes, minimum ages for collection (both in seconds), and which writes are batched."""

    rewrite_s: float = 600.0  # maximum time from writing rows to setting their register; after that, rows are rewritten
    settled_s: float = 3_600.0  # only cells that were written longer ago are collected
    forgotten_s: float = 86_400.0  # how long a removed document's register stays
    load_s: float = 7 * 86_400.0  # how long collection waits for an unfinished bulk load via HFiles
    ttl_s: float | None = None  # age at which the table drops documents and drawer rows; None: never
    claim_s: float = 1_200.0  # age after which a claim's process is presumed dead
    claim_wait_s: float = 30.0  # how long a claim waits for earlier ones
    put_before_s: float = 1_800.0  # how far back registers are dated when they are put
    same_s: float = 30.0  # how long registers and queries may be sent after the index was last seen
    put_from: int = 50  # minimum new registers that an exclusive writer puts; for fewer, compare-and-set is as fast
    clock: Callable[[], float] = _awake_or_asleep  # monotonic, in seconds; also runs while the machine sleeps
    # Seconds since 1970. This clock also advances during a sleep that a virtual machine did not notice. It determines
    # the hour in the log of orphans. If it is off by more than half a day, only `check --repair` finds the entries.
    wall_clock: Callable[[], float] = time.time
    sleep: Callable[[float], object] = time.sleep

    def rows_timely(self) -> Callable[[], bool]:
        """Start a time limit for writing rows; return a function that returns true while their registers may be set."""
        return self._within(self.rewrite_s)

    def index_recent(self) -> Callable[[], bool]:
        """Return a function that returns true for as long as an index seen now can be assumed to still exist."""
        return self._within(self.same_s)

    def _within(self, seconds: float) -> Callable[[], bool]:
        began, wall_began = self.clock(), self.wall_clock()
        return lambda: max(self.clock() - began, self.wall_clock() - wall_began) <= seconds


@dataclass(frozen=True, slots=True)
class Read:
    """A register as it was read: its contents, its exact bytes, and their age by this machine's clock."""

    register: Register
    value: bytes | None
    age_s: float


NEVER_READ = Read(Register(), None, 0.0)


class SameIndex:
    """Checks that a table still has the index that was opened; see the module's docstring."""

    def __init__(self, url: str, gateway: Gateway, record: Record, times: Times) -> None:
        self._url, self._gateway, self._record, self._times = url, gateway, record, times
        self.is_recent: Callable[[], bool] = lambda: False  # whether the index was seen a moment ago

    def check_unless_recent(self) -> None:
        """Call `check`, unless the index was seen a moment ago."""
        if not self.is_recent():
            self.check()

    def check(self) -> None:
        """Raise `IndexNotFoundError` if the index was dropped, truncated, or replaced by another one."""
        is_recent = self._times.index_recent()
        (cell,) = self._gateway.get([self._key], RECORD_FAMILY)
        self._judge(cell, is_recent)

    def check_in_part(self) -> bool:
        """Call `check_unless_recent` with a time limit; return False if the server does not respond in time."""
        if self.is_recent():
            return True
        is_recent = self._times.index_recent()
        (cell,) = self._gateway.get_in_part([self._key], RECORD_FAMILY)
        if cell is UNANSWERED:
            return False
        self._judge(cell, is_recent)
        return True

    @property
    def _key(self) -> tuple[bytes, bytes]:
        return RECORD_ROWKEY, IDENTITY_PART if self._record.identity else RECORD_PARTS[0]

    def _judge(self, cell: Cell | None, is_recent: Callable[[], bool]) -> None:
        if cell is None or (self._record.identity and cell.value != self._record.identity):
            raise gone(self._url, is_replaced=cell is not None)
        self.is_recent = is_recent


class Writes:
    """Adds, changes and removes documents through a gateway; see the module's docstring.

    Args:
        gateway: Gateway to the table.
        record: Index record. Its layout determines the drawer rows, its format the registers.
        times: Time limits.
        same: Checks that the table still has the index.
        exclusive: Whether no other process writes these documents, so that many new registers are put without
            comparing.
    """

    def __init__(
        self, gateway: Gateway, record: Record, times: Times, same: SameIndex, *, exclusive: bool = False
    ) -> None:
        self.gateway = gateway
        self.record = record
        self.times = times
        self.same = same
        self.exclusive = exclusive
        self._lost = 0

    def add(self, wanted: Wanted, *, announce: Callable[[int], None] | None = None) -> int:
        """Add or change documents; return how many are new or changed.

        `announce` is called with the expected number before the first write.
        """
        changed, sent, left = 0, dict[bytes, bytes](), dict(wanted)
        while left:
            found = self.read(list(left))
            changed += sum(found[doc_id].value == value for doc_id, value in sent.items())
            left = {doc_id: want for doc_id, want in left.items() if not self._is_done(found[doc_id], want[0])}
            is_news = {doc_id for doc_id, want in left.items() if found[doc_id].register.signature != want[0]}
            if announce is not None:
                announce(len(is_news))
                announce = None
            if left:
                changes = [
                    self.change_of(doc_id, found[doc_id], found[doc_id].register.filed(*left[doc_id]))
                    for doc_id in left
                ]
                done = self._write(left, changes, may_put=self.exclusive and not sent)
                changed += len(done & is_news)
                unknown = is_news - done
                left = {doc_id: want for doc_id, want in left.items() if doc_id not in done}
                sent = {change.qualifier: change.value for change in changes if change.qualifier in unknown}
        return changed

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        """Remove documents, or with `before` (ms since 1970) only those first seen earlier; return how many."""
        removed, sent, left = 0, dict[bytes, bytes](), list(dict.fromkeys(doc_ids))
        while left:
            found = self.read(left)
            removed += sum(found[doc_id].value == value for doc_id, value in sent.items())
            left = [doc_id for doc_id in left if found[doc_id].register.is_filed(before)]
            changes = [self.change_of(doc_id, found[doc_id], found[doc_id].register.removed()) for doc_id in left]
            is_timely = self.times.rows_timely()
            self.gateway.put(self.left_by(changes), is_timely=is_timely)
            done = self.set_registers(changes, is_timely)
            removed += len(done)
            left = [doc_id for doc_id in left if doc_id not in done]
            sent = {change.qualifier: change.value for change in changes if change.qualifier not in done}
        return removed

    def read(self, doc_ids: Sequence[bytes]) -> dict[bytes, Read]:
        """Read the registers of documents."""
        cells = self.gateway.get([register_key(doc_id) for doc_id in doc_ids], DOCUMENT_FAMILY)
        now = self.times.wall_clock()
        return {
            doc_id: NEVER_READ
            if cell is None
            else Read(Register.from_bytes(cell.value), cell.value, now - cell.timestamp / 1_000)
            for doc_id, cell in zip(doc_ids, cells, strict=True)
        }

    def change_of(self, doc_id: bytes, read: Read, following: Register) -> Change:
        """Return the compare-and-set from the register that was read to the one that follows."""
        row, qualifier = register_key(doc_id)
        value = following.to_bytes(has_signatures=self.record.has_signatures)
        return Change(row, DOCUMENT_FAMILY, qualifier, read.value, value)

    def _is_done(self, read: Read, signature: Signature) -> bool:
        """Whether nothing needs to be written; with a TTL, rows that may expire before their register are rewritten."""
        if read.register.signature != signature:
            return False
        return self.times.ttl_s is None or 0 <= read.age_s <= self.times.ttl_s / 2

    def _write(self, wanted: Wanted, changes: Sequence[Change], *, may_put: bool) -> set[bytes]:
        """Write rows, then registers; return the documents whose register is known to be set."""
        is_timely = self.times.rows_timely()
        signatures = {doc_id: signature for doc_id, (signature, _) in wanted.items()}
        put_listings(self.gateway, signatures, self.left_by(changes), is_timely)
        put_drawer_rows(self.gateway, self.record, signatures)
        new = [change for change in changes if change.expected is None]
        if may_put and len(new) >= self.times.put_from:
            self._put_registers(new, is_timely)
            changes = [change for change in changes if change.expected is not None]
        return self.set_registers(changes, is_timely)

    def left_by(self, changes: Sequence[Change]) -> list[Put]:
        """Return the log entries for everything that documents leave behind when their registers change."""
        moves = list[tuple[bytes, Signature | None, Signature | None]]()
        for change in changes:
            old, new = Register.from_bytes(change.expected or b""), Register.from_bytes(change.value)
            moves.append((change.qualifier, old.signature, new.signature))
            if old.claimed not in (new.claimed, new.signature):
                moves.append((change.qualifier, old.claimed, new.signature))
        return self.orphan_puts(moves)

    def orphan_puts(self, moves: Iterable[tuple[bytes, Signature | None, Signature | None]]) -> list[Put]:
        """Return the log entries for moves; a move consists of an id, its old signature and its new one."""
        hour = max(0, int(self.times.wall_clock()) // HOUR_S)
        return [
            Orphan(hour, doc_id, old).put(self.record.keying)
            for doc_id, old, new in moves
            if old is not None and (new is None or self._leaves_rows(old, new))
        ]

    def _leaves_rows(self, old: Signature, new: Signature) -> bool:
        """Whether a document with the old signature depends on a row that it does not need with the new one."""
        if old.fingerprint != new.fingerprint:
            return True
        return not set(self.record.key_prefixes(old.key)).issubset(self.record.key_prefixes(new.key))

    def set_registers(self, changes: Sequence[Change], is_timely: Callable[[], bool]) -> set[bytes]:
        """Compare and set registers; return the documents whose register is known to be set."""
        done, is_timely = set[bytes](), self._while_same(is_timely)
        for part in slices(len(changes), CHANGES_AT_ONCE):
            self.same.check_unless_recent()
            if not is_timely():
                break
            outcomes = self.gateway.change(changes[part], is_timely=is_timely)
            self._count_lost(outcomes)
            done |= {change.qualifier for change, is_made in zip(changes[part], outcomes, strict=True) if is_made}
        return done

    def _while_same(self, is_timely: Callable[[], bool]) -> Callable[[], bool]:
        return lambda: is_timely() and self.same.is_recent()

    def _count_lost(self, outcomes: Sequence[bool | None]) -> None:
        self._lost = self._lost + 1 if all(outcome is None for outcome in outcomes) else 0
        if self._lost == MOST_LOST:
            raise StoreUnavailableError(
                f"no reply to any of {len(outcomes)} compare-and-sets, {MOST_LOST} times in a row, although reads "
                f"succeed; the documents may or may not have been written: write them again, and run 'hsimhash doctor "
                f"--write' with the URL of this index"
            )

    def _put_registers(self, changes: Sequence[Change], is_timely: Callable[[], bool]) -> None:
        """Put new registers, which the caller must then read again."""
        timestamp = self._timestamp()
        if timestamp is not None:
            puts = [Put(one.row, one.family, one.qualifier, one.value, timestamp) for one in changes]
            self.same.check_unless_recent()
            self.gateway.put(puts, is_timely=self._while_same(is_timely))

    def _timestamp(self) -> int | None:
        """Return a timestamp for registers that are put now; None if it would not be the greatest so far."""
        for _ in range(MOST_DRAWS):
            token = uuid4().bytes
            self.gateway.put([Put(RECORD_ROWKEY, RECORD_FAMILY, NOW, token)])
            cell = self.gateway.get([(RECORD_ROWKEY, NOW)], RECORD_FAMILY)[0]
            if cell is not None and cell.value == token:
                return cell.timestamp - round(self.times.put_before_s * 1_000)
        return None

    def marked(self, token: str) -> int:
        """Return the count of a job's mark, or 0 if it does not exist."""
        (cell,) = self.gateway.get([(RECORD_ROWKEY, Mark(token).key)], RECORD_FAMILY)
        return int(cell.value) if cell is not None else 0

    def set_mark(self, mark: Mark) -> None:
        """Store a job's progress."""
        # Not with a put: one that arrives late or has a timestamp from a slower clock would bring back an earlier mark.
        for _ in range(MARK_TRIES):
            (cell,) = self.gateway.get([(RECORD_ROWKEY, mark.key)], RECORD_FAMILY)
            held = cell.value if cell is not None else None
            change = Change(RECORD_ROWKEY, RECORD_FAMILY, mark.key, held, mark.value)
            if held == mark.value or self.gateway.change([change]) == [True]:
                return
        raise StoreUnavailableError(
            f"cannot store the job's progress: gave up after {MARK_TRIES} tries, although reads succeed; run 'hsimhash "
            f"doctor --write', and then the same command again"
        )


def begin_load(gateway: Gateway, token: str) -> int:
    """Record next to the index record that a bulk load begins; return the server's time, in ms since 1970."""
    key = RECORD_ROWKEY, LOADS + token.encode()
    for _ in range(MARK_TRIES):  # not with a put, because a retry would get another timestamp
        (cell,) = gateway.get([key], RECORD_FAMILY)
        if cell is not None:
            return cell.timestamp
        gateway.change([Change(key[0], RECORD_FAMILY, key[1], None, b"1")])
    raise StoreUnavailableError(
        f"cannot record the start of the load: gave up after {MARK_TRIES} tries, although reads succeed; run 'hsimhash "
        f"doctor --write', and then the same command again"
    )


def loads_begun(gateway: Gateway) -> dict[str, int]:
    """Return the time at which each unfinished bulk load began, in ms since 1970, by its token."""
    found, after = dict[str, int](), LOADS
    while cells := gateway.cells(RECORD_ROWKEY, RECORD_FAMILY, after=after, limit=LOADS_AT_ONCE):
        loads = [cell for cell in cells if cell.qualifier.startswith(LOADS)]
        found |= {cell.qualifier.removeprefix(LOADS).decode(): cell.timestamp for cell in loads}
        if len(loads) < LOADS_AT_ONCE:
            break
        after = cells[-1].qualifier
    return found


def end_load(gateway: Gateway, token: str) -> None:
    """Record that a bulk load has ended or was abandoned."""
    (cell,) = gateway.get([(RECORD_ROWKEY, LOADS + token.encode())], RECORD_FAMILY)
    if cell is not None:
        gateway.delete([Deletion(RECORD_ROWKEY, RECORD_FAMILY, cell.qualifier, cell.timestamp)])


def put_listings(
    gateway: Gateway,
    signatures: Mapping[bytes, Signature],
    more: Sequence[Put] = (),
    is_timely: Callable[[], bool] = always,
) -> None:
    """List documents under their fingerprints, and put `more` in the same calls; see `Gateway.put`."""
    listings = [listing_put(signature.fingerprint, doc_id) for doc_id, signature in signatures.items()]
    gateway.put([*listings, *more], is_timely=is_timely)


def put_drawer_rows(gateway: Gateway, record: Record, signatures: Mapping[bytes, Signature]) -> None:
    """File fingerprints in every drawer and, under the parts of their keys, in the key drawer; each row once."""
    gateway.put_rows(record.filed_rowkeys(signatures.values()))
