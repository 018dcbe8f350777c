"""What users with few privileges can do, according to the page and to `doctor`, and which error messages they get."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from hsimhash.errors import HsimhashError, IndexExistsError
from hsimhash.index import HSimIndex
from hsimhash.progress import Observer
from tests.support.command_line import run
from tests.support.postgresql_server import PostgresqlServer, postgresql_serving
from tests.support.postgresql_sessions import connected

pytestmark = pytest.mark.together
PAGE = Path(__file__).parents[2] / "docs" / "pages" / "operations" / "postgresql.md"
FAR = 0xFFFFF << 40  # not near the other fingerprints
CANNOT_CREATE = (
    r'user "pages_owner" lacks a privilege .*: permission denied for schema public; to create an index there, run '
    r'GRANT CREATE ON SCHEMA public TO "pages_owner" as the owner of the database$'
)
TABLES = "public.pages, public.pages_fingerprints, public.pages_record"


def statements() -> dict[str, str]:
    """Return the SQL statements of the page, by the comment above them."""
    section = PAGE.read_text(encoding="utf-8").partition("## Grant access")[2].partition("\n## ")[0]
    (block,) = re.findall(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return dict(re.findall(r"^-- (.*)\n((?:[^-\n].*\n)+)", block, re.MULTILINE))


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A server with the users of the page, and an index that one of them has created."""
    with postgresql_serving() as own:
        with connected(own) as connection:
            for user in ("pages_owner", "loader", "crawler", "reader"):
                connection.execute(f"CREATE ROLE {user} LOGIN".encode())
            connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # the default of PostgreSQL 15
            with pytest.raises(HsimhashError, match=CANNOT_CREATE):
                HSimIndex.create(as_user(own, "pages_owner"))
            connection.execute(statements()["create the tables"].encode())
        with HSimIndex.create(as_user(own, "pages_owner"), layout="4", profile="zh-1") as index:
            index.add(5, "a")
        yield own


def as_user(server: PostgresqlServer, user: str) -> str:
    return server.url("pages").replace("postgres@", f"{user}@")


def granted(server: PostgresqlServer, *names: str) -> None:
    with connected(server) as connection:
        for name in names:
            connection.execute(statements()[name].encode())


def indexes(server: PostgresqlServer) -> set[str]:
    with connected(server) as connection:
        found = connection.execute("SELECT indexname FROM pg_indexes WHERE tablename LIKE 'pages%'").fetchall()
    return {name for (name,) in found}


def fill(index: HSimIndex, folder: Path, observer: Observer | None = None) -> int | None:
    """Load 500 documents into an index in five slices."""
    values = np.random.default_rng(1).integers(0, 2**63, 500, np.uint64)
    load = index.store.bulk(folder, step_documents=100)  # type: ignore[attr-defined]
    load.add_run(values, [str(number) for number in range(len(values))], 7)
    return load.merge(observer or Observer())  # type: ignore[no-any-return]


def test_the_grants_of_the_page_are_sufficient_for_each_user(server: PostgresqlServer, tmp_path: Path) -> None:
    for user in ("loader", "crawler", "reader"):
        with pytest.raises(HsimhashError, match=f'user "{user}" lacks a privilege on public.pages .*; grant it'):
            HSimIndex.open(as_user(server, user))
    granted(server, "queries", "add, claim and remove documents", "large loads and repairs")
    with HSimIndex.open(as_user(server, "reader")) as index:
        assert [match.doc_id for match in index.query(5)] == ["a"]
        assert (index.count(), index.describe()["documents"], index.check().is_sound) == (1, 1, True)
        assert [document.doc_id for document in index.documents()] == ["a"]
        for write in (lambda: index.add(6, "b"), lambda: index.remove(["a"]), lambda: index.claim(FAR, "c")):
            with pytest.raises(HsimhashError, match=r'user "reader" lacks a privilege .*: permission denied.*grant it'):
                write()
    with HSimIndex.open(as_user(server, "crawler")) as index:
        index.add(6, "b")
        index.add(9, "b")
        assert index.claim(FAR, "c").is_new
        assert index.remove(["a", "b", "c"]) == 3
        assert index.check(repair=True).is_sound
    with HSimIndex.open(as_user(server, "loader")) as index:
        asked = iter([False, False, True])
        assert fill(index, tmp_path / "runs", Observer(stop=lambda: next(asked))) is None
        assert "pages_drawer_1" not in indexes(server)
        assert index.check(repair=True).repaired == 5
        assert index.check().is_sound
    with pytest.raises(IndexExistsError):
        HSimIndex.create(as_user(server, "pages_owner"))
    assert run("drop-table", "--store", as_user(server, "loader"), "--yes").exit_code == 0


