"""Write sorted rows or cells to an HFile that HBase can load.

A file begins with data blocks. Between them are chunks of the Bloom filter and leaves of the index, each written as
soon as it is full. Next come the root of the index, an empty index of meta blocks, the file info, the filter's
meta block and the trailer. Memory is bounded by `ROWS_AT_ONCE`, a block, a chunk's keys, a leaf, and one entry for each
chunk and leaf.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Bools, Uint8s
from hsimhash.hfile import bloom
from hsimhash.hfile.blocks import (
    BLOOM_CHUNK,
    BLOOM_META,
    FILE_INFO,
    HEADER,
    LEAF_ENTRY_BYTES,
    LEAF_INDEX,
    ROOT_INDEX,
    Entry,
    framed,
    info_body,
    leaf_entries,
    root_entries,
    trailer,
)
from hsimhash.hfile.cells import (
    LENGTHS,
    MAGIC,
    MOST_CONSTANT_BYTES,
    MOST_ROW_BYTES,
    PUT,
    Encoding,
    KeyValue,
    cell_body,
    constant_bodies,
    plain_bytes,
)
from hsimhash.hfile.columns import CellColumns, column_bodies

ROWS_AT_ONCE = 1 << 16
MOST_FAMILY_BYTES = 127
MOST_QUALIFIER_BYTES = 1 << 20  # limit of `append_columns`
LATEST = 2**63 - 1  # HBase's placeholder for a timestamp that the server sets
COMPARATOR = b"org.apache.hadoop.hbase.KeyValue$KVComparator"

_NO_COMPRESSION = 2
_BLOOM_META = Struct(">iqiiqqi")  # version, bytes, hashes, kind of hash, keys, maximum keys, chunks
_LONG, _INT = Struct(">q"), Struct(">i")


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A filter of whole rows (HBase's ROW), or of their first `prefix_bytes` bytes (ROWPREFIX_FIXED_LENGTH)."""

    prefix_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.prefix_bytes is not None and self.prefix_bytes < 1:
            raise ValueError(f"prefix_bytes must be at least 1, or None for whole rows, got {self.prefix_bytes}")


@dataclass(frozen=True, slots=True)
class FileSettings:
    """The settings of a column family that determine how its files are written.

    Args:
        encoding: Encoding of data blocks, "FAST_DIFF" or "NONE".
        bloom: Bloom filter; None: no filter.
        block_bytes: Approximate size of a data block before encoding; HBase's BLOCKSIZE.
        index_bytes: Approximate size of an index leaf. A file with a smaller index does not have leaves.
    """

    encoding: Encoding = "FAST_DIFF"
    bloom: BloomFilter | None = None
    block_bytes: int = 65_536
    index_bytes: int = 131_072

    def __post_init__(self) -> None:
        if self.encoding not in MAGIC:
            raise ValueError(f"unknown encoding {self.encoding!r}; choose one of {', '.join(MAGIC)}")
        if self.block_bytes < 1 or self.index_bytes < 1:
            raise ValueError(
                f"block_bytes and index_bytes must be at least 1, got {self.block_bytes} and {self.index_bytes}"
            )


@dataclass(frozen=True, slots=True)
class Staged:
    """The size of a finished HFile, in cells and bytes."""

    cells: int
    size: int


