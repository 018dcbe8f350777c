"""Write a part's documents in a folder of tables, from sorted runs and in bounded memory."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Int64s, Uint64s
from hsimhash.store.base_files.base_format import BLOCK_BYTES, HEADER_BYTES
from hsimhash.store.runs import Run, document_order, listing_ranges, signatures_of, write_array
from hsimhash.store.tables.documents_file import DocumentsName
from hsimhash.store.tables.documents_format import BUCKET_DOCUMENTS, NUMBER, DocumentsHeader

_CHECKED_BYTES = 1 << 22  # number of bytes read at a time for checksums


def build_documents(
    path: Path,
    runs: Sequence[Run],
    fingerprints: int,
    at_once: int,
    advance: Callable[[int], None] = lambda _: None,
) -> DocumentsName:
    """Write the documents that resolved runs keep to the new file `path`; durable on return.

    Args:
        path: Path of the file.
        runs: Runs with documents of one kind, and with their `keep`; this function adds files to them.
        fingerprints: Number of distinct fingerprints of the kept documents.
        at_once: Approximate number of documents in memory.
        advance: Called repeatedly with the number of documents written since the last call; an exception stops the
            work.
    """
    kept = [run.read("keep", np.bool_, 0, run.size) for run in runs]
    documents = sum(int(np.count_nonzero(one)) for one in kept)
    id_bytes = sum(_id_bytes(run, keep) for run, keep in zip(runs, kept, strict=True))
    bits = max(documents // BUCKET_DOCUMENTS, 1).bit_length() - 1
    has_signatures = any(run.has_signatures for run in runs)
    header = DocumentsHeader(documents, fingerprints, has_signatures, bits, id_bytes, 0)
    with path.open("w+b") as file:
        _Writer(file, header, runs, at_once, advance).write()
        packed = _checked(file, header)
        file.flush()
        os.fsync(file.fileno())
    return DocumentsName(path.name, documents, zlib.crc32(packed))


def _id_bytes(run: Run, keep: NDArray[np.bool_]) -> int:
    return int(np.diff(run.read("id_ends", np.int64, 0, run.size + 1))[keep].sum())


class _InOrder(NamedTuple):
    """Documents in order, with each document's run number and position in that run."""

    fingerprints: Uint64s
    records: NDArray[np.void]
    ids: list[bytes]
    runs: Int64s
    places: Int64s


