"""The checks that `hsimhash doctor` runs on HBase: first each gateway, then the table.

A gateway uses a separate thread for each connection. It has 1,000 threads unless it was started with `-w`, and lets
another 1,000 connections wait without a reply. With the framed transport, it can be started with `-threadedselector`,
so that connections do not need threads. Because threads are limited, `--load N` opens the connections of N processes at
once, and times the last one.
"""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import groupby

from hsimhash.durations import ttl_in_words
from hsimhash.errors import CorruptionError, HsimhashError, IndexNotFoundError, StoreUnavailableError
from hsimhash.rowkey import RECORD_ROWKEY, ROWKEY_BYTES
from hsimhash.store.base import RECORD_PARTS
from hsimhash.store.checkup import READS, Check, check_read, check_record, check_relayout, median_ms
from hsimhash.store.hbase.gateway.address import Address, Endpoint
from hsimhash.store.hbase.gateway.base import RECORD_FAMILY, Deletion, Gateway, Put, Table
from hsimhash.store.hbase.gateway.connection import Connection, server_type_at, tls_context
from hsimhash.store.hbase.gateway.failures import explain_failure, reason
from hsimhash.store.hbase.gateway.info_port import server_loads
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings, described, families, missing_families
from hsimhash.store.hbase.operations import check_enabled, open_at
from hsimhash.store.hbase.region_checkup import region_server_checks
from hsimhash.store.hbase.store import HBaseStore, compared_by_record, has_record, ttl_difference
from hsimhash.store.reports import Region

WORRYING_SKEW_S, WRONG_SKEW_S = 60.0, 600.0  # the write protocol requires clocks that are correct to within 10 minutes
_PROBE = b"doctor"  # qualifier of a cell that is written and then deleted
_MANY_REGIONS = 200  # maximum regions per server without a warning
WORKERS, MOST_FULL = 1_000, 0.8  # threads of a gateway started without -w, and the maximum share of them in use
SLOW_S = 1.0
_SPARE_FILES = 64
ADVICE = (
    "processes x connections should be at most 0.8 x threads x gateways: add gateways, lower connections=, start the "
    "gateways with -w 4000, or start them with -threadedselector and set transport=framed"
)


def checks(url: str, *, writes: bool, processes: int | None = None) -> Iterator[Check]:
    """Run all checks, except those that depend on a failed one.

    With `processes`, also check whether the gateways can handle the connections of that many processes.
    """
    address = _impatient(url)
    spoken: dict[Endpoint, int] = {}
    for endpoint in address.gateways:
        yield from _check_gateway(endpoint, address, spoken)
    if not spoken:
        return
    if len(set(spoken.values())) > 1:
        yield Check("gateways", "fail", "some speak Thrift1 and some Thrift2; use gateways of one kind")
        return
    answering = replace(address, gateways=tuple(spoken))
    if processes is not None:
        yield from load_checks(answering, processes)
    try:
        with open_gateway(answering) as gateway:
            table = described(gateway)
            yield from _check_table(gateway, answering, table)
            yield from _check_index(url, answering, gateway, table, writes=writes)
    except HsimhashError as error:
        yield Check.failed("table", error)


def quick_checks(url: str) -> Iterator[Check]:
    """Check whether any gateway can read the index."""
    try:
        with open_at(url, address=_impatient(url)) as store:
            yield check_record(store.record)
    except HsimhashError as error:
        yield Check.failed("index", error)


def _impatient(url: str) -> Address:
    """Return the address with a deadline of one time-out, so that checks fail quickly."""
    address = Address.parse(url)
    return replace(address, options=replace(address.options, deadline_s=address.options.timeout_s))


