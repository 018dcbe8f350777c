"""How failures of PostgreSQL and Redis servers are reported: with the remedy, and with the URL to pass to doctor."""

from __future__ import annotations

import pytest

from hsimhash.store.postgresql.address import DatabaseAddress
from hsimhash.store.redis.address import RedisAddress
from hsimhash.store.redis.failures import store_error as redis_error

psycopg = pytest.importorskip("psycopg")


def database_error(error: Exception) -> str:
    from hsimhash.store.postgresql.failures import store_error

    address = DatabaseAddress.parse("postgresql://crawler@db1/crawl?table=pages&sslmode=require")
    return str(store_error(error, address, "crawler"))


def test_the_remedy_for_a_wrong_password_names_every_place_that_libpq_reads() -> None:
    error = psycopg.OperationalError('FATAL:  password authentication failed for user "crawler"')
    assert database_error(error).endswith(
        "; check the user in the URL, and the password in PGPASSWORD, which overrides the others, in passfile= or in "
        "~/.pgpass"
    )


@pytest.mark.parametrize(
    ("schema", "remedy"),
    [
        ("public", '; to create an index there, run GRANT CREATE ON SCHEMA public TO "crawler" as the owner of the '),
        ("web", '; to create an index there, run GRANT USAGE, CREATE ON SCHEMA web TO "crawler"; to use an existing '),
    ],
)
def test_a_missing_privilege_on_a_schema_comes_with_the_statement(schema: str, remedy: str) -> None:
    assert remedy in database_error(psycopg.errors.InsufficientPrivilege(f"permission denied for schema {schema}"))


def test_doctor_is_recommended_with_the_url_of_the_index() -> None:
    url = "postgresql://crawler@db1/crawl?sslmode=require&table=public.pages"
    unknown = database_error(psycopg.OperationalError("something new"))
    assert unknown.endswith(f"""; run "hsimhash doctor --store '{url}'" for details""")
    lost = redis_error(OSError("something new"), RedisAddress.parse("redis://me@cache/1?prefix=pages"))
    assert str(lost).endswith(
        """: something new; run "hsimhash doctor --store 'redis://me@cache:6379/1?prefix=pages'" for details"""
    )
