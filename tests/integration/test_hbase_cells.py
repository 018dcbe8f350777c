"""What the model's cells do, on a real HBase through both of its gateways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hsimhash.store.hbase.address import Address
from hsimhash.store.hbase.gateway import Gateway
from hsimhash.store.hbase.operations import make_table, open_gateway
from hsimhash.store.hbase.table import TableSettings
from tests.support.hbase_server import Gateways
from tests.test_hbase_model import *  # noqa: F403  (its tests, on another gateway)

del TestTheModelAlone  # noqa: F821


@pytest.fixture(scope="module", params=["thrift2", "thrift1"])
def gateway(
    request: pytest.FixtureRequest, hbase: Gateways, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A gateway to a table of these tests; made through Thrift2, for Thrift1 cannot."""
    table = tmp_path_factory.mktemp(f"cells-{request.param}").name
    thrift2 = f"hbase://{hbase.host}:{hbase.thrift2_port}/{table}"
    thrift1 = f"hbase+thrift1://{hbase.host}:{hbase.thrift1_port}/{table}"
    with open_gateway(Address.parse(thrift2)) as gateway:
        make_table(gateway, TableSettings())
        with open_gateway(Address.parse(thrift2 if request.param == "thrift2" else thrift1)) as opened:
            yield opened
        gateway.delete_table()
