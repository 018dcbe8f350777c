"""What region servers report on their info port. Another program there, or none, is not an error."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from hsimhash.index import HSimIndex
from hsimhash.store.hbase.gateway import info_port
from tests.support.command_line import run
from tests.support.hbase_server import HBaseServer, free_ports, or_skip, serving
from tests.support.hbase_tables import new_table, table_url
from tests.support.http_files import serving_files
from tests.support.local_server import LocalServer
from tests.support.local_server import serving as serving_local
from tests.support.processes import wait_until
from tests.test_watch import PROMETHEUS, asked_of_hbase

pytestmark = pytest.mark.together
FLUSHES, DOCUMENTS = 6, 400
READS = 60  # of all rows of one region


class Silent(LocalServer):
    """Accepts every connection and never answers."""

    def talk(self, connection: socket.socket) -> None:
        with connection:
            while connection.recv(1_024):
                pass


class Endless(LocalServer):
    """Begins to answer, then sends only a byte now and then."""

    def talk(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while True:
                connection.sendall(b" ")
                time.sleep(0.05)


@pytest.fixture(scope="module")
def reporting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HBaseServer, int]]:
    """A server with an info port, which compacts nothing on its own."""
    (port,) = free_ports(1)
    settings = {
        "hbase.regionserver.info.port": str(port),
        "hbase.regionserver.info.bindAddress": "127.0.0.1",
        "hbase.hstore.compaction.min": "100",
        "hbase.regionserver.metrics.period": "200",
    }
    with or_skip(), serving(tmp_path_factory.mktemp("reporting") / "hbase", settings=settings) as server:
        yield server, port


@pytest.fixture
def store(reporting: tuple[HBaseServer, int]) -> Iterator[str]:
    """An index of four regions on it."""
    server, port = reporting
    with new_table(server) as name:
        url = f"{table_url(server, name)}&info_port={port}"
        assert run("create-table", "--store", url, "--regions", "4", "--layout", "4").exit_code == 0
        wait_until(lambda: "in 4 regions" in says(url, "store files"), limit_s=60)
        yield url


def doctor(url: str) -> dict[str, tuple[str, str]]:
    done = run("doctor", "--store", url, "--json")
    assert done.exit_code == 0, done.stdout
    return {one["name"]: (one["status"], one["message"]) for one in json.loads(done.stdout)["checks"]}


def says(url: str, name: str) -> str:
    """A check's message; empty until the server has metrics."""
    return doctor(url).get(name, ("", ""))[1]


def status(url: str) -> dict[str, Any]:
    return dict(json.loads(run("status", "--store", url, "--json").stdout))


def test_a_compaction_is_advised_until_it_is_done(reporting: tuple[HBaseServer, int], store: str) -> None:
    server, _ = reporting
    table = f"default:{store.rpartition('/')[2].partition('?')[0]}"
    assert doctor(store)["store files"] == ("ok", "0 in 4 regions, at most 0 in one; compactions waiting: 0")
    rows = [f'"\\x{quarter:02X}\\x00\\x00\\x00\\x01{8 * "a"}"' for quarter in range(0, 256, 64)]
    puts = [f"put '{table}', {row}, '{family}', ''\n" for row in rows for family in ("f:", "d:a")]
    assert server.shell(FLUSHES * f"{''.join(puts)}flush '{table}'\n") == 0
    wait_until(lambda: f"at most {2 * FLUSHES + 1} in one" in says(store, "store files"), limit_s=60)
    kind, message = doctor(store)["store files"]
    assert kind == "warn"
    assert f"in hbase shell: major_compact '{table}' leaves one file per family" in message
    assert doctor(store)["block cache"][0] == "ok"
    assert server.shell(message.rpartition("in hbase shell: ")[2].partition(" leaves")[0] + "\n") == 0
    wait_until(lambda: "9 in 4 regions, at most 3 in one" in says(store, "store files"), limit_s=60)
    assert doctor(store)["store files"][0] == "ok"
    assert [one["store_files"] for one in status(store)["region_rows"]] == [3, 2, 2, 2]


