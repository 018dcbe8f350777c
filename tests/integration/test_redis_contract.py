"""The contract of every store, on a real Redis."""

from __future__ import annotations

import itertools

import pytest

from hsimhash.store import Store, create_store, open_store
from hsimhash.store.redis.rows import RedisLimits
from hsimhash.store.redis.store import RedisStore
from tests.support.redis_server import RedisServer
from tests.test_store_contract import *  # noqa: F403  (its tests, at another place)
from tests.test_store_contract import Place

_numbers = itertools.count()


@pytest.fixture
def place(redis_server: RedisServer) -> Place:
    return Place(lambda: redis_server.url(f"contract-{next(_numbers)}"), create_store, open_store, settle)


def settle(store: Store) -> None:
    """Collect what documents have left behind at once, as a store does that no query takes longer than 0 s of."""
    assert isinstance(store, RedisStore)
    settled = RedisStore(store.session, store.record, limits=RedisLimits(left_s=0))
    assert settled.check(repair=True).is_sound
