"""Hash a feature: the low 64 bits of murmur3 x64-128 of its UTF-8, for one string or for spans of a buffer.

These bits are the first 8 bytes of the digest as a little-endian number: `mmh3.hash64(text, seed, signed=False)[0]`.
"""

from __future__ import annotations

from typing import Any

import mmh3
import numpy as np
from numpy.typing import NDArray

from hsimhash.fingerprint.bits import Int64s, Uint64s

HASH_NAME = "murmur3-x64-128-low64"
HASH_BYTES = 8
SEED_LIMIT = 1 << 32

_FACTORS, _WORD = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53), (1 << 64) - 1  # factors of the finalizer, and a 64-bit mask
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_BLOCK_BYTES = 16
_VECTOR_BYTES = 512  # longer spans are rare, and hashing them one by one is just as fast
_LOW_BYTES = np.array([(1 << 8 * count) - 1 for count in range(HASH_BYTES + 1)], np.uint64)


def murmur64(text: str | bytes, seed: int = 0) -> int:
    """Hash one string (its UTF-8) or bytes."""
    return int.from_bytes(mmh3.hash_bytes(text, seed)[:HASH_BYTES], "little")


def murmur64_spans(buffer: bytes, starts: Int64s, ends: Int64s, seed: int = 0) -> Uint64s:
    """Hash each half-open span [start, end) of `buffer`."""
    length = ends - starts
    long = np.flatnonzero(length > _VECTOR_BYTES)
    length[long] = 0
    hashes = _hash_short(buffer, starts, length, seed)
    for index in long.tolist():
        hashes[index] = murmur64(buffer[starts[index] : ends[index]], seed)
    return hashes


def words_by_byte(buffer: bytes, size: int = HASH_BYTES) -> NDArray[Any]:
    """Return the little-endian word of `size` bytes at each byte, as a view; shifts take three times as long."""
    return np.ndarray((len(buffer) - size + 1,), f"<u{size}", buffer, strides=(1,))


def _hash_short(buffer: bytes, starts: Int64s, length: Int64s, seed: int) -> Uint64s:
    """Hash all spans together, looping over 16-byte blocks; two unaligned 64-bit reads cover most spans."""
    words = words_by_byte(buffer + bytes(_BLOCK_BYTES))  # padding, because blocks are read whole
    h1 = np.full(len(starts), seed, np.uint64)
    h2 = h1.copy()
    offset, rest = starts.copy(), length.copy()
    _hash_blocks(words, offset, rest, h1, h2)
    long = np.flatnonzero(rest > HASH_BYTES)
    tail = words[offset[long] + HASH_BYTES] & _LOW_BYTES[rest[long] - HASH_BYTES]
    h2[long] ^= _rotate(tail * _C2, 33) * _C1
    tail = words[offset] & _LOW_BYTES[np.minimum(rest, HASH_BYTES)]
    h1 ^= _rotate(tail * _C1, 31) * _C2
    size = length.astype(np.uint64)
    h1 ^= size
    h2 ^= size
    h1 += h2
    h2 += h1
    mixed: Uint64s = mix(h1) + mix(h2)
    return mixed


def _hash_blocks(words: Uint64s, offset: Int64s, rest: Int64s, h1: Uint64s, h2: Uint64s) -> None:
    """Mix every whole block of 16 bytes into `h1` and `h2`, and move `offset` and `rest` past them, in place."""
    left = np.flatnonzero(rest >= _BLOCK_BYTES)
    while len(left):
        at = offset[left]
        a = h1[left] ^ _rotate(words[at] * _C1, 31) * _C2
        b = h2[left]
        a = (_rotate(a, 27) + b) * np.uint64(5) + np.uint64(0x52DCE729)
        b = b ^ _rotate(words[at + HASH_BYTES] * _C2, 33) * _C1
        b = (_rotate(b, 31) + a) * np.uint64(5) + np.uint64(0x38495AB5)
        h1[left], h2[left] = a, b
        offset[left] += _BLOCK_BYTES
        rest[left] -= _BLOCK_BYTES
        left = left[rest[left] >= _BLOCK_BYTES]


def _rotate(x: Uint64s, bits: int) -> Uint64s:
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


def mix(k: Uint64s) -> Uint64s:
    """Apply murmur3's 64-bit finalizer to each number: every output bit depends on every bit of `k`."""
    for factor in _FACTORS:
        k = (k ^ (k >> np.uint64(33))) * np.uint64(factor)
    return k ^ (k >> np.uint64(33))


def mix_one(k: int) -> int:
    """Compute `mix` for one number, in a quarter of the time that `mix` takes."""
    one, other = _FACTORS  # unrolled; a loop takes 1.5 times as long
    k = (k ^ k >> 33) * one & _WORD
    k = (k ^ k >> 33) * other & _WORD
    return k ^ k >> 33
