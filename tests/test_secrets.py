"""No secret in a URL is shown, logged or stored, wherever the URL is passed and however it is written.

URLs are generated with planted secrets. Each is passed to a command or the Python API, or set in a variable or a
settings file. No server is needed: URLs of stores with secrets are refused, and those of inputs lead to a closed port.
"""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest

from hsimhash import HSimIndex
from hsimhash.errors import HsimhashError
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.settings import load
from hsimhash.store import check_url
from hsimhash.store.hbase.files.stage import open_stage
from hsimhash.store.urls import holds_password, masked
from tests.support.command_line import run
from tests.support.effort import tries

pytestmark = [pytest.mark.every_case, pytest.mark.usefixtures("in_empty_folder")]

TRIES = tries(2_500, 60)  # for each of the four places that take URLs
WORD = "zq"  # begins each part of a secret, and nothing else
ODD = "/?#@&=:;%+ '\"\\中"
STORES = {
    "redis": "{}127.0.0.1:1/0?prefix=a",
    "rediss": "{}127.0.0.1:1/0",
    "redis+sentinel": "{}127.0.0.1:1/mymaster/0?",
    "unix": "{}/run/redis.sock?db=0",
    "hbase": "{}127.0.0.1:1/crawl:pages?timeout=1s",
    "hbase+thrift1": "{}127.0.0.1:1/pages",
    "hbase+https": "{}127.0.0.1:1/pages?",
    "postgresql": "{}127.0.0.1:1/crawl?table=pages",
    "postgres": "{}127.0.0.1:1/crawl?table=pages",
    "postgresql+psycopg": "{}127.0.0.1/crawl",
    "jdbc:postgresql": "{}127.0.0.1/crawl?",
    "mysql": "{}127.0.0.1/crawl?charset=utf8",
    "http": "{}127.0.0.1/x",
}
OPTIONS = ("password", "PASSWORD", "sslpassword", "pass%77ord", "%70assword", "pwd", "secret", "token", "auth_token")
OPTIONS += ("api_key", "secret_key", "tiemout", "x")
FILES = ("http", "https", "s3", "gs", "hdfs", "ftp", "sftp", "abfs", "webhdfs", "nosuch")
COMMANDS = (
    ("describe", "--store"),
    ("-v", "status", "--store"),
    ("-vv", "doctor", "--json", "--store"),
    ("check", "--store"),
    ("collect", "--store"),
    ("compact", "--store"),
    ("backup", "copy", "--store"),
    ("remove", "--yes", "--id", "a", "--store"),
    ("expire", "--yes", "--before", "2020-01-01", "--store"),
    ("export", "--store"),
    ("query", "--fingerprint", "0", "--store"),
    ("explain", "--store"),
    ("create-table", "--store"),
    ("drop-table", "--yes", "--store"),
    ("ingest", "texts.jsonl", "--store"),
    ("dedup", "texts.jsonl", "--out", "out", "--against"),
    ("bulk-load", "texts.jsonl", "--stage", "stage", "--store"),
    ("relayout", "--to-layout", "10", "--to", "lmdb://new", "--store"),
    ("relayout", "--to-layout", "10", "--store", "lmdb://old", "--to"),
    ("import-redis", "--store", "lmdb://old"),
    ("serve", "--store"),
    ("demo", "--store"),
    ("plan", "--documents", "1000", "--store"),
    ("settings", "show", "--store"),
    ("-v", "settings", "show", "--json", "--store"),
    ("describe",),  # not where a URL belongs
    ("query", "--limit"),
    (),
)
INPUT_COMMANDS = (
    ("ingest", "--store", "lmdb://old"),
    ("-v", "ingest", "--store", "lmdb://old", "--job", "job"),
    ("dedup", "--out", "out"),
    ("fingerprint",),
    ("fit", "--out", "table"),
    ("calibrate",),
)
STAGE_COMMANDS = (
    ("bulk-load", "texts.jsonl", "--store", "hbase://127.0.0.1:1/pages?deadline=1ms", "--stage"),
    (
        "relayout",
        "--store",
        "lmdb://old",
        "--to",
        "hbase://127.0.0.1:1/pages?deadline=1ms",
        "--to-layout",
        "10",
        "--stage",
    ),
    ("backup", "--store", "hbase://127.0.0.1:1/pages"),
)


