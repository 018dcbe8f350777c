"""Reading inputs: every good record is returned, every bad one is reported, and reading can resume at any position."""

from __future__ import annotations

import bz2
import codecs
import gzip
import json
import lzma
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from hsimhash.fingerprint import Signature, format_fingerprint
from hsimhash.fingerprint.bits import FORMAT_NAMES, Formats, formats_named, read_fingerprint
from hsimhash.inputs import Input, InputOptions, find_inputs
from hsimhash.inputs.find import FORMAT_LINES
from hsimhash.inputs.lines import BLOCK_BYTES, RECORD_LIMIT_BYTES, blocks_of
from hsimhash.inputs.reader import FILES_IN_BATCH, Batch, Position, read_batches
from hsimhash.inputs.records import parser_of
from hsimhash.rowkey import check_doc_id

Found = tuple[list[tuple[str, str]], list[tuple[int, str]]]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
FINGERPRINT = "0123456789abcdef"


def batches_of(
    *names: object, start: Position | None = None, block_bytes: int = BLOCK_BYTES, **options: str | bool
) -> list[Batch]:
    reading = InputOptions(**options)
    inputs = find_inputs([str(name) for name in names], reading)
    batches = list(read_batches(inputs, reading, start, block_bytes=block_bytes))
    assert (batches[-1].end if batches else start) == Position(len(inputs))
    return batches


def contents(batches: list[Batch]) -> Found:
    """Return the (id, text or hex fingerprint) pairs, and the (line, reason) pairs of rejects."""
    pairs: list[tuple[str, str]] = []
    rejects: list[tuple[int, str]] = []
    for batch in batches:
        documents = batch.documents
        values = documents.texts or [format_fingerprint(int(value)) for value in documents.signatures.fingerprints]
        pairs += zip(documents.doc_ids, values, strict=True)
        rejects += [(reject.line, reject.reason) for reject in documents.rejects]
    return pairs, rejects


def read(*names: object, **options: str) -> Found:
    return contents(batches_of(*names, **options))


def rejected(path: Path, data: bytes, **options: str) -> str:
    """Return why the only record of a file is rejected."""
    path.write_bytes(data)
    pairs, rejects = read(path, **options)
    assert not pairs
    assert len(rejects) == 1
    return rejects[0][1]


# Formats.


@pytest.mark.parametrize("packing", PACKERS)
def test_json_lines_are_read_plain_and_packed(packing: str, tmp_path: Path) -> None:
    data = b'{"id": "a", "text": "one"}\n{"id": 7, "text": "\xe4\xba\x8c", "more": [1]}\n'
    path = tmp_path / f"pages.jsonl{packing}"
    path.write_bytes(PACKERS[packing](data))
    assert read(path) == ([("a", "one"), ("7", "二")], [])


@pytest.mark.parametrize("packing", PACKERS)
def test_packed_files_in_several_parts_are_read_whole(packing: str, tmp_path: Path) -> None:
    parts = [f"{number}\ttext {number}\n".encode() * 3000 for number in range(3)]
    path = tmp_path / f"pages.tsv{packing}"
    path.write_bytes(b"".join(map(PACKERS[packing], parts)))
    assert len(read(path)[0]) == 9000


@pytest.mark.parametrize(
    ("name", "record", "options", "expected"),
    [
        ("in.tsv", "a\tone\ttwo\nb\t\n", {}, [("a", "one\ttwo"), ("b", "")]),
        ("in.tsv", "a\t7\n", {"format": "tsv"}, [("a", "7")]),
        ("in.jsonl", '{"id": "a", "fingerprint": 7}', {"format": "fingerprints"}, [("a", f"{7:016x}")]),
        ("in.ndjson", '{"url": "a", "body": "b", "id": 1}', {"id_field": "url", "text_field": "body"}, [("a", "b")]),
        ("in.jsonl", '{"id": "a", "id": "b", "text": "c", "text": "d"}', {}, [("b", "d")]),
        ("in.jsonl", r'{"id": "b", "text": "d", "score": NaN, "other": "\ud800"}', {}, [("b", "d")]),
        ("in.jsonl", f'{{"id": "b", "text": "d", "deep": {"[" * 50}{"]" * 50}}}', {}, [("b", "d")]),
    ],
    ids=["tabs in a text", "digits as a text", "format", "fields", "fields twice", "odd values", "deep values"],
)
def test_good_records_are_read(
    name: str, record: str, options: dict[str, str], expected: list[tuple[str, str]], tmp_path: Path
) -> None:
    (tmp_path / name).write_text(record)
    assert read(tmp_path / name, **options) == (expected, [])


