"""What the doctor says of clocks and of writes, on the model of a cluster whose servers differ."""

from __future__ import annotations

import time

import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.layout import Layout
from hsimhash.store import Record
from hsimhash.store.hbase.checkup import check_stamps, write_checks
from hsimhash.store.hbase.gateway.base import Put
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.reports import Region
from tests.support.hbase_model import Cluster, ModelGateway


class TwoServers(ModelGateway):
    """Two regions, whose rows of zeros the model's first two clocks stamp; the second may refuse writes."""

    def __init__(self, *drifts_s: float, is_second_read_only: bool = False) -> None:
        super().__init__(Cluster())
        self.cluster.now = time.time_ns() // 1_000_000
        self.cluster.drifts = [*(round(1_000 * drift) for drift in drifts_s), 0]
        self.is_second_read_only = is_second_read_only

    def regions(self) -> list[Region]:
        middle = b"\x01\x00\x00\x00"
        return [Region(b"", middle, "one:16020"), Region(middle, b"", "two:16020")]

    def put(self, puts: list[Put]) -> None:
        if self.is_second_read_only and puts[0].row.startswith(b"\x01"):
            raise StoreUnavailableError("two:16020 is read-only")
        super().put(puts)


@pytest.mark.parametrize(
    ("drifts_s", "expected"),
    [
        ((0, 0), {"one": "ok", "two": "ok", "among": "ok"}),
        ((0, 70), {"one": "ok", "two": "warn", "among": "warn"}),
        ((-400, 400), {"one": "warn", "two": "warn", "among": "fail"}),
        ((0, -700), {"one": "ok", "two": "fail", "among": "fail"}),
    ],
)
def test_each_servers_clock_is_compared_and_the_cells_are_gone(
    drifts_s: tuple[float, float], expected: dict[str, str]
) -> None:
    gateway = TwoServers(*drifts_s)
    found = {check.name: check.status for check in write_checks(gateway)}
    assert found == {
        "write one:16020": "ok",
        "clock one:16020": expected["one"],
        "write two:16020": "ok",
        "clock two:16020": expected["two"],
        "clock the servers among themselves": expected["among"],
    }
    assert gateway.rows(b"", b"\xff" * 14, b"i", limit=9) == []


def test_a_server_that_refuses_writes_is_named_and_the_other_still_asked() -> None:
    found = {check.name: check.status for check in write_checks(TwoServers(0, 0, is_second_read_only=True))}
    assert found == {"write one:16020": "ok", "clock one:16020": "ok", "write two:16020": "fail"}


@pytest.mark.parametrize(("drift_s", "status"), [(0, "ok"), (-700, "ok"), (90, "warn")])
def test_a_record_from_the_future_warns_without_a_write(drift_s: float, status: str) -> None:
    gateway = TwoServers(drift_s, drift_s)
    gateway.cluster.drifts[2] = round(1_000 * drift_s)
    HBaseStore.create("hbase://model/t", gateway, Record(Layout.named("4"), {"name": "any"}))
    assert check_stamps(gateway).status == status