def secret_of(random: Random, *, is_raw: bool) -> str:
    """Return a password whose parts are words to look for, separated by characters that are special in URLs."""
    words = [WORD + "".join(random.choices("bcdfghjkmnpqrstvw", k=9)) for _ in range(3)]
    whole = "".join(word + random.choice(ODD) for word in words) + random.choice(["", random.choice(ODD)])
    return whole if is_raw else quote(whole, safe="")


def store_url(random: Random) -> str:
    """Return the URL of a store, or what may be mistaken for one, which must be refused because of its secrets."""
    scheme, rest = random.choice(list(STORES.items()))
    user = f"{random.choice(['', 'me', 'me%40azure', 'a-b'])}:{secret_of(random, is_raw=random.random() < 0.6)}@"
    option = f"{random.choice(OPTIONS)}={secret_of(random, is_raw=random.random() < 0.3)}"
    kind = random.randrange(5)
    if kind == 0:
        return f"host=127.0.0.1 user=me password='{secret_of(random, is_raw=True)}' dbname=crawl table=pages"
    if kind == 1:
        return f"{random.choice(['', 'redis:', 'postgresql:'])}{user}127.0.0.1/0"
    url = f"{scheme}://{rest.format(user if kind != 2 else '')}"
    return url if kind == 3 else f"{url}{'&' if '?' in url else '?'}{option}"


def file_url(random: Random) -> str:
    """Return the URL of a file or folder, with secrets."""
    user = f"{random.choice(['', 'me', 'AKIA0'])}:{secret_of(random, is_raw=random.random() < 0.5)}@"
    query = f"?X-Amz-Signature={secret_of(random, is_raw=random.random() < 0.3)}"
    user, query = random.choice([(user, ""), ("", query), (user, query)])
    return f"{random.choice(FILES)}://{user}127.0.0.1:1/{random.choice(['a.jsonl', 'b/c.parquet', '*.jsonl'])}{query}"


def stage_url(random: Random) -> str:
    """Return the URL of a folder, with a password."""
    user = f"{random.choice(['me', 'AKIA0'])}:{secret_of(random, is_raw=random.random() < 0.6)}@"
    return f"{random.choice(FILES)}://{user}127.0.0.1:1/tmp/stage"


def told_by(call: Callable[[], object]) -> str:
    """Return everything that a call's error shows to people, to programs and in a log."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about old keywords
            call()
    except (HsimhashError, ValueError, OSError) as error:
        return f"{error} {error!r} {error.args} {''.join(traceback.format_exception(error))}"
    return ""


@pytest.fixture
def files(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Make an index and texts; return a function that reads the log and all files but the settings file."""
    caplog.set_level(logging.DEBUG, "hsimhash")
    Path("texts.jsonl").write_text('{"id": "a", "text": "one two three four"}\n')
    HSimIndex.create("lmdb://old").close()
    return lambda: (
        caplog.text
        + "".join(
            f"{path}{path.read_bytes()!r}" for path in Path().rglob("*") if path.is_file() and path.name != "given.yaml"
        )
    )


def assert_not_told(said: str) -> None:
    assert WORD not in said, said[said.index(WORD) - 300 :][:600]


@pytest.mark.timeout(1_500)
def test_no_command_shows_a_secret_of_a_store(files: Callable[[], str]) -> None:
    random = Random(36)
    for number in range(TRIES):
        url, command = store_url(random), COMMANDS[number % len(COMMANDS)]
        result = run(*command, url)
        assert result.exit_code != 0 or "plan" in command, (command, url)  # which uses only the kind of store
        said = result.output + "".join(traceback.format_exception(*result.exc_info))
        assert WORD not in said.lower(), (command, url, said)
    assert_not_told(files())