@pytest.mark.parametrize(
    "lines",
    [
        "a\t0123456789abcdef\n\nb\t0000000000000007\n",
        "a\t0x123456789abcdef\nb\t0x7",
        "a\t81985529216486895\r\nb\t7\r\n",
        "\ufeffb\t7\na\t81985529216486895",
    ],
)
def test_a_tsv_whose_first_lines_are_fingerprints_holds_fingerprints(lines: str, tmp_path: Path) -> None:
    path = tmp_path / "pages.tsv"
    path.write_text(lines)
    (found,) = find_inputs([str(path)], InputOptions())
    assert found.has_fingerprints
    assert f"{path} holds fingerprints (as texts: --format tsv), read as " in found.note
    pairs, rejects = read(path)
    assert (dict(pairs), rejects) == ({"a": FINGERPRINT, "b": f"{7:016x}"}, [])


@pytest.mark.parametrize("line", ["id\tfingerprint", "c", "c\t7\t7", "c\t99999999999999999999999", "c\t二"])
@pytest.mark.parametrize("place", [0, 15])
def test_a_tsv_with_one_other_line_among_the_first_is_refused(line: str, place: int, tmp_path: Path) -> None:
    lines = ["a\t7"] * 20
    lines.insert(place, line)
    path = tmp_path / "pages.tsv"
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=f"line {place + 1} is .*format=.fingerprints.*format=.tsv") as raised:
        find_inputs([str(path)], InputOptions())
    assert "15 of its first 16 lines are an id, a tab and a fingerprint" in str(raised.value)
    pairs, rejects = read(path, format="fingerprints")
    assert (len(pairs), [number for number, _ in rejects]) == (20, [place + 1])


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_a_file_damaged_behind_its_first_fingerprints_holds_no_texts(packing: str, tmp_path: Path) -> None:
    path = tmp_path / f"pages.tsv{packing}"
    path.write_bytes(PACKERS[packing](b"a\t0123456789abcdef\nb\t0123456789abcdef\n") + b"junk")
    pairs, rejects = read(path)
    assert pairs == [("a", FINGERPRINT), ("b", FINGERPRINT)]
    assert [reason.split(" near")[0] for _, reason in rejects] == ["damaged or truncated"]


def test_a_tsv_of_texts_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "pages.tsv").write_text("a\tone\nb\ttwo")
    (found,) = find_inputs([str(tmp_path / "pages.tsv")], InputOptions())
    assert found.note == f"{tmp_path / 'pages.tsv'} holds texts (as fingerprints: --format fingerprints)"


# How fingerprints are written.

TAKEN, OTHER = 1291587514616409, 2**63 + 5  # 16 digits without a letter; a negative number in signed form
WRITERS: dict[str, Callable[[int], str]] = {
    "hex": "{:016x}".format,
    "decimal": str,
    "signed": lambda value: str(value - 2**64 if value >= 2**63 else value),
}


def written(path: Path, form: str, values: list[int]) -> Path:
    """Write `id<TAB>fingerprint` lines, JSON strings or JSON numbers, depending on the name of the file."""
    words = [WRITERS[form](value) for value in values]
    if path.suffix == ".tsv":
        path.write_text("".join(f"{number}\t{word}\n" for number, word in enumerate(words)))
    else:
        found = [int(word) for word in words] if path.stem == "numbers" else words
        records = [{"id": str(number), "fingerprint": one} for number, one in enumerate(found)]
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("name", ["in.tsv", "in.jsonl"])
@pytest.mark.parametrize("form", WRITERS)
def test_a_file_is_read_in_the_format_that_one_of_its_first_values_tells(form: str, name: str, tmp_path: Path) -> None:
    values = [TAKEN, TAKEN + 1, *range(10**15, 10**15 + 2_000), OTHER, 0xABCDEF0123456789, TAKEN]
    path = written(tmp_path / name, form, values)
    (found,) = find_inputs([str(path)], InputOptions("fingerprints"))
    assert found.formats == (form,)
    assert found.note.endswith(f"read as {'hexadecimal' if form == 'hex' else form}")
    pairs, rejects = read(path, format="fingerprints")
    assert [int(value, 16) for _, value in pairs] == values
    assert not rejects


@pytest.mark.parametrize("form", ["decimal", "signed"])
def test_json_numbers_are_numbers(form: str, tmp_path: Path) -> None:
    values = [5, TAKEN, OTHER, 0]
    path = written(tmp_path / "numbers.jsonl", form, values)
    assert [int(value, 16) for _, value in read(path, fingerprint_field="fingerprint")[0]] == values


@pytest.mark.parametrize("name", ["in.tsv", "in.jsonl"])
@pytest.mark.parametrize("form", WRITERS)
def test_a_file_that_stays_ambiguous_is_refused_unless_its_format_is_said(form: str, name: str, tmp_path: Path) -> None:
    values = [int(WRITERS["decimal"](TAKEN + number), 16 if form == "hex" else 10) for number in range(20_000)]
    path = written(tmp_path / name, form, values)
    with pytest.raises(
        ValueError, match=r"its first fingerprints \(10,000\) have 16 digits.*fingerprint_format=hex\|dec"
    ):
        find_inputs([str(path)], InputOptions("fingerprints"))
    pairs, rejects = read(path, format="fingerprints", fingerprint_format=form)
    assert [int(value, 16) for _, value in pairs] == values
    assert not rejects


