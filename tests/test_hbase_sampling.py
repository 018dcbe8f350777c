"""`check` of a sample of a table, and of the whole table, on the model of HBase."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hsimhash.errors import HsimhashError, StoreBusyError
from hsimhash.fingerprint.signature import Signatures
from hsimhash.layout import Layout
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store.base import Record
from hsimhash.store.capabilities import Shard
from hsimhash.store.hbase.gateway.base import DOCUMENT_FAMILY, Deletion, Gateway
from hsimhash.store.hbase.rows import survey
from hsimhash.store.hbase.rows.cells import listing_key
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.upkeep.audit import Audit
from hsimhash.store.hbase.upkeep.full_check import FullCheck, survey_to_files, surveyed_in
from hsimhash.store.hbase.upkeep.range_jobs import RangeJob, RangeTask
from tests.support.effort import thorough
from tests.support.hbase_model import DAY_MS, Cluster, ModelGateway

DOCUMENTS = 2_000
LOST = 20
RECORD = Record(Layout.named("4"), {"name": "x", "sketch": {}, "key": {}})


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def store(cluster: Cluster) -> HBaseStore:
    """Evenly spread documents; a few of them are not listed, and others have been given another key."""
    made = HBaseStore.create("hbase://model/pages", ModelGateway(cluster), RECORD)
    values, sketches, keys = np.random.default_rng(2).integers(0, 2**64, (3, DOCUMENTS), np.uint64)
    signatures = Signatures(values, sketches, keys, np.zeros(DOCUMENTS, np.uint8))
    ids = [f"d{number}".encode() for number in range(DOCUMENTS)]
    made.insert(ids, signatures, np.zeros(DOCUMENTS, np.int64))
    made.insert(ids[1::50], replace(signatures, keys=~keys)[1::50], np.zeros(DOCUMENTS // 50, np.int64))
    for number in range(0, DOCUMENTS, DOCUMENTS // LOST):
        row, doc_id = listing_key(int(values[number]), f"d{number}".encode())
        cluster.delete(Deletion(row, DOCUMENT_FAMILY, doc_id, cluster.now + DAY_MS))
    return made


def test_a_sample_has_about_the_documents_asked_for_and_others_each_time(store: HBaseStore) -> None:
    found = [store.check_sample(500, seed) for seed in range(12)]
    assert all(430 < one.documents < 570 for one in found)
    assert all(430 < one.drawer_rows < 570 for one in found)
    assert {example for one in found for example in one.examples} > set(found[0].examples)
    assert 3 * LOST * 0.5 < sum(one.problems for one in found) < 5 * LOST * 1.4  # 12 samples of a quarter of the table


def test_rows_after_a_hot_bucket_count_in_a_survey(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "MOST_WINDOW_ROWS", 100)
    monkeypatch.setattr(survey, "HOT_BUCKET_ROWS", 50)
    store = HBaseStore.create("hbase://model/hot", ModelGateway(cluster), RECORD)
    count = 20_000
    values, keys = np.random.default_rng(2).integers(0, 2**64, (2, count), np.uint64)
    signatures = Signatures(values, values, keys[:100].repeat(count // 100), np.zeros(count, np.uint8))
    store.insert([f"d{number}".encode() for number in range(count)], signatures, np.zeros(count, np.int64))
    found = store.survey()
    facts = found.to_json(len(RECORD.layout.drawers))
    assert facts["fingerprints"] == pytest.approx(count, rel=0.15)
    assert found.hot_buckets
    assert not facts["is_exact"]


def test_the_same_seed_draws_the_same_sample(store: HBaseStore) -> None:
    assert store.check_sample(300, 7) == store.check_sample(300, 7)


def test_a_sample_larger_than_the_table_is_the_table_but_for_keys_that_were_changed(store: HBaseStore) -> None:
    sample, whole = store.check_sample(10 * DOCUMENTS, 1), store.check()
    assert (sample.documents, sample.drawer_rows) == (whole.documents, whole.drawer_rows)
    # A sample does not include the registers of other documents, so rows without a listing count as leftovers.
    unlisted = LOST * (len(RECORD.layout.drawers) + 1)
    assert (sample.problems, sample.leftovers) == (whole.problems, whole.leftovers - DOCUMENTS // 50 + unlisted)


def test_a_sample_may_have_one_document(store: HBaseStore) -> None:
    assert store.check_sample(1, 1).drawer_rows == 1


def test_an_empty_table_has_an_empty_sample(cluster: Cluster) -> None:
    empty = HBaseStore.create("hbase://model/no", ModelGateway(cluster), Record(Layout.named("4"), {"name": "x"}))
    assert empty.check_sample(100, 1).documents == 0


@pytest.mark.parametrize("sample", [None, 1_500])
def test_progress_only_goes_forward(store: HBaseStore, sample: int | None) -> None:
    check = store.check if sample is None else partial(store.check_sample, sample, 1)
    told: list[tuple[int, int]] = []
    check(observer=Observer(progress=lambda one: told.append((one.done, one.total))))
    assert told == sorted(told)
    assert told
    assert all(0 <= done <= total for done, total in told)


@thorough
@pytest.mark.parametrize("part_bytes", [1 << 10, 1 << 26])
def test_check_finds_the_same_whatever_it_compares_at_once(store: HBaseStore, tmp_path: Path, part_bytes: int) -> None:
    store.remove([f"d{number}".encode() for number in range(0, DOCUMENTS, 9)])
    whole = store.check()
    assert whole.leftovers > DOCUMENTS // 50
    job = RangeJob(store.url, store.gateway, store.record, tmp_path / "walk", range_rows=300)
    ranges = surveyed_in(job.folder, job.run("check", survey_to_files, UNWATCHED))
    full_check = FullCheck(store.gateway, store.record, job.seed, ranges, part_bytes)
    found = Audit(store.gateway, store.record, store.times, pages=full_check.suspects).run()
    assert len(ranges) > 5
    assert (full_check.documents, full_check.drawer_rows) == (whole.documents, whole.drawer_rows)
    assert (found.problems, found.leftovers) == (whole.problems, whole.leftovers)


def test_a_check_that_was_interrupted_reads_the_rest_alone(store: HBaseStore, tmp_path: Path) -> None:
    job = RangeJob(store.url, store.gateway, store.record, tmp_path / "walk", range_rows=300)
    read, is_again = list[int](), False

    def survey(gateway: Gateway, task: RangeTask) -> object:
        if len(read) == 3 and not is_again:
            raise KeyboardInterrupt
        read.append(task.number)
        return survey_to_files(gateway, task)

    with pytest.raises(KeyboardInterrupt):
        job.run("check", survey, UNWATCHED)
    seed, is_again = job.seed, True
    found = job.run("check", survey, UNWATCHED)
    assert read == list(range(len(found)))
    assert job.seed == seed
    whole = store.check(folder=tmp_path)
    assert read == list(range(len(found)))
    assert replace(whole, examples=[]) == replace(store.check(), examples=[])
    assert not job.folder.exists()


def test_shards_read_what_one_check_reads_and_it_finds_the_same(store: HBaseStore, tmp_path: Path) -> None:
    store.remove([f"d{number}".encode() for number in range(0, DOCUMENTS, 9)])
    whole = store.check()
    job = RangeJob(store.url, store.gateway, store.record, tmp_path / "walk", range_rows=300)
    read = list[int]()

    def survey(gateway: Gateway, task: RangeTask) -> object:
        read.append(task.number)
        return survey_to_files(gateway, task)

    told = [job.run_shard(Shard(number, 3), "check", survey, UNWATCHED) for number in (3, 1)]
    ranges = told[0][1]
    assert [one for one, _ in told] == [ranges // 3, ranges // 3 + -(-ranges // 3)]
    with pytest.raises(HsimhashError, match="has 3 shards, not 4"):
        job.run_shard(Shard(2, 4), "check", survey, UNWATCHED)
    assert job.run_shard(Shard(2, 3), "check", survey, UNWATCHED) == (ranges, ranges)
    assert sorted(read) == list(range(ranges))
    found = store.check(folder=tmp_path)
    assert sorted(read) == list(range(ranges))
    assert found.problems > 0
    assert replace(found, examples=[]) == replace(whole, examples=[])
    assert not job.folder.exists()
    assert not any(tmp_path.glob("shard-*"))


def test_a_shard_is_read_by_one_process_and_never_beside_the_whole_job(store: HBaseStore, tmp_path: Path) -> None:
    job = RangeJob(store.url, store.gateway, store.record, tmp_path / "walk", range_rows=300)
    errors = dict[str, str]()

    def refused(name: str, call: Callable[[], object]) -> None:
        with pytest.raises(StoreBusyError) as caught:
            call()
        errors[name] = str(caught.value)

    def survey(gateway: Gateway, task: RangeTask) -> object:
        if not errors:
            with ThreadPoolExecutor(1) as another:  # locks belong to a thread
                run_again = partial(job.run_shard, Shard(1, 2), "check", survey_to_files, UNWATCHED)
                another.submit(refused, "same", run_again).result()
                another.submit(refused, "whole", partial(store.check, folder=tmp_path)).result()
                repair = partial(job.run_shard, Shard(2, 2), "check --repair", survey_to_files, UNWATCHED)
                another.submit(refused, "other purpose", repair).result()
        return survey_to_files(gateway, task)

    job.run_shard(Shard(1, 2), "check", survey, UNWATCHED)
    assert "is reading shard 1/2" in errors["same"]
    assert "is reading a shard" in errors["whole"]
    assert "is reading a shard of another job" in errors["other purpose"]
    assert store.check(folder=tmp_path).problems == store.check().problems


def test_a_machine_whose_clock_is_behind_goes_on_with_what_others_read(store: HBaseStore, tmp_path: Path) -> None:
    job = RangeJob(store.url, store.gateway, store.record, tmp_path / "walk", range_rows=300)
    first, ranges = job.run_shard(Shard(1, 2), "check", survey_to_files, UNWATCHED)
    file = tmp_path / "walk" / "walk.json"
    walk = json.loads(file.read_text())
    file.write_text(json.dumps({**walk, "began_s": walk["began_s"] + 60}))
    assert first < ranges
    assert job.run_shard(Shard(2, 2), "check", survey_to_files, UNWATCHED) == (ranges, ranges)


def test_a_job_that_was_killed_while_it_deletes_its_findings_begins_anew(
    store: HBaseStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path, **_: object) -> None:
        next(folder.glob("*.listed")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            store.check(folder=tmp_path)
    assert store.check(folder=tmp_path).problems == store.check().problems


def test_a_walk_for_something_else_begins_anew(store: HBaseStore, tmp_path: Path) -> None:
    job = RangeJob(store.url, store.gateway, store.record, tmp_path, range_rows=300)
    job.run("check", survey_to_files, UNWATCHED)
    seeds = {job.seed}
    job.run("check --repair", survey_to_files, UNWATCHED)
    seeds.add(job.seed)
    other = replace(job, record=replace(store.record, identity=b"another index"))
    other.run("check --repair", survey_to_files, UNWATCHED)
    seeds.add(job.seed)
    replace(other, url="hbase://another-gateway/pages").run("check --repair", survey_to_files, UNWATCHED)
    seeds.add(job.seed)
    file = tmp_path / "walk.json"
    file.write_text(re.sub(r'"began_s": \d+', '"began_s": 1', file.read_text()))
    other.run("check --repair", survey_to_files, UNWATCHED)
    seeds.add(job.seed)
    assert len(seeds) == 4
