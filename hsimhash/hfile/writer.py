"""An HFile from sorted rows or cells, that HBase loads as its own: `HFileWriter`, on any binary stream.

What stands in the file, in order: data blocks, between them chunks of the Bloom filter and leaves of the index as soon
as each is full; the root of the index, the empty one of meta blocks, the file info, the filter's meta block, the
trailer. Memory is bounded by a block, a chunk's keys and a leaf.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import BinaryIO, Literal

import numpy as np

from hsimhash.fingerprint.bits import Uint8s
from hsimhash.hfile import bloom
from hsimhash.hfile.blocks import (
    BLOOM_CHUNK,
    BLOOM_META,
    FILE_INFO,
    HEADER,
    LEAF_INDEX,
    ROOT_INDEX,
    Entry,
    framed,
    info_body,
    leaf_entries,
    root_entries,
    trailer,
)
from hsimhash.hfile.cells import MAGIC, MOST_ROW_BYTES, PUT, Encoding, KeyValue, cell_body, constant_bodies, plain_bytes

BloomKind = Literal["NONE", "ROW", "ROWPREFIX_FIXED_LENGTH"]
BLOCK_BYTES = 65_536  # of a data block, without its encoding: HBase's default
INDEX_BYTES = 131_072  # of a leaf of the index
COMPARATOR = b"org.apache.hadoop.hbase.KeyValue$KVComparator"
_NO_COMPRESSION = 2
_BLOOM_META = Struct(">iqiiqqi")  # version, bytes, hashes, kind of hash, keys, most keys, chunks
_LONG, _INT = Struct(">q"), Struct(">i")


@dataclass(frozen=True, slots=True)
class Written:
    """What an HFile has."""

    cells: int
    first_row: bytes
    last_row: bytes
    size: int  # in bytes


class HFileWriter:
    """Writes one HFile to a stream; it is whole once `finish` has returned.

    Args:
        file: a binary stream; `hsimhash.files.replace_file` gives one that is whole or not there.
        family: the column family of all cells.
        timestamp: of the cells of `append_rows`, in ms since 1970.
        encoding: "FAST_DIFF" or "NONE".
        bloom_kind: "ROW", "ROWPREFIX_FIXED_LENGTH", or "NONE".
        prefix_bytes: of a row, for "ROWPREFIX_FIXED_LENGTH".
        block_bytes: of a data block without its encoding.
        start: the first row that the region may have.
        stop: the row before which it ends; empty: the table's end.
        index_bytes: of a leaf of the index; in a file with fewer there are no leaves.
    """

    def __init__(
        self,
        file: BinaryIO,
        family: bytes,
        *,
        timestamp: int = 0,
        encoding: Encoding = "FAST_DIFF",
        bloom_kind: BloomKind = "NONE",
        prefix_bytes: int = 5,
        block_bytes: int = BLOCK_BYTES,
        start: bytes = b"",
        stop: bytes = b"",
        index_bytes: int = INDEX_BYTES,
    ) -> None:
        self.family, self.timestamp, self.encoding = family, timestamp, encoding
        self.region = (start, stop)
        self.block_bytes = block_bytes
        self._file = file
        self._bloom = None if bloom_kind == "NONE" else _Bloom(bloom_kind, prefix_bytes)
        self._index = _Index(index_bytes)
        self._previous = dict[bytes, int]()  # by kind of block, the offset of the last one
        self._place = self._cells = self._plain = self._key_bytes = self._value_bytes = 0
        self._first: KeyValue | None = None
        self._last: KeyValue | None = None
        self._stamps = (2**63 - 1, 0)

    def append_rows(self, rows: Uint8s) -> None:
        """Append rows of shape (n, width), uint8, each a cell without qualifier and value.

        Raises:
            ValueError: rows are not in order, or twice there, or outside the region.
        """
        if not len(rows):
            return
        _check_rows(rows)
        cells = [KeyValue(rows[place].tobytes(), b"", self.timestamp, b"") for place in (0, -1)]
        self._take(cells[0])
        self._check_region(cells[1])
        for place, body, size in constant_bodies(rows, self.family, self.timestamp, self.encoding, self.block_bytes):
            first = cells[0]._replace(row=rows[place].tobytes())
            self._put_data(first, body, size)
        self._put_chunks(rows)
        self._count(len(rows), len(cells[0].key(self.family)) * len(rows), 0)
        self._last = cells[1]

    def append_cells(self, cells: Iterable[KeyValue]) -> None:
        """Append cells in order of row and qualifier; raises what `append_rows` does."""
        block, size = list[KeyValue](), 0
        for cell in cells:
            self._take(cell)
            self._last = cell
            block.append(cell)
            size += plain_bytes(cell, self.family)
            if size >= self.block_bytes:
                self._put_cells(block, size)
                block, size = [], 0
        if block:
            self._put_cells(block, size)

    def finish(self) -> Written:
        """Write what stands behind the cells; `ValueError` if there are none."""
        if self._first is None or self._last is None:
            raise ValueError("an HFile without cells; leave it out")
        self._put_chunks(np.empty((0, len(self._last.row)), np.uint8), is_last=True)
        if self._index.roots and self._index.leaf:
            self._put_leaf()
        entries, last = self._index.roots or self._index.leaf, self._last.key(self.family)
        last_data = self._previous[MAGIC[self.encoding]]
        root = self._put(ROOT_INDEX, root_entries(entries))
        self._put(ROOT_INDEX, b"")  # of meta blocks, of which there are none
        info = self._put(FILE_INFO, info_body(self._info(last)))
        if self._bloom is not None:
            self._put(BLOOM_META, self._bloom.meta())
        values: dict[int, int | bytes] = {
            1: info.offset,
            2: root.offset,
            3: self._index.bytes or len(root_entries(entries)),
            4: self._plain,
            5: len(entries),
            6: 0,
            7: self._cells,
            8: 2 if self._index.roots else 1,
            9: 0,
            10: last_data,
            11: COMPARATOR,
            12: _NO_COMPRESSION,
        }
        end = trailer(values)
        self._file.write(end)
        return Written(self._cells, self._first.row, self._last.row, self._place + len(end))

    def _put_cells(self, cells: list[KeyValue], size: int) -> None:
        self._put_data(cells[0], cell_body(cells, self.family, self.encoding), size)
        if self._bloom is not None:
            self._put_chunks(_matrix([cell.row for cell in cells]))
        values = sum(len(cell.value) for cell in cells)
        self._count(len(cells), size - values - 8 * len(cells), values)

    def _take(self, cell: KeyValue) -> None:
        """Check a cell against the one before and the region."""
        if self._last is not None and (cell.row, cell.qualifier) <= (self._last.row, self._last.qualifier):
            raise ValueError(f"cell {_shown(cell)} does not lie behind {_shown(self._last)}; sort the cells, each once")
        self._check_region(cell)
        if self._first is None:
            self._first = cell
        self._stamps = (min(self._stamps[0], cell.timestamp), max(self._stamps[1], cell.timestamp))

    def _check_region(self, cell: KeyValue) -> None:
        start, stop = self.region
        if not start <= cell.row or (stop and cell.row >= stop):
            raise ValueError(f"row {cell.row.hex()} is not within the region [{start.hex()}, {stop.hex()})")
        if len(cell.row) > MOST_ROW_BYTES or cell.kind != PUT:
            raise ValueError(f"cell {_shown(cell)} has {len(cell.row)} bytes of row and kind {cell.kind}")

    def _count(self, cells: int, key_bytes: int, value_bytes: int) -> None:
        self._cells += cells
        self._key_bytes += key_bytes
        self._value_bytes += value_bytes

    def _put(self, magic: bytes, body: bytes) -> Entry:
        """Write a block; return its offset and its bytes."""
        data = framed(magic, body, self._previous.get(magic, -1))
        self._previous[magic] = self._place
        entry = Entry(self._place, len(data), b"")
        self._file.write(data)
        self._place += len(data)
        self._plain += HEADER.size + len(body)
        return entry

    def _put_data(self, first: KeyValue, body: bytes, size: int) -> None:
        entry = self._put(MAGIC[self.encoding], body)
        self._plain += size - len(body)
        if self._index.add(entry._replace(key=first.key(self.family))):
            self._put_leaf()

    def _put_leaf(self) -> None:
        leaf = self._index.leaf
        entry = self._put(LEAF_INDEX, leaf_entries(leaf))
        self._index.close_leaf(entry._replace(key=leaf[0].key))

    def _put_chunks(self, rows: Uint8s, *, is_last: bool = False) -> None:
        """Take rows for the filter; write the chunks that are full, or if these are the last rows all."""
        if self._bloom is None:
            return
        for keys in self._bloom.filled(rows, is_last=is_last):
            body = bloom.chunk(keys)
            self._bloom.chunks.append(self._put(BLOOM_CHUNK, body)._replace(key=keys[0].tobytes()))
            self._bloom.bytes += len(body)

    def _info(self, last_key: bytes) -> dict[bytes, bytes]:
        """Return what HBase wants to know of the file."""
        now = _LONG.pack(time.time_ns() // 1_000_000)
        info = {
            b"hfile.LASTKEY": last_key,
            b"hfile.AVG_KEY_LEN": _INT.pack(self._key_bytes // self._cells),
            b"hfile.AVG_VALUE_LEN": _INT.pack(self._value_bytes // self._cells),
            b"hfile.CREATE_TIME_TS": now,
            b"BULKLOAD_TIMESTAMP": now,
            b"BULKLOAD_SOURCE_TASK": b"hsimhash",
            b"MAJOR_COMPACTION_KEY": b"\xff",
            b"EXCLUDE_FROM_MINOR_COMPACTION": b"\0",
            b"EARLIEST_PUT_TS": _LONG.pack(self._stamps[0]),
            b"TIMERANGE": b"".join(map(_LONG.pack, self._stamps)),
            b"DELETE_FAMILY_COUNT": bytes(8),
        }
        if self.encoding != "NONE":
            info[b"DATA_BLOCK_ENCODING"] = self.encoding.encode()
        if self._bloom is not None:
            info |= self._bloom.info()
        return info


class _Index:
    """The entries of data blocks: in the root while they are few, else in leaves."""

    def __init__(self, leaf_bytes: int) -> None:
        self.most_bytes = leaf_bytes
        self.leaf, self.roots = list[Entry](), list[Entry]()
        self.bytes = self._leaf_bytes = 0

    def add(self, entry: Entry) -> bool:
        """Take the entry of a data block; return whether the leaf is full."""
        self.leaf.append(entry)
        self._leaf_bytes += len(entry.key) + 16
        return self._leaf_bytes >= self.most_bytes

    def close_leaf(self, entry: Entry) -> None:
        """Take the entry of the leaf that was written."""
        self.roots.append(entry)
        self.bytes += entry.size
        self.leaf, self._leaf_bytes = [], 0


class _Bloom:
    """The distinct keys of the filter, and the chunks that were written."""

    def __init__(self, kind: BloomKind, prefix_bytes: int) -> None:
        self.kind, self.prefix_bytes = kind, prefix_bytes
        self.chunks, self.bytes, self.keys = list[Entry](), 0, 0
        self._waiting = list[Uint8s]()
        self._last = b""

    def filled(self, rows: Uint8s, *, is_last: bool) -> list[Uint8s]:
        """Take rows in order; return the keys of each chunk that is full, and of the last one."""
        keys = rows if self.kind == "ROW" else rows[:, : self.prefix_bytes]
        if len(keys):
            is_new = np.append(keys[0].tobytes() != self._last, (keys[1:] != keys[:-1]).any(axis=1))
            self._waiting.append(keys[is_new])
            self._last = keys[-1].tobytes()
        count = sum(map(len, self._waiting))
        if count < bloom.CHUNK_KEYS and not is_last:
            return []
        chunks = np.split(np.concatenate(self._waiting), range(bloom.CHUNK_KEYS, count, bloom.CHUNK_KEYS))
        self._waiting = [] if is_last else [chunks.pop()]
        self.keys += sum(map(len, chunks))
        return chunks

    def meta(self) -> bytes:
        """Return the body of the meta block: numbers, no comparator, the chunks."""
        numbers = (3, self.bytes, bloom.HASHES, 1, self.keys, bloom.CHUNK_KEYS * len(self.chunks), len(self.chunks))
        return _BLOOM_META.pack(*numbers) + b"\0" + root_entries(self.chunks)

    def info(self) -> dict[bytes, bytes]:
        """Return what the file info says of the filter."""
        info = {b"BLOOM_FILTER_TYPE": self.kind.encode(), b"LAST_BLOOM_KEY": self._last}
        if self.kind == "ROWPREFIX_FIXED_LENGTH":
            info[b"BLOOM_FILTER_PARAM"] = _INT.pack(self.prefix_bytes)
        return info


def _check_rows(rows: Uint8s) -> None:
    """Raise `ValueError` unless rows ascend strictly."""
    differs = rows[1:] != rows[:-1]
    first = differs.argmax(axis=1)
    places = np.arange(len(first))
    is_behind = differs[places, first] & (rows[1:][places, first] > rows[:-1][places, first])
    if not is_behind.all():
        place = int(np.flatnonzero(~is_behind)[0])
        one, other = (rows[at].tobytes().hex() for at in (place, place + 1))
        raise ValueError(f"row {other} does not lie behind {one}; sort the rows, each once")


def _matrix(rows: list[bytes]) -> Uint8s:
    if len({len(row) for row in rows}) > 1:
        raise ValueError("rows of several lengths, with a Bloom filter; write them to files of their own")
    return np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)


def _shown(cell: KeyValue) -> str:
    return f"{cell.row.hex()} {cell.qualifier[:80]!r}"
