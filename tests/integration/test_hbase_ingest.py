"""Documents into and out of a real HBase: ingest, export, expire, remove, check; also through a read-only gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hsimhash.fingerprint.signature import as_signatures
from hsimhash.index import HSimIndex
from hsimhash.store import Document
from hsimhash.store.hbase.gateway.base import DRAWER_FAMILY, Deletion
from hsimhash.store.hbase.store import HBaseStore
from tests.stress import hbase_kills, kills
from tests.stress.killing import crowded
from tests.support.command_line import ids_in, lines_of, own_process, run
from tests.support.hbase_server import Gateways, HBaseServer
from tests.support.hbase_tables import PATIENCE, new_table, table_url
from tests.support.two_ingests import assert_one_of_each_group_is_stored

pytestmark = pytest.mark.usefixtures("in_empty_folder")
DOCUMENTS = 1_200


@pytest.fixture
def store(hbase: Gateways) -> Iterator[str]:
    """The URL of an empty index in a separate table."""
    with new_table(hbase) as name:
        assert run("create-table", "--store", table_url(hbase, name), "--regions", "2").exit_code == 0
        yield table_url(hbase, name)


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A file of signatures: two in five near another, two with each key, some ids twice, and one bad record."""
    values = crowded(np.random.default_rng(4), DOCUMENTS)
    ids = [f"页/{number % (DOCUMENTS - 50)}" for number in range(DOCUMENTS)]
    lines = [
        json.dumps({"id": doc_id, "fingerprint": f"{value:016x}", "first_seen": number} | sketch_and_key(number))
        for number, (doc_id, value) in enumerate(zip(ids, values.tolist(), strict=True))
    ]
    path = tmp_path / "given.jsonl"
    path.write_text("\n".join([*lines[:700], "{", *lines[700:]]) + "\n", encoding="utf-8")
    return path


def sketch_and_key(number: int) -> dict[str, str]:
    """Return the sketch and key fields of a record; every third record does not have them."""
    return {"sketch": f"{number + 1:016x}", "key": f"{number // 2 << 32 | 1:016x}"} if number % 3 else {}


def ingest(given: Path, store: str, *options: str) -> dict[str, object]:
    result = run("ingest", str(given), "--store", store, "--fingerprint-field", "fingerprint", *options)
    assert result.exit_code == 7, result.stderr
    return json.loads(result.stdout)


def documents(store: str) -> list[Document]:
    with HSimIndex.open(store) as index:
        return list(index.documents())


def counts(summary: dict[str, object]) -> dict[str, object]:
    return {name: summary[name] for name in ("documents", "added", "unchanged", "duplicates", "rejected")}


@pytest.mark.parametrize(
    ("option", "options"),
    [("", ["--on-duplicate", "skip"]), ("", ["--on-duplicate", "tag"]), ("exclusive=yes", []), ("", [])],
)
def test_an_ingest_leaves_what_it_leaves_in_an_embedded_index(
    given: Path, store: str, option: str, options: list[str]
) -> None:
    expected = ingest(given, "lmdb://embedded", "--job", "embedded-job", "--max-distance", "3", *options)
    found = ingest(given, f"{store}&{option}" if option else store, "--job", "job", *options)
    assert counts(found) == counts(expected)
    assert documents(store) == documents("lmdb://embedded")
    for name in ("tags", "rejects"):
        here, there = Path("job", f"{name}.jsonl"), Path("embedded-job", f"{name}.jsonl")
        assert here.exists() == there.exists()
        assert not here.exists() or here.read_bytes() == there.read_bytes()
    with HSimIndex.open(store) as index:
        assert index.check().is_sound


@pytest.mark.parametrize("form", ["jsonl", "jsonl.zst", "tsv.gz", "parquet"])
def test_shards_have_all_documents_and_those_missing_are_written(given: Path, store: str, form: str) -> None:
    ingest(given, store, "--job", "job")
    command = ("export", "--store", store, "--shards", "5", "--output", "parts", "--format", form, "--workers", "2")
    assert f"exported {len(documents(store)):,} documents" in run(*command).stderr
    files = sorted(Path("parts").glob("part-*"))
    assert [path.name for path in files] == [f"part-{number:05d}-of-00005.{form}" for number in range(5)]
    before = [path.read_bytes() for path in files]
    files[3].unlink()
    assert "keeping 4 files already written to parts" in run(*command).stderr
    assert [path.read_bytes() for path in files] == before
    if form == "parquet":
        columns = pq.read_table("parts/" + files[0].name).schema.names
        assert columns == ["id", "fingerprint", "first_seen", "sketch", "key"]
    reading = () if form == "tsv.gz" else ("--fingerprint-field", "fingerprint")
    assert run("ingest", *map(str, files), "--store", "lmdb://back", *reading).exit_code == 0
    same = slice(0, 2) if form == "tsv.gz" else slice(None)
    assert [one[same] for one in documents("lmdb://back")] == [one[same] for one in documents(store)]


