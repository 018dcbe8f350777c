"""MD5 of many short spans at once, in a third of the time that hashlib takes to hash them one by one.

The code loops over blocks of 64 bytes and their 64 steps. Each step is a few operations on arrays that stay in the
cache. Source: RFC 1321.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hsimhash.fingerprint.bits import Int64s, Uint32s, Uint64s
from hsimhash.fingerprint.murmur3 import words_by_byte

Words = Uint32s | np.uint32  # one word per span, or a single word for all spans

# Spans of b blocks are hashed in bulk if at least `_MANY` · b spans have b or more blocks; with fewer spans, hashlib is
# just as fast.
_MANY = 800
_MOST_BLOCKS = 16
_AT_ONCE = 1 << 16  # spans; larger batches are not faster
_SHORT_BYTES = 15  # this many bytes and their count fit in two 64-bit words
_LOW_BYTES = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_BLOCK_BYTES, _LENGTH_BYTES = 64, 8
_LENGTH_WORD = 14
_M32 = (1 << 32) - 1
_FIRST = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_SINES = [int(abs(math.sin(step + 1)) * (1 << 32)) for step in range(64)]
_SHIFTS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
# The bits to keep, and the 0x80 that ends the message. Both are indexed by 1 plus the number of bytes left for a word,
# from -1 (the span ended earlier) to 4.
_MASKS = np.array([0, 0, 0xFF, 0xFFFF, 0xFFFFFF, 0xFFFFFFFF], np.uint32)
_ENDS = np.array([0, 0x80, 0x8000, 0x800000, 0x80000000, 0], np.uint32)
_WORD_OF_STEP = ((1, 0), (5, 1), (3, 5), (7, 0))  # by round: the word for a step is factor · step + offset, modulo 16


def md5_digest(data: bytes) -> bytes:
    """Return the 16 bytes of the MD5 digest."""
    return hashlib.md5(data, usedforsecurity=False).digest()


def md5_spans(buffer: bytes, starts: Int64s, ends: Int64s, half: int) -> Uint64s:
    """Return one half of the MD5 digest of each half-open span [start, end) of `buffer`.

    Args:
        buffer: Bytes of all spans.
        starts: Start of each span; shape (m,).
        ends: End of each span; shape (m,).
        half: 0 for the first 8 bytes of the digest, 1 for the last 8 bytes; both are read as a big-endian number.
    """
    sizes = ends - starts
    if 2 * np.count_nonzero(sizes <= _SHORT_BYTES) <= len(sizes):
        return _different(buffer, starts, sizes, half)
    same = _first_alike(buffer, starts, sizes)
    kept = np.flatnonzero(same == np.arange(len(same)))
    hashes = np.empty(len(starts), np.uint64)
    hashes[kept] = _different(buffer, starts[kept], sizes[kept], half)
    alike: Uint64s = hashes[same]
    return alike


def _first_alike(buffer: bytes, starts: Int64s, sizes: Int64s) -> Int64s:
    """Return the index of a span with the same bytes for each span, or its own index.

    Only a third to two thirds of the 4-grams in a batch are distinct. This finds nearly all repeats in a fifth of the
    time that hashing takes. A span of up to 15 bytes is packed into two numbers, together with its size. A hash table
    of these numbers keeps the last span in each slot, and every span is compared with the one in its slot.
    """
    kept = np.minimum(sizes, _SHORT_BYTES + 1)  # so the numbers of a longer span differ from those of every short span
    unaligned = words_by_byte(buffer + bytes(16))
    low = unaligned[starts] & _LOW_BYTES[np.minimum(kept, 8)]
    high = kept.astype(np.uint64) << np.uint64(56)
    if kept.max() > 8:
        high |= unaligned[starts + 8] & _LOW_BYTES[np.maximum(kept - 8, 0)]
    bits = len(starts).bit_length()
    place = (low * _MULTIPLIER + high) * _MULTIPLIER >> np.uint64(64 - bits)
    table = np.empty(1 << bits, np.int32)
    table[place] = number = np.arange(len(starts), dtype=np.int32)
    last = table[place]
    is_same = (low[last] == low) & (high[last] == high) & (sizes <= _SHORT_BYTES)
    return np.where(is_same, last, number)


def _different(buffer: bytes, starts: Int64s, sizes: Int64s, half: int) -> Uint64s:
    """Return the hashes of spans, computed in bulk for frequent sizes and one by one for all other sizes."""
    hashes = np.empty(len(starts), np.uint64)
    unaligned = words_by_byte(buffer + bytes(_MOST_BLOCKS * _BLOCK_BYTES), 4)
    # Sorted by size, so that the spans in a slice have about the same number of blocks.
    order = np.argsort(np.minimum(sizes, _MOST_BLOCKS * _BLOCK_BYTES).astype(np.uint16), kind="stable")
    blocks, number = (sizes[order] + _LENGTH_BYTES) // _BLOCK_BYTES + 1, np.arange(1, _MOST_BLOCKS + 1)
    worth = np.flatnonzero(len(order) - np.searchsorted(blocks, number) >= _MANY * number)
    together = int(np.searchsorted(blocks, worth[-1] + 1, "right")) if len(worth) else 0
    for begin in range(0, together, _AT_ONCE):
        some = order[begin : min(begin + _AT_ONCE, together)]
        first, second = _states(unaligned, starts[some], sizes[some])[2 * half : 2 * half + 2].byteswap()
        hashes[some] = first.astype(np.uint64) << np.uint64(32) | second
    part = slice(8 * half, 8 * half + 8)
    for at in order[together:].tolist():
        digest = md5_digest(buffer[starts[at] : starts[at] + sizes[at]])
        hashes[at] = int.from_bytes(digest[part], "big")
    return hashes


def _states(unaligned: Uint32s, starts: Int64s, sizes: Int64s) -> Uint32s:
    """Return the four words of each digest, shape (4, m); the sizes of the spans must ascend."""
    last = (sizes + _LENGTH_BYTES) // _BLOCK_BYTES
    state = np.repeat(np.array(_FIRST, np.uint32)[:, None], len(sizes), axis=1)
    for block in range(int(last[-1]) + 1):
        some = slice(int(np.searchsorted(last, block)), None)
        begin = block * _BLOCK_BYTES
        words = _words(unaligned, starts[some] + begin, sizes[some] - begin)
        ended = slice(0, int(np.searchsorted(last[some], block, "right")))
        words[_LENGTH_WORD] = _with_length(words[_LENGTH_WORD], sizes[some], ended)
        state[:, some] += _compressed(state[:, some], words)
    return state


def _with_length(word: Words, sizes: Int64s, ended: slice) -> Words:
    """Return the length word of a block: for spans that end in this block, their number of bits."""
    if sizes[0] == sizes[-1]:
        return np.uint32(sizes[0] * 8) if ended.stop else word
    with_length = word | np.zeros(len(sizes), np.uint32)
    with_length[ended] = sizes[ended] * 8
    return with_length


def _words(unaligned: Uint32s, at: Int64s, rest: Int64s) -> list[Words]:
    """Return the 16 words of one block of spans that have `rest` bytes left, followed by 0x80.

    If all spans have the same number of bytes left, as with character n-grams, the words after the end are single
    numbers.
    """
    words: list[Words] = []
    least, most = int(rest[0]), int(rest[-1])
    for begin in range(0, _BLOCK_BYTES, 4):
        own: Any = min(max(most - begin, -1), 4) + 1
        if begin + 4 <= least:  # complete in all spans
            words.append(unaligned[at + begin])
            continue
        if least < most and begin <= most:
            own = np.minimum(np.maximum(rest - begin, -1), 4) + 1
        is_behind = most <= begin
        words.append(_ENDS[own] if is_behind else unaligned[at + begin] & _MASKS[own] | _ENDS[own])
    return words


def _compressed(state: Uint32s, words: Sequence[Words]) -> Uint32s:
    """Apply the 64 steps to a state and one block's words, and return the result; the five arrays stay in the cache."""
    mixed = np.empty(state.shape[1], np.uint32)
    a, b, c, d = made = state.copy()
    for step, sine in enumerate(_SINES):
        turn = step // 16
        factor, offset = _WORD_OF_STEP[turn]
        _choose(turn, b, c, d, mixed)
        a += mixed
        word = words[(factor * step + offset) % 16]
        if isinstance(word, np.uint32):  # one addition for both constants
            a += np.uint32((int(word) + sine) & _M32)
        else:
            a += word
            a += np.uint32(sine)
        shift = _SHIFTS[turn][step % 4]
        np.right_shift(a, np.uint32(32 - shift), out=mixed)
        a <<= np.uint32(shift)
        a |= mixed
        a += b
        a, b, c, d = d, a, b, c
    return made  # 64 steps rotate each of the four words back to its position


def _choose(turn: int, b: Uint32s, c: Uint32s, d: Uint32s, chosen: Uint32s) -> None:
    """Apply the function of a round to three words, and store the result in `chosen`."""
    if turn == 0:
        np.bitwise_xor(c, d, out=chosen)
        chosen &= b
        chosen ^= d
    elif turn == 1:
        np.bitwise_xor(b, c, out=chosen)
        chosen &= d
        chosen ^= c
    elif turn == 2:
        np.bitwise_xor(b, c, out=chosen)
        chosen ^= d
    else:
        np.invert(d, out=chosen)
        chosen |= b
        chosen ^= c
