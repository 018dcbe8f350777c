"""`bulk-load` into a real HBase: the same table as an ingest through the gateway, whatever happens meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from hsimhash import HSimIndex
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.rows.protocol import begin_load, end_load, loads_begun
from tests.stress import hbase_bulk_load, hbase_kills, kills
from tests.stress.hbase_bulk_load import write_documents
from tests.support.bulk_loads import FIRST_SEEN, MOVING, add_before_moving, check_moved, gateway_of
from tests.support.command_line import run
from tests.support.effort import tries
from tests.support.hbase_server import HBaseServer
from tests.support.hbase_tables import new_table, table_url
from tests.support.programs import faults
from tests.test_dedup_fit import pages, written
from tests.test_ingest_fit import contents

pytestmark = pytest.mark.usefixtures("in_empty_folder")


@pytest.fixture
def store(own_hbase: HBaseServer) -> Iterator[str]:
    """The URL of an empty index in a table of two regions."""
    with new_table(own_hbase) as name:
        assert run("create-table", "--store", table_url(own_hbase, name), "--regions", "2").exit_code == 0
        yield table_url(own_hbase, name)


def bulk_load(server: HBaseServer, store: str, *given: object, code: int = 0) -> str:
    """Run the command; return its output or, if it fails, its messages."""
    options = ("--store", store, "--fingerprint-field", "fingerprint", "--stage", "stage", "--workers", "2")
    result = run("bulk-load", *map(str, given), *options, "--hbase-command", server.program())
    assert result.exit_code == code, result.stderr
    return result.stdout if code == 0 else result.stderr


def lines(path: Path, *documents: tuple[str, int]) -> Path:
    records = [
        json.dumps({"id": doc_id, "fingerprint": f"{value:016x}", "first_seen": FIRST_SEEN})
        for doc_id, value in documents
    ]
    path.write_text("".join(f"{record}\n" for record in records), encoding="utf-8")
    return path


def name_in(store: str) -> str:
    """Return the name of the table in a URL."""
    return Address.parse(store).table


@pytest.mark.parametrize("layout", hbase_bulk_load.LAYOUTS[:: tries(1, 2)])
def test_the_table_is_as_after_an_ingest(own_hbase: HBaseServer, tmp_path: Path, layout: str) -> None:
    outcomes = hbase_bulk_load.check_layout(own_hbase, layout, tmp_path, documents=3_000, queries=200)
    assert faults(list(outcomes)) == []


def test_what_the_table_has_stays_or_moves(own_hbase: HBaseServer, store: str) -> None:
    add_before_moving(store)
    given = lines(Path("given.jsonl"), *MOVING)
    summary = json.loads(bulk_load(own_hbase, store, given))
    assert [summary[name] for name in ("documents", "added", "unchanged")] == [5, 3, 2]
    check_moved(store)
    options = ("--store", store, "--stage", "stage", "--fingerprint-field", "fingerprint")
    again = run("bulk-load", str(given), *options, "--hbase-command", own_hbase.program())
    assert "nothing to do" in again.stderr


def test_texts_are_signed_with_the_table_that_the_index_was_created_with(own_hbase: HBaseServer) -> None:
    source = written(Path("pages.jsonl"), pages(150, 20))
    assert run("fit", source, "--output", "own.rarity").exit_code == 0
    assert run("ingest", source, "--store", "lmdb://known", "--profile", "auto-3:rarity=own.rarity").exit_code == 0
    with new_table(own_hbase) as name:
        url = table_url(own_hbase, name)
        made = run("create-table", "--store", url, "--regions", "2", "--profile", "auto-3:rarity=own.rarity")
        assert made.exit_code == 0, made.stderr
        Path("own.rarity").unlink()
        options = ("--stage", "stage", "--hbase-command", own_hbase.program())
        result = run("bulk-load", source, "--store", url, *options)
        assert result.exit_code == 0, result.stderr
        assert contents(url) == contents("lmdb://known")


def test_what_others_write_after_the_beginning_wins(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), ("a", 1), ("b", 2), ("c", 3))
    commands = bulk_load(own_hbase, store, given, "--print-commands").splitlines()
    assert len(commands) == 2
    assert commands[0].endswith(f" file://{Path.cwd()}/stage/rows default:{name_in(store)} &&")
    with HSimIndex.open(store) as index:
        index.add_many([77, 78], ["a", "b"])
        index.remove(["b"])
        assert index.query(3) == []
    bulk_load(own_hbase, store, given)
    with HSimIndex.open(store) as index:
        assert [(one.doc_id, one.fingerprint) for one in index.documents()] == [("c", 3), ("a", 77)]
        assert index.check().is_sound


def test_regions_that_split_after_the_files_were_written(own_hbase: HBaseServer, store: str) -> None:
    documents = write_documents(Path("given.jsonl"), 2_000, seed=5)
    bulk_load(own_hbase, store, "given.jsonl", "--print-commands")
    name = name_in(store)
    # Split inside the first region's files, at a row that does not begin a bucket.
    assert own_hbase.shell(f"split '{name}', \"\\x40\\x00\\x00\\x00\\x03\"\n") == 0
    with HSimIndex.open(store) as index:
        assert len(index.store.regions()) == 3
    bulk_load(own_hbase, store, "given.jsonl")
    with HSimIndex.open(store) as index:
        found = {one.doc_id: one.fingerprint for one in index.documents()}
        assert found == {doc_id: signature.fingerprint for doc_id, signature in documents.items()}
        assert index.check().is_sound


def test_operators_run_the_printed_commands(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), *((str(number), number << 32) for number in range(500)))
    for _ in range(2):  # printed again as long as the files exist
        commands = bulk_load(own_hbase, store, given, "--print-commands").splitlines()
        places = [command.removesuffix(" &&").split()[-2] for command in commands]
        assert [place.rpartition("/")[2] for place in places] == ["rows", "registers"]
    for command in commands:
        own_hbase.java(*command.removesuffix(" &&").partition(" java ")[2].split())
    assert json.loads(bulk_load(own_hbase, store, given, "--print-commands"))["added"] == 500
    with HSimIndex.open(store) as index:
        assert index.count() == 500
        assert index.check().is_sound


def test_moved_documents_are_not_taken_for_loaded(own_hbase: HBaseServer, store: str) -> None:
    with HSimIndex.open(store) as index:
        index.add_many([1, 2, 3], ["a", "b", "c"])
    given = lines(Path("given.jsonl"), ("a", 11), ("b", 12), ("c", 13))
    for _ in range(3):  # the printed commands are not run
        assert len(bulk_load(own_hbase, store, given, "--print-commands").splitlines()) == 2
    assert json.loads(bulk_load(own_hbase, store, given))["added"] == 3
    with HSimIndex.open(store) as index:
        assert sorted(one.fingerprint for one in index.documents()) == [11, 12, 13]
        assert index.check().is_sound


def test_fresh_gives_up_the_load_before(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), ("a", 1), ("b", 2))
    bulk_load(own_hbase, store, given, "--print-commands", "--job", "job")
    assert json.loads(bulk_load(own_hbase, store, given, "--fresh", "--job", "job"))["added"] == 2
    with HSimIndex.open(store) as index:
        assert loads_begun(gateway_of(index)) == {}
    nothing = lines(Path("nothing.jsonl"))
    assert json.loads(bulk_load(own_hbase, store, nothing))["added"] == 0


def test_a_stage_of_another_load_is_refused(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), ("a", 1))
    bulk_load(own_hbase, store, given, "--print-commands")
    other = lines(Path("other.jsonl"), ("b", 1))
    said = bulk_load(own_hbase, store, other, code=1)
    assert "belongs to another load, for hbase://" in said
    Path("stage", "manifest.json").unlink()
    assert "has files that hsimhash did not write" in bulk_load(own_hbase, store, other, code=2)


def test_files_that_changed_are_staged_again(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), ("a", 1), ("b", 2))
    bulk_load(own_hbase, store, given, "--print-commands")
    path = next(Path("stage").rglob("region-*"))
    path.write_bytes(path.read_bytes()[:-1])
    with HSimIndex.open(store) as index:
        (token,) = loads_begun(gateway_of(index))
    assert "bytes instead of" in bulk_load(own_hbase, store, given, code=1)
    assert json.loads(bulk_load(own_hbase, store, given))["added"] == 2
    with HSimIndex.open(store) as index:
        assert index.count() == 2
        assert token not in loads_begun(gateway_of(index))


def test_a_load_that_collection_no_longer_waits_for_is_staged_again(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), ("a", 1))
    bulk_load(own_hbase, store, given, "--print-commands")
    with HSimIndex.open(store) as index:
        for token in loads_begun(gateway_of(index)):
            end_load(gateway_of(index), token)
    assert "too old: collection stopped waiting for it" in bulk_load(own_hbase, store, given, code=1)
    assert json.loads(bulk_load(own_hbase, store, given))["added"] == 1


def test_nothing_as_young_as_a_load_is_collected(own_hbase: HBaseServer, store: str) -> None:
    with HSimIndex.open(store) as index:
        gateway = gateway_of(index)
        began = begin_load(gateway, "one")
        assert loads_begun(gateway) == {"one": began}
        end_load(gateway, "one")
        assert loads_begun(gateway) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--store", "lmdb://here"), "is not on HBase"),
        (("--hbase-command", "no-such-program"), "no such program: 'no-such-program'"),
        (("--stage", "/proc/stage"), "cannot use"),
        (("--stage", ""), "cannot be a stage"),
        (("--stage", "memory://x"), "cannot be a stage"),
        (("--stage", "file://tmp/x"), "cannot be a stage"),
        (("--stage", "nowhere://stage"), "cannot be reached"),
        (("--layout", "4"), "layout"),
        (("--memory", "1"), "--memory"),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_before_anything_is_read(
    own_hbase: HBaseServer, store: str, options: tuple[str, ...], message: str
) -> None:
    lines(Path("given.jsonl"), ("a", 1))
    usual = {"--store": store, "--stage": "stage", "--hbase-command": own_hbase.program()}
    words = [word for pair in (usual | {options[0]: options[1]}).items() for word in pair]
    result = run("bulk-load", "given.jsonl", "--fingerprint-field", "fingerprint", *words)
    assert result.exit_code != 0
    assert message in result.stderr
    with HSimIndex.open(store) as index:
        assert loads_begun(gateway_of(index)) == {}


def test_what_the_load_program_says_is_shown_where_it_fails(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), ("a", 1))
    result = run(
        *("bulk-load", str(given), "--store", store, "--fingerprint-field", "fingerprint", "--stage", "stage"),
        *("--hbase-command", "sh -c 'echo no route to master; exit 3'"),
    )
    assert result.exit_code == 1
    assert "failed with exit code 3" in result.stderr
    assert "no route to master" in result.stderr
    assert json.loads(bulk_load(own_hbase, store, given))["added"] == 1


def test_another_layout_by_files(own_hbase: HBaseServer, store: str) -> None:
    with HSimIndex.create("lmdb://old", layout="4") as index:
        index.add_many([1, 2, 2, 2**64 - 1], ["a", "b", "c", "d"], first_seen=7)
    words = ("relayout", "--store", "lmdb://old", "--to", store, "--to-layout", "10", "--stage", "stage")
    result = run(*words, "--hbase-command", own_hbase.program())
    assert result.exit_code == 0, result.stderr
    with HSimIndex.open("lmdb://old") as one, HSimIndex.open(store) as other:
        assert sorted(one.documents()) == sorted(other.documents())
        assert other.check().is_sound
    result = run("relayout", "--store", store, "--to", "lmdb://back", "--to-layout", "16")
    assert result.exit_code == 0, result.stderr
    with HSimIndex.open("lmdb://old") as one, HSimIndex.open("lmdb://back") as other:
        assert list(one.documents()) == list(other.documents())


def test_a_program_that_does_nothing_is_told_and_nothing_is_lost(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), ("a", 1), ("b", 2))
    words = ("bulk-load", str(given), "--store", store, "--fingerprint-field", "fingerprint", "--stage", "stage")
    result = run(*words, "--hbase-command", "true")
    assert result.exit_code == 1
    assert "exited without an error, but not all of" in result.stderr
    assert list(Path("stage").rglob("region-*"))
    assert json.loads(bulk_load(own_hbase, store, given))["added"] == 2


def test_a_stage_by_fsspec(own_hbase: HBaseServer, store: str) -> None:
    given = lines(Path("given.jsonl"), ("a", 1), ("b", 2))
    assert json.loads(bulk_load(own_hbase, store, given, "--stage", f"file://{Path.cwd()}/else/where"))["added"] == 2
    with HSimIndex.open(store) as index:
        assert index.count() == 2


@pytest.mark.stress
@pytest.mark.timeout(900)
def test_a_killed_load_is_resumed_to_the_same_table(
    own_hbase: HBaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    tool = ("--hbase-command", own_hbase.program())
    tally = kills.run({"staged": 3}, tmp_path, documents=400, begin=partial(hbase_kills.begun, own_hbase), given=tool)
    assert tally.faults == []
    assert tally.is_sound
