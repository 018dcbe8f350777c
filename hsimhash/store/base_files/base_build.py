"""Build a base: sorted rows from runs, an older base, or registers, merged drawer by drawer in one pass.

Memory use is limited to the directory and `ROWS_AT_ONCE` rows, or one bucket if it has more rows. The file is durable
once it is finished; it takes effect when a transaction names it in the record.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from hsimhash.files import copy_owner, sync_folder
from hsimhash.fingerprint.bits import Uint8s, Uint64s
from hsimhash.layout import FINGERPRINT_BITS, SEGMENT_BITS, Drawer, Layout
from hsimhash.rowkey import distinct_rows
from hsimhash.store.base_files.base_file import Base
from hsimhash.store.base_files.base_format import (
    BLOCK_BYTES,
    FENCE_ROWS,
    FINGERPRINT,
    HEADER_BYTES,
    KEYED,
    NUMBER,
    BaseHeader,
    BaseName,
    DamagedBaseError,
    vector_bytes,
)
from hsimhash.store.runs import KEY_ROW, FiledRows, distinct_of, drawer_values, permuted_of, ranges_of

ROWS_AT_ONCE = 1 << 21  # number of rows merged in memory at a time
CELL_ROWS, PACKED_CELL_ROWS = 4, 32  # minimum average number of rows per cell
PACKED_ROW_BYTES = range(5, FINGERPRINT.itemsize)  # sizes of a packed row; with smaller rows, vectors would be large
_SAMPLED = 1024  # number of rows sampled from each source
_SEGMENT_SHIFT = np.uint64(64 - SEGMENT_BITS)


def build_base(
    path: Path,
    layout: Layout,
    filed: Sequence[FiledRows],
    old: Base | None = None,
    advance: Callable[[int], None] = lambda _: None,
    *,
    like: Path | None = None,
    is_packed: bool = False,
) -> BaseName:
    """Write a base with the rows of `filed` and of an older base to the new file `path`; durable on return.

    Args:
        path: Path of the file; the file is deleted if it cannot be finished.
        layout: Layout of the index.
        filed: Sources of rows, which may overlap.
        old: A base whose rows are included.
        advance: Called repeatedly with the number of drawer rows written since the last call; an exception stops the
            build.
        like: File whose owner and mode the new file gets, if it exists, so that the same users can read both files.
        is_packed: Whether to write a packed base.

    Raises:
        DamagedBaseError: The old base is damaged.
    """
    try:
        with path.open("wb") as file:
            name = _Writer(file, path.name, layout, filed, old, advance, is_packed=is_packed).write()
            if like is not None and like.exists():
                copy_owner(like, path)
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return name


def unmap(rows: NDArray[np.generic]) -> None:
    """Release the memory of a mapped array; otherwise the system counts it as used by this process."""
    mapped = getattr(rows, "_mmap", None)
    if mapped is not None:
        mapped.madvise(mmap.MADV_DONTNEED)


class _Vector:
    """A drawer's vector of leading bits; add values in ascending order. See `base_format.py`."""

    def __init__(self, most: int, row_bytes: int) -> None:
        self._row_bytes, self._shift = row_bytes, np.uint64(8 * row_bytes)
        self._bytes, self._rows = np.zeros(vector_bytes(most, row_bytes), np.uint8), 0

    def add(self, values: Uint64s) -> None:
        """Add at least one permuted value."""
        places = (values >> self._shift).astype(np.int64) + np.arange(self._rows, self._rows + len(values))
        first = int(places[0]) & ~7
        bits = np.zeros(int(places[-1]) + 1 - first, np.uint8)
        bits[places - first] = 1
        packed = np.packbits(bits, bitorder="little")
        self._bytes[first >> 3 : (first >> 3) + len(packed)] |= packed
        self._rows += len(values)

    def packed(self) -> Uint8s:
        """Return the bytes of the vector for the values added so far."""
        return self._bytes[: vector_bytes(self._rows, self._row_bytes)]


