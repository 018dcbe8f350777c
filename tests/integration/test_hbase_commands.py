"""The commands on a real HBase: a table's whole life, and what `doctor` reports."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import closing
from pathlib import Path

import happybase
import numpy as np
import pytest

from hsimhash.index import HSimIndex
from hsimhash.layout import Layout
from hsimhash.rowkey import splits
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.opening import open_gateway
from hsimhash.store.hbase.gateway.table import TableSettings
from hsimhash.store.hbase.operations import make_table
from tests.support.command_line import assert_status_names_a_crowd, run
from tests.support.hbase_server import Gateways, HBaseServer, free_ports
from tests.test_ingest_fit import assert_a_killed_ingest_ends_as_an_undisturbed_one

pytestmark = pytest.mark.usefixtures("in_empty_folder")  # `check` writes a job folder below the working folder


@pytest.fixture
def store(stores: tuple[str, str]) -> str:
    return stores[0]


def done(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.stdout + result.stderr
    return result.stdout


def test_a_table_is_planned_made_met_again_refused_to_others_and_dropped(store: str) -> None:
    special = ("--ttl", "1d", "--compression", "gz", "--family-option", "IN_MEMORY=true")
    asked = ("--store", store, "--layout", "4", "--regions", "3", *special)
    planned = done("create-table", *asked, "--dry-run").splitlines()
    assert [line.split(": ")[0] for line in planned] == [
        f"+ create table default:{Address.parse(store).table}",
        *(f"+ create family {name}" for name in "fdi"),
        "+ create record",
    ]
    assert "created" in run("create-table", *asked).stderr
    for again in (asked, ("--store", store)):  # options that are not given do not have to match
        told = run("create-table", *again).stderr
        assert "already exists with layout 4 and profile auto-3" in told
        assert "documents expire after 1d" in told
    planned = done("create-table", "--store", store, "--dry-run")
    assert planned.splitlines()[-1] == "= ok record: layout 4, profile auto-3"  # as it is, not the default
    facts = json.loads(done("describe", "--store", store, "--json"))
    keys = [key.hex() for key in splits(Layout.named("4"), 3)]
    assert [(one["start"], one["stop"]) for one in facts["region_ranges"]] == list(itertools.pairwise(["", *keys, ""]))
    assert facts["region_ranges"][1]["segments"] == f"[{keys[0]}, {keys[1]})"
    assert facts["deviations"] == []
    assert [facts["families"][name]["TTL"] for name in "fd"] == ["86400", "86400"]
    assert {(one["COMPRESSION"], one["IN_MEMORY"]) for one in facts["families"].values()} == {("GZ", "true")}
    assert "documents" not in facts
    again = done("create-table", *asked, "--dry-run").splitlines()
    assert [line[:4] for line in again] == ["= ok"] * 5
    other = run("create-table", "--store", store, "--layout", "10")
    assert other.exit_code == 5
    assert "layout: the index has 4, requested 10" in other.stderr
    longer = run("create-table", "--store", store, "--layout", "4", "--ttl", "2d", "--dry-run")
    assert "~ alter family f: TTL is 1d, expected 2d" in longer.stdout
    assert f"alter 'default:{Address.parse(store).table}', {{NAME => 'd', TTL => '172800'}}" in longer.stderr
    assert longer.exit_code == 5
    assert "then run this command again" in longer.stderr
    assert longer.stderr.index("run flush and major_compact") < longer.stderr.index("alter 'default")
    assert "does not have the settings that you requested" in longer.stderr.splitlines()[-1]
    for option in ("--compression", "none"), ("--family-option", "IN_MEMORY=false"), ("--ttl", "2d"):
        assert run("create-table", "--store", store, "--layout", "4", *option).exit_code == 5, option
    for options in ((), ("--ttl", "1d"), ("--compression", "gz")):
        same = run("create-table", "--store", store, "--layout", "4", *options, "--dry-run")
        assert same.exit_code == 0, options
        assert re.search(r"= ok family f: .*TTL=86400, .*COMPRESSION=GZ", same.stdout)
    dropped = run("drop-table", "--store", store, "--yes")
    assert dropped.exit_code == 0
    assert "wait 20 minutes or restart the gateways" in dropped.stderr
    assert f"in hbase shell: snapshot 'default:{Address.parse(store).table}', '" in dropped.stderr.splitlines()[0]
    for command in ("drop-table", "--yes"), ("doctor",), ("describe",):
        assert run(*command, "--store", store).exit_code == 5


def test_a_table_without_a_record_becomes_an_index(store: str) -> None:
    with open_gateway(Address.parse(store)) as gateway:
        make_table(gateway, TableSettings(family_options=(("BLOCKSIZE", "65536"),)))
    assert "+ create record" in done("create-table", "--store", store, "--dry-run")
    without = run("doctor", "--store", store)
    assert without.exit_code == 5
    assert "settings" not in without.stdout
    result = run("create-table", "--store", store)
    assert result.exit_code == 0
    assert "wrote the index's record" in result.stderr
    assert "family f: BLOCKSIZE is 65536, expected 4096" in result.stderr
    told = done("doctor", "--store", store)
    assert "warn  settings: family d: BLOCKSIZE is 65536, expected 16384; in hbase shell: alter" in told
    assert "BLOCKSIZE is 65536" in done("describe", "--store", store)


@pytest.mark.parametrize("altered", ["d", "f"])
def test_the_record_says_which_ttl_is_right_if_one_family_was_altered(
    own_hbase: HBaseServer, store: str, altered: str
) -> None:
    done("create-table", "--store", store, "--ttl", "90d", "--regions", "2")
    name = Address.parse(store).table
    assert own_hbase.shell(f"alter '{name}', {{NAME => '{altered}', TTL => 3600}}\n") == 0
    line = f"alter 'default:{name}', {{NAME => '{altered}', TTL => '7776000'}}"
    for _ in range(2):
        told = run("doctor", "--store", store).stdout
        assert f"warn  settings: family {altered}: TTL is 1h, expected 90d; in hbase shell: {line}" in told
        assert "  ttl:" not in told
        assert line in run("create-table", "--store", store).stderr
    assert json.loads(done("describe", "--store", store, "--json"))["deviations"] == [
        f"family {altered}: TTL is 1h, expected 90d"
    ]


def test_a_table_without_the_families_of_an_index_is_called_foreign(
    hbase: Gateways, table: str, stores: tuple[str, str]
) -> None:
    with closing(happybase.Connection(hbase.host, hbase.thrift1_port, timeout=60_000)) as plain:
        plain.create_table(table, {"cf": {}})
    for url in stores:
        for command in ("query", "0" * 16), ("status",), ("describe",), ("check",), ("doctor",), ("create-table",):
            ended = run(*command, "--store", url)
            assert ended.exit_code == 5, command
            assert "column families" in ended.stdout + ended.stderr
            assert "choose another table name" in ended.stdout + ended.stderr
            assert not re.search(r"Exception|alter|create one", ended.stdout + ended.stderr), command


def test_a_table_of_others_that_has_the_same_families_is_left_alone(
    hbase: Gateways, table: str, stores: tuple[str, str]
) -> None:
    with closing(happybase.Connection(hbase.host, hbase.thrift1_port, timeout=60_000)) as plain:
        plain.create_table(table, {"d": {}, "f": {}, "i": {}})
        for url in stores:
            dropped = run("drop-table", "--yes", "--store", url)
            assert dropped.exit_code == 1
            assert f"an index record; to delete the table, in hbase shell: disable 'default:{table}'" in dropped.stderr
        plain.disable_table(table)
    for url in stores:
        assert run("drop-table", "--yes", "--store", url).exit_code == 4
    with open_gateway(Address.parse(stores[0])) as gateway:
        assert gateway.exists()


@pytest.mark.parametrize("family", ["d", "f"])
def test_a_table_with_rows_of_others_does_not_become_an_index(
    hbase: Gateways, table: str, stores: tuple[str, str], family: str
) -> None:
    with closing(happybase.Connection(hbase.host, hbase.thrift1_port, timeout=60_000)) as plain:
        plain.create_table(table, {"d": {}, "f": {}, "i": {}})
        plain.table(table).put(b"r1", {f"{family}:a": b"mine"})
        for url in stores:
            refused = run("create-table", "--store", url)
            assert refused.exit_code == 5
            assert "it has rows, but does not have an index record; choose another table name" in refused.stderr
            for command in ("status", "describe", "check", "doctor"):
                ended = run(command, "--store", url)
                assert ended.exit_code == 5, command
                assert "does not have an index record; choose another table name" in ended.stdout + ended.stderr, (
                    command
                )
                assert "create one" not in ended.stdout + ended.stderr, command
        assert plain.table(table).row(b"r1") == {f"{family}:a".encode(): b"mine"}


def test_leftovers_are_harmless_and_collect_deletes_them_later(store: str) -> None:
    done("create-table", "--store", store)
    with HSimIndex.open(store) as index:
        index.add_many([1, 2, 3], ["a", "b", "c"])
        for doc_id in "abc":
            index.remove(doc_id)
    checked = run("check", "--store", store)
    assert checked.exit_code == 0
    assert "leftovers are harmless; run 'hsimhash collect' to delete those that are old enough" in checked.stderr
    collected = run("collect", "--store", store)
    assert collected.exit_code == 0
    assert "nothing to delete; a later run deletes leftovers that are too recent now" in collected.stderr


def test_commands_report_or_skip_the_rows_of_others_in_an_index(hbase: Gateways, store: str) -> None:
    done("create-table", "--store", store)
    with closing(happybase.Connection(hbase.host, hbase.thrift1_port, timeout=60_000)) as plain:
        plain.table(Address.parse(store).table).put(b"r1", {"f:a": b"mine"})
    assert json.loads(done("status", "--store", store, "--json"))
    checked = run("check", "--store", store)
    assert "does not belong in row 7231" in checked.stdout + checked.stderr


def test_an_index_that_is_disabled_or_lacks_its_record_can_be_dropped(hbase: Gateways, store: str) -> None:
    with open_gateway(Address.parse(store)) as gateway:
        make_table(gateway, TableSettings(ttl_s=3_600, compression="GZ"))
    with closing(happybase.Connection(hbase.host, hbase.thrift1_port, timeout=60_000)) as plain:
        plain.disable_table(Address.parse(store).table)
    dropped = run("drop-table", "--yes", "--store", store)
    assert dropped.exit_code == 0, dropped.stderr
    assert "'hsimhash check --repair' first" in dropped.stderr


def test_a_missing_namespace_is_planned(hbase: Gateways) -> None:
    store = f"hbase://{hbase.host}:{hbase.thrift2_port}/nowhere:pages"
    planned, made = run("create-table", "--store", store, "--dry-run"), run("create-table", "--store", store)
    assert "+ create namespace nowhere" in planned.stdout
    for refused in (planned, made):
        assert refused.exit_code == 1
        assert "create_namespace 'nowhere'" in refused.stderr


def test_thrift1_makes_a_table_only_where_a_plain_one_will_do(stores: tuple[str, str]) -> None:
    through_thrift2, store = stores
    refused = run("create-table", "--store", store)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "--print-commands" in refused.stderr
    assert "--allow-plain" in refused.stderr
    planned = run("create-table", "--store", store, "--dry-run")
    assert (planned.exit_code, planned.stderr) == (1, refused.stderr)
    assert "+ create record" in planned.stdout
    planned = run("create-table", "--store", store, "--dry-run", "--allow-plain")
    assert (planned.exit_code, "creates a plain table" in planned.stderr) == (0, True)
    assert run("describe", "--store", store).exit_code == 5
    assert "creates a plain table" in run("create-table", "--store", store, "--allow-plain").stderr
    assert "does not report their settings" in done("describe", "--store", store)
    told = done("doctor", "--store", store, "--write")
    assert "responds as Thrift1" in told
    assert "fail" not in told
    assert "ok    write" in told
    assert "BLOOMFILTER is ROW, expected ROWPREFIX_FIXED_LENGTH" in done("doctor", "--store", through_thrift2)
    assert run("drop-table", "--yes", "--store", store).exit_code == 0


def test_queries_are_explained_and_rows_counted_where_they_are(store: str) -> None:
    done("create-table", "--store", store, "--layout", "4", "--regions", "2")
    fingerprints = np.random.default_rng(1).integers(0, 2**64, 300, np.uint64)
    near = int(fingerprints[7]) ^ 0b101
    with HSimIndex.open(store) as index:
        index.add_many([*fingerprints.tolist(), near], [f"d{number}" for number in range(301)])
        prefixes, rows = index.layout.prefixes(near), index.layout.segments(np.append(fingerprints, np.uint64(near)))
    facts = json.loads(done("explain", "--id", "d7", "--store", store, "--json"))
    assert (facts["scans"], facts["documents"]) == (4, 2)
    assert [one["near"] for one in facts["probes"]] == [2, 2, 2, 1]
    assert [one["region"] for one in facts["probes"]][:3] == [
        "80000000" if prefix >= b"\x80" else "" for prefix in prefixes[:3]
    ]
    assert all(":" in one["server"] for one in facts["probes"])
    assert "milliseconds" in done("explain", "--query", f"{near:016x}", "--store", store)
    counted = json.loads(done("status", "--store", store, "--json"))
    upper = int(np.count_nonzero(rows >= 1 << 31))
    assert [one["rows"] for one in counted["region_rows"]] == [rows.size - upper, upper]
    assert (counted["is_exact"], counted["drawer_rows"], counted["fingerprints"]) == (True, 1204, 301)
    assert "[80000000, end)" in done("status", "--store", store)
    assert json.loads(done("describe", "--store", store, "--json", "--count"))["documents"] == 301


def test_the_doctor_measures_reads_and_writes_and_leaves_nothing(store: str) -> None:
    done("create-table", "--store", store, "--regions", "2")
    facts = json.loads(done("doctor", "--store", store, "--write", "--json"))
    checks = [one for one in facts["checks"] if one["name"] != "region servers"]  # the server's info port is closed
    assert {one["status"] for one in checks} == {"ok"}
    names = [one["name"].split()[0] for one in checks]
    expected = [
        "gateway",
        "gateway",
        "table",
        "settings",
        "record",
        "ttl",
        "regions",
        "round",
        "read",
        "write",
        "clock",
    ]
    assert names == expected
    with HSimIndex.open(store) as index:
        gateway = index.store.gateway
        found = gateway.rows(b"", b"\xff" * 14, b"i", limit=10, columns=10)
        assert [cell.qualifier for cells in found for cell in cells] == [
            b"format",
            b"identity",
            b"layout",
            b"profile",
            b"ttl",
        ]
    quick = done("doctor", "--store", store, "--quick")
    assert quick == "ok    record: layout 10, profile auto-3\n"


def test_the_doctor_tells_a_dead_gateway_from_a_dead_cluster(hbase: Gateways, store: str) -> None:
    done("create-table", "--store", store, "--regions", "2")
    dead = free_ports(1)[0]
    with_one_dead = store.replace("hbase://", f"hbase://{hbase.host}:{dead},")
    result = run("doctor", "--store", with_one_dead)
    assert result.exit_code == 6
    assert f"fail  gateway {hbase.host}:{dead}: nothing is listening" in result.stdout
    assert "ok    read" in result.stdout
    assert run("doctor", "--store", with_one_dead, "--quick").exit_code == 0
    mixed = run("doctor", "--store", store.replace("hbase://", f"hbase://{hbase.host}:{hbase.thrift1_port},"))
    assert "some speak Thrift1 and some Thrift2" in mixed.stdout


def test_dedup_against_an_index_on_hbase_and_an_embedded_one_gives_the_same(store: str, tmp_path: Path) -> None:
    embedded = f"lmdb://{tmp_path}/index"
    stored, fresh = tmp_path / "stored.tsv", tmp_path / "fresh.tsv"
    stored.write_text("".join(f"old-{number}\t{number << 20:016x}\n" for number in range(50)))
    fresh.write_text("".join(f"new-{number}\t{(number << 20) ^ (1 << number % 7):016x}\n" for number in range(25, 75)))
    results = []
    for number, url in enumerate((store, embedded)):
        done("create-table", "--store", url, "--layout", "4", "--distance", "3")
        done("ingest", str(stored), "--store", url, "--job", str(tmp_path / f"job-{number}"))
        out = tmp_path / f"out-{number}"
        summary = json.loads(done("dedup", str(fresh), "--out", str(out), "--against", url, "--table-format", "jsonl"))
        assert summary["dropped"] >= 25
        matches = [json.loads(line) for line in (out / "matches.jsonl").read_text().splitlines()]
        assert {match["id"] for match in matches} >= {f"new-{number}" for number in range(25, 50)}
        found = [(match["id"], match["old_id"], match["distance"]) for match in matches]
        results.append((found, (out / "keep.txt").read_text(), (out / "clusters.jsonl").read_text()))
    assert results[0] == results[1]


def test_status_names_a_crowded_fingerprint(store: str) -> None:
    assert_status_names_a_crowd(store)


def test_a_killed_ingest_that_is_begun_again_keeps_the_table_that_was_fitted(store: str, tmp_path: Path) -> None:
    assert_a_killed_ingest_ends_as_an_undisturbed_one(store, tmp_path)
