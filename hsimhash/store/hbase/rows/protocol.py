"""The write protocol: add, change and remove documents while many processes write HBase's rows one by one.

The invariant that readers rely on: *a register that says fingerprint F and key K implies that F lists the document and
that all drawer rows of F, and the rows of F under all parts of K in the key drawer, are visible.* (In format 2 a key is
its only part.) So a write

1. reads the registers; a document that has the signature already is done,
2. puts the listings,
3. puts the drawer rows, those of the key drawer among them,
4. compares the registers with what it read, and sets them; where that was refused or is unknown, it begins again.

The rows that a register counts on are a set, which its fingerprint and key decide; a write puts all of them before it
sets the register, whichever are there already. Nothing below goes by how many they are.

It deletes nothing: what it leaves behind is collected later (`upkeep/`), but only once it is older than any write
that may still count on it. Where to look, the *log of orphans* says: before step 4 a write puts there what the document
will leave, a fingerprint or a key of which a part is not among those of the new one; so does a removal. An entry names
all rows of the old key; those on which a document still counts stay, because collection judges each row by itself. A
crash in between leaves an entry for what is none, which is harmless, and an entry is worked off only once no
register may follow it. It names the hour of its write, whose entries are not looked for later than a day after it: so
it is sent only as long as the register may be.

That rests on the three times below, and on two promises of a cluster: the clocks of its region servers are right to 10
minutes, and a call whose reply was lost lands within 20 minutes or never (`hbase.client.operation.timeout`). 10 of the
writer + 20 + 2 · 10 < 60.

Who alone writes its documents (`exclusive`) puts registers that are new in batches. A copy of such a put may land after
a later write of the document, so it must lie below it. It has a timestamp of half an hour ago: below whatever any
server stamps from now on, whose clocks differ by 2 · 10 minutes. And it is greater than those of all such puts before
it, by whomever: it is a server's time only where that is the latest that a cell beside the record has had. What was put
is read again like an unknown outcome, and compared and set where it is not seen: a delete marker may lie above it.

HBase compares nothing across rows, so no write can ask in the same step whether the table still has the index that was
opened. What a call wrote counts only once it has read the index's identity again, at its end (`SameIndex`): it is
unique, so if it is unchanged, all went into this index until then. And no register is sent unless the identity was read
less than 30 seconds before, so that little goes into another index that took its place. That is what its `check` then
finds: registers without rows, or rows without registers.

A bulk load by files (`files/load_steps.py`) brings rows whose registers come hours later, all with the time at which it
began. So it says beside the record that it began, and while it is under way nothing is collected that is as young.
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

BATCH_DOCUMENTS = 5_000  # written together; bounds memory, and how long their rows wait for their registers
CHANGES_AT_ONCE = 200  # registers set by one call; bounds how long one takes to which no reply comes
MOST_DRAWS = 3  # of a timestamp, where others draw one at once; then registers are compared and set
MARK_TRIES = 10  # one is enough, but for replies that do not come
LOADS = b"load:"  # before the token of a bulk load by files, a cell beside the record
LOADS_AT_ONCE = 100  # read by one call
MOST_LOST = 5  # calls in sequence that set registers without a single reply, each after its time-out

Wanted = Mapping[bytes, tuple[Signature, int]]  # by document id: signature, first seen


def _awake_or_asleep() -> float:
    """Return seconds of a clock that runs while the machine sleeps too, if the system has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@dataclass(frozen=True, slots=True)
class Times:
    """How long writes may take, and how old rows must be to be collected, in seconds; and which writes are batched."""

    rewrite_s: float = 600.0  # a register is set within this time after its rows were begun, or they are written again
    settled_s: float = 3_600.0  # only what was written longer ago is collected
    forgotten_s: float = 86_400.0  # for so long a removed document's register stays
    load_s: float = 7 * 86_400.0  # so long collection waits for a bulk load by files that was begun
    ttl_s: float | None = None  # after which the table drops documents and drawer rows; None: never
    claim_s: float = 1_200.0  # a claim that began longer ago is a dead claimant's
    claim_wait_s: float = 30.0  # so long a claim waits for others that were earlier
    put_before_s: float = 1_800.0  # so long before now is the timestamp of registers that are put
    same_s: float = 30.0  # no register is sent, and no query asked, later after the index was last seen to be there
    put_from: int = 50  # so many new registers of an exclusive writer are put; fewer are compared and set as fast
    clock: Callable[[], float] = _awake_or_asleep  # seconds that only go forward, also while the machine sleeps
    # Seconds since 1970: they also pass in a sleep that a virtual machine did not notice. They name the hour in the log
    # of orphans; whose clock is more than half a day off leaves its entries to `check --repair`.
    wall_clock: Callable[[], float] = time.time
    sleep: Callable[[float], object] = time.sleep

    def rows_timely(self) -> Callable[[], bool]:
        """Return what says, of rows that are begun now, whether a register may still count on them."""
        return self._within(self.rewrite_s)

    def index_recent(self) -> Callable[[], bool]:
        """Return what says, of an index that is there now, whether it may still be taken to be there."""
        return self._within(self.same_s)

    def _within(self, seconds: float) -> Callable[[], bool]:
        began, wall_began = self.clock(), self.wall_clock()
        return lambda: max(self.clock() - began, self.wall_clock() - wall_began) <= seconds


