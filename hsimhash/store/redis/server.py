"""Facts that a Redis server reports: its version, memory, role and persistence.

Servers often forbid or rename INFO and CONFIG, so nothing else depends on these commands.
"""

from __future__ import annotations

from hsimhash.errors import HsimhashError, StoreUnavailableError, plural
from hsimhash.store.redis.session import RedisSession, redis_library

UNKNOWN = "unknown"


def info_of(session: RedisSession) -> dict[str, str]:
    """Return the fields of INFO by name, or no fields if the server rejects the command."""
    try:
        lines = session.call("INFO").decode(errors="replace").splitlines()
    except StoreUnavailableError as error:
        if isinstance(error.__cause__, redis_library().exceptions.ResponseError):
            return {}
        raise
    pairs = (line.partition(":") for line in lines if ":" in line)
    return {name: value for name, _, value in pairs}


def config_of(session: RedisSession, name: str) -> str | None:
    """Return a setting of the server, or None if the server does not report it."""
    try:
        found = session.call("CONFIG", "GET", name)
    except HsimhashError:
        return None
    return found[1].decode() if found else None


def persistence_of(info: dict[str, str], fsync: str | None, save: str | None) -> str:
    """Return a description of how the server persists its data."""
    if not info:
        return UNKNOWN
    ways = []
    if info.get("aof_enabled") == "1":
        ways.append(f"AOF, appendfsync {fsync or 'unknown'}")
    if save:
        ways.append(f"snapshots, save {save}")
    replicas = int(info.get("connected_slaves", "0"))
    if replicas:
        ways.append(plural(replicas, "replica"))
    return "; ".join(ways) or "none"


def server_facts(session: RedisSession) -> dict[str, str | int]:
    """Return facts for `describe`; byte counts include everything on the server."""
    info = info_of(session)
    return {
        "server": f"{session.address.place}, Redis {info.get('redis_version', UNKNOWN)}, {info.get('role', UNKNOWN)}",
        "persistence": persistence_of(info, config_of(session, "appendfsync"), config_of(session, "save")),
        "eviction": info.get("maxmemory_policy", UNKNOWN),
        "server_used_bytes": int(info["used_memory"]) if info else UNKNOWN,
        "server_most_bytes": int(info.get("maxmemory", "0")) if info else UNKNOWN,
    }
