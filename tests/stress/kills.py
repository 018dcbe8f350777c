"""`kill -9` at random moments: `python -m tests.stress.kills [--kills 200]`.

| victim | what it does | what must hold after every kill, and at the end |
|---|---|---|
| `bulk` | `ingest`, in runs that are merged | acknowledged runs are there; at the end all is as undisturbed |
| `skip`, `tag` | `ingest --on-duplicate …` | acknowledged decisions hold; at the end all is as undisturbed |
| `texts` | `ingest` of texts by two worker processes | as `bulk`; no worker outlives its parent |
| `writers` | two processes that add, move, remove, compact | all acknowledged calls hold, and at most one more |
| `compact` | compacts without end | nothing is lost, the next one cleans up |

"All" is the index, the counts and the lists. After every kill the index is opened and checked: no problems, and every
document of before is in it. The same command then goes on, and is killed again. The moments are drawn from a seed; what
they hit depends on the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tests.bench.conditions import add_scratch_option, print_conditions, scratch_folder
from tests.stress.kill_ingests import kill_ingests
from tests.stress.kill_writers import kill_compactions, kill_writers
from tests.stress.killing import Tally

SEED = 9
KILLS = 200
SHARES = {"bulk": 0.4, "skip": 0.15, "tag": 0.15, "texts": 0.05, "writers": 0.15, "compact": 0.1}  # of all kills
DOCUMENTS = 3_000  # of an ingest


def run(shares: Mapping[str, int], folder: Path, *, documents: int = DOCUMENTS, seed: int = SEED) -> Tally:
    """Kill each victim as often as `shares` says; return what came of it."""
    tally = Tally()
    for number, (name, kills) in enumerate(shares.items()):
        rng = np.random.default_rng([seed, number])
        if name == "writers":
            kill_writers(kills, tally, folder, rng)
        elif name == "compact":
            kill_compactions(kills, tally, folder, rng)
        else:
            kill_ingests(name, kills, tally, folder, documents, rng)
    return tally


def print_tally(tally: Tally, shares: Mapping[str, int]) -> None:
    for name in shares:
        print(f"{name}: {tally.kills_of(name)} kills")
        for (victim_name, phase), count in sorted(tally.phases.items()):
            if victim_name == name:
                print(f"    {count:4} {phase}")
    print(f"stray files left by kills: {tally.stray_files}")
    print(
        f"{'PASS' if tally.is_sound else 'FAIL'}  {tally.kills} kills: {tally.lost} acknowledged documents lost, "
        f"{tally.failed_opens} failed opens, {tally.problems} problems found by check, "
        f"{tally.unequal_ends} of {tally.ends} resumed to another index than an undisturbed run's, "
        f"{len(tally.faults)} faults in all"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=KILLS, help="how often to kill, in all")
    parser.add_argument("--seed", type=int, default=SEED, help="of the inputs and the moments")
    parser.add_argument("--only", choices=SHARES, help="kill only this victim")
    add_scratch_option(parser)
    arguments = parser.parse_args()
    given = {arguments.only: 1.0} if arguments.only else SHARES
    shares = {name: max(1, round(share * arguments.kills)) for name, share in given.items()}
    print_conditions("kill -9", seed=arguments.seed, kills=sum(shares.values()), documents=DOCUMENTS)
    with scratch_folder(arguments.scratch) as folder:
        tally = run(shares, folder, seed=arguments.seed)
    print_tally(tally, shares)
    return 0 if tally.is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
