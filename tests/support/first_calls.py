"""Run a forked process's first calls on an index opened before the fork, and print what each call imports.

`python -m tests.support.first_calls URL` prints a JSON object: for each call that imported modules, their names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

from hsimhash import HSimIndex

ENGLISH = "The harbour ferry will not run on Sunday because divers have to look at the moorings, the office said."
CHINESE = "港务局表示，由于潜水员需要检查系泊设备，渡轮星期日停航；乘客可以改乘教堂门前的接驳巴士。"


def imported_by_first_calls(url: str) -> dict[str, list[str]]:
    """Return the modules that each first call imports in a new process, without calls that import nothing."""
    program = [sys.executable, "-m", "tests.support.first_calls", url]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


def _calls(index: HSimIndex) -> dict[str, Callable[[], object]]:
    """Return the calls in the order in which they are made."""
    profile = index.profile
    return {
        "add": lambda: index.add(1, "added"),
        "query": lambda: index.query(1),
        "query within 6 bits": lambda: index.query(1, max_distance=6),
        "query with all options": lambda: index.query(1, max_sketch=0, limit=1, exclude="added", timeout=60),
        "query_many": lambda: index.query_many([1, 2, 3]),
        "query_many with all options": lambda: index.query_many([1, 2], max_distance=7, limit=1, timeout=60),
        "claim, a duplicate": lambda: index.claim(3, "claimed"),
        "claim, a new document": lambda: index.claim(1 << 63, "claimed"),
        "claim_many": lambda: index.claim_many([5, 0xFFFF << 40], ["claimed too", "claimed as well"]),
        "add_many": lambda: index.add_many([7, 0xFF << 20], ["added", "added too"]),
        "get": lambda: index.get("added"),
        "remove": lambda: index.remove("added"),
        "remove, several": lambda: index.remove(["added", "claimed"]),
        "signature of an English text": lambda: profile.signature(ENGLISH),
        "signatures": lambda: profile.signatures([ENGLISH, ENGLISH.upper()]),
        "add_text": lambda: index.add_text(ENGLISH, "text"),
        "query_text": lambda: index.query_text(ENGLISH),
        "claim_text": lambda: index.claim_text(ENGLISH, "text too"),
    }


def main(url: str) -> None:
    index = HSimIndex.open(url)
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    found: dict[str, list[str]] = {}

    def watch(name: str, call: Callable[[], object]) -> None:
        before = set(sys.modules)
        call()
        if modules := sys.modules.keys() - before:
            found[name] = sorted(modules)

    for name, call in _calls(index).items():
        watch(name, call)
    index.profile.verify()  # loads the segmenter and its dictionary
    watch("signature of a Chinese text", lambda: index.profile.signature(CHINESE))
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
