"""Blocks of a mapped file. Each block has a checksum, which is verified when the block is first read."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Int64s, spans
from hsimhash.store.base_files.base_format import BLOCK_BYTES, HEADER_BYTES, DamagedBaseError


class CheckedBlocks:
    """The blocks between a file's header and its tail; thread-safe. Reads of damaged blocks raise `DamagedBaseError`.

    Attributes:
        are_whole: One byte per block: whether the block and the next one are known to be intact.

    Args:
        name: Name of the file, for messages.
        content: Content of the blocks.
        checksums: CRC-32 of each block.
    """

    def __init__(self, name: str, content: memoryview, checksums: NDArray[np.uint32]) -> None:
        self.name, self.content, self.count = name, content, len(checksums)
        self._checksums = checksums
        self._is_whole = bytearray(self.count + 1)  # the end after the last block is treated as intact
        self._is_whole[-1] = 1
        self.are_whole = bytearray(self.count + 1)
        self._is_read = np.frombuffer(self.are_whole, np.uint8)

    def verify(self, blocks: Int64s) -> None:
        """Verify the checksums of the given blocks, and of the block after each, unless they were already verified."""
        for block in set(blocks[self._is_read[blocks] == 0].tolist()):
            for one in (block, block + 1):
                if not self._is_whole[one]:
                    if not self._has_checksum(one):
                        raise self._damage(HEADER_BYTES + one * BLOCK_BYTES)
                    self._is_whole[one] = 1
            self.are_whole[block] = 1

    def verify_bytes(self, start: int, stop: int) -> None:
        """Verify the blocks that contain the bytes [start, stop)."""
        if start < stop and not (stop - start <= BLOCK_BYTES and self.are_whole[start // BLOCK_BYTES]):
            self.verify(np.arange(start // BLOCK_BYTES, (stop - 1) // BLOCK_BYTES + 1))

    def verify_spans(self, starts: Int64s, lengths: Int64s) -> None:
        """Run `verify_bytes` for many ranges of bytes."""
        is_some = lengths > 0
        first = starts[is_some] // BLOCK_BYTES
        last = (starts[is_some] + lengths[is_some] - 1) // BLOCK_BYTES
        self.verify(spans(first, last - first + 1))

    def _has_checksum(self, block: int) -> bool:
        part = self.content[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
        return bool(zlib.crc32(part) == self._checksums[block])

    def verify_all(self) -> None:
        """Read all blocks again; raise `DamagedBaseError` if one is damaged."""
        for at in self.damaged():
            raise self._damage(at)

    def _damage(self, at: int) -> DamagedBaseError:
        return DamagedBaseError(f"{self.name} is damaged at byte {at:,}")

    def damaged(self) -> Iterator[int]:
        """Read all blocks again; yield the file offset of each damaged block."""
        for block in range(self.count):
            if not self._has_checksum(block):
                yield HEADER_BYTES + block * BLOCK_BYTES
