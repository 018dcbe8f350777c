"""PostgreSQL behind pgbouncer: session mode works, transaction mode is refused before any setting is changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from hsimhash.errors import HsimhashError
from hsimhash.index import HSimIndex
from hsimhash.store import open_store
from hsimhash.store.postgresql.address import DatabaseAddress
from hsimhash.store.postgresql.failures import store_error
from tests.support.command_line import run
from tests.support.pgbouncer import pgbouncer_serving
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving

pytestmark = pytest.mark.together
REFUSED = "is a connection pooler in transaction mode, such as pgbouncer .* use a pool in session mode"
_tables = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with postgresql_serving() as own:
        yield own


@pytest.fixture
def url(server: PostgresqlServer) -> str:
    """An index with a document."""
    url = server.url(f"pooled_{next(_tables)}")
    with HSimIndex.create(url, layout="4", profile="zh-1") as index:
        index.add(5, "a")
    return url


def through(server: PostgresqlServer, port: int, url: str) -> str:
    return url.replace(f":{server.port}/", f":{port}/")


def changed_settings(server: PostgresqlServer, port: int, *, autocommit: bool = False) -> set[str]:
    """Return the session settings that other users of the pool, three at once, find changed."""
    asked = "SELECT name FROM pg_settings WHERE source = 'session'"
    with ExitStack() as opened:
        found = set[str]()
        for _ in range(3):
            url = through(server, port, server.conninfo)
            # A transaction keeps its process, so the next one gets another; statement mode does not allow transactions.
            connection = opened.enter_context(psycopg.connect(url, autocommit=autocommit))
            found.update(name for (name,) in connection.execute(asked).fetchall())
    return found - {"application_name", "client_encoding"}


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pool_of_transactions_is_refused_and_nothing_leaks(server: PostgresqlServer, url: str, mode: str) -> None:
    with pgbouncer_serving(server, mode) as port:
        pooled = through(server, port, url)
        for _ in range(3):
            with pytest.raises(HsimhashError, match=REFUSED):
                open_store(pooled)
        with ThreadPoolExecutor(4) as others:
            busy = [others.submit(keep_busy, server, port) for _ in range(4)]
            with pytest.raises(HsimhashError, match=REFUSED):
                open_store(pooled)
            for one in busy:
                one.result()
        doctor = run("doctor", "--store", pooled)
        assert (doctor.exit_code != 0, "in transaction mode" in doctor.stdout + doctor.stderr) == (True, True)
        assert changed_settings(server, port, autocommit=mode == "statement") == set()


def keep_busy(server: PostgresqlServer, port: int) -> None:
    """Run transactions as other users of the pool do."""
    with psycopg.connect(through(server, port, server.conninfo), autocommit=True, prepare_threshold=None) as connection:
        for _ in range(300):
            connection.execute("SELECT 1")


def test_a_pool_of_sessions_serves_and_nothing_leaks(server: PostgresqlServer, url: str) -> None:
    with pgbouncer_serving(server, "session") as port:
        with HSimIndex.open(through(server, port, url)) as index:
            assert [match.doc_id for match in index.query(4)] == ["a"]
            assert index.claim(2**64 - 1, "b").is_new
            assert not index.claim(2**64 - 1, "c").is_new
            assert index.check().is_sound
        assert changed_settings(server, port) == set()
        assert run("doctor", "--store", through(server, port, url)).exit_code == 0


@pytest.mark.parametrize("error", [psycopg.errors.DuplicatePreparedStatement, psycopg.errors.InvalidSqlStatementName])
def test_a_pooler_that_is_found_late_is_named(url: str, error: type[psycopg.Error]) -> None:
    with pytest.raises(HsimhashError, match=REFUSED):
        raise store_error(error("prepared statement"), DatabaseAddress.parse(url))
