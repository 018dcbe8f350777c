"""`hsimhash ingest` through the real entry point."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hsimhash import sample
from hsimhash.cli.console import progress_lines
from hsimhash.cli.exit_codes import ExitCode
from hsimhash.fingerprint import Signature
from hsimhash.index import HSimIndex
from hsimhash.progress import Progress
from hsimhash.store import Document
from tests.support.command_line import PATIENCE_S, ids_in, make_index, on_terminal, own_process, run, run_apart, send
from tests.support.effort import thorough, tries
from tests.support.processes import read_bytes, wait_until

TEXT = "Near-duplicate pages are common on the web, and a search engine has to find {} of them quickly and cheaply. "
SLOWLY = ("--rate", "1000")  # keeps a command at work after the test has seen it begin


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb://{tmp_path / 'index'}"


def pages(path: Path, count: int) -> Path:
    path.write_text("".join(f"{number}\t{TEXT.format(number)}\n" for number in range(count)))
    return path


def fingerprints(path: Path, count: int) -> Path:
    path.write_text("".join(f"{number}\t{number * 0x9E3779B97F4A7C15 % 2**64:016x}\n" for number in range(count)))
    return path


# What is ingested.


def test_the_sample_goes_in_with_one_command(url: str) -> None:
    result = run("ingest", str(sample.documents()), "--store", url)
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    assert summary["documents"] == summary["added"] + summary["short"]
    assert f"created {url} with layout 4 and profile auto-3-rarity-" in result.stderr
    assert len(ids_in(url)) == summary["added"]


@pytest.mark.parametrize("packing", ["", ".gz", ".zst"])
@pytest.mark.parametrize("mode", ["add", "skip", "tag"])
def test_an_export_ingested_gives_the_same_index(packing: str, mode: str, tmp_path: Path) -> None:
    documents = {f"https://example.org/文/{number}": number * 0x9E3779B97F4A7C15 % 2**64 for number in range(300)}
    url, copy = make_index(tmp_path, documents, first_seen=12345), f"lmdb://{tmp_path / 'copy'}"
    export = str(tmp_path / f"export.jsonl{packing}")
    assert run("export", "--output", export, "--store", url).exit_code == 0
    result = run("ingest", export, "--fingerprint-field", "fingerprint", "--on-duplicate", mode, "--store", copy)
    assert result.exit_code == 0
    with HSimIndex.open(url) as one, HSimIndex.open(copy) as other:
        assert list(other.documents()) == list(one.documents())


numbers = st.integers(0, 2**64 - 1)
kept = st.dictionaries(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=4),
    st.tuples(st.builds(Signature, numbers, numbers | st.just(0), numbers | st.just(0)), st.integers(0, 2**53)),
    min_size=1,
    max_size=20,
)


@given(kept=kept)
@settings(max_examples=tries(15, 4), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize(("made_with", "into"), [("auto-2", "auto-2"), ("auto-2", "auto-1"), ("auto-1", "auto-2")])
def test_an_export_has_the_sketches_and_keys_that_there_are_and_an_ingest_takes_them(
    made_with: str, into: str, kept: dict[str, tuple[Signature, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("place")
    given_signatures = {doc_id: signature for doc_id, (signature, _) in kept.items()}
    url = make_index(folder, given_signatures, profile=made_with, first_seen=[seen for _, seen in kept.values()])
    export, copy = str(folder / "export.jsonl"), f"lmdb://{folder / 'copy'}"
    assert run("export", "--output", export, "--store", url).exit_code == 0
    reading = ("--fingerprint-field", "fingerprint", "--fingerprint-format", "hex")
    assert run("ingest", export, *reading, "--profile", into, "--store", copy).exit_code == 0
    has_signatures = made_with == into == "auto-2"
    expected = [
        Document.of(doc_id, signature if has_signatures else Signature(signature.fingerprint), seen)
        for doc_id, (signature, seen) in kept.items()
    ]
    with HSimIndex.open(copy) as index:
        assert sorted(index.documents()) == sorted(expected)


def test_a_batch_keeps_what_its_sketches_or_keys_tell_apart_unless_that_is_off(url: str, tmp_path: Path) -> None:
    near, unlike, framed = Signature(7, 2**64 - 1, 5), Signature(7, 1, 6), Signature(2**15 - 1, 2**64 - 2, 5)
    lines = ({"id": name, **one.to_json()} for name, one in (("near", near), ("unlike", unlike), ("framed", framed)))
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    reading = ("--fingerprint-field", "fingerprint", "--profile", "auto-2", "--on-duplicate")
    ingest = ("ingest", str(tmp_path / "in.jsonl"), *reading)
    assert json.loads(run(*ingest, "skip", "--store", url).stdout)["duplicates"] == 1
    assert ids_in(url) == ["near", "unlike"]
    assert json.loads(run(*ingest, "skip", "--max-sketch", "off", "--store", f"{url}-off").stdout)["duplicates"] == 2
    tags = tmp_path / "tags.jsonl"
    assert run(*ingest, "tag", "--tags", str(tags), "--store", f"{url}-tag").exit_code == 0
    match = {"distance": 12, "id": "near", "fingerprint": f"{7:016x}", "similarity": 1 - 2 / 64, "found_by": "key"}
    tagged = [json.loads(line) for line in tags.read_text().splitlines()]
    assert [one["match"] for one in tagged] == [None, None, match]
    assert tagged[2] == {"id": "framed", **framed.to_json(), "match": match}


def test_a_folder_stdin_and_files_go_in(url: str, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "page.txt").write_text(TEXT)
    path = tmp_path / "more.json.gz"
    path.write_bytes(gzip.compress(b'{"url": "b", "body": "a text"}'))
    arguments = ("--id-field", "url", "--text-field", "body", "--workers", "1", "--store", url)
    result = run("ingest", str(tmp_path / "texts"), str(path), *arguments)
    assert result.exit_code == 0
    done = run_apart("ingest", "-", *arguments, given=b'{"url": 7, "body": "another"}')
    assert done.returncode == 0
    assert json.loads(done.stdout)["added"] == 1
    assert ids_in(url) == [f"{tmp_path}/texts/page.txt", "7", "b"]


def test_a_header_line_is_refused_until_the_format_is_said(url: str, tmp_path: Path) -> None:
    path = fingerprints(tmp_path / "in.tsv", 50)
    path.write_text(f"id\tfingerprint\n{path.read_text()}")
    result = run("ingest", str(path), "--store", url)
    assert result.exit_code == 2
    assert "line 1 is 'id\\tfingerprint'; pass --format fingerprints" in result.stderr
    assert not (tmp_path / "index").exists()
    result = run("ingest", str(path), "--format", "fingerprints", "--store", url)
    assert (result.exit_code, json.loads(result.stdout)["added"]) == (7, 50)


def test_an_export_of_one_document_without_a_letter_is_refused_naming_the_option(tmp_path: Path) -> None:
    url, copy = make_index(tmp_path, {"a": 0x1291587514616409}), f"lmdb://{tmp_path / 'copy'}"
    export = str(tmp_path / "export.tsv")
    assert run("export", "--output", export, "--store", url).exit_code == 0
    result = run("ingest", export, "--store", copy)
    assert result.exit_code == 2
    assert "--fingerprint-format hex|decimal|signed" in result.stderr
    assert run("ingest", export, "--store", copy, environment={"HSIMHASH_FINGERPRINT_FORMAT": "hex"}).exit_code == 0
    with HSimIndex.open(url) as one, HSimIndex.open(copy) as other:
        assert [document[:2] for document in other.documents()] == [document[:2] for document in one.documents()]


def test_skip_and_tag_do_as_they_say(url: str, tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("a\t0x1\nb\t0x3\nc\t0xff000000\n")
    tags = tmp_path / "tags.jsonl"
    ingest = ("ingest", str(tmp_path / "in.tsv"), "--on-duplicate")
    result = run(*ingest, "tag", "--tags", str(tags), "--store", url)
    assert json.loads(result.stdout)["tags"] == str(tags)
    matches = [json.loads(line)["match"] for line in tags.read_text().splitlines()]
    match = {"id": "a", "distance": 1, "fingerprint": f"{1:016x}", "similarity": None, "found_by": "distance"}
    assert matches == [None, match, None]
    other = f"{url}-skip"
    result = run(*ingest, "skip", "--store", other)
    assert json.loads(result.stdout)["duplicates"] == 1
    assert ids_in(other) == ["a", "c"]
    listed = Path(json.loads(result.stdout)["tags"])  # in the job folder
    assert [json.loads(line) for line in listed.read_text().splitlines()] == [
        {"id": "b", "fingerprint": f"{3:016x}", "match": match}
    ]
    result = run(*ingest, "skip", "--distance", "0", "--store", f"{url}-0")
    assert json.loads(result.stdout)["duplicates"] == 0
    assert "tags" not in json.loads(result.stdout)


# Exit codes.


def test_rejected_records_are_7_and_said_again_when_there_is_nothing_to_do(url: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('nonsense\n{"id": "a", "text": "b"}')
    first = run("ingest", str(tmp_path / "in.jsonl"), "--store", url)
    again = run("ingest", str(tmp_path / "in.jsonl"), "--store", url)
    assert first.exit_code == again.exit_code == 7
    assert json.loads(again.stdout) == {**json.loads(first.stdout), "repeated": True}
    assert "1 record rejected, see" in first.stderr
    assert "nothing to do" in again.stderr
    rejects = Path(json.loads(first.stdout)["rejects"])
    assert rejects.read_text().count("\n") == 1
    rejects.unlink()  # users may delete it
    assert run("ingest", str(tmp_path / "in.jsonl"), "--store", url).exit_code == 7


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        (b"a\ta text\n1\tother\n", b"--format tsv"),
        (b'{"id": "a", "text": "b"}\na\ta text\n', None),
    ],
    ids=["lines with tabs", "one such line"],
)
def test_the_remedy_is_named_where_nothing_is_a_line_of_json(given: bytes, hint: bytes | None, url: str) -> None:
    result = run_apart("ingest", "-", "--workers", "1", "--store", url, given=given)
    assert result.returncode == 7
    assert (b"--format tsv" in result.stderr) == bool(hint)


@pytest.mark.parametrize("command", ["ingest", "dedup"])
def test_texts_that_are_read_as_json_get_a_hint_and_no_documents_are_reported(
    command: str, url: str, tmp_path: Path
) -> None:
    given = ("--store", url) if command == "ingest" else ("--out", str(tmp_path / "out"), "--overwrite")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("No JSON at all\nbut a text\n")
    texts = run(command, str(tmp_path / "texts"), "--format", "jsonl", *given)
    assert (texts.exit_code, "leave out --format" in texts.stderr) == (7, True), texts.stderr
    (tmp_path / "in.jsonl").write_text("")
    empty = run(command, str(tmp_path / "in.jsonl"), *given)
    assert (empty.exit_code, "the inputs do not contain any documents" in empty.stderr) == (0, True), empty.stderr


def test_an_index_that_learns_no_word_weights_says_so(url: str, tmp_path: Path) -> None:
    created = run("ingest", str(pages(tmp_path / "in.tsv", 3)), "--store", url)
    assert "word weights: those of general text, because there are too few documents" in created.stderr
    streamed = run("ingest", "-", "--format", "tsv", "--store", f"{url}-2", given="a\ta short text\n")
    assert "word weights: those of general text, because a stream cannot be read twice" in streamed.stderr


@thorough
@pytest.mark.parametrize("given", [b'[{"id": "a", "text": "b"}]', b'[\n {\n  "id": "a",\n  "text": "b"\n }\n]'])
def test_a_stream_may_be_a_json_array(given: bytes, url: str) -> None:
    result = run_apart("ingest", "-", "--workers", "1", "--store", url, given=given)
    assert (result.returncode, json.loads(result.stdout)["added"]) == (0, 1)


def test_records_of_a_stream_are_not_numbered_for_the_next_stream_would_replace_them(url: str) -> None:
    result = run_apart("ingest", "-", "--workers", "1", "--store", url, given=b'{"text": "some words"}\n')
    assert result.returncode == 2
    assert b"stdin: some records do not have an id" in result.stderr
    assert b"save the stream to a file, or pass --id-field" in result.stderr


def test_a_stream_whose_first_records_lack_the_text_stops_at_once(url: str) -> None:
    result = run_apart("ingest", "-", "--workers", "1", "--store", url, given=b'{"id": 1, "body": "words"}\n' * 20)
    assert result.returncode == 2
    assert b'no field "text"; the fields are id, body; pass --text-field body' in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.jsonl"], "nowhere.jsonl cannot be read: No such file"),
        (["photo.jpg"], "photo.jpg is not text"),
        (["-", "-"], "only the last input can be a stream"),
        ([], "Missing argument"),
        (["in.tsv", "--format", "xml"], "--format"),
        (["in.tsv", "--tags", "tags.jsonl"], "tags need on_duplicate skip or tag"),
        (["in.tsv", "--tags", "no/such.jsonl", "--on-duplicate", "tag"], "no/such.jsonl cannot be written"),
        (["in.tsv", "--on-duplicate", "drop"], "--on-duplicate"),
        (["in.tsv", "--distance", "17", "--on-duplicate", "skip"], "must be 0 to 16"),
        (["in.tsv", "--distance", "17", "--on-duplicate", "tag"], "must be 0 to 16"),
        (["in.tsv", "--job", "pages.txt"], "job folder pages.txt"),
        (["in.tsv", "--job", "pages.txt/job"], "job folder pages.txt/job"),
        (["in.tsv", "--job", "loop"], "job folder loop"),
        (["in.tsv", "--no-such-flag"], "No such option"),
    ],
)
def test_misuse_is_2_before_an_index_is_made(
    arguments: list[str], message: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fingerprints(tmp_path / "in.tsv", 2)
    (tmp_path / "pages.txt").write_text("")
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\x00\x10")
    (tmp_path / "loop").symlink_to("loop")
    result = run("ingest", *arguments, "--store", url)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "index").exists()


def test_documents_come_no_faster_than_the_rate(url: str, tmp_path: Path) -> None:
    began = time.monotonic()
    result = run("ingest", str(fingerprints(tmp_path / "in.tsv", 60)), "--rate", "100", "--store", url)
    assert result.exit_code == 0
    assert time.monotonic() - began >= 0.6
    assert run("ingest", str(tmp_path / "in.tsv"), "--rate", "0", "--store", url).exit_code == 2


@pytest.mark.parametrize("command", ["ingest", "create-table"])
def test_a_new_index_has_the_distance_that_is_asked_for(command: str, tmp_path: Path) -> None:
    inputs = [str(fingerprints(tmp_path / "in.tsv", 2))] if command == "ingest" else []
    url = f"lmdb://{tmp_path / 'index'}"
    assert run(command, *inputs, "--store", url, "--distance", "11").exit_code == 0
    with HSimIndex.open(url) as index:
        assert index.distance == 11


@pytest.mark.parametrize("flags", [("--layout", "4"), ("--profile", "zh-1")])
def test_another_layout_or_profile_than_the_index_has_is_5(flags: tuple[str, str], tmp_path: Path) -> None:
    url = make_index(tmp_path, {})
    result = run("ingest", str(fingerprints(tmp_path / "in.tsv", 2)), "--store", url, *flags)
    assert result.exit_code == 5
    assert ids_in(url) == []


@pytest.mark.parametrize("is_cut", [False, True], ids=["junk after", "cut off"])
@pytest.mark.parametrize(("packing", "pack"), [("gz", gzip.compress), ("zst", zstandard.compress)], ids=["gz", "zst"])
def test_damage_is_named_and_what_came_before_is_in_the_index(
    packing: str, pack: Callable[[bytes], bytes], is_cut: bool, url: str, tmp_path: Path
) -> None:
    packed = pack(fingerprints(tmp_path / "whole.tsv", 15_000).read_bytes())
    path = tmp_path / f"in.tsv.{packing}"
    path.write_bytes(packed[: len(packed) // 2] if is_cut else packed + b"junk")
    result = run("ingest", str(path), "--store", url)
    assert result.exit_code == 7
    assert f"{path}" in result.stderr
    assert "damaged or truncated near byte" in result.stderr
    assert "None" not in result.stderr
    found = len(ids_in(url))
    assert 0 < found < 15_000 if is_cut else found == 15_000


# Interruptions.


Begun = tuple[subprocess.Popen[bytes], list[str]]


def begun_job(folder: Path, url: str, **options: object) -> Begun:
    """Start to ingest 1,500 documents from a pipe that stays open; return once some are acknowledged."""
    job, given = folder / "job", fingerprints(folder / "in.tsv", 1500).read_bytes()
    arguments = ["ingest", "-", "--format", "fingerprints", "--on-duplicate", "tag", "--job", str(job), "--store", url]
    process = own_process(*arguments, **options)
    send(process, given)
    wait_until(lambda: (job / "tags.jsonl").exists() and (job / "tags.jsonl").stat().st_size > 0, process)
    return process, arguments


@pytest.fixture
def slow_job(tmp_path: Path, url: str) -> Iterator[Begun]:
    """Yield an ingest that waits for more input, and its arguments."""
    process, arguments = begun_job(tmp_path, url)
    yield process, arguments
    process.kill()
    process.communicate()


@thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_resumably_though_stdin_is_silent(
    number: signal.Signals, slow_job: Begun, tmp_path: Path, url: str
) -> None:
    process, arguments = slow_job
    process.send_signal(number)
    assert process.wait() == 130
    assert process.stdout.read() == b""
    talk = process.stderr.read().decode()
    assert "interrupted" in talk
    assert "send the whole stream again with the same command" in talk
    assert "Traceback" not in talk
    again = run_apart(*arguments, given=(tmp_path / "in.tsv").read_bytes())
    assert json.loads(again.stdout)["documents"] == 1500
    assert len(ids_in(url)) == 1500


@thorough
@pytest.mark.parametrize("mode", ["add", "skip", "tag"])
def test_sigterm_ends_an_ingest_that_waits_for_another_writer(mode: str, url: str, tmp_path: Path) -> None:
    job = tmp_path / "job"
    arguments = ["ingest", str(fingerprints(tmp_path / "in.tsv", 5)), "--on-duplicate", mode, "--job", str(job)]
    arguments += ["--store", f"{url}?lock_timeout=1h"]
    with HSimIndex.create(url) as index:
        with index.store.writing():
            process = own_process(*arguments)
            wait_until((job / "checkpoint.json").exists, process)
            if mode == "add":
                wait_until(lambda: "merging" in (job / "checkpoint.json").read_text(), process)
            process.send_signal(signal.SIGTERM)
            _, talk = process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 130, talk.decode()
            assert b"run the same command again to resume" in talk
        assert index.count() == 0
    assert run_apart(*arguments).returncode == 0
    assert len(ids_in(url)) == 5


def test_a_job_that_the_store_stops_says_how_to_resume(small_disk: Callable[[str], Path], tmp_path: Path) -> None:
    disk = small_disk("3m")
    arguments = ("ingest", str(fingerprints(tmp_path / "in.tsv", 20_000)), "--store", f"lmdb://{disk / 'index'}")
    stopped = run(*arguments)
    assert stopped.exit_code == ExitCode.STORE_UNREACHABLE
    assert "when the store works again, run the same command again to resume" in stopped.stderr
    assert "no space left" in stopped.stderr.splitlines()[-1]


def test_a_second_process_on_the_same_job_is_refused_with_the_number_of_the_first(slow_job: Begun) -> None:
    process, arguments = slow_job
    for flags in ((), ("--fresh",)):
        result = run(*arguments, *flags)
        assert result.exit_code == 4
        assert f"process {process.pid} is working on the same job" in result.stderr


@thorough
@pytest.mark.parametrize("mode", ["add", "skip"])
def test_an_ingest_of_texts_that_is_interrupted_goes_on(mode: str, url: str, tmp_path: Path) -> None:
    path = pages(tmp_path / "in.tsv", 15_000)
    arguments = ["ingest", str(path), "--on-duplicate", mode, "--workers", "2", "--store", url]
    process = own_process(*arguments, *SLOWLY)
    wait_until(lambda: any((tmp_path / "index" / "jobs").glob("*/checkpoint.json")), process)
    process.send_signal(signal.SIGINT)
    _, talk = process.communicate()
    assert process.returncode == 130, talk.decode()
    assert b"run the same command again to resume" in talk
    done = run_apart(*arguments)
    assert done.returncode == 0
    assert done.stderr.count(b"resuming at ") == 1
    assert json.loads(done.stdout)["documents"] == 15_000


def test_an_ingest_that_is_interrupted_before_its_index_exists_says_so(url: str, tmp_path: Path) -> None:
    path = pages(tmp_path / "in.tsv", 100_000)
    process = own_process("ingest", str(path), "--store", url)
    wait_until(lambda: read_bytes(process.pid, path) > path.stat().st_size // 8, process)
    process.send_signal(signal.SIGINT)
    shown, talk = process.communicate()
    assert (process.returncode, shown) == (130, b"")
    assert b"the index was not created yet; run the same command again" in talk
    assert not (tmp_path / "index").exists()


def test_a_ctrl_c_that_is_ignored_stays_so(url: str, tmp_path: Path) -> None:
    process, _ = begun_job(tmp_path, url, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN) and None)
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(stdout)["documents"] == 1500


def test_two_signals_end_it_at_once(slow_job: Begun) -> None:
    process, _ = slow_job
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130
    assert b"Traceback" not in process.stderr.read()


# What is shown.


@pytest.mark.parametrize("quiet", [(), pytest.param(("--quiet",), marks=thorough)])
def test_a_terminal_shows_a_bar_unless_it_is_quiet_and_the_summary(
    quiet: tuple[str, ...], url: str, tmp_path: Path
) -> None:
    code, shown = on_terminal("ingest", str(fingerprints(tmp_path / "in.tsv", 20_000)), "--store", url, *quiet)
    assert code == 0
    assert ("merging" in shown) == (not quiet)
    assert "Read 20,000 documents: 20,000 added." in shown


def test_elsewhere_a_line_says_how_far_it_is_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    show = progress_lines(interval_s=0)
    show(Progress("read", 1, 4, 20_000))
    show(Progress("merge", 1, 2, 20_000))
    show(Progress("check", 3, 4))
    assert capsys.readouterr().err.splitlines() == [
        "hsimhash: reading: 25%, 20,000 documents, 0/s",
        "hsimhash: merging: 50%, 20,000 documents",
        "hsimhash: check: 75%, 3 of 4",
    ]
    progress_lines(interval_s=600)(Progress("read", 1, 4, 20_000))
    assert capsys.readouterr().err == ""


def test_a_distance_that_an_index_does_not_adopt_is_pointed_out(tmp_path: Path) -> None:
    Path(source := str(tmp_path / "in.tsv")).write_text("a\t0000000000000001\n")
    said = [
        run("ingest", source, "--store", f"lmdb://{tmp_path}/index", "--fresh", *options).stderr
        for options in (["--distance", "5"], ["--distance", "2"], ["--distance", "2", "--on-duplicate", "tag"])
    ]
    assert ["the index keeps its distance of 5" in one for one in said] == [False, True, False]
