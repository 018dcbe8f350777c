"""Keep document ids in a file, and find repeated ids even if there are too many for memory.

A table of digests finds ids that may be repeated. While documents are read, it takes 16 to 32 bytes per id; a dict
would take 200. Ids with the same digest are compared in full, so that two ids are never confused.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import mmh3
import numpy as np

from hsimhash.dedup.outputs import output_errors
from hsimhash.fingerprint.bits import Int64s, Uint64s, sorted_distinct
from hsimhash.pairs.distinct import Column

IDS_AT_ONCE = 1 << 16  # number of ids in memory at a time while all ids are read
IDS_SORTED = 1 << 18  # number of ids that are sorted together and written to one file
WINDOW_BYTES = 1 << 16  # ids that begin in the same window of this many bytes are read together
LEAST_ROOM = 1 << 10  # initial capacity in digests


def murmur_digests(doc_ids: Sequence[bytes]) -> Uint64s:
    """Return 64 bits of the murmur3 hash of each id."""
    joined = b"".join(map(mmh3.mmh3_x64_128_digest, doc_ids))
    return np.ascontiguousarray(np.frombuffer(joined, np.uint64)[::2])


class DigestTable:
    """Maps digests to the numbers 0, 1, …: a hash table with open addressing that handles many digests at a time.

    A slot holds a number plus 1, or 0 if it is free. A digest is in the first slot of its own sequence (`_next`) that
    was free when it was added. At least half of the slots are free, so every search reaches the digest or a free slot.
    """

    def __init__(self) -> None:
        self._count = 0
        self._digests = np.empty(LEAST_ROOM, np.uint64)
        self._slots = np.zeros(2 * LEAST_ROOM, np.uint32)

    def _first(self, digests: Uint64s) -> Uint64s:
        return digests & np.uint64(len(self._slots) - 1)

    def _next(self, slots: Uint64s, digests: Uint64s) -> Uint64s:
        """Return the slots after the given slots; the step is odd, so a sequence visits every slot."""
        return self._first(slots + (digests >> np.uint64(32) | np.uint64(1)))

    def find(self, digests: Uint64s) -> Int64s:
        """Return the number of each digest, or -1 if it is unknown; for a repeated digest, any of its numbers."""
        found = np.full(len(digests), -1, np.int64)
        left, slots = np.arange(len(digests)), self._first(digests)
        while len(left):
            numbers = self._slots[slots].astype(np.int64) - 1
            is_its = (numbers >= 0) & (self._digests[numbers] == digests[left])
            found[left[is_its]] = numbers[is_its]
            continues = (numbers >= 0) & ~is_its
            left = left[continues]
            slots = self._next(slots[continues], digests[left])
        return found

    def add(self, digests: Uint64s) -> None:
        """Add digests with the next numbers."""
        stop = self._count + len(digests)
        if stop > len(self._digests):
            self._grow(1 << stop.bit_length())
        self._digests[self._count : stop] = digests
        self._place(self._count, stop)
        self._count = stop

    def _grow(self, room: int) -> None:
        digests = np.empty(room, np.uint64)
        digests[: self._count] = self._digests[: self._count]
        self._digests, self._slots = digests, np.zeros(2 * room, np.uint32)
        for start in range(0, self._count, IDS_AT_ONCE):
            self._place(start, min(start + IDS_AT_ONCE, self._count))

    def _place(self, start: int, stop: int) -> None:
        """Assign slots to the numbers [start, stop)."""
        numbers, digests = np.arange(start + 1, stop + 1, dtype=np.uint32), self._digests[start:stop]
        slots = self._first(digests)
        while len(numbers):
            is_free = self._slots[slots] == 0
            self._slots[slots[is_free]] = numbers[is_free]  # if several get the same slot, one of them wins
            continues = self._slots[slots] != numbers
            numbers, digests = numbers[continues], digests[continues]
            slots = self._next(slots[continues], digests)


class SpilledIds:
    """Distinct ids, numbered 0, 1, …, in a file in `folder`, one per line; ids do not have control characters."""

    def __init__(self, folder: Path, digests_of: Callable[[Sequence[bytes]], Uint64s] = murmur_digests) -> None:
        self._folder = folder
        self._path = folder / "ids"
        self._data = Column(self._path, np.uint8, "")
        self._ends = Column(folder / "ends", np.int64, "")  # 0, then the end of each line
        self._size = self._count = 0
        self._digests_of = digests_of
        self._table = DigestTable()
        self._alike: dict[str, int] = {}  # ids that share a digest with another id, which is very rare
        with output_errors(folder):
            self._data.append(np.empty(0, np.uint8))  # creates the file
            self._ends.append(np.zeros(1, np.int64))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for start in range(0, self._count, IDS_AT_ONCE):
            yield from self.within(start, min(start + IDS_AT_ONCE, self._count))

    def add(self, doc_ids: Sequence[str]) -> Int64s:
        """Number the new ids; return -1 for each new id, and its number for each known id."""
        encoded = _encoded(doc_ids)
        digests = self._digests_of(encoded)
        met = self._table.find(digests)
        earlier = self._confirmed(doc_ids, met)
        new = np.flatnonzero(earlier < 0)
        if len(sorted_distinct(digests[new])) < len(new) or (met[new] >= 0).any():
            new = self._compared(doc_ids, earlier, new)
            _, which, counts = np.unique(digests[new], return_inverse=True, return_counts=True)
            is_alike = (counts[which] > 1) | (met[new] >= 0)
            self._alike |= {doc_ids[new[at]]: self._count + at for at in np.flatnonzero(is_alike).tolist()}
        self._table.add(digests[new])
        self._write([encoded[place] for place in new.tolist()])
        return earlier

    def find(self, doc_ids: Sequence[str]) -> Int64s:
        """Return the number of each id, or -1 if it is unknown."""
        return self._confirmed(doc_ids, self._table.find(self._digests_of(_encoded(doc_ids))))

    def settle(self) -> None:
        """Free the memory that only `add` and `find` need; call neither afterwards."""
        self._table = DigestTable()

    def _confirmed(self, doc_ids: Sequence[str], met: Int64s) -> Int64s:
        """Return the numbers of ids, given the numbers `met` that the table has for their digests."""
        numbers, places = met.copy(), np.flatnonzero(met >= 0)
        for place, known in zip(places.tolist(), self.at(met[places]), strict=True):
            if known != doc_ids[place]:
                numbers[place] = self._alike.get(doc_ids[place], -1)
        return numbers

    def _compared(self, doc_ids: Sequence[str], earlier: Int64s, new: Int64s) -> Int64s:
        """Return the places in `new` where an id occurs first, and set `earlier` for its other places."""
        numbers: dict[str, int] = {}
        first: list[int] = []
        for place in new.tolist():
            if doc_ids[place] in numbers:
                earlier[place] = numbers[doc_ids[place]]
            else:
                numbers[doc_ids[place]] = self._count + len(first)
                first.append(place)
        return np.array(first, np.int64)

    def _write(self, encoded: Sequence[bytes]) -> None:
        if not encoded:
            return
        data = np.frombuffer(b"\n".join([*encoded, b""]), np.uint8)
        with output_errors(self._folder):
            self._data.append(data)
            self._ends.append(np.flatnonzero(data == ord("\n")) + 1 + self._size)
        self._size += len(data)
        self._count += len(encoded)

    def within(self, start: int, stop: int) -> list[str]:
        """Return the ids with the numbers [start, stop)."""
        if start >= stop:
            return []
        with output_errors(self._folder):
            first, last = self._ends.read(start, start + 1)[0], self._ends.read(stop, stop + 1)[0]
            return self._data.read(first, last).tobytes().decode().split("\n")[:-1]

    def at(self, numbers: Int64s, beyond: Sequence[str] = ()) -> list[str]:
        """Return the ids with the given numbers; the ids in `beyond` are numbered after those in the file."""
        if not len(numbers):
            return []
        distinct, places = np.unique(numbers, return_inverse=True)
        own = distinct[distinct < self._count]
        names = [*self._ascending(own), *(beyond[number] for number in (distinct[len(own) :] - self._count).tolist())]
        return [names[place] for place in places.tolist()]

    def _ascending(self, numbers: Int64s) -> list[str]:
        """Return the ids with the given ascending numbers, with one read per window."""
        lines: list[bytes] = []
        with output_errors(self._folder), self._path.open("rb", buffering=0) as file:
            ends = self._ends.mapped()
            starts, stops = ends[numbers], ends[numbers + 1]
            edges = np.flatnonzero(np.diff(starts // WINDOW_BYTES, prepend=-1, append=-1)).tolist()
            for first, last in itertools.pairwise(edges):
                begin = int(starts[first])
                window = os.pread(file.fileno(), int(stops[last - 1]) - begin, begin)
                places = (starts[first:last] - begin).tolist(), (stops[first:last] - begin).tolist()
                lines += [window[start:stop] for start, stop in zip(*places, strict=True)]
        return b"".join(lines).decode().split("\n")[:-1]

    def places(self, numbers: Int64s, ids_sorted: int = IDS_SORTED) -> Int64s:
        """Return an array with the rank by id of each given number, and 0 for all other numbers."""
        places = np.zeros(self._count, np.int64)
        with output_errors(self._folder), ExitStack() as stack:
            runs = []
            for start in range(0, len(numbers), ids_sorted):
                path = self._folder / f"sorted-{start}"
                self._write_sorted(path, numbers[start : start + ids_sorted])
                runs.append(stack.enter_context(path.open("rb")))
                path.unlink()
            ordered = np.fromiter((int(line.rpartition(b"\t")[2]) for line in heapq.merge(*runs)), np.int64)
        places[ordered] = np.arange(len(ordered))
        return places

    def _write_sorted(self, path: Path, numbers: Int64s) -> None:
        """Write sorted lines of id, tab and number; a tab sorts before every character of an id."""
        named = zip(self.at(numbers), numbers.tolist(), strict=True)
        path.write_bytes(b"".join(sorted(f"{doc_id}\t{number}\n".encode() for doc_id, number in named)))


def _encoded(doc_ids: Sequence[str]) -> list[bytes]:
    """Return ids as UTF-8."""
    return "\n".join(doc_ids).encode().split(b"\n") if doc_ids else []