def test_what_contradicts_the_format_is_rejected_and_never_read_otherwise(tmp_path: Path) -> None:
    words = ["12345678901234567890", "0123456789abcdef", "0x5", "-1", "1291587514616409"]
    (tmp_path / "in.tsv").write_text("".join(f"{word}\t{word}\n" for word in words))
    pairs, rejects = read(tmp_path / "in.tsv")
    assert [int(value, 16) for _, value in pairs] == [12345678901234567890, TAKEN]
    assert [number for number, _ in rejects] == [2, 3, 4]
    assert "--fingerprint-format" in rejects[0][1]


def test_two_looks_at_a_large_file_read_little_of_it(tmp_path: Path) -> None:
    path = written(tmp_path / "in.tsv", "hex", [0xABCDEF0123456789] * 100_000)
    with path.open("ab") as file:
        file.truncate(1 << 40)  # a hole: reading all of it would take hours
    (found,) = find_inputs([str(path)], InputOptions())
    assert found.formats == ("hex",)


MILLISECONDS = {
    None: None,
    5: 5,
    "1970-01-01T00:00:01Z": 1000,
    "1970-01-01T01:00:00+01:00": 0,
    "1970-01-02": 86_400_000,
    "2004-03-04T05:06:00.735Z": 1_078_376_760_735,
    "2021-03-04T05:06:07.7354Z": 1_614_834_367_735,
    "2021-03-04T05:06:07.7356Z": 1_614_834_367_736,
    "9999-12-31T23:59:59.999Z": 253_402_300_799_999,
}


def test_json_lines_may_hold_fingerprints_and_times_to_the_millisecond(tmp_path: Path) -> None:
    path = tmp_path / "export.jsonl"
    records = [{"id": "a", "fp": FINGERPRINT, "first_seen": time} for time in MILLISECONDS]
    path.write_text("".join(json.dumps(record) + "\n" for record in [*records, {"id": "none", "fp": 7}]))
    batches = batches_of(path, fingerprint_field="fp")
    assert contents(batches)[0][-2:] == [("a", FINGERPRINT), ("none", f"{7:016x}")]
    assert batches[0].documents.first_seen == [*MILLISECONDS.values(), None]


@pytest.mark.parametrize("name", ["P.JSONL", "P.JSONL.GZ", "P.Tsv.Zst", "P.TSV"])
def test_endings_may_be_written_in_capitals(name: str, tmp_path: Path) -> None:
    line = b'{"id": "a", "text": "b"}' if "JSONL" in name else b"a\tb"
    (tmp_path / name).write_bytes(PACKERS[Path(name).suffix.lower() if name.count(".") == 2 else ""](line))
    assert read(tmp_path / name) == ([("a", "b")], [])


def test_a_folder_is_read_in_the_order_of_names_without_hidden_files(tmp_path: Path) -> None:
    for name in ["b.txt", "a/z", "a/b/c.md", ".hidden", ".git/config", "a.txt", "二/三"]:
        path = tmp_path / "texts" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"\ufeff{name}\r\n")
    names = ["a/b/c.md", "a/z", "a.txt", "b.txt", "二/三"]
    assert read(tmp_path / "texts") == ([(name, f"{name}\r\n") for name in names], [])


def test_a_link_to_a_file_in_the_folder_is_not_read_as_well(tmp_path: Path) -> None:
    top = tmp_path / "texts"
    for name in ("texts/z/own.txt", "texts/z/own.jsonl", "texts/.hidden.txt", "outside.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps({"id": name, "text": name}))
    targets = {"a.txt": "z/own.txt", "b.jsonl": "z/own.jsonl", "c.txt": "a.txt"}
    targets |= {"d.txt": ".hidden.txt", "e.txt": "../outside.txt"}  # these files are not read themselves
    for name, target in targets.items():
        (top / name).symlink_to(target)
    (tmp_path / "linked").symlink_to(top)
    for folder in (top, tmp_path / "linked"):
        found = [doc_id for one in find_inputs([str(folder)], InputOptions()) for doc_id, _ in one.documents_in()]
        assert found == ["d.txt", "e.txt", "z/own.txt", str(folder / "z/own.jsonl")], found


def test_files_of_a_folder_that_are_no_texts_are_rejected_by_name(tmp_path: Path) -> None:
    (tmp_path / "damaged.gz").write_bytes(gzip.compress(b"text")[:-9])
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(RECORD_LIMIT_BYTES + 1)))
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "text.tar").write_bytes(b"text".ljust(512, b"\0"))
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "self").symlink_to("self")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(RECORD_LIMIT_BYTES + 1)
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff")).write_text("its name is no UTF-8")
    (tmp_path / "good").write_text("good")
    batches = batches_of(tmp_path)
    reasons = {Path(one.path).name: one.reason for batch in batches for one in batch.documents.rejects}
    assert contents(batches)[0] == [("good", "good")]
    assert {name: reason.split()[0] for name, reason in reasons.items()} == {
        "damaged.gz": "damaged",
        "bomb.gz": "longer",
        "latin": "not",
        "text.tar": "not",
        "loop": "not",
        "pipe": "not",
        "gone": "cannot",
        "self": "cannot",
        "large": "longer",
        "\udcff": "the",
    }


