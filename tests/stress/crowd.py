"""Many processes and threads use one embedded index at once: `python -m tests.stress.crowd [--moves 600]`.

| part | what | what must hold |
|---|---|---|
| `moves` | a document alternates between being near a query and having its key; four processes query | always found |
| `opens` | a process opens the index repeatedly while another one writes | it is never reported as damaged |
| `signals` | a caught signal during an `add` or a `query` | others can write, this process can fork and read |
| `forks` | forks while threads read and write, under load | every child reads, writes and ends |
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from hsimhash import HSimIndex
from hsimhash.fingerprint import Signature
from tests.support.processes import beside, forked, spin
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

SEED = 11
MOVES_S, OPENS, SIGNALS, FORKS = 600.0, 20_000, 20_000, 1_000
READERS, LOAD = 4, 6  # processes
LATEST_S = 60.0  # within which a write must succeed
KEY = 7 << 32
QUERY, FIRST, SECOND, KEYED = (
    Signature(0, key=KEY),
    1,
    1 << 63,
    Signature(2**64 - 1, key=KEY),
)  # the last is far from the query


class _InterruptedError(Exception):
    """What the signal handler raises."""


def _outcome(part: str, tried: int, faults: int) -> Outcome:
    return Outcome(tried > 0 and not faults, f"{part}: {tried:,} tried, {faults} faults")


def _query(url: str, is_over: Any, begun: Callable[[], None]) -> tuple[int, int]:
    queries = misses = 0
    with HSimIndex.open(url) as index:
        begun()
        while not is_over.is_set():
            found = [index.query(QUERY)] if queries % 4 else index.query_many([QUERY] * 3)
            misses += sum(1 for matches in found if [match.doc_id for match in matches] != ["doc"])
            queries += len(found)
    return queries, misses


def _write(url: str, is_over: Any, begun: Callable[[], None]) -> None:
    rng, number = np.random.default_rng(SEED), 0
    with HSimIndex.open(f"{url}?lock_timeout={LATEST_S:g}s") as index:
        begun()
        while not is_over.is_set():
            index.add_many(rng.integers(0, 2**64, 20, np.uint64), [f"w{number + one}" for one in range(20)])
            number = (number + 20) % 20_000


def check_moves(folder: Path, seconds: float) -> Outcome:
    """Move a document repeatedly; count the queries that miss it."""
    url = f"lmdb://{folder / 'moves'}"
    with HSimIndex.create(url) as index:
        index.add(FIRST, "doc")
        with beside(_query, [(url,)] * READERS) as answers:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                for place in (SECOND, KEYED, FIRST):
                    index.add(place, "doc")
    return _outcome("moves", sum(queries for queries, _ in answers), sum(misses for _, misses in answers))


def check_opens(folder: Path, opens: int) -> Outcome:
    """Open an index while another process writes; count the failures."""
    url, faults = f"lmdb://{folder / 'opens'}", 0
    HSimIndex.create(url).close()
    with beside(_write, [(url,)]):
        for _ in range(opens):
            try:
                with HSimIndex.open(url) as index:
                    index.query(QUERY)
            except Exception as error:
                faults += 1
                print(f"FAIL  opens: {error}", flush=True)
    return _outcome("opens", opens, faults)


def check_signals(folder: Path, signals: int) -> Outcome:
    """Interrupt adds and queries; keep the last error, as a notebook does, and check that everything still works."""
    url, rng, faults, kept = f"lmdb://{folder / 'signals'}", np.random.default_rng(SEED), 0, None
    rung = threading.Event()

    def interrupt(*_: object) -> None:
        rung.set()
        raise _InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with HSimIndex.create(f"{url}?lock_timeout={LATEST_S:g}s") as index, HSimIndex.open(url) as _:
            index.add(FIRST, "doc")
            with beside(_probe, [(url,)]) as answers:
                for number in range(2 * signals):
                    rung.clear()
                    try:
                        signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-5, 4e-3 if number % 2 else 2e-4)))
                        while not rung.is_set():  # Python swallows exceptions raised while it destroys an object
                            index.add(number, "other") if number % 2 else index.query(QUERY)
                    except _InterruptedError as error:
                        kept = error
                    if number % 1_000 == 999:
                        with forked(lambda: index.add(FIRST << 20, "child"), limit_s=LATEST_S):
                            pass
                        faults += [match.doc_id for match in index.query(QUERY)].count("doc") != 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    del kept
    return _outcome("signals", 2 * signals, faults + sum(answers))


def _probe(url: str, is_over: Any, begun: Callable[[], None]) -> int:
    """Write now and then; return how often that failed."""
    faults, number = 0, 0
    begun()
    with HSimIndex.open(f"{url}?lock_timeout={LATEST_S / 2:g}s") as index:
        while not is_over.wait(0.05):
            number += 1
            try:
                index.add(number, "probe")
            except Exception as error:
                faults += 1
                print(f"FAIL  signals: {error}", flush=True)
    return faults


def check_forks(folder: Path, forks: int, load: int) -> Outcome:
    """Fork while threads read and write; each child reads, writes and ends."""
    url, is_over, faults = f"lmdb://{folder / 'forks'}", threading.Event(), 0
    with HSimIndex.create(f"{url}?lock_timeout={LATEST_S:g}s") as index, ExitStack() as stack:
        index.add(FIRST, "doc")

        def read() -> None:
            while not is_over.is_set():
                index.query(QUERY)

        def write() -> None:
            number = 0
            while not is_over.is_set():
                number += 1
                index.add(number << 20, "thread")

        def in_child() -> None:
            if [match.doc_id for match in index.query(QUERY, exclude="thread")] != ["doc"]:
                raise AssertionError("the document was not found")
            index.add(0xFFFF << 40, f"child {os.getpid() % 10}")

        stack.enter_context(beside(spin, [()] * load))
        threads = [threading.Thread(target=work) for work in (read, read, write)]
        for one in threads:
            one.start()
        try:
            for _ in range(forks):
                try:
                    with forked(in_child, limit_s=2 * LATEST_S):
                        pass
                except AssertionError as error:
                    faults += 1
                    print(f"FAIL  forks: {error}", flush=True)
        finally:
            is_over.set()
            for one in threads:
                one.join()
        faults += not index.check().is_sound
    return _outcome("forks", forks, faults)


def main() -> int:
    given = options(
        __doc__,
        moves=(MOVES_S, "how many seconds to move for"),
        opens=(OPENS, "how often to open"),
        signals=(SIGNALS, "how many adds, and queries, to interrupt"),
        forks=(FORKS, "how often to fork"),
        load=(LOAD, "busy processes beside the forks"),
    )
    print_conditions("a crowd at one embedded index", seed=SEED, moves_s=given.moves, opens=given.opens)
    with scratch_folder(given.scratch) as folder:
        checks = (
            lambda: check_moves(folder, given.moves),
            lambda: check_opens(folder, given.opens),
            lambda: check_signals(folder, given.signals),
            lambda: check_forks(folder, given.forks, given.load),
        )
        return print_outcomes(check() for check in checks)


if __name__ == "__main__":
    sys.exit(main())