def _check_gateway(endpoint: Endpoint, address: Address, spoken: dict[Endpoint, int]) -> Iterator[Check]:
    name = f"gateway {endpoint}"
    try:
        found = sorted({str(info[4][0]) for info in socket.getaddrinfo(*endpoint, type=socket.SOCK_STREAM)})
        yield Check(name, "ok", f"resolves to {', '.join(found)}")
        kind = server_type_at(endpoint, address)
        milliseconds = median_ms(lambda: server_type_at(endpoint, address))
    except Exception as error:  # a service that is not a gateway may return anything
        yield Check.failed(name, StoreUnavailableError(explain_failure(endpoint, address, error)))
        return
    spoken[endpoint] = kind
    how = "HTTP" if address.is_http else f"transport={address.options.transport}, protocol={address.options.protocol}"
    said = f"responds as Thrift{kind}, {how}: {milliseconds:.2f} ms to connect and respond (median of {READS})"
    if kind == 1:
        yield Check(
            name, "warn", f"{said}; Thrift2 is faster and can create the table; start it with 'hbase thrift2 start'"
        )
    else:
        yield Check(name, "ok", said)


def _check_table(gateway: Gateway, address: Address, table: Table | None) -> Iterator[Check]:
    name = f"table {address.full_table.decode()}"
    if table is None:
        raise IndexNotFoundError(f"there is no {name}; check the URL, or create the table with 'hsimhash create-table'")
    missing = missing_families(table)
    if len(missing) == len(families(TableSettings())):  # if only some are missing, the index has lost them
        raise IndexNotFoundError(
            f"{name} exists, but does not belong to an index: it lacks the column families {', '.join(missing)}; "
            f"choose another table name"
        )
    check_enabled(gateway, address)
    yield Check(name, "ok", "exists")
    if not table.is_complete:
        yield Check(
            "settings", "warn", "the gateway does not report the table's settings; run 'describe' in hbase shell"
        )
        return
    if RECORD_FAMILY.decode() not in missing and not has_record(gateway):
        return  # there is no index; its settings may differ from the defaults
    differing = [step for step in compared_by_record(gateway, address, table) if step.sign != "="]
    for line, same_line in groupby(differing, lambda step: step.line):
        steps = list(same_line)
        said = f"{'; '.join(step.text for step in steps)}; in hbase shell: {line}"
        if not table.has_one_ttl and any(step.attribute == "TTL" for step in steps):
            said += "; or, to change the index's TTL, alter the other family too, then run 'hsimhash doctor' again"
        yield Check("settings", "fail" if any(step.sign == "+" for step in steps) else "warn", said)
    if not differing:
        yield Check("settings", "ok", "match those that 'hsimhash create-table' sets")


def _check_index(url: str, address: Address, gateway: Gateway, table: Table | None, *, writes: bool) -> Iterator[Check]:
    try:
        store = HBaseStore.open(url, gateway)
        yield check_record(store.record)
        yield from check_relayout(store)
        if table and (said := ttl_difference(url, gateway, table)):
            yield Check("ttl", "warn", said)
        elif table and table.is_complete and table.has_one_ttl:
            yield Check("ttl", "ok", ttl_in_words(int(store.times.ttl_s or 0)))
        regions = gateway.regions()
        yield _check_regions(regions)
        yield from region_server_checks(address, regions, server_loads(address, regions))
        milliseconds = median_ms(lambda: gateway.get([(RECORD_ROWKEY, RECORD_PARTS[0])], RECORD_FAMILY))
        yield Check("round trip", "ok", f"one get: {milliseconds:.2f} ms (median of {READS})")
        yield check_read(store)
        if writes:
            yield from write_checks(gateway)
        else:
            yield check_stamps(gateway)
    except HsimhashError as error:
        yield Check.failed("record" if isinstance(error, (IndexNotFoundError, CorruptionError)) else "index", error)


def _check_regions(regions: Sequence[Region]) -> Check:
    servers = len({region.server for region in regions} - {""})
    if homeless := sum(not region.server for region in regions):
        return Check("regions", "fail", f"{homeless} of {len(regions)} are not on any server; run 'hbase hbck'")
    said = f"{len(regions)}, on region servers: {servers}"
    if len(regions) == 1:
        remedy = "if there are more servers, split the region in hbase shell with 'split'"
        return Check("regions", "warn", f"{said}: one server carries the whole load; {remedy}")
    if len(regions) > _MANY_REGIONS * servers:
        return Check("regions", "warn", f"{said}: more than {_MANY_REGIONS} per server; merge some in hbase shell")
    return Check("regions", "ok", said)


