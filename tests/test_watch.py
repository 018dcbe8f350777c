"""Prometheus and Grafana in `docker/`: their files exist, and query only metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from hsimhash import metrics
from tests.test_docker import DOCKER, SERVICES

BOARD = json.loads((DOCKER / "grafana" / "hsimhash.json").read_text(encoding="utf-8"))
PROMETHEUS = yaml.safe_load((DOCKER / "prometheus.yml").read_text(encoding="utf-8"))
RULES = [
    rule
    for group in yaml.safe_load((DOCKER / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
SUFFIXES = {"histogram": ("_bucket", "_count", "_sum"), "counter": ("_total",), "gauge": ("",)}


def asked() -> list[str]:
    """Return the expressions that the dashboard and the alerts query."""
    return [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]] + [one["expr"] for one in RULES]


def asked_of_hbase() -> list[str]:
    """Return those for HBase; `tests/integration/test_hbase_info_port.py` queries a real HBase for them."""
    return [text for text in asked() if re.search(r"\bhbase_", text)]


def labels_by_sample() -> dict[str, set[str]]:
    """Return the labels of every metric in the registry, by the name under which Prometheus stores it."""
    meters = metrics.enable()
    families = list(text_string_to_metric_families(metrics.exposition().decode()))
    known = {one.name: one.type for one in families if not one.name.endswith("_created")}
    labels = {
        metric._name: set(metric._labelnames)
        for metric in meters.registry._collector_to_names
        if hasattr(metric, "_name")
    }
    labels["hsimhash_gateway_connections"] = {"gateway"}
    return {name + end: labels[name] for name, kind in known.items() for end in SUFFIXES[kind]}


def test_every_number_that_is_asked_for_is_in_the_registry_with_its_labels() -> None:
    known = labels_by_sample()
    for text in set(asked()) - set(asked_of_hbase()):
        names = re.findall(r"\bhsimhash_\w+", text)
        assert names or text.startswith("up{"), text
        for name in names:
            assert name in known, name
        there = set().union({"le", "job", "instance"}, *(known[name] for name in names))
        grouped = [one.strip() for found in re.findall(r"by \(([^)]*)\)", text) for one in found.split(",")]
        matched = re.findall(r"(\w+)(?:=~|!=|!~|=)\"", text)
        assert {*grouped, *matched} <= there, text


def test_every_number_is_on_the_dashboard() -> None:
    shown = {
        name
        for panel in BOARD["panels"]
        for one in panel["targets"]
        for name in re.findall(r"hsimhash_\w+", one["expr"])
    }
    families = {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in labels_by_sample()}
    assert {re.sub(r"_(bucket|count|sum|total)$", "", name) for name in shown} == families


def test_the_dashboard_asks_the_source_that_is_provisioned() -> None:
    (source,) = yaml.safe_load((DOCKER / "grafana" / "datasource.yml").read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"
    for panel in BOARD["panels"]:
        assert {panel["datasource"]["uid"], *(one["datasource"]["uid"] for one in panel["targets"])} == {source["uid"]}
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])


def test_prometheus_asks_services_that_there_are_at_their_ports() -> None:
    targets = [
        target for job in PROMETHEUS["scrape_configs"] for one in job["static_configs"] for target in one["targets"]
    ]
    assert targets == [
        f"serve:{SERVICES['serve']['environment']['HSIMHASH_LISTEN'].rpartition(':')[2]}",
        "hsimhash:9464",
        f"hbase:{SERVICES['hbase']['environment']['HBASE_SETTINGS'].removeprefix('hbase.regionserver.info.port=')}",
    ]
    assert {target.partition(":")[0] for target in targets} <= set(SERVICES)
    assert "watch" in SERVICES["serve"]["profiles"]


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_the_services_are_for_this_machine_have_versions_and_are_given_files_that_there_are(name: str) -> None:
    service = SERVICES[name]
    assert service["profiles"] == ["watch"]
    assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", service["image"])
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    given = {
        place: DOCKER / source
        for source, place, *_ in (one.split(":") for one in service["volumes"])
        if source[0] == "."
    }
    assert given
    assert all(source.is_file() for source in given.values())
    if name == "grafana":
        provider = yaml.safe_load((DOCKER / "grafana" / "dashboards.yml").read_text(encoding="utf-8"))["providers"][0]
        home = service["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
        assert given[home].name == "hsimhash.json"
        assert str(Path(home).parent) == provider["options"]["path"]


def test_ports_of_the_machine_are_taken_once() -> None:
    ports = [port.split(":")[1] for service in SERVICES.values() for port in service.get("ports", [])]
    assert len(set(ports)) == len(ports)


def test_promtool_reads_configuration_and_rules_where_it_is_installed() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool here")
    subprocess.run(["promtool", "check", "config", DOCKER / "prometheus.yml"], check=True)
