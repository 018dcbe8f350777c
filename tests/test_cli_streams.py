"""Standard streams that the caller closed, inputs that are damaged or lead nowhere: nothing is lost for them."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
import zstandard

from hsimhash.index import HSimIndex
from tests.support.command_line import own_process, run
from tests.support.processes import wait_until

LINES = "".join(f'{{"id": "d{number}", "fingerprint": "{number:016x}"}}\n' for number in range(2_000))


def test_closed_streams_do_no_harm_to_the_index(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(LINES)
    store = f"lmdb://{tmp_path / 'index'}"
    command = ("ingest", str(tmp_path / "in.jsonl"), "--fingerprint-field", "fingerprint", "--store", store)
    process = own_process(*command, preexec_fn=lambda: [os.close(number) for number in (0, 1, 2)] and None)
    assert process.wait() == 1  # the summary could not be printed
    with HSimIndex.open(store) as index:
        assert index.count() == 2_000
        assert index.check().is_sound


@pytest.mark.parametrize("command", ["export", "query", "describe", "find-all"])
def test_what_a_closed_stdout_does_not_get_is_an_error(command: str, tmp_path: Path) -> None:
    arguments = {"query": ("1",), "find-all": ("-b", "4", "-d", "3")}.get(command, ())
    store = f"lmdb://{tmp_path / 'index'}"
    with HSimIndex.create(store) as index:
        index.add(1, "a")
    process = own_process(
        *(command, *arguments, *(() if command == "find-all" else ("--store", store))),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: os.close(1),
    )
    _, told = process.communicate(b"1\n3\n")
    assert process.returncode == (8 if command == "find-all" else 1)
    assert b"Bad file descriptor" in told
    assert b"stdout" in told or b"standard output" in told
    assert b"exported" not in told
    assert b"Traceback" not in told
    assert b"Exception ignored" not in told


@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("query", "--help"), ("demo",)])
def test_help_that_cannot_be_printed_is_an_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    process = own_process(*arguments, cwd=tmp_path, stderr=subprocess.PIPE, preexec_fn=lambda: os.close(1))
    _, told = process.communicate()
    assert process.returncode == 1
    assert told.startswith(b"hsimhash: error: ")
    assert b"Bad file descriptor" in told
    assert b"Exception ignored" not in told


def test_a_closed_stdout_is_no_error_where_nothing_is_written_to_it(tmp_path: Path) -> None:
    store = f"lmdb://{tmp_path / 'index'}"
    assert own_process("create-table", "--store", store, preexec_fn=lambda: os.close(1)).wait() == 0


@pytest.mark.parametrize("command", [("ingest", "-"), ("query", "-")])
def test_a_closed_stdin_cannot_be_read(command: tuple[str, ...], tmp_path: Path) -> None:
    HSimIndex.create(f"lmdb://{tmp_path / 'index'}").close()
    process = own_process(
        *command, "--store", f"lmdb://{tmp_path / 'index'}", stderr=subprocess.PIPE, preexec_fn=lambda: os.close(0)
    )
    _, told = process.communicate()
    assert process.returncode == 2
    assert b"stdin is closed" in told


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("in.jsonl.zst", zstandard.ZstdCompressor().compress(LINES.encode()) + b"junk"),
        ("in.jsonl.gz", gzip.compress(LINES.encode()) + b"junk"),
    ],
)
def test_what_came_before_the_damage_is_kept(name: str, packed: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(packed)
    store = f"lmdb://{tmp_path / 'index'}"
    result = run("ingest", str(tmp_path / name), "--fingerprint-field", "fingerprint", "--store", store)
    assert result.exit_code == 7
    assert "None" not in result.stderr
    assert json.loads(result.stdout)["added"] == 2_000


def test_a_link_to_itself_is_a_reject_and_the_rest_goes_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "self").symlink_to("self")
    (tmp_path / "in" / "text").write_text("some words of a text")
    result = run("ingest", str(tmp_path / "in"), "--store", f"lmdb://{tmp_path / 'index'}")
    assert result.exit_code == 7
    summary = json.loads(result.stdout)
    assert (summary["added"], summary["rejected"]) == (1, 1)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_while_workers_start_is_an_interruption(sent: signal.Signals, tmp_path: Path) -> None:
    text = "a page of many different words " * 40
    lines = (json.dumps({"id": str(number), "text": f"{number} {text}"}) for number in range(3_000))
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    process = own_process(
        *("ingest", str(tmp_path / "in.jsonl"), "--workers", "2", "--store", f"lmdb://{tmp_path / 'index'}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    wait_until((tmp_path / "index" / "jobs").exists, process)  # the job begins just before the workers start
    os.killpg(process.pid, sent)
    _, told = process.communicate()
    assert b"Traceback" not in told
    assert b"worker died" not in told
    assert process.returncode == 130


def test_a_reader_of_the_talk_that_goes_away_ends_no_work(tmp_path: Path) -> None:
    store = f"lmdb://{tmp_path / 'index'}"
    (tmp_path / "in.jsonl").write_text(LINES)
    command = ("ingest", str(tmp_path / "in.jsonl"), "--fingerprint-field", "fingerprint", "--store", store)
    process = own_process("-vv", *command, stdout=subprocess.PIPE, stderr=broken_pipe())
    shown, _ = process.communicate()
    assert process.returncode == 0
    assert json.loads(shown)["added"] == 2_000
    with HSimIndex.open(store) as index:
        assert index.count() == 2_000


@pytest.mark.parametrize(
    ("arguments", "code"), [(("describe", "--store", "lmdb://gone"), 5), (("describe", "--no-such-flag"), 2)]
)
def test_an_error_that_nobody_hears_keeps_its_exit_code(arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    path = str(Path(__file__).parents[1])
    process = own_process(*arguments, cwd=tmp_path, stderr=broken_pipe(), environment={"PYTHONPATH": path})
    assert process.wait() == code


def test_a_signal_whose_answer_nobody_hears_ends_resumably(tmp_path: Path) -> None:
    store = f"lmdb://{tmp_path / 'index'}"
    command = ("ingest", "-", "--fingerprint-field", "fingerprint", "--store", store)
    process = own_process(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=broken_pipe())
    # From here on the signal is the job's.
    wait_until(lambda: any((tmp_path / "index").glob("jobs/*/checkpoint.json")), process)
    process.send_signal(signal.SIGTERM)
    assert process.communicate() == (b"", None)
    assert process.returncode == 130


def broken_pipe() -> int:
    """Return the writing end of a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    return writing
