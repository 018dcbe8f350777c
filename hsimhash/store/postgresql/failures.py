"""Classify errors of psycopg: the cause, whether to retry, and the remedy.

A failed connection has no SQLSTATE, only messages of libpq and the server; a failed call has one.
"""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from hsimhash.errors import (
    CorruptionError,
    HsimhashError,
    IndexExistsError,
    IndexNotFoundError,
    StoreBusyError,
    StoreUnavailableError,
)
from hsimhash.store.postgresql.address import DatabaseAddress

# Errors of a server that starts, stops or is full, and of conflicting transactions: the same call may succeed soon.
_PASSING = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.TooManyConnections,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.UniqueViolation,  # of two conflicting transactions: the next attempt sees the other's row
)
# These also end a connection, though psycopg does not count them as operational.
_ENDED = (errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout)
_PASSING_WORDS = re.compile(
    r"refused|starting up|shutting down|recovery|too many (clients|connections)|remaining connection slots|timeout|"
    r"closed the connection|connection reset|No such file|terminating connection|not yet accepting",
    re.IGNORECASE,
)
# libpq's messages for failed connections, and the remedies; the first match counts.
_REMEDIES = (
    (r"No such file or directory", "is PostgreSQL running, and its socket in that folder?"),
    (r"refused", "is PostgreSQL running, and does it listen there (listen_addresses, port)?"),
    (r"password authentication failed|no password supplied", "write the password into ~/.pgpass"),
    (r"no pg_hba\.conf entry|authentication failed", "let pg_hba.conf allow this user, host and database"),
    (r"role .* does not exist", "name the user in the URL: postgresql://user@host/database"),
    (r"database .* does not exist", "create it with 'createdb', or name another one in the URL"),
    (r"too many (clients|connections)|remaining connection slots", "raise max_connections, or use fewer processes"),
    (
        r"invalid response|received H|expected authentication",
        "the server there is not PostgreSQL: name its port, usually 5432",
    ),
    (r"certificate|does not support SSL|SSL error", "name the authority's file with sslrootcert=FILE, see sslmode="),
    (r"translate host name|not known", "is the host spelled right?"),
    (r"starting up|recovery|shutting down", "wait until it has started"),
    (
        r"query_wait_timeout|max_client_conn|no more connections",
        "the pooler is full: raise its limits, or use fewer processes",
    ),
    (r"wait timeout expired", "it did not answer in time: see what it is doing in pg_stat_activity"),
    (r"timeout expired|timed out", "is the host up, and the port open in its firewall?"),
)


class MetAnotherError(Exception):
    """A transaction conflicted with another one; nothing was written, and it starts over."""


class LostLinkError(psycopg.OperationalError):
    """A connection was lost, or no reply came in time."""


def is_lost(connection: psycopg.Connection[tuple[object, ...]]) -> bool:
    """Whether a connection is closed or broken."""
    return connection.closed or connection.broken


def is_passing(error: Exception) -> bool:
    """Whether the same call may succeed soon."""
    if isinstance(error, (*_PASSING, MetAnotherError, LostLinkError)):
        return True
    if not isinstance(error, psycopg.OperationalError):
        return False
    return error.sqlstate is None and bool(_PASSING_WORDS.search(str(error)))


def words_of(error: Exception) -> str:
    """Return an error's message in one line, without the statement."""
    first = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return " ".join((first or str(error)).split())


def transaction_pooler(address: DatabaseAddress) -> HsimhashError:
    """Return the error for a server that runs one connection's transactions in different processes."""
    return HsimhashError(
        f"{address.name} is a connection pooler in transaction mode, such as pgbouncer with pool_mode=transaction; "
        f"hsimhash keeps locks, settings and prepared statements on its connections: use a pool in session mode, or "
        f"connect to PostgreSQL directly"
    )


def store_error(error: Exception, address: DatabaseAddress) -> HsimhashError:
    """Convert an error of psycopg to ours: what is wrong, where, and the remedy."""
    if isinstance(error, LostLinkError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    said = words_of(error)
    where = f"{address.full_table} at {address.name}"
    if isinstance(error, (errors.UndefinedTable, errors.UndefinedColumn)):
        return IndexNotFoundError(f"no index at {address} any more: {said}; open it again")
    if isinstance(error, errors.InvalidSchemaName):
        return IndexNotFoundError(f"no index at {address}: {said}; create it with CREATE SCHEMA, or name another one")
    if isinstance(error, errors.DuplicateTable):
        return IndexExistsError(f"no index can be created at {address}: {said}; choose another name with table=")
    if isinstance(error, errors.DependentObjectsStillExist):
        return HsimhashError(f"{where} cannot be dropped: {error.diag.message_detail}; drop what depends on it first")
    if isinstance(error, errors.LockNotAvailable):
        return StoreBusyError(f"{where} was held by another writer for too long; try again, or wait longer")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailableError(
            f"{where} cannot be written: {said}; is it a standby? name the primary, or add "
            f"target_session_attrs=read-write"
        )
    if isinstance(error, (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)):
        return StoreUnavailableError(f"{where}: the server has no room: {said}; make room, and try again")
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return CorruptionError(f"{where} is damaged: {said}; restore a backup, or REINDEX TABLE where an index is")
    if isinstance(error, errors.InsufficientPrivilege):
        return HsimhashError(f"the user lacks a privilege on {where}: {said}; grant it, or name another user")
    if isinstance(error, (errors.DuplicatePreparedStatement, errors.InvalidSqlStatementName)):
        return transaction_pooler(address)
    if isinstance(error, MetAnotherError):
        return StoreBusyError(f"{where}: other writers kept changing the same documents; try again")
    if isinstance(error, (psycopg.OperationalError, *_PASSING, *_ENDED)) and error.sqlstate is not None:
        return StoreUnavailableError(f"{where}: the server ended the call: {said}; try again")
    if isinstance(error, psycopg.OperationalError):
        remedy = next(
            (remedy for words, remedy in _REMEDIES if re.search(words, said)), "'hsimhash doctor' reports more"
        )
        return StoreUnavailableError(f"no connection to PostgreSQL for {where} ({said}); {remedy}")
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return HsimhashError(
            f"the URL of {address} cannot be used: {said}; its options are table=, timeout=, deadline= and libpq's"
        )
    return HsimhashError(f"PostgreSQL refuses a call on {where}: {said}")
