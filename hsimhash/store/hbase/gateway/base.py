"""The interface between the HBase store and a Thrift gateway: one table whose cells are read and written in batches.

`thrift2.py` and `thrift1.py` implement it for the two Thrift interfaces. The tests implement it with a model of HBase's
cell semantics. Registers, documents and the order of writes belong to the layers above, such as `store.py`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from typing import Final, Literal, NamedTuple

import numpy as np

from hsimhash.errors import CorruptionError, StoreUnavailableError
from hsimhash.fingerprint.bits import Int64s, Uint8s
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.reports import Region

Having = Literal["qualifier", "value"]  # the part of a cell that must not be empty

DRAWER_FAMILY = b"f"
DOCUMENT_FAMILY = b"d"
RECORD_FAMILY = b"i"
FOREVER_S = (1 << 31) - 1  # HBase's TTL for families whose cells never expire


class Unanswered(Enum):
    """The type of `UNANSWERED`."""

    UNANSWERED = "unanswered"


# The result of a call that did not finish in time, for callers that can use the remaining results.
UNANSWERED: Final = Unanswered.UNANSWERED


class Cell(NamedTuple):
    """The newest version of a cell; `timestamp` is in ms since 1970, usually by the region server's clock."""

    row: bytes
    qualifier: bytes
    value: bytes
    timestamp: int


class CellArrays(NamedTuple):
    """Cells of 13-byte rows, sorted by (row, qualifier), as columns of equal length."""

    rows: Uint8s  # shape (n, 13)
    qualifiers: list[bytes]
    values: list[bytes]
    timestamps: Int64s

    @classmethod
    def of(cls, cells: Sequence[Cell]) -> CellArrays:
        """Convert cells."""
        rows = np.frombuffer(b"".join([cell.row for cell in cells]), np.uint8).reshape(-1, ROWKEY_BYTES)
        timestamps = np.array([cell.timestamp for cell in cells], np.int64)
        return cls(rows, [cell.qualifier for cell in cells], [cell.value for cell in cells], timestamps)

    @classmethod
    def joined(cls, parts: Sequence[CellArrays]) -> CellArrays:
        """Concatenate cells; `parts` may be empty."""
        every = [cls.of([]), *parts]
        return cls(
            np.concatenate([one.rows for one in every]),
            list(chain.from_iterable(one.qualifiers for one in every)),
            list(chain.from_iterable(one.values for one in every)),
            np.concatenate([one.timestamps for one in every]),
        )

    def cell(self, place: int) -> Cell:
        """Return the cell at an index."""
        row = self.rows[place].tobytes()
        return Cell(row, self.qualifiers[place], self.values[place], int(self.timestamps[place]))


class Put(NamedTuple):
    """A value to write; without a `timestamp` (ms since 1970), the region server assigns one."""

    row: bytes
    family: bytes
    qualifier: bytes
    value: bytes
    timestamp: int | None = None


class Change(NamedTuple):
    """A value to write if the cell holds `expected`; None and b"" each match a missing cell as well as an empty one."""

    row: bytes
    family: bytes
    qualifier: bytes
    expected: bytes | None
    value: bytes


class Deletion(NamedTuple):
    """A deletion of all versions of a cell up to and including `timestamp`."""

    row: bytes
    family: bytes
    qualifier: bytes
    timestamp: int


@dataclass(frozen=True, slots=True)
class Family:
    """A column family; its attributes and configuration use HBase's names."""

    name: str
    attributes: dict[str, str]
    configuration: dict[str, str]


def ttl_in(attributes: Mapping[str, str]) -> int:
    """Return the TTL among a column family's attributes in seconds; 0: its cells never expire."""
    ttl = attributes.get("TTL", "")
    return int(ttl) if ttl.isdecimal() and int(ttl) < FOREVER_S else 0


