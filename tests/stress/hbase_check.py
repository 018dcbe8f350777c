"""`check` on HBase with planted faults, with kills, and during writes: `python -m tests.stress.hbase_check`.

There is the same number of faults of each kind, each in a separate document or row. `check` must count all of them with
several processes, in shards, and when it is killed repeatedly and resumed. After `--repair`, `check` must call the
index sound. In an index that others are writing to, it must not find a problem.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from hsimhash import HSimIndex, Signatures
from hsimhash.fingerprint import Signature
from hsimhash.fingerprint.keys import PARTS, TAG_MASK, TAGS
from hsimhash.rowkey import encode, register_rowkey
from hsimhash.store.conformance.random_calls import packed_key
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, DRAWER_FAMILY, Deletion, Gateway, Put
from hsimhash.store.hbase.rows.cells import listing_key, register_key, rows_of_key
from hsimhash.store.hbase.store import HBaseStore
from tests.support.command_line import PROGRAM
from tests.support.fingerprint_sets import random_fingerprints, random_signatures
from tests.support.hbase_server import HBaseServer, serving
from tests.support.hbase_tables import new_table, table_url
from tests.support.programs import Outcome, options, print_conditions, print_outcomes, scratch_folder

SEED = 43
DOCUMENTS, FAULTS = 100_000, 100  # of each kind
KILLS = 10
SHARDS = 4
WRITERS = 2
# The problems and leftovers of each kind of fault.
KINDS = {
    "no row in a drawer": (1, 0),
    "no row in the key drawer": (1, 0),
    "no listing": (1, 0),
    "register unreadable": (1, 1 + len(PARTS)),  # its listing and its rows in the key drawer are left over
    "cell of a document misfiled": (1, 0),
    "drawer row misfiled": (1, 0),
    "drawer row with a qualifier": (1, 0),
    "listing of no document": (0, 1),
    "drawer rows of no document": (0, 10),
    "key row of no document": (0, 1),
}


class Planted:
    """An index with the same number of faults of every kind."""

    def __init__(self, index: HSimIndex, documents: int, faults: int) -> None:
        assert isinstance(index.store, HBaseStore)
        self.gateway: Gateway = index.store.gateway
        self.layout, self.record, self.faults = index.layout, index.store.record, faults
        rng = np.random.default_rng(SEED)
        starts = rng.integers(0, TAG_MASK, documents).tolist()
        keys = [packed_key(tag & TAG_MASK for tag in range(start, start + TAGS)) for start in starts]
        columns = [random_fingerprints(rng, documents) for _ in range(2)]
        self.signatures = Signatures.of(*columns, np.array(keys, np.uint64))
        self.ids = [f"https://example.org/{number}" for number in range(documents)]
        index.add_many(self.signatures, self.ids)
        self.documents = documents - faults  # documents with an unreadable register are lost
        self.rng = random.Random(SEED)
        for number, kind in enumerate(KINDS):
            places = range(number * faults, (number + 1) * faults)
            getattr(self, "_" + kind.replace(" ", "_"))(
                [(self.ids[at].encode(), self.signatures.at(at)) for at in places]
            )

    def expected(self) -> tuple[int, int]:
        """Return the expected numbers of problems and leftovers."""
        problems, leftovers = (sum(column) for column in zip(*KINDS.values(), strict=True))
        return self.faults * problems, self.faults * leftovers

    def _delete(self, family: bytes, keys: Sequence[tuple[bytes, bytes]]) -> None:
        cells = self.gateway.get(keys, family)
        self.gateway.delete(
            [Deletion(one.row, family, one.qualifier, one.timestamp) for one in cells if one is not None]
        )

    def _rows(self, fingerprint: int) -> list[bytes]:
        return [row.tobytes() for row in encode(self.layout, np.array([fingerprint], np.uint64))[0]]

    def _no_row_in_a_drawer(self, documents: list[tuple[bytes, Signature]]) -> None:
        rows = [self.rng.choice(self._rows(signature.fingerprint)) for _, signature in documents]
        self._delete(DRAWER_FAMILY, [(row, b"") for row in rows])

    def _no_row_in_the_key_drawer(self, documents: list[tuple[bytes, Signature]]) -> None:
        rows = (rows_of_key(self.record, signature)[-1] for _, signature in documents)
        self._delete(DRAWER_FAMILY, [(row, b"") for row in rows])

    def _no_listing(self, documents: list[tuple[bytes, Signature]]) -> None:
        self._delete(DOCUMENT_FAMILY, [listing_key(signature.fingerprint, doc_id) for doc_id, signature in documents])

    def _register_unreadable(self, documents: list[tuple[bytes, Signature]]) -> None:
        puts = [
            Put(row, DOCUMENT_FAMILY, name, b"7 bytes") for row, name in (register_key(one) for one, _ in documents)
        ]
        self.gateway.put(puts)

    def _cell_of_a_document_misfiled(self, documents: list[tuple[bytes, Signature]]) -> None:
        self.gateway.put([Put(register_rowkey(doc_id), DOCUMENT_FAMILY, doc_id + b"?", b"") for doc_id, _ in documents])

    def _drawer_row_misfiled(self, documents: list[tuple[bytes, Signature]]) -> None:
        rows = [self._rows(signature.fingerprint)[0] for _, signature in documents]
        self.gateway.put([Put(bytes([row[0] ^ 0x80]) + row[1:], DRAWER_FAMILY, b"", b"") for row in rows])

    def _drawer_row_with_a_qualifier(self, documents: list[tuple[bytes, Signature]]) -> None:
        rows = [self._rows(signature.fingerprint)[1] for _, signature in documents]
        self.gateway.put([Put(row, DRAWER_FAMILY, b"q", b"") for row in rows])

    def _listing_of_no_document(self, documents: list[tuple[bytes, Signature]]) -> None:
        keys = (listing_key(signature.fingerprint, doc_id + b"/no") for doc_id, signature in documents)
        self.gateway.put([Put(row, DOCUMENT_FAMILY, name, b"") for row, name in keys])

    def _drawer_rows_of_no_document(self, documents: list[tuple[bytes, Signature]]) -> None:
        rows = [row for _, signature in documents for row in self._rows(signature.fingerprint ^ (1 << 63))]
        self.gateway.put([Put(row, DRAWER_FAMILY, b"", b"") for row in rows])

    def _key_row_of_no_document(self, documents: list[tuple[bytes, Signature]]) -> None:
        others = (signature._replace(key=~signature.key & (1 << 64) - 1 | 1) for _, signature in documents)
        self.gateway.put([Put(rows_of_key(self.record, one)[0], DRAWER_FAMILY, b"", b"") for one in others])


def faults_found(server: HBaseServer, folder: Path, *, documents: int, faults: int, kills: int) -> Iterator[Outcome]:
    """Plant faults; judge whether `check` counts them, killed or not, and repairs them."""
    with new_table(server) as name:
        url = table_url(server, name)
        with HSimIndex.create(url, layout="10", profile="auto-3") as index:
            planted = Planted(index, documents, faults)
            whole = index.check()
            wanted = (planted.documents, *planted.expected())
            yield Outcome(
                (whole.documents, whole.problems, whole.leftovers) == wanted,
                f"documents, problems, leftovers: {whole.documents:,}, {whole.problems:,}, {whole.leftovers:,}, "
                f"planted {wanted}",
            )
            counts = _counts(whole.to_json())
            killed = _counts(_killed(url, folder / "killed", kills))
            yield Outcome(killed == counts, f"killed {kills} times and continued: {killed}")
            _, alone = _sharded(url, folder / "alone", 1)
            found, beside = _sharded(url, folder / "shards", SHARDS)
            text = f"{SHARDS} shards, a process each: {beside}; one: {alone}: {_counts(found)}"
            yield Outcome(_counts(found) == counts, text)
            problems = index.check(repair=True, workers=2, folder=folder / "repair").problems
            again = index.check()
            yield Outcome(
                again.problems == 0 and problems == whole.problems, f"after --repair: {again.problems} problems"
            )


def _counts(facts: Mapping[str, object]) -> dict[str, object]:
    return {name: facts[name] for name in ("documents", "drawer_rows", "problems", "leftovers")}


def _killed(url: str, folder: Path, kills: int) -> dict[str, object]:
    """Return what the command prints after it was killed this many times."""
    command = [*PROGRAM, "check", "--store", url, "--workers", "2", "--job", str(folder), "--json"]
    rng = random.Random(SEED)
    while True:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                printed, _ = process.communicate(timeout=rng.uniform(0.5, 3) if kills > 0 else None)
            except subprocess.TimeoutExpired:
                process.kill()
                kills -= 1
                continue
            found: dict[str, object] = json.loads(printed)
            return found


def _sharded(url: str, folder: Path, shards: int) -> tuple[dict[str, object], str]:
    """Run `check` in parallel shards; return what the final command prints, and the time and cores used."""
    command = [*PROGRAM, "check", "--store", url, "--workers", "1", "--job", str(folder)]
    words = [[*command, "--shard", f"{number}/{shards}"] for number in range(1, shards + 1)]
    began_s, busy_s = time.monotonic(), _busy_s()
    processes = [subprocess.Popen(one, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for one in words]
    for process in processes:
        _, said = process.communicate()
        assert process.returncode == 0, said
    printed = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    took_s, busy_s = time.monotonic() - began_s, _busy_s() - busy_s
    found: dict[str, object] = json.loads(printed.stdout)
    return found, f"{took_s:.1f} s, {busy_s / took_s:.1f} cores busy"


def _busy_s() -> float:
    """Return the total busy time of this machine's cores, including that of the servers."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _, _, irq, softirq, steal = map(int, words)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def beside_writers(server: HBaseServer, folder: Path, *, documents: int, checks: int) -> Outcome:
    """Check an index that others are writing to."""
    with new_table(server) as name:
        url, ended = table_url(server, name), threading.Event()
        with HSimIndex.create(url, layout="10", profile="auto-3") as index:
            rng = np.random.default_rng(SEED)
            ids = [f"d{number}" for number in range(documents)]
            index.add_many(random_signatures(rng, random_fingerprints(rng, documents)), ids)
            writes = [0] * WRITERS

            def write(number: int) -> None:
                own, mine = np.random.default_rng([SEED, number]), ids[number::WRITERS]
                while not ended.is_set():
                    some = [mine[at] for at in own.integers(0, len(mine), 20).tolist()]
                    index.add_many(random_signatures(own, random_fingerprints(own, 20)), some)
                    index.remove(some[:2])
                    writes[number] += 1

            threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
            for thread in threads:
                thread.start()
            try:
                reports = [index.check(workers=2, folder=folder / f"live-{number}") for number in range(checks)]
            finally:
                ended.set()
                for thread in threads:
                    thread.join()
            problems = sum(one.problems for one in reports)
            return Outcome(
                problems == 0 and min(writes) > 0,
                f"{checks} checks beside {20 * sum(writes):,} moves and removals: {problems} problems",
            )


def main() -> int:
    given = options(__doc__, documents=(DOCUMENTS, "in the index"), faults=(FAULTS, "of each kind"))
    print_conditions("check on HBase", seed=SEED, documents=given.documents, faults=given.faults * len(KINDS))
    with scratch_folder(given.scratch) as folder, serving(folder / "hbase") as server:
        sizes = {"documents": given.documents, "faults": given.faults, "kills": KILLS}
        code = print_outcomes(faults_found(server, folder, **sizes))
        return code | print_outcomes([beside_writers(server, folder, documents=given.documents, checks=3)])


if __name__ == "__main__":
    sys.exit(main())
