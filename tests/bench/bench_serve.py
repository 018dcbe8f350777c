"""`hsimhash serve` under load: `python -m tests.bench.bench_serve [--documents N] [--seconds S] [--workers N]`.

wrk sends single queries to an index on LMDB over 64 connections while a writer adds documents; every other fingerprint
is stored. Prints queries per second, latencies and refusals, and the workers' CPU time per query, which is more
meaningful on a busy machine. Then measures the same without a writer, and single queries of one thread in Python. But
first it measures the bodies that take longest to check, because the GIL is held meanwhile and all other calls wait.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hsimhash.fingerprint.bits import Uint64s
from hsimhash.index import HSimIndex
from hsimhash.serve.app import ServeLimits
from hsimhash.serve.calls import CALLS, Bodies
from tests.support.programs import options, print_bar, print_conditions, scratch_folder
from tests.support.serve_process import Serving, served

SEED = 20_070_509
DOCUMENTS, CONNECTIONS, SECONDS = 1_000_000, 64, 30
SAMPLE = 20_000  # fingerprints to query
WANTED = 3_000  # queries per second
MOST_BYTES = ServeLimits().value_bytes  # per body
WORST = {  # bodies that take long to check
    "escapes": '{"text": "' + "\\u4e2d" * (MOST_BYTES // 6 - 9) + '"}',
    "short escapes": '{"text": "' + ",\\n" * (MOST_BYTES // 3 - 9) + '"}',
    "Chinese": '{"text": "' + "网，" * (MOST_BYTES // 6 - 9) + '"}',
    "fields": "{" + ",".join(f'"{number}": 1' for number in range(64_000)) + "}",
    "fields of a text": '{"text": {' + ",".join(f'"{number}": 1' for number in range(64_000)) + "}}",
    "values": '{"text": [' + "1," * (MOST_BYTES // 2 - 9) + "1]}",
}
LONGEST_MS = 50  # the longest that a body may keep all others waiting
HINT = "SKIP  no wrk here: apt-get install wrk, or dnf install wrk, or brew install wrk"
SCRIPT = """
local digits = {}
for line in io.lines("%s") do digits[#digits + 1] = line end
local place = 0
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
request = function()
  place = place %% #digits + 1
  return wrk.format(nil, nil, nil, '{"fingerprint":"' .. digits[place] .. '"}')
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """A load client's measurements."""

    a_second: float
    p99: str
    errors: int
    processor_us: float  # CPU time of the workers per query


def filled(url: str, documents: int) -> Uint64s:
    """Make an index; return the fingerprints to query."""
    rng = np.random.default_rng(SEED)
    fingerprints = rng.integers(0, 2**64, documents, np.uint64)
    with HSimIndex.create(url) as index:
        index.add_many(fingerprints, [f"https://example.org/page/{number}" for number in range(documents)])
    asked = np.concatenate([fingerprints[: SAMPLE // 2], rng.integers(0, 2**64, SAMPLE // 2, np.uint64)])
    return rng.permutation(asked)


def processor_s(parent: int) -> float:
    """Return the CPU seconds of a process's children."""
    lists = (task / "children" for task in Path(f"/proc/{parent}/task").iterdir())
    fields = [Path(f"/proc/{pid}/stat").read_text().split() for one in lists for pid in one.read_text().split()]
    return sum(int(one[13]) + int(one[14]) for one in fields) / os.sysconf("SC_CLK_TCK")


def load(serving: Serving, script: Path, seconds: int) -> Load:
    """Let wrk send queries for `seconds`."""
    before = processor_s(serving.process.pid)
    url = f"http://127.0.0.1:{serving.port}/query"
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout=60s", "--latency", "-s", str(script), url]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    took_us = 1e6 * (processor_s(serving.process.pid) - before)
    ((p99, requests, a_second),) = re.findall(
        r"99% +(\S+).*?(\d+) requests in.*?Requests/sec: +([\d.]+)", told, re.DOTALL
    )
    faults = re.findall(r"Non-2xx or 3xx responses: (.*)|Socket errors: (.*)", told)
    errors = sum(int(number) for number in re.findall(r"\d+", str(faults)))
    return Load(float(a_second), p99, errors, took_us / int(requests))


@contextmanager
def adding(url: str) -> Iterator[list[int]]:
    """Let a writer add documents one by one during the block; the list has their number."""
    added, is_over = [0], threading.Event()

    def add() -> None:
        rng = np.random.default_rng(SEED + 1)
        with HSimIndex.open(url) as index:
            while not is_over.is_set():
                index.add(int(rng.integers(0, 2**64, dtype=np.uint64)), f"new/{added[0]}")
                added[0] += 1

    thread = threading.Thread(target=add)
    thread.start()
    try:
        yield added
    finally:
        is_over.set()
        thread.join()


def own_queries(url: str, asked: Uint64s) -> float:
    """Return the CPU time of a query in Python, in microseconds."""
    with HSimIndex.open(url) as index:
        began = time.process_time()
        for fingerprint in asked.tolist():
            index.query(fingerprint)
        return 1e6 * (time.process_time() - began) / len(asked)


def checked_ms(index: HSimIndex, body: str) -> float:
    """Return how long a worker's thread takes to check a body: the least of five times."""

    def once_ms() -> float:
        began = time.thread_time()
        Bodies(index, CALLS[-1], [(1, body.encode())], 1.0, MOST_BYTES)
        return (time.thread_time() - began) * 1e3

    return min(once_ms() for _ in range(5))


def show(title: str, seen: Load) -> None:
    print(f"{title}: {seen.a_second:,.0f} queries/s, p99 {seen.p99}, {seen.processor_us:,.0f} µs of the processor each")
    print_bar(f"queries a second, {title}", seen.a_second, at_least=WANTED)
    print_bar(f"errors, {title}", seen.errors, at_most=0)


def main() -> int:
    given = options(
        __doc__ or "",
        documents=(DOCUMENTS, "how many"),
        seconds=(SECONDS, "how long each"),
        workers=(os.cpu_count() or 1, "processes that serve"),
    )
    facts = {"documents": given.documents, "connections": CONNECTIONS, "workers": given.workers, "seed": SEED}
    print_conditions("hsimhash serve", packages=("starlette", "uvicorn", "httptools", "uvloop"), **facts)
    with HSimIndex.create("memory://bodies") as index:
        for name, body in WORST.items():
            print_bar(f"ms to check a body of {name}", checked_ms(index, body), at_most=LONGEST_MS)
    if shutil.which("wrk") is None:
        print(HINT)
        return 0
    with scratch_folder(given.scratch) as folder:
        url = f"lmdb://{folder / 'index'}"
        asked = filled(url, given.documents)
        digits, script = folder / "digits", folder / "load.lua"
        digits.write_text("".join(f"{one:016x}\n" for one in asked.tolist()))
        script.write_text(SCRIPT % digits)
        print(f"in Python: {own_queries(url, asked):,.0f} µs of the processor for a query")
        with served(url, "--workers", str(given.workers)) as serving:
            show("alone", load(serving, script, given.seconds))
            with adding(url) as added:
                seen = load(serving, script, given.seconds)
            show(f"while a writer adds {added[0] / given.seconds:,.0f}/s", seen)
            code = serving.stop()
    return code


if __name__ == "__main__":
    sys.exit(main())
