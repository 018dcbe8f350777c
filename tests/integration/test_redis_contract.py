"""The contract of every store, on a real Redis, in indexes without a TTL and with one."""

from __future__ import annotations

import pytest

from tests.support.places import Place, redis_place
from tests.support.redis_server import RedisServer
from tests.test_claims import *  # noqa: F403  (its tests, at another place)
from tests.test_store_contract import *  # noqa: F403  (its tests, at another place)


@pytest.fixture(params=[None, 86_400])
def place(redis_server: RedisServer, request: pytest.FixtureRequest) -> Place:
    return redis_place(redis_server, request.param)
