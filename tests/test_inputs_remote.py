"""Inputs behind URLs: the same documents as from local files, resumed by ranges, without showing secrets."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest

from hsimhash.errors import InputUnavailableError
from hsimhash.inputs import Input, InputOptions, find_inputs
from hsimhash.inputs.reader import read_batches
from hsimhash.inputs.remote import shown_url
from tests.support.effort import thorough
from tests.support.http_files import serving_files

OPTIONS = InputOptions()


def lines(number: int, *, size: int = 50, **more: str) -> bytes:
    words = random.Random(1)
    texts = (" ".join(str(words.getrandbits(30)) for _ in range(size)) for _ in range(number))
    return b"".join(
        json.dumps({"id": f"d{at}", "text": text, **more}).encode() + b"\n" for at, text in enumerate(texts)
    )


def ids(inputs: list[Input], options: InputOptions = OPTIONS) -> list[str]:
    return [one for batch in read_batches(inputs, options, workers=1) for one in batch.documents.doc_ids]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hsimhash", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("has_ranges", [True, False])
def test_a_remote_file_has_the_documents_of_the_local_one(tmp_path: Path, has_ranges: bool) -> None:
    data = lines(100)
    (tmp_path / "a.jsonl").write_bytes(data)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(data))
    (tmp_path / "c.csv").write_text("id,text\n1,some words\n2,other words\n")
    names = ["a.jsonl", "b.jsonl.gz", "c.csv"]
    with serving_files(tmp_path, has_ranges=has_ranges) as server:
        found = find_inputs([f"{server.url}/{name}" for name in names], OPTIONS)
        assert ids(found) == ids(find_inputs([str(tmp_path / name) for name in names], OPTIONS))
    assert all(("does not support byte ranges" in one.note) != has_ranges for one in found)


def test_parquet_is_read_by_ranges_and_refused_without(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"id": ["a", "b"], "text": ["some words", "others"]}), tmp_path / "t.parquet")
    with serving_files(tmp_path) as server:
        assert ids(find_inputs([f"{server.url}/t.parquet"], OPTIONS)) == ["a", "b"]
        server.has_ranges = False
        with pytest.raises(ValueError, match=r"does not support byte ranges; download"):
            find_inputs([f"{server.url}/t.parquet"], OPTIONS)


def test_files_by_url_and_by_pattern(tmp_path: Path) -> None:
    for number in (2, 1):
        (tmp_path / f"part{number}.jsonl").write_text(json.dumps({"id": f"p{number}", "text": "x"}))
    with serving_files(tmp_path) as server:
        for place in (f"file://{tmp_path}", server.url):
            found = find_inputs([f"{place}/part*.jsonl"], OPTIONS)
            assert [one.name for one in found] == [f"{place}/part1.jsonl", f"{place}/part2.jsonl"]
            assert ids(found) == ["p1", "p2"]
    with pytest.raises(ValueError, match="no file matches"):
        find_inputs([f"file://{tmp_path}/none*.jsonl"], OPTIONS)
    with pytest.raises(ValueError, match="is a folder; pass its files"):
        find_inputs([f"file://{tmp_path}"], OPTIONS)


def test_files_in_memory_keep_their_url() -> None:
    fsspec.filesystem("memory").pipe("/hsimhash/a.jsonl", b'{"id": "a", "text": "x"}\n')
    found = find_inputs(["memory://hsimhash/*.jsonl"], OPTIONS)
    assert ids(found) == ["a"]


def test_a_page_is_a_document_named_by_its_url(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!doctype html><title>t</title><p>some words</p>")
    with serving_files(tmp_path) as server:
        options = InputOptions(extract="none")
        assert ids(find_inputs([f"{server.url}/page.html?sig=1"], options), options) == [f"{server.url}/page.html"]


def test_a_changed_file_has_another_mark_and_a_url_signed_anew_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(2))
    with serving_files(tmp_path) as server:
        first, again = (find_inputs([f"{server.url}/a.jsonl?sig={sig}"], OPTIONS)[0] for sig in "12")
        assert (first.place, first.mark) == (again.place, again.mark)
        path.write_bytes(lines(3))
        assert find_inputs([f"{server.url}/a.jsonl"], OPTIONS)[0].mark != first.mark


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:secret@host:1/a/b.jsonl?X-Amz-Signature=1#x", "https://host:1/a/b.jsonl"),
        ("https://host?sig=a/b@c", "https://host"),
        ("s3://bucket/a#b.jsonl?versionId=1", "s3://bucket/a#b.jsonl"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
        ("abfs://box:secret@account/a", "abfs://account/a"),
        ("sftp://me:p@ss@host/a", "sftp://host/a"),
        ("sftp://me@host/a@b", "sftp://host/a@b"),
        ("https://host:8080/@me/a.jsonl", "https://host:8080/@me/a.jsonl"),
        ("https://[::1]:8080/@me/a.jsonl", "https://[::1]:8080/@me/a.jsonl"),
        ("sftp://me:p@ss@host/a@b", "sftp://…@b"),  # refused: the password may be p@ss@host/a
        ("s3://KEY:SECR/ET@bucket/a", "s3://…@bucket/a"),  # refused too
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_errors_name_the_url_and_no_secret(tmp_path: Path) -> None:
    refused = pytest.raises(ValueError, match=r"none\.jsonl cannot be read: .*404")
    with serving_files(tmp_path) as server, refused as missing:
        find_inputs([f"{server.url}/none.jsonl?sig=secret"], OPTIONS)
    with pytest.raises(InputUnavailableError, match=r"http://127.0.0.1:\d+/a\.jsonl cannot be read now") as gone:
        find_inputs([f"{server.url.replace('//', '//me:secret@')}/a.jsonl?sig=secret"], OPTIONS)
    assert "secret" not in str(missing.value) + str(gone.value) + repr(gone.value)
    with pytest.raises(ValueError, match=r"[Pp]rotocol"):
        find_inputs(["nosuch://host/a.jsonl"], OPTIONS)


def test_the_package_that_a_protocol_needs_is_named() -> None:
    with pytest.raises(ValueError, match=r"input .* cannot be read: .*(oci|OCI)"):
        find_inputs(["oci://bucket@space/a.jsonl"], OPTIONS)


@thorough
@pytest.mark.parametrize("has_ranges", [True, pytest.param(False, marks=thorough)])
def test_a_job_whose_connection_was_cut_resumes(tmp_path: Path, has_ranges: bool) -> None:
    (tmp_path / "files").mkdir()
    data = lines(6_000, size=10, ignored="x" * 2_200)  # only the text costs time
    (tmp_path / "files" / "a.jsonl").write_bytes(data)
    assert len(data) > 12 << 20
    store, url = f"lmdb://{tmp_path / 'index'}", ""
    with serving_files(tmp_path / "files", has_ranges=has_ranges) as server:
        url = f"{server.url.replace('//', '//me:secret@')}/a.jsonl?sig=secret"
        command = (
            "ingest",
            url,
            "--store",
            store,
            "--on-duplicate",
            "skip",
            "--workers",
            "1",
            "--quiet",
            "--fit",
            "off",
        )
        server.cut_at = 9 << 20
        cut = run(*command)
        assert cut.returncode == 4, cut.stderr
        assert "a.jsonl cannot be read now" in cut.stderr
        assert "run the same command again" in cut.stderr
        server.cut_at = None
        server.ranges.clear()
        done = run(*command)
        assert done.returncode == 0, done.stderr
        assert "resuming at" in done.stderr
        assert json.loads(done.stdout)["documents"] == 6_000
        starts = [start for start, end in server.ranges if end - start > 64 << 10 and start > 0]
        assert not has_ranges or sum(end - start for start, end in server.ranges if start) < len(data) - (3 << 20)
        assert bool(starts) == has_ranges
    stored = b"".join(one.read_bytes() for one in (tmp_path / "index").rglob("*") if one.is_file())
    assert b"secret" not in stored + (cut.stderr + cut.stdout + done.stderr + done.stdout).encode()
