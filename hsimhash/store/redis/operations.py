"""From a URL to an index on Redis: open it, make it, drop it."""

from __future__ import annotations

from contextlib import closing

from hsimhash.errors import CorruptionError, FormatVersionError, IndexExistsError, IndexNotFoundError
from hsimhash.store.base import DEADLINE_S, DISTANCE_PART, RECORD_PARTS, Record
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.codec import Keys
from hsimhash.store.redis.scripts import CREATE
from hsimhash.store.redis.session import RedisSession
from hsimhash.store.redis.store import RedisStore

TTL_PART = b"ttl"  # on disk, beside the record's parts: seconds; not there: none
_AT_ONCE = 1_000  # keys looked at, or deleted, by one call


def open_redis_store(url: str, *, deadline_s: float = DEADLINE_S, password: str | None = None) -> RedisStore:
    """Open the index at `url`; `IndexNotFoundError` where there is none."""
    session = RedisSession(RedisAddress.parse(url), deadline_s, password)
    try:
        return opened(session)
    except BaseException:
        session.close()
        raise


def create_redis_store(url: str, record: Record, *, password: str | None = None, ttl_s: int = 0) -> RedisStore:
    """Make an empty index at `url`; `IndexExistsError` where there is one. `ttl_s`: see `RedisStore`."""
    session = RedisSession(RedisAddress.parse(url), DEADLINE_S, password)
    keys = Keys(session.address.options.prefix)
    try:
        parts = [one for pair in (record.list_parts() | record.to_parts()).items() for one in pair]
        parts += [TTL_PART, str(ttl_s).encode()] if ttl_s else []
        if not session.write(CREATE, [keys.record, keys.dropping], parts):
            # A call whose reply was lost has made it: nobody else makes the very same at the same moment.
            if session.call("EXISTS", keys.dropping):
                raise IndexExistsError(f"the index at {url} was being dropped; run 'hsimhash drop-table' again")
            raise IndexExistsError(f"there is an index at {url} already; open it, or choose another prefix")
        return RedisStore(session, record, ttl_s=ttl_s)
    except BaseException:
        session.close()
        raise


def opened(session: RedisSession) -> RedisStore:
    """Return a session's index, made as its record says."""
    names = (*RECORD_PARTS, DISTANCE_PART, TTL_PART)
    keys = Keys(session.address.options.prefix)
    found = dict(zip(names, session.call("HMGET", keys.record, *names), strict=True))
    parts = {name: value for name, value in found.items() if value is not None}
    if not parts:
        raise _not_found(session.url)
    try:
        record, ttl_s = Record.from_parts(parts, session.url), int(parts.get(TTL_PART, 0))
    except FormatVersionError:
        raise
    except (KeyError, ValueError) as error:
        raise CorruptionError(f"the record of {session.url} cannot be read: {error}") from error
    record = record.learn_lists(lambda name: session.call("HGET", keys.record, name), session.url)
    return RedisStore(session, record, ttl_s=ttl_s)


def refuse_no_redis_index(url: str, password: str | None = None) -> None:
    """Raise `IndexNotFoundError` where there is no index, not even one that was dropped half."""
    with closing(RedisSession(RedisAddress.parse(url), DEADLINE_S, password)) as session:
        keys = Keys(session.address.options.prefix)
        if not session.call("EXISTS", keys.record, keys.dropping):
            raise _not_found(url)


def _not_found(url: str) -> IndexNotFoundError:
    return IndexNotFoundError(f"no index at {url}: there is none with that prefix; 'hsimhash create-table' makes one")


def drop_redis_index(url: str, password: str | None = None) -> None:
    """Delete an index, even a damaged one; one that was dropped half is dropped whole."""
    with closing(RedisSession(RedisAddress.parse(url), DEADLINE_S, password)) as session:
        keys, cursor = Keys(session.address.options.prefix), b"0"
        if session.call("EXISTS", keys.record):
            session.call("RENAME", keys.record, keys.dropping)  # from here on there is no index
        while True:
            cursor, found = session.call("SCAN", cursor, "MATCH", keys.pattern, "COUNT", _AT_ONCE)
            if gone := [key for key in found if key != keys.dropping]:
                session.call("UNLINK", *gone)
            if cursor == b"0":
                break
        session.call("UNLINK", keys.dropping)
