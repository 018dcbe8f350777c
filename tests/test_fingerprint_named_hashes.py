"""Every hash that a profile may name: known answers, and the same results for many spans as for one."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from google_crc32c import value as standard_crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint import classic_hashes as classic
from hsimhash.fingerprint.named_hashes import HASHES

try:
    import xxhash
except ImportError:
    xxhash = None
NAMES = [name for name in HASHES if xxhash or name != "xxh3-64"]

# As published by their authors and by other libraries.
ANSWERS = [
    ("murmur3-x64-128-low64", "ok", 0x8DA09155003220BF),
    ("fnv-1-64", "", 0xCBF29CE484222325),
    ("fnv-1-64", "a", 0xAF63BD4C8601B7BE),
    ("fnv-1-64", "foobar", 0x340D8765A4DDA9C2),
    ("fnv-1a-64", "a", 0xAF63DC4C8601EC8C),
    ("fnv-1a-64", "foobar", 0x85944171F73967E8),
    ("fnv-1-64-utf16", "a", 0xAF63BD4C8601B7BE),
    ("fnv-1a-64-utf16", "foobar", 0x85944171F73967E8),
    ("jenkins-lookup3", "", 16045690984833335023),
    ("jenkins-lookup3", "a", 6401452390262130604),
    ("jenkins-lookup3", "hello", 3804341492420753273),
    ("jenkins-lookup3", "你好", 17676873585679812141),
    ("jenkins-one-at-a-time", "a", 0xCA2E9442),
    ("jenkins-one-at-a-time", "The quick brown fox jumps over the lazy dog", 0x519E91F5),
    ("times33", "", 5381),
    ("times33", "ab", (5381 * 33 + 97) * 33 + 98),
    ("md5-first", "", 0xD41D8CD98F00B204),
    ("md5-last", "", 0xE9800998ECF8427E),
    ("blake2b-64", "", 0xE4A6A0577479B2B4),
    ("xxh3-64", "", 0x2D06800538D394C2),
    ("crc32c", "123456789", 0xE3069283 ^ 0xFFFFFFFF),
]


@pytest.mark.parametrize(("name", "text", "expected"), ANSWERS)
def test_a_hash_has_its_known_answer(name: str, text: str, expected: int) -> None:
    if name not in NAMES:
        pytest.skip("xxhash is not installed")
    data = text.encode()
    assert HASHES[name].one(data, 0) == expected
    assert HASHES[name].many(data, np.zeros(1, np.int64), np.array([len(data)]), 0).tolist() == [expected]
    assert expected < 1 << HASHES[name].bits


@settings(max_examples=40)
@given(st.text(st.characters(codec="utf-8"), max_size=120), st.data())
@pytest.mark.parametrize("name", NAMES)
def test_many_spans_hash_as_each_of_them(name: str, text: str, data: st.DataObject) -> None:
    edges = np.cumsum([0, *(len(character.encode()) for character in text)])
    pair = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(sorted)
    cuts = data.draw(st.lists(pair, max_size=12))
    starts, ends = (edges[np.array([cut[side] for cut in cuts], np.int64)] for side in (0, 1))
    buffer = text.encode()
    expected = [HASHES[name].one(buffer[start:end], 0) for start, end in zip(starts, ends, strict=True)]
    assert HASHES[name].many(buffer, starts, ends, 0).tolist() == expected


@pytest.mark.parametrize("name", NAMES)
def test_spans_of_all_lengths_hash_together(name: str) -> None:
    buffer = "".join(chr(32 + number * 7 % 90) for number in range(1500)).encode()
    lengths = [*range(70), 118, 119, 120, 121, 127, 128, 511, 512, 513, 1400]
    starts = np.arange(len(lengths))
    ends = starts + lengths
    expected = [HASHES[name].one(buffer[start:end], 0) for start, end in zip(starts, ends, strict=True)]
    assert HASHES[name].many(buffer, starts, ends, 0).tolist() == expected


@given(st.binary(max_size=200))
def test_hashes_of_libraries_are_theirs(data: bytes) -> None:
    digest = hashlib.md5(data).digest()
    assert HASHES["md5-first"].one(data, 0) == int.from_bytes(digest[:8], "big")
    assert HASHES["md5-last"].one(data, 0) == int.from_bytes(digest[8:], "big")
    assert HASHES["blake2b-64"].one(data, 0) == int(hashlib.blake2b(data, digest_size=8).hexdigest(), 16)
    assert HASHES["crc32c"].one(data, 0) ^ 0xFFFFFFFF == standard_crc32c(data)


def test_crc32c_is_the_same_with_and_without_the_library() -> None:
    buffer, lengths = bytes(range(256)) * 6, np.array([0, 1, 47, 48, 49, 512, 513, 1500])
    starts = np.arange(len(lengths))
    folded = classic.fold(
        np.frombuffer(buffer, np.uint8), starts, starts + lengths, classic.crc32c, classic.CRC32C_FIRST
    )
    assert folded.tolist() == HASHES["crc32c"].many(buffer, starts, starts + lengths, 0).tolist()


def test_xxh3_takes_the_seed() -> None:
    library = pytest.importorskip("xxhash")
    assert HASHES["xxh3-64"].one(b"hello world", 42) == library.xxh3_64_intdigest(b"hello world", 42)


def test_a_character_beyond_16_bits_is_two_units_of_utf16() -> None:
    first, second = (int.from_bytes("𝄞".encode("utf-16-be")[at : at + 2], "big") for at in (0, 2))
    state = 0xCBF29CE484222325
    for unit in (first, second):
        state = state * 0x100000001B3 % 2**64 ^ unit
    assert HASHES["fnv-1-64-utf16"].one("𝄞".encode(), 0) == state


@pytest.mark.parametrize("name", NAMES)
def test_a_short_span_is_not_taken_for_a_longer_one_that_begins_with_it(name: str) -> None:
    if name == "xxh3-64":
        pytest.importorskip("xxhash")
    ends = np.array([*range(18), 15])
    expected = [HASHES[name].one(bytes(end), 0) for end in ends.tolist()]
    assert HASHES[name].many(bytes(20), np.zeros(len(ends), np.int64), ends, 0).tolist() == expected
