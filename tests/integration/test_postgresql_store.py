"""What is specific to the store on PostgreSQL: its connections, its transactions, its bulk load, its answers."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsimhash.errors import (
    HsimhashError,
    IndexNotFoundError,
    StopAskedError,
    StoreBusyError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from hsimhash.fingerprint import Profile, Signatures
from hsimhash.fingerprint.signature import Signature
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.progress import Observer, Progress
from hsimhash.store import Document, Record, Store, create_store, open_store
from hsimhash.store.conformance.random_calls import packed_key
from hsimhash.store.postgresql import store as database_store
from hsimhash.store.postgresql.codec import Tables
from hsimhash.store.postgresql.operations import drop_at
from hsimhash.store.postgresql.store import DatabaseStore
from hsimhash.store.reports import CheckReport
from tests.support.first_calls import imported_by_first_calls
from tests.support.local_server import LocalServer, serving, shut_down
from tests.support.oracles import are_near, crowds, signed
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.postgresql_sessions import connected, end_connections, wait_for
from tests.support.processes import forked, stopped
from tests.support.serve_process import served

pytestmark = pytest.mark.together
RECORD = Record(Layout.named("4"), {"name": "test-1"})
_tables = itertools.count()


@pytest.fixture
def url(postgresql: PostgresqlServer) -> str:
    return postgresql.url(f"store_{next(_tables)}")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with create_store(url, RECORD) as made:
        yield made


def put(store: Store, *documents: tuple[str, int], seen: int = 7) -> int:
    values = Signatures.of(np.array([value for _, value in documents], np.uint64))
    return store.insert([doc_id.encode() for doc_id, _ in documents], values, np.full(len(documents), seen, np.int64))


def with_user(url: str, user: str, options: str = "") -> str:
    return url.replace("postgresql://postgres@", f"postgresql://{user}@") + f"&deadline=300ms{options}"


# Answers.


def test_a_query_is_read_by_one_process_where_the_planner_knows_nothing_of_the_tables(store: Store) -> None:
    assert isinstance(store, DatabaseStore)
    tables, count = Tables(store.session.address, RECORD), 100_000
    statement, limited = (
        tables.near((1, 2, 3, 4), (False,) * 4, has_key=False, has_most=has_most) for has_most in (False, True)
    )
    store.session.call(lambda link: link.execute(f"ALTER TABLE {tables.fingerprints} SET (autovacuum_enabled = off)"))
    values = np.random.default_rng(3).integers(0, 2**64, count, np.uint64)
    store.insert([b"%d" % number for number in range(count)], Signatures.of(values), np.zeros(count, np.int64))

    def plan(link: psycopg.Connection, statement: str, given: str) -> str:
        link.execute("DEALLOCATE ALL")
        link.execute(f"PREPARE asked AS {statement}".encode())
        return str(link.execute(f"EXPLAIN EXECUTE asked({given})".encode()).fetchall())

    def plans(link: psycopg.Connection) -> tuple[str, str, str]:
        usual = plan(link, statement, "0, 3, 0, 0, 0, 0"), plan(link, limited, "0, 3, 9, 0, 0, 0, 0")
        link.execute("SET max_parallel_workers_per_gather = 2")
        return *usual, plan(link, statement, "0, 3, 0, 0, 0, 0")

    *usual, parallel = store.session.call(plans)
    assert not any("Gather" in one for one in usual)
    assert "Gather" in parallel


@settings(max_examples=25)
@given(data=st.data())
@pytest.mark.parametrize(
    ("name", "profile"), [("4", "auto-2"), ("10", "auto-2"), ("16", "auto-2"), ("4", "auto-3"), ("10", "auto-3")]
)
def test_every_query_finds_what_brute_force_finds(
    postgresql: PostgresqlServer, name: str, profile: str, data: st.DataObject
) -> None:
    keying = Profile.named(profile).key_kind
    stored = data.draw(signed(crowds(30, least=1), keying))
    asked = data.draw(st.lists(st.sampled_from(stored), min_size=1, max_size=3))
    url = postgresql.url(f"store_{next(_tables)}")
    with HSimIndex.create(url, layout=name, profile=profile) as index:
        index.add_many(stored, [str(number) for number in range(len(stored))])
        for distance in (0, index.layout.max_distance, 6):
            for query, limit in itertools.product([*asked, 0, 2**64 - 1], (None, 2)):
                found = index.query(query, max_distance=distance, max_sketch=None, limit=limit)
                near = {str(place) for place, one in enumerate(stored) if are_near(one, query, distance, None, keying)}
                assert {match.doc_id for match in found} <= near
                assert len(found) == (len(near) if limit is None else min(limit, len(near)))
                assert found == sorted(found)
            many = index.query_many(asked, max_distance=distance, max_sketch=None)
            assert many == [index.query(query, max_distance=distance, max_sketch=None) for query in asked]


def test_of_a_crowd_only_as_many_as_asked_are_returned(url: str) -> None:
    with HSimIndex.create(url, layout="4", profile="zh-1") as index:
        index.add_many([5] * 1_500 + [7], [f"{number:04d}" for number in range(1_501)])
        assert [match.doc_id for match in index.query(7, max_distance=3, limit=3)] == ["1500", "0000", "0001"]
        assert len(index.query(7, max_distance=3)) == 1_501


def test_a_view_sees_one_state(store: Store) -> None:
    put(store, ("a", 5))
    with store.view() as view:
        assert len(view.scan(RECORD.layout.prefixes(5))) == 4
        put(store, ("a", 2**40))
        assert view.documents([5, 2**40]) == [[Document("a", 5, 7)], []]
        assert view.near(RECORD.layout.prefixes(5), Signature(5), 0) == [Document("a", 5, 7)]
    assert store.documents([5, 2**40]) == [[], [Document("a", 2**40, 7)]]


def test_a_query_ends_in_time(postgresql: PostgresqlServer, store: Store) -> None:
    put(store, ("a", 5))
    with connected(postgresql) as connection, connection.transaction():
        connection.execute(f"LOCK TABLE {store.url.rpartition('=')[2]}_fingerprints".encode())
        with pytest.raises(StoreTimeoutError, match=r"0\.2 s"), store.view(timeout_s=0.2) as view:
            view.near(RECORD.layout.prefixes(5), Signature(5), 0)
        with pytest.raises(StoreTimeoutError, match=r"0\.2 s"), store.view(timeout_s=0.2) as view:
            view.scan(RECORD.layout.prefixes(5))
    assert len(store.scan(RECORD.layout.prefixes(5))) == 4


# Writers.


def test_writers_of_the_same_documents_never_lose_one_nor_wait_in_a_circle(url: str, store: Store) -> None:
    rng = np.random.default_rng(1)

    def work(seed: int) -> None:
        draw = np.random.default_rng(seed)
        with open_store(url) as own:
            for _ in range(40):
                ids = draw.permutation(12)[:6]
                put(own, *((str(one), int(draw.integers(0, 5)) << 60) for one in ids))
                own.remove([str(one).encode() for one in draw.permutation(12)[:2]])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, rng.integers(0, 2**32, 6).tolist()))
    report = store.check()
    assert (report.problems, report.leftovers) == (0, 0), report.examples
    assert report.documents == len(list(itertools.chain.from_iterable(store.walk())))


REMOVED = "DELETE FROM {0}; DELETE FROM {0}_fingerprints"
MOVED = "UPDATE {0} SET fingerprint = 3; UPDATE {0}_fingerprints SET fingerprint = 3"


@pytest.mark.parametrize("change", [REMOVED, MOVED])
def test_a_document_that_another_removes_or_moves_while_it_is_changed_is_right_then(
    postgresql: PostgresqlServer, url: str, store: Store, change: str
) -> None:
    put(store, ("a", 1))
    with psycopg.connect(postgresql.conninfo) as other, ThreadPoolExecutor(1) as thread:
        other.execute(change.format(url.partition("table=")[2]).encode())
        changing = thread.submit(put, store, ("a", 2))
        wait_for(postgresql, "Lock")
        other.commit()
        assert changing.result() == 1
    assert store.lookup([b"a"]) == [Document("a", 2, 7)]
    assert store.check().leftovers == 0


def test_who_has_the_right_to_write_keeps_others_from_writing(url: str, store: Store) -> None:
    asked = iter([False, True])
    with open_store(f"{url}&lock_timeout=200ms") as other, ThreadPoolExecutor(1) as thread:
        with store.writing(), store.writing():
            put(store, ("a", 5))
            assert other.count() == 1
            for write in (lambda: put(other, ("b", 5)), lambda: other.remove([b"a"]), other.writing().__enter__):
                with pytest.raises(StoreBusyError, match="another"):
                    thread.submit(write).result()
        assert put(other, ("b", 5)) == 1
        with open_store(url) as patient, store.writing(), pytest.raises(StopAskedError):
            thread.submit(patient.writing(stop=lambda: next(asked)).__enter__).result()
    assert store.count() == 2


def test_a_writer_whose_connection_is_lost_has_no_right_any_more(postgresql: PostgresqlServer, store: Store) -> None:
    with store.writing():
        end_connections(postgresql)
        with pytest.raises(StoreUnavailableError, match="write lock was lost"):
            put(store, ("a", 5))
    assert put(store, ("a", 5)) == 1


def test_a_child_forked_within_a_write_does_not_use_its_parents_connection(store: Store) -> None:
    with store.writing():
        put(store, ("a", 5))
        with forked(lambda: [store.lookup([b"a"]) == [Document("a", 5, 7)] or pytest.fail("not found")]):
            pass
        put(store, ("b", 5))
    assert store.count() == 2


def test_calls_go_on_after_the_server_ended_their_connections(postgresql: PostgresqlServer, store: Store) -> None:
    for number in range(3):
        assert put(store, (str(number), number)) == 1
        end_connections(postgresql)
        assert store.count() == number + 1
        end_connections(postgresql)
        assert store.documents([number]) == [[Document(str(number), number, 7)]]
        end_connections(postgresql)


# Bulk loads.


def filled_load(store: Store, folder: Path, values: np.ndarray, slices: int) -> object:
    load = store.bulk(folder, step_documents=-(-len(values) // slices))
    ids = [str(number) for number in range(len(values))]
    half = len(values) // 2
    load.add_run(values[:half], ids[:half], 7)
    load.add_run(values[half:], ids[half:], 7)
    load.add_run(values[:1] + np.uint64(1), ids[:1], 8)  # the first document again: the last run wins
    return load


def test_a_load_that_is_stopped_continues_and_is_right_meanwhile(store: Store, tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 2**63, 500, np.uint64)
    load = filled_load(store, tmp_path / "runs", values, 5)
    asked = iter([False, False, True])
    assert load.merge(Observer(stop=lambda: next(asked))) is None
    assert 0 < store.count() < 500
    report = store.check()
    assert (report.problems, "is missing" in report.examples[0]) == (5, True)  # indexes of four drawers, of listings
    for page in store.walk():
        for document in page:
            near = store.view().near(RECORD.layout.prefixes(document.fingerprint), document.signature, 0)
            assert near == [document]
    again = store.bulk(tmp_path / "runs", step_documents=1_000)
    told: list[tuple[int, int]] = []
    assert again.merge(Observer(progress=lambda one: told.append((one.done, one.total)))) == 500
    assert told[-1][0] == told[-1][1]
    assert store.lookup([b"0"]) == [Document("0", int(values[0]) + 1, 8)]
    assert store.count() == 500
    assert again.merge() == 500
    again.delete()
    assert store.check().is_sound
    assert store.check().leftovers == 0


def test_a_load_into_an_index_with_documents_moves_what_changed(store: Store, tmp_path: Path) -> None:
    values = np.arange(1, 101, dtype=np.uint64) << np.uint64(32)
    put(store, ("0", 5), ("99", int(values[99])), ("other", 6))
    assert filled_load(store, tmp_path / "runs", values, 3).merge() == 99
    assert store.documents([5]) == [[]]
    assert store.lookup([b"99"]) == [Document("99", int(values[99]), 7)]
    report = store.check()
    assert (report.documents, report.problems, report.leftovers) == (101, 0, 0)


def test_nobody_else_writes_while_a_load_is_merged(url: str, store: Store, tmp_path: Path) -> None:
    told: list[Progress] = []

    def write(progress: Progress) -> None:
        told.append(progress)
        with open_store(f"{url}&lock_timeout=20ms") as other, pytest.raises(StoreBusyError):
            put(other, ("other", 1))

    filled_load(store, tmp_path / "runs", np.arange(9, dtype=np.uint64), 1).merge(Observer(progress=write))
    assert told


# Counts.


@pytest.mark.parametrize("profile", ["zh-1", "auto-2", "auto-3"])
def test_describe_counts_the_drawer_rows_that_check_counts(
    url: str, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    rng = np.random.default_rng(1)
    words = rng.integers(1, 2**64, (3, 4_000), np.uint64)
    words[:, 3_000:] = words[:, :1_000]  # these documents have the signatures of the first ones
    signatures = Signatures(*words, np.zeros(4_000, np.uint8))
    with HSimIndex.create(url, layout="4", profile=profile) as index:
        index.add_many(signatures, [str(number) for number in range(4_000)])
        checked = index.check().drawer_rows
        assert index.describe()["drawer_rows"] == checked
        monkeypatch.setattr(database_store, "_COUNTED_BYTES", 1 << 18)
        assert index.describe()["drawer_rows"] == pytest.approx(checked, rel=0.2)


# Damage.


def test_check_finds_and_repairs_segments_that_are_not_those_of_the_key(url: str) -> None:
    stored = [Signature(5, 6, packed_key([1, 2, 3, 4, 5])), Signature(7, 8, packed_key([1, 2])), Signature(9)]
    query = Signature(2**64 - 1, 0, packed_key([2, 3, 4, 6, 7]))
    with HSimIndex.create(url, layout="4", profile="auto-3") as index:
        index.add_many(stored, ["a", "b", "c"])
        assert isinstance(index.store, DatabaseStore)
        documents, call = index.store.tables.documents, index.store.session.call
        assert index.check() == CheckReport(3, 3 * 4 + 5 + 1)
        for harm in ("key_1 = -1, key_4 = key_1 WHERE doc_id = 'a'", "key_2 = 1 WHERE doc_id = 'c'"):
            assert call(lambda link, harm=harm: link.do(f"UPDATE {documents} SET {harm}")) == 1  # type: ignore[misc]
        assert index.query(query) == []
        assert (index.check().problems, index.check(repair=True).repaired) == (2, 2)
        assert index.check() == CheckReport(3, 3 * 4 + 5 + 1)
        assert [match.doc_id for match in index.query(query)] == ["a"]


def test_check_finds_and_repairs_what_somebody_changed_by_hand(postgresql: PostgresqlServer, store: Store) -> None:
    put(store, ("a", 5), ("b", 6))
    table = store.url.rpartition("=")[2]
    with connected(postgresql) as connection:
        connection.execute(f"DELETE FROM {table}_fingerprints WHERE fingerprint = 5".encode())
        connection.execute(f"DELETE FROM {table} WHERE doc_id = 'b'".encode())
    report = store.check()
    assert (report.problems, report.leftovers, report.repaired) == (1, 1, 0)
    assert "0000000000000005, which is not in any drawer" in report.examples[0]
    assert store.check(repair=True).repaired == 2
    report = store.check()
    assert (report.problems, report.leftovers, report.documents) == (0, 0, 1)
    assert len(store.scan(RECORD.layout.prefixes(5))) == 4


# Connections that fail: each message names the server, what is wrong, and the remedy.


def test_a_wrong_password_and_a_right_one_from_a_file(
    postgresql: PostgresqlServer, url: str, store: Store, tmp_path: Path
) -> None:
    put(store, ("a", 5))
    rule = "host all guarded 127.0.0.1/32 scram-sha-256\n"
    path = postgresql.data / "pg_hba.conf"
    path.write_text(rule + path.read_text().replace(rule, ""))
    with connected(postgresql) as connection:
        connection.execute("DROP OWNED BY guarded" if role(connection, "guarded") else "CREATE ROLE guarded LOGIN")
        connection.execute("ALTER ROLE guarded PASSWORD 'secret word' SUPERUSER")
        connection.execute("SELECT pg_reload_conf()")
    passwords = tmp_path / "pgpass"
    passwords.write_text(f"127.0.0.1:{postgresql.port}:*:guarded:wrong word\n")
    passwords.chmod(0o600)
    guarded = with_user(url, "guarded", f"&passfile={passwords}")
    with pytest.raises(StoreUnavailableError, match=r"password authentication failed.*~/\.pgpass") as wrong:
        open_store(guarded)
    assert "word" not in str(wrong.value).replace("password", "")
    passwords.write_text(f"127.0.0.1:{postgresql.port}:*:guarded:secret word\n")
    with open_store(guarded) as opened:
        assert opened.count() == 1


def role(connection: psycopg.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone() is not None


def test_who_may_not_write_is_told_so(postgresql: PostgresqlServer, url: str, store: Store) -> None:
    table = url.rpartition("=")[2]
    with connected(postgresql) as connection:
        for name, rest in (("reader", ""), ("standby", "SUPERUSER"), ("few", "SUPERUSER CONNECTION LIMIT 0")):
            if not role(connection, name):
                connection.execute(f"CREATE ROLE {name} LOGIN {rest}".encode())
        connection.execute("ALTER ROLE standby SET default_transaction_read_only = on")
        connection.execute("ALTER ROLE few NOSUPERUSER")
        connection.execute(f"GRANT SELECT ON {table}, {table}_fingerprints, {table}_record TO reader".encode())
    with open_store(with_user(url, "reader")) as opened:
        assert opened.count() == 0
        with pytest.raises(HsimhashError, match="grant it"):
            put(opened, ("a", 5))
    with open_store(with_user(url, "standby")) as opened, pytest.raises(StoreUnavailableError, match="is a standby"):
        put(opened, ("a", 5))
    with pytest.raises(StoreUnavailableError, match="raise max_connections"):
        open_store(with_user(url, "few"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("/postgres?", "/nowhere?"), "database .* does not exist.*createdb"),
        (("postgres@", "nobody@"), "role .* does not exist.*specify the user"),
        (("127.0.0.1", "no.such.host.invalid"), "is the host name spelled correctly"),
    ],
)
def test_a_server_that_refuses_is_named_with_the_remedy(
    postgresql: PostgresqlServer, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(StoreUnavailableError, match=message):
        open_store(postgresql.url("pages", "&deadline=300ms").replace(*change))


class _Silent(LocalServer):
    def talk(self, connection: socket.socket) -> None:
        while connection.recv(1_000):
            pass
        shut_down(connection)


class _Web(LocalServer):
    def talk(self, connection: socket.socket) -> None:
        connection.recv(1_000)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        shut_down(connection)


def test_what_is_no_postgresql_is_said_so() -> None:
    with serving(_Web()) as web, pytest.raises(StoreUnavailableError, match="the server is not PostgreSQL"):
        open_store(f"postgresql://u@127.0.0.1:{web.port}/d?table=pages&deadline=300ms")
    with serving(_Silent()) as silent, pytest.raises(StoreUnavailableError, match="is the host up"):
        open_store(f"postgresql://u@127.0.0.1:{silent.port}/d?table=pages&deadline=300ms&timeout=1s")


def test_an_option_that_libpq_does_not_know_is_named(postgresql: PostgresqlServer) -> None:
    with pytest.raises(ValueError, match=r"unknown option sslmod; did you mean sslmode\?"):
        open_store(postgresql.url("pages", "&sslmod=require"))
    with pytest.raises(HsimhashError, match=r'"ssl".*its options, which can be table='):  # it accepts only ssl=true
        open_store(postgresql.url("pages", "&ssl=maybe"))


def test_a_missing_index_and_a_dropped_one(postgresql: PostgresqlServer, url: str, store: Store) -> None:
    with pytest.raises(IndexNotFoundError, match=r"HSimIndex\.create"):
        open_store(f"{url}_other")
    with connected(postgresql) as connection:
        table = url.rpartition("=")[2]
        connection.execute(f"DROP TABLE {table}, {table}_fingerprints, {table}_record".encode())
    with pytest.raises(IndexNotFoundError, match=r"HSimIndex\.create"):
        store.count()


# A server that ends or hangs.


def test_what_was_acknowledged_outlives_a_kill_of_the_server_and_clients_go_on() -> None:
    with postgresql_serving() as server, HSimIndex.create(server.url("pages"), layout="4", profile="zh-1") as index:
        acknowledged: list[int] = []
        is_over = threading.Event()

        def write(worker: int) -> None:
            for number in itertools.count():
                if is_over.is_set():
                    return
                value = worker << 32 | number
                index.add(value, str(value))
                acknowledged.append(value)

        with ThreadPoolExecutor(3) as pool:
            writers = [pool.submit(write, worker) for worker in range(3)]
            for _ in range(2):
                reached = len(acknowledged)
                while len(acknowledged) < reached + 100:
                    assert not any(one.done() for one in writers)
                server.kill()
                server.start()
            reached = len(acknowledged)
            while len(acknowledged) < reached + 30:
                assert not any(one.done() for one in writers)
            is_over.set()
            for one in writers:
                one.result()
        found = {document.doc_id for document in index.documents()}
        assert {str(value) for value in acknowledged} <= found
        assert index.check().is_sound


def test_a_server_that_hangs_is_given_up_at_the_deadline() -> None:
    with postgresql_serving() as server:
        url = server.url("pages", "&deadline=1s")
        with HSimIndex.create(url, layout="4", profile="zh-1") as index:
            index.add(5, "a")
            with stopped_whole(server), pytest.raises(StoreUnavailableError, match="pages"):
                index.query(5)
            assert [match.doc_id for match in index.query(5)] == ["a"]


def test_a_query_of_a_server_that_hangs_ends_at_its_time_limit() -> None:
    with postgresql_serving() as server, HSimIndex.create(server.url("pages"), layout="4", profile="zh-1") as index:
        index.add(5, "a")
        with stopped_whole(server):
            for _ in range(2):  # the first call uses the idle connection, the second one opens its own
                with within(2.5), pytest.raises(StoreTimeoutError, match=r"within 0\.5 s: .*server did not answer"):
                    index.query(5, timeout=0.5)
            with within(2.5), pytest.raises(StoreTimeoutError, match=r"within 0\.5 s: .*server did not answer"):
                index.query_many([5, 6], timeout=0.5)
        assert [match.doc_id for match in index.query(5)] == ["a"]


def test_opening_an_index_of_a_server_that_hangs_ends_at_the_deadline() -> None:
    with serving(_Silent()) as silent:
        url = f"postgresql://u@127.0.0.1:{silent.port},127.0.0.1:{silent.port}/d?table=pages&deadline=500ms"
        with within(3.5), pytest.raises(StoreUnavailableError, match=r"server did not answer.*is the host up"):
            open_store(url)


def test_a_host_that_hangs_leaves_time_for_the_next_one(postgresql: PostgresqlServer, url: str, store: Store) -> None:
    put(store, ("a", 5))
    with serving(_Silent()) as silent:
        hosts = url.replace("@127.0.0.1:", f"@127.0.0.1:{silent.port},127.0.0.1:")
        with within(4.5), open_store(f"{hosts}&deadline=4s") as opened:
            assert opened.count() == 1


def test_a_query_with_a_time_limit_says_why_its_server_cannot_be_reached() -> None:
    with postgresql_serving() as server, HSimIndex.create(server.url("pages"), layout="4", profile="zh-1") as index:
        server.stop()
        with pytest.raises(StoreUnavailableError, match="is PostgreSQL running"):
            index.query(5, timeout=0.3)


class _Interrupting(_Silent):
    def taken(self, connection: socket.socket) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_ends_a_connection_that_is_being_opened() -> None:
    with serving(_Interrupting()) as server, within(10.0), pytest.raises(KeyboardInterrupt):
        open_store(f"postgresql://u@127.0.0.1:{server.port}/d?table=pages&timeout=30s")


@contextmanager
def within(limit_s: float) -> Iterator[None]:
    """Fail the test if the block takes longer; the limits are far above the time it takes on an idle machine."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < limit_s


