"""Describe errors from a Redis server: the place, the cause and the remedy."""

from __future__ import annotations

from hsimhash.errors import HsimhashError, StoreUnavailableError, diagnose
from hsimhash.store.redis.address import RedisAddress

_REFUSED = "it rejected the user or password; check HSIMHASH_REDIS_PASSWORD, or password_file= in the URL"
_ASKED = "it requires a password; set HSIMHASH_REDIS_PASSWORD, or pass a file with password_file= in the URL"
_FORBIDDEN = "its user lacks a permission; docs/pages/operations/redis.md lists the commands it needs (ACL SETUSER)"
_CLUSTERED = "it is part of a Redis Cluster, which cannot hold an index; use a single Redis server, PostgreSQL or HBase"
# Remedies by a part of the error's name and message; the first match is used.
_REMEDIES = (
    ("WRONGPASS", _REFUSED),
    ("NOAUTH", _ASKED),
    ("invalid username-password", _REFUSED),
    (
        "without any password configured",
        "it does not have a password; remove password_file= and HSIMHASH_REDIS_PASSWORD",
    ),
    ("Authentication required", _ASKED),
    ("NoPermission", _FORBIDDEN),
    ("user executing the script can't run", _FORBIDDEN),
    ("OOM", "its memory is full (maxmemory); give it more memory and repeat the call"),
    ("maxmemory", "its memory is full (maxmemory); give it more memory and repeat the call"),
    ("NOREPLICAS", "it has fewer replicas than min-replicas-to-write, so it does not accept writes"),
    ("SCRIPT KILL", "an administrator killed the script of this call; try again"),
    ("MISCONF", "it cannot write its snapshot, so it does not accept writes; check its log and disk"),
    ("read only replica", "it is a read-only replica; use its master"),
    ("loading the dataset", "it is loading its data; wait until it is done"),
    ("CrossSlot", _CLUSTERED),
    ("MovedError", _CLUSTERED),
    ("ClusterDown", _CLUSTERED),
    ("WRONGTYPE", "a key with the prefix does not belong to the index; choose another prefix, or delete the key"),
    ("unknown command", "it does not support a command that an index needs; hsimhash needs Redis 6.2 or newer"),
    ("Protocol Error", "the server is not Redis; check the host and port"),
    ("Protocol error", "the server is not Redis; check the host and port"),
    ("invalid DB index", "it does not have that database; check the number in the URL"),
    ("DB index is out of range", "it does not have that database; check the number in the URL"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate is not trusted; pass the certificate of its CA with ca=FILE",
    ),
    ("WRONG_VERSION_NUMBER", "it does not use TLS on this port; use redis://, or its TLS port"),
    ("SSL", "TLS failed; check ca=, cert= and key= in the URL"),
    ("Name or service not known", "the host was not found"),
    ("Connection refused", "nothing is listening there; is redis-server running?"),
    ("closed by server", "it closed the connection; does it expect TLS (rediss://)?"),
    ("Timeout", "it did not respond in time"),
    ("No master found", "the sentinels do not know that master; check the service name in the URL"),
)


def store_error(error: Exception, address: RedisAddress, tried_s: float = 0) -> HsimhashError:
    """Return the hsimhash error for a redis-py error; `tried_s` is how long the call was retried."""
    said = " ".join(str(error).split())
    named = f"{type(error).__name__} {said}"
    remedy = next((remedy for text, remedy in _REMEDIES if text in named), "")
    how_long = f" (retried for {tried_s:.0f} s)" if tried_s >= 1 else ""
    why = f"{remedy} ({said})" if remedy else said or type(error).__name__
    return StoreUnavailableError(f"Redis at {address.place}{how_long}: {why}; {diagnose(str(address))} for details")
