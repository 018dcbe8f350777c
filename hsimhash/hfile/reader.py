"""An HFile read from its first cell to its last, checksums compared: `HFile`. For files of ours and of HBase."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TypeVar

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
    corrupt,
    read_info,
    read_leaf_entries,
    read_root_entries,
    read_trailer,
)
from hsimhash.hfile.cells import KeyValue, cells_of

_UNREADABLE = (ValueError, IndexError, struct.error)
T = TypeVar("T")
_WITH_MVCC = (1).to_bytes(4, "big")


class HFile(AbstractContextManager["HFile"]):
    """A file of HBase, version 3, without compression, with the data encoding NONE or FAST_DIFF.

    Attributes:
        count: of cells, as the trailer says.
        info: the file info.

    Raises:
        CorruptionError: it is damaged, or no such file; at opening or while it is read, never wrong cells.
    """

    def __init__(self, path: Path) -> None:
        self.name, self._file = str(path), path.open("rb")
        try:
            self._read_beginning(path.stat().st_size)
        except BaseException:
            self.close()
            raise

    def _read_beginning(self, size: int) -> None:
        fields = read_trailer(self._file, size, self.name)
        self._end = end = size - TRAILER_BYTES
        numbers = [value for number in (1, 2, 5, 7, 8, 12) if isinstance(value := fields.get(number), int)]
        if len(numbers) < 6:
            raise corrupt(self.name, end, "the trailer lacks numbers")
        info_at, root_at, roots, self.count, levels, compression = numbers
        if compression != 2:
            raise corrupt(self.name, end, f"compression {compression}; only files without any are read")
        info = self._block(info_at, FILE_INFO)
        root = self._block(root_at, ROOT_INDEX)
        self.info = _made(lambda: read_info(info.body), self.name, info)
        self.entries = _made(lambda: read_root_entries(root.body, 0, roots), self.name, root)
        for _ in range(levels - 1):
            self.entries = [entry for one in self.entries for entry in self._leaf(one)]

    def _leaf(self, entry: Entry) -> list[Entry]:
        block = self._block(entry.offset, LEAF_INDEX, INNER_INDEX)
        return _made(lambda: read_leaf_entries(block.body), self.name, block)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def cells(self) -> Iterator[KeyValue]:
        """Yield all cells in order."""
        found, family, last = 0, None, None
        for entry in self.entries:
            for cell, its_family in self._cells_at(entry):
                found += 1
                here = (cell.row, cell.qualifier, -cell.timestamp)
                if family not in (None, its_family) or (last is not None and here < last):
                    raise corrupt(self.name, entry.offset, f"cell {cell.row.hex()} is out of order")
                family, last = its_family, here
                yield cell
        if found != self.count:
            raise corrupt(self.name, self._end, f"{found:,} cells, not {self.count:,}")

    def verify(self) -> None:
        """Compare the checksums of all blocks, those of the index and of the Bloom filter too, and read all cells."""
        offset = 0
        while offset < self._end:
            offset += block_at(self._file, offset, self._end, self.name).size
        for _ in self.cells():
            pass

    def _cells_at(self, entry: Entry) -> list[tuple[KeyValue, bytes]]:
        """Return the cells of a data block, each with its family."""
        block = self._block(entry.offset, PLAIN_DATA, ENCODED_DATA)
        has_mvcc = self.info.get(b"KEY_VALUE_VERSION") == _WITH_MVCC
        has_tags = b"hfile.MAX_TAGS_LEN" in self.info

        def make() -> list[tuple[KeyValue, bytes]]:
            cells = list(cells_of(block.magic, block.body, has_tags=has_tags, has_mvcc=has_mvcc))
            first, _ = KeyValue.of_key(entry.key, b"")
            if not cells or cells[0][0].row < first.row:  # HBase shortens keys to what tells two blocks apart
                raise ValueError("its cells lie before what the index says of it")
            return cells

        return _made(make, self.name, block)

    def _block(self, offset: int, *magics: bytes) -> FileBlock:
        block = block_at(self._file, offset, self._end, self.name)
        if block.magic not in magics:
            raise corrupt(self.name, offset, f"a block {block.magic!r} instead of {b' or '.join(magics)!r}")
        return block


def _made(make: Callable[[], T], name: str, block: FileBlock) -> T:
    """Return what is made of a block; `CorruptionError` where that fails."""
    try:
        return make()
    except _UNREADABLE as error:
        raise corrupt(name, block.offset, f"block {block.magic!r} cannot be read: {error}") from error