def test_inputs_are_read_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"id": "a", "text": "one"}')
    (tmp_path / "two.tsv").write_text("b\ttwo")
    (tmp_path / "three.tsv").write_text(f"c\t{FINGERPRINT}")
    pairs, _ = read(tmp_path / "one.jsonl", tmp_path / "two.tsv", tmp_path / "three.tsv")
    assert pairs == [("a", "one"), ("b", "two"), ("c", FINGERPRINT)]


# Inputs that cannot be read at all.


@pytest.mark.parametrize(
    ("names", "form", "message"),
    [
        ([], "auto", "nothing to read"),
        (["-", "-"], "auto", "only the last input can be a stream"),
        (["-"], "files", "is a stream, but format files needs a file"),
        (["nowhere"], "auto", "nowhere cannot be read: No such file"),
    ],
)
def test_inputs_that_cannot_be_are_refused(names: list[str], form: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_inputs(names, InputOptions(form))


words = st.one_of(st.none(), st.integers(0, 2**64 - 1))
FORMS: dict[str, Callable[[int], str | int]] = {**WRITERS, "auto": int}


@given(records=st.lists(st.tuples(st.integers(0, 2**64 - 1), words, words), min_size=1, max_size=8))
@pytest.mark.parametrize("form", FORMS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_sketches_and_keys_are_read_where_there_is_a_sketch(
    form: str, records: list[tuple[int, int | None, int | None]], tmp_path: Path
) -> None:
    names = ("sketch", "key")
    lines = [
        {"id": str(number), "fingerprint": FORMS[form](record[0])}
        | {name: f"{one:016x}" for name, one in zip(names, record[1:], strict=True) if one is not None}
        for number, record in enumerate(records)
    ]
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    options = {"fingerprint_field": "fingerprint", "fingerprint_format": form}
    whole, bare = (signatures_in(path, has_signatures=has, **options) for has in (True, False))
    assert whole == [
        Signature(*(one or 0 for one in record)) if record[1] is not None else Signature(record[0])
        for record in records
    ]
    assert bare == [Signature(record[0]) for record in records]


def signatures_in(path: Path, **options: str | bool) -> list[Signature]:
    return [one for batch in batches_of(path, **options) for one in batch.documents.signatures]


def test_a_field_that_is_named_for_something_else_is_no_key_and_no_sketch(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(f'{{"key": "s3://a", "sketch": 5, "hash": "{FINGERPRINT}"}}')
    (batch, _) = batches_of(path, id_field="key", first_seen_field="sketch", fingerprint_field="hash")
    assert (batch.documents.doc_ids, batch.documents.first_seen) == (["s3://a"], [5])
    assert list(batch.documents.signatures) == [Signature(int(FINGERPRINT, 16))]


@pytest.mark.parametrize("field", ["sketch", "key"])
@pytest.mark.parametrize("value", ["s3://bucket/a", True, 1.5, [], "12", 7, -1, "0x12", f" {FINGERPRINT}"])
def test_bad_sketches_and_keys_are_rejected_with_the_remedy(field: str, value: object, tmp_path: Path) -> None:
    fields = {"id": "a", "fingerprint": FINGERPRINT, "sketch": FINGERPRINT, field: value}
    reason = rejected(tmp_path / "in.jsonl", json.dumps(fields).encode(), fingerprint_field="fingerprint")
    assert reason.startswith(f'"{field}" must be 16 hexadecimal digits')
    assert reason.endswith("rename the field if it means something else")


@pytest.mark.parametrize("value", ["s3://bucket/a", 7, "12345678901234567"])
def test_a_field_key_without_a_sketch_is_something_else(value: object, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps({"id": "a", "fingerprint": FINGERPRINT, "key": value}))
    assert signatures_in(path, fingerprint_field="fingerprint") == [Signature(int(FINGERPRINT, 16))]


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="auto, jsonl, tsv"):
        InputOptions("xml")


# Bad records.


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"nonsense", "invalid JSON at character 0"),
        (b'{"id": "a", "text": "b"', "invalid JSON at"),
        (b'{"id": "a", "text": "b"} x', "invalid JSON at character 25"),
        (b"[1]", "invalid JSON: expected an object, got a number"),
        (b'"a"', "invalid JSON: expected an object, got a string"),
        (b"null", "invalid JSON: expected an object, got null"),
        (b"NaN", "invalid JSON: expected an object, got a number"),
        (b'{"id": "a"}', 'no field "text"'),
        (b'{"id": "", "text": "b"}', "1 to 2048 UTF-8 bytes"),
        (b'{"id": "%s", "text": "b"}' % (b"x" * 2049), "got 2049"),
        (b'{"id": "a\\u0000", "text": "b"}', "control characters"),
        (b'{"id": "a\\u0085", "text": "b"}', "control characters"),
        (b'{"id": "a\\ud800", "text": "b"}', "surrogates"),
        (b'{"id": "a", "text": "b\\udfff"}', "lone surrogate"),
        (b'{"id": true, "text": "b"}', '"id" must be a string or a whole number, got true or false'),
        (b'{"id": 1.5, "text": "b"}', '"id" must be a string or a whole number, got 1.5'),
        (b'{"id": 1e300, "text": "b"}', '"id" must be a string or a whole number, got 1e+300'),
        (b'{"id": NaN, "text": "b"}', '"id" must be a string or a whole number, got nan'),
        (b'{"id": {}, "text": "b"}', '"id" must be a string or a whole number, got an object'),
        (b'{"id": "a", "text": 5}', '"text" must be a string, got a number'),
        (b'{"id": "a", "text": ["b"]}', '"text" must be a string, got an array'),
        (b'{"id": "a", "text": "\xff"}', "not UTF-8: invalid start byte at byte 21"),
        (b'{"id": "a", "text": "b", "c": %s}' % (b"9" * 5000), "invalid JSON: a number has too many digits"),
        (b'{"id": "a", "text": "b", "c": %s}' % (b"[" * 100_000), "nested too deeply"),
        (b'{"id": "a", "text": "tab\there"}', "invalid JSON at character 24"),
        ('{"id": "a"}'.encode("utf-32"), "not UTF-8"),
        (b"\0\0\0", "invalid JSON at"),
    ],
)
def test_bad_json_lines_are_rejected_with_the_reason(record: bytes, reason: str, tmp_path: Path) -> None:
    assert reason in rejected(tmp_path / "pages.jsonl", record)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("true", '"fp" must be a fingerprint, got true or false'),
        (str(-(2**63) - 1), "not a fingerprint: -9223372036854775809; expected 16 hex"),
        (str(2**64), "not a fingerprint: 18446744073709551616; expected 16 hex"),
        ('"xyz"', "not a fingerprint: 'xyz'; expected 16 hex"),
        ("1.0", '"fp" must be a fingerprint, got a number'),
        ("[]", '"fp" must be a fingerprint, got an array'),
    ],
)
def test_bad_fingerprints_in_json_lines_are_rejected(value: str, reason: str, tmp_path: Path) -> None:
    record = f'{{"id": "a", "fp": {value}}}'.encode()
    assert reason in rejected(tmp_path / "pages.jsonl", record, fingerprint_field="fp")