@dataclass(frozen=True, slots=True)
class Table:
    """A table's settings; if not `is_complete`, only the families with their TTLs (through Thrift1), or nothing."""

    families: tuple[Family, ...]
    attributes: dict[str, str]
    is_complete: bool = True

    @property
    def ttl_s(self) -> int | None:
        """Seconds after which the table drops documents or drawer rows; 0: never; None: unknown."""
        return min(filter(None, self._ttls()), default=0) if self.families else None

    @property
    def has_one_ttl(self) -> bool:
        """Whether documents and drawer rows have the same TTL."""
        return len(set(self._ttls())) <= 1

    def _ttls(self) -> list[int]:
        own = {DRAWER_FAMILY.decode(), DOCUMENT_FAMILY.decode()}
        return [ttl_in(family.attributes) for family in self.families if family.name in own]

    @property
    def compression(self) -> str:
        """The codec of the first family; all families in an index use the same codec."""
        return self.families[0].attributes["COMPRESSION"]


def always() -> bool:
    """Return True; the default `is_timely`, for writes without a time limit."""
    return True


class Gateway(AbstractContextManager["Gateway"]):
    """One table behind one or more Thrift gateways. Thread-safe and fork-safe; calling `close` twice is harmless.

    Reads are retried until the deadline. So are `put`, `put_rows` and `delete`, which may therefore be sent twice.
    Every call raises `StoreUnavailableError` if no gateway responds before the deadline, or if a server temporarily
    refuses the call. The deadline restarts with each reply, so long work continues as long as replies arrive. Writes
    with an `is_timely` argument call it right before each request, and send nothing more once it returns False. Calls
    that create or drop the table may take minutes and are not retried.

    `makes_tables` is "whole" if the gateway can create a table with its splits, Bloom filter and attributes, "plain" if
    it can create only a plain table, and "no" if it cannot create tables.
    """

    makes_tables: Literal["whole", "plain", "no"] = "whole"

    def one_deadline(self) -> AbstractContextManager[None]:
        """Apply one deadline, which restarts with each reply, to all calls that this thread makes in the block."""
        return nullcontext()

    def ending(self, timeout_s: float | None) -> AbstractContextManager[None]:
        """Raise `StoreTimeoutError` if this thread's calls in the block exceed a time limit; None means no limit."""
        return nullcontext()

    def ending_in_part(self, timeout_s: float | None) -> AbstractContextManager[None]:
        """Like `ending`, but with a deadline that replies do not restart; for the calls named `…_in_part`."""
        return self.ending(timeout_s)

    def half(self) -> AbstractContextManager[None]:
        """Limit this thread's calls in the block to half of the remaining time; see `ending`."""
        return nullcontext()

    def scan_in_part(self, ranges: Sequence[tuple[bytes, bytes]]) -> tuple[Uint8s, list[tuple[bytes, bytes]]]:
        """Return what `scan` finds on servers that respond within half of the remaining time, and the ranges not read.

        A gateway that cannot distinguish servers returns everything or nothing.
        """
        try:
            return self.scan(ranges), []
        except StoreUnavailableError:
            return np.empty((0, ROWKEY_BYTES), np.uint8), list(ranges)

    def cells_in_part(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell] | Unanswered]:
        """Like `cells_of`, but return UNANSWERED for rows whose server takes more than half of the remaining time."""
        try:
            return [*self.cells_of(rows, family, limit=limit)]
        except StoreUnavailableError:
            return [UNANSWERED] * len(rows)

    def get_in_part(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | Unanswered | None]:
        """Like `get`, but return UNANSWERED for cells whose server takes more than half of the remaining time."""
        try:
            return [*self.get(keys, family)]
        except StoreUnavailableError:
            return [UNANSWERED] * len(keys)

    @abstractmethod
    def scan(self, ranges: Sequence[tuple[bytes, bytes]], most: int | None = None) -> Uint8s:
        """Return the rowkeys of `DRAWER_FAMILY` in half-open ranges: shape (m, 13), uint8, in any order.

        With `most`, the ranges must be disjoint, and each may be truncated to exactly its first `most` rows.
        """

    def drawer_rows(self, start: bytes, stop: bytes) -> Uint8s | None:
        """Return the rowkeys of `DRAWER_FAMILY` in [start, stop), or None if the range has anything but drawer rows."""
        try:
            if not self.rows(start, stop, DRAWER_FAMILY, limit=1, having="qualifier"):
                return self.scan([(start, stop)])
        except CorruptionError:  # rows of a different length
            pass
        return None

    @abstractmethod
    def rows(
        self, start: bytes, stop: bytes, family: bytes, *, limit: int, columns: int = 1, having: Having | None = None
    ) -> list[list[Cell]]:
        """Return the first `limit` rows in [start, stop) that have cells in `family`, ordered by row.

        Each row comes with its first `columns` cells, ordered by qualifier. A row with exactly that many cells may have
        more; `cells` reads them. With `having`, cells whose qualifier or value (whichever it names) is empty are
        skipped.
        """

    def columns(self, start: bytes, stop: bytes, family: bytes, *, limit: int, columns: int) -> CellArrays | None:
        """Return the same cells as `rows`, but faster; None if unsupported, or if a row is not 13 bytes long."""
        return None

    @abstractmethod
    def cells(self, row: bytes, family: bytes, *, after: bytes | None = None, limit: int) -> list[Cell]:
        """Return the first `limit` cells of a row with qualifiers greater than `after`, ordered by qualifier."""

    @abstractmethod
    def cells_of(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell]]:
        """Return the first `limit` cells of each row, ordered by qualifier; an empty list for a row without cells."""

    @abstractmethod
    def get(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | None]:
        """Return the cell at each (row, qualifier), or None if it is missing."""

    def holds(self, rows: Sequence[bytes]) -> list[bool]:
        """Return whether each drawer row exists."""
        return [cell is not None for cell in self.get([(row, b"") for row in rows], DRAWER_FAMILY)]

    @abstractmethod
    def put(self, puts: Sequence[Put], *, is_timely: Callable[[], bool] = always) -> None:
        """Write cells; on return the servers have all of them, unless `is_timely` returned False."""

    def put_rows(self, rows: Uint8s) -> None:
        """Write drawer rows, shape (n, 13); on return the servers have all of them."""
        self.put([Put(row.tobytes(), DRAWER_FAMILY, b"", b"") for row in rows])

    @abstractmethod
    def change(self, changes: Sequence[Change], *, is_timely: Callable[[], bool] = always) -> list[bool | None]:
        """Compare and set each cell independently, in parallel; a change is never sent twice.

        Returns:
            Whether each change was made. None means that the change was not sent, or that no reply arrived. Without a
            reply, the change may have been made, or may still be made later.
        """

    @abstractmethod
    def delete(self, deletions: Sequence[Deletion]) -> None:
        """Delete cells; versions newer than the deletion's timestamp are kept."""

    @abstractmethod
    def regions(self) -> list[Region]:
        """Return the table's regions, ordered by start; a region with replicas is listed once."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the table exists."""

    def is_disabled(self) -> bool:
        """Whether the table is disabled; always False on Thrift1, where other calls report a disabled table."""
        return False

    def namespaces(self) -> list[str]:
        """Return the cluster's namespaces; empty through Thrift1, which cannot list them."""
        return []

    @abstractmethod
    def table(self) -> Table | None:
        """Return the table's settings, or None if it does not exist."""

    @abstractmethod
    def create_table(self, table: Table, splits: Sequence[bytes]) -> None:
        """Create the table with the settings that the gateway supports; raise `IndexExistsError` if it exists."""

    @abstractmethod
    def delete_table(self) -> None:
        """Disable and drop the table; raise `IndexNotFoundError` if it does not exist."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __exit__(self, *exc_info: object) -> None:
        self.close()
