"""Two `hsimhash ingest … --claim` at once, of near-duplicates in different orders."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from hsimhash.index import HSimIndex
from tests.support.command_line import PROGRAM
from tests.support.processes import wait_until

GROUPS = 300
COPIES = 4  # per group and input


def assert_one_of_each_group_is_stored(store: str, folder: Path, *, kills: bool = False) -> None:
    """Ingest near documents in two processes, one of which may be killed and resumed; check what is stored."""
    chance = random.Random(5)
    groups = [chance.getrandbits(64) for _ in range(GROUPS)]
    ids: list[list[str]] = [[] for _ in groups]
    commands = []
    for name in "xy":
        documents = [(group, copy) for group in range(GROUPS) for copy in range(COPIES)]
        chance.shuffle(documents)
        lines = []
        for group, copy in documents:
            ids[group].append(f"{name}{group}.{copy}")
            lines.append(f"{ids[group][-1]}\t{groups[group] ^ (1 << chance.randrange(64)):016x}\n")
        path = folder / f"{name}.tsv"
        path.write_text("".join(lines))
        job = folder / f"job-{name}"
        options = ["--on-duplicate", "skip", "--claim", "--format", "fingerprints", "--job", str(job)]
        if kills and name == "y":
            options += ["--rate", str(GROUPS * COPIES // 2)]  # slow enough that it is killed before it ends
        commands.append([*PROGRAM, "ingest", str(path), "--store", store, *options])
    programs = [_started(command) for command in commands]
    if kills:
        decisions = folder / "job-y" / "decisions.jsonl"
        wait_until(lambda: decisions.exists() and decisions.stat().st_size > 0, programs[1])
        programs[1].kill()
        programs[1].communicate()
        programs[1] = _started(commands[1])
    counts = [_ended(program) for program in programs]
    with HSimIndex.open(store) as index:
        stored = [sum(one is not None for one in index.get_many(members)) for members in ids]
    assert stored == [1] * GROUPS
    assert sum(one["added"] for one in counts) == GROUPS
    assert [one["added"] + one["duplicates"] for one in counts] == [GROUPS * COPIES] * 2


def _started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _ended(program: subprocess.Popen[str]) -> dict[str, int]:
    out, error = program.communicate(timeout=200)
    assert program.returncode == 0, error
    summary: dict[str, int] = json.loads(out)
    return summary
