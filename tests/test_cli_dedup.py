"""`hsimhash dedup` through the real entry point."""

from __future__ import annotations

import gzip
import json
import os
import signal
from dataclasses import asdict
from pathlib import Path

import pytest

from hsimhash import sample
from hsimhash.inputs import InputOptions
from tests.support.command_line import make_index, on_terminal, own_process, run, run_apart, send
from tests.support.effort import thorough
from tests.support.processes import wait_until

TEXT = "Near-duplicate pages are common on the web, and a search engine has to find {} of them quickly and cheaply. "


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def fingerprints(path: Path, *values: int) -> str:
    path.write_text("".join(f"d{number}\t{value:016x}\n" for number, value in enumerate(values)))
    return str(path)


def test_the_sample_is_deduplicated_with_one_command(out: Path) -> None:
    result = run("dedup", str(sample.documents()), "--out", str(out))
    assert result.exit_code == 0, result.stderr
    summary = json.loads(result.stdout)
    assert summary["documents"] == summary["kept"] + summary["dropped"]
    assert summary["dropped"] > 0
    assert summary["out"] == str(out)
    assert {path.name for path in out.iterdir()} == {
        *("pairs.parquet", "clusters.parquet", "keep.txt", "drop.txt", "short.jsonl", "stats.json", "report.html")
    }
    assert "<table" in (out / "report.html").read_text("utf-8")


def test_every_option_arrives(out: Path, tmp_path: Path) -> None:
    options = "--clusters components --max-cluster-size 3 --distance 2 --max-sketch off --keep last"
    source = fingerprints(tmp_path / "in.tsv", 1, 1, 3)
    result = run(
        *("dedup", source, "--out", str(out), "--table-format", "jsonl", "--pairs", "all", "--workers", "1"),
        *f"{options} --keep shortest-id --memory 64M --fit off".split(),
    )
    assert result.exit_code == 0, result.stderr
    assert "in.tsv holds fingerprints" in result.stderr
    stats = json.loads((out / "stats.json").read_text())
    assert stats["options"] == {
        "max_distance": 2,
        "max_sketch": None,
        "clusters": "components",
        "max_cluster_size": 3,
        "keep": ["last", "shortest-id"],
        "pairs": "all",
        "fit": "off",
        **json.loads(json.dumps(asdict(InputOptions(has_signatures=True)))),
    }
    assert (stats["run"]["memory_bytes"], stats["run"]["workers"]) == (64 << 20, 1)
    assert (out / "pairs.jsonl").read_text().count("\n") == 3
    assert (out / "keep.txt").read_text() == "d2\n"


def test_stdin_and_other_fields_are_read(out: Path) -> None:
    lines = [{"url": 7, "body": TEXT}, {"url": 8, "body": TEXT}]
    arguments = ("dedup", "-", "--out", str(out), "--id-field", "url", "--text-field", "body", "--workers", "1")
    done = run_apart(*arguments, given="".join(json.dumps(line) + "\n" for line in lines).encode())
    assert done.returncode == 0
    assert json.loads(done.stdout)["dropped"] == 1
    assert (out / "keep.txt").read_text() == "7\n"
    assert "standard input can be read only once" in (out / "report.html").read_text("utf-8")


def test_against_an_index_its_profile_and_matches_are_taken(out: Path, tmp_path: Path) -> None:
    url = make_index(tmp_path, {"old": 0b11}, first_seen=42)
    source = fingerprints(tmp_path / "in.tsv", 0, 2**64 - 1)
    result = run("dedup", source, "--out", str(out), "--against", url, "--table-format", "jsonl")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["matched"] == 1
    expected = {"id": "d0", "old_id": "old", "distance": 2, "first_seen": 42}
    assert json.loads((out / "matches.jsonl").read_text()) == expected
    assert (out / "drop.txt").read_text() == "d0\n"


def test_stored_documents_with_the_id_of_an_input_are_counted(out: Path, tmp_path: Path) -> None:
    source = fingerprints(tmp_path / "in.tsv", 0, 2**64 - 1)
    for number, stored in enumerate(({"d0": 0b11, "far": 0xFFFF}, {"d1": 0xFFFF, "old": 1})):
        (tmp_path / str(number)).mkdir()
        url = make_index(tmp_path / str(number), stored)
        result = run("dedup", source, "--out", str(out), "--against", url, "--overwrite")
        assert json.loads(result.stdout)["matched"] == number
        assert ("already in the index under the same id, such as 'd0'; documents are" in result.stderr) == (not number)


def test_a_warning_says_if_all_may_have_been_stored_under_other_ids(out: Path, tmp_path: Path) -> None:
    url = make_index(tmp_path, {"week/d0": 5, "week/d1": 77})
    for values, is_told in (((5, 77), True), ((5, 76), False), ((5, 77, 2**63), False)):
        source = fingerprints(tmp_path / "in.tsv", *values)
        result = run("dedup", source, "--out", str(out), "--against", url, "--overwrite")
        assert ("with a different id, such as 'd0' and 'week/d0'" in result.stderr) == is_told


def test_a_profile_that_is_not_the_indexs_is_5_and_so_is_no_index(out: Path, tmp_path: Path) -> None:
    url, source = make_index(tmp_path), fingerprints(tmp_path / "in.tsv", 0)
    result = run("dedup", source, "--out", str(out), "--against", url, "--profile", "zh-1")
    assert result.exit_code == 5
    assert run("dedup", source, "--out", str(out), "--against", f"{url}-none").exit_code == 5
    assert not out.exists()


