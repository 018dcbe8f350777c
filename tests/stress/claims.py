"""Many processes claim near documents and are killed: `python -m tests.stress.claims [--store lmdb]`.

Documents come in groups of near ones, in random order, each to a random process. Every other group is near only by its
keys, any two of which share one part. The processes claim their documents in batches and note each answer in a file.
They are killed with `kill -9` at random moments; after a restart, they claim again what is not noted. In each group
exactly one document must be new, and the others must have it as their match. The index must have exactly the new
documents.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex
from hsimhash.errors import StoreBusyError, StoreUnavailableError
from hsimhash.fingerprint import Signature
from hsimhash.fingerprint.keys import PARTS, TAG_MASK, TAGS
from hsimhash.store.conformance.random_calls import packed_key
from tests.stress.hbase_crowd import table, url_of
from tests.support.hbase_server import serving
from tests.support.postgresql_server import postgresql_serving
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder
from tests.support.redis_server import redis_running

SEED = 17
PROFILE = "auto-3"
PROCESSES, DOCUMENTS, GROUP = 8, 20_000, 4
MOST_CLAIMS = 32  # per batch
KILL_EVERY_S = 0.5  # at most
KILLS = 40
LIMIT_S = 1_800.0


def documents_of(number: int, processes: int, count: int) -> list[tuple[str, Signature]]:
    """Return the documents of one process, in the order in which it claims them."""
    rng = np.random.default_rng(SEED)
    documents = [
        (f"{group}/{one}", signature)
        for group in range(count // GROUP)
        for one, signature in enumerate(by_key(rng) if group % 2 else by_distance(rng))
    ]
    return [documents[place] for place in rng.permutation(len(documents))[number::processes].tolist()]


def by_distance(rng: np.random.Generator) -> list[Signature]:
    """Return signatures without keys that are near each other."""
    (base,) = rng.integers(0, 2**64, 1, np.uint64).tolist()
    return [Signature(base ^ 1 << one) for one in range(GROUP)]


def by_key(rng: np.random.Generator) -> list[Signature]:
    """Return random signatures, any two of whose keys share one part, at random positions."""
    common, others = np.split(rng.permutation(TAG_MASK)[: len(PARTS[0]) + GROUP * TAGS], [len(PARTS[0])])
    signatures = []
    for fingerprint, its in zip(
        rng.integers(0, 2**64, GROUP, np.uint64).tolist(), others.reshape(GROUP, TAGS), strict=True
    ):
        its[list(PARTS[rng.integers(len(PARTS))])] = rng.permutation(common)
        signatures.append(Signature(fingerprint, 0, packed_key(its.tolist())))
    return signatures


def claimant(url: str, number: str, processes: str, count: str, log: str) -> None:
    """Claim the documents of one process that are not noted yet."""
    documents = documents_of(int(number), int(processes), int(count))
    rng = np.random.default_rng()
    with HSimIndex.open(url) as index, Path(log).open("a+b") as noted:
        noted.seek(0)
        whole = noted.read().rpartition(b"\n")[0]
        noted.truncate(len(whole) + 1 if whole else 0)
        place = len(whole.splitlines())
        while place < len(documents):
            batch = documents[place : place + int(rng.integers(1, MOST_CLAIMS + 1))]
            try:
                claims = index.claim_many([value for _, value in batch], [doc_id for doc_id, _ in batch])
            except (StoreBusyError, StoreUnavailableError):
                continue
            lines = [
                json.dumps([doc_id, claim.match and claim.match.doc_id])
                for (doc_id, _), claim in zip(batch, claims, strict=True)
            ]
            noted.write("".join(f"{line}\n" for line in lines).encode())
            noted.flush()
            place += len(batch)


def claim_and_kill(url: str, folder: Path, processes: int, count: int, most_kills: int) -> Outcome:
    """Let processes claim, kill them at random, and check the answers that they got."""
    rng, kills, end = np.random.default_rng(SEED), 0, time.monotonic() + LIMIT_S
    logs = [folder / f"{number}.answers" for number in range(processes)]

    def begin(number: int) -> subprocess.Popen[bytes]:
        given = [url, number, processes, count, logs[number]]
        return subprocess.Popen([sys.executable, "-m", "tests.stress.claims", "claimant", *map(str, given)])

    def noted(number: int) -> int:
        return logs[number].stat().st_size if logs[number].exists() else 0

    running, begun = {number: begin(number) for number in range(processes)}, [0] * processes
    try:
        while running and time.monotonic() < end:
            number = int(rng.choice(list(running)))
            try:
                code = running[number].wait(rng.uniform(0, KILL_EVERY_S))
            except subprocess.TimeoutExpired:
                if kills < most_kills and noted(number) > begun[number]:  # it has begun to work
                    running[number].send_signal(signal.SIGKILL)
                    running[number].wait()
                    kills, begun[number] = kills + 1, noted(number)
                    running[number] = begin(number)
            else:
                if code:
                    return Outcome(False, f"{url}: a claimant ended with {code}")
                del running[number]
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return _verdict(url, logs, count, kills) if not running else Outcome(False, f"{url}: not done in {LIMIT_S:g} s")


def _verdict(url: str, logs: list[Path], count: int, kills: int) -> Outcome:
    answers = [json.loads(line) for log in logs for line in log.read_bytes().splitlines()]
    new, matched = defaultdict(set), defaultdict(set)
    for doc_id, match in answers:
        (new if match is None else matched)[doc_id.partition("/")[0]].add(match or doc_id)
    with HSimIndex.open(url) as index:
        there = {document.doc_id for document in index.documents()}
        problems = index.check().problems
    groups = count // GROUP
    right = sum(len(new[str(group)]) == 1 and matched[str(group)] == new[str(group)] for group in range(groups))
    is_whole = len(answers) == count and there == {doc_id for ids in new.values() for doc_id in ids} and not problems
    text = (
        f"{url.partition('://')[0]}: {len(answers):,} claims of {len(logs)} processes, {kills} killed: one new in "
        f"{right:,} of {groups:,} groups, {len(there):,} documents there, {problems} problems"
    )
    return Outcome(right == groups and is_whole, text)


def on_lmdb(folder: Path, processes: int, count: int, most_kills: int = KILLS) -> Outcome:
    """Claim in an embedded index."""
    url = f"lmdb://{folder / 'index'}"
    HSimIndex.create(url, layout="4", profile=PROFILE, distance=3).close()
    return claim_and_kill(url, folder, processes, count, most_kills)


def on_redis(folder: Path, processes: int, count: int, most_kills: int = KILLS) -> Outcome:
    """Claim on a Redis started for this purpose."""
    with redis_running(folder / "redis") as server:
        url = server.url("pages")
        HSimIndex.create(url, layout="4", profile=PROFILE, distance=3).close()
        return claim_and_kill(url, folder, processes, count, most_kills)


def on_postgresql(folder: Path, processes: int, count: int, most_kills: int = KILLS) -> Outcome:
    """Claim on a PostgreSQL started for this purpose."""
    with postgresql_serving() as server:
        url = server.url("claims")
        HSimIndex.create(url, layout="4", profile=PROFILE, distance=3).close()
        return claim_and_kill(url, folder, processes, count, most_kills)


def main() -> int:
    if sys.argv[1:2] == ["claimant"]:
        claimant(*sys.argv[2:])
        return 0
    given = options(
        __doc__,
        store=("lmdb", "or postgresql, redis or hbase: on a server that is started for it"),
        processes=(PROCESSES, "that claim"),
        documents=(DOCUMENTS, "that they claim"),
    )
    print_conditions("claims", seed=SEED, processes=given.processes, documents=given.documents)
    with scratch_folder(given.scratch) as folder:
        if (claim := {"lmdb": on_lmdb, "postgresql": on_postgresql, "redis": on_redis}.get(given.store)) is not None:
            return print_outcomes([claim(folder, given.processes, given.documents)])
        with serving(folder / "hbase") as server, table(server) as name:
            url = url_of(name, server.thrift2_port)
            return print_outcomes([claim_and_kill(url, folder, given.processes, given.documents, KILLS)])


if __name__ == "__main__":
    sys.exit(main())
