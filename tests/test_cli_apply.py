"""`hsimhash apply` through the real entry point."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
import zstandard

from tests.support.command_line import lines_of, run, run_apart
from tests.support.effort import thorough

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
JSON_LINES = [
    b'{"id":"a",  "fp":"0x1", "n": 1.50}',
    b"",
    b'{"fp": "0x3", "id": "b", "cluster": "of the record"}  \r',
    b'{"id": 7, "fp": "0xff00000000", "\xe4\xb8\xad": "\\u4e2d"}',
    b"nonsense",
    b'{"id": "a", "fp": "0x7"}',
    b'{"id": "c", "fp": "0x2"}',
]
FIELD = ("--fingerprint-field", "fp")
DEDUP = (*FIELD, "--table-format")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "in.jsonl"
    path.write_bytes(BYTE_ORDER_MARK + b"\n".join(JSON_LINES))
    return str(path)


@pytest.fixture
def results(source: str, out: Path) -> str:
    """Deduplicate `source`: a and 7 are kept, b and c are dropped, and the second a and the nonsense are rejected."""
    assert run("dedup", source, "--out", str(out), *DEDUP, "jsonl").exit_code == 7
    return str(out)


@pytest.mark.parametrize("is_piped", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize(("flags", "numbers"), [((), (0, 3)), (("--dropped",), (2, 6))], ids=["kept", "dropped"])
def test_records_come_as_they_stand_and_in_their_order(
    flags: tuple[str, ...], numbers: tuple[int, ...], is_piped: bool, source: str, results: str
) -> None:
    given = Path(source).read_bytes() if is_piped else b""
    done = run_apart("apply", "-" if is_piped else source, "--from", results, *flags, given=given)
    assert done.returncode == 7
    assert done.stdout == b"".join(JSON_LINES[number] + b"\n" for number in numbers)
    assert b"wrote 2 documents, left out 2" in done.stderr
    assert b"left out 1 record with a duplicate id" in done.stderr
    assert b"left out 1 invalid record" in done.stderr


def test_files_that_could_not_be_read_are_named(out: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(8):
        (notes / f"{number}.txt").write_bytes(b"A text with words" if number < 2 else b"\xb5\xc4")
    assert run("dedup", str(notes), "--out", str(out)).exit_code == 7
    done = run("apply", str(notes), "--from", str(out), "--out", str(tmp_path / "kept.txt"))
    assert done.exit_code == 7
    named = ", ".join(f"{notes}/{number}.txt" for number in range(2, 7))
    assert f"left out 6 invalid records: {named} and 1 more; see rejects.jsonl" in done.stderr


@pytest.mark.parametrize("name", ["members.csv", "log.jsonl"])
def test_a_file_in_a_folder_that_dedup_could_not_read_is_left_out(name: str, out: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(3):
        (notes / f"{number}.txt").write_text("A text with words" if number < 2 else "Another one entirely")
    (notes / name).write_text("name,born\nAda,1815\n" if name.endswith("csv") else '{"level": "info"}\n')
    found = run("dedup", str(notes), "--out", str(out))
    assert (f"{name} is not read" in found.stderr) == (name == "members.csv")
    assert "read from 1 input" in (out / "report.html").read_text()
    done = run("apply", str(notes), "--from", str(out))
    assert done.exit_code == found.exit_code == 7
    assert done.stdout.splitlines() == [f"{notes}/{number}.txt" for number in (0, 2)]


@pytest.mark.parametrize("form", ["jsonl", "tsv"])
def test_no_inputs_byte_order_mark_gets_between_the_records(form: str, out: Path, tmp_path: Path) -> None:
    sources = [str(tmp_path / f"{number}.{form}") for number in (1, 2)]
    lines = {"jsonl": '{{"id": "d{0}", "fingerprint": "{0:016x}"}}\n', "tsv": "d{0}\t{0:016x}\n"}[form]
    for number, source in enumerate(sources):
        Path(source).write_bytes(BYTE_ORDER_MARK + lines.format(number * 255).encode())
    assert run("dedup", *sources, "--out", str(out), "--format", "fingerprints").exit_code == 0
    done = run_apart("apply", *sources, "--from", str(out))
    assert (done.returncode, done.stdout.decode()) == (0, lines.format(0) + lines.format(255))


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_marked_records_have_their_cluster_and_all_their_fields(form: str, source: str, out: Path) -> None:
    run("dedup", source, "--out", str(out), *DEDUP, form)
    marked = run_apart("apply", source, "--from", str(out), "--mark", "cluster").stdout.decode()
    assert marked.startswith('{"id":"a",  "fp":"0x1", "n": 1.50, "cluster": "a", "kept": true}\n')
    assert lines_of(marked) == [
        {"id": "a", "fp": "0x1", "n": 1.5, "cluster": "a", "kept": True},
        {"id": "b", "fp": "0x3", "cluster": "a", "kept": False},
        {"id": 7, "fp": "0xff00000000", "中": "中", "cluster": "7", "kept": True},
        {"id": "c", "fp": "0x2", "cluster": "a", "kept": False},
    ]


def test_a_marked_record_may_hold_what_utf_8_cannot_say(out: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_bytes(b'{"id": "a", "fp": "0x1", "kept": 1, "cut": "\xe4\xb8\xad\\ud83d"}\n')
    assert run("dedup", str(source), "--out", str(out), *DEDUP, "jsonl").exit_code == 0
    done = run_apart("apply", str(source), "--from", str(out), "--mark", "cluster")
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"id": "a", "fp": "0x1", "cut": "中\ud83d", "cluster": "a", "kept": True}


@pytest.mark.parametrize(("name", "unpacked"), [("kept.tsv", bytes), ("kept.tsv.gz", gzip.decompress)])
def test_lines_with_tabs_get_two_columns_and_files_appear_whole(
    name: str, unpacked: object, out: Path, tmp_path: Path
) -> None:
    source = tmp_path / "in.tsv.zst"
    source.write_bytes(zstandard.compress(b"a\tone text here\r\nb\tone text here\n"))
    assert run("dedup", str(source), "--out", str(out)).exit_code == 0
    arguments = ("apply", str(source), "--from", str(out), "--out", str(tmp_path / name))
    assert run(*arguments, "--mark", "cluster").exit_code == 0
    assert unpacked((tmp_path / name).read_bytes()) == (b"a\tone text here\ta\ttrue\nb\tone text here\ta\tfalse\n")
    again = run(*arguments)
    assert again.exit_code == 2
    assert "already exists; pass --overwrite to replace it" in again.stderr
    assert run(*arguments, "--overwrite").exit_code == 0
    assert unpacked((tmp_path / name).read_bytes()) == b"a\tone text here\r\n"


@pytest.mark.parametrize("name", ["in.jsonl", "link.jsonl", "hard.jsonl", "out/keep.txt", "out/clusters.jsonl"])
@pytest.mark.parametrize("given", ["in.jsonl", "-"])
def test_what_is_read_is_not_written_over(
    given: str, name: str, results: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link.jsonl").symlink_to("in.jsonl")
    Path("hard.jsonl").hardlink_to("in.jsonl")
    before = Path(name).read_bytes()
    with Path("in.jsonl").open("rb") as stdin:
        refused = run_apart("apply", given, "--from", results, "--out", name, "--overwrite", stdin=stdin)
    assert refused.returncode == 2
    assert f"{name} is an input; choose another file" in refused.stderr.decode()
    assert Path(name).read_bytes() == before
    assert not list(tmp_path.rglob(".*"))


def test_a_file_that_was_modified_after_dedup_began_is_kept(out: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "notes").mkdir()
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).write_text("The harbour ferry does not run on Sunday because divers look at the moorings.\n")
    assert run("dedup", str(folder), "--out", str(out)).exit_code == 0
    (changed := folder / "b.txt").write_text("Something else entirely, which nobody has read before.\n")
    began_ms = json.loads((out / "stats.json").read_text())["run"]["began_ms"]
    os.utime(changed, ns=((began_ms + 1) * 1_000_000,) * 2)
    kept, dropped = (run("apply", str(folder), "--from", str(out), *flags) for flags in ((), ("--dropped",)))
    assert kept.stdout.split() == [f"{folder}/a.txt", f"{folder}/b.txt"]
    assert dropped.stdout.split() == [f"{folder}/c.txt"]
    for done in (kept, dropped):
        assert done.exit_code == 0
        assert "kept 1 file that dedup dropped, because later the dropped or the kept file was modified" in done.stderr
        assert f"removed: {changed}; run 'hsimhash dedup' again" in done.stderr


@pytest.mark.parametrize("change", ["rewritten", "replaced by an old file", "deleted"])
def test_files_are_kept_if_the_file_kept_in_their_place_is_gone(change: str, out: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "notes").mkdir()
    for name in ("a.txt", "b.txt", "c.txt"):
        (folder / name).write_text("The harbour ferry does not run on Sunday because divers look at the moorings.\n")
    (folder / "other.txt").write_text("A text about something else, which has not been changed since the dedup.\n")
    assert run("dedup", str(folder), "--out", str(out)).exit_code == 0
    (kept := folder / "a.txt").unlink()
    if change != "deleted":
        kept.write_text("Something else entirely, which nobody has read before.\n")
    if change == "replaced by an old file":
        os.utime(kept, (0, 0))
    done = run("apply", str(folder), "--from", str(out), "--dropped")
    assert (done.exit_code, done.stdout) == (0, "")
    assert f"removed: {folder}/b.txt, {folder}/c.txt; run 'hsimhash dedup' again" in done.stderr


def test_a_file_of_records_that_was_modified_is_named(source: str, results: str) -> None:
    assert "was modified after dedup began" not in run("apply", source, "--from", results).stderr
    os.utime(source, (2_000_000_000, 2_000_000_000))
    assert f"{source} was modified after dedup began, so the" in run("apply", source, "--from", results).stderr


def test_of_a_folder_the_paths_are_written(out: Path, tmp_path: Path) -> None:
    (tmp_path / "texts" / "sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt", "z.txt"):
        (tmp_path / "texts" / name).write_text("the same text in all of them")
    (tmp_path / "texts" / "latin").write_bytes(b"caf\xe9")
    folder = str(tmp_path / "texts")
    run("dedup", folder, "--out", str(out), "--keep", "last")
    result = run("apply", folder, "--from", str(out))
    assert result.exit_code == 7
    assert result.stdout == f"{folder}/z.txt\n"
    assert run("apply", folder, "--from", str(out), "--out", f"{folder}/kept").exit_code == 2
    assert not Path(folder, "kept").exists()
    marked = run("apply", folder, "--from", str(out), "--mark", "cluster")
    assert marked.stdout == "".join(
        f"{folder}/{name}\ta.txt\t{kept}\n"
        for name, kept in (("a.txt", "false"), ("sub/b.txt", "false"), ("z.txt", "true"))
    )


def test_a_document_that_dedup_did_not_read_is_an_error_and_writes_no_file(results: str, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"id": "a", "fp": "0x1"}\n{"id": "unknown", "fp": "0x2"}\n')
    kept = tmp_path / "kept.jsonl"
    result = run("apply", str(tmp_path / "other.jsonl"), "--from", results, "--out", str(kept))
    assert result.exit_code == 2
    assert f"other.jsonl:2: 'unknown' is not in the results in {results}: expected ids such as 'a'" in result.stderr
    assert not kept.exists()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("gone/kept", "No such file or directory"),
        ("in.jsonl/kept", "Not a directory"),
        ("x" * 250, "File name too long"),
    ],
)
def test_a_file_that_cannot_be_made_is_named_as_it_was_given(
    name: str, reason: str, source: str, results: str, tmp_path: Path
) -> None:
    kept = str(tmp_path / name)
    result = run("apply", source, "--from", results, "--out", kept)
    assert result.exit_code == 1
    assert f"{kept}: {reason}" in result.stderr


def test_documents_that_the_inputs_lack_are_said(results: str, tmp_path: Path) -> None:
    (tmp_path / "part.jsonl").write_text('{"id": "a", "fp": "0x1"}\n')
    result = run("apply", str(tmp_path / "part.jsonl"), "--from", results)
    assert result.exit_code == 0
    assert "missing from the inputs: 3 documents that dedup read" in result.stderr


def test_no_complete_results_are_an_error(source: str, results: str, tmp_path: Path) -> None:
    Path(results, "stats.json").unlink()
    for folder in (results, str(tmp_path / "none")):
        result = run("apply", source, "--from", folder, *FIELD)
        assert result.exit_code == 2
        assert f"{folder} does not contain complete dedup results: stats.json is missing" in result.stderr


@pytest.mark.parametrize("name", ["keep.txt", "drop.txt", "clusters.jsonl"])
def test_results_that_are_damaged_are_named(name: str, source: str, results: str) -> None:
    Path(results, name).write_bytes(b"\xff")
    result = run("apply", source, "--from", results, "--mark", "cluster")
    assert result.exit_code == 1
    assert f"{Path(results, name)} cannot be read: " in result.stderr
    assert "run 'hsimhash dedup' again" in result.stderr


def test_mark_and_dropped_exclude_each_other(source: str, results: str) -> None:
    result = run("apply", source, "--from", results, "--mark", "cluster", "--dropped")
    assert result.exit_code == 2
    assert "--mark cannot be combined with --dropped" in result.stderr


READINGS = {  # for each case: the input's name, its content, and the options that dedup needs to read it
    "other id": (
        "in.jsonl",
        '{"url": "a", "text": "one text here"}\n{"url": "b", "text": "one text here"}\n',
        "--id-field url",
    ),
    "other text": (
        "in.jsonl",
        '{"id": "a", "body": "one text here"}\n{"id": "b", "body": "one text here"}\n',
        "--text-field body",
    ),
    "two fields": (
        "in.jsonl",
        '{"id": "a", "title": "one", "body": "text here"}\n{"id": "b", "title": "one", "body": "text here"}\n',
        "--field title=2 --field body=1",
    ),
    "features": (
        "in.jsonl",
        '{"id": "a", "tags": {"cat": 0.5, "dog": 1}}\n{"id": "b", "tags": {"cat": 0.5, "dog": 1}}\n',
        "--features-field tags",
    ),
    "any name": ("in.data", "a\tone text here\nb\tone text here\n", "--format tsv"),
    "fingerprints": ("in.data", "a\t0x1\nb\t0x1\n", "--format fingerprints"),
    "decimals": ("in.tsv", "a\t1291587514616409\nb\t1291587514616409\n", "--fingerprint-format decimal"),
}


@pytest.mark.parametrize("is_piped", [False, True], ids=["file", "pipe"])
@pytest.mark.parametrize("name", READINGS)
def test_inputs_are_read_as_dedup_read_them(
    name: str, is_piped: bool, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file, content, options = READINGS[name]
    Path(file).write_text(content)
    assert run("dedup", file, "--out", str(out), *options.split()).exit_code == 0
    kept = run_apart("apply", "-" if is_piped else file, "--from", str(out), given=content.encode() * is_piped)
    assert kept.returncode == 0, kept.stderr
    assert kept.stdout.decode() == content.splitlines(keepends=True)[0]
    repeated = run("apply", file, "--from", str(out), *options.split())
    assert (repeated.exit_code, repeated.stdout) == (0, kept.stdout.decode())


@pytest.mark.parametrize("option", ["--id-field url", "--format csv", "--field title=2", "--fingerprint-format hex"])
def test_an_option_that_contradicts_dedup_is_refused(option: str, out: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": "a", "text": "one text here"}\n')
    assert run("dedup", str(source), "--out", str(out)).exit_code == 0
    refused = run("apply", str(source), "--from", str(out), *option.split())
    assert refused.exit_code == 2
    assert f"{option} contradicts the options that 'hsimhash dedup' recorded in {out}" in refused.stderr


@pytest.mark.parametrize("record", ['{"name": "a", "fp": "0x1"}', '{"id": "z", "fp": "0x1"}', "", "nonsense"])
def test_records_of_which_none_is_known_write_no_file(record: str, results: str, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text(f"{record}\n")
    result = run("apply", str(tmp_path / "other.jsonl"), "--from", results, "--out", str(tmp_path / "kept.jsonl"))
    assert result.exit_code == 2
    assert results in result.stderr
    assert "expected ids such as 'a'" in result.stderr
    assert not (tmp_path / "kept.jsonl").exists()


def test_results_of_an_earlier_release_are_applied(source: str, results: str) -> None:
    stats = json.loads(Path(results, "stats.json").read_text())
    del stats["read_as"]
    for name in ("extract", "fields", "has_features", "has_signatures", "first_seen_field"):
        del stats["options"][name]
    Path(results, "stats.json").write_text(json.dumps(stats))
    assert run("apply", source, "--from", results).stdout.startswith('{"id":"a",')


OVER_LIMITS = f"<html><body>{'<p>x' * 950_000}</body></html>"
TEXT = "The harbour ferry will not run on Sunday because divers have to look at the moorings."


@thorough
@pytest.mark.parametrize("is_piped", [False, True], ids=["file", "pipe"])
def test_a_record_whose_text_dedup_rejected_is_left_out_in_favour_of_a_later_one(is_piped: bool, out: Path) -> None:
    lines = [
        json.dumps({"id": doc_id, "text": text}) for doc_id, text in (("a", OVER_LIMITS), ("b", TEXT), ("a", "Bye"))
    ]
    source = out.with_name("pages.jsonl")
    source.write_text("\n".join([*lines, json.dumps({"id": "c", "text": OVER_LIMITS}), ""]))
    assert run("dedup", str(source), "--out", str(out)).exit_code == 7
    given = source.read_bytes() if is_piped else b""
    done = run_apart("apply", "-" if is_piped else str(source), "--from", str(out), given=given)
    assert (done.returncode, done.stdout.decode().splitlines()) == (7, lines[1:])
    assert b"left out 2 invalid records" in done.stderr


@thorough
def test_a_page_in_a_folder_that_dedup_rejected_is_left_out(out: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "a.html").write_text(OVER_LIMITS)
    (folder / "b.txt").write_text(TEXT)
    assert run("dedup", str(folder), "--out", str(out)).exit_code == 7
    done = run_apart("apply", str(folder), "--from", str(out))
    assert (done.returncode, done.stdout.decode().splitlines()) == (7, [str(folder / "b.txt")])


def test_a_byte_order_mark_between_joined_files_does_not_stop_the_marking_of_records(out: Path) -> None:
    source = out.with_name("joined.jsonl")
    line = json.dumps({"id": "a", "kept": 1, "text": TEXT}).encode()
    source.write_bytes(b'{"id": "b", "text": "Bye"}\n' + BYTE_ORDER_MARK + line + b"\n")
    assert run("dedup", str(source), "--out", str(out)).exit_code == 0
    done = run_apart("apply", str(source), "--from", str(out), "--mark", "cluster")
    assert lines_of(done.stdout.decode())[1] == {"id": "a", "kept": True, "text": TEXT, "cluster": "a"}
