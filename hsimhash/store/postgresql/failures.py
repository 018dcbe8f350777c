"""Classify errors from psycopg: the cause, whether to retry, and the remedy.

A failed connection does not have an SQLSTATE, only messages from libpq and the server. A failed call has an SQLSTATE.
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
    diagnose,
)
from hsimhash.store.postgresql.address import DEFAULT_SCHEMA, DatabaseAddress

# Errors from a server that is starting, stopping or full, and from conflicting transactions. The same call may succeed
# soon.
_PASSING = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.TooManyConnections,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.UniqueViolation,  # two transactions conflicted; the next attempt sees the other one's row
)
# These also end a connection, but psycopg does not classify them as operational errors.
_ENDED = (errors.IdleInTransactionSessionTimeout, errors.TransactionTimeout)
_PASSING_WORDS = re.compile(
    r"refused|starting up|shutting down|recovery|too many (clients|connections)|remaining connection slots|timeout|"
    r"closed the connection|connection reset|No such file|terminating connection|not yet accepting",
    re.IGNORECASE,
)
# libpq's messages for failed connections, and the remedies; the first match is used.
_REMEDIES = (
    (r"No such file or directory", "is PostgreSQL running, and is its socket in that folder?"),
    (r"refused", "is PostgreSQL running, and does it listen there (listen_addresses, port)?"),
    (
        r"password authentication failed",
        "check the user in the URL, and the password in PGPASSWORD, which overrides the others, in passfile= or in "
        "~/.pgpass",
    ),
    (r"no password supplied", "put the password in PGPASSWORD or ~/.pgpass"),
    (r"no pg_hba\.conf entry|authentication failed", "allow this user, host and database in pg_hba.conf"),
    (r"permission denied for database", "grant CONNECT on the database to this user"),
    (r"role .* does not exist", "specify the user in the URL: postgresql://user@host/database"),
    (r"database .* does not exist", "create it with 'createdb', or use another database"),
    (r"too many (clients|connections)|remaining connection slots", "raise max_connections, or use fewer processes"),
    (
        r"invalid response|received H|expected authentication",
        "the server is not PostgreSQL: check the port, usually 5432",
    ),
    (r"certificate|does not support SSL|SSL error", "check sslmode=, and pass the CA certificate: sslrootcert=FILE"),
    (r"translate host name|not known", "is the host name spelled correctly?"),
    (r"starting up|recovery|shutting down", "wait until it has started"),
    (
        r"query_wait_timeout|max_client_conn|no more connections",
        "the pooler is full: raise its limits, or use fewer processes",
    ),
    (r"wait timeout expired", "it did not respond in time; see pg_stat_activity for what it is doing"),
    (
        r"did not answer in time",
        "is the host up, is the port open in its firewall, and is PostgreSQL overloaded or suspended?",
    ),
    (r"timeout expired|timed out", "is the host up, and is the port open in its firewall?"),
)


class MetAnotherError(Exception):
    """A transaction conflicted with another one; nothing was written, and the transaction starts over."""


class LostLinkError(psycopg.OperationalError):
    """A connection was lost, or no reply arrived in time."""


class SilentServerError(LostLinkError):
    """The server did not answer at all: it ignored a new connection, or both a call and its cancellation."""


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


def is_late(error: BaseException | None) -> bool:
    """Whether psycopg stopped waiting for the server because the time limit had passed."""
    is_from_psycopg = isinstance(error, psycopg.OperationalError) and error.sqlstate is None
    return is_from_psycopg and str(error).endswith("timeout expired")


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


def _lacking(user: str, where: str, said: str) -> HsimhashError:
    who = f'user "{user}"' if user else "the user"
    if found := re.fullmatch("permission denied for schema (.+)", said):
        remedy = _schema_grant(found[1], f'"{user}"' if user else "USER")
    elif said.startswith("must be owner"):
        remedy = "run this command as the owner of the tables"
    else:
        remedy = "grant it, or use another user"
    return HsimhashError(f"{who} lacks a privilege on {where}: {said}; {remedy}")


def _schema_grant(schema: str, user: str) -> str:
    """Return the remedy for a missing privilege on a schema, as statements for its owner."""
    if schema == DEFAULT_SCHEMA:  # usually, every user has USAGE; since PostgreSQL 15, only the owner has CREATE
        return f"to create an index there, run GRANT CREATE ON SCHEMA {schema} TO {user} as the owner of the database"
    return (
        f"to create an index there, run GRANT USAGE, CREATE ON SCHEMA {schema} TO {user}; to use an existing one, "
        f"GRANT USAGE is sufficient"
    )


def store_error(error: Exception, address: DatabaseAddress, user: str = "") -> HsimhashError:
    """Convert an error from psycopg to an hsimhash error with the problem, the place and the remedy.

    Args:
        error: Error from psycopg, or one from this module.
        address: Address of the index.
        user: Database user of the failed call, if it is known.
    """
    is_silent = isinstance(error, SilentServerError)
    if not is_silent and isinstance(error, LostLinkError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    said = "the server did not answer in time" if is_silent else words_of(error)
    where = f"{address.full_table} at {address.name}"
    if isinstance(error, (errors.UndefinedTable, errors.UndefinedColumn)):
        return IndexNotFoundError(f"no index at {address}: {said}; open it again")
    if isinstance(error, errors.InvalidSchemaName):
        return IndexNotFoundError(f"no index at {address}: {said}; create it with CREATE SCHEMA, or use another schema")
    if isinstance(error, errors.DuplicateTable):
        return IndexExistsError(f"cannot create an index at {address}: {said}; choose another name with table=")
    if isinstance(error, errors.DependentObjectsStillExist):
        return HsimhashError(f"cannot drop {where}: {error.diag.message_detail}; drop the dependent objects first")
    if isinstance(error, errors.LockNotAvailable):
        return StoreBusyError(
            f"{where} was locked by another writer for too long; try again, or set a longer lock_timeout= in the URL"
        )
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return StoreUnavailableError(
            f"{where} cannot be written: {said}; if the server is a standby, use the primary, or add "
            f"target_session_attrs=read-write to the URL"
        )
    if isinstance(error, (errors.DiskFull, errors.OutOfMemory, errors.ConfigurationLimitExceeded)):
        return StoreUnavailableError(
            f"{where}: the server has reached a limit on disk space or memory: {said}; free some, or raise the limit"
        )
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return CorruptionError(
            f"{where} is damaged: {said}; restore a backup, or run REINDEX TABLE if only an index is damaged"
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return _lacking(user, where, said)
    if isinstance(error, (errors.DuplicatePreparedStatement, errors.InvalidSqlStatementName)):
        return transaction_pooler(address)
    if isinstance(error, MetAnotherError):
        return StoreBusyError(f"{where}: other writers kept changing the same documents; try again")
    if isinstance(error, (psycopg.OperationalError, *_PASSING, *_ENDED)) and error.sqlstate is not None:
        return StoreUnavailableError(f"{where}: the server ended the call: {said}; try again")
    if isinstance(error, psycopg.OperationalError):
        usual = f"{diagnose(address.index_url)} for details"
        remedy = next((remedy for words, remedy in _REMEDIES if re.search(words, said)), usual)
        return StoreUnavailableError(f"cannot connect to PostgreSQL for {where} ({said}); {remedy}")
    if isinstance(error, psycopg.ProgrammingError) and error.sqlstate is None:
        return HsimhashError(
            f"invalid URL for {address}: {said}; check its options, which can be table=, timeout=, deadline=, "
            f"lock_timeout= and those of libpq"
        )
    return HsimhashError(f"PostgreSQL rejected a call on {where}: {said}")
