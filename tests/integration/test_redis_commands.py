"""The commands on a real Redis: an index's whole life, and what `doctor` reports."""

from __future__ import annotations

import json
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest
import redis

from hsimhash.index import HSimIndex
from tests.support.command_line import assert_a_half_copied_index_is_reported, assert_status_names_a_crowd, run
from tests.support.processes import stopped
from tests.support.redis_server import QUICK, RedisServer, redis_running
from tests.support.serve_process import JSON, served
from tests.support.stopped_servers import END_S, ended_while_stopped
from tests.test_ingest_fit import assert_a_killed_ingest_ends_as_an_undisturbed_one


def done(*arguments: str, given: str = "") -> str:
    result = run(*arguments, given=given)
    assert result.exit_code == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def url(redis_server: RedisServer, request: pytest.FixtureRequest) -> str:
    return redis_server.url(request.node.name.replace("[", "-").rstrip("]")[-40:])


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    path = tmp_path / "pages.tsv"
    path.write_text("".join(f"doc {number}\t{number * 0x9E3779B97F4A7C15 % 2**64:016x}\n" for number in range(3_000)))
    return path


def test_an_index_is_made_met_again_refused_to_others_and_dropped(url: str, redis_server: RedisServer) -> None:
    assert "created" in run("create-table", "--store", url, "--layout", "10").stderr
    assert "already exists with layout 10" in run("create-table", "--store", url).stderr
    other = run("create-table", "--store", url, "--layout", "4")
    assert other.exit_code == 5
    assert "layout: the index has 10, requested 4" in other.stderr
    assert run("create-table", "--store", url, "--regions", "4").exit_code == 2
    facts = json.loads(done("describe", "--store", url, "--json"))
    assert (facts["documents"], facts["persistence"], facts["eviction"]) == (0, "none", "noeviction")
    assert "documents" in done("status", "--store", url)
    beside = redis.Redis(port=redis_server.port)
    beside.set("other", "kept")
    assert "dropped" in run("drop-table", "--yes", "--store", url).stderr
    assert beside.get("other") == b"kept"
    assert list(beside.scan_iter(f"{url.partition('prefix=')[2]}:*")) == []
    beside.close()
    for command in (("describe",), ("drop-table", "--yes")):
        missing = run(*command, "--store", url)
        assert missing.exit_code == 5
        assert "no index at" in missing.stderr
        assert (f"hsimhash create-table --store '{url}'" in missing.stderr) == (command[0] == "describe")


def test_documents_are_ingested_explained_checked_exported_and_ingested_again(
    url: str, pages: Path, tmp_path: Path
) -> None:
    job = ("--job", str(tmp_path / "job"))
    given = ("--store", url, "--format", "fingerprints", *job)
    assert json.loads(done("ingest", str(pages), *given))["added"] == 3_000
    assert "nothing to do" in run("ingest", str(pages), *given).stderr
    fingerprint = f"{7 * 0x9E3779B97F4A7C15 % 2**64:016x}"
    assert '"doc 7"' in done("query", fingerprint, "--store", url, "--json")
    assert json.loads(done("explain", "--query", fingerprint, "--store", url, "--json"))["documents"] >= 1
    report = json.loads(done("check", "--store", url, "--json"))
    counts = [report[name] for name in ("documents", "drawer_rows", "problems", "leftovers")]
    assert counts == [3_000, 12_000, 0, 0]
    exported = tmp_path / "out.jsonl"
    done("export", "--store", url, "--output", str(exported))
    target = f"lmdb://{tmp_path / 'copy'}"
    done("ingest", str(exported), "--store", target, "--fingerprint-field", "fingerprint")
    with HSimIndex.open(url) as one, HSimIndex.open(target) as other:
        assert list(one.documents()) == list(other.documents())
    back = f"{url}-back"
    done("ingest", str(exported), "--store", back, "--fingerprint-field", "fingerprint", "--job", str(tmp_path / "b"))
    with HSimIndex.open(url) as one, HSimIndex.open(back) as other:
        assert list(one.documents()) == list(other.documents())


@pytest.mark.parametrize("rule", ["skip", "tag"])
def test_near_duplicates_are_decided_as_on_lmdb(url: str, pages: Path, tmp_path: Path, rule: str) -> None:
    near = tmp_path / "near.tsv"
    near.write_text("".join(f"doc {number}\t{number % 50:016x}\n" for number in range(200)))
    counts = []
    for store in (url, f"lmdb://{tmp_path / 'index'}"):
        how = ("--on-duplicate", rule, "--format", "fingerprints", "--job", str(tmp_path / store[:4]))
        summary = json.loads(done("ingest", str(pages), str(near), "--store", store, *how))
        counts.append({name: summary[name] for name in ("documents", "added", "unchanged", "duplicates")})
    assert counts[0] == counts[1]


