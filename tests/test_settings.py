"""Settings: which source wins, where each value came from, and the messages for mistakes."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from hsimhash.cli.program import COMMANDS
from hsimhash.errors import SettingsError
from hsimhash.settings import DEFAULT, KEYS, OTHER_VARIABLES, Settings, flag_of, load, variable_of
from tests.support.command_line import make_index, run

SAMPLE = Path(__file__).parents[1] / "conf" / "hsimhash.yaml"


pytestmark = pytest.mark.usefixtures("in_empty_folder")


def write(text: str, name: str = "hsimhash.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def settings_lines(path: Path) -> list[str]:
    return [
        line[1:] for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "#" and line[1:2].isalpha()
    ]


def test_sample_file_shows_every_setting_with_its_default() -> None:
    lines = "\n".join(settings_lines(SAMPLE))
    shown = yaml.safe_load(lines)
    assert shown | {"lock_timeout_s": None} == load().settings.shown()  # deprecated
    assert tuple(shown) == tuple(key for key in KEYS if key != "lock_timeout_s")
    assert load(config=write(lines)).settings == load().settings


def test_sample_file_sets_nothing_by_itself() -> None:
    loaded = load(config=SAMPLE)
    assert not loaded.settings.given
    assert set(loaded.sources.values()) == {DEFAULT}


def test_flag_beats_environment_beats_file_beats_default() -> None:
    path = write("store: lmdb://file\nlayout: '4'\nid_field: key\n")
    loaded = load({"store": "lmdb://flag"}, {"HSIMHASH_STORE": "lmdb://variable", "HSIMHASH_LAYOUT": "20"}, path)
    assert (loaded.settings.store, loaded.settings.layout, loaded.settings.id_field) == ("lmdb://flag", "20", "key")
    assert loaded.sources["store"] == "--store"
    assert loaded.sources["layout"] == "HSIMHASH_LAYOUT"
    assert loaded.sources["id_field"] == "hsimhash.yaml:3"
    assert loaded.sources["profile"] == DEFAULT
    assert loaded.settings.given == {"store", "layout", "id_field"}


def test_file_is_the_first_of_flag_variable_folder_and_home() -> None:
    home = Path("home").absolute()
    environment = {"HOME": str(home)}
    assert load(None, environment).settings.id_field is None
    write("id_field: home", "home/.config/hsimhash/hsimhash.yaml")
    assert load(None, environment).settings.id_field == "home"
    write("id_field: folder")
    assert load(None, environment).settings.id_field == "folder"
    environment["HSIMHASH_CONFIG"] = str(write("id_field: variable", "variable.yaml"))
    assert load(None, environment).settings.id_field == "variable"
    assert load(None, environment, write("id_field: flag", "flag.yaml")).settings.id_field == "flag"


@pytest.mark.parametrize("written", ["20", "2026-02-30", "0x10", "yes", '"null"'])
def test_values_are_text_without_quotes_too(written: str) -> None:
    assert load(config=write(f"job: {written}")).settings.job == written.strip('"')


def test_null_and_an_empty_variable_set_nothing() -> None:
    loaded = load(None, {"HSIMHASH_WORKERS": "null", "HSIMHASH_STORE": ""}, write("max_distance: null\nworkers: 3"))
    assert (loaded.settings.workers, loaded.settings.max_distance) == (None, None)
    assert loaded.sources["workers"] == "HSIMHASH_WORKERS"
    assert loaded.sources["store"] == DEFAULT


@pytest.mark.parametrize(("written", "bits"), [("off", None), ("null", 20), ("0", 0), ("64", 64)])
def test_sketches_are_compared_unless_that_is_off(written: str, bits: int | None) -> None:
    assert load().settings.max_sketch == 20
    assert load(config=write(f"max_sketch: {written}")).settings.max_sketch == bits
    assert load({"max_sketch": "5"}, {"HSIMHASH_MAX_SKETCH": written}).settings.max_sketch == 5


def test_other_variables_are_no_settings() -> None:
    load(None, {"HSIMHASH_DATA": "/data", "PATH": "/bin", "HSIM": "x"})


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("store: lmdb://x\nlayot: 4\n", ["hsimhash.yaml:2", "'layot' = '4'", "did you mean layout"]),
        ("\nworkers: many\n", ["hsimhash.yaml:2", "workers = 'many'", "must be an integer of at least 1"]),
        ("workers: yes\n", ["hsimhash.yaml:1", "workers = 'yes'", "must be an integer of at least 1"]),
        ("workers: 0\n", ["workers = '0'", "must be an integer of at least 1"]),
        ("max_distance: 65\n", ["max_distance = '65'", "must be an integer from 0 to 64"]),
        ("lock_timeout_s: inf\n", ["lock_timeout_s = 'inf'", "must be a finite number from 0 to 86400"]),
        ("slow_query_s: nan\n", ["slow_query_s = 'nan'", "must be a finite number of at least 0"]),
        ("profile: null\n", ["profile = None", "must not be null"]),
        ("job: ''\n", ["job = ''", "must not be empty"]),
        ("max_sketch: 65\n", ["max_sketch = '65'", "a number from 0 to 64, or off"]),
        ("layout: 13\n", ["layout = '13'", "unknown layout '13'"]),
        ("profile: zh-0\n", ["profile = 'zh-0'"]),
        ("store: pages\n", ["store = 'pages'", "use ./pages or lmdb://pages"]),
        ("on_duplicate: drop\n", ["on_duplicate = 'drop'", "'add', 'skip' or 'tag'"]),
        ("store: lmdb://x\nstore: lmdb://y\n", ["hsimhash.yaml:2", "set twice", "hsimhash.yaml:1"]),
        ("store: [lmdb://x\n", ["hsimhash.yaml:2", "invalid YAML"]),
        ("store: {a: 1}\n", ["hsimhash.yaml:1: store must be a single value", "not a list or a mapping"]),
        ("? [a]\n: 1\n", ["hsimhash.yaml:1", "unknown key"]),
        (f"workers: {'1' * 5_000}\n", ["hsimhash.yaml:1", "workers = '111", "must be an integer of at least 1"]),
        ("- store\n", ["hsimhash.yaml:1", "key: value"]),
        ("store\n", ["hsimhash.yaml:1", "key: value"]),
        ("store: !!python/name:os.system\n", ["hsimhash.yaml:1", "store = ''"]),
    ],
)
def test_mistake_in_the_file_names_line_key_value_and_remedy(text: str, parts: list[str]) -> None:
    write(text)
    with pytest.raises(SettingsError) as caught:
        load(None, {})
    for part in parts:
        assert part in str(caught.value)


def test_mistake_in_the_environment_names_the_variable() -> None:
    with pytest.raises(SettingsError, match=r"HSIMHASH_WORKERS: workers = 'x'"):
        load(None, {"HSIMHASH_WORKERS": "x"})


def test_a_misspelt_variable_is_a_warning_with_the_nearest_name_and_not_its_value() -> None:
    result = run("settings", "show", "--json", environment={"HSIMHASH_STOER": "redis://u:sesame@h/0"})
    assert result.exit_code == 0
    assert json.loads(result.stdout)["store"] == {"value": "lmdb://hsimhash-index", "source": "default"}
    assert result.stderr.splitlines() == [
        "hsimhash: warning: unknown variable 'HSIMHASH_STOER' is ignored; did you mean HSIMHASH_STORE? "
        "'hsimhash settings show' lists all settings"
    ]
    assert run("describe", environment={"HSIMHASH_STOER": "x"}).stderr.count("warning") == 1


SERVICES = ("", "API_", "API_V2_")
INJECTED = {
    "SERVICE_HOST": "10.0.0.1",
    "SERVICE_PORT": "8343",
    "SERVICE_PORT_HTTP": "8343",
    "PORT": "tcp://10.0.0.1:8343",
    **{
        f"PORT_8343_{protocol}{part}": value
        for protocol in ("TCP", "UDP", "SCTP")
        for part, value in {
            "": "tcp://10.0.0.1:8343",
            "_ADDR": "10.0.0.1",
            "_PORT": "8343",
            "_PROTO": "tcp",
            "_START": "tcp://10.0.0.1:8343",
            "_PORT_START": "8343",
            "_PORT_END": "8350",
        }.items()
    },
    "NAME": "/web/hsimhash",
    "ENV_PYTHON_VERSION": "3.13",
    "ENV_HSIMHASH_STORE": "lmdb://theirs",
}


@pytest.mark.parametrize("service", SERVICES)
def test_the_variables_of_a_service_named_hsimhash_are_no_settings(service: str) -> None:
    environment = {f"HSIMHASH_{service}{name}": value for name, value in INJECTED.items()}
    assert not set(environment) & set(map(variable_of, KEYS))
    for loaded in (load(None, environment), *(load(None, {name: value}) for name, value in environment.items())):
        assert (loaded.settings, loaded.warnings) == (Settings(), ())


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_minds_the_variables_of_such_a_service(command: str) -> None:
    environment = {f"HSIMHASH_{service}{name}": value for service in SERVICES for name, value in INJECTED.items()}
    for arguments in ((command, "--help"), (command, "x")):
        plain, linked = run(*arguments), run(*arguments, environment=environment)
        assert (plain.exit_code, plain.output) == (linked.exit_code, linked.output)


@pytest.mark.parametrize("command", [["describe"], ["ingest", "in.tsv", "--exclusive"]], ids=str)
def test_old_flags_are_options_of_the_url_for_one_release(command: list[str], tmp_path: Path) -> None:
    url = make_index(tmp_path)
    Path("in.tsv").write_text("x\t0000000000000001\n", encoding="utf-8")
    result = run(*command, "--store", url, environment={"HSIMHASH_LOCK_TIMEOUT_S": "7"})
    assert result.exit_code == 0
    assert "are now lock_timeout=7s in the URL of the index" in result.stderr
    assert ("--exclusive is now exclusive=yes in the URL" in result.stderr) == ("--exclusive" in command)


def test_bad_flag_is_a_wrong_argument() -> None:
    with pytest.raises(ValueError, match="--lock-timeout: lock_timeout_s = 'long'"):
        load({"lock_timeout_s": "long"})


def test_file_that_was_asked_for_must_be_there_and_readable() -> None:
    with pytest.raises(SettingsError, match=r"settings file gone\.yaml does not exist \(from --config"):
        load(config=Path("gone.yaml"))
    with pytest.raises(SettingsError, match=r"settings file gone\.yaml does not exist \(from HSIMHASH_CONFIG"):
        load(None, {"HSIMHASH_CONFIG": "gone.yaml"})
    Path("latin.yaml").write_bytes(b"store: lmdb://\xe4\n")
    with pytest.raises(SettingsError, match="not UTF-8"):
        load(config=Path("latin.yaml"))


@pytest.mark.parametrize("place", ["hsimhash.yaml", "home/.config/hsimhash/hsimhash.yaml", "asked.yaml"])
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("gone"), "No such file"),
    ],
)
def test_file_that_is_none_is_named_with_the_reason(place: str, make: Callable[[Path], None], reason: str) -> None:
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    make(Path(place))
    environment = {"HOME": "home", **({"HSIMHASH_CONFIG": place} if place.startswith("asked") else {})}
    with pytest.raises(SettingsError, match=f"settings file {place} cannot be read: {reason}"):
        load(None, environment)


def test_folder_that_cannot_be_looked_into_is_named() -> None:
    environment = {"HOME": "x" * 300}  # instead of a folder that is closed to this user: root may enter any
    with pytest.raises(SettingsError, match=r"hsimhash\.yaml cannot be read: File name too long"):
        load(None, environment)


def test_settings_read_no_environment_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE", "lmdb://wrong")
    monkeypatch.setenv("HSIMHASH_STORE", "lmdb://wrong")
    assert load().settings == Settings()
    assert load().settings.store == "lmdb://hsimhash-index"


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_other_unknown_variable_is_a_warning_with_its_name(key: str, value: str) -> None:
    name = f"HSIMHASH_{key}"
    assume(name not in [*map(variable_of, KEYS), *OTHER_VARIABLES])
    assume(not re.search("(HOST|PORT|PORT_.*|NAME)$|ENV_", name))
    (warning,) = load(None, {name: value}).warnings
    assert f"{name!r:.80}" in warning


# `hsimhash settings show`.


def test_it_shows_every_setting_its_value_and_its_source(tmp_path: Path) -> None:
    Path("mine.yaml").write_text("id_field: url\n")
    environment = {"HSIMHASH_LAYOUT": "20"}
    result = run("--config", "mine.yaml", "settings", "show", "--store", "lmdb://x", environment=environment)
    assert result.exit_code == 0
    shown = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines()}
    assert tuple(shown) == KEYS
    assert shown["id_field"] == ['"url"', "mine.yaml:1"]
    assert shown["layout"] == ['"20"', "HSIMHASH_LAYOUT"]
    assert shown["store"] == ['"lmdb://x"', "--store"]
    assert shown["workers"] == ["null", "default"]


def test_json_has_value_and_source_of_each() -> None:
    shown = json.loads(run("settings", "show", "--json", "--lock-timeout", "5").stdout)
    assert shown["lock_timeout_s"] == {"value": 5.0, "source": "--lock-timeout"}
    assert shown["max_distance"] == {"value": None, "source": "default"}
    assert tuple(shown) == KEYS


def test_every_setting_has_a_flag_but_the_password_which_a_list_of_processes_would_show() -> None:
    help_text = run("settings", "show", "--help").stdout
    shown = json.loads(run("settings", "show", "--json").stdout)
    for key in shown:
        # `lock_timeout_s` is deprecated.
        assert (f"{flag_of(key)} " in help_text) == (key not in ("redis_password", "lock_timeout_s"))


def test_a_password_is_in_no_output_and_no_message() -> None:
    write("redis_password: sesame\n")
    assert load().settings.redis_password == "sesame"
    write("redis_password: sesame\nredis_password: sesame\n", "twice.yaml")
    write("redis_pasword: sesame\n", "typo.yaml")
    given = (
        ((), {}),
        (("--json",), {}),
        ((), {"HSIMHASH_REDIS_PASSWORD": "sesame"}),
        ((), {"HSIMHASH_REDIS_PASWORT": "sesame"}),
        ((), {"HSIMHASH_PASSWORD": "sesame"}),
        ((), {"HSIMHASH_CONFIG": "twice.yaml"}),
        ((), {"HSIMHASH_CONFIG": "typo.yaml"}),
        ((), {"HSIMHASH_REDIS_PASSWORD": "sesame\udcff"}),
    )
    codes = []
    for flags, environment in given:
        shown = run("settings", "show", *flags, environment=environment)
        assert "password" in shown.output.lower()
        assert "sesame" not in shown.output
        codes.append(shown.exit_code)
    assert codes == [0, 0, 0, 0, 0, 3, 3, 3]
