"""How documents are added, moved and removed: HBase's rows are written one by one, by many processes at once.

The invariant that readers rely on: *a register that says F implies that F lists the document and that all drawer rows
of F are visible.* So a write

1. reads the registers; a document that has the fingerprint already is done,
2. puts the listings,
3. puts the drawer rows,
4. compares the registers with what it read, and sets them; where that was refused or is unknown, it begins again.

It deletes nothing: what it leaves behind is collected later (`collect.py`), but only once it is older than any write
that may still count on it. That rests on the three times below, and on two promises of a cluster: the clocks of its
region servers are right to 10 minutes, and a call whose reply was lost lands within 20 minutes or never
(`hbase.client.operation.timeout`). 10 of the writer + 20 + 2 · 10 < 60.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hsimhash.errors import StoreUnavailableError
from hsimhash.layout import Layout
from hsimhash.rowkey import ROWKEY_BYTES, encode
from hsimhash.store.hbase.cells import Register, listing_put, register_key
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, Change, Gateway, Put

BATCH_DOCUMENTS = 1_000  # written together; bounds memory, and how long their rows wait for their registers
CHANGES_AT_ONCE = 200  # registers set between two looks at the clock
MOST_LOST = 5  # calls in sequence that set registers without a single reply, each after its time-out

Wanted = Mapping[bytes, tuple[int, int]]  # by document id: fingerprint, first seen


@dataclass(frozen=True, slots=True)
class Times:
    """How long writes may take, and what is old enough to collect; in seconds.

    Args:
        rewrite_s: a register is set within this time after its rows were begun, or they are written again.
        settled_s: only what was written longer ago is collected.
        forgotten_s: for so long a removed document's register stays.
        ttl_s: after which the table drops documents and drawer rows; None: never.
        clock: seconds that only go forward.
        wall_clock: seconds since 1970.
    """

    rewrite_s: float = 600.0
    settled_s: float = 3_600.0
    forgotten_s: float = 86_400.0
    ttl_s: float | None = None
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True)
class Read:
    """A register as it was read: what it says, the very bytes, and how old they are by this machine's clock."""

    register: Register
    value: bytes | None
    age_s: float


_NEVER = Read(Register(), None, 0.0)


