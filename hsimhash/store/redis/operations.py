"""Open, create or drop an index on Redis, by its URL."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hsimhash.errors import CorruptionError, FormatVersionError, IndexExistsError, IndexNotFoundError, create_one
from hsimhash.store.base import DEADLINE_S, DISTANCE_PART, IDENTITY_PART, RECORD_PARTS, Record
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.scripts import CREATE, DELETE
from hsimhash.store.redis.session import RedisSession
from hsimhash.store.redis.store import RedisStore

TTL_PART = b"ttl"  # on disk, next to the record's parts: the TTL in seconds, if there is one
_CREATING_S = 1.0  # how long to wait for another process that may be creating the same index
_AT_ONCE = 1_000  # number of keys that one call examines or deletes
_OWN_FIELDS = (*RECORD_PARTS, IDENTITY_PART, b"documents")  # every record has some of these fields


@contextmanager
def session_at(
    url: str, *, deadline_s: float = DEADLINE_S, password: str | None = None, is_kept: bool = False
) -> Iterator[RedisSession]:
    """Return the session of an index. It is closed after the block; with `is_kept`, only if the block fails."""
    session = RedisSession(RedisAddress.parse(url), deadline_s, password)
    try:
        yield session
    except BaseException:
        session.close()
        raise
    if not is_kept:
        session.close()


def open_at(url: str, *, deadline_s: float = DEADLINE_S, password: str | None = None) -> RedisStore:
    """Open the index at `url`; raise `IndexNotFoundError` if it does not exist."""
    with session_at(url, deadline_s=deadline_s, password=password, is_kept=True) as session:
        return opened(session)


def create_at(url: str, record: Record, *, password: str | None = None, ttl_s: int = 0) -> RedisStore:
    """Create an empty index at `url`; raise `IndexExistsError` if it exists. For `ttl_s`, see `RedisStore`."""
    with session_at(url, password=password, is_kept=True) as session:
        _refuse_existing(session)
        session.identity = secrets.token_hex(16).encode()
        parts = {**record.list_parts(), **record.to_parts(), IDENTITY_PART: session.identity}
        parts |= {TTL_PART: str(ttl_s).encode()} if ttl_s else {}
        given = [one for pair in parts.items() for one in pair]
        if not session.write(CREATE, [session.keys.dropping], given):
            _refuse_existing(session)
            raise IndexExistsError(
                f"the key {session.keys.record.decode()} does not belong to an index; choose another prefix"
            )
        return RedisStore(session, record, ttl_s=ttl_s)


def _refuse_existing(session: RedisSession) -> None:
    """Raise `IndexExistsError` if an index or a part of an index exists."""
    until_s = time.monotonic() + _CREATING_S
    while _is_anything_there(session):
        if session.call("HEXISTS", session.keys.record, RECORD_PARTS[0]):
            raise IndexExistsError(f"an index already exists at {session.url}; open it, or choose another prefix")
        if time.monotonic() > until_s:
            raise IndexExistsError(_half(session.url))
        time.sleep(0.1)


def _half(url: str) -> str:
    return (
        f"incomplete index at {url}: creating or dropping it was interrupted, or Redis lost its data; "
        f"delete it with 'hsimhash drop-table'"
    )


def _is_anything_there(session: RedisSession) -> bool:
    if session.call("EXISTS", session.keys.dropping, session.keys.identity):
        return True
    if any(value is not None for value in session.call("HMGET", session.keys.record, *_OWN_FIELDS)):
        return True
    # Examining a million keys takes about a second. Usually none of them has the prefix, so one walk is enough.
    return any(_keys(session, session.keys.head + b"*")) and any(_rows(session))


def _rows(session: RedisSession) -> Iterator[list[bytes]]:
    """Yield the keys of buckets, listings and registers, but not other keys that start with the prefix."""
    for pattern, kind in session.keys.rows.items():
        yield from _keys(session, pattern, b"TYPE", kind)


def _keys(session: RedisSession, pattern: bytes, *options: bytes) -> Iterator[list[bytes]]:
    cursor = b"0"
    while True:
        cursor, found = session.call("SCAN", cursor, "MATCH", pattern, "COUNT", _AT_ONCE, *options)
        if found:
            yield found
        if cursor == b"0":
            return


def opened(session: RedisSession) -> RedisStore:
    """Return the index of a session, as its record defines it."""
    names = (*RECORD_PARTS, DISTANCE_PART, TTL_PART, IDENTITY_PART)
    found = dict(zip(names, session.call("HMGET", session.keys.record, *names), strict=True))
    parts = {name: value for name, value in found.items() if value is not None}
    if not parts:
        if _is_anything_there(session):
            raise IndexNotFoundError(_half(session.url))
        raise IndexNotFoundError(f"{_missing(session.url)}; " + create_one(session.url))
    try:
        record, ttl_s = Record.from_parts(parts, session.url), int(parts.get(TTL_PART, 0))
    except FormatVersionError:
        raise
    except (KeyError, ValueError) as error:
        raise CorruptionError(
            f"the record of {session.url} is damaged: {error}; restore a backup, or delete the index with 'hsimhash "
            f"drop-table'"
        ) from error
    record = record.learn_lists(lambda name: session.call("HGET", session.keys.record, name), session.url)
    if IDENTITY_PART not in parts:
        session.described = parts[b"layout"] + parts[b"profile"]
    session.identity = parts.get(IDENTITY_PART, b"")
    if (session.call("GET", session.keys.identity) or b"") != session.identity:
        raise CorruptionError(
            f"part of the index at {session.url} is missing: dropping it was interrupted, or Redis lost its data; "
            f"delete the index with 'hsimhash drop-table', and ingest the documents again"
        )
    return RedisStore(session, record, ttl_s=ttl_s)


def refuse_no_index(url: str, password: str | None = None) -> None:
    """Raise `IndexNotFoundError` if there is no index, not even a partially dropped one."""
    with session_at(url, password=password) as session:
        if not _is_anything_there(session):
            raise IndexNotFoundError(_missing(url))


def _missing(url: str) -> str:
    return f"no index at {url}: the server does not have an index with this prefix"


def drop_at(url: str, password: str | None = None) -> None:
    """Delete an index, even if it is damaged or incomplete; unrelated keys with the prefix stay."""
    with session_at(url, password=password) as session:
        keys = session.keys
        session.call("SET", keys.dropping, b"")  # from here on, no index can be created
        session.call("UNLINK", keys.record, keys.identity, keys.writers, keys.orphans)  # from here on, nobody can write
        for found in _rows(session):
            if not session.read(DELETE, [keys.identity, *found], []):
                break  # another process has finished this drop and created a new index
        session.call("UNLINK", keys.dropping)
