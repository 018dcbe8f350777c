import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from hsimhash import sample
from hsimhash.index import HSimIndex
from tests.support.command_line import ids_in, make_index, run, run_apart
from tests.support.effort import thorough


def number_after(word: str, report: str) -> float:
    found = re.search(rf"\b{word} +([\d.]+)", report)
    assert found, f"no {word} in the report"
    return float(found[1])


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what the demo prints to a pipe when it runs in its own folder without options."""
    folder = tmp_path_factory.mktemp("demo")
    done = run_apart("demo", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / ".demo" / "index").is_dir()
    return done.stdout.decode()


def test_what_it_finds_is_right_and_most_of_the_truth(report: str) -> None:
    # Edits easily move short texts by more than 3 bits, and the sample does not hide this: measured .996, .579, .732.
    assert number_after("precision", report) >= 0.95
    assert number_after("recall", report) >= 0.5
    assert number_after("F1", report) >= 0.65


def test_it_shows_five_pairs_side_by_side_with_their_distance(report: str) -> None:
    headings = re.findall(r"^(\w+) \(.+\), distance (\d+) bits?$", report, re.M)
    assert len(headings) == 5
    assert {kind for kind, _ in headings} <= set(sample.PAIR_KINDS)
    assert all(int(distance) <= 6 for _, distance in headings)
    found_by = r"^found by (?:distance|key), about \d+% alike, judging by their sketches *$"
    assert len(re.findall(found_by, report, re.M)) == 5
    assert len(re.findall(r"^(\S+) +\1?\S*/\w+ *$", report, re.M)) == 5


@pytest.mark.parametrize(
    ("locale", "language"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "zh_TW"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "C.UTF-8"}, "en"),
    ],
)
def test_the_first_pair_is_in_the_language_of_the_user(tmp_path: Path, locale: dict[str, str], language: str) -> None:
    environment = dict.fromkeys(("LANG", "LC_MESSAGES", "LC_ALL"), "") | locale
    shown = run("demo", "--store", f"lmdb://{tmp_path}/index", environment=environment).stdout
    assert shown.index(f"\n{language}-") < shown.index(f"\n{'en' if language == 'zh' else 'zh'}-")
    assert f"--id {language}-" in shown


@thorough
@pytest.mark.parametrize("is_on_path", [True, False])
def test_it_names_the_program_by_its_path_where_the_shell_does_not_find_it(tmp_path: Path, is_on_path: bool) -> None:
    program = tmp_path / "bin" / "hsimhash"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom hsimhash.__main__ import main\nmain()\n")
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}{os.pathsep}/usr/bin" if is_on_path else "/usr/bin"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1])
    done = subprocess.run(["bin/hsimhash", "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    called = "hsimhash" if is_on_path else "bin/hsimhash"
    assert len(re.findall(rf"^  {called} \w+", done.stdout, re.M)) == 3
    assert ("not on your PATH: the program is bin/hsimhash" in done.stdout) != is_on_path


def test_what_differs_stands_in_brackets_where_there_are_no_colours(report: str) -> None:
    assert len(re.findall(r"\[[^\]]+\]", report)) >= 5


def test_every_kind_has_its_recall(report: str) -> None:
    for kind in sample.PAIR_KINDS:
        assert re.search(rf"^{kind} .* \d+ +\d+ +\d+ +[01]\.\d\d$", report, re.M), kind


def test_it_is_plain_text_of_80_columns(report: str) -> None:
    assert not re.search(r"[\x1b\u2500-\u257f]", report)
    assert max(cell_len(line) for line in report.splitlines()) <= 80


def test_it_names_the_index_and_three_commands(report: str) -> None:
    assert "lmdb://.demo/index" in report
    assert len(re.findall(r"^  (?:python -m )?hsimhash \w+", report, re.M)) == 3


def test_a_second_run_says_that_it_starts_over_and_finds_the_same(tmp_path: Path) -> None:
    first, second = (run("demo", "--store", f"lmdb://{tmp_path}/index") for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "starting over" not in first.stderr
    assert "starting over" in second.stderr
    assert first.stdout.splitlines()[2:] == second.stdout.splitlines()[2:]


def test_keep_leaves_the_documents_as_they_are(tmp_path: Path) -> None:
    url = f"lmdb://{tmp_path}/index"
    run("demo", "--store", url)
    with HSimIndex.open(url) as index:
        before = list(index.documents())
    kept = run("demo", "--store", url, "--keep")
    with HSimIndex.open(url) as index:
        assert list(index.documents()) == before
    assert kept.exit_code == 0
    assert "starting over" not in kept.stderr


def test_an_index_of_other_documents_is_refused_and_untouched(tmp_path: Path) -> None:
    url = make_index(tmp_path, {"mine": 1})
    refused = run("demo", "--store", url)
    assert refused.exit_code == 5
    assert "'mine'" in refused.stderr
    assert ids_in(url) == ["mine"]