def test_documents_expire_and_what_they_leave_is_collected(url: str, pages: Path, tmp_path: Path) -> None:
    done("ingest", str(pages), "--store", url, "--format", "fingerprints", "--job", str(tmp_path / "job"))
    assert json.loads(done("expire", "--before", "2100-01-01", "--yes", "--store", url, "--json"))["removed"] == 3_000
    assert json.loads(done("collect", "--store", url, "--json")) == {"entries": 3_000, "deleted": 0, "left": 3_000}


def test_a_password_that_nobody_asks_for_is_named(url: str) -> None:
    told = run("describe", "--store", url, environment={"HSIMHASH_REDIS_PASSWORD": "sesame"})
    assert (told.exit_code, "it does not have a password" in told.stderr, "sesame" in told.output) == (4, True, False)


def test_an_index_is_made_with_a_ttl_which_others_may_not_ask_otherwise(url: str) -> None:
    for _ in range(2):
        assert run("create-table", "--store", url, "--ttl", "90d").exit_code == 0
    assert run("create-table", "--store", url).exit_code == 0
    other = run("create-table", "--store", url, "--ttl", "1d")
    assert other.exit_code == 5
    assert "a TTL of 90d, but --ttl is 1d" in other.stderr
    assert json.loads(done("describe", "--store", url, "--json"))["ttl_s"] == 7_776_000
    done("create-table", "--store", f"{url}-none")
    assert "has no TTL" in run("create-table", "--store", f"{url}-none", "--ttl", "1d").stderr


def test_a_half_copied_index_on_redis_is_reported(url: str) -> None:
    done("create-table", "--store", url)
    assert_a_half_copied_index_is_reported(url)


def test_the_doctor_finds_a_sound_server_well(tmp_path: Path) -> None:
    with redis_running(tmp_path, ("--appendonly", "yes", "--save", "")) as server:
        assert run("create-table", "--store", server.url()).exit_code == 0
        found = json.loads(done("doctor", "--store", server.url(), "--json"))
    assert found["is_well"]
    assert {one["name"]: one["status"] for one in found["checks"]} == dict.fromkeys(
        ("server", "persistence", "eviction", "memory", "record", "read"), "ok"
    )


