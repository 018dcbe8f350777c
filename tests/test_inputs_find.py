"""Inputs on a command line are read as what they are: texts, records, folders of both, with or without ids."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.inputs.lines import path_order
from tests.support.archives import PACK
from tests.test_inputs import batches_of, contents, read

RECORDS = [
    {"url": f"http://x/{n}", "body": f"a text of some words {n}", "meta": {"lang": "en", "n": n}} for n in range(4)
]


def json_lines(records: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def texts(path: Path, **files: str) -> Path:
    for name, text in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


# Text files named on the command line.


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", ["notes.txt", "README.md", "Makefile", "man.1", "pages.data"])
def test_a_named_text_file_is_one_document(name: str, packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}{packing}"
    path.write_bytes(PACK[packing](b"one\ntext\n"))
    assert read(path) == ([(str(path), "one\ntext\n")], [])


def test_in_a_folder_a_file_comes_before_its_copies(tmp_path: Path) -> None:
    """`dedup` keeps the first document of a cluster, which should not be the copy."""
    names = ["a.txt", "a (1).txt", "a - Copy.txt", "a-v2.txt", "a.txt.bak", "a_final.txt", "b.txt"]
    texts(tmp_path, **dict.fromkeys(names, "words"))
    assert [doc_id for doc_id, _ in read(tmp_path)[0]] == names
    assert sorted(["a (1).txt.gz", "b/a-1.txt", "a.txt.gz", "b/a.txt"], key=path_order) == [
        "a.txt.gz",
        "a (1).txt.gz",
        "b/a.txt",
        "b/a-1.txt",
    ]


@pytest.mark.parametrize("packing", PACK)
def test_packed_texts_in_a_folder_are_read(packing: str, tmp_path: Path) -> None:
    (tmp_path / f"a.txt{packing}").write_bytes(PACK[packing](b"some text"))
    assert read(tmp_path) == ([(f"a.txt{packing}", "some text")], [])


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (json_lines(RECORDS), "jsonl"),
        (b"PAR1...", "parquet"),
        (b"WARC/1.0\r\n", "warc"),
        (b"words", "files"),
        (b"", "files"),
        (b"{not json}", "files"),
    ],
)
def test_a_name_that_tells_nothing_is_told_by_its_content(data: bytes, kind: str, tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(data)
    (found,) = find_inputs([str(tmp_path / "dump")], InputOptions(text_field="body"))
    assert found.kind == kind


def test_a_binary_file_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\x00\x10JFIF\x00")
    with pytest.raises(
        ValueError, match=r"photo.jpg is not text: convert it to text first, or name its format with format="
    ):
        find_inputs([str(tmp_path / "photo.jpg")], InputOptions())


def test_format_lines_reads_a_text_per_line(tmp_path: Path) -> None:
    path = texts(tmp_path, **{"lines.txt": "one text\n\nanother one\r\n"}) / "lines.txt"
    assert read(path, format="lines") == ([(f"{path}:1", "one text"), (f"{path}:3", "another one")], [])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", ["in.txt", "in.jsonl", "in.tsv", "in.lines"])
def test_every_kind_of_text_may_be_utf16(name: str, packing: str, encoding: str, tmp_path: Path) -> None:
    text = "two lines of text, 二行"
    data = {"in.jsonl": json.dumps({"id": "a", "text": text}, ensure_ascii=False), "in.tsv": f"a\t{text}"}.get(
        name, text
    )
    path = tmp_path / f"{name}{packing}"
    path.write_bytes(PACK[packing](f"{data}\n".encode(encoding)))
    (pair,), rejects = read(path, format="lines" if name == "in.lines" else "auto")
    assert (pair[1].strip(), rejects) == (text, [])


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("end", ["\r", "\r\n"])
def test_lines_may_end_as_on_any_system(end: str, packing: str, tmp_path: Path) -> None:
    for name, line in {"in.jsonl": '{{"id": "{0}", "text": "t {0}"}}', "in.tsv": "{0}\tt {0}"}.items():
        path = tmp_path / f"{name}{packing}"
        path.write_bytes(PACK[packing]("".join(line.format(n) + end for n in range(50)).encode()))
        batches = batches_of(path, block_bytes=64)
        assert contents(batches) == ([(str(n), f"t {n}") for n in range(50)], [])
        for batch in batches[:-1:3]:
            done = len(contents(batches[: batches.index(batch) + 1])[0])
            assert contents(batches_of(path, start=batch.end))[0] == contents(batches)[0][done:]


def test_a_byte_order_mark_may_stand_before_any_object_and_the_first_line_of_others(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "a", "text": "b"}\n' * 2)
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbfa\ttext\n" * 2)
    (tmp_path / "fp.tsv").write_bytes(b"\xef\xbb\xbfa\t0123456789abcdef\n" * 2)
    for name, second in {"a.jsonl": "a", "a.tsv": "\ufeffa", "fp.tsv": "\ufeffa"}.items():
        pairs, rejects = read(tmp_path / name)
        assert ([doc_id for doc_id, _ in pairs], rejects) == (["a", second], [])


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_zeros_may_pad_a_packed_file(packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl{packing}"
    path.write_bytes(PACK[packing](b'{"id": "a", "text": "b"}\n') + bytes(3_000))
    assert read(path) == ([("a", "b")], [])


# Folders.


def shards(path: Path) -> Path:
    """Make a folder as Spark and people leave it: texts, records of every kind, and marker files."""
    folder = texts(path / "mixed", **{"a.txt": "a plain text", "sub/b.md": "another text"})
    (folder / "part-0.jsonl").write_bytes(json_lines([{"id": "j", "text": "from JSON"}]))
    (folder / "part-1.jsonl.gz").write_bytes(gzip.compress(json_lines([{"text": "no id"}])))
    (folder / "sub/t.csv").write_bytes(b"id,text\nc,from CSV\n")
    (folder / "list.json").write_text(json.dumps([{"id": "l", "text": "from a list"}]))
    pq.write_table(pa.table({"id": ["p"], "text": ["from Parquet"]}), folder / "t.parquet")
    for mark in ("_SUCCESS", ".part-0.jsonl.crc", "_started_1"):
        (folder / mark).write_bytes(b"")
    return folder


def test_a_folder_of_texts_and_records_is_read_for_what_it_holds_and_says_so(tmp_path: Path) -> None:
    folder = shards(tmp_path)
    pairs, rejects = read(folder)
    assert (dict(pairs), rejects) == (
        {
            "a.txt": "a plain text",
            "sub/b.md": "another text",
            "l": "from a list",
            "j": "from JSON",
            "part-1.jsonl.gz:1": "no id",
            "c": "from CSV",
            "p": "from Parquet",
        },
        [],
    )
    note = find_inputs([str(folder)], InputOptions())[0].note
    assert (
        note == f"{folder} holds 2 text files, 5 files of records (list.json, part-0.jsonl, part-1.jsonl.gz and 2 more)"
    )


def test_documents_of_two_folders_are_told_apart_by_the_folders_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two copies of a folder that are compared contain the same names."""
    monkeypatch.chdir(tmp_path)
    alone = [doc_id for doc_id, _ in read(shards(tmp_path))[0]]
    shards(tmp_path).rename("b")
    shards(tmp_path)
    in_both = [doc_id for doc_id, _ in read("./mixed/", "b")[0]]
    records = {"l", "j", "c", "p"}  # these ids come from the records
    assert in_both == [
        doc_id if doc_id in records else f"{folder}/{doc_id}" for folder in ("mixed", "b") for doc_id in alone
    ]
    found = find_inputs(["./mixed/", "b"], InputOptions())
    folders = [one for one in found if one.kind == "files"]
    assert [one.path_of(doc_id) for one in folders for doc_id, _ in one.documents_in()] == [
        f"{folder}/{name}" for folder in ("./mixed", "b") for name in ("a.txt", "sub/b.md")
    ]


