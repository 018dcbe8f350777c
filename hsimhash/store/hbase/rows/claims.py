"""Concurrent claims: exactly one of several near documents becomes new, although HBase lacks cross-row transactions.

A claim writes its rows, and then writes itself into its register as *tentative*: queries still see the register's
earlier contents. Then it looks for near documents, including tentative ones. So if two claims are near each other, the
one whose register was set later finds the other. A claim

1. is withdrawn if it finds an existing document,
2. waits if it finds an earlier claim (ordered by first seen, then by id),
3. otherwise sets the claims that it finds to *lost*, by compare-and-set from the values that it read,
4. and once all of these are lost, confirms itself by compare-and-set from the value that it wrote.

*At most one of two near claims is confirmed*: the claim whose register was set later confirms itself only after it has
set the other claim to lost. The other claim confirms itself only if its register still has the value that it wrote.
No clock is involved. A compare-and-set that fails or has an unknown outcome is tried again, so a claim ends only once
its register shows the outcome. The earliest claim never waits. If its process was killed, other claims may set it to
lost after 20 minutes, measured by the servers' timestamps. A new claim with the same id and signature continues an
existing claim.

What a lost or withdrawn claim leaves behind is recorded in the log of orphans, as for a removal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hsimhash.errors import ClaimBusyError
from hsimhash.fingerprint.signature import Signature
from hsimhash.store.base import Claim, Claims, Document, Match
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY, Change, Put, always
from hsimhash.store.hbase.rows.cells import Register
from hsimhash.store.hbase.rows.protocol import NEVER_READ, Read, Writes, put_listings
from hsimhash.store.hbase.rows.view import HBaseView
from hsimhash.store.retries import pauses


class _View(HBaseView):
    """A claim's reads; keeps every register that it reads, and does not read known registers again."""

    def __init__(self, writes: Writes, known: Mapping[bytes, Read]) -> None:
        super().__init__(writes.gateway, writes.record)
        self._writes = writes
        self.registers = dict(known)

    def lookup(self, doc_ids: Sequence[bytes]) -> list[Document | None]:
        self.registers |= self._writes.read([doc_id for doc_id in doc_ids if doc_id not in self.registers])
        return [self.registers[doc_id].register.document(doc_id) for doc_id in doc_ids]


