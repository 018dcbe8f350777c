"""The `hsimhash doctor` checks of what region servers report: store files, locality, cache, hot regions."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from hsimhash.store.checkup import Check
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.table import compact_line
from hsimhash.store.reports import Region, RegionLoad, ServerLoad, load_of

FILES_WORTH_A_COMPACTION = 2.0  # store files per family of a region; each file costs a query another seek
LEAST_LOCAL_PERCENT = 70.0
HOT_TIMES, HOT_REQUESTS = 4, 10_000  # minimum requests of a hot region: as a multiple of the median, and absolute
LEAST_REGIONS = 4  # with fewer regions, the median is not meaningful


def region_server_checks(address: Address, regions: Sequence[Region], loads: Sequence[ServerLoad]) -> Iterator[Check]:
    """Check the table's regions and their servers; for servers that do not respond, report only that."""
    silent = [load.problem for load in loads if load.problem]
    answering = [load for load in loads if not load.problem]
    if silent:
        message = (
            f"{len(silent)} of {len(loads)} do not respond on their info port ({silent[0]}), so their files, locality, "
            f"cache and requests are unknown; set info_port= in the URL to the value of hbase.regionserver.info.port, "
            f"and open that port to this machine"
        )
        yield Check("region servers", "warn", message)
    known = [(region, load) for region in regions if (load := load_of(region, answering))]
    if answering and not known:
        message = "unknown, as are the requests: the regions are new, or this user cannot read hbase:meta"
        yield Check("store files", "ok", message)
    if known:
        yield _check_files(address, [load for _, load in known])
        yield _check_requests(known)
    if answering:
        yield from _check_percents(address, answering)


def _check_files(address: Address, loads: Sequence[RegionLoad]) -> Check:
    files, most = sum(load.store_files for load in loads), max(load.store_files for load in loads)
    families, waiting = sum(load.families for load in loads), sum(load.compactions_waiting for load in loads)
    said = f"{files:,} in {len(loads):,} regions, at most {most:,} in one; compactions waiting: {waiting:,}"
    if files <= families:
        return Check("store files", "ok", said)
    said += (
        f"; in hbase shell: {compact_line(address)} leaves one file per family, which halves query times after loads"
    )
    return Check("store files", "warn" if files > FILES_WORTH_A_COMPACTION * families else "ok", said)


def _check_requests(known: Sequence[tuple[Region, RegionLoad]]) -> Check:
    requests = [load.requests for _, load in known]
    region, hottest = max(known, key=lambda one: one[1].requests)
    times = hottest.requests / max(statistics.median(requests), 1)
    said = f"{sum(requests):,} since each region was opened; the most in {region.segments} on {region.server}"
    said += f": {hottest.requests:,}"
    if hottest.requests < HOT_REQUESTS:
        return Check("requests", "ok", said)
    said += f", {times:.1f} times the median"
    if len(known) < LEAST_REGIONS or times <= HOT_TIMES:
        return Check("requests", "ok", said)
    return Check(
        "requests",
        "warn",
        f"{said}; a hot region: see 'hsimhash status'; to split it, in hbase shell: split '{hottest.name}'",
    )


def _check_percents(address: Address, loads: Sequence[ServerLoad]) -> Iterator[Check]:
    """Report the numbers that servers return for all of their tables together; warn only about low locality."""
    local = [(load.local_percent, load.server) for load in loads if load.local_percent is not None]
    if local:
        said = f"{_range_of(local)} of each server's store files, across all tables, are on its own machine"
        if max(local)[0] == 0:
            yield Check("locality", "ok", f"{said}: normal on an object store, or if DataNodes run elsewhere")
        elif min(local)[0] < LEAST_LOCAL_PERCENT:
            remedy = (
                f"in hbase shell: {compact_line(address)} rewrites the table's files on the servers of their regions"
            )
            yield Check("locality", "warn", f"{said}; {remedy}")
        else:
            yield Check("locality", "ok", said)
    cached = [(load.cache_hit_percent, load.server) for load in loads if load.cache_hit_percent is not None]
    if cached:
        said = f"{_range_of(cached)} of each server's look-ups, across all tables, since it started"
        yield Check("block cache", "ok", f"hits: {said}")


def _range_of(percents: Sequence[tuple[float, str]]) -> str:
    (least, where), (most, _) = min(percents), max(percents)
    return f"{least:.0f} %" if len(percents) == 1 else f"{least:.0f} ({where}) to {most:.0f} %"
