"""An index on a real Redis Cluster: the contract of every store, kills, a server that takes over, a slot that moves."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import redis

from hsimhash.errors import CorruptionError
from hsimhash.index import HSimIndex
from hsimhash.store import Store, create_store, open_store
from hsimhash.store.redis.cluster import PARTS, tag_of
from hsimhash.store.redis.cluster_store import ClusterStore
from hsimhash.store.redis.rows import RedisLimits
from hsimhash.store.redis.store import RedisStore
from tests.stress.exactness import check_layout, check_signatures
from tests.stress.stores_exactness import filled
from tests.stress.stores_kills import kill_server
from tests.support.command_line import run
from tests.support.places import Place
from tests.support.processes import wait_until
from tests.support.programs import faults
from tests.support.redis_cluster import SLOTS, RedisCluster, redis_cluster_running, said
from tests.support.redis_server import DURABLE, RedisServer, redis_running
from tests.test_store_contract import *  # noqa: F403  (its tests, at another place)

pytestmark = pytest.mark.together
_numbers = itertools.count()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with redis_cluster_running(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def place(redis_cluster: RedisCluster) -> Place:
    return Place(
        lambda: redis_cluster.url(f"contract-{next(_numbers)}"), create_store, open_store, settle, has_claims=False
    )


def settle(store: Store) -> None:
    """Collect what documents have left behind at once, as a store does that no query takes longer than 0 s of."""
    assert isinstance(store, ClusterStore)
    quick = partial(RedisStore, limits=RedisLimits(left_s=0))
    assert ClusterStore([quick(part.session, part.record) for part in store.parts]).check(repair=True).is_sound


def test_the_parts_lie_evenly_on_the_servers(redis_cluster: RedisCluster) -> None:
    slots = [
        int(said(redis_cluster.servers[0], "KEYSLOT", f"pages:{{{tag_of(part)}}}:record")) for part in range(PARTS)
    ]
    assert [slot * PARTS // SLOTS for slot in slots] == list(range(PARTS))


@pytest.mark.parametrize("check", [check_layout, check_signatures])
def test_no_match_is_missed_and_none_invented(redis_cluster: RedisCluster, tmp_path: Path, check: object) -> None:
    fill = partial(filled, redis_cluster, tmp_path)
    assert faults(check("4", fill, 2_000, 100, (0, 3, 6))) == []  # type: ignore[operator]


def test_what_was_acknowledged_outlives_kills_of_masters_and_clients_go_on(tmp_path: Path) -> None:
    with redis_cluster_running(tmp_path, DURABLE) as cluster:
        assert faults(kill_server(cluster, 3)) == []


WRITER = """
import sys
from hsimhash import HSimIndex
ids = list(map(str, range(400)))
with HSimIndex.open(sys.argv[1]) as index:
    for turn in range(int(sys.argv[2]), 10**6):
        index.add_many([number * 2654435761 % 997 + 1 << turn % 50 for number in range(400)], ids, first_seen=turn)
        print(turn, flush=True)
