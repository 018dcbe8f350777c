"""Find HBase's own program for loading finished HFiles, build its command for operators, and run it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hsimhash.errors import HsimhashError, StoreBusyError
from hsimhash.files import file_errors
from hsimhash.locks import HeldLock, wait_for_lock
from hsimhash.rowkey import PREFIX_BYTES
from hsimhash.store.hbase.gateway.address import Address

_CLASS = "org.apache.hadoop.hbase.tool.BulkLoadHFilesTool"
_OPTIONS = (
    "-Dcreate.table=no",
    "-Dhbase.mapreduce.bulkload.max.hfiles.perRegion.perFamily=10000",
    f"-DRowPrefixBloomFilter.prefix_length={PREFIX_BYTES}",  # otherwise lost when the tool splits a file
)
_CHECKOUT = Path(__file__).parents[4] / "docker" / "hbase" / "entrypoint"  # in a clone of the project
_OTHERS_S = 3_600.0  # how long to wait for a program that an interrupted call started
_LAST_LINES = 5


def load_command(command: str, environment: Mapping[str, str]) -> list[str]:
    """Return the command that runs HBase's classes: `command`, or one that is found on this machine.

    Without `command`, this is the first of these that exists: `$HBASE_HOME/bin/hbase`, `hbase` in the PATH, and (in a
    clone of the project) the jars from `make hbase`.

    Raises:
        HsimhashError: None of them exists, or `command` or HBASE_HOME is wrong.
    """
    if command:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise HsimhashError(f"invalid --hbase-command {command!r}: {error}") from error
        if not words or shutil.which(words[0], path=environment.get("PATH")) is None:
            raise HsimhashError(f"no such program: {words[0] if words else command!r}; correct --hbase-command")
        return words
    if home := environment.get("HBASE_HOME"):
        program = Path(home, "bin", "hbase")
        if not os.access(program, os.X_OK):
            raise HsimhashError(f"HBASE_HOME is {home}, but {program} is not executable; correct HBASE_HOME")
        return [str(program)]
    if found := shutil.which("hbase", path=environment.get("PATH")):
        return [found]
    if os.access(_CHECKOUT, os.X_OK):
        return [str(_CHECKOUT), "java"]
    raise HsimhashError(
        "cannot load the files: HBase was not found on this machine; set HBASE_HOME, pass --hbase-command with "
        "a program that runs HBase's classes, such as 'docker exec hbase hbase', or pass --print-commands to load the "
        "files on another machine"
    )


def load_words(command: Sequence[str], folder: str, address: Address) -> list[str]:
    """Return the command that loads a folder in the stage; the folder has a subfolder for each family."""
    return [*command, _CLASS, *_OPTIONS, folder, address.full_table.decode()]


@contextmanager
def only_one(folder: Path, log: Path, stop: Callable[[], bool] | None) -> Iterator[HeldLock]:
    """Prevent other programs from loading a job's files; wait for a program that an interrupted call started.

    Raises:
        StoreBusyError: That program did not end.
        StopAskedError: `stop` requested a stop while waiting.
    """
    try:
        lock = wait_for_lock(folder / "load.lock", _OTHERS_S, stop)
    except StoreBusyError as error:
        raise StoreBusyError(
            f"the HBase load program that an interrupted call started is still running after "
            f"{_OTHERS_S / 60:.0f} minutes (log: {log}); wait for it to finish or stop it, then run the command again"
        ) from error
    with lock:
        yield lock


def run_load(words: Sequence[str], log: Path, lock: HeldLock) -> None:
    """Run the program, and append its output to a log.

    Ctrl-C does not reach the program, so it always finishes. If this process is killed, the program keeps the lock.

    Raises:
        HsimhashError: The program failed. The message includes the end of its output.
    """
    with file_errors(log), log.open("ab+") as output:
        start = output.seek(0, os.SEEK_END)
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[lock.fileno()],
            )
        except OSError as error:
            raise HsimhashError(f"cannot run {words[0]}: {error.strerror}; correct --hbase-command") from error
        code = process.wait()
        output.seek(start)
        lines = output.read().decode(errors="replace").splitlines()
    if code != 0:
        # Only the first line of a stack trace is informative.
        end = "\n  ".join([line[:500] for line in lines if not line.startswith("\tat ")][-_LAST_LINES:])
        raise HsimhashError(
            f"HBase's load program failed with exit code {code}; nothing is lost: fix the problem that it reports, "
            f"then run the same command again; its output is in {log} and ends with:\n  {end}"
        )
