"""`kill -9` at random moments: `python -m tests.stress.kills [--kills 200]`.

| victim | what it does | what must hold after every kill, and at the end |
|---|---|---|
| `bulk` | `ingest`, in runs that are merged | acknowledged runs exist; at the end all is as if undisturbed |
| `skip`, `tag` | `ingest --on-duplicate …` | acknowledged decisions hold; at the end all is as if undisturbed |
| `texts` | `ingest` of texts by two worker processes | as `bulk`; no worker outlives its parent |
| `fitted` | `ingest` into a new index, whose profile is fitted | as `texts`, once the index exists; also its table |
| `writers` | two processes that add, move, remove, compact | all acknowledged calls hold, and at most one more |
| `compact` | compacts continuously | nothing is lost, the next compaction cleans up |

"All" means the index, the counts and the lists. After every kill the index is opened and checked: it must not have
problems, and must have every earlier document. The same command is then resumed and killed again. A seed determines the
moments; what they hit depends on the machine.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tests.stress.kill_ingests import Begin, embedded, kill_ingests, prepare
from tests.stress.kill_writers import kill_compactions, kill_writers
from tests.stress.killing import Tally
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

SEED = 9
KILLS = 200
SHARES = {  # shares of all kills
    "bulk": 0.35,
    "skip": 0.15,
    "tag": 0.15,
    "texts": 0.05,
    "fitted": 0.05,
    "writers": 0.15,
    "compact": 0.1,
}
DOCUMENTS = 3_000  # per ingest


def run(
    shares: Mapping[str, int],
    folder: Path,
    *,
    documents: int = DOCUMENTS,
    seed: int = SEED,
    begin: Begin = embedded,
    given: Sequence[object] = (),
) -> Tally:
    """Kill each victim as often as `shares` says; return the results. `staged` also gets the options `given`."""
    tally = Tally()
    for number, (name, kills) in enumerate(shares.items()):
        rng = np.random.default_rng([seed, number])
        if name == "writers":
            kill_writers(kills, tally, folder, rng)
        elif name == "compact":
            kill_compactions(kills, tally, folder, rng)
        else:
            kill_ingests(prepare(name, folder / f"{name}-base", documents, rng, given), kills, tally, rng, begin)
    return tally


def outcome(tally: Tally) -> Outcome:
    """Print what the kills hit; judge the results."""
    for (name, phase), count in sorted(tally.phases.items()):
        print(f"    {count:4} {name}: {phase}")
    return Outcome(
        tally.is_sound,
        f"{tally.kills} kills: {tally.lost} acknowledged documents lost, {tally.failed_opens} failed opens, "
        f"{tally.problems} problems found by check, {tally.unequal_ends} of {tally.ends} resumed to another index than "
        f"an undisturbed run's, {len(tally.faults)} faults in all, {tally.stray_files} stray files",
    )


def shares_of(kills: int, shares: Mapping[str, float]) -> dict[str, int]:
    return {name: max(1, round(share * kills)) for name, share in shares.items()}


def main() -> int:
    given = options(
        __doc__,
        kills=(KILLS, "how often to kill, in all"),
        seed=(SEED, "of the inputs and the moments"),
        only=("", f"kill only this victim: {', '.join(SHARES)}"),
    )
    shares = shares_of(given.kills, {given.only: 1.0} if given.only else SHARES)
    print_conditions("kill -9", seed=given.seed, kills=sum(shares.values()), documents=DOCUMENTS)
    with scratch_folder(given.scratch) as folder:
        return print_outcomes([outcome(run(shares, folder, seed=given.seed))])


if __name__ == "__main__":
    sys.exit(main())
