"""Hash functions from other libraries and articles, computed for many spans of a buffer at once.

Each is defined by a small function that accepts arrays as well as single integers. The short spans of a batch are
hashed together, position by position; a long span is hashed alone, by the same function.

| hash | bits | definition |
|---|---|---|
| FNV-1, FNV-1a | 64 | Fowler, Noll, Vo; a unit is a byte, or a whole UTF-16 code unit as returned by Java's `charAt` |
| times33 | 64 | Bernstein: starts with 5381, then `h * 33 + byte` |
| one-at-a-time | 32 | Jenkins, Dr. Dobb's, 1997 |
| CRC32C | 32 | Castagnoli, reflected polynomial 82f63b78; without the final inversion, as in ClickHouse's simhash |
| lookup3 | 64 | Jenkins, 2006: `hashlittle2` with both seeds 0, `(pc << 32) | pb` |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Int64s, Uint64s

VECTOR_UNITS = 512  # longer spans are rare, and hashing them one by one is just as fast
Number = Any  # an int or a uint64 array; NumPy's types cannot express that the result has the argument's type
HashStep = Callable[[Number, Number], Number]  # state, next unit → state
CodeUnits = NDArray[np.uint8] | NDArray[np.uint16]

_M32, _M64 = (1 << 32) - 1, (1 << 64) - 1
FNV_FIRST, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
TIMES33_FIRST = 5381
_BLOCK_BYTES = 12  # of lookup3
_LOOKUP3_FIRST = 0xDEADBEEF


def fnv_1(state: Number, unit: Number) -> Number:
    """Add a unit to the state of FNV-1."""
    return state * _FNV_PRIME & _M64 ^ unit


def fnv_1a(state: Number, unit: Number) -> Number:
    """Add a unit to the state of FNV-1a."""
    return (state ^ unit) * _FNV_PRIME & _M64


def times33(state: Number, unit: Number) -> Number:
    """Add a byte to the state of times33."""
    return (state * 33 + unit) & _M64


def one_at_a_time(state: Number, unit: Number) -> Number:
    """Add a byte to the state of one-at-a-time, before its final mixing."""
    state = (state + unit) & _M32
    state = (state + (state << 10)) & _M32
    return state ^ state >> 6


def one_at_a_time_mixed(state: Number) -> Number:
    """Return the hash for a final state of one-at-a-time."""
    state = (state + (state << 3)) & _M32
    state ^= state >> 11
    return (state + (state << 15)) & _M32


def _crc_table() -> Uint64s:
    table = np.arange(256, dtype=np.uint64)
    for _ in range(8):
        table = (table >> np.uint64(1)) ^ np.where(table & np.uint64(1), np.uint64(0x82F63B78), np.uint64(0))
    return table


_CRC32C = _crc_table()
_CRC32C_ONE = _CRC32C.tolist()
CRC32C_FIRST = _M32


def crc32c(state: Number, unit: Number) -> Number:
    """Add a byte to the state of CRC32C."""
    place = (state ^ unit) & 0xFF
    return (_CRC32C_ONE[place] if isinstance(place, int) else _CRC32C[place]) ^ state >> 8


def fold(units: CodeUnits, starts: Int64s, ends: Int64s, step: HashStep, first: int) -> Uint64s:
    """Fold each half-open span [start, end) of units into a state, starting with `first`, one position at a time.

    Args:
        units: Bytes or UTF-16 code units.
        starts: Start of each span, in units; shape (m,).
        ends: End of each span; shape (m,).
        step: One of the functions above.
        first: State before the first unit.
    """
    length = ends - starts
    order: Int64s | slice = slice(None)
    if (length != length[:1]).any():
        order = np.argsort(-length, kind="stable")  # longest first, so that the spans with units left come first
    place_of, sizes = starts[order], length[order]
    states = np.full(len(sizes), first, np.uint64)
    most = min(int(sizes[0]), VECTOR_UNITS) if len(sizes) else 0
    left = np.searchsorted(-sizes, -np.arange(most), "left")
    for place, count in enumerate(left.tolist()):
        states[:count] = step(states[:count], units[place_of[:count] + place].astype(np.uint64))
    for at in np.flatnonzero(sizes > VECTOR_UNITS).tolist():
        rest = units[place_of[at] + VECTOR_UNITS : place_of[at] + sizes[at]].tolist()
        states[at] = reduce(step, rest, int(states[at]))
    found = np.empty_like(states)
    found[order] = states
    return found


def utf16_units(buffer: bytes, starts: Int64s, ends: Int64s) -> tuple[CodeUnits, Int64s, Int64s]:
    """Convert UTF-8, and the starts and ends of its spans, to UTF-16 code units."""
    octets = np.frombuffer(buffer, np.uint8)
    width = ((octets & 0xC0) != 0x80).astype(np.int64) + (octets >= 0xF0)
    offset = np.concatenate(([0], np.cumsum(width)))
    return np.frombuffer(buffer.decode().encode("utf-16-le"), "<u2"), offset[starts], offset[ends]


def _rotate(x: Number, bits: int) -> Number:
    return (x << bits | x >> 32 - bits) & _M32


def _mix(a: Number, b: Number, c: Number) -> tuple[Number, Number, Number]:
    for first, second, third in ((4, 6, 8), (16, 19, 4)):
        a, c = (a - c) & _M32 ^ _rotate(c, first), (c + b) & _M32
        b, a = (b - a) & _M32 ^ _rotate(a, second), (a + c) & _M32
        c, b = (c - b) & _M32 ^ _rotate(b, third), (b + a) & _M32
    return a, b, c


def _final(a: Number, b: Number, c: Number) -> Number:
    c = ((c ^ b) - _rotate(b, 14)) & _M32
    a = ((a ^ c) - _rotate(c, 11)) & _M32
    b = ((b ^ a) - _rotate(a, 25)) & _M32
    c = ((c ^ b) - _rotate(b, 16)) & _M32
    a = ((a ^ c) - _rotate(c, 4)) & _M32
    b = ((b ^ a) - _rotate(a, 14)) & _M32
    c = ((c ^ b) - _rotate(b, 24)) & _M32
    return c << 32 | b


def lookup3(data: bytes) -> int:
    """Return the lookup3 hash of bytes."""
    a = b = c = (_LOOKUP3_FIRST + len(data)) & _M32
    blocks = max(len(data) - 1, 0) // _BLOCK_BYTES
    words = np.frombuffer(data + bytes(-len(data) % _BLOCK_BYTES), "<u4").tolist()
    for at in range(0, 3 * blocks, 3):
        a, b, c = _mix((a + words[at]) & _M32, (b + words[at + 1]) & _M32, (c + words[at + 2]) & _M32)
    if not data:
        return c << 32 | b
    x, y, z = words[3 * blocks :]
    return int(_final((a + x) & _M32, (b + y) & _M32, (c + z) & _M32))


def lookup3_spans(buffer: bytes, starts: Int64s, ends: Int64s) -> Uint64s:
    """Return the lookup3 hash of each half-open span [start, end) of `buffer`, none longer than `VECTOR_UNITS`."""
    octets = np.frombuffer(buffer + bytes(_BLOCK_BYTES), np.uint8)
    rest, at = ends - starts, starts.copy()
    state = np.repeat((_LOOKUP3_FIRST + rest.astype(np.uint64))[None, :] & _M32, 3, axis=0)
    left = np.flatnonzero(rest > _BLOCK_BYTES)
    while len(left):
        state[:, left] = _mix(*((state[:, left] + _three_words(octets, at[left], rest[left])) & _M32))
        at[left] += _BLOCK_BYTES
        rest[left] -= _BLOCK_BYTES
        left = left[rest[left] > _BLOCK_BYTES]
    hashes: Uint64s = state[2] << np.uint64(32) | state[1]
    some = np.flatnonzero(rest)
    hashes[some] = _final(*((state[:, some] + _three_words(octets, at[some], rest[some])) & _M32))
    return hashes


def _three_words(octets: NDArray[np.uint8], at: Int64s, rest: Int64s) -> Uint64s:
    """Return the next 12 bytes as three little-endian words, shape (3, m); bytes after a span's end are 0."""
    place = np.arange(_BLOCK_BYTES)
    block = np.where(place < rest[:, None], octets[at[:, None] + place], 0).astype(np.uint8)
    return np.ascontiguousarray(block).view("<u4").T.astype(np.uint64)
