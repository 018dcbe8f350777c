"""Metrics: counted in this process, and scraped from a running command."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hsimhash import metrics
from hsimhash.dedup import DedupOptions, dedup
from hsimhash.errors import StoreUnavailableError
from hsimhash.fingerprint import Profile
from hsimhash.index import HSimIndex
from hsimhash.inputs import InputOptions, find_inputs
from hsimhash.store.hbase.gateway.address import Address
from hsimhash.store.hbase.gateway.connection import THRIFT2, Call
from hsimhash.store.hbase.gateway.pipeline import Caller, one_call
from hsimhash.store.hbase.gateway.pool import Pool
from tests.support.command_line import PATIENCE_S, make_index, own_process, run
from tests.support.effort import thorough
from tests.support.gateway_stand_in import stand_in
from tests.support.processes import wait_until

TEXT = "Near-duplicate pages are common on the web, and a search engine has to find {} of them quickly and cheaply."
PAGES = Path(__file__).parents[1]
ASK = one_call(Call(THRIFT2.THBaseService, "getThriftServerType", ()))


def values(exposition: bytes) -> dict[str, float]:
    """Return the samples of an exposition by their names and labels as written there, without the buckets."""
    return {
        sample.name + "".join(f"{{{value}}}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exposition.decode())
        for sample in family.samples
        if not sample.name.endswith("_bucket")
    }


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        return values(answer.read())


def grown(before: dict[str, float]) -> dict[str, float]:
    now = values(metrics.exposition())
    return {name: now[name] - before.get(name, 0) for name in now}


def test_each_operation_counts_once_and_queries_count_what_they_read(tmp_path: Path) -> None:
    before = values(metrics.exposition())
    with HSimIndex.open(make_index(tmp_path)) as index:
        assert len(index.query(3)) == 3
        assert [len(found) for found in index.query_many([3, 2**64 - 1])] == [3, 1]
        index.add(9 << 32, "new")
        assert index.claim(9 << 32, "late").match is not None
        index.remove("new")
    new = grown(before)
    for operation in ("query", "query_many", "add", "add_many", "claim", "remove"):
        assert new[f"hsimhash_operation_milliseconds_count{{{operation}}}"] == 1, operation
    assert new["hsimhash_query_matches_total"] == 7
    assert new["hsimhash_query_near_total"] >= 7
    assert new["hsimhash_query_rows_total"] >= new["hsimhash_query_near_total"]


def test_an_operation_that_raises_counts_as_an_error(tmp_path: Path) -> None:
    before = values(metrics.exposition())
    with HSimIndex.open(make_index(tmp_path)) as index, pytest.raises(ValueError, match="got 3 for 1"):
        index.query_many([1], exclude=["a", "b", "c"])
    new = grown(before)
    assert new["hsimhash_operation_errors_total{query_many}"] == 1
    assert new["hsimhash_operation_milliseconds_count{query_many}"] == 1


def test_a_job_shows_how_many_documents_it_has_read(tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("a\t00000000000000ff\nb\tff00000000000000\n")
    inputs = find_inputs([str(tmp_path / "in.tsv")], InputOptions("fingerprints"))
    metrics.enable().documents.set(0)
    dedup(inputs, tmp_path / "out", DedupOptions(workers=1), against=Profile.named("auto-2"))
    assert values(metrics.exposition())["hsimhash_job_documents"] == 2


def test_without_being_asked_nothing_is_counted_or_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from hsimhash import metrics; from hsimhash.index import HSimIndex\n"
        f"HSimIndex.open({make_index(tmp_path)!r}).query(3)\n"
        "assert not isinstance(metrics.current, metrics.Meters) and 'prometheus_client' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@thorough
def test_a_command_that_runs_is_scraped(tmp_path: Path) -> None:
    source = tmp_path / "pages.jsonl"
    with source.open("w") as lines:
        lines.writelines(json.dumps({"id": str(n), "text": TEXT.format(n * 7919)}) + "\n" for n in range(20_000))
    store = ("--store", f"lmdb://{tmp_path / 'index'}", "--rate", "1000")
    process = own_process("ingest", str(source), "--on-duplicate", "skip", "--metrics-port", "0", *store)
    told = b""
    while not (found := re.search(rb"metrics at http://127\.0\.0\.1:(\d+)/metrics", told)):
        line = process.stderr.readline()
        assert line, told.decode()
        told += line
    port = int(found[1])
    added = "hsimhash_operation_milliseconds_count{add_many}"
    wait_until(lambda: scraped(port).get(added, 0) > 0)
    numbers = scraped(port)
    assert numbers["hsimhash_job_documents"] > 0
    assert numbers["hsimhash_operation_milliseconds_count{query_many}"] > 0
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130


@thorough
def test_gateways_count_replies_failures_time_outs_and_connections() -> None:
    with stand_in() as gateway:
        name = f"127.0.0.1:{gateway.port}"
        pool = Pool(Address.parse(f"hbase://{name}/pages?timeout=300ms&deadline=1s"), lambda connection: None)
        caller = Caller(pool)
        metrics.enable()
        gateway.refusals = ["getThriftServerType"]
        caller.run([ASK], width=1)  # the second try succeeds
        numbers = values(metrics.exposition())
        assert numbers[f"hsimhash_gateway_replies_total{{{name}}}"] == 2
        assert numbers[f"hsimhash_gateway_failures_total{{{name}}}"] == 1
        assert numbers[f"hsimhash_gateway_connections{{{name}}}"] == 1
        gateway.hung = {"*"}
        with pytest.raises(StoreUnavailableError):
            caller.run([ASK], width=1)
        numbers = values(metrics.exposition())
        assert numbers[f"hsimhash_gateway_timeouts_total{{{name}}}"] >= 1
        assert numbers[f"hsimhash_gateway_failures_total{{{name}}}"] >= 2
        gateway.hung = set()
        pool.close()
    assert values(metrics.exposition())[f"hsimhash_gateway_connections{{{name}}}"] == 0
    with pytest.raises(StoreUnavailableError):
        Caller(Pool(pool.address, lambda connection: None)).run([ASK], width=1)
    assert values(metrics.exposition())[f"hsimhash_gateway_connect_failures_total{{{name}}}"] >= 1


def test_a_port_that_is_taken_or_none_is_refused(tmp_path: Path) -> None:
    url = make_index(tmp_path)
    with metrics.served("127.0.0.1", 0) as port:
        taken = run("check", "--store", url, "--metrics-port", str(port))
    assert taken.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in taken.stderr
    assert run("check", "--store", url, "--metrics-port", "many").exit_code == 2


def test_the_page_explains_every_number() -> None:
    page = (PAGES / "docs" / "pages" / "operations" / "index.md").read_text(encoding="utf-8")
    explained = {name.removesuffix("_total") for name in re.findall(r"`(hsimhash_\w+)`", page)}
    families = text_string_to_metric_families(metrics.exposition().decode())
    there = {family.name for family in families if not family.name.endswith("_created")}
    assert explained == there
