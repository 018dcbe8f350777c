"""Adds, moves, removals and collections at once, under a model of HBase; and that the model sees a broken protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from hsimhash.rowkey import PREFIX_BYTES, documents_rowkey
from hsimhash.store.base import CheckReport, Progress
from hsimhash.store.hbase import cells
from hsimhash.store.hbase.cells import Register
from hsimhash.store.hbase.collect import Audit
from hsimhash.store.hbase.gateway import DOCUMENT_FAMILY, DRAWER_FAMILY, Cell, Deletion
from hsimhash.store.hbase.protocol import Times, Wanted, Writes
from hsimhash.store.hbase.protocol import _Read as Read
from hsimhash.store.hbase.store import HBaseStore
from tests.hbase_model import ModelGateway
from tests.stress import protocol
from tests.stress.protocol import Kind

SCHEDULES = 1_000  # `python -m tests.stress.protocol` runs 100,000
MOST_SCHEDULES = 30_000  # in which a broken protocol must fail once


def test_the_invariant_holds_in_every_schedule() -> None:
    assert protocol.first_failure(range(SCHEDULES), Kind()) is None


# The protocol, broken on purpose: one step each.


class RegistersFirst(Writes):
    def _write(self, wanted: Wanted, found: Mapping[bytes, Read], following: Mapping[bytes, Register]) -> set[bytes]:
        self._put_listings(wanted)
        done = self._set_registers(list(wanted), found, following, self.times.clock())
        self._put_drawer_rows(wanted)
        return done


class PutsRegisters(Writes):
    def _set_registers(
        self, doc_ids: Sequence[bytes], found: Mapping[bytes, Read], following: Mapping[bytes, Register], began: float
    ) -> set[bytes]:
        return self._put_registers(doc_ids, following, began)


class NeverLate(Writes):
    def _is_late(self, began: float) -> bool:
        return False


class BelievesUnknown(Writes):
    def _set_registers(
        self, doc_ids: Sequence[bytes], found: Mapping[bytes, Read], following: Mapping[bytes, Register], began: float
    ) -> set[bytes]:
        super()._set_registers(doc_ids, found, following, began)
        return set(doc_ids)


class DeletesNow(Audit):
    """Deletes with the time of now instead of what was read."""

    def _collect(self, cells: Sequence[Cell], family: bytes, before: int) -> int:  # type: ignore[override]
        now = self._server_time()
        old = [Cell(cell.row, cell.qualifier, cell.value, now) for cell in cells if cell.timestamp <= before]
        if old:
            self._delete_now(old, family)
        return len(old)


class ReadsTimestampsLast(Audit):
    """Reads the drawer rows' timestamps, and the time, after the documents row."""

    def _check_listed(self, cells: Sequence[Cell]) -> None:
        numbers = [cell.row[PREFIX_BYTES:] for cell in cells]
        rows = [documents_rowkey(int.from_bytes(number, "big")) for number in numbers]
        listed = self.gateway.cells_of(rows, DOCUMENT_FAMILY, limit=1)
        empty = [cell for cell, found in zip(cells, listed, strict=True) if not found]
        again = self.gateway.get([(cell.row, b"") for cell in empty], DRAWER_FAMILY)
        before = self._server_time() - round(self.times.settled_s * 1_000)
        self._collect([cell for cell in again if cell is not None], DRAWER_FAMILY, before)


class CollectsAnyRegister(Audit):
    """Reads the registers before the listings."""

    def _check_listings(self, listings: Sequence[Cell]) -> None:
        registers = self.gateway.get([cells.register_key(cell.qualifier) for cell in listings], DOCUMENT_FAMILY)
        again = self.gateway.get([(cell.row, cell.qualifier) for cell in listings], DOCUMENT_FAMILY)
        before = self._server_time() - round(self.times.settled_s * 1_000)
        left = [
            cell
            for cell, register in zip(again, registers, strict=True)
            if cell is not None
            and (Register() if register is None else Register.from_bytes(register.value)).fingerprint
            != int.from_bytes(cell.row[PREFIX_BYTES:], "big")
        ]
        self._collect(left, DOCUMENT_FAMILY, before)


class DeletesOneVersion(ModelGateway):
    """Deletes with DELETE_COLUMN instead of DELETE_COLUMNS."""

    def delete(self, deletions: Sequence[Deletion]) -> None:
        self._write(deletions, self.cluster.delete_one_version)


class Forgets(Register):
    """A register that does not count its changes: after a removal it is what it was."""

    def to_bytes(self) -> bytes:
        return super().to_bytes()[:-4]


class WithoutChanges(Writes):
    def _set_registers(
        self, doc_ids: Sequence[bytes], found: Mapping[bytes, Read], following: Mapping[bytes, Register], began: float
    ) -> set[bytes]:
        bare = {doc_id: Forgets(*register) for doc_id, register in following.items()}
        return super()._set_registers(doc_ids, found, bare, began)


def writing(writes: type[Writes]) -> type[HBaseStore]:
    class Broken(HBaseStore):
        def _writes(self) -> Writes:
            return writes(self.gateway, self.record.layout, self.times)

    return Broken


def collecting(audit: type[Audit]) -> type[HBaseStore]:
    class Broken(HBaseStore):
        def check(self, *, repair: bool = False, progress: Progress | None = None) -> CheckReport:
            return audit(self.gateway, self.record.layout, self.times, repair=repair, progress=progress).run()

    return Broken


BROKEN = {
    "registers before drawer rows": Kind(writing(RegistersFirst)),
    "registers put, not compared": Kind(writing(PutsRegisters)),
    "no look at the clock before registers": Kind(writing(NeverLate)),
    "an unknown outcome taken for done": Kind(writing(BelievesUnknown)),
    "registers that do not count their changes": Kind(writing(WithoutChanges)),
    "deletes with the time of now": Kind(collecting(DeletesNow)),
    "timestamps read after the documents row": Kind(collecting(ReadsTimestampsLast)),
    "listings read after the registers": Kind(collecting(CollectsAnyRegister)),
    "what is young collected": Kind(times=Times(settled_s=0)),
    "removed registers forgotten at once": Kind(times=Times(forgotten_s=0)),
    "DELETE_COLUMN": Kind(gateway=DeletesOneVersion),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_seen(name: str) -> None:
    assert protocol.first_failure(range(MOST_SCHEDULES), BROKEN[name]) is not None