def check_stamps(gateway: Gateway) -> Check:
    """Compare the record's timestamps with this machine's clock, without writing anything."""
    cells = gateway.get([(RECORD_ROWKEY, part) for part in RECORD_PARTS], RECORD_FAMILY)
    ahead_s = max((cell.timestamp for cell in cells if cell is not None), default=0) / 1_000 - time.time()
    if ahead_s > WORRYING_SKEW_S:
        return Check(
            "clock",
            "warn",
            f"the record's timestamps are {ahead_s:.0f} s ahead of this machine's clock; synchronize clocks with NTP",
        )
    return Check(
        "clock",
        "ok",
        "no timestamp in the record is ahead of this machine's clock; 'hsimhash doctor --write' checks the clock of "
        "every server",
    )


def write_checks(gateway: Gateway) -> Iterator[Check]:
    """On each server, write a cell to one region, in a row that an index does not use, and delete it."""
    rows = {one.server: one.start.ljust(ROWKEY_BYTES, b"\x00") for one in gateway.regions() if one.server}
    skews = []
    for server, row in rows.items():
        began, began_s = time.perf_counter(), time.time()
        try:
            gateway.put([Put(row, RECORD_FAMILY, _PROBE, b"")])
            milliseconds = 1_000 * (time.perf_counter() - began)
            ended_s = time.time()
            (cell,) = gateway.get([(row, _PROBE)], RECORD_FAMILY)
            if cell is None:
                raise CorruptionError(f"a cell was written to server {server}, but cannot be read back")
            gateway.delete([Deletion(row, RECORD_FAMILY, _PROBE, cell.timestamp)])
        except HsimhashError as error:
            yield Check.failed(f"write {server}", error)
            continue
        skews.append(cell.timestamp / 1_000 - (began_s + ended_s) / 2)
        yield Check(f"write {server}", "ok", f"one put: {milliseconds:.2f} ms; wrote, read and deleted a cell")
        yield _check_skew(server, skews[-1])
    if len(skews) > 1:
        yield _check_skew("fastest vs. slowest server", max(skews) - min(skews))


def _check_skew(who: str, skew_s: float) -> Check:
    said = f"{abs(skew_s):.2f} s {'ahead' if skew_s > 0 else 'behind'}"
    if abs(skew_s) < WORRYING_SKEW_S:
        return Check(f"clock {who}", "ok", said)
    return Check(
        f"clock {who}", "fail" if abs(skew_s) > WRONG_SKEW_S else "warn", f"{said}; synchronize all clocks with NTP"
    )


def load_checks(address: Address, processes: int) -> Iterator[Check]:
    """Open the connections of `processes` processes; report how long the last one waited for a reply."""
    connections, gateways = address.options.connections, len(address.gateways)
    wanted = processes * connections
    said = (
        f"connections: {wanted} ({processes} x {connections} per process); threads: {WORKERS * gateways} "
        f"({gateways} x {WORKERS} per gateway started without -w)"
    )
    is_fit = wanted <= MOST_FULL * WORKERS * gateways
    yield Check("size", "ok", said) if is_fit else Check("size", "warn", f"{said}: {ADVICE}")
    yield _open_all(address, min(wanted, _most_files()))


def _open_all(address: Address, count: int) -> Check:
    context, timeout_s = tls_context(address), address.options.timeout_s
    seconds = 0.0
    with ExitStack() as opened:
        for number in range(count):
            endpoint = address.gateways[number % len(address.gateways)]
            began = time.perf_counter()
            try:
                connection = Connection(endpoint, address, context, timeout_s=timeout_s)
                opened.enter_context(closing(connection))
                connection.server_type()
            except Exception as error:  # an overloaded gateway may return anything
                why = f"does not respond on connection {number + 1} of {count}: {reason(error, timeout_s)}"
                return Check("load", "fail", f"gateway {endpoint} {why}; {ADVICE}")
            seconds = time.perf_counter() - began
    said = f"opened {count} connections at once: all got a reply, the last one after {1_000 * seconds:.1f} ms"
    return Check("load", "ok" if seconds < SLOW_S else "warn", said)


def _most_files() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft - _SPARE_FILES
