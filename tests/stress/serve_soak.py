"""`hsimhash serve` under load through restarts: `python -m tests.stress.serve_soak [--store lmdb] [--minutes 30]`.

Callers add, move, claim, remove and query their own documents, which share fingerprints; one calls /healthz
continuously. Every three minutes the server is restarted, by SIGTERM and `kill -9` in turns, and on PostgreSQL the
database too, so callers get refused connections and 503, and retry. Each query returns the caller's own documents as
its model predicts. At the end the index has every acknowledged write and nothing else, and the worker's memory and
descriptors have not grown.
"""

from __future__ import annotations

import http.client
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from hsimhash import HSimIndex
from tests.support.command_line import make_index
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.processes import children_of
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.serve_process import Caller, Serving, served

SEED, MINUTES, RESTART_S, CALLERS = 36, 30.0, 180.0, 8
FINGERPRINTS, DOCUMENTS = 50, 200  # per caller; its documents share its fingerprints
PROMPT_S, PROMPT_SHARE = 0.1, 0.999  # time limit for /healthz, and the share of answers that must meet it
GROWTH_BYTES, GROWTH_DESCRIPTORS = 64 << 20, 20  # limits for the life of a worker, after its first half minute
WARM_S, LOOK_S = 30.0, 5.0


class SoakCaller(threading.Thread):
    """A caller with its own documents: `held` are those that the index must have."""

    def __init__(self, number: int, soak: Soak) -> None:
        super().__init__(daemon=True)
        self.number, self.soak, self.rng = number, soak, random.Random(f"{SEED} {number}")
        self.values = [number << 56 | self.rng.getrandbits(40) << 8 for _ in range(FINGERPRINTS)]
        self.held: dict[str, int] = {}
        self.writes = self.queries = self.retries = 0
        self.faults: list[str] = []
        self.caller: Caller | None = None

    def run(self) -> None:
        """Call until the soak is over."""
        try:
            while not self.soak.is_over.is_set():
                self.query() if self.rng.random() < 0.5 else self.write()
        except Exception as error:  # reported at the end
            self.faults.append(f"{type(error).__name__}: {error}")
        finally:
            self.hang_up()

    def write(self) -> None:
        """Add, move, claim or remove a document; it counts once it is acknowledged."""
        doc_id, value = f"{self.number} {self.rng.randrange(DOCUMENTS)}", self.rng.choice(self.values)
        kind = self.rng.choice(["add", "add", "claim", "remove"])
        body = {"id": doc_id} if kind == "remove" else {"id": doc_id, "fingerprint": f"{value:016x}"}
        answer = self.answered(f"/{kind}", body)
        if kind == "remove":
            self.held.pop(doc_id, None)
        elif kind == "add" or answer["is_new"]:
            self.held[doc_id] = value
        elif answer["match"]["id"] == doc_id or self.held.get(answer["match"]["id"]) is None:
            self.faults.append(f"claim of {doc_id} found {answer['match']['id']}, which is not there")
        self.writes += 1

    def query(self) -> None:
        """Compare the documents of a fingerprint with the model."""
        value = self.rng.choice(self.values)
        answer = self.answered("/query", {"fingerprint": f"{value:016x}", "max_distance": 0})
        found = {match["id"] for match in answer["matches"]}
        expected = {doc_id for doc_id, held in self.held.items() if held == value}
        if found != expected:
            self.faults.append(f"{value:016x}: missing {expected - found}, not there {found - expected}")
        self.queries += 1

    def answered(self, path: str, body: object) -> Any:
        """Retry a call until it is answered, and return the answer; every call may be repeated."""
        while True:
            with suppress(OSError, http.client.HTTPException):
                self.caller = self.caller or Caller(self.soak.port)
                status, answer = self.caller.call(path, body)
                if status == 200:
                    return answer
                if status != 503:
                    raise RuntimeError(f"{path}: {status} {answer}")
            self.hang_up()
            self.retries += 1
            time.sleep(0.05)

    def hang_up(self) -> None:
        """Close the connection; the next call opens a new one."""
        if self.caller is not None:
            self.caller.connection.close()
        self.caller = None


class Life:
    """The resources that one server's worker uses once it is warm."""

    def __init__(self, serving: Serving, warm_s: float) -> None:
        # Besides the workers, Python runs a process that tracks their shared resources.
        self._pids = [pid for pid in children_of(serving.process.pid) if b"resource_tracker" not in _command(pid)]
        assert len(self._pids) == 1, self._pids
        self._warm_s = time.monotonic() + warm_s
        self._first: tuple[int, int] | None = None
        self.growth = 0, 0

    def look(self) -> None:
        """Note how much memory and descriptors have grown since the first look at a warm worker."""
        if time.monotonic() < self._warm_s:
            return
        held = (
            sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._pids)
            * os.sysconf("SC_PAGESIZE"),
            sum(len([*Path(f"/proc/{pid}/fd").iterdir()]) for pid in self._pids),
        )
        self._first = self._first or held
        self.growth = held[0] - self._first[0], held[1] - self._first[1]


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def probe(port: Synchronized[int], told: Connection) -> None:
    """Call /healthz until `told` is written to; then send back the number of answers and the times of late ones."""
    asked, late_ms, caller, asked_port = 0, [], None, 0
    while not told.poll(0.02):
        began_s, now = time.perf_counter(), port.value
        try:
            if caller is None or asked_port != now:
                caller, asked_port = Caller(now), now
            caller.call("/healthz")
        except (OSError, http.client.HTTPException):
            caller = None  # the server is being restarted
            continue
        asked, took_s = asked + 1, time.perf_counter() - began_s
        if took_s > PROMPT_S and now == port.value:
            late_ms.append(round(took_s * 1_000))
    told.send((asked, late_ms))


