"""Parquet and CSV: every row is read as the same line of JSON would be, and reading can resume at any place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute  # which makes it an attribute of pyarrow
import pyarrow.parquet as pq
import pytest

from hsimhash.fingerprint.document_fields import join_fields
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.arrow_values import ArrowValues
from hsimhash.inputs.lines import RECORD_LIMIT_BYTES
from hsimhash.inputs.reader import Batch, Position, read_batches, texts_at
from tests.support.archives import PACK
from tests.support.effort import thorough
from tests.test_inputs import contents, read

PAGE = "<!DOCTYPE html><html><body><nav>menu</nav><article><p>{}</p></article></body></html>"
TEXT = "The quick brown fox jumps over the lazy dog while the crew of the ship looks on in silence. " * 6


def batches_of(
    path: Path, start: Position | None = None, block_bytes: int = 1 << 18, fields: tuple[str, ...] = (), **options: Any
) -> list[Batch]:
    reading = InputOptions(**options)
    inputs = find_inputs([str(path)], reading)
    return list(read_batches(inputs, reading, start, block_bytes=block_bytes, fields=fields, workers=1))


def parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pq.write_table(pa.table(columns), path / "in.parquet", **options)
    return path / "in.parquet"


def csv_file(path: Path, data: bytes, name: str = "in.csv") -> Path:
    (path / name).write_bytes(data)
    return path / name


# Both formats.


@pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
def test_a_table_holds_what_the_same_lines_of_json_hold(form: str, tmp_path: Path) -> None:
    rows = [{"url": f"http://x/{n}", "body": f"text, {n}\n“二”", "seen": 1000 + n, "rank": n} for n in range(3_000)]
    path = tmp_path / f"in.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=700)
    elif form == "csv":
        lines = [f'{row["rank"]},"{row["body"]}",{row["url"]},{row["seen"]}\r\n' for row in rows]
        path.write_text("rank,body,url,seen\r\n" + "".join(lines), newline="")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"id_field": "url", "text_field": "body", "first_seen_field": "seen"}
    batches = batches_of(path, fields=("rank",), **options)
    assert contents(batches) == ([(str(row["url"]), str(row["body"])) for row in rows], [])
    assert [time for one in batches for time in one.documents.first_seen] == [row["seen"] for row in rows]
    ranks = [int(str(rank)) for one in batches for rank in one.documents.fields.get("rank", ())]
    assert ranks == list(range(3_000))


def test_fingerprints_are_read_from_both(tmp_path: Path) -> None:
    columns = {"id": ["a", "b"], "fp": ["0123456789abcdef", "00000000000000ff"]}
    expected = list(zip(*columns.values(), strict=True))
    assert contents(batches_of(parquet(tmp_path, columns), fingerprint_field="fp"))[0] == expected
    lines = "id,fp,sketch\n" + "".join(f"{doc_id},{fp},\n" for doc_id, fp in expected)
    assert contents(batches_of(csv_file(tmp_path, lines.encode()), fingerprint_field="fp"))[0] == expected


def test_weighted_fields_are_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path, {"id": ["a"], "title": ["T"], "heads": [["x", "y"]], "more": [1]})
    reading = InputOptions(fields=("title", "heads"))
    (batch, *_) = read_batches(find_inputs([str(path)], reading), reading)
    assert batch.documents.texts == [join_fields(["T", "x\ny"])]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_text_that_begins_as_a_page_is_one(form: str, tmp_path: Path) -> None:
    pages = [PAGE.format(TEXT), f"\n<!-- a page -->\n{PAGE.format(TEXT)}", f"plain < text {TEXT}"]
    coded = [page.encode() for page in pages]
    if form == "parquet":
        path = parquet(tmp_path, {"id": ["a", "b", "c"], "text": pages})
    else:
        path = csv_file(
            tmp_path, b"id,text\n" + b"".join(b'%c,"%s"\n' % pair for pair in zip(b"abc", coded, strict=True))
        )
    assert contents(batches_of(path))[0] == [("a", TEXT.strip()), ("b", TEXT.strip()), ("c", pages[2])]
    assert contents(batches_of(path, extract="none"))[0][0] == ("a", f"menu\n{TEXT.strip()}")


@pytest.mark.parametrize("form", ["parquet", "csv"])
@pytest.mark.parametrize(("options", "missing"), [({"id_field": "url"}, '"url"'), ({"text_field": "body"}, '"body"')])
def test_a_missing_column_is_named_with_those_there_are(
    form: str, options: dict[str, str], missing: str, tmp_path: Path
) -> None:
    path = parquet(tmp_path, {"id": ["a"], "text": ["b"]}) if form == "parquet" else csv_file(tmp_path, b"id,text\na,b")
    with pytest.raises(ValueError, match=f"no column {missing}; the columns are id, text; pass [a-z_]+=.NAME."):
        batches_of(path, **options)


def test_a_second_look_finds_the_texts_again(tmp_path: Path) -> None:
    path = parquet(tmp_path, {"id": ["a", "b", "c"], "text": ["x", PAGE.format(TEXT), "z"]})
    (one,) = find_inputs([str(path)], InputOptions())
    assert list(texts_at(one, InputOptions(), [2, 3])) == [(2, "b", TEXT.strip()), (3, "c", "z")]


# Parquet.


def test_any_row_of_parquet_is_a_place_to_go_on_from(tmp_path: Path) -> None:
    columns = {"id": [f"{n}" for n in range(40)], "text": [f"text {n}" for n in range(40)]}
    path = parquet(tmp_path, columns, row_group_size=7)
    batches = batches_of(path, block_bytes=40)
    whole = contents(batches)
    assert len(batches) > 12
    for number, batch in enumerate(batches, start=1):
        rest = contents(batches_of(path, batch.end, block_bytes=90))
        assert contents(batches[:number])[0] + rest[0] == whole[0]


def test_rows_of_parquet_that_are_no_documents_are_rejected(tmp_path: Path) -> None:
    texts = [b"good", b"\xff", None, b"x" * (RECORD_LIMIT_BYTES + 1), b"good too"]
    path = parquet(tmp_path, {"id": ["a", "b", "c", "d", "e"], "text": pa.array(texts, pa.binary())})
    pairs, rejects = contents(batches_of(path))
    assert pairs == [("a", "good"), ("e", "good too")]
    assert rejects == [
        (2, 'column "text": not UTF-8: invalid start byte at byte 0'),
        (3, '"text" must be a string, got null'),
        (4, 'column "text": longer than 16 MiB'),
    ]


def test_a_damaged_row_group_is_rejected_and_the_others_are_read(tmp_path: Path) -> None:
    columns = {"id": [f"{n}" for n in range(30)], "text": [f"text {n}" for n in range(30)]}
    path = parquet(tmp_path, columns, row_group_size=10, compression="zstd", use_dictionary=False)
    column = pq.ParquetFile(path).metadata.row_group(1).column(1)
    data = bytearray(path.read_bytes())
    at = column.data_page_offset
    data[at : at + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(data)
    pairs, rejects = contents(batches_of(path))
    assert [doc_id for doc_id, _ in pairs] == [f"{n}" for n in [*range(10), *range(20, 30)]]
    ((line, reason),) = rejects
    assert line == 20
    assert "rows 11 to 20 cannot be read" in reason


def test_a_parquet_file_without_columns_stops_nothing(tmp_path: Path) -> None:
    empty, good = tmp_path / "empty.parquet", parquet(tmp_path, {"id": ["a"], "text": ["b"]})
    pq.write_table(pa.table({}), empty)
    assert read(empty, good) == ([("a", "b")], [])


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_float_that_may_stand_for_several_integers_is_no_id(form: str, tmp_path: Path) -> None:
    ids, path = [2.0**53 - 1, 2.0**53, -(2.0**53)], tmp_path / f"in.{form}"
    if form == "parquet":
        parquet(tmp_path, {"id": ids, "text": ["a", "b", "c"]})
    else:
        path.write_text("".join(f'{{"id": {one:.1f}, "text": "a"}}\n' for one in ids))
    pairs, rejects = read(path)
    assert [doc_id for doc_id, _ in pairs] == ["9007199254740991"]
    assert [reason.split(", ")[0] for _, reason in rejects] == ['"id" must be a string or a whole number'] * 2


def test_what_is_no_parquet_is_one_reject(tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_bytes(b"PAR1 something else")
    ((_, reason),) = contents(batches_of(tmp_path / "in.parquet"))[1]
    assert "damaged, or not Parquet" in reason


# CSV.


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_any_row_of_csv_is_a_place_to_go_on_from(packing: str, mark: bytes, end: bytes, tmp_path: Path) -> None:
    rows = [b'%d,"text\n%d"' % (n, n) if n % 3 else b"%d,\xe4\xba\x8c" % n for n in range(30)]
    data = mark + b"\n".join([b"id,text", *rows[:9], b"", b"bad", *rows[9:]]) + end
    path = csv_file(tmp_path, PACK[packing](data), f"in.csv{packing}")
    batches = batches_of(path, block_bytes=1)
    whole = contents(batches)
    assert [doc_id for doc_id, _ in whole[0]] == [f"{n}" for n in range(30)]
    assert whole[1] == [(18, "1 column: expected 2, as in the header")]
    for number, batch in enumerate(batches, start=1):
        before, rest = contents(batches[:number]), contents(batches_of(path, batch.end))
        assert (before[0] + rest[0], before[1] + rest[1]) == whole


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (b'"he said \\"hi\\" to me"', 'he said "hi" to me'),
        (b'"a, \\"b\\", c"', 'a, "b", c'),
        (b'"two\nlines, \\"quoted\\" here"', 'two\nlines, "quoted" here'),
        (b'"\\"two\\"\nlines"', '"two"\nlines'),
        (b'"a \\"b\\" and \\\\ ""c"""', 'a "b" and \\ "c"'),
        (b'"C:\\"', "C:\\"),  # valid as it is
        (b'"C:\\","D:\\"', None),
        (b'"a "b" and \\"c\\""', None),
        (b'a \\"b\\" c', 'a \\"b\\" c'),
    ],
)
def test_quotes_behind_backslashes_are_read_where_the_row_is_invalid_otherwise(
    written: bytes, text: str | None, tmp_path: Path
) -> None:
    data = b"id,text\na,b\nx," + written + b"\nc,d\n"
    pairs, rejects = contents(batches_of(csv_file(tmp_path, data)))
    assert pairs == [("a", "b"), *([] if text is None else [("x", text)]), ("c", "d")]
    assert [line for line, _ in rejects] == ([3] if text is None else [])


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\xff\xfe"])
def test_a_tsv_whose_first_line_names_the_text_is_a_table(mark: bytes, tmp_path: Path) -> None:
    data = 'url\tid\t"text"\r\nu\ta\t"two\nlines"\r\nv\tb\t5" nails\r\n'
    path = csv_file(tmp_path, mark + data.encode("utf-16-le" if mark == b"\xff\xfe" else "utf-8"), "in.tsv")
    batches = batches_of(path)
    assert contents(batches) == ([("a", "two\nlines"), ("b", '5" nails')], [])
    assert find_inputs([str(path)], InputOptions())[0].note == f"{path} holds a table (as texts: --format tsv)"
    assert contents(batches_of(path, format="tsv"))[0][0] == ("url", 'id\t"text"')