def test_a_user_who_does_not_own_the_tables_loads_many_documents_with_their_indexes(
    server: PostgresqlServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    granted(server, "add, claim and remove documents")
    before = indexes(server)
    with HSimIndex.open(as_user(server, "crawler")) as index:
        index.remove(["a"])
        asked = iter([False, False, True])
        with caplog.at_level(logging.WARNING, logger="hsimhash"):
            assert fill(index, tmp_path / "runs", Observer(stop=lambda: next(asked))) is None
            assert indexes(server) == before
            assert index.store.bulk(tmp_path / "runs", step_documents=100).merge() == 500  # type: ignore[attr-defined]
        (said,) = caplog.messages
        assert said.startswith('user "crawler" cannot create indexes on public.pages, so this load keeps them')
        assert indexes(server) == before
        assert (index.count(), index.check().is_sound) == (500, True)


def test_an_owner_who_may_not_create_indexes_does_not_drop_them(server: PostgresqlServer, tmp_path: Path) -> None:
    before = indexes(server)
    with connected(server) as connection, HSimIndex.open(as_user(server, "pages_owner")) as index:
        connection.execute("REVOKE CREATE ON SCHEMA public FROM pages_owner")
        index.remove(["a"])
        assert fill(index, tmp_path / "runs") == 500
        assert indexes(server) == before
    assert "does not have CREATE on schema public" in doctor(server, "pages_owner")["message"]


def test_a_repair_that_only_the_owner_can_make_says_so(server: PostgresqlServer) -> None:
    granted(server, "add, claim and remove documents")
    with connected(server) as connection:
        connection.execute("DROP INDEX pages_drawer_2")
    with (
        HSimIndex.open(as_user(server, "crawler")) as index,
        pytest.raises(HsimhashError, match=r'user "crawler" .*must be owner.*; run this command as the owner of the'),
    ):
        index.check(repair=True)


def doctor(server: PostgresqlServer, user: str) -> dict[str, str]:
    """Return what doctor says about the user's privileges."""
    checks = json.loads(run("doctor", "--store", as_user(server, user), "--json").stdout)["checks"]
    (found,) = [one for one in checks if one["name"] == "privileges"]
    return found  # type: ignore[no-any-return]


def test_doctor_says_what_the_user_may_not_do(server: PostgresqlServer) -> None:
    assert doctor(server, "pages_owner")["message"] == 'user "pages_owner" can read and write, and owns the tables'
    with connected(server) as connection:
        connection.execute("GRANT SELECT ON pages_record TO reader")
        found = doctor(server, "reader")
        assert (found["status"], run("doctor", "--store", as_user(server, "reader")).exit_code) == ("fail", 6)
        assert found["message"].startswith('user "reader" cannot read public.pages, public.pages_fingerprints; run ')
        follow(connection, found)
        found = doctor(server, "reader")
        assert (found["status"], run("doctor", "--store", as_user(server, "reader")).exit_code) == ("warn", 0)
        assert found["message"].startswith(f'user "reader" can query the index, but cannot write to {TABLES}; ')
        connection.execute(f"GRANT INSERT ON {TABLES} TO reader".encode())
        assert "run GRANT UPDATE, DELETE ON" in doctor(server, "reader")["message"]
        follow(connection, found)
    found = doctor(server, "reader")
    assert found["status"] == "ok"
    assert found["message"].startswith('user "reader" can read and write, but does not own the tables: ')
    with HSimIndex.open(as_user(server, "reader")) as index:
        index.add(6, "b")


def follow(connection: psycopg.Connection, found: dict[str, str]) -> None:
    """Execute the statement in doctor's message."""
    connection.execute(found["message"].partition("; ")[2].partition("run ")[2].encode())
