"""The `hsimhash doctor` checks on Redis: server, persistence, eviction, memory, record."""

from __future__ import annotations

from collections.abc import Iterator

from hsimhash.errors import HsimhashError
from hsimhash.store.checkup import READS, Check, check_read, check_record, check_relayout, median_ms
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.operations import opened, session_at
from hsimhash.store.redis.server import config_of, info_of, persistence_of
from hsimhash.store.redis.session import RedisSession

_OLDEST = (6, 2)
_FULL = 0.8  # doctor warns if more than this share of the memory is in use
_UNTOLD = "the server does not report it; check redis.conf"


def checks(url: str, *, is_quick: bool = False, password: str | None = None) -> Iterator[Check]:
    """Run all checks, except those that depend on a failed check."""
    deadline_s = RedisAddress.parse(url).timeout_s  # short, because the user waits for the result
    try:
        with session_at(url, deadline_s=deadline_s, password=password) as session:
            if not is_quick:
                yield from _check_server(session)
            store = opened(session)
            yield check_record(store.record)
            if not is_quick:
                yield from check_relayout(store)
                yield check_read(store)
    except HsimhashError as error:
        yield Check.failed("index", error)


def _check_server(session: RedisSession) -> Iterator[Check]:
    milliseconds = median_ms(lambda: session.call("PING"))
    info = info_of(session)
    if not info:
        said = f"{session.address.place}; PING takes {milliseconds:.2f} ms (median of {READS})"
        yield Check(
            "server", "warn", f"{said}; the user cannot call INFO, so doctor cannot check the version, role and memory"
        )
        yield _check_persistence(session, info)
        yield _check_eviction(info)
        return
    version, role = info.get("redis_version", "unknown"), info.get("role", "unknown")
    said = f"{session.address.place}, Redis {version}, {role}; PING takes {milliseconds:.2f} ms (median of {READS})"
    numbers = tuple(int(one) for one in version.split(".")[:2] if one.isdigit())
    if numbers < _OLDEST:
        yield Check("server", "warn", f"{said}; hsimhash needs Redis 6.2 or newer")
    elif role == "slave":
        yield Check("server", "warn", f"{said}: a replica does not accept writes; use its master, or redis+sentinel://")
    else:
        yield Check("server", "ok", said)
    yield _check_persistence(session, info)
    yield _check_eviction(info)
    yield _check_memory(info)


def _check_persistence(session: RedisSession, info: dict[str, str]) -> Check:
    if not info:
        return Check("persistence", "warn", _UNTOLD)
    fsync, has_replicas = config_of(session, "appendfsync"), int(info.get("connected_slaves", "0")) > 0
    said = persistence_of(info, fsync, config_of(session, "save"))
    if info.get("aof_enabled") != "1" and not has_replicas:
        remedy = "set appendonly yes (with appendfsync always, no acknowledged write is lost), or add a replica"
        return Check("persistence", "warn", f"{said}: a crash loses recent writes; {remedy}")
    if info.get("aof_last_write_status", "ok") != "ok":
        return Check(
            "persistence", "fail", f"{said}: the last write to the AOF failed; check the server's log and disk"
        )
    if info.get("aof_enabled") == "1" and fsync == "no":
        return Check("persistence", "warn", f"{said}: a crash may lose writes; set appendfsync everysec or always")
    return Check("persistence", "ok", said)


def _check_eviction(info: dict[str, str]) -> Check:
    policy = info.get("maxmemory_policy")
    if policy is None:
        return Check("eviction", "warn", _UNTOLD)
    if policy == "noeviction":
        return Check("eviction", "ok", policy)
    if not policy.startswith("allkeys"):
        return Check("eviction", "ok", f"{policy}: the keys of an index do not expire, so they are not evicted")
    said = f"{policy} may delete parts of the index, so queries may miss documents; set maxmemory-policy noeviction"
    return Check("eviction", "fail" if int(info.get("maxmemory", "0")) else "warn", said)


def _check_memory(info: dict[str, str]) -> Check:
    used, most = int(info.get("used_memory", "0")), int(info.get("maxmemory", "0"))
    if not most:
        there = int(info.get("total_system_memory", "0"))
        said = f"{used >> 20:,} of the machine's {there >> 20:,} MiB in use; maxmemory is not set"
        return Check("memory", "warn" if there and used > _FULL * there else "ok", said)
    said = f"{used >> 20:,} of {most >> 20:,} MiB in use"
    if used > _FULL * most:
        return Check("memory", "warn", f"{said}: writes fail when the memory is full; raise maxmemory")
    return Check("memory", "ok", said)