@pytest.mark.parametrize(
    "first",
    [
        b"a\ttext",
        b"a\tthe text",
        b"a\ttexts",
        b"text",
        b"texts\tb",
        b"id\t\ttext",
        b"a\ta\ttext",
        b"a\t" + b"b" * 65 + b"\ttext",
    ],
)
def test_a_tsv_whose_first_line_is_a_record_has_no_header(first: bytes, tmp_path: Path) -> None:
    (one,) = find_inputs([str(csv_file(tmp_path, first + b"\nb\tmore\n", "in.tsv"))], InputOptions())
    assert one.kind == "tsv"


def test_bad_rows_of_csv_are_rejected_by_their_first_lines(tmp_path: Path) -> None:
    data = b'id,text\na,"two\nlines"\nb,\xff\nc\n,x\nd,"' + b"y" * (RECORD_LIMIT_BYTES + 1) + b'"\ne,good\n'
    pairs, rejects = contents(batches_of(csv_file(tmp_path, data)))
    assert pairs == [("a", "two\nlines"), ("e", "good")]
    assert [line for line, _ in rejects] == [4, 5, 6, 7]
    for (_, reason), told in zip(
        rejects, ('column "text": not UTF-8', "1 column: expected 2", "1 to 2048 UTF-8 bytes", "longer"), strict=True
    ):
        assert told in reason


