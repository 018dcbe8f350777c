"""Read a part's documents in a folder of tables: by fingerprint, by id, or all in order."""

from __future__ import annotations

import mmap
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Int64s, spans
from hsimhash.fingerprint.signature import Signatures
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.base_files.base_format import HEADER_BYTES, DamagedBaseError, read_header
from hsimhash.store.base_files.checked_blocks import CheckedBlocks
from hsimhash.store.lmdb.codec import digest
from hsimhash.store.tables.documents_format import NUMBER, DocumentsHeader

_PLAIN, _SIGNED = Struct("<Qq"), Struct("<QqQQ")
_START = Struct("<Q")
_PAIR = Struct("<II")


class DocumentsName(NamedTuple):
    """The description of a documents file in `tables.json`: its name, number of documents, and header's CRC-32."""

    file: str
    documents: int
    header: int


class FiledDocument(NamedTuple):
    """A document as stored in the file."""

    doc_id: bytes
    first_seen: int
    sketch: int = 0
    key: int = 0


class FiledColumns(NamedTuple):
    """Documents as columns."""

    ids: list[bytes]
    signatures: Signatures
    first_seen: Int64s


class DocumentsFile:
    """The mapped documents of a part; thread-safe. Reads raise `DamagedBaseError` for damaged blocks.

    Args:
        path: Path of the file.
        name: Its description in `tables.json`.
        base: Base of the part, which has the fingerprints.

    Raises:
        DamagedBaseError: `tables.json` names another file, or the header or the checksums are damaged.
        FileNotFoundError: The file does not exist.
    """

    def __init__(self, path: Path, name: DocumentsName, base: Base) -> None:
        self.path, self.base = path, base
        with path.open("rb") as file:
            header, checksum = read_header(file, DocumentsHeader.unpack)
            self.header = header
            if checksum != name.header or header.fingerprints != base.rows:
                raise DamagedBaseError(f"{path.name} is not the file that tables.json names")
            self._map = mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        if len(mapped) != header.file_bytes:
            raise DamagedBaseError(f"{path.name} has {len(mapped):,} bytes instead of {header.file_bytes:,}")
        mapped.madvise(mmap.MADV_RANDOM)
        end = HEADER_BYTES + header.sections[-1]
        content = memoryview(mapped)
        if zlib.crc32(content[end:]) != header.tail:
            raise DamagedBaseError(f"the checksums of {path.name} are damaged")
        self.file_bytes, self.documents = header.file_bytes, header.documents
        self._content = content[HEADER_BYTES:end]
        self.blocks = CheckedBlocks(path.name, self._content, np.frombuffer(mapped, NUMBER, offset=end))
        _, self._starts_at, self._buckets_at, self._numbers_at, self._ids_at, _ = header.sections
        self._size, self._struct = header.record.itemsize, _SIGNED if header.has_signatures else _PLAIN
        self.starts = self._numbers(self._starts_at, header.fingerprints + 1)
        self._records = np.frombuffer(self._content, header.record, header.documents + 1)
        self._ids = np.frombuffer(self._content, np.uint8, header.id_bytes, self._ids_at)

    def _numbers(self, at: int, count: int) -> NDArray[np.uint32]:
        return np.frombuffer(self._content, NUMBER, count, at)

    # One fingerprint or id.

    def bounds(self, place: int) -> tuple[int, int]:
        """Return the half-open range of documents whose fingerprint is at a position in the base."""
        at = self._starts_at + place * NUMBER.itemsize
        self.blocks.verify_bytes(at, at + 2 * NUMBER.itemsize)
        found: tuple[int, int] = _PAIR.unpack_from(self._content, at)
        return found

    def stored(self, number: int) -> FiledDocument:
        """Return the document with a number."""
        at = number * self._size
        self.blocks.verify_bytes(at, at + self._size + _START.size)
        start, *fields = self._struct.unpack_from(self._content, at)
        (stop,) = _START.unpack_from(self._content, at + self._size)
        start, stop = self._ids_at + start, self._ids_at + stop
        self.blocks.verify_bytes(start, stop)
        return FiledDocument(bytes(self._content[start:stop]), *fields)

    def find(self, doc_id: bytes) -> int | None:
        """Return the number of the document with an id, or None if it is not in this part."""
        bucket = int.from_bytes(digest(doc_id)[:8], "big") >> 64 - self.header.bucket_bits
        at = self._buckets_at + bucket * NUMBER.itemsize
        self.blocks.verify_bytes(at, at + 2 * NUMBER.itemsize)
        start, stop = _PAIR.unpack_from(self._content, at)
        at = self._numbers_at + start * NUMBER.itemsize
        self.blocks.verify_bytes(at, self._numbers_at + stop * NUMBER.itemsize)
        numbers = self._content[at : self._numbers_at + stop * NUMBER.itemsize].tolist()
        for (number,) in Struct("<I").iter_unpack(bytes(numbers)):
            if self.stored(number).doc_id == doc_id:
                return int(number)
        return None

    def fingerprint_of(self, number: int) -> int:
        """Return the fingerprint of the document with a number."""
        place = bisect_right(_Verified(self), number) - 1
        return int(self.base.part(self.base.drawers[0], place, place + 1)[0])

    # Many fingerprints or ids.

    def bounds_of(self, places: Int64s) -> tuple[Int64s, Int64s]:
        """Run `bounds` for many positions."""
        self.blocks.verify_spans(self._starts_at + places * NUMBER.itemsize, np.full(len(places), 2 * NUMBER.itemsize))
        return self.starts[places].astype(np.int64), self.starts[places + 1].astype(np.int64)

    def columns(self, numbers: Int64s) -> FiledColumns:
        """Return documents as columns. Their fingerprints are not read, and are 0."""
        self.blocks.verify_spans(numbers * self._size, np.full(len(numbers), self._size + _START.size))
        records = self._records[numbers]
        starts = records["id_start"].astype(np.int64)
        lengths = self._records["id_start"][numbers + 1].astype(np.int64) - starts
        self.blocks.verify_spans(self._ids_at + starts, lengths)
        joined = self._ids[spans(starts, lengths)].tobytes()
        ids = [joined[start:stop] for start, stop in pairwise([0, *np.cumsum(lengths).tolist()])]
        others = (records[name].astype(np.uint64) for name in ("sketch", "key") if self.header.has_signatures)
        signatures = Signatures.of(np.zeros(len(numbers), np.uint64), *others)
        return FiledColumns(ids, signatures, records["first_seen"].astype(np.int64))

    def page(self, start: int, stop: int) -> FiledColumns:
        """Return documents [start, stop) in order, with their fingerprints."""
        numbers = np.arange(start, stop)
        found = self.columns(numbers)
        if not len(numbers):
            return found
        ordered = _Verified(self)
        first, last = bisect_right(ordered, start) - 1, bisect_right(ordered, stop - 1) - 1
        begins, ends = self.bounds_of(np.arange(first, last + 1))
        lengths = np.minimum(ends, stop) - np.maximum(begins, start)
        fingerprints = np.repeat(self.base.part(self.base.drawers[0], first, last + 1), lengths)
        signatures = Signatures.of(fingerprints, found.signatures.sketches, found.signatures.keys)
        return found._replace(signatures=signatures)

    def first_at(self, place: int) -> int:
        """Return the number of the first document at or after a position in the base."""
        return self.bounds(place)[0] if place < self.base.rows else self.documents

    def numbers_of_buckets(self, start: int, stop: int) -> tuple[Int64s, Int64s]:
        """Return the numbers of the documents in buckets [start, stop), and the size of each bucket."""
        at = self._buckets_at + start * NUMBER.itemsize
        self.blocks.verify_bytes(at, at + (stop - start + 1) * NUMBER.itemsize)
        edges = self._numbers(at, stop - start + 1).astype(np.int64)
        at = self._numbers_at + int(edges[0]) * NUMBER.itemsize
        count = int(edges[-1] - edges[0])
        self.blocks.verify_bytes(at, at + count * NUMBER.itemsize)
        return self._numbers(at, count).astype(np.int64), np.diff(edges)


class _Verified(Sequence[int]):
    """The number of each fingerprint's first document, verified when it is read; for binary searches."""

    def __init__(self, file: DocumentsFile) -> None:
        self._file = file

    def __len__(self) -> int:
        return self._file.header.fingerprints

    def __getitem__(self, place: int) -> int:  # type: ignore[override]  # (no slices)
        return self._file.bounds(place)[0]
