"""The compose file and what it refers to, as far as they can be checked without the Docker engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from hsimhash.cli.program import COMMANDS
from hsimhash.cli.serve import STOP_S
from hsimhash.settings import Settings, address_in
from tests.support.effort import thorough

TOP = Path(__file__).parents[1]
DOCKER = TOP / "docker"
ENTRYPOINT = DOCKER / "hbase" / "entrypoint"
COMPOSE = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
IMAGES = (DOCKER / "Dockerfile", DOCKER / "hbase" / "Dockerfile")
SERVICE_KEYS = {  # the keys of the compose specification that are in use, by the type of their values
    dict: {"build", "depends_on", "environment", "healthcheck"},
    list: {"command", "ports", "profiles", "volumes"},
    str: {"image", "mem_limit", "restart", "stop_grace_period"},
}
DURATION = re.compile(r"(\d+(h|m|s|ms|us))+")
BUILT = {name: service for name, service in SERVICES.items() if "build" in service}
services = pytest.mark.parametrize("service", BUILT.values(), ids=BUILT)


def dockerfile_of(service: dict[str, dict[str, str]]) -> Path:
    build = service["build"]
    return DOCKER / build["context"] / build.get("dockerfile", "Dockerfile")


def instructions(dockerfile: Path) -> Iterator[tuple[str, str]]:
    text = re.sub(r"\\\n", " ", dockerfile.read_text(encoding="utf-8"))
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def copied(service: dict[str, dict[str, str]]) -> Iterator[str]:
    """Yield the sources that an image copies from its build context."""
    for name, rest in instructions(dockerfile_of(service)):
        if name == "COPY" and not rest.startswith("--from="):
            yield from rest.split()[:-1]


def entrypoint_commands() -> set[str]:
    return set(re.findall(r"^#   entrypoint (\w+)", ENTRYPOINT.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_compose_file_has_only_parts_of_the_specification() -> None:
    assert set(COMPOSE) == {"name", "services", "volumes"}
    assert set(SERVICES) == {"hbase", "create-table", "hsimhash", "serve", "prometheus", "grafana"}
    for service in SERVICES.values():
        for key, value in service.items():
            assert key in SERVICE_KEYS[type(value)], key


@services
def test_a_build_names_a_dockerfile_whose_sources_are_in_its_context(service: dict[str, dict[str, str]]) -> None:
    context = (DOCKER / service["build"]["context"]).resolve()
    for source in copied(service):
        assert (context / source).exists(), source


def test_the_context_of_hsimhash_lets_its_sources_through() -> None:
    ignored = (TOP / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[0] == "*"
    assert {f"!{source}" for source in copied(SERVICES["hsimhash"])} <= set(ignored)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with hsimhash installed from a copy of exactly what its image copies, links kept as links."""
    folder = tmp_path_factory.mktemp("image")
    source, site = folder / "src", folder / "site"
    source.mkdir()
    for name in copied(SERVICES["hsimhash"]):
        if (TOP / name).is_dir():
            unwanted = shutil.ignore_patterns("__pycache__")
            shutil.copytree(TOP / name, source / name, symlinks=True, ignore=unwanted)
        else:
            shutil.copy(TOP / name, source, follow_symlinks=False)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", site, source], cwd=folder, check=True)
    shutil.rmtree(source)
    return site


