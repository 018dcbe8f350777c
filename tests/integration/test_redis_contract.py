"""The contract of every store, on a real Redis, in indexes without a TTL and with one."""

from __future__ import annotations

import itertools
from functools import partial

import pytest

from hsimhash.errors import HsimhashError
from hsimhash.store import Store, create_store, open_store
from hsimhash.store.redis.rows import RedisLimits
from hsimhash.store.redis.store import RedisStore
from tests.support.places import Place
from tests.support.redis_server import RedisServer
from tests.test_claims import claimed
from tests.test_store_contract import *  # noqa: F403  (its tests, at another place)
from tests.test_store_contract import RECORD

_numbers = itertools.count()


@pytest.fixture(params=[None, 86_400])
def place(redis_server: RedisServer, request: pytest.FixtureRequest) -> Place:
    create = partial(create_store, ttl_s=request.param)
    return Place(lambda: redis_server.url(f"contract-{next(_numbers)}"), create, open_store, settle)


def settle(store: Store) -> None:
    """Collect what documents have left behind at once, as a store does that no query takes longer than 0 s of."""
    assert isinstance(store, RedisStore)
    settled = RedisStore(store.session, store.record, limits=RedisLimits(left_s=0), ttl_s=store.rows.ttl_ms // 1_000)
    assert settled.check(repair=True).is_sound


def test_claims_are_refused(place: Place) -> None:
    with place.create(place.url(), RECORD) as store, pytest.raises(HsimhashError, match="LMDB, PostgreSQL or HBase"):
        claimed(store, ("a", 5))
