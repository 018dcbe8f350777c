"""The contract of every store, on a real PostgreSQL."""

from __future__ import annotations

import itertools

import pytest

from tests.support.places import Place
from tests.support.postgresql_server import PostgresqlServer
from tests.test_claims import *  # noqa: F403  (likewise)
from tests.test_store_contract import *  # noqa: F403  (its tests, at another place)

pytestmark = pytest.mark.together
_tables = itertools.count()


@pytest.fixture
def place(postgresql: PostgresqlServer) -> Place:
    """New tables in the server's database."""
    return Place(lambda: postgresql.url(f"contract_{next(_tables)}"))