class Writes:
    """Adds, moves and removals through a gateway; see the module's text.

    Args:
        gateway: to the table.
        layout: fixes the drawer rows.
        times: see `Times`.
        exclusive: nobody else writes these documents: registers that are new are put, without comparing.
    """

    def __init__(self, gateway: Gateway, layout: Layout, times: Times, *, exclusive: bool = False) -> None:
        self.gateway = gateway
        self.layout = layout
        self.times = times
        self.exclusive = exclusive
        self._lost = 0

    def add(self, wanted: Wanted, *, announce: Callable[[int], None] | None = None) -> int:
        """Add or move documents; return how many are new or moved. `announce` is told that number before any write."""
        changed, sent, left = 0, dict[bytes, bytes](), dict(wanted)
        while left:
            found = self._read(list(left))
            changed += sum(found[doc_id].value == value for doc_id, value in sent.items())
            left = {doc_id: want for doc_id, want in left.items() if not self._is_done(found[doc_id], want[0])}
            if announce is not None:
                announce(sum(found[doc_id].register.fingerprint != want[0] for doc_id, want in left.items()))
                announce = None
            if left:
                following = {doc_id: _following(found[doc_id].register, *want) for doc_id, want in left.items()}
                done = self._write(left, found, following)
                is_news = {doc_id for doc_id, want in left.items() if found[doc_id].register.fingerprint != want[0]}
                changed += len(done & is_news)
                left = {doc_id: want for doc_id, want in left.items() if doc_id not in done}
                sent = {doc_id: following[doc_id].to_bytes() for doc_id in left if doc_id in is_news}
        return changed

    def remove(self, doc_ids: Sequence[bytes], *, before: int | None = None) -> int:
        """Remove documents, with `before` only those first seen earlier; return how many there were."""
        removed, sent, left = 0, dict[bytes, bytes](), list(dict.fromkeys(doc_ids))
        while left:
            found = self._read(left)
            removed += sum(found[doc_id].value == value for doc_id, value in sent.items())
            left = [doc_id for doc_id in left if found[doc_id].register.is_filed(before)]
            following = {doc_id: found[doc_id].register.removed() for doc_id in left}
            done = self._set_registers(left, found, following, self.times.clock())
            removed += len(done)
            left = [doc_id for doc_id in left if doc_id not in done]
            sent = {doc_id: following[doc_id].to_bytes() for doc_id in left}
        return removed

    def _read(self, doc_ids: Sequence[bytes]) -> dict[bytes, Read]:
        cells = self.gateway.get([register_key(doc_id) for doc_id in doc_ids], DOCUMENT_FAMILY)
        now = self.times.wall_clock()
        return {
            doc_id: _NEVER
            if cell is None
            else Read(Register.from_bytes(cell.value), cell.value, now - cell.timestamp / 1_000)
            for doc_id, cell in zip(doc_ids, cells, strict=True)
        }

    def _is_done(self, read: Read, fingerprint: int) -> bool:
        """Whether nothing is to be written; with a TTL, rows that may go before their register are written again."""
        if read.register.fingerprint != fingerprint:
            return False
        return self.times.ttl_s is None or 0 <= read.age_s <= self.times.ttl_s / 2

    def _write(self, wanted: Wanted, found: Mapping[bytes, Read], following: Mapping[bytes, Register]) -> set[bytes]:
        """Write rows, then registers; return the documents whose register is set."""
        began = self.times.clock()
        self._put_listings(wanted)
        self._put_drawer_rows(wanted)
        if not self.exclusive:
            return self._set_registers(list(wanted), found, following, began)
        new = [doc_id for doc_id in wanted if found[doc_id].value is None]
        old = [doc_id for doc_id in wanted if found[doc_id].value is not None]
        return self._put_registers(new, following, began) | self._set_registers(old, found, following, began)

    def _put_listings(self, wanted: Wanted) -> None:
        self.gateway.put([listing_put(fingerprint, doc_id) for doc_id, (fingerprint, _) in wanted.items()])

    def _put_drawer_rows(self, wanted: Wanted) -> None:
        fingerprints = np.unique(np.array([fingerprint for fingerprint, _ in wanted.values()], np.uint64))
        self.gateway.put_rows(encode(self.layout, fingerprints).reshape(-1, ROWKEY_BYTES))

    def _set_registers(
        self, doc_ids: Sequence[bytes], found: Mapping[bytes, Read], following: Mapping[bytes, Register], began: float
    ) -> set[bytes]:
        """Compare and set registers; return the documents for which that is known to be done."""
        done = set[bytes]()
        for start in range(0, len(doc_ids), CHANGES_AT_ONCE):
            part = doc_ids[start : start + CHANGES_AT_ONCE]
            changes = [Change(*_cell(doc_id), found[doc_id].value, following[doc_id].to_bytes()) for doc_id in part]
            if self._is_late(began):
                break
            outcomes = self.gateway.change(changes)
            self._count_lost(outcomes)
            done |= {doc_id for doc_id, is_made in zip(part, outcomes, strict=True) if is_made}
        return done

    def _count_lost(self, outcomes: Sequence[bool | None]) -> None:
        self._lost = self._lost + 1 if all(outcome is None for outcome in outcomes) else 0
        if self._lost == MOST_LOST:
            raise StoreUnavailableError(
                f"no reply to any of {len(outcomes)} compare-and-sets, {MOST_LOST} times in sequence, though reads are "
                f"answered; documents may be written or not: write them again. 'hsimhash doctor --write' tells more"
            )

    def _put_registers(self, doc_ids: Sequence[bytes], following: Mapping[bytes, Register], began: float) -> set[bytes]:
        """Put registers that are new; one that exists is never put: it could come under it, where a clock went back."""
        puts = [Put(*_cell(doc_id), following[doc_id].to_bytes()) for doc_id in doc_ids]
        if self._is_late(began):
            return set()
        self.gateway.put(puts)
        return set(doc_ids)

    def _is_late(self, began: float) -> bool:
        """Whether what was written since `began` may be collected before a register counts on it."""
        return self.times.clock() - began > self.times.rewrite_s


def _following(register: Register, fingerprint: int, first_seen: int) -> Register:
    """Return the register of a document that is added or moved, or, unchanged, written again."""
    return register.filed(fingerprint, register.first_seen if register.fingerprint == fingerprint else first_seen)


def _cell(doc_id: bytes) -> tuple[bytes, bytes, bytes]:
    row, qualifier = register_key(doc_id)
    return row, DOCUMENT_FAMILY, qualifier
