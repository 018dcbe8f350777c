"""What `kills` kills: `python -m tests.stress.victims program ARGUMENT…`, `… writer URL SEED WRITER FROM TO` or
`… compact URL TIMES`.

`program` is hsimhash's own, with runs and commits so small that kills hit every phase. `writer` carries out the
operations of `operation`, and acknowledges each by printing its number. All print `ready` before they begin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hsimhash.fingerprint import Signature
from hsimhash.store.lmdb.backend import BACKEND
from hsimhash.store.lmdb.files import BaseLimits
from tests.support.fingerprint_sets import keys_in_parts

READY = b"ready\n"
IDS, FINGERPRINTS = 200, 60  # of the writers: few, so that documents move and share fingerprints
OWN_FINGERPRINTS = 4  # per document: few, so that often only a sketch or a key changes
SKETCHES, KEYS = 3, 20  # one of each means none
GROUP = 4  # keys per group; most share some parts
MOST_DOCUMENTS = 8  # per operation
COMPACT_SHARE, REMOVE_SHARE = 0.05, 0.3

BASED = BaseLimits(documents=100)  # so small that embedded indexes get a base

Documents = dict[str, tuple[Signature, int]]  # signature and first seen of an id


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of the index: (id, signature, first seen) of each document; for removals only the ids count."""

    kind: Literal["add", "remove", "compact"]
    documents: tuple[tuple[str, Signature, int], ...] = ()

    def apply(self, documents: Documents) -> None:
        """Apply the call to a model of the index."""
        last = {doc_id: (signature, seen) for doc_id, signature, seen in self.documents}
        for doc_id, document in last.items():
            if self.kind == "remove":
                documents.pop(doc_id, None)
            elif doc_id not in documents or documents[doc_id][0] != document[0]:
                documents[doc_id] = document


def operation(seed: int, writer: int, number: int) -> Operation:
    """Return the operation with a number; each writer has its own ids, but all share fingerprints and keys."""
    rng = np.random.default_rng([seed, writer, number])
    share = rng.random()
    if share < COMPACT_SHARE:
        return Operation("compact")
    count = int(rng.integers(1, MOST_DOCUMENTS + 1))
    numbers = rng.integers(0, IDS, count)
    all_writers = np.random.default_rng(seed)
    shared = all_writers.integers(0, 2**64, (2, FINGERPRINTS), np.uint64)
    keys = keys_in_parts(all_writers, np.arange(KEYS) // GROUP)
    shared[1, 0] = keys[0] = 0
    chosen = (numbers + rng.integers(0, OWN_FINGERPRINTS, count)) % FINGERPRINTS
    columns = shared[0, chosen], shared[1, rng.integers(0, SKETCHES, count)], keys[rng.integers(0, KEYS, count)]
    signatures = zip(*(column.tolist() for column in columns), strict=True)
    documents = tuple(
        (_doc_id(writer, one), Signature(*parts), number)
        for one, parts in zip(numbers.tolist(), signatures, strict=True)
    )
    return Operation("remove" if share < COMPACT_SHARE + REMOVE_SHARE else "add", documents)


def _doc_id(writer: int, number: int) -> str:
    doc_id = f"writer-{writer}/{number}"
    return f"{doc_id}/{'long ' * 120}{number}" if number % 7 == 0 else doc_id  # some are too long for LMDB's keys


def program(arguments: Sequence[str]) -> None:
    """Run hsimhash."""
    # Import all before a kill, because a kill during imports would not test anything.
    import hsimhash.cli.bulk_load
    import hsimhash.cli.ingest
    import hsimhash.settings
    import hsimhash.store.hbase.operations
    from hsimhash.load import IngestLimits

    limits = IngestLimits(
        run_documents=300, gathered_documents=100, decided_at_once=80, block_bytes=4 << 10, step_documents=100
    )
    BACKEND.limits = BASED
    os.write(1, READY)
    hsimhash.cli.main(arguments, prog_name="hsimhash", obj=limits)


def writer(url: str, seed: int, number: int, start: int, stop: int) -> None:
    """Carry out operations [start, stop) of a writer."""
    from hsimhash import HSimIndex, StoreBusyError

    BACKEND.limits = BASED
    with HSimIndex.open(f"{url}?lock_timeout=60s") as index:
        os.write(1, READY)
        for done in range(start, stop):
            one = operation(seed, number, done)
            doc_ids = [doc_id for doc_id, _, _ in one.documents]
            if one.kind == "compact":
                with suppress(StoreBusyError):  # the other writer has the index open
                    index.compact()
            elif one.kind == "remove":
                index.remove(doc_ids)
            else:
                index.add_many([signature for _, signature, _ in one.documents], doc_ids, first_seen=done)
            os.write(1, b"%d\n" % done)


def compact(url: str, times: str) -> None:
    """Compact an index that many times."""
    from hsimhash import HSimIndex

    BACKEND.limits = BASED
    with HSimIndex.open(f"{url}?lock_timeout=60s") as index:
        os.write(1, READY)
        for _ in range(int(times)):
            index.compact()


def main() -> None:
    kind, *arguments = sys.argv[1:]
    if kind == "program":
        program(arguments)
    elif kind == "compact":
        compact(*arguments)
    else:
        writer(arguments[0], *map(int, arguments[1:]))


if __name__ == "__main__":
    main()
