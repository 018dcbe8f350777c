"""The help: commands by task, options in groups, `hsimhash help`; and shell completion."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hsimhash.cli.help import FEW
from hsimhash.cli.program import COMMANDS, TASKS, main
from hsimhash.cover import DEFAULT_DISTANCE
from tests.support.command_line import run, run_apart

MOST_FLAGS = 94


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command, including those in groups."""
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in command.commands.items())


def test_commands_are_grouped_by_task_and_the_first_step_is_named_first() -> None:
    shown = run("--help").stdout
    assert shown.splitlines()[2] == "  Find near-duplicate documents. Start with: hsimhash dedup DIR --out RESULT"
    places = [shown.index(f"\n{title}:\n") for title in TASKS]
    assert places == sorted(places)
    assert next(iter(TASKS)) == "Start here"
    assert list(TASKS["Start here"]) == ["demo", "dedup", "apply", "ingest", "query"]


def test_help_is_a_command_too() -> None:
    assert run("help").stdout.split() == run("--help").stdout.split()
    for name in (("dedup",), ("settings", "show"), ("tables", "write")):
        assert run("help", *name).stdout.split() == run(*name, "--help").stdout.split()
    refused = run("help", "nope")
    assert refused.exit_code == 2
    assert "no such command: 'nope'" in refused.stderr


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=lambda one: one if isinstance(one, str) else "")
def test_an_example_comes_first_and_every_option_is_shown_once(name: str, command: click.Command) -> None:
    shown = run(*name.split(), "--help").stdout
    if name.startswith("find-"):  # these print the help of simhash-cpp
        return
    assert shown.split("\n\n")[2].lstrip().startswith("Example: "), shown
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    _, *sections = re.split(r"\n\n([A-Z][\w ]+):\n", shown)
    listed = [line for text in sections[1::2] for line in text.splitlines() if line.startswith("  -")]
    assert len(listed) == len(options) + 1  # plus --help
    is_long = len(options) + 1 > FEW and not isinstance(command, click.Group)
    assert ("Options" not in sections) == is_long


@pytest.mark.parametrize(
    ("command", "other", "own"), [("serve", "--port", "--listen"), ("relayout", "--from", "--store")]
)
def test_options_that_other_programs_have_lead_to_ours(command: str, other: str, own: str) -> None:
    refused = run(command, other, "x")
    assert refused.exit_code == 2
    assert f"No such option '{other}'. Did you mean '{own}'?" in refused.stderr


def test_a_misspelt_option_never_leads_to_a_hidden_one() -> None:
    assert "No such option '--distnace'. Did you mean '--distance'?" in run("dedup", "x", "--distnace", "3").stderr


def test_a_missing_option_is_explained() -> None:
    refused = 0
    for name, command in commands():
        required = [one for one in command.params if isinstance(one, click.Option) and one.required]
        has_inputs = any(isinstance(one, click.Argument) for one in command.params)
        if not required or name.startswith("find-"):
            continue
        said = run(*name.split(), *(["input"] if has_inputs else [])).stderr
        assert any(f"Missing option '{one.opts[0]} {one.metavar}'. {one.help}" in said for one in required), said
        refused += 1
    assert refused >= 7


def test_there_are_no_more_flags_than_there_were() -> None:
    options = [one for command in (main, *(one for _, one in commands())) for one in command.params]
    names = {name for one in options if isinstance(one, click.Option) for name in (*one.opts, *one.secondary_opts)}
    assert len({name for name in names if name.startswith("--")}) <= MOST_FLAGS


def test_one_name_for_the_distance_and_the_old_one_is_accepted_with_a_word() -> None:
    for name, command in commands():
        assert "--max-distance" not in run(*name.split(), "--help").stdout, name
        names = {option for one in command.params for option in one.opts}
        assert "--max-distance" not in names or "--distance" in names, name
    new, old = (run("settings", "show", option, "5") for option in ("--distance", "--max-distance"))
    assert new.stdout == old.stdout
    assert new.stderr == ""
    assert old.stderr == "hsimhash: --max-distance is now --distance; the next release will not accept the old name\n"


def test_one_distance_without_options_where_there_is_no_server(tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(50))
    (tmp_path / "in.jsonl").write_text(json.dumps({"id": "a", "text": text}))
    source, url = str(tmp_path / "in.jsonl"), f"lmdb://{tmp_path / 'index'}"
    assert run("dedup", source, "--out", str(tmp_path / "out")).exit_code == 0
    assert json.loads((tmp_path / "out" / "stats.json").read_text())["options"]["max_distance"] == DEFAULT_DISTANCE
    assert run("ingest", source, "--on-duplicate", "skip", "--store", url).exit_code == 0
    asked = json.loads(run("explain", "--id", "a", "--store", url, "--json").stdout)
    assert asked["max_distance"] == DEFAULT_DISTANCE
    planned = json.loads(run("plan", "--documents", "1K", "--store", "lmdb", "--json").stdout)
    assert planned["lmdb"]["distance"] == DEFAULT_DISTANCE


def completed(words: str) -> list[str]:
    variables = {"_HSIMHASH_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    shown = run_apart(environment={**variables, "PYTHONPATH": str(Path(__file__).parents[1])}).stdout.decode()
    return [line.partition(",")[2] for line in shown.splitlines()]


def test_commands_and_options_are_completed() -> None:
    assert completed("hsimhash de") == ["demo", "dedup", "describe"]
    assert completed("hsimhash dedup --dis") == ["--distance"]


@pytest.mark.parametrize(
    ("shell", "script", "start_up"),
    [
        ("bash", ".local/share/hsimhash/completion.bash", ".bashrc"),
        ("zsh", ".local/share/hsimhash/completion.zsh", ".zshrc"),
        ("fish", ".config/fish/completions/hsimhash.fish", None),
    ],
)
def test_completion_is_installed_by_one_command_and_twice_is_once(
    shell: str, script: str, start_up: str | None, tmp_path: Path
) -> None:
    if start_up:
        (tmp_path / start_up).write_text("# mine")
    home = {
        "HOME": str(tmp_path),
        "SHELL": f"/usr/bin/{shell}",
        "XDG_DATA_HOME": "",
        "XDG_CONFIG_HOME": "",
        "ZDOTDIR": "",
    }
    for _ in range(2):
        assert run("completion", "install", environment=home).exit_code == 0
    assert (tmp_path / script).read_text() == run("completion", shell).stdout.removesuffix("\n")
    if start_up:
        assert (tmp_path / start_up).read_text().startswith("# mine\n")
        assert (tmp_path / start_up).read_text().count(f'source "{tmp_path / script}"') == 1


def test_the_installed_script_completes_in_bash(tmp_path: Path) -> None:
    assert run("completion", "install", "bash", environment={"HOME": str(tmp_path), "XDG_DATA_HOME": ""}).exit_code == 0
    shown = subprocess.run(
        ["bash", "--norc", "-ic", "source ~/.bashrc; complete -p hsimhash"],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "_hsimhash_completion hsimhash" in shown.stdout


def test_an_unknown_shell_is_refused() -> None:
    refused = run("completion", "install", environment={"SHELL": "/bin/csh"})
    assert refused.exit_code == 2
    assert "bash, zsh or fish" in refused.stderr
