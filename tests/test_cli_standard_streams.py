"""Standard streams that the caller closed or that nobody reads: nothing is lost because of them."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from hsimhash.index import HSimIndex
from tests.support.command_line import own_process, run_apart
from tests.support.effort import thorough
from tests.support.processes import wait_until

LINES = "".join(f'{{"id": "d{number}", "fingerprint": "{number:016x}"}}\n' for number in range(2_000))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"lmdb://{tmp_path / 'index'}"


@pytest.fixture
def ingest(url: str, tmp_path: Path) -> tuple[str, ...]:
    """Return the command that adds 2,000 documents to the index."""
    (tmp_path / "in.jsonl").write_text(LINES)
    return ("ingest", str(tmp_path / "in.jsonl"), "--fingerprint-field", "fingerprint", "--store", url)


def broken_pipe() -> int:
    """Return the write end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing


def test_closed_streams_do_no_harm_to_the_index(ingest: tuple[str, ...], url: str) -> None:
    done = run_apart(*ingest, preexec_fn=lambda: [os.close(number) for number in (0, 1, 2)] and None)
    assert done.returncode == 1  # the summary could not be printed
    with HSimIndex.open(url) as index:
        assert index.count() == 2_000
        assert index.check().is_sound


@pytest.mark.parametrize("command", ["export", "query", "describe", "find-all"])
def test_what_a_closed_stdout_does_not_get_is_an_error(command: str, url: str) -> None:
    arguments = {"query": ("1",), "find-all": ("-b", "4", "-d", "3")}.get(command, ())
    with HSimIndex.create(url) as index:
        index.add(1, "a")
    failed = run_apart(
        *(command, *arguments, *(() if command == "find-all" else ("--store", url))),
        given=b"1\n3\n",
        preexec_fn=lambda: os.close(1),
    )
    assert failed.returncode == (8 if command == "find-all" else 1)
    assert b"Bad file descriptor" in failed.stderr
    assert b"stdout" in failed.stderr or b"standard output" in failed.stderr
    assert b"exported" not in failed.stderr
    assert b"Traceback" not in failed.stderr
    assert b"Exception ignored" not in failed.stderr


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("query", "--help"), ("demo",)])
def test_help_that_cannot_be_printed_is_an_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    failed = run_apart(*arguments, cwd=tmp_path, preexec_fn=lambda: os.close(1))
    assert failed.returncode == 1
    assert failed.stderr.startswith(b"hsimhash: error: ")
    assert b"Bad file descriptor" in failed.stderr
    assert b"Exception ignored" not in failed.stderr


def test_a_closed_stdout_is_no_error_where_nothing_is_written_to_it(url: str) -> None:
    assert run_apart("create-table", "--store", url, preexec_fn=lambda: os.close(1)).returncode == 0


@pytest.mark.parametrize(
    ("command", "code", "reason"),
    [
        (("ingest", "-"), 2, b"stdin is closed"),
        (("query", "-"), 2, b"stdin is closed"),
        (("find-all", "-b", "4", "-d", "3"), 7, b"Error reading stdin: "),
    ],
    ids=["ingest", "query", "find-all"],
)
def test_a_closed_stdin_cannot_be_read(command: tuple[str, ...], code: int, reason: bytes, url: str) -> None:
    HSimIndex.create(url).close()
    failed = run_apart(*command, environment={"HSIMHASH_STORE": url}, preexec_fn=lambda: os.close(0))
    assert failed.returncode == code
    assert reason in failed.stderr


@thorough
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_while_workers_start_is_an_interruption(
    sent: signal.Signals, url: str, tmp_path: Path
) -> None:
    text = "a page of many different words " * 40
    lines = (json.dumps({"id": str(number), "text": f"{number} {text}"}) for number in range(3_000))
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    arguments = ("ingest", str(tmp_path / "in.jsonl"), "--workers", "2", "--store", url)
    process = own_process(*arguments, start_new_session=True)
    wait_until((tmp_path / "index" / "jobs").exists, process)  # the job begins just before the workers start
    os.killpg(process.pid, sent)
    _, told = process.communicate()
    assert b"Traceback" not in told
    assert b"worker process died" not in told
    assert process.returncode == 130


def test_a_reader_of_the_talk_that_goes_away_ends_no_work(ingest: tuple[str, ...], url: str) -> None:
    done = run_apart("-vv", *ingest, stderr=broken_pipe())
    assert done.returncode == 0
    assert json.loads(done.stdout)["added"] == 2_000
    with HSimIndex.open(url) as index:
        assert index.count() == 2_000


@pytest.mark.parametrize(
    ("arguments", "code"), [(("describe", "--store", "lmdb://gone"), 5), (("describe", "--no-such-flag"), 2)]
)
def test_an_error_that_nobody_hears_keeps_its_exit_code(arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    path = str(Path(__file__).parents[1])
    failed = run_apart(*arguments, cwd=tmp_path, stderr=broken_pipe(), environment={"PYTHONPATH": path})
    assert failed.returncode == code


def test_a_signal_whose_answer_nobody_hears_ends_resumably(url: str, tmp_path: Path) -> None:
    command = ("ingest", "-", "--fingerprint-field", "fingerprint", "--store", url)
    process = own_process(*command, stderr=broken_pipe())
    # From here on, the job handles the signal.
    wait_until(lambda: any((tmp_path / "index").glob("jobs/*/checkpoint.json")), process)
    process.send_signal(signal.SIGTERM)
    assert process.communicate() == (b"", None)
    assert process.returncode == 130