def test_a_folder_of_shards_holds_no_other_documents(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for number in range(3):
        records: list[dict[str, object]] = [{"id": f"{number}-{n}", "text": f"text {n}"} for n in range(20)]
        (tmp_path / f"out/part-{number}.jsonl").write_bytes(json_lines(records))
    (tmp_path / "out/_SUCCESS").touch()
    assert len(read(tmp_path / "out")[0]) == 60


def test_format_files_reads_each_file_as_one_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines(RECORDS))
    assert read(tmp_path, format="files") == ([("a.jsonl", json_lines(RECORDS).decode())], [])
    assert len(read(tmp_path / "a.jsonl", format="files")[0]) == 1


def test_a_format_holds_for_each_file_of_a_folder(tmp_path: Path) -> None:
    texts(tmp_path, part0="a\tone\n", part1="b\ttwo\n")
    assert read(tmp_path, format="tsv") == ([("a", "one"), ("b", "two")], [])


def test_a_file_of_records_that_cannot_be_one_is_a_reject_and_the_texts_are_read(tmp_path: Path) -> None:
    texts(tmp_path, **{"a.txt": "a text", "package.json": '[{"name": "x"}, {"name": "y"}]', "b.tsv": "id\tfp\na\t7\n"})
    pairs, rejects = read(tmp_path)
    assert pairs == [("a.txt", "a text")]
    assert "lines are an id, a tab and a fingerprint" in rejects[0][1]
    assert rejects[1] == (1, 'no field "text"; the fields are name; pass --text-field name')
    note = find_inputs([str(tmp_path)], InputOptions())[0].note
    assert 'package.json is not read: no field "text"' in note