def test_rejected_records_are_7(out: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(b'nonsense\n{"id": "a", "text": "b"}'))
    result = run("dedup", str(tmp_path / "in.jsonl.gz"), "--out", str(out))
    assert result.exit_code == 7
    assert f"1 record rejected, see {out / 'rejects.jsonl'}" in result.stderr
    assert json.loads((out / "rejects.jsonl").read_text())["line"] == 1


def test_warnings_and_cut_components_are_said(out: Path, tmp_path: Path) -> None:
    source = fingerprints(tmp_path / "in.tsv", *[5] * 200, 4)
    result = run("dedup", source, "--out", str(out), "--clusters", "components", "--max-cluster-size", "10")
    assert "hsimhash: Hot fingerprint: 200 of 201 documents" in result.stderr
    assert "split 1 component of more than 10 documents into stars" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory", "lots"], "'lots' is not a valid size: expected a number of bytes, such as 512M or 2G"),
        (["--memory", "0"], "'0' is not a valid size"),
        (["--keep", "best"], "unknown keep policy 'best'; use first, last"),
        (["--clusters", "stars"], "'stars' is not one of 'star', 'components'"),
        (["--max-cluster-size", "9"], "max_cluster_size applies only to components"),
        (["--table-format", "csv"], "unknown table format 'csv'; use auto, parquet, jsonl"),
        (["--distance", "64"], "64"),
        (["--max-sketch", "65"], "65"),
        (["--out", ""], "the name is empty: expected a folder, or . for the current one"),
        (["--keep", "longest"], "keep policy longest needs texts"),
        (["--fingerprint-field", ""], "name of a JSON field is empty"),
    ],
)
def test_misuse_is_2_and_writes_nothing(options: list[str], message: str, out: Path, tmp_path: Path) -> None:
    result = run("dedup", fingerprints(tmp_path / "in.tsv", 1), "--out", str(out), *options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not out.exists()


def test_a_folder_may_have_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    out = os.fsencode(tmp_path) + b"/\xff"
    source = fingerprints(tmp_path / "in.tsv", 1, 2)
    done = run_apart("dedup", source, "--out", out)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["out"] == f"{tmp_path}/\\xff"
    assert os.path.exists(out + b"/stats.json")  # noqa: PTH110 (a path of bytes)


def test_results_are_replaced_only_with_overwrite(out: Path, tmp_path: Path) -> None:
    source = fingerprints(tmp_path / "in.tsv", 1, 2)
    assert run("dedup", source, "--out", str(out)).exit_code == 0
    again = run("dedup", source, "--out", str(out))
    assert again.exit_code == 2
    assert "stats.json already exists; use --overwrite to replace it" in again.stderr
    assert run("dedup", source, "--out", str(out), "--overwrite").exit_code == 0


@thorough
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_a_run_that_is_ended_leaves_no_results_and_the_next_one_is_whole(
    number: signal.Signals, code: int, out: Path, tmp_path: Path
) -> None:
    with own_process("dedup", "-", "--out", str(out), "--format", "tsv", "--workers", "2") as process:
        send(process, "".join(f"{n}\t{TEXT.format(n)}\n" for n in range(1000)).encode() + b"x\n")
        wait_until((out / ".dedup.new").exists, process)
        process.send_signal(number)
        _, told = process.communicate()
        assert process.returncode == code
        assert (b"interrupted: nothing was written; run the same" in told) == (number != signal.SIGKILL)
    assert not [path for path in out.iterdir() if not path.name.startswith(".")]
    result = run("dedup", fingerprints(tmp_path / "in.tsv", 1, 2), "--out", str(out))
    assert result.exit_code == 0, result.stderr
    assert not list(out.glob(".*"))


@thorough
def test_a_terminal_is_shown_a_bar(out: Path, tmp_path: Path) -> None:
    code, shown = on_terminal("dedup", fingerprints(tmp_path / "in.tsv", *range(2000)), "--out", str(out))
    assert code == 0
    assert "writing" in shown
    assert "Read 2,000 documents: " in shown


def test_decimals_are_compared_and_applied_as_they_were_written(tmp_path: Path) -> None:
    # 1 bit apart as decimals; 27 if the 16-digit one were read as hexadecimal.
    (tmp_path / "in.tsv").write_text("a\t1291587514616409\nb\t19305986024098393\n")
    result = run("dedup", str(tmp_path / "in.tsv"), "--out", str(tmp_path / "out"), "--table-format", "jsonl")
    assert result.exit_code == 0
    assert "read as decimal" in result.stderr
    assert (tmp_path / "out" / "drop.txt").read_text() == "b\n"
    kept = run("apply", str(tmp_path / "in.tsv"), "--from", str(tmp_path / "out"))
    assert (kept.exit_code, kept.stdout) == (0, "a\t1291587514616409\n")


def test_short_and_invalid_files_of_a_folder_are_listed_with_their_paths(tmp_path: Path) -> None:
    folder, out = tmp_path / "texts", tmp_path / "out"
    folder.mkdir()
    for name, content in {"good.txt": b"a text of a few words", "short.txt": b"...", "latin.txt": b"caf\xe9"}.items():
        (folder / name).write_bytes(content)
    assert run("dedup", str(folder), "--out", str(out)).exit_code == 7
    for name, path in {"short": folder / "short.txt", "rejects": folder / "latin.txt"}.items():
        (line,) = (json.loads(one) for one in (out / f"{name}.jsonl").read_text().splitlines())
        assert (line["file"], line["line"]) == (str(path), 1)