class HFileWriter:
    """Writes one HFile, which is complete once `finish` has returned. After an error, nothing more can be appended.

    Args:
        file: Buffered binary stream, positioned at its beginning. It is not closed. `hsimhash.files.replace_file`
            returns a stream for a file that is either complete or does not exist.
        family: Column family of all cells, 1 to 127 bytes.
        settings: Settings of this family in the table.
        within: Half-open range of the region's rows; an empty end means the end of the table.
        created_ms: Creation time, in ms since 1970. It is a parameter so that the same input yields the same bytes.
    """

    def __init__(
        self,
        file: BinaryIO,
        family: bytes,
        settings: FileSettings | None = None,
        *,
        within: tuple[bytes, bytes] = (b"", b""),
        created_ms: int = 0,
    ) -> None:
        if not 1 <= len(family) <= MOST_FAMILY_BYTES:
            raise ValueError(f"the family must have 1 to {MOST_FAMILY_BYTES} bytes, got {len(family)}")
        self.family, self.settings = family, settings or FileSettings()
        self.within, self.created_ms = within, created_ms
        self._file = file
        self._bloom = None if self.settings.bloom is None else _Bloom(self.settings.bloom)
        self._index = _Index(self.settings.index_bytes)
        self._previous = dict[bytes, int]()  # offset of the last block of each kind
        self._place = self._cells = self._plain = self._key_bytes = self._value_bytes = 0
        self._first: KeyValue | None = None
        self._last: KeyValue | None = None
        self._stamps = (LATEST, 0)
        self._waiting, self._waiting_bytes = list[KeyValue](), 0  # cells of the block that is not full yet
        self._is_over = False

    def append_rows(self, rows: Uint8s, timestamp: int) -> None:
        """Append rows that have one cell each, with an empty qualifier and value.

        Each call ends a block, so pass many rows at once.

        Args:
            rows: Rows, shape (n, width), uint8, width 1 to 125, strictly ascending.
            timestamp: Timestamp of the cells, in ms since 1970. It orders them relative to the table's writes and
                deletes, and determines when they exceed the table's TTL.

        Raises:
            ValueError: The rows are not in order, or they are outside the region.
            TypeError: `rows` is not an array of uint8.
        """
        if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8:
            raise TypeError(f"rows must be an array of uint8, got {getattr(rows, 'dtype', type(rows).__name__)}")
        if rows.ndim != 2 or not 1 <= rows.shape[1] <= MOST_CONSTANT_BYTES:
            raise ValueError(
                f"rows must have shape (n, 1 to {MOST_CONSTANT_BYTES}), got {rows.shape}; append longer rows with "
                "append_cells"
            )
        with self._appending():
            self._put_waiting()
            for start in range(0, len(rows), ROWS_AT_ONCE):
                self._put_rows(rows[start : start + ROWS_AT_ONCE], timestamp)

    def append_columns(
        self, rows: Uint8s, qualifiers: Sequence[bytes], timestamp: int, values: Uint8s | None = None
    ) -> None:
        """Append puts with one timestamp, strictly ascending by row and qualifier; each call ends a block.

        Args:
            rows: Rows, shape (n, width), uint8.
            qualifiers: n qualifiers of up to 1 MiB each.
            timestamp: Timestamp of all cells, in ms since 1970.
            values: Values, shape (n, size), uint8; empty by default.

        Raises:
            ValueError: See `append_rows`.
        """
        if values is None:
            values = np.empty((len(rows), 0), np.uint8)
        if not len(rows) == len(qualifiers) == len(values):
            raise ValueError(
                f"expected one qualifier and one value per row, got {len(rows)} rows, {len(qualifiers)} qualifiers "
                f"and {len(values)} values"
            )
        if max(map(len, qualifiers), default=0) > MOST_QUALIFIER_BYTES:
            raise ValueError(
                f"a qualifier must have at most {MOST_QUALIFIER_BYTES:,} bytes; append longer ones with append_cells"
            )
        cells = CellColumns(rows, qualifiers, timestamp, values)
        if self.settings.encoding != "FAST_DIFF":
            self.append_cells(map(cells.cell, range(len(rows))))
            return
        with self._appending():
            self._put_waiting()
            for start in range(0, len(rows), ROWS_AT_ONCE):
                part = slice(start, start + ROWS_AT_ONCE)
                self._put_columns(CellColumns(rows[part], qualifiers[part], timestamp, values[part]))

    def append_cells(self, cells: Iterable[KeyValue]) -> None:
        """Append puts, strictly ascending by row and qualifier; raise `ValueError` as `append_rows` does."""
        with self._appending():
            for cell in cells:
                self._take(cell)
                self._last = cell
                self._waiting.append(cell)
                self._waiting_bytes += plain_bytes(cell, self.family)
                if self._waiting_bytes >= self.settings.block_bytes:
                    self._put_waiting()

    def finish(self) -> Staged:
        """Write everything that follows the cells; raise `ValueError` if there are no cells."""
        with self._appending():
            self._put_waiting()
            if self._first is None or self._last is None:
                raise ValueError("an HFile must have at least one cell; do not write an empty file")
            self._put_chunks(np.empty((0, len(self._last.row)), np.uint8), is_last=True)
            if self._index.roots and self._index.leaf:
                self._put_leaf()
            self._put_end(self._last.key(self.family))
            self._is_over = True
            return Staged(self._cells, self._place)

    @contextmanager
    def _appending(self) -> Iterator[None]:
        if self._is_over:
            raise ValueError("this HFile is finished, or an earlier call failed; create a new writer")
        try:
            yield
        except BaseException:
            self._is_over = True
            raise

    def _put_rows(self, rows: Uint8s, timestamp: int) -> None:
        _refuse(rows, _follows(rows) > 0)
        first, last = (KeyValue(rows[place].tobytes(), b"", timestamp, b"") for place in (0, -1))
        self._check(last)
        self._take(first)
        encoding, block_bytes = self.settings.encoding, self.settings.block_bytes
        for place, body, size in constant_bodies(rows, self.family, timestamp, encoding, block_bytes):
            self._put_data(first._replace(row=rows[place].tobytes()), body, size)
        self._put_chunks(rows)
        self._count(len(rows), len(first.key(self.family)) * len(rows), 0)
        self._last = last

    def _put_columns(self, cells: CellColumns) -> None:
        _check_columns(cells)
        first, last = cells.cell(0), cells.cell(len(cells.rows) - 1)
        self._check(last)
        self._take(first)
        key_bytes = 0
        for start, stop, body, size in column_bodies(cells, self.family, self.settings.block_bytes):
            self._put_data(cells.cell(start), body, size)
            key_bytes += size - (LENGTHS.size + cells.values.shape[1]) * (stop - start)
        self._put_chunks(cells.rows)
        self._count(len(cells.rows), key_bytes, cells.values.size)
        self._last = last

    def _put_waiting(self) -> None:
        """Write the buffered cells as a block."""
        if not self._waiting:
            return
        cells, size = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        self._put_data(cells[0], cell_body(cells, self.family, self.settings.encoding), size)
        if self._bloom is not None:
            self._put_chunks(self._bloom.keys_of([cell.row for cell in cells]))
        values = sum(len(cell.value) for cell in cells)
        self._count(len(cells), size - values - LENGTHS.size * len(cells), values)

    def _take(self, cell: KeyValue) -> None:
        """Check a cell's order and validity, and include its timestamp in the file's range."""
        if self._last is not None and (cell.row, cell.qualifier) <= (self._last.row, self._last.qualifier):
            raise ValueError(
                f"cell {_shown(cell)} does not come after {_shown(self._last)}; sort the cells and remove duplicates"
            )
        self._check(cell)
        if self._first is None:
            self._first = cell
        self._stamps = (min(self._stamps[0], cell.timestamp), max(self._stamps[1], cell.timestamp))

    def _check(self, cell: KeyValue) -> None:
        """Raise `ValueError` for a cell that HBase would not accept, or that is outside the region."""
        start, stop = self.within
        if not start <= cell.row or (stop and cell.row >= stop):
            raise ValueError(f"row {cell.row.hex()} is outside the region [{start.hex()}, {stop.hex()})")
        if not 1 <= len(cell.row) <= MOST_ROW_BYTES:
            raise ValueError(f"a row must have 1 to {MOST_ROW_BYTES:,} bytes, got {len(cell.row):,}")
        if not 0 <= cell.timestamp < LATEST:
            raise ValueError(f"cell {_shown(cell)}: timestamp must be in ms since 1970, got {cell.timestamp}")
        if cell.kind != PUT:
            raise ValueError(f"cell {_shown(cell)}: kind must be {PUT} (put), got {cell.kind}")
        if self._bloom is not None:
            self._bloom.check(cell.row)

    def _count(self, cells: int, key_bytes: int, value_bytes: int) -> None:
        self._cells += cells
        self._key_bytes += key_bytes
        self._value_bytes += value_bytes

    def _write(self, data: bytes) -> None:
        if self._file.write(data) != len(data):
            raise OSError("the stream accepted only part of the data; pass a buffered stream")
        self._place += len(data)

    def _put(self, magic: bytes, body: bytes, key: bytes = b"") -> Entry:
        """Write a block; return its index entry, with the given key."""
        data = framed(magic, body, self._previous.get(magic, -1))
        self._previous[magic] = self._place
        entry = Entry(self._place, len(data), key)
        self._write(data)
        self._plain += HEADER.size + len(body)
        return entry

    def _put_data(self, first: KeyValue, body: bytes, size: int) -> None:
        entry = self._put(MAGIC[self.settings.encoding], body, first.key(self.family))
        self._plain += size - len(body)
        if self._index.add(entry):
            self._put_leaf()

    def _put_leaf(self) -> None:
        leaf = self._index.leaf
        self._index.close_leaf(self._put(LEAF_INDEX, leaf_entries(leaf), leaf[0].key))

    def _put_chunks(self, rows: Uint8s, *, is_last: bool = False) -> None:
        """Add rows to the filter; write its full chunks, and with `is_last` also the last chunk."""
        if self._bloom is not None:
            for keys in self._bloom.filled(rows, is_last=is_last):
                bits = bloom.chunk(keys)
                self._bloom.bytes += len(bits)
                self._bloom.chunks.append(self._put(BLOOM_CHUNK, bits, keys[0].tobytes()))

    def _put_end(self, last_key: bytes) -> None:
        """Write everything after the last leaf."""
        entries = self._index.roots or self._index.leaf
        root_body = root_entries(entries)
        last_data = self._previous[MAGIC[self.settings.encoding]]
        root = self._put(ROOT_INDEX, root_body)
        self._put(ROOT_INDEX, b"")  # the index of meta blocks, which the file does not have
        info = self._put(FILE_INFO, info_body(self._info(last_key)))
        if self._bloom is not None:
            self._put(BLOOM_META, self._bloom.meta())
        values: dict[int, int | bytes] = {
            1: info.offset,
            2: root.offset,
            3: self._index.bytes + len(root_body),
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
        self._write(trailer(values))

    def _info(self, last_key: bytes) -> dict[bytes, bytes]:
        """Return the file info, with the fields that HBase requires."""
        created = _LONG.pack(self.created_ms)
        info = {
            b"hfile.LASTKEY": last_key,
            b"hfile.AVG_KEY_LEN": _INT.pack(self._key_bytes // self._cells),
            b"hfile.AVG_VALUE_LEN": _INT.pack(self._value_bytes // self._cells),
            b"hfile.CREATE_TIME_TS": created,
            b"BULKLOAD_TIMESTAMP": created,
            b"BULKLOAD_SOURCE_TASK": b"hsimhash",
            b"MAJOR_COMPACTION_KEY": b"\xff",
            b"EXCLUDE_FROM_MINOR_COMPACTION": b"\0",
            b"EARLIEST_PUT_TS": _LONG.pack(self._stamps[0]),
            b"TIMERANGE": b"".join(map(_LONG.pack, self._stamps)),
            b"DELETE_FAMILY_COUNT": bytes(8),
        }
        if self.settings.encoding != "NONE":
            info[b"DATA_BLOCK_ENCODING"] = self.settings.encoding.encode()
        if self._bloom is not None:
            info |= self._bloom.info()
        return info


class _Index:
    """The index entries of data blocks: in the root if there are few, otherwise in leaves."""

    def __init__(self, leaf_bytes: int) -> None:
        self.leaf_bytes = leaf_bytes
        self.leaf, self.roots = list[Entry](), list[Entry]()
        self.bytes = self._waiting_bytes = 0

    def add(self, entry: Entry) -> bool:
        """Add the entry of a data block; return whether the leaf is full."""
        self.leaf.append(entry)
        self._waiting_bytes += len(entry.key) + LEAF_ENTRY_BYTES
        return self._waiting_bytes >= self.leaf_bytes

    def close_leaf(self, entry: Entry) -> None:
        """Add the entry of a written leaf to the root, and begin a new leaf."""
        self.roots.append(entry)
        self.bytes += len(leaf_entries([])) + self._waiting_bytes
        self.leaf, self._waiting_bytes = [], 0


class _Bloom:
    """The distinct keys of the filter that have not been written yet, and the chunks that have been written."""

    def __init__(self, wanted: BloomFilter) -> None:
        self.wanted = wanted
        self.chunks, self.bytes, self.keys = list[Entry](), 0, 0
        self._waiting, self._waiting_keys = list[Uint8s](), 0
        self._last = b""
        self._width: int | None = None

    def check(self, row: bytes) -> None:
        """Raise `ValueError` for a row whose key does not have the same length as earlier keys."""
        width = len(row[: self.wanted.prefix_bytes])
        if self._width not in (None, width):
            raise ValueError(f"row {row.hex()} has a Bloom key of {width} bytes, but earlier keys have {self._width}")
        self._width = width

    def keys_of(self, rows: list[bytes]) -> Uint8s:
        """Return the keys of checked rows: shape (n, width), uint8."""
        keys = b"".join(row[: self.wanted.prefix_bytes] for row in rows)
        return np.frombuffer(keys, np.uint8).reshape(len(rows), -1)

    def filled(self, rows: Uint8s, *, is_last: bool) -> list[Uint8s]:
        """Add sorted rows; return the keys of each full chunk, and with `is_last` also of the last chunk."""
        keys = rows[:, : self.wanted.prefix_bytes]
        if len(keys):
            is_new = np.append(keys[0].tobytes() != self._last, (keys[1:] != keys[:-1]).any(axis=1))
            self._waiting.append(keys[is_new])
            self._waiting_keys += len(self._waiting[-1])
            self._last = keys[-1].tobytes()
        if self._waiting_keys < bloom.CHUNK_KEYS and not is_last:
            return []
        cuts = range(bloom.CHUNK_KEYS, self._waiting_keys, bloom.CHUNK_KEYS)
        chunks = np.split(np.concatenate(self._waiting), cuts)
        self._waiting = [] if is_last else [chunks.pop()]
        self._waiting_keys = sum(map(len, self._waiting))
        self.keys += sum(map(len, chunks))
        return chunks

    def meta(self) -> bytes:
        """Return the body of the meta block: numbers, an empty comparator, and the entries of the chunks."""
        numbers = (3, self.bytes, bloom.HASHES, 1, self.keys, bloom.CHUNK_KEYS * len(self.chunks), len(self.chunks))
        return _BLOOM_META.pack(*numbers) + b"\0" + root_entries(self.chunks)

    def info(self) -> dict[bytes, bytes]:
        """Return the filter's entries in the file info."""
        if self.wanted.prefix_bytes is None:
            return {b"BLOOM_FILTER_TYPE": b"ROW", b"LAST_BLOOM_KEY": self._last}
        return {
            b"BLOOM_FILTER_TYPE": b"ROWPREFIX_FIXED_LENGTH",
            b"BLOOM_FILTER_PARAM": _INT.pack(self.wanted.prefix_bytes),
            b"LAST_BLOOM_KEY": self._last,
        }


def _check_columns(cells: CellColumns) -> None:
    """Raise `ValueError` unless cells are strictly ascending by row and qualifier."""
    order = _follows(cells.rows)
    for place in np.flatnonzero(order == 0).tolist():
        order[place] = 1 if cells.qualifiers[place + 1] > cells.qualifiers[place] else -1
    _refuse(cells.rows, order > 0)


def _follows(rows: Uint8s) -> NDArray[np.int8]:
    """Compare each row except for the first with the previous row: 1 if it is greater, 0 if it is equal, -1 if less."""
    differs = rows[1:] != rows[:-1]
    first = differs.argmax(axis=1)
    places = np.arange(len(first))
    is_greater = rows[1:][places, first] > rows[:-1][places, first]
    return np.where(differs[places, first], np.where(is_greater, 1, -1), 0).astype(np.int8)


def _refuse(rows: Uint8s, is_behind: Bools) -> None:
    if not is_behind.all():
        place = int(np.flatnonzero(~is_behind)[0])
        one, other = (rows[at].tobytes().hex() for at in (place, place + 1))
        raise ValueError(f"row {other} does not come after {one}; sort the rows and remove duplicates")


def _shown(cell: KeyValue) -> str:
    return f"{cell.row[:80].hex()} {cell.qualifier[:80]!r}"