def test_a_region_that_is_read_far_more_than_the_others_is_named(store: str) -> None:
    with HSimIndex.open(store) as index:
        values = [one * 0x9E3779B97F4A7C15 % 2**64 for one in range(DOCUMENTS)]
        index.add_many(values, [f"{one}" for one in range(DOCUMENTS)])
        region = index.store.regions()[2]
        assert doctor(store)["requests"][0] == "ok"
        for _ in range(READS):
            assert index.store.gateway.rows(region.start, region.stop, b"f", limit=10_000)
    wait_until(lambda: "a hot region" in says(store, "requests"), limit_s=60)
    kind, message = doctor(store)["requests"]
    assert kind == "warn"
    assert f"the most in {region.segments} on {region.server}" in message
    rows = status(store)["region_rows"]
    assert max(rows, key=lambda one: one["requests"])["start"] == region.start.hex()
    assert message.endswith(f"split '{rows[2]['name']}'")
    shown = run("status", "--store", store).stdout
    assert f"{rows[2]['requests']:,}" in shown
    assert "region server" in shown


def test_other_tables_are_not_judged(reporting: tuple[HBaseServer, int], store: str) -> None:
    server, port = reporting
    with new_table(server) as name:
        other = f"{table_url(server, f'{name}-2')}&info_port={port}"
        assert run("create-table", "--store", other, "--regions", "7").exit_code == 0
        try:
            assert "unknown" in says(other, "store files")
            wait_until(lambda: "in 7 regions" in says(other, "store files"), limit_s=60)
            assert "in 4 regions" in says(store, "store files")
        finally:
            assert run("drop-table", "--yes", "--store", other).exit_code == 0


def test_whatever_is_wrong_with_the_info_port_is_one_warning(store: str, tmp_path: Path) -> None:
    plain, _, given = store.rpartition("&info_port=")
    assert given
    (tmp_path / "jmx").write_text("<html>it works</html>")
    (tmp_path / "empty").mkdir()
    with (
        serving_files(tmp_path) as html,
        serving_files(tmp_path / "empty") as nothing,
        serving_local(Silent()) as silent,
        serving_local(Endless()) as endless,
    ):
        expected = {
            free_ports(1)[0]: "connection refused",
            int(html.url.rpartition(":")[2].strip("/")): "it does not return JSON metrics at /jmx",
            int(nothing.url.rpartition(":")[2].strip("/")): "HTTP 404",
            silent.port: "no reply within 2 s",
            endless.port: "no reply within 2 s",
            int(plain.partition("://")[2].partition("/")[0].rpartition(":")[2]): "",  # the gateway
        }
        for port, reason in expected.items():
            found = doctor(f"{plain}&info_port={port}")
            kind, message = found["region servers"]
            assert kind == "warn"
            assert f"1 of 1 do not respond on their info port (localhost:{port}: {reason}" in message
            assert "info_port= in the URL" in message
            assert not {"store files", "requests", "locality", "block cache"} & found.keys()
            began = time.monotonic()
            (one,) = status(f"{plain}&info_port={port}")["region_servers"]
            assert time.monotonic() - began < 2 * info_port.TIMEOUT_S + 10
            assert reason in one["problem"]


def relabelled(page: str) -> dict[str, set[str]]:
    """The labels of a page's metrics, by name, as Prometheus stores them after its `metric_relabel_configs`."""
    (job,) = (one for one in PROMETHEUS["scrape_configs"] if one["job_name"] == "hbase")
    kept: dict[str, set[str]] = {}
    for name in re.findall(r"^(\w+)\{", page, re.MULTILINE):
        labels = {"__name__": name}
        for rule in job["metric_relabel_configs"]:
            found = re.fullmatch(rule["regex"], labels["__name__"])
            if found and "target_label" in rule:
                labels[rule["target_label"]] = found.expand(rule["replacement"].replace("$", "\\"))
            if not found and rule.get("action") == "keep":
                break
        else:
            kept.setdefault(labels.pop("__name__"), set()).update(labels, {"instance"})
    return kept


def test_hbase_has_what_the_dashboard_asks_it_for(reporting: tuple[HBaseServer, int], store: str) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", reporting[1])) as connection:
        connection.request("GET", "/prometheus")
        kept = relabelled(connection.getresponse().read().decode())
    assert kept.keys() == set(re.findall(r"\bhbase_\w+", " ".join(asked_of_hbase())))
    for text in asked_of_hbase():
        grouped = {one.strip() for found in re.findall(r"by \(([^)]*)\)", text) for one in found.split(",")}
        assert all(grouped <= kept[name] for name in re.findall(r"\bhbase_\w+", text)), text


def test_another_region_server_on_the_port_is_named(reporting: tuple[HBaseServer, int], own_hbase: HBaseServer) -> None:
    _, port = reporting
    with new_table(own_hbase) as name:
        url = f"{table_url(own_hbase, name)}&info_port={port}"
        assert run("create-table", "--store", url, "--regions", "1").exit_code == 0
        assert "another region server uses this port" in doctor(url)["region servers"][1]
