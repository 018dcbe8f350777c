"""Counting and expiring by ranges of rows, on a real HBase: in several processes, and resumed after a kill."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hsimhash import HSimIndex
from hsimhash.progress import UNWATCHED
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Put
from hsimhash.store.hbase.rows.protocol import Times
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.upkeep.range_jobs import RangeJob, RangeWork
from hsimhash.store.hbase.upkeep.registers import count_range, expire_range
from hsimhash.store.urls import with_options
from tests.support.command_line import own_process, run
from tests.support.fingerprint_sets import random_fingerprints

COUNT, OLD_MS, YOUNG_MS = 6_000, 1_000, 1_900_000_000_000
PATIENCE_S = 120.0


@pytest.fixture
def filled(stores: tuple[str, str]) -> Iterator[tuple[str, HBaseStore]]:
    """A table of 12 regions: two thirds of its documents are old, some were removed, and one register is empty."""
    url = stores[0]
    assert run("create-table", "--store", url, "--regions", "12", "--layout", "4").exit_code == 0
    with HSimIndex.open(with_options(url, {"exclusive": "yes"})) as index:
        times = [YOUNG_MS if number % 3 == 0 else OLD_MS for number in range(COUNT)]
        index.add_many(
            random_fingerprints(np.random.default_rng(2), COUNT), [f"d{n}" for n in range(COUNT)], first_seen=times
        )
        index.remove([f"d{number}" for number in range(0, 90)])
        assert isinstance(index.store, HBaseStore)
        index.store.gateway.put([Put(b"\x77" * 4 + b"\xfe" + b"\x77" * 8, DOCUMENT_FAMILY, b"empty", b"")])
        yield url, index.store


def walked(store: HBaseStore, folder: Path, work: RangeWork) -> int:
    """Return the sum of what two processes found in small ranges of rows."""
    job = RangeJob(store.url, store.gateway, store.record, folder / "walk", workers=2, range_rows=2_000)
    with job.alone("tests"):
        return sum(job.run("test", work, UNWATCHED))


def test_processes_count_and_expire_what_one_does(filled: tuple[str, HBaseStore], tmp_path: Path) -> None:
    url, store = filled
    documents = [document for page in store.walk() for document in page]
    old = sum(document.first_seen == OLD_MS for document in documents)
    assert (len(documents), old) == (COUNT - 90, (COUNT - 90) * 2 // 3)
    assert store.count() == store.count(workers=2) == walked(store, tmp_path, count_range) == len(documents)
    assert store.count(before=OLD_MS + 1) == walked(store, tmp_path, partial(count_range, before=OLD_MS + 1)) == old
    assert f'"documents": {len(documents)}' in run("describe", "--count", "--json", "--store", url).stdout
    said = run("expire", "--before", "1d", "--dry-run", "--store", url).stderr
    assert f"would remove {old:,} documents" in said
    assert walked(store, tmp_path, partial(expire_range, url=url, before=OLD_MS + 1, times=Times())) == old
    assert {document.first_seen for page in store.walk() for document in page} == {YOUNG_MS}
    assert store.count() == len(documents) - old
    assert store.expire(OLD_MS + 1) == 0


def test_a_killed_expire_continues(filled: tuple[str, HBaseStore], tmp_path: Path) -> None:
    url, store = filled
    ranges, walk = (tmp_path / "walk" / name for name in ("ranges.jsonl", "walk.json"))
    words = ("expire", "--before", "1d", "--yes", "--job", str(tmp_path), "--store", url)
    done, begun = 0, set[bytes]()
    for _ in range(2):
        process = own_process(*words)
        until = time.monotonic() + PATIENCE_S
        while process.poll() is None and time.monotonic() < until:
            if ranges.exists() and ranges.read_bytes().count(b"\n") > done:
                process.kill()
        process.communicate()
        assert process.returncode < 0
        done = ranges.read_bytes().count(b"\n")
        begun.add(walk.read_bytes())
    assert len(begun) == 1  # ages are counted back from the start of the command
    assert 1 < done < 12
    left = store.count(before=OLD_MS + 1)
    assert left > 0
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    removed = int(result.stderr.split()[-2].replace(",", ""))
    assert left <= removed <= (COUNT - 90) * 2 // 3
    assert store.count() == store.count(workers=2) == (COUNT - 90) // 3
    assert not (tmp_path / "expire.json").exists()
    assert not walk.exists()
    assert "removed 0 documents" in run(*words).stderr


def test_options_of_a_walk_are_for_hbase(tmp_path: Path) -> None:
    for words in (
        ("expire", "--before", "1d", "--job", "x"),
        ("describe", "--workers", "2"),
        ("check", "--shard", "1/2"),
    ):
        result = run(*words, "--store", f"lmdb://{tmp_path}")
        assert result.exit_code == 2
        assert "--workers, --job and --shard are only for an index on HBase" in result.stderr
