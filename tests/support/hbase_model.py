"""A model of HBase's cells behind the `Gateway` seam: timestamps, tombstones, and calls that land late, twice or never.

Well-behaved by default: every call is carried out at once. With `Mischief` it does what a cluster may do:

- a region server's clock goes wrong by up to `DRIFT_MS`, forwards and backwards;
- a call on several cells is carried out in parts, with other actors in between;
- a put, a delete or a compare-and-set is carried out late, or once more, up to `LATEST_MS` after it was sent;
- a reply is lost: a compare-and-set returns None, any other call raises;
- a major compaction drops older versions and tombstones.

A delete works as in HBase: it hides the versions up to its timestamp, even those put later. A put with an older
timestamp than the newest version is not visible. A compare-and-set is stamped no earlier than the cell it replaces.
"""

from __future__ import annotations

import heapq
import itertools
import random
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import CorruptionError, StoreUnavailableError
from hsimhash.rowkey import ROWKEY_BYTES
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY, Cell, Change, Deletion, Gateway, Having, Put, Table, always
from hsimhash.store.reports import Region

MINUTE_MS = 60_000
DAY_MS = 25 * 60 * MINUTE_MS  # a day and an hour: enough by any server's clock
DRIFT_MS = 10 * MINUTE_MS - 1_000
LATEST_MS = 20 * MINUTE_MS
START_MS = 1_700_000_000_000
SERVERS = 3

Key = tuple[bytes, bytes, bytes]  # family, row, qualifier
Item = TypeVar("Item")
IsTimely = Callable[[], bool]


class Version(NamedTuple):
    timestamp: int
    number: int  # of two versions with the same timestamp, the later put is visible
    value: bytes


class _Stored:
    """The versions of one cell, and the timestamp up to which they are hidden."""

    __slots__ = ("hidden", "versions")

    def __init__(self) -> None:
        self.versions: list[Version] = []
        self.hidden = -1

    def newest(self) -> Version | None:
        seen = [version for version in self.versions if version.timestamp > self.hidden]
        return max(seen) if seen else None


class Cluster:
    """One table's cells, the servers' clocks, and the true time in ms, which only `advance` changes."""

    def __init__(self) -> None:
        self.now = START_MS
        self.drifts = [0] * SERVERS
        self.lock = threading.RLock()
        self.changed: Callable[[], None] = lambda: None
        self._cells: dict[Key, _Stored] = {}
        self._order: dict[bytes, list[tuple[bytes, bytes]]] = {}
        self._numbers = itertools.count()
        self._due: list[tuple[int, int, Callable[[], object]]] = []

    # Time.

    def advance(self, ms: int) -> None:
        """Let time pass; carry out each pending call when it is due."""
        end = self.now + ms
        while self._due and self._due[0][0] <= end:
            due, _, call = heapq.heappop(self._due)
            self.now = max(self.now, due)
            call()
        self.now = end

    def later(self, due: int, call: Callable[[], object]) -> None:
        heapq.heappush(self._due, (due, next(self._numbers), call))

    def stamp(self, row: bytes) -> int:
        return self.now + self.drifts[sum(row) % SERVERS]  # the row's server's clock; drawers are on several

    # Cells.

    def newest(self, key: Key) -> Version | None:
        stored = self._cells.get(key)
        return stored.newest() if stored is not None else None

    def _stored(self, key: Key) -> _Stored:
        stored = self._cells.get(key)
        if stored is None:
            stored = self._cells[key] = _Stored()
            self._order.pop(key[0], None)
        return stored

    def put(self, put: Put, at_least: int = 0) -> None:
        stamp = max(self.stamp(put.row), at_least) if put.timestamp is None else put.timestamp
        self._stored((put.family, put.row, put.qualifier)).versions.append(
            Version(stamp, next(self._numbers), put.value)
        )
        self.changed()

    def change(self, change: Change) -> bool:
        found = self.newest((change.family, change.row, change.qualifier))
        if (found.value if found else b"") != (change.expected or b""):
            return False
        self.put(Put(change.row, change.family, change.qualifier, change.value), found.timestamp if found else 0)
        return True

    def delete(self, deletion: Deletion) -> None:
        stored = self._stored((deletion.family, deletion.row, deletion.qualifier))
        stored.hidden = max(stored.hidden, deletion.timestamp)
        self.changed()

    def delete_one_version(self, deletion: Deletion) -> None:
        """Delete as DELETE_COLUMN does: the previous version becomes visible again."""
        stored = self._stored((deletion.family, deletion.row, deletion.qualifier))
        stored.versions = [version for version in stored.versions if version.timestamp != deletion.timestamp]
        self.changed()

    def clear(self) -> None:
        """Truncate the table, or drop and create it again: calls that are under way land in the new one."""
        self._cells.clear()
        self._order.clear()

    def compact(self) -> None:
        """Drop what is hidden, and the tombstones that hide it."""
        for key, stored in list(self._cells.items()):
            newest = stored.newest()
            if newest is None:
                del self._cells[key]
            else:
                stored.versions, stored.hidden = [newest], -1
        self._order.clear()

    def cells(self, family: bytes, start: tuple[bytes, bytes], stop: tuple[bytes, bytes]) -> Iterator[Cell]:
        """Yield the visible cells whose (row, qualifier) lie in [start, stop), in order."""
        order = self._order.get(family)
        if order is None:
            order = self._order[family] = sorted(key[1:] for key in self._cells if key[0] == family)
        for place in range(bisect_left(order, start), bisect_left(order, stop)):
            row, qualifier = order[place]
            version = self.newest((family, row, qualifier))
            if version is not None:
                yield Cell(row, qualifier, version.value, version.timestamp)


