"""A write that a gateway carries out long after its client gave up, on a real HBase through both of its gateways."""

from __future__ import annotations

import threading

import pytest

from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.store.hbase.rows.cells import register_key
from tests.support.hbase_server import Gateways
from tests.support.hbase_tables import table_url
from tests.support.tcp_proxy import proxied

PATIENCE_S = 120
IDS = [f"document {number}" for number in range(100)]
BEFORE, AFTER = 0x0123456789ABCDEF, 0xFEDCBA9876543210


class Held:
    """Holds back the first request that puts registers until it is released; signals when its reply has arrived."""

    def __init__(self) -> None:
        self.released, self.landed = threading.Event(), threading.Event()
        self._first = threading.Lock()  # the first such request takes it and never releases it

    def let_pass(self, data: bytes) -> None:
        is_put = any(method in data for method in (b"putMultiple", b"mutateRows"))
        if is_put and register_key(IDS[0].encode())[0] in data and self._first.acquire(blocking=False):
            self.released.wait(PATIENCE_S)

    def delay(self, _: int) -> float:
        if self.released.is_set():
            self.landed.set()
        return 0


@pytest.mark.parametrize("scheme", ["hbase", "hbase+thrift1"])
@pytest.mark.parametrize("later", ["move", "removal"])
def test_registers_that_land_late_undo_no_later_write_of_an_exclusive_writer(
    hbase: Gateways, table: str, scheme: str, later: str
) -> None:
    held, thrift2 = Held(), table_url(hbase, table)
    port = hbase.thrift2_port if scheme == "hbase" else hbase.thrift1_port
    HSimIndex.create(thrift2, layout=Layout.named("4")).close()
    with proxied(port, held.delay, held.let_pass) as proxy:
        url = f"{scheme}://127.0.0.1:{proxy.port}/{table}?timeout=2s&deadline=60s&exclusive=yes"
        with HSimIndex.open(url) as index:
            assert index.add_many([BEFORE] * len(IDS), IDS) == len(IDS)
            if later == "move":
                assert index.add_many([AFTER] * len(IDS), IDS) == len(IDS)
            else:
                assert index.remove(IDS) == len(IDS)
        held.released.set()
        assert held.landed.wait(PATIENCE_S)
    with HSimIndex.open(thrift2) as index:
        left = {match.doc_id for match in index.query(AFTER if later == "move" else BEFORE)}
        assert left == (set(IDS) if later == "move" else set())
        assert index.check().problems == 0
