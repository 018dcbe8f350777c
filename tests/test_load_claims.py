"""`ingest --on-duplicate skip --claim`: a kill does not change the counts, and wrong options are refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.load import IngestLimits, IngestOptions, Summary, ingest
from tests.support.command_line import run
from tests.support.effort import thorough
from tests.support.two_ingests import assert_one_of_each_group_is_stored
from tests.test_load_ingest import KilledError, filled, killed_at

GIVEN = [("a", 0), ("b", 1), ("c", 2**64 - 1), ("a", 0), ("d", 2**40 - 1), ("e", 2**40 - 2), ("old", 2**20 - 1)]
BEFORE = [("old", 2**20 - 1)]


def load(index: HSimIndex, path: Path) -> Summary:
    options = IngestOptions(
        on_duplicate="skip",
        claims=True,
        job=path.parent / "job",
        reading=InputOptions(format="fingerprints"),
        workers=1,
        limits=IngestLimits(gathered_documents=3, block_bytes=30),
    )
    return ingest(index, find_inputs([str(path)], options.reading), options)


@pytest.mark.parametrize("kind", ["lmdb", "hbase-model"])
@pytest.mark.parametrize("is_before", [True, False])
def test_a_killed_ingest_that_claims_resumes_with_the_same_counts(tmp_path: Path, kind: str, is_before: bool) -> None:
    for number in range(1, 25):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / "given.tsv"
        path.write_text("".join(f"{doc_id}\t{value:016x}\n" for doc_id, value in GIVEN))
        with filled(folder, BEFORE, kind, "auto-1") as index:
            with killed_at(number, is_before=is_before), contextlib.suppress(KilledError):
                load(index, path)
            counts = load(index, path).counts
            assert (counts.documents, counts.added, counts.unchanged, counts.duplicates) == (7, 3, 2, 2)
            ids = ["a", "b", "c", "d", "e", "old"]
            there = [one is not None for one in index.get_many(ids)]
            assert there == [True, False, True, True, False, True]


def test_claim_without_skip_and_with_exclusive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"id": "a", "text": "some words"}))
    refused = run("ingest", str(path), "--store", f"lmdb://{tmp_path / 'index'}", "--claim")
    assert refused.exit_code == 2
    assert "--claim needs --on-duplicate skip" in refused.stderr


@thorough
@pytest.mark.parametrize("kills", [False, True])
def test_two_processes_on_lmdb_store_one_of_each_group(tmp_path: Path, kills: bool) -> None:
    store = f"lmdb://{tmp_path / 'index'}"
    assert run("create-table", "--store", store).exit_code == 0
    assert_one_of_each_group_is_stored(store, tmp_path, kills=kills)
