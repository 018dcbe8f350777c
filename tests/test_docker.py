"""The compose file and what it names, as far as they can be checked without Docker's engine."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from hsimhash.cli.program import COMMANDS

TOP = Path(__file__).parents[1]
DOCKER = TOP / "docker"
ENTRYPOINT = DOCKER / "hbase" / "entrypoint"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
SERVICE_KEYS = {  # those of the compose specification that are in use, with their types
    "build": dict,
    "command": list,
    "depends_on": dict,
    "environment": dict,
    "healthcheck": dict,
    "image": str,
    "ports": list,
    "profiles": list,
    "restart": str,
    "stop_grace_period": str,
    "volumes": list,
}
DURATION = re.compile(r"(\d+(h|m|s|ms|us))+")
services = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


def dockerfile_of(service: dict[str, dict[str, str]]) -> Path:
    build = service["build"]
    return DOCKER / build["context"] / build.get("dockerfile", "Dockerfile")


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", dockerfile.read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def entrypoint_commands() -> set[str]:
    return set(re.findall(r"^#   entrypoint (\w+)", ENTRYPOINT.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_compose_file_has_only_parts_of_the_specification() -> None:
    assert set(COMPOSE) == {"name", "services", "volumes"}
    assert set(SERVICES) == {"hbase", "create-table", "hsimhash"}
    for service in SERVICES.values():
        for key, value in service.items():
            assert isinstance(value, SERVICE_KEYS[key]), key


@services
def test_a_build_names_a_dockerfile_whose_sources_are_in_its_context(service: dict[str, dict[str, str]]) -> None:
    context = (DOCKER / service["build"]["context"]).resolve()
    for name, rest in instructions(dockerfile_of(service)):
        if name == "COPY" and not rest.startswith("--from="):
            for source in rest.split()[:-1]:
                assert (context / source).exists(), source


def test_the_context_of_hsimhash_lets_its_sources_through() -> None:
    ignored = (TOP / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sources = [rest.split()[:-1] for name, rest in instructions(DOCKER / "Dockerfile") if name == "COPY"]
    assert ignored[0] == "*"
    assert {f"!{source}" for names in sources for source in names} <= set(ignored)


@services
def test_a_service_runs_a_command_that_exists(service: dict[str, list[str]]) -> None:
    steps = dict(instructions(dockerfile_of(service)))
    words = [*yaml.safe_load(steps["ENTRYPOINT"]), *service.get("command", yaml.safe_load(steps["CMD"]))]
    if words[0] == "hsimhash":
        assert words[1] in COMMANDS
    else:
        assert words == ["/opt/hbase/entrypoint", "run"]
        assert "run" in entrypoint_commands()


def test_the_commands_that_the_comments_show_exist() -> None:
    shown = re.findall(r"^#   (docker compose.*)", (DOCKER / "compose.yaml").read_text(encoding="utf-8"), re.MULTILINE)
    runs = [shlex.split(line) for line in shown if " run " in line]
    assert len(runs) == 2
    for words in runs:
        assert words[words.index("hsimhash") + 1] in COMMANDS
    for line in shown:
        assert (TOP / shlex.split(line)[3]).samefile(DOCKER / "compose.yaml")


def test_services_wait_for_services_that_exist_and_can_meet_the_condition() -> None:
    for service in SERVICES.values():
        for name, wanted in service.get("depends_on", {}).items():
            condition = wanted["condition"]
            assert condition in {"service_healthy", "service_completed_successfully"}
            assert ("healthcheck" in SERVICES[name]) == (condition == "service_healthy")
            assert not set(SERVICES[name].get("profiles", [])) - set(service.get("profiles", []))


def test_the_health_check_is_a_command_of_the_script_that_the_image_has() -> None:
    check = SERVICES["hbase"]["healthcheck"]
    assert check["test"] == ["CMD", "/opt/hbase/entrypoint", "healthy"]
    assert "healthy" in entrypoint_commands()
    assert os.access(ENTRYPOINT, os.X_OK)
    for key in ("interval", "timeout", "start_period"):
        assert DURATION.fullmatch(check[key])
    copies = [rest for name, rest in instructions(DOCKER / "hbase" / "Dockerfile") if name == "COPY"]
    assert "entrypoint hbase-site.xml log4j2.properties /opt/hbase/" in copies


def test_the_gateways_are_open_to_this_machine_alone_on_the_ports_that_the_script_takes() -> None:
    defaults = dict(re.findall(r"HBASE_(THRIFT\d)_PORT:-(\d+)", ENTRYPOINT.read_text(encoding="utf-8")))
    wanted = {f"127.0.0.1:{port}:{port}" for port in defaults.values()}
    assert set(SERVICES["hbase"]["ports"]) == wanted
    assert dict(instructions(DOCKER / "hbase" / "Dockerfile"))["EXPOSE"].split() == sorted(defaults.values())
    assert SERVICES["create-table"]["environment"]["HSIMHASH_STORE"] == f"hbase://hbase:{defaults['THRIFT2']}/hsimhash"


def test_data_are_in_a_named_volume_where_the_image_puts_them() -> None:
    volume, _, place = SERVICES["hbase"]["volumes"][0].partition(":")
    assert volume in COMPOSE["volumes"]
    environment = dict(pair.split("=") for pair in dict(instructions(DOCKER / "hbase" / "Dockerfile"))["ENV"].split())
    assert environment["HBASE_DATA"] == place


def test_hsimhash_does_not_run_as_root() -> None:
    for dockerfile in (DOCKER / "Dockerfile", DOCKER / "hbase" / "Dockerfile"):
        assert dict(instructions(dockerfile))["USER"] in ("hsimhash", "hbase")


def test_the_versions_of_all_jars_are_properties_of_the_pom() -> None:
    pom = ElementTree.parse(DOCKER / "hbase" / "pom.xml")
    versions = [node.text or "" for node in pom.iter("version")][1:]  # the first is the pom's own
    assert versions
    assert all(re.fullmatch(r"\$\{[\w.]+\}", version) for version in versions)


def test_the_settings_of_hbase_take_only_variables_that_the_script_exports() -> None:
    used = re.findall(r"\$\{env\.(\w+)", (DOCKER / "hbase" / "hbase-site.xml").read_text(encoding="utf-8"))
    exported = re.findall(r"^export (\w+)=", ENTRYPOINT.read_text(encoding="utf-8"), re.MULTILINE)
    assert used
    assert set(used) <= set(exported)


def test_docker_compose_reads_the_file_where_it_is_installed() -> None:
    command = ["docker", "compose", "-f", DOCKER / "compose.yaml", "--profile", "*", "config", "--quiet"]
    if shutil.which("docker") is None or subprocess.run([*command[:2], "version"], capture_output=True).returncode != 0:
        pytest.skip("no docker compose here")
    subprocess.run(command, check=True)