def test_a_table_with_tabs_is_csv_if_that_is_said(tmp_path: Path) -> None:
    path = csv_file(tmp_path, b"text\tid\none, two\ta\n", "in.tsv")
    assert contents(batches_of(path, format="csv")) == ([("a", "one, two")], [])


def test_a_cut_off_csv_keeps_what_came_before(tmp_path: Path) -> None:
    data = gzip.compress(b"id,text\n" + b"".join(b"%d,%d\n" % (n, n * 7919) for n in range(50_000)))
    batches = batches_of(csv_file(tmp_path, data[: len(data) // 2], "in.csv.gz"))
    pairs, rejects = contents(batches)
    assert len(pairs) > 10_000
    assert "damaged or truncated near byte" in rejects[-1][1]
    assert [batch.documents.damage for batch in batches if batch.documents.damage] == [rejects[-1][1]]


@pytest.mark.parametrize("text", [pa.string(), pa.dictionary(pa.int32(), pa.string())], ids=["plain", "dictionary"])
def test_a_nested_value_has_its_own_size_whatever_others_have(text: pa.DataType) -> None:
    lists = pa.array([["a"], ["b" * 1_000, "c"], None, [], ["d", "e"]], pa.list_(text))
    maps = pa.array([[("k", "a")], [("k", "b" * 1_000)], None, []], pa.map_(pa.string(), text))
    structs = pa.array([{"of": ["a"]}, {"of": ["b" * 1_000]}, {"of": None}, None], pa.struct({"of": pa.list_(text)}))
    sizes = ArrowValues(pa).sizes
    assert sizes(lists).tolist() == [1, 1_001, 0, 0, 2]
    assert sizes(lists[1:4]).tolist() == [1_001, 0, 0]
    assert sizes(maps).tolist() == [2, 1_001, 0, 0]
    assert sizes(structs).tolist() == [1, 1_000, 0, 0]
    assert sizes(structs[1:]).tolist() == [1_000, 0, 0]
    assert sizes(lists[:0]).tolist() == []


@thorough
def test_a_long_nested_value_costs_no_other_row(tmp_path: Path) -> None:
    texts = [[("text", text)] for text in ("one", "long " * (20 << 20), "two")]
    table = pa.table({"id": ["a", "b", "c"], "text": pa.array(texts, pa.map_(pa.string(), pa.string()))})
    pq.write_table(table, tmp_path / "in.parquet", compression="snappy")
    pairs, rejects = contents(batches_of(tmp_path / "in.parquet", text_field="text.text"))
    assert pairs == [("a", "one"), ("c", "two")]
    assert [line for line, _ in rejects] == [2]
