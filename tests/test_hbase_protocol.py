"""Concurrent adds, moves, removals and collections on a model of HBase, and tests that it detects broken protocols."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hsimhash.fingerprint.bits import Uint8s
from hsimhash.fingerprint.signature import Signature
from hsimhash.rowkey import PREFIX_BYTES, documents_rowkey
from hsimhash.store.base import Record
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, Cell, Change, Deletion, Put, always
from hsimhash.store.hbase.rows import cells
from hsimhash.store.hbase.rows.cells import Orphan, Register
from hsimhash.store.hbase.rows.protocol import Wanted, Writes, put_drawer_rows, put_listings
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.upkeep.audit import Audit, pages, server_time
from hsimhash.store.hbase.upkeep.collect import SLACK_H, Collection, LoggedOrphan
from hsimhash.store.reports import CheckReport
from tests.stress import protocol
from tests.stress.protocol import Done, Kind, states
from tests.support.effort import tries
from tests.support.hbase_model import LATEST_MS, ModelGateway

IsTimely = Callable[[], bool]
SCHEDULES = tries(1_000, 200)  # `python -m tests.stress.protocol` runs 100,000
MOST_SCHEDULES = 30_000  # among which a broken protocol must fail at least once


# The protocol, broken on purpose: one step in each class.


def puts_of(changes: Sequence[Change]) -> list[Put]:
    return [Put(change.row, change.family, change.qualifier, change.value) for change in changes]


def held(change: Change) -> Signature | None:
    return Register.from_bytes(change.expected or b"").signature


def is_of(listings: bytes, signature: Signature | None) -> bool:
    """Return whether a row of listings belongs to a signature's fingerprint."""
    return signature is not None and listings == documents_rowkey(signature.fingerprint)


class RegistersFirst(Writes):
    def _write(self, wanted: Wanted, changes: Sequence[Change], *, may_put: bool) -> set[bytes]:
        signatures = {doc_id: signature for doc_id, (signature, _) in wanted.items()}
        put_listings(self.gateway, signatures)
        done = self.set_registers(changes, self.times.rows_timely())
        put_drawer_rows(self.gateway, self.record, signatures)
        return done


class ComparesFingerprints(Writes):
    """Skips the row in the key drawer when a document gets another key, because its fingerprint is already filed."""

    def _write(self, wanted: Wanted, changes: Sequence[Change], *, may_put: bool) -> set[bytes]:
        is_filed = {
            change.qualifier
            for change in changes
            if is_of(documents_rowkey(wanted[change.qualifier][0].fingerprint), held(change))
        }
        left = {doc_id: want for doc_id, want in wanted.items() if doc_id not in is_filed}
        done = self.set_registers([one for one in changes if one.qualifier in is_filed], self.times.rows_timely())
        rest = [one for one in changes if one.qualifier in left]
        return done | super()._write(left, rest, may_put=may_put) if left else done


class PutsRegisters(Writes):
    def set_registers(self, changes: Sequence[Change], is_timely: IsTimely) -> set[bytes]:
        self.gateway.put(puts_of(changes), is_timely=is_timely)
        return {change.qualifier for change in changes}


class BelievesUnknown(Writes):
    def set_registers(self, changes: Sequence[Change], is_timely: IsTimely) -> set[bytes]:
        super().set_registers(changes, is_timely)
        return {change.qualifier for change in changes}


# What an exclusive writer puts, broken on purpose.


class PutsNow(Writes):
    """Puts registers with the server's own timestamps, as release 0.1.0 did."""

    def _put_registers(self, changes: Sequence[Change], is_timely: IsTimely) -> None:
        self.gateway.put(puts_of(changes), is_timely=is_timely)


class PutsWhenever(Writes):
    """Puts registers no matter how long ago their rows were written."""

    def _put_registers(self, changes: Sequence[Change], is_timely: IsTimely) -> None:
        super()._put_registers(changes, always)


class PutsAgain(Writes):
    """Also puts registers that already exist, so that the new values end up beneath the existing ones."""

    def _write(self, wanted: Wanted, changes: Sequence[Change], *, may_put: bool) -> set[bytes]:
        unread = [change._replace(expected=None) for change in changes]
        return super()._write(wanted, unread if may_put else changes, may_put=may_put) | set(wanted)