@contextmanager
def stopped_whole(server: PostgresqlServer) -> Iterator[None]:
    """Suspend a server and all its processes during the block."""
    with ExitStack() as stack:
        for pid in (server.process.pid, *server.children()):
            stack.enter_context(stopped(pid))
        yield


def certified(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a self-signed certificate for this machine's address; return its file and that of its key."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    kind = ["-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


def test_the_certificate_of_the_server_is_verified(tmp_path: Path) -> None:
    with postgresql_serving() as server:
        certificate, key = certified(tmp_path, "server")
        server.install("server.crt", certificate)
        server.install("server.key", key)
        with connected(server) as connection:
            connection.execute("ALTER SYSTEM SET ssl = on")
            connection.execute("SELECT pg_reload_conf()")
        url = server.url("pages", "&deadline=300ms&sslmode=verify-full&sslrootcert=")
        with create_store(f"{url}{certificate}", RECORD) as opened:
            assert put(opened, ("a", 5)) == 1
        other, _ = certified(tmp_path, "other")
        with pytest.raises(StoreUnavailableError, match=r"certificate verify failed.*sslrootcert=FILE"):
            open_store(f"{url}{other}")


WRITES = {
    "add": lambda index, _: index.add(6, "b"),
    "remove": lambda index, _: index.remove(["a"]),
    "claim": lambda index, _: index.claim(1 << 40, "c"),
    "merge": lambda _, load: load.merge(),
}


@pytest.mark.every_case
@pytest.mark.parametrize("is_older", [False, True])
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_process_that_has_an_index_open_notices_that_it_was_dropped(
    url: str, tmp_path: Path, is_older: bool, is_made_anew: bool
) -> None:
    HSimIndex.create(url, layout="4", profile="auto-1").close()
    if is_older:
        with open_store(url) as store:
            assert isinstance(store, DatabaseStore)
            record = store.tables.named("_record")
            store.session.call(lambda link: link.do(f"DELETE FROM {record} WHERE name = 'identity'"))
    with HSimIndex.open(url) as index:
        index.add(5, "a")
        assert (index.remove(["none"]), index.query(5)[0].doc_id, index.check().is_sound) == (0, "a", True)
        load = index.bulk(tmp_path / "load")
        load.add_run([7], ["d"], 0)
        drop_at(url)
        if is_made_anew:
            HSimIndex.create(url, layout="10", profile="auto-2").close()
        for name, write in WRITES.items():
            with pytest.raises(IndexNotFoundError, match="open it again" if is_made_anew else "no index at"):
                print(name, write(index, load))
        with pytest.raises(IndexNotFoundError):
            index.store.estimate()
    if is_made_anew:
        with HSimIndex.open(url) as index:
            assert index.count() == 0


def test_an_index_made_alike_is_another_one(url: str) -> None:
    with HSimIndex.create(url, layout="4", profile="auto-1") as index:
        drop_at(url)
        HSimIndex.create(url, layout="4", profile="auto-1").close()
        with pytest.raises(IndexNotFoundError, match="open it again"):
            index.add(5, "a")


def test_serve_is_not_ready_once_its_index_was_made_anew(url: str) -> None:
    HSimIndex.create(url, layout="4", profile="auto-1").close()
    with served(url) as serving:
        caller = serving.caller()
        assert caller.call("/readyz")[0] == 200
        drop_at(url)
        assert caller.call("/readyz")[0] == 503
        HSimIndex.create(url, layout="10", profile="auto-2").close()
        status, answer = caller.call("/readyz")
        assert (status, "open it again" in str(answer)) == (503, True)


def test_the_first_calls_of_a_forked_process_import_no_module(url: str) -> None:
    HSimIndex.create(url).close()
    assert imported_by_first_calls(url) == {}
