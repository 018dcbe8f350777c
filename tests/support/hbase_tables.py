"""Tables for tests on a real HBase: each has its own name and is dropped at the end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import make_table
from tests.support.hbase_cluster import HBaseCluster
from tests.support.hbase_server import Gateways, HBaseServer

PATIENCE = "timeout=60s&deadline=120s"  # on a busy machine


Server = Gateways | HBaseServer | HBaseCluster


def table_url(server: Server, name: str) -> str:
    """Return the URL of a table through the server's own Thrift2 gateway."""
    return f"hbase://{server.host}:{server.thrift2_port}/{name}?{PATIENCE}"


def thrift1_url(server: Gateways | HBaseServer, name: str) -> str:
    """Return the URL of a table through the server's own Thrift1 gateway."""
    return f"hbase+thrift1://{server.host}:{server.thrift1_port}/{name}?{PATIENCE}"


@contextmanager
def new_table(server: Server, settings: TableSettings | None = None) -> Iterator[str]:
    """Yield the name of a table, created with the settings; without settings it does not exist yet."""
    name = f"test-{uuid.uuid4().hex}"
    address = Address.parse(table_url(server, name))
    if settings is not None:
        with open_gateway(address) as gateway:
            make_table(gateway, settings)
    yield name
    with open_gateway(address) as gateway:
        if gateway.exists():
            gateway.delete_table()