class _Writer:
    """Writes one file, section by section."""

    def __init__(
        self,
        file: BinaryIO,
        header: DocumentsHeader,
        runs: Sequence[Run],
        at_once: int,
        advance: Callable[[int], None],
    ) -> None:
        self.file, self.header, self.runs, self.at_once, self.advance = file, header, runs, at_once, advance
        self.at, self.starts_at, self.buckets_at, self.numbers_at, self.ids_at, _ = header.sections

    def write(self) -> None:
        """Write all sections."""
        for run in self.runs:
            if run.has_signatures:
                signatures = signatures_of(run.registers_by_place())
                write_array(run.folder / "sketches", signatures.sketches)
                write_array(run.folder / "keys", signatures.keys)
        numbers = [np.zeros(run.size, NUMBER) for run in self.runs]  # document numbers by position in the run
        written = fingerprints = id_bytes = 0
        for batch in self._batches():
            count, lengths = len(batch.ids), np.fromiter(map(len, batch.ids), np.int64, len(batch.ids))
            batch.records["id_start"] = id_bytes + np.cumsum(lengths) - lengths
            is_first = np.append(True, batch.fingerprints[1:] != batch.fingerprints[:-1])
            starts = (written + np.flatnonzero(is_first)).astype(NUMBER)
            self._put(self.at + written * self.header.record.itemsize, batch.records)
            self._put(self.starts_at + fingerprints * NUMBER.itemsize, starts)
            self._put(self.ids_at + id_bytes, np.frombuffer(b"".join(batch.ids), np.uint8))
            for number, of_run in enumerate(numbers):
                is_its = batch.runs == number
                of_run[batch.places[is_its]] = written + np.flatnonzero(is_its)
            written, fingerprints, id_bytes = written + count, fingerprints + len(starts), id_bytes + int(lengths.sum())
            self.advance(count)
        end = np.zeros(1, self.header.record)
        end["id_start"] = id_bytes
        self._put(self.at + written * self.header.record.itemsize, end)
        self._put(self.starts_at + fingerprints * NUMBER.itemsize, np.array([written], NUMBER))
        self._put_buckets(numbers)

    def _batches(self) -> Iterator[_InOrder]:
        """Yield kept documents in order of (fingerprint, id); no fingerprint is in two batches."""
        if not self.header.documents:
            return
        for low, high in listing_ranges(self.runs, self.at_once):
            parts = list[tuple[Uint64s, NDArray[np.void], Int64s, Int64s]]()
            ids = list[bytes]()
            for number, run in enumerate(self.runs):
                places = run.kept_within(low, high)
                records = np.zeros(len(places), self.header.record)
                records["first_seen"] = run.map("first_seen", np.int64)[places]
                if run.has_signatures:
                    records["sketch"] = run.map("sketches", np.uint64)[places]
                    records["key"] = run.map("keys", np.uint64)[places]
                parts.append(
                    (run.map("fingerprints", np.uint64)[places], records, np.full(len(places), number), places)
                )
                ids += run.ids_at(places)
            if ids:
                fingerprints, records, runs, places = (np.concatenate(one) for one in zip(*parts, strict=True))
                order = document_order(fingerprints, ids, key=bytes)
                own = [ids[place] for place in order.tolist()]
                yield _InOrder(fingerprints[order], records[order], own, runs[order], places[order])

    def _put_buckets(self, numbers: list[NDArray[np.uint32]]) -> None:
        """Write the numbers of documents in order of their ids' digests, and the start of each bucket."""
        shift = 64 - self.header.bucket_bits
        ranges = max(1, 1 << min(self.header.bucket_bits, (self.header.documents // self.at_once).bit_length()))
        written = 0
        for number in range(ranges):
            low, high = ((edge << 64) // ranges for edge in (number, number + 1))
            digests, its = self._within(low, high, numbers)
            buckets = (digests >> np.uint64(shift)).astype(np.int64) if shift < 64 else np.zeros(len(its), np.int64)
            first, stop = low >> shift, high >> shift
            counts = np.bincount(buckets - first, minlength=stop - first)
            starts = written + np.cumsum(counts) - counts
            self._put(self.buckets_at + first * NUMBER.itemsize, starts.astype(NUMBER))
            self._put(self.numbers_at + written * NUMBER.itemsize, its)
            written += len(its)
        self._put(self.buckets_at + (1 << self.header.bucket_bits) * NUMBER.itemsize, np.array([written], NUMBER))

    def _within(self, low: int, high: int, numbers: list[NDArray[np.uint32]]) -> tuple[Uint64s, NDArray[np.uint32]]:
        """Return the first 64 bits of the digests in a range, and the numbers of their documents, in order."""
        digests, found = [np.empty(0, np.uint64)], [np.empty(0, NUMBER)]
        for run, own in zip(self.runs, numbers, strict=True):
            registers, start = run.registers(low, high)
            places = run.read("places", np.uint32, start, start + len(registers))
            is_kept = run.map("keep", np.bool_)[places]
            digests.append(registers["high"][is_kept].astype(np.uint64))
            found.append(own[places[is_kept]])
        joined, its = np.concatenate(digests), np.concatenate(found)
        order = np.lexsort((its, joined))
        return joined[order], its[order]

    def _put(self, at: int, rows: NDArray[np.generic]) -> None:
        self.file.seek(HEADER_BYTES + at)
        self.file.write(np.ascontiguousarray(rows).data)


def _checked(file: BinaryIO, header: DocumentsHeader) -> bytes:
    """Write the checksums and the header; return the header."""
    end, sums = header.sections[-1], list[int]()
    file.flush()
    file.seek(HEADER_BYTES)
    for start in range(0, end, _CHECKED_BYTES):
        part = memoryview(file.read(min(_CHECKED_BYTES, end - start)))
        sums += [zlib.crc32(part[at : at + BLOCK_BYTES]) for at in range(0, len(part), BLOCK_BYTES)]
    checksums = np.array(sums, NUMBER)
    file.seek(HEADER_BYTES + end)
    file.write(checksums.data)
    fields = header.documents, header.fingerprints, header.has_signatures, header.bucket_bits, header.id_bytes
    packed = DocumentsHeader(*fields, zlib.crc32(checksums.data)).packed()
    file.seek(0)
    file.write(packed)
    return packed