class DeletesNow(Audit):
    """Deletes with the current time instead of the timestamp that was read."""

    def _collect(self, cells: Iterable[Cell], family: bytes, before: float) -> int:
        now = server_time(self.gateway)
        old = [Cell(cell.row, cell.qualifier, cell.value, now) for cell in cells if cell.timestamp <= before]
        return super()._collect(old, family, self.ever)


class ReadsTimestampsLast(Audit):
    """Reads the drawer rows' timestamps, and the current time, after their documents rows."""

    def run(self) -> CheckReport:
        numbers = [cell.row[PREFIX_BYTES:] for page in pages(self.gateway, DRAWER_FAMILY) for cell in page]
        rows = [documents_rowkey(int.from_bytes(number, "big")) for number in numbers]
        listed = self.gateway.cells_of(rows, DOCUMENT_FAMILY, limit=1)
        self.empty = {number for number, found in zip(numbers, listed, strict=True) if not found}
        return super().run()

    def _check_listed(self, cells: Sequence[Cell]) -> None:
        before = server_time(self.gateway) - round(self.times.settled_s * 1_000)
        left = [cell for cell in cells if cell.row[PREFIX_BYTES:] in self.empty]
        self._collect(left, DRAWER_FAMILY, before)
        self._check_keys([cell for cell in cells if self.record.is_key_row(cell.row)])


class ReadsFirstListing(Audit):
    """Judges a row of the key drawer only by the first document of its fingerprint."""

    def _listings(self, rows: Iterable[bytes], is_wanted: Callable[[bytes], bool]) -> Iterator[list[Cell]]:
        yield [cell for cells in self.gateway.cells_of(list(rows), DOCUMENT_FAMILY, limit=1) for cell in cells]


class ForgetsKeys(Audit):
    """Treats rows of the key drawer like drawer rows: they stay while a document is listed under their fingerprint."""

    def _check_keys(self, cells: Sequence[Cell]) -> None:
        pass


class ReadsRegistersFirst(Audit):
    """Reads the registers before the listings' timestamps, and the current time after both."""

    def _check_listings(self, listings: Sequence[Cell]) -> None:
        registers = self.gateway.get([cells.register_key(cell.qualifier) for cell in listings], DOCUMENT_FAMILY)
        again = self.gateway.get([(cell.row, cell.qualifier) for cell in listings], DOCUMENT_FAMILY)
        before = server_time(self.gateway) - round(self.times.settled_s * 1_000)
        left = [
            cell
            for cell, register in zip(again, registers, strict=True)
            if cell is not None and not is_of(cell.row, cells.signature_in(register))
        ]
        self._collect(left, DOCUMENT_FAMILY, before)


# The log of orphans, broken on purpose.


class LogsLast(Writes):
    """Logs what documents left behind only after their registers are set."""

    def left_by(self, changes: Sequence[Change]) -> list[Put]:
        return []

    def set_registers(self, changes: Sequence[Change], is_timely: IsTimely) -> set[bytes]:
        done = super().set_registers(changes, is_timely)
        self.gateway.put(super().left_by([one for one in changes if one.qualifier in done]))
        return done


class LogsOnlyFingerprints(Writes):
    """Logs nothing for a document that keeps its fingerprint and gets another key."""

    def left_by(self, changes: Sequence[Change]) -> list[Put]:
        left = (Register.from_bytes(one.expected or b"").signature for one in changes)
        moved = (one for one, old in zip(changes, left, strict=True) if old and not is_of_fingerprint(one.value, old))
        return super().left_by(list(moved))


class TakesSharedKeysForTheSame(Writes):
    """Logs nothing for a document whose new key shares a part with the old one."""

    def _leaves_rows(self, old: Signature, new: Signature) -> bool:
        its = set(self.record.key_prefixes(new.key))
        return super()._leaves_rows(old, new) and its.isdisjoint(self.record.key_prefixes(old.key))


class FilesOnePart(Writes):
    """Files a document that keeps its fingerprint under only one part of its key."""

    def _write(self, wanted: Wanted, changes: Sequence[Change], *, may_put: bool) -> set[bytes]:
        self.record = OnePart(self.record.layout, self.record.profile)
        return super()._write(wanted, changes, may_put=may_put)