def test_machines_that_begin_together_share_the_files_of_an_export(given: Path, store: str) -> None:
    ingest(given, store, "--job", "job")
    command = ("export", "--store", store, "--shards", "5", "--output", "parts", "--workers", "1", "--shard")
    both = [own_process(*command, f"{number}/2") for number in (1, 2)]
    said = [process.communicate()[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    found = [json.loads(line) for path in Path("parts").glob("part-*") for line in path.read_text().splitlines()]
    assert sorted(one["id"] for one in found) == sorted(one[0] for one in documents(store))
    told = [int(one.split()[-2].replace(",", "")) for one in said]
    assert sum(told) == len(found)
    assert all(told)


def test_shards_are_refused_where_they_cannot_be_written(store: str) -> None:
    Path("full").mkdir()
    Path("full", "file").write_text("")
    for options, message in (
        (("--output", "full"), "full is not empty and does not contain an export"),
        (("--output", "-"), "pass a folder with --output"),
        (("--output", "new", "--overwrite"), "--shards cannot be combined with --overwrite"),
    ):
        result = run("export", "--store", store, "--shards", "2", *options)
        assert result.exit_code != 0
        assert message in result.stderr
    assert run("export", "--store", store, "--shards", "2", "--output", "new").exit_code == 0
    result = run("export", "--store", store, "--shards", "3", "--output", "new")
    assert "contains files from another export" in result.stderr
    result = run("export", "--store", "lmdb://here", "--shards", "2", "--output", "other")
    assert "--shards is for an index on HBase" in result.stderr


def test_an_index_goes_from_lmdb_to_hbase_and_back(given: Path, store: str) -> None:
    ingest(given, "lmdb://first")
    assert run("export", "--store", "lmdb://first", "--output", "first.jsonl.zst").exit_code == 0
    reading = ("--fingerprint-field", "fingerprint", "--quiet")
    assert run("ingest", "first.jsonl.zst", "--store", f"{store}&exclusive=yes", *reading).exit_code == 0
    assert run("export", "--store", store, "--output", "second.jsonl").exit_code == 0
    assert run("ingest", "second.jsonl", "--store", "lmdb://back", *reading).exit_code == 0
    assert documents("lmdb://first") == documents(store) == documents("lmdb://back")
    signatures = as_signatures([document.signature for document in documents(store)][:300])
    queries, answers = replace(signatures, fingerprints=signatures.fingerprints ^ np.uint64(0b101)), []
    for url in ("lmdb://first", store, "lmdb://back"):
        with HSimIndex.open(url) as index:
            answers.append(index.query_many(queries, max_distance=3))
    assert answers[0] == answers[1] == answers[2]
    assert {match.found_by for matches in answers[0] for match in matches} == {"distance", "key"}


def test_check_finds_lost_rows_also_in_a_sample_and_mends_them(store: str) -> None:
    with HSimIndex.open(store) as index:
        index.add_many(np.arange(300, dtype=np.uint64) << np.uint64(52), [f"d{number}" for number in range(300)])
        assert isinstance(index.store, HBaseStore)
        gateway = index.store.gateway
        row = bytes(index.layout.prefixes(7 << 52)[3]) + (7 << 52).to_bytes(8, "big")
        cell = gateway.get([(row, b"")], DRAWER_FAMILY)[0]
        assert cell is not None
        gateway.delete([Deletion(row, DRAWER_FAMILY, b"", cell.timestamp)])
    assert run("check", "--sample", "10", "--repair", "--store", store).exit_code == 2
    sampled = run("check", "--sample", "20000", "--json", "--store", store)
    report = json.loads(sampled.stdout)
    assert (sampled.exit_code, report["documents"], report["problems"]) == (6, 300, 1)
    assert report["examples"] == ["'d7' (fingerprint 0070000000000000) is not listed, or not in all drawers"]
    assert run("check", "--store", store).exit_code == 6
    assert run("check", "--repair", "--store", store).exit_code == 0
    assert run("check", "--store", store).exit_code == 0


def test_all_that_reads_works_through_a_read_only_gateway_and_a_write_names_it(
    own_hbase: HBaseServer, tmp_path: Path
) -> None:
    with new_table(own_hbase) as name, own_hbase.gateway("thrift2", "-ro") as gateway:
        writer = table_url(own_hbase, name)
        with HSimIndex.create(writer) as index:
            index.add_many([1, 2, 0xFFFF << 40], ["a", "b", "c"], first_seen=5)
        reader = f"hbase://{own_hbase.host}:{gateway.port}/{name}?{PATIENCE}"
        asked = run("query", "0", "--store", reader)
        assert asked.exit_code == 0, asked.stderr
        assert [match["id"] for match in lines_of(asked.stdout)[0]["matches"]] == ["a", "b"]
        for command in ("describe", "status", "check", "export", "doctor"):
            result = run(command, "--store", reader)
            assert result.exit_code == 0, result.stdout + result.stderr
        found = run("doctor", "--write", "--store", reader)
        assert found.exit_code == 6
        assert "ok    read" in found.stdout
        assert "ead-only" in found.stdout
        assert run("check", "--sample", "2", "--store", reader).exit_code == 0
        with HSimIndex.open(reader) as index:
            assert (index.count(), index.get("c")) == (3, Document("c", 0xFFFF << 40, 5))
        (tmp_path / "more.tsv").write_text("d\t0000000000000004\n")
        ingests = ("ingest", "more.tsv", "--format", "fingerprints")
        for writing in (ingests, ("remove", "a", "--yes"), ("check", "--repair")):
            result = run(*writing, "--store", reader)
            assert result.exit_code == 1, result.stderr
            assert f"gateway 127.0.0.1:{gateway.port} is read-only" in result.stderr
        assert run(*ingests, "--store", writer).exit_code == 0
        assert ids_in(writer) == ["a", "b", "c", "d"]


@pytest.mark.stress
def test_a_killed_ingest_goes_on_and_ends_as_an_undisturbed_one(
    own_hbase: HBaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    tally = kills.run({"bulk": 1, "tag": 1}, tmp_path, documents=400, begin=partial(hbase_kills.begun, own_hbase))
    assert tally.is_sound, tally.faults
    assert tally.kills == 2


@pytest.mark.parametrize("kills", [False, True])
def test_two_ingests_that_claim_at_once_store_one_of_each_group(store: str, tmp_path: Path, kills: bool) -> None:
    assert_one_of_each_group_is_stored(store, tmp_path, kills=kills)
