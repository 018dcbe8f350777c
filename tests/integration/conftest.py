"""The servers that the integration tests share; one HBase serves all workers of pytest-xdist.

The tests download nothing: run `make test-servers` first. Tests whose server is missing are skipped with a reason.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.hbase_server import Gateways, HBaseServer, do_without, or_skip, serving
from tests.support.hbase_tables import new_table
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.redis_server import RedisServer, redis_running

if TYPE_CHECKING:
    import redis

FIRST_TEST_S = 900  # for the test that starts HBase on a busy machine
PACKAGES = {"postgresql": "psycopg", "redis": "redis", "spark": "pyspark"}  # by extra: test_EXTRA_….py imports it


class _MissingPackage(pytest.Module):
    """A test module that cannot be imported because a package is missing."""

    def collect(self) -> Iterable[pytest.Item]:
        extra = self.path.stem.split("_")[1]
        do_without(f"{PACKAGES[extra]} is not installed: install it with 'make test-servers' or the extra '{extra}'")


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    package = PACKAGES.get(module_path.stem.split("_")[1])
    if package is None or importlib.util.find_spec(package) is not None:
        return None
    return _MissingPackage.from_parent(parent, path=module_path)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the workers for `-n auto`: three on two cores, because the tests often wait for a server."""
    return 3 * (os.cpu_count() or 1) // 2


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(FIRST_TEST_S))


@pytest.fixture(scope="session")
def own_hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseServer]:
    """The shared server. Tests may start more gateways for it; a test that breaks the server must start its own."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with or_skip(), serving(root / "hbase") as server:
        yield server


@pytest.fixture(scope="session")
def hbase(request: pytest.FixtureRequest) -> Gateways:
    """The gateways in TEST_HBASE (host:thrift1port:thrift2port), otherwise those of the shared server."""
    given = os.environ.get("TEST_HBASE")
    if given:
        return Gateways.parse(given)
    server: HBaseServer = request.getfixturevalue("own_hbase")
    return server.gateways


@pytest.fixture
def table(hbase: Gateways) -> Iterator[str]:
    """The name of a table that does not exist yet and is dropped when the test ends."""
    with new_table(hbase) as name:
        yield name


@pytest.fixture
def stores(hbase: Gateways, table: str) -> tuple[str, str]:
    """A table's URLs through Thrift2 and Thrift1."""
    # The default deadline: the test's open connections must not idle until the gateway closes them.
    return (
        f"hbase://{hbase.host}:{hbase.thrift2_port}/{table}",
        f"hbase+thrift1://{hbase.host}:{hbase.thrift1_port}/{table}",
    )


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    """A PostgreSQL for the tests of this process; a test that breaks a server must start a new one."""
    with postgresql_serving() as server:
        yield server


@pytest.fixture(scope="session")
def _redis_of_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_running(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_server(_redis_of_worker: RedisServer) -> RedisServer:
    """A Redis without keys, because creating, checking or dropping an index scans every key; tests must not stop it."""
    import redis

    with closing(redis.Redis(port=_redis_of_worker.port)) as client:
        client.flushall()
    return _redis_of_worker


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A plain client for that server."""
    import redis

    with closing(redis.Redis(port=redis_server.port)) as client:
        yield client
