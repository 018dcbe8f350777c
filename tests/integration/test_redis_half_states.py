"""An index on a real Redis that exists in part: killed while created or dropped, or with keys flushed by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import redis

from hsimhash.store.redis.operations import drop_at
from hsimhash.store.redis.session import RedisSession
from tests.support.half_states import (
    calls_of,
    create_and_drop_at_once,
    created,
    dropped,
    filled,
    killed_at_each_step,
    way_out,
)
from tests.support.redis_server import RedisServer

pytestmark = [pytest.mark.every_case, pytest.mark.together]
STEPS = calls_of(RedisSession, "_exchange")  # each is a command and its reply
_numbers = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"half-{next(_numbers)}"


@pytest.fixture
def url(redis_server: RedisServer, prefix: str) -> str:
    return redis_server.url(prefix)


@pytest.fixture
def own_url(client: redis.Redis, url: str) -> str:
    """The same index, as a user with all rights; a test revokes some."""
    client.execute_command("ACL", "SETUSER", "half", "reset", "on", "nopass", "~*", "+@all")
    return url.replace("redis://", "redis://half@")


def keys_of(client: redis.Redis, prefix: str) -> list[bytes]:
    return sorted(client.scan_iter(f"{prefix}:*"))


def test_a_killed_creation_left_all_or_nothing(client: redis.Redis, prefix: str, url: str) -> None:
    for _ in killed_at_each_step(lambda: None, lambda: created(url), STEPS):
        assert way_out(url) in ("create-table", "")
        assert keys_of(client, prefix) == []


def test_drop_table_ends_a_drop_that_was_killed_at_any_step(client: redis.Redis, prefix: str, url: str) -> None:
    seen = set()
    for _ in killed_at_each_step(lambda: filled(url), lambda: dropped(url), STEPS):
        seen.add(way_out(url))
        assert keys_of(client, prefix) == []
    assert seen == {"", "drop-table", "create-table"}


def rows(client: redis.Redis, prefix: str, kinds: str = "dlr") -> list[bytes]:
    """Return the keys of buckets (d), listings (l) and registers (r)."""
    names = "record", "orphans", "writers", "identity", "dropping"
    keys = (key for key in keys_of(client, prefix) if key[len(prefix) + 1 :] not in map(str.encode, names))
    return [key for key in keys if chr(key[len(prefix) + 1]) in kinds]


def gone(*names: str, kinds: str = "") -> Callable[[redis.Redis, str], object]:
    return lambda client, prefix: client.delete(
        *(f"{prefix}:{name}" for name in names), *(rows(client, prefix, kinds) if kinds else ())
    )


def without_fields(*fields: str) -> Callable[[redis.Redis, str], object]:
    return lambda client, prefix: client.hdel(f"{prefix}:record", *fields)


# What is done to the keys of an index, and the command that mends it.
STATES = {
    "no record": (gone("record"), "drop-table"),
    "no identity": (gone("identity"), "drop-table"),
    "no writers": (gone("writers"), ""),
    "only rows": (gone("record", "identity", "writers", "orphans"), "drop-table"),
    "only registers": (gone("record", "identity", "writers", "orphans", kinds="dl"), "drop-table"),
    "only listings": (gone("record", "identity", "writers", "orphans", kinds="dr"), "drop-table"),
    "only buckets": (gone("record", "identity", "writers", "orphans", kinds="lr"), "drop-table"),
    "only the record": (gone("identity", "writers", "orphans", kinds="dlr"), "drop-table"),
    "only the identity": (gone("record", "writers", "orphans", kinds="dlr"), "drop-table"),
    "only writers": (gone("record", "identity", "orphans", kinds="dlr"), "create-table"),
    "no rows": (gone("writers", "orphans", kinds="dlr"), "check --repair"),
    "no registers": (gone(kinds="r"), "check --repair"),
    "no listings": (gone(kinds="l"), "check --repair"),
    "no buckets": (gone(kinds="d"), "check --repair"),
    "no layout": (without_fields("layout"), "drop-table"),
    "no profile": (without_fields("profile"), "drop-table"),
    "no format": (without_fields("format"), "drop-table"),
    "no identity in the record": (without_fields("identity"), "drop-table"),
    "only a count": (without_fields("layout", "profile", "format", "identity", "distance"), "drop-table"),
}


@pytest.mark.parametrize("state", STATES)
def test_all_commands_name_the_one_that_gets_out(client: redis.Redis, prefix: str, url: str, state: str) -> None:
    change, command = STATES[state]
    filled(url)
    change(client, prefix)
    client.set(f"{prefix}:mine", "of others")
    client.zadd(f"{prefix}:dates", {"whose name could be a bucket's": 1})
    assert way_out(url) == command
    assert keys_of(client, prefix) == [f"{prefix}:dates".encode(), f"{prefix}:mine".encode()]


def test_a_hash_of_others_with_the_name_of_a_record_stays(client: redis.Redis, prefix: str, url: str) -> None:
    client.hset(f"{prefix}:record", "artist", "of others")
    refused = created(url)
    assert (refused.exit_code, "choose another prefix" in refused.stderr) == (5, True)
    assert dropped(url).exit_code == 5
    assert client.hgetall(f"{prefix}:record") == {b"artist": b"of others"}


@pytest.mark.parametrize("missing", ["scan", "set"])
def test_who_lacks_a_right_to_create_an_index_is_told_and_leaves_nothing(
    client: redis.Redis, prefix: str, own_url: str, missing: str
) -> None:
    client.execute_command("ACL", "SETUSER", "half", f"-{missing}")
    refused = created(own_url)
    assert (refused.exit_code, "its user lacks a permission" in refused.stderr) == (4, True), refused.output
    assert keys_of(client, prefix) == []


@pytest.mark.parametrize("missing", ["exists", "set", "unlink", "scan", "evalsha"])
def test_who_lacks_a_right_to_drop_an_index_is_told_and_another_user_gets_out(
    client: redis.Redis, prefix: str, url: str, own_url: str, missing: str
) -> None:
    filled(url)
    client.execute_command("ACL", "SETUSER", "half", f"-{missing}")
    refused = dropped(own_url)
    assert (refused.exit_code, "its user lacks a permission" in refused.stderr) == (4, True), refused.output
    assert way_out(url) in ("", "drop-table")
    assert keys_of(client, prefix) == []


def test_creations_and_drops_at_once_meet_nothing_else(client: redis.Redis, prefix: str, url: str) -> None:
    assert create_and_drop_at_once(url, lambda: drop_at(url)) == []
    assert way_out(url) in ("create-table", "drop-table", "")
    assert keys_of(client, prefix) == []
