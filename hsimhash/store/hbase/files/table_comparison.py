"""Compare a bulk load's documents with a table's registers, in batches, to decide which to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hsimhash.fingerprint.signature import Signature
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Cell
from hsimhash.store.hbase.rows.cells import Register, register_key
from hsimhash.store.hbase.rows.protocol import Writes

ASKED_AT_ONCE = 5_000  # registers read by one call


class Effect(NamedTuple):
    """Whether to write a document, whether it is new or changed, whether it was known, and its next register."""

    is_written: bool
    is_news: bool
    is_known: bool
    register: Register


@dataclass(frozen=True, slots=True)
class TableComparison:
    """Compares documents with the table, for a load that began at a known time.

    Args:
        writes: Writes to the table, for entries in the log of orphans.
        stamp: Time at which the load began, in ms since 1970. Later writes take precedence.
        is_repeated: Whether registers of an earlier attempt may exist without their rows, so that all documents are
            written again.
    """

    writes: Writes
    stamp: int
    is_repeated: bool

    def of(self, ids: Sequence[bytes], signatures: Iterable[Signature], first_seen: Iterable[int]) -> list[Effect]:
        """Return the effect on each of up to `ASKED_AT_ONCE` documents with distinct ids; may be called repeatedly."""
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
        """Whether to write a document that has a register; with a TTL, also true if its rows may expire before it."""
        ttl_s = self.writes.times.ttl_s
        is_old = ttl_s is not None and self.stamp - cell.timestamp > ttl_s * 1_000 / 2
        return cell.timestamp < self.stamp and (is_news or self.is_repeated or is_old)
