"""Read what region servers report about a table's regions, in JSON on their info port (`/jmx`).

Gateways do not pass these reports on. The reports use the region names in `hbase:meta`, so this module reads that
table, too. A server that does not respond, or another service on its port, never causes an error here; the report
describes the problem.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

from hsimhash.errors import HsimhashError
from hsimhash.store.hbase.gateway.address import DEFAULT_NAMESPACE, Address
from hsimhash.store.hbase.gateway.failures import reason
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.reports import Region, RegionLoad, ServerLoad
from hsimhash.store.urls import host_text

TIMEOUT_S = 2.0  # for all requests to one server
_TOTAL_S = 6.0  # for all servers together
_AT_ONCE = 32
_PIECE_BYTES, _MOST_BYTES = 1 << 16, 1 << 28
_META_ROWS = 1_000  # rows of `hbase:meta` in one call
_PAUSE_S = 0.2
_NAME = "tag.serverName"  # its value is HOST,PORT,START
_REGION = re.compile(r"_region_([0-9a-f]{32})_metric_(\w+)")


def server_loads(address: Address, regions: Iterable[Region]) -> tuple[ServerLoad, ...]:
    """Return the reports of the servers that host the regions, ordered by server name."""
    servers = sorted({region.server for region in regions} - {""})
    starts, end_s = region_starts(address), time.monotonic() + _TOTAL_S
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return tuple(pool.map(partial(_load, address.options.info_port, starts, end_s), servers))


def region_starts(address: Address) -> dict[str, bytes]:
    """Return each region's start key, keyed by its encoded name; empty if this user may not read `hbase:meta`."""
    table = address.full_table.removeprefix(f"{DEFAULT_NAMESPACE}:".encode())
    starts, row, stop = dict[str, bytes](), table + b",,", table + b"-"
    try:
        with open_gateway(replace(address, namespace="hbase", table="meta")) as gateway:
            while True:
                found = [cells[0].row for cells in gateway.rows(row, stop, b"info", limit=_META_ROWS)]
                for name in found:  # TABLE,START,TIME.NAME. with any bytes in START
                    start, _, rest = name.removeprefix(table + b",").rpartition(b",")
                    starts[rest.split(b".")[1].decode()] = start
                if len(found) < _META_ROWS:
                    return starts
                row = found[-1] + b"\x00"
    except HsimhashError:
        return {}


def _load(port: int, starts: Mapping[str, bytes], end_s: float, server: str) -> ServerLoad:
    host = server.rpartition(":")[0]
    try:
        with closing(http.client.HTTPConnection(host, port)) as connection:
            own, of_regions = _beans(connection, min(end_s, time.monotonic() + TIMEOUT_S))
        answering = ":".join(own[_NAME].split(",")[:2])
        if answering != server:
            raise ValueError(f"another region server uses this port: {answering}")
        return _read_load(server, own, of_regions, starts)
    except Exception as error:  # a service that is not a region server may return anything
        return ServerLoad(server, problem=f"{host_text(host, port)}: {reason(error, TIMEOUT_S)}")


def _beans(connection: http.client.HTTPConnection, end_s: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metrics of the server and of its regions.

    Retries, because all metrics disappear for a moment when HBase opens or closes a region.
    """
    while True:
        own, of_regions = (_bean(connection, sub, end_s) for sub in ("Server", "Regions"))
        if _NAME in own and of_regions:
            return own, of_regions
        if time.monotonic() + _PAUSE_S > end_s:
            raise ValueError("it does not return region server metrics")
        time.sleep(_PAUSE_S)


def _bean(connection: http.client.HTTPConnection, sub: str, end_s: float) -> dict[str, Any]:
    def wait() -> None:
        connection.timeout = end_s - time.monotonic()
        if connection.timeout <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)

    wait()
    connection.request("GET", f"/jmx?qry=Hadoop:service=HBase,name=RegionServer,sub={sub}")
    wait()
    body = bytearray()
    with connection.getresponse() as response:
        if response.status != http.client.OK:
            raise OSError(f"HTTP {response.status} {response.reason}")
        while piece := response.read1(_PIECE_BYTES):
            body += piece
            if len(body) > _MOST_BYTES:
                raise ValueError("its response is too long")
            wait()
    try:
        found = json.loads(body)["beans"]
        return dict(found[0]) if found else {}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError("it does not return JSON metrics at /jmx") from error


def _read_load(
    server: str, own: Mapping[str, Any], of_regions: Mapping[str, Any], starts: Mapping[str, bytes]
) -> ServerLoad:
    values: dict[str, dict[str, int]] = {}
    for key, value in of_regions.items():
        found = _REGION.search(key)
        if found and found[1] in starts:
            values.setdefault(found[1], {})[found[2]] = value
    looked_up = own["blockCacheHitCount"] + own["blockCacheMissCount"]
    return ServerLoad(
        server,
        {starts[name]: _region_load(name, one) for name, one in values.items()},
        local_percent=own["percentFilesLocal"] if own["storeFileSize"] else None,
        cache_hit_percent=100 * own["blockCacheHitCount"] / looked_up if looked_up else None,
    )


def _region_load(name: str, values: Mapping[str, int]) -> RegionLoad:
    return RegionLoad(
        name,
        values["storeCount"],
        values["storeFileCount"],
        values["compactionsQueuedCount"],
        values["readRequestCount"] + values["writeRequestCount"],
    )
