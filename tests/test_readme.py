"""The commands and code of the README and the other pages run as written, and everything that they name exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from docs import package_page
from hsimhash import __version__
from hsimhash.cli.program import COMMANDS, main
from tests import commands_page

pytestmark = pytest.mark.every_case
TOP = Path(__file__).parents[1]
README = (TOP / "README.md").read_text(encoding="utf-8")
DOCS = {str(path.relative_to(TOP / "docs" / "pages")): path for path in sorted(TOP.glob("docs/pages/**/*.md"))}
PAGES = [*TOP.glob("*.md"), *TOP.glob("schema/*.md"), *DOCS.values()]


def doc(name: str) -> str:
    """Return the text of a documentation page."""
    return DOCS[name].read_text(encoding="utf-8")


USED_AS = (README, *map(doc, DOCS))
OPERATIONS = "".join(doc(name) for name in DOCS if name.startswith("operations/"))


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=280, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_shell_commands_run_and_find_the_near_duplicate(tmp_path: Path) -> None:
    assert blocks("sh")
    output = "".join(run(["bash", "-euc", block], tmp_path) for page in USED_AS for block in blocks("sh", page))
    assert re.search(r'"id": "b"', output)


@pytest.mark.parametrize("block", [block for page in USED_AS for block in blocks("python", page)])
def test_python_code_runs(block: str, tmp_path: Path) -> None:
    run([sys.executable, "-c", block], tmp_path)


def test_every_command_is_in_the_table() -> None:
    table = doc("guide/command-line.md")
    assert [name for name in COMMANDS if f"`{name}" not in table and f"make {name}" not in README] == []


def test_the_chinese_readme_has_the_same_code_commands_and_numbers() -> None:
    fence = re.compile(r"^```\w*\n.*?^```", re.MULTILINE | re.DOTALL)
    code, spans, numbers = [], [], []
    for text in (README, (TOP / "README.zh-CN.md").read_text(encoding="utf-8")):
        code.append([re.sub(r" +# .*", "", block) for block in fence.findall(text)])  # comments are translated
        prose = fence.sub("", text)
        spans.append(set(re.findall(r"`([^`\n]+)`", prose)))
        numbers.append(set(re.findall(r"\d[\d,.]*\d", prose)))
    assert code[0] == code[1]
    assert spans[0] == spans[1]
    assert numbers[0] == numbers[1]


def test_on_a_package_index_the_links_of_the_readme_lead_to_its_release() -> None:
    page = package_page.page()
    link = rf"https://github\.com/{package_page.REPOSITORY}/(?:blob|raw)/v{re.escape(__version__)}/([^)#]+)"
    linked, relative = re.findall(link, page), re.findall(r"\]\(([^):#]+)[#)]", README)
    assert linked == relative
    assert [path for path in linked if not (TOP / path).exists()] == []
    assert re.findall(r"\]\(([^):#]+)[#)]", page) == []


def test_the_command_reference_is_what_help_says() -> None:
    written = commands_page.PAGE.read_text(encoding="utf-8")
    assert written.split() == commands_page.text().split(), "'python -m tests.commands_page' writes it anew"


@pytest.mark.parametrize("block", blocks("console", OPERATIONS))
def test_what_a_page_shows_of_a_console_is_what_is_printed(block: str, tmp_path: Path) -> None:
    command, _, shown = block.removeprefix("$ ").partition("\n")
    printed = run(["bash", "-euc", f"{command} 2>&1"], tmp_path)
    assert printed.replace("─", "").split() == shown.replace("─", "").split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_options_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    spans = re.findall(r"`(?:hsimhash )?([a-z-]+)( [^`]*)`", text)
    lines = re.findall(r"^(?:\$ )?hsimhash ([a-z-]+)( .*)", text, re.MULTILINE)
    for name, words in [*spans, *lines]:
        if name in COMMANDS:
            command = main.get_command(click.Context(main), name)
            if isinstance(command, click.Group):
                command = command.get_command(click.Context(command), words.split()[0])
            assert command is not None
            known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
            named = set(re.findall(r"(?<=\s)--[a-z-]+", words.partition(" | ")[0]))
            assert named <= known, f"{name}: {named - known}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_files_and_make_targets_that_a_page_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    places = re.findall(r"`((?:hsimhash|tests|schema|docker|conf)/[\w/.-]+)[` ]", text)
    assert [place for place in places if not re.search("X|NAME", place) and not (TOP / place).exists()] == []
    makefile = (TOP / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"`(?:\w+=\w* )?make ([a-z-]+)", text))
    assert {target for target in targets if f"\n{target}:" not in makefile} == set()