@pytest.mark.parametrize("content", [b"id,body\nb,two\n", b'id,"text\nb,two\n', b'"id","te"xt"\nb,two\n'])
def test_a_table_that_cannot_be_one_is_a_reject_among_others_and_refused_alone(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines([{"id": "a", "text": "one"}]))
    path = tmp_path / "b.csv"
    path.write_bytes(content)
    for names in ([tmp_path], [tmp_path / "a.jsonl", path]):
        pairs, rejects = read(*names)
        assert pairs == [("a", "one")]
        assert len(rejects) == 1
    with pytest.raises(ValueError, match=f"input {path}: (no column|line 1 is not a valid header)"):
        find_inputs([str(path)], InputOptions())


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n \n", b"\xef\xbb\xbf", b"id,text\n"])
def test_a_table_without_rows_has_no_records_and_no_rejects(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(json_lines([{"id": "a", "text": "one"}]))
    path = tmp_path / "b.csv"
    path.write_bytes(content)
    assert read(tmp_path) == ([("a", "one")], [])
    assert read(path) == ([], [])


# Fields.


@pytest.mark.parametrize("form", ["jsonl", "json", "parquet", "csv"])
def test_records_without_an_id_are_numbered_and_nested_fields_are_reached(form: str, tmp_path: Path) -> None:
    path = tmp_path / f"in.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(RECORDS), path)
    elif form == "csv":
        path.write_text("url,body,meta\n" + "".join(f"{one['url']},{one['body']},\n" for one in RECORDS))
    else:
        path.write_bytes(json_lines(RECORDS) if form == "jsonl" else json.dumps(RECORDS, indent=1).encode())
    first = 2 if form == "csv" else 1
    pairs, _ = read(path, text_field="body")
    assert pairs == [(f"{path}:{number}", one["body"]) for number, one in enumerate(RECORDS, first)]
    if form != "csv":
        pairs, rejects = read(path, id_field="meta.n", text_field="meta.lang")
        assert (pairs, rejects) == ([(str(n), "en") for n in range(4)], [])


def test_only_the_records_without_an_id_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(json_lines([{"id": "a", "text": "t"}, {"text": "u"}, {"id": None, "text": "v"}]))
    assert [doc_id for doc_id, _ in read(path)[0]] == ["a", f"{path}:2", f"{path}:3"]
    pairs, rejects = read(path, id_field="id")
    assert ([doc_id for doc_id, _ in pairs], [line for line, _ in rejects]) == (["a"], [2, 3])


def test_a_field_with_a_dot_in_its_name_wins_over_a_nested_one(tmp_path: Path) -> None:
    record = {"a.b": "whole name", "a": {"b": "nested"}, "c.d": {"e": "half"}}
    (tmp_path / "in.jsonl").write_bytes(json_lines([record, record]))
    assert read(tmp_path / "in.jsonl", text_field="a.b")[0][0][1] == "whole name"
    assert read(tmp_path / "in.jsonl", text_field="c.d.e")[0][0][1] == "half"


@pytest.mark.parametrize("form", ["jsonl", "json"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'no field "text"; the fields are url, body, meta.lang, meta.n; pass text_field="body"'),
        ({"text_field": "body", "id_field": "uid"}, 'no field "uid"; .*; pass id_field="NAME"'),
        ({"fingerprint_field": "fp"}, 'no field "fp"; .*; pass fingerprint_field="NAME"'),
        ({"fields": ("title", "lead")}, 'no field "title" or "lead"; .*; pass another profile'),
    ],
)
def test_a_field_that_all_first_records_lack_is_told_at_once(
    options: dict[str, object], message: str, form: str, tmp_path: Path
) -> None:
    path = tmp_path / f"in.{form}"
    path.write_bytes(json_lines(RECORDS) if form == "jsonl" else json.dumps(RECORDS).encode())
    with pytest.raises(ValueError, match=f"{path}: {message}"):
        find_inputs([str(path)], InputOptions(**options))  # type: ignore[arg-type]


IDS = [("7", "7"), ("7.0", "7"), ("-3", "-3"), ('"x"', "x"), ("1e3", "1000"), (str(2**60), str(2**60))]


@pytest.mark.parametrize(("written", "doc_id"), IDS)
def test_whole_numbers_are_ids_however_they_are_written(written: str, doc_id: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(f'{{"id": {written}, "text": "t"}}\n')
    assert read(tmp_path / "in.jsonl") == ([(doc_id, "t")], [])


TIMES = [("1700000000000.0", 1_700_000_000_000), ('"1700000000000"', 1_700_000_000_000), ("NaN", None), ("null", None)]


@pytest.mark.parametrize(("written", "time"), TIMES)
def test_times_may_have_gone_through_pandas(written: str, time: int | None, tmp_path: Path) -> None:
    lines = f'{{"id": 1, "text": "t", "seen": {written}}}\n{{"id": 2, "text": "t", "seen": 5}}\n'
    (tmp_path / "in.jsonl").write_text(lines)
    (batch, *_) = batches_of(tmp_path / "in.jsonl", first_seen_field="seen")
    assert (batch.documents.first_seen, batch.documents.rejects) == ([time, 5], [])
