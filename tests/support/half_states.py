"""The remains of an index whose creation or drop was killed, or that lost a part, and the command that mends it."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

from click.testing import Result

from hsimhash.errors import HsimhashError, IndexExistsError, IndexNotFoundError
from hsimhash.index import HSimIndex
from tests.support.command_line import run
from tests.support.processes import fork

MADE_BY = ("--layout", "4", "--profile", "auto-1")
TIMES = 20  # how often each of several processes creates or drops the same index
_FILE_STEPS = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.scandir", "os.truncate", "shutil.rmtree"}

Arm = Callable[[Callable[[], None]], None]  # makes a process call a function at each of its steps


def created(url: str) -> Result:
    return run("create-table", "--store", url, *MADE_BY)


def dropped(url: str) -> Result:
    return run("drop-table", "--yes", "--store", url)


def filled(url: str) -> None:
    """Make an index with a document."""
    with HSimIndex.create(url, layout="4", profile="auto-1") as index:
        index.add(5, "a")


def way_out(url: str) -> str:
    """Follow the remedy that the commands name for the state of a URL; return that command, or nothing.

    Asserts that all name the same one, that it succeeds, and that the index is sound in the end; then drops it.
    """
    told = [run(*command, "--store", url) for command in (("status",), ("describe",), ("query", "5"))]
    checked = run("check", "--store", url)
    named = _named(checked) if told[0].exit_code == 0 else _named(told[0])
    if told[0].exit_code != 0:
        assert {_named(one) for one in (*told, checked)} == {named}, [one.output for one in (*told, checked)]
    if named == "drop-table":
        refused = created(url)
        assert (refused.exit_code != 0, _named(refused)) == (True, "drop-table"), refused.output
        assert dropped(url).exit_code == 0
    elif named == "check --repair":
        assert run("check", "--repair", "--store", url).exit_code == 0
    elif named == "ingest INPUT":
        assert run("ingest", "-", "--format", "tsv", "--store", url, given="a\ta text\n").exit_code == 0
        assert dropped(url).exit_code == 0
    done = created(url)
    assert done.exit_code == 0, done.output
    assert run("check", "--store", url).exit_code == 0
    with HSimIndex.open(url) as index:
        if named in ("create-table", "drop-table"):
            assert index.count() == 0
        index.add(6, "b")
        assert "b" in [match.doc_id for match in index.query(6)]
    done = dropped(url)
    assert done.exit_code == 0, done.output
    return named


def _named(told: Result) -> str:
    """Return the command that a message names, or nothing."""
    names = set(re.findall(r"[\"']hsimhash (create-table|ingest INPUT|drop-table|check --repair)", told.stderr))
    assert len(names) <= 1, told.stderr
    return names.pop() if names else ""


def killed_at_each_step(
    prepare: Callable[[], object], work: Callable[[], object], arm: Arm, *, every: int = 1
) -> Iterator[int]:
    """Prepare, do `work` in a child that is killed (`kill -9`) at its first step, and yield; then at its second, …

    Ends after a child that finished its work. With `every`, only one in that many steps is tried.
    """
    for number in count(1, every):
        prepare()
        _, status = os.waitpid(fork(lambda number=number: _armed(work, arm, number)), 0)  # type: ignore[misc]
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            assert status == 0
            assert number > 1
            return
        yield number


def _armed(work: Callable[[], object], arm: Arm, number: int) -> None:
    left = count(number - 1, -1)

    def step() -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    arm(step)
    if isinstance(done := work(), Result):
        assert done.exit_code == 0, done.output


def calls_of(owner: type, name: str) -> Arm:
    """Count each call of a method as a step, after the call."""

    def arm(step: Callable[[], None]) -> None:
        call = getattr(owner, name)

        def counted(*given: object, **options: object) -> object:
            try:
                return call(*given, **options)
            finally:
                step()

        setattr(owner, name, counted)

    return arm


def files_in(folder: Path) -> Arm:
    """Count each operation of Python on a folder or a file in it as a step, before the operation."""

    def arm(step: Callable[[], None]) -> None:
        def see(event: str, given: tuple[object, ...]) -> None:
            if event in _FILE_STEPS and str(given[0]).startswith(str(folder)):
                step()

        sys.addaudithook(see)

    return arm


def create_and_drop_at_once(url: str, drop: Callable[[], None], *allowed: type[HsimhashError]) -> list[str]:
    """Let two processes create an index while two others drop it, repeatedly; return their unexpected errors."""
    reading, writing = os.pipe()

    def again_and_again(work: Callable[[], None]) -> None:
        for _ in range(TIMES):
            try:
                work()
            except (IndexExistsError, IndexNotFoundError, *allowed):
                continue
            except Exception as error:
                os.write(writing, f"{type(error).__name__}: {error}\n".encode())

    def create() -> None:
        HSimIndex.create(url, layout="4", profile="auto-1").close()

    children = [fork(lambda work=work: again_and_again(work)) for work in (create, create, drop, drop)]  # type: ignore[misc]
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read().splitlines()
    codes: Sequence[int] = [os.waitpid(child, 0)[1] for child in children]
    assert set(codes) == {0}
    return said
