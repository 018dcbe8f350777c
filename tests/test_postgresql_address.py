"""The URL of an index on PostgreSQL: our own options, those for libpq, and what it must not contain."""

from __future__ import annotations

import pytest

from hsimhash.store import check_url, store_name
from hsimhash.store.postgresql.address import DatabaseAddress


def test_the_table_and_the_times_are_ours_and_all_else_is_given_to_libpq() -> None:
    url = "postgresql://me@db1,db2:5433/crawl?sslmode=verify-full&table=web.pages&timeout=2s&deadline=1min&host="
    found = DatabaseAddress.parse(url.removesuffix("&host="))
    assert found.conninfo == "postgresql://me@db1,db2:5433/crawl?sslmode=verify-full"
    assert (found.full_table, found.timeout_s, found.deadline_s) == ("web.pages", 2.0, 60.0)
    plain = DatabaseAddress.parse("postgresql:///crawl?table=pages&host=/run/postgresql")
    assert (plain.full_table, plain.timeout_s, plain.deadline_s) == ("public.pages", 5.0, None)
    assert plain.name == "/run/postgresql/crawl"


def test_a_store_has_one_name_whoever_talks_to_it() -> None:
    names = {
        store_name(f"postgresql://{user}db1:5432/crawl?table={table}{options}")
        for user in ("", "me@", "other@")
        for table in ("pages", "public.pages")
        for options in ("", "&timeout=1s", "&sslmode=require")
    }
    assert names == {"postgresql://db1:5432/crawl?table=public.pages"}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://db1/crawl", "no table in the URL"),
        ("postgresql://db1/crawl?tabel=pages", "unknown option tabel; did you mean table"),
        ("postgresql://db1/crawl?table=Pages", "lower-case"),
        ("postgresql://db1/crawl?table=pages;drop", "lower-case"),
        (f"postgresql://db1/crawl?table={'x' * 46}", "at most 45"),
        ("postgresql://db1/crawl?table=a&table=b", "twice"),
        ("postgresql://db1/crawl?table=a&deadline=soon", "invalid deadline=soon"),
        ("postgresql:crawl?table=a", "lmdb://relative/path"),
        ("postgresql://db1?table=a", "expected postgresql://user@host:5432/database"),
    ],
)
def test_a_url_that_cannot_be_is_refused_with_the_remedy(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:sesame@db1/crawl?table=pages",
        "postgresql://me@db1/crawl?table=pages&password=sesame",
        "postgresql://me@db1/crawl?password=sesame&table=pages",
        "postgresql://me:sesame@db1/crawl?table=Pages",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="store 'postgresql://") as refused:
        check_url(url)
    assert "sesame" not in str(refused.value)