@dataclass(frozen=True, slots=True)
class Read:
    """A register as it was read: what it says, the very bytes, and how old they are by this machine's clock."""

    register: Register
    value: bytes | None
    age_s: float


NEVER_READ = Read(Register(), None, 0.0)


class SameIndex:
    """Tells whether a table still has the index that was opened; see the module's text."""

    def __init__(self, url: str, gateway: Gateway, record: Record, times: Times) -> None:
        self._url, self._gateway, self._record, self._times = url, gateway, record, times
        self.is_recent: Callable[[], bool] = lambda: False  # whether the index was there a moment ago

    def check_unless_recent(self) -> None:
        """Do what `check` does, unless that was done a moment ago."""
        if not self.is_recent():
            self.check()

    def check(self) -> None:
        """Raise `IndexNotFoundError` where the index was dropped, its table truncated, or another one made there."""
        is_recent = self._times.index_recent()
        (cell,) = self._gateway.get([self._key], RECORD_FAMILY)
        self._judge(cell, is_recent)

    def check_in_part(self) -> bool:
        """Do what `check_unless_recent` does, if the server answers in time; return whether it did."""
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
    """Adds, changes and removals through a gateway; see the module's text.

    Args:
        gateway: to the table.
        record: its layout fixes the drawer rows, its format the registers.
        times: see `Times`.
        same: says whether the table still has the index.
        exclusive: nobody else writes these documents: many registers that are new are put, without comparing.
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
        """Add or change documents; return how many are new or changed. `announce` gets that number before any write."""
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
        """Remove documents, with `before` only those first seen earlier; return how many there were."""
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
        """Return the registers of documents."""
        cells = self.gateway.get([register_key(doc_id) for doc_id in doc_ids], DOCUMENT_FAMILY)
        now = self.times.wall_clock()
        return {
            doc_id: NEVER_READ
            if cell is None
            else Read(Register.from_bytes(cell.value), cell.value, now - cell.timestamp / 1_000)
            for doc_id, cell in zip(doc_ids, cells, strict=True)
        }

    def change_of(self, doc_id: bytes, read: Read, following: Register) -> Change:
        """Return what compares a register with what was read, and sets the one that follows."""
        row, qualifier = register_key(doc_id)
        value = following.to_bytes(has_signatures=self.record.has_signatures)
        return Change(row, DOCUMENT_FAMILY, qualifier, read.value, value)

    def _is_done(self, read: Read, signature: Signature) -> bool:
        """Whether nothing is to be written; with a TTL, rows that may go before their register are written again."""
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
        """Return what writes into the log of orphans what documents leave by changes of their registers."""
        moves = list[tuple[bytes, Signature | None, Signature | None]]()
        for change in changes:
            old, new = Register.from_bytes(change.expected or b""), Register.from_bytes(change.value)
            moves.append((change.qualifier, old.signature, new.signature))
            if old.claimed not in (new.claimed, new.signature):
                moves.append((change.qualifier, old.claimed, new.signature))
        return self.orphan_puts(moves)

    def orphan_puts(self, moves: Iterable[tuple[bytes, Signature | None, Signature | None]]) -> list[Put]:
        """Return what logs what documents leave that have one signature, and will have another: id, both."""
        hour = max(0, int(self.times.wall_clock()) // HOUR_S)
        return [
            Orphan(hour, doc_id, old).put(self.record.keying)
            for doc_id, old, new in moves
            if old is not None and (new is None or self._leaves_rows(old, new))
        ]

    def _leaves_rows(self, old: Signature, new: Signature) -> bool:
        """Whether a document whose signature changes no longer counts on a row."""
        if old.fingerprint != new.fingerprint:
            return True
        return not set(self.record.key_prefixes(old.key)).issubset(self.record.key_prefixes(new.key))

    def set_registers(self, changes: Sequence[Change], is_timely: Callable[[], bool]) -> set[bytes]:
        """Compare and set registers; return the documents for which that is known to be done."""
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
                f"no reply to any of {len(outcomes)} compare-and-sets, {MOST_LOST} times in sequence, though reads are "
                f"answered; documents may be written or not: write them again, and run 'hsimhash doctor --write'"
            )

    def _put_registers(self, changes: Sequence[Change], is_timely: Callable[[], bool]) -> None:
        """Put registers that are new, to be read again."""
        timestamp = self._timestamp()
        if timestamp is not None:
            puts = [Put(one.row, one.family, one.qualifier, one.value, timestamp) for one in changes]
            self.same.check_unless_recent()
            self.gateway.put(puts, is_timely=self._while_same(is_timely))

    def _timestamp(self) -> int | None:
        """Return a timestamp for registers that are put now; None where it would not be the greatest so far."""
        for _ in range(MOST_DRAWS):
            token = uuid4().bytes
            self.gateway.put([Put(RECORD_ROWKEY, RECORD_FAMILY, NOW, token)])
            cell = self.gateway.get([(RECORD_ROWKEY, NOW)], RECORD_FAMILY)[0]
            if cell is not None and cell.value == token:
                return cell.timestamp - round(self.times.put_before_s * 1_000)
        return None

    def marked(self, token: str) -> int:
        """Return the count of the mark with a token, or 0 if it does not exist."""
        (cell,) = self.gateway.get([(RECORD_ROWKEY, Mark(token).key)], RECORD_FAMILY)
        return int(cell.value) if cell is not None else 0

    def set_mark(self, mark: Mark) -> None:
        """Remember how far a job came."""
        # Not by a put: one that lands late, or that a slower clock stamps, would bring an earlier mark back.
        for _ in range(MARK_TRIES):
            (cell,) = self.gateway.get([(RECORD_ROWKEY, mark.key)], RECORD_FAMILY)
            held = cell.value if cell is not None else None
            change = Change(RECORD_ROWKEY, RECORD_FAMILY, mark.key, held, mark.value)
            if held == mark.value or self.gateway.change([change]) == [True]:
                return
        raise StoreUnavailableError(
            f"the table did not keep how far the job came, in {MARK_TRIES} tries, though reads are answered; run "
            f"'hsimhash doctor --write', then the same command again"
        )


def begin_load(gateway: Gateway, token: str) -> int:
    """Say beside the record that a bulk load begins; return its time, a server's, in ms since 1970."""
    key = RECORD_ROWKEY, LOADS + token.encode()
    for _ in range(MARK_TRIES):  # not by a put, which is sent again, and would get another time
        (cell,) = gateway.get([key], RECORD_FAMILY)
        if cell is not None:
            return cell.timestamp
        gateway.change([Change(key[0], RECORD_FAMILY, key[1], None, b"1")])
    raise StoreUnavailableError(
        f"the table did not keep that a load begins, in {MARK_TRIES} tries, though reads are answered; run "
        f"'hsimhash doctor --write', then the same command again"
    )


