"""Turn JSON arrays, and objects that span several lines, into blocks with one value per line.

This module only finds where each value ends; `records.py` parses the values. It reads every byte once. A JSON string
cannot contain a line feed, so a string that reaches a line feed is damaged: the value ends there, and the next line
starts a new value. Directly within an object, `{` can only follow a colon. If it begins a line without following a
colon, a bracket is missing before it, and the value also ends there. Other unbalanced brackets are found at the end of
the array at the latest.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

from hsimhash.inputs.lines import RECORD_LIMIT_BYTES, Block, InputFile, Place, blocks_of

Framing = Literal["lines", "array", "objects"]
_SPACE = b" \t\r\n"
_BETWEEN = _SPACE + b","  # commas also separate objects if an array lacks its brackets
_STRING = re.compile(rb"(?:[^\"\\\n]++|\\[^\n])*+")  # inside a string, up to its end or the end of the line
_BLANK = re.compile(rb"[ \t\r\n,]*+")
# The patterns skip complete strings and, within a value, arrays and objects that do not contain others.
_PLAIN = re.compile(rb"(?:[^\"\[\]{},]++|\"" + _STRING.pattern + rb"\")*+")
_LEAF = rb"(?:[^\"\[\]{}]++|\"" + _STRING.pattern + rb"\")*+"
_NESTED = re.compile(rb"(?:[^\"\[\]{}]++|\"" + _STRING.pattern + rb"\"|\[" + _LEAF + rb"\]|\{" + _LEAF + rb"\})*+")
# Directly within an object, an object is skipped only if it follows a colon.
_IN_OBJECT = re.compile(
    rb"(?:[^\"\[\]{}:]++|\"" + _STRING.pattern + rb"\"|\[" + _LEAF + rb"\]|:[ \t\r\n]*+(?:\{" + _LEAF + rb"\})?+)*+"
)
_OPENING, _ENDS = re.compile(rb"\[++"), re.compile(rb"[\]}]++")
_QUOTE, _CLOSING, _SQUARE, _BRACE, _COLON = b'"][{:'


def framing_of(head: bytes) -> Framing:
    """Detect how the values of a JSON input are separated, from its first bytes.

    An input that starts with `[` is an array, unless that is only a bad first line: an object follows on the next line,
    without a comma or bracket between them. Objects span several lines if the first object is complete and valid, and
    contains a line feed or is followed by a comma or another object on its last line. An object whose end is not in
    `head` spans several lines if its second line begins with a string, because no line in JSON lines does. Everything
    else is JSON lines, including damaged files.
    """
    text = head.removeprefix(codecs.BOM_UTF8).lstrip(_SPACE)
    if text.startswith(b"["):
        line, _, rest = text.partition(b"\n")
        return "lines" if rest.lstrip(_SPACE).startswith(b"{") and line.rstrip()[-1] not in b"[{,:" else "array"
    if not text.startswith(b"{"):
        return "lines"
    first = next(_Values(is_array=False).cut(text), b"")
    if not first:
        return "objects" if text.partition(b"\n")[2].lstrip(_SPACE).startswith(b'"') else "lines"
    is_spread = b"\n" in first or text[len(first) :].lstrip(b" \t\r")[:1] in (b"{", b",")
    return "objects" if is_spread and _is_json(first) else "lines"


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


class _Values:
    """Cuts bytes into values. If a value is too long, keeps one byte more than the limit."""

    def __init__(self, offset: int = 0, *, is_array: bool, is_first: bool = False) -> None:
        self.end = offset  # position after the last value
        self.is_closed = not is_array  # whether the array has ended; another one may follow it
        self.damage = ""  # why nothing after `end` can be read
        self._is_first = is_first  # whether no value has been found yet, so that a comma is an error
        self._offset = offset  # position of the next byte
        self._base = int(is_array)
        self._open = bytearray()  # the open brackets within the value
        self._last, self._has_feed = 0, False  # the last byte that is not blank, and whether a line feed follows it
        self._is_string = False
        self._held = bytearray()  # the start of a value whose end has not been read yet
        self._ahead = b""  # a backslash without the character that it escapes

    def cut(self, data: bytes) -> Iterator[bytes]:
        """Yield the values that end in `data`, which continues the data of earlier calls; some may be blank."""
        data, self._ahead = self._ahead + data, b""
        begun = at = 0
        while at < len(data) and not self.damage:
            at, value_end = self._in_string(data, at) if self._is_string else self._outside(data, at)
            if value_end is not None:
                self._hold(data[begun:value_end])
                mark, here = data[value_end:at], at
                begun = at = _match(_BLANK, data, at)
                is_last = self._base and mark == b"]"  # a resumed run must read the bracket again
                self.end = self._offset + (here - 1 if is_last else at)
                value = self.rest() or (b"," if self._is_first and self._base and mark == b"," else b"")
                self._held.clear()
                self._is_first = False
                yield value
        end = len(data) - len(self._ahead)
        self._last, self._has_feed = self._before(data, end)
        self._hold(data[begun:end])
        self._offset += end

    def rest(self) -> bytes:
        """Return what remains at the end of the input: an unfinished value, or empty bytes."""
        return bytes(self._held).strip(_BETWEEN)

    @property
    def size(self) -> int:
        """The position after all bytes processed so far."""
        return self._offset + len(self._ahead)

    def _in_string(self, data: bytes, at: int) -> tuple[int, int | None]:
        """Return the index after the string, and the index where the value ends if a line feed ends it."""
        at = _match(_STRING, data, at)
        if data[at:] in (b"", b"\\"):
            self._ahead = data[at:]
            return len(data), None
        self._is_string = False
        if data[at] == _QUOTE:
            return at + 1, None
        self._open.clear()
        return at + 1, at

    def _outside(self, data: bytes, at: int) -> tuple[int, int | None]:
        """Return the index after the next bracket, comma or quote.

        Also returns the index where the value ends, if that character ends it.
        """
        if self._base and self.is_closed:
            return self._behind_array(data, at)
        is_in_object = bool(self._open) and self._open[-1] == _BRACE
        at = _match(_IN_OBJECT if is_in_object else _NESTED if self._open else _PLAIN, data, at)
        if at == len(data):
            return at, None
        mark = data[at]
        if mark == _BRACE:
            if is_in_object and (at == 0 or data[at - 1] != _COLON) and self._is_misplaced(data, at):
                self._open.clear()
                return at, at
            self._open.append(mark)
        elif mark == _QUOTE:
            self._is_string = True
        elif mark == _SQUARE:
            end = _match(_OPENING, data, at)
            self._open += data[at:end]
            return end, None
        elif self._base and not self._open and mark in b",]":
            self.is_closed |= mark == _CLOSING
            return at + 1, at
        elif mark in b"]}" and self._open:
            end = min(_match(_ENDS, data, at), at + len(self._open))
            del self._open[at - end :]
            return end, None if self._open or self._base else end
        return at + 1, None

    def _is_misplaced(self, data: bytes, at: int) -> bool:
        """Whether an object within another object begins a line and does not follow a colon."""
        last, has_feed = self._before(data, at)
        return has_feed and last != _COLON

    def _before(self, data: bytes, at: int) -> tuple[int, bool]:
        """Return the last byte before `at` that is not blank, and whether a line feed follows it."""
        end = at
        while end and data[end - 1] in _SPACE:
            end -= 1
        has_feed = b"\n" in data[end:at]
        return (data[end - 1], has_feed) if end else (self._last, has_feed or self._has_feed)

    def _behind_array(self, data: bytes, at: int) -> tuple[int, int | None]:
        """Start the next array, as in concatenated array files; anything else is damage."""
        at = _match(_BLANK, data, at)
        if at == len(data):
            return at, None
        if data[at : at + 1] == b"{":  # the closing bracket was stray
            self.is_closed = False
            return at, None
        if data[at : at + 1] != b"[":
            self.damage = "unexpected data after the end of the JSON array; the rest of the input was not read"
            return at, None
        self.is_closed = False
        return at + 1, at

    def _hold(self, data: bytes) -> None:
        self._held += data[: max(0, RECORD_LIMIT_BYTES + 1 - len(self._held))]


def _match(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def value_blocks(
    read: Callable[[], bytes | None], framing: Framing, start: Place, tell: Callable[[], int]
) -> Iterator[Block]:
    """Yield blocks of the values in the bytes from `read`, one value per line; line numbers count values.

    Args:
        read: Returns some bytes, empty at the end, or None while a stream is silent.
        framing: `array` or `objects`.
        start: Position of the first byte that `read` returns.
        tell: Returns the number of bytes read from the file.
    """
    values, line = _Values(start.offset, is_array=framing == "array", is_first=not start.line), start.line
    is_begun, blank = framing != "array" or start.offset > 0, 0
    while not values.damage and (piece := read()) != b"":
        if piece and not is_begun:  # the bracket may be in a later piece; until it is found, a resumed run starts over
            is_begun, at = b"[" in piece, piece.find(b"[") + 1 or len(piece)
            blank, piece = blank + at, piece[at:]
            values = _Values(blank if is_begun else 0, is_array=True, is_first=True)
        found = [value.replace(b"\n", b" ") + b"\n" for value in values.cut(piece or b"") if value]
        yield Block(b"".join(found), line + 1, Place(values.end, line + len(found), tell()), values.damage)
        line += len(found)
    rest = values.rest()
    damage = "" if values.is_closed else "the JSON array is not closed; the file may be truncated"
    if (rest or damage) and not values.damage:
        data = rest.replace(b"\n", b" ") + b"\n" if rest else b""
        yield Block(data, line + 1, Place(values.size, line + bool(rest), tell()), damage)


def json_blocks(file: InputFile, start: Place, block_bytes: int, *, is_json: bool) -> Iterator[Block]:
    """Yield blocks of a file's lines, starting at any position; for JSON, of its values, however they are separated.

    Args:
        file: A file that was just opened.
        start: Position to start from.
        block_bytes: Approximate bytes to read at once.
        is_json: Whether the file holds JSON.
    """
    while (head := file.head()) is None:
        yield Block(b"", start.line + 1, start)
    if start.offset:
        file.skip(start.offset)
    read, framing = partial(file.read, block_bytes), framing_of(head) if is_json else "lines"
    yield from (
        blocks_of(read, start, file.tell) if framing == "lines" else value_blocks(read, framing, start, file.tell)
    )
