"""An HFile read from its first cell to its last, checksums compared: `HFile`. For files of ours and of HBase."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, TypeVar

from hsimhash.hfile.blocks import (
    ENCODED_DATA,
    FILE_INFO,
    INNER_INDEX,
    LEAF_INDEX,
    PLAIN_DATA,
    ROOT_INDEX,
    TRAILER_BYTES,
    Entry,
    FileBlock,
    block_at,
    damage_at,
    foreign_at,
    read_info,
    read_leaf_entries,
    read_root_entries,
    read_trailer,
)
from hsimhash.hfile.cells import ForeignError, KeyValue, cells_of

MOST_LEVELS = 8  # of the index; HBase needs three for a terabyte

T = TypeVar("T")
_NO_COMPRESSION = 2
_WITH_MVCC = (1).to_bytes(4, "big")
_UNREADABLE = (ValueError, IndexError, struct.error)


class HFile(AbstractContextManager["HFile"]):
    """A file of HBase, version 3, without compression and tags, with the data encoding NONE or FAST_DIFF.

    Args:
        path: where it is; for messages only, where a stream is given.
        stream: to its bytes, closed with it.

    Attributes:
        name: its path.
        size: in bytes.
        count: of cells, as the trailer says.
        info: the file info, names and values as HBase wrote them.

    Raises:
        CorruptionError: it is damaged, or of another kind; at opening, or while it is read.
        ImportError: HBase wrote it, and the library for its checksums is missing: `pip install 'hsimhash[hfile]'`.
    """

    def __init__(self, path: Path | str, stream: BinaryIO | None = None) -> None:
        self.name = str(path)
        self._file = Path(path).open("rb") if stream is None else stream  # noqa: SIM115  (closed with this)
        try:
            self.size = self._file.seek(0, os.SEEK_END)
            self._read_beginning(self.size)
        except BaseException:
            self.close()
            raise

    def _read_beginning(self, size: int) -> None:
        fields = read_trailer(self._file, size, self.name)
        self._end = end = size - TRAILER_BYTES
        numbers = [value for number in (1, 2, 5, 7, 8, 10, 12) if isinstance(value := fields.get(number), int)]
        if len(numbers) < 7:
            raise damage_at(self.name, end, "the trailer lacks numbers")
        info_at, root_at, roots, self.count, levels, last_data, compression = numbers
        if compression != _NO_COMPRESSION:
            raise foreign_at(self.name, end, f"compression {compression}")
        if not 1 <= levels <= MOST_LEVELS:
            raise damage_at(self.name, end, f"an index of {levels} levels")
        info, root = self._block(info_at, FILE_INFO), self._block(root_at, ROOT_INDEX)
        self.info = self._made(info, lambda: read_info(info.body))
        self._entries = self._made(root, lambda: read_root_entries(root.body, roots))
        for _ in range(levels - 1):
            self._verify_order()
            self._entries = [entry for one in self._entries for entry in self._leaf(one)]
        self._verify_order()
        if self._entries and self._entries[-1].offset != last_data:
            raise damage_at(self.name, end, "the index does not end with the last data block")

    def _verify_order(self) -> None:
        """Raise `CorruptionError` unless the blocks lie one behind the other: so a file cannot name too many."""
        for entry, following in pairwise(self._entries):
            if following.offset < entry.offset + entry.size:
                raise damage_at(self.name, following.offset, "the index is out of order")

    def _leaf(self, entry: Entry) -> list[Entry]:
        block = self._block(entry.offset, LEAF_INDEX, INNER_INDEX, size=entry.size)
        return self._made(block, lambda: read_leaf_entries(block.body))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def cells(self) -> Iterator[KeyValue]:
        """Yield all cells in order; only after the last one it is known that none is missing."""
        found, family, last, last_cell = 0, b"", None, None
        for entry in self._entries:
            for cell, its_family in self._cells_at(entry):
                found += 1
                here = (cell.row, cell.qualifier, -cell.timestamp)
                if found > 1 and family != its_family:
                    raise damage_at(self.name, entry.offset, f"a cell of family {its_family!r} among {family!r}")
                if last is not None and here < last:
                    raise damage_at(self.name, entry.offset, f"cell {cell.row.hex()} is out of order")
                family, last, last_cell = its_family, here, cell
                yield cell
        last_key = b"" if last_cell is None else last_cell.key(family)
        if found != self.count or last_key != self.info.get(b"hfile.LASTKEY", b""):
            raise damage_at(self.name, self._end, f"{found:,} cells instead of {self.count:,}, or another last one")

    def verify(self) -> None:
        """Read all blocks, those of the index and of the Bloom filter too, and all cells.

        Raises:
            CorruptionError: something is damaged, or a data block is not in the index.
        """
        offset, data = 0, list[int]()
        while offset < self._end:
            block = block_at(self._file, offset, self._end, self.name)
            if block.magic in (PLAIN_DATA, ENCODED_DATA):
                data.append(offset)
            offset += block.size
        if data != [entry.offset for entry in self._entries]:
            raise damage_at(self.name, self._end, "the index names other data blocks than there are")
        for _ in self.cells():
            pass

    def _cells_at(self, entry: Entry) -> list[tuple[KeyValue, bytes]]:
        """Return the cells of a data block, each with its family."""
        block = self._block(entry.offset, PLAIN_DATA, ENCODED_DATA, size=entry.size)
        has_mvcc = self.info.get(b"KEY_VALUE_VERSION") == _WITH_MVCC
        has_tags = b"hfile.MAX_TAGS_LEN" in self.info

        def make() -> list[tuple[KeyValue, bytes]]:
            cells = list(cells_of(block.magic, block.body, has_tags=has_tags, has_mvcc=has_mvcc))
            first, _ = KeyValue.of_key(entry.key, b"")
            if not cells or cells[0][0].row < first.row:  # HBase shortens keys to what tells two blocks apart
                raise ValueError("its cells lie before what the index says of it")
            return cells

        return self._made(block, make)

    def _block(self, offset: int, *magics: bytes, size: int | None = None) -> FileBlock:
        block = block_at(self._file, offset, self._end, self.name)
        if block.magic not in magics:
            raise damage_at(self.name, offset, f"a block {block.magic!r} instead of {b' or '.join(magics)!r}")
        if size not in (None, block.size):
            raise damage_at(self.name, offset, f"a block of {block.size:,} bytes instead of {size:,}")
        return block

    def _made(self, block: FileBlock, make: Callable[[], T]) -> T:
        """Return what is made of a block; `CorruptionError` where that fails."""
        try:
            return make()
        except ForeignError as error:
            raise foreign_at(self.name, block.offset, str(error)) from error
        except _UNREADABLE as error:
            raise damage_at(self.name, block.offset, f"block {block.magic!r} cannot be read: {error}") from error