@pytest.mark.timeout(1_500)
def test_no_variable_no_settings_file_and_no_call_shows_one(files: Callable[[], str]) -> None:
    random = Random(37)
    for _ in range(TRIES):
        url = store_url(random)
        if "\\" not in url and '"' not in url:
            Path("given.yaml").write_text(f'store: "{url}"\n', encoding="utf-8")
        variable = random.choice(["HSIMHASH_STORE", "HSIMHASH_STOER", "HSIMHASH_LAYOUT", "HSIMHASH_REDIS_PASSWROD"])
        said = "".join(
            [
                run("-v", "describe", environment={variable: url}).output,
                run("-v", "--config", "given.yaml", "settings", "show").output,
                told_by(lambda url=url: load(None, {"HSIMHASH_STORE": url})),
                told_by(lambda url=url: load({"store": url})),
                told_by(lambda url=url: HSimIndex.open(url)),
                told_by(lambda url=url: HSimIndex.create(url)),
                told_by(lambda url=url: HSimIndex.open(url, exclusive=True)),
                told_by(lambda url=url: HSimIndex.create(url, ttl_s=5)),
            ]
        )
        assert WORD not in said.lower(), (url, said)
    assert_not_told(files())


@pytest.mark.timeout(1_500)
def test_no_command_shows_or_stores_a_secret_of_an_input(files: Callable[[], str]) -> None:
    random = Random(38)
    for number in range(TRIES):
        url, command = file_url(random), INPUT_COMMANDS[number % len(INPUT_COMMANDS)]
        result = run(*command, url)
        said = result.output + "".join(traceback.format_exception(*result.exc_info))
        said += told_by(lambda url=url: find_inputs([url], InputOptions()))
        assert WORD not in said.lower(), (command, url, said)
    assert_not_told(files())


@pytest.mark.timeout(1_500)
def test_a_stage_with_a_password_is_refused_without_it(files: Callable[[], str]) -> None:
    random = Random(39)
    for number in range(TRIES):
        url, command = stage_url(random), STAGE_COMMANDS[number % len(STAGE_COMMANDS)]
        result, said = run(*command, url), told_by(lambda url=url: open_stage(url))
        assert result.exit_code != 0, (command, url)
        assert said, url
        said += result.output + "".join(traceback.format_exception(*result.exc_info))
        assert WORD not in said.lower(), (command, url, said)
    assert_not_told(files())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("redis://app@cache:6379/0?prefix=a&timeout=5s", "redis://…@cache:6379/0?prefix=a&timeout=5s"),
        ("redis://u:se/c?r#e@t@h/0", "redis://…@h/0"),
        ("redis://u:secret%40h/0", "redis://…@h/0"),
        ("postgresql://db/x?table=a&%70assword=b&sslmode=require", "postgresql://db/x?table=a&…&sslmode=require"),
        ("hbase://gw1,gw2:9091/crawl:pages?tiemout=5s&x=y", "hbase://gw1,gw2:9091/crawl:pages?…"),
        ("host=db user=me password='a b' dbname=x", "host=db user=me … dbname=x"),
        ("jdbc:postgresql://u:p@h/db", "jdbc:postgresql://…@h/db"),
        ("u:p@h", "…@h"),
        ("unexpected argument (redis://u:a b@h/0)", "unexpected argument (redis://…@h/0)"),
        ("lmdb:pages", "lmdb:pages"),
        ("", ""),
    ],
)
def test_what_is_harmless_in_a_url_is_shown(text: str, shown: str) -> None:
    assert masked(text) == shown
    assert masked(shown) == shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://app@cache/0?password_file=/run/a@b",
        "postgresql://h:5432/db?user=me@azure&table=x&passfile=/run/secrets/p",
        "postgresql://me%40azure@h1:1,h2:2/db?table=x",
        "https://host:8080/@me/a.jsonl",
        "https://[::1]:8080/@me/a.jsonl",
        "unix:///run/a:b@c.sock?prefix=a",
    ],
)
def test_what_looks_like_a_password_and_is_none(url: str) -> None:
    assert not holds_password(url)


def test_a_password_that_cuts_a_url_is_named_and_not_what_is_left_of_it() -> None:
    for url in ("redis://u:a/b@h/0", "redis://u:6379/b@h/0", "redis://u:a?b=c@h/0", "postgresql://u:a#b@h/db?table=t"):
        with pytest.raises(ValueError, match="must not contain a password"):
            check_url(url)
    with pytest.raises(ValueError, match=r"unknown option sslmod; did you mean sslmode\?"):
        check_url("postgresql://h/db?table=t&sslmod=require")