@pytest.mark.parametrize(
    "value", ["-1", "1.5", "true", '"yesterday"', '"1969-12-31"', "[]", str(2**63), '"9999-99-99"']
)
def test_bad_times_are_rejected(value: str, tmp_path: Path) -> None:
    record = f'{{"id": "a", "text": "b", "seen": {value}}}'.encode()
    assert "must be ms since 1970" in rejected(tmp_path / "pages.jsonl", record, first_seen_field="seen")


@pytest.mark.parametrize(
    ("form", "line", "reason"),
    [
        ("auto", b"a", "no tab"),
        ("auto", b"\ttext", "1 to 2048 UTF-8 bytes"),
        ("auto", b"a\x01\ttext", "control characters"),
        ("auto", b"a\ttext\xff", "not UTF-8"),
        ("fingerprints", b"a", "1 columns"),
        ("fingerprints", b"a\t7\t7", "3 columns"),
        ("fingerprints", b"\t7", "1 to 2048 UTF-8 bytes"),
        ("fingerprints", b"\xc2\x85\t0123456789abcdef", "control characters"),
        ("fingerprints", b"\xff\t0123456789abcdef", "not UTF-8"),
        ("fingerprints", b"a\t0123456789abcdeg", "not a fingerprint"),
        ("fingerprints", b"a\t", "not a fingerprint"),
    ],
)
def test_bad_lines_with_tabs_are_rejected(form: str, line: bytes, reason: str, tmp_path: Path) -> None:
    assert reason in rejected(tmp_path / "pages.tsv", line, format=form)


