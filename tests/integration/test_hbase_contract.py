"""The contract of every store, on a real HBase through both of its gateways."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hsimhash.store.conformance.claims import *  # noqa: F403  (likewise)
from hsimhash.store.conformance.contract import *  # noqa: F403  (its tests, at another place)
from hsimhash.store.conformance.place import StorePlace
from tests.support.hbase_server import Gateways
from tests.support.places import hbase_place


@pytest.fixture(params=["thrift2", "thrift1"])
def place(request: pytest.FixtureRequest, hbase: Gateways) -> Iterator[StorePlace]:
    with hbase_place(hbase, is_first=request.param == "thrift1") as place:
        yield place
