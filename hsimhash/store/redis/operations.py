"""From a URL to an index on Redis: open it, make it, drop it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from hsimhash.errors import CREATE_ONE, CorruptionError, FormatVersionError, IndexExistsError, IndexNotFoundError
from hsimhash.store.base import DEADLINE_S, DISTANCE_PART, IDENTITY_PART, RECORD_PARTS, Record
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.cluster import sessions_of
from hsimhash.store.redis.cluster_store import ClusterStore
from hsimhash.store.redis.scripts import CREATE, DELETE
from hsimhash.store.redis.session import RedisSession
from hsimhash.store.redis.store import RedisStore

TTL_PART = b"ttl"  # on disk, beside the record's parts: seconds; not there: none
_CREATING_S = 1.0  # another process may be creating the same index
_AT_ONCE = 1_000  # keys looked at, or deleted, by one call
_OWN_FIELDS = (*RECORD_PARTS, IDENTITY_PART, b"documents")  # each record has some of them


@contextmanager
def sessions_at(
    url: str, *, deadline_s: float = DEADLINE_S, password: str | None = None, is_kept: bool = False
) -> Iterator[list[RedisSession]]:
    """Give the sessions of an index; closed behind the block, where they are to be kept only if it fails."""
    with ExitStack() as stack:
        sessions = sessions_of(RedisAddress.parse(url), deadline_s, password)
        for session in sessions:
            stack.callback(session.close)
        yield sessions
        if is_kept:
            stack.pop_all()


def open_redis_store(
    url: str, *, deadline_s: float = DEADLINE_S, password: str | None = None
) -> RedisStore | ClusterStore:
    """Open the index at `url`; `IndexNotFoundError` where there is none."""
    with sessions_at(url, deadline_s=deadline_s, password=password, is_kept=True) as sessions:
        return opened(sessions)


def create_redis_store(
    url: str, record: Record, *, password: str | None = None, ttl_s: int = 0
) -> RedisStore | ClusterStore:
    """Make an empty index at `url`; `IndexExistsError` where there is one. `ttl_s`: see `RedisStore`."""
    with sessions_at(url, password=password, is_kept=True) as sessions:
        _refuse_existing(sessions, url)
        identity = secrets.token_hex(16).encode()
        parts = {**record.list_parts(), **record.to_parts(), IDENTITY_PART: identity}
        parts |= {TTL_PART: str(ttl_s).encode()} if ttl_s else {}
        # Who comes first at the last part makes the index, and the record comes last: until then there is none.
        for session in reversed(sessions):
            session.identity = identity
            own = parts if session is sessions[0] else {IDENTITY_PART: identity}
            given = [one for pair in own.items() for one in pair]
            if not session.write(CREATE, [session.keys.dropping], given):
                _refuse_existing(sessions, url)
                raise IndexExistsError(
                    f"the key {session.keys.record.decode()} is not an index's; choose another prefix"
                )
        _refuse_missing_part(sessions, identity)  # of a drop at the same time
        return _store(sessions, record, ttl_s)


def _refuse_existing(sessions: Sequence[RedisSession], url: str) -> None:
    """Raise `IndexExistsError` where there is an index, or something of one."""
    until_s = time.monotonic() + _CREATING_S
    while _is_anything_there(sessions):
        if sessions[0].call("HEXISTS", sessions[0].keys.record, RECORD_PARTS[0]):
            raise IndexExistsError(f"there is an index at {url} already; open it, or choose another prefix")
        if time.monotonic() > until_s:
            raise IndexExistsError(_half(url))
        time.sleep(0.1)


def _half(url: str) -> str:
    return (
        f"parts of an index are at {url}: creating or dropping it was interrupted, or Redis lost its data; "
        f"delete them with 'hsimhash drop-table'"
    )


def _is_anything_there(sessions: Sequence[RedisSession]) -> bool:
    if any(map(_has_names, sessions)):
        return True
    # To look at all keys of a server takes about a second a million: mostly none has the prefix, and once is enough.
    return any(next(_keys(one, one.keys.head + b"*"), None) and next(_rows(one), None) for one in sessions)


def _has_names(session: RedisSession) -> bool:
    if session.call("EXISTS", session.keys.dropping, session.keys.identity):
        return True
    return any(value is not None for value in session.call("HMGET", session.keys.record, *_OWN_FIELDS))


def _rows(session: RedisSession) -> Iterator[list[bytes]]:
    """Yield the keys of buckets, listings and registers; those of others may begin with the prefix too."""
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


def _store(sessions: Sequence[RedisSession], record: Record, ttl_s: int) -> RedisStore | ClusterStore:
    parts = [RedisStore(session, record, ttl_s=ttl_s) for session in sessions]
    return parts[0] if len(parts) == 1 else ClusterStore(parts)


def opened(sessions: Sequence[RedisSession]) -> RedisStore | ClusterStore:
    """Return the index of sessions, made as the record says, which the first one has."""
    session = sessions[0]
    names = (*RECORD_PARTS, DISTANCE_PART, TTL_PART, IDENTITY_PART)
    found = dict(zip(names, session.call("HMGET", session.keys.record, *names), strict=True))
    parts = {name: value for name, value in found.items() if value is not None}
    if not parts:
        raise IndexNotFoundError(_half(session.url)) if _is_anything_there(sessions) else _not_found(session.url)
    try:
        record, ttl_s = Record.from_parts(parts, session.url), int(parts.get(TTL_PART, 0))
    except FormatVersionError:
        raise
    except (KeyError, ValueError) as error:
        raise CorruptionError(
            f"the record of {session.url} is damaged: {error}; restore a backup, or drop it with 'hsimhash drop-table'"
        ) from error
    record = record.learn_lists(lambda name: session.call("HGET", session.keys.record, name), session.url)
    if IDENTITY_PART not in parts:
        session.described = parts[b"layout"] + parts[b"profile"]
    _refuse_missing_part(sessions, parts.get(IDENTITY_PART, b""))
    return _store(sessions, record, ttl_s)


def _refuse_missing_part(sessions: Sequence[RedisSession], identity: bytes) -> None:
    for one in sessions:
        one.identity = identity
        if (one.call("GET", one.keys.identity) or b"") != identity:
            raise CorruptionError(
                f"part of the index at {one.url} is gone: it was not dropped to the end, or Redis at {one.place} "
                f"lost its data; drop it with 'hsimhash drop-table', and ingest the documents again"
            )


def refuse_no_redis_index(url: str, password: str | None = None) -> None:
    """Raise `IndexNotFoundError` where there is no index, not even one that was dropped half."""
    with sessions_at(url, password=password) as sessions:
        if not _is_anything_there(sessions):
            raise _not_found(url)


def _not_found(url: str) -> IndexNotFoundError:
    return IndexNotFoundError(f"no index at {url}: there is none with that prefix; " + CREATE_ONE)


def drop_redis_index(url: str, password: str | None = None) -> None:
    """Delete an index, or what is left of one, even if it is damaged; keys of others with the prefix stay."""
    with sessions_at(url, password=password) as sessions:
        keys = sessions[0].keys
        sessions[0].call("SET", keys.dropping, b"")  # from here on nobody creates one
        for session in sessions:
            own = session.keys
            session.call("UNLINK", own.record, own.identity, own.writers, own.orphans)  # from here on nobody writes
        for session in sessions:
            for found in _rows(session):
                if not session.read(DELETE, [session.keys.identity, *found], []):
                    break  # another process has ended this drop, and created an index since
        sessions[0].call("UNLINK", keys.dropping)
