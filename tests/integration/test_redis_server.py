"""An index on a real Redis when things go wrong: kills, moves between reads, damage, servers that refuse."""

from __future__ import annotations

import itertools
import math
import socket
import subprocess
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import redis

from hsimhash.errors import (
    CorruptionError,
    HsimhashError,
    IndexExistsError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from hsimhash.fingerprint.signature import Signature, Signatures
from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.store import Opening, Record, create_store, open_store
from hsimhash.store.conformance.random_calls import packed_key
from hsimhash.store.redis.codec import SHARDS
from hsimhash.store.redis.operations import drop_at
from hsimhash.store.redis.rows import RedisLimits
from hsimhash.store.redis.scripts import ADD
from hsimhash.store.redis.store import RedisStore
from tests.stress.calls_exactness import SIZES, outcomes
from tests.stress.exactness import check_layout, check_signatures
from tests.stress.stores_exactness import filled
from tests.stress.stores_kills import EVERY_SECOND, EVERY_SECOND_S, kill_server
from tests.support.first_calls import imported_by_first_calls
from tests.support.hbase_server import free_ports
from tests.support.local_server import LocalServer, serving
from tests.support.places import redis_place
from tests.support.processes import stopped, wait_until
from tests.support.programs import faults
from tests.support.redis_server import DURABLE, QUICK, RedisServer, redis_running

RECORD = Record(Layout.named("4"), {"name": "test-1"})
SIGNED = Record(Layout.named("4"), {"name": "test-1", "sketch": 1, "key": 1})
OF_PARTS = Record(SIGNED.layout, {**SIGNED.profile, "keying": "in-parts"})
KEY, OTHER = packed_key([1, 2, 3, 4, 5]), packed_key([2, 3, 4, 6, 7])  # keys in parts, with one part in common
kinds = pytest.mark.parametrize("record", [SIGNED, OF_PARTS], ids=["format 2", "format 3"])
_numbers = itertools.count()


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url(f"server-{next(_numbers)}")


def made(url: str, record: Record = RECORD) -> RedisStore:
    store = create_store(url, record)
    assert isinstance(store, RedisStore)
    return store


def put(store: RedisStore, doc_id: str, *signature: int) -> int:
    given = Signatures.collected([Signature(*signature)])
    return store.insert([doc_id.encode()], given, np.array([7], np.int64))


def test_what_was_acknowledged_outlives_kills_of_the_server_and_clients_go_on(tmp_path: Path) -> None:
    with redis_running(tmp_path, DURABLE) as server:
        assert faults(kill_server(server, 3)) == []


def test_with_a_sync_every_second_a_kill_loses_no_more_than_was_acknowledged_just_before(tmp_path: Path) -> None:
    with redis_running(tmp_path, EVERY_SECOND) as server:
        assert faults(kill_server(server, 2, lossy_s=EVERY_SECOND_S)) == []


@pytest.mark.parametrize("layout", ["4", "10"])
def test_no_match_is_missed_and_none_invented(tmp_path: Path, layout: str) -> None:
    with redis_running(tmp_path) as server:
        assert faults(check_layout(layout, partial(filled, server, tmp_path), 3_000, 200, most_batch_s=5)) == []


def test_signatures_match_as_brute_force_says(tmp_path: Path) -> None:
    with redis_running(tmp_path) as server:
        assert faults(check_signatures("4", partial(filled, server, tmp_path), 2_000, 200)) == []


def test_random_calls_in_a_great_crowd_are_answered_as_brute_force_says(redis_server: RedisServer) -> None:
    assert faults(outcomes([redis_place(redis_server, None)], 300, SIZES[-1:])) == []


def test_a_document_that_moves_between_the_two_reads_of_a_query_is_met(url: str) -> None:
    with made(url) as store, store.view() as view:
        put(store, "a", 5)
        assert len(view.scan(RECORD.layout.prefixes(5))) == 4
        put(store, "a", 4)
        assert [one.doc_id for one in view.documents([5])[0]] == ["a"]
        assert view.documents([5])[0][0].fingerprint == 4


def test_a_query_that_takes_longer_than_what_moved_stays_is_refused(url: str) -> None:
    with made(url) as store, store.view() as view:
        view.scan(RECORD.layout.prefixes(5))
        hurried = RedisStore(store.session, RECORD, limits=RedisLimits(left_s=1e-9))
        with hurried.view() as slow:
            slow.scan(RECORD.layout.prefixes(5))
            with pytest.raises(StoreTimeoutError, match="query fewer documents at once"):
                slow.documents([5])


def test_a_copy_of_a_write_that_lands_too_late_does_nothing(url: str) -> None:
    with made(url) as store:
        put(store, "a", 5)
        keys, documents = store.rows._batch([b"a"], Signatures.of([4]), np.array([7], np.int64))
        late = [store.session.server_ms() - 1, store.session.identity, b"writer", 0, b"", b"", 4, 0, *documents]
        own = (store.keys.record, store.keys.identity, store.keys.writers, store.keys.orphans)
        copy = ("EVALSHA", ADD.sha, len(own) + len(keys), *own, *keys, *late)
        with pytest.raises(redis.exceptions.ResponseError, match="LATE"):
            store.session._exchange(copy, math.inf)
        assert store.lookup([b"a"])[0].fingerprint == 5


def test_what_moves_and_removals_leave_is_collected_once_it_is_old(url: str, client: redis.Redis) -> None:
    with made(url) as store:
        for value in range(50):
            put(store, "a", value << 32)
        assert store.collect() == (49, 0, 49)
        quick = RedisStore(store.session, RECORD, limits=RedisLimits(left_s=0, tidy_s=0))
        assert quick.remove([b"a"]) == 1
        names = {key.partition(b":")[2] for key in client.scan_iter(f"{url.partition('prefix=')[2]}:*")}
        assert names == {b"record", b"identity", b"writers"}


def test_what_is_left_once_more_before_it_is_collected_stays(url: str) -> None:
    with made(url) as store:
        put(store, "a", 1)
        put(store, "a", 2)
        orphans = store.session.call("ZRANGE", store.keys.orphans, 0, -1)
        assert (len(orphans), store.rows._collect(orphans)) == (1, 0)
        assert store.session.call("ZRANGE", store.keys.orphans, 0, -1) == orphans


def over(store: RedisStore, doc_id: bytes) -> int:
    """Return the server time, in ms, at which a document expires."""
    value = store.session.call("HGET", store.keys.register(doc_id), doc_id)
    return int.from_bytes(value[-8:], "big")


@pytest.mark.parametrize("record", [RECORD, SIGNED])
def test_a_document_is_over_so_long_after_it_was_last_added_and_its_bytes_are_given_back(
    url: str, client: redis.Redis, record: Record
) -> None:
    with create_store(url, record, ttl_s=1) as made, open_store(url) as store:
        assert isinstance(made, RedisStore)
        assert isinstance(store, RedisStore)
        ends = put(store, "a", 5, 1, 6 << 32) and over(store, b"a")
        wait_until(lambda: not put(store, "a", 5, 1, 6 << 32) and over(store, b"a") > ends)
        put(store, "b", 5, 1, 6 << 32)
        wait_until(lambda: store.lookup([b"a", b"b"]) == [None, None])
        assert (store.documents([5]), list(store.walk()), store.remove([b"b"])) == ([[]], [[]], 0)
        assert store.check().is_sound
        assert put(store, "a", 5, 1, 6 << 32) == 1
        wait_until(lambda: store.lookup([b"a"]) == [None])
        quick = RedisStore(store.session, record, limits=RedisLimits(left_s=0), ttl_s=1)
        quick.collect()
        assert not any(quick.walk())
        names = {key.partition(b":")[2] for key in client.scan_iter(f"{url.partition('prefix=')[2]}:*")}
        assert names == {b"record", b"identity", b"writers"}


def test_later_writes_remove_what_is_over(url: str) -> None:
    with create_store(url, RECORD, ttl_s=1) as store:
        assert isinstance(store, RedisStore)
        put(store, "a", 5)
        wait_until(lambda: store.lookup([b"a"]) == [None])
        assert store.count() == 1
        limits = RedisLimits(tidy_s=0, tidy_shards=SHARDS // 2 + 1)
        later = RedisStore(store.session, RECORD, limits=limits, ttl_s=1)
        wait_until(lambda: put(later, "b", 6) <= 1 and later.count() == 1, limit_s=60)


def test_a_fingerprint_with_many_documents_is_read_in_pages(url: str) -> None:
    with made(url) as store:
        ids = sorted(str(number).encode() for number in range(300))
        store.insert(ids, Signatures.of([9] * 300), np.zeros(300, np.int64))
        paged = RedisStore(store.session, RECORD, limits=RedisLimits(documents=7))
        assert [one.doc_id.encode() for one in paged.documents([9])[0]] == ids
        assert [one.doc_id.encode() for one in paged.documents([9], 20)[0]] == ids[:20]
        assert [one.doc_id.encode() for page in paged.walk() for one in page] == ids
        shards = [[one.doc_id for page in paged.registered(shard, 3) for one in page] for shard in range(3)]
        assert list(map(len, shards)) == [300, 0, 0]


@kinds
def test_check_finds_and_repairs_every_kind_of_damage(url: str, client: redis.Redis, record: Record) -> None:
    with made(url, record) as store:
        put(store, "a", 5, 1, KEY)
        put(store, "b", 2**63, 1, OTHER)
        keys, (*_, of_key) = store.keys, record.key_prefixes(KEY)
        prefixes = RECORD.layout.prefixes(5)
        client.delete(keys.bucket(prefixes[0]), keys.bucket(of_key))
        client.zrem(keys.listing((2**63).to_bytes(8, "big")), (2**63).to_bytes(8, "big") + b"b")
        client.append(keys.bucket(prefixes[1]), b"12345678")
        client.hincrby(keys.record, "documents", 3)
        found = store.check()
        assert (found.documents, found.problems) == (2, 5), found.examples
        assert store.check(repair=True).repaired >= 5
        sound = store.check()
        rows = 2 * (4 + record.keying.most_parts)
        assert (sound.documents, sound.drawer_rows, sound.problems, sound.leftovers) == (2, rows, 0, 0), sound.examples
        assert store.count() == 2


@kinds
def test_a_key_that_no_document_has_any_more_is_a_leftover(url: str, record: Record) -> None:
    with made(url, record) as store:
        put(store, "a", 5, 1, KEY)
        put(store, "b", 5, 1, OTHER)
        put(store, "b", 5, 1, KEY)
        left = set(record.key_prefixes(OTHER)).difference(record.key_prefixes(KEY))
        assert (store.check(repair=True).leftovers, store.check().leftovers) == (len(left), 0)
        assert not len(store.scan(sorted(left)))


def test_damaged_bytes_are_reported(url: str, client: redis.Redis) -> None:
    with made(url) as store:
        put(store, "a", 5)
        client.append(store.keys.bucket(RECORD.layout.prefixes(5)[0]), b"123")
        with pytest.raises(CorruptionError, match="11 bytes"):
            store.scan(RECORD.layout.prefixes(5))
        client.hset(store.keys.register(b"a"), b"a", b"short")
        with pytest.raises(CorruptionError, match="instead of 16 or 32"):
            store.lookup([b"a"])


def test_a_drop_that_was_interrupted_leaves_no_index_and_is_finished_by_the_next(url: str, client: redis.Redis) -> None:
    with made(url) as store:
        put(store, "a", 5)
        client.set(store.keys.dropping, b"")
        client.delete(store.keys.record, store.keys.identity)
    with pytest.raises(IndexExistsError, match="drop-table"):
        create_store(url, RECORD)
    drop_at(url)
    with made(url) as store:
        assert not any(store.walk())


def message_of(url: str) -> str:
    with pytest.raises(HsimhashError) as told:
        open_store(url, Opening(deadline_s=1))
    return str(told.value)


def test_a_server_that_is_not_there_or_is_no_redis_is_named(redis_server: RedisServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert f"Redis at 127.0.0.1:{port}" in message_of(f"redis://127.0.0.1:{port}")
    assert "nothing is listening there" in message_of(f"redis://127.0.0.1:{port}")

    class Web(LocalServer):
        def talk(self, connection: socket.socket) -> None:
            connection.recv(1_000)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

    with serving(Web()) as web:
        assert "is not Redis" in message_of(f"redis://127.0.0.1:{web.port}")
    assert "does not have that database" in message_of(redis_server.url(database=99))


def test_passwords_come_from_files_and_are_in_no_message(tmp_path: Path) -> None:
    secret, wrong = tmp_path / "secret", tmp_path / "wrong"
    secret.write_text("open sesame\n")
    wrong.write_text("sesame open\n")
    with redis_running(tmp_path / "server", (*QUICK, "--requirepass", "open sesame")) as server:
        made(server.url(options=f"&password_file={secret}")).close()
        with open_store(server.url(), Opening(password="open sesame")) as store:
            assert store.record == RECORD
        for told in (message_of(server.url()), message_of(server.url(options=f"&password_file={wrong}"))):
            assert "HSIMHASH_REDIS_PASSWORD, or" in told
            assert "password_file=" in told
            assert "sesame" not in told
        assert "cannot read password_file" in message_of(server.url(options=f"&password_file={tmp_path / 'none'}"))
        assert "1 to 4,096 characters" in message_of(server.url(options="&password_file=/dev/zero"))


def test_a_full_server_and_a_replica_refuse_writes_and_answer_queries(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with redis_running(tmp_path) as server, made(server.url()) as store:
        put(store, "a", 5)
        with closing(redis.Redis(port=server.port)) as client:
            client.config_set("maxmemory", "1")
            with pytest.raises(StoreUnavailableError, match="memory is full"):
                put(store, "b", 5)
            assert store.lookup([b"a", b"b"])[1] is None
            assert store.remove([b"a"]) == 1
            client.config_set("maxmemory", "0")
            client.replicaof("127.0.0.1", redis_server.port)
            with open_store(server.url()) as other, pytest.raises(StoreUnavailableError, match="read-only replica"):
                other.insert([b"b"], Signatures.of([5]), np.array([7], np.int64))  # fails at once: `other` never wrote


def test_a_query_ends_in_the_time_allowed_and_a_write_waits_for_a_server_that_hangs(tmp_path: Path) -> None:
    with redis_running(tmp_path) as server, HSimIndex.create(server.url(options="&timeout=500ms")) as index:
        index.add(5, "a")
        assert server.process is not None
        with stopped(server.process.pid):
            with pytest.raises(StoreTimeoutError):
                index.query(5, timeout=0.2)
            writer = threading.Thread(target=index.add, args=(6, "a"))
            writer.start()
            writer.join(1.2)
            assert writer.is_alive()
        writer.join(60)
        assert index.get("a").fingerprint == 6


def test_an_index_is_reached_by_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with redis_running(tmp_path / "server", (*QUICK, "--unixsocket", path)):
        made(f"unix://{path}?db=1&prefix=pages").close()
        with open_store(f"unix://{path}?db=1&prefix=pages") as store:
            assert store.record == RECORD


def test_tls_is_verified(tmp_path: Path) -> None:
    key, cert = tmp_path / "key", tmp_path / "cert"
    subject = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, *subject]
    subprocess.run(list(map(str, make)), check=True, capture_output=True)
    tls = ("--tls-port", "0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
    with redis_running(tmp_path / "server", (*QUICK, *tls, "--tls-ca-cert-file", cert)) as server:
        with closing(redis.Redis(port=server.port)) as client, socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            taken.close()
            client.config_set("tls-port", port)
        place = f"localhost:{port}/0?prefix=pages"
        made(f"rediss://{place}&ca={cert}").close()
        assert "its certificate is not trusted" in message_of(f"rediss://{place}")
        assert "certificate" in message_of(f"rediss://127.0.0.1:{port}/0?ca={cert}")
        assert "Redis at localhost" in message_of(f"redis://{place}")


def test_a_cluster_is_named_where_the_url_says_one_server(tmp_path: Path) -> None:
    alone = ("--cluster-enabled", "yes", "--cluster-port", *free_ports(1))  # the default, 10,000 higher, may be in use
    with redis_running(tmp_path, (*QUICK, *alone)) as server:
        subprocess.run(
            ["redis-cli", "-p", str(server.port), "cluster", "addslotsrange", "0", "16383"],
            check=True,
            capture_output=True,
        )
        wait_until(lambda: "cluster_state:ok" in cluster_state(server))
        with pytest.raises(StoreUnavailableError, match="cannot hold an index"):
            create_store(server.url(), RECORD)


def cluster_state(server: RedisServer) -> str:
    with closing(redis.Redis(port=server.port)) as client:
        return str(client.execute_command("CLUSTER", "INFO"))


def test_the_first_calls_of_a_forked_process_import_no_module(url: str) -> None:
    HSimIndex.create(url).close()
    assert imported_by_first_calls(url) == {}