def test_the_preview_is_short_and_printable(tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").write_bytes(b"\x1b[31m\xff\xe4\xba\x8c\r\x00" + b"x" * 500 + b"\n")
    ((reject,),) = [
        batch.documents.rejects for batch in batches_of(tmp_path / "pages.jsonl") if batch.documents.rejects
    ]
    assert reject.preview.startswith("\\x1b[31m\\xff二\\r\\x00xxx")
    assert len(reject.preview) < 240
    assert reject.preview.isprintable()


def test_marks_blank_lines_and_line_ends_of_other_systems_are_no_records(tmp_path: Path) -> None:
    for name, line in (("pages.jsonl", '{"id": "a", "text": "b"}'), ("texts.tsv", "a\tb"), ("fp.tsv", "a\t7")):
        (tmp_path / name).write_bytes(f"\ufeff\r\n \n{line}\r\n\r\n{line}".encode())
        pairs, rejects = read(tmp_path / name)
        assert [doc_id for doc_id, _ in pairs] == ["a", "a"]
        assert not any("\r" in value for _, value in pairs)
        assert not rejects
    (tmp_path / "lines.txt").write_bytes(b"\n \t\r\n\t\none line\n\t")
    assert [value for _, value in read(tmp_path / "lines.txt", format="lines")[0]] == ["one line"]


def test_a_record_behind_a_mark_in_the_middle_counts_for_the_fields(tmp_path: Path) -> None:
    (tmp_path / "joined.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n\ufeff{"id": "c", "text": "words"}\n')
    pairs, rejects = read(tmp_path / "joined.jsonl")
    assert (pairs, len(rejects)) == ([("c", "words")], 2)


@pytest.mark.parametrize("excess", [0, 1])
def test_a_line_over_the_limit_is_rejected_and_the_others_are_read(excess: int, tmp_path: Path) -> None:
    long = f"long\t{'x' * (RECORD_LIMIT_BYTES + excess - 5)}"
    (tmp_path / "pages.tsv").write_text(f"a\tone\n{long}\nb\ttwo\n{long}")
    pairs, rejects = read(tmp_path / "pages.tsv", format="tsv")
    assert [doc_id for doc_id, _ in pairs] == (["a", "b"] if excess else ["a", "long", "b", "long"])
    assert [line for line, _ in rejects] == ([2, 4] if excess else [])


@given(lines=st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b""))), size=st.integers(1, 40))
@example(lines=[codecs.BOM_UTF8, codecs.BOM_UTF8], size=1)
def test_a_line_over_the_limit_is_held_no_further_than_to_know_that(lines: list[bytes], size: int) -> None:
    data, limit = b"".join(line + b"\n" for line in lines), 20
    pieces = iter([data[start : start + size] for start in range(0, len(data), size)])
    blocks = list(blocks_of(lambda: next(pieces, b""), limit_bytes=limit))
    found = [line for block in blocks for line in block.lines()]
    assert len(found) == len(lines) == (blocks[-1].end.line if blocks else 0)
    without_mark = [*(line.removeprefix(codecs.BOM_UTF8) for line in lines[:1]), *lines[1:]]
    for line, whole in zip(found, without_mark, strict=True):
        assert line == whole or (limit < len(line) <= limit + 2 * size and len(whole) > limit)


# Packed files that are damaged.


