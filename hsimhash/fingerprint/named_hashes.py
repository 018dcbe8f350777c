"""The hash functions that a profile can name. Each hashes one feature, or many spans at once with the same results.

All of them hash a feature's UTF-8, except for the two UTF-16 hashes. `md5-first` and `md5-last` are the first and the
last 8 bytes of the digest, and `blake2b-64` is a digest of 8 bytes. Each is read as a big-endian number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from hsimhash.errors import HsimhashError
from hsimhash.extras import install_command
from hsimhash.fingerprint import classic_hashes as classic
from hsimhash.fingerprint.bits import Int64s, Uint64s
from hsimhash.fingerprint.md5 import md5_digest, md5_spans
from hsimhash.fingerprint.murmur3 import HASH_BYTES, HASH_NAME, murmur64, murmur64_spans

try:
    import google_crc32c
except ImportError:
    google_crc32c = None  # type: ignore[assignment]
try:
    import xxhash
except ImportError:
    xxhash = None


_AT_ONCE = 1 << 16  # units converted to Python integers at a time
_FEW_BYTES = 48  # up to this size, hashing spans with NumPy is faster than calling the library


@dataclass(frozen=True, slots=True)
class Hash:
    """A named hash: `one` takes bytes and a seed; `many` takes half-open spans [start, end) of a buffer, and a seed."""

    one: Callable[[bytes, int], int]
    many: Callable[[bytes, Int64s, Int64s, int], Uint64s]
    bits: int = 64
    has_seed: bool = False


def _folded(step: classic.HashStep, first: int, *, is_utf16: bool = False) -> Hash:
    def one(data: bytes, _: int) -> int:
        if not is_utf16:
            return int(reduce(step, data, first))
        units, state = np.frombuffer(data.decode().encode("utf-16-le"), "<u2"), first
        for at in range(0, len(units), _AT_ONCE):
            state = reduce(step, units[at : at + _AT_ONCE].tolist(), state)
        return int(state)

    def many(buffer: bytes, starts: Int64s, ends: Int64s, _: int) -> Uint64s:
        if is_utf16:
            return classic.fold(*classic.utf16_units(buffer, starts, ends), step, first)
        return classic.fold(np.frombuffer(buffer, np.uint8), starts, ends, step, first)

    return Hash(one, many)


def _mixed_one_at_a_time() -> Hash:
    raw = _folded(classic.one_at_a_time, 0)
    return Hash(
        lambda data, seed: classic.one_at_a_time_mixed(raw.one(data, seed)),
        lambda buffer, starts, ends, seed: classic.one_at_a_time_mixed(raw.many(buffer, starts, ends, seed)),
        bits=32,
    )


def _short_and_long(
    short: Callable[[bytes, Int64s, Int64s], Uint64s], one: Callable[[bytes, int], int], most: int
) -> Hash:
    """Return a hash that handles spans of at most `most` bytes together, and longer spans one by one."""

    def many(buffer: bytes, starts: Int64s, ends: Int64s, seed: int) -> Uint64s:
        is_short = ends - starts <= most
        hashes = np.empty(len(starts), np.uint64)
        hashes[is_short] = short(buffer, starts[is_short], ends[is_short])
        for at in np.flatnonzero(~is_short).tolist():
            hashes[at] = one(buffer[starts[at] : ends[at]], seed)
        return hashes

    return Hash(one, many)


def _md5(half: int) -> Hash:
    part = slice(half * HASH_BYTES, half * HASH_BYTES + HASH_BYTES)
    return Hash(
        lambda data, _: int.from_bytes(md5_digest(data)[part], "big"),
        lambda buffer, starts, ends, _: md5_spans(buffer, starts, ends, half),
    )


def _each(one: Callable[[bytes, int], int], *, has_seed: bool = False) -> Hash:
    """Return a hash from a function of one string; equal strings in a batch are hashed once."""

    def many(buffer: bytes, starts: Int64s, ends: Int64s, seed: int) -> Uint64s:
        pieces = [buffer[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        known = {piece: one(piece, seed) for piece in dict.fromkeys(pieces)}
        return np.fromiter(map(known.__getitem__, pieces), np.uint64, len(pieces))

    return Hash(one, many, has_seed=has_seed)


def _xxh3(data: bytes, seed: int) -> int:
    if xxhash is None:
        raise HsimhashError(f"the xxh3-64 hash requires the xxhash package: {install_command('hashes')}")
    return int(xxhash.xxh3_64_intdigest(data, seed))


def _crc32c() -> Hash:
    """Return the CRC32C hash; the google-crc32c library hashes long spans if it is installed."""
    folded = _folded(classic.crc32c, classic.CRC32C_FIRST)
    if google_crc32c is None:
        return folded
    value, last = google_crc32c.value, classic.CRC32C_FIRST  # `last` undoes the library's final inversion
    return _short_and_long(
        lambda buffer, starts, ends: folded.many(buffer, starts, ends, 0),
        lambda data, _: value(data) ^ last,
        _FEW_BYTES,
    )


HASHES: dict[str, Hash] = {
    HASH_NAME: Hash(murmur64, murmur64_spans, has_seed=True),
    "fnv-1-64": _folded(classic.fnv_1, classic.FNV_FIRST),
    "fnv-1a-64": _folded(classic.fnv_1a, classic.FNV_FIRST),
    "fnv-1-64-utf16": _folded(classic.fnv_1, classic.FNV_FIRST, is_utf16=True),
    "fnv-1a-64-utf16": _folded(classic.fnv_1a, classic.FNV_FIRST, is_utf16=True),
    "jenkins-lookup3": _short_and_long(
        classic.lookup3_spans, lambda data, _: classic.lookup3(data), classic.VECTOR_UNITS
    ),
    "jenkins-one-at-a-time": _mixed_one_at_a_time(),
    "times33": _folded(classic.times33, classic.TIMES33_FIRST),
    "md5-first": _md5(0),
    "md5-last": _md5(1),
    "blake2b-64": _each(lambda data, _: int.from_bytes(hashlib.blake2b(data, digest_size=HASH_BYTES).digest(), "big")),
    "xxh3-64": _each(_xxh3, has_seed=True),
    "crc32c": replace(_crc32c(), bits=32),
}
