"""Watch and end hsimhash's connections to the tests' own PostgreSQL from another session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.support.postgresql_server import PostgresqlServer
from tests.support.processes import wait_until

WAIT_S = 30.0
_OURS = "FROM pg_stat_activity WHERE application_name = 'hsimhash'"


@contextmanager
def connected(server: PostgresqlServer) -> Iterator[psycopg.Connection]:
    """Yield a connection of the superuser that commits each statement."""
    with psycopg.connect(server.conninfo, autocommit=True) as connection:
        yield connection


def end_connections(server: PostgresqlServer) -> None:
    """End all connections of hsimhash, as an administrator would."""
    with connected(server) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid, {1_000 * WAIT_S:.0f}) {_OURS}".encode())


def wait_for(server: PostgresqlServer, event: str) -> None:
    """Return once a connection of hsimhash waits for an event, given by its name or type in pg_stat_activity."""
    waits = f"SELECT 1 {_OURS} AND %s::text IN (wait_event, wait_event_type)".encode()
    with connected(server) as connection:
        wait_until(lambda: connection.execute(waits, [event]).fetchone() is not None, server.process, limit_s=WAIT_S)