class _Writer:
    """Writes one base."""

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        layout: Layout,
        filed: Sequence[FiledRows],
        old: Base | None,
        advance: Callable[[int], None],
        *,
        is_packed: bool,
    ) -> None:
        self.file, self.name, self.layout, self.filed, self.old, self.advance = file, name, layout, filed, old, advance
        permuted = [permuted_of(one, layout.drawers) for one in filed]
        self.permuted = permuted
        most = sum(rows.shape[1] for rows in permuted) + (old.rows if old else 0)
        narrowest = min(drawer.segment_bits for drawer in layout.drawers)
        cell_rows = PACKED_CELL_ROWS if is_packed else CELL_ROWS
        self.cell_bits = min(max(most // cell_rows, 1).bit_length() - 1, narrowest)
        self.row_bytes = FINGERPRINT.itemsize
        if is_packed:
            self.row_bytes = min(PACKED_ROW_BYTES, key=lambda size: most * size + vector_bytes(most, size))
            self.cell_bits = min(self.cell_bits, FINGERPRINT_BITS - 8 * self.row_bytes)
        self.is_packed, self.most = is_packed, most
        self.checksums: list[int] = []
        self.pending = bytearray()  # bytes of the block that is not yet full

    def write(self) -> BaseName:
        """Write the file; return the description of the base for the record."""
        drawers = self.layout.drawers
        self.file.write(bytes(HEADER_BYTES))
        directory = np.zeros((len(drawers), (1 << self.cell_bits) + 1), NUMBER)
        for drawer, starts in zip(drawers, directory, strict=True):
            self._write_drawer(drawer, starts)
            for permuted in self.permuted:
                unmap(permuted)
            if self.old is not None:
                self.old.unmap()
        rows = int(directory[0, -1])
        if (directory[:, -1] != rows).any():
            raise DamagedBaseError(
                f"the drawers of {self.old.path.name if self.old else self.name} have different numbers of rows"
            )
        fences, key_rows = self._write_key_rows()
        if self.pending:
            self.checksums.append(zlib.crc32(self.pending))
            self.file.write(self.pending)
        tail = 0
        for part in (directory.ravel(), fences, np.array(self.checksums, NUMBER)):
            tail = zlib.crc32(part.data, tail)
            self.file.write(part.data)
        sizes = self.cell_bits, tail, self.row_bytes
        header = BaseHeader(self.layout.text_form, len(drawers), rows, key_rows, *sizes).packed()
        self.file.seek(0)
        self.file.write(header)
        self.file.flush()
        return BaseName(self.name, rows, key_rows, zlib.crc32(header))

    def _write_drawer(self, drawer: Drawer, starts: NDArray[np.uint32]) -> None:
        """Write a drawer's rows, and store the start of each cell in `starts`."""
        permuted = [rows[drawer.number - 1] for rows in self.permuted]
        samples = [rows[:: max(1, len(rows) // _SAMPLED)] for rows in permuted]
        if self.old is not None and self.old.rows:
            edges = np.linspace(0, self.old.rows - 1, _SAMPLED).astype(np.int64)
            samples.append(drawer.permute(self.old.sample(drawer, edges)))
        count = sum(map(len, permuted)) + (self.old.rows if self.old else 0)
        sample = np.concatenate([np.empty(0, np.uint64), *samples]) >> _SEGMENT_SHIFT
        shift, counts = np.uint64(64 - self.cell_bits), np.zeros(1 << self.cell_bits, np.int64)
        vector = _Vector(self.most, self.row_bytes) if self.is_packed else None
        for low, high in ranges_of(sample, max(1, -(-count // ROWS_AT_ONCE))):
            parts = [drawer_values(permuted, drawer, low, high)] if permuted else []
            if self.old is not None:
                start, stop = (self.old.place(drawer, edge) for edge in (low, high))
                parts.append(drawer.permute(self.old.part(drawer, start, stop)))
            values = distinct_of([part for part in parts if len(part)] or [np.empty(0, np.uint64)])
            if not len(values):
                continue
            cells = (values >> shift).astype(np.int64) if self.cell_bits else np.zeros(len(values), np.int64)
            counts[cells[0] : cells[-1] + 1] += np.bincount(cells - cells[0])
            if vector is None:
                self._put(drawer.restore(values).astype(FINGERPRINT, copy=False))
            else:
                self._put(values.astype(FINGERPRINT, copy=False).view(np.uint8).reshape(-1, 8)[:, : self.row_bytes])
                vector.add(values)
            self.advance(len(values))
        starts[1:] = np.cumsum(counts)
        if vector is not None:
            self._put(vector.packed())

    def _write_key_rows(self) -> tuple[NDArray[np.uint32], int]:
        """Write the key drawer's rows; return the segment of every `FENCE_ROWS`-th row, and the number of rows."""
        fences, written, old = [np.empty(0, NUMBER)], 0, self.old
        with_keys = [one for one in self.filed if one.key_row_count]
        count = sum(one.key_row_count for one in with_keys) + (old.key_rows if old else 0)
        if not count:
            return fences[0], 0
        samples = [
            one.map("key_rows", KEY_ROW)["segment"][:: max(1, one.key_row_count // _SAMPLED)] for one in with_keys
        ]
        if old is not None:
            samples.append(old.key_sample(max(1, old.key_rows // _SAMPLED)))
        for low, high in ranges_of(np.concatenate(samples).astype(np.uint64), -(-count // ROWS_AT_ONCE)):
            rows = [one.key_rows(low, high) for one in with_keys]
            if old is not None:
                rows.append(old.key_part(old.key_place(low), old.key_place(high)))
            segments, fingerprints = (
                np.concatenate([one[name].astype(np.uint64) for one in rows]) for name in ("segment", "fingerprint")
            )
            segments, fingerprints = distinct_rows(segments, fingerprints)
            keyed = np.empty(len(segments), KEYED)
            keyed["segment"], keyed["fingerprint"] = segments, fingerprints
            fences.append(keyed["segment"][-written % FENCE_ROWS :: FENCE_ROWS].astype(NUMBER))
            self._put(keyed)
            written += len(keyed)
        return np.concatenate(fences), written

    def _put(self, rows: NDArray[np.generic]) -> None:
        """Write rows, and save the checksums of the blocks that become full."""
        data = memoryview(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
        start = 0
        if self.pending:
            start = min(BLOCK_BYTES - len(self.pending), len(data))
            self.pending += data[:start]
            if len(self.pending) < BLOCK_BYTES:
                return
            self.checksums.append(zlib.crc32(self.pending))
            self.file.write(self.pending)
            self.pending.clear()
        stop = start + (len(data) - start) // BLOCK_BYTES * BLOCK_BYTES
        self.checksums += [zlib.crc32(data[at : at + BLOCK_BYTES]) for at in range(start, stop, BLOCK_BYTES)]
        self.file.write(data[start:stop])
        self.pending += data[stop:]
