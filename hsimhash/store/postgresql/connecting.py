"""Open a connection within a time limit.

`psycopg.Connection.connect` waits at least two seconds for each address, because it copies libpq's rounding of
`connect_timeout`. This module makes the same attempts, each with a fractional limit. The addresses share the
remaining time, so that a host that hangs leaves time for the next one.

Only host name lookups are not limited, because the C library cannot be interrupted.
"""

from __future__ import annotations

import time

import psycopg
from psycopg import generators
from psycopg.abc import ConnDict, ConnParam
from psycopg.conninfo import conninfo_attempts, conninfo_to_dict, make_conninfo
from psycopg.pq.abc import PGconn
from psycopg.waiting import wait_conn

from hsimhash.store.postgresql.failures import SilentServerError, is_late, words_of

_SIGNAL_S = 0.1  # how often to look for signals such as Ctrl-C, as psycopg does


def connected(conninfo: str, most_s: float, until: float, **options: ConnParam) -> PGconn:
    """Return a new connection to the first address that accepts it.

    Args:
        conninfo: URL for libpq, with any number of hosts.
        most_s: Time limit for each address, in seconds.
        until: Deadline for all addresses, on the `time.monotonic` clock.
        options: Options of libpq, which override those of the URL.

    Raises:
        SilentServerError: No address answered in time.
        psycopg.OperationalError: All addresses failed; the message gives all reasons.
    """
    attempts = conninfo_attempts(conninfo_to_dict(conninfo, **options))
    failures: list[tuple[ConnDict, psycopg.Error]] = []
    for number, attempt in enumerate(attempts):
        share_s = (until - time.monotonic()) / (len(attempts) - number)
        opening = generators.connect(make_conninfo("", **attempt))
        try:
            pgconn: PGconn = wait_conn(opening, interval=_SIGNAL_S, timeout=max(0.001, min(most_s, share_s)))
        except psycopg.Error as error:
            failures.append((attempt, error.with_traceback(None)))
        else:
            return pgconn
        finally:
            opening.close()  # closes the socket, even while an error still refers to the generator
    raise _failure(failures)


def _failure(failures: list[tuple[ConnDict, psycopg.Error]]) -> psycopg.Error:
    if all(is_late(error) for _, error in failures):
        return SilentServerError("the server did not answer in time")
    if len(failures) == 1:
        return failures[0][1]
    said = [
        f"{_host(attempt)}: connection timeout expired" if is_late(error) else words_of(error)
        for attempt, error in failures
    ]
    return psycopg.OperationalError("; ".join(said))


def _host(attempt: ConnDict) -> str:
    """Return an attempt's host, for messages."""
    return ":".join(str(attempt[name]) for name in ("host", "port") if attempt.get(name)) or "localhost"
