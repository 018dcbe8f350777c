"""`hsimhash completion`: complete commands and options in bash, zsh and fish."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import BashComplete, FishComplete, ZshComplete

from hsimhash.cli.console import print_line, say
from hsimhash.cli.help import Command
from hsimhash.files import make_folder

_SCRIPTS = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
SHELLS = tuple(_SCRIPTS)
_VARIABLE = "_HSIMHASH_COMPLETE"
_STARTS_ZSH = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"


class _Place(NamedTuple):
    """The path of a shell's completion script, and the start-up file that loads it; None for fish."""

    script: Path
    start_up: Path | None


@click.command("completion", cls=Command)
@click.argument("what", type=click.Choice([*SHELLS, "install"]), metavar="bash|zsh|fish|install")
@click.argument("shell", type=click.Choice(SHELLS), required=False, metavar="[SHELL]")
def completion_command(what: str, shell: str | None) -> None:
    """Complete commands and options when you press Tab.

    \b
    Example: hsimhash completion install
             hsimhash completion bash > hsimhash.bash

    'install' sets up the shell in $SHELL, or the one you name. It writes a script to your data folder and adds a line
    that loads it to ~/.bashrc or ~/.zshrc; fish does not need that line. To print the script instead, pass the name of
    a shell.
    """
    if what != "install":
        if shell:
            raise click.UsageError(f"unexpected {shell}: 'hsimhash completion {what}' prints the script for {what}")
        print_line(_script(what))
        return
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise click.UsageError(f"unknown shell {shell!r:.40}; pass bash, zsh or fish to 'hsimhash completion install'")
    _install(shell)


def _script(shell: str) -> str:
    kind = _SCRIPTS[shell]
    return kind(click.get_current_context().find_root().command, {}, "hsimhash", _VARIABLE).source()


def _install(shell: str) -> None:
    place = _place(shell)
    make_folder(place.script.parent)
    place.script.write_text(_script(shell), encoding="utf-8")
    if place.start_up is not None:
        line = f'source "{place.script}"'
        before = place.start_up.read_text(encoding="utf-8") if place.start_up.exists() else ""
        if line not in before:
            with place.start_up.open("a", encoding="utf-8") as file:
                file.write(f"\n# hsimhash\n{_STARTS_ZSH if shell == 'zsh' else ''}{line}\n")
    say(f"installed completion for {shell} in {place.script}; open a new shell to use it")


def _place(shell: str) -> _Place:
    home = Path.home()
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return _Place(config / "fish" / "completions" / "hsimhash.fish", None)
    data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    start_up = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc" if shell == "zsh" else home / ".bashrc"
    return _Place(data / "hsimhash" / f"completion.{shell}", start_up)
