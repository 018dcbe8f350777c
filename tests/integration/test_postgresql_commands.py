"""The command line on a real PostgreSQL: from create-table to drop-table, and documents from store to store."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import psycopg
import pytest

from hsimhash.index import HSimIndex
from hsimhash.store.postgresql.codec import signed_word, signed_words
from tests.support.command_line import (
    DOCUMENTS,
    assert_a_half_copied_index_is_reported,
    assert_status_names_a_crowd,
    run,
)
from tests.support.fingerprint_sets import near_and_equal
from tests.support.postgresql_server import USER, PostgresqlServer
from tests.support.stopped_servers import ended_while_stopped
from tests.test_ingest_fit import assert_a_killed_ingest_ends_as_an_undisturbed_one

pytestmark = pytest.mark.together
_tables = itertools.count()


@pytest.fixture
def url(postgresql: PostgresqlServer) -> str:
    """The URL of an index that does not exist yet."""
    return postgresql.url(f"commands_{next(_tables)}")


@pytest.fixture
def filled(url: str) -> str:
    with HSimIndex.create(url, layout="4", profile="zh-1") as index:
        index.add_many(list(DOCUMENTS.values()), list(DOCUMENTS), first_seen=7)
    return url


def documents_in(url: str) -> list[tuple[object, ...]]:
    with HSimIndex.open(url) as index:
        assert index.check().is_sound
        return list(index.documents())


def test_a_table_is_made_once_and_dropped(url: str) -> None:
    made = run("create-table", "--store", url, "--layout", "10")
    assert (made.exit_code, made.stdout) == (0, "")
    assert f"created {url} with layout 10" in made.stderr
    again = run("create-table", "--store", url, "--layout", "10")
    assert again.exit_code == 0
    assert "already exists" in again.stderr
    other = run("create-table", "--store", url, "--layout", "4")
    assert other.exit_code == 5
    assert "layout: the index has 10, requested 4" in other.stderr
    assert run("create-table", "--store", url, "--ttl", "90d").exit_code == 2
    assert run("drop-table", "--store", url, "--yes").exit_code == 0
    gone = run("describe", "--store", url)
    assert gone.exit_code == 5
    assert "no index at postgresql://" in gone.stderr
    dropped = run("drop-table", "--store", url, "--yes")
    assert dropped.exit_code == 5
    assert "create" not in dropped.stderr
    command = " ".join(gone.stderr.split()).rpartition('create one with "hsimhash ')[2].rstrip('"')
    assert run(*shlex.split(command)).exit_code == 0
    assert run("drop-table", "--store", url, "--yes").exit_code == 0


def test_the_printed_statements_make_the_same_index(postgresql: PostgresqlServer, url: str) -> None:
    printed = run("create-table", "--store", url, "--layout", "10", "--profile", "zh-1", "--print-commands")
    assert printed.exit_code == 0
    with psycopg.connect(postgresql.conninfo, autocommit=True) as connection:
        connection.execute(printed.stdout.encode())
    again = run("create-table", "--store", url, "--layout", "10", "--profile", "zh-1")
    assert (again.exit_code, "already exists" in again.stderr) == (0, True)
    with HSimIndex.open(url) as index:
        index.add(5, "a")
        assert [match.doc_id for match in index.query(4)] == ["a"]
        assert index.check().is_sound
    assert run("create-table", "--store", "lmdb://x", "--print-commands").exit_code == 2


def test_a_table_of_others_is_neither_made_an_index_nor_dropped(postgresql: PostgresqlServer, url: str) -> None:
    table = url.rpartition("=")[2]
    with psycopg.connect(postgresql.conninfo, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {table} (number int)".encode())
    refused = run("create-table", "--store", url)
    assert refused.exit_code == 5
    assert "does not belong to an index" in refused.stderr
    kept = run("drop-table", "--store", url, "--yes")
    assert kept.exit_code == 1
    assert "does not belong to an index" in kept.stderr


def test_documents_go_to_other_stores_and_back(filled: str, url: str, tmp_path: Path) -> None:
    lines = tmp_path / "documents.jsonl"
    assert run("export", "--store", filled, "--output", str(lines)).exit_code == 0
    embedded = f"lmdb://{tmp_path / 'index'}"
    given = ("--fingerprint-field", "fingerprint", "--job", str(tmp_path / "there"))
    assert run("ingest", str(lines), "--store", embedded, "--profile", "zh-1", *given).exit_code == 0
    assert documents_in(embedded) == documents_in(filled)
    back = f"{filled}_back"
    for answer in ("add", "skip"):
        store, job = f"{back}_{answer}", str(tmp_path / answer)
        made = run("create-table", "--store", store, "--profile", "zh-1", "--layout", "10")
        assert made.exit_code == 0, made.stderr
        how = ("--fingerprint-field", "fingerprint", "--on-duplicate", answer, "--distance", "0", "--job", job)
        done = run("ingest", str(lines), "--store", store, *how)
        assert done.exit_code == 0, done.stderr
        assert documents_in(store) == documents_in(filled)
        again = run("ingest", str(lines), "--store", store, *how)
        assert "nothing to do" in again.stderr
    moved = run("relayout", "--store", filled, "--to", f"{back}_16", "--to-layout", "16", "--job", str(tmp_path / "re"))
    assert moved.exit_code == 0, moved.stderr
    assert documents_in(f"{back}_16") == documents_in(filled)


def test_an_index_is_shown_asked_and_emptied(filled: str) -> None:
    described = json.loads(run("describe", "--store", filled, "--json").stdout)
    assert described["documents"] == described["fingerprints"] == len(DOCUMENTS)
    assert described["drawer_rows"] == 4 * len(DOCUMENTS)
    assert described["server"].startswith("PostgreSQL ")
    status = json.loads(run("status", "--store", filled, "--json").stdout)
    assert status["documents"] == len(DOCUMENTS)
    found = run("query", "0000000000000001", "--store", filled, "--distance", "1", "--json")
    assert "中文" not in found.stdout
    assert {match["id"] for match in json.loads(found.stdout)["matches"]} == {"a", "b"}
    explained = json.loads(run("explain", "--query", "1", "--store", filled, "--distance", "3", "--json").stdout)
    assert (explained["scans"], explained["near"], explained["documents"]) == (4, 10, 3)
    checked = run("check", "--store", filled, "--json")
    assert json.loads(checked.stdout)["is_sound"] is True
    assert run("remove", "a", "nobody", "--store", filled, "--yes", "--json").stdout == '{"removed": 1, "unknown": 1}\n'
    assert run("expire", "--before", "2001-01-01", "--store", filled, "--yes").exit_code == 0
    with HSimIndex.open(filled) as index:
        assert index.is_empty()


def test_what_only_others_have_is_refused_with_the_remedy(filled: str) -> None:
    compacted = run("compact", "--store", filled)
    assert compacted.exit_code == 2
    assert compacted.stdout.startswith("VACUUM FULL ")
    backed_up = run("backup", "pages.dump", "--store", filled)
    assert backed_up.exit_code == 2
    assert re.fullmatch(r"pg_dump -Fc (-t \S+ ){3}-f pages.dump postgresql://\S+\n", backed_up.stdout)
    collected = run("collect", "--store", filled)
    assert (collected.exit_code, "nothing is left to collect" in collected.stderr) == (2, True)
    for command in (("check", "--sample", "5"), ("export", "--shards", "2", "--output", "x")):
        refused = run(*command, "--store", filled)
        assert (refused.exit_code, "HBase" in refused.stderr) == (2, True)


def test_the_backup_that_is_printed_restores_the_index(
    postgresql: PostgresqlServer, filled: str, tmp_path: Path
) -> None:
    line = run("backup", str(tmp_path / "dump"), "--store", filled).stdout
    before = documents_in(filled)
    subprocess.run(f"{postgresql.programs}/{line}", shell=True, check=True)
    assert run("drop-table", "--store", filled, "--yes").exit_code == 0
    restore = [postgresql.programs / "pg_restore", "-d", postgresql.conninfo, tmp_path / "dump"]
    subprocess.run(restore, check=True)
    assert documents_in(filled) == before


def test_doctor_looks_at_server_record_and_tables(postgresql: PostgresqlServer, filled: str) -> None:
    well = run("doctor", "--store", filled)
    assert well.exit_code == 0, well.stdout
    for name in ("server", "record", "privileges", "read", "durability", "vacuum", "indexes", "tables"):
        assert re.search(rf"^ok +{name}: ", well.stdout, re.MULTILINE), well.stdout
    assert f"user {USER}" in well.stdout
    assert run("doctor", "--quick", "--store", filled).exit_code == 0
    table = filled.rpartition("=")[2]
    with psycopg.connect(postgresql.conninfo, autocommit=True) as connection:
        connection.execute(f"DROP INDEX {table}_drawer_2".encode())
    ill = run("doctor", "--store", filled)
    assert ill.exit_code == 0
    assert re.search(rf"^warn +indexes: missing {table}_drawer_2", ill.stdout, re.MULTILINE), ill.stdout
    found = run("check", "--store", filled, "--json")
    assert (found.exit_code, json.loads(found.stdout)["problems"]) == (6, 1)
    assert run("check", "--repair", "--store", filled).exit_code == 0
    assert run("check", "--store", filled).exit_code == 0


def test_a_half_copied_index_on_postgresql_is_reported(filled: str) -> None:
    assert_a_half_copied_index_is_reported(filled)


def test_doctor_tells_what_does_not_answer(url: str) -> None:
    assert run("doctor", "--store", url).exit_code == 5
    nowhere = run("doctor", "--store", "postgresql://nobody@127.0.0.1:1/postgres?table=pages&deadline=200ms")
    assert nowhere.exit_code == 4
    assert "is PostgreSQL running" in nowhere.stdout


def test_the_statements_of_the_page_find_what_brute_force_finds(postgresql: PostgresqlServer) -> None:
    page = (Path(__file__).parents[2] / "schema" / "postgresql.md").read_text(encoding="utf-8")
    (statements,) = re.findall(r"^```sql\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    values = near_and_equal(np.random.default_rng(1), 2_000, near=0.5, equal=0.01, most=4)
    with psycopg.connect(postgresql.conninfo, autocommit=True) as connection:
        connection.execute("CREATE TEMPORARY TABLE articles (id int, simhash bigint)")
        with connection.cursor().copy("COPY articles FROM STDIN") as copy:
            for number, value in enumerate(signed_words(values).tolist()):
                copy.write_row((number, value))
        connection.execute(statements.encode())
        for query in values[:100].tolist():
            found = connection.execute(f"EXECUTE near({signed_word(query)})".encode()).fetchall()
            bits = np.bitwise_count(values ^ np.uint64(query))
            near = sorted((int(bits[place]), int(place)) for place in np.flatnonzero(bits <= 3))
            assert sorted((distance, number) for number, _, distance in found) == near


def test_plan_has_the_bytes_of_a_document() -> None:
    found = json.loads(run("plan", "--documents", "1000000", "--profile", "zh-1", "--json").stdout)["postgresql"]
    assert found["distance"] == 6
    assert {"4", "10"} <= {layout["layout"] for layout in found["layouts"]}


def test_an_ingest_ends_though_the_server_has_stopped(postgresql: PostgresqlServer, url: str, tmp_path: Path) -> None:
    ended_while_stopped(url, lambda: [postgresql.process.pid, *postgresql.children()], tmp_path)


def test_status_names_a_crowded_fingerprint(url: str) -> None:
    assert_status_names_a_crowd(url)


def test_a_killed_ingest_that_is_begun_again_keeps_the_table_that_was_fitted(url: str, tmp_path: Path) -> None:
    assert_a_killed_ingest_ends_as_an_undisturbed_one(url, tmp_path)