class OnePart(Record):
    def filed_rowkeys(self, signatures: Iterable[Signature]) -> Uint8s:
        rows = super().filed_rowkeys(signatures)
        is_key = np.array([self.is_key_row(row.tobytes()) for row in rows])
        return rows[~is_key | (np.cumsum(is_key) == 1)]


def is_of_fingerprint(value: bytes, signature: Signature) -> bool:
    following = Register.from_bytes(value).signature
    return following is not None and following.fingerprint == signature.fingerprint


class StrikesAll(Collection):
    """Deletes entries even if something that they lead to is too young."""

    def _leave(self, cells: Sequence[Cell]) -> None:
        pass


class StrikesYoung(Collection):
    """Deletes entries even if they are too young for their registers to be settled."""

    def _is_settled(self, entry: LoggedOrphan) -> bool:
        return True


class StrikesFirst(Collection):
    """Deletes entries before the rows that they lead to."""

    def _named_rows(self) -> Iterator[list[Cell]]:
        pages = list(super()._named_rows())
        yield from pages


class ForgetsRegisters(Collection):
    """Does not come back for the registers of removed documents."""

    def _remember(self, removed: Sequence[Cell], by_id: dict[bytes, Orphan]) -> None:
        pass


class HasNoSlack(Collection):
    """Continues exactly where the last collection ended."""

    def _open_ranges(self) -> list[tuple[int, int]]:
        ranges = super()._open_ranges()
        if self._hours is None and ranges[0][0]:
            ((first, end),) = ranges
            return [(min(first + SLACK_H, end), end)]
        return ranges


class DeletesOneVersion(ModelGateway):
    """Deletes with DELETE_COLUMN instead of DELETE_COLUMNS."""

    def delete(self, deletions: Sequence[Deletion]) -> None:
        self._write(deletions, self.cluster.delete_one_version)


class WithoutChanges(Writes):
    """Does not count the changes of registers, so a removal can restore an earlier value."""

    def set_registers(self, changes: Sequence[Change], is_timely: IsTimely) -> set[bytes]:
        return super().set_registers(list(map(_uncounted, changes)), is_timely)


def _uncounted(change: Change) -> Change:
    register = Register.from_bytes(change.value)._replace(changes=0)
    return change._replace(value=register.to_bytes(has_signatures=True))


def writing(writes: type[Writes]) -> type[HBaseStore]:
    class Broken(HBaseStore):
        def _writes(self) -> Writes:
            return writes(self.gateway, self.record, self.times, self._same, exclusive=self.exclusive)

    return Broken


def collecting(audit: type[Audit]) -> type[HBaseStore]:
    class Broken(HBaseStore):
        def _audit(self, **given: Any) -> Audit:
            return audit(self.gateway, self.record, self.times, **given)

    return Broken


def working_off(collection: type[Collection]) -> type[HBaseStore]:
    class Broken(HBaseStore):
        def _collection(self, **given: Any) -> Collection:
            return collection(self.gateway, self.record, self.times, **given)

    return Broken


def at(**changes: float) -> Kind:
    return Kind(times=replace(Kind().times, **changes))


