"""The program around the commands: help, hints, exit codes, signals, pipes, full and read-only disks."""

from __future__ import annotations

import errno
import importlib.machinery
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points, version
from pathlib import Path

import click
import pytest
from numpy._core import _multiarray_umath

from hsimhash import errors
from hsimhash.cli import exit_codes, jobs, numpy_features
from hsimhash.cli.console import iso_time, size
from hsimhash.cli.exit_codes import ExitCode, exit_code_of, message_of
from hsimhash.cli.program import COMMANDS, main
from hsimhash.extras import install_command
from hsimhash.index import HSimIndex
from hsimhash.locks import WRITER_LOCK, wait_for_lock
from hsimhash.native_package import signer_name
from hsimhash.store import titles
from hsimhash.store.urls import masked
from tests.support.command_line import (
    DOCUMENTS,
    PATIENCE_S,
    ids_in,
    make_index,
    on_terminal,
    own_process,
    run,
    run_apart,
    send,
)
from tests.support.effort import thorough

OPENING = [  # commands that need an index, complete except for it
    ("query", "1"),
    ("describe",),
    ("status",),
    ("explain", "--query", "1"),
    ("check",),
    ("compact",),
    ("backup", "copy"),
    ("remove", "a", "--yes"),
    ("expire", "--before", "1d", "--yes"),
    ("export",),
]


pytestmark = pytest.mark.usefixtures("in_empty_folder")


def test_version_is_the_packages_own_and_says_what_signs_texts() -> None:
    assert (
        run("--version").stdout
        == f"hsimhash, version {version('hsimhash')}\nfingerprints are made by {signer_name()}\n"
    )


def test_help_lists_every_command_and_imports_none() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['hsimhash', '--help']\n"
        "from hsimhash.cli import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n"
        "    heavy = {'pydantic', 'rich', 'hsimhash.cli.query', 'thriftpy2', 'happybase'}\n"
        "    print(sorted(heavy & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.endswith("[]\n")
    for name in COMMANDS:
        assert f"\n  {name} " in shown


