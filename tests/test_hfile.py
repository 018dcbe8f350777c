"""HFiles: written files read back the same, damage is reported, and what HBase could not load is refused."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hsimhash.errors import CorruptionError
from hsimhash.files import replace_file
from hsimhash.fingerprint.bits import Uint8s
from hsimhash.hfile import BloomFilter, FileSettings, HFileWriter, KeyValue, Staged, bloom
from hsimhash.hfile.cells import Encoding, cell_body, constant_bodies
from hsimhash.layout import Layout
from hsimhash.rowkey import encode
from tests.support.hfile_reader import HFile

encodings = pytest.mark.parametrize("encoding", ["NONE", "FAST_DIFF"])


def random_rows(count: int, seed: int = 1) -> Uint8s:
    rows: Uint8s = np.unique(np.random.default_rng(seed).integers(0, 256, (count, 13), np.uint8), axis=0)
    return rows


def varied_cells(count: int) -> list[KeyValue]:
    """Return cells, some of which share rows, lengths, values, qualifier prefixes or timestamps."""
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


WHOLE_ROWS = BloomFilter()
PINNED = "b1e4be44624d13dd966605be6d0048f943db786f7edf85676cddee01bc8ccfbf"  # SHA-256 of a file


def write(
    path: Path,
    append: Callable[[HFileWriter], object],
    within: tuple[bytes, bytes] = (b"", b""),
    **settings: Any,
) -> Staged:
    with replace_file(path) as stream:
        file = HFileWriter(stream, b"f", FileSettings(**settings), within=within)
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
            file.append_rows(part, stamp)

    written = write(path, append, encoding=encoding, bloom=WHOLE_ROWS)
    assert read(path) == [KeyValue(row.tobytes(), b"", stamp, b"") for row in rows]
    assert written == Staged(len(rows), path.stat().st_size)


@encodings
def test_cells_of_all_lengths_come_back(tmp_path: Path, encoding: Encoding) -> None:
    cells, path = varied_cells(3_000), tmp_path / "cells"

    def append(file: HFileWriter) -> None:
        for start in range(0, len(cells), 7):
            file.append_cells(cells[start : start + 7])

    settings = {"encoding": encoding, "bloom": WHOLE_ROWS, "block_bytes": 4_096}
    written = write(path, append, **settings)
    assert read(path) == cells
    assert write(path, lambda file: file.append_cells(cells), **settings) == written  # a call does not end a block


@encodings
@pytest.mark.parametrize("width", [1, 13, 125])
def test_rows_of_one_cell_are_as_cells(tmp_path: Path, encoding: Encoding, width: int) -> None:
    rows = np.unique(np.random.default_rng(1).integers(0, 256, (2_000, width), np.uint8), axis=0)
    if width > 1:
        rows[100:, : width - 1] = rows[100, : width - 1]  # many share all but the last byte
        rows = np.unique(rows, axis=0)
    one, other = tmp_path / "rows", tmp_path / "cells"
    cells = [KeyValue(row.tobytes(), b"", 9, b"") for row in rows]
    write(one, lambda file: file.append_rows(rows, 9), encoding=encoding)
    write(other, lambda file: file.append_cells(cells), encoding=encoding)
    assert read(one) == read(other) == cells


@encodings
@pytest.mark.parametrize("size", [0, 36])
def test_columns_are_as_cells(tmp_path: Path, encoding: Encoding, size: int) -> None:
    random = np.random.default_rng(5)
    rows = np.sort(np.concatenate([random_rows(2_000), np.repeat(random_rows(5), 60, axis=0)]).view("V13"), axis=0)
    words = [b"https://example.org/" * int(number) for number in random.integers(0, 4, len(rows))]
    ids = [word + b"%06d" % place + b"x" * (place % 700 == 3) * 2_030 for place, word in enumerate(words)]
    cells = sorted(zip((row.tobytes() for row in rows), ids, strict=True))
    values = random.integers(0, 2, (len(cells), size), np.uint8)
    values[500:600] = 1  # each equal to the previous value
    stamp = 1_700_000_000_123
    expected = [
        KeyValue(row, doc_id, stamp, value.tobytes()) for (row, doc_id), value in zip(cells, values, strict=True)
    ]
    keys, qualifiers = np.array([list(row) for row, _ in cells], np.uint8), [doc_id for _, doc_id in cells]
    one, other = tmp_path / "columns", tmp_path / "cells"
    settings = {"encoding": encoding, "bloom": WHOLE_ROWS, "block_bytes": 4_096}

    def append(file: HFileWriter) -> None:
        file.append_columns(keys[:700], qualifiers[:700], stamp, values[:700])
        file.append_columns(keys[700:], qualifiers[700:], stamp, values[700:])

    def append_cells(file: HFileWriter) -> None:
        file.append_cells(expected[:700])
        if encoding == "FAST_DIFF":
            file.append_columns(keys[:0], [], stamp, values[:0])  # ends a block, as the columns do
        file.append_cells(expected[700:])

    write(one, append, **settings)
    write(other, append_cells, **settings)
    assert one.read_bytes() == other.read_bytes()
    assert read(one) == expected


def test_columns_out_of_order_are_refused(tmp_path: Path) -> None:
    rows = np.repeat(random_rows(2), 2, axis=0)
    for qualifiers in ([b"b", b"a", b"a", b"b"], [b"a", b"a", b"a", b"b"]):
        with pytest.raises(ValueError, match="does not come after"):
            write(tmp_path / "file", lambda file, its=qualifiers: file.append_columns(rows, its, 1))
    with pytest.raises(ValueError, match="a qualifier must have at most 1,048,576 bytes"):
        write(tmp_path / "file", lambda file: file.append_columns(rows, [b"a", b"b", b"a", b"x" * (1 << 20 | 1)], 1))
    with pytest.raises(ValueError, match="4 rows, 3 qualifiers"):
        write(tmp_path / "file", lambda file: file.append_columns(rows, [b"a"] * 3, 1))


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    rows, path = random_rows(1_000), tmp_path / "rows"
    write(path, lambda file: file.append_rows(rows, 9), bloom=BloomFilter(5))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == PINNED


def test_the_example_of_the_page() -> None:
    page = (Path(__file__).parents[1] / "schema" / "hfile.md").read_text(encoding="utf-8")
    body = cell_body([KeyValue(b"\1\2", b"", 5, b""), KeyValue(b"\1\3", b"", 5, b"")], b"f", "FAST_DIFF")
    ((_, constants, size),) = constant_bodies(np.array([[1, 2], [1, 3]], np.uint8), b"f", 5, "FAST_DIFF", 4_096)
    assert constants == body
    assert size == 46
    assert body.hex() in page.replace(" ", "")


def test_an_index_of_two_levels(tmp_path: Path) -> None:
    rows, path = random_rows(5_000), tmp_path / "rows"
    write(path, lambda file: file.append_rows(rows, 9), block_bytes=512, index_bytes=2_000)
    assert [cell.row for cell in read(path)] == [row.tobytes() for row in rows]


def cell(row: bytes, qualifier: bytes = b"", timestamp: int = 1, kind: int = 4) -> KeyValue:
    return KeyValue(row, qualifier, timestamp, b"", kind)


@pytest.mark.parametrize(
    ("append", "message"),
    [
        (
            lambda file: file.append_rows(random_rows(9)[::-1], 1),
            "does not come after .*; sort the rows and remove duplicates",
        ),
        (lambda file: file.append_rows(random_rows(9)[[4, 5, 5]], 1), "does not come after"),
        (lambda file: [file.append_rows(random_rows(9)[4:6], 1) for _ in range(2)], "does not come after"),
        (lambda file: file.append_rows(random_rows(99)[:1], 1), r"is outside the region \[10, f0\)"),
        (lambda file: file.append_rows(random_rows(99)[-1:], 1), r"is outside the region \[10, f0\)"),
        (lambda file: file.append_rows(np.full((1, 126), 32, np.uint8), 1), "append longer rows with append_cells"),
        (
            lambda file: file.append_rows(np.full((1, 13, 1), 32, np.uint8), 1),
            r"must have shape \(n, 1 to 125\), got \(1, 13, 1\)",
        ),
        (lambda file: file.append_rows(random_rows(9)[4:5], 2**63 - 1), "must be in ms since 1970"),
        (lambda file: file.append_cells([cell(b"\x11", b"b"), cell(b"\x11", b"a")]), "b'a'"),
        (lambda file: file.append_cells([cell(b"\x11", timestamp=-1)]), "timestamp must be in ms since 1970, got -1"),
        (lambda file: file.append_cells([cell(b"\x11", kind=8)]), "kind must be 4"),
        (lambda file: file.append_cells([cell(b"\x11"), cell(b"\x11\x11")]), "key of 2 bytes, but earlier keys have 1"),
        (lambda file: file.append_cells([cell(b"\x11" * 32_768)]), "must have 1 to 32,767 bytes"),
        (lambda file: None, "at least one cell; do not write an empty file"),
    ],
)
def test_what_hbase_could_not_load_is_refused_and_no_file_is_left(
    tmp_path: Path, append: Callable[[HFileWriter], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "rows", append, (b"\x10", b"\xf0"), bloom=WHOLE_ROWS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows", [np.array([[1, 2]]), np.array([[1, 2]], np.int8), [[1, 2]]])
def test_rows_are_bytes(rows: Any) -> None:
    with pytest.raises(TypeError, match="rows must be an array of uint8, got"):
        HFileWriter(io.BytesIO(), b"f").append_rows(rows, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FileSettings(encoding="DIFF"), "unknown encoding 'DIFF'; choose one of NONE, FAST_DIFF"),  # type: ignore[arg-type]
        (lambda: FileSettings(block_bytes=0), "must be at least 1, got 0"),
        (lambda: BloomFilter(0), "must be at least 1, or None for whole rows"),
        (lambda: HFileWriter(io.BytesIO(), b""), "the family must have 1 to 127 bytes, got 0"),
    ],
)
def test_settings_that_hbase_does_not_have_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_after_an_error_or_the_end_nothing_is_appended(tmp_path: Path) -> None:
    failed, finished = HFileWriter(io.BytesIO(), b"f"), HFileWriter(io.BytesIO(), b"f")
    with pytest.raises(ValueError, match="does not come after"):
        failed.append_cells([cell(b"b"), cell(b"a")])
    finished.append_cells([cell(b"a")])
    finished.finish()
    for file in (failed, finished):
        for act in (file.finish, lambda file=file: file.append_cells([cell(b"c")])):
            with pytest.raises(ValueError, match="create a new writer"):
                act()


def test_damage_of_a_file_is_told_with_its_path(tmp_path: Path) -> None:  # `stress.hfile_damage` tries all kinds
    path = tmp_path / "damaged"
    write(path, lambda file: file.append_cells(varied_cells(600)), block_bytes=4_096)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match=f"{path}: at byte "), HFile(path) as file:
        list(file.cells())


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
    ("key", "first", "second"),  # computed by HBase 2.6's MurmurHash, the second with the first as its seed
    [
        ("0102030405", 4142326558, 4275094381),
        ("01020304fd", 183654573, 386977247),  # bytes after the last whole word are signed
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
    written = write(tmp_path / "f", lambda file: file.append_rows(rows, 9), bloom=BloomFilter(5))
    assert written.size / len(rows) < 17
