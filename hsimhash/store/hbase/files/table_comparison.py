"""Compare documents of a bulk load with the registers of a table, in batches, to decide which to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hsimhash.fingerprint.signature import Signature
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Cell
from hsimhash.store.hbase.rows.cells import Register, register_key
from hsimhash.store.hbase.rows.protocol import Writes

ASKED_AT_ONCE = 5_000  # registers


class Effect(NamedTuple):
    """Whether a document is written, is new or changed, and was known; and its register afterwards."""

    is_written: bool
    is_news: bool
    is_known: bool
    register: Register


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Compares documents with the table, for a load that began at a known time.

    Args:
        writes: to the table; what documents leave is put into the log of orphans.
        stamp: when the load began, in ms since 1970: what was written since wins.
        is_repeated: registers of an earlier try may be there, and their rows gone: all are written again.
    """

    writes: Writes
    stamp: int
    is_repeated: bool

    def of(self, ids: Sequence[bytes], signatures: Iterable[Signature], first_seen: Iterable[int]) -> list[Effect]:
        """Return the effect on each of at most `ASKED_AT_ONCE` documents, ids distinct. Repeating it is harmless."""
        cells = self.writes.gateway.get([register_key(doc_id) for doc_id in ids], DOCUMENT_FAMILY)
        found, moves = list[Effect](), list[tuple[bytes, Signature | None, Signature | None]]()
        for cell, signature, seen in zip(cells, signatures, first_seen, strict=True):
            before = Register() if cell is None else Register.from_bytes(cell.value)
            is_news = before.signature != signature
            is_written = cell is None or self._is_written(cell, is_news=is_news)
            if cell is not None and is_written:
                moves.append((cell.qualifier, before.signature, signature))
            found.append(Effect(is_written, is_news, cell is not None, before.filed(signature, seen)))
        self.writes.gateway.put(self.writes.orphan_puts(moves))
        return found

    def _is_written(self, cell: Cell, *, is_news: bool) -> bool:
        """Whether a document that has a register is written: with a TTL also where its rows may go before that."""
        ttl_s = self.writes.times.ttl_s
        is_old = ttl_s is not None and self.stamp - cell.timestamp > ttl_s * 1_000 / 2
        return cell.timestamp < self.stamp and (is_news or self.is_repeated or is_old)