class Mischief(NamedTuple):
    """How often the calls of an actor's gateway go wrong, and what is called between any two of them."""

    rng: random.Random
    pause: Callable[[], None]
    late: float = 0.1  # share of writes carried out twice, the second time late
    lost: float = 0.1  # share of compare-and-sets without a reply
    failed: float = 0.01  # share of calls that raise
    parts: float = 0.3  # share of calls on several cells carried out in parts


class ModelGateway(Gateway):
    """A gateway to a `Cluster`; every actor has its own."""

    def __init__(self, cluster: Cluster, mischief: Mischief | None = None) -> None:
        self.cluster = cluster
        self.mischief = mischief or Mischief(random.Random(0), self._tick, late=0, lost=0, failed=0, parts=0)

    def _tick(self) -> None:
        with self.cluster.lock:
            self.cluster.advance(1)

    # What may happen to a call.

    def _parts(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """Yield the items of a call in the parts carried out together, each after other actors had a turn."""
        cuts: set[int] = set()
        if len(items) > 1 and self._is("parts"):
            cuts = {self.mischief.rng.randrange(1, len(items)) for _ in range(2)}
        for start, stop in itertools.pairwise([0, *sorted(cuts), len(items)]):
            self.mischief.pause()
            yield items[start:stop]

    def _sent(self, items: Sequence[Item], is_timely: IsTimely) -> Iterator[tuple[Sequence[Item], int]]:
        """Yield the parts of a call that are carried out together, and when each was sent, as long as it is timely."""
        for part in self._parts(items):
            if not is_timely():
                return
            sent = self.cluster.now
            if self._is("parts"):
                self.mischief.pause()
            yield part, sent

    def _is(self, kind: str) -> bool:
        return self.mischief.rng.random() < getattr(self.mischief, kind)

    def _late(self, sent: int, call: Callable[[Item], object], item: Item) -> None:
        due = sent + self.mischief.rng.choice([1, 1_000, MINUTE_MS, LATEST_MS // 2, LATEST_MS])
        if due >= self.cluster.now:
            self.cluster.later(due, lambda: call(item))

    def _write(self, items: Sequence[Item], call: Callable[[Item], object], is_timely: IsTimely = always) -> None:
        """Carry out a call once, or twice if it is sent again after a lost reply; or let it fail after all."""
        for part, sent in self._sent(items, is_timely):
            if self.cluster.now - sent > LATEST_MS:
                if not is_timely():
                    return
                sent = self.cluster.now
            if self._is("failed"):
                for item in part:
                    self._fail(sent, call, item)
                raise StoreUnavailableError("the model's gateway does not answer")
            with self.cluster.lock:
                for item in part:
                    call(item)
                    if self._is("late"):
                        self._late(sent, call, item)

    def _fail(self, sent: int, call: Callable[[Item], object], item: Item) -> None:
        fate = self.mischief.rng.random()
        if fate < 0.3:
            call(item)
        elif fate < 0.6:
            self._late(sent, call, item)

    def _read(self, items: Sequence[Item]) -> Iterator[Item]:
        for part in self._parts(items):
            if self._is("failed"):
                raise StoreUnavailableError("the model's gateway does not answer")
            yield from part

    # The seam.

    def scan(self, ranges: Sequence[tuple[bytes, bytes]], most: int | None = None) -> NDArray[np.uint8]:
        found = []
        for start, stop in self._read(ranges):
            with self.cluster.lock:
                found += [cell.row for cell in self.cluster.cells(DRAWER_FAMILY, (start, b""), (stop, b""))][:most]
        if any(len(row) != ROWKEY_BYTES for row in found):
            raise CorruptionError("rows of another length")
        return np.frombuffer(b"".join(found), np.uint8).reshape(-1, ROWKEY_BYTES)

    def rows(
        self, start: bytes, stop: bytes, family: bytes, *, limit: int, columns: int = 1, having: Having | None = None
    ) -> list[list[Cell]]:
        rows: list[list[Cell]] = []
        for _ in self._read([None]):
            with self.cluster.lock:
                counted = (
                    cell
                    for cell in self.cluster.cells(family, (start, b""), (stop, b""))
                    if having is None or (cell.qualifier if having == "qualifier" else cell.value)
                )
                for _, cells in itertools.groupby(counted, key=lambda cell: cell.row):
                    if len(rows) == limit:
                        break
                    rows.append(list(itertools.islice(cells, columns)))
        return rows

    def cells(self, row: bytes, family: bytes, *, after: bytes | None = None, limit: int) -> list[Cell]:
        start = (row, b"") if after is None else (row, after + b"\x00")
        for _ in self._read([None]):
            with self.cluster.lock:
                return list(itertools.islice(self.cluster.cells(family, start, (row + b"\x00", b"")), limit))
        raise AssertionError

    def cells_of(self, rows: Sequence[bytes], family: bytes, *, limit: int) -> list[list[Cell]]:
        found = []
        for row in self._read(rows):
            with self.cluster.lock:
                cells = self.cluster.cells(family, (row, b""), (row + b"\x00", b""))
                found.append(list(itertools.islice(cells, limit)))
        return found

    def get(self, keys: Sequence[tuple[bytes, bytes]], family: bytes) -> list[Cell | None]:
        found: list[Cell | None] = []
        for row, qualifier in self._read(keys):
            with self.cluster.lock:
                version = self.cluster.newest((family, row, qualifier))
            found.append(Cell(row, qualifier, version.value, version.timestamp) if version else None)
        return found

    def put(self, puts: Sequence[Put], *, is_timely: IsTimely = always) -> None:
        self._write(puts, self.cluster.put, is_timely)

    def change(self, changes: Sequence[Change], *, is_timely: IsTimely = always) -> list[bool | None]:
        outcomes: list[bool | None] = []
        for part, sent in self._sent(changes, is_timely):
            with self.cluster.lock:
                outcomes += [self._change(change, sent) for change in part]
        return outcomes + [None] * (len(changes) - len(outcomes))

    def _change(self, change: Change, sent: int) -> bool | None:
        if self.cluster.now - sent > LATEST_MS:
            return None
        if self._is("lost"):
            self._fail(sent, self.cluster.change, change)
            return None
        is_made = self.cluster.change(change)
        if self._is("late"):  # a gateway without a reply from the region server sends the call again
            is_made = self.cluster.change(change)
            self._late(sent, self.cluster.change, change)
        return is_made

    def delete(self, deletions: Sequence[Deletion]) -> None:
        self._write(deletions, self.cluster.delete)

    def regions(self) -> list[Region]:
        return [Region(b"", b"", "model:16020")]

    def exists(self) -> bool:
        return True

    def table(self) -> Table | None:
        return None

    def create_table(self, table: Table, splits: Sequence[bytes]) -> None:
        raise NotImplementedError

    def delete_table(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass
