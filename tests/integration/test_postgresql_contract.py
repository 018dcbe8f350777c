"""The contract of every store, on a real PostgreSQL."""

from __future__ import annotations

import itertools

import pytest

from hsimhash.store.conformance.claims import *  # noqa: F403  (likewise)
from hsimhash.store.conformance.contract import *  # noqa: F403  (its tests, at another place)
from hsimhash.store.conformance.place import StorePlace
from tests.support.postgresql_server import PostgresqlServer

pytestmark = pytest.mark.together
_tables = itertools.count()


@pytest.fixture
def place(postgresql: PostgresqlServer) -> StorePlace:
    """New tables in the server's database."""
    return StorePlace(lambda: postgresql.url(f"contract_{next(_tables)}"))
