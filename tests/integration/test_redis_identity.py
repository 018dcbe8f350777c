"""An index on a real Redis that disappears, returns, or loses writes while processes have it open."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import redis

from hsimhash.errors import CorruptionError, IndexExistsError, IndexNotFoundError
from hsimhash.fingerprint.signature import Signatures
from hsimhash.index import HSimIndex
from hsimhash.store import Mark
from hsimhash.store.redis.operations import drop_at
from tests.stress.stores_identity import outcomes
from tests.support.command_line import run
from tests.support.processes import wait_until
from tests.support.programs import faults
from tests.support.redis_server import RedisServer, redis_running
from tests.support.serve_process import served

pytestmark = pytest.mark.every_case
_numbers = itertools.count()


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url(f"identity-{next(_numbers)}")


def keys_of(client: redis.Redis, url: str) -> list[bytes]:
    return sorted(client.scan_iter(f"{url.partition('prefix=')[2]}:*"))


def contents(client: redis.Redis, url: str) -> dict[bytes, object]:
    return {
        key: client.hgetall(key) if client.type(key) == b"hash" else client.dump(key) for key in keys_of(client, url)
    }


def dropped(url: str, client: redis.Redis) -> None:
    drop_at(url)
    assert keys_of(client, url) == []


def flushed(url: str, client: redis.Redis) -> None:
    client.delete(*keys_of(client, url))


def made_anew(url: str, client: redis.Redis) -> None:
    dropped(url, client)
    HSimIndex.create(url, layout="10", profile="auto-2").close()


def made_alike(url: str, client: redis.Redis) -> None:
    dropped(url, client)
    HSimIndex.create(url, layout="4", profile="auto-1").close()


CALLS: dict[str, Callable[[HSimIndex], object]] = {
    "add": lambda index: index.add(6, "b"),
    "add again": lambda index: index.add(5, "a"),
    "remove": lambda index: index.remove(["a"]),
    "mark": lambda index: index.store.insert([], Signatures.of([]), np.empty(0, np.int64), mark=Mark("job", 1)),
    "collect": lambda index: index.collect(),
    "query": lambda index: index.query(5),
    "query far": lambda index: index.query(5, max_distance=16),
    "count": lambda index: index.count(),
}


@pytest.mark.parametrize("change", [dropped, flushed, made_anew, made_alike])
def test_a_process_that_has_an_index_open_notices_that_it_is_no_longer_there(
    url: str, client: redis.Redis, change: Callable[[str, redis.Redis], None]
) -> None:
    with HSimIndex.create(url, layout="4", profile="auto-1", ttl_s=1_000) as index:
        index.add(5, "a")
        change(url, client)
        there = contents(client, url)
        for name, call in CALLS.items():
            if name == "collect" and change in (dropped, flushed):
                continue
            with pytest.raises(IndexNotFoundError, match="open it again" if there else "no index at"):
                print(name, call(index))
        assert contents(client, url) == there
    if there:
        with HSimIndex.open(url) as index:
            index.add(5, "a")
            assert (index.query(5)[0].doc_id, index.check().is_sound) == ("a", True)
    else:
        HSimIndex.create(url, layout="4", profile="auto-1").close()


@pytest.mark.parametrize("change", [flushed, made_anew])
def test_serve_is_not_ready_once_its_index_is_gone(
    url: str, client: redis.Redis, change: Callable[[str, redis.Redis], None]
) -> None:
    HSimIndex.create(url, layout="4", profile="auto-1").close()
    with served(url) as serving:
        caller = serving.caller()
        assert caller.call("/readyz")[0] == 200
        change(url, client)
        status, answer = caller.call("/readyz")
        assert (status, "the index at" in str(answer) or "no index at" in str(answer)) == (503, True)
        assert caller.call("/add", {"id": "a", "fingerprint": f"{5:016x}"})[0] == 500
        assert caller.call("/query", {"fingerprint": f"{5:016x}"})[0] == 500


def without_identity(url: str, client: redis.Redis) -> None:
    """Make an index as older releases did, without an identity."""
    HSimIndex.create(url, layout="4", profile="auto-1").close()
    prefix = url.partition("prefix=")[2]
    client.delete(f"{prefix}:identity")
    client.hdel(f"{prefix}:record", "identity")


@pytest.mark.parametrize("change", [dropped, flushed, made_anew, made_alike])
def test_an_older_index_has_no_identity_and_writes_notice_as_well(
    url: str, client: redis.Redis, change: Callable[[str, redis.Redis], None]
) -> None:
    without_identity(url, client)
    with HSimIndex.open(url) as index:
        index.add(5, "a")
        assert index.remove(["a"]) == 1
        assert (index.query(5), index.check().is_sound) == ([], True)
        change(url, client)
        there = contents(client, url)
        for name in ("add", "add again", "remove", "mark"):
            with pytest.raises(IndexNotFoundError):
                CALLS[name](index)
        assert contents(client, url) == there


def counted_alone(url: str, client: redis.Redis) -> None:
    """Leave what older releases left: a record that contains only a count."""
    flushed(url, client)
    client.hincrby(f"{url.partition('prefix=')[2]}:record", "documents", 1)


def without_record(url: str, client: redis.Redis) -> None:
    client.delete(f"{url.partition('prefix=')[2]}:record")


def dropped_half(url: str, client: redis.Redis) -> None:
    prefix = url.partition("prefix=")[2]
    client.set(f"{prefix}:dropping", b"")
    client.delete(f"{prefix}:record", f"{prefix}:identity")


@pytest.mark.parametrize("change", [counted_alone, without_record, dropped_half])
def test_of_half_an_index_open_and_create_say_what_to_do_and_drop_table_gets_out(
    url: str, client: redis.Redis, change: Callable[[str, redis.Redis], None]
) -> None:
    with HSimIndex.create(url, layout="4", profile="auto-1") as index:
        index.add(5, "a")
    change(url, client)
    with pytest.raises(IndexNotFoundError, match="'hsimhash drop-table'"):
        HSimIndex.open(url)
    with pytest.raises(IndexExistsError, match="'hsimhash drop-table'"):
        HSimIndex.create(url)
    told = run("create-table", "--store", url)
    assert (told.exit_code, "drop-table" in told.stderr) == (5, True)
    assert run("drop-table", "--yes", "--store", url).exit_code == 0
    assert keys_of(client, url) == []
    assert run("create-table", "--store", url).exit_code == 0


def test_an_index_whose_identity_is_gone_is_damaged(url: str, client: redis.Redis) -> None:
    HSimIndex.create(url).close()
    client.delete(f"{url.partition('prefix=')[2]}:identity")
    with pytest.raises(CorruptionError, match="'hsimhash drop-table'"):
        HSimIndex.open(url)


def test_each_process_that_wrote_is_told_once_that_the_server_lost_its_writes(tmp_path: Path) -> None:
    with redis_running(tmp_path) as server, closing(redis.Redis(port=server.port)) as client:
        url = server.url()
        with (
            HSimIndex.create(url, layout="4", profile="auto-1") as one,
            HSimIndex.open(url) as two,
            HSimIndex.open(url) as three,
        ):
            one.add(5, "kept")
            two.add(6, "kept too")
            client.save()
            one.add(7, "lost")
            two.remove(["kept too"])
            server.kill()
            server.start()
            with HSimIndex.open(url) as new:  # more writes, so that comparing counts would not show the loss
                new.add_many(list(range(10)), list(map(str, range(10))))
            for index in (one, two):
                with pytest.raises(CorruptionError, match="lost acknowledged writes"):
                    index.add(8, "later")
                assert new_ids(url) == {"kept", "kept too", *map(str, range(10))}
            one.add(7, "lost")
            two.remove(["kept too"])
            three.add(9, "of one who lost nothing")
            assert {"lost", "of one who lost nothing"} < new_ids(url)
            assert "kept too" not in new_ids(url)


def new_ids(url: str) -> set[str]:
    with HSimIndex.open(url) as index:
        return {document.doc_id for document in index.documents()}


def test_a_restart_that_loses_nothing_is_no_matter(tmp_path: Path) -> None:
    always = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
    with redis_running(tmp_path, always) as server, HSimIndex.create(server.url()) as index:
        for number in range(3):
            index.add(number, "a")
            server.kill()
            server.start()
        index.add(7, "a")
        assert index.get("a").fingerprint == 7


INGEST = ("ingest", "--format", "fingerprints")


def lines(first: int, count: int) -> str:
    return "".join(f"{number}\t{number * 0x9E3779B97F4A7C15 % 2**64:016x}\n" for number in range(first, first + count))


@pytest.mark.parametrize("rule", ["add", "skip"])
@pytest.mark.parametrize("is_saved", [False, True])
def test_an_ingest_notices_that_the_server_lost_its_data(tmp_path: Path, rule: str, is_saved: bool) -> None:
    with redis_running(tmp_path / "server") as server, closing(redis.Redis(port=server.port)) as client:
        assert run("create-table", "--store", server.url(), "--layout", "4").exit_code == 0
        if is_saved:
            client.save()
        job = ("--store", server.url(), "--job", str(tmp_path / "job"), "--on-duplicate", rule)
        command = [sys.executable, "-m", "hsimhash", *INGEST, "-", *job]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as ingest:
            assert ingest.stdin is not None
            ingest.stdin.write(lines(0, 20_000))
            ingest.stdin.flush()
            if rule == "skip":
                wait_until(lambda: client.dbsize() > 1_000, limit_s=60)
            else:
                wait_until(lambda: (tmp_path / "job").exists(), limit_s=60)
            server.kill()
            server.start()
            out, told = ingest.communicate(lines(20_000, 20_000), timeout=120)
        if is_saved and rule == "add":  # it had not written anything, so nothing was lost
            assert (json.loads(out)["added"], new_ids(server.url()) == set(map(str, range(40_000)))) == (40_000, True)
        else:
            assert ingest.returncode != 0, out
            assert ("lost acknowledged writes" if is_saved else "no index at") in told


@pytest.mark.parametrize("store", ["redis", "lmdb"])
def test_no_write_is_acknowledged_into_an_index_that_has_gone(tmp_path: Path, store: str) -> None:
    assert faults(outcomes(store, tmp_path, rounds=8, seed=1, writers=2)) == []
