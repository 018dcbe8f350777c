"""Defaults that a server, a database, a role or a URL sets for new connections do not change what hsimhash does."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import numpy as np
import psycopg
import pytest

from hsimhash.index import HSimIndex
from hsimhash.store import open_store
from hsimhash.store.postgresql.store import DatabaseStore
from tests.support.oracles import are_near
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.postgresql_sessions import wait_for

pytestmark = pytest.mark.together
HOSTILE = {
    "default_transaction_isolation": "repeatable read",
    "default_transaction_deferrable": "on",
    "statement_timeout": "150ms",
    "lock_timeout": "20ms",
    "idle_session_timeout": "150ms",
    "idle_in_transaction_session_timeout": "150ms",
    "search_path": "evil, pg_catalog",
    "standard_conforming_strings": "off",
    "client_encoding": "LATIN1",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "array_nulls": "off",
    "enable_seqscan": "on",
    "enable_bitmapscan": "on",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_nestloop": "off",
    "max_parallel_workers_per_gather": "4",
    "plan_cache_mode": "force_custom_plan",
    "jit": "on",
    "jit_above_cost": "0",
    "synchronous_commit": "off",
    "work_mem": "64kB",
    "row_security": "off",
    "TimeZone": "Asia/Kathmandu",
    "client_min_messages": "debug1",
}
HARMLESS = {  # values travel in binary; a sort with little memory uses files; no table needs NULLs, times or policies
    *("DateStyle", "IntervalStyle", "TimeZone", "array_nulls", "bytea_output", "extra_float_digits"),
    *("default_transaction_deferrable", "transaction_deferrable", "jit_above_cost", "row_security", "work_mem"),
}
EVIL = """
CREATE SCHEMA evil;
CREATE FUNCTION evil.bit_count(bit) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 64::bigint';
CREATE FUNCTION evil.int8send(bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS 'SELECT NULL::bytea';
CREATE FUNCTION evil.pg_advisory_lock(bigint) RETURNS void LANGUAGE sql AS 'SELECT NULL::void';
"""
_tables = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with postgresql_serving() as own:
        with psycopg.connect(own.conninfo, autocommit=True) as connection:
            connection.execute(EVIL)
            connection.execute("CREATE ROLE odd LOGIN SUPERUSER")
            connection.execute("CREATE DATABASE odd")
            for name, value in HOSTILE.items():
                for where in ("ROLE odd", "DATABASE odd"):
                    values = value.split(", ") if name == "search_path" else [value]
                    quoted = ", ".join(f"'{one}'" for one in values)
                    connection.execute(f'ALTER {where} SET "{name}" = {quoted}'.encode())
        with psycopg.connect(own.conninfo.replace("/postgres", "/odd"), autocommit=True) as connection:
            connection.execute(EVIL)
        yield own


@pytest.fixture(params=["role", "database", "url"])
def url(request: pytest.FixtureRequest, server: PostgresqlServer) -> str:
    """The URL of an index that does not exist yet; its connections start with the hostile defaults."""
    url = server.url(f"defaults_{next(_tables)}")
    if request.param == "role":
        return url.replace("postgres@", "odd@")
    if request.param == "database":
        return url.replace("/postgres?", "/odd?")
    escaped = {name: value.replace(" ", r"\ ") for name, value in HOSTILE.items() if name != "client_encoding"}
    return f"{url}&options={quote(' '.join(f'-c {name}={value}' for name, value in escaped.items()))}"


def settings_of(store: DatabaseStore) -> dict[str, str]:
    return dict(store.session.call(lambda link: link.execute("SELECT name, setting FROM pg_settings").fetchall()))


def test_every_setting_that_matters_is_set_by_each_connection(server: PostgresqlServer, url: str) -> None:
    plain = server.url(f"defaults_{next(_tables)}")
    HSimIndex.create(url, layout="4", profile="zh-1").close()
    HSimIndex.create(plain, layout="4", profile="zh-1").close()
    with open_store(url) as odd, open_store(plain) as usual:
        assert isinstance(odd, DatabaseStore)
        assert isinstance(usual, DatabaseStore)
        found, expected = settings_of(odd), settings_of(usual)
    assert {name for name in found if found[name] != expected[name]} <= HARMLESS


def test_calls_answer_as_brute_force_does(url: str, tmp_path: Path) -> None:
    values = (np.random.default_rng(1).integers(0, 2**8, 400, np.uint64) << np.uint64(20)).tolist()
    ids = [str(number) for number in range(len(values))]
    with HSimIndex.create(url, layout="4", profile="zh-1") as index:
        load = index.bulk(tmp_path / "runs")
        load.add_run(np.array(values[:200], np.uint64), ids[:200], 7)
        assert load.merge() == 200
        index.add_many(values[200:], ids[200:])
        for distance in (0, 3, 6):
            found = {match.doc_id for match in index.query(values[0], max_distance=distance)}
            assert found == {ids[n] for n, one in enumerate(values) if are_near(one, values[0], distance)}
        assert not index.claim(values[0], "again").is_new
        assert index.claim(2**64 - 1, r"back\slash '文").is_new
        assert index.remove(ids[:100]) == 100
        assert index.check().is_sound
        assert index.count() == 301


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_writer_that_waited_sees_the_document_that_it_waited_for(server: PostgresqlServer, isolation: str) -> None:
    table, option = f"defaults_{next(_tables)}", isolation.replace(" ", r"\ ")
    url = server.url(table, f"&options={quote(f'-c default_transaction_isolation={option}')}")
    with HSimIndex.create(url, layout="4", profile="zh-1") as index, ThreadPoolExecutor(1) as thread:
        index.add(1, "A")
        with psycopg.connect(server.conninfo) as other:  # does what `put_documents` does for B
            other.execute(f"INSERT INTO {table} VALUES ('B', 1, 7)".encode())
            other.execute(f"SELECT FROM {table}_fingerprints WHERE fingerprint = 1 FOR KEY SHARE".encode())
            moved = thread.submit(index.add, 0xFFFF << 40, "A")  # A leaves fingerprint 1, so the call locks that row
            wait_for(server, "Lock")
        moved.result()
        assert [match.doc_id for match in index.query(1, max_distance=0)] == ["B"]
        assert index.check().problems == 0


def test_limits_on_waiting_do_not_end_a_write_that_waits(server: PostgresqlServer) -> None:
    table = f"defaults_{next(_tables)}"
    limits = "-c statement_timeout=100ms -c idle_in_transaction_session_timeout=100ms"
    url = server.url(table, f"&options={quote(limits)}")
    with HSimIndex.create(url, layout="4", profile="zh-1") as index, ThreadPoolExecutor(1) as thread:
        with psycopg.connect(server.conninfo) as other:
            other.execute(f"LOCK TABLE {table} IN SHARE MODE".encode())
            added = thread.submit(index.add, 5, "a")
            other.execute("SELECT pg_sleep(0.5)")
            assert not added.done()
        added.result()
        assert index.get("a") is not None