@pytest.mark.parametrize("packing", [".gz", ".zst"])
@pytest.mark.parametrize("kept", [0.3, 0.999])
def test_what_came_before_a_cut_is_kept_and_the_cut_named(packing: str, kept: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = [f"{number}\t{rng.bytes(40).hex()}" for number in range(20_000)]
    packed = PACKERS[packing]("\n".join(lines).encode())
    path = tmp_path / f"pages.tsv{packing}"
    path.write_bytes(packed[: int(len(packed) * kept)])
    batches = batches_of(path)
    pairs, rejects = contents(batches)
    assert ["\t".join(pair) for pair in pairs] == lines[: len(pairs)]
    assert len(pairs) > 20_000 * kept * 0.5
    assert [line for line, _ in rejects] == [len(pairs) + 1]
    assert "damaged or truncated near byte" in rejects[0][1]
    assert [batch.documents.damage for batch in batches if batch.documents.damage] == [rejects[0][1]]


@pytest.mark.parametrize("packing", [*filter(None, PACKERS)])
def test_no_cut_goes_unnoticed_wherever_it_is(packing: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    lines = [f"{number}\t{rng.bytes(30).hex()}" for number in range(4_000)]
    packed = PACKERS[packing]("\n".join(lines).encode())
    path = tmp_path / f"pages.tsv{packing}"
    for end in range(1, len(packed), len(packed) // 60):
        path.write_bytes(packed[:end])
        pairs, rejects = read(path)
        assert len(rejects) == 1, f"cut after {end} of {len(packed)} bytes: {len(pairs)} documents and no complaint"


@pytest.mark.parametrize("packing", [*filter(None, PACKERS)])
def test_a_file_that_is_not_packed_at_all_is_damaged(packing: str, tmp_path: Path) -> None:
    (tmp_path / f"pages.jsonl{packing}").write_text('{"id": "a", "text": "b"}')
    assert "damaged" in read(tmp_path / f"pages.jsonl{packing}")[1][0][1]


def test_an_xz_file_that_asks_for_much_memory_is_damaged(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    (tmp_path / "in.jsonl.xz").write_bytes(lzma.compress(b'{"id": "a", "text": "b"}', filters=filters))
    pairs, ((_, reason),) = read(tmp_path / "in.jsonl.xz")
    assert not pairs
    assert "Memory usage limit" in reason


@pytest.mark.parametrize("packing", PACKERS)
def test_an_empty_file_has_no_records(packing: str, tmp_path: Path) -> None:
    (tmp_path / f"pages.jsonl{packing}").write_bytes(b"")
    assert read(tmp_path / f"pages.jsonl{packing}") == ([], [])


# Any block size, and any place to resume.

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), max_size=12)
tsv_lines = st.one_of(st.binary(max_size=12), texts.map(str.encode), texts.map(lambda text: f"id\t{text}".encode()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(
    lines=st.lists(tsv_lines, max_size=12),
    packing=st.sampled_from(list(PACKERS)),
    block_bytes=st.integers(1, 40),
)
def test_blocks_of_any_size_and_a_resume_at_any_place_give_the_same(
    lines: list[bytes],
    packing: str,
    block_bytes: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("input") / f"pages.tsv{packing}"
    path.write_bytes(PACKERS[packing](b"\n".join(lines)))
    whole = read(path, format="tsv")
    batches = batches_of(path, block_bytes=block_bytes, format="tsv")
    assert contents(batches) == whole
    for number, batch in enumerate(batches, start=1):
        rest = contents(batches_of(path, start=batch.end, format="tsv"))
        assert contents(batches[:number])[0] + rest[0] == whole[0]
        assert contents(batches[:number])[1] + rest[1] == whole[1]


def test_a_folder_is_read_on_behind_any_file(tmp_path: Path) -> None:
    for number in range(2 * FILES_IN_BATCH + 3):
        (tmp_path / f"{number:03d}").write_bytes(b"\xff" if number == 3 else b"text")
    batches = batches_of(tmp_path)
    whole = contents(batches)
    assert len(batches) > 2
    for number, batch in enumerate(batches, start=1):
        rest = contents(batches_of(tmp_path, start=batch.end))
        assert contents(batches[:number])[0] + rest[0] == whole[0]


# Columns of fingerprints.

ids = st.one_of(texts, st.sampled_from(["a", "http://x/二", "x" * 2048, "x" * 2049, "\x7f", "\x85", "é"]))
values = st.one_of(
    st.integers(0, 2**64 - 1).map(format_fingerprint),
    st.integers(0, 2**65).map(str),
    st.sampled_from([FINGERPRINT.upper(), f"0x{FINGERPRINT}", f" {FINGERPRINT}", "0123456789abcdeg", "", "7\t7"]),
)
fingerprint_lines = st.one_of(
    st.tuples(ids, values).map(lambda pair: "\t".join(pair).encode()),
    st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")),
    st.just(b"\xff\t0123456789abcdef"),
    st.just(b"crlf\t0123456789abcdef\r"),
)


def one_by_one(lines: list[bytes], formats: Formats) -> Iterator[tuple[str, int] | None]:
    """Yield what each line means, read in the plainest way, or None for a bad one."""
    for line in lines:
        if not line.strip(b" \r"):
            continue
        try:
            doc_id, fingerprint = line.removesuffix(b"\r").decode().split("\t")
            check_doc_id(doc_id)
            yield doc_id, read_fingerprint(fingerprint, formats)
        except ValueError:
            yield None


@given(st.lists(fingerprint_lines, min_size=1, max_size=8), st.sampled_from([*FORMAT_NAMES]))
@example([b"a\t0123456789abcdef", b"\t0123456789abcdef"], "hex")
@example([b"\t0123456789abcdef"], "hex")
@example([b"\xc2\t0123456789abcdef", b"\x85\t0123456789abcdef"], "hex")
@example([b"a\t1291587514616409"], "auto")
@example([codecs.BOM_UTF8], "auto")
@example([codecs.BOM_UTF8 + b"a\t0123456789abcdef"], "auto")
def test_fingerprint_lines_are_what_they_are_one_by_one(lines: list[bytes], form: str) -> None:
    one = Input("in.tsv", "tsv", True, False, 0, "", formats=formats_named(form))
    parse = parser_of(one, InputOptions())
    blocks = iter([b"".join(line + b"\n" for line in lines), b""])
    (found,) = [parse(block) for block in blocks_of(lambda: next(blocks))]
    expected = list(one_by_one([lines[0].removeprefix(codecs.BOM_UTF8), *lines[1:]], found.formats))
    good = [one for one in expected if one is not None]
    assert list(zip(found.doc_ids, found.signatures.fingerprints.tolist(), strict=True)) == good
    assert len(found.rejects) == expected.count(None)


# Streams.


def through_pipe(data: bytes, form: str = "tsv", block_bytes: int = BLOCK_BYTES) -> tuple[Found, list[Batch]]:
    """Write data into a pipe, and read the documents from it."""
    reading, writing = os.pipe()
    try:
        assert len(data) < 1 << 16  # the capacity of a pipe
        os.write(writing, data)
        os.close(writing)
        batches = batches_of(f"/dev/fd/{reading}", format=form, block_bytes=block_bytes)
    finally:
        os.close(reading)
    return contents(batches), batches


def test_a_silent_stream_gives_way_and_stops_when_asked() -> None:
    reading, writing = os.pipe()
    try:
        os.write(writing, b"a\tone\nb\tt")
        options = InputOptions("tsv")
        asked: list[Batch] = []
        asked.extend(read_batches(find_inputs([f"/dev/fd/{reading}"], options), options, stop=lambda: len(asked) >= 2))
        assert contents(asked) == ([("a", "one")], [])
        assert asked[-1].end.input == 0
    finally:
        os.close(reading)
        os.close(writing)


def test_a_stream_is_decided_by_the_first_block_that_tells_and_holds_nothing_back() -> None:
    first, second, third = b"a\t1291587514616409\n", b"b\t0000000abcdef123\n", b"c\t1291587514616409\n"
    (pairs, rejects), batches = through_pipe(first + second + third, form="fingerprints", block_bytes=len(first))
    assert pairs == [("b", "0000000abcdef123"), ("c", "1291587514616409")]
    ((line, reason),) = rejects
    assert line == 1
    assert "ambiguous" in reason
    assert "--fingerprint-format" in reason
    assert [batch.documents.note for batch in batches][:3] == ["", "fingerprints are read as hexadecimal", ""]


def test_a_stream_of_numbers_learns_that_they_are_signed() -> None:
    lines = [b"a\t00000000012\n", b"b\t00000000013\n", b"c\t-0000000014\n", b"d\t00000000015\n"]
    (pairs, rejects), batches = through_pipe(b"".join(lines), form="fingerprints", block_bytes=len(lines[0]))
    assert [int(value, 16) for _, value in pairs] == [12, 13, 2**64 - 14, 15]
    assert not rejects
    notes = [batch.documents.note.removeprefix("fingerprints are read as ") for batch in batches]
    assert notes[:4] == ["decimal or signed", "", "signed", ""]


def test_a_stream_in_utf_16_that_is_cut_off_is_damage() -> None:
    data = "a\tone\nb\ttwo".encode("utf-16") + b"\0"
    (pairs, rejects), _ = through_pipe(data, form="tsv")
    assert pairs == [("a", "one")]
    assert rejects == [(2, "truncated in the middle of a character")]


def test_records_of_a_stream_that_lack_the_text_later_are_rejects_however_it_is_read() -> None:
    good, bad = b'{"id": "a", "text": "b"}\n', b'{"id": "c", "name": "d"}\n'
    for block_bytes in (len(good), 40, 1_000):  # with 40, the second block has two records
        (pairs, rejects), _ = through_pipe(good + 3 * bad, form="jsonl", block_bytes=block_bytes)
        assert pairs == [("a", "b")]
        assert rejects == [(line, 'no field "text"') for line in (2, 3, 4)]


@pytest.mark.parametrize("block_bytes", [1, 25, 1_000])
def test_a_stream_whose_first_records_lack_the_text_is_refused_however_it_is_read(block_bytes: int) -> None:
    with pytest.raises(ValueError, match='no field "text"; the fields are id, name'):
        through_pipe(3 * b'{"id": "c", "name": "d"}\n', form="jsonl", block_bytes=block_bytes)


def test_what_a_file_told_before_a_stop_holds_behind_it(tmp_path: Path) -> None:
    values = [*range(FORMAT_LINES + 1), 2**64 - 5, *range(500)]
    path = written(tmp_path / "in.tsv", "signed", values)
    path.write_text(f"{path.read_text()}last\t{2**63}\n")  # not a signed number
    batches = batches_of(path, block_bytes=1 << 10, format="fingerprints")
    assert [int(value, 16) for _, value in contents(batches)[0]] == values
    assert contents(batches)[1][0][0] == len(values) + 1
    told = next(batch for batch in batches if batch.documents.formats == ("signed",))
    assert contents(batches_of(path, start=told.end, format="fingerprints"))[1] == contents(batches)[1]
