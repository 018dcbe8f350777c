"""The contract of every store, on a real HBase through both of its gateways."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from hsimhash.store import Record, Store, open_store
from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.gateways import open_gateway
from hsimhash.store.hbase.operations import create_hbase_store, make_table
from hsimhash.store.hbase.protocol import Times
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.hbase.table import TableSettings
from tests.support.hbase_server import Gateways
from tests.support.hbase_tables import new_table, table_url
from tests.support.places import Place
from tests.test_claims import *  # noqa: F403  (likewise)
from tests.test_store_contract import *  # noqa: F403  (its tests, at another place)


@pytest.fixture(params=["thrift2", "thrift1"])
def place(request: pytest.FixtureRequest, hbase: Gateways) -> Iterator[Place]:
    """New tables; made through Thrift2, for Thrift1 cannot."""
    is_first = request.param == "thrift1"
    with ExitStack() as tables:

        def new_url() -> str:
            name = tables.enter_context(new_table(hbase))
            thrift1 = f"hbase+thrift1://{hbase.host}:{hbase.thrift1_port}/{name}"
            return thrift1 if is_first else f"hbase://{hbase.host}:{hbase.thrift2_port}/{name}"

        def create(store_url: str, record: Record) -> Store:
            with open_gateway(Address.parse(table_url(hbase, Address.parse(store_url).table))) as gateway:
                if is_first and not gateway.exists():
                    make_table(gateway, TableSettings())
            return create_hbase_store(store_url, record, TableSettings())

        yield Place(new_url, create, open_store, settle)


def settle(store: Store) -> None:
    assert isinstance(store, HBaseStore)
    store.times = Times(settled_s=0, forgotten_s=0)
    assert store.check(repair=True).is_sound
