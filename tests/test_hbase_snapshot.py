"""Manifests of snapshots: which files they name, and that no damage passes for a file less."""

from __future__ import annotations

import hashlib

import pytest

from hsimhash.hfile.blocks import message_field
from hsimhash.store.hbase.files.snapshot_manifest import SnapshotManifest, StoreFile

ONE, TWO, OTHER = "0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210", "00ff" * 8
INFO = message_field(1, b"one") + message_field(3, 10_000_000)


def message(*fields: tuple[int, int | bytes]) -> bytes:
    return b"".join(message_field(*field) for field in fields)


def family(name: bytes, *settings: tuple[bytes, bytes]) -> bytes:
    return message((1, name), *((2, message((1, key), (2, value))) for key, value in settings))


TABLE = message((1, b"t"), (3, family(b"d", (b"VERSIONS", b"1"), (b"TTL", b"86400"))), (3, family(b"i")))


def region(start: bytes, stop: bytes, *names: str, more: tuple[tuple[int, int], ...] = ()) -> bytes:
    bounds = [(number, row) for number, row in ((3, start), (4, stop)) if row]
    info = message((1, 1_700), (2, message((1, b"crawl"), (2, b"pages"))), *bounds, (5, 0), *more)
    files = [(2, message((1, name.encode()), (3, 4_321))) for name in names]
    return message((1, 0), (2, info), (3, message((1, b"d"), *files)), (3, message((1, b"i"))))


def manifest(*regions: bytes) -> bytes:
    return message((1, TABLE), *((2, one) for one in regions))


def folder(start: bytes) -> str:
    return hashlib.md5(b"crawl:pages," + start + b",1700", usedforsecurity=False).hexdigest()


def test_files_are_named_by_their_regions_parents_and_other_tables() -> None:
    names = (ONE, f"{TWO}_SeqId_12_", f"{ONE}.{OTHER}", f"news={OTHER}-{ONE}", f"crawl=news={OTHER}-{TWO}_SeqId_3_")
    split, replica = region(b"", b"", ONE, more=((6, 1),)), region(b"", b"\x40", ONE, more=((7, 1),))
    found = SnapshotManifest.parse(
        INFO,
        manifest(region(b"\x40", b"", f"news={OTHER}-{ONE}.{OTHER}"), split, replica, region(b"", b"\x40", *names)),
    )
    assert found.oldest == {b"d": 0}
    first, second = found.regions
    own = f"crawl/pages/{folder(b'')}/d"
    assert first.files == {
        b"d": [
            StoreFile(f"{own}/{ONE}", 4_321, None, False),
            StoreFile(f"{own}/{TWO}_SeqId_12_", 4_321, 12, False),
            StoreFile(f"crawl/pages/{OTHER}/d/{ONE}", 4_321, None, True),
            StoreFile(f"default/news/{OTHER}/d/{ONE}", 4_321, None, False),
            StoreFile(f"crawl/news/{OTHER}/d/{TWO}_SeqId_3_", 4_321, 3, False),
        ],
        b"i": [],
    }
    assert second.files[b"d"] == [StoreFile(f"default/news/{OTHER}/d/{ONE}", 4_321, None, True)]
    assert (first.has(b""), first.has(b"\x3f"), first.has(b"\x40"), second.has(b"\xff" * 9)) == (
        True,
        True,
        False,
        True,
    )


def test_what_was_expired_is_told_from_the_time_of_the_snapshot() -> None:
    later = message((1, b"one"), (3, 90_000_007))
    assert SnapshotManifest.parse(later, manifest(region(b"", b""))).oldest == {b"d": 3_600_007}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (manifest(), "do not lie one behind the other|cannot be read"),
        (manifest(region(b"", b"\x40"), region(b"\x41", b"")), "do not lie one behind the other"),
        (manifest(region(b"", b"\x40")), "do not lie one behind the other"),
        (manifest(region(b"", b"", f"{ONE}_del")), "of a kind that is not known"),
        (manifest(region(b"", b"")) + message((3, 0)), "unknown field 3"),
        (manifest(region(b"", b"") + message((3, message((1, b"d"))))), "family b'd' is there twice"),
        (manifest(region(b"", b""))[:-1], "no field|cannot be read"),
        (b"", "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_right_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SnapshotManifest.parse(INFO, data)


def test_no_flipped_bit_and_no_cut_hides_a_file() -> None:
    whole = manifest(region(b"", b"\x40", ONE, TWO), region(b"\x40", b"", f"{OTHER}_SeqId_5_"))
    told = 0
    damaged = [whole[:end] for end in range(len(whole))]
    damaged += [
        whole[: bit >> 3] + bytes([whole[bit >> 3] ^ 1 << (bit & 7)]) + whole[(bit >> 3) + 1 :]
        for bit in range(8 * len(whole))
    ]
    for data in damaged:
        try:
            found = SnapshotManifest.parse(INFO, data)
        except ValueError:
            told += 1
            continue
        # A name may be another one now, under which nothing is found.
        assert [[len(one) for one in its.files.values()] for its in found.regions] == [[2, 0], [1, 0]]
    assert told > len(damaged) // 2
