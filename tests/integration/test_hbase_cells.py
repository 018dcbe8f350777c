"""The tests of the model's cells on a real HBase, through both of its gateways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Gateway
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from tests.support.hbase_server import Gateways
from tests.support.hbase_tables import new_table, table_url, thrift1_url
from tests.test_hbase_model import *  # noqa: F403  (its tests, on another gateway)

del TestTheModelAlone  # noqa: F821


@pytest.fixture(scope="module", params=["thrift2", "thrift1"])
def gateway(request: pytest.FixtureRequest, hbase: Gateways) -> Iterator[Gateway]:
    """A gateway to a table of these tests. Thrift2 creates the table because Thrift1 cannot."""
    with new_table(hbase, TableSettings()) as name:
        url_of = table_url if request.param == "thrift2" else thrift1_url
        with open_gateway(Address.parse(url_of(hbase, name))) as opened:
            yield opened
