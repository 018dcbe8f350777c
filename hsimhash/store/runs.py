"""Sorted runs: files with documents in the two orders in which the embedded store writes them.

Other stores read only one of the orders.

A run is a folder of arrays in native byte order, except for `registers`. In order of (fingerprint, id): `fingerprints`
(uint64), `first_seen` (int64), `id_ends` (int64, one item more than there are documents), `ids`. In order of the ids'
digests: `registers` (key and value as stored in LMDB, 32 bytes or, with sketches and keys, 48), `places` (uint32,
position in the first order).

A merge adds `keep` (bool, in the first order: whether the merge writes the document); `permuted`: the kept
fingerprints, permuted and sorted for each drawer, shape (drawers, m), uint64; and `key_rows`: the rows of the key
drawer, sorted, shape (m, 13).
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsimhash.errors import START_OVER, CorruptionError
from hsimhash.files import file_errors, make_folder, sync_file, sync_folder
from hsimhash.fingerprint.bits import Bools, Int64s, Uint8s, Uint64s
from hsimhash.fingerprint.keys import Keying
from hsimhash.fingerprint.signature import AnySignatures, Signature, Signatures
from hsimhash.layout import Drawer
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.rowkey import (
    FINGERPRINT_BYTES,
    ROWKEY_BYTES,
    check_documents,
    distinct_rows,
    key_rowkeys,
    last_occurrences,
    rowkeys_of,
)
from hsimhash.store.lmdb.codec import digest, document_key, document_value, key_part

REGISTER = np.dtype([("high", ">u8"), ("low", ">u8"), ("fingerprint", ">u8"), ("first_seen", ">i8")])
KEY_ROW = np.dtype([("segment", ">u4"), ("flag", "u1"), ("fingerprint", ">u8")])
SIGNED_REGISTER = np.dtype([*REGISTER.descr, ("sketch", ">u8"), ("key", ">u8")])


_COUNTED_AT_ONCE = 1_000_000  # approximate number of registers that are counted at a time
TOKEN_FILE = "token"  # noqa: S105  (next to the runs; not a secret)

Slice = dict[bytes, tuple[Signature, int]]  # document id → signature and first seen


@dataclass(frozen=True, slots=True)
class StageOptions:
    """Options for a bulk load that writes files for the servers to load; see `HSimIndex.bulk`.

    Args:
        stage: Folder for the files: a path, or a URL that fsspec supports. Region servers must be able to open it.
        command: Words of the command that runs an HBase class, such as `hbase`; see `load_command`.
        is_first: Whether the table does not have documents yet; if so, its contents are not read.
        workers: Number of processes that sort and write; Spark uses its own workers.
        tell_commands: Receives the commands that load the files; hsimhash then does not run them.
        part_bytes: Approximate memory in bytes that a worker, or a Spark task, uses for one part; None: the default.
    """

    stage: str
    command: Sequence[str] = ("hbase",)
    is_first: bool = False
    workers: int = 1
    tell_commands: Callable[[Sequence[str]], None] | None = None
    part_bytes: int | None = None


class FiledRows:
    """Drawer rows in the files of a folder: `permuted` and optionally `key_rows`; see the module docstring."""

    def __init__(self, folder: Path, *, has_signatures: bool) -> None:
        self.folder = folder
        self.has_signatures = has_signatures

    @classmethod
    def sort(
        cls, folder: Path, fingerprints: Uint64s, key_rows: Uint8s | None, drawers: tuple[Drawer, ...]
    ) -> FiledRows:
        """Write the drawer rows of fingerprints, which may repeat, and sorted rows of the key drawer; not durable."""
        folder.mkdir(parents=True, exist_ok=True)
        filed = distinct_of([np.sort(fingerprints)])
        with (folder / "permuted").open("wb") as file:
            for drawer in drawers:
                file.write(np.sort(drawer.permute(filed)).data)
        if key_rows is not None:
            (folder / "key_rows").write_bytes(np.ascontiguousarray(key_rows).data)
        return FiledRows(folder, has_signatures=key_rows is not None)

    def map(self, name: str, dtype: np.dtype[Any] | type) -> NDArray[Any]:
        """Return a memory-mapped array, for a few look-ups."""
        path = self.folder / name
        return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)

    def read(self, name: str, dtype: np.dtype[Any] | type, start: int, stop: int) -> NDArray[Any]:
        """Return items [start, stop) of an array."""
        itemsize = np.dtype(dtype).itemsize
        return np.fromfile(self.folder / name, dtype, stop - start, offset=start * itemsize)

    @property
    def key_row_count(self) -> int:
        """The number of key drawer rows."""
        return (self.folder / "key_rows").stat().st_size // ROWKEY_BYTES if self.has_signatures else 0

    def key_rows(self, low: int, high: int) -> NDArray[np.void]:
        """Return the kept rows of the key drawer whose segments lie in [low, high), in order."""
        if not self.key_row_count:
            return np.empty(0, KEY_ROW)
        segments = self.map("key_rows", KEY_ROW)["segment"]
        start, stop = (bisect_left(segments, edge, key=int) for edge in (low, high))
        return self.read("key_rows", KEY_ROW, start, stop)


class Run(FiledRows):
    """A sorted run; its arrays are read from files slice by slice, to save memory."""

    def __init__(self, folder: Path) -> None:
        self.size = (folder / "fingerprints").stat().st_size // FINGERPRINT_BYTES
        has_signatures = (folder / "registers").stat().st_size > self.size * REGISTER.itemsize
        super().__init__(folder, has_signatures=has_signatures)
        self.register = SIGNED_REGISTER if self.has_signatures else REGISTER

    @classmethod
    def write(
        cls, folder: Path, signatures: Signatures, ids: list[bytes], first_seen: Int64s, *, has_signatures: bool
    ) -> None:
        """Sort documents and write them to the new folder `folder`, completely or not at all; durable on return."""
        order = document_order(signatures.fingerprints, ids)
        signatures, first_seen = signatures[order], first_seen[order]
        fingerprints, ids = signatures.fingerprints, [ids[position] for position in order.tolist()]
        registers = np.empty(len(ids), SIGNED_REGISTER if has_signatures else REGISTER)
        digests = np.frombuffer(b"".join(map(digest, ids)), ">u8").reshape(-1, 2)
        registers["high"], registers["low"] = digests[:, 0], digests[:, 1]
        registers["fingerprint"], registers["first_seen"] = fingerprints, first_seen
        if has_signatures:
            registers["sketch"], registers["key"] = signatures.sketches, signatures.keys
        places = key_order(registers)
        temporary = _emptied(folder)
        temporary.mkdir(parents=True)
        write_array(temporary / "fingerprints", fingerprints)
        write_array(temporary / "first_seen", first_seen)
        write_array(temporary / "id_ends", np.cumsum([0, *map(len, ids)], dtype=np.int64))
        write_array(temporary / "ids", np.frombuffer(b"".join(ids), np.uint8))
        write_array(temporary / "registers", registers[places])
        write_array(temporary / "places", places.astype(np.uint32))
        sync_folder(temporary)
        shutil.rmtree(folder, ignore_errors=True)  # not a run, but the remains of an interrupted deletion
        temporary.rename(folder)
        sync_folder(folder.parent)

    def delete(self) -> None:
        """Remove the run; after a kill, either the whole run remains, or only files that are not treated as a run."""
        shutil.rmtree(self.folder.rename(_emptied(self.folder)))

    def ids(self, start: int, stop: int) -> list[bytes]:
        """Return ids [start, stop) in the order of (fingerprint, id)."""
        ends = self.read("id_ends", np.int64, start, stop + 1).tolist()
        blob = self.read("ids", np.uint8, ends[0], ends[-1]).tobytes()
        return [blob[begin - ends[0] : end - ends[0]] for begin, end in itertools.pairwise(ends)]

    def ids_at(self, places: Int64s) -> list[bytes]:
        """Return the ids at the given positions in the order of (fingerprint, id)."""
        ends, ids = self.map("id_ends", np.int64), self.map("ids", np.uint8).data
        edges = zip(ends[places].tolist(), ends[places + 1].tolist(), strict=True)
        return [bytes(ids[start:stop]) for start, stop in edges]

    def kept_within(self, low: int, high: int) -> Int64s:
        """Return the positions of kept documents whose fingerprints' first 32 bits lie in [low, high)."""
        ordered = self.map("fingerprints", np.uint64)
        start, stop = (
            len(ordered) if edge >> 32 else int(np.searchsorted(ordered, np.uint64(edge << 32))) for edge in (low, high)
        )
        return start + np.flatnonzero(self.read("keep", np.bool_, start, stop))

    def listings(self, after: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of the `documents` database for kept documents, in order, starting after the key `after`."""
        first = 0
        if after:
            first_number = np.uint64(int.from_bytes(after[:FINGERPRINT_BYTES], "big"))
            first = int(np.searchsorted(self.map("fingerprints", np.uint64), first_number))
        for start in range(first, self.size, 10_000):
            stop = min(start + 10_000, self.size)
            keep = self.read("keep", np.bool_, start, stop).tolist()
            fingerprints = self.read("fingerprints", np.uint64, start, stop).astype(">u8").tobytes()
            seen = self.read("first_seen", np.int64, start, stop).astype(">i8").tobytes()
            for place, (doc_id, is_kept) in enumerate(zip(self.ids(start, stop), keep, strict=True)):
                if is_kept:
                    at = slice(place * 8, place * 8 + 8)
                    key = document_key(fingerprints[at], doc_id)
                    if key > after:
                        yield key, document_value(seen[at], doc_id)

    def registers(self, low: int, high: int) -> tuple[NDArray[np.void], int]:
        """Return the registers whose digests start with a number in [low, high), and the position of the first."""
        starts = self.map("registers", self.register)["high"]
        start = bisect_left(starts, low, key=int)  # np.searchsorted would copy the whole column first
        stop = bisect_left(starts, high, key=int)
        return self.read("registers", self.register, start, stop), start

    def registers_by_place(self) -> NDArray[np.void]:
        """Return all registers in the order of (fingerprint, id)."""
        found = np.empty(self.size, self.register)
        found[self.read("places", np.uint32, 0, self.size)] = self.read("registers", self.register, 0, self.size)
        return found


class Found(NamedTuple):
    """The latest registers of documents, one per id, and their positions."""

    registers: NDArray[np.void]
    runs: Int64s  # numbers from 0
    places: Int64s  # in the order of (fingerprint, id)

    def part(self, part: slice) -> Found:
        """Return the registers in a slice, with their runs and positions."""
        return Found(self.registers[part], self.runs[part], self.places[part])


def digest_ranges(runs: Sequence[Run], documents: int) -> list[tuple[int, int]]:
    """Return half-open ranges of digests with about `documents` documents each."""
    count = max(1, -(-sum(run.size for run in runs) // documents))
    return list(itertools.pairwise((number << 64) // count for number in range(count + 1)))


def resolve(runs: Sequence[Run], documents: int, changes: Callable[[Found], Bools]) -> int:
    """Write each run's `keep`: whether a document is the last with its id and changes the index; return how many do.

    Args:
        runs: Runs of a bulk load.
        documents: Approximate number of documents compared at a time.
        changes: Returns whether each document changes the index.
    """
    keeps = [np.zeros(run.size, np.bool_) for run in runs]  # one byte per document
    for low, high in digest_ranges(runs, documents):
        parts = [run.registers(low, high) for run in runs]
        registers = join_registers([part for part, _ in parts])
        number = np.repeat(np.arange(len(parts)), [len(part) for part, _ in parts])
        places = [
            run.read("places", np.uint32, start, start + len(part))
            for run, (part, start) in zip(runs, parts, strict=True)
        ]
        place = np.concatenate(places).astype(np.int64)
        order = key_order(registers, number)
        key = registers[["high", "low"]][order]
        last = order[np.concatenate((key[1:] != key[:-1], [True]))] if len(order) else order
        last = last[changes(Found(registers[last], number[last], place[last]))]
        for position, keep in enumerate(keeps):
            keep[place[last[number[last] == position]]] = True
    for run, keep in zip(runs, keeps, strict=True):
        write_array(run.folder / "keep", keep)
    return sum(int(np.count_nonzero(keep)) for keep in keeps)


class BulkLoad(AbstractContextManager["BulkLoad"], ABC):
    """Sorted runs of documents in a folder, to be merged into the index at the end; see `HSimIndex.bulk`."""

    def __init__(self, folder: Path, *, has_signatures: bool) -> None:
        self.folder = folder
        self._has_signatures = has_signatures  # whether documents have sketches and keys
        self._runs: list[Run] = []
        with file_errors(folder):
            make_folder(folder)
            while (self._path(len(self._runs)) / "fingerprints").is_file():
                self._runs.append(Run(self._path(len(self._runs))))

    def _path(self, number: int) -> Path:
        return self.folder / f"run-{number + 1:06d}"

    def token(self) -> str:
        """Return the token by which the index identifies a merge of these runs; create and save it if needed."""
        path = self.folder / TOKEN_FILE
        with file_errors(self.folder):
            if not path.exists() or not path.read_text():
                path.write_text(uuid.uuid4().hex)
            return path.read_text()

    @property
    def runs(self) -> int:
        """The number of durable runs."""
        return len(self._runs)

    def expect(self, documents: int, id_bytes: int) -> None:
        """Raise `StoreUnavailableError` if the disk does not have room for about this many documents and id bytes."""

    def add_run(self, signatures: AnySignatures, doc_ids: Sequence[str], first_seen: Int64s | int) -> None:
        """Sort documents and write them as one run; durable on return. If an id occurs twice, the last one is kept."""
        signatures, ids, times = check_documents(signatures, doc_ids, first_seen)
        last = last_occurrences(ids)
        if len(last) < len(ids):
            ids, signatures, times = [ids[position] for position in last], signatures[last], times[last]
        self.add_distinct(signatures, ids, times)

    def add_distinct(self, signatures: Signatures, ids: list[bytes], first_seen: Int64s) -> None:
        """Write checked documents with distinct ids as one run; durable on return."""
        with file_errors(self.folder):
            path = self._path(self.runs)
            Run.write(path, signatures, ids, first_seen, has_signatures=self._has_signatures)
            self._runs.append(Run(path))

    @property
    def documents(self) -> int:
        """The number of documents in the runs, including repeated ones."""
        return sum(run.size for run in self._runs)

    @property
    def distinct_documents(self) -> int:
        """The number of distinct documents in the runs."""
        if len(self._runs) < 2:
            return self.documents
        count = 0
        for low, high in digest_ranges(self._runs, _COUNTED_AT_ONCE):
            # 64 bits of a digest distinguish ids well enough to count them.
            parts = [run.registers(low, high)[0]["high"].astype(np.uint64) for run in self._runs]
            count += len(distinct_of(parts))
        return count

    def slice_of(self, number: int, slices: int) -> Slice:
        """Return the documents in one of `slices` slices, numbered from 0; each from the last run that has it.

        A slice takes the documents in one range of digests from every run, so it includes all versions of a document.
        """
        low, high = (number << 64) // slices, (number + 1 << 64) // slices
        documents: Slice = {}
        for run in self._runs:
            registers, start = run.registers(low, high)
            places = run.read("places", np.uint32, start, start + len(registers)).astype(np.int64)
            signatures, first_seen = signatures_of(registers), registers["first_seen"].tolist()
            for doc_id, signature, seen in zip(run.ids_at(places), signatures, first_seen, strict=True):
                documents[doc_id] = (signature, seen)
        return documents

    def discard_after(self, runs: int) -> None:
        """Delete the runs after the first `runs`; raise `CorruptionError` if there are fewer."""
        if runs > len(self._runs):
            raise CorruptionError(
                f"{self._path(len(self._runs))} is missing: the job wrote {runs:,} sorted runs; " + START_OVER
            )
        with file_errors(self.folder):
            if runs < len(self._runs):
                self._forget_merge()
            for run in reversed(self._runs[runs:]):
                run.delete()
            self._runs = self._runs[:runs]

    @abstractmethod
    def merge(self, observer: Observer = UNWATCHED) -> int | None:
        """Merge all runs into the index; return how many documents are new or changed, or None if stopped.

        The observer can stop a merge. If a merge is interrupted or killed, the next call finishes it.
        """

    @abstractmethod
    def _forget_merge(self) -> None:
        """Delete the saved progress of a merge of these runs."""

    def delete(self) -> None:
        """Remove the runs."""
        with file_errors(self.folder):
            for run in reversed(self._runs):
                run.delete()
            shutil.rmtree(self.folder)
        self._runs = []

    def __exit__(self, *exc_info: object) -> None:
        pass


def document_order(
    fingerprints: Uint64s, ids: list[bytes], key: Callable[[bytes], bytes] = key_part
) -> NDArray[np.intp]:
    """Return the positions that sort documents like their listings: by fingerprint, then by `key` of the id."""
    order = np.argsort(fingerprints, kind="stable")
    ordered = fingerprints[order]
    return sorted_where_equal(order, ordered[1:] == ordered[:-1], lambda position: key(ids[position]))


def sorted_where_equal(order: NDArray[np.intp], is_same: Bools, key: Callable[[int], bytes]) -> NDArray[np.intp]:
    """Sort an order in place by a key within stretches of equal items.

    `is_same` states for each item except the first whether it equals the previous item.
    """
    is_equal = np.concatenate(([False], is_same, [False]))
    edges = np.flatnonzero(is_equal[1:] != is_equal[:-1])
    for start, stop in zip(edges[::2].tolist(), (edges[1::2] + 1).tolist(), strict=True):
        order[start:stop] = sorted(order[start:stop].tolist(), key=key)
    return order


def _emptied(folder: Path) -> Path:
    """Delete anything at the path of a run's temporary folder, which is not treated as a run, and return the path."""
    temporary = folder.with_name(f"{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    return temporary


def write_array(path: Path, array: NDArray[np.generic]) -> None:
    """Write an array to a file; durable on return."""
    with path.open("wb") as file:  # the errors that tofile raises do not report a full disk
        file.write(np.ascontiguousarray(array).data)
    sync_file(path)


def distinct_of(parts: list[Uint64s]) -> Uint64s:
    """Return the distinct values in sorted arrays, ascending; np.unique hashes values and takes five times as long."""
    values = np.sort(np.concatenate(parts)) if len(parts) > 1 else parts[0]
    return values[np.concatenate(([True], values[1:] != values[:-1]))] if len(values) else values


def join_registers(parts: list[NDArray[np.void]]) -> NDArray[np.void]:
    """Return the concatenated registers."""
    # Without dtype, concatenate would convert the bytes to native order.
    return np.concatenate(parts, dtype=parts[0].dtype if parts else REGISTER)


def signatures_of(registers: NDArray[np.void]) -> Signatures:
    """Return the signatures in registers of either kind."""
    fingerprints = registers["fingerprint"].astype(np.uint64)
    if registers.dtype.itemsize == REGISTER.itemsize:
        return Signatures.of(fingerprints)
    sketches, keys = (registers[name].astype(np.uint64) for name in ("sketch", "key"))
    return Signatures.of(fingerprints, sketches, keys)


def key_order(registers: NDArray[np.void], *minor: Int64s) -> NDArray[np.intp]:
    """Return the positions that sort registers by their digests, then by `minor`."""
    return np.lexsort((*minor, registers["low"].astype(np.uint64), registers["high"].astype(np.uint64)))


def write_permuted(run: Run, drawers: tuple[Drawer, ...], keying: Keying) -> None:
    """Write the rows of the documents that the run keeps: `permuted` and, if the run has keys, `key_rows`."""
    fingerprints = run.read("fingerprints", np.uint64, 0, run.size)
    keep = run.read("keep", np.bool_, 0, run.size)
    key_rows = None
    if run.has_signatures:
        registers = run.read("registers", run.register, 0, run.size)
        is_kept = keep[run.read("places", np.uint32, 0, run.size)]
        key_rows = key_rowkeys(replace(signatures_of(registers[is_kept]), keying=keying))
    FiledRows.sort(run.folder, fingerprints[keep], key_rows, drawers)


def segment_ranges(runs: Sequence[FiledRows], drawers: tuple[Drawer, ...], count: int) -> list[tuple[int, int]]:
    """Return half-open ranges of segments, each with about `count` of the rows that `write_permuted` wrote."""
    samples, rows = [np.empty(0, np.uint64)], 0
    for run in runs:
        permuted = permuted_of(run, drawers)
        rows += permuted.size + run.key_row_count
        samples.append(permuted[:, :: max(1, permuted.shape[1] // 1024)].ravel() >> np.uint64(32))
    return ranges_of(np.concatenate(samples), -(-rows // count))


def ranges_of(sample: Uint64s, count: int) -> list[tuple[int, int]]:
    """Return up to `count` half-open ranges of segments, cut at the quantiles of a sample."""
    ordered = np.sort(sample)
    cuts = ordered[[len(ordered) * number // count for number in range(1, count)]].tolist() if count > 1 else []
    return list(itertools.pairwise(sorted({0, *cuts, 1 << 32})))


def listing_ranges(runs: Sequence[Run], documents: int) -> list[tuple[int, int]]:
    """Return half-open ranges of the fingerprints' first 32 bits with about `documents` documents each."""
    samples = [run.map("fingerprints", np.uint64)[:: max(1, run.size // 1024)] >> np.uint64(32) for run in runs]
    return ranges_of(np.concatenate(samples), -(-sum(run.size for run in runs) // documents))


def permuted_of(run: FiledRows, drawers: tuple[Drawer, ...]) -> Uint64s:
    """Return the memory-mapped array that `write_permuted` wrote."""
    path = run.folder / "permuted"
    if not path.stat().st_size:
        return np.empty((len(drawers), 0), np.uint64)
    return np.memmap(path, np.uint64, "r").reshape(len(drawers), -1)


def drawer_rows(runs: Sequence[FiledRows], drawers: tuple[Drawer, ...], low: int, high: int) -> Uint8s:
    """Return the runs' distinct rowkeys whose segments lie in [low, high), in order: shape (m, 13)."""
    prefixes, fingerprints = [], []
    permuted = [permuted_of(run, drawers) for run in runs]
    for drawer in drawers:
        values = drawer_values([rows[drawer.number - 1] for rows in permuted], drawer, low, high)
        restored = drawer.restore(values)
        prefixes.append(drawer.segments(restored).astype(np.uint64) << np.uint64(8) | np.uint64(drawer.number))
        fingerprints.append(restored)
    keyed = np.concatenate([run.key_rows(low, high) for run in runs])
    flagged = keyed["segment"].astype(np.uint64) << np.uint64(8) | keyed["flag"]
    for column, rows in zip((prefixes, fingerprints), distinct_rows(flagged, keyed["fingerprint"]), strict=True):
        column.append(rows)
    prefix, fingerprint = np.concatenate(prefixes), np.concatenate(fingerprints)
    order = np.argsort(prefix, kind="stable")
    return rowkeys_of(prefix[order], fingerprint[order])


def drawer_values(permuted: Sequence[Uint64s], drawer: Drawer, low: int, high: int) -> Uint64s:
    """Return a drawer's distinct permuted fingerprints whose segments lie in [low, high), ascending."""
    return distinct_of([_segment_slice(values, drawer, low, high) for values in permuted])


def _segment_slice(permuted: Uint64s, drawer: Drawer, low: int, high: int) -> Uint64s:
    """Return the sorted permuted fingerprints whose segments lie in [low, high)."""
    spare = 32 - drawer.segment_bits  # the lowest bits of a segment are zero, so edges are rounded up to a segment
    edges = (-(-edge >> spare) << spare for edge in (low, high))
    start, stop = (len(permuted) if edge >> 32 else np.searchsorted(permuted, np.uint64(edge << 32)) for edge in edges)
    return np.array(permuted[start:stop])