def test_the_doctor_warns_of_what_loses_documents(tmp_path: Path) -> None:
    careless = ("--save", "", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with redis_running(tmp_path, careless) as server:
        missing = run("doctor", "--store", server.url(), "--json")
    assert missing.exit_code == 5
    found = {one["name"]: one for one in json.loads(missing.stdout)["checks"]}
    assert (found["persistence"]["status"], found["eviction"]["status"], found["index"]["status"]) == (
        "warn",
        "fail",
        "fail",
    )
    assert "noeviction" in found["eviction"]["message"]
    gone = run("doctor", "--store", server.url(), "--quick")
    assert gone.exit_code == 4
    assert "Connection refused" in gone.stdout


SHOWN = (("describe",), ("status",), ("doctor",))
# As operations/redis.md lists them.
NEEDED = (
    "append del evalsha exists get hdel hget hgetall hincrby hmget hset mget ping scan script|load set time "
    "unlink zadd zcard zrangebylex zrangebyscore zrem zremrangebyscore zscore"
)


@pytest.mark.parametrize(
    "rights", [("+@all", "-@dangerous"), ("-@all", *(f"+{name}" for name in NEEDED.split()))], ids=["usual", "least"]
)
def test_a_user_without_info_and_config_does_all_that_an_index_needs(
    tmp_path: Path, pages: Path, rights: tuple[str, ...]
) -> None:
    (tmp_path / "secret").write_text("sesame\n")
    with redis_running(tmp_path / "server") as server, closing(redis.Redis(port=server.port)) as client:
        client.execute_command("ACL", "SETUSER", "app", "on", ">sesame", "~pages:*", *rights)
        url = f"redis://app@127.0.0.1:{server.port}/0?prefix=pages&password_file={tmp_path / 'secret'}"
        done("create-table", "--store", url, "--ttl", "90d")
        done("ingest", str(pages), "--store", url, "--format", "fingerprints", "--job", str(tmp_path / "job"))
        facts = json.loads(done("describe", "--store", url, "--json"))
        assert (facts["documents"], facts["persistence"], facts["server_used_bytes"]) == (3_000, "unknown", "unknown")
        assert "unknown" in done("describe", "--store", url)
        assert "documents" in done("status", "--store", url)
        found = {one["name"]: one for one in json.loads(done("doctor", "--store", url, "--json"))["checks"]}
        assert {name: one["status"] for name, one in found.items()} == {
            **dict.fromkeys(("server", "persistence", "eviction"), "warn"),
            **dict.fromkeys(("record", "read"), "ok"),
        }
        assert "INFO" in found["server"]["message"]
        assert '"doc 7"' in done("query", f"{7 * 0x9E3779B97F4A7C15 % 2**64:016x}", "--store", url, "--json")
        done("remove", "doc 7", "--yes", "--store", url)
        done("check", "--repair", "--store", url)
        done("collect", "--store", url)
        done("drop-table", "--yes", "--store", url)


def test_a_server_whose_info_is_renamed_is_not_called_too_old(tmp_path: Path) -> None:
    with redis_running(tmp_path, (*QUICK, "--rename-command", "INFO", "")) as server:
        assert run("create-table", "--store", server.url()).exit_code == 0
        for command in SHOWN:
            told = run(*command, "--store", server.url())
            assert (told.exit_code, "6.2" in told.output) == (0, False), told.output


def test_a_password_in_the_environment_opens_the_store_of_every_command_and_is_shown_by_none(tmp_path: Path) -> None:
    with redis_running(tmp_path / "server", (*QUICK, "--requirepass", "open sesame")) as server:
        (tmp_path / "pages.tsv").write_text("a\t0000000000000005\n")
        ingest = ("ingest", str(tmp_path / "pages.tsv"), "--format", "fingerprints", "--job", str(tmp_path / "job"))
        commands = (("create-table",), ("create-table",), ingest, ("query", "5"), ("describe",), ("doctor",))
        for command in (*commands, ("check",), ("drop-table", "--yes")):
            given = {"HSIMHASH_STORE": server.url(), "HSIMHASH_REDIS_PASSWORD": "open sesame"}
            done = run(*command, environment=given)
            assert done.exit_code == 0, done.output
            wrong = run(*command, environment={**given, "HSIMHASH_REDIS_PASSWORD": "sesame wrong"})
            assert "rejected the user or password" in wrong.output
            assert "sesame" not in done.output + wrong.output
        assert all(b"sesame" not in path.read_bytes() for path in (tmp_path / "job").rglob("*") if path.is_file())


def test_fingerprints_in_sets_by_segment_are_imported(url: str, redis_server: RedisServer) -> None:
    values = [number * 0x9E3779B97F4A7C15 % 2**64 for number in range(500)]
    with closing(redis.Redis(port=redis_server.port, db=3)) as client:
        for value in values:
            for block in range(4):
                client.sadd(f"simhash:{block}:{value >> 48 - 16 * block & 0xFFFF:04x}", f"{value:016x}")
        client.set("simhash:other", "no set")
        client.sadd("names", "no fingerprint")
    source = redis_server.url(database=3)
    done("create-table", "--store", url, "--profile", "auto-1")
    given = ("import-redis", source, "--match", "simhash:*", "--store", url)
    assert json.loads(done(*given)) == {"members": 500, "added": 500}
    assert json.loads(done(*given))["added"] == 0
    with HSimIndex.open(url) as index:
        assert [int(document.doc_id, 16) for document in index.documents()] == sorted(values)
    bad = run("import-redis", source, "--match", "names", "--store", url)
    assert bad.exit_code == 2
    assert "is not a fingerprint in hex" in bad.stderr


@pytest.mark.usefixtures("in_empty_folder")
def test_an_ingest_may_claim(url: str, pages: Path) -> None:
    given = ("ingest", str(pages), "--store", url, "--on-duplicate", "skip", "--claim")
    first = json.loads(done(*given))
    assert 0 < first["added"] <= first["documents"]
    with HSimIndex.open(url) as index:
        assert index.count() == first["added"]
        for document in index.documents():
            near = index.query(document.fingerprint, exclude=document.doc_id)
            assert near == [], (document, near)


def test_an_ingest_ends_though_the_server_has_stopped(redis_server: RedisServer, url: str, tmp_path: Path) -> None:
    ended_while_stopped(url, lambda: [redis_server.process.pid], tmp_path)


def test_serve_ends_though_a_call_waits(redis_server: RedisServer, url: str) -> None:
    HSimIndex.create(url).close()
    with served(url) as serving, stopped(redis_server.process.pid):
        caller = serving.caller()
        caller.connection.request("POST", "/query", b'{"fingerprint": "0000000000000000"}', {"Content-Type": JSON})
        time.sleep(0.5)  # the call has been sent
        serving.process.send_signal(signal.SIGTERM)
        assert caller.connection.getresponse().status == 503
        assert serving.process.wait(END_S / 2) == 0


def test_status_names_a_crowded_fingerprint(url: str) -> None:
    assert_status_names_a_crowd(url)


def test_a_killed_ingest_that_is_begun_again_keeps_the_table_that_was_fitted(url: str, tmp_path: Path) -> None:
    assert_a_killed_ingest_ends_as_an_undisturbed_one(url, tmp_path)
