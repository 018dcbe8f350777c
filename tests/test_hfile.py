"""HFiles: what is written is read again, what is damaged is told, what HBase could not load is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsimhash.errors import CorruptionError
from hsimhash.files import replace_file
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.hfile import HFile, HFileWriter, KeyValue, Written, bloom
from hsimhash.hfile.cells import Encoding, cell_body, constant_bodies
from hsimhash.layout import Layout
from hsimhash.rowkey import encode

encodings = pytest.mark.parametrize("encoding", ["NONE", "FAST_DIFF"])


def random_rows(count: int, seed: int = 1) -> Uint8s:
    rows: Uint8s = np.unique(np.random.default_rng(seed).integers(0, 256, (count, 13), np.uint8), axis=0)
    return rows


def varied_cells(count: int) -> list[KeyValue]:
    """Return cells that share rows, lengths, values, qualifiers' beginnings and timestamps, or do not."""
    draw = random.Random(7)
    rows = [draw.randbytes(13) for _ in range(count // 3)]
    cells = {
        (draw.choice(rows), b"https://example.org/" + b"x" * draw.randrange(300) + draw.randbytes(draw.randrange(3)))
        for _ in range(count)
    }
    values = [b"", b"\0" * 36, *(draw.randbytes(36) for _ in range(3))]
    return [
        KeyValue(row, qualifier, draw.choice([5, 6, 1 << 40]), draw.choice(values)) for row, qualifier in sorted(cells)
    ]


def write(path: Path, family: bytes, append: Callable[[HFileWriter], object], **options: Any) -> Written:
    with replace_file(path) as stream:
        file = HFileWriter(stream, family, **options)
        append(file)
        return file.finish()


def read(path: Path) -> list[KeyValue]:
    with HFile(path) as file:
        file.verify()
        return list(file.cells())


@encodings
def test_rows_come_back_in_order(tmp_path: Path, encoding: Encoding) -> None:
    rows, path = random_rows(5_000), tmp_path / "rows"
    stamp = 1_700_000_000_123

    def append(file: HFileWriter) -> None:
        for part in np.split(rows, [1, 4_000, 4_000]):
            file.append_rows(part)

    written = write(path, b"f", append, timestamp=stamp, encoding=encoding, bloom_kind="ROW")
    assert read(path) == [KeyValue(row.tobytes(), b"", stamp, b"") for row in rows]
    assert written == Written(len(rows), rows[0].tobytes(), rows[-1].tobytes(), path.stat().st_size)


@encodings
def test_cells_of_all_lengths_come_back(tmp_path: Path, encoding: Encoding) -> None:
    cells, path = varied_cells(3_000), tmp_path / "cells"
    write(path, b"d", lambda file: file.append_cells(cells), encoding=encoding, bloom_kind="ROW", block_bytes=4_096)
    assert read(path) == cells


@encodings
def test_rows_of_one_cell_are_as_cells(tmp_path: Path, encoding: Encoding) -> None:
    rows, one, other = random_rows(2_000), tmp_path / "rows", tmp_path / "cells"
    cells = [KeyValue(row.tobytes(), b"", 9, b"") for row in rows]
    write(one, b"f", lambda file: file.append_rows(rows), timestamp=9, encoding=encoding)
    write(other, b"f", lambda file: file.append_cells(cells), encoding=encoding)
    assert read(one) == read(other) == cells


def test_the_example_of_the_page() -> None:
    page = (Path(__file__).parents[1] / "schema" / "hfile.md").read_text(encoding="utf-8")
    body = cell_body([KeyValue(b"\1\2", b"", 5, b""), KeyValue(b"\1\3", b"", 5, b"")], b"f", "FAST_DIFF")
    ((_, constants, size),) = constant_bodies(np.array([[1, 2], [1, 3]], np.uint8), b"f", 5, "FAST_DIFF", 4_096)
    assert constants == body
    assert size == 46
    assert body.hex() in page.replace(" ", "")


def test_an_index_of_two_levels(tmp_path: Path) -> None:
    rows, path = random_rows(5_000), tmp_path / "rows"
    write(path, b"f", lambda file: file.append_rows(rows), block_bytes=512, index_bytes=2_000)
    assert [cell.row for cell in read(path)] == [row.tobytes() for row in rows]


@pytest.mark.parametrize(
    ("append", "message"),
    [
        (lambda file: file.append_rows(random_rows(9)[::-1]), "does not lie behind .*; sort the rows, each once"),
        (lambda file: file.append_rows(random_rows(9)[[0, 1, 1]]), "does not lie behind"),
        (lambda file: [file.append_rows(random_rows(9)[4:6]) for _ in range(2)], "does not lie behind"),
        (lambda file: file.append_rows(random_rows(99)[:1]), r"is not within the region \[10, f0\)"),
        (lambda file: file.append_rows(random_rows(99)[-1:]), r"is not within the region \[10, f0\)"),
        (lambda file: file.append_cells([KeyValue(b"\x11", b"b", 1, b""), KeyValue(b"\x11", b"a", 1, b"")]), "b'a'"),
        (lambda file: None, "without cells; leave it out"),
    ],
)
def test_what_hbase_could_not_load_is_refused_and_no_file_is_left(
    tmp_path: Path, append: Callable[[HFileWriter], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "rows", b"f", append, start=b"\x10", stop=b"\xf0")
    assert list(tmp_path.iterdir()) == []


def read_or_told(path: Path) -> list[KeyValue] | str:
    try:
        with HFile(path) as file:
            return list(file.cells())
    except CorruptionError as error:
        return str(error)


def test_damage_is_told_and_never_read_as_other_cells(tmp_path: Path) -> None:
    cells, whole, path = varied_cells(600), tmp_path / "whole", tmp_path / "damaged"
    write(whole, b"d", lambda file: file.append_cells(cells), bloom_kind="ROW", block_bytes=4_096)
    data, draw, told = whole.read_bytes(), random.Random(3), 0
    for trial in range(600):
        damaged = bytearray(data)
        at = draw.randrange(len(data)) if trial % 3 else len(data) - 4_096 + draw.randrange(120)
        if trial % 2:
            damaged[at] ^= 1 << draw.randrange(8)
        else:
            del damaged[at:]
        path.write_bytes(damaged)
        found = read_or_told(path)
        if isinstance(found, str):
            assert f"{path}: at byte " in found
            told += 1
        else:
            assert found == cells
    assert told > 300


def test_the_bloom_filter_knows_its_keys_and_few_others() -> None:
    rows = random_rows(20_000)
    keys, others = rows[::2], rows[1::2]
    bits = np.unpackbits(np.frombuffer(bloom.chunk(keys), np.uint8), bitorder="little").astype(bool)
    assert len(bits) == 8 * 16_384  # an eighth of a chunk for a tenth of its keys

    def are_known(some: Uint8s) -> Uint8s:
        at = bloom.murmur(some, np.zeros(len(some), np.uint32))
        step, known = bloom.murmur(some, at), np.ones(len(some), bool)
        for _ in range(bloom.HASHES):
            known &= bits[np.abs(np.fmod(at.view(np.int32).astype(np.int64), len(bits)))]
            at = at + step
        return known.view(np.uint8)

    assert are_known(keys).all()
    assert are_known(others).mean() < 0.02


@pytest.mark.parametrize(
    ("key", "first", "second"),  # as HBase 2.6's MurmurHash computed them, the second with the first as its seed
    [
        ("0102030405", 4142326558, 4275094381),
        ("01020304fd", 183654573, 386977247),  # behind whole words bytes are signed
        ("01020304c8c9ca", 3453013418, 1545738876),
        ("c8ff030405060708090a0b0cc8", 3817143142, 3304976532),
    ],
)
def test_the_hash_is_that_of_hbase(key: str, first: int, second: int) -> None:
    keys = np.frombuffer(bytes.fromhex(key), np.uint8)[None]
    hashed = bloom.murmur(keys, np.zeros(1, np.uint32))
    assert hashed.tolist() == [first]
    assert bloom.murmur(keys, hashed).tolist() == [second]


def test_files_are_small(tmp_path: Path) -> None:
    fingerprints = np.random.default_rng(1).integers(0, 2**64, 20_000, np.uint64)
    rows = np.unique(encode(Layout.named("10"), fingerprints).reshape(-1, 13), axis=0)
    written = write(tmp_path / "f", b"f", lambda file: file.append_rows(rows), bloom_kind="ROWPREFIX_FIXED_LENGTH")
    assert written.size / len(rows) < 17
