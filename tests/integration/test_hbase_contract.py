"""The contract of every store, on a real HBase through both of its gateways."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from hsimhash.store import Record, Store, open_store
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.operations import create_hbase_store, make_table, open_gateway
from hsimhash.store.hbase.protocol import Times
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.table import TableSettings
from tests.support.hbase_server import Gateways
from tests.test_store_contract import *  # noqa: F403  (its tests, at another place)
from tests.test_store_contract import Place

_numbers = itertools.count()


@pytest.fixture(params=["thrift2", "thrift1"])
def place(request: pytest.FixtureRequest, hbase: Gateways, tmp_path: Path) -> Iterator[Place]:
    """New tables; made through Thrift2, for Thrift1 cannot."""
    is_first = request.param == "thrift1"
    made: list[str] = []

    def url(scheme: str, port: int, table: str) -> str:
        return f"{scheme}://{hbase.host}:{port}/{table}"

    def new_url() -> str:
        made.append(f"contract-{tmp_path.parent.name}-{tmp_path.name}-{next(_numbers)}")
        return (
            url("hbase+thrift1", hbase.thrift1_port, made[-1])
            if is_first
            else url("hbase", hbase.thrift2_port, made[-1])
        )

    def admin_url(table: str) -> str:
        return url("hbase", hbase.thrift2_port, table)

    def create(store_url: str, record: Record) -> Store:
        with open_gateway(Address.parse(admin_url(made[-1]))) as gateway:
            if is_first and not gateway.exists():
                make_table(gateway, TableSettings())
        return create_hbase_store(store_url, record, TableSettings())

    def settle(store: Store) -> None:
        assert isinstance(store, HBaseStore)
        store.times = Times(settled_s=0, forgotten_s=0)
        assert store.check(repair=True).is_sound

    yield Place(new_url, create, open_store, settle)
    for table in made:
        with open_gateway(Address.parse(admin_url(table))) as gateway:
            if gateway.exists():
                gateway.delete_table()
