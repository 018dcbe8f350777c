"""Read the lines of a CSV file, with as much lookahead as a row may need."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial

from hsimhash.inputs.lines import (
    BLOCK_BYTES,
    RECORD_LIMIT_BYTES,
    Block,
    DamagedInputError,
    InputFile,
    Place,
    blocks_of,
)

QUOTE = b'"'
ROW_LIMIT_BYTES = 2 * RECORD_LIMIT_BYTES  # limit for multi-line rows; fits a maximum-size field of doubled quotes


class CsvLines:
    """The lines of a file, starting at any position; `lines[at]` is the current line.

    Only one block at a time is split into lines, because a million short lines take ten times as much memory once
    they are Python objects. Blocks that are read ahead stay whole.
    """

    def __init__(self, file: InputFile, start: Place) -> None:
        self._blocks = blocks_of(partial(file.read, BLOCK_BYTES), start, file.tell)
        self._ahead: deque[Block] = deque()
        self._end = start  # position after the split block
        self.offset = start.offset  # offset of the current line; counts a newline even if the last line lacks one
        self._line = start.line  # number of lines before the current one
        self._damage: DamagedInputError | None = None
        self._has_long = False  # whether a line in the split block may exceed the limit
        self.lines: list[bytes] = []
        self.at = 0

    @property
    def place(self) -> Place:
        """The position before the current line."""
        return Place(min(self.offset, self._end.offset), self._line, self._end.read_bytes)

    @property
    def number(self) -> int:
        """The number of the current line, from 1."""
        return self._line + 1

    def has_line(self) -> bool:
        """Whether there is a current line; reads the next block if needed.

        Raises:
            DamagedInputError: The file is damaged here.
        """
        while self.at >= len(self.lines):
            block = self._block(0)
            if block is None:
                self.lines, self.at = [], 0
                if self._damage:
                    raise self._damage
                return False
            self._ahead.popleft()
            # The block does not include the byte order mark of the first line, or the middle of a line that exceeds the
            # limit.
            left_out = block.end.offset - self._end.offset - len(block.data)
            self.offset = self._end.offset + max(0, left_out)
            self._end, self.lines, self.at = block.end, block.lines(), 0
            self._has_long = len(block.data) > RECORD_LIMIT_BYTES
        return True

    def advance(self, count: int, size: int) -> None:
        """Advance by `count` lines, which have `size` bytes including their newlines."""
        self._line += count
        while self.at + count > len(self.lines):
            count -= len(self.lines) - self.at
            self.at = len(self.lines)
            self.has_line()
            size = sum(map(len, self.lines[:count])) + count
        self.offset += size
        self.at += count

    def skip(self, count: int) -> None:
        """Advance by `count` lines."""
        self.advance(count, sum(map(len, self.lines[self.at : self.at + count])) + count)

    def line_ahead(self, count: int) -> bytes | None:
        """Return the line `count` lines ahead, or None if the file ends before it."""
        at = self.at + count
        return self.lines[at] if at < len(self.lines) else next(self.ahead(count), None)

    def ahead(self, first: int) -> Iterator[bytes]:
        """Yield lines, starting `first` lines ahead, up to the end of the file or to damage."""
        lines = self.lines
        yield from map(lines.__getitem__, range(self.at + first, len(lines)))
        first = max(0, first - (len(self.lines) - self.at))
        number = 0
        while (block := self._block(number)) is not None:
            number += 1
            if first and (held := block.data.count(b"\n")) <= first:
                first -= held
                continue
            lines, skipped, first = block.lines(), first, 0
            for at in range(skipped, len(lines)):
                yield lines[at]

    def stretch(self, first: int = 0) -> tuple[bytes, int] | None:
        """Return the lines from a line with an odd number of quotes through the next such line, and their number.

        Returns None if the file ends before that line, or if a single line or all of them together exceed the limit.

        Args:
            first: How many lines ahead of the current line to start.
        """
        lines, begin = self.lines, self.at + first
        for at in range(begin + 1, 0 if self._has_long else len(lines)):
            if QUOTE in lines[at] and lines[at].count(QUOTE) % 2:
                return b"\n".join(lines[begin : at + 1]), at + 1 - begin
        return self._long_stretch(first)

    def _long_stretch(self, first: int) -> tuple[bytes, int] | None:
        lines = self.ahead(first)
        row = bytearray(next(lines))
        for count, line in enumerate(lines, start=2):
            row += b"\n"
            row += line
            if len(line) > RECORD_LIMIT_BYTES or len(row) > ROW_LIMIT_BYTES:
                return None
            if line.count(QUOTE) % 2:
                return bytes(row), count
        return None

    def _block(self, number: int) -> Block | None:
        """Return the block with index `number` after the split block; None if it does not exist or is damaged."""
        while len(self._ahead) <= number and self._damage is None:
            try:
                block = next(self._blocks, None)
            except DamagedInputError as error:
                self._damage = error
                return None
            if block is None:
                return None
            self._ahead.append(block)
        return self._ahead[number] if number < len(self._ahead) else None