@pytest.mark.parametrize("command", [*[(name,) for name in COMMANDS if name != "settings"], ("settings", "show")])
def test_help_of_a_command_shows_an_example(command: tuple[str, ...]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Example:" in result.stdout
    assert f"hsimhash {command[0]}" in result.stdout.split("Example:")[1]


def test_unknown_command_names_the_nearest() -> None:
    result = run("qeury")
    assert result.exit_code == ExitCode.MISUSED
    assert "No such command 'qeury'. Did you mean 'query'?" in result.stderr
    assert "hsimhash --help" in run("zzz").stderr


@pytest.mark.parametrize("command", [*OPENING, ("create-table",), ("settings", "show")], ids=" ".join)
def test_wrong_flag_is_misuse_and_is_named_with_the_nearest(command: tuple[str, ...]) -> None:
    result = run(*command, "--stroe", "lmdb://x")
    assert result.exit_code == ExitCode.MISUSED
    assert "No such option '--stroe'" in result.stderr
    assert "'--store'" in result.stderr


@pytest.mark.parametrize("command", OPENING, ids=lambda command: command[0])
def test_missing_index_is_a_mismatch_and_names_the_remedy(command: tuple[str, ...]) -> None:
    result = run(*command, "--store", "lmdb://gone")
    assert result.exit_code == ExitCode.MISMATCH
    assert result.stdout == ""
    assert "gone" in result.stderr
    assert "hsimhash ingest INPUT --store lmdb://" in result.stderr
    assert not Path("gone").exists()


@pytest.mark.parametrize("command", OPENING, ids=lambda command: command[0])
def test_layout_that_was_asked_for_must_be_the_indexs_own(command: tuple[str, ...], tmp_path: Path) -> None:
    url = make_index(tmp_path, layout="4")
    before = ids_in(url)
    result = run(*command, "--store", url, environment={"HSIMHASH_LAYOUT": "20"})
    assert result.exit_code == ExitCode.MISMATCH
    assert "layout 4, not 20" in result.stderr
    assert ids_in(url) == before
    assert not Path("copy").exists()


def test_profile_that_was_asked_for_must_be_the_indexs_own(tmp_path: Path) -> None:
    result = run("query", "1", "--store", make_index(tmp_path), environment={"HSIMHASH_PROFILE": "zh-1"})
    assert result.exit_code == ExitCode.MISMATCH
    assert "profile auto-1, not zh-1" in result.stderr


def test_default_layout_is_no_wish(tmp_path: Path) -> None:
    assert run("query", "1", "--store", make_index(tmp_path, layout="4")).exit_code == ExitCode.DONE


@pytest.mark.parametrize("command", [*OPENING, ("create-table",), ("fingerprint", "x"), ("settings", "show")])
def test_invalid_settings_end_with_their_own_code(command: tuple[str, ...]) -> None:
    Path("hsimhash.yaml").write_text("stroe: lmdb://x\n")
    result = run(*command)
    assert result.exit_code == ExitCode.SETTINGS_INVALID
    assert result.stderr.startswith("hsimhash: error: hsimhash.yaml:1: unknown key 'stroe'")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.StoreUnavailableError("x"), 4),
        (errors.StoreBusyError("x"), 4),
        (errors.IndexNotFoundError("x"), 5),
        (errors.IndexExistsError("x"), 5),
        (errors.LayoutMismatchError("x"), 5),
        (errors.ProfileMismatchError("x"), 5),
        (errors.FormatVersionError("x"), 5),
        (errors.CorruptionError("x"), 1),
        (errors.StoreClosedError("x"), 1),
        (errors.TextTooShortError("x"), 1),
        (errors.SettingsError("x"), 3),
        (ValueError("x"), 2),
        (OSError(errno.ENOSPC, "full", "f"), 1),
        (KeyError("x"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_ends_in_its_exit_code(error: Exception, code: int) -> None:
    assert exit_code_of(error) == code


def test_message_is_one_line_and_names_the_file() -> None:
    assert message_of(ValueError("first\nsecond")) == "first second"
    assert message_of(OSError(errno.EACCES, "Permission denied", "pages.txt")) == "pages.txt: Permission denied"
    assert message_of(KeyError("x")).startswith("unexpected KeyError: 'x'; this is a bug")


def test_verbose_error_has_a_traceback_others_have_none() -> None:
    command = ("describe", "--store", "lmdb://gone")
    assert run(*command).stderr.count("\n") == 1
    assert "Traceback" in run("-v", *command).stderr


@pytest.mark.parametrize("command", [("remove", "a"), ("drop-table",)], ids=" ".join)
def test_index_that_another_process_writes_is_left_alone(command: tuple[str, ...], tmp_path: Path) -> None:
    url = make_index(tmp_path)
    with wait_for_lock(tmp_path / "index" / WRITER_LOCK, 0):
        refused = run_apart(*command, "--yes", "--store", f"{url}?lock_timeout=100ms")
    assert refused.returncode == ExitCode.STORE_UNREACHABLE
    assert b"is writing" in refused.stderr
    assert ids_in(url) == sorted(DOCUMENTS)


@pytest.mark.parametrize(
    ("command", "question"),
    [
        (("remove", "a"), "Remove 1 document from "),
        (("expire", "--before", "2026-01-01"), "first seen before 2026-01-01T00:00:00Z"),
        (("drop-table",), "[y/N]"),
    ],
    ids=["remove", "expire", "drop-table"],
)
def test_nothing_is_deleted_unasked_or_after_a_no(command: tuple[str, ...], question: str, tmp_path: Path) -> None:
    url = make_index(tmp_path)
    refused = run(*command, "--store", url)
    assert refused.exit_code == ExitCode.MISUSED
    assert "--yes" in refused.stderr
    code, shown = on_terminal(*command, "--store", url, asked="[y/N]", typed="n\n")
    assert code == ExitCode.FAILED
    assert question in shown
    assert "nothing was changed" in shown
    assert ids_in(url) == sorted(DOCUMENTS)


@pytest.mark.parametrize("command", [("create-table",), ("drop-table", "--yes"), ("doctor",), ("ingest", "in.tsv")])
def test_index_in_memory_is_refused(command: tuple[str, ...]) -> None:
    Path("in.tsv").write_text("a\t0x1\n")
    result = run(*command, "--store", "memory://x")
    assert result.exit_code == ExitCode.MISUSED
    assert "memory://x exists only during this command" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        *[("query",), ("query", "-", "1"), ("query", "--id", "a", "--exclude", "b")],
        *[("explain",), ("explain", "--query", "1", "--id", "a", "--id", "b")],
        *[("fingerprint",), ("fingerprint", "-", "x"), ("explain", "a", "b", "c"), ("explain", "-", "-")],
        *[("remove", "--yes"), ("remove", "a", "--file", "b", "--yes"), ("remove", "-", "a", "--yes")],
    ],
    ids=" ".join,
)
def test_sources_that_contradict_are_misuse(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert run(*arguments, environment={"HSIMHASH_STORE": make_index(tmp_path)}).exit_code == ExitCode.MISUSED


def test_reader_that_goes_away_ends_the_program_quietly(tmp_path: Path) -> None:
    url = make_index(tmp_path, {f"document {number:0>99}": number for number in range(5_000)})
    with own_process("export", "--store", url) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == ExitCode.DONE


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interruption_ends_with_130_and_no_traceback(sent: signal.Signals, tmp_path: Path) -> None:
    url = make_index(tmp_path)
    with own_process("query", "-", "--store", url) as process:
        # Send a batch of queries; their answers show that the program is running and waits for more.
        send(process, b'{"fingerprint": 1}\n' * 1_000)
        assert process.stdout.readline().startswith(b'{"line": 1')
        process.send_signal(sent)
        _, told = process.communicate()
    assert process.returncode == ExitCode.INTERRUPTED
    assert told == b"hsimhash: interrupted\n"


def test_the_limit_on_cpu_time_is_named(tmp_path: Path) -> None:
    with own_process("query", "-", "--store", make_index(tmp_path)) as process:
        send(process, b'{"fingerprint": 1}\n' * 1_000)
        assert process.stdout.readline().startswith(b'{"line": 1')
        process.send_signal(signal.SIGXCPU)
        _, told = process.communicate()
    assert process.returncode == ExitCode.FAILED
    assert told.endswith(b"hsimhash: error: the limit on CPU time is reached: raise it with 'ulimit -t'\n")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "module", ["numpy", "click", "hsimhash.cli.program", "hsimhash.cli.settings", "hsimhash.settings", "yaml"]
)
def test_interruption_of_the_start_ends_with_130_and_no_traceback(
    module: str, sent: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Sender:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        f"            exec('os.kill(os.getpid(), {int(sent)})')\n"  # as while a dataclass is created
        "sys.meta_path.insert(0, Sender())\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    (settings := tmp_path / "settings.yaml").write_text("workers: 2\n")
    ended = run_apart("settings", "show", environment={"PYTHONPATH": path, "HSIMHASH_CONFIG": str(settings)})
    assert (ended.returncode, ended.stderr) == (ExitCode.INTERRUPTED, b"hsimhash: interrupted\n")


def test_the_installed_program_and_the_module_begin_alike() -> None:
    (script,) = entry_points(group="console_scripts", name="hsimhash")
    assert script.value == "hsimhash.__main__:main"


@pytest.fixture
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start without the variable for NumPy's features, and restore it afterwards."""
    monkeypatch.setenv(numpy_features.VARIABLE, "")  # so that monkeypatch also removes a value that the test sets
    monkeypatch.delenv(numpy_features.VARIABLE)


@pytest.mark.every_case
@pytest.mark.usefixtures("no_choice")
@pytest.mark.parametrize(
    ("vendor", "family", "flags", "is_zen_4"),
    [
        ("AuthenticAMD", 25, "fpu avx2 avx512f avx512dq", True),
        ("AuthenticAMD", 25, "fpu avx2 vaes", False),  # Zen 3
        ("AuthenticAMD", 26, "fpu avx2 avx512f avx512dq", False),  # Zen 5
        ("GenuineIntel", 6, "fpu avx2 avx512f avx512dq", False),
    ],
)
def test_numpy_does_without_avx_512_only_where_that_sorts_faster(
    tmp_path: Path, vendor: str, family: int, flags: str, is_zen_4: bool
) -> None:
    (cpu_info := tmp_path / "cpuinfo").write_text(
        f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nflags\t\t: {flags}\nbugs\t\t: none\n" * 2
    )
    numpy_features.avoid_slow_sorts(cpu_info)
    assert (numpy_features.VARIABLE in os.environ) == is_zen_4
    if is_zen_4 and platform.machine() == "x86_64":
        assert os.environ[numpy_features.VARIABLE] in _multiarray_umath.__cpu_dispatch__  # otherwise it has no effect


def test_the_users_choice_of_numpys_features_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(numpy_features.VARIABLE, "")
    numpy_features.avoid_slow_sorts()
    assert os.environ[numpy_features.VARIABLE] == ""


@pytest.mark.usefixtures("no_choice")
@pytest.mark.parametrize("tag", ["cp311-cp311-linux_x86_64", None])
def test_a_numpy_compiled_on_this_machine_keeps_its_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tag: str | None
) -> None:
    (cpu_info := tmp_path / "cpuinfo").write_text(
        "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nflags\t\t: avx512f fpu\n"
    )
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").touch()
    if tag:
        (tmp_path / "numpy-2.4.0.dist-info").mkdir()
        (tmp_path / "numpy-2.4.0.dist-info" / "WHEEL").write_text(f"Generator: meson\nTag: {tag}\n")
    found = importlib.machinery.PathFinder.find_spec("numpy", [str(tmp_path)])
    monkeypatch.setattr(numpy_features, "find_spec", lambda _: found)
    numpy_features.avoid_slow_sorts(cpu_info)
    assert numpy_features.VARIABLE not in os.environ


