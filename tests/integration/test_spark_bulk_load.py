"""Bulk loads from Spark into a real HBase: the same table as after an ingest, whatever happens meanwhile."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from hsimhash import HSimIndex
from hsimhash.errors import HsimhashError, IndexNotFoundError, ProfileMismatchError
from hsimhash.rowkey import ORPHANS_FLAG
from hsimhash.spark import BulkLoadTotals, bulk_load
from hsimhash.store import StageOptions
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.rows.cells import row_flag
from hsimhash.store.hbase.rows.protocol import end_load, loads_begun
from tests.stress import hbase_bulk_load
from tests.stress.hbase_bulk_load import table_cells, write_documents
from tests.support.bulk_loads import FIRST_SEEN, MOVING, add_before_moving, check_moved, gateway_of
from tests.support.command_line import own_process, run
from tests.support.effort import tries
from tests.support.hbase_server import HBaseServer
from tests.support.hbase_tables import new_table, table_url
from tests.support.programs import faults
from tests.support.spark_session import QUICK, local_spark, need_java

pytestmark = [pytest.mark.together, pytest.mark.usefixtures("in_empty_folder")]
SMALL = 400_000  # so that each region gets several parts
KNOWN = 500  # documents in a table before a load
PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    need_java()
    with local_spark(**QUICK) as session:
        yield session


@pytest.fixture
def store(own_hbase: HBaseServer) -> Iterator[str]:
    """The URL of an empty index in a table of two regions."""
    with new_table(own_hbase) as name:
        assert run("create-table", "--store", table_url(own_hbase, name), "--regions", "2").exit_code == 0
        yield table_url(own_hbase, name)


def options(server: HBaseServer, told: list[str] | None = None) -> StageOptions:
    tell = None if told is None else told.extend
    return StageOptions("stage", shlex.split(server.program()), tell_commands=tell, part_bytes=SMALL)


def frame(spark: SparkSession, *documents: tuple[str, int]) -> DataFrame:
    """Documents as ids and fingerprints, in the given order."""
    rows = [(doc_id, f"{value:016x}", FIRST_SEEN, place) for place, (doc_id, value) in enumerate(documents)]
    return spark.createDataFrame(rows, "id string, fingerprint string, first_seen bigint, place int")


def loaded(documents: DataFrame, store: str, how: StageOptions) -> BulkLoadTotals | None:
    return bulk_load(documents, store, how, position="place")


@pytest.mark.parametrize("layout", hbase_bulk_load.LAYOUTS[: tries(3, 1)])
def test_the_table_is_as_after_an_ingest(
    own_hbase: HBaseServer, spark: SparkSession, tmp_path: Path, layout: str
) -> None:
    loads = {"Spark": hbase_bulk_load.by_spark(own_hbase, spark, SMALL)}
    outcomes = hbase_bulk_load.check_layout(own_hbase, layout, tmp_path, documents=3_000, queries=200, loads=loads)
    assert faults(list(outcomes)) == []


def test_what_the_table_has_stays_or_moves(own_hbase: HBaseServer, spark: SparkSession, store: str) -> None:
    add_before_moving(store)
    given = frame(spark, *MOVING)
    assert loaded(given, store, options(own_hbase)) == BulkLoadTotals(5, added=3, unchanged=2)
    check_moved(store)
    assert [path.name for path in Path("stage").iterdir()] == ["manifest.json"]
    assert loaded(given.where("id <> 'moved'"), store, options(own_hbase)) == BulkLoadTotals(4, added=0, unchanged=4)


def test_what_others_write_after_the_beginning_wins(own_hbase: HBaseServer, spark: SparkSession, store: str) -> None:
    given, told = frame(spark, ("a", 1), ("b", 2), ("c", 3)), list[str]()
    assert loaded(given, store, options(own_hbase, told)) is None
    assert [line.removesuffix(" &&").split()[-2].rpartition("/")[2] for line in told] == ["rows", "registers"]
    with HSimIndex.open(store) as index:
        index.add_many([77, 78], ["a", "b"])
        index.remove(["b"])
        assert index.query(3) == []
    assert loaded(given, store, options(own_hbase)) == BulkLoadTotals(3, added=3, unchanged=0)
    with HSimIndex.open(store) as index:
        assert [(one.doc_id, one.fingerprint) for one in index.documents()] == [("c", 3), ("a", 77)]
        assert index.check().is_sound


def test_operators_run_the_printed_commands(own_hbase: HBaseServer, spark: SparkSession, store: str) -> None:
    given, told = frame(spark, *((str(number), number << 32) for number in range(500))), list[str]()
    assert loaded(given, store, options(own_hbase, told)) is None
    for line in told:
        own_hbase.java(*line.removesuffix(" &&").partition(" java ")[2].split())
    assert loaded(given, store, options(own_hbase, [])) == BulkLoadTotals(500, added=500, unchanged=0)
    with HSimIndex.open(store) as index:
        assert index.count() == 500
        assert index.check().is_sound


def test_regions_that_split_after_the_files_were_written(
    own_hbase: HBaseServer, spark: SparkSession, store: str
) -> None:
    documents = write_documents(Path("given.jsonl"), 2_000, seed=5)
    given = frame(spark, *((doc_id, one.fingerprint) for doc_id, one in documents.items()))
    assert loaded(given, store, options(own_hbase, [])) is None
    # Split inside the first region's files, at a row that does not begin a bucket.
    assert own_hbase.shell(f"split '{Address.parse(store).table}', \"\\x40\\x00\\x00\\x00\\x03\"\n") == 0
    with HSimIndex.open(store) as index:
        assert len(index.store.regions()) == 3
    assert loaded(given, store, options(own_hbase)) is not None
    with HSimIndex.open(store) as index:
        found = {one.doc_id: one.fingerprint for one in index.documents()}
        assert found == {doc_id: one.fingerprint for doc_id, one in documents.items()}
        assert index.check().is_sound


def test_a_table_whose_regions_end_within_a_bucket(own_hbase: HBaseServer, spark: SparkSession, store: str) -> None:
    name, documents = Address.parse(store).table, {str(number): 5 << 48 | number for number in range(2_000)}
    assert own_hbase.shell(f"split '{name}', \"\\x00\\x05\\x00\\x00\\x01\\x00\\x05\\x00\\x00\\x00\\x00\\x03\"\n") == 0
    assert loaded(frame(spark, *documents.items()), store, options(own_hbase)) is not None
    with HSimIndex.open(store) as index:
        assert {one.doc_id: one.fingerprint for one in index.documents()} == documents
        assert index.check().is_sound


def test_a_load_that_collection_no_longer_waits_for_is_staged_again(
    own_hbase: HBaseServer, spark: SparkSession, store: str
) -> None:
    given = frame(spark, ("a", 1))
    for _ in range(2):  # printed again as long as the files exist
        told = list[str]()
        assert loaded(given, store, options(own_hbase, told)) is None
        assert len(told) == 2
    with HSimIndex.open(store) as index:
        for token in loads_begun(gateway_of(index)):
            end_load(gateway_of(index), token)
    with pytest.raises(HsimhashError, match="too old: collection stopped waiting for it"):
        loaded(given, store, options(own_hbase))
    assert json.loads(Path("stage", "manifest.json").read_text())["state"]["is_repeated"]
    assert loaded(given, store, options(own_hbase)) == BulkLoadTotals(1, added=1, unchanged=0)


def test_what_cannot_work_is_refused_before_anything_is_done(
    own_hbase: HBaseServer, spark: SparkSession, store: str
) -> None:
    given, how = frame(spark, ("a", 1)), options(own_hbase)
    with pytest.raises(ValueError, match="is not on HBase"):
        bulk_load(given, "lmdb://here", how)
    with pytest.raises(IndexNotFoundError, match="no such table"):
        bulk_load(given, f"{store.partition('?')[0]}-none", how)
    with pytest.raises(ProfileMismatchError):
        bulk_load(given, store, how, profile="zh-1")
    with pytest.raises(ValueError, match="no column 'when'"):
        bulk_load(given, store, how, position="when")
    with pytest.raises(HsimhashError, match="cannot use"):
        bulk_load(given, store, StageOptions("/proc/stage"))
    with pytest.raises(HsimhashError, match="cannot be a stage"):
        bulk_load(given, store, StageOptions("memory://x"))
    Path("others").mkdir()
    Path("others", "file").write_text("")
    with pytest.raises(HsimhashError, match="files that hsimhash did not write"):
        bulk_load(given, store, StageOptions("others"))
    assert not Path("stage").exists()
    loaded(given, store, options(own_hbase, []))
    with pytest.raises(HsimhashError, match="belongs to another load, for hbase://"):
        loaded(frame(spark, ("a", 2)), store, how)
    with new_table(own_hbase) as name:
        other = table_url(own_hbase, name)
        HSimIndex.create(other, layout="4").close()
        with pytest.raises(HsimhashError, match="belongs to another load, for hbase://"):
            loaded(given, other, how)
    with HSimIndex.open(store) as index:
        assert len(loads_begun(gateway_of(index))) == 1


def test_an_id_that_no_index_takes_fails_the_load(own_hbase: HBaseServer, spark: SparkSession, store: str) -> None:
    with pytest.raises(Exception, match="must not contain control characters"):
        loaded(frame(spark, ("a\nb", 1)), store, options(own_hbase))
    assert loaded(frame(spark).limit(0), store, StageOptions("else")) == BulkLoadTotals(0, added=0, unchanged=0)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--store", "lmdb://here"), 2, "is not on HBase"),
        (("--hbase-command", "no-such-program"), 1, "no such program: 'no-such-program'"),
        (("--stage", "/proc/stage"), 2, "cannot use"),
        (("--stage", "nowhere://stage"), 2, "cannot be reached"),
        (("--layout", "4"), 5, "layout"),
        (("--profile", "zh-1"), 5, "profile"),
    ],
    ids=str,
)
def test_the_command_refuses_what_cannot_work(
    own_hbase: HBaseServer, store: str, options: tuple[str, str], code: int, message: str
) -> None:
    usual = {"--store": store, "--stage": "stage", "--hbase-command": own_hbase.program()}
    words = [word for pair in (usual | {options[0]: options[1]}).items() for word in pair]
    result = run("spark", "bulk-load", "given.parquet", *words)
    assert result.exit_code == code, result.stderr
    assert message in result.stderr
    with HSimIndex.open(store) as index:
        assert loads_begun(gateway_of(index)) == {}


def settled_cells(store: str) -> list[tuple[bytes, ...]]:
    """Return all cells except those of the log of orphans, whose rows depend on the hour."""
    return [cell for cell in table_cells(store) if row_flag(cell[1]) != ORPHANS_FLAG]


def command(store: str, path: Path, program: str) -> Sequence[str]:
    reading = ("--fingerprint-field", "fingerprint", "--master", "local[2]")
    return ("spark", "bulk-load", str(path), "--store", store, "--stage", "stage", "--hbase-command", program, *reading)


def has_manifest(stage: str, *, begun: bool = False) -> Callable[[], bool]:
    """Return a function that checks whether a load has reached a step or, with `begun`, has begun to carry it out."""

    def is_there() -> bool:
        path = Path("stage", "manifest.json")
        state = json.loads(path.read_text()).get("state") if path.exists() else None
        return state is not None and state["stage"] == stage and state["is_begun"] >= begun

    return is_there


def has_file(pattern: str) -> Callable[[], bool]:
    return lambda: any(Path("stage").glob(pattern))


MOMENTS = {
    "compared": has_manifest("resolve"),
    "documents written": has_file("*/documents/_SUCCESS"),
    "files written": has_file("*/rows/f/region-*"),
    "staged": has_manifest("rows"),
    "rows loaded": has_manifest("rows", begun=True),
    "registers loaded": has_manifest("registers", begun=True),
}


@pytest.mark.timeout(1_800)
def test_a_killed_load_is_resumed_to_the_same_table(own_hbase: HBaseServer, store: str) -> None:
    path, program = Path("given.jsonl"), own_hbase.program()
    documents = write_documents(path, 2_000, seed=7)
    with path.open("a") as file:
        file.write("{broken\n")
    with new_table(own_hbase) as name:
        other = table_url(own_hbase, name)
        assert run("create-table", "--store", other, "--regions", "2").exit_code == 0
        for url in (store, other):
            with HSimIndex.open(url) as index:
                known = list(documents)[:KNOWN]
                values = [documents[one].fingerprint ^ (number % 3) for number, one in enumerate(known)]
                index.add_many(values, known, first_seen=7)
        done = own_process(*command(other, path, program))
        printed, said = done.communicate(timeout=PATIENCE_S)
        assert done.returncode == 7, said.decode()
        assert json.loads(printed)["rejected"] == 1
        expected = settled_cells(other)
    for moment in list(MOMENTS)[:: tries(1, 5)]:
        process = own_process(*command(store, path, program))
        deadline = time.monotonic() + PATIENCE_S
        while not MOMENTS[moment]():
            assert process.poll() is None, f"{moment}: {process.communicate()[1].decode()}"
            assert time.monotonic() < deadline, moment
            time.sleep(0.01)
        process.kill()
        process.communicate()
        with HSimIndex.open(store) as index:
            assert index.check().is_sound, moment
    process = own_process(*command(store, path, program))
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 7, said.decode()
    assert settled_cells(store) == expected
    with HSimIndex.open(store) as index:
        assert {one.doc_id: one.fingerprint for one in index.documents()} == {
            doc_id: one.fingerprint for doc_id, one in documents.items()
        }
        assert loads_begun(gateway_of(index)) == {}