def run_installed(site: Path, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed program, after checking that it is the one in `site`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HSIMHASH_")}
    options = {
        "cwd": folder,
        "env": {**environment, "PYTHONPATH": str(site), "HOME": str(folder)},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "check": False,
    }
    where = subprocess.run([sys.executable, "-c", "import hsimhash; print(hsimhash.__file__)"], **options)
    assert Path(where.stdout).is_relative_to(site)
    return subprocess.run([site / "bin" / "hsimhash", *arguments], **options)


@thorough
def test_what_the_image_copies_prints_the_lines_that_make_a_table_and_calls_a_gateway(
    installed: Path, tmp_path: Path
) -> None:
    store = SERVICES["create-table"]["environment"]["HSIMHASH_STORE"]
    lines = run_installed(installed, "create-table", "--print-commands", "--store", store, folder=tmp_path)
    assert lines.returncode == 0, lines.stderr
    assert "create 'default:hsimhash'" in lines.stdout
    nobody = "hbase://127.0.0.1:1/hsimhash"
    answer = run_installed(installed, "create-table", "--store", nobody, folder=tmp_path)
    assert answer.returncode == 4, answer.stderr
    assert "connection refused" in answer.stderr


@thorough
def test_what_the_image_copies_ingests_and_queries(installed: Path, tmp_path: Path) -> None:
    text = (
        "The harbour ferry will not run on Sunday because divers have to look at the moorings, the harbour office said."
    )
    (tmp_path / "pages.jsonl").write_text("".join(json.dumps({"id": name, "text": text}) + "\n" for name in "ab"))
    store = ("--store", "lmdb://pages")
    summary = run_installed(installed, "ingest", "pages.jsonl", *store, folder=tmp_path)
    assert summary.returncode == 0, summary.stderr
    assert json.loads(summary.stdout)["added"] == 2
    assert '"id": "b"' in run_installed(installed, "query", "--id", "a", *store, folder=tmp_path).stdout


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


def test_hbases_shell_is_in_its_image_under_the_name_that_messages_say() -> None:
    assert "exec hbase hbase shell\n" in (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    steps = [rest for name, rest in instructions(DOCKER / "hbase" / "Dockerfile") if name == "RUN"]
    assert "ln -s /opt/hbase/entrypoint /usr/local/bin/hbase" in steps
    assert "shell" in entrypoint_commands()


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


def test_the_server_listens_to_this_machine_alone_and_may_end_its_calls() -> None:
    serve = SERVICES["serve"]
    _, port = address_in(serve["environment"]["HSIMHASH_LISTEN"])
    assert address_in(Settings().listen)[1] == port
    assert serve["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert f":{port}/readyz" in serve["healthcheck"]["test"][-1]
    assert int(serve["stop_grace_period"].removesuffix("s")) > STOP_S


def test_the_gateways_are_open_to_this_machine_alone_on_the_ports_that_the_script_takes() -> None:
    defaults = dict(re.findall(r"HBASE_(THRIFT\d)_PORT:-(\d+)", ENTRYPOINT.read_text(encoding="utf-8")))
    wanted = {f"127.0.0.1:{port}:{port}" for port in defaults.values()}
    assert set(SERVICES["hbase"]["ports"]) == wanted
    assert dict(instructions(DOCKER / "hbase" / "Dockerfile"))["EXPOSE"].split() == sorted(defaults.values())
    assert SERVICES["create-table"]["environment"]["HSIMHASH_STORE"] == f"hbase://hbase:{defaults['THRIFT2']}/hsimhash"


def variables(dockerfile: Path) -> dict[str, str]:
    return dict(pair.split("=") for pair in dict(instructions(dockerfile))["ENV"].split())


def test_data_and_job_folders_are_in_named_volumes_where_the_images_put_them() -> None:
    places = {}
    for name in ("hbase", "hsimhash"):
        (volume,) = SERVICES[name]["volumes"]
        source, _, places[name] = volume.partition(":")
        assert source in COMPOSE["volumes"]
    assert places["hbase"] == variables(DOCKER / "hbase" / "Dockerfile")["HBASE_DATA"]
    folder = dict(instructions(DOCKER / "Dockerfile"))["WORKDIR"]
    assert places["hsimhash"] == f"{folder}/.hsimhash"  # an interrupted ingest's job folder outlives its container


@pytest.mark.parametrize("dockerfile", IMAGES, ids=["hsimhash", "hbase"])
def test_an_image_runs_as_a_user_whose_number_never_changes_and_owns_its_volume(dockerfile: Path) -> None:
    steps = list(instructions(dockerfile))
    user, _, group = dict(steps)["USER"].partition(":")
    assert int(user) > 1_000
    made = next(rest for name, rest in steps if name == "RUN" and "useradd" in rest)
    assert f"groupadd --gid {group} " in made
    assert f"useradd --uid {user} --gid {group} " in made
    assert f"install -d -o {user} -g {group} " in made


@pytest.mark.parametrize("dockerfile", IMAGES, ids=["hsimhash", "hbase"])
def test_base_images_are_named_to_the_patch_release(dockerfile: Path) -> None:
    images = [rest.split()[0] for name, rest in instructions(dockerfile) if name == "FROM"]
    assert images
    assert all(re.fullmatch(r"[\w/-]+:\d+\.\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?", image) for image in images), images


def test_every_dependency_of_the_image_has_one_version() -> None:
    lines = (DOCKER / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.lower().split("==") for line in lines if not line.startswith("#"))
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))
    (install,) = (rest for name, rest in instructions(DOCKER / "Dockerfile") if "pip install" in rest)
    extras = re.findall(r"'/src\[([\w,]+)\]'", install)[0].split(",")
    assert extras == ["serve", "metrics"]
    optional = [name for extra in extras for name in project["project"]["optional-dependencies"][extra]]
    needed = [*project["project"]["dependencies"], *optional, *project["build-system"]["requires"]]
    assert {re.split(r"[<>=~]", name)[0].lower().replace("-", "_") for name in needed} <= set(pinned)
    assert "PIP_CONSTRAINT=/src/constraints.txt" in install


def test_services_have_limits_of_memory_beyond_what_their_heaps_may_take() -> None:
    limits = {name: int(service["mem_limit"].removesuffix("m")) for name, service in SERVICES.items()}
    heaps = re.findall(r"HEAP:-(\d+)m", ENTRYPOINT.read_text(encoding="utf-8"))
    server, gateway = map(int, heaps)
    assert limits["hbase"] >= 1.5 * (server + 2 * gateway)


def test_a_wrong_checksum_of_a_jar_ends_the_build() -> None:
    fetched = [rest for name, rest in instructions(DOCKER / "hbase" / "Dockerfile") if name == "RUN" and "mvn" in rest]
    calls = [
        call for rest in [*fetched, ENTRYPOINT.read_text(encoding="utf-8")] for call in re.findall(r"mvn -.*", rest)
    ]
    assert calls
    assert all(re.search(r" (-C|--strict-checksums) ", call) for call in calls)


@pytest.mark.parametrize("name", ["pom.xml", "shell-pom.xml"])
def test_the_versions_of_all_jars_are_properties_of_the_pom(name: str) -> None:
    pom = ElementTree.parse(DOCKER / "hbase" / name)
    versions = [node.text or "" for node in pom.iter("version")][1:]  # the first one is the pom's own
    assert versions
    assert all(re.fullmatch(r"\$\{[\w.]+\}", version) for version in versions)
    assert name in list(copied(SERVICES["hbase"]))


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
