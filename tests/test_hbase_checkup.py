"""What `doctor` reports about clocks, writes and region servers, on the model of a cluster whose servers differ."""

from __future__ import annotations

import time

import pytest

from hsimhash.errors import StoreUnavailableError
from hsimhash.layout import Layout
from hsimhash.store import Record
from hsimhash.store.hbase.checkup import check_stamps, write_checks
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.base import Put
from hsimhash.store.hbase.region_checkup import region_server_checks
from hsimhash.store.hbase.store import HBaseStore
from hsimhash.store.reports import Region, RegionLoad, ServerLoad
from tests.support.hbase_model import Cluster, ModelGateway


class TwoServers(ModelGateway):
    """Two regions whose rows of zeros are stamped by the model's first two clocks; the second may refuse writes."""

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
        "clock fastest vs. slowest server": expected["among"],
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


ADDRESS = Address.parse("hbase://gateway/crawl:pages")
REGIONS = [Region(bytes([number]), bytes([number + 1]), f"{'ab'[number % 2]}:16020") for number in range(6)]


def told(loads: list[ServerLoad]) -> dict[str, tuple[str, str]]:
    return {one.name: (one.status, one.message) for one in region_server_checks(ADDRESS, REGIONS, loads)}


def loads(requests: list[int], files: int, *local: float | None) -> list[ServerLoad]:
    own = [RegionLoad(f"{number:032x}", 3, files, 0, count) for number, count in enumerate(requests)]
    return [
        ServerLoad(server, {region.start: load for region, load in zip(REGIONS, own, strict=True)}, percent)
        for server, percent in zip(("a:16020", "b:16020"), local, strict=True)
    ]


@pytest.mark.parametrize(
    ("requests", "files", "local", "warned"),
    [
        ([10_000] * 6, 3, (100, 90), set()),
        ([10_000] * 6, 6, (100, 70), set()),
        ([10_000] * 6, 7, (100, 90), {"store files"}),
        ([10_000] * 6, 3, (100, 69), {"locality"}),
        ([10_000] * 6, 3, (0, 0), set()),  # an object store
        ([10_000] * 6, 3, (None, 50), {"locality"}),
        ([10_000] * 5 + [40_000], 3, (None, None), set()),
        ([10_000] * 5 + [40_001], 3, (None, None), {"requests"}),
        ([0] * 5 + [9_999], 3, (None, None), set()),
    ],
)
def test_region_servers_are_judged_by_the_bounds_in_the_page(
    requests: list[int], files: int, local: tuple[float | None, ...], warned: set[str]
) -> None:
    found = told(loads(requests, files, *local))
    assert {name for name, (status, _) in found.items() if status == "warn"} == warned
    assert ("major_compact 'crawl:pages'" in found["store files"][1]) == (files > 3)


def test_a_silent_region_server_leaves_the_others_judged() -> None:
    answering, _ = loads([10_000] * 6, 7, 100, 100)
    found = told([answering, ServerLoad("b:16020", problem="b:16030: no reply within 2 s")])
    assert "1 of 2 do not respond on their info port (b:16030: no reply within 2 s)" in found["region servers"][1]
    assert found["store files"][0] == "warn"
    assert found["store files"][1].startswith("21 in 3 regions")