# The first schedule to try, so that each fault is found quickly.
SEEN_AT = {
    "registers put as servers stamp them": 300,
    "registers put at a server's time": 1_190,
    "no look at the clock before registers": 220,
    "registers that do not count their changes": 230,
    "timestamps read after the documents row": 3_660,
    "deletes with the time of now": 220,
    "listings read after the registers": 1_120,
    "keys judged by the first document": 900,
    "entries deleted whatever is left": 1_590,
    "young entries deleted": 700,
    "entries deleted first": 410,
    "removed registers never come back to": 180,
    "what is young collected": 460,
    "removed registers forgotten at once": 5_290,
}
HURRY = (0.995,)  # for faults that occur only while late calls are under way
BROKEN = {
    "registers before drawer rows": Kind(writing(RegistersFirst)),
    "registers put, not compared": Kind(writing(PutsRegisters)),
    "registers put as servers stamp them": Kind(writing(PutsNow)),
    "registers put at a server's time": replace(at(put_before_s=0), hurry=HURRY),
    "registers put however late": Kind(writing(PutsWhenever)),
    "registers that exist put": Kind(writing(PutsAgain)),
    "no look at the clock before registers": at(rewrite_s=math.inf),
    "no row for another key of a document": Kind(writing(ComparesFingerprints)),
    "an unknown outcome taken for done": Kind(writing(BelievesUnknown)),
    "registers that do not count their changes": Kind(writing(WithoutChanges)),
    "deletes with the time of now": Kind(collecting(DeletesNow)),
    "timestamps read after the documents row": Kind(collecting(ReadsTimestampsLast)),
    "listings read after the registers": Kind(collecting(ReadsRegistersFirst)),
    "keys judged by the first document": Kind(collecting(ReadsFirstListing)),
    "keys never collected": Kind(collecting(ForgetsKeys)),
    "what is left logged last": Kind(writing(LogsLast)),
    "keys that are left not logged": Kind(writing(LogsOnlyFingerprints)),
    "entries deleted whatever is left": Kind(working_off(StrikesAll)),
    "young entries deleted": Kind(working_off(StrikesYoung)),
    "entries deleted first": Kind(working_off(StrikesFirst)),
    "removed registers never come back to": Kind(working_off(ForgetsRegisters)),
    "a log worked off by one clock": Kind(working_off(HasNoSlack)),
    "what is young collected": at(settled_s=0),
    "removed registers forgotten at once": replace(at(forgotten_s=0), hurry=HURRY),
    "DELETE_COLUMN": Kind(gateway=DeletesOneVersion),
    "one part of a key filed": Kind(writing(FilesOnePart), profile="auto-3"),
    "keys with a part in common taken for the same": Kind(writing(TakesSharedKeysForTheSame), profile="auto-3"),
    "no row for a part of another key": Kind(writing(ComparesFingerprints), profile="auto-3"),
}


@pytest.mark.parametrize("profile", ["auto-2", "auto-3"])
def test_the_invariant_holds_in_every_schedule(profile: str) -> None:
    assert protocol.first_failure(range(SCHEDULES), Kind(profile=profile)) is None


def test_a_failure_is_shrunk_and_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    kind = BROKEN["registers before drawer rows"]
    found = protocol.first_failure(range(MOST_SCHEDULES), kind)
    assert found is not None
    plan, seed = protocol.shrunk(protocol.plan_of(random.Random(found[0])), found[0], kind)
    ((operation,),) = plan
    assert operation.verb in protocol.ADDS
    protocol.show(plan, seed, kind)
    told = capsys.readouterr().out
    assert "actor 0 begins" in told
    assert "FAIL" in told


def test_a_schedule_is_the_same_every_time() -> None:
    def trace(number: int) -> list[str]:
        told: list[str] = []
        protocol.Schedule(protocol.plan_of(random.Random(number)), number, Kind(), told.append).run()
        return told

    assert all(trace(number) == trace(number) for number in range(20))


def written(doc_id: str, number: int, began: int, ended: int, *, is_acknowledged: bool = True) -> Done:
    return Done(doc_id, Signature(number), began, ended, is_acknowledged)


def numbers(found: set[Signature | None] | None) -> set[int | None] | None:
    return None if found is None else {one.fingerprint if one is not None else None for one in found}


def test_what_a_query_may_answer_follows_from_the_writes_before_it() -> None:
    history = [written("a", 1, 0, 10), written("a", 2, 5, 15), written("a", 3, 20, 30), written("b", 4, 0, 99)]
    assert numbers(states(history, "a", 40, 50)) == {3}
    assert numbers(states(history, "a", 16, 19)) == {1, 2}
    assert states(history, "a", 16, 20) is None
    assert states(history, "a", 14, 19) is None
    assert numbers(states(history, "c", 14, 19)) == {None}


def test_a_write_that_failed_may_take_effect_until_its_calls_have_landed() -> None:
    history = [written("a", 1, 0, 10), written("a", 2, 20, 30, is_acknowledged=False)]
    assert states(history, "a", 40, 50) is None
    assert numbers(states(history, "a", LATEST_MS + 31, LATEST_MS + 32)) == {1, 2}
    later = [*history, written("a", 3, LATEST_MS + 40, LATEST_MS + 50)]
    assert numbers(states(later, "a", LATEST_MS + 51, LATEST_MS + 52)) == {3}
    assert numbers(states(history[1:], "a", LATEST_MS + 31, LATEST_MS + 32)) == {2, None}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_seen(name: str) -> None:
    first = SEEN_AT.get(name, 0)
    assert protocol.first_failure(range(first, first + MOST_SCHEDULES), BROKEN[name]) is not None
