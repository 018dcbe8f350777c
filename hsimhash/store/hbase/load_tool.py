"""HBase's own program that hands finished HFiles to the region servers: found, written out for operators, run."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hsimhash.errors import HsimhashError
from hsimhash.files import file_errors
from hsimhash.locks import wait_for_lock
from hsimhash.rowkey import PREFIX_BYTES
from hsimhash.store.hbase.address import Address

_CLASS = "org.apache.hadoop.hbase.tool.BulkLoadHFilesTool"
_OPTIONS = (
    "-Dcreate.table=no",
    "-Dhbase.mapreduce.bulkload.max.hfiles.perRegion.perFamily=10000",
    f"-DRowPrefixBloomFilter.prefix_length={PREFIX_BYTES}",  # which it forgets when it splits a file
)
_CHECKOUT = Path(__file__).parents[3] / "docker" / "hbase" / "entrypoint"  # in a clone of the project
_OTHERS_S = 3_600.0  # how long to wait for the program that an interrupted call began
_LAST_LINES = 5


def load_command(command: str, environment: Mapping[str, str]) -> list[str]:
    """Return the words that run a class of HBase's: `command`'s, or those of an HBase that is found here.

    Looked for are `$HBASE_HOME/bin/hbase`, `hbase` in the PATH, and in a clone of the project the jars of `make hbase`.

    Raises:
        HsimhashError: there is none.
    """
    if command:
        words = shlex.split(command)
        if not words or shutil.which(words[0], path=environment.get("PATH")) is None:
            raise HsimhashError(
                f"there is no program {words[0] if words else command!r} to run; correct --hbase-command"
            )
        return words
    if home := environment.get("HBASE_HOME"):
        program = Path(home, "bin", "hbase")
        if not os.access(program, os.X_OK):
            raise HsimhashError(f"HBASE_HOME is {home}, but there is no program {program}; correct it")
        return [str(program)]
    if found := shutil.which("hbase", path=environment.get("PATH")):
        return [found]
    if os.access(_CHECKOUT, os.X_OK):
        return [str(_CHECKOUT), "java"]
    raise HsimhashError(
        "no HBase is found here, whose program loads the files: set HBASE_HOME, or pass --hbase-command 'PROGRAM' that "
        "runs HBase's classes, such as 'docker exec hbase hbase'; or run the load where there is one: --print-commands"
    )


def load_words(command: Sequence[str], folder: str, address: Address) -> list[str]:
    """Return the words that load the folder of a stage, which has a folder for each family."""
    return [*command, _CLASS, *_OPTIONS, folder, address.full_table.decode()]


def run_load(words: Sequence[str], log: Path, stop: Callable[[], bool] | None) -> None:
    """Run the program; its output goes to the end of a log. Only one runs at a time beside that log.

    It is not told of a Ctrl-C: what it has begun it ends. Should this process be killed, the next one waits for it.

    Raises:
        HsimhashError: it failed; the message has the end of what it said.
        StopAskedError: `stop` asked to end while another one ran.
    """
    with (
        file_errors(log),
        wait_for_lock(log.with_name("tool.lock"), _OTHERS_S, stop) as lock,
        log.open("ab+") as output,
    ):
        start = output.seek(0, os.SEEK_END)
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                start_new_session=True,
                pass_fds=[lock.fileno()],  # so the lock lasts as long as the program
            )
        except OSError as error:
            raise HsimhashError(f"cannot run {words[0]}: {error.strerror}; correct --hbase-command") from error
        output.seek(start)
        lines = output.read().decode(errors="replace").splitlines()
    if done.returncode != 0:
        # Of a stack of calls only the first line says anything.
        end = "\n  ".join([line[:500] for line in lines if not line.startswith("\tat ")][-_LAST_LINES:])
        raise HsimhashError(
            f"HBase's program to load files ended with code {done.returncode}; nothing is lost: repair what it says, "
            f"and run the same command again. All it said is in {log}, the last lines:\n  {end}"
        )