class TableClaims:
    """Decides claims through `writes`; see the module's docstring."""

    def __init__(self, writes: Writes, claims: Claims) -> None:
        self._writes = writes
        self._times = writes.times
        self._claims = claims
        self._loose: dict[bytes, Signature] = {}  # signatures whose rows are written, but whose register may be unset
        self._since: dict[bytes, float] = {}  # when each claim began, or was found to be in progress

    def run(self) -> None:
        """Decide all claims."""
        decided_at, waits = self._times.clock(), pauses()
        while self._claims.is_open:
            if self._round():
                decided_at, waits = self._times.clock(), pauses()
            elif self._times.clock() - decided_at > self._times.claim_wait_s:
                self._give_up()
            else:
                self._times.sleep(next(waits))

    def _round(self) -> int:
        """Decide the claims that can be decided now; return how many."""
        view = _View(self._writes, {})
        ready, matches = self._claims.look(view)
        # Skip this in the first round: most documents are new, and the others are refused and read in the next round.
        if self._since:
            view.lookup([self._claims.doc_ids[number] for number in ready])
        own = {number: view.registers.get(self._claims.doc_ids[number], NEVER_READ) for number in (*ready, *matches)}
        decided = self._withdraw(own, matches)
        stored = [number for number in ready if self._is_stored(number, own[number])]
        if stored:
            self._writes.add({self._claims.doc_ids[number]: self._want(number) for number in stored})
            decided += self._settle(stored)
        rest = {number: own[number] for number in ready if number not in stored}
        return decided + (self._contest(rest) if rest else 0)

    def _is_stored(self, number: int, own: Read) -> bool:
        """Whether the document already exists, and its claim's signature matches the stored one."""
        document = own.register.document(self._claims.doc_ids[number])
        return document is not None and self._claims.meets(number, document)

    def _want(self, number: int) -> tuple[Signature, int]:
        return self._claims.signatures.at(number), int(self._claims.first_seen[number])

    def _contest(self, own: Mapping[int, Read]) -> int:
        """Claim the documents that do not have a stored document near them; return how many were decided."""
        is_timely = self._times.rows_timely()
        mine = self._claimed(own, is_timely)
        # No two of these are near each other.
        held = {self._claims.doc_ids[number]: read for number, read in mine.items()}
        view = _View(self._writes, held)
        found = self._claims.nearest(view, list(mine))
        matches = {number: match for number, match in zip(mine, found, strict=True) if match is not None}
        decided = self._withdraw(mine, matches)
        claims = {doc_id: read for doc_id, read in view.registers.items() if read.register.claimed is not None}
        others = {doc_id: read for doc_id, read in claims.items() if doc_id not in held}
        if others:
            claims |= self._writes.read(list(held))
        rivals = dict[int, dict[bytes, Read]]()
        for number in mine:
            set_now = claims.get(self._claims.doc_ids[number], NEVER_READ)
            if number not in matches and set_now.value == mine[number].value:
                rivals[number] = self._met(number, others)
        rivals = {number: met for number, met in rivals.items() if not self._waits(number, claims, met)}
        losers = {doc_id: read for met in rivals.values() for doc_id, read in met.items()}
        lost = self._set({doc_id: (read, read.register.lost()) for doc_id, read in losers.items()}, is_timely)
        won = {self._claims.doc_ids[number]: number for number, met in rivals.items() if lost.issuperset(met)}
        following = {doc_id: (mine[number], mine[number].register.confirmed()) for doc_id, number in won.items()}
        return decided + self._settle([won[doc_id] for doc_id in self._set(following, is_timely)])

    def _claimed(self, own: Mapping[int, Read], is_timely: Callable[[], bool]) -> dict[int, Read]:
        """Write rows, then tentative registers; return those known to be set, with their new contents."""
        signatures, changes = dict[bytes, Signature](), dict[int, Change]()
        for number, read in own.items():
            doc_id, (signature, first_seen) = self._claims.doc_ids[number], self._want(number)
            signatures[doc_id] = signature
            since_s = self._times.clock() - self._since.setdefault(doc_id, self._times.clock())
            # Rewrite an old claim in time, because the ages of other claims are measured against its timestamp.
            if read.register.claimed != signature or since_s > self._times.claim_s / 2:
                self._since[doc_id] = self._times.clock()
                changes[number] = self._writes.change_of(doc_id, read, read.register.claiming(signature, first_seen))
        rows = self._writes.record.filed_rowkeys(signatures.values())
        puts = [Put(row.tobytes(), DRAWER_FAMILY, b"", b"") for row in rows]
        puts += self._writes.left_by(list(changes.values()))
        put_listings(self._writes.gateway, signatures, puts, is_timely)
        done = self._writes.set_registers(list(changes.values()), is_timely)
        self._loose |= {doc_id: one for doc_id, one in signatures.items() if doc_id not in done}
        made = {
            number: Read(Register.from_bytes(change.value), change.value, 0)
            for number, change in changes.items()
            if change.qualifier in done
        }
        return made | {number: read for number, read in own.items() if number not in changes}

    def _met(self, number: int, others: Mapping[bytes, Read]) -> dict[bytes, Read]:
        """Return the other claims that match a document."""
        return {
            doc_id: read
            for doc_id, read in others.items()
            if (document := read.register.claim(doc_id)) is not None and self._claims.meets(number, document)
        }

    def _waits(self, number: int, claims: Mapping[bytes, Read], met: Mapping[bytes, Read]) -> bool:
        """Whether a document's claim has met an earlier claim from another process that is not presumed dead."""
        doc_id = self._claims.doc_ids[number]
        own = claims[doc_id]
        return any(
            (other.register.claimed_at, other_id) < (own.register.claimed_at, doc_id)
            and other.age_s - own.age_s <= self._times.claim_s
            and other_id not in self._claims.doc_ids
            for other_id, other in met.items()
        )

    def _withdraw(self, own: Mapping[int, Read], matches: Mapping[int, Match]) -> int:
        """Decide that documents have matches, once their registers no longer hold a claim; return how many."""
        ids = {number: self._claims.doc_ids[number] for number in matches}
        held = {ids[number]: own[number] for number in matches if own[number].register.claimed is not None}
        lost = self._set({doc_id: (read, read.register.lost()) for doc_id, read in held.items()}, always)
        decided = [number for number in matches if ids[number] not in held or ids[number] in lost]
        loose = [(ids[number], self._loose.get(ids[number]), own[number].register.signature) for number in decided]
        if left := self._writes.orphan_puts(loose):
            self._writes.gateway.put(left)
        for number in decided:
            self._claims.settle(number, Claim(is_new=False, match=matches[number]))
        return len(decided)

    def _settle(self, numbers: Sequence[int]) -> int:
        for number in numbers:
            self._claims.settle(number, Claim(is_new=True))
        return len(numbers)

    def _set(self, following: Mapping[bytes, tuple[Read, Register]], is_timely: Callable[[], bool]) -> set[bytes]:
        """Log what registers leave behind, then compare and set them; return those that are known to be set."""
        changes = [self._writes.change_of(doc_id, *change) for doc_id, change in following.items()]
        if left := self._writes.left_by(changes):
            self._writes.gateway.put(left, is_timely=is_timely)
        return self._writes.set_registers(changes, is_timely) if changes else set()

    def _give_up(self) -> None:
        """Withdraw all claims, so that others do not have to wait for them, and raise `ClaimBusyError`."""
        wanted = {doc_id: self._want(number)[0] for number, doc_id in enumerate(self._claims.doc_ids)}
        while held := self._held(wanted):  # until this is certain: a remaining claim would block others for 20 minutes
            self._set({doc_id: (read, read.register.lost()) for doc_id, read in held.items()}, always)
        raise ClaimBusyError(
            f"another process has been claiming a document near one of these documents for more than "
            f"{self._times.claim_wait_s:g} s; repeat the call: decided claims stay decided, and a killed process's "
            f"claim expires after {self._times.claim_s / 60:g} minutes"
        )

    def _held(self, wanted: Mapping[bytes, Signature]) -> dict[bytes, Read]:
        """Return the registers of documents that are claimed with the given signatures."""
        reads = self._writes.read(list(wanted))
        return {doc_id: read for doc_id, read in reads.items() if read.register.claimed == wanted[doc_id]}
