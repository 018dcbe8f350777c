"""Read and write the files of simhash-cpp's programs: decimal fingerprints, or lists of them, one per line.

Whole blocks are processed at once: a Python loop over lines would take longer than the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from hsimhash.errors import HsimhashError
from hsimhash.fingerprint.bits import LIMIT, Bools, Uint32s, Uint64s
from hsimhash.pairs.clusters import linked
from hsimhash.pairs.search import group_equal, iter_pairs

READ_BYTES = 4 << 20
LINE_LIMIT_BYTES = 4096  # a longer line cannot be a number, so it is rejected without reading all of it
WRITE_MEMBERS = 1 << 16  # numbers written at once; their buffers fit in the processor's cache

_LINE = re.compile(rb"\s*\+?([0-9]+)\s*")
_DIGITS = b"0123456789"
_WORD_DIGITS = 4
_WORD_LIMIT = 10**_WORD_DIGITS
_WORDS_IN_NUMBER = 5  # 20 digits
_END = b"]\n"


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """The numbers that were read."""

    values: Uint64s  # shape (n,), in input order
    blank_lines: int  # number of lines without a number
    first_blank: int  # line number of the first such line, starting at 1; 0 if there is none


def read_numbers(stream: BinaryIO) -> Numbers:
    """Read the numbers in a stream, one per line; blanks around a number, a `+` and CRLF are allowed.

    Raises:
        HsimhashError: a line is not an unsigned decimal number below 2**64; the message names the line.
    """
    lines = blank_lines = first_blank = 0
    held, block = b"", b"-"
    parts = [np.empty(0, np.uint64)]
    while block:
        block = stream.read(READ_BYTES)
        held += block or b"\n" * bool(held)
        cut = held.rfind(b"\n") + 1
        if cut:
            values, blank = _values(held[:cut].replace(b"\r\n", b"\n"), lines)
            parts.append(values)
            lines += held.count(b"\n")
            blank_lines, first_blank = blank_lines + len(blank), first_blank or next(iter(blank), 0)
            held = held[cut:]
        if len(held) > LINE_LIMIT_BYTES:
            raise _error(lines + 1, held)
    return Numbers(np.concatenate(parts), blank_lines, first_blank)


def _values(data: bytes, lines_before: int) -> tuple[Uint64s, list[int]]:
    """Return the values of whole lines, and the numbers of the lines without a value."""
    clean = _clean_values(data)
    if clean is not None:
        return clean, []
    values, blank = [], []
    for number, line in enumerate(data.split(b"\n")[:-1], start=lines_before + 1):
        match = _LINE.fullmatch(line)
        if match and len(line) <= LINE_LIMIT_BYTES and int(match[1]) < LIMIT:
            values.append(int(match[1]))
        elif line.strip():
            raise _error(number, line)
        else:
            blank.append(number)
    return np.array(values, np.uint64), blank


def _error(number: int, line: bytes) -> HsimhashError:
    shown = line.strip()[:80].decode("utf-8", "backslashreplace")
    problem = "is not an unsigned decimal number below 2**64"
    if len(line) > LINE_LIMIT_BYTES:
        problem = f"is in a line of more than {LINE_LIMIT_BYTES:,} bytes, which is longer than any number"
    return HsimhashError(f"line {number}: {shown!r} {problem}; correct the line or remove it")


def _clean_values(data: bytes) -> Uint64s | None:
    """Return the values of lines that consist of digits, each below 2**64; None if any line may differ."""
    newlines = data.translate(None, _DIGITS)
    if newlines != b"\n" * len(newlines) or data.startswith(b"\n"):
        return None
    values = np.fromstring(data, np.uint64, sep="\n")
    # There is a blank line, or a larger number, which is read as LIMIT - 1.
    if len(values) != len(newlines) or (values == LIMIT - 1).any():
        return None
    return values


def list_lines(values: Uint64s, starts: Bools) -> Iterator[bytes]:
    """Yield lists as lines such as `[206, 238]`, in blocks of bytes.

    Args:
        values: Members of all lists, list after list; shape (m,).
        starts: Whether a list begins at each member, true for the first; shape (m,).
    """
    for at in range(0, len(values), WRITE_MEMBERS):
        text = _members(values[at : at + WRITE_MEMBERS], starts[at : at + WRITE_MEMBERS])
        yield text if at else text.removeprefix(_END)
    if len(values):
        yield _END


def pair_lines(fingerprints: Uint64s, distance: int) -> Iterator[bytes]:
    """Yield each pair within the distance as a line, the lower number first, in blocks of bytes."""
    for block in iter_pairs(fingerprints, max_distance=distance):
        left, right = fingerprints[block.left], fingerprints[block.right]
        pairs = np.stack([np.minimum(left, right), np.maximum(left, right)], axis=-1)
        yield from list_lines(pairs.ravel(), np.arange(pairs.size) % 2 == 0)


def cluster_lines(fingerprints: Uint64s, distance: int) -> Iterator[bytes]:
    """Yield each cluster of two or more connected numbers as a line, in input order, in blocks of bytes."""
    members = np.flatnonzero(group_equal(fingerprints) == np.arange(len(fingerprints)))
    with closing(iter_pairs(fingerprints, max_distance=distance)) as blocks:
        cluster = linked(blocks, len(fingerprints))
    sizes = np.bincount(cluster[members], minlength=len(fingerprints))
    members = members[sizes[cluster[members]] > 1]
    members = members[np.argsort(cluster[members], kind="stable")]
    yield from list_lines(fingerprints[members], cluster[members] == members)


def _words(texts: list[str]) -> Uint32s:
    """Return texts of up to 4 characters as words of 4 bytes, padded with NUL on the left."""
    return np.frombuffer(b"".join(text.encode().rjust(4, b"\0") for text in texts), np.uint32)


# The digits of a number's lower words; then the digits of its first word, without leading zeros.
_DIGIT_WORDS = _words([f"{n:04}" for n in range(_WORD_LIMIT)] + [str(n or "") for n in range(_WORD_LIMIT)])
_ZERO, _COMMA, _BREAK = _words(["0", ", ", "]\n["])


def _members(values: Uint64s, starts: Bools) -> bytes:
    """Return numbers as text, each preceded by its separator."""
    words = np.empty((len(values), 1 + _WORDS_IN_NUMBER), np.uint32)
    words[:, 0] = np.where(starts, _BREAK, _COMMA)
    rest = values
    for column in range(_WORDS_IN_NUMBER, 0, -1):
        above = rest // np.uint64(_WORD_LIMIT)
        digits = rest - above * np.uint64(_WORD_LIMIT)
        words[:, column] = _DIGIT_WORDS[(digits + np.uint64(_WORD_LIMIT) * (above == 0)).astype(np.intp)]
        rest = above
    words[values == 0, -1] = _ZERO
    return words.tobytes().translate(None, b"\0")
