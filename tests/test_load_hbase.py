"""Ingest into HBase, on the model: the rate, the job folder, and what is read from the table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsimhash import durations
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.layout import Layout
from hsimhash.load import IngestLimits, IngestOptions, Summary, default_job, ingest
from hsimhash.progress import UNWATCHED, Observer
from hsimhash.store import Record, store_name
from hsimhash.store.hbase.gateway.base import Cell
from hsimhash.store.hbase.store import HBaseStore
from tests.support.hbase_model import Cluster, ModelGateway
from tests.test_durations import Clock

URL = "hbase://gw1,gw2:9091/crawl:pages"
PROFILE = Profile.named("auto-1")
READING = InputOptions("fingerprints")
SLICES = IngestLimits(step_documents=10)


class Counting(ModelGateway):
    """Counts the pages of rows that are read."""

    pages = 0

    def rows(self, *args: object, **given: object) -> list[list[Cell]]:
        self.pages += 1
        return super().rows(*args, **given)  # type: ignore[arg-type]


def new_index(gateway: ModelGateway) -> HSimIndex:
    record = Record(Layout.named("4"), PROFILE.to_json())
    return HSimIndex(HBaseStore.create(URL, gateway, record), PROFILE)


@pytest.fixture
def gateway() -> Counting:
    return Counting(Cluster())


@pytest.fixture
def index(gateway: Counting) -> Iterator[HSimIndex]:
    with new_index(gateway) as made:
        yield made


def load(index: HSimIndex, folder: Path, count: int, observer: Observer = UNWATCHED, **options: object) -> Summary:
    path = folder / "in.tsv"
    if not path.exists():
        path.write_text("".join(f"d{number}\t{number:016x}\n" for number in range(count)))
    found = find_inputs([str(path)], READING)
    return ingest(index, found, IngestOptions(reading=READING, job=folder / "job", **options), observer)  # type: ignore[arg-type]


def test_documents_are_written_at_the_rate(index: HSimIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(durations, "time", clock)
    assert load(index, tmp_path, 100, rate=20, limits=SLICES).counts.added == 100
    assert clock.now == pytest.approx(5)


def test_a_merge_that_goes_on_does_not_wait_for_what_was_written_before(
    index: HSimIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(durations, "time", clock)
    assert not load(index, tmp_path, 100, Observer(stop=lambda: clock.now > 2.9), rate=20, limits=SLICES).is_complete
    assert 0 < index.count() < 100
    before_s = clock.now
    assert load(index, tmp_path, 100, rate=20, limits=SLICES).counts.added == 100
    assert clock.now - before_s < 3


def test_a_job_reads_no_documents_to_tell_whether_the_table_is_new(
    index: HSimIndex, gateway: Counting, tmp_path: Path
) -> None:
    load(index, tmp_path, 3_000)
    assert load(index, tmp_path, 3_000).is_repeated
    assert gateway.pages == 0


@pytest.mark.parametrize("is_old", [False, True])
def test_a_merge_goes_on_only_in_the_table_that_it_was_begun_in(is_old: bool, tmp_path: Path) -> None:
    first, second = (new_index(ModelGateway(Cluster())) for _ in range(2))
    told: list[str] = []
    observer = Observer(lambda: told.count("merge") > 3, lambda one: told.append(one.stage))
    assert not load(first, tmp_path, 100, observer, limits=SLICES).is_complete
    assert 0 < first.count() < 100
    if is_old:  # as written by a release without tokens
        path = tmp_path / "job" / "runs" / "merged.json"
        path.write_text(
            json.dumps({name: value for name, value in json.loads(path.read_text()).items() if name != "token"})
        )
    assert load(second, tmp_path, 100, limits=SLICES).counts.added == 100
    assert second.count() == 100


def test_a_job_folder_is_that_of_a_table_however_it_is_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.tsv").write_text("")
    inputs = find_inputs(["in.tsv"], READING)
    folder = default_job(URL, inputs)
    assert folder.parent == Path(".hsimhash", "jobs")
    assert default_job("hbase://gw1:9091,gw2:9091/crawl:pages?timeout=9s&connections=3", inputs) == folder
    assert default_job("hbase://gw1,gw2:9091/crawl:others", inputs) != folder
    (tmp_path / "other.tsv").write_text("")
    assert default_job(URL, find_inputs(["other.tsv"], READING)) != folder


def test_the_job_folder_of_an_embedded_index_is_within_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_job("lmdb://pages", []).parent == Path("pages", "jobs")
    assert default_job("lmdb://~/pages", []) == default_job(f"lmdb://{tmp_path}/pages", [])


def test_a_store_has_one_name_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert store_name("lmdb://pages") == store_name(f"lmdb://{tmp_path}/pages") == f"lmdb://{tmp_path}/pages"
    assert store_name("hbase+http://gw/t?path=/a&timeout=1s") == "hbase+http://gw:9091/default:t?path=/a"
    assert store_name("memory://a") == "memory://a"
