"""An index on a real PostgreSQL that exists in part: killed while created or dropped, or tables dropped by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import psycopg
import pytest

from hsimhash.errors import HsimhashError
from hsimhash.index import HSimIndex
from hsimhash.store.postgresql.operations import drop_at
from hsimhash.store.postgresql.session import Link
from tests.support.half_states import (
    calls_of,
    create_and_drop_at_once,
    created,
    dropped,
    filled,
    killed_at_each_step,
    way_out,
)
from tests.support.postgresql_server import PostgresqlServer
from tests.support.postgresql_sessions import connected

pytestmark = [pytest.mark.every_case, pytest.mark.together]
STEPS = calls_of(Link, "wait")  # each is a statement and its answer
_numbers = itertools.count()


@pytest.fixture
def table() -> str:
    return f"half_{next(_numbers)}"


@pytest.fixture
def url(postgresql: PostgresqlServer, table: str) -> str:
    return postgresql.url(table)


@pytest.fixture
def admin(postgresql: PostgresqlServer) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with connected(postgresql) as connection:
        yield connection


def relations(admin: psycopg.Connection[tuple[object, ...]], table: str) -> list[object]:
    found = admin.execute("SELECT relname FROM pg_class WHERE relname LIKE %s ORDER BY 1", [f"{table}%"])
    return [name for (name,) in found]


@pytest.mark.parametrize("is_drop", [False, True])
def test_what_was_killed_at_any_step_left_all_or_nothing(
    admin: psycopg.Connection[tuple[object, ...]], table: str, url: str, is_drop: bool
) -> None:
    work, prepare = (dropped, lambda: filled(url)) if is_drop else (created, lambda: None)
    seen = set()
    for _ in killed_at_each_step(prepare, lambda: work(url), STEPS):
        seen.add(way_out(url))
        assert relations(admin, table) == []
    assert seen == {"create-table", ""}


# What is done to the tables of an index, and the command that mends it.
STATES = {
    "no record": ("DROP TABLE {0}_record", "drop-table"),
    "no documents": ("DROP TABLE {0}", "drop-table"),
    "no fingerprints": ("DROP TABLE {0}_fingerprints", "drop-table"),
    "only the record": ("DROP TABLE {0}, {0}_fingerprints", "drop-table"),
    "only documents": ("DROP TABLE {0}_record, {0}_fingerprints", "drop-table"),
    "only fingerprints": ("DROP TABLE {0}, {0}_record", "drop-table"),
    "no table": ("DROP TABLE {0}, {0}_record, {0}_fingerprints", "create-table"),
    "the record is empty": ("TRUNCATE {0}_record", "drop-table"),
    "no layout": ("DELETE FROM {0}_record WHERE name = 'layout'", "drop-table"),
    "no profile": ("DELETE FROM {0}_record WHERE name = 'profile'", "drop-table"),
    "no format": ("DELETE FROM {0}_record WHERE name = 'format'", "drop-table"),
    "a layout that is none": ("UPDATE {0}_record SET value = '3' WHERE name = 'layout'", "drop-table"),
    "one more column": ("ALTER TABLE {0} ADD COLUMN note text", ""),
    "one more column of the record": ("ALTER TABLE {0}_record ADD COLUMN note text", ""),
    "no documents' rows": ("TRUNCATE {0}", "check --repair"),
    "no fingerprints' rows": ("TRUNCATE {0}_fingerprints", "check --repair"),
    **{
        f"no index {name}": (f"DROP INDEX {{0}}_{name}", "check --repair")
        for name in ("drawer_1", "drawer_4", "listing")
    },
    **{
        f"no primary key of {name or 'documents'}": (
            f"ALTER TABLE {{0}}{name} DROP CONSTRAINT {{0}}{name}_pkey",
            "check --repair",
        )
        for name in ("", "_fingerprints", "_record")
    },
}


@pytest.mark.parametrize("state", STATES)
def test_all_commands_name_the_one_that_gets_out(
    admin: psycopg.Connection[tuple[object, ...]], table: str, url: str, state: str
) -> None:
    statement, command = STATES[state]
    filled(url)
    with HSimIndex.open(url) as index:
        index.query(5)
        admin.execute(statement.format(table).encode())
        if command.endswith("-table") and statement.startswith("DROP TABLE"):
            for call in (lambda: index.add(7, "c"), lambda: index.claim(7, "c")):
                with pytest.raises(HsimhashError, match=command if command == "drop-table" else "create"):
                    call()
    admin.execute(f"CREATE TABLE {table}_mine (doc_id text)".encode())
    assert way_out(url) == command
    assert relations(admin, table) == [f"{table}_mine"]


# Objects that belong to others but have the name of an index part: the part, and the SQL that creates the object.
OF_OTHERS = {
    "documents": ("TABLE {0}", "CREATE TABLE {0} (doc_id text, fingerprint bigint)"),
    "fingerprints": ("TABLE {0}_fingerprints", "CREATE TABLE {0}_fingerprints (number bigint)"),
    "record": (
        "TABLE {0}_record",
        "CREATE TABLE {0}_record (name text, value text); INSERT INTO {0}_record VALUES ('artist', 'of others')",
    ),
    "a view": ("TABLE {0}", "CREATE VIEW {0} AS SELECT 'a'::text AS doc_id"),
    "a column dropped": ("INDEX {0}_drawer_1", "ALTER TABLE {0} DROP COLUMN sketch"),
}


@pytest.mark.parametrize("kind", OF_OTHERS)
@pytest.mark.parametrize("is_beside_parts", [False, True])
def test_what_is_of_others_stays(
    admin: psycopg.Connection[tuple[object, ...]], table: str, url: str, kind: str, is_beside_parts: bool
) -> None:
    part, statements = (one.format(table) for one in OF_OTHERS[kind])
    filled(url)
    admin.execute(f"DROP {part}".encode())
    if not is_beside_parts and kind != "a column dropped":
        names = (f"{table}{suffix}" for suffix in ("", "_fingerprints", "_record"))
        admin.execute(f"DROP TABLE IF EXISTS {', '.join(names)}".encode())
    for statement in statements.split(";"):
        admin.execute(statement.encode())
    there = relations(admin, table)
    refused = created(url)
    assert (refused.exit_code, "choose another name with table=" in refused.stderr) == (5, True), refused.output
    kept = dropped(url)
    assert (kept.exit_code, "does not belong to an index" in kept.stderr) == (1, True), kept.output
    assert relations(admin, table) == there


def test_an_index_of_others_with_the_name_of_a_drawers_is_named(
    admin: psycopg.Connection[tuple[object, ...]], table: str, url: str
) -> None:
    admin.execute(f"CREATE TABLE {table}_drawer_1 (number int)".encode())
    refused = created(url)
    assert (refused.exit_code, f"{table}_drawer_1" in refused.stderr) == (5, True), refused.output
    assert relations(admin, table) == [f"{table}_drawer_1"]


def test_a_schema_that_is_missing_is_named_with_what_creates_it(
    admin: psycopg.Connection[tuple[object, ...]], postgresql: PostgresqlServer, table: str
) -> None:
    url = postgresql.url(f"{table}.pages")
    refused = created(url)
    assert (refused.exit_code, "CREATE SCHEMA" in refused.stderr) == (5, True)
    admin.execute(f"CREATE SCHEMA {table}".encode())
    assert way_out(url) == "create-table"


def test_a_view_of_others_on_an_index_is_named(
    admin: psycopg.Connection[tuple[object, ...]], table: str, url: str
) -> None:
    filled(url)
    admin.execute(f"CREATE VIEW {table}_mine AS SELECT doc_id FROM {table}".encode())
    refused = dropped(url)
    assert (refused.exit_code, f"{table}_mine" in refused.stderr) == (1, True)
    admin.execute(f"DROP VIEW {table}_mine".encode())
    assert way_out(url) == ""


def test_a_user_without_the_rights_changes_nothing(
    admin: psycopg.Connection[tuple[object, ...]], table: str, url: str
) -> None:
    admin.execute(f"CREATE ROLE {table} LOGIN".encode())
    admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    own = url.replace("postgres@", f"{table}@", 1)
    refused = created(own)
    assert refused.exit_code == 1
    assert f'run GRANT CREATE ON SCHEMA public TO "{table}" as the owner of the database' in refused.stderr
    assert relations(admin, table) == []
    filled(url)
    may_read = f"GRANT SELECT ON {table}, {table}_fingerprints, {table}_record TO {table}"
    for right, remedy in (("", "grant it"), (may_read, "run this command as the owner of the tables")):
        admin.execute(right.encode())
        refused = dropped(own)
        assert (refused.exit_code, remedy in refused.stderr) == (1, True), refused.output
    assert way_out(url) == ""


def test_creations_and_drops_at_once_meet_nothing_else(
    admin: psycopg.Connection[tuple[object, ...]], table: str, url: str
) -> None:
    assert create_and_drop_at_once(url, lambda: drop_at(url)) == []
    assert way_out(url) in ("create-table", "")
    assert relations(admin, table) == []
