"""`kill -9` of ingests into HBase at random moments: `python -m tests.stress.hbase_kills [--kills 20]`.

The victims are `ingest` in bulk, with `--exclusive`, with `--on-duplicate skip` and `tag`. After every kill the index
is checked: no problems, and every document of before and what was acknowledged since is in it. The same command goes on
and is killed again. At the end documents, lists and counts are those of a run that nobody disturbed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from tests.bench.conditions import add_scratch_option, print_conditions, scratch_folder
from tests.stress.hbase_crowd import table, url_of
from tests.stress.kill_ingests import (
    Ingest,
    Result,
    checkpoint_of,
    differences,
    lost_documents,
    phase_of,
    prepare,
    result,
)
from tests.stress.killing import LATEST_S, Tally, check, delay, victim
from tests.support.hbase_server import HBaseServer, serving

SEED = 19
KILLS = 20
SHARES = {"bulk": 0.4, "exclusive": 0.2, "skip": 0.2, "tag": 0.2}  # of all kills
DOCUMENTS = 1_500  # of an ingest
SLOW = {"timeout": "60s", "deadline": "120s"}


@dataclass(frozen=True, slots=True)
class Trial:
    """An ingest into a table of its own, with a job folder of its own."""

    ingest: Ingest
    url: str
    folder: Path

    def arguments(self) -> tuple[object, ...]:
        places = ("--store", self.url, "--job", self.folder / "job", "--quiet")
        return ("program", "ingest", *self.ingest.options, *places)

    def phase(self) -> str:
        """Tell from what a kill left where it was."""
        checkpoint = checkpoint_of(self.folder)
        if checkpoint is None or checkpoint["state"] != "merging":
            return phase_of(self.folder)
        path = self.folder / "job" / "runs" / "merged.json"
        state = json.loads(path.read_text()) if path.exists() else {"slice": 0, "pending": None}
        return f"merging: {'between two slices' if state['pending'] is None else 'writing a slice'}"


@contextmanager
def begun(ingest: Ingest, server: HBaseServer, folder: Path) -> Iterator[Trial]:
    """Give a table with the documents of before, and a folder."""
    folder.mkdir()
    with table(server) as name:
        url = url_of(server.thrift2_port, name, **SLOW)
        with HSimIndex.open(url) as index:
            ids, values = list(ingest.base_documents), list(ingest.base_documents.values())
            index.add_many([value for value, _ in values], ids, first_seen=[seen for _, seen in values])
        yield Trial(ingest, url, folder)


def kill_ingests(name: str, kills: int, tally: Tally, server: HBaseServer, folder: Path, documents: int) -> None:
    """Kill an ingest again and again until it is done, then the next one, until there were so many kills."""
    rng = np.random.default_rng([SEED, list(SHARES).index(name)])
    ingest = prepare("bulk" if name == "exclusive" else name, folder / f"{name}-base", documents, rng)
    options = (*ingest.options, "--exclusive") if name == "exclusive" else ingest.options
    ingest = replace(ingest, name=name, options=options)
    expected, whole_s = undisturbed(ingest, server, folder / f"{name}-undisturbed")
    number = 0
    while tally.kills_of(name) < kills:
        number += 1
        with begun(ingest, server, folder / f"{name}-{number}") as trial:
            what = f"{name}, table {number}"
            while tally.kills_of(name) < kills and was_killed(trial, delay(rng, whole_s), tally, what):
                if not check(trial.url, tally, f"{what}, kill {tally.kills_of(name)}"):
                    return
                tally.lost += lost_documents(ingest, trial.url, trial.folder, tally, what)
            was_killed(trial, LATEST_S, tally, what)
            compare(expected, trial, tally, what)


def undisturbed(ingest: Ingest, server: HBaseServer, folder: Path) -> tuple[Result, float]:
    """Run an ingest to its end; return what it left, and its seconds of work."""
    tally = Tally()
    with begun(ingest, server, folder) as trial:
        began = time.monotonic()
        if was_killed(trial, LATEST_S, tally, "undisturbed") or tally.faults:
            raise RuntimeError(f"{ingest.name} undisturbed did not end: {tally.faults}")
        seconds = time.monotonic() - began
        return result(trial.url, folder / "job"), seconds


def was_killed(trial: Trial, delay_s: float, tally: Tally, what: str) -> bool:
    """Let an ingest run for a while; return whether it was killed before its end."""
    with victim(*trial.arguments()) as one:
        is_dead = one.kill_after(delay_s)
        one.output()
        if not is_dead and one.process.returncode not in (0, 7):
            tally.fault(f"{what}: {one.last_words()}")
    if is_dead:
        tally.phases[trial.ingest.name, trial.phase()] += 1
    return is_dead


def compare(expected: Result, trial: Trial, tally: Tally, what: str) -> None:
    """Count an end, and whether it is that of an undisturbed run."""
    check(trial.url, tally, f"{what}, at its end")
    found = result(trial.url, trial.folder / "job")
    tally.ends += 1
    tally.unequal_ends += found.documents != expected.documents
    if differing := differences(expected, found):
        tally.fault(f"{what}, resumed to its end, differs from an undisturbed run in {'; '.join(differing)}")


def run(shares: Mapping[str, int], server: HBaseServer, folder: Path, *, documents: int = DOCUMENTS) -> Tally:
    """Kill each kind of ingest as often as `shares` says; return what came of it."""
    tally = Tally()
    for name, kills in shares.items():
        kill_ingests(name, kills, tally, server, folder, documents)
    return tally


def print_tally(tally: Tally) -> None:
    for (name, phase), count in sorted(tally.phases.items()):
        print(f"    {count:4} {name}: {phase}")
    print(
        f"{'PASS' if tally.is_sound else 'FAIL'}  {tally.kills} kills: {tally.lost} acknowledged documents lost, "
        f"{tally.problems} problems found by check, {tally.unequal_ends} of {tally.ends} resumed to another index than "
        f"an undisturbed run's, {len(tally.faults)} faults in all"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help=f"how many, by default {KILLS}")
    add_scratch_option(parser)
    arguments = parser.parse_args()
    shares = {name: max(1, round(share * arguments.kills)) for name, share in SHARES.items()}
    print_conditions("kill -9 of ingests into HBase", seed=SEED, kills=sum(shares.values()), documents=DOCUMENTS)
    with scratch_folder(arguments.scratch) as folder, serving(folder / "hbase") as server:
        tally = run(shares, server, folder)
    print_tally(tally)
    return 0 if tally.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
