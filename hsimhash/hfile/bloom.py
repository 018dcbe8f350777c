"""HBase's Bloom filter of rows or row prefixes, built chunk by chunk from arrays of keys.

A key may be in a chunk if all of its seven bits are set. With h1 = murmur(key, 0) and h2 = murmur(key, h1), bit i is
|(h1 + i · h2) rem bits| in signed 32-bit arithmetic. The hash is HBase's 32-bit MurmurHash2, which treats the bytes
after the last whole word as signed.
"""

from __future__ import annotations

import numpy as np

from hsimhash.fingerprint.bits import Uint8s, Uint32s

HASHES = 7
CHUNK_BYTES = 131_072
CHUNK_KEYS = 109_306  # maximum number of keys in a chunk, for a false positive rate of 1 %
_LEAST_BYTES = 128
_M = np.uint32(0x5BD1E995)


def chunk(keys: Uint8s) -> bytes:
    """Return the smallest chunk for distinct keys, shape (n, width), n up to `CHUNK_KEYS`."""
    size = CHUNK_BYTES
    while size > _LEAST_BYTES and len(keys) * CHUNK_BYTES <= CHUNK_KEYS * (size // 2):
        size //= 2
    bits = np.zeros(size * 8, np.bool_)
    at = murmur(keys, np.zeros(len(keys), np.uint32))
    step = murmur(keys, at)
    for _ in range(HASHES):
        bits[np.abs(np.fmod(at.view(np.int32).astype(np.int64), size * 8))] = True
        at = at + step
    return np.packbits(bits, bitorder="little").tobytes()


def murmur(keys: Uint8s, seeds: Uint32s) -> Uint32s:
    """Return HBase's MurmurHash of keys, shape (n, width), each with its own seed."""
    width = keys.shape[1]
    whole = width // 4 * 4
    hashes = seeds ^ np.uint32(width)
    for word in np.ascontiguousarray(keys[:, :whole]).view("<u4").T:
        mixed = word.astype(np.uint32) * _M
        hashes = hashes * _M ^ (mixed ^ mixed >> np.uint32(24)) * _M
    if whole < width:
        for place, byte in enumerate(keys[:, whole:].view(np.int8).T):
            hashes = hashes ^ byte.astype(np.int32).view(np.uint32) << np.uint32(8 * place)
        hashes = hashes * _M
    hashes = (hashes ^ hashes >> np.uint32(13)) * _M
    return hashes ^ hashes >> np.uint32(15)
