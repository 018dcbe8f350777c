"""Connections that end: each call on PostgreSQL with each loss listed in operations/postgresql.md.

A connection ends while it is idle, while its call waits for a lock, or between a commit and its answer: a commit that
waits for a missing standby is already durable.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest

from hsimhash.errors import LostRightError, StoreUnavailableError
from hsimhash.index import HSimIndex
from hsimhash.store.base import MOST_LOSSES
from hsimhash.store.postgresql.address import DatabaseAddress
from hsimhash.store.postgresql.failures import LostLinkError, store_error
from tests.support.interrupted_calls import CALLS, FAR, READS, WRITES, begun, loaded
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.postgresql_sessions import connected, end_connections, wait_for

pytestmark = [pytest.mark.together, pytest.mark.every_case]
_tables = itertools.count()

RELOAD_S = 1.0  # until the checkpointer has read a new setting and published whether commits wait


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    with postgresql_serving() as own:
        yield own


@contextmanager
def filled(server: PostgresqlServer, options: str = "") -> Iterator[HSimIndex]:
    """Yield an index with a document and idle connections."""
    with HSimIndex.create(server.url(f"losses_{next(_tables)}", options), layout="4", profile="zh-1") as made:
        made.add(5, "a")
        with ThreadPoolExecutor(3) as threads, made.store.view() as view:
            view.lookup([b"a"])
            list(threads.map(made.query, [5] * 3))
        yield made


@pytest.fixture
def index(server: PostgresqlServer) -> Iterator[HSimIndex]:
    with filled(server) as made:
        yield made


def table_of(index: HSimIndex) -> str:
    return str(index.describe()["table"])


@pytest.mark.parametrize("name", CALLS)
def test_a_call_goes_on_after_idle_connections_ended(
    server: PostgresqlServer, index: HSimIndex, tmp_path: Path, name: str
) -> None:
    end_connections(server)
    assert CALLS[name](index, tmp_path)


def test_each_call_waits_for_a_server_that_restarts(tmp_path: Path) -> None:
    with postgresql_serving() as own:
        for name, call in CALLS.items():
            (folder := tmp_path / name).mkdir()
            with filled(own) as index:
                own.stop()
                with begun(call, index, folder):
                    own.start()


@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_connection_ends_in_the_middle_is_done_again(
    server: PostgresqlServer, index: HSimIndex, tmp_path: Path, name: str
) -> None:
    mode = "ACCESS EXCLUSIVE" if name in READS else "SHARE"  # the latter makes only writes wait
    with connected(server) as other, other.transaction():
        other.execute(f"LOCK TABLE {table_of(index)}, {table_of(index)}_fingerprints IN {mode} MODE".encode())
        with begun(CALLS[name], index, tmp_path):
            for _ in range(2):
                wait_for(server, "Lock")
                end_connections(server)
            other.execute("ROLLBACK")


@pytest.mark.parametrize("name", WRITES)
def test_a_write_whose_commit_was_not_answered_is_done_once(
    server: PostgresqlServer, index: HSimIndex, tmp_path: Path, name: str
) -> None:
    with commits_waiting(server), begun(WRITES[name], index, tmp_path):
        wait_for(server, "SyncRep")
        reload(server, "RESET synchronous_standby_names")
        end_connections(server)


@contextmanager
def commits_waiting(server: PostgresqlServer) -> Iterator[None]:
    """Make each commit, once durable, wait for a missing standby until the setting is reset."""
    reload(server, "SET synchronous_standby_names = 'nobody'")
    time.sleep(RELOAD_S)
    try:
        yield
    finally:
        reload(server, "RESET synchronous_standby_names")


def reload(server: PostgresqlServer, change: str) -> None:
    with connected(server) as connection:
        connection.execute(f"ALTER SYSTEM {change}".encode())
        connection.execute("SELECT pg_reload_conf()")


def test_others_write_while_a_job_has_lost_the_right_and_both_count(
    server: PostgresqlServer, index: HSimIndex, tmp_path: Path
) -> None:
    """The job repeats decisions that it had not carried out, because a near document has arrived meanwhile."""
    with connected(server) as other, other.transaction():
        other.execute(f"LOCK TABLE {table_of(index)} IN SHARE MODE".encode())
        with ThreadPoolExecutor(2) as threads, HSimIndex.open(index.url) as another:
            job = threads.submit(loaded, index, tmp_path, on_duplicate="skip")
            wait_for(server, "Lock")
            meanwhile = threads.submit(another.add, FAR[2] ^ 1, "other")
            wait_for(server, "advisory")
            end_right(server)
            other.execute("ROLLBACK")
            meanwhile.result()
            counts = job.result().counts
    assert (counts.added, counts.duplicates) == (7, 3)
    assert index.get("2") is None
    assert index.check().is_sound


def end_right(server: PostgresqlServer) -> None:
    """End the connection that has the right to write."""
    with connected(server) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_locks "
            "WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted"
        )


def test_a_right_that_is_lost_each_time_is_given_up(server: PostgresqlServer, index: HSimIndex) -> None:
    is_over = threading.Event()

    def end() -> None:
        while not is_over.is_set():
            end_right(server)

    with connected(server) as other, other.transaction(), ThreadPoolExecutor(1) as thread:
        other.execute(f"LOCK TABLE {table_of(index)} IN SHARE MODE".encode())
        ending = thread.submit(end)
        try:
            with pytest.raises(LostRightError, match=r"write lock was lost.*a job resumes where it stopped"):
                index.claim(FAR[0], "b")
        finally:
            is_over.set()
        ending.result()
    assert MOST_LOSSES > 1
    assert index.claim(FAR[0], "b").is_new


def test_a_server_that_stays_away_ends_each_call_at_its_deadline(tmp_path: Path) -> None:
    with postgresql_serving() as own, ExitStack() as opened:
        indexes = {name: opened.enter_context(filled(own, "&deadline=1s")) for name in CALLS}
        own.stop()
        for name, index in indexes.items():
            (folder := tmp_path / name).mkdir()
            with pytest.raises(StoreUnavailableError, match="is PostgreSQL running"):
                CALLS[name](index, folder)
        own.start()
        for name, index in indexes.items():
            assert CALLS[name](index, tmp_path / name), name


@pytest.mark.parametrize("name", CALLS)
def test_a_cancelled_call_fails_and_may_be_made_again(
    server: PostgresqlServer, index: HSimIndex, tmp_path: Path, name: str
) -> None:
    mode = "ACCESS EXCLUSIVE" if name in READS else "SHARE"
    with connected(server) as other, other.transaction(), ThreadPoolExecutor(1) as thread:
        other.execute(f"LOCK TABLE {table_of(index)}, {table_of(index)}_fingerprints IN {mode} MODE".encode())
        asked = thread.submit(CALLS[name], index, tmp_path)
        wait_for(server, "Lock")
        with connected(server) as admin:
            admin.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'hsimhash'")
        with pytest.raises(StoreUnavailableError, match="the server ended the call: canceling statement"):
            asked.result()
    assert CALLS[name](index, tmp_path)


@pytest.mark.parametrize("limit", ["IdleSessionTimeout", "IdleInTransactionSessionTimeout", "TransactionTimeout"])
def test_a_limit_of_the_server_is_not_taken_for_a_network_that_fails(limit: str) -> None:
    lost = LostLinkError("terminating connection due to a timeout")
    lost.__cause__ = getattr(psycopg.errors, limit)("terminating connection due to a timeout")
    said = str(store_error(lost, DatabaseAddress.parse("postgresql://h/d?table=t")))
    assert said.endswith("the server ended the call: terminating connection due to a timeout; try again")