"""


def test_a_killed_client_leaves_each_document_as_it_was_or_as_it_is_to_be(redis_cluster: RedisCluster) -> None:
    url = redis_cluster.url("killed")
    with HSimIndex.create(url, layout="4", profile="auto-1") as index:
        turn = -1
        for turns in (1, 3, 2):
            command = [sys.executable, "-c", WRITER, url, str(turn + 1)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
                for _ in range(turns):
                    turn = int(writer.stdout.readline())  # type: ignore[union-attr]
                writer.kill()
                turn = max([turn, *map(int, writer.stdout.read().split())])  # type: ignore[union-attr]
            found = list(index.documents())
            assert len(found) == 400
            assert {one.first_seen for one in found} <= {turn, turn + 1}
            for one in found:
                assert one.fingerprint == int(one.doc_id) * 2654435761 % 997 + 1 << one.first_seen % 50
            assert index.check().is_sound


@contextmanager
def at_work(index: HSimIndex) -> Iterator[list[object]]:
    """Let a thread move documents and ask for one that stays; give what it found so far, and what it failed with.

    It sends again what a server that takes over lacks, which it is told.
    """

    def work() -> None:
        try:
            while not is_over.is_set():
                values = [len(calls) << 8 | number for number in range(200)]
                try:
                    index.add_many(values, list(map(str, range(200))))
                except CorruptionError:
                    continue
                calls.append([match.doc_id for match in index.query(2**63, max_distance=0)])
        except Exception as error:  # told to the test, again and again: it waits for more
            calls.extend([error] * 10)

    is_over, calls = threading.Event(), list[object]()
    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until(lambda: bool(calls))
        yield calls
    finally:
        is_over.set()
        thread.join()


def test_clients_follow_to_a_replica_that_takes_over_and_no_document_is_half_there(tmp_path: Path) -> None:
    with redis_cluster_running(tmp_path, replicas=1) as cluster:
        first, replica = cluster.masters[0], cluster.servers[-1]
        with HSimIndex.create(cluster.url(), layout="4", profile="auto-1") as index:
            index.add(2**63, "fixed")
            with closing(redis.Redis(port=replica.port)) as new, closing(redis.Redis(port=first.port)) as old:
                wait_until(lambda: new.dbsize() == old.dbsize() > 0)
            with at_work(index) as calls:
                first.kill()
                wait_until(lambda: b"myself,master" in said(replica, "NODES"))
                done = len(calls)
                wait_until(lambda: len(calls) > done + 3, limit_s=60)
        assert calls == [["fixed"]] * len(calls)
        with HSimIndex.open(cluster.url()) as index:
            assert (index.count(), index.check().problems) == (201, 0)


def test_clients_go_on_while_a_slot_moves_to_another_server(tmp_path: Path) -> None:
    with redis_cluster_running(tmp_path) as cluster:
        source, target = cluster.masters[:2]
        with HSimIndex.create(cluster.url(), layout="4", profile="auto-1") as index:
            index.add(2**63, "fixed")
        with HSimIndex.open(cluster.url()) as index, at_work(index) as calls:
            move_slot(cluster, int(said(source, "KEYSLOT", f"{{{tag_of(0)}}}")), source, target)
            done = len(calls)
            wait_until(lambda: len(calls) > done + 3, limit_s=60)
            assert calls == [["fixed"]] * len(calls)
        with HSimIndex.open(cluster.url()) as index:
            assert (index.count(), index.check().problems) == (201, 0)


def move_slot(cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer) -> None:
    """Move a slot as redis-cli does: key by key, while clients use it."""
    names = [said(one, "MYID").decode() for one in (source, target)]
    said(target, "SETSLOT", slot, "IMPORTING", names[0])
    said(source, "SETSLOT", slot, "MIGRATING", names[1])
    with closing(redis.Redis(port=source.port)) as client:
        while keys := said(source, "GETKEYSINSLOT", slot, 10):
            client.migrate("127.0.0.1", target.port, keys, 0, 5_000)
    for server in (target, source, *cluster.masters[2:]):
        said(server, "SETSLOT", slot, "NODE", names[1])


def test_the_commands_work_on_a_cluster(redis_cluster: RedisCluster, tmp_path: Path) -> None:
    store, pages = ("--store", redis_cluster.url("commands")), tmp_path / "pages.tsv"
    pages.write_text("".join(f"doc {number}\t{number * 0x9E3779B97F4A7C15 % 2**64:016x}\n" for number in range(3_000)))
    assert run("create-table", *store, "--ttl", "1d").exit_code == 0
    assert "already exists" in run("create-table", *store).stderr
    job = ("--format", "fingerprints", "--job", str(tmp_path / "job"))
    assert json.loads(run("ingest", str(pages), *store, *job).stdout)["added"] == 3_000
    assert "nothing to do" in run("ingest", str(pages), *store, *job).stderr
    assert '"doc 1"' in run("query", "9e3779b97f4a7c15", *store, "--json").stdout
    facts = json.loads(run("describe", *store, "--json").stdout)
    assert (facts["documents"], facts["masters"], facts["ttl_s"]) == (3_000, 3, 86_400)
    report = json.loads(run("check", *store, "--json").stdout)
    assert [report[name] for name in ("documents", "drawer_rows", "problems", "leftovers")] == [3_000, 12_000, 0, 0]
    found = json.loads(run("doctor", *store, "--json").stdout)
    assert [one["status"] for one in found["checks"] if one["name"] == "server"] == ["ok"] * 3
    assert json.loads(run("expire", "--before", "2100-01-01", "--yes", *store, "--json").stdout)["removed"] == 3_000
    assert json.loads(run("collect", *store, "--json").stdout)["left"] == 3_000
    assert run("import-redis", redis_cluster.url(), *store).exit_code == 2
    assert run("drop-table", "--yes", *store).exit_code == 0
    for server in redis_cluster.servers:
        with closing(redis.Redis(port=server.port)) as client:
            assert list(client.scan_iter("commands:*")) == []


def test_one_server_that_is_no_cluster_is_named(tmp_path: Path) -> None:
    with redis_running(tmp_path) as server:
        url = server.url().replace("redis://", "redis+cluster://")
        assert run("create-table", "--store", url).exit_code == 0
        assert "one server, no cluster" in run("doctor", "--store", url).stdout