def test_full_standard_output_is_an_error(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    with Path("/dev/full").open("wb") as full:
        failed = run_apart("export", "--store", url, stdout=full)
    assert failed.returncode == ExitCode.FAILED
    assert b"hsimhash: error: standard output: No space left on device" in failed.stderr


def test_full_disk_is_an_error_that_names_the_file_and_leaves_none(
    tmp_path: Path, small_disk: Callable[[str], Path]
) -> None:
    url = make_index(tmp_path, {f"document {number:0>99}": number for number in range(2_000)})
    output = small_disk("64k") / "all.jsonl"
    result = run("export", "--store", url, "--output", str(output))
    assert result.exit_code == ExitCode.FAILED
    assert f"hsimhash: error: {output}: No space left on device" in result.stderr
    assert list(output.parent.iterdir()) == []


WRITES = (
    ("remove", "a", "--yes"),
    ("expire", "--before", "2100-01-01", "--yes"),
    ("check", "--repair"),
    ("compact",),
    ("drop-table", "--yes"),
    ("ingest", "in.tsv"),
    ("ingest", "in.tsv", "--job", "job"),
    ("ingest", "in.tsv", "--job", "other", "--on-duplicate", "tag"),
)


def test_read_only_folder_is_an_error_that_names_it(
    read_only_disk: tuple[Path, Callable[[], None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, freeze = read_only_disk
    url = make_index(folder)
    monkeypatch.chdir(tmp_path)
    Path("in.tsv").write_text("a\t0x1\n")
    freeze()
    for command in WRITES:
        refused = run(*command, "--store", url)
        assert refused.exit_code == ExitCode.STORE_UNREACHABLE, command
        told = refused.stderr.splitlines()[-1]
        assert str(folder) in told
        assert "read-only" in told.lower()
        assert "mount it writable" in told
        assert "free" not in told
    exported = run("export", "--store", url, "--output", str(folder / "all.jsonl"))
    assert exported.exit_code == ExitCode.FAILED
    assert str(folder) in exported.stderr
    assert "Read-only file system" in exported.stderr
    assert run("query", "1", "--store", url).exit_code == ExitCode.DONE


@pytest.mark.parametrize(
    "command",
    [
        ("query", "--id", b"\xff"),
        ("query", "--text", b"some text \xff"),
        ("query", "1", "--exclude", b"\xff"),
        ("query", b"\xff"),
        ("fingerprint", b"some text \xff"),
        ("remove", b"\xff", "--yes"),
        ("backup", b"\xff"),
        ("ingest", "in.tsv", "--fingerprint-field", b"\xff"),
        ("describe", "--store", b"lmdb://\xff"),
    ],
)
def test_argument_that_is_not_utf_8_is_misuse(command: tuple[str | bytes, ...], tmp_path: Path) -> None:
    make_index(tmp_path)
    Path("in.tsv").write_text("x\t0x1\n")
    refused = run_apart(*command, environment={"HSIMHASH_STORE": "lmdb://index"})
    assert refused.returncode == ExitCode.MISUSED
    assert b"\\udcff" in refused.stderr
    assert b"Traceback" not in refused.stderr
    assert b"codec" not in refused.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"in.tsv", "index"}
    assert ids_in("lmdb://index") == sorted(DOCUMENTS)


@thorough
def test_file_whose_name_is_not_utf_8_is_read_and_written(tmp_path: Path) -> None:
    make_index(tmp_path, {})
    store = {"HSIMHASH_STORE": "lmdb://index"}
    Path(os.fsdecode(b"in\xff.tsv")).write_text("x\tsome text\n")
    Path(os.fsdecode(b"set\xff.yaml")).write_text("")
    for command in (
        ("ingest", b"in\xff.tsv", "--on-duplicate", "tag", "--tags", b"tags\xff"),
        ("--config", b"set\xff.yaml", "export", "--output", b"out\xff"),
        ("query", "--file", b"out\xff"),
        ("fingerprint", "--file", b"out\xff", "--json"),
    ):
        assert run_apart(*command, environment=store).returncode == ExitCode.DONE
    assert {os.fsencode(path.name) for path in tmp_path.iterdir()} >= {b"tags\xff", b"out\xff"}


@pytest.mark.parametrize("command", [("describe",), ("create-table",), ("export", "--output", "all.jsonl")])
def test_current_folder_that_was_deleted_is_named(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    failed = run_apart(
        *command,
        cwd=tmp_path / "gone",
        preexec_fn=lambda: (tmp_path / "gone").rmdir(),
        environment={"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert failed.returncode != ExitCode.DONE
    assert b"the current folder was deleted" in failed.stderr
    assert b"Traceback" not in failed.stderr


STORES = (
    "use a folder's path (./pages, /data/pages), lmdb://relative/path, lmdb:///absolute/path, "
    "hbase://gateway:9091/namespace:table, "
    "postgresql://user@host/database?table=pages, redis://host:6379/0?prefix=name, "
    "tables://relative/path or memory://name"
)


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        *[(store, STORES) for store in ("http://x/y", "lmdb:", "lmdb://", "hbase-thrift://x", "mongo://x")],
        ("pages", "for a folder, use ./pages or lmdb://pages"),
        (
            "lmdb://~nobody-has-this-name/x",
            "unknown home folder in lmdb://~nobody-has-this-name/x; write the full path",
        ),
        ("hbase://gw/pages?tiemout=5s", "did you mean timeout"),
        ("hbase://gw", "invalid table name"),
        ("hbase://user:secret@gw/pages", "must not have a user or a password"),
        ("hbase://user@gw/pages", "must not have a user or a fragment"),
        ("postgresql://user:secret@db/pages?table=pages", "must not contain a password"),
        ("postgresql://db/pages?password=secret&table=pages", "must not contain a password"),
        ("postgresql://db/pages", "no table in the URL"),
        ("redis://app:secret@host", "must not contain a password"),
        ("redis://host/pages", "invalid database number"),
        ("redis://host?prefx=a", "did you mean prefix"),
        ("redis://one,two", "for several sentinels, use redis+sentinel://"),
    ],
)
def test_bad_url_of_a_store_is_refused_with_the_reason(store: str, reason: str) -> None:
    flag = run("describe", "--store", store)
    assert flag.exit_code == ExitCode.MISUSED
    shown = masked(store)
    assert "secret" not in flag.output
    assert f"Error: --store: store = {shown!r}: " in flag.stderr
    assert reason in flag.stderr.splitlines()[-1]
    assert flag.stderr.count(f"{shown!r}") == 1
    variable = run("describe", environment={"HSIMHASH_STORE": store})
    assert variable.exit_code == ExitCode.SETTINGS_INVALID
    assert reason in variable.stderr
    assert "secret" not in variable.output


def test_numbers_and_times_are_written_for_people() -> None:
    assert [size(count) for count in (0, 1023, 1024, 5 << 30)] == ["0 bytes", "1023 bytes", "1.0 KiB", "5.0 GiB"]
    assert iso_time(1_700_000_000_999) == "2023-11-14T22:13:20Z"
    assert iso_time(2**63 - 1) == str(2**63 - 1)


LOST = """
import signal, threading
from hsimhash.cli.exit_codes import interruptible

class Finalised:
    def __del__(self):
        signal.raise_signal(signal.{name})

try:
    with interruptible():
        Finalised()
        threading.Event().wait(600)
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_that_meets_a_finaliser_is_not_lost(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOST.format(name=name)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


DEAF = """
import signal, threading, time
from hsimhash.cli import exit_codes, jobs

def wait():
    try:
        print("waiting", flush=True)
        threading.Event().wait(600)
    except KeyboardInterrupt:
        time.sleep(600)  # as for a server that does not answer

with exit_codes.interruptible():
    {call}
"""


@pytest.mark.parametrize("call", ["wait()", "with jobs.stoppable(): wait()"], ids=["command", "job"])
def test_an_interrupted_command_ends_within_five_seconds_wherever_it_waits(call: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DEAF.format(call=call)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGTERM)
        _, talk = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, talk.splitlines()[-1]) == (ExitCode.INTERRUPTED, "hsimhash: interrupted")
    assert exit_codes.END_S + jobs.BATCH_S < 5


def test_help_on_spark_needs_no_pyspark_and_a_job_says_that_it_is_missing() -> None:
    program = "import sys; sys.modules['pyspark'] = None; from hsimhash.cli import main; main(sys.argv[1:])"
    for arguments, code, words in (
        (["--help"], 0, "--max-cluster-size"),
        (
            *(["pages.parquet", "--out", "out"], 1),
            f"Spark needs PySpark and Java 17 or 21; install PySpark: {install_command('spark')}",
        ),
    ):
        command = [sys.executable, "-c", program, "spark", "dedup", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        assert words in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


LIMITED = {
    "files": ("ulimit -f 100", ["export", "--output", "all.jsonl"], "all.jsonl: File too large; .*'ulimit -f'"),
    "backup": (
        "ulimit -f 100",
        ["backup", "copy"],
        "index .* cannot be written: .* this write was not stored; .*'ulimit -f'",
    ),
    "compact": ("ulimit -f 100", ["compact"], "index .* cannot be written: .* was not stored; .*'ulimit -f'"),
    "memory": ("ulimit -v 1000000", ["create-table"], "cannot reserve 1 TiB .*'ulimit -v unlimited'"),
}


@pytest.mark.parametrize(("limit", "arguments", "said"), LIMITED.values(), ids=LIMITED)
def test_a_limit_of_the_system_is_named_and_nothing_is_called_damaged(
    limit: str, arguments: list[str], said: str, tmp_path: Path
) -> None:
    url = f"lmdb://{tmp_path / 'index'}"
    if arguments != ["create-table"]:
        with HSimIndex.create(url) as index:
            index.add_many(list(range(5_000)), [f"document {number}" for number in range(5_000)])
    program = shlex.join([sys.executable, "-m", "hsimhash", *arguments, "--store", url])
    result = subprocess.run(
        ["bash", "-c", f"{limit}; exec {program}"],
        capture_output=True, text=True, check=False, cwd=tmp_path, timeout=PATIENCE_S,
    )  # fmt: skip
    assert result.returncode not in (0, -9)
    assert re.search(said, result.stderr), result.stderr
    assert "damaged" not in result.stderr
    if arguments != ["create-table"]:
        with HSimIndex.open(url) as index:
            assert index.check().is_sound


def test_the_help_of_a_flag_for_some_stores_names_them() -> None:
    context, named = click.Context(main), dict[str, set[str]]()
    for name in COMMANDS:
        command = main.get_command(context, name)
        for option in command.params if command else []:
            found = re.match(
                r"((HBase|PostgreSQL|Redis)(, )?)+:", (isinstance(option, click.Option) and option.help) or ""
            )
            if found and option.opts[0] not in ("--workers", "--job", "--count"):  # walks are a store capability
                named[f"{name} {option.opts[0]}"] = set(found[0].rstrip(":").split(", "))
    assert len(named) > 10
    assert named == {one: set(titles(one.split()[1]).split(" or ")) for one in named}
