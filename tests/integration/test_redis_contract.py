"""The contract of every store, on a real Redis, in indexes without a TTL and with one."""

from __future__ import annotations

import pytest

from hsimhash.store.conformance.claims import *  # noqa: F403  (its tests, at another place)
from hsimhash.store.conformance.contract import *  # noqa: F403  (its tests, at another place)
from hsimhash.store.conformance.place import StorePlace
from tests.support.places import redis_place
from tests.support.redis_server import RedisServer


@pytest.fixture(params=[None, 86_400])
def place(redis_server: RedisServer, request: pytest.FixtureRequest) -> StorePlace:
    return redis_place(redis_server, request.param)