class Soak:
    """Serves an index through restarts while callers use it; `outcomes` judges the results."""

    def __init__(self, url: str, minutes: float, database: PostgresqlServer | None) -> None:
        self.url, self.database, self.total_s = url, database, minutes * 60
        self.life_s = min(RESTART_S, self.total_s / 3)
        self.is_over = threading.Event()
        spawning = multiprocessing.get_context("spawn")
        self._port = spawning.Value("i", 1)
        self._told, told = spawning.Pipe()
        self._prober = spawning.Process(target=probe, args=(self._port, told), daemon=True)
        self.lives: list[Life] = []
        self.tracebacks = 0

    @property
    def port(self) -> int:
        """The server's port; during a restart, a port without a listener."""
        return int(self._port.value)

    def outcomes(self) -> Iterator[Outcome]:
        """Run the soak; yield the outcomes."""
        callers = [SoakCaller(number, self) for number in range(CALLERS)]
        self._prober.start()
        end_s = time.monotonic() + self.total_s
        for caller in callers:
            caller.start()
        try:
            while not self.is_over.is_set():
                self._live(end_s, callers)
        finally:
            self.is_over.set()
        yield from self._judged(callers)

    def _live(self, end_s: float, callers: list[SoakCaller]) -> None:
        """Serve for a while, restart the database in the middle, then stop by SIGTERM and `kill -9` in turns."""
        with served(self.url) as serving:
            self._port.value = serving.port
            life = Life(serving, min(WARM_S, self.life_s / 4))
            self.lives.append(life)
            until_s = time.monotonic() + self.life_s
            middle_s = until_s - self.life_s / 2
            while time.monotonic() < until_s:
                time.sleep(min(LOOK_S, max(0.1, until_s - time.monotonic())))
                life.look()
                if self.database is not None and time.monotonic() > middle_s:
                    self.database.kill()
                    self.database.start()
                    middle_s = until_s
            if until_s >= end_s:
                self.is_over.set()  # while the server still answers, so that each caller's last call is acknowledged
                for caller in callers:
                    caller.join()
                self._told.send("over")
            self._port.value = 1
            serving.stop(signal.SIGKILL if len(self.lives) % 2 else signal.SIGTERM)
            self.tracebacks += b"Traceback" in serving.told

    def _judged(self, callers: list[SoakCaller]) -> Iterator[Outcome]:
        asked, late_ms = self._told.recv()
        self._prober.join()
        faults = [fault for caller in callers for fault in caller.faults]
        writes, queries, retries = (
            sum(getattr(one, name) for one in callers) for name in ("writes", "queries", "retries")
        )
        shown = f"{writes:,} writes, {queries:,} queries, {retries:,} sent again"
        yield Outcome(not faults and bool(queries), f"{shown}: wrong answers: {faults[:3] or 'none'}")
        with HSimIndex.open(self.url) as index:
            there = {document.doc_id: document.fingerprint for document in index.documents()}
            report = index.check()
        held = {doc_id: value for caller in callers for doc_id, value in caller.held.items()}
        yield Outcome(there == held, f"{len(held):,} documents are as acknowledged; {len(there):,} are there")
        yield Outcome(report.is_sound, f"{len(self.lives)} servers; check: {report.problems} problems")
        size, descriptors = (max(life.growth[at] for life in self.lives) for at in (0, 1))
        is_flat = size <= GROWTH_BYTES and descriptors <= GROWTH_DESCRIPTORS
        yield Outcome(is_flat, f"a warm worker grew by at most {size >> 20} MiB and {descriptors} descriptors")
        share = 1 - len(late_ms) / asked if asked else 0
        yield Outcome(
            share >= PROMPT_SHARE,
            f"{share:.3%} of {asked:,} /healthz within {PROMPT_S * 1_000:.0f} ms; late: {sorted(late_ms)[-5:]} ms",
        )
        yield Outcome(not self.tracebacks, f"{self.tracebacks} servers wrote a traceback")


def outcomes(store: str, folder: Path, minutes: float) -> Iterator[Outcome]:
    """Soak a server of an index on LMDB or PostgreSQL."""
    if store == "lmdb":
        yield from Soak(make_index(folder, {}, layout="4"), minutes, None).outcomes()
        return
    with postgresql_serving() as database:
        url = database.url("pages")
        HSimIndex.create(url, layout="4", profile="auto-1").close()
        yield from Soak(url, minutes, database).outcomes()


def main() -> int:
    given = options(
        __doc__ or "",
        store=("lmdb", "or postgresql"),
        minutes=(MINUTES, "how long"),
    )
    print_conditions(
        f"serve on {given.store}",
        packages=("starlette", "uvicorn", "psycopg"),
        minutes=given.minutes,
        callers=CALLERS,
        seed=SEED,
    )
    with scratch_folder(given.scratch) as folder:
        return print_outcomes(outcomes(given.store, folder, given.minutes))


if __name__ == "__main__":
    sys.exit(main())
