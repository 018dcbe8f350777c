"""Regions as a gateway tells them: with replicas, and without a server."""

from __future__ import annotations

from hsimhash.store.facts import Region
from hsimhash.store.hbase import thrift1, thrift2
from hsimhash.store.hbase.connection import THRIFT2

MIDDLE = b"\x80,1_0001.\n"
DIGEST = "0123456789abcdef" * 2
REGIONS = [Region(b"", MIDDLE, "one:16020"), Region(MIDDLE, b"", "")]


def test_thrift2_tells_each_region_once() -> None:
    def location(start: bytes, stop: bytes, server: str | None, replica: int | None) -> object:
        info = THRIFT2.THRegionInfo(regionId=1, tableName=b"t", startKey=start, endKey=stop, replicaId=replica)
        name = THRIFT2.TServerName(hostName=server, port=16020) if server else None
        return THRIFT2.THRegionLocation(serverName=name, regionInfo=info)

    locations = [
        *(location(MIDDLE, b"", None, replica) for replica in (None, 1)),
        *(location(b"", MIDDLE, ("one", "two")[replica], replica) for replica in (1, 0)),
    ]
    assert thrift2.regions_of_locations(locations) == REGIONS


def test_thrift1_tells_each_region_once() -> None:
    def info(start: bytes, stop: bytes, server: bytes | None, replica: str) -> object:
        name = b"t," + start + f",1700000000000{replica}.{DIGEST}.".encode()
        return thrift1.HBASE.TRegionInfo(startKey=start, endKey=stop, name=name, serverName=server, port=16020)

    infos = [
        *(info(MIDDLE, b"", None, replica) for replica in ("", "_0001")),
        info(b"", MIDDLE, b"two", "_000A"),
        info(b"", MIDDLE, b"one", ""),
    ]
    assert thrift1.regions_of_infos(infos) == REGIONS