def loads_begun(gateway: Gateway) -> dict[str, int]:
    """Return the bulk loads that are under way, by token: when each began, in ms since 1970."""
    found, after = dict[str, int](), LOADS
    while cells := gateway.cells(RECORD_ROWKEY, RECORD_FAMILY, after=after, limit=LOADS_AT_ONCE):
        loads = [cell for cell in cells if cell.qualifier.startswith(LOADS)]
        found |= {cell.qualifier.removeprefix(LOADS).decode(): cell.timestamp for cell in loads}
        if len(loads) < LOADS_AT_ONCE:
            break
        after = cells[-1].qualifier
    return found


def end_load(gateway: Gateway, token: str) -> None:
    """Say that a bulk load is over, or given up."""
    (cell,) = gateway.get([(RECORD_ROWKEY, LOADS + token.encode())], RECORD_FAMILY)
    if cell is not None:
        gateway.delete([Deletion(RECORD_ROWKEY, RECORD_FAMILY, cell.qualifier, cell.timestamp)])


def put_listings(
    gateway: Gateway,
    signatures: Mapping[bytes, Signature],
    more: Sequence[Put] = (),
    is_timely: Callable[[], bool] = always,
) -> None:
    """List documents, by id, under their fingerprints; in the same calls put more; see `Gateway.put`."""
    listings = [listing_put(signature.fingerprint, doc_id) for doc_id, signature in signatures.items()]
    gateway.put([*listings, *more], is_timely=is_timely)


def put_drawer_rows(gateway: Gateway, record: Record, signatures: Mapping[bytes, Signature]) -> None:
    """File documents' fingerprints in every drawer and, under the parts of their keys, in the key drawer, each once."""
    gateway.put_rows(record.filed_rowkeys(signatures.values()))
